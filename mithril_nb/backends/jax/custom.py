"""Kernels of custom ops: functions of arrays, primitives with a gradient, and blocks with a `compute` method."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

import jax
import jax.numpy as jnp
import numpy
from jax import export

from mithril_nb.backends.jax.kernels.declared import declared
from mithril_nb.errors import MithrilError, ShapeError, UnknownOptionError
from mithril_nb.graph.spec import LEADING, TensorSpec, as_dtype
from mithril_nb.models.op import GRADIENTS, OPS, PRIMITIVES, Operator, Options, Specs
from mithril_nb.models.shape_inference.dims import MismatchError
from mithril_nb.program import Arrays, Call, Kernel

_FILES = (jax.__file__, numpy.__file__, Path(__file__).parents[1])
_LIBRARIES = tuple(f"{Path(file or '').parent}{os.sep}" for file in _FILES)
"""Folders of library code, as opposed to the user's own functions."""
_NEEDS_VALUES = {
    jax.errors.TracerArrayConversionError: "import jax.numpy as jnp; jnp.tanh(x)  # instead of numpy",
    # A TracerBoolConversionError is a ConcretizationTypeError too, so it comes first.
    jax.errors.TracerBoolConversionError: "jnp.where(x > 0, x, -x)  # instead of an if on the values of an array",
    jax.errors.ConcretizationTypeError: "jnp.sum(x)  # an array, without float() or int(); sizes come from x.shape",
}
"""Advice by the error of a function that needs the values of an array, which are unknown during tracing."""


class RunsCustomOps(Protocol):
    """A backend that runs custom ops. It has the registered kernels and the cached primitives."""

    _own: dict[str, Kernel]
    _primitives: dict[str, tuple[Any, Callable[..., Any]]]


REGISTERED: dict[str, WeakSet[RunsCustomOps]] = {}
"""The backends on which each op is registered. A backend that no longer exists is removed."""
# A ContextVar, because sessions infer the shapes of other models on other threads.
_inferring: ContextVar[RunsCustomOps | None] = ContextVar("_inferring", default=None)


