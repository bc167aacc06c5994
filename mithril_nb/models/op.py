"""Blocks that are ops: what they declare, so that shapes, parameters, the palette and the kernels follow."""

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
"""Stands in `options` for the value of an attribute that is connected to something that only a run will know."""
Specs = Mapping[str, TensorSpec]
Shapes = Mapping[str, tuple[Dim, ...]]


@dataclass(frozen=True)
class Initializer:
    """How a parameter starts.

    Attributes:
        name: One of `mithril_nb.models.initializers.INITIALIZERS`: `"glorot_uniform"`, `"normal"`, `"zeros"`, ...
        in_axis: Axis over which a unit of the output sums, for those that scale by fan.
        out_axis: Axis of the units of the output.
        scale: What the numbers are multiplied by: the standard deviation, for `"normal"`.
        shift: What is added to them then.
        parts: One factor for each of the arrays that stand in a row along `out_axis`, as those of gates do, where there
            are several; each of them starts by itself.
    """

    name: str
    in_axis: int = -2
    out_axis: int = -1
    scale: float = 1.0
    shift: float = 0.0
    parts: tuple[float, ...] = ()


@dataclass(frozen=True)
class Inferred:
    """What the rule of an op says of its parameters, states and outputs; dims may be names.

    An output that is given as a shape alone has the dtype that its inputs promote to.
    """

    outputs: Mapping[str, tuple[Dim, ...] | Spec]
    params: Shapes = field(default_factory=dict[str, tuple[Dim, ...]])
    states: Shapes = field(default_factory=dict[str, tuple[Dim, ...]])


class Operator(Model):
    """A block that is one op: subclasses declare ports, a shape rule, and how parameters start.

    One with a method `compute` brings its own kernel, written with JAX: it takes arrays by port and gives arrays by
    port, `self.options` are its attributes, and its shapes are found by tracing it. `JaxBackend.register_op`
    takes a plain function.

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
        op: Name of the op; a backend has a kernel of that name.
        input_ports: Names of its data inputs.
        option_ports: Names of those of its attributes that may also be connected.
        state_ports: Names of the arrays that it hands from one step to the next.
        output_ports: Names of its outputs.
        category: Where the palette lists it.
        formula: What it computes, for the reader.
        initializers: How each parameter and state starts.
        input_dtypes: What the data inputs take that do not take floating numbers: `"int32"` for whole numbers,
            `"bool"`, or `"any"`; `"*"` stands for all of them.
        takes_values: Whether its inputs may be values that are no arrays, as shapes are. Its rule then gets a
            `StaticSpec` for such a one, and the specs of connected attributes too.
        is_activation: Whether it bends what it gets, and so loses of its variance what `he_normal` makes up for.
        keeps_scale: Whether it hands on what it gets at about the size that it has: an activation may come behind it.
        starts_for_its_reader: Whether weights that start by He's formula do so only if an activation reads its output,
            and else by LeCun's.
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
    starts_for_its_reader: ClassVar[bool] = False

    def __init__(self, name: str | None = None, **attributes: Any):
        super().__init__(name)
        kind = type(self).__name__
        if not hasattr(type(self), "op"):
            given = f'inputs["{self.input_ports[0]}"]' if self.input_ports else "1.0"
            outputs = ", ".join(f'"{port}": {given}' for port in self.output_ports)
            raise UnknownOpError(
                f"{kind} has no method compute, so nothing says what it gives.",
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
            importlib.import_module("mithril_nb.models.custom").computed(cls)  # late: it is made of this
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
        """Return what a data input takes: `"any"`, or the name of a dtype; `dtype` is the model's default."""
        return cls.input_dtypes.get(port, cls.input_dtypes.get("*", dtype))

    @classmethod
    def input_ranges(cls, options: Options) -> Mapping[str, tuple[int, int]]:
        """Return the least and the largest whole number that each data input takes, where there are such bounds."""
        return {}

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shapes of parameters, states and outputs.

        Args:
            options: Its attributes; one that is connected has the value that comes over the connection, or `UNKNOWN`
                if that is not known before the program runs.
            inputs: Spec of each data input. `("...",)` stands for a shape of which nothing is known.

        Raises:
            MismatchError: It cannot take such inputs.
            UnknownOpError: The block does not define this rule.
        """
        raise UnknownOpError(
            f"{cls.__name__} has no shape rule.",
            (("op", repr(cls.op)),),
            f"define {cls.__name__}.infer(options, inputs).",
        )

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return what its inputs must be like, given what is known of its outputs.

        Args:
            options: As in `infer`.
            inputs: What is known of its data inputs so far.
            outputs: What is known of its outputs, from what reads them.

        Returns:
            Shapes by input, as far as they follow; what is left out follows from nothing.
        """
        return {}


OPS: dict[str, type[Operator]] = {}
"""Every op that blocks are made of, by its name."""
