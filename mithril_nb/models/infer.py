"""Shape inference: what flows along every connection of a graph, and what does not fit, all mismatches at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mithril_nb.errors import Diagnostic, MithrilError, ShapeError, UnconnectedPortError, UnknownOpError
from mithril_nb.graph.order import run_order
from mithril_nb.graph.paths import join_path, name_of, parameter_name
from mithril_nb.graph.records import BOUNDARY, BlockSpecs, Endpoint, LogicalGraph, Node
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
            kinds: dict[str, type[MithrilError]] = {"UnconnectedPortError": UnconnectedPortError}
            raise kinds.get(first.code, ShapeError)(first, more=tuple(more))


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
    params = {port.name: "" for port in graph.inputs if port.role == "param"}
    outputs = work.graph(graph, "", given, params)
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


@dataclass
class _Work:
    """One inference under way."""

    dtype: str
    blocks: dict[str, BlockSpecs] = field(default_factory=dict)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)

    def graph(
        self,
        graph: LogicalGraph,
        prefix: str,
        given: Mapping[str, TensorSpec | None],
        outer_params: Mapping[str, str],
    ) -> dict[str, TensorSpec | None]:
        """Infer one level. `outer_params` maps its param inputs to their name, or to `""` at the top."""
        known: dict[Endpoint, TensorSpec | None] = {Endpoint(BOUNDARY, name): spec for name, spec in given.items()}
        for node in run_order(graph):
            for name, spec in self.node(graph, node, prefix, known, outer_params).items():
                known[Endpoint(node.name, name)] = spec
        return {edge.target.port: known.get(edge.source) for edge in graph.edges if edge.target.node == BOUNDARY}

    def node(
        self,
        graph: LogicalGraph,
        node: Node,
        prefix: str,
        known: Mapping[Endpoint, TensorSpec | None],
        outer_params: Mapping[str, str],
    ) -> Mapping[str, TensorSpec | None]:
        path, block = join_path(prefix, node.name), node.block
        inputs: dict[str, TensorSpec | None] = {}
        names: dict[str, str] = {}
        for port in block.inputs:
            source = graph.source_of.get(Endpoint(node.name, port.name))
            if port.role == "data":
                inputs[port.name] = known.get(source) if source else TensorSpec(ANYTHING, self.dtype)
            elif source is None:
                names[port.name] = parameter_name(path, port.name)
            elif source.node == BOUNDARY and source.port in outer_params:
                names[port.name] = outer_params[source.port] or parameter_name("", source.port)
        if block.graph is not None:
            outputs = self.graph(block.graph, path, inputs, names)
            self.blocks[path] = BlockSpecs(inputs, {}, outputs)
            return outputs
        self.blocks[path] = self.op(graph, node, path, inputs, names)
        return self.blocks[path].outputs

    def op(
        self,
        graph: LogicalGraph,
        node: Node,
        path: str,
        inputs: Mapping[str, TensorSpec | None],
        names: Mapping[str, str],
    ) -> BlockSpecs:
        block = node.block
        nothing = BlockSpecs(inputs, dict.fromkeys(names), {port.name: None for port in block.outputs})
        if block.op not in OPS:
            raise UnknownOpError(
                f"block {path!r} is made of an op {block.op!r} that does not exist.",
                (("known", ", ".join(sorted(OPS))),),
                "one of these.",
                block=path,
            )
        known = {port: spec for port, spec in inputs.items() if spec is not None}
        if len(known) < len(inputs):
            return nothing  # a mismatch before it has been noted already
        rule = OPS[block.op]
        try:
            found = rule.infer(block.options, known)
        except MismatchError as mismatch:
            self.problems.append(_mismatch(graph, node, path, known, mismatch))
            return nothing
        dtype = self.dtype if rule.input_dtypes or not known else next(iter(known.values())).dtype
        specs = {port: TensorSpec(shape, self.dtype) for port, shape in found.params.items()}
        for port, name in names.items():
            self.parameter(Parameter(name, path, port, specs[port], rule.initializers[port]))
        return BlockSpecs(inputs, specs, {port: TensorSpec(shape, dtype) for port, shape in found.outputs.items()})

    def parameter(self, parameter: Parameter) -> None:
        """Note a parameter; one that several blocks share must have one shape."""
        first = self.parameters.setdefault(parameter.name, parameter)
        if first.spec.is_concrete and parameter.spec.is_concrete and first.spec != parameter.spec:
            self.problems.append(
                Diagnostic(
                    f"the blocks {first.path!r} and {parameter.path!r} share {parameter.name!r} in two shapes.",
                    ((f"{first.path}.{first.port}", str(first.spec)),
                     (f"{parameter.path}.{parameter.port}", str(parameter.spec))),
                    "give both blocks the same sizes, or the parameters two names.",
                    block=parameter.path,
                    port=parameter.port,
                    code="ShapeError",
                )
            )  # fmt: skip


def _mismatch(
    graph: LogicalGraph, node: Node, path: str, inputs: Mapping[str, TensorSpec], found: MismatchError
) -> Diagnostic:
    """Say which two ports do not fit, with both shapes."""
    source = graph.source_of[Endpoint(node.name, found.port)]
    prefix = path[: len(path) - len(join_path("", node.name))]
    come_from = f"{prefix}{source}" if source.node else f"the input '{prefix}{source.port}'"
    target = f"{path}.{found.port}"
    got = source.port if source.port != found.port else f"{name_of(source.node) or 'given'}"
    facts = (
        (got, str(inputs[found.port])),
        (found.port, found.need + (f"      {found.detail}" if found.detail else "")),
    )
    return Diagnostic(
        f"cannot connect {come_from!r} to {target!r}." if source.node else f"{come_from} does not fit {target!r}.",
        facts,
        found.advice,
        block=path,
        port=found.port,
        edge=(f"{prefix}{source}", target),
        code="ShapeError",
    )
