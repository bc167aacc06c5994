"""The rules of ops: their ports, shapes, dtypes and initializers, and the results of inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from mithril_nb.errors import Diagnostic, ShapeError, UnknownOpError
from mithril_nb.graph.records import Block, BlockSpecs, LogicalGraph
from mithril_nb.graph.spec import Dim, Spec, TensorSpec
from mithril_nb.models.fields import Declared
from mithril_nb.models.initializers import Initializer
from mithril_nb.models.registry import KINDS

Shapes = Mapping[str, tuple[Dim, ...]]


@dataclass(frozen=True)
class Inferred:
    """Result of an op's shape rule: shapes of outputs, parameters and states, by port. A dim may be a name.

    An output may be a spec, with shape and dtype. If it is only a shape, its dtype is promoted from the dtypes of the
    inputs and parameters. Parameters that a block with these attributes does not have are ignored.
    """

    outputs: Mapping[str, tuple[Dim, ...] | Spec]
    params: Shapes = field(default_factory=dict[str, tuple[Dim, ...]])
    states: Shapes = field(default_factory=dict[str, tuple[Dim, ...]])


@dataclass(frozen=True)
class Parameter:
    """An array that belongs to a model: a parameter, or a state that one training step passes to the next.

    Attributes:
        name: Its name in the dict of parameters: `"linear_0.weight"`.
        path: Path of the block that owns the array.
        port: Port of that block.
        spec: Shape and dtype. A dim is a name while it is unknown.
        initializer: Its initializer.
        is_trainable: True if training changes the array.
        stacked: Number of leading axes that stack separately initialised arrays: 1 inside a `Repeat`, 2 inside a
            `Repeat` in a `Repeat`, 0 elsewhere.
    """

    name: str
    path: str
    port: str
    spec: TensorSpec
    initializer: Initializer
    is_trainable: bool = True
    stacked: int = 0


@dataclass(frozen=True)
class Inference:
    """Result of shape inference.

    Attributes:
        inputs: Spec of each input of the graph.
        outputs: Spec of each output; `None` for an output that a mismatch leaves unknown.
        blocks: By path of a block, the specs at its ports.
        parameters: All parameters, in the order of the blocks.
        problems: The mismatches; empty if there are none.
        states: All arrays that one training step passes to the next.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, Spec | None]
    blocks: Mapping[str, BlockSpecs]
    parameters: tuple[Parameter, ...]
    problems: tuple[Diagnostic, ...]
    states: tuple[Parameter, ...] = ()

    @property
    def is_concrete(self) -> bool:
        """True if every dim of every parameter and state is a number."""
        return all(parameter.spec.is_concrete for parameter in (*self.parameters, *self.states))

    def raise_problems(self) -> None:
        """Raise one error that contains all problems. Does nothing without problems."""
        if self.problems:
            first, *more = self.problems
            raise ShapeError(first, more=tuple(more))


@dataclass(frozen=True)
class InferredBody:
    """Result of the shape rule of a block that runs an inner graph, such as `Scan`.

    Attributes:
        outputs: Spec of each output.
        inner: Result of shape inference for one run of the inner graph.
        stacked: Number of copies of each inner parameter, stacked along a new first axis; `None` if all runs share
            the parameters.
    """

    outputs: Mapping[str, Spec]
    inner: Inference
    stacked: int | None = None


Options = Mapping[str, Any]
UNKNOWN = "<unknown>"
"""Value in `options` of an attribute that is connected and known only at run time."""
Specs = Mapping[str, TensorSpec]
Infer = Callable[[LogicalGraph, Mapping[str, TensorSpec]], Inference]
"""Type of `infer`: a block that runs others, such as `Scan`, calls it for its inner graph."""


class PortNames(NamedTuple):
    """The names of the ports of a block: its data inputs, parameters and outputs."""

    inputs: tuple[str, ...] = ("input",)
    params: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("output",)


