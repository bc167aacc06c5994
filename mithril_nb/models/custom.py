"""User-defined ops: functions registered for one backend, or for all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mithril_nb.errors import UnknownOpError, UnknownOptionError, similar
from mithril_nb.models.model import Model
from mithril_nb.models.op import Custom, Operator
from mithril_nb.models.registry import KINDS
from mithril_nb.models.rules import OPS

Function = Callable[..., Any]
PRIMITIVES: dict[str, Function] = {}
"""The function of each op of `register_primitive`. It takes a backend and arrays."""
GRADIENTS: dict[str, Function] = {}
"""The gradient function of each op. It takes a backend, the same arrays, and the gradient of the output."""
_GRAD = "_grad"


def op(name: str, /, **attributes: Any) -> Model:
    """Return the block of an op by name, for built-in and registered ops.

    In a notebook, after `%load_ext mithril_nb`, `"gelu"(input="x")` is the same as `op("gelu")(input="x")`.

    Args:
        name: `"gelu"`, `"linear"`, or a name passed to `backend.register_op` or `register_primitive`.
        attributes: The arguments of its constructor.

    Raises:
        UnknownOpError: No op has this name.
        UnknownOptionError: Invalid attributes.

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
            f"ml.op({near[0]!r})" if near else f'register it with @backend.register_op("{name}").',
        )
    given = [one for one in attributes if one != "name"]
    if given and issubclass(kind, Custom):
        raise UnknownOptionError(
            f"the op {name!r} takes no attributes.",
            (("given", ", ".join(given)),
             ("because", "it is a registered function: its inputs are its arguments without a default")),
            f"ml.op({name!r})  # without a default in the function, {given[0]!r} is an input",
        )  # fmt: skip
    return kind(**attributes)


def register_primitive(name: str) -> Callable[[Function], Function]:
    """Register a function of a backend and arrays as an op for all backends. `<name>_grad` registers its gradient.

    Args:
        name: `"sin_times_x"` for the op. `"sin_times_x_grad"` for its gradient: a function of the backend, the same
            arrays, and the gradient of a loss with respect to the op's output. It returns the gradient of the array,
            or a tuple with one gradient per array. Without it, JAX differentiates the function. Registering another
            function under the name removes the gradient.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        UnknownOptionError: The name is invalid, or the function's arguments cannot be inputs.
        NameTakenError: A built-in block or op has this name.

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
                GRADIENTS.pop(name, None)  # it belongs to the replaced function
            PRIMITIVES[name] = function
        return function

    return register


def define(name: str, ports: tuple[str, ...]) -> type[Operator]:
    """Define the class of `op(name)`, with these inputs, and return it.

    Raises:
        NameTakenError: A built-in block or op has this name.
    """
    old = OPS.get(name)
    if old is not None and issubclass(old, Custom) and old.input_ports == ports:
        return old
    made = {"op": name, "input_ports": ports, "__module__": __name__, "__qualname__": name, "__doc__": Custom.__doc__}
    return type(Custom)(name, (Custom,), made)  # registers itself


def ports_of(function: Function, decorator: str, name: str, skip: int = 0) -> tuple[str, ...]:
    """Return the inputs of an op: the function's arguments without a default. A single one is named `"input"`.

    Args:
        function: The function.
        decorator: The decorator that registers it, for the error message.
        name: Name of the op, for the error message.
        skip: Number of arguments that are not inputs: the backend, the gradient.

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
            f"{decorator}({name!r}) cannot determine the inputs of {getattr(function, '__name__', function)!r}.",
            (("needs", f"a function of {needs}at least one array, each as a named argument"),),
            f"def {name}({'backend, ' if skip else ''}x{', grad' if skip > 1 else ''}): ...",
        )
    ports = tuple(arrays[1:] if skip else arrays)[: len(arrays) - skip]
    return ("input",) if len(ports) == 1 else ports


def check_name(name: Any, decorator: str) -> None:
    """Raise if a name is not valid for an op.

    Raises:
        UnknownOptionError: The name is invalid; the usual mistake is a decorator without its parentheses.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise UnknownOptionError(
            f"{getattr(name, '__name__', name)!r} is not a valid op name.",
            (("needs", "a string of letters, digits and '_'"),),
            f'@{decorator}("my_op")',
        )
