"""Types, transforms and settings of values that JAX traces."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax._src import config
from jax.core import Tracer

_TRANSFORMS = {
    "Batch": "mapped (vmap)",
    "JVP": "differentiated in forward mode (jvp)",
    "Linearize": "differentiated in reverse mode (grad, vjp)",
    "Jaxpr": "differentiated in reverse mode (grad, vjp)",  # with `jax_use_direct_linearize` off
}


def type_of(value: Any) -> tuple[str, bool]:
    """Return the type of an array or Python scalar as text, and whether it is weak.

    Examples:
        >>> import jax.numpy as jnp
        >>> type_of(jnp.zeros((2, 3))), type_of(1.5)
        (('f32[2,3]', False), ('f32[]', True))
    """
    aval: Any = jax.typeof(value)
    if not hasattr(aval, "str_short"):
        return str(aval), False
    return aval.str_short(short_dtypes=True).lstrip("~"), bool(getattr(aval, "weak_type", False))


def mesh_of(value: Any) -> str:
    """Return the mesh and sharding in the type of an array as text, `""` if it has none."""
    sharding = getattr(jax.typeof(value), "sharding", None)
    return "" if sharding is None or sharding.mesh.empty else str(sharding)


class Transform(NamedTuple):
    """A transformation around a call for which JAX compiles a separate program.

    Attributes:
        text: Its description, such as `"mapped (vmap)"`.
        size: Size of the axis that `jax.vmap` maps over; `None` for others.
    """

    text: str
    size: int | None = None


def transforms_of(value: Any) -> dict[Any, tuple[Transform, str]]:
    """Return the transformations that a value is traced by, outside an outer `jax.jit`.

    Returns:
        For each JAX trace its transformation and the part of the value in it, such as the mapped axis.
    """
    found: dict[Any, tuple[Transform, str]] = {}
    left = [value]
    while left:
        tracer = left.pop()
        kind = type(tracer).__name__.removesuffix("Tracer")
        if not isinstance(tracer, Tracer) or kind.startswith(("DynamicJaxpr", "Jit")):
            continue
        trace = tracer._trace
        size = getattr(getattr(trace, "axis_data", None), "size", None)
        axis = f" over its axis {tracer.batch_dim}" if isinstance(getattr(tracer, "batch_dim", None), int) else ""  # pyright: ignore[reportAttributeAccessIssue]
        found[trace] = (Transform(_TRANSFORMS.get(kind, f"inside the transformation {kind}"), size), axis)
        left += [getattr(tracer, name) for name in ("tangent", "primal", "val") if hasattr(tracer, name)]
    return found


def depth_of(trace: Any) -> int:
    """Return the number of JAX traces around a trace."""
    depth = 0
    while (trace := getattr(trace, "parent_trace", None)) is not None:
        depth += 1
    return depth


def is_jit_disabled() -> bool:
    """Return whether this thread is inside `jax.disable_jit()`."""
    return bool(config.disable_jit.value)


def trace_context() -> dict[str, Any]:
    """Return the settings of JAX on this thread that are part of the key of its trace cache, by name."""
    return dict(zip(config.trace_context_names(), config.trace_context(), strict=False))
