"""What a picture of a graph is, as data: boxes, ports and curves in px, `y` growing downward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mithril_nb.display import Shown
from mithril_nb.graph.paths import component, join_path
from mithril_nb.graph.records import Endpoint

Point = tuple[float, float]


@dataclass(frozen=True)
class NodeAnnotation:
    """What to say about a block beside its name.

    Attributes:
        label: The attribute that matters, as `"64 → 10"`.
        shape: Shape of what it gives, as `"(32, 10)"`.
        share: Its share of the cost, 0 to 1, or `None` if unknown.
        problem: Index into the list of problems, or `None`.
        hue: Index of its hue, or `None` to take its top-level block's.
        repeat: How many equal blocks in a row it stands for.
    """

    label: str = ""
    shape: str = ""
    share: float | None = None
    problem: int | None = None
    hue: int | None = None
    repeat: int = 1


@dataclass(frozen=True)
class DiagramPort:
    """A port, `x` and `y` counted from the top left of its node."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class DiagramNode:
    """A box in the picture: a block, a group's frame, or one of the model's own inputs and outputs.

    Attributes:
        path: Path of the block; `""` for the model's own inputs and outputs.
        name: Its name, or the name of the model's port.
        kind: Kind of the block, or `"input"` or `"output"`.
        hue: Index of its hue.
        x: Left edge.
        y: Top edge.
        w: Width.
        h: Height.
        label: The attribute that matters.
        shape: Shape of what it gives.
        share: Its share of the cost.
        problem: Index into the list of problems.
        group: Whether there are blocks inside.
        expanded: Whether they are drawn.
        repeat: How many equal blocks in a row it stands for.
        inputs: Its input ports.
        outputs: Its output ports.
    """

    path: str
    name: str
    kind: str
    hue: int
    x: float
    y: float
    w: float
    h: float
    label: str = ""
    shape: str = ""
    share: float | None = None
    problem: int | None = None
    group: bool = False
    expanded: bool = False
    repeat: int = 1
    inputs: tuple[DiagramPort, ...] = ()
    outputs: tuple[DiagramPort, ...] = ()


@dataclass(frozen=True)
class DiagramEdge:
    """A connection as a curve.

    Attributes:
        id: `"source -> target"`.
        source: `"path.port"` it comes from; the port's name alone for a model input. Names in it are escaped as in
            `graph.paths`.
        target: The same of where it goes.
        shape: Shape of what flows.
        points: Control points of a cubic Bézier curve: the start, then three for each piece.
        problem: Index into the list of problems.
    """

    id: str
    source: str
    target: str
    shape: str
    points: tuple[Point, ...]
    problem: int | None = None


@dataclass(frozen=True)
class Diagram(Shown):
    """A laid-out picture of a graph.

    Attributes:
        width: Width in px.
        height: Height in px.
        nodes: Boxes; a frame comes before what is inside it.
        edges: Curves.
    """

    width: float
    height: float
    nodes: tuple[DiagramNode, ...]
    edges: tuple[DiagramEdge, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON-able data, for a front end."""
        return {
            "width": self.width,
            "height": self.height,
            "nodes": [_node_dict(node) for node in self.nodes],
            "edges": [
                {
                    "id": edge.id,
                    "source": edge.source,
                    "target": edge.target,
                    "shape": edge.shape,
                    "points": [list(point) for point in edge.points],
                    "problem": edge.problem,
                }
                for edge in self.edges
            ],
        }

    def within(self, path: str, x: float, y: float) -> Point:
        """Return the place `(x, y)` of this picture as `layout(moved=...)` takes it for the block at `path`.

        Places are counted from the frame of the group that a block is in, so that moving a group takes its blocks
        along.
        """
        parent = path.rpartition("/")[0]
        for node in self.nodes:
            if node.path == parent and node.expanded:
                return x - node.x, y - node.y
        return x, y


def end_text(end: Endpoint, prefix: str = "") -> str:
    """Return an end of an edge in the group at `prefix` as text; with no prefix, as `str` writes it.

    Examples:
        >>> end_text(Endpoint("relu_0", "input"), "mlp"), end_text(Endpoint("", "input"), "mlp")
        ('mlp/relu_0.input', 'mlp.input')
    """
    path = join_path(prefix, end.node) if end.node else prefix
    return port_text(path, end.port)


def port_text(path: str, port: str) -> str:
    """Return a port of the block at a path as text; a port of the model itself is its name alone.

    Examples:
        >>> port_text("relu_0", "a.b"), port_text("", "input")
        ('relu_0.a%2Eb', 'input')
    """
    return f"{path}.{component(port)}" if path else port


def _node_dict(node: DiagramNode) -> dict[str, Any]:
    data: dict[str, Any] = dict(vars(node))
    for side in ("inputs", "outputs"):
        data[side] = [{"name": port.name, "x": port.x, "y": port.y} for port in getattr(node, side)]
    return data
