"""JAX internals of `jax.jit` that may change between releases: its traces, caches, contexts and tracers.

Complements `jax_versions`, which reads equations; tested with 0.10.2 and 0.12.0.
"""

from __future__ import annotations

import copy
import io
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import compilation_cache as cache
from jax._src import config
from jax._src.interpreters import pxla
from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]
from jax.core import Tracer
from jax.sharding import AbstractMesh, Mesh
from jaxlib.mlir import ir

_cache_lock = threading.Lock()
_without_cache: list[Any] = []

# JAX settings that change the result of a trace, with the context manager that sets each.
_CONTEXT: dict[str, Callable[[Any], AbstractContextManager[Any]]] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_default_device": jax.default_device,
    "jax_default_prng_impl": jax.default_prng_impl,
    "jax_threefry_partitionable": jax.threefry_partitionable,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
}
# JAX settings that `jax._src.compiler.get_compile_options` reads: they change how XLA compiles. JAX 0.12 has not
# all of them. Other settings change the trace or the lowered program.
_OF_COMPILER = (
    "jax_use_shardy_partitioner",
    "jax_compiler_enable_remat_pass",
    "jax_optimization_level",
    "jax_memory_fitting_level",
    "jax_exec_time_optimization_effort",
    "jax_memory_fitting_effort",
    "jax_xla_profile_version",
)


class JitWrapper:
    """Base of callables that wrap a jitted function, their attribute `__wrapped__`."""

    __wrapped__: Any


def without_wrapper(function: Any) -> Any:
    """Return the jitted function of a `JitWrapper`, or any other object unchanged."""
    return function.__wrapped__ if isinstance(function, JitWrapper) else function


def donated(traced: Any) -> tuple[bool, ...]:
    """Return for each input of a traced function whether it is donated; false if unknown."""
    count = len(traced.jaxpr.jaxpr.invars)
    return tuple(getattr(traced, "_params", {}).get("donated_invars", (False,) * count))


def declares_shardings(jitted: Any) -> bool:
    """Return whether a jitted function, or its trace, declares the sharding of its arguments or results."""
    params = getattr(jitted, "_params" if isinstance(jitted, jax.stages.Traced) else "params", {})
    declared = (*params.get("in_shardings", ()), *params.get("out_shardings", ()))
    # The class is private: `jax._src.named_sharding.UnspecifiedValue`.
    return any(type(sharding).__name__ != "UnspecifiedValue" for sharding in declared)


def shardings(traced: Any, side: str) -> Sequence[Any]:
    """Return the `in_shardings` or `out_shardings` of the traced `jax.jit`, one per array; `()` if unknown."""
    variables = traced.jaxpr.jaxpr.invars if side == "in_shardings" else traced.jaxpr.jaxpr.outvars
    values = getattr(traced, "_params", {}).get(side, ())
    return values if len(values) == len(variables) else ()


def with_jaxpr(traced: Any, closed: Any, name: str, donated: tuple[bool, ...]) -> Any:
    """Return a copy of a traced function with another jaxpr, whose inputs and outputs are the same.

    `donated`: For each input array, True if its memory may be reused for results.
    """
    # This uses private attributes of JAX. Its public functions would trace every equation again, which takes as long
    # as lowering.
    other = copy.copy(traced)
    other._params = {**traced._params, "jaxpr": closed, "name": name, "donated_invars": donated}
    other._lojax = None  # JAX lowers this cached form of the old jaxpr if it is set
    return other


NO_DEVICES = "only AbstractMesh exists"
"""Part of JAX's error about a program that is lowered for a mesh without devices."""


def for_all_devices(lowered: jax.stages.Lowered, equations: Iterable[Any], is_here: bool) -> jax.stages.Lowered:
    """Return a program lowered for as many devices as the meshes in its equations have, if they are abstract.

    `is_here`: True if it is lowered for this machine, which has no such devices.
    """
    # JAX takes the number of devices from shardings of arguments and results. If only a constraint or a `shard_map` in
    # the body has an abstract mesh, it lowers for one device, and XLA ignores the mesh (jax 0.10.2 and 0.12.0).
    facts = lowered._lowering.compile_args  # pyright: ignore
    count = max((mesh.size for mesh in meshes_of(equations) if isinstance(mesh, AbstractMesh)), default=1)
    if count > facts["num_devices"] == 1:
        if is_here:
            raise ValueError(NO_DEVICES)
        facts["num_devices"] = count
        module: Any = lowered.compiler_ir("stablehlo")
        with module.context:
            number = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), count)
            module.operation.attributes["mhlo.num_partitions"] = number
    return lowered


def meshes_of(equations: Iterable[Any]) -> Iterator[Mesh | AbstractMesh]:
    """Yield the meshes in the parameters of equations, such as those of constraints and of `shard_map`."""
    values = (value for equation in equations for value in equation.params.values())
    for value in values:
        mesh = value if isinstance(value, Mesh | AbstractMesh) else getattr(value, "mesh", None)
        if isinstance(mesh, Mesh | AbstractMesh) and not mesh.empty:
            yield mesh


