"""Communication of equations on several devices: group sizes of collectives, and equations that XLA partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.stages.records import Param
from mithril_nb.stages.trace.equations import Site

GROUP = "group_size"
"""Param of a collective with the number of devices per group; `None` if unknown."""
PARTITIONED = "partitioned"
"""Param of an equation on sharded arrays whose communication XLA's partitioner decides."""
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
"""Primitives that send data to other devices, each with the equivalent HLO opcode."""


def collective_params(site: Site, is_partitioned: bool) -> tuple[tuple[str, Param], ...]:
    """Return the params that the communication of an equation depends on; `()` for an equation that sends nothing.

    Args:
        site: The equation. The sizes of the mesh axes come from the `shard_map` around it.
        is_partitioned: Whether XLA's partitioner decides its communication.

    Returns:
        `"group_size"` for a collective: the product of the sizes of its mesh axes, or the size of the largest of its
        `axis_index_groups`. `"partitioned"` if the partitioner decides.
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