@contextmanager
def inferring_for(backend: RunsCustomOps) -> Iterator[None]:
    """Return a context in which shape inference uses the custom ops of one backend.

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


def kernels(backend: RunsCustomOps) -> dict[str, Kernel]:
    """Return the kernels of the custom ops that this backend can run."""
    table = {name: plain(name, primitive(backend, name)) for name in PRIMITIVES}
    for name, cls in OPS.items():
        if issubclass(cls, Operator) and hasattr(cls, "compute"):
            table[name] = computing(cls)
        elif cls.kernel is not None and not cls.__module__.startswith("mithril_nb."):
            table[name] = declared(cls)
    return table | backend._own


def plain(name: str, function: Callable[..., Any]) -> Kernel:
    """Return a kernel that calls a function of arrays."""
    return lambda call, arrays: _named(name, ("output",), function(*arrays.values()))


def primitive(backend: RunsCustomOps, name: str) -> Callable[..., Any]:
    """Return a primitive of `ml.register_primitive` as a function of arrays.

    JAX differentiates it by the registered gradient; without one, JAX differentiates the function itself. Each backend
    caches the function, because JAX compiles again for a new function object.
    """
    registered = PRIMITIVES[name], GRADIENTS.get(name)
    cached = backend._primitives.get(name)
    if cached is None or cached[0] != registered:
        backend._primitives[name] = cached = registered, _differentiable(backend, name, *registered)
    return cached[1]


def _differentiable(
    backend: RunsCustomOps, name: str, function: Callable[..., Any], gradient: Callable[..., Any] | None
) -> Callable[..., Any]:
    def forward(*arrays: Any) -> Any:
        return function(backend, *arrays)

    if gradient is None:
        return forward

    def backward(arrays: tuple[Any, ...], by_output: Any) -> tuple[Any, ...]:
        gradients = gradient(backend, *arrays, by_output)
        return _gradients(name, arrays, gradients if isinstance(gradients, tuple | list) else (gradients,))

    differentiable = jax.custom_vjp(forward)
    differentiable.defvjp(lambda *arrays: (forward(*arrays), arrays), backward)
    return differentiable


def computing(cls: type[Operator]) -> Kernel:
    """Return a kernel that calls the `compute` method of a block. Each call constructs the block again."""

    def run(call: Call, arrays: Arrays) -> Arrays:
        # Options may be tracers, so a block of an earlier call cannot be used again.
        block = cls(**call.options)
        return _named(f"{cls.__name__}.compute", cls.ports(call.options).outputs, block.compute(dict(arrays)))  # pyright: ignore

    return run


def _named(name: str, ports: tuple[str, ...], result: Any) -> dict[str, Any]:
    by_port = dict(result) if isinstance(result, Mapping) else {"output": result}
    if by_port.keys() != set(ports):
        raise UnknownOptionError(
            f"{name} returned {', '.join(map(repr, by_port)) or 'nothing'}.",
            (("needs", f"a dict with {', '.join(map(repr, ports))}"),),
        )
    for port, array in by_port.items():
        if not isinstance(array, jax.Array) and not hasattr(array, "dtype") and not isinstance(array, int | float):
            raise UnknownOptionError(
                f"{name} did not return an array for {port!r}.",
                (("returned", type(array).__name__),),
            )
    return {port: jnp.asarray(array) for port, array in by_port.items()}


def _gradients(name: str, arrays: tuple[Any, ...], gradients: Any) -> tuple[Any, ...]:
    returned, needed = [jnp.shape(gradient) for gradient in gradients], [jnp.shape(array) for array in arrays]
    if returned != needed:
        raise ShapeError(
            f"{name}_grad does not return a gradient of the shape of each input.",
            (("returned", ", ".join(map(str, returned))), ("inputs", ", ".join(map(str, needed)))),
        )
    return tuple(
        # `jax.custom_vjp` takes None as the gradient of an integer input.
        jnp.asarray(gradient, dtype) if jnp.issubdtype(dtype, jnp.inexact) else None
        for gradient, dtype in zip(gradients, map(jnp.result_type, arrays), strict=True)
    )


# Shapes


def shapes(
    cls: type[Operator], options: Options, inputs: Specs, *, default: Callable[[], RunsCustomOps]
) -> dict[str, TensorSpec] | None:
    """Infer the output specs of a custom op by tracing its function; `None` if unknown.

    The specs are unknown if JAX cannot trace the function with the unknown sizes of the inputs. They are also unknown
    if several backends have different functions with this name, and `inferring_for` selects none of the backends.
    """
    texts = [spec.shape for spec in inputs.values()]
    # JAX's symbolic shapes have no unknown rank, and derived sizes, such as `(h-1)//2+1`, are in a form of our own.
    if any(LEADING in shape or not all(isinstance(d, int) or d.isidentifier() for d in shape) for shape in texts):
        return None
    inferred: list[dict[str, TensorSpec] | None] = []
    refusals: list[MithrilError | MismatchError] = []
    # Backends may have different functions of one name: all must agree, else the specs are unknown.
    for kernel in _kernels_of(cls.op, default):
        try:
            inferred.append(_specs(cls.op, kernel, options, inputs))
        except (MismatchError, UnknownOptionError, ShapeError) as refusal:
            refusals.append(refusal)
    if refusals and not inferred:
        raise refusals[0]
    return inferred[0] if inferred and not refusals and all(specs == inferred[0] for specs in inferred) else None


def _kernels_of(op: str, default: Callable[[], RunsCustomOps]) -> list[Kernel]:
    backend = _inferring.get()
    if backend is None:
        registered = [owner._own[op] for owner in REGISTERED.get(op, ())]
        if registered:
            return registered
        backend = default()
    kernel = kernels(backend).get(op)
    return [] if kernel is None else [kernel]


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
        # JAX sorts the keys of a dict, but the function takes its arrays in the order of the ports.
        outputs = jax.eval_shape(lambda arrays: dict(kernel(call, {port: arrays[port] for port in inputs})), structs)
    except (UnknownOptionError, ShapeError):
        raise
    except Exception as error:
        if is_symbolic:  # some functions cannot be traced with symbolic sizes; try again when sizes are known
            return None
        first = (str(error).strip().splitlines() or [""])[0]
        because = f"{type(error).__name__}: {first}".removesuffix(": ")
        if not isinstance(error, tuple(_NEEDS_VALUES)) and isinstance(error, TypeError | ValueError):
            raise MismatchError(next(iter(inputs), ""), f"arrays that {op!r} accepts", "", because) from error
        raise UnknownOptionError(
            f"the function of the op {op!r} fails.",
            (
                ("because", because),
                ("where", _place(error)),
                ("given", ", ".join(f"{port!r} {spec}" for port, spec in inputs.items())),
            ),
            next((advice for kind, advice in _NEEDS_VALUES.items() if isinstance(error, kind)), ""),
        ) from error
    specs = {port: (tuple(map(_dim, struct.shape)), str(as_dtype(struct.dtype))) for port, struct in outputs.items()}
    if any(dim is None for shape, _ in specs.values() for dim in shape):
        return None
    return {port: TensorSpec(shape, dtype) for port, (shape, dtype) in specs.items()}  # pyright: ignore


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "a function that is not in a file"


def _dim(dim: Any) -> int | str | None:
    if isinstance(dim, int):
        return dim
    text = str(dim).replace(" ", "")
    # JAX prints a quotient as `floordiv(a, 2)`, which specs do not contain.
    return text if re.fullmatch(r"[\w*+-]+", text) else None
