"""Ops that people bring, as kernels: functions of arrays, primitives with a gradient, blocks that compute."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import jax
import jax.numpy as jnp
import numpy
from jax import export

import mithril_nb
from mithril_nb.errors import MithrilError, ShapeError, UnknownOptionError
from mithril_nb.graph.spec import LEADING, TensorSpec, as_dtype
from mithril_nb.models import custom
from mithril_nb.models.dims import MismatchError
from mithril_nb.models.op import OPS, Operator, Options, Specs
from mithril_nb.program import Arrays, Call, Kernel

if TYPE_CHECKING:
    from mithril_nb.backends.jax.backend import JaxBackend

_OTHERS = tuple(f"{Path(module.__file__ or '').parent}{os.sep}" for module in (jax, numpy, mithril_nb))
"""Folders of the functions that no person wrote who brings an op."""
_OF_TRACING = {
    jax.errors.TracerArrayConversionError: "import jax.numpy as jnp; jnp.tanh(x)  # instead of numpy",
    jax.errors.TracerBoolConversionError: "jnp.where(x > 0, x, -x)  # instead of an if on the values of an array",
    jax.errors.ConcretizationTypeError: "jax.numpy alone, no float() or int(): a size comes from x.shape, not from x.",
}
"""What to do where a function asks for the numbers of an array, of which only the shape is known while it is traced."""
REGISTERED: dict[str, WeakSet[JaxBackend]] = {}
"""The backends on which each op was registered, as long as somebody holds them."""
_inferring: ContextVar[JaxBackend | None] = ContextVar("_inferring", default=None)


@contextmanager
def inferring_for(backend: JaxBackend) -> Iterator[None]:
    """Find the shapes of ops with the functions of one backend: others may have other functions under the same name.

    Examples:
        >>> import mithril_nb as ml
        >>> with inferring_for(ml.JaxBackend()):
        ...     pass
    """
    before = _inferring.set(backend)
    try:
        yield
    finally:
        _inferring.reset(before)


def kernels(backend: JaxBackend) -> dict[str, Kernel]:
    """Return a kernel for each op that somebody brought and that this backend can run."""
    found = {name: plain(name, primitive(backend, name)) for name in custom.PRIMITIVES}
    found |= {name: computing(cls) for name, cls in OPS.items() if hasattr(cls, "compute")}
    return found | backend._own


def plain(name: str, function: Callable[..., Any]) -> Kernel:
    """Return the kernel of a function of arrays."""
    return lambda call, arrays: _named(name, ("output",), function(*arrays.values()))


def primitive(backend: JaxBackend, name: str) -> Callable[..., Any]:
    """Return a primitive as a function of arrays, with the gradient that was registered for it.

    It is made once for a backend: JAX compiles anew for each function.
    """
    brought = custom.PRIMITIVES[name], custom.GRADIENTS.get(name)
    made = backend._primitives.get(name)
    if made is None or made[0] != brought:
        backend._primitives[name] = made = brought, _differentiable(backend, name, *brought)
    return made[1]


def _differentiable(
    backend: JaxBackend, name: str, function: Callable[..., Any], gradient: Callable[..., Any] | None
) -> Callable[..., Any]:
    def forward(*arrays: Any) -> Any:
        return function(backend, *arrays)

    if gradient is None:
        return forward

    def backward(arrays: tuple[Any, ...], by_output: Any) -> tuple[Any, ...]:
        found = gradient(backend, *arrays, by_output)
        return _gradients(name, arrays, found if isinstance(found, tuple | list) else (found,))

    differentiable = jax.custom_vjp(forward)
    differentiable.defvjp(lambda *arrays: (forward(*arrays), arrays), backward)
    return differentiable


def computing(cls: type[Operator]) -> Kernel:
    """Return the kernel of a block that computes: it is made anew with the attributes of the block that is run."""

    def run(call: Call, arrays: Arrays) -> Arrays:
        block = cls(**call.options)
        return _named(f"{cls.__name__}.compute", cls.result_ports(call.options), block.compute(dict(arrays)))  # pyright: ignore

    return run


def _named(name: str, ports: tuple[str, ...], given: Any) -> dict[str, Any]:
    """What a function returned, by port: a dict, or the array alone where there is one output."""
    by_port = dict(given) if isinstance(given, Mapping) else {"output": given}
    if by_port.keys() != set(ports):
        raise UnknownOptionError(
            f"{name} returned {', '.join(map(repr, by_port)) or 'nothing'}.",
            (("needs", f"a dict with {', '.join(map(repr, ports))}"),),
            f"return {{{', '.join(f'{port!r}: ...' for port in ports)}}}",
        )
    for port, array in by_port.items():
        if not isinstance(array, jax.Array) and not hasattr(array, "dtype") and not isinstance(array, int | float):
            raise UnknownOptionError(
                f"{name} returned no array for {port!r}.", (("given", type(array).__name__),), "return an array."
            )
    return {port: jnp.asarray(array) for port, array in by_port.items()}


def _gradients(name: str, arrays: tuple[Any, ...], found: Any) -> tuple[Any, ...]:
    """The gradients that a person's function gave, one for each array, each of its shape."""
    gave, needed = [jnp.shape(one) for one in found], [jnp.shape(array) for array in arrays]
    if gave != needed:
        raise ShapeError(
            f"{name}_grad does not give a gradient of the shape of each input.",
            (("gave", ", ".join(map(str, gave))), ("inputs", ", ".join(map(str, needed)))),
            f'@ml.register_primitive("{name}_grad") on a function that returns one array for each input.',
        )
    return tuple(
        jnp.asarray(one, dtype) if jnp.issubdtype(dtype, jnp.inexact) else None
        for one, dtype in zip(found, map(jnp.result_type, arrays), strict=True)
    )


