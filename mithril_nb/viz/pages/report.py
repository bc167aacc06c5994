"""A report on a model as one HTML file without kernel or network: graph, stages, costs and training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mithril_nb.errors import Diagnostic
from mithril_nb.viz.costs.tables.table import Cost, cost_tables
from mithril_nb.viz.curves import Columns, curves_svg, curves_text
from mithril_nb.viz.diagrams.nested import Scene
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.html_parts import link_script, output_html, page_html, problems_html
from mithril_nb.viz.languages import code_html, highlighted
from mithril_nb.viz.pages.listing import hues_seen, key_of, panes_html
from mithril_nb.viz.text import escaped

if TYPE_CHECKING:
    from mithril_nb.stages.records import Stage

_SECTIONS = ("listing", "cost", "problems", "sections")


def report_html(
    title: str,
    diagram: Scene | None = None,
    stages: Sequence[Stage] = (),
    cost: Cost | None = None,
    run: Mapping[str, Any] | None = None,
    source: str = "",
    problems: Sequence[Diagnostic] = (),
    *,
    columns: Columns | None = None,
    most_lines: int | None = 5000,
    is_fragment: bool = False,
) -> str:
    """Return a report on a model as one self-contained HTML file.

    The page is readable without scripts. With scripts, hovering over a block, row or line highlights what belongs to
    the same block or equation elsewhere on the page.
    """
    # Every line contains the key twice. A file contains only one report, so one letter is enough.
    key = key_of(stages) if is_fragment else "r"
    hues = hues_seen(stages)
    if diagram is not None:
        hues = {node.path: node.hue for node in diagram.nodes if node.path and "/" not in node.path}
    left = ""
    if diagram is not None:
        picture = scene_svg(diagram, problems, title, embedded=True)
        left = f'<section class="graph" aria-label="logical graph">{picture}</section>'
    right = []
    if stages:
        right.append(f"<section><h2>Stages</h2>{panes_html(stages, hues, key, most_lines)}</section>")
    if cost is not None:
        right.append(f"<section><h2>Cost</h2>{cost_tables(cost, hues)}</section>")
    if run is not None and run.get("state", "none") not in ("none", "idle"):
        right.append(f"<section><h2>Training</h2>{_curves(run, columns)}</section>")
    if source:
        right.append(f"<section><h2>Source</h2>{_source(source)}</section>")
    body = f'{problems_html(problems)}<div class="sides">{left}<div class="rest">{"".join(right)}</div></div>'
    if is_fragment:
        plain = "" if diagram is None else scene_svg(diagram, problems, title)
        return output_html(body + link_script(), *_SECTIONS, kind="mnb mnb-linked", picture=plain)
    return page_html(title, "mithril_nb report", body, *_SECTIONS, "report", kind="mnb-linked", scripts=link_script())


# `report_html` for the output of a cell, with at most 400 lines of each stage.
fragment_html = partial(report_html, most_lines=400, is_fragment=True)


def _curves(run: Mapping[str, Any], columns: Columns | None) -> str:
    picture = curves_svg(columns) if columns is not None and len(columns.get("step", ())) else ""
    return f"{picture}<pre>{escaped(curves_text(run))}</pre>"


def _source(source: str) -> str:
    lines = map(code_html, highlighted(source.rstrip("\n"), "python"))
    return f'<pre class="x" tabindex="0" aria-label="Python that builds the model">{chr(10).join(lines)}</pre>'
