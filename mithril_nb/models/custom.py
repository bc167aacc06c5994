"""Ops that people bring: a function under a name, or a block that computes.

Models know no array library: what such an op computes only a backend can run, and its shapes only a backend can find.
A backend that can hangs its rule in here, by `set_shape_rule`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from mithril_nb.errors import UnknownOpError, UnknownOptionError, similar
from mithril_nb.graph.spec import LEADING, TensorSpec
from mithril_nb.models.model import Model
from mithril_nb.models.op import OPS, Inferred, Operator, Options, Specs
from mithril_nb.models.registry import KINDS

Function = Callable[..., Any]
ShapeRule = Callable[[type[Operator], Options, Specs], Mapping[str, TensorSpec] | None]
"""Gives the specs of the outputs; `None` if they are not to be known yet."""

PRIMITIVES: dict[str, Function] = {}
"""What computes each op of `register_primitive`: a function of a backend and of arrays."""
GRADIENTS: dict[str, Function] = {}
"""What computes its gradients: a function of a backend, of the same arrays, and of the gradient by its output."""
_GRAD = "_grad"
_rules: list[ShapeRule] = []
_assumed: WeakSet[type[Operator]] = WeakSet()
"""Classes of which nobody said whether they are activations."""


def set_shape_rule(rule: ShapeRule) -> None:
    """Make a backend the one that finds the shapes of these ops, by running their functions on nothing but shapes."""
    _rules[:] = [rule]


class Custom(Operator):
    """Base of the blocks that `op` gives for the names that people register."""

    category = "Custom"
    formula = "y = f(x)"
    is_activation = True  # for all that we know
    input_dtypes = {"*": "any"}  # noqa: RUF012 - a ClassVar of Operator

    def __init__(self, name: str | None = None):
        Operator.__init__(self, name)  # by name: blocks that are no `Custom` take this over

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """What the function makes of these shapes, as far as they are known."""
        return traced(cls, options, inputs)


def traced(cls: type[Operator], options: Options, inputs: Specs) -> Inferred:
    """Return the shapes that a backend finds for an op; unknown while there is no backend, or too little is known."""
    found = _rules[0](cls, options, inputs) if _rules else None
    return Inferred({port: (LEADING,) for port in cls.result_ports(options)} if found is None else found)


def computed(cls: type[Operator]) -> None:
    """Make a block of a subclass of `Operator` that defines `compute(self, inputs)`, and perhaps nothing else.

    Called when the class is defined.
    """
    if not isinstance(cls.__dict__.get("infer", classmethod(traced)), classmethod):
        raise UnknownOptionError(
            f"{cls.__name__}.infer is no method of the class.",
            (("needs", "what it gives for some attributes and specs, without a block"),),
            "@classmethod before def infer(cls, options, inputs), or leave it out: compute is then traced.",
        )
    if "op" not in cls.__dict__:
        cls.op = cls.__name__  # ops of ours are written small: no class takes the place of one
    if cls.__init__ is Operator.__init__:
        # That takes the attributes of all operators; this one has none.
        cls.__init__ = Custom.__init__  # pyright: ignore
    said_by = _said_by(cls, "is_activation")
    if said_by is Operator or said_by in _assumed:
        cls.is_activation = not cls.initializers
        _assumed.add(cls)
    for name, value in (("category", Custom.category), ("formula", "y = compute(x)")):
        if not hasattr(cls, name):
            setattr(cls, name, value)
    if cls.infer.__func__ is Operator.infer.__func__:  # pyright: ignore
        cls.infer = classmethod(traced)  # pyright: ignore
        if _said_by(cls, "input_dtypes") is Operator:
            cls.input_dtypes = Custom.input_dtypes


def _said_by(cls: type[Operator], attribute: str) -> type:
    """The class that an attribute comes from."""
    return next(one for one in cls.__mro__ if attribute in one.__dict__)


def op(name: str, /, **attributes: Any) -> Model:
    """Return a block by the name of its op: one of ours, or one that was registered.

    In a notebook, after `%load_ext mithril_nb`, `"gelu"(input="x")` is the same as `op("gelu")(input="x")`.

    Args:
        name: `"gelu"`, `"linear"`, or what `backend.register_op` and `register_primitive` were given.
        attributes: What its constructor takes.

    Raises:
        UnknownOpError: There is none of that name.
        UnknownOptionError: Attributes that do not fit.

    Examples:
        >>> op("relu")
        Relu()
        >>> op("linear", dimension=64)
        Linear(dimension=64, use_bias=True, input_size=None)
    """
    kind = (OPS.get(name) or KINDS.get(name)) if isinstance(name, str) else None
    if kind is None:
        near = similar(str(name), [*OPS, *KINDS], 1, 0.6)
        raise UnknownOpError(
            f"there is no op {name!r}.",
            (("known", f"{len(OPS)} ops; see list(mithril_nb.models.op.OPS)"),),
            f"ml.op({near[0]!r})" if near else f'register it with @backend.register_op("{name}").',
        )
    given = [one for one in attributes if one != "name"]
    if given and issubclass(kind, Custom):
        raise UnknownOptionError(
            f"the op {name!r} takes no attributes.",
            (("given", ", ".join(given)),
             ("because", "it is a function that somebody registered: its inputs are its arguments without a default")),
            f"ml.op({name!r})  # without a default in the function, {given[0]!r} is an input",
        )  # fmt: skip
    return kind(**attributes)


def register_primitive(name: str) -> Callable[[Function], Function]:
    """Register a function of a backend and arrays as an op, for all backends; `<name>_grad` gives its gradient.

    Args:
        name: `"sin_times_x"` for the op. `"sin_times_x_grad"` for a function of the backend, the same arrays, and the
            gradient of a loss by the op's output; it returns the gradient by the array, or one for each array in a
            tuple. Without one the function is differentiated as it is; another function under the name drops it.

    Returns:
        A decorator, that leaves the function as it is.

    Raises:
        UnknownOptionError: A name that is none, or a function whose arguments are no inputs.
        NameTakenError: The name of a block or op of ours.

    Examples:
        >>> @register_primitive("double")
        ... def double(backend, x):
        ...     return backend.add(x, x)
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
                GRADIENTS.pop(name, None)  # the gradient of another function
            PRIMITIVES[name] = function
        return function

    return register


