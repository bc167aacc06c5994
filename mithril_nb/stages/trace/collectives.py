"""How equations of a program on several devices communicate: the groups of collectives, and what XLA partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from mithril_nb.stages import jax_jit, jax_versions
from mithril_nb.stages.records import Equation, Param
from mithril_nb.stages.trace.equations import Site

if TYPE_CHECKING:
    from mithril_nb.stages.trace.traced import Input

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


Layout = tuple[Any, ...]
"""How an array is divided: the sizes of the mesh, and the axes that divide each dimension; `()` if nobody knows."""
UNKNOWN: Layout = ()


def partitioned_ids(
    jaxpr: Any,
    top: Sequence[Site],
    sites: Iterable[Site],
    layouts: Sequence[Layout | None],
    asked: Sequence[Any],
    are_placed: Sequence[bool],
) -> frozenset[str]:
    """Return the ids of the equations for which XLA's partitioner decides what they send to other devices.

    `"arg0"` is among them if the program returns its first argument with another sharding.

    An array is sharded if it is a sharded argument, if a constraint or the `shard_map` that makes it gives it a
    sharding, or if it is computed from a sharded array. In a `shard_map` the program decides, unless the mesh has
    axes that the `shard_map` leaves automatic: arrays may then be sharded along those. Where a `shard_map`, a call or
    the end of the program asks for another sharding than the array has, the partitioner moves it. It also divides
    arrays that a `shard_map` or a constraint takes divided, and what they are computed from, if nothing places them.

    Args:
        jaxpr: The jaxpr of the program, open.
        top: The sites of its equations.
        sites: The sites of all equations, those of nested jaxprs too.
        layouts: How each of its arguments is divided; `None` for one that is not.
        asked: The shardings that are asked for its results; `()` if none are.
        are_placed: For each of its arguments whether it has a sharding, divided or not, that XLA keeps.
    """
    is_placed = any(site.primitive in _PLACING and _places(site.equation.params) for site in sites)
    if not is_placed and not any(one is not None for one in layouts) and not any(map(_is_divided, asked)):
        return frozenset()
    flow = _Sharded()
    pulled: dict[Any, Layout] = {}
    flow.pull(top, pulled)
    sharded: dict[Any, Layout] = {}
    for var, one, is_placed in zip(jaxpr.invars, layouts, are_placed, strict=True):
        layout = one if one is not None or is_placed else pulled.get(var)
        sharded.update({} if layout is None else {var: layout})
    flow.walk(top, sharded)
    makers = {var: f"arg{place}" for place, var in enumerate(jaxpr.invars)}
    makers |= {var: site.id for site in top for var in site.equation.outvars}
    for atom, one in zip(jaxpr.outvars, asked, strict=True) if asked else ():
        if _is_asked(one) and not jax_versions.is_literal(atom) and atom in makers:
            have = sharded.get(atom)
            is_whole = have is None and atom in jaxpr.invars  # each device cuts out its part
            flow.found.update([makers[atom]] if _moves(have, _layout(one)) and not is_whole else [])
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

    def walk(self, sites: Sequence[Site], sharded: dict[Any, Layout]) -> None:
        """Find the equations of a body on sharded arrays.

        Args:
            sites: The equations of the body.
            sharded: How its sharded variables are divided; those that the equations make are added.
        """
        for site in sites:
            equation = site.equation
            is_given = any(var in sharded for var in site.variables)
            if site.primitive == "shard_map":
                self._enter_mapped(site, sharded)
            elif site.bodies:
                sharded.update(self._enter(site, sharded))
            else:
                if is_given:
                    self.found.add(site.id)
                made = [one for one in map(_layout, _asked(equation.params)) if one is not None]
                if is_given or made:
                    sharded.update(dict.fromkeys(equation.outvars, made[0] if made else UNKNOWN))

    def pull(self, sites: Sequence[Site], pulled: dict[Any, Layout]) -> None:
        """Find the equations of a body that compute what other equations take divided, which XLA may divide as well.

        Args:
            sites: The equations of the body.
            pulled: How variables are divided where they are taken; those of the body are added.
        """
        for site in reversed(sites):
            equation, params = site.equation, site.equation.params
            is_made = any(var in pulled for var in equation.outvars)
            wanted: list[Layout | None] = [None] * len(equation.invars)
            if site.primitive == "shard_map":
                wanted = [_of_spec(params["mesh"], spec) for spec in params["in_specs"]]
            elif site.bodies:
                wanted = self._pull_in(site, pulled)
            elif is_made:
                self.found.add(site.id)
                wanted = [UNKNOWN] * len(wanted)
            else:
                wanted = [next((one for one in map(_layout, _asked(params)) if one is not None), None)] * len(wanted)
            for atom, one in zip(equation.invars, wanted, strict=True):
                if one is not None and not jax_versions.is_literal(atom):
                    pulled[atom] = one if pulled.get(atom, one) == one else UNKNOWN

    def _pull_in(self, site: Site, pulled: Mapping[Any, Layout]) -> list[Layout | None]:
        """Return how an equation with bodies takes its operands divided."""
        operands, results = site.equation.invars, site.equation.outvars
        asked = site.equation.params.get("in_shardings", ())
        wanted: list[Layout | None] = [None] * len(operands)
        if len(asked) == len(operands):
            wanted = [_layout(one) for one in asked]
        for body, inside in site.bodies:
            is_call = len(site.bodies) == 1 and site.primitive not in _LOOPS and len(body.outvars) == len(results)
            made = [pulled.get(var) for var in results] if is_call else [UNKNOWN] * len(body.outvars)
            made = made if is_call or any(var in pulled for var in results) else [None] * len(body.outvars)
            inner: dict[Any, Layout] = {}
            for atom, one in zip(body.outvars, made, strict=True):
                inner.update({} if one is None or jax_versions.is_literal(atom) else {atom: one})
            self.pull(inside, inner)
            taken = [inner.get(var) for var in body.invars]
            if not is_call or len(taken) != len(operands):
                taken = [UNKNOWN if any(one is not None for one in taken) else None] * len(operands)
            wanted = [one if other is None else other for one, other in zip(wanted, taken, strict=True)]
        return wanted

    def _enter_mapped(self, site: Site, sharded: dict[Any, Layout]) -> None:
        params = site.equation.params
        own = params.get("newly_manual_axes", params.get("manual_axes", ()))
        free = _free_axes(params)
        is_open = any(_along(sharded[var], free) is not None for var in site.variables if var in sharded)
        for atom, spec in zip(site.equation.invars, params["in_specs"], strict=True):
            have = None if jax_versions.is_literal(atom) else sharded.get(atom)
            kept = None if have is None else _along(have, own)
            if kept is not None and _moves(kept, _of_spec(params["mesh"], spec)):
                self.found.add(site.id)
        if is_open:
            sharded.update(self._enter(site, sharded))
        for var, spec in zip(site.equation.outvars, params["out_specs"], strict=True):
            made = _of_spec(params["mesh"], spec)
            if made is not None and var not in sharded:
                sharded[var] = UNKNOWN if is_open else made

    def _enter(self, site: Site, sharded: dict[Any, Layout]) -> dict[Any, Layout]:
        """Return how those results of an equation with bodies are divided that are."""
        params, atoms, results = site.equation.params, site.equation.invars, site.equation.outvars
        given = [None if jax_versions.is_literal(atom) else sharded.get(atom) for atom in atoms]
        given = self._asked_for(site, given, params.get("in_shardings", ()))
        whole: list[Layout | None] = [None] * len(results)
        for body, inside in site.bodies:
            # Which operand is which variable of a body differs by primitive, and what a loop carries goes round.
            is_call = site.primitive not in _LOOPS and len(body.invars) == len(given)
            is_any = any(one is not None for one in given)
            each = given if is_call else [UNKNOWN if is_any else None] * len(body.invars)
            inner = {var: one for var, one in zip(body.invars, each, strict=True) if one is not None}
            self.walk(inside, inner)
            made = [None if jax_versions.is_literal(atom) else inner.get(atom) for atom in body.outvars]
            if site.primitive in _LOOPS and any(one is not None for one in made):
                self.walk(inside, {**inner, **dict.fromkeys(body.invars, UNKNOWN)})
                made = [UNKNOWN] * len(made)
            if len(made) != len(whole):
                made = [UNKNOWN if any(one is not None for one in made) else None] * len(whole)
            # Those of a call are as in its body; branches may differ.
            made = made if is_call and len(site.bodies) == 1 else [None if one is None else UNKNOWN for one in made]
            whole = [one if other is None else other for one, other in zip(whole, made, strict=True)]
        whole = self._asked_for(site, whole, params.get("out_shardings", ()))
        return {var: one for var, one in zip(results, whole, strict=True) if one is not None}

    def _asked_for(self, site: Site, layouts: list[Layout | None], asked: Sequence[Any]) -> list[Layout | None]:
        """Return layouts with those in their place that a call asks for, which it may have to move arrays to."""
        if len(asked) != len(layouts):
            return layouts
        pairs = [(have, _layout(one) if _is_asked(one) else have) for have, one in zip(layouts, asked, strict=True)]
        if any(have != wanted and _moves(have, wanted) for have, wanted in pairs):
            self.found.add(site.id)
        return [wanted for _, wanted in pairs]


def _moves(have: Layout | None, wanted: Layout | None) -> bool:
    """Return whether an array may have to be moved to be divided otherwise."""
    return have != wanted or have == UNKNOWN


def _along(layout: Layout, names: Any) -> Layout | None:
    """Return how an array is divided along some axes of the mesh alone."""
    if not names:
        return None
    if layout == UNKNOWN:
        return UNKNOWN
    sizes, dims = layout
    if any({*dim} & {*names} and not {*dim} <= {*names} for dim in dims):
        return UNKNOWN
    return _stripped(sizes, [dim if {*dim} <= {*names} else () for dim in dims])


def _of_spec(mesh: Any, spec: Any) -> Layout | None:
    """Return how a spec divides an array; `None` if it does not."""
    sizes = tuple(mesh.shape.items())
    named = [axes if isinstance(axes, tuple) else () if axes is None else (axes,) for axes in spec]
    if not all(isinstance(name, str) for axes in named for name in axes):
        return UNKNOWN  # XLA chooses
    return _stripped(sizes, [tuple(name for name in axes if mesh.shape.get(name, 1) > 1) for axes in named])


def _stripped(sizes: Any, dims: list[Any]) -> Layout | None:
    while dims and not dims[-1]:
        dims = dims[:-1]
    return (sizes, tuple(dims)) if dims else None


def _free_axes(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the axes of the mesh of a `shard_map` over which XLA's partitioner may divide its body."""
    mesh, own = params["mesh"], params.get("newly_manual_axes", params.get("manual_axes", ()))
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    return tuple(
        name
        for name, size in mesh.shape.items()
        if size > 1 and name not in own and types[name] != jax.sharding.AxisType.Manual
    )


