"""A laid-out graph as data: boxes, ports and curves in px; `y` grows downward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mithril_nb.display import Shown
from mithril_nb.graph.paths import component, join_path
from mithril_nb.graph.records import Endpoint

Point = tuple[float, float]


@dataclass(frozen=True)
class NodeAnnotation:
    """Labels of a block in a diagram.

    Attributes:
        label: Its most important option, such as `"64 → 10"`.
        shape: Shape of its output, such as `"(32, 10)"`.
        share: Its share of the cost, 0 to 1, or `None` if unknown.
        problem: Index into the list of problems, or `None`.
        hue: Index of its hue, or `None` to use the hue of its top-level block.
        repeat: Number of equal blocks in a row that it represents.
    """

    label: str = ""
    shape: str = ""
    share: float | None = None
    problem: int | None = None
    hue: int | None = None
    repeat: int = 1


@dataclass(frozen=True)
class DiagramPort:
    """A port; `x` and `y` are relative to the top left of its node."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class DiagramNode:
    """A box in the picture: a block, a group's frame, or an input or output of the model.

    Attributes:
        path: Path of the block; `""` for an input or output of the model.
        name: Its name, or the name of the model's port.
        kind: Kind of the block, or `"input"` or `"output"`.
        hue: Index of its hue.
        x: Left edge.
        y: Top edge.
        w: Width.
        h: Height.
        label: Its most important option.
        shape: Shape of its output.
        share: Its share of the cost.
        problem: Index into the list of problems.
        group: True if it contains blocks.
        expanded: True if the blocks inside are drawn.
        repeat: Number of equal blocks in a row that it represents.
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
        source: Its source as `"path.port"`; a model input is the port's name alone. Names are escaped as in
            `graph.paths`.
        target: Its target, in the same form.
        shape: Shape of the data.
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
        nodes: Boxes; a frame comes before its content.
        edges: Curves.
    """

    width: float
    height: float
    nodes: tuple[DiagramNode, ...]
    edges: tuple[DiagramEdge, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the diagram as JSON-able data for the front end."""
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
        """Convert the point `(x, y)` of this picture into the form of `layout(moved=...)` for the block at `path`.

        The result is relative to the frame of the block's group, so that moving a group moves its blocks along.
        """
        parent = path.rpartition("/")[0]
        for node in self.nodes:
            if node.path == parent and node.expanded:
                return x - node.x, y - node.y
        return x, y


def end_text(end: Endpoint, prefix: str = "") -> str:
    """Return an end of an edge in the group at `prefix` as text; without a prefix it equals `str` of the end.

    Examples:
        >>> end_text(Endpoint("relu_0", "input"), "mlp"), end_text(Endpoint("", "input"), "mlp")
        ('mlp/relu_0.input', 'mlp.input')
    """
    path = join_path(prefix, end.node) if end.node else prefix
    return port_text(path, end.port)


def port_text(path: str, port: str) -> str:
    """Return the port of the block at `path` as text; a port of the model itself is its name alone.

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
