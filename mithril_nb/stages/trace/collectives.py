"""How equations of a program on several devices communicate: the groups of collectives, and what XLA partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import Param
from mithril_nb.stages.trace.equations import Site

GROUP = "group_size"
"""Name of the param of a collective that is the number of devices in a group; `None` if unknown."""
PARTITIONED = "partitioned"
"""Name of the param of an equation on sharded arrays: XLA's partitioner decides what it sends to other devices."""
COLLECTIVES: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "psum", "psum_start", "psum_invariant", "psum_invariant_start", "pmax", "pmin", "unreduced_psum",
            "unreduced_psum_start", "unreduced_pmax", "unreduced_pmin",
        ),
        "all-reduce",
    ),
    **dict.fromkeys(
        (
            "all_gather", "all_gather_start", "all_gather_invariant", "all_gather_reduced", "all_gather_reduced_start",
        ),
        "all-gather",
    ),
    **dict.fromkeys(
        (
            "reduce_scatter", "reduce_scatter_start", "unreduced_reduce_scatter", "unreduced_reduce_scatter_start",
        ),
        "reduce-scatter",
    ),
    **dict.fromkeys(("all_to_all", "all_to_all_start"), "all-to-all"),
    **dict.fromkeys(("ppermute", "ppermute_start", "psend"), "collective-permute"),
    **dict.fromkeys(("pbroadcast", "pbroadcast_dynamic", "pbroadcast_start"), "collective-broadcast"),
    "ragged_all_to_all": "ragged-all-to-all",
}  # fmt: skip
"""Primitives that send data to other devices, with the opcode of HLO that does the same."""
_PLACING = frozenset(
    {"shard_map", "sharding_constraint", "reshard", "device_put", "jit", "pjit", "broadcast_in_dim", "iota"}
)
_LOOPS = frozenset({"scan", "while"})


def collective_params(site: Site, is_partitioned: bool) -> tuple[tuple[str, Param], ...]:
    """Return what the communication of an equation depends on, as params; none for an equation that sends nothing.

    Args:
        site: The equation at its place: the `shard_map` around it has the sizes of the axes.
        is_partitioned: Whether XLA's partitioner decides what it sends.

    Returns:
        For a collective `"group_size"`: the product of the sizes of its mesh axes, or the size of the largest of its
        `axis_index_groups`. `"partitioned"` where the partitioner decides.
    """
    partitioned: tuple[tuple[str, Param], ...] = ((PARTITIONED, True),) if is_partitioned else ()
    if site.primitive not in COLLECTIVES:
        return partitioned
    params = site.equation.params
    groups = params.get("axis_index_groups")
    if groups:
        return ((GROUP, max(map(len, groups))), *partitioned)
    names = params.get("axes", params.get("axis_name", ()))
    size: int | None = 1
    for name in names if isinstance(names, tuple | list) else (names,):
        each = 1 if isinstance(name, int) else _axis_size(site, name)
        size = None if size is None or each is None else size * each
    return ((GROUP, size), *partitioned)


def _axis_size(site: Site, name: Any) -> int | None:
    around = site.parent
    while around is not None:
        sizes = getattr(around.equation.params.get("mesh"), "shape", {}) if around.primitive == "shard_map" else {}
        if name in sizes:
            return int(sizes[name])
        around = around.parent
    return None


def partitioned_ids(
    jaxpr: Any, top: Sequence[Site], sites: Iterable[Site], is_sharded: Sequence[bool]
) -> frozenset[str]:
    """Return the ids of the equations on sharded arrays for which XLA's partitioner decides what they send.

    An array is sharded if it is a sharded argument, if a constraint or the `shard_map` that makes it gives it a
    sharding, or if it is computed from a sharded array. In a `shard_map` the program decides, unless the mesh has
    axes that the `shard_map` leaves automatic: arrays may then be sharded along those.

    Args:
        jaxpr: The jaxpr of the program, open.
        top: The sites of its equations.
        sites: The sites of all equations, those of nested jaxprs too.
        is_sharded: For each of its arguments whether it is divided among several devices.
    """
    if not any(is_sharded) and not any(site.primitive in _PLACING and _places(site.equation.params) for site in sites):
        return frozenset()
    flow = _Sharded()
    flow.walk(top, {var for var, one in zip(jaxpr.invars, is_sharded, strict=True) if one})
    return frozenset(flow.found)


