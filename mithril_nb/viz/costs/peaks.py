"""What a machine can do at most: the roof of a roofline, as data tell it or a person does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from mithril_nb.errors import nearest
from mithril_nb.viz.costs.options import refusal

_EXAMPLE = {"flops_per_s": 1e12, "bytes_per_s": 1e11}


@dataclass(frozen=True)
class Peaks:
    """What a machine can do at most; `None` if unknown.

    Attributes:
        flops_per_s: FLOP/s of the dtype that is the quickest.
        bytes_per_s: Bytes/s of memory.
        slower: FLOP/s of the other dtypes.
        source: Where these are from.
        dtype: Which is the quickest, `""` if nobody says.
    """

    flops_per_s: float | None
    bytes_per_s: float | None
    slower: tuple[tuple[str, float], ...] = ()
    source: str = ""
    dtype: str = ""

    @classmethod
    def of(cls, peaks: Mapping[str, Any]) -> Peaks | None:
        """Return the peaks that data tell; `None` if they tell none."""
        rate = peaks.get("flops_per_s")
        rates = dict(rate) if isinstance(rate, Mapping) else {"": rate}
        known = sorted(((value, name) for name, value in rates.items() if value), reverse=True)
        slower = tuple((name, value) for value, name in known[1:])
        rate, name = known[0] if known else (None, "")
        found = cls(rate, peaks.get("bytes_per_s"), slower, str(peaks.get("source") or ""), str(name))
        return found if found.flops_per_s or found.bytes_per_s else None

    def at(self, intensity: float) -> float:
        """Return the FLOP/s that can be reached at some FLOPs for each byte."""
        memory = math.inf if self.bytes_per_s is None else self.bytes_per_s * intensity
        return min(memory, math.inf if self.flops_per_s is None else self.flops_per_s)

    def limit(self, intensity: float) -> str:
        """Return what limits: `"memory"` or `"arithmetic"`."""
        memory = math.inf if self.bytes_per_s is None else self.bytes_per_s * intensity
        return "memory" if memory < (math.inf if self.flops_per_s is None else self.flops_per_s) else "arithmetic"


def checked_peaks(given: Any) -> Mapping[str, Any]:
    """Return what a person says of a machine as data, if it is something to draw a roof by.

    Args:
        given: A mapping, or a `Machine`, which gives one by `to_dict`.

    Raises:
        UnknownOptionError: It is neither, has a rate that is no number above 0, or a name that nothing has in the
            place of one that is missing.

    Examples:
        >>> checked_peaks({"flops_per_s": {"float32": 1e12}})
        {'flops_per_s': {'float32': 1000000000000.0}}
        >>> checked_peaks({"flops": 5e9})
        Traceback (most recent call last):
        mithril_nb.errors.UnknownOptionError: cost.roofline cannot take peaks={'flops': 5000000000.0}.
            needs  flops_per_s and bytes_per_s by name, numbers above 0; or what ml.machine() gives
            Try: cost.roofline({"flops_per_s": 5e+09, "bytes_per_s": 1e+11})
    """
    told = given.to_dict() if hasattr(given, "to_dict") and not isinstance(given, type) else given
    known: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    is_whole = all(known.get(name) is None or _is_rate(known[name], name) for name in _EXAMPLE)
    missing = any(known.get(name) is None for name in _EXAMPLE)
    strange = [name for name in known if name not in (*_EXAMPLE, "source")]
    if isinstance(told, Mapping) and is_whole and not (missing and strange):
        return known
    needs = "flops_per_s and bytes_per_s by name, numbers above 0; or what ml.machine() gives"
    raise refusal("cost.roofline", "peaks", given, needs, _example(given, known))


def _is_rate(value: Any, name: str) -> bool:
    """Whether this is a rate; that of FLOPs may be one for each dtype."""
    if isinstance(value, Mapping):
        rates: Mapping[Any, Any] = value
        return name == "flops_per_s" and all(_is_rate(one, "") for one in rates.values())
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def _example(given: Any, known: Mapping[str, Any]) -> str:
    """Return what to write instead, with the rates that were told, by whatever name."""
    if callable(given):
        return "cost.roofline(ml.machine())"
    told = {nearest(name, _EXAMPLE) or name: value for name, value in known.items()} | dict(known)
    rates = {name: told[name] if _is_rate(told.get(name), name) else rate for name, rate in _EXAMPLE.items()}
    return f"cost.roofline({_written(rates)})"


def _written(rate: Any) -> str:
    """Return a rate, or several by name, as a person writes them."""
    if isinstance(rate, Mapping):
        rates: Mapping[Any, Any] = rate
        return "{" + ", ".join(f'"{name}": {_written(one)}' for name, one in rates.items()) + "}"
    return f"{float(rate):g}"
