"""A session with no kernel and no network: what a saved notebook keeps of a workbench."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mithril_nb.cost import costs_so_far
from mithril_nb.display import render
from mithril_nb.session.autosave import saved_design
from mithril_nb.session.session import Session
from mithril_nb.session.snapshot import shares_of, with_shares
from mithril_nb.viz.bundles import bundle
from mithril_nb.viz.report import fragment_html

QUICK_STAGES = ("jaxpr", "stablehlo")
"""Stages that a saved notebook always has. Compiling may take long, so a compiled one is kept only if it is there."""

MOST_LINES = 200
"""Lines of each stage in a saved notebook; they are some 60 kB."""


DESIGN_MIME = "application/vnd.mithril-nb.design+json"
"""The design as data beside its pictures, once the user has edited it: a saved notebook loses no edit."""


def design_bundle(session: Session) -> dict[str, Any]:
    """Return what can be shown of the design at once: its graph and its source, without stages and costs."""
    design = session.design
    now, found = session.snapshot(), bundle(session.diagram)
    page = fragment_html(design.name, session.diagram, [], None, now["run"], now["source"], session.analysis.problems)
    return {**found, "text/html": page, **design_data(session)}


def design_data(session: Session) -> dict[str, Any]:
    """Return the design as data by MIME type; nothing if the user has not edited it."""
    if session.edits == 0:
        return {}
    saved = asdict(saved_design(session.design, session.edits, session.edit_labels))
    # Without the time, so that an output is sent again only if the design has changed.
    return {DESIGN_MIME: {name: saved[name] for name in ("edits", "labels", "source", "design")}}


@render.register(Session)
def _session_bundle(session: Session) -> dict[str, Any]:
    """The logical graph as SVG; graph, stages, costs, curves and source as HTML; the names and problems as text."""
    design, analysis = session.design, session.analysis
    if not design.graph.nodes:
        # As HTML too: the widget hides the picture beside it, and no page can hide plain text.
        return {"text/plain": "Workbench: no block yet", "text/html": "<p>Workbench: no block yet</p>"}
    cost = session.cost
    # With the shares of the cost, whether the worker has come to them or not: a saved picture does not depend on time.
    diagram = session.diagram if cost is None else with_shares(session.diagram, shares_of(cost, design.graph))
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