def converted_once(lowered: jax.stages.Lowered) -> jax.stages.Lowered:
    """Make a lowered program cache its conversion to HLO, and return it."""
    # JAX converts again for each text and each cost analysis. For a program of 2,000 instructions, each conversion
    # takes as long as lowering.
    lowering = getattr(lowered, "_lowering", None)
    if lowering is not None and hasattr(lowering, "hlo"):
        lowering.hlo = lru_cache(maxsize=1)(lowering.hlo)
    return lowered


def compile_facts(lowered: jax.stages.Lowered) -> dict[str, Any]:
    """Return what XLA needs to know of a lowered program beside its module, as JAX passes it to the compiler."""
    arguments = lowered._lowering.compile_args  # pyright: ignore
    inputs, outputs = pxla.get_prop_to_input_output(
        arguments["in_shardings"], arguments["out_shardings"], len(arguments["ordered_effects"])
    )
    return {
        "partitions": arguments["num_devices"],
        "propagate_inputs": inputs,
        "propagate_outputs": outputs,
        "settings": compiler_settings(),
    }


def compiler_settings() -> dict[str, Any]:
    """Return the settings of JAX that change how XLA compiles."""
    settings = {name: getattr(jax.config, name) for name in _OF_COMPILER if hasattr(jax.config, name)}
    return {**settings, "jax_disable_most_optimizations": jax.config.read("jax_disable_most_optimizations")}


Parts = tuple[tuple[int, ...], ...]
"""The slice of an array that each device holds: for each device, the number of the part along each dimension."""


def slices(
    executable: Any, lowered: jax.stages.Lowered, ranks: tuple[Sequence[int], Sequence[int]]
) -> tuple[list[Parts | None], list[Parts | None]]:
    """Return the slices of the arguments and of the results of a compiled program; `None` where they are unknown.

    `ranks`: Numbers of dimensions of the arguments and of the results.
    """
    facts = lowered._lowering.compile_args  # pyright: ignore
    runtime, devices = executable.runtime_executable(), facts["num_devices"]
    inputs, outputs = runtime.get_parameter_shardings() or [], runtime.get_output_shardings() or []
    # XLA returns the sharding of a single result alone, and of several as one tuple.
    outputs = [part for sharding in outputs for part in (sharding.tuple_shardings or [sharding])]
    used = sorted(facts["kept_var_idx"])  # JAX drops unused arguments
    if len(inputs) != len(used) or len(outputs) != len(ranks[1]):  # such as tokens of ordered effects
        return [None] * len(ranks[0]), [None] * len(ranks[1])
    arguments: list[Parts | None] = [None] * len(ranks[0])
    parse = xla_client.HloSharding.from_proto
    for index, sharding in zip(used, inputs, strict=True):
        arguments[index] = _parts(parse(sharding), ranks[0][index], devices)
    return arguments, [_parts(parse(sharding), rank, devices) for sharding, rank in zip(outputs, ranks[1], strict=True)]


def parts_in(text: str, rank: int, devices: int) -> Parts | None:
    """Return the slice of each device from the attribute `sharding` of an instruction; `None` if it is of another kind.

    Examples:
        >>> parts_in("{devices=[2,1,2]<=[4] last_tile_dim_replicate}", 2, 4)
        ((0, 0), (0, 0), (1, 0), (1, 0))
    """
    try:
        hlo = xla_client.HloSharding.from_string(text)
    except (RuntimeError, ValueError):
        return None
    return _parts(hlo, rank, devices)


def _parts(hlo: Any, rank: int, devices: int) -> Parts | None:
    if hlo.is_replicated():
        return ((0,) * rank,) * devices
    tiles, order = hlo.tile_assignment_dimensions(), hlo.tile_assignment_devices()
    if not hlo.is_tiled() or len(order) != devices or hlo.is_manual() or hlo.is_unreduced():
        return None
    parts: list[tuple[int, ...]] = [()] * devices
    for position, device in enumerate(order):
        # The dimensions after those of the array are devices with the same slice.
        parts[device] = tuple(int(number) for number in np.unravel_index(position, tiles)[:rank])
    return tuple(parts)


def bytecode(lowered: jax.stages.Lowered) -> bytes:
    """Return the StableHLO of a lowered program as MLIR bytecode, with its locations."""
    file = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(file)  # pyright: ignore
    return file.getvalue()


