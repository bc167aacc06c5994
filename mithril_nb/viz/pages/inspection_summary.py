"""An inspection in a saved notebook: its graph, the first lines of its first stages, and a table of all stages.

It compiles nothing, needs no kernel and no scripts, and stays small for large programs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mithril_nb.display import columns
from mithril_nb.stages.stage_kinds import title_of
from mithril_nb.viz.built import link_script
from mithril_nb.viz.html_parts import base_css, html_table
from mithril_nb.viz.pages.listing import hues_seen, listing_css, panes_html
from mithril_nb.viz.text.escape import one_line

if TYPE_CHECKING:  # these import JAX
    from mithril_nb.inspection import Inspection
    from mithril_nb.stages.records import Stage

SHOWN = ("jaxpr", "stablehlo")
"""Stages whose lines are shown; they need no compiler."""
MOST_LINES = 150


def summary_text(inspection: Inspection) -> str:
    """Return the stages of a program and the graph of its jaxpr as text, without compiling."""
    from mithril_nb.viz.diagrams.stages import stage_graph_text

    stages = [inspection.stage(name) for name in _shown(inspection)]
    figures = {name: _figures(inspection, name) for name in inspection.stages}
    rows = [("stage", "lines", "instructions", "")]
    rows += [(title_of(name), *known) for name, known in figures.items()]
    parts = [f"program {inspection.name!r}", columns(rows, right={1, 2})]
    failed = next((stage.unavailable for stage in stages if stage.unavailable is not None), None)
    if failed is not None:
        parts.append("\n".join(map(one_line, failed.split("\n"))))
    graph = inspection.graph()
    if graph.level():
        parts.append(stage_graph_text(graph, shares=block_shares(inspection)))
    return "\n\n".join(parts)


def summary_html(inspection: Inspection, *, most_lines: int = MOST_LINES, scripts: bool = True) -> str:
    """Return the summary as one self-contained HTML fragment.

    Args:
        inspection: The program.
        most_lines: Lines shown of each stage.
        scripts: Whether to add the script that highlights linked lines. Everything else works without it.
    """
    stages = [inspection.stage(name) for name in _shown(inspection)]
    hues = hues_seen(stages)
    key = hashlib.sha256("\0".join(stage.text for stage in stages).encode("utf-8", "replace")).hexdigest()[:8]
    script = link_script() if scripts else ""
    return (
        f'<div class="mnb mnb-linked" data-mnb="{key}"><style>{base_css()}{listing_css()}{summary_css()}</style>'
        f"{graph_html(inspection, hues)}{panes_html(stages, hues, key, most_lines, skip_inputs=True)}"
        f"{stages_html(inspection)}{script}</div>"
    )


def _shown(inspection: Inspection) -> Sequence[str]:
    return SHOWN if inspection.given is None else inspection.given.stages[:1]


def summary_css() -> str:
    """Return the CSS rules of the graph and of the table of stages."""
    return (
        ".mnb .picture{border:1px solid var(--line);border-radius:4px;overflow:auto;margin:0 0 8px}"
        ".mnb .picture svg{display:block;margin:auto}"
        ".mnb .node[data-block],.mnb .node[data-e]{cursor:pointer}"
        ".mnb .node.on>rect.box,.mnb .node:focus-visible>rect.box{stroke:var(--accent)}"
        ".mnb .node.pin>rect.box{stroke:var(--accent);stroke-width:2.5}"
        ".mnb table.made{border-collapse:collapse;font:inherit;margin:8px 0 0;border:0;"
        "font-variant-numeric:tabular-nums}"
        ".mnb .made th,.mnb .made td{padding:2px 12px 2px 0;border:0;text-align:right;background:none;"
        "color:var(--ink);font-weight:400;vertical-align:top}"
        ".mnb .made th:first-child,.mnb .made td:last-child{text-align:left;white-space:pre-wrap}"
        ".mnb .made thead th{color:var(--muted)}.mnb .made tbody tr:nth-child(n){background:none}"
    )


def graph_html(inspection: Inspection, hues: Mapping[str, int]) -> str:
    """Return the picture of the jaxpr's graph, linked to the lines of the panes; `""` without a graph."""
    from mithril_nb.viz.diagrams.stages import stage_layout
    from mithril_nb.viz.diagrams.svg import scene_svg

    graph = inspection.graph()
    if not graph.level():
        return ""
    diagram = stage_layout(graph, shares=block_shares(inspection), hues=hues)
    return f'<div class="picture">{scene_svg(diagram, title=f"graph of {inspection.name}", embedded=True)}</div>'


def block_shares(inspection: Inspection) -> dict[str, float]:
    """Return the known shares of the FLOPs by block; a block includes all blocks inside it."""
    from mithril_nb import cost
    from mithril_nb.errors import StageUnavailableError

    try:
        found = cost.cost_of(inspection)
    except StageUnavailableError:
        return {}  # a program that cannot be traced has no known cost; its stages show the error
    if not found.total.flops:
        return {}
    paths: dict[str, None] = {}
    for block in found.by_block:
        parts = block.split("/")
        paths |= dict.fromkeys("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    shares = {path: found.share_of(found.subtree(path))[0] for path in paths}
    return {path: share for path, share in shares.items() if share is not None}


def stages_html(inspection: Inspection, names: Sequence[str] | None = None) -> str:
    """Return a table of the stages with their lengths, or the reason why one is missing.

    The table has no times, so that the output saved in a notebook is the same in every run.
    """
    shown = inspection.stages if names is None else names
    rows = [(title_of(name), *_figures(inspection, name)) for name in shown]
    return html_table(("stage", "lines", "instructions", ""), rows, style="made")


def _figures(inspection: Inspection, name: str) -> tuple[str, str, str]:
    """Return the numbers of lines and of instructions of a stage, and a note."""
    if not inspection.has_stage(name):
        return "", "", "not computed yet"
    stage = inspection.stage(name)
    if stage.unavailable is not None:
        return "", "", stage.unavailable.partition("\n")[0]
    return f"{_lines(stage):,}", f"{len(stage.instructions):,}", ""


def _lines(stage: Stage) -> int:
    return len(stage.text.removesuffix("\n").split("\n"))
