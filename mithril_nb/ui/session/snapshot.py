"""A session as one JSON-serializable dict with all data that a front end shows, from designs, blocks and plugins."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NotRequired, TypedDict, TypeVar

from mithril_nb.cost import Cost
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.paths import component, join_path, parameter_name
from mithril_nb.graph.records import Block, BlockSpecs, LogicalGraph, Note
from mithril_nb.graph.spec import Spec, TensorSpec
from mithril_nb.inspection.tour import MomentData
from mithril_nb.models.fields import fields_of
from mithril_nb.models.initializers import INITIALIZERS
from mithril_nb.models.op import OPS
from mithril_nb.models.registry import ELSEWHERE, KINDS
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.models.shape_inference.infer import Inference
from mithril_nb.ui.session.analysis import Analysis
from mithril_nb.ui.session.autosave import AutosaveData
from mithril_nb.ui.session.commands import ProblemData, RequestState
from mithril_nb.ui.session.cost_tables import CostTableData, Source
from mithril_nb.ui.session.design import source_of
from mithril_nb.ui.session.devices import DeviceChoice
from mithril_nb.ui.session.graphs.overlays import OverlayChoice
from mithril_nb.ui.session.graphs.values import FedSample
from mithril_nb.ui.session.own_blocks import own_kinds
from mithril_nb.ui.session.passes import ComparedTransforms
from mithril_nb.ui.session.stages import StageState, StatusFigures
from mithril_nb.ui.session.templates import TemplateData
from mithril_nb.ui.session.training import RunData
from mithril_nb.ui.session.what_if import FieldValue, FormField, SettingField, WhatIfState, form_field
from mithril_nb.viz.diagrams.logical import model_graph, repeat_key
from mithril_nb.viz.diagrams.nested import NestedGraph, port_text
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.text import outer_paths

Places = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class ViewState:
    """The user's changes of the view, which do not change the model."""

    selection: tuple[str, ...] = ()  # paths of the selected blocks
    # Keys of the open nodes: paths of groups, and `repeat:` with a path for a repeated part.
    expanded: frozenset[str] = frozenset()
    # Positions of the blocks that the user moved, by path, relative to the frame of their group.
    moved: Places = field(default_factory=dict)
    # Keys of the repeated parts that are drawn as one node with ×N. If an edit creates a repetition, it is not folded
    # until the user calls `tidy`: otherwise the new block would vanish.
    folded: frozenset[str] = frozenset()
    ports: frozenset[str] = frozenset()  # paths of the blocks whose parameters have ports

    def only(self, paths: Set[str]) -> ViewState:
        """Return the view restricted to the known blocks."""
        keys = paths | {repeat_key(path) for path in paths}
        return ViewState(
            tuple(path for path in self.selection if path in paths),
            self.expanded & keys,
            {path: position for path, position in self.moved.items() if path in paths},
            self.folded & keys,
            self.ports & paths,
        )

    def returned(self, was: ViewState, paths_before: Set[str]) -> ViewState:
        """Return the view after undo or redo."""
        keys = paths_before | {repeat_key(path) for path in paths_before}
        return replace(self, expanded=self.expanded | (was.expanded - keys), folded=self.folded | was.folded)

    def with_place(self, path: str, x: Any, y: Any) -> ViewState:
        """Return the view with a block at a position."""
        return self if x is None or y is None else replace(self, moved={**self.moved, path: place_of(x, y)})

    def renamed(self, old: str, new: str) -> ViewState:
        """Return the view after a block was renamed, which also changes the paths of all blocks inside it."""

        def path_now(path: str) -> str:
            return new + path.removeprefix(old) if path == old or path.startswith(f"{old}/") else path

        def key_now(key: str) -> str:
            path = key.removeprefix(repeat_key(""))
            return path_now(key) if path == key else repeat_key(path_now(path))

        return ViewState(
            tuple(map(path_now, self.selection)),
            frozenset(map(key_now, self.expanded)),
            {path_now(path): position for path, position in self.moved.items()},
            frozenset(map(key_now, self.folded)),
            frozenset(map(path_now, self.ports)),
        )


