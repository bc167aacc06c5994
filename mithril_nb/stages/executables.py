"""Files with compiled programs, which JAX loads on the machine that has the device."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import export
from jax.experimental import serialize_executable
from jax.sharding import NamedSharding

from mithril_nb.errors import StageUnavailableError
from mithril_nb.hardware import Device, serialize_remotely
from mithril_nb.stages import jax_jit
from mithril_nb.stages.trace.tracing import Trace


def file_of_compiled(compiled: jax.stages.Compiled) -> bytes:
    """Return the contents of a file with a program that was compiled on this machine."""
    return pickle.dumps(serialize_executable.serialize(compiled))


def compiled_elsewhere(
    trace: Trace, args: tuple[Any, ...], lowered: jax.stages.Lowered, device: Device, options: Mapping[str, Any]
) -> bytes:
    """Compile a program for a device that the machine does not have, and return the contents of its file.

    Raises:
        StageUnavailableError: JAX cannot export the program.
    """
    run = trace.call(trace.closed)
    leaves = jax.tree.leaves(args)
    facts = jax_jit.compile_facts(lowered)
    placed = [getattr(leaf, "sharding", None) for leaf in leaves]
    meshes = [sharding.mesh for sharding in placed if isinstance(sharding, NamedSharding)]
    shapes = [
        jax.ShapeDtypeStruct(
            aval.shape,
            aval.dtype,
            weak_type=aval.weak_type,
            sharding=sharding if isinstance(sharding, NamedSharding) else None,
        )
        for aval, sharding in zip(trace.closed.in_avals, placed, strict=True)
    ]
    jitted = jax.jit(_flat(run), out_shardings=_results(trace))
    exported = export.export(jitted, platforms=[device.platform])(*shapes)
    if exported.nr_devices != facts["partitions"] or (exported.nr_devices > 1 and not meshes):
        raise StageUnavailableError(
            f"no file of an executable for {device}: no argument of {trace.name!r} has a sharding.",
            (("devices", str(facts["partitions"])),),
            "jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))  # for an argument",
        )
    donated = [index for index, is_donated in enumerate(trace.donated_leaves) if is_donated]
    axes = dict(meshes[0].shape) if meshes else {}
    facts |= {"donated": donated, "axes": axes, "x64": jax.config.read("jax_enable_x64")}
    data = serialize_remotely(device, bytes(exported.serialize()), options, facts)
    return pickle.dumps((data, jax.tree.structure((args, {})), jax.tree.structure(trace.traced.out_info)))


def _flat(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: jax.tree.leaves(run(*arrays))


def _results(trace: Trace) -> Any:
    shardings = jax_jit.shardings(trace.traced, "out_shardings")
    specified = [sharding if isinstance(sharding, NamedSharding) else None for sharding in shardings]
    return specified if any(specified) else None
