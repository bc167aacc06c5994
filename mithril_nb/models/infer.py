"""Shape inference: what flows along every connection of a graph, and what does not fit, all mismatches at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mithril_nb.errors import Diagnostic, ShapeError, UnknownOpError
from mithril_nb.graph.order import run_order
from mithril_nb.graph.paths import component, join_path, parameter_name
from mithril_nb.graph.records import BOUNDARY, Block, BlockSpecs, Endpoint, LogicalGraph, Node
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.dims import MismatchError
from mithril_nb.models.op import OPS, Initializer

ANYTHING: tuple[Dim, ...] = (LEADING,)
"""Shape of what nothing is known of."""


@dataclass(frozen=True)
class Parameter:
    """A trainable array of a model.

    Attributes:
        name: Its name among the parameters: `"linear_0.weight"`.
        path: Path of the block that it belongs to.
        port: Port of that block.
        spec: Shape and dtype; some dims are names while the input's shape is not known.
        initializer: How it starts.
    """

    name: str
    path: str
    port: str
    spec: TensorSpec
    initializer: Initializer


@dataclass(frozen=True)
class Inference:
    """What shape inference found.

    Attributes:
        inputs: Spec of each input of the graph.
        outputs: Spec of each output; `None` where a mismatch stands in the way.
        blocks: Specs at each block, by path.
        parameters: All trainable arrays, in the order of the blocks.
        problems: What does not fit; empty if all is well.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec | None]
    blocks: Mapping[str, BlockSpecs]
    parameters: tuple[Parameter, ...]
    problems: tuple[Diagnostic, ...]

    @property
    def is_concrete(self) -> bool:
        """Whether the shape of every parameter is known in numbers."""
        return all(parameter.spec.is_concrete for parameter in self.parameters)

    def raise_problems(self) -> None:
        """Raise all problems as one error, if there are any.

        Raises:
            ShapeError: Something does not fit.
        """
        if self.problems:
            first, *more = self.problems
            raise ShapeError(first, more=tuple(more))


def infer(graph: LogicalGraph, inputs: Mapping[str, TensorSpec], dtype: str = "float32") -> Inference:
    """Infer the specs of everything in a graph from those of its inputs.

    Args:
        graph: The graph.
        inputs: Specs of its inputs; of an input that is left out nothing is known.
        dtype: Dtype of parameters, and of inputs whose block asks for no other.

    Raises:
        CycleError: The graph has a cycle.
        UnknownOpError: A block of an op that does not exist.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> found = infer(Linear(10).graph, {"input": TensorSpec(("batch", 784))})
        >>> found.outputs["output"], found.parameters[0].spec
        (('batch', 10) float32, (784, 10) float32)
    """
    given = {
        port.name: inputs.get(port.name) or TensorSpec(ANYTHING, input_dtype(graph, port.name, dtype))
        for port in graph.inputs
        if port.role == "data"
    }
    work = _Work(dtype)
    level = _Level(
        graph,
        "",
        {port.name: parameter_name("", port.name) for port in graph.inputs if port.role == "param"},
        {name: str(Endpoint(BOUNDARY, name)) for name in given},
    )
    outputs = work.graph(level, given)
    return Inference(given, outputs, work.blocks, tuple(work.parameters.values()), tuple(work.problems))


def input_dtype(graph: LogicalGraph, port: str, dtype: str) -> str:
    """Return the dtype that the blocks which read a graph input ask for; `dtype` if they do not care."""
    for target in graph.targets_of.get(Endpoint(BOUNDARY, port), ()):
        if target.node == BOUNDARY:
            continue
        block = graph.by_name[target.node].block
        if block.graph is not None:
            found = input_dtype(block.graph, target.port, dtype)
        else:
            found = OPS[block.op].input_dtypes.get(target.port, dtype) if block.op in OPS else dtype
        if found != dtype:
            return found
    return dtype


@dataclass(frozen=True)
class _Level:
    """One graph of a model, as inference comes to it.

    Attributes:
        graph: The graph.
        prefix: Path of the block that it is inside of.
        params: Name of the parameter at each of its param inputs that is one.
        origins: Where the data of its other inputs comes from: `"relu_0.output"`, or the name of a model input.
    """

    graph: LogicalGraph
    prefix: str
    params: Mapping[str, str]
    origins: Mapping[str, str]

    def origin(self, source: Endpoint) -> str:
        """Where data comes from, looking through the boundary; a model input has no dot in it."""
        if source.node == BOUNDARY:
            return self.origins[source.port]
        return f"{join_path(self.prefix, source.node)}.{component(source.port)}"


