"""A graph with levels, as data for a layout: boxes with sizes, and data flows between them.

A group is a box that contains others. The boxes inside a group are a level, and so are the outermost boxes.

`layout` computes positions from this data. The front end does the same in its folder `layout`, so that the user can
open groups in a saved page. A test compares both.
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
"""In `Flow.roles`: only sums that pass on a gradient use the data. Such a flow has no separate wire."""
SHARED = frozenset({"block", "loop", "cond", "branch", "call", "repeat"})
"""Kinds of nodes of a stage that have room for their share of the cost."""


@dataclass(frozen=True)
class Box:
    """A node of the graph: a block, an instruction, a loop, or an input or output.

    Attributes:
        key: Unique in the graph: the path of a block, or the key of a node in the graph of a stage.
        name: Name.
        kind: Kind of the block, such as `"Linear"`; kind of the node, such as `"loop"`; `"input"` or `"output"`.
        w: Width in px while the box is closed.
        h: Height in px while the box is closed.
        title_w: Smallest width in px while the box is open.
        parent: Key of the box that contains this one; `""` if there is none.
        is_group: True if the box can be opened.
        hue: Index of the colour in the palette.
        path: Path of the block; `""` if the box is not a block.
        label: Sizes or options of a block, or a note, such as `"10 rounds"`.
        shape: Shape of the output.
        repeat: Number of equal nodes in the box.
        share: Share of the cost, 0 to 1; `None` if unknown.
        problem: Index into the problems of the graph; `None` without a problem.
        counts: Number of instructions inside for each role (forward, backward, update), then the number without a role;
            `()` in a model.
        blocks: Paths of the blocks if the box represents several; else `()`.
        equations: Ids of the equations inside, with which a page highlights the box; `()` for a block, which is
            highlighted by its path.
        inputs: Names of the input ports.
        outputs: Names of the output ports.
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
    """Data that flows from one box to another. Flows between the same visible boxes are drawn as one wire.

    In a model, data that enters a group has two flows: one ends at the group, and the other leads from the group to a
    box inside. Data that leaves a group has two flows, too.

    Attributes:
        source: Key of the box where the data comes from.
        target: Key of the box that receives the data.
        out: Output port of `source`; `""` in the graph of a stage.
        into: Input port of `target`; `""` in the graph of a stage.
        roles: Roles of the instructions that use the data, as sorted indices into `NestedGraph.roles`; only `GRADIENT`
            if the data are a gradient that only sums use.
        shapes: Shapes of the data, as sorted indices into `NestedGraph.shapes`.
        problem: Index into the problems of the graph; `None` without a problem.
        loop: Key of a loop whose next round uses the data, else `""`.
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
    """The part of a wire between boxes of one level: the boxes directly inside a group, or the outermost boxes.

    Attributes:
        tail: Key of the box where the piece starts; `""` if it comes from outside the group, through its border.
        source: Name of the port where the piece starts: a port of the box, or at the border, of the group. In the graph
            of a stage, which has no ports, a text that identifies the box where the data comes from.
        head: Key of the box where the piece ends; `""` if it leaves the group through its border.
        port: Name of the port where the piece ends. In the graph of a stage, the same text as `source`.
        bundle: The whole wire.
    """

    tail: str
    source: str
    head: str
    port: str
    bundle: Flow


@dataclass(frozen=True)
class NestedGraph:
    """A graph of boxes, in which a box may contain other boxes.

    Attributes:
        title: Accessible name.
        boxes: Boxes in reading order; the boxes inside a group follow it.
        flows: Data flows between the boxes.
        shapes: Texts of shapes, for `Flow.shapes`. In the graph of a stage, small shapes come first.
        is_model: True for the graph of a model, false for the graph of a stage. Only the blocks of a model have ports.
        roles: Names of the roles of instructions, such as `"forward"`; `()` in a model.
        idle: Output ports of groups that receive no data, as pairs: key of the group, and name of the port.
        rounds: In the graph of a stage, data flows between equal parts that are drawn as one box. The picture does not
            show them.
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
        """The boxes directly inside each group, by key of the group. The key of the outermost boxes is `ROOT`."""
        found: dict[str, list[Box]] = {}
        for box in self.boxes:
            found.setdefault(box.parent, []).append(box)
        return found

    @cached_property
    def idle_ports(self) -> dict[str, list[str]]:
        """The output ports that receive no data, by key of the group."""
        found: dict[str, list[str]] = {}
        for group, port in self.idle:
            found.setdefault(group, []).append(port)
        return found

    def shown_groups(self, opened: Collection[str]) -> frozenset[str]:
        """Return the groups in `opened` that are visible: all groups around them are in `opened`, too."""
        found: set[str] = set()
        for box in self.boxes:  # a group comes before its content
            if box.is_group and box.key in opened and (not box.parent or box.parent in found):
                found.add(box.key)
        return frozenset(found)

    def with_shares(self, shares: Mapping[str, float]) -> NestedGraph:
        """Return the graph with these shares of the cost, given by path of the block."""

        def share(box: Box) -> float | None:
            known = [shares[path] for path in box.blocks or (box.path,) if path in shares]
            return min(1.0, sum(known)) if known else None

        return replace(self, boxes=tuple(replace(box, share=share(box)) for box in self.boxes))

    def above(self, key: str) -> list[str]:
        """Return the keys of a box, of the box around it, and so on to `ROOT`."""
        found = [key]
        while key:
            key = self.by_key[key].parent
            found.append(key)
        return found

    def bundles(self, shown: Collection[str]) -> tuple[Flow, ...]:
        """Return the wires of the graph while the groups in `shown` are open.

        All flows between the same ends are one wire, which is returned as a `Flow`.
        """
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
                continue  # the nodes inside an open node have separate flows
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
        """Return the pieces of wires that are drawn on each level, by key of the group that contains the level."""
        levels: dict[str, list[Piece]] = {}
        for bundle in self._drawn(bundles):
            tails, heads = self.above(bundle.source), self.above(bundle.target)
            if bundle.loop:  # a wire to the next round may lead from a box to itself, around the box
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
        """Return the wires in whose opposite direction a gradient flows.

        A wire is a tuple: the keys of its source and target, and `True` if the next round of a loop uses the data.
        """
        return frozenset(
            (one.target, one.source, bool(one.loop)) for one in bundles if 1 in one.roles or GRADIENT in one.roles
        )

    def _drawn(self, bundles: Iterable[Flow]) -> list[Flow]:
        """Return the wires that are drawn. In the graph of a model, all are; in that of a stage, see `_is_main`.

        A box that none of these reaches or leaves has all wires with its data.
        """
        every = list(bundles)
        main = {flow for flow in every if self._is_main(flow)}
        ends = {end for flow in main if flow.source != flow.target for end in (flow.source, flow.target)}
        return [flow for flow in every if flow in main or not (flow.target in ends or flow.roles == (GRADIENT,))]

    def _is_main(self, bundle: Flow) -> bool:
        """Return whether the forward pass uses the data of a wire, or no role is known.

        Other wires are like these if a node at one of their ends has no forward instruction, except wires that only
        lead to the update of the parameters or to sums of gradients.
        """
        if self.is_model or not bundle.roles or 0 in bundle.roles:
            return True
        if bundle.roles == (GRADIENT,):
            return False
        ends = self.by_key[bundle.source], self.by_key[bundle.target]
        return bundle.roles != (2,) and any(not end.counts[0] and end.kind != "input" for end in ends)

    def shape_text(self, shapes: tuple[int, ...]) -> str:
        """Return the last of the shapes as text, and the number of the others, such as `"4×8 +2"`."""
        if not shapes:
            return ""
        return self.shapes[shapes[-1]] + (f" +{len(shapes) - 1}" if len(shapes) > 1 else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as JSON-able columns for the front end. Columns that contain only defaults are left out."""
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
    """Return one end of a wire as text: a box and a port. An input or output of the model is its escaped name.

    Examples:
        >>> end_id("mlp/relu_0", "a.b"), end_id("input:a.b", "a.b"), end_id("block_0", "")
        ('mlp/relu_0.a%2Eb', 'a%2Eb', 'block_0')
    """
    if not port:
        return key
    is_pill = key.partition(":")[0] in ("input", "output") and ":" in key
    return component(port) if is_pill else f"{key}.{component(port)}"