@contextmanager
def without_compilation_cache() -> Iterator[None]:
    """Turn off JAX's persistent compilation cache inside a `with` block, so that nothing is read or written there."""
    # JAX decides once per process whether to use the cache, and has no public way to bypass it once.
    if not getattr(jax.config, "jax_compilation_cache_dir", None):
        yield
        return
    with _cache_lock:  # two programs may compile at once: the first disables the cache, the last enables it again
        if not _without_cache:
            _without_cache.append((cache._cache_checked, cache._cache_used))
        # The first entry is the state to restore, each further one a program that compiles now.
        _without_cache.append(())
        cache._cache_checked, cache._cache_used = True, False
    try:
        yield
    finally:
        with _cache_lock:
            _without_cache.pop()
            if len(_without_cache) == 1:
                cache._cache_checked, cache._cache_used = _without_cache.pop()


@lru_cache(maxsize=1)
def hold_types_of_stats() -> tuple[type, ...]:
    """Keep jaxlib 0.12 from aborting the process when a profile is read."""
    # jaxlib creates a Python type for the statistics of an event, and Python warns that this type has no module. If
    # the user has turned warnings into errors, jaxlib aborts. This function creates the type with the warning
    # ignored. The caller must keep the result, so that jaxlib uses this type again.
    trace = "planes { lines { events { metadata_id: 1 } } event_metadata { key: 1 value { id: 1 } } }"
    data = jax.profiler.ProfileData.from_serialized_xspace(
        jax.profiler.ProfileData.text_proto_to_serialized_xspace(trace)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return tuple(type(event.stats) for plane in data.planes for line in plane.lines for event in line.events)


def context_now() -> Callable[[], AbstractContextManager[None]]:
    """Return a function that creates context managers."""
    # Inside them, JAX has the settings that it has now.
    # These are 64-bit mode, precision, random keys, device, mesh, and others. A stage may be computed later, outside
    # of the `with` block in which the user called `inspect`, or in another thread. There, JAX has other settings.
    config: Any = jax.config
    settings = [(enter, getattr(config, name)) for name, enter in _CONTEXT.items()]
    mesh = jax.sharding.get_mesh()

    @contextmanager
    def again() -> Iterator[None]:
        with ExitStack() as stack:
            for enter, value in settings:
                stack.enter_context(enter(value))
            if not mesh.empty:
                stack.enter_context(jax.set_mesh(mesh))
            yield

    return again


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
    # A weak type, as that of a Python scalar, adapts to the dtype of the other operands.
    aval: Any = jax.typeof(value)
    if not hasattr(aval, "str_short"):
        return str(aval), False
    # JAX marks weak types with `~`, which is returned separately here.
    return aval.str_short(short_dtypes=True).lstrip("~"), bool(getattr(aval, "weak_type", False))


def mesh_of(value: Any) -> str:
    """Return the mesh and sharding in the type of an array as text; `""` if it has none."""
    sharding = getattr(jax.typeof(value), "sharding", None)
    return "" if sharding is None or sharding.mesh.empty else str(sharding)


class Transform(NamedTuple):
    """A JAX transformation around a call, such as `jax.vmap`. JAX then compiles a separate program for the call.

    Attributes:
        text: Description of the transformation, such as `"mapped (vmap)"`.
        size: Size of the axis that `jax.vmap` maps over; `None` for other transformations.
    """

    text: str
    size: int | None = None


def transforms_of(value: Any) -> dict[Any, tuple[Transform, str]]:
    """Return the transformations to which a tracer belongs, except `jax.jit`.

    Returns:
        A dict from JAX's trace object of each transformation to the transformation, and a text for messages: for
        `jax.vmap` the mapped axis of the value, as in `" over its axis 0"`, else `""`.
    """
    transforms: dict[Any, tuple[Transform, str]] = {}
    left = [value]
    while left:
        tracer = left.pop()
        kind = type(tracer).__name__.removesuffix("Tracer")
        if not isinstance(tracer, Tracer) or kind.startswith(("DynamicJaxpr", "Jit")):
            continue
        trace = tracer._trace
        size = getattr(getattr(trace, "axis_data", None), "size", None)
        axis = f" over its axis {tracer.batch_dim}" if isinstance(getattr(tracer, "batch_dim", None), int) else ""  # pyright: ignore[reportAttributeAccessIssue]
        transforms[trace] = (Transform(_TRANSFORMS.get(kind, f"inside the transformation {kind}"), size), axis)
        # In nested transformations, the tracer has the tracer of the outer transformation in one of these attributes.
        left += [getattr(tracer, name) for name in ("tangent", "primal", "val") if hasattr(tracer, name)]
    return transforms


def depth_of(trace: Any) -> int:
    """Return the number of parents of a JAX trace."""
    depth = 0
    while (trace := getattr(trace, "parent_trace", None)) is not None:
        depth += 1
    return depth


def is_jit_disabled() -> bool:
    """Return whether this thread is inside `jax.disable_jit()`."""
    return bool(config.disable_jit.value)


def trace_context() -> dict[str, Any]:
    """Return by name the settings of JAX on this thread that are part of the key of JAX's trace cache."""
    return dict(zip(config.trace_context_names(), config.trace_context(), strict=False))
