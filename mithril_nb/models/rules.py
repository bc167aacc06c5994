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
    """Result of an op's shape rule: shapes of parameters, states and outputs; dims may be names.

    An output given as a bare shape has the promoted dtype of the inputs.
    """

    outputs: Mapping[str, tuple[Dim, ...] | Spec]
    params: Shapes = field(default_factory=dict[str, tuple[Dim, ...]])
    states: Shapes = field(default_factory=dict[str, tuple[Dim, ...]])


@dataclass(frozen=True)
class Parameter:
    """An array that belongs to a model: a trained parameter, or a state that one step hands to the next.

    Attributes:
        name: Its name among the parameters: `"linear_0.weight"`.
        path: Path of its block.
        port: Port of that block.
        spec: Shape and dtype; some dims are names while the input's shape is unknown.
        initializer: Its initializer.
        is_trainable: True if training changes it.
        stacked: Number of leading axes along which separately initialised arrays of one shape are stacked.
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
        outputs: Spec of each output; `None` after a mismatch.
        blocks: Specs at each block, by path.
        parameters: All trainable arrays, in the order of the blocks.
        problems: The mismatches; empty if there are none.
        states: All arrays that one step hands to the next.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, Spec | None]
    blocks: Mapping[str, BlockSpecs]
    parameters: tuple[Parameter, ...]
    problems: tuple[Diagnostic, ...]
    states: tuple[Parameter, ...] = ()

    @property
    def is_concrete(self) -> bool:
        """True if the shape of every parameter is known in numbers."""
        return all(parameter.spec.is_concrete for parameter in (*self.parameters, *self.states))

    def raise_problems(self) -> None:
        """Raise all problems as one error, if there are any.

        Raises:
            ShapeError: There are mismatches.
        """
        if self.problems:
            first, *more = self.problems
            raise ShapeError(first, more=tuple(more))


@dataclass(frozen=True)
class InferredBody:
    """Result of the shape rule of a control block.

    Attributes:
        outputs: Spec of each output.
        inner: The inference of the inner graph, for one step.
        stacked: Number of copies of each inner parameter, stacked along a new first axis; `None` if all steps share
            the parameters.
    """

    outputs: Mapping[str, Spec]
    inner: Inference
    stacked: int | None = None


Options = Mapping[str, Value]
UNKNOWN = "<unknown>"
"""Value in `options` of a connected attribute whose value is known only at run time."""
Specs = Mapping[str, TensorSpec]
Infer = Callable[[LogicalGraph, Mapping[str, TensorSpec]], Inference]
"""The function `infer`, which the rule of a block that runs others calls for the inner graph."""


class OpRules:
    """The declarations and rules of one kind of op, without its attributes.

    Attributes:
        op: Name of the op, which is also the name of its kernel.
        input_ports: Names of its data inputs.
        option_ports: Names of the attributes that can also be connected.
        state_ports: Names of the arrays that one step hands to the next.
        output_ports: Names of its outputs.
        category: Its section of the palette.
        formula: The computation, for display.
        initializers: The initializer of each parameter and state.
        input_dtypes: Dtypes of data inputs that are not floats: `"int32"` for integers, `"bool"`, or `"any"`. `"*"`
            means all of them.
        takes_values: True if its inputs may be static values, such as shapes. Its rule then gets a `StaticSpec` for
            such an input, and the specs of connected attributes too.
        is_activation: True for a nonlinearity, which reduces the variance that `he_normal` compensates for.
        keeps_scale: True if its output has about the same scale as its input, so that an activation may follow later.
        init_depends_on_reader: True if He's initializers apply only when an activation reads the output; otherwise
            LeCun's are used.
        runs_others: True if it runs the blocks of an inner graph, such as a loop.
        computes_in_order: True if it computes its outputs in the order of its ports. Emitted source names them after
            the ports.
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
        """Return the names of its data inputs, given its attributes."""
        return cls.input_ports

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of its parameters, given its attributes."""
        return tuple(port for port in cls.initializers if port not in cls.state_ports)

    @classmethod
    def result_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of its outputs, given its attributes."""
        return cls.output_ports

    @classmethod
    def wanted_dtype(cls, port: str, dtype: str) -> str:
        """Return the dtype that a data input requires, or `"any"`; `dtype` is the model's default."""
        return cls.input_dtypes.get(port, cls.input_dtypes.get("*", dtype))

    @classmethod
    def input_ranges(cls, options: Options) -> Mapping[str, tuple[int, int]]:
        """Return the minimum and maximum integer of each data input that has such bounds."""
        return {}

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shapes of parameters, states and outputs.

        Args:
            options: Its attributes. A connected attribute has the value from its connection, or `UNKNOWN` if that is
                known only at run time.
            inputs: Spec of each data input. `("...",)` represents an unknown shape.

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
            inputs: The known specs of its data inputs.
            outputs: The known specs of its outputs, from their readers.

        Returns:
            Shapes by input; inputs that cannot be inferred are omitted.
        """
        return {}

    @classmethod
    def fed_back(cls, block: Block) -> Mapping[str, str]:
        """Return a mapping from outputs of the body to the inputs that receive them in the next step."""
        return {}

    @classmethod
    def infer_body(cls, block: Block, specs: Specs, infer: Infer) -> InferredBody:
        """Return the result of shape inference of a block that runs others, given the specs of its inputs.

        Raises:
            MismatchError: The inputs do not fit.
        """
        raise NotImplementedError


OPS: dict[str, type[OpRules]] = {}
"""All ops, by name."""


def rules_named(kind: str) -> type[OpRules] | None:
    """Return the rules of a kind of block; `None` if it is unknown or not an op."""
    found = KINDS.get(kind)
    return found if found is not None and issubclass(found, OpRules) else None