def place_of(x: Any, y: Any) -> tuple[float, float]:
    """Return a position on the canvas."""
    try:
        position = (float(x), float(y))
    except (TypeError, ValueError, OverflowError):
        position = (math.nan, math.nan)
    if not all(map(math.isfinite, position)):
        raise UnknownOptionError(
            f"({short_repr(x)}, {short_repr(y)}) is not a position.", (("needs", "two numbers"),), "x=40, y=120"
        )
    return position


def hues_of(graph: LogicalGraph) -> dict[str, int]:
    """Return the hue of each top-level block, by path."""
    return {component(node.name): index % HUES for index, node in enumerate(graph.nodes)}


def graph_of(analysis: Analysis, view: ViewState, shares: Mapping[str, float]) -> NestedGraph:
    """Return the graph of a design, which the front end lays out."""
    inferred = analysis.inference
    graph, frozen = analysis.design.graph, frozen_blocks(analysis.design.graph, inferred)
    options = {"fold": view.folded, "frozen": frozen, "ports": view.ports}
    return model_graph(graph, inferred.blocks, inferred.inputs, shares, analysis.problems, **options)


def frozen_blocks(graph: LogicalGraph, inference: Inference) -> dict[str, str]:
    """Return `"all"` or `"some"` by path of each block with parameters that training does not change."""
    is_trained = {array.name: array.is_trainable for array in inference.parameters}
    if all(is_trained.values()):
        return {}
    inside: dict[str, set[bool]] = {}
    for op in flat(graph).ops:
        names = {parameter_name(op.path, port): name for port, name in op.arrays.items()}
        for end, name in {**names, **{name: name for name in op.inner.values()}}.items():
            for path in outer_paths(end.rpartition(".")[0].replace(".", "/")) if name in is_trained else ():
                inside.setdefault(path, set()).add(is_trained[name])
    return {path: "some" if True in states else "all" for path, states in inside.items() if False in states}


def shares_of(cost: Cost, paths: Iterable[str]) -> dict[str, float]:
    """Return each block's share of the FLOPs, if known."""
    if not cost.total.flops:
        return {}
    shares = {path: cost.share_of(cost.subtree(path, cost.nothing))[0] for path in paths}
    return {path: share for path, share in shares.items() if share is not None}


class PortData(TypedDict):
    """A port with its shape."""

    port: str
    shape: str


class ParameterData(TypedDict):
    """A parameter or a state of a block."""

    name: str  # of the array in the model
    port: str
    shape: str
    count: int | None
    is_trainable: bool | None  # null for a state, which training updates in its own way
    initializer: str  # chosen by the user, or ""
    usual: str  # name of the initializer that is used
    shared: list[str]  # the other ports that read the same array


class BlockSummary(TypedDict):
    """A block of an explored program."""

    path: str
    name: str
    kind: str
    hue: int


class BlockDetails(BlockSummary):
    """The part of the inspector's data that differs between blocks of one kind."""

    values: dict[str, FieldValue]  # of the fields that differ from their defaults
    inputs: list[PortData]
    outputs: list[PortData]
    params: list[ParameterData]
    children: list[str]
    facts: list[tuple[str, str]]  # of plugins: label and text


class KindField(FormField):
    """A field of a kind of blocks."""

    default: FieldValue


class KindDetails(TypedDict):
    """The part of the inspector's data that is the same for all blocks of a kind."""

    doc: str
    formula: str
    family: str
    hue: int  # of the family
    fields: list[KindField]


class PaletteEntry(TypedDict):
    """A kind of blocks in the palette."""

    kind: str
    category: str  # the family, which is also its colour on the canvas
    hue: int
    is_common: bool
    summary: str
    formula: str
    words: str  # other names of the block, such as "dense fc"
    problem: NotRequired[str]  # why a file of *My blocks* cannot be used


