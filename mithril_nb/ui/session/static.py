"""The static rendering of a session, which a saved notebook shows without kernel and network."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mithril_nb.cost import costs_so_far
from mithril_nb.display import renderer
from mithril_nb.ui.session.design.autosave import saved_design
from mithril_nb.ui.session.session import Session
from mithril_nb.ui.session.snapshot import shares_of
from mithril_nb.viz.bundles import bundle
from mithril_nb.viz.pages.report import fragment_html

QUICK_STAGES = ("jaxpr", "stablehlo")
"""Stages that a saved notebook always has. A compiled stage is added only if it is already computed."""

MOST_LINES = 200
"""Maximum number of lines per stage in a saved notebook; they take about 60 kB."""


DESIGN_MIME = "application/vnd.mithril-nb.design+json"
"""MIME type of the design as data, added once the user has edited it, so that a saved notebook keeps the edits."""


def design_bundle(session: Session) -> dict[str, Any]:
    """Return a MIME bundle that is available at once: graph and source, without stages and costs."""
    design = session.design
    now, found = session.snapshot(), bundle(session.diagram)
    page = fragment_html(design.name, session.diagram, [], None, now["run"], now["source"], session.analysis.problems)
    return {**found, "text/html": page, **design_data(session)}


def design_data(session: Session) -> dict[str, Any]:
    """Return the design as data by MIME type; an empty dict if the user has not edited it."""
    if session.edits == 0:
        return {}
    saved = asdict(saved_design(session.design, session.edits, session.edit_labels))
    # Omit the time, so that the output changes only if the design changes.
    return {DESIGN_MIME: {name: saved[name] for name in ("edits", "labels", "source", "design")}}


@renderer(Session)
def _session_bundle(session: Session) -> dict[str, Any]:
    """Return the graph as SVG; graph, stages, costs, curves and source as HTML; names and problems as text."""
    design, analysis = session.design, session.analysis
    if not design.graph.nodes:
        # Add HTML, which the widget can hide; it cannot hide plain text.
        return {"text/plain": "Workbench: no block yet", "text/html": "<p>Workbench: no block yet</p>"}
    cost = session.cost
    # Always include the cost shares, so that a saved picture does not depend on the progress of the worker.
    diagram = session.diagram if cost is None else session.diagram.with_shares(shares_of(cost, design.graph))
    found = bundle(diagram)
    names = ", ".join(node.name for node in design.graph.nodes)
    lines = [f"Workbench of {design.name!r}: {names}", *map(str, analysis.problems)]
    now, run = session.snapshot(), session.training.run
    stages, costs = [], None if cost is None else cost.to_dict(rows=False)
    if analysis.can_run:
        inspection = analysis.inspection
        kept = (*QUICK_STAGES, *(["hlo"] if inspection.has_stage("hlo") else []))
        stages = [inspection.stage(name) for name in kept]
        costs = costs_so_far(inspection).to_dict(rows=False)
    page = fragment_html(
        design.name,
        diagram,
        stages,
        costs,
        now["run"],
        now["source"],
        analysis.problems,
        columns=None if run is None else run.history.to_dict(),
        most_lines=MOST_LINES,
    )
    return {**found, "text/html": page, "text/plain": "\n".join(lines), **design_data(session)}
