"""A graph in levels as data: boxes with their sizes, and the data that flows between them, but without positions.

The graphs of models and stages are converted to this form, and `layout` computes a scene from it. The folder `layout`
of the front end contains the same algorithm, so that groups open without a kernel; a test compares both.
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
"""In `Flow.roles`: a gradient that sums pass on. It has no separate wire."""


@dataclass(frozen=True)
class Box:
    """A node of a nested graph: a block, an instruction, a loop, or an input or output.

    Attributes:
        key: Unique in the graph: the path of a block, or the key of a node in the graph of a stage.
        name: Name.
        kind: Kind of the block, such as `"Linear"`; kind of the node, such as `"loop"`; `"input"` or `"output"`.
        w: Width in px while the box is closed.
        h: Height in px while the box is closed.
        title_w: Least width in px while the box is open.
        parent: Key of the box that contains this one; `""` at the top.
        is_group: True if the box can be opened.
        hue: Index of the hue.
        path: Path of the block; `""` for a node that is no block.
        label: Most important options, or a note, such as `"10 rounds"`.
        shape: Shape of the output.
        repeat: Number of equal nodes that this one represents.
        share: Share of the cost, 0 to 1; `None` if unknown.
        problem: Index into the list of problems; `None` without a problem.
        counts: Numbers of instructions inside: one for each role, then that of instructions without a role; `()` in a
            model.
        blocks: Paths of the blocks that the box represents; `()` if it represents only the block at `path`.
        equations: Ids of the equations inside, for links; `()` for a block, whose path links it.
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
    """Data that flows from one box to another; or all flows between the same two visible boxes, drawn as one wire.

    Attributes:
        source: Key of the box that produces the data; a group around `target` if the data enters through its border.
        target: Key of the box that uses the data; a group around `source` if the data leaves through its border.
        out: Output port of `source`; `""` in a graph without ports.
        into: Input port of `target`; `""` in a graph without ports.
        roles: Roles of the instructions that use the data, as indices into `NestedGraph.roles`, or `GRADIENT`;
            ascending.
        shapes: Shapes of the data, as indices into `NestedGraph.shapes`; ascending.
        problem: Index into the list of problems; `None` without a problem.
        loop: Key of the loop if its next round uses the data, else `""`.
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
    """The piece of a wire on one level.

    Attributes:
        tail: Key of the box where the piece starts; `""` is the border of the level.
        source: Name of the data at the start: a port, or the source of the data.
        head: Key of the box where the piece ends; `""` is the border of the level.
        port: Name of the data at the end: a port, or the source of the data.
        bundle: The flows that the wire shows, as one flow.
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
        title: Accessible name.
        boxes: Boxes in reading order; a group comes before its content.
        flows: Data flow between the boxes.
        shapes: Texts of the shapes to which flows refer; in the graph of a stage, small shapes first.
        is_model: True for the graph of a model, whose blocks have ports; false for the graph of a stage.
        roles: Names of the roles.
        idle: Output ports of groups to which no data flows, as `(key of the group, port)`.
        rounds: Data flow between the rounds of equal parts. It is not drawn, because one part represents all rounds.
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
        """The boxes directly inside each group, by key of the group; `ROOT` is the key of the top level."""
        found: dict[str, list[Box]] = {}
        for box in self.boxes:
            found.setdefault(box.parent, []).append(box)
        return found

    @cached_property
    def idle_ports(self) -> dict[str, list[str]]:
        """The output ports to which no data flows, by key of the group."""
        found: dict[str, list[str]] = {}
        for group, port in self.idle:
            found.setdefault(group, []).append(port)
        return found

    def shown_groups(self, opened: Collection[str]) -> frozenset[str]:
        """Return the groups in `opened` whose outer groups are in `opened`, too: those that are drawn open."""
        found: set[str] = set()
        for box in self.boxes:  # a group comes before its content
            if box.is_group and box.key in opened and (not box.parent or box.parent in found):
                found.add(box.key)
        return frozenset(found)

    def with_shares(self, shares: Mapping[str, float]) -> NestedGraph:
        """Return the graph with other shares of the cost, given by path of the block."""

        def share(box: Box) -> float | None:
            known = [shares[path] for path in box.blocks or (box.path,) if path in shares]
            return min(1.0, sum(known)) if known else None

        return replace(self, boxes=tuple(replace(box, share=share(box)) for box in self.boxes))

    def above(self, key: str) -> list[str]:
        """Return the key of a box and the keys of the boxes around it, from the inside out; the last one is `ROOT`."""
        found = [key]
        while key:
            key = self.by_key[key].parent
            found.append(key)
        return found

    def bundles(self, shown: Collection[str]) -> tuple[Flow, ...]:
        """Return the wires between visible boxes if the groups in `shown` are drawn open.

        All flows between the same ends are one wire.
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
        """Return the pieces of the wires that are drawn, by key of the group on whose level they are."""
        levels: dict[str, list[Piece]] = {}
        for bundle in bundles:
            if not self._is_drawn(bundle):
                continue
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
        """Return the wires along which a gradient flows back: source, target, and if it is for a loop's next round."""
        return frozenset(
            (one.target, one.source, bool(one.loop)) for one in bundles if 1 in one.roles or GRADIENT in one.roles
        )

    def _is_drawn(self, bundle: Flow) -> bool:
        """Return whether a wire is drawn. In a model, all are.

        In a stage, a wire is drawn if the forward pass uses the data, or if an end has no forward instruction; but not
        if only the update uses the data, or if it is a gradient that sums pass on.
        """
        if self.is_model or not bundle.roles or 0 in bundle.roles:
            return True
        if bundle.roles == (GRADIENT,):
            return False
        ends = self.by_key[bundle.source], self.by_key[bundle.target]
        return bundle.roles != (2,) and any(not end.counts[0] and end.kind != "input" for end in ends)

    def shape_text(self, shapes: tuple[int, ...]) -> str:
        """Return the text of the last of some shapes, given as indices, and the number of the others."""
        if not shapes:
            return ""
        return self.shapes[shapes[-1]] + (f" +{len(shapes) - 1}" if len(shapes) > 1 else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as JSON-able columns for the front end; columns with only default values are left out."""
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
    """Return one end of a wire as text: `"relu_0.output"`, or the escaped name of an input or output of the model.

    Examples:
        >>> end_id("mlp/relu_0", "a.b"), end_id("input:a.b", "a.b"), end_id("block_0", "")
        ('mlp/relu_0.a%2Eb', 'a%2Eb', 'block_0')
    """
    if not port:
        return key
    is_pill = key.partition(":")[0] in ("input", "output") and ":" in key
    return component(port) if is_pill else f"{key}.{component(port)}"
