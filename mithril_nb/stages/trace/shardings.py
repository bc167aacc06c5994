"""The shardings that the user specified in a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

import jax

from mithril_nb.stages import jax_jit, jax_versions
from mithril_nb.stages.trace.traced import Program

_PARAMS = ("sharding", "dst_sharding", "out_sharding")


def stated_shardings(program: Program, arguments: Any) -> dict[str, str]:
    """Return the partition specs of sharded arguments, and of results whose sharding the program specifies.

    Examples:
        >>> mesh = jax.sharding.AbstractMesh((2,), ("x",), (jax.sharding.AxisType.Auto,))
        >>> sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
        >>> x = jax.ShapeDtypeStruct((4,), "float32", sharding=sharding)
        >>> from mithril_nb.inspection import inspect_function as inspect
        >>> stated_shardings(inspect(jax.numpy.sin, x).traced_program, x)
        {'arg0': "P('x',)"}
    """
    # Keys are ids of instructions of the jaxpr: `{"arg0": "P('x',)"}`. XLA chooses all other shardings.
    traced = program.trace.traced
    specs_by_id: dict[str, str] = {}
    leaves = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(arguments)]
    for at, each in enumerate(zip_longest(jax_jit.shardings(traced, "in_shardings"), leaves)):
        specs_by_id[f"arg{at}"] = _text([spec for sharding in each for spec in _specs_of(sharding)][:1])
    makers = {var: site.id for site in program.sites for var in site.equation.outvars if "." not in site.id}
    results = zip(program.trace.closed.jaxpr.outvars, jax_jit.shardings(traced, "out_shardings"), strict=False)
    specs_by_id |= {site.id: _text(_stated(site.equation)) for site in program.sites}
    for var, sharding in results:
        if not jax_versions.is_literal(var) and var in makers and (text := _text(_specs_of(sharding))):
            specs_by_id[makers[var]] = specs_by_id[makers[var]] or text
    return {id: text for id, text in specs_by_id.items() if text}


def _stated(equation: Any) -> Iterator[Any]:
    params = equation.params
    if equation.primitive.name == "shard_map":
        yield from params["out_specs"]
        return
    for stated in (*(params.get(name) for name in _PARAMS), *params.get("out_shardings", ())):
        yield from _specs_of(stated)
    for var in equation.outvars:  # a mesh with explicit axes is a part of the types
        sharding = getattr(var.aval, "sharding", None)
        if "Explicit" in str(getattr(getattr(sharding, "mesh", None), "axis_types", "")):
            yield from _specs_of(sharding)


def _specs_of(sharding: Any) -> list[Any]:
    spec = getattr(sharding, "spec", None)
    return [] if spec is None else [spec]


def _text(specs: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(repr(spec).replace("PartitionSpec(", "P(", 1) for spec in specs))
