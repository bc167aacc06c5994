"""The graph of a model as a nested graph: boxes with labels from inferred specs, costs and problems.

Repeated parts of a model become one box with ×N. Only structure is compared, not names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from math import ceil
from types import MappingProxyType

from mithril_nb.errors import Diagnostic
from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import BOUNDARY, Block, BlockSpecs, Endpoint, LogicalGraph, Node, Value
from mithril_nb.graph.spec import Spec, StaticSpec, TensorSpec
from mithril_nb.stages.graph.folds import rounds
from mithril_nb.stages.graph.stage_graph import MOST
from mithril_nb.viz.diagrams.layout import fits_first_view
from mithril_nb.viz.diagrams.nested import ROOT, Box, Flow, NestedGraph, end_text
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.text import one_line, outer_paths, text_width, times

_LONGEST_LABEL = 24
_NO_SPECS = BlockSpecs()


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
    """Return the label of a block: the sizes of the last axis of its input and output, or numbers in its options."""
    before, after = _last(specs.inputs) if specs else None, _last(specs.outputs) if specs else None
    if block.op == "linear" and (before is None or after is None):  # not inferred, or inconsistent: use the options
        before, after = block.options.get("input_size") or before, block.options.get("dimension")
    is_sized = block.op == "linear" or (block.graph is not None and before != after)
    if is_sized and before is not None and after is not None:
        return f"{before} → {after}"
    texts = list(dict.fromkeys(_sizes_text(value) for _, value in block.attributes if _matters(value)))
    while len(" · ".join(texts)) > _LONGEST_LABEL and len(texts) > 1:
        texts.pop()
    return " · ".join(texts)


def share_of(path: str, shares: Mapping[str, float]) -> float | None:
    """Return the share of a block: its entry, or else the sum of the entries inside it. `None` if there are none."""
    if path in shares:
        return shares[path]
    inside = [share for block, share in shares.items() if block.startswith(f"{path}/")]
    return min(1.0, sum(inside)) if inside else None


def _last(specs: Mapping[str, Spec | None]) -> int | str | None:
    tensors = [spec for spec in specs.values() if isinstance(spec, TensorSpec)]
    if len(specs) != 1 or not tensors or not tensors[0].shape or tensors[0].shape[-1] == "...":
        return None
    return tensors[0].shape[-1]


# Numbers from 0.01, but not 1: flags and epsilons are left out.
def _matters(value: Value) -> bool:
    if isinstance(value, tuple):
        return any(_matters(item) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0.01 and value != 1


def _sizes_text(value: Value) -> str:
    if isinstance(value, tuple):
        return "×".join(_sizes_text(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


NODE_H = 64
PILL_H = 40
PAD = 16
LEFT = 14  # from the edge of a node to its text; the strip in the hue is between them
RIGHT = 10
GAP = 12  # between the texts of one row
NAME_SIZE = 13
SMALL_SIZE = 11
# Blocks have one width, inputs and outputs another; a long name or kind needs more.
NARROWEST, PILL_W, WIDEST = 168, 128, 288


def title_width(name: str, kind: str) -> float:
    """Return the width in px of the title of an open group. It shows name and kind in one row."""
    names = text_width(one_line(name), NAME_SIZE, bold=True) + GAP / 2 + text_width(one_line(kind), SMALL_SIZE)
    return min(names, WIDEST)


# A level with more nodes is shortened: repeated ops and sequences of blocks become one box each, too.
MOST_ON_A_LEVEL = 24
_FEWEST_ROUNDS = 3
_MOST_RUNS = 8


@dataclass(frozen=True)
class RepeatedRun:
    """A sequence of blocks of a model or group that occurs several times in a row."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """Index after the last block."""
        return self.start + self.period * self.count


def repeated_runs(nodes: Sequence[Node]) -> tuple[RepeatedRun, ...]:
    """Return the repeated sequences of blocks in a model or group, in order.

    Three or more equal composite blocks in a row are always returned. If there are more than `MOST_ON_A_LEVEL` blocks,
    repeated ops and longer sequences such as `Linear`, `Relu` are returned, too.
    """
    numbers: dict[Block, int] = {}
    by_id: dict[int, int] = {}  # hashing a composite block visits all blocks inside it
    for node in nodes:
        if id(node.block) not in by_id:
            by_id[id(node.block)] = numbers.setdefault(node.block, len(numbers))
    tokens = [by_id[id(node.block)] for node in nodes]  # equal for the same structure
    runs: list[RepeatedRun] = []
    for _, members in groupby(range(len(nodes)), tokens.__getitem__):
        start, *rest = members
        if len(rest) + 1 >= _FEWEST_ROUNDS and nodes[start].block.graph is not None:
            runs.append(RepeatedRun(start, 1, len(rest) + 1))
    longest: dict[tuple[int, int], tuple[int, int, int] | None] = {}  # repetition in each gap between runs
    while len(nodes) - sum(run.end - run.start - 1 for run in runs) > MOST_ON_A_LEVEL and len(runs) < _MOST_RUNS:
        edges = sorted((run.start, run.end) for run in runs)
        gaps = [*zip([0, *(end for _, end in edges)], [*(start for start, _ in edges), len(nodes)], strict=True)]
        for start, stop in gaps:
            if (start, stop) not in longest:
                longest[start, stop] = rounds(tokens[start:stop], _FEWEST_ROUNDS)
        parts = [(start, longest[start, stop]) for start, stop in gaps]
        candidates = [RepeatedRun(start + part[0], *part[1:]) for start, part in parts if part is not None]
        if not candidates:
            break
        runs.append(max(candidates, key=lambda run: run.end - run.start))
    return tuple(sorted(runs, key=lambda run: run.start))


def model_graph(
    graph: LogicalGraph,
    specs: Mapping[str, BlockSpecs] | None = None,
    inputs: Mapping[str, TensorSpec] | None = None,
    shares: Mapping[str, float] | None = None,
    problems: Sequence[Diagnostic] = (),
    *,
    fold: bool | Collection[str] = False,
    frozen: Mapping[str, str] = MappingProxyType({}),
    ports: Collection[str] = (),
) -> NestedGraph:
    """Return the graph of a model as a nested graph.

    Args:
        graph: The graph.
        specs: Specs of the blocks, by path. Without them, the boxes have no labels.
        inputs: Specs of the inputs.
        shares: Shares of the cost, 0 to 1, by path of the block.
        problems: Problems of blocks and edges, which mark them.
        fold: Whether repeated parts become one box each, or the keys of those that do.
        frozen: `Box.frozen` by path of the block.
        ports: Paths of the blocks whose parameters have ports; others have ports only for connected parameters.
    """
    build = _Build(specs, shares or {}, problems, fold, frozen, ports)
    build.level(graph, "", {name: shape_text(spec) for name, spec in (inputs or {}).items()}, 0)
    return NestedGraph(
        "logical graph", tuple(build.boxes), tuple(build.flows), tuple(build.shapes), idle=tuple(build.idle)
    )


def first_view(graph: NestedGraph, marks: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the keys of the groups to open in the first picture of a model.

    Groups with a problem are opened first, then the most expensive ones; if no cost is known, those with the most
    blocks. The picture shows at most 25 nodes and must be readable without zooming. The box of a repeated part is
    opened only if one of its blocks has a problem.
    """
    marked = {key for marked_key in marks or {} if marked_key in graph.by_key for key in graph.above(marked_key)[1:]}
    opened: set[str] = set()
    waiting = list(graph.children.get(ROOT, []))
    count = len(waiting)

    def may_open(box: Box) -> bool:
        if marks:
            return box.key in marked and marks.get(box.key) == "changed"
        inside = graph.children[box.key]
        shows_more = len(inside) > 1 or inside[0].is_group
        return shows_more and (box.problem is not None or box.key != repeat_key(box.blocks[0] if box.blocks else ""))

    # Opening a group makes its content available, so the next best group may be inside it.
    while waiting:
        waiting = [box for box in waiting if graph.children.get(box.key) and may_open(box)]
        waiting.sort(key=lambda box: (box.problem is None, -(box.share or 0), -len(graph.children[box.key])))
        if not waiting:
            break
        box = waiting.pop(0)
        inside = graph.children[box.key]
        if count + len(inside) <= MOST and (marks or fits_first_view(graph, {*opened, box.key})):
            opened.add(box.key)
            count += len(inside)
            waiting += inside
    return frozenset(opened)


