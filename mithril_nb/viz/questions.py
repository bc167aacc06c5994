"""Questions, results of answers and scores as text and HTML. A question contains no answer."""

from __future__ import annotations

import re

from mithril_nb.teach.puzzles import Puzzle, PuzzleResult
from mithril_nb.teach.question import Question, Result, Score
from mithril_nb.viz.html_parts import html_table, output_html
from mithril_nb.viz.text import escaped

_VERDICTS = {True: "✓ right", False: "✗ not right", None: "no answer"}


def question_text(question: Question) -> str:
    """Return a question as text: the question, the lines that it is about, the choices, and how to answer."""
    if question.unavailable:
        return question.unavailable
    choices = [f"  {number}. {choice}" for number, choice in enumerate(question.choices, 1) if not question.items]
    lines = [f"  {line}" for line in question.code.splitlines()]
    return "\n".join((question.text, *lines, *choices, f"Answer with question.predict(...): {question.hint}."))


def question_html(question: Question) -> str:
    """Return a question as one self-contained HTML fragment."""
    return output_html(question_body(question), "question")


def question_body(question: Question, has_choices: bool = True) -> str:
    """Return a question as HTML without a style sheet; a widget draws the choices itself."""
    if question.unavailable:
        return f'<div class="question"><p>{_spans(question.unavailable)}</p></div>'
    code = f"<pre>{escaped(question.code)}</pre>" if question.code else ""
    choices = "".join(f"<li>{_spans(choice)}</li>" for choice in question.choices)
    listed = f"<ol>{choices}</ol>" if has_choices and choices and not question.items else ""
    hint = f'<p class="quiet">Answer with {escaped(question.hint)}.</p>' if has_choices else ""
    return f'<div class="question"><p>{_spans(question.text)}</p>{code}{listed}{hint}</div>'


def result_text(result: Result) -> str:
    """Return the result of an answer as text."""
    if result.right is None:
        return result.reason
    parts = [f"{_VERDICTS[result.right]}: {result.answer}"]
    parts += [] if result.right else [f"The answer is {result.truth}."]
    lines = [f"  {stage}: {line}" for stage, line in result.lines]
    return "\n".join(filter(None, (*parts, result.reason, *lines, result.note)))


def result_html(result: Result) -> str:
    """Return the result of an answer as one self-contained HTML fragment."""
    return output_html(result_body(result), "question")


def result_body(result: Result) -> str:
    """Return the result of an answer as HTML without a style sheet."""
    if result.right is None:
        return f'<div class="result"><p>{_spans(result.reason)}</p></div>'
    verdict = f"<b>{_VERDICTS[result.right]}</b> {_spans(result.answer)}"
    truth = "" if result.right else f"<p>The answer is <b>{_spans(result.truth)}</b>.</p>"
    note = f"<p>{escaped(result.note)}</p>" if result.note else ""
    rows = [(stage, line) for stage, line in result.lines]
    lines = html_table((), rows, style="lines") if rows else ""
    look = "right" if result.right else "wrong"
    return f'<div class="result {look}"><p>{verdict}</p>{truth}<p>{_spans(result.reason)}</p>{lines}{note}</div>'


def score_text(score: Score) -> str:
    """Return a score as text."""
    if not score.answered:
        return "no question is answered yet"
    return f"{score.right} of {score.answered} questions right at the first answer"


_TITLES = {
    "flops": "FLOPs",
    "bytes_accessed": "bytes read and written",
    "peak_bytes": "bytes of memory at the peak",
    "equations": "equations",
    "traces": "traces in three calls",
}
_SINGULAR = re.compile(r"(?<=^equation)s|(?<=^trace)s|(?<= collective)s$")


def _amount(name: str, value: int) -> str:
    title = _TITLES.get(name, f"{name} collectives")
    return f"{value:,} {_SINGULAR.sub('', title) if value == 1 else title}"


def puzzle_text(puzzle: Puzzle) -> str:
    """Return a puzzle as text: what to write, and its bounds."""
    bounds = [f"  at most {_amount(*item)}" for item in puzzle.bounds.items()]
    heading = f"{puzzle.name}: {puzzle.text}" if puzzle.text else puzzle.name
    return "\n".join((heading, *bounds, "Write the function below the puzzle as its decorator."))


def puzzle_html(puzzle: Puzzle) -> str:
    """Return a puzzle as one self-contained HTML fragment."""
    bounds = "".join(f"<li>at most {_amount(*item)}</li>" for item in puzzle.bounds.items())
    text = f"<p><b>{escaped(puzzle.name)}</b> {_spans(puzzle.text)}</p>"
    return output_html(f'<div class="question">{text}<ul>{bounds}</ul></div>', "question")


def puzzle_result_text(result: PuzzleResult) -> str:
    """Return the result of a try as text."""
    if not result.right:
        return f"not right: {result.reason}"
    figures = [_amount(*figure) for figure in result.figures]
    return f"right: {', '.join(figures)}" if figures else "right"


def _spans(text: str) -> str:
    """Return a text as HTML, with what is between backticks as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escaped(text))