class PackedGraph(TypedDict):
    """A graph in columns without those of default values; parents and ends are indices of boxes."""

    title: str
    is_model: bool
    roles: list[str]
    shapes: list[str]
    idle: list[tuple[str, str]]
    boxes: dict[str, list[Any]]
    flows: dict[str, list[Any]]
    rounds: NotRequired[dict[str, list[Any]]]  # data between the rounds of equal parts, which is not drawn


class ModelGraph(PackedGraph):
    """The graph of a workbench, with the keys of its open groups."""

    opened: list[str]
    moved: dict[str, tuple[float, float]]  # by path, relative to the frame of the group around the block


class GraphOfStage(PackedGraph):
    """The graph of a stage, with the keys of its open groups."""

    opened: list[str]


class Description(TypedDict):
    """The part of a snapshot that only an edit changes."""

    blocks: dict[str, BlockDetails]
    kinds: dict[str, KindDetails]
    palette: list[PaletteEntry]
    initializers: list[str]
    source: str


class CostsInfo(TypedDict):
    """The state of the costs that are computed on request."""

    sources: dict[Source, RequestState]
    what_if: WhatIfState


class ProgramSnapshot(TypedDict):
    """What workbench and explorer show of a program, except texts and graphs of stages."""

    revision: NotRequired[int]  # counts the snapshots of a widget
    version: int  # counts the designs
    name: str
    backend: str
    selection: list[str]
    notice: ProblemData | None
    problems: list[ProblemData]
    cost: CostTableData | None
    costs: CostsInfo
    device: DeviceChoice
    overlay: OverlayChoice
    stages: dict[str, StageState]
    stage_kinds: dict[str, tuple[str, str, str]]  # title, progress label and language
    passes: RequestState
    status: StatusFigures


class WorkbenchSnapshot(ProgramSnapshot, Description):
    """All data that a workbench shows."""

    program: str
    programs: list[str]
    program_note: str  # why another program is shown than the selected one
    loss: str  # the loss that training minimises, the losses available by name, the output it applies to, all outputs
    losses: list[str]
    loss_of: dict[str, str]  # by output, for a model that trains on several; "" if it does not train on the output
    output: str
    outputs: list[str]
    shapes: dict[str, list[int | str]]
    dtypes: dict[str, str]  # of the inputs
    graph: ModelGraph
    autosave: AutosaveData | None
    can_undo: bool
    can_redo: bool
    undo_label: str
    redo_label: str
    run: RunData
    values: FedSample
    training: list[SettingField]
    templates: list[TemplateData]


class ExplorerSnapshot(ProgramSnapshot):
    """All data that an explorer shows."""

    blocks: dict[str, BlockSummary]
    graph_stage: str
    graph_stages: list[str]
    transforms: ComparedTransforms | None
    tour: list[MomentData]


def description_of(analysis: Analysis, before: tuple[Analysis, Description] | None = None) -> Description:
    """Return the part of a snapshot that only an edit changes.

    The data of a block that did not change are those of `before`, so that comparing two snapshots takes no time.
    """
    graph = analysis.design.graph
    blocks = describe_blocks(graph, analysis.inference, hues_of(graph))
    if before is not None:
        last, nodes = before[1]["blocks"], dict(before[0].design.graph.walk())
        for path, node in graph.walk():
            # Only of the same block: attributes such as 1 and True are equal.
            if path in nodes and nodes[path].block is node.block and last[path] == blocks[path]:
                blocks[path] = last[path]
    return {
        "blocks": blocks,
        "kinds": {
            kind: _describe_kind(kind, KINDS.get(kind))
            for kind in dict.fromkeys(node.block.kind for _, node in graph.walk())
        },
        "palette": palette(),
        "initializers": [*INITIALIZERS],
        "source": source_of(analysis.design),
    }


