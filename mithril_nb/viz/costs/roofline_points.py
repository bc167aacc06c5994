"""The data of a roofline plot: the peak rates of a machine, and the blocks as points with their rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from mithril_nb.display import AT_LEAST
from mithril_nb.errors import nearest
from mithril_nb.viz.costs.blocks import path_text, strip_numbers
from mithril_nb.viz.costs.drawing import option_error
from mithril_nb.viz.costs.fields import Data, at_least, is_bound, notes_of
from mithril_nb.viz.text import listed, times
from mithril_nb.viz.units import percent, si, three_figures

_EXAMPLE = {"flops_per_s": 1e12, "bytes_per_s": 1e11}


@dataclass(frozen=True)
class Peaks:
    """Peak rates of a machine. A rate is `None` if it is unknown.

    Attributes:
        flops_per_s: FLOP/s of the fastest dtype.
        bytes_per_s: Bytes/s of the memory.
        slower: Pairs of dtype and FLOP/s for the other dtypes, fastest first.
        source: Origin of the rates, such as `"measured"`.
        dtype: The fastest dtype; `""` if unknown.
    """

    flops_per_s: float | None
    bytes_per_s: float | None
    slower: tuple[tuple[str, float], ...] = ()
    source: str = ""
    dtype: str = ""

    @classmethod
    def of(cls, peaks: Mapping[str, Any]) -> Peaks | None:
        """Return the peak rates in a mapping; `None` if it contains no rate."""
        rate = peaks.get("flops_per_s")
        rates = dict(rate) if isinstance(rate, Mapping) else {"": rate}
        known = sorted(((value, name) for name, value in rates.items() if value), reverse=True)
        slower = tuple((name, value) for value, name in known[1:])
        rate, name = known[0] if known else (None, "")
        found = cls(rate, peaks.get("bytes_per_s"), slower, str(peaks.get("source") or ""), str(name))
        return found if found.flops_per_s or found.bytes_per_s else None

    def at(self, intensity: float) -> float:
        """Return the attainable FLOP/s at an arithmetic intensity in FLOPs per byte."""
        memory = math.inf if self.bytes_per_s is None else self.bytes_per_s * intensity
        return min(memory, math.inf if self.flops_per_s is None else self.flops_per_s)

    def limit(self, intensity: float) -> str:
        """Return what limits the FLOP/s at an intensity in FLOPs per byte: `"memory"` or `"arithmetic"`."""
        memory = math.inf if self.bytes_per_s is None else self.bytes_per_s * intensity
        return "memory" if memory < (math.inf if self.flops_per_s is None else self.flops_per_s) else "arithmetic"


def validate_peaks(given: Any) -> Mapping[str, Any]:
    """Validate peak rates given by the user and return them as data.

    Args:
        given: A mapping or a `Machine`.

    Raises:
        UnknownOptionError: `given` is neither; a rate is not a finite number above 0; or a rate is missing and the
            mapping has an unknown key, which may be a misspelled rate.

    Examples:
        >>> validate_peaks({"flops_per_s": {"float32": 1e12}})
        {'flops_per_s': {'float32': 1000000000000.0}}
        >>> validate_peaks({"flops": 5e9})
        Traceback (most recent call last):
        mithril_nb.errors.UnknownOptionError: cost.roofline cannot take peaks={'flops': 5000000000.0}.
            needs  flops_per_s and bytes_per_s as numbers above 0, or the result of ml.machine()
            Try: cost.roofline({"flops_per_s": 5e+09, "bytes_per_s": 1e+11})
    """
    data = given.to_dict() if hasattr(given, "to_dict") and not isinstance(given, type) else given
    known: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    is_whole = all(known.get(name) is None or _is_rate(known[name], name) for name in _EXAMPLE)
    missing = any(known.get(name) is None for name in _EXAMPLE)
    strange = [name for name in known if name not in (*_EXAMPLE, "source")]
    if isinstance(data, Mapping) and is_whole and not (missing and strange):
        return known
    needs = "flops_per_s and bytes_per_s as numbers above 0, or the result of ml.machine()"
    raise option_error("cost.roofline", "peaks", given, needs, _example(given, known))


def _is_rate(value: Any, name: str) -> bool:
    """Return whether a value is a valid rate. `flops_per_s` may also be a mapping from dtype to rate."""
    if isinstance(value, Mapping):
        rates: Mapping[Any, Any] = value
        return name == "flops_per_s" and all(_is_rate(one, "") for one in rates.values())
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def _example(given: Any, known: Mapping[str, Any]) -> str:
    """Return the code shown after `Try:`. It contains the valid rates of the user; misspelled names are corrected."""
    if callable(given):
        return "cost.roofline(ml.machine())"
    named = {nearest(name, _EXAMPLE) or name: value for name, value in known.items()} | dict(known)
    rates = {name: named[name] if _is_rate(named.get(name), name) else rate for name, rate in _EXAMPLE.items()}
    return f"cost.roofline({_written(rates)})"


def _written(rate: Any) -> str:
    """Format a rate, or rates by dtype, as Python code."""
    if isinstance(rate, Mapping):
        rates: Mapping[Any, Any] = rate
        return "{" + ", ".join(f'"{name}": {_written(one)}' for name, one in rates.items()) + "}"
    return f"{float(rate):g}"


_ABOVE = 1.0005
"""Smallest share for which the plot explains why a block exceeds the roof."""
MOVED = "Some costs are unknown. The exact point is further right for ≥, further left for ≤, and on either side for ≈."
WHOLE = "whole program"


@dataclass(frozen=True)
class Spot:
    """A point of the plot: a block, several equal blocks, or the whole program.

    Attributes:
        path: Path of the block, or of the first of several; `""` for the whole program.
        repeat: Number of blocks.
        flops: FLOPs of one block.
        intensity: FLOPs per byte.
        rate: Measured FLOP/s; `None` if not measured.
        reached: Measured share of the attainable FLOP/s for the dtypes of the block, which may exceed 1; `None` if the
            data do not contain it.
        unknown: Contains `"flops"` or `"bytes_accessed"` if this cost is a lower bound.
    """

    path: str
    repeat: int
    flops: float
    intensity: float
    rate: float | None
    reached: float | None = None
    unknown: frozenset[str] = frozenset()

    @property
    def bound(self) -> str:
        """Sign before the FLOPs per byte: `≥` if some FLOPs are unknown, `≤` if some bytes are, `≈` for both."""
        return {"flops": AT_LEAST, "bytes_accessed": "≤ "}.get("".join(self.unknown), "≈ " if self.unknown else "")

    @property
    def name(self) -> str:
        """The path of the block, and the number of blocks if there are several."""
        return times(WHOLE if not self.path else path_text(self.path), self.repeat)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the path of the block."""
        return tuple(path_text(self.path).split(" / ")) if self.path else (WHOLE,)

    def of_roof(self, peaks: Peaks) -> float | None:
        """Return the measured share of the roof; `None` if not measured."""
        if self.rate is None or self.reached is not None:
            return self.reached
        return self.rate / peaks.at(self.intensity)

    def attainable(self, peaks: Peaks) -> str:
        """Format the attainable FLOP/s."""
        is_flat = self.bound == AT_LEAST and peaks.limit(self.intensity) == "arithmetic"
        return f"{'' if is_flat else self.bound}{si(peaks.at(self.intensity), 'FLOP/s')}"

    def limit(self, peaks: Peaks) -> str:
        """Return what limits the FLOP/s: `"memory"` or `"arithmetic"`; `"unknown"` if this depends on unknown costs."""
        found = peaks.limit(self.intensity)
        return found if self.bound in ("", {"memory": "≤ ", "arithmetic": AT_LEAST}[found]) else "unknown"

    def achieved(self, peaks: Peaks | None) -> tuple[str, str]:
        """Format the measured FLOP/s and its share of the roof. They are lower bounds if some costs are unknown."""
        if self.rate is None:
            return "not measured", ""
        share = "" if peaks is None else at_least(percent(self.of_roof(peaks)), bool(self.unknown))
        return at_least(si(self.rate, "FLOP/s"), "flops" in self.unknown), share

    def height(self, peaks: Peaks) -> float:
        """Return the FLOP/s at which the point is drawn: the measured rate, else the attainable rate."""
        return peaks.at(self.intensity) if self.rate is None else self.rate


