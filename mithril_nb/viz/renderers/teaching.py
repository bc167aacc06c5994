"""Notebook display of explanations."""

from __future__ import annotations

from mithril_nb.display import renderer
from mithril_nb.teach.explain import Explanation
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.html_parts import html_table, output_html


@renderer(Explanation)
def _explanation(explanation: Explanation) -> Bundle:
    rows = [(clause.kind, clause.text, clause.source) for clause in explanation.clauses]
    text = "\n".join(f"{kind:<8} {text}" for kind, text, _ in rows)
    table = html_table(("", "", "source"), rows, style="made", caption=explanation.code)
    return {"text/plain": f"{explanation.code}\n{text}", "text/html": output_html(table, "summary", "retraces")}
