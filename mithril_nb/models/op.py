"""Ops: the base class of built-in ops, and the registration of user-defined ops.

The shapes of a user-defined op are found by tracing its function with JAX. This module does not import JAX: a backend
passes a function that traces to `set_shape_rule`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from mithril_nb.errors import UnknownOpError, UnknownOptionError, similar
from mithril_nb.graph.records import Block, Port
from mithril_nb.graph.spec import LEADING, UNKNOWN_SHAPE, Dim, Dims, Spec, StaticSpec, TensorSpec
from mithril_nb.models.fields import Range, Start, keyword_field, passed_on
from mithril_nb.models.initializers import Initializer
from mithril_nb.models.lazy_jax import jax, jnp, lax
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS, refuse_second
from mithril_nb.models.rules import OPS, UNKNOWN, Inferred, OpRules, Options, PortNames, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError

__all__ = [
    "LEADING",
    "OPS",
    "UNKNOWN",
    "UNKNOWN_SHAPE",
    "Dim",
    "Dims",
    "Inferred",
    "Initializer",
    "MismatchError",
    "Operator",
    "Options",
    "PortNames",
    "Range",
    "Shapes",
    "Spec",
    "Specs",
    "Start",
    "StaticSpec",
    "TensorSpec",
    "jax",
    "jnp",
    "lax",
]


class Operator(Model, OpRules):
    """Base of the blocks that are one op. A subclass declares its attributes, ports, shapes and initializers.

    The annotated fields of the subclass, as in a dataclass, are its attributes: the arguments of its constructor, in
    this order and before `name`. For the other declarations, see `OpRules`.

    The subclass can define the op's kernel as a method `compute(self, inputs)`, written with JAX. `inputs` is a dict of
    arrays by input port, and the result a dict of arrays by output port. `self.options` contains the attributes. If the
    subclass has no shape rule `infer`, JAX traces `compute` to find the shapes.

    `JaxBackend.register_op` makes an op from a plain function.

    Raises:
        UnknownOpError: The class defines neither `compute` nor `op`.
        UnknownOptionError: A subclass has a constructor of its own, which passes only some of its arguments to
            `super().__init__`, or a value is invalid.

    Examples:
        >>> class Scaled(Operator):
        ...     factor: float = 2.0
        ...
        ...     def compute(self, inputs):
        ...         return {"output": self.options["factor"] * inputs["input"]}
        >>> Scaled(3.0), [port.name for port in Scaled().inputs]
        (Scaled(factor=3.0), ['input'])
    """

    if TYPE_CHECKING:
        # For type checkers, every subclass is a dataclass, whose fields come after those of its bases. So they take
        # `name` as a keyword, although the constructor also accepts it as the last argument.
        name: str | None = keyword_field(default=None)

    def __init__(self, name: str | None = None, **attributes: Any):
        super().__init__(name)
        kind = type(self).__name__
        if not hasattr(type(self), "op"):
            source = f'inputs["{self.input_ports[0]}"]' if self.input_ports else "1.0"
            outputs = ", ".join(f'"{port}": {source}' for port in self.output_ports)
            raise UnknownOpError(
                f"{kind} has no method compute, so its outputs are undefined.",
                (("needs", "compute(self, inputs), which takes arrays by port and returns arrays by port"),),
                f"def compute(self, inputs): return {{{outputs}}}",
            )
        values = passed_on(type(self), attributes)
        options = dict(values)
        ports = self.ports(options)
        inputs = (
            *map(Port, ports.inputs),
            *(Port(port, "param") for port in ports.params),
            *(Port(port, "state") for port in self.state_ports),
            *(Port(port, "option") for port in self.option_ports),
        )
        self._block = Block(kind, values, inputs, tuple(map(Port, ports.outputs)), op=self.op)

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
"""A function that returns the specs of an op's outputs by port; `None` if they are not known yet."""

