"""Params of an equation as plain data, so that costs can be computed without JAX, as for a saved program."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
from jax.lax import RaggedDotDimensionNumbers

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import Equation, Param
from mithril_nb.stages.trace.equations import Site, sites_of
from mithril_nb.stages.trace.trips import trip_count

UNUSED = "unused_results"
"""Param of a QR factorization with the indices of its unused results, because they change its cost."""
GROUP = "group_size"
"""Param of a collective with the number of devices per group; `None` if unknown."""
PARTITIONED = "partitioned"
"""Param of an equation on sharded arrays to which XLA's partitioner may add communication."""
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
"""Opcode in HLO of each primitive that sends data to other devices."""


def collective_params(site: Site, is_partitioned: bool) -> tuple[tuple[str, Param], ...]:
    """Return the params that the cost of an equation's communication depends on; `()` without communication."""
    # A collective has the param `GROUP`, the number of devices that exchange data. This is the product of the sizes
    # of its mesh axes, or the size of its largest group in `axis_index_groups`; `None` if an axis has no known size.
    partitioned: tuple[tuple[str, Param], ...] = ((PARTITIONED, True),) if is_partitioned else ()
    if site.primitive not in COLLECTIVES:
        return partitioned
    params = site.equation.params
    groups = params.get("axis_index_groups")
    if groups:
        return ((GROUP, max(map(len, groups))), *partitioned)
    # Reductions name their mesh axes `axes`, all other collectives `axis_name`.
    names = params.get("axes", params.get("axis_name", ()))
    size: int | None = 1
    for name in names if isinstance(names, tuple | list) else (names,):
        if isinstance(name, int):
            continue  # an axis of the array, added by `vmap`, instead of an axis of the mesh
        around = site.parent
        while around and (around.primitive != "shard_map" or name not in around.equation.params["mesh"].shape):
            around = around.parent
        size = size and around and size * int(around.equation.params["mesh"].shape[name])
    return ((GROUP, size), *partitioned)


KERNEL = "kernel"
"""Param with the equations that JAX's lowering replaces an equation with."""
GRID, BLOCKS, ESTIMATE = "grid", "blocks", "estimate"
"""Params of a Pallas kernel: the sizes of its grid, its blocks, and its author's `cost_estimate`."""
DEVICES = "devices"
"""Param of a `shard_map` with the number of devices that run its equations."""
TRIPS = "known_trip_count"
"""Param of a `while` with its number of iterations; `None` if unknown."""
COMBINER = "combiner"
"""Param of a reduction or scatter with the equations that combine two elements."""
_COMBINED = frozenset({"reduce", "reduce_window", "scatter"})


def params_of(site: Site) -> tuple[tuple[str, Param], ...]:
    """Return the params of an equation that are plain data, and the params that its cost depends on."""
    is_partial = site.primitive == "qr" and site.dropped
    more: tuple[tuple[str, Param], ...] = ((UNUSED, tuple(sorted(site.dropped))),) if is_partial else ()
    if site.primitive == "while":
        more = ((TRIPS, trip_count(site.equation, site.constants)),)
    return plain_params(site.equation) + kernel_params(site.equation) + more


def kernel_params(equation: Any) -> tuple[tuple[str, Param], ...]:
    """Return the params that describe the computation inside an equation; `()` if there is none."""
    # - `"kernel"`: the equations of a primitive that is expanded only when it is lowered: `SearchSorted` since JAX
    #   0.12, and primitives of other packages. Each is a tuple, which `equations_of` converts to an `Equation`.
    # - `"grid"`: the sizes of the grid of a Pallas kernel; `None` for a size that depends on an operand.
    # - `"blocks"`: for each block of a Pallas kernel, its shape, its dtype, and 1 plus the index of the last grid axis
    #   that its position depends on (0 if there is none).
    # - `"estimate"`: FLOPs, transcendentals and bytes, if the author of a kernel stated them.
    # - `"devices"`: the number of devices that run the equations of a `shard_map`.
    # - `"combiner"`: the equations of the function that a reduction or scatter applies, in the form of `"kernel"`.
    params = equation.params
    estimate = _estimate(params.get("cost_estimate") or getattr(params.get("config"), "cost_estimate", None))
    name = equation.primitive.name
    expand = jax_versions.expansion if name == "call_hi_primitive" else jax_versions.lowered_function
    if (expanded := expand(equation)) is not None:
        return ((KERNEL, _equations(jax_versions.open_jaxpr(expanded))),)
    if name == "shard_map":
        return ((DEVICES, jax_versions.mapped_devices(equation)),)
    mapping = params.get("grid_mapping")
    if name != "pallas_call" or mapping is None:
        if name not in _COMBINED:
            return estimate
        combiners = [value for value in params.values() if jax_versions.is_jaxpr(value)]
        return (*estimate, *[(COMBINER, _equations(jax_versions.open_jaxpr(combiner))) for combiner in combiners[:1]])
    kernel = jax_versions.open_jaxpr(params["jaxpr"])
    # Blocks of inputs and outputs follow the index operands; scratch buffers come last and have no block.
    refs = kernel.invars[mapping.num_index_operands :]
    blocks = tuple(
        (*_spec(jax_versions.spec_of(ref.aval)), _axes(block_mapping.index_map_jaxpr, len(mapping.grid)))
        for block_mapping, ref in zip(mapping.block_mappings, refs, strict=False)
    )
    grid = tuple(size if isinstance(size, int) else None for size in mapping.grid)
    return (*estimate, (GRID, grid), (BLOCKS, blocks))