class _Build:
    def __init__(
        self,
        specs: Mapping[str, BlockSpecs] | None,
        shares: Mapping[str, float],
        problems: Sequence[Diagnostic],
        fold: bool | Collection[str],
        frozen: Mapping[str, str],
        ports: Collection[str],
    ):
        self.specs, self.shares, self.fold, self.frozen, self.ports = specs, shares, fold, frozen, ports
        self.boxes: list[Box] = []
        self.flows: list[Flow] = []
        self.shapes: dict[str, int] = {}
        self.idle: list[tuple[str, str]] = []
        self.problem_of: dict[str, int] = {}
        self.problem_at: dict[tuple[str, str], int] = {}
        for at, problem in enumerate(problems):
            # A problem also marks the groups around its block: blocks inside a closed group are not visible.
            for path in outer_paths(problem.block):
                self.problem_of.setdefault(path, at)
            if problem.edge:
                self.problem_at.setdefault(problem.edge, at)

    def level(self, graph: LogicalGraph, prefix: str, input_shapes: Mapping[str, str], hue: int) -> None:
        shapes = {Endpoint(BOUNDARY, name): shape for name, shape in input_shapes.items()}
        for node in graph.nodes:
            outputs = self._specs_of(join_path(prefix, node.name)).outputs
            shapes |= {Endpoint(node.name, port): shape_text(spec) for port, spec in outputs.items()}
        connected = {end for edge in graph.edges for end in (edge.source, edge.target)}
        for port in graph.inputs:
            end = Endpoint(BOUNDARY, port.name)
            if port.role == "param" and (readers := graph.targets_of.get(end)):
                node, name = readers[0]
                shape = shape_text(self._specs_of(join_path(prefix, node)).params.get(name))
                # Inside a group, no node shows the name of a shared parameter.
                shapes[end] = f"{port.name} {shape}".rstrip() if prefix else shape
            if not prefix:
                box = _pill("input", port.name, shapes.get(end, ""))
                self.boxes.append(box if port.role == "data" else replace(box, label="shared parameter"))
        runs = {run.start: run for run in repeated_runs(graph.nodes)} if self.fold else {}
        parent, last = prefix, 0
        for at, node in enumerate(graph.nodes):
            path, block = join_path(prefix, node.name), node.block
            # Blocks inside a group have its hue; only the outermost ones alternate.
            own_hue = hue if prefix else at % HUES
            if at >= last:
                parent = prefix
                if at in runs and (isinstance(self.fold, bool) or repeat_key(path) in self.fold):
                    last = runs[at].end
                    parent = self._repeat(graph, prefix, runs[at], own_hue)
            ends = [(port, Endpoint(node.name, port.name)) for port in block.inputs]
            roles = {"data", "param"} if path in self.ports else {"data"}
            inputs = tuple(port.name for port, end in ends if port.role in roles or end in connected)
            outputs = tuple(port.name for port in block.outputs)
            label, shape, share, problem = self._labels(path, block)
            box = Box(
                path, node.name, block.kind, node_width(node.name, block.kind, label_of(block)),
                max(NODE_H, 12 * (max(len(inputs), len(outputs)) + 1)), parent=parent, hue=own_hue, path=path,
                label=label, shape=shape, share=share, problem=problem, inputs=inputs, outputs=outputs,
                frozen=self.frozen.get(path, ""),
            )  # fmt: skip
            if block.graph is None:
                self.boxes.append(box)
                continue
            self.boxes.append(replace(box, is_group=True, title_w=_frame_width(node.name, block.kind)))
            sources = ((port.name, graph.source_of.get(end)) for port, end in ends)
            inner = {port: shapes.get(source, "") for port, source in sources if source is not None}
            own = self._specs_of(path).inputs
            inner |= {port: text for port, spec in own.items() if (text := shape_text(spec))}
            self.level(block.graph, path, inner, own_hue)
        for port in graph.outputs:
            source = graph.source_of.get(Endpoint(BOUNDARY, port.name))
            if not prefix:
                self.boxes.append(_pill("output", port.name, shapes.get(source, "") if source else ""))
            elif source is None:
                self.idle.append((prefix, port.name))
        for edge in graph.edges:
            tail, head = (
                join_path(prefix, end.node) if end.node != BOUNDARY else prefix or f"{kind}:{end.port}"
                for kind, end in (("input", edge.source), ("output", edge.target))
            )
            shape = shapes.get(edge.source, "")
            indices = (self.shapes.setdefault(shape, len(self.shapes)),) if shape else ()
            problem = self.problem_at.get((end_text(edge.source, prefix), end_text(edge.target, prefix)))
            self.flows.append(Flow(tail, head, edge.source.port, edge.target.port, (), indices, problem))

    def _specs_of(self, path: str) -> BlockSpecs:
        return (self.specs or {}).get(path, _NO_SPECS)

    # Label, shape, share and problem of a block.
    def _labels(self, path: str, block: Block) -> tuple[str, str, float | None, int | None]:
        specs = self._specs_of(path)
        label = "" if self.specs is None else label_of(block, specs)
        shape = shape_text(specs.outputs.get(block.outputs[0].name)) if len(block.outputs) == 1 else ""
        return label, shape, share_of(path, self.shares), self.problem_of.get(path)

    def _repeat(self, graph: LogicalGraph, prefix: str, run: RepeatedRun, hue: int) -> str:
        members = graph.nodes[run.start : run.end]
        paths = [join_path(prefix, node.name) for node in members]
        first, last = members[0], members[run.period - 1]
        name, kind, label = f"{first.name} … {last.name}", "repeat", ""
        if run.period == 1:
            name, kind, label = first.name, first.block.kind, self._labels(paths[0], first.block)[0]
        shape = self._labels(paths[-1], members[-1].block)[1]
        shares = [share for path in paths if (share := share_of(path, self.shares)) is not None]
        key, frozen = repeat_key(paths[0]), {self.frozen.get(path, "") for path in paths}
        self.boxes.append(
            Box(
                key, name, kind, node_width(name, times(kind, run.count), label and label_of(first.block)),
                NODE_H,
                _frame_width(f"{name} ×{run.count}", kind), prefix, is_group=True, hue=hue, label=label, shape=shape,
                repeat=run.count, share=min(1.0, sum(shares)) if shares else None,
                problem=next((self.problem_of[path] for path in paths if path in self.problem_of), None),
                blocks=tuple(paths),
                frozen="some" if len(frozen) > 1 else frozen.pop(),
            )
        )  # fmt: skip
        return key


