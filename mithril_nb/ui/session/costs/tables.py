"""Costs as data for a front end: rows by block and role, counts of unknown values, and single equations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mithril_nb.cost import Cost, CostRow, Figures
from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.stages.records import UNATTRIBUTED
from mithril_nb.viz.costs.tables.rows import COMMUNICATION, short_formula
from mithril_nb.viz.palette import hue_of

FIGURES = ("flops", "bytes_accessed", "transcendentals", "params", "time_s")
_OF_ROWS = ("flops", "bytes_accessed", "transcendentals", "time_s")
"""Figures of a single equation or instruction."""

MOST_ROWS = 20
"""Maximum number of equations or instructions of a block to show."""


def cost_table(cost: Cost, paths: Sequence[str], hues: Mapping[str, int], *, is_stale: bool = False) -> dict[str, Any]:
    """Return a table of costs by block, as data.

    The figures of a row are those of the block itself, so they add up to the total. A block that contains others also
    has its total cost as `total`, even if it costs nothing itself.

    Args:
        cost: The costs.
        paths: Paths in the order of their rows. Other blocks follow, and the unattributed cost comes last.
        hues: Hue of each block that has its own, by path.
        is_stale: True if the costs are those of an older design than the one shown.
    """
    order = {path: at for at, path in enumerate(paths)}
    every = {**dict.fromkeys(cost.by_group, cost.nothing), **cost.by_block}
    if cost.unattributed != cost.nothing:
        every[UNATTRIBUTED] = cost.unattributed
    formulas = {} if cost.symbolic is None else cost.symbolic.formulas
    rows = [
        _row(path, figures, cost.by_block_and_role.get(path, {}), hues, formulas.get(path))
        for path, figures in every.items()
    ]
    for row in rows:
        if row["block"] in cost.by_group:
            inside = {} if cost.symbolic is None else cost.symbolic.formulas_of(row["block"])
            row["total"] = _figures(cost.by_group[row["block"]], inside)
    rows.sort(key=lambda row: (row["block"] == UNATTRIBUTED, order.get(row["block"], len(order))))
    return {
        "source": cost.source,
        "rows": rows,
        "total": {**_row(UNATTRIBUTED, cost.total, cost.by_role, {}, formulas.get(None)), "label": "total"},
        "lines": {source: _nonzero_figures(figures) for source, figures in cost.by_line.items() if source},
        "notes": list(cost.notes),
        "stale": is_stale,
    }


def _row(
    path: str,
    figures: Figures,
    roles: Mapping[str, Figures],
    hues: Mapping[str, int],
    formulas: Mapping[str, str] | None,
) -> dict[str, Any]:
    hue = hue_of(path, hues)
    return {
        "block": path,
        "label": path or UNATTRIBUTED_LABEL,
        "hue": -1 if hue is None else hue,
        **_figures(figures, formulas),
        "roles": {role: _nonzero_figures(found) for role, found in roles.items() if role},
    }


def _nonzero_figures(figures: Figures) -> dict[str, Any]:
    """Return the known figures that are not 0. Most roles of most blocks have none."""
    return {name: value for name in (*FIGURES, *COMMUNICATION) if (value := getattr(figures, name))}


def _figures(figures: Figures, formulas: Mapping[str, str] | None) -> dict[str, Any]:
    unknown = {
        "flops": figures.unknown,
        "transcendentals": figures.unknown_transcendentals,
        "bytes_accessed": figures.unknown_bytes,
        **dict.fromkeys(COMMUNICATION, figures.unknown_communication),
    }
    return {
        **{name: getattr(figures, name) for name in FIGURES},
        # Omit communication figures of 0, because most programs do not communicate.
        **{name: value for name in COMMUNICATION if (value := getattr(figures, name)) != 0},
        # With symbolic sizes, figures are formulas and the remaining numbers are exact.
        "unknown": {name: count for name, count in unknown.items() if count and not formulas},
        **({"formulas": {name: [short_formula(text), text] for name, text in formulas.items()}} if formulas else {}),
    }


def rows_of(cost: Cost, block: str, figure: str) -> dict[str, Any]:
    """Return the most expensive equations or instructions of a block, and the number of others.

    Args:
        cost: The costs.
        block: Path of the block. Its inner blocks are not included.
        figure: Figure that sorts them, one of `FIGURES`.
    """
    own = [row for row in cost.rows if block in dict(row.blocks) or (not row.blocks and not block)]
    by = figure if figure in _OF_ROWS else "flops"
    own.sort(key=lambda row: -(_part(row, block, by) or 0))
    shown = [
        {
            "id": row.id,
            "opcode": row.opcode,
            "role": row.role,
            "repeats": row.repeats,
            "formula": row.explained if cost.symbols else row.formula,
            "share": dict(row.blocks).get(block, 1.0),
            "figures": {name: _part(row, block, name) for name in _OF_ROWS},
        }
        for row in own[:MOST_ROWS]
    ]
    return {"rows": shown, "left": max(0, len(own) - MOST_ROWS)}


def _part(row: CostRow, block: str, name: str) -> float | None:
    value, share = getattr(row, name), dict(row.blocks).get(block, 1.0)
    return value if value is None or share == 1.0 else value * share