# Frequent kinds of blocks, shown first.
_COMMON = (
    "Linear", "Relu", "Gelu", "Sigmoid", "Tanh", "Softmax", "Conv2d", "MaxPool2d", "Flatten", "BatchNorm2d",
    "LayerNorm", "Dropout", "Embedding", "MultiHeadAttention", "TransformerBlock", "MLP", "Add",
)  # fmt: skip
# Hues of the categories, which are the families of blocks on the canvas, in the order of the palette; others are grey.
_GREY = HUES - 1
_FAMILIES = {
    "My blocks": _GREY,
    "Layers": 0, "Activations": 1, "Norms": 2, "Pooling": 3, "Attention": 6, "Composites": _GREY, "Arithmetic": 4,
    "Shape": _GREY, "Reductions": 4, "Logic": 4, "Losses": 5, "Metrics": 5,
}  # fmt: skip
# Category of Mithril's other names for blocks. The palette lists each block once.
_OF_MITHRIL = "As in Mithril"


def palette() -> list[PaletteEntry]:
    """Return every kind of block with its family, summary and formula, common kinds first, and *My blocks*."""
    own = [
        PaletteEntry(
            kind=kind,
            category="My blocks",
            hue=_GREY,
            is_common=False,
            summary=f"The block saved in {kind}.",
            formula="",
            words="",
            problem=problem,
        )
        for kind, problem in own_kinds().items()
    ]
    return sorted([*_library(tuple(KINDS.items())), *own], key=_place)


@lru_cache(1)
def _library(kinds: tuple[tuple[str, type], ...]) -> list[PaletteEntry]:
    return [
        PaletteEntry(
            kind=kind,
            category=getattr(block_type, "category", ""),
            hue=_FAMILIES.get(getattr(block_type, "category", ""), _GREY),
            is_common=kind in _COMMON,
            summary=summary(block_type),
            formula=getattr(block_type, "formula", ""),
            words=" ".join(word for word, meant in ELSEWHERE.items() if meant == kind),
        )
        for kind, block_type in kinds
        if getattr(block_type, "category", "") not in ("", _OF_MITHRIL)
    ]


def _place(entry: PaletteEntry) -> tuple[int, int, str, str]:
    category, kind, order = entry["category"], entry["kind"], [*_FAMILIES]
    common = _COMMON.index(kind) if kind in _COMMON else len(_COMMON)
    return common, order.index(category) if category in order else len(order), category, kind


@lru_cache(256)
def _describe_kind(kind: str, constructor: type | None) -> KindDetails:
    if constructor is None:
        return {"doc": "A model composed of blocks.", "formula": "", "family": "Models", "hue": _GREY, "fields": []}
    families = (getattr(base, "category", "") for base in constructor.__mro__)
    # Mithril's other names belong to the family of the block they derive from; blocks made of blocks need no palette.
    family = next((name for name in families if name not in ("", _OF_MITHRIL)), "Composites")
    return {
        "doc": summary(constructor),
        "formula": getattr(constructor, "formula", ""),
        "family": family,
        "hue": _FAMILIES.get(family, _GREY),
        "fields": [{**form_field(field), "default": _listed(field.default)} for field in fields_of(constructor)],
    }


def describe_blocks(graph: LogicalGraph, inference: Inference, hues: Mapping[str, int]) -> dict[str, BlockDetails]:
    """Return the part of the inspector's data that differs between blocks of one kind, by path of the block."""
    arrays = _Arrays(graph, inference)
    return {
        path: _describe(path, node.name, node.block, inference, hues.get(path.split("/")[0], 0), arrays)
        for path, node in graph.walk()
    }