def explain_above(shares: Iterable[tuple[float | None, str | None]]) -> tuple[str, ...]:
    """Return sentences that explain why blocks exceed the roof; `()` if no block does.

    Args:
        shares: A pair for each block: its measured FLOP/s as a share of the attainable FLOP/s (`None` if unknown), and
            what limits it, `"memory"` or any other text.

    Examples:
        >>> explain_above([(0.5, "memory"), (1.0, "compute")])
        ()
        >>> explain_above([(1.18, "memory")])[0].partition(":")[0]
        'above 100 % of the roof'
    """
    above = {limit for share, limit in shares if share is not None and share >= _ABOVE}
    memory = "part of the data came from cache, which is faster than main memory"
    arithmetic = "the roof is the measured rate of a large matmul, which other programs may have slowed down"
    reasons = [memory] * ("memory" in above) + [arithmetic] * bool(above - {"memory"})
    return tuple(f"above 100 % of the roof: {why}" for why in reasons)


def spots_of(data: Data) -> tuple[list[Spot], list[str]]:
    """Return the points, the whole program first and then the blocks with the most FLOPs; and notes for the user."""
    rates = data.get("rates") or {}
    groups: dict[object, list[str]] = {}
    for path, figures in data["by_block"].items():
        key = (
            strip_numbers(path),
            *(figures.get(name) for name in ("flops", "bytes_accessed", "time_s")),
            _unknown(figures),
        )
        groups.setdefault(key, []).append(path)
    found: list[Spot] = []
    idle: list[str] = []
    unknown: list[str] = []
    for paths in groups.values():
        figures = data["by_block"][paths[0]]
        flops, size = figures.get("flops"), figures.get("bytes_accessed")
        if flops and size:
            found.append(_spot(paths[0], len(paths), figures, rates.get(paths[0])))
        elif flops is None or size is None:
            unknown.append(times(path_text(paths[0]), len(paths)))
        else:
            idle.append(times(path_text(paths[0]), len(paths)))
    found.sort(key=lambda spot: -spot.flops * spot.repeat)
    total = data["total"]
    if total.get("flops") and total.get("bytes_accessed"):
        found.insert(0, _spot("", 1, total, data.get("rate")))
    missing = [MOVED] if any(spot.unknown for spot in found) else []
    if unknown or missing:
        missing += dict.fromkeys((*notes_of(data, "flops"), *notes_of(data, "bytes_accessed")))
    missing += [f"unknown FLOPs or bytes, not drawn: {listed(unknown, 5)}"] if unknown else []
    missing += [f"no FLOPs, not drawn: {listed(idle, 5)}"] if idle else []
    return found, missing


def _spot(path: str, repeat: int, figures: Mapping[str, Any], rate: Mapping[str, Any] | None) -> Spot:
    flops, size, time = figures["flops"], figures["bytes_accessed"], figures.get("time_s")
    reached = flops / time if time else None
    return Spot(path, repeat, flops, flops / size, reached, (rate or {}).get("roofline"), _unknown(figures))


def _unknown(figures: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name in ("flops", "bytes_accessed") if is_bound(figures, name))


def intensity_text(spot: Spot) -> str:
    """Format the FLOPs per byte of a point."""
    return f"{spot.bound}{flops_per_byte(spot.intensity)}"


def flops_per_byte(value: float) -> str:
    """Format FLOPs per byte."""
    return f"{three_figures(value) if value < 999.5 else si(value)} FLOP/B"