_rules: list[ShapeRule] = []
_assumed: WeakSet[type[Operator]] = WeakSet()
"""The classes for which `computed`, and not the user, set `is_activation`."""


class Custom(Operator):
    """Base of the blocks that `op(name)` returns for names passed to `register_op` or `register_primitive`."""

    category = "Custom"
    formula = "y = f(x)"
    is_activation = True  # the safe assumption for an unknown function
    input_dtypes = {"*": "any"}  # noqa: RUF012 - a ClassVar of Operator

    def __init__(self, name: str | None = None):
        Operator.__init__(self, name)  # not super(): classes other than `Custom` use this constructor

    @classmethod
    def infer(cls, options, inputs):
        """Trace the registered function to find its output shapes. Unknown input shapes give unknown output shapes."""
        return traced(cls, options, inputs)


def set_shape_rule(rule: ShapeRule) -> None:
    """Set the function that `traced` calls to trace user-defined ops."""
    _rules[:] = [rule]


def traced(cls: type[Operator], options: Options, inputs: Specs) -> Inferred:
    """Return the output shapes of a user-defined op, found by tracing it; unknown shapes if no trace is possible."""
    inferred = _rules[0](cls, options, inputs) if _rules else None
    return Inferred({port: UNKNOWN_SHAPE for port in cls.ports(options).outputs} if inferred is None else inferred)


def computed(cls: type[Operator]) -> None:
    """Set the declarations that a subclass of `Operator` with a method `compute` omits, such as `op` and `infer`."""
    if not isinstance(cls.__dict__.get("infer", classmethod(traced)), classmethod):
        raise UnknownOptionError(
            f"{cls.__name__}.infer is not a class method.",
            (("needs", "a class method that computes specs from attributes and input specs"),),
            "infer = classmethod(infer)  # after def infer; without infer, JAX traces compute",
        )
    if "op" not in cls.__dict__:
        cls.op = cls.__name__  # built-in ops are lower case; `refuse_second` raises for a second class
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
    return next(base for base in cls.__mro__ if attribute in base.__dict__)


Function = Callable[..., Any]
PRIMITIVES: dict[str, Function] = {}
"""The functions of ops from `register_primitive`, by op. Each takes a backend and arrays."""
GRADIENTS: dict[str, Function] = {}
"""The gradient functions of these ops, by op. Each takes a backend, the same arrays, and the output's gradient."""
_GRAD = "_grad"


def op(name: str, /, **attributes: Any) -> Model:
    """Return a new block of a built-in or registered op.

    In a notebook, after `%load_ext mithril_nb`, `"gelu"(input="x")` is the same as `op("gelu")(input="x")`.

    Args:
        name: Name of an op, such as `"gelu"`; name of a kind of block; or a name passed to `backend.register_op` or
            `register_primitive`.
        attributes: The arguments of the block's constructor.

    Raises:
        UnknownOpError: No op and no kind of block has this name.
        UnknownOptionError: An attribute is unknown or invalid.

    Examples:
        >>> op("relu")
        Relu()
        >>> op("linear", dimension=64)
        Linear(dimension=64, use_bias=True, input_size=None)
    """
    kind: type[Any] | None = (OPS.get(name) or KINDS.get(name)) if isinstance(name, str) else None
    if kind is None:
        near = similar(str(name), [*OPS, *KINDS], 1, 0.6)
        raise UnknownOpError(
            f"unknown op {name!r}.",
            (("known", f"{len(OPS)} ops; see list(mithril_nb.models.op.OPS)"),),
            f"ml.op({near[0]!r})" if near else f'@backend.register_op("{name}")',
        )
    names = [key for key in attributes if key != "name"]
    if names and issubclass(kind, Custom):
        raise UnknownOptionError(
            f"the op {name!r} takes no attributes.",
            (("given", ", ".join(names)),
             ("because", "it is a registered function: its inputs are its arguments without a default")),
            f"ml.op({name!r})  # without a default in the function, {names[0]!r} is an input",
        )  # fmt: skip
    return kind(**attributes)


