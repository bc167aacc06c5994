"""Problems as HTML cards: summary, facts and advice, with the same text as the exception."""

from __future__ import annotations

from collections.abc import Sequence

from mithril_nb.errors import Diagnostic
from mithril_nb.viz.escape import block_key, escaped


def problems_html(problems: Sequence[Diagnostic]) -> str:
    """Return problems as an HTML list, without a style sheet; `""` if there are none.

    Examples:
        >>> problems_html([])
        ''
    """
    if not problems:
        return ""
    return f'<ul class="problems">{"".join(_card(problem) for problem in problems)}</ul>'


def problems_css() -> str:
    """Return the CSS rules of the cards."""
    return (
        ".mnb .problems{list-style:none;margin:0 0 12px;padding:0}"
        ".mnb .problems li{border:1px solid var(--bad);border-left-width:5px;border-radius:4px;padding:6px 10px;"
        "margin:0 0 8px;overflow-wrap:anywhere}"
        ".mnb .problems b{color:var(--bad)}"
        ".mnb .problems dl{display:grid;grid-template-columns:fit-content(40%) 1fr;gap:0 12px;margin:4px 0}"
        ".mnb .problems dt{color:var(--muted)}.mnb .problems dd{margin:0;white-space:pre-wrap}"
        ".mnb .problems code{white-space:pre-wrap}"
    )


def _card(problem: Diagnostic) -> str:
    shown = problem.shown()
    link = f' data-block="{escaped(block_key(problem.block))}" tabindex="0"' if problem.block else ""
    facts = "".join(f"<dt>{escaped(label)}</dt><dd>{escaped(text)}</dd>" for label, text in shown.facts)
    advice = f"<div>Try: <code>{escaped(shown.advice)}</code></div>" if shown.advice else ""
    return (
        f"<li{link}><b>{escaped(problem.code)}</b>: {escaped(shown.summary)}"
        f"{f'<dl>{facts}</dl>' if facts else ''}{advice}</li>"
    )
