"""Transforms one at a time: the jaxprs before and after each transform, with a sign on each changed line.

A script highlights lines that correspond to each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from mithril_nb.stages.records import Stage
from mithril_nb.viz.html_parts import link_script, output_html, problems_html
from mithril_nb.viz.languages import code_html, highlighted
from mithril_nb.viz.pages.listing import MOST_CHARACTERS, MOST_LINES
from mithril_nb.viz.text import escaped, one_line

SIGNS = {"kept": " ", "new": "+", "changed": "~", "gone": "-"}
_WORDS = {"kept": "unchanged", "new": "new", "changed": "changed", "gone": "removed"}


def steps_text(steps: Any) -> str:
    """Return the steps as text: the explanation of each step, and the jaxpr after it."""
    parts = []
    for number, (title, step) in enumerate(_titled(steps)):
        of = f" of step {number - 1}" if number else ""
        lines = [f"{one_line(title)}: {step.explanation}".rstrip(": ")]
        if step.problem is not None:
            lines += [f"   {line}" for line in str(step.problem).split("\n")]
        if step.after is not None:
            after = _lines(step.after, step.equations, {}, is_marked=step.before is not None, of=of)
            lines += [f"   {sign} {text}{f'  # {note}' if note else ''}" for sign, text, note, _, _ in after]
        gone = [equation.id for equation in step.equations_before if equation.mark == "gone"]
        if gone:
            lines.append(f"   - removed: {', '.join(gone)}")
        parts.append("\n".join(lines))
    left = getattr(steps, "left_out", ())
    if left:
        parts.append(f"not reached: {', '.join(map(one_line, left))}")
    return "\n\n".join(parts)


def steps_html(steps: Any) -> str:
    """Return the steps as one self-contained HTML fragment."""
    legend = "".join(
        # A space, the sign of unchanged lines, would be invisible in the legend.
        f'<span class="m-{mark}"><span class="g">{escaped(SIGNS[mark]).strip() or "·"}</span> {word}</span>'
        for mark, word in _WORDS.items()
    )
    hint = '<span class="quiet">hover over a line to highlight related lines</span>'
    sections = "".join(_section(title, step) for title, step in _titled(steps))
    left = getattr(steps, "left_out", ())
    end = f'<p class="quiet">not reached: {escaped(", ".join(left))}</p>' if left else ""
    body = f'<p class="legend">{legend}{hint}</p>{sections}{end}{link_script()}'
    return output_html(body, "listing", "problems", "steps", kind="mnb mnb-steps")


def _titled(steps: Any) -> list[tuple[str, Any]]:
    return [(f"{number}. {step.name}" if len(steps) > 1 else step.name, step) for number, step in enumerate(steps)]


# Each line as its sign, its text, a note, its mark, and an id that related lines share. `of` is appended to equations
# of the step before.
def _lines(
    stage: Stage, equations: Any, results: Mapping[str, str], is_marked: bool, of: str = ""
) -> Iterator[tuple[str, str, str, str, str]]:
    by_id = {equation.id: equation for equation in equations} if is_marked else {}
    at = {instr.line: by_id[instr.id] for instr in stage.instructions if instr.id in by_id}
    lines = stage.text.rstrip("\n").split("\n")
    for number, text in enumerate(lines[:MOST_LINES], 1):
        marked = at.get(number)
        if marked is None:
            yield " ", text, "", "", ""
            continue
        note, source = marked.note, results.get(marked.id, "")
        if marked.source is not None:
            source = f"equation {marked.source}{of}"
            # The result is "adds a batch axis of 8 to equation 3", or "jvp of sin, from equation 3".
            note, source = (f"{note} to {source}", "") if marked.is_batched else (note, f"from {source}")
        origin = "inferred" if marked.origin == "inferred" else ""
        note = ", ".join(part for part in (note, source, origin) if part and marked.mark != "kept")
        yield SIGNS[marked.mark], text, note, marked.mark, marked.source or (marked.id if results else "")
    if len(lines) > MOST_LINES:
        yield " ", f"... {len(lines) - MOST_LINES:,} more lines", "", "", ""


def _section(title: str, step: Any) -> str:
    problem = problems_html([step.problem] if step.problem is not None else [])
    panes = ""
    if step.before is not None:
        results = defaultdict[str, list[str]](list)
        for equation in step.equations:
            results[equation.source].append(equation.id)
        links = {}
        for equation in step.equations_before:
            ids = results.get(equation.id, [])
            links[equation.id] = f"to equation{'s' if len(ids) > 1 else ''} {', '.join(ids)}" if ids else ""
        panes += _pane("before", step.before, _lines(step.before, step.equations_before, links, is_marked=True))
    if step.after is not None:
        panes += _pane("after", step.after, _lines(step.after, step.equations, {}, is_marked=step.before is not None))
    explanation = f"<p>{escaped(step.explanation)}</p>" if step.explanation else ""
    return (
        f'<section class="mnb-linked step"><h4>{escaped(title)}</h4>{explanation}{problem}'
        f'<div class="panes">{panes}</div></section>'
    )


def _pane(title: str, stage: Stage, lines: Iterator[tuple[str, str, str, str, str]]) -> str:
    colours = highlighted(stage.text.rstrip("\n"), "jaxpr")
    rows = []
    for number, ((sign, text, note, mark, links), pieces) in enumerate(zip(lines, colours, strict=False), 1):
        cut = len(text) > MOST_CHARACTERS
        if mark == "kept" or cut or number > MOST_LINES:  # unchanged lines have no colours
            code = escaped(text[:MOST_CHARACTERS]) + ("…" if cut else "")
        else:
            code = code_html(pieces)
        word = _WORDS.get(mark, "")
        tooltip = ": ".join(part for part in (word, note) if part)
        linked = f' data-e="{escaped(links)}"' if links else ""
        hover = f' title="{escaped(tooltip)}"' if tooltip else ""
        look = f" m-{mark}" if mark else ""
        name = f' role="img" aria-label="{word}"' if mark else ""
        rows.append(
            f'<div class="l{look}"{linked}{hover}><span class="n">{number if number <= MOST_LINES else ""}</span>'
            f'<span class="g"{name}>{escaped(sign)}</span><span class="x">{code}</span></div>'
        )
    return (
        f'<section class="pane" aria-label="jaxpr {title}"><header><b>{title}</b></header>'
        f'<div class="code" tabindex="0" role="region" aria-label="jaxpr {title}, text">'
        f'<div class="lines" style="--w:{len(str(len(rows)))}">{"".join(rows)}</div></div></section>'
    )
