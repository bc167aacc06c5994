"""A graph with positions, as data: nodes and edges in px. `y` grows downward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mithril_nb.display import Shown
from mithril_nb.graph.paths import component, join_path
from mithril_nb.graph.records import Endpoint
from mithril_nb.viz.svg import Point
from mithril_nb.viz.text import one_line, times

_NODE_DATA = (
    "key", "parent", "path", "blocks", "name", "kind", "hue", "x", "y", "w", "h", "label", "shape", "share", "problem",
    "group", "expanded", "repeat",
)  # fmt: skip
"""Attributes of a node that the front end reads, besides its ports."""
NEXT_ROUND = " (next round)"
"""Appended to the name of data that the next round of a loop uses."""


@dataclass(frozen=True)
class ScenePort:
    """A port. `x` and `y` are relative to the top left corner of its node."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class SceneNode:
    """A box with position and size in px. `Box` documents the attributes that are missing here.

    Attributes:
        x: Left edge.
        y: Top edge.
        w: Width.
        h: Height.
        group: True if the node contains other nodes.
        expanded: True if the nodes inside are drawn. The node is then a frame around them.
        inputs: Input ports.
        outputs: Output ports.
        mark: `"added"`, `"removed"` or `"changed"` if the node differs from another graph, else `""`.
    """

    key: str
    name: str
    kind: str
    x: float = 0
    y: float = 0
    w: float = 0
    h: float = 0
    hue: int = 0
    path: str = ""
    parent: str = ""
    group: bool = False
    expanded: bool = False
    label: str = ""
    shape: str = ""
    repeat: int = 1
    share: float | None = None
    problem: int | None = None
    counts: tuple[int, ...] = ()
    blocks: tuple[str, ...] = ()
    equations: tuple[str, ...] = field(default=(), repr=False)
    inputs: tuple[ScenePort, ...] = ()
    outputs: tuple[ScenePort, ...] = ()
    mark: str = ""

    @property
    def is_pill(self) -> bool:
        """True for an input or output of a model or program."""
        return self.kind in ("input", "output") and not self.path


@dataclass(frozen=True)
class SceneEdge:
    """A line from one node to another. A wire into or out of an open group consists of several edges.

    Attributes:
        source: Where the data comes from. In the graph of a stage, the key of a node; in a model, the path of a block
            and its port, such as `"linear_0.output"`, or the name of a model input.
        target: Where the data is used, in the same form. If several nodes inside a group use it, the key of the group.
        points: Corners of the line, or the points of a curve as in `curve_path`.
        is_curve: True for a cubic Bézier curve.
        shape: Shape of the data.
        problem: Index into the problems of the graph; `None` without a problem.
        is_backward: True if only the backward pass uses the data.
        returns: True if a gradient flows back along the same line.
        is_end: False if the line ends at the border of a group around the node that uses the data.
        is_carried: True if the next round of a loop uses the data.
    """

    source: str
    target: str
    points: tuple[Point, ...]
    is_curve: bool = False
    shape: str = ""
    problem: int | None = None
    is_backward: bool = False
    returns: bool = False
    is_end: bool = True
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


@dataclass(frozen=True)
class Scene(Shown):
    """A picture of a graph, as data.

    Attributes:
        title: Accessible name.
        width: Width in px.
        height: Height in px.
        nodes: Boxes in reading order; the boxes inside a group follow it.
        edges: Lines between the boxes.
        is_model: True for the graph of a model, false for the graph of a stage. Only the blocks of a model have ports.
        roles: Names of the roles of instructions, such as `"forward"`, in the order of `SceneNode.counts`; `()` in a
            model.
    """

    title: str
    width: float
    height: float
    nodes: tuple[SceneNode, ...]
    edges: tuple[SceneEdge, ...]
    is_model: bool = True
    roles: tuple[str, ...] = ()

    @property
    def counted(self) -> str:
        """The number of nodes as text. In a model, inputs and outputs do not count."""
        count = sum(not node.is_pill for node in self.nodes) if self.is_model else len(self.nodes)
        return f"{count} {'block' if self.is_model else 'node'}{'' if count == 1 else 's'}"

    def to_dict(self) -> dict[str, Any]:
        """Return the scene of a model as JSON-able data for the front end."""
        return {
            "width": self.width,
            "height": self.height,
            "nodes": [
                {name: getattr(node, name) for name in _NODE_DATA}
                | {"inputs": list(map(vars, node.inputs)), "outputs": list(map(vars, node.outputs))}
                for node in self.nodes
            ],
            "edges": [
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
            ],
        }

    def with_marks(self, marks: Mapping[str, str]) -> Scene:
        """Return the scene with these marks, given by key of the node."""
        return replace(self, nodes=tuple(replace(node, mark=marks.get(node.key, "")) for node in self.nodes))


