"""Blocks that are ops: what they declare, so that shapes, parameters, the palette and the kernels follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mithril_nb.errors import NameTakenError, UnknownOpError
from mithril_nb.graph.records import Block, Port, Value
from mithril_nb.graph.spec import Dim, TensorSpec
from mithril_nb.models.fields import checked, fields_of
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS

Options = Mapping[str, Value]
Specs = Mapping[str, TensorSpec]


@dataclass(frozen=True)
class Initializer:
    """How a parameter starts.

    Attributes:
        name: `"glorot_uniform"`, `"he_normal"`, `"lecun_normal"`, `"normal"`, `"zeros"` or `"ones"`.
        in_axis: Axis over which a unit of the output sums, for those that scale by fan.
        out_axis: Axis of the units of the output.
        scale: Standard deviation, for `"normal"`.
    """

    name: str
    in_axis: int = -2
    out_axis: int = -1
    scale: float = 1.0


@dataclass(frozen=True)
class Inferred:
    """What the rule of an op says of its parameters and outputs; dims may be names."""

    outputs: Mapping[str, tuple[Dim, ...]]
    params: Mapping[str, tuple[Dim, ...]]


class Operator(Model):
    """A block that is one op: subclasses declare ports, a shape rule, and how parameters start.

    Attributes:
        op: Name of the op; a backend has a kernel of that name.
        input_ports: Names of its data inputs.
        category: Where the palette lists it.
        formula: What it computes, for the reader.
        initializers: How each parameter starts.
        input_dtypes: Dtype of the data inputs that do not take the model's default.
    """

    op: ClassVar[str]
    input_ports: ClassVar[tuple[str, ...]] = ("input",)
    category: ClassVar[str]
    formula: ClassVar[str]
    initializers: ClassVar[Mapping[str, Initializer]] = {}
    input_dtypes: ClassVar[Mapping[str, str]] = {}

    def __init__(self, name: str | None = None, **attributes: Any):
        super().__init__(name)
        kind = type(self).__name__
        values = checked(kind, fields_of(type(self)), attributes)
        data = tuple(Port(port) for port in self.input_ports)
        params = tuple(Port(port, "param") for port in self.param_ports(dict(values)))
        self._block = Block(kind, values, data + params, (Port("output"),), op=self.op)

    def __init_subclass__(cls, **settings: Any):
        super().__init_subclass__(**settings)
        if "op" in cls.__dict__:
            _refuse_second(cls, "kind", cls.__name__, KINDS.get(cls.__name__))
            _refuse_second(cls, "op", cls.op, OPS.get(cls.op))
            KINDS[cls.__name__] = cls
            OPS[cls.op] = cls

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of its parameters, given its attributes."""
        return tuple(cls.initializers)

    @classmethod
    def input_ranges(cls, options: Options) -> Mapping[str, tuple[int, int]]:
        """Return the least and the largest whole number that each data input takes, where there are such bounds."""
        return {}

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shapes of parameters and outputs.

        Args:
            options: Its attributes.
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


def _refuse_second(new: type[Model], what: str, name: str, old: type[Model] | None) -> None:
    """Raise if a name would change its meaning in models that exist; a cell that runs again defines the same class.

    Raises:
        NameTakenError: Another class has the name.
    """
    if old is None or (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__):
        return
    raise NameTakenError(
        f"cannot define {new.__name__}: the {what} {name!r} exists.",
        (("defined by", f"{old.__module__}.{old.__qualname__}"),),
        f'op = "my_{name}"' if what == "op" else f"class My{name}(Operator)",
    )


OPS: dict[str, type[Operator]] = {}
"""Every op that blocks are made of, by its name."""