class OpRules(Declared):
    """The declarations of one kind of op, as class attributes and class methods. The first ones are the commonest.

    Attributes:
        op: Name of the op: `"relu"`.
        category: The section of the palette that shows the block: `"Activations"`.
        formula: The computation, for display: `"y = max(x, 0)"`.
        kernel: The JAX function that computes the output from the arrays at `input_ports`, in this order, and the
            attributes: `jax.nn.relu`. Where `jax` comes from `mithril_nb.models.lazy_jax`, a class can be imported
            without JAX. A block with several outputs, states or random numbers has its kernel in
            `mithril_nb/backends/jax/kernels`.
        input_ports: Names of the data inputs: `("left", "right")`.
        output_ports: Names of the outputs: `("low", "high")`.
        input_dtypes: Required dtype by data input: `"int32"` for any integers, `"bool"`, or `"any"`. The key `"*"` is
            for all inputs that are not listed, and `"option"` for attributes: `{"indices": "int32", "*": "any"}`. By
            default, an input has the dtype of the model.
        option_ports: Names of the attributes that can also be connected: `("slope",)`.
        initializers: The initializer of each parameter and state, by port: `{"bias": Initializer("zeros")}`.
        is_activation: True for a nonlinearity, such as `Relu`. A `Linear` or convolution before it uses He's
            initializers.
        keeps_scale: True if the output has about the scale of the input, as that of `Dropout`. If an activation reads
            the output, a `Linear` before the block uses He's initializers.
        init_depends_on_reader: True if the block, such as `Linear`, uses He's initializers only if an activation reads
            its output, and LeCun's otherwise.
        state_ports: Names of the states, arrays that one training step passes to the next: `("running_mean",)`.
        takes_values: True if an input may be a static value, as that of `Reshape`. The shape rule then receives a
            `StaticSpec` for such an input, and also the specs of connected attributes.
        computes_in_order: True if the block computes its outputs in the order of its ports, as `SplitHeads`. Emitted
            source then names the outputs after the ports.
    """

    op: ClassVar[str]
    category: ClassVar[str]
    formula: ClassVar[str]
    kernel: ClassVar[Callable[..., Any] | None] = None
    input_ports: ClassVar[tuple[str, ...]] = ("input",)
    output_ports: ClassVar[tuple[str, ...]] = ("output",)
    input_dtypes: ClassVar[Mapping[str, str]] = {}
    option_ports: ClassVar[tuple[str, ...]] = ()
    initializers: ClassVar[Mapping[str, Initializer]] = {}
    is_activation: ClassVar[bool] = False
    keeps_scale: ClassVar[bool] = False
    init_depends_on_reader: ClassVar[bool] = False
    state_ports: ClassVar[tuple[str, ...]] = ()
    takes_values: ClassVar[bool] = False
    computes_in_order: ClassVar[bool] = False

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred | Spec | tuple[Dim, ...]:
        """Return the shape or the spec of the output, or an `Inferred` for a block with parameters or more outputs.

        Args:
            options: The attributes. A connected attribute has the value of its connection, or `UNKNOWN` if the value
                is known only at run time.
            inputs: Spec of each data input. A shape that starts with `"..."` has unknown leading axes.

        Raises:
            MismatchError: The inputs do not fit.

        Examples:
            The rule of a block that returns the last item of each row:

            >>> class Last(OpRules):
            ...     @classmethod
            ...     def infer(cls, options, inputs):
            ...         return inputs["input"].shape[:-1]
            >>> Last.infer({}, {"input": TensorSpec(("batch", 3))})
            ('batch',)
        """
        raise UnknownOpError(
            f"{cls.__name__} has no shape rule.",
            (("op", repr(cls.op)),),
            f"define {cls.__name__}.infer(options, inputs).",
        )

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the shapes that the inputs must have, given the known shapes of the outputs.

        `{"input": outputs["output"].shape}` is the rule of a block that keeps the shape. The result has no inputs for
        which the outputs determine no shape. The blocks that read an output also determine its shape.

        Args:
            options: As in `infer`.
            inputs: The specs of the data inputs, as far as they are known.
            outputs: The specs of the outputs, as far as they are known.

        Raises:
            MismatchError: No input shapes give these output shapes.
        """
        return {}

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the ports of a block with these attributes, if they differ from `input_ports` and the like.

        `PortNames(params=("weight",))` are those of a `Linear` without a bias.
        """
        params = tuple(port for port in cls.initializers if port not in cls.state_ports)
        return PortNames(cls.input_ports, params, cls.output_ports)

    @classmethod
    def input_ranges(cls, options: Options) -> Mapping[str, tuple[int, int]]:
        """Return the minimum and maximum integer of each data input with bounds: `{"input": (0, 999)}`."""
        return {}

    @classmethod
    def required_dtype(cls, port: str, dtype: str) -> str:
        """Return the dtype of `input_dtypes` for a port, in a model with the dtype `dtype`."""
        others = "option" if port in cls.option_ports and "option" in cls.input_dtypes else "*"
        return cls.input_dtypes.get(port, cls.input_dtypes.get(others, dtype))


class BodyRules(OpRules):
    """The declarations of a block that runs the blocks of an inner graph, such as a loop."""

    @classmethod
    def fed_back(cls, block: Block) -> Mapping[str, str]:
        """Return a dict from each carried output of the body to the input that receives it in the next step."""
        return {}

    @classmethod
    def infer_body(cls, block: Block, specs: Specs, infer: Infer) -> InferredBody:
        """Return the specs of the outputs. `infer` is the function that infers the inner graph of the block.

        Raises:
            MismatchError: The inputs do not fit.
        """
        raise NotImplementedError


OPS: dict[str, type[OpRules]] = {}
"""The class of each op, by name of the op."""


def rules_named(kind: str) -> type[OpRules] | None:
    """Return the rules of a kind of block; `None` if the kind is unknown, or its blocks are not ops."""
    rules = KINDS.get(kind)
    return rules if rules is not None and issubclass(rules, OpRules) else None
