"""Rows split between their blocks: integers that sum exactly to the row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from mithril_nb.cost.records import COUNTED, CostRow, Figures, is_unknown

TICKS_PER_S = 1 << 40
"""Measured times are rounded to multiples of 1/TICKS_PER_S seconds, so floats add up exactly in any order."""


def pieces_of(row: CostRow) -> list[CostRow]:
    """Return a row for each collective that XLA combined into a row, split by bytes; else the row itself.

    Each has the id of its piece. They sum exactly to the row.
    """
    if not row.pieces:
        return [row]
    whole = sum(size for *_, size in row.pieces)
    parts = _split(row, [Fraction(size, whole) for *_, size in row.pieces])
    return [
        replace(row, id=id, blocks=blocks, role=role, pieces=(), **part)
        for (id, blocks, role, _), part in zip(row.pieces, parts, strict=True)
    ]


def parts_of(row: CostRow) -> list[tuple[str, Figures]]:
    """Return the cost of a row by block: integers that sum to the row; `""` means no block."""
    unknown = int(is_unknown(row))
    unknowns = int(row.wire_bytes is None), int(row.transcendentals is None)
    if len(row.blocks) < 2:
        figures = Figures(
            row.flops, row.transcendentals, row.bytes_accessed, 0, row.time_s, unknown, int(row.bytes_accessed is None),
            0, row.payload_bytes, row.wire_bytes, *unknowns,
        )  # fmt: skip
        return [(row.blocks[0][0] if row.blocks else "", figures)]
    # Fractions of the floats are exact, so the shares sum to exactly 1 and no count is lost to rounding.
    weights = {path: Fraction(share) for path, share in row.blocks}
    whole = sum(weights.values())
    parts = _split(row, [weight / whole for weight in weights.values()])
    return [
        (
            path,
            Figures(
                unknown=unknown, unknown_bytes=int(row.bytes_accessed is None), shared=unknown,
                unknown_communication=unknowns[0], unknown_transcendentals=unknowns[1], **part,
            ),
        )
        for path, part in zip(weights, parts, strict=True)
    ]  # fmt: skip


def _split(row: CostRow, shares: list[Fraction]) -> list[dict[str, Any]]:
    """Return the figures of a row split by shares, by name."""
    names = (*COUNTED, "payload_bytes", "wire_bytes")
    found = [split_number(getattr(row, name), shares) for name in names]
    ticks = split_number(None if row.time_s is None else round(row.time_s * TICKS_PER_S), shares)
    times = [None if part is None else part / TICKS_PER_S for part in ticks]
    return [dict(zip((*names, "time_s"), part, strict=True)) for part in zip(*found, times, strict=True)]


def split_number(value: int | None, shares: list[Fraction]) -> list[int | None]:
    """Split an integer by shares into integers that sum to it; those with the largest remainders are rounded up.

    Examples:
        >>> split_number(10, [Fraction(1, 3)] * 3)
        [4, 3, 3]
    """
    if not value:
        # 0 and `None` need no split; this is the common case.
        return [value] * len(shares)
    wanted = [value * share for share in shares]
    parts = [int(part) for part in wanted]
    for place in sorted(range(len(parts)), key=lambda place: parts[place] - wanted[place])[: value - sum(parts)]:
        parts[place] += 1
    return [*parts]


def rows_by_block(rows: Iterable[CostRow]) -> Mapping[str, Mapping[str, list[Figures]]]:
    """Return the parts of rows by block and role; `""` means none."""
    found: dict[str, dict[str, list[Figures]]] = {}
    for row in rows:
        for piece in pieces_of(row) if row.pieces else (row,):
            for path, figures in parts_of(piece):
                found.setdefault(path, {}).setdefault(piece.role or "", []).append(figures)
    return found
