"""Notebook display of questions, puzzles and explanations."""

from __future__ import annotations

from mithril_nb.display import renderer
from mithril_nb.teach.explain import Explanation
from mithril_nb.teach.puzzles import Puzzle, PuzzleResult
from mithril_nb.teach.question import Question, Result, Score
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.html_parts import html_table, output_html
from mithril_nb.viz.questions import (
    puzzle_html,
    puzzle_result_text,
    puzzle_text,
    question_html,
    question_text,
    result_html,
    result_text,
    score_text,
)


@renderer(Question)
def _question(question: Question) -> Bundle:
    return {"text/plain": question_text(question), "text/html": question_html(question)}


@renderer(Result)
def _result(result: Result) -> Bundle:
    return {"text/plain": result_text(result), "text/html": result_html(result)}


@renderer(Score)
def _score(score: Score) -> Bundle:
    return {"text/plain": score_text(score)}


@renderer(Puzzle)
def _puzzle(puzzle: Puzzle) -> Bundle:
    return {"text/plain": puzzle_text(puzzle), "text/html": puzzle_html(puzzle)}


@renderer(PuzzleResult)
def _puzzle_result(result: PuzzleResult) -> Bundle:
    return {"text/plain": puzzle_result_text(result)}


@renderer(Explanation)
def _explanation(explanation: Explanation) -> Bundle:
    rows = [(clause.kind, clause.text, clause.source) for clause in explanation.clauses]
    text = "\n".join(f"{kind:<8} {text}" for kind, text, _ in rows)
    table = html_table(("", "", "source"), rows, style="made", caption=explanation.code)
    return {"text/plain": f"{explanation.code}\n{text}", "text/html": output_html(table, "summary", "retraces")}
