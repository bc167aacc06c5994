"""A whole model in one HTML file: graph, stages, costs, curves and source, linked, without a kernel or a network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mithril_nb.errors import Diagnostic
from mithril_nb.viz.costs.tables.columns import Cost
from mithril_nb.viz.costs.tables.table import cost_css, cost_tables
from mithril_nb.viz.curves import Columns, curves_svg, curves_text
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.html_parts import (
    MONO,
    base_css,
    heading_css,
    heading_html,
    link_script,
    problems_css,
    problems_html,
)
from mithril_nb.viz.languages import highlighted
from mithril_nb.viz.pages.listing import hues_seen, listing_css, panes_html
from mithril_nb.viz.text import escaped, one_line

if TYPE_CHECKING:
    from mithril_nb.stages.records import Stage

# The browser itself refuses to load anything, whatever text a name or a stage contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"


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
) -> str:
    """Return one self-contained HTML file.

    The page is readable without scripts. With scripts, hovering over a block, row or line highlights its counterparts.

    Args:
        title: Name of the model.
        diagram: Its picture.
        stages: The stages of a program.
        cost: The cost of the program, as data (`Cost.to_dict()` or `Costs.to_dict()`).
        run: A training run, as data (`Run.snapshot()`).
        source: Python that builds the model.
        problems: Its problems.
        columns: Columns of the run's history.
        most_lines: Lines shown of each stage.

    Returns:
        The file's text; equal arguments give equal text.
    """
    name = escaped(one_line(title))
    # Only one report is on the page, so a short key is enough; every line repeats it in its id and its link.
    body = sections_html(
        title, diagram, stages, cost, run, source, problems, columns=columns, most_lines=most_lines, key="r"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{name}</title>'
        f"<style>{base_css()}{heading_css()}{sections_css()}{_PAGE_CSS}</style></head>"
        f'<body class="mnb"><main class="mnb-linked">'
        f"{heading_html(title, 'mithril_nb report')}{body}</main>"
        f"{link_script()}</body></html>\n"
    )


def fragment_html(
    title: str,
    diagram: Scene | None = None,
    stages: Sequence[Stage] = (),
    cost: Cost | None = None,
    run: Mapping[str, Any] | None = None,
    source: str = "",
    problems: Sequence[Diagnostic] = (),
    *,
    columns: Columns | None = None,
    most_lines: int | None = 400,
) -> str:
    """Return the same report as a fragment for a cell's output in a notebook."""
    key = hashlib.sha256("\0".join(stage.text for stage in stages).encode("utf-8", "replace")).hexdigest()[:8]
    body = sections_html(
        title, diagram, stages, cost, run, source, problems, columns=columns, most_lines=most_lines, key=key
    )
    return f'<div class="mnb mnb-linked"><style>{base_css()}{sections_css()}</style>{body}{link_script()}</div>'


def sections_html(
    title: str,
    diagram: Scene | None,
    stages: Sequence[Stage],
    cost: Cost | None,
    run: Mapping[str, Any] | None,
    source: str,
    problems: Sequence[Diagnostic],
    *,
    columns: Columns | None,
    most_lines: int | None,
    key: str,
) -> str:
    """Return the parts of a report in order, without the empty ones.

    `key` makes the ids of lines unique on the page.
    """
    hues = hues_seen(stages)
    if diagram is not None:
        hues = {node.path: node.hue for node in diagram.nodes if node.path and "/" not in node.path}
    parts = [problems_html(problems)]
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
    parts.append(f'<div class="sides">{left}<div class="rest">{"".join(right)}</div></div>')
    return "".join(parts)


def sections_css() -> str:
    """Return the CSS rules of all parts."""
    return (
        listing_css()
        + cost_css()
        + problems_css()
        + (
            ".mnb h2{font:600 15px/1.4 inherit;font-size:15px;margin:0 0 6px;color:var(--ink)}"
            ".mnb section{margin:0 0 16px}"
            ".mnb .sides{display:flex;gap:16px;align-items:flex-start}"
            ".mnb .graph{flex:0 1 auto;max-width:40%;min-width:200px;overflow:auto;border:1px solid var(--line);"
            "border-radius:4px}"
            ".mnb .graph svg{display:block}"
            ".mnb .rest{flex:1 1 0;min-width:0}"
            ".mnb .node[data-block]{cursor:pointer}"
            ".mnb .node.on>rect.box,.mnb .node:focus-visible>rect.box{stroke:var(--accent)}"
            ".mnb .node.pin>rect.box{stroke:var(--accent);stroke-width:2.5}"
            f".mnb pre{{font:12px/18px {MONO};margin:0;padding:8px 12px;border:1px solid var(--line);border-radius:4px;"
            "background:var(--ground);color:var(--ink);overflow:auto}"
            "@media (max-width:900px){.mnb .sides{flex-direction:column}.mnb .graph{max-width:100%}}"
        )
    )


_PAGE_CSS = (
    "html{color-scheme:light dark}body.mnb{margin:0;padding:16px 20px;min-height:100vh}"
    "@media (min-width:901px){.mnb .graph{position:sticky;top:12px;max-height:calc(100vh - 24px)}}"
    ".mnb .code{max-height:52vh}"
    "@media print{.mnb .code,.mnb .graph{max-height:none;overflow:visible;position:static}}"
)


def _curves(run: Mapping[str, Any], columns: Columns | None) -> str:
    picture = curves_svg(columns) if columns is not None and len(columns.get("step", ())) else ""
    return f"{picture}<pre>{escaped(curves_text(run))}</pre>"


def _source(source: str) -> str:
    lines = (
        "".join(f'<span class="{look}">{escaped(text)}</span>' if look else escaped(text) for look, text in line)
        for line in highlighted(source.rstrip("\n"), "python")
    )
    return f'<pre class="x" tabindex="0" aria-label="Python that builds the model">{chr(10).join(lines)}</pre>'
