"""Nested computations of an equation as plain data: Pallas kernels, combiners, primitives that JAX 0.12 expands late.

They are stored in the params of the equation, so that the cost of a saved program can be computed.
"""

from __future__ import annotations

from typing import Any

import jax

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import Equation, Param
from mithril_nb.stages.trace.equations import UNUSED, Site, plain_params, sites_of

KERNEL, GRID, BLOCKS, ESTIMATE = "kernel", "grid", "blocks", "estimate"
"""Params: the equations of the kernel, the sizes of the grid, the blocks, and the cost estimate of the author."""
COMBINER = "combiner"
"""Param with the equations that combine two items in a reduction, a window or a scatter."""
_COMBINED = frozenset({"reduce", "reduce_window", "scatter"})


def params_of(site: Site) -> tuple[tuple[str, Param], ...]:
    """Return the params of an equation that are plain data or that its cost depends on."""
    is_partial = site.primitive == "qr" and site.dropped
    unused = ((UNUSED, tuple(sorted(site.dropped))),) if is_partial else ()
    return plain_params(site.equation) + kernel_params(site.equation) + unused


def kernel_params(equation: Any) -> tuple[tuple[str, Param], ...]:
    """Return the params that the cost of a kernel depends on; `()` for an equation without a kernel or an estimate.

    Args:
        equation: JAX's equation.

    Returns:
        - A primitive that JAX expands when it lowers, as `SearchSorted` since 0.12: `"kernel"`, a tuple for each of its
          equations.
        - `pallas_call`: `"kernel"`; `"grid"`, its sizes, `None` for a size that an operand determines; `"blocks"`, for
          each block its shape, its dtype and the number of leading grid axes that its position depends on.
        - A kernel with a cost estimate: `"estimate"`, FLOPs, transcendentals and bytes.
        - A reduction or a scatter with a jaxpr: `"combiner"`, a tuple for each of its equations.
    """
    params = equation.params
    estimate = _estimate(params.get("cost_estimate") or getattr(params.get("config"), "cost_estimate", None))
    high = params.get("_prim")
    if equation.primitive.name == "call_hi_primitive" and high is not None:
        expanded = jax.make_jaxpr(high.expand)(*jax.tree.unflatten(high.in_tree, high.in_avals_flat))
        return ((KERNEL, _equations(expanded.jaxpr)),)
    mapping = params.get("grid_mapping")
    if equation.primitive.name != "pallas_call" or mapping is None:
        if equation.primitive.name not in _COMBINED:
            return estimate
        combiners = [one for one in params.values() if jax_versions.is_jaxpr(one)]
        return (*estimate, *[(COMBINER, _equations(jax_versions.open_jaxpr(one))) for one in combiners[:1]])
    kernel = jax_versions.open_jaxpr(params["jaxpr"])
    refs = kernel.invars[mapping.num_index_operands :]
    blocks = tuple(
        (*_spec(jax_versions.spec_of(ref.aval)), _axes(one.index_map_jaxpr, len(mapping.grid)))
        for one, ref in zip(mapping.block_mappings, refs, strict=False)
    )
    grid = tuple(size if isinstance(size, int) else None for size in mapping.grid)
    return (*estimate, (KERNEL, _equations(kernel)), (GRID, grid), (BLOCKS, blocks))


def equations_of(kernel: Any) -> tuple[Equation, ...]:
    """Return the equations of a kernel from the `"kernel"` param of its call."""
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


def _specs(found: Any) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(shape, dtype) for shape, dtype in found)


def _axes(index_map: Any, rank: int) -> int:
    """Return the number of leading grid axes that the position of a block depends on."""
    jaxpr = jax_versions.open_jaxpr(index_map)
    needed = set(jax_versions.variables(jaxpr.outvars))
    for equation in reversed(jaxpr.eqns):
        if not needed.isdisjoint(equation.outvars):
            needed.update(jax_versions.variables(equation.invars))
    return max((place + 1 for place, var in enumerate(jaxpr.invars[:rank]) if var in needed), default=0)


def _estimate(estimate: Any) -> tuple[tuple[str, Param], ...]:
    names = ("flops", "transcendentals", "bytes_accessed")
    values = [estimate.get(name) if isinstance(estimate, dict) else getattr(estimate, name, None) for name in names]
    return ((ESTIMATE, tuple(values)),) if all(isinstance(value, int) for value in values) else ()
