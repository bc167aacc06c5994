"""A session as one JSON-serializable dict with all data that a front end shows. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from mithril_nb.cost import Cost
from mithril_nb.errors import Diagnostic, UnknownOptionError, short_repr
from mithril_nb.graph.paths import component
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models.saving.formats import to_source
from mithril_nb.stages.stage_kinds import kinds_of_stages
from mithril_nb.train.losses import LOSSES
from mithril_nb.ui.session.describe import describe_blocks, palette
from mithril_nb.ui.session.design.analysis import Analysis
from mithril_nb.ui.session.design.design import PROGRAMS
from mithril_nb.ui.session.stages.making import StageState
from mithril_nb.viz.diagrams.labels import annotate
from mithril_nb.viz.diagrams.logical import layout
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.palette import HUES


@dataclass(frozen=True)
class ViewState:
    """The user's changes of the view, which do not change the model.

    Attributes:
        selection: Paths of the selected blocks.
        expanded: Paths of the expanded groups.
        moved: Positions of the blocks that the user moved.
    """

    selection: tuple[str, ...] = ()
    expanded: frozenset[str] = frozenset()
    moved: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def only(self, known: Set[str]) -> ViewState:
        """Return the view restricted to the known blocks."""
        return ViewState(
            tuple(path for path in self.selection if path in known),
            self.expanded & known,
            {path: place for path, place in self.moved.items() if path in known},
        )

    def with_place(self, path: str, x: Any, y: Any) -> ViewState:
        """Return the view with a block at a position. Without coordinates, the layout chooses the position.

        Raises:
            UnknownOptionError: The coordinates are not numbers.
        """
        return self if x is None or y is None else replace(self, moved={**self.moved, path: place_of(x, y)})

    def renamed(self, old: str, new: str) -> ViewState:
        """Return the view after a block was renamed, which also changes the paths of all blocks inside it."""

        def path_now(path: str) -> str:
            return new + path.removeprefix(old) if path == old or path.startswith(f"{old}/") else path

        return ViewState(
            tuple(map(path_now, self.selection)),
            frozenset(map(path_now, self.expanded)),
            {path_now(path): place for path, place in self.moved.items()},
        )


def place_of(x: Any, y: Any) -> tuple[float, float]:
    """Return a position on the canvas.

    Raises:
        UnknownOptionError: The coordinates are not finite numbers.
    """
    try:
        place = (float(x), float(y))
    except (TypeError, ValueError, OverflowError):
        place = (math.nan, math.nan)
    if not all(map(math.isfinite, place)):
        raise UnknownOptionError(
            f"({short_repr(x)}, {short_repr(y)}) is not a position.", (("needs", "two numbers"),), "x=40, y=120"
        )
    return place


def hues_of(graph: LogicalGraph) -> dict[str, int]:
    """Return the hue of each top-level block, by path."""
    return {component(node.name): index % HUES for index, node in enumerate(graph.nodes)}


def diagram_of(analysis: Analysis, view: ViewState, shares: Mapping[str, float]) -> Scene:
    """Return the diagram of a design."""
    found = annotate(
        analysis.design.graph, analysis.inference.blocks, analysis.inference.inputs, shares, analysis.problems
    )
    return layout(
        analysis.design.graph,
        annotations=found.nodes,
        edge_shapes=found.edge_shapes,
        edge_problems=found.edge_problems,
        expanded=view.expanded,
        moved=view.moved,
    )


def shares_of(cost: Cost, graph: LogicalGraph) -> dict[str, float]:
    """Return each block's share of the FLOPs, if known. A composite block has the sum of its parts."""
    if not cost.total.flops:
        return {}
    found = {path: cost.share_of(cost.subtree(path, cost.nothing))[0] for path, _ in graph.walk()}
    return {path: share for path, share in found.items() if share is not None}


def snapshot_of(
    analysis: Analysis,
    view: ViewState,
    diagram: Scene,
    *,
    backend: str,
    cost: Mapping[str, Any] | None,
    costs: Mapping[str, Any],
    notice: Diagnostic | None,
    autosave: Mapping[str, Any] | None,
    stages: Mapping[str, StageState],
    passes: Mapping[str, Any],
    run: Mapping[str, Any],
    status: Mapping[str, Any],
    undo_label: str,
    redo_label: str,
) -> dict[str, Any]:
    """Return the data of a front end, in the format of the message protocol."""
    design = analysis.design
    return {
        "version": analysis.version,
        "name": design.name,
        "backend": backend,
        "program": analysis.program_name,
        "programs": list(PROGRAMS),
        "program_note": analysis.why_not_trained if design.program != "forward" else "",
        "loss": analysis.loss.name,
        "losses": list(dict.fromkeys((analysis.loss.name, *LOSSES))),
        "output": analysis.loss.output or "",
        "outputs": list(analysis.inference.outputs),
        "shapes": {
            name: list(spec.shape) if name in analysis.shaped else []
            for name, spec in analysis.inference.inputs.items()
        },
        "graph": diagram.to_dict(),
        "blocks": describe_blocks(design.graph, analysis.inference, hues_of(design.graph)),
        "palette": list(palette()),
        "cost": cost,
        "costs": dict(costs),
        "problems": [problem.to_dict() for problem in analysis.problems],
        "notice": notice and {**notice.to_dict(), "kind": "error"},
        "autosave": autosave,
        "stages": {name: vars(state) for name, state in stages.items()},
        "stage_kinds": kinds_of_stages(),
        "passes": dict(passes),
        "source": to_source(design.graph),
        "selection": list(view.selection),
        "can_undo": bool(undo_label),
        "can_redo": bool(redo_label),
        "undo_label": undo_label,
        "redo_label": redo_label,
        "run": dict(run),
        "status": dict(status),
    }