def equations_of(kernel: Any) -> tuple[Equation, ...]:
    """Return the records of the equations in a `"kernel"` or `"combiner"` param."""
    return tuple(
        Equation(
            id, primitive, "", None, _specs(inputs), _specs(outputs), "", repeats, is_call, params,
            is_used=is_used, constants=constants,
        )
        for id, primitive, inputs, outputs, repeats, is_call, params, is_used, constants in kernel
    )  # fmt: skip


def _equations(kernel: Any) -> tuple[Param, ...]:
    _, sites = sites_of(kernel)
    return tuple(
        (
            site.id,
            site.primitive,
            tuple(map(_spec, jax_versions.specs_of(site.equation.invars))),
            tuple(map(_spec, jax_versions.specs_of(site.equation.outvars))),
            site.repeats,
            site.is_call,
            params_of(site),
            site.is_used,
            site.constants,
        )
        for site in sites
    )


def _spec(spec: TensorSpec) -> tuple[tuple[int | str, ...], str]:
    return spec.shape, spec.dtype


def _specs(pairs: Any) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(shape, dtype) for shape, dtype in pairs)


def _axes(index_map: Any, rank: int) -> int:
    """Return 1 plus the index of the last grid axis that the position of a block depends on; 0 if it is constant."""
    jaxpr = jax_versions.open_jaxpr(index_map)
    needed = set(jax_versions.variables(jaxpr.outvars))

    for equation in reversed(jaxpr.eqns):
        if not needed.isdisjoint(equation.outvars):
            needed.update(jax_versions.variables(equation.invars))
    return max((index + 1 for index, var in enumerate(jaxpr.invars[:rank]) if var in needed), default=0)


def _estimate(estimate: Any) -> tuple[tuple[str, Param], ...]:
    names = ("flops", "transcendentals", "bytes_accessed")
    values = [estimate.get(name) if isinstance(estimate, dict) else getattr(estimate, name, None) for name in names]
    return ((ESTIMATE, tuple(values)),) if all(isinstance(value, int) for value in values) else ()


def plain_params(equation: Any) -> tuple[tuple[str, Param], ...]:
    """Return the params of an equation that are plain data; a dtype or an enum becomes its name."""
    params: list[tuple[str, Param]] = []
    for key, value in equation.params.items():
        if type(value) in _PLAIN_TYPES:
            params.append((key, value))
            continue
        plain = _plain(value)
        if plain is not _NOT_PLAIN:
            params.append((key, plain))
    return tuple(params)


_NOT_PLAIN: Any = object()
_PLAIN_TYPES = frozenset({bool, int, float, str, type(None)})


def _plain(value: Any) -> Any:
    if type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, (tuple, list)):
        items = tuple([_plain(item) for item in value])
        return _NOT_PLAIN if _NOT_PLAIN in items else items
    if isinstance(value, RaggedDotDimensionNumbers):
        return _plain((value.dot_dimension_numbers, value.lhs_ragged_dimensions, value.rhs_group_dimensions))
    name = getattr(value, "name", None)
    if isinstance(value, Enum):  # before numbers: some enums are numbers too, as the algorithm of a random generator
        return value.name
    if isinstance(value, (np.integer, np.floating, np.bool_)):  # vmap counts axes with NumPy numbers
        return value.item()
    if isinstance(value, (bool, int, float, str)):
        return value
    if jax_versions.is_jaxpr(value) or (callable(value) and not hasattr(value, "dtype")):
        return _NOT_PLAIN
    if name is not None:  # dtypes and enums
        return str(name)
    if hasattr(value, "dtype") or type(value).__repr__ is object.__repr__:  # its text would be an address
        return _NOT_PLAIN
    return str(value)
