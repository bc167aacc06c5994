"""A graph with levels: boxes with sizes, and data flows between them; and the scene that a layout makes of it.

A group is a box that contains others. The boxes inside a group are a level, and so are the outermost boxes.

`layout` computes positions from this data. The front end does the same in its folder `layout`, so that the user can
open groups in a saved page. A test compares both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any

from mithril_nb.display import Shown
from mithril_nb.graph.paths import component, join_path
from mithril_nb.graph.records import Endpoint
from mithril_nb.stages.records import quick_to_make
from mithril_nb.viz.svg import Point

ROOT = ""
# In `Flow.roles`: only sums that pass on a gradient use the data. Such a flow has no separate wire.
GRADIENT = 3
# Kinds of nodes of a stage that have room for their share of the cost.
SHARED = frozenset({"block", "loop", "cond", "branch", "call", "repeat"})
# Appended to the name of data that the next round of a loop uses.
NEXT_ROUND = " (next round)"


@dataclass(frozen=True)
class Box:
    """A node of the graph: a block, an instruction, a loop, or an input or output."""

    # Unique in the graph: the path of a block, or the key of a node in the graph of a stage
    key: str
    name: str
    # Kind of the block, such as `"Linear"`; kind of the node, such as `"loop"`; `"input"` or `"output"`
    kind: str
    # Width in px; before the layout, while the box is closed
    w: float
    h: float
    title_w: float = 0
    # Key of the box that contains this one; `""` if there is none
    parent: str = ROOT
    is_group: bool = False
    hue: int = 0
    # Path of the block; `""` if the box is not a block
    path: str = ""
    # Sizes or options of a block, or a note, such as `"10 rounds"`
    label: str = ""
    shape: str = ""
    repeat: int = 1
    # Share of the cost, 0 to 1; `None` if unknown
    share: float | None = None
    # Index into the problems of the graph; `None` without a problem
    problem: int | None = None
    # Number of instructions inside for each role (forward, backward, update), then the number without a role; `()` in
    # a model
    counts: tuple[int, ...] = ()
    # Paths of the blocks if the box represents several; else `()`
    blocks: tuple[str, ...] = ()
    # Ids of the equations inside, with which a page highlights the box; `()` for a block, which is highlighted by its
    # path
    equations: tuple[str, ...] = field(default=(), repr=False)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    # `"all"` or `"some"` if training does not change all or some parameters of the block, else `""`
    frozen: str = ""
    # Left edge in px. This and the following are results of the layout.
    x: float = 0
    y: float = 0
    expanded: bool = False
    # `"added"`, `"removed"` or `"changed"`, in a comparison
    mark: str = ""
    # Heights of the ports at the left side, relative to the upper edge, by name
    ins: Mapping[str, float] = field(default_factory=dict[str, float])
    outs: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def is_pill(self) -> bool:
        """True for an input or output of a model or program."""
        return self.kind in ("input", "output") and not self.path


@quick_to_make
@dataclass(frozen=True)
class Flow:
    """Data that flows from one box to another. Flows between the same visible boxes are drawn as one wire.

    In a model, data that enters a group has two flows: one ends at the group, and the other leads from the group to a
    box inside. Data that leaves a group has two flows, too.
    """

    source: str
    target: str
    # Output port of `source`; `""` in the graph of a stage
    out: str = ""
    into: str = ""
    # Roles of the instructions that use the data, as sorted indices into `NestedGraph.roles`; only `GRADIENT` if the
    # data are a gradient that only sums use
    roles: tuple[int, ...] = ()
    # Shapes of the data, as sorted indices into `NestedGraph.shapes`
    shapes: tuple[int, ...] = ()
    # Index into the problems of the graph; `None` without a problem
    problem: int | None = None
    # Key of a loop whose next round uses the data, else `""`
    loop: str = ""


@dataclass(frozen=True)
class Piece:
    """The part of a wire between boxes of one level: the boxes directly inside a group, or the outermost boxes."""

    # Key of the box where the piece starts; `""` if it comes from outside the group, through its border
    tail: str
    # Name of the port where the piece starts: a port of the box, or at the border, of the group. In the graph of a
    # stage, which has no ports, a text that identifies the box where the data comes from.
    source: str
    # Key of the box where the piece ends; `""` if it leaves the group through its border
    head: str
    # Name of the port where the piece ends. In the graph of a stage, the same text as `source`.
    port: str
    # The whole wire
    wire: Flow


@dataclass(frozen=True)
class NestedGraph:
    """A graph of boxes, in which a box may contain other boxes."""

    title: str
    # Boxes in reading order; the boxes inside a group follow it
    boxes: tuple[Box, ...]
    flows: tuple[Flow, ...]
    # Texts of shapes, for `Flow.shapes`. In the graph of a stage, small shapes come first.
    shapes: tuple[str, ...] = ()
    # True for the graph of a model, false for the graph of a stage. Only the blocks of a model have ports.
    is_model: bool = True
    # Names of the roles of instructions, such as `"forward"`; `()` in a model
    roles: tuple[str, ...] = ()
    # Output ports of groups that receive no data, as pairs: key of the group, and name of the port
    idle: tuple[tuple[str, str], ...] = ()
    # In the graph of a stage, data flows between equal parts that are drawn as one box. The picture does not show
    # them.
    rounds: tuple[Flow, ...] = ()

    @cached_property
    def by_key(self) -> dict[str, Box]:
        """The boxes by key."""
        return {box.key: box for box in self.boxes}

    @cached_property
    def children(self) -> dict[str, list[Box]]:
        """The boxes directly inside each group, by key of the group. The key of the outermost boxes is `ROOT`."""
        groups: dict[str, list[Box]] = {}
        for box in self.boxes:
            groups.setdefault(box.parent, []).append(box)
        return groups

    def visible_groups(self, opened: Collection[str]) -> frozenset[str]:
        """Return the groups in `opened` that are visible: all groups around them are in `opened`, too."""
        expanded: set[str] = set()
        for box in self.boxes:  # a group comes before its content
            if box.is_group and box.key in opened and (not box.parent or box.parent in expanded):
                expanded.add(box.key)
        return frozenset(expanded)

    def with_shares(self, shares: Mapping[str, float]) -> NestedGraph:
        """Return the graph with these shares of the cost, given by path of the block."""

        def share(box: Box) -> float | None:
            known_shares = [shares[path] for path in box.blocks or (box.path,) if path in shares]
            return min(1.0, sum(known_shares)) if known_shares else None

        return replace(self, boxes=tuple(replace(box, share=share(box)) for box in self.boxes))

    def above(self, key: str) -> list[str]:
        """Return the keys of a box, of the box around it, and so on to `ROOT`."""
        keys = [key]
        while key:
            key = self.by_key[key].parent
            keys.append(key)
        return keys

    def wires(self, expanded: Collection[str]) -> list[Flow]:
        """Return the wires of the graph while the groups in `expanded` are open."""
        visible = {ROOT: ROOT}
        for box in self.boxes:
            around = visible[box.parent]
            visible[box.key] = box.key if box.parent == around and (not around or around in expanded) else around
        by_ends: dict[tuple[str, str, str, str, str], list[Flow]] = {}
        for flow in self.flows:
            tail, head = visible[flow.source], visible[flow.target]
            is_through = flow.source == flow.target == tail and tail in expanded  # from border to border of a group
            if tail == head and not is_through and flow.loop not in expanded:
                continue
            if not self.is_model and (head in expanded or (tail and tail in self.above(head)[1:])):
                continue  # the nodes inside an open node have separate flows
            out, into = flow.out if tail == flow.source else "", flow.into if head == flow.target else ""
            by_ends.setdefault((tail, head, out, into, flow.loop), []).append(flow)
        return [
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
            for (tail, head, out, into, loop), flows in by_ends.items()
        ]

    def pieces(self, wires: Sequence[Flow]) -> dict[str, list[Piece]]:
        """Return the pieces of wires that are drawn on each level, by key of the group that contains the level."""
        levels = defaultdict[str, list[Piece]](list)
        main = {wire for wire in wires if self._is_main(wire)}
        ends = {end for wire in main if wire.source != wire.target for end in (wire.source, wire.target)}
        for wire in wires:
            if wire not in main and (wire.target in ends or wire.roles == (GRADIENT,)):
                continue
            tails, heads = self.above(wire.source), self.above(wire.target)
            # A wire to the next round may lead from a box to itself, around the box.
            inmost = 1 if wire.loop else 0
            common = next(key for key in tails[inmost:] if key in heads[inmost:])
            out_of, into = tails[: tails.index(common)], heads[: heads.index(common)]
            name = end_id(wire.source, wire.out) + (NEXT_ROUND if wire.loop else "")
            source, port = wire.out or name, wire.into or name
            for inner, outer in pairwise(out_of):
                levels[outer].append(Piece(inner, source, "", name, wire))
                source = name
            tail, first = (out_of or [""])[-1], (into or [""])[-1]
            levels[common].append(Piece(tail, source, first, port if len(into) < 2 else name, wire))
            for outer, inner in pairwise(into[::-1]):
                levels[outer].append(Piece("", name, inner, port if inner == into[0] else name, wire))
        return levels

    # A wire is drawn if the forward pass uses its data, or no role is known. Others are drawn if a node at one of
    # their ends has no forward instruction, except wires that only lead to the update of the parameters or to sums of
    # gradients: these would cover the picture.
    def _is_main(self, wire: Flow) -> bool:
        if self.is_model or not wire.roles or 0 in wire.roles:
            return True
        ends = self.by_key[wire.source], self.by_key[wire.target]
        return wire.roles not in ((2,), (GRADIENT,)) and any(not end.counts[0] and end.kind != "input" for end in ends)

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
        index = {box.key: at for at, box in enumerate(self.boxes)}

        def columns(records: Sequence[Box] | Sequence[Flow], kind: type, keys: Collection[str]) -> dict[str, list[Any]]:
            table: dict[str, list[Any]] = {}
            for attribute in fields(kind):
                column = [*map(attrgetter(attribute.name), records)]
                if any(value not in (attribute.default, {}) for value in column):
                    is_key = attribute.name in keys
                    table[attribute.name] = [index.get(value, -1) for value in column] if is_key else column
            return table

        ends = ("source", "target", "loop")
        return {
            "title": self.title,
            "is_model": self.is_model,
            "roles": list(self.roles),
            "shapes": list(self.shapes),
            "idle": [list(pair) for pair in self.idle],
            "boxes": columns(self.boxes, Box, ("parent",)),
            "flows": columns(self.flows, Flow, ends),
            **({"rounds": columns(self.rounds, Flow, ends)} if self.rounds else {}),
        }


def end_id(key: str, port: str) -> str:
    """Return one end of a wire as text: a box and a port. An input or output of the model is its escaped name."""
    if not port:
        return key
    is_pill = key.partition(":")[0] in ("input", "output") and ":" in key
    return component(port) if is_pill else f"{key}.{component(port)}"


@dataclass(frozen=True)
class SceneEdge:
    """A line from one node to another. A wire into or out of an open group consists of several edges."""

    # Where the data comes from. In the graph of a stage, the key of a node; in a model, the path of a block and its
    # port, such as `"linear_0.output"`, or the name of a model input.
    source: str
    # Where the data is used, in the same form. If several nodes inside a group use it, the key of the group.
    target: str
    # Corners of the line, or the points of a curve as in `curve_path`
    points: tuple[Point, ...]
    # True for a cubic Bézier curve
    is_curve: bool = False
    shape: str = ""
    # Index into the problems of the graph; `None` without a problem
    problem: int | None = None
    # True if only the backward pass uses the data
    is_backward: bool = False
    # True if a gradient flows back along the same line
    returns: bool = False
    # False if the line ends at the border of a group around the node that uses the data
    is_end: bool = True
    # True if the next round of a loop uses the data
    is_carried: bool = False

    @property
    def id(self) -> str:
        """Both ends: `"source -> target"`, with `NEXT_ROUND` appended if the next round of a loop uses the data."""
        return f"{self.source} -> {self.target}{NEXT_ROUND if self.is_carried else ''}"

    @property
    def label(self) -> str:
        """Both ends, for a tooltip. A repeated part has the name of its first block."""
        ends = f"{self.source.removeprefix('repeat:')} → {self.target.removeprefix('repeat:')}"
        return ends + (NEXT_ROUND if self.is_carried else "")


_NODE_DATA = {name: name for name in "key parent path blocks name kind hue x y w h label shape share problem".split()}
_NODE_DATA |= {"group": "is_group", "expanded": "expanded", "repeat": "repeat"}


@dataclass(frozen=True)
class Scene(Shown):
    """A picture of a graph, as data."""

    title: str
    width: float
    height: float
    nodes: tuple[Box, ...]
    edges: tuple[SceneEdge, ...]
    is_model: bool = True
    roles: tuple[str, ...] = ()

    @property
    def counted(self) -> str:
        """The number of nodes as text. In a model, inputs and outputs do not count."""
        count = sum(not node.is_pill for node in self.nodes) if self.is_model else len(self.nodes)
        return f"{count} {'block' if self.is_model else 'node'}{'' if count == 1 else 's'}"

    def to_dict(self) -> dict[str, Any]:
        """Return the scene of a model as JSON-able data for the command line."""
        nodes: list[dict[str, Any]] = []
        for node in self.nodes:
            sides = (("inputs", 0, node.ins), ("outputs", node.w, node.outs))
            ports = {side: [{"name": name, "x": x, "y": y} for name, y in ends.items()] for side, x, ends in sides}
            nodes.append({name: getattr(node, attribute) for name, attribute in _NODE_DATA.items()} | ports)
        edges = [
            {
                "id": edge.id,
                "source": edge.source,
                "target": edge.target,
                "shape": edge.shape,
                "points": [list(point) for point in edge.points],
                "curve": edge.is_curve,
                "problem": edge.problem,
            }
            for edge in self.edges
        ]
        return {"width": self.width, "height": self.height, "nodes": nodes, "edges": edges}

    def with_marks(self, marks: Mapping[str, str]) -> Scene:
        """Return the scene with these marks, given by key of the node."""
        return replace(self, nodes=tuple(replace(node, mark=marks.get(node.key, "")) for node in self.nodes))


def end_text(end: Endpoint, prefix: str = "") -> str:
    """Return an end of an edge as text. `prefix` is the path of the group that contains the edge, or `""`."""
    path = join_path(prefix, end.node) if end.node else prefix
    return port_text(path, end.port)


def port_text(path: str, port: str) -> str:
    """Return the port of a block as text: path and escaped name. `path` is `""` for a port of the model."""
    return f"{path}.{component(port)}" if path else component(port)