def register_primitive(name: str) -> Callable[[Function], Function]:
    """Register a function as an op for all backends. The function takes a backend and arrays, and returns an array.

    By default, JAX differentiates the function. To define the gradient yourself, register a second function with the
    name of the op and `_grad`. It takes the backend, the same arrays, and the gradient of the loss with respect to the
    op's output. It returns the gradient with respect to the array, or a tuple of gradients if there are several arrays.
    Registering another function for the op removes this gradient.

    Args:
        name: Name of the op (`"sin_times_x"`), or of its gradient (`"sin_times_x_grad"`).

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        UnknownOptionError: The name is not a valid identifier, or the function has no argument for an array.
        NameTakenError: Another block or op has this name.

    Examples:
        >>> @register_primitive("double")
        ... def double(backend, x):
        ...     return backend.add(x, x)
        >>> @register_primitive("double_grad")
        ... def double_grad(backend, x, grad):
        ...     return backend.add(grad, grad)
        >>> op("double").inputs
        (Port(name='input', role='data'),)
    """
    check_name(name, "ml.register_primitive")

    def register(function: Function) -> Function:
        if name.endswith(_GRAD) and name != _GRAD:
            ports_of(function, "ml.register_primitive", name, skip=2)
            GRADIENTS[name.removesuffix(_GRAD)] = function
        else:
            define(name, ports_of(function, "ml.register_primitive", name, skip=1))
            if PRIMITIVES.get(name, function) is not function:
                GRADIENTS.pop(name, None)  # it belongs to the replaced function
            PRIMITIVES[name] = function
        return function

    return register


def define(name: str, ports: tuple[str, ...]) -> type[Operator]:
    """Define the class of the op `name` with the inputs `ports`. Returns the existing class if it has these inputs."""
    old = OPS.get(name)
    if old is not None and issubclass(old, Custom) and old.input_ports == ports:
        return old
    namespace = {
        "op": name,
        "input_ports": ports,
        "__module__": __name__,
        "__qualname__": name,
        "__doc__": Custom.__doc__,
    }
    return type(Custom)(name, (Custom,), namespace)  # registers itself


def ports_of(function: Function, decorator: str, name: str, skip: int = 0) -> tuple[str, ...]:
    """Return the inputs of an op: the function's arguments without a default. A single one is named `"input"`.

    Args:
        function: The function.
        decorator: The decorator that registers the function, for the error message.
        name: Name of the op, for the error message.
        skip: Number of arguments that are not inputs: 1 if the first is the backend, 2 if also the last is the
            gradient.
    """
    try:
        arguments = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        arguments = []
    positional = [
        argument
        for argument in arguments
        if argument.kind in (argument.POSITIONAL_ONLY, argument.POSITIONAL_OR_KEYWORD)
    ]
    arrays = [argument.name for argument in positional if argument.default is argument.empty]
    if len(arrays) <= skip or any(argument.kind is argument.VAR_POSITIONAL for argument in arguments):
        needs = ("the backend, then ", "the backend, the arrays, then the gradient: ")[skip - 1] if skip else ""
        raise UnknownOptionError(
            f"{decorator}({name!r}) cannot determine the inputs of {getattr(function, '__name__', function)!r}.",
            (("needs", f"a function of {needs}at least one array, each as a named argument"),),
            f"def {name}({'backend, ' if skip else ''}x{', grad' if skip > 1 else ''}): ...",
        )
    ports = tuple(arrays[1:] if skip else arrays)[: len(arrays) - skip]
    return ("input",) if len(ports) == 1 else ports


def check_name(name: Any, decorator: str) -> None:
    """Raise if a name is not valid for an op."""
    if not isinstance(name, str) or not name.isidentifier():
        raise UnknownOptionError(
            f"{getattr(name, '__name__', name)!r} is not a valid op name.",
            (("needs", "a string of letters, digits and '_'"),),
            f'@{decorator}("my_op")',
        )