def _places(params: Mapping[str, Any]) -> bool:
    """Return whether a call or a constraint shards anything."""
    asked = (*params.get("in_shardings", ()), *params.get("out_shardings", ()), *_asked(params))
    return "out_specs" in params or any(map(_is_divided, asked))


def _asked(params: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the shardings that an equation gives to its results."""
    return params.get("sharding"), params.get("dst_sharding"), *params.get("devices", ())


class _Sharded:
    """Follows sharded arrays through a jaxpr and its bodies."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def walk(self, sites: Sequence[Site], sharded: set[Any]) -> None:
        """Find the equations of a body on sharded arrays.

        Args:
            sites: The equations of the body.
            sharded: Its variables that are sharded; those that the equations make are added.
        """
        for site in sites:
            equation = site.equation
            given = [var in sharded for var in site.variables]
            if site.primitive == "shard_map":
                if any(given) and _has_free_axes(equation.params):
                    sharded.update(self._enter(site, sharded))
                specs = zip(equation.outvars, equation.params["out_specs"], strict=True)
                sharded.update(var for var, spec in specs if any(axis is not None for axis in spec))
            elif site.bodies:
                sharded.update(self._enter(site, sharded))
            else:
                if any(given):
                    self.found.add(site.id)
                if any(given) or any(map(_is_divided, _asked(equation.params))):
                    sharded.update(equation.outvars)

    def _enter(self, site: Site, sharded: set[Any]) -> list[Any]:
        """Return which results of an equation with bodies are sharded."""
        params, atoms = site.equation.params, site.equation.invars
        asked = params.get("in_shardings", (None,) * len(atoms))
        given = [
            (not jax_versions.is_literal(atom) and atom in sharded) or _is_divided(one)
            for atom, one in zip(atoms, asked, strict=True)
        ]
        made = [_is_divided(one) for one in params.get("out_shardings", (None,) * len(site.equation.outvars))]
        for body, inside in site.bodies:
            # Which operand is which variable of a body differs by primitive, and what a loop carries goes round.
            is_call = site.primitive not in _LOOPS and len(body.invars) == len(given)
            inner = {var for place, var in enumerate(body.invars) if (given[place] if is_call else any(given))}
            self.walk(inside, inner)
            results = [not jax_versions.is_literal(atom) and atom in inner for atom in body.outvars]
            if site.primitive in _LOOPS and any(results):
                self.walk(inside, {*inner, *body.invars})
                results = [True] * len(results)
            if len(results) != len(made):
                results = [any(results)] * len(made)
            made = [one or other for one, other in zip(made, results, strict=True)]
        return [var for var, is_sharded in zip(site.equation.outvars, made, strict=True) if is_sharded]


def _has_free_axes(params: Mapping[str, Any]) -> bool:
    """Return whether the mesh of a `shard_map` has axes over which XLA's partitioner may divide its body."""
    mesh, own = params["mesh"], params.get("newly_manual_axes", params.get("manual_axes", ()))
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    return any(
        size > 1 and name not in own and types[name] != jax.sharding.AxisType.Manual
        for name, size in mesh.shape.items()
    )


def divided(arguments: Iterable[Any], traced: Any) -> tuple[bool, ...]:
    """Return for each argument of a program whether it is divided among several devices.

    Args:
        arguments: The arguments, arrays or shapes, in the order of the jaxpr's inputs.
        traced: JAX's trace of the program, with the shardings that its `jax.jit` has.
    """
    leaves = list(arguments)
    asked = jax_versions.in_shardings(traced) or [None] * len(leaves)
    typed = traced.jaxpr.in_avals
    return tuple(
        any(map(_is_divided, (getattr(leaf, "sharding", None), one, getattr(aval, "sharding", None))))
        for leaf, one, aval in zip(leaves, asked, typed, strict=True)
    )


def _is_divided(sharding: Any) -> bool:
    if sharding is None or type(sharding).__name__ == "UnspecifiedValue":
        return False
    if hasattr(sharding, "spec"):
        sizes = sharding.mesh.shape
        names = [name for axes in sharding.spec if axes for name in (axes if isinstance(axes, tuple) else (axes,))]
        # Where the spec has no name, XLA chooses.
        return any(not isinstance(name, str) or sizes.get(name, 1) > 1 for name in names)
    return hasattr(sharding, "is_fully_replicated") and not sharding.is_fully_replicated
