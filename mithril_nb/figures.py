"""The figures of a cost: FLOPs, bytes, time, ... Whatever lists, adds up, stores or shows costs reads this table.

A new figure needs an entry here, and code that computes it: for equations in `cost/formulas/rules.py`, for instructions
in `cost/hlo/instruction_costs.py`. Where it is not computed, it is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Record = TypeVar("Record")


@dataclass(frozen=True)
class Figure:
    """One kind of cost.

    A sum leaves out unknown parts (`None`), and is `None` if all known parts are 0.

    Attributes:
        key: Name of the attribute of `Figures`, and key in the data: `"flops"`.
        title: Title in pictures: `"bytes accessed"`.
        column: Title of a column of a table: `"bytes"`.
        unit: `"FLOP"`, `"B"` or `"s"`, which determines the format, or what a plain number counts: `"calls"`.
        about: A sentence for tooltips.
        per: What has the figure: each equation or instruction (`"row"`), each block, or only the whole program.
        unknown: Key of the number of rows in which the figure is unknown. It is `""` only if no row is unknown, or if a
            row without the figure counts 0.
        source: The only source of costs that has the figure, which is then a time: `"measured"` or `"predicted"`. Rows
            without a measured time count 0, because they did not run on their own.
        is_sent: True for bytes sent to other devices. They are those of one device; data leave them out if they are 0.
        is_detail: True if the figure is offered after the others.
        in_xla: Name of the figure in XLA's cost analysis of a program; `""` if XLA does not report it.
    """

    key: str
    title: str
    column: str
    unit: str
    about: str
    per: Literal["row", "block", "program"] = "row"
    unknown: str = ""
    source: str = ""
    is_sent: bool = False
    is_detail: bool = False
    in_xla: str = ""

    @property
    def is_measured(self) -> bool:
        """True for times, which no rule counts."""
        return bool(self.source)

    @property
    def symbol(self) -> str:
        """The unit behind a formatted number; `""` for plain numbers, such as calls and parameters."""
        return "" if self.unit in ("calls", "parameters") else self.unit

    def add(self, values: Iterable[Any], *, all_known: bool = False) -> Any:
        """Return the sum of the known values; `None` if it is 0 and some values are unknown.

        Args:
            values: The values.
            all_known: True to return `None` if any value is unknown.
        """
        values = [*values]
        if self.is_measured:
            # fsum is exact, so the total does not depend on the order of the rows.
            times = [value for value in values if value is not None]
            total = math.fsum(times) if times else None
            return None if self.unknown and not total and None in values else total
        total = sum([value for value in values if value])
        return None if None in values and (all_known or not total) else total

    def unknown_in(self, figures: Mapping[str, Any]) -> int:
        """Return the number of rows in which the figure is unknown, given the figures of a block as data."""
        # `Figures.to_dict` leaves out the number for transcendentals if it equals that for FLOPs.
        usual = figures.get("unknown") if self.unknown == "unknown_transcendentals" else 0
        return figures.get(self.unknown, usual) or 0

    def is_bound(self, figures: Mapping[str, Any]) -> bool:
        """Return whether the figure in data is a lower bound: above 0, but unknown in some rows."""
        return bool(figures.get(self.key) and self.unknown_in(figures) and "formulas" not in figures)


FIGURES: dict[str, Figure] = {
    figure.key: figure
    for figure in (
        Figure(
            "flops", "FLOPs", "FLOPs", "FLOP", "Floating-point operations of one run of the program",
            unknown="unknown", in_xla="flops",
        ),
        Figure(
            "transcendentals", "transcendentals", "transcendentals", "calls", "Calls of exp, log, tanh, ...",
            unknown="unknown_transcendentals", is_detail=True, in_xla="transcendentals",
        ),
        Figure(
            "bytes_accessed", "bytes accessed", "bytes", "B", "Bytes read and written in one run of the program",
            unknown="unknown_bytes", in_xla="bytes accessed",
        ),
        Figure(
            "payload_bytes", "payload bytes", "payload bytes", "B",
            "Bytes of the buffers that one device passes to collectives in one run of the program",
            unknown="unknown_communication", is_sent=True, is_detail=True,
        ),
        Figure(
            "wire_bytes", "wire bytes", "wire bytes", "B",
            "Bytes that one device sends to others in one run of the program, by ring algorithms",
            unknown="unknown_communication", is_sent=True, is_detail=True,
        ),
        Figure("params", "parameters", "params", "parameters", "Number of trainable values", per="block"),
        Figure(
            "peak_bytes", "peak memory", "peak memory", "B", "Bytes in use at the most expensive moment",
            per="program",
        ),
        Figure("time_s", "time", "time", "s", "Time in one run of the program", source="measured"),
        Figure(
            "predicted_s", "predicted time", "predicted time", "s",
            "Time in one run of the program on the device, predicted and not measured",
            unknown="unknown_predicted", source="predicted",
        ),
    )
}  # fmt: skip
"""All figures by key, in the order of columns."""
SENT = tuple(key for key, figure in FIGURES.items() if figure.is_sent)
COUNTED = tuple(key for key, figure in FIGURES.items() if figure.per == "row" and not figure.is_measured)
"""Figures that rules count for each equation or instruction."""
LOCAL = tuple(key for key in COUNTED if key not in SENT)
"""Counted figures without those of data sent to other devices."""
MEASURED = tuple(key for key, figure in FIGURES.items() if figure.is_measured)
OF_XLA = tuple(key for key, figure in FIGURES.items() if figure.in_xla)
OF_BLOCKS = tuple(
    sorted((key for key, figure in FIGURES.items() if figure.per != "program"), key=lambda key: FIGURES[key].is_detail)
)
"""Figures that each block has, in the order in which they are offered."""
MAIN = tuple(key for key in LOCAL if not FIGURES[key].is_detail)
OVERVIEW = (
    *MAIN,
    *(key for key in LOCAL if key not in MAIN),
    *(key for key, figure in FIGURES.items() if figure.per != "row" or figure.is_measured),
)
"""Figures of a whole program, without data sent to other devices, in the order of overviews."""
UNKNOWN = {
    figure.unknown: tuple(key for key, other in FIGURES.items() if other.unknown == figure.unknown)
    for figure in FIGURES.values()
    if figure.unknown
} | {"unknown": ("flops", "transcendentals")}
"""For each number of rows with unknown figures, the figures: a row counts if one of them is unknown."""


def with_fields(defaults: Mapping[str, Any]) -> Callable[[type[Record]], type[Record]]:
    """Return a decorator that adds the fields that a dataclass does not declare itself.

    Examples:
        >>> @dataclass
        ... @with_fields({"flops": 0, "time_s": None})
        ... class Point:
        ...     flops: int = 1
        >>> Point()
        Point(flops=1, time_s=None)
    """

    def add(cls: type[Record]) -> type[Record]:
        missing = {key: value for key, value in defaults.items() if key not in cls.__annotations__}
        cls.__annotations__ |= dict.fromkeys(missing, "Any")
        for key, value in missing.items():
            setattr(cls, key, value)
        return cls

    return add


def share_of(
    part: float | None, total: float | None, is_open: bool, is_open_elsewhere: bool
) -> tuple[float | None, str]:
    """Return a part of a total as a share from 0 to 1, and `""`, `"≤"` or `"≥"`: the share is exact, or a bound.

    The share is `None` if it is unknown: the part and the rest both leave out unknown costs.

    Args:
        part: The known costs of the part.
        total: The known costs of the whole.
        is_open: True if the part leaves out unknown costs.
        is_open_elsewhere: True if the rest leaves out unknown costs.

    Examples:
        >>> share_of(1, 4, False, False), share_of(1, 4, True, False), share_of(1, 4, False, True)
        ((0.25, ''), (0.25, '≥'), (0.25, '≤'))
    """
    if not (is_open or is_open_elsewhere):
        return (part or 0) / total if total else 0.0, ""
    if part is None or not total or (is_open and is_open_elsewhere):
        return None, ""
    share = part / total
    is_exact = share == (1.0 if is_open else 0.0)
    return share, "" if is_exact else "≥" if is_open else "≤"