# Shapes


def shapes(cls: type[Operator], options: Options, inputs: Specs) -> dict[str, TensorSpec] | None:
    """Return the specs of the outputs of an op that somebody brought, by tracing its function; `None` if unknown.

    Where nobody says for which backend, and functions of one name on several backends differ, they are unknown.

    Raises:
        MismatchError: The function cannot take such arrays.
    """
    texts = [spec.shape for spec in inputs.values()]
    if any(LEADING in shape or not all(_is_plain(dim) for dim in shape) for shape in texts):
        return None
    found: list[dict[str, TensorSpec] | None] = []
    refusals: list[MithrilError | MismatchError] = []
    for kernel in _kernels_of(cls.op):
        try:
            found.append(_specs(cls.op, kernel, options, inputs))
        except (MismatchError, UnknownOptionError, ShapeError) as refusal:
            refusals.append(refusal)
    if refusals and not found:
        raise refusals[0]
    return found[0] if found and not refusals and all(one == found[0] for one in found) else None


def _kernels_of(op: str) -> list[Kernel]:
    """What may run an op: of the backend that is inferred for, else of all that have it."""
    backend = _inferring.get()
    if backend is None:
        registered = [one._own[op] for one in REGISTERED.get(op, ())]
        if registered:
            return registered
        backend = _some_backend()
    found = kernels(backend).get(op)
    return [] if found is None else [found]


def _specs(op: str, kernel: Kernel, options: Options, inputs: Specs) -> dict[str, TensorSpec] | None:
    is_symbolic = any(isinstance(dim, str) for spec in inputs.values() for dim in spec.shape)
    try:
        scope = export.SymbolicScope()
        structs = {
            port: jax.ShapeDtypeStruct(
                export.symbolic_shape(", ".join(map(str, spec.shape)), scope=scope) if spec.shape else (), spec.dtype
            )
            for port, spec in inputs.items()
        }
        call = Call(options, False, None)
        # JAX sorts the keys of a dict; the function takes its arrays in the order of the ports.
        found = jax.eval_shape(lambda arrays: dict(kernel(call, {port: arrays[port] for port in inputs})), structs)
    except (UnknownOptionError, ShapeError):
        raise
    except Exception as error:
        if is_symbolic:  # not every function can be traced with names for sizes: the numbers will tell
            return None
        first = (str(error).strip().splitlines() or [""])[0]
        told = f"{type(error).__name__}: {first}".removesuffix(": ")
        if not isinstance(error, tuple(_OF_TRACING)) and isinstance(error, TypeError | ValueError):
            raise MismatchError(
                next(iter(inputs), ""), f"what {op!r} can take", "other sizes, or look into the function.", told
            ) from error
        raise UnknownOptionError(
            f"the function of the op {op!r} fails.",
            (
                ("because", told),
                ("where", _place(error)),
                ("given", ", ".join(f"{port!r} {spec}" for port, spec in inputs.items())),
            ),
            next(
                (advice for kind, advice in _OF_TRACING.items() if isinstance(error, kind)), "look into the function."
            ),
        ) from error
    specs = {port: (tuple(map(_dim, one.shape)), str(as_dtype(one.dtype))) for port, one in found.items()}
    if any(dim is None for shape, _ in specs.values() for dim in shape):
        return None
    return {port: TensorSpec(shape, dtype) for port, (shape, dtype) in specs.items()}  # pyright: ignore


def _place(error: BaseException) -> str:
    """Where an error comes from: the last line of the function that a person wrote, and not of what it calls."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not one.filename.startswith(_OTHERS)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "a function that was not written in a file"


def _is_plain(dim: Any) -> bool:
    return isinstance(dim, int) or dim.isidentifier()


def _dim(dim: Any) -> int | str | None:
    """A size as JAX found it; `None` for what cannot be said as a sum of products."""
    if isinstance(dim, int):
        return dim
    text = str(dim).replace(" ", "")
    return text if re.fullmatch(r"[\w*+-]+", text) else None


@cache
def _some_backend() -> JaxBackend:
    from mithril_nb.backends.jax.backend import JaxBackend

    return JaxBackend()


custom.set_shape_rule(shapes)