@dataclass
class Level:
    """The content of a group or of the whole graph, with positions in px. Its top left corner is at `(0, 0)`.

    Attributes:
        w: Width.
        h: Height.
        nodes: All nodes inside, also nodes in open groups.
        edges: The edges between the outermost nodes, and after them the edges in open groups.
        ins: Heights at which wires enter through the left border. The key is the name of an input port of the group; in
            the graph of a stage, the key of the node where the data comes from.
        outs: Heights at which wires leave through the right border, in the same form.
        borders: For each edge between the outermost nodes, two bools: it starts at the border, and it ends there.
    """

    w: float
    h: float
    nodes: list[SceneNode] = field(default_factory=list)
    edges: list[SceneEdge] = field(default_factory=list)
    ins: dict[str, float] = field(default_factory=dict)
    outs: dict[str, float] = field(default_factory=dict)
    borders: list[tuple[bool, bool]] = field(default_factory=list)

    def shifted_nodes(self, dx: float, dy: float) -> list[SceneNode]:
        """Return the nodes, moved right by `dx` and down by `dy`."""
        return [replace(node, x=node.x + dx, y=node.y + dy) for node in self.nodes]

    def shifted_edges(self, dx: float, dy: float) -> list[SceneEdge]:
        """Return the edges, moved right by `dx` and down by `dy`."""
        return [replace(edge, points=shifted(edge.points, dx, dy)) for edge in self.edges]


def shifted(points: Sequence[Point], dx: float, dy: float) -> tuple[Point, ...]:
    """Return points moved right by `dx` and down by `dy`."""
    return tuple((x + dx, y + dy) for x, y in points)


def frame_texts(name: str, repeat: int, note: str, shape: str) -> tuple[str, str]:
    """Return the title of an open node of a stage as two texts.

    Examples:
        >>> frame_texts("layer_0", 12, "10 rounds", "4×8")
        ('layer_0 ×12', '10 rounds · 4×8')
    """
    return times(one_line(name), repeat), " · ".join(part for part in (note, one_line(shape)) if part)


def count_text(kind: str, counts: Sequence[int], roles: Sequence[str]) -> str:
    """Return the numbers of instructions in a node by role; `""` for a single instruction or an input.

    Examples:
        >>> count_text("block", (3, 0, 1, 2), ("forward", "backward", "update"))
        '3 forward, 1 update, 2 without a role'
    """
    if kind in ("instruction", "input"):
        return ""
    named = zip((*roles, "without a role"), counts, strict=False)
    return ", ".join(f"{count} {name}" for name, count in named if count)


def end_text(end: Endpoint, prefix: str = "") -> str:
    """Return an end of an edge as text. `prefix` is the path of the group that contains the edge, `""` for the model.

    Examples:
        >>> end_text(Endpoint("relu_0", "input"), "mlp"), end_text(Endpoint("", "input"), "mlp")
        ('mlp/relu_0.input', 'mlp.input')
    """
    path = join_path(prefix, end.node) if end.node else prefix
    return port_text(path, end.port)


def port_text(path: str, port: str) -> str:
    """Return the port of a block as text: path and escaped name. `path` is `""` for a port of the model.

    Examples:
        >>> port_text("relu_0", "a.b"), port_text("", "a.b")
        ('relu_0.a%2Eb', 'a%2Eb')
    """
    return f"{path}.{component(port)}" if path else component(port)