@lru_cache(1 << 14)
def node_width(name: str, kind: str = "", label: str = "", narrowest: int = NARROWEST) -> int:
    """Return the width of a box in px. No shape changes it: `label` is that of a block without specs."""
    upper = text_width(one_line(kind), SMALL_SIZE) + (GAP + text_width(one_line(label), SMALL_SIZE) if label else 0)
    text = max(upper, text_width(one_line(name), NAME_SIZE, bold=True))
    # Steps of 8 px, so that a small change of a text rarely moves a box.
    return min(max(narrowest, 8 * ceil((text + LEFT + RIGHT) / 8)), WIDEST)


def _frame_width(name: str, kind: str) -> int:
    return round(max(title_width(name, kind) + 2 * PAD, NARROWEST))


def _pill(kind: str, name: str, shape: str) -> Box:
    inputs, outputs = ((), (name,)) if kind == "input" else ((name,), ())
    width = node_width(name, narrowest=PILL_W)
    return Box(f"{kind}:{name}", name, kind, width, PILL_H, hue=HUES - 1, shape=shape, inputs=inputs, outputs=outputs)


def repeat_key(path: str) -> str:
    """Return the key of the box of a repeated part from the path of its first block."""
    return f"repeat:{path}"  # no path of a block contains a colon


def repeat_keys(graph: LogicalGraph, prefix: str = "") -> Iterator[str]:
    """Yield the keys of the boxes that a picture can draw for repeated parts."""
    for run in repeated_runs(graph.nodes):
        yield repeat_key(join_path(prefix, graph.nodes[run.start].name))
    for node in graph.nodes:
        if node.block.graph is not None:
            yield from repeat_keys(node.block.graph, join_path(prefix, node.name))