class _Arrays:
    """The parameters and states of a model."""

    def __init__(self, graph: LogicalGraph, inference: Inference):
        self.parameters, self.notes = {array.name: array for array in inference.parameters}, flat(graph).notes
        self.names = {(path, port): name for path, port, name in _named_ports(graph)}
        self.readers: dict[str, list[str]] = {}
        for (path, port), name in self.names.items():
            self.readers.setdefault(name, []).append(port_text(path, port))

    def describe(self, path: str, port: str, spec: TensorSpec | None) -> ParameterData:
        """Return the data of the array at a port of a block, which has one `spec` in each round of a repetition."""
        name = self.names[path, port]
        array, note = self.parameters.get(name), self.notes.get(name, Note())
        spec = array.spec if array and array.stacked else spec
        return {
            "name": name,
            "port": port,
            "shape": str(spec.shape) if spec else "unknown",
            "count": spec.size if spec else None,
            "is_trainable": array.is_trainable if array else None,
            "initializer": note.initializer or "",
            "usual": array.initializer.name if array else "",
            "shared": [end for end in self.readers.get(name, []) if end != port_text(path, port)],
        }


def _named_ports(graph: LogicalGraph) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the port and the name in the model of each array, also inside of blocks that run others."""
    for op in flat(graph).ops:
        yield from ((op.path, port, name) for port, name in op.arrays.items())
        for path, port, name in _named_ports(op.block.graph) if op.block.graph else ():
            yield f"{op.path}/{path}", port, op.inner[name]


def summary(constructor: type) -> str:
    """Return the first line of a block's docstring."""
    return (inspect.getdoc(constructor) or "").partition("\n")[0]


def _describe(path: str, name: str, block: Block, inference: Inference, hue: int, arrays: _Arrays) -> BlockDetails:
    specs = inference.blocks.get(path, BlockSpecs())
    constructor = KINDS.get(block.kind)
    return {
        "path": path,
        "name": name,
        "kind": block.kind,
        "hue": hue,
        "values": {
            field.name: _listed(value)
            for field in (fields_of(constructor) if constructor else ())
            if (value := block.options.get(field.name, field.default)) != field.default
        },
        "inputs": [{"port": port.name, "shape": _text(specs.inputs.get(port.name))}
                   for port in block.inputs if port.role == "data"],
        "outputs": [{"port": port.name, "shape": _text(specs.outputs.get(port.name))} for port in block.outputs],
        "params": [arrays.describe(path, port, spec) for port, spec in specs.params.items()],
        "facts": facts_of(path, block, specs),
        "children": [join_path(path, child.name) for child in block.graph.nodes] if block.graph else [],
    }  # fmt: skip


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(spec: Spec | None) -> str:
    if spec is None or (isinstance(spec, TensorSpec) and spec.shape == ("...",)):
        return "unknown"
    return str(spec).replace("'...'", "…").replace("'", "")


assert OPS, "importing the block library registers its ops"


# Returns the text of a fact about a block, given its path and specs; `None` hides the fact for this block.
Fact = Callable[[str, Block, BlockSpecs], str | None]
Function = TypeVar("Function", bound=Fact)
_FACTS: dict[str, Fact] = {}


def inspector_fact(name: str) -> Callable[[Function], Function]:
    """Register a function that returns a fact about a block, which the inspector of the workbench shows.

    The function receives the path of the block, the block, and its specs. It returns a text; for `None`, the inspector
    does not show the fact.

    Args:
        name: Label of the fact. A second function with the same label replaces the first.

    Examples:
        >>> @inspector_fact("inner blocks")
        ... def inner_blocks(path, block, specs):
        ...     return str(len(block.graph.nodes)) if block.graph else None
        >>> _ = _FACTS.pop("inner blocks")
    """

    def register(function: Function) -> Function:
        _FACTS[name] = function
        return function

    return register


def facts_of(path: str, block: Block, specs: BlockSpecs) -> list[tuple[str, str]]:
    """Return the registered facts of a block: pairs of label and text."""
    facts: list[tuple[str, str]] = []
    for name, fact in _FACTS.items():
        try:
            text = fact(path, block, specs)
        except Exception as error:  # an error of a plugin must not end the session
            text = f"failed: {type(error).__name__}: {error}"
        if text is not None:
            facts.append((name, str(text)))
    return facts
