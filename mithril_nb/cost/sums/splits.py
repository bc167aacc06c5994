"""Rows split between their blocks: integers that sum exactly to the row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from mithril_nb.cost.records import COUNTED, CostRow, Figures, is_unknown

TICKS_PER_S = 1 << 40
"""Measured times are rounded to multiples of 1/TICKS_PER_S seconds, so floats add up exactly in any order."""


def figures_of(row: CostRow) -> Figures:
    """Return the cost of a row as `Figures`."""
    return Figures(
        row.flops, row.transcendentals, row.bytes_accessed, 0, row.time_s, int(is_unknown(row)),
        int(row.bytes_accessed is None), 0, row.payload_bytes, row.wire_bytes, int(row.wire_bytes is None),
        int(row.transcendentals is None),
    )  # fmt: skip


def pieces_of(row: CostRow) -> list[CostRow]:
    """Return a row for each collective that XLA combined into a row, split by bytes; else the row itself.

    Each has the id of its piece. They sum exactly to the row.
    """
    if not row.pieces:
        return [row]
    whole = sum(size for *_, size in row.pieces)
    shares = [Fraction(size, whole) for *_, size in row.pieces]
    found = [split_number(getattr(row, name), shares) for name in (*COUNTED, "payload_bytes", "wire_bytes")]
    ticks = split_number(None if row.time_s is None else round(row.time_s * TICKS_PER_S), shares)
    return [
        replace(
            row, id=id, blocks=blocks, role=role, flops=flops, transcendentals=transcendentals, bytes_accessed=moved,
            payload_bytes=payload, wire_bytes=wire, time_s=None if part is None else part / TICKS_PER_S, pieces=(),
        )
        for (id, blocks, role, _), flops, transcendentals, moved, payload, wire, part in zip(
            row.pieces, *found, ticks, strict=True
        )
    ]  # fmt: skip


def parts_of(row: CostRow) -> list[tuple[str, Figures]]:
    """Return the cost of a row by block: integers that sum to the row; `""` means no block."""
    if len(row.blocks) < 2:
        return [(row.blocks[0][0] if row.blocks else "", figures_of(row))]
    weights = {path: Fraction(share) for path, share in row.blocks}
    whole = sum(weights.values())
    shares = [weight / whole for weight in weights.values()]
    flops, transcendentals, moved, payload, wire = (
        split_number(value, shares)
        for value in (row.flops, row.transcendentals, row.bytes_accessed, row.payload_bytes, row.wire_bytes)
    )
    unknown, unknown_bytes = int(is_unknown(row)), int(row.bytes_accessed is None)
    ticks = split_number(None if row.time_s is None else round(row.time_s * TICKS_PER_S), shares)
    times = [None if part is None else part / TICKS_PER_S for part in ticks]
    return [
        (
            path,
            Figures(
                flops[place],
                transcendentals[place],
                moved[place],
                0,
                times[place],
                unknown,
                unknown_bytes,
                unknown,
                payload[place],
                wire[place],
                int(row.wire_bytes is None),
                int(row.transcendentals is None),
            ),
        )
        for place, path in enumerate(weights)
    ]


def split_number(value: int | None, shares: list[Fraction]) -> list[int | None]:
    """Split an integer by shares into integers that sum to it; those with the largest remainders are rounded up.

    Args:
        value: The number; if it is `None`, so are its parts.
        shares: The shares; they sum to 1.

    Examples:
        >>> split_number(10, [Fraction(1, 3)] * 3)
        [4, 3, 3]
    """
    if not value:
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
