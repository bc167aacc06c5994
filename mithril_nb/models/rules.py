"""The rules of ops: their ports, shapes, dtypes and initializers, and the results of inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mithril_nb.errors import Diagnostic, ShapeError, UnknownOpError
from mithril_nb.graph.records import Block, BlockSpecs, LogicalGraph, Value
from mithril_nb.graph.spec import Dim, Spec, TensorSpec
from mithril_nb.models.initializers import Initializer
from mithril_nb.models.registry import KINDS

Shapes = Mapping[str, tuple[Dim, ...]]


@dataclass(frozen=True)
class Inferred:
    """Result of an op's shape rule: shapes of outputs, parameters and states, by port. A dim may be a name.

    An output may be a spec, with shape and dtype. If it is only a shape, its dtype is promoted from the dtypes of the
    inputs and parameters.
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
        """Raise one error that contains all problems. Does nothing without problems.

        Raises:
            ShapeError: There is at least one problem.
        """
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


Options = Mapping[str, Value]
UNKNOWN = "<unknown>"
"""Value in `options` of an attribute that is connected and known only at run time."""
Specs = Mapping[str, TensorSpec]
Infer = Callable[[LogicalGraph, Mapping[str, TensorSpec]], Inference]
"""Type of `infer`: a block that runs others, such as `Scan`, calls it for its inner graph."""


class OpRules:
    """The declarations and rules of one kind of op, as class attributes and class methods.

    Attributes:
        op: Name of the op and of its kernel.
        input_ports: Names of the data inputs.
        option_ports: Names of the attributes that can also be connected.
        state_ports: Names of the states: arrays that one training step passes to the next.
        output_ports: Names of the outputs.
        category: The section of the palette that shows the block.
        formula: The computation, for display.
        initializers: The initializer of each parameter and state, by port.
        input_dtypes: Required dtype by data input: `"int32"` for any integers, `"bool"`, or `"any"`. The key `"*"` is
            for all inputs that are not listed. By default, an input has the dtype of the model.
        takes_values: True if an input may be a static value, such as a shape. The shape rule then receives a
            `StaticSpec` for such an input, and also the specs of connected attributes.
        is_activation: True for a nonlinearity. A `Linear` or convolution before it uses He's initializers.
        keeps_scale: True if the output has about the scale of the input, as that of `Dropout`. If an activation reads
            the output, a `Linear` before the block uses He's initializers.
        init_depends_on_reader: True if the block uses He's initializers only if an activation reads its output, and
            LeCun's otherwise.
        runs_others: True if the block runs the blocks of an inner graph, such as a loop.
        computes_in_order: True if the block computes its outputs in the order of its ports. Emitted source then names
            the outputs after the ports.
    """

    op: ClassVar[str]
    input_ports: ClassVar[tuple[str, ...]] = ("input",)
    option_ports: ClassVar[tuple[str, ...]] = ()
    state_ports: ClassVar[tuple[str, ...]] = ()
    output_ports: ClassVar[tuple[str, ...]] = ("output",)
    category: ClassVar[str]
    formula: ClassVar[str]
    initializers: ClassVar[Mapping[str, Initializer]] = {}
    input_dtypes: ClassVar[Mapping[str, str]] = {}
    takes_values: ClassVar[bool] = False
    is_activation: ClassVar[bool] = False
    keeps_scale: ClassVar[bool] = False
    init_depends_on_reader: ClassVar[bool] = False
    runs_others: ClassVar[bool] = False
    computes_in_order: ClassVar[bool] = False

    @classmethod
    def data_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the data inputs of a block with these attributes."""
        return cls.input_ports

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the parameters of a block with these attributes."""
        return tuple(port for port in cls.initializers if port not in cls.state_ports)

    @classmethod
    def result_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the outputs of a block with these attributes."""
        return cls.output_ports

    @classmethod
    def wanted_dtype(cls, port: str, dtype: str) -> str:
        """Return the dtype that the data input `port` requires, or `"any"`, in a model with the dtype `dtype`."""
        return cls.input_dtypes.get(port, cls.input_dtypes.get("*", dtype))

    @classmethod
    def input_ranges(cls, options: Options) -> Mapping[str, tuple[int, int]]:
        """Return the minimum and maximum integer of each data input with bounds, by input."""
        return {}

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shapes of parameters, states and outputs.

        Args:
            options: The attributes. A connected attribute has the value of its connection, or `UNKNOWN` if the value
                is known only at run time.
            inputs: Spec of each data input. A shape that starts with `"..."` has unknown leading axes.

        Raises:
            MismatchError: The inputs do not fit.
            UnknownOpError: The block does not define this rule.
        """
        raise UnknownOpError(
            f"{cls.__name__} has no shape rule.",
            (("op", repr(cls.op)),),
            f"define {cls.__name__}.infer(options, inputs).",
        )

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the shapes that the inputs must have, given the known shapes of the outputs.

        Args:
            options: As in `infer`.
            inputs: The specs of the data inputs, as far as they are known.
            outputs: The specs of the outputs, as far as they are known. The blocks that read an output also determine
                its shape.

        Returns:
            Shapes by input, without inputs for which the outputs determine no shape.

        Raises:
            MismatchError: No input shapes give these output shapes.
        """
        return {}

    @classmethod
    def fed_back(cls, block: Block) -> Mapping[str, str]:
        """Return a dict from each carried output of the body to the input that receives it in the next step."""
        return {}

    @classmethod
    def infer_body(cls, block: Block, specs: Specs, infer: Infer) -> InferredBody:
        """Infer the specs of a block that runs others. `infer` is the function that infers its inner graph.

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
