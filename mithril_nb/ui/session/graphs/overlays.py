"""The overlay that a front end shows on its graph: remembered, and computed again when the program or graph changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mithril_nb.cost import Cost
from mithril_nb.inspection import Inspection
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.stages.once import paused_collector
from mithril_nb.ui.session.commands import Client, Reply, RequestHandler, check_choice, command
from mithril_nb.viz.costs.graph_overlays import NAMES, choices, overlay_by_name
from mithril_nb.viz.costs.node_values import Node, has_groups, user_values

OWN_VALUES = "own values: "
"""Prefix of the names of the user's own values, before their title."""


@dataclass(frozen=True)
class OverlaySubject:
    """The graph that a front end shows.

    Attributes:
        stage: Name of its stage; `""` for a model.
        inspection: The program.
        nodes: Returns all nodes of the graph, also those in closed groups.
        cost: The costs from the jaxpr, or from the first stage.
        graph: The graph of the stage; `None` for a model.
        dtypes: The dtype of the result of each node, by key.
        measured: The measured costs; `None` if the program was not measured.
    """

    stage: str
    inspection: Inspection
    nodes: Callable[[], Sequence[Node]]
    cost: Cost
    graph: StageGraph | None
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    measured: Cost | None = None


class OverlayRequests(RequestHandler):
    """Computes the overlay of a graph.

    Args:
        subject: Returns the graph; `None` while there is none, or while its costs are unknown.
        client: Receives `"overlay"` with the values by key of the node, or with the reason if there are none.

    Attributes:
        name: Name of the overlay; `""` for none.
        own: Whether the number of a block leaves out the blocks inside it, also in the table of costs.
        values: The user's own values by title.
    """

    def __init__(self, subject: Callable[[], OverlaySubject | None], client: Client):
        super().__init__(client, "overlays", "overlay-compile")
        self._subject = subject
        self.name, self.own = "", False
        self.values: dict[str, Mapping[str, Any]] = {}
        self._choices: list[tuple[str, str]] = []
        self._is_shown = False

    def view(self) -> dict[str, Any]:
        """Return the chosen overlay, and those that can be chosen."""
        added = [(f"{OWN_VALUES}{title}", title) for title in self.values]
        return {"name": self.name, "own": self.own, "choices": [[*one] for one in (*added, *self._choices)]}

    @command('name="flops", own=False')
    def show_overlay(self, name: str, own: bool = False) -> None:
        """Show values on the nodes of the graph.

        Args:
            name: Name of the overlay; `""` shows none.
            own: Whether the number of a block leaves out the blocks inside it.

        Raises:
            UnknownOptionError: The overlay is unknown.
        """
        check_choice("overlay", name, ("", *NAMES, *(f"{OWN_VALUES}{title}" for title in self.values)), "flops")
        with self._lock:
            self.name, self.own = name, own
        self._client.changed()
        self.refresh()

    def show_values(self, values: Mapping[str, Any], title: str) -> None:
        """Show the user's own values."""
        self.values[title] = dict(values)
        self.show_overlay(f"{OWN_VALUES}{title}", self.own)

    def refresh(self) -> None:
        """Compute the overlay again, because the program or the graph has changed or a page was opened."""
        worker = self._slow if self.name == "memory" else self._quick
        worker.submit(self._make, "overlay")

    def _make(self, wanted: Callable[[], bool]) -> None:
        subject = self._subject()
        if subject is None:
            return
        self._offer(subject)
        name, own = self.name, self.own
        head = {"stage": subject.stage, "name": name, "problem": ""}
        if not name:
            if self._is_shown:
                self._client.send("overlay", Reply(head))
            self._is_shown = False
            return
        self._is_shown = True
        try:
            with paused_collector():
                found = self._data(subject, name, own)
        except Exception as error:  # the front end shows it instead of the overlay
            self._client.send("overlay", Reply({**head, "problem": self._problem_of(error).summary}))
            return
        if wanted():
            self._client.send("overlay", Reply(head, found))

    def _offer(self, subject: OverlaySubject) -> None:
        cost = subject.cost
        total = {**cost.total.to_dict(), "formulas": {} if cost.symbolic is None else cost.symbolic.formulas.get(None)}
        found = choices(subject.inspection, {"total": total}, subject.graph)
        if subject.measured is not None:
            found.append(("time_s", "time, measured"))
        if found != self._choices:
            self._choices = found
            self._client.changed()

    def _data(self, subject: OverlaySubject, name: str, own: bool) -> dict[str, Any]:
        nodes = subject.nodes()
        keys = [node.key for node in nodes]
        if name.startswith(OWN_VALUES):
            title = name.removeprefix(OWN_VALUES)
            found = user_values(self.values[title], nodes, title, "widget.overlay({{{!r}: 0.5}})")
            return {**found.to_dict(keys), "keys": keys, "own": None}
        cost = subject.measured if name == "time_s" and subject.measured is not None else subject.cost
        data = cost.to_dict()
        found = overlay_by_name(
            subject.inspection, name, nodes, data, graph=subject.graph, own=own, dtypes=subject.dtypes
        )
        has_own = has_groups(data) and name not in ("role", "dtype", "sharding")
        return {**found.to_dict(keys), "keys": keys, "own": own if has_own else None}
