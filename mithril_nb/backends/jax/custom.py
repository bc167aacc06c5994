"""Ops that people bring, as kernels: functions of arrays, primitives with a gradient, blocks that compute."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import export

from mithril_nb.errors import ShapeError, UnknownOptionError
from mithril_nb.graph.spec import LEADING, TensorSpec, as_dtype
from mithril_nb.models import custom
from mithril_nb.models.dims import MismatchError
from mithril_nb.models.op import OPS, Operator, Options, Specs
from mithril_nb.program import Arrays, Call, Kernel

if TYPE_CHECKING:
    from mithril_nb.backends.jax.backend import JaxBackend

SAMPLES: dict[str, Kernel] = {}
"""What was registered last under each name, on whatever backend: shapes are found with it."""


def kernels(backend: JaxBackend) -> dict[str, Kernel]:
    """Return a kernel for each op that all backends of JAX can run, because they can run its function."""
    found = {name: primitive(backend, name) for name in custom.PRIMITIVES}
    return found | {name: computing(cls) for name, cls in OPS.items() if hasattr(cls, "compute")}


def plain(name: str, function: Callable[..., Any]) -> Kernel:
    """Return the kernel of a function of arrays; attributes of the block that it has arguments for are given too."""
    takes = inspect.signature(function).parameters
    keywords = [one.name for one in takes.values() if one.default is not one.empty]

    def run(call: Call, arrays: Arrays) -> Arrays:
        options = {key: call.options[key] for key in keywords if key in call.options}
        return _named(name, ("output",), function(*arrays.values(), **options))

    return run


def primitive(backend: JaxBackend, name: str) -> Kernel:
    """Return the kernel of a function of a backend and arrays, with the gradient that was registered for it."""
    function, gradient = custom.PRIMITIVES[name], custom.GRADIENTS.get(name)

    def forward(*arrays: Any) -> Any:
        return function(backend, *arrays)

    if gradient is not None:
        forward = jax.custom_vjp(forward)

        def backward(arrays: tuple[Any, ...], by_output: Any) -> tuple[Any, ...]:
            found = gradient(backend, *arrays, by_output)
            return _gradients(name, arrays, found if isinstance(found, tuple | list) else (found,))

        forward.defvjp(lambda *arrays: (function(backend, *arrays), arrays), backward)
    return lambda call, arrays: _named(name, ("output",), forward(*arrays.values()))


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
    gave, needed = [jnp.shape(one) for one in found], [array.shape for array in arrays]
    if gave != needed:
        raise ShapeError(
            f"{name}_grad does not give a gradient of the shape of each input.",
            (("gave", ", ".join(map(str, gave))), ("inputs", ", ".join(map(str, needed)))),
            f'@ml.register_primitive("{name}_grad") on a function that returns one array for each input.',
        )
    return tuple(
        jnp.asarray(one, array.dtype) if jnp.issubdtype(array.dtype, jnp.inexact) else None
        for one, array in zip(found, arrays, strict=True)
    )


# Shapes


def shapes(cls: type[Operator], options: Options, inputs: Specs) -> dict[str, TensorSpec] | None:
    """Return the specs of the outputs of an op that somebody brought, by tracing its function; `None` if unknown.

    Raises:
        MismatchError: The function cannot take such arrays.
    """
    kernel = SAMPLES.get(cls.op) or kernels(_some_backend()).get(cls.op)
    texts = [spec.shape for spec in inputs.values()]
    if kernel is None or any(LEADING in shape or not all(_is_plain(dim) for dim in shape) for shape in texts):
        return None
    is_symbolic = any(isinstance(dim, str) for shape in texts for dim in shape)
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
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MismatchError(
            next(iter(inputs), ""),
            f"what {cls.op!r} can take",
            "other sizes, or look into the function.",
            f"{type(error).__name__}: {first}",
        ) from None
    specs = {port: (tuple(map(_dim, one.shape)), str(as_dtype(one.dtype))) for port, one in found.items()}
    if any(dim is None for shape, _ in specs.values() for dim in shape):
        return None
    return {port: TensorSpec(shape, dtype) for port, (shape, dtype) in specs.items()}  # pyright: ignore


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
