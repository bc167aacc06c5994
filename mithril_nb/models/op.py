"""Blocks that are ops. Their declarations determine shapes, parameters, the palette entry and the kernels."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mithril_nb.errors import UnknownOpError
from mithril_nb.graph.records import Block, Port, Value
from mithril_nb.graph.spec import Dim, Spec, TensorSpec
from mithril_nb.models.fields import check_passed_on, checked, fields_of
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS, refuse_second

Options = Mapping[str, Value]
UNKNOWN = "<unknown>"
"""Value in `options` of a connected attribute whose value is known only at run time."""
Specs = Mapping[str, TensorSpec]
Shapes = Mapping[str, tuple[Dim, ...]]


@dataclass(frozen=True)
class Initializer:
    """Initializer of a parameter.

    Attributes:
        name: One of `mithril_nb.models.initializers.INITIALIZERS`: `"glorot_uniform"`, `"normal"`, `"zeros"`, ...
        in_axis: The input axis, for initializers that scale by fan.
        out_axis: The output axis.
        scale: Factor of the drawn numbers: the standard deviation, for `"normal"`.
        shift: Added after scaling.
        parts: One factor for each array concatenated along `out_axis`, such as those of gates. Each is initialised
            separately.
    """

    name: str
    in_axis: int = -2
    out_axis: int = -1
    scale: float = 1.0
    shift: float = 0.0
    parts: tuple[float, ...] = ()


@dataclass(frozen=True)
class Inferred:
    """Result of an op's shape rule: shapes of parameters, states and outputs; dims may be names.

    An output given as a bare shape has the promoted dtype of the inputs.
    """

    outputs: Mapping[str, tuple[Dim, ...] | Spec]
    params: Shapes = field(default_factory=dict[str, tuple[Dim, ...]])
    states: Shapes = field(default_factory=dict[str, tuple[Dim, ...]])


class Operator(Model):
    """A block that is one op. Subclasses declare ports, a shape rule and initializers.

    A subclass with a `compute` method provides its own kernel, written with JAX. It maps arrays by input port to arrays
    by output port, reads its attributes from `self.options`, and is traced to find its shapes. To register a plain
    function, use `JaxBackend.register_op`.

    Examples:
        >>> class Scaled(Operator):
        ...     def __init__(self, factor: float = 2.0, name: str | None = None):
        ...         super().__init__(name, factor=factor)
        ...
        ...     def compute(self, inputs):
        ...         return {"output": self.options["factor"] * inputs["input"]}
        >>> [port.name for port in Scaled(3.0).inputs]
        ['input']

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

    def __init__(self, name: str | None = None, **attributes: Any):
        super().__init__(name)
        kind = type(self).__name__
        if not hasattr(type(self), "op"):
            given = f'inputs["{self.input_ports[0]}"]' if self.input_ports else "1.0"
            outputs = ", ".join(f'"{port}": {given}' for port in self.output_ports)
            raise UnknownOpError(
                f"{kind} has no method compute, so its outputs are undefined.",
                (("needs", "compute(self, inputs), which takes arrays by port and returns arrays by port"),),
                f"def compute(self, inputs): return {{{outputs}}}",
            )
        fields = fields_of(type(self))
        check_passed_on(kind, fields, attributes)
        values = checked(kind, fields, attributes)
        options = dict(values)
        inputs = (
            *(Port(port) for port in self.data_ports(options)),
            *(Port(port, "param") for port in self.param_ports(options)),
            *(Port(port, "state") for port in self.state_ports),
            *(Port(port, "option") for port in self.option_ports),
        )
        self._block = Block(kind, values, inputs, tuple(Port(port) for port in self.result_ports(options)), op=self.op)

    def __init_subclass__(cls, **settings: Any):
        super().__init_subclass__(**settings)
        if "compute" in cls.__dict__:
            importlib.import_module("mithril_nb.models.custom").computed(cls)  # imported late: it imports this module
        if "op" in cls.__dict__:
            refuse_second(cls, "kind", cls.__name__, KINDS.get(cls.__name__))
            refuse_second(cls, "op", cls.op, OPS.get(cls.op))
            KINDS[cls.__name__] = cls
            OPS[cls.op] = cls

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


OPS: dict[str, type[Operator]] = {}
"""All ops, by name."""
