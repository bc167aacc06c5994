"""A graph in levels as data: boxes with their sizes, and the data that flows between them; not laid out yet.

Models and stages become such graphs. `layout` turns one into a scene. The front end does the same in its folder layout,
so that groups open without a kernel. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from mithril_nb.graph.paths import component
from mithril_nb.viz.diagrams.scene import NEXT_ROUND

ROOT = ""
GRADIENT = 3
"""In `Flow.roles`: a gradient that sums pass on, which is not drawn by itself."""


@dataclass(frozen=True)
class Box:
    """A node of a nested graph: a block, an instruction, a loop, or an input or output.

    Attributes:
        key: Unique in the graph: the path of a block, or the key of a node in the graph of a stage.
        name: Its name.
        kind: Kind of the block, such as `"Linear"`; kind of the node, such as `"loop"`; `"input"` or `"output"`.
        w: Width in px while it is closed.
        h: Height in px while it is closed.
        title_w: Least width in px while it is open.
        parent: Key of the box that contains it; `""` at the top.
        is_group: True if it can be opened.
        hue: Index of its hue.
        path: Path of its block; `""` if it has none.
        label: Its most important option, or a note, such as `"10 rounds"`.
        shape: Shape of its output.
        repeat: Number of equal nodes that it represents.
        share: Its share of the cost, 0 to 1, or `None` if unknown.
        problem: Index into the list of problems, or `None`.
        counts: Number of instructions inside it by role, then those without a role; `()` in a model.
        blocks: Paths of the blocks that it represents, if it is more than the block at `path`.
        equations: Ids of its equations, for links; empty if its blocks identify them all.
        inputs: Names of its input ports.
        outputs: Names of its output ports.
    """

    key: str
    name: str
    kind: str
    w: float
    h: float
    title_w: float = 0
    parent: str = ROOT
    is_group: bool = False
    hue: int = 0
    path: str = ""
    label: str = ""
    shape: str = ""
    repeat: int = 1
    share: float | None = None
    problem: int | None = None
    counts: tuple[int, ...] = ()
    blocks: tuple[str, ...] = ()
    equations: tuple[str, ...] = field(default=(), repr=False)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flow:
    """Data that flows from one box to another; or all flows between the same two visible boxes, drawn as one wire.

    Attributes:
        source: Key of the box that produces it. If it is a group around `target`, the data enters through its border.
        target: Key of the box that uses it. If it is a group around `source`, the data leaves through its border.
        out: Output port of the source; `""` if its boxes have no ports.
        into: Input port of the target; `""` if its boxes have no ports.
        roles: Roles of its users, as indices into `NestedGraph.roles`, or `GRADIENT`; ascending.
        shapes: Shapes of the data, as indices into `NestedGraph.shapes`, ascending.
        problem: Index into the list of problems, or `None`.
        loop: Key of the loop if the data is for its next round, else `""`.
    """

    source: str
    target: str
    out: str = ""
    into: str = ""
    roles: tuple[int, ...] = ()
    shapes: tuple[int, ...] = ()
    problem: int | None = None
    loop: str = ""


@dataclass(frozen=True)
class Piece:
    """The part of a bundle of flows on one level.

    Attributes:
        tail: Key of the box where it starts; `""` is the border of the level.
        source: Name of its data at the tail: a port, or the source of the data.
        head: Key of the box where it ends; `""` is the border.
        port: Name of its data at the head.
        bundle: The flows that the wire shows.
    """

    tail: str
    source: str
    head: str
    port: str
    bundle: Flow


@dataclass(frozen=True)
class NestedGraph:
    """A graph in levels.

    Attributes:
        title: Its accessible name.
        boxes: Boxes in reading order, a group before its content.
        flows: Data flow between them.
        shapes: Texts of shapes, smaller ones first.
        is_model: True for the blocks of a model, with ports; false for the graph of a stage.
        roles: Names of the roles.
        idle: Output ports of groups that nothing feeds, as `(group, port)`.
        rounds: Data that flows between the rounds of equal parts. It is not drawn, because one part represents all.
    """

    title: str
    boxes: tuple[Box, ...]
    flows: tuple[Flow, ...]
    shapes: tuple[str, ...] = ()
    is_model: bool = True
    roles: tuple[str, ...] = ()
    idle: tuple[tuple[str, str], ...] = ()
    rounds: tuple[Flow, ...] = ()

    @cached_property
    def by_key(self) -> dict[str, Box]:
        """The boxes by key."""
        return {box.key: box for box in self.boxes}

    @cached_property
    def children(self) -> dict[str, list[Box]]:
        """The boxes directly inside each box that contains any."""
        found: dict[str, list[Box]] = {}
        for box in self.boxes:
            found.setdefault(box.parent, []).append(box)
        return found

    @cached_property
    def idle_ports(self) -> dict[str, list[str]]:
        """The output ports that nothing feeds, by group."""
        found: dict[str, list[str]] = {}
        for group, port in self.idle:
            found.setdefault(group, []).append(port)
        return found

    def shown_groups(self, opened: Collection[str]) -> frozenset[str]:
        """Return the keys of the groups that are drawn open if the boxes of some keys are open."""
        found: set[str] = set()
        for box in self.boxes:  # a group comes before its content
            if box.is_group and box.key in opened and (not box.parent or box.parent in found):
                found.add(box.key)
        return frozenset(found)

    def with_shares(self, shares: Mapping[str, float]) -> NestedGraph:
        """Return the graph with new shares of the cost, by path of the block."""

        def share(box: Box) -> float | None:
            known = [shares[path] for path in box.blocks or (box.path,) if path in shares]
            return min(1.0, sum(known)) if known else None

        return replace(self, boxes=tuple(replace(box, share=share(box)) for box in self.boxes))

    def above(self, key: str) -> list[str]:
        """Return a key and the keys of the boxes around it, ending with the root."""
        found = [key]
        while key:
            key = self.by_key[key].parent
            found.append(key)
        return found

    def bundles(self, shown: Collection[str]) -> tuple[Flow, ...]:
        """Return the wires between visible boxes, where `shown` are the groups drawn open."""
        visible = {ROOT: ROOT}
        for box in self.boxes:
            around = visible[box.parent]
            visible[box.key] = box.key if box.parent == around and (not around or around in shown) else around
        found: dict[tuple[str, str, str, str, str], list[Flow]] = {}
        for flow in self.flows:
            tail, head = visible[flow.source], visible[flow.target]
            is_through = flow.source == flow.target == tail and tail in shown  # from border to border of a group
            if tail == head and not is_through and flow.loop not in shown:
                continue
            if not self.is_model and (head in shown or self._is_around(tail, head)):
                continue  # data for an open node flows on to the nodes inside it, which have separate flows
            out, into = flow.out if tail == flow.source else "", flow.into if head == flow.target else ""
            found.setdefault((tail, head, out, into, flow.loop), []).append(flow)
        return tuple(
            Flow(
                tail,
                head,
                out,
                into,
                tuple(sorted({role for flow in flows for role in flow.roles})),
                tuple(sorted({shape for flow in flows for shape in flow.shapes})),
                next((flow.problem for flow in flows if flow.problem is not None), None),
                loop,
            )
            for (tail, head, out, into, loop), flows in found.items()
        )

    def _is_around(self, outer: str, inner: str) -> bool:
        while inner:
            inner = self.by_key[inner].parent
            if inner == outer and outer:
                return True
        return False

    def pieces(self, bundles: Iterable[Flow]) -> dict[str, list[Piece]]:
        """Return the pieces of wires on each level, by key of the group."""
        levels: dict[str, list[Piece]] = {}
        for bundle in bundles:
            if not self._is_drawn(bundle):
                continue
            tails, heads = self.above(bundle.source), self.above(bundle.target)
            if bundle.loop:  # also from a box to itself, around it
                common = next(key for key in tails[1:] if key in heads[1:])
            else:
                common = next(key for key in tails if key in heads)
            out_of, into = tails[: tails.index(common)], heads[: heads.index(common)]
            name = end_id(bundle.source, bundle.out) + (NEXT_ROUND if bundle.loop else "")
            source, port = bundle.out or name, bundle.into or name
            for inner, outer in pairwise(out_of):
                levels.setdefault(outer, []).append(Piece(inner, source, "", name, bundle))
                source = name
            tail, first = (out_of or [""])[-1], (into or [""])[-1]
            entry = Piece(tail, source, first, port if len(into) < 2 else name, bundle)
            levels.setdefault(common, []).append(entry)
            for outer, inner in pairwise(into[::-1]):
                levels.setdefault(outer, []).append(Piece("", name, inner, port if inner == into[0] else name, bundle))
        return levels

    def returned(self, bundles: Iterable[Flow]) -> frozenset[tuple[str, str, bool]]:
        """Return the wires along which a gradient flows back: source, target, and whether it goes to the next round."""
        return frozenset(
            (one.target, one.source, bool(one.loop)) for one in bundles if 1 in one.roles or GRADIENT in one.roles
        )

    def _is_drawn(self, bundle: Flow) -> bool:
        """Return whether a bundle is drawn as a wire, as forward ones are; cells in the boxes show other roles."""
        if self.is_model or not bundle.roles or 0 in bundle.roles:
            return True
        if bundle.roles == (GRADIENT,):
            return False
        ends = self.by_key[bundle.source], self.by_key[bundle.target]
        return bundle.roles != (2,) and any(not end.counts[0] and end.kind != "input" for end in ends)

    def shape_text(self, shapes: tuple[int, ...]) -> str:
        """Return the largest of some shapes, and the number of others."""
        if not shapes:
            return ""
        return self.shapes[shapes[-1]] + (f" +{len(shapes) - 1}" if len(shapes) > 1 else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as JSON-able columns for the front end; columns of default values are omitted."""
        return dict(self._packed)

    @cached_property
    def _packed(self) -> dict[str, Any]:
        places = {box.key: at for at, box in enumerate(self.boxes)}
        boxes = _columns(self.boxes, Box, {"parent": lambda key: places.get(key, -1)})
        place = places.__getitem__
        ends = {"source": place, "target": place, "loop": lambda key: places.get(key, -1)}
        return {
            "title": self.title,
            "is_model": self.is_model,
            "roles": list(self.roles),
            "shapes": list(self.shapes),
            "idle": [list(one) for one in self.idle],
            "boxes": boxes,
            "flows": _columns(self.flows, Flow, ends),
            **({"rounds": _columns(self.rounds, Flow, ends)} if self.rounds else {}),
        }


def _columns(items: tuple[Any, ...], kind: type, changed: Mapping[str, Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for one in fields(kind):
        column = [getattr(item, one.name) for item in items]
        if all(value == one.default for value in column):
            continue
        convert = changed.get(one.name)
        found[one.name] = [convert(value) for value in column] if convert else column
    return found


def end_id(key: str, port: str) -> str:
    """Return one end of a wire as text: `"relu_0.output"`; the name alone for an input or output of the model.

    Examples:
        >>> end_id("mlp/relu_0", "a.b"), end_id("input:a.b", "a.b"), end_id("block_0", "")
        ('mlp/relu_0.a%2Eb', 'a%2Eb', 'block_0')
    """
    if not port:
        return key
    is_pill = key.partition(":")[0] in ("input", "output") and ":" in key
    return component(port) if is_pill else f"{key}.{component(port)}"