def divided(arguments: Iterable[Any], traced: Any) -> tuple[tuple[Layout | None, ...], tuple[bool, ...]]:
    """Return how each argument of a program is divided among several devices, `None` for one that is not.

    The second tuple contains for each whether it has a sharding, divided or not, that XLA keeps.

    Args:
        arguments: The arguments, arrays or shapes, in the order of the jaxpr's inputs.
        traced: JAX's trace of the program, with the shardings that its `jax.jit` has.
    """
    leaves = list(arguments)
    asked = jax_jit.shardings(traced, "in_shardings") or [None] * len(leaves)
    found: list[Layout | None] = []
    placed: list[bool] = []
    for leaf, one, aval in zip(leaves, asked, traced.jaxpr.in_avals, strict=True):
        own = map(_layout, (one, getattr(leaf, "sharding", None), getattr(aval, "sharding", None)))
        found.append(next((layout for layout in own if layout is not None), None))
        placed.append(_is_asked(one) or getattr(leaf, "sharding", None) is not None)
    return tuple(found), tuple(placed)


def ids_on_sharded(equations: Iterable[Equation], inputs: Iterable[Input]) -> frozenset[str]:
    """Return the ids of the equations and arguments for which XLA's partitioner decides what is sent."""
    moved = [f"arg{place}" for place, one in enumerate(inputs) if one.is_moved]
    return frozenset([*moved, *(one.id for one in equations if (PARTITIONED, True) in one.params)])


def _is_asked(sharding: Any) -> bool:
    return sharding is not None and type(sharding).__name__ != "UnspecifiedValue"


def _is_divided(sharding: Any) -> bool:
    return _layout(sharding) is not None


def _layout(sharding: Any) -> Layout | None:
    """Return how a sharding divides an array; `None` if it does not."""
    if not _is_asked(sharding):
        return None
    if hasattr(sharding, "spec"):
        return _of_spec(sharding.mesh, sharding.spec)
    is_open = hasattr(sharding, "is_fully_replicated") and not sharding.is_fully_replicated
    return UNKNOWN if is_open else None
