"""Labels and sizes of the boxes of a model, from inferred specs, costs and problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mithril_nb.errors import Diagnostic
from mithril_nb.graph.records import Block, BlockSpecs, LogicalGraph, Value
from mithril_nb.graph.spec import Spec, StaticSpec, TensorSpec
from mithril_nb.viz.diagrams.scene import ScenePort, port_text
from mithril_nb.viz.text import one_line, outer_paths, text_width

_LONGEST_LABEL = 24


@dataclass(frozen=True)
class NodeAnnotation:
    """Labels of a block.

    Attributes:
        label: Sizes, such as `"64 → 10"`, or options of the block.
        shape: Shape of the output, such as `"(32, 10)"`.
        share: Share of the cost, 0 to 1; `None` if unknown.
        problem: Index into the problems of the graph; `None` without a problem.
    """

    label: str = ""
    shape: str = ""
    share: float | None = None
    problem: int | None = None


PLAIN = NodeAnnotation()


@dataclass(frozen=True)
class Annotations:
    """Labels of a graph, as arguments of `model_layout`.

    Attributes:
        nodes: Labels of blocks, by path.
        edge_shapes: Known shapes on edges, by source such as `"linear_0.output"`; `"input"` is a model input.
        edge_problems: Index into the problems of the graph, by `(source, target)` of the edge.
    """

    nodes: Mapping[str, NodeAnnotation]
    edge_shapes: Mapping[str, str]
    edge_problems: Mapping[tuple[str, str], int]


def annotate(
    graph: LogicalGraph,
    specs: Mapping[str, BlockSpecs] | None = None,
    inputs: Mapping[str, TensorSpec] | None = None,
    shares: Mapping[str, float] | None = None,
    problems: Sequence[Diagnostic] = (),
) -> Annotations:
    """Return the labels of all blocks and edges.

    Args:
        graph: The graph.
        specs: Inferred specs of each block, by path.
        inputs: Specs of the graph's inputs.
        shares: Shares of the cost, 0 to 1, by path of the block. The share of a group without an entry is the sum of
            the shares inside it.
        problems: Problems of the graph. Each is shown at the block or edge that it names.
    """
    specs, shares = specs or {}, shares or {}
    # A problem also marks the groups around its block: blocks inside a closed group are not visible.
    at_block = {
        path: at
        for at, problem in reversed([*enumerate(problems)])
        if problem.block
        for path in outer_paths(problem.block)
    }
    nodes: dict[str, NodeAnnotation] = {}
    edge_shapes = {name: shape_text(spec) for name, spec in (inputs or {}).items()}
    for path, node in graph.walk():
        found = specs.get(path, BlockSpecs())
        outputs = [found.outputs.get(port.name) for port in node.block.outputs]
        nodes[path] = NodeAnnotation(
            label=label_of(node.block, found),
            shape=shape_text(outputs[0]) if len(outputs) == 1 else "",
            share=share_of(path, shares),
            problem=at_block.get(path),
        )
        for port, spec in zip(node.block.outputs, outputs, strict=True):
            edge_shapes[port_text(path, port.name)] = shape_text(spec)
        if node.block.graph is not None:
            for port in node.block.graph.inputs:
                edge_shapes[port_text(path, port.name)] = shape_text(found.inputs.get(port.name))
    edges = {problem.edge: at for at, problem in reversed([*enumerate(problems)]) if problem.edge}
    return Annotations(nodes, {source: shape for source, shape in edge_shapes.items() if shape}, edges)


def shape_text(spec: Spec | None) -> str:
    """Return a shape as text. For a value known without running, such as a size, return `=` and the value.

    Unknown shapes and values are `""`.

    Examples:
        >>> shape_text(TensorSpec(("batch", 784))), shape_text(TensorSpec((10,))), shape_text(TensorSpec(("...", 4)))
        ('(batch, 784)', '(10,)', '(…, 4)')
        >>> shape_text(TensorSpec(("...",))), shape_text(StaticSpec((2, "batch")))
        ('', "= (2, 'batch')")
    """
    if isinstance(spec, StaticSpec):
        return f"= {spec.value!r}" if spec.is_known else ""
    if spec is None or spec.shape == ("...",):
        return ""
    dims = ["…" if dim == "..." else str(dim) for dim in spec.shape]
    return f"({dims[0]},)" if len(dims) == 1 else f"({', '.join(dims)})"


def label_of(block: Block, specs: BlockSpecs | None = None) -> str:
    """Return the label of a block: the sizes of the last axis of its input and output, or the numbers in its options.

    Only linear blocks and groups are labelled with sizes. A group whose output has the size of its input is labelled
    with the numbers in its options.

    Examples:
        >>> linear = Block("Linear", (("dimension", 10), ("use_bias", True)), (), (), op="linear")
        >>> label_of(linear)
        '10'
        >>> label_of(linear, BlockSpecs({"input": TensorSpec((32, 64))}, {}, {"output": TensorSpec((32, 10))}))
        '64 → 10'
    """
    before, after = _last(specs.inputs) if specs else None, _last(specs.outputs) if specs else None
    if block.op == "linear" and (before is None or after is None):  # not inferred, or inconsistent: use the options
        before, after = block.options.get("input_size") or before, block.options.get("dimension")
    if block.op == "linear" and before is not None and after is not None:
        return f"{before} → {after}"
    if block.graph is not None and before is not None and after is not None and before != after:
        return f"{before} → {after}"
    texts = list(dict.fromkeys(_sizes_text(value) for _, value in block.attributes if _matters(value)))
    while len(" · ".join(texts)) > _LONGEST_LABEL and len(texts) > 1:
        texts.pop()
    return " · ".join(texts)


def share_of(path: str, shares: Mapping[str, float]) -> float | None:
    """Return the share of a block: its entry, or else the sum of the entries inside it. `None` if there are none.

    Examples:
        >>> share_of("mlp", {"mlp/a": 0.25, "mlp/b": 0.5, "mlp_1": 0.25}), share_of("head", {"mlp": 1.0})
        (0.75, None)
    """
    if path in shares:
        return shares[path]
    inside = [share for block, share in shares.items() if block.startswith(f"{path}/")]
    return min(1.0, sum(inside)) if inside else None


def _last(specs: Mapping[str, Spec | None]) -> int | str | None:
    known = [spec for spec in specs.values() if isinstance(spec, TensorSpec)]
    if len(specs) != 1 or not known or not known[0].shape or known[0].shape[-1] == "...":
        return None
    return known[0].shape[-1]


def _matters(value: Value) -> bool:
    """Return whether an option is part of the label: a number from 0.01, but not 1. Flags and epsilons are left out."""
    if isinstance(value, tuple):
        return any(_matters(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0.01 and value != 1


def _sizes_text(value: Value) -> str:
    if isinstance(value, tuple):
        return "×".join(_sizes_text(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


NODE_H = 52
PILL_H = 30
PAD = 16
LEFT = 14  # from the edge of a node to its text; the strip in the hue is between them
RIGHT = 10
GAP = 12  # between the texts of one row
NAME_SIZE = 13
SMALL_SIZE = 11
NARROWEST, WIDEST = 132, 288
_GRID = 8  # widths are multiples of this, so that a small change of a text rarely moves a box


def node_width(name: str, kind: str, label: str, shape: str) -> int:
    """Return the width of a block's box in px. One row shows kind and label, the other name and shape.

    Examples:
        >>> node_width("relu_0", "Relu", "", ""), node_width("linear_0", "Linear", "64 → 10", "(32, 10) float32")
        (136, 184)
    """
    upper = text_width(one_line(kind), SMALL_SIZE) + _beside(label)
    lower = text_width(one_line(name), NAME_SIZE, bold=True) + _beside(shape)
    return _stepped(max(upper, lower) + LEFT + RIGHT)


def node_height(ports: int) -> int:
    """Return the height in px of a block's box with this number of inputs or of outputs, whichever is larger.

    Examples:
        >>> node_height(1), node_height(6)
        (52, 84)
    """
    return max(NODE_H, 12 * (ports + 1))


def pill_width(name: str, shape: str) -> int:
    """Return the width in px of the box of a model's input or output. Its only row shows name and shape.

    Examples:
        >>> pill_width("input", "(32, 784)")
        128
    """
    return _stepped(text_width(one_line(name), NAME_SIZE, bold=True) + _beside(shape) + 2 * LEFT, 72)


def title_width(name: str, kind: str) -> float:
    """Return the width in px of the title of an open group. It shows name and kind in one row."""
    names = text_width(one_line(name), NAME_SIZE, bold=True) + GAP / 2 + text_width(one_line(kind), SMALL_SIZE)
    return min(names, WIDEST)


def ports_at(names: Sequence[str], x: float, height: float) -> tuple[ScenePort, ...]:
    """Return the ports on one side of a box, with equal distances. Positions are relative to its top left corner.

    Args:
        names: Names of the ports, from top to bottom.
        x: Horizontal position of all ports: 0 for the left side of the box, its width for the right side.
        height: Height of the box.

    Examples:
        >>> [port.y for port in ports_at(["left", "right"], 0, 54)]
        [18, 36]
    """
    return tuple(ScenePort(name, x, round(height * at / (len(names) + 1))) for at, name in enumerate(names, 1))


def _beside(text: str) -> float:
    return GAP + text_width(one_line(text), SMALL_SIZE) if text else 0.0


def _stepped(width: float, narrowest: int = NARROWEST) -> int:
    least = max(min(width, WIDEST), narrowest)
    return int(-(-least // _GRID) * _GRID)
