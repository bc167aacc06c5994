"""The overlay that a front end shows on its graph, computed again when the program or the graph changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, cast

from mithril_nb.cost import Cost
from mithril_nb.inspection import Inspection
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.stages.once import paused_collector
from mithril_nb.ui.session.commands import Client, Reply, RequestHandler, check_choice, command
from mithril_nb.viz.costs.node_values import dtype_values, has_groups, user_values
from mithril_nb.viz.costs.overlays import NAMES, choices, overlay_by_name
from mithril_nb.viz.diagrams.nested import Box

# Prefix of the names of the user's own values, before their title.
OWN_VALUES = "own values: "


class OverlayChoice(TypedDict):
    """The overlay that is shown, and those to choose from."""

    name: str  # "" for none
    own: bool  # whether the number of a block excludes the blocks inside it, also in the table of costs
    choices: list[tuple[str, str]]  # name and title


class OverlayHead(TypedDict):
    """Identifies an overlay."""

    stage: str  # "" for the graph of a model
    name: str
    own: bool
    problem: str  # why there is no overlay
    is_stale: bool  # the model has errors or cannot be traced: old values are outdated


class OverlayData(TypedDict):
    """An `Overlay`. Columns are in the order of `keys`."""

    name: str
    title: str
    unit: str
    total: float | None
    categories: list[str]
    values: list[float | str | None]  # a number, the index of a category, "?" if unknown; null without a value
    bounds: list[int]  # indices of the values that are lower bounds
    texts: dict[str, str]  # texts that differ from the number, by index
    notes: list[str]
    keys: list[str]
    own: bool | None  # null if the overlay has only one convention


@dataclass(frozen=True)
class OverlaySubject:
    """The graph that a front end shows, and the program whose values can be shown on its nodes."""

    stage: str  # `""` for the graph of a model
    inspection: Inspection | None  # `None` while its costs are unknown
    nodes: Callable[[], Sequence[Box]]  # all nodes of the graph, also those in closed groups
    cost: Cost | None  # without compiling; `None` while unknown
    graph: StageGraph | None  # `None` for the graph of a model
    # Of the result of each node, by its key.
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    measured: Cost | None = None
    has_failed: bool = False  # the model has errors or cannot be traced, so that its costs stay unknown


class OverlayRequests(RequestHandler):
    """Computes the overlay of a graph: a value, such as a cost, on each node."""

    def __init__(self, subject: Callable[[], OverlaySubject | None], client: Client):
        super().__init__(client, "overlays", "overlay-compile")
        self._subject = subject
        self.name, self.own = "", False
        self.values: dict[str, Mapping[str, Any]] = {}
        self._offered: dict[str, tuple[str, ...]] = {}  # titles by their source
        self._choices: list[tuple[str, str]] = []
        self._is_shown = False
        self._generation = 0

    def view(self) -> OverlayChoice:
        """Return the chosen overlay, and the overlays to choose from."""
        added = [(f"{OWN_VALUES}{title}", title) for title in self.values]
        return {"name": self.name, "own": self.own, "choices": [*added, *self._choices]}

    @command
    def show_overlay(self, name: str, own: bool = False) -> None:
        """Show values on the nodes of the graph."""
        check_choice("overlay", name, ("", *NAMES, *(f"{OWN_VALUES}{title}" for title in self.values)), "flops")
        with self._lock:
            self.name, self.own = name, own
        self._client.changed()
        self.refresh()

    def show_values(self, values: Mapping[str, Any], title: str) -> None:
        """Show the user's own values."""
        self.values[title] = dict(values)
        self.show_overlay(f"{OWN_VALUES}{title}", self.own)

    def offer(self, source: str, values: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the values that a part of the session offers, by title."""
        with self._lock:
            old, before = self._offered.get(source, ()), self.values
            self.values = {**{title: own for title, own in before.items() if title not in old}, **values}
            self._offered[source] = tuple(values)
            title = self.name.removeprefix(OWN_VALUES)
            is_shown_changed = title in (*old, *values) and before.get(title) != self.values.get(title)
        if tuple(values) != old:
            self._client.changed()
        if is_shown_changed:
            self.refresh()

    def empty(self, source: str) -> None:
        """Offer no values under the titles of a part of the session: those of an earlier model are outdated."""
        self.offer(source, {title: {} for title in self._offered.get(source, ())})

    def withdraw(self, source: str) -> None:
        """Offer no values of a part of the session, and show none of them."""
        with self._lock:
            self.name = "" if self.name.removeprefix(OWN_VALUES) in self._offered.get(source, ()) else self.name
        self.offer(source, {})

    def show_added(self, title: str) -> None:
        """Show values that the session offers, now or later."""
        with self._lock:
            self.name = f"{OWN_VALUES}{title}"

    def refresh(self) -> None:
        """Compute the overlay again, because the program or the graph has changed or a page was opened."""
        with self._lock:
            self._generation += 1
            name, own, generation = self.name, self.own, self._generation
            worker = self._slow if name == "memory" else self._quick
            # Two queues run requests, so an earlier one may end after a later one.
            worker.submit(lambda _: self._make(name, own, lambda: generation == self._generation), "overlay")

    def _make(self, name: str, own: bool, is_latest: Callable[[], bool]) -> None:
        subject = self._subject()
        if subject is None or not is_latest():
            return
        self._offer(subject)
        reply = self._reply(subject, name, own)
        if reply is not None and is_latest() and (name or self._is_shown):
            self._is_shown = bool(name)
            self._client.send("overlay", reply)

    def _reply(self, subject: OverlaySubject, name: str, own: bool) -> Reply | None:
        head = OverlayHead(stage=subject.stage, name=name, own=own, problem="", is_stale=False)
        if not name:
            return Reply(head)
        if subject.cost is None and name != "dtype" and not name.startswith(OWN_VALUES):
            return Reply({**head, "is_stale": True}) if subject.has_failed else None
        try:
            with paused_collector():
                return Reply(head, self._data(subject, name, own))
        except Exception as error:  # the front end shows it instead of the overlay
            return Reply({**head, "problem": self._problem_of(error).summary})

    def _offer(self, subject: OverlaySubject) -> None:
        cost = subject.cost
        if cost is None or subject.inspection is None:
            return
        total = {**cost.total.to_dict(), "formulas": {} if cost.symbolic is None else cost.symbolic.formulas.get(None)}
        offered = choices(subject.inspection, {"total": total}, subject.graph)
        if subject.measured is not None:
            offered.append(("time_s", "time, measured"))
        if offered != self._choices:
            self._choices = offered
            self._client.changed()

    def _data(self, subject: OverlaySubject, name: str, own: bool) -> OverlayData:
        nodes = subject.nodes()
        keys = [node.key for node in nodes]
        shown_own = None
        if name.startswith(OWN_VALUES):
            title = name.removeprefix(OWN_VALUES)
            overlay = user_values(self.values.get(title, {}), nodes, title)
        elif name == "dtype":
            overlay = dtype_values(nodes, subject.dtypes)
        else:
            cost = subject.measured if name == "time_s" and subject.measured is not None else subject.cost
            assert cost is not None
            assert subject.inspection is not None
            data = cost.to_dict()
            overlay = overlay_by_name(
                subject.inspection, name, nodes, data, graph=subject.graph, own=own, dtypes=subject.dtypes
            )
            shown_own = own if has_groups(data) and name not in ("role", "sharding") else None
        return cast(OverlayData, {**overlay.to_dict(keys), "keys": keys, "own": shown_own})
