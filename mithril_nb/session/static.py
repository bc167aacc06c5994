"""A session with no kernel and no script: the picture that a saved notebook keeps."""

from __future__ import annotations

from mithril_nb.display import render
from mithril_nb.session.session import Session
from mithril_nb.viz.bundles import bundle


@render.register(Session)
def _session_bundle(session: Session) -> dict[str, str]:
    """The logical graph with the shapes of the session, as SVG and text; problems are listed."""
    design = session.design
    if not design.graph.nodes:
        return {"text/plain": "Workbench: no block yet"}
    found = bundle(session.diagram)
    names = ", ".join(node.name for node in design.graph.nodes)
    lines = [f"Workbench of {design.name!r}: {names}", *map(str, session.analysis.problems)]
    return {**found, "text/plain": "\n".join(lines)}