@dataclass
class _Work:
    """One inference under way."""

    dtype: str
    blocks: dict[str, BlockSpecs] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)

    def graph(self, level: _Level, given: Mapping[str, TensorSpec | None]) -> dict[str, TensorSpec | None]:
        """Infer one level from the specs of what comes in over its boundary."""
        known: dict[Endpoint, TensorSpec | None] = {Endpoint(BOUNDARY, name): spec for name, spec in given.items()}
        for node in run_order(level.graph):
            for name, spec in self.node(level, node, known).items():
                known[Endpoint(node.name, name)] = spec
        return {edge.target.port: known.get(edge.source) for edge in level.graph.edges if edge.target.node == BOUNDARY}

    def node(
        self, level: _Level, node: Node, known: Mapping[Endpoint, TensorSpec | None]
    ) -> Mapping[str, TensorSpec | None]:
        path, block = join_path(level.prefix, node.name), node.block
        fed: dict[str, TensorSpec | None] = {}
        params: dict[str, str] = {}
        origins: dict[str, str] = {}
        for port in block.inputs:
            source = level.graph.source_of.get(Endpoint(node.name, port.name))
            if source is None:
                params[port.name] = parameter_name(path, port.name)
            elif source.node == BOUNDARY and source.port in level.params:
                params[port.name] = level.params[source.port]
            else:
                fed[port.name], origins[port.name] = known.get(source), level.origin(source)
        data = {port.name: fed[port.name] for port in block.inputs if port.role == "data"}
        if block.graph is not None:
            outputs = self.graph(_Level(block.graph, path, params, origins), fed)
            self.blocks[path] = BlockSpecs(data, {}, outputs)
        else:
            self.blocks[path] = self.op(block, path, fed, params, origins)
        return self.blocks[path].outputs

    def op(
        self,
        block: Block,
        path: str,
        fed: Mapping[str, TensorSpec | None],
        params: Mapping[str, str],
        origins: Mapping[str, str],
    ) -> BlockSpecs:
        if block.op not in OPS:
            raise UnknownOpError(
                f"block {path!r} is made of an op {block.op!r} that does not exist.",
                (("known", ", ".join(sorted(OPS))),),
                "one of these.",
                block=path,
            )
        rule = OPS[block.op]
        data = {port.name: fed[port.name] for port in block.inputs if port.role == "data"}
        known = {port: spec for port, spec in data.items() if spec is not None}
        nothing = BlockSpecs(data, dict.fromkeys(params), {port.name: None for port in block.outputs})
        if len(known) < len(data):
            return nothing  # a mismatch before it has been noted already
        try:
            for port, spec in known.items():
                _check_dtype(port, spec, rule.input_dtypes.get(port, self.dtype))
            found = rule.infer(block.options, known)
            for port in fed.keys() - data.keys():
                _check_fed_param(port, fed[port], found.params[port])
        except MismatchError as mismatch:
            spec = fed[mismatch.port]
            self.problems.append(_mismatch(path, spec, origins[mismatch.port], mismatch))
            return nothing
        dtype = self.dtype if rule.input_dtypes or not known else next(iter(known.values())).dtype
        specs = {port: TensorSpec(shape, self.dtype) for port, shape in found.params.items()}
        for port, name in params.items():
            self.parameter(Parameter(name, path, port, specs[port], rule.initializers[port]))
        return BlockSpecs(data, specs, {port: TensorSpec(shape, dtype) for port, shape in found.outputs.items()})

    def parameter(self, parameter: Parameter) -> None:
        """Note a parameter; one that several blocks share must have one shape."""
        first = self.parameters.setdefault(parameter.name, parameter)
        if not first.spec.is_concrete and parameter.spec.is_concrete:
            self.parameters[parameter.name] = replace(first, spec=parameter.spec)
        elif not _agree(first.spec.shape, parameter.spec.shape):
            self.problems.append(
                Diagnostic(
                    f"the blocks {first.path!r} and {parameter.path!r} share {parameter.name!r} in two shapes.",
                    (
                        (f"{first.path}.{first.port}", str(first.spec)),
                        (f"{parameter.path}.{parameter.port}", str(parameter.spec)),
                    ),
                    "give both blocks the same sizes, or the parameters two names.",
                    block=parameter.path,
                    port=parameter.port,
                    code="ShapeError",
                )
            )


def _agree(one: tuple[Dim, ...], other: tuple[Dim, ...]) -> bool:
    """Whether two shapes may be the same, as far as they are known."""
    if LEADING in (*one[:1], *other[:1]):
        return True
    return len(one) == len(other) and all(
        a == b or isinstance(a, str) or isinstance(b, str) for a, b in zip(one, other, strict=True)
    )


def _check_dtype(port: str, spec: TensorSpec, wanted: str) -> None:
    whole = "int" in wanted
    if ("int" in spec.dtype) != whole or "complex" in spec.dtype:
        raise MismatchError(
            port,
            f"{'whole' if whole else 'floating'} numbers ({wanted})",
            f'array.astype("{wanted}"), or an input of its own for this block.',
            f"dtype {spec.dtype}",
        )


def _check_fed_param(port: str, spec: TensorSpec | None, needed: tuple[Dim, ...]) -> None:
    if spec is not None and not _agree(spec.shape, needed):
        raise MismatchError(port, str(needed), "give it this shape, or leave the port open for a parameter.")


def _mismatch(path: str, spec: TensorSpec | None, source: str, found: MismatchError) -> Diagnostic:
    """Say which two ports do not fit, with both shapes."""
    node, _, port = source.rpartition(".")
    target = f"{path}.{component(found.port)}"
    given = port if port != found.port else node.rpartition("/")[2] or "given"
    return Diagnostic(
        f"cannot connect {source!r} to {target!r}." if node else f"the input {port!r} does not fit {target!r}.",
        ((given, str(spec)), (found.port, found.need + (f"      {found.detail}" if found.detail else ""))),
        found.advice,
        block=path,
        port=found.port,
        edge=(source, target),
        code="ShapeError",
    )