def define(name: str, ports: tuple[str, ...]) -> type[Operator]:
    """Make `op(name)` give a block with these inputs; return its class.

    Raises:
        NameTakenError: The name of a block or op of ours.
    """
    old = OPS.get(name)
    if old is not None and issubclass(old, Custom) and old.input_ports == ports:
        return old
    made = {"op": name, "input_ports": ports, "__module__": __name__, "__qualname__": name, "__doc__": Custom.__doc__}
    return type(Custom)(name, (Custom,), made)  # registers itself


def ports_of(function: Function, decorator: str, name: str, skip: int = 0) -> tuple[str, ...]:
    """Return the inputs of an op that a function computes: its arguments; one alone is called `"input"`.

    Args:
        function: The function.
        decorator: What registers it, for a message.
        name: Name of the op, for a message.
        skip: How many of its arguments are no inputs: the backend, the gradient.

    Raises:
        UnknownOptionError: It cannot be called with a fixed number of arrays.
    """
    try:
        arguments = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        arguments = []
    taken = [one for one in arguments if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    arrays = [one.name for one in taken if one.default is one.empty]
    if len(arrays) <= skip or any(one.kind is one.VAR_POSITIONAL for one in arguments):
        needs = ("the backend, then ", "the backend, the arrays, then the gradient: ")[skip - 1] if skip else ""
        raise UnknownOptionError(
            f"{decorator}({name!r}) cannot tell which inputs {getattr(function, '__name__', function)!r} takes.",
            (("needs", f"a function of {needs}at least one array, each by a name of its own"),),
            f"def {name}({'backend, ' if skip else ''}x{', grad' if skip > 1 else ''}): ...",
        )
    ports = tuple(arrays[1:] if skip else arrays)[: len(arrays) - skip]
    return ("input",) if len(ports) == 1 else ports


def check_name(name: Any, decorator: str) -> None:
    """Raise if a name is no name for an op.

    Raises:
        UnknownOptionError: It is none; the usual mistake is a decorator without its brackets.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise UnknownOptionError(
            f"{getattr(name, '__name__', name)!r} is no name for an op.",
            (("needs", "text of letters, digits and '_'"),),
            f'@{decorator}("my_op")',
        )
