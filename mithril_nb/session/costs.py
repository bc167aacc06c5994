"""Costs as a front end shows them: rows in the order of the model, with hues, and whether they are up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mithril_nb.cost import Cost, Figures, Memory, Source, memory_of, xla_figures
from mithril_nb.session.analysis import Analysis
from mithril_nb.stages import Inspection
from mithril_nb.stages.records import UNATTRIBUTED
from mithril_nb.viz.palette import hue_of

COMPILED = "XLA compiled"


@dataclass(frozen=True)
class CostSoFar:
    """What is known by now of what a program costs.

    Attributes:
        cost: Its costs, from its equations.
        xla: XLA's own figures, for the stages that are made.
        memory: What the compiled program needs, if it is compiled.
    """

    cost: Cost
    xla: tuple[Source, ...] = ()
    memory: Memory | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether it has the figures of the compiled program."""
        return any(one.name == COMPILED for one in self.xla)


def cost_so_far(cost: Cost, inspection: Inspection, *, lower: bool = False, compile: bool = False) -> CostSoFar:
    """Return costs with XLA's own figures beside them.

    Args:
        cost: The costs.
        inspection: The program that they are of.
        lower: Whether to lower the program for it, rather than to take what is there.
        compile: Whether to compile it.

    Raises:
        Exception: What JAX or XLA said when they could not lower or compile it.
    """
    figures = xla_figures(inspection, lower=lower, compile=compile)
    is_compiled = any(one.name == COMPILED for one in figures)
    return CostSoFar(cost, figures, memory_of(lambda: inspection.analysis("memory")) if is_compiled else None)


def cost_view(found: CostSoFar, analysis: Analysis, hues: Mapping[str, int], is_stale: bool) -> dict[str, Any]:
    """Return the cost table of a snapshot."""
    return {**cost_rows(found, [path for path, _ in analysis.design.graph.walk()], hues), "stale": is_stale}


def cost_rows(found: CostSoFar, paths: Sequence[str], hues: Mapping[str, int]) -> dict[str, Any]:
    """Return the costs, the rows in the order of some paths."""
    cost, order = found.cost, {path: index for index, path in enumerate(paths)}
    data = cost.to_dict(rows=False)
    blocks = dict(data["by_block"])
    if cost.unattributed != Figures():
        blocks[UNATTRIBUTED] = data["unattributed"]
    rows = [_row(path, block, hues) for path, block in blocks.items()]
    rows.sort(key=lambda row: (order.get(row["block"], len(order)), row["block"] == "", row["block"]))
    total = cost.total
    sources = [Source("analytic (jaxpr)", total.flops, total.transcendentals, total.bytes_accessed)]
    if cost.once.flops != (total.flops or 0):
        sources.append(Source(cost.once.name, cost.once.flops))
    return {
        "program": cost.program,
        "rows": rows,
        "total": _figures(data["total"]),
        "unattributed_share": data["unattributed"]["share"],
        "unattributed_bound": data["unattributed"]["share_bound"],
        "unknown": [{**one, "primitive": one["opcode"]} for one in data["unknown"]],
        "sources": [asdict(source) for source in (*sources, *found.xla)],
        "memory": None if found.memory is None else asdict(found.memory),
        "stale": False,
    }


def _row(path: str, block: Mapping[str, Any], hues: Mapping[str, int]) -> dict[str, Any]:
    hue = hue_of(path, hues)
    return {
        "block": path,
        "label": path or "unattributed",
        "hue": -1 if hue is None else hue,
        **_figures(block),
        **{role: block["roles"][role]["flops"] for role in ("forward", "backward", "update")},
        "share": block["share"],
        "share_bound": block["share_bound"],
    }


def _figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("flops", "transcendentals", "params", "unknown", "unknown_bytes")
    return {**{key: figures[key] for key in kept}, "bytes": figures["bytes_accessed"]}
