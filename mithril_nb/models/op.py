"""Blocks that are ops: the base class of all of them, and of ops that a backend runs without a rule of their own.

Models do not depend on an array library, so only a backend can find the shapes of a user-defined op. It registers its
shape rule through `set_shape_rule`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from mithril_nb.errors import UnknownOpError, UnknownOptionError
from mithril_nb.graph.records import Block, Port
from mithril_nb.graph.spec import LEADING, TensorSpec
from mithril_nb.models.fields import check_passed_on, checked, fields_of
from mithril_nb.models.initializers import Initializer
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS, refuse_second
from mithril_nb.models.rules import OPS, UNKNOWN, OpRules, Options, Specs
from mithril_nb.models.shape_inference.inference import Inferred, Shapes

__all__ = ["OPS", "UNKNOWN", "Inferred", "Initializer", "Operator", "Options", "Shapes", "Specs"]


class Operator(OpRules, Model):
    """A block that is one op. Subclasses declare ports, a shape rule and initializers: the attributes of `OpRules`.

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
    """

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
            computed(cls)
        if "op" in cls.__dict__:
            if cls.__init__ is Operator.__init__:
                # The inherited constructor takes any attributes, but this class has none.
                cls.__init__ = Custom.__init__  # pyright: ignore
            refuse_second(cls, "kind", cls.__name__, KINDS.get(cls.__name__))
            refuse_second(cls, "op", cls.op, OPS.get(cls.op))
            KINDS[cls.__name__] = cls
            OPS[cls.op] = cls


ShapeRule = Callable[[type[Operator], Options, Specs], Mapping[str, TensorSpec] | None]
"""Returns the specs of the outputs; `None` if they are not known yet."""

_rules: list[ShapeRule] = []
_assumed: WeakSet[type[Operator]] = WeakSet()
"""Classes that do not declare `is_activation`."""


class Custom(Operator):
    """Base of the blocks that `op` returns for registered names."""

    category = "Custom"
    formula = "y = f(x)"
    is_activation = True  # the safe assumption for an unknown function
    input_dtypes = {"*": "any"}  # noqa: RUF012 - a ClassVar of Operator

    def __init__(self, name: str | None = None):
        Operator.__init__(self, name)  # not super(): classes other than `Custom` use this constructor

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Return the shapes that the function returns for these inputs, as far as they are known."""
        return traced(cls, options, inputs)


def set_shape_rule(rule: ShapeRule) -> None:
    """Set the function that finds the shapes of these ops, by tracing them with abstract inputs."""
    _rules[:] = [rule]


def traced(cls: type[Operator], options: Options, inputs: Specs) -> Inferred:
    """Return the shapes that a backend finds for an op; unknown without a backend or with unknown inputs."""
    found = _rules[0](cls, options, inputs) if _rules else None
    return Inferred({port: (LEADING,) for port in cls.result_ports(options)} if found is None else found)


def computed(cls: type[Operator]) -> None:
    """Complete a subclass of `Operator` that defines `compute(self, inputs)` but not the rest of its declarations.

    Called when the class is defined.
    """
    if not isinstance(cls.__dict__.get("infer", classmethod(traced)), classmethod):
        raise UnknownOptionError(
            f"{cls.__name__}.infer is not a class method.",
            (("needs", "a class method that computes specs from attributes and input specs"),),
            "@classmethod before def infer(cls, options, inputs), or leave it out: compute is then traced.",
        )
    if "op" not in cls.__dict__:
        cls.op = cls.__name__  # built-in ops are lower case, so no class replaces one
    owner = _defining_class(cls, "is_activation")
    if owner is OpRules or owner in _assumed:
        cls.is_activation = not cls.initializers
        _assumed.add(cls)
    for name, value in (("category", Custom.category), ("formula", "y = compute(x)")):
        if not hasattr(cls, name):
            setattr(cls, name, value)
    if cls.infer.__func__ is Operator.infer.__func__:  # pyright: ignore
        cls.infer = classmethod(traced)  # pyright: ignore
        if _defining_class(cls, "input_dtypes") is OpRules:
            cls.input_dtypes = Custom.input_dtypes


def _defining_class(cls: type[Operator], attribute: str) -> type:
    """Return the class that defines an attribute."""
    return next(one for one in cls.__mro__ if attribute in one.__dict__)
