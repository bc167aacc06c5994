"""Peak rates of a machine, which form the roof of a roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from mithril_nb.errors import nearest
from mithril_nb.viz.costs.options import option_error

_EXAMPLE = {"flops_per_s": 1e12, "bytes_per_s": 1e11}


@dataclass(frozen=True)
class Peaks:
    """Peak rates of a machine; `None` if unknown.

    Attributes:
        flops_per_s: FLOP/s of the fastest dtype.
        bytes_per_s: Bytes/s of memory.
        slower: FLOP/s of the other dtypes.
        source: Origin of the rates.
        dtype: The fastest dtype; `""` if unknown.
    """

    flops_per_s: float | None
    bytes_per_s: float | None
    slower: tuple[tuple[str, float], ...] = ()
    source: str = ""
    dtype: str = ""

    @classmethod
    def of(cls, peaks: Mapping[str, Any]) -> Peaks | None:
        """Return the peaks in the data; `None` if there are none."""
        rate = peaks.get("flops_per_s")
        rates = dict(rate) if isinstance(rate, Mapping) else {"": rate}
        known = sorted(((value, name) for name, value in rates.items() if value), reverse=True)
        slower = tuple((name, value) for value, name in known[1:])
        rate, name = known[0] if known else (None, "")
        found = cls(rate, peaks.get("bytes_per_s"), slower, str(peaks.get("source") or ""), str(name))
        return found if found.flops_per_s or found.bytes_per_s else None

    def at(self, intensity: float) -> float:
        """Return the attainable FLOP/s at an intensity in FLOPs per byte."""
        memory = math.inf if self.bytes_per_s is None else self.bytes_per_s * intensity
        return min(memory, math.inf if self.flops_per_s is None else self.flops_per_s)

    def limit(self, intensity: float) -> str:
        """Return the limit at an intensity: `"memory"` or `"arithmetic"`."""
        memory = math.inf if self.bytes_per_s is None else self.bytes_per_s * intensity
        return "memory" if memory < (math.inf if self.flops_per_s is None else self.flops_per_s) else "arithmetic"


def validate_peaks(given: Any) -> Mapping[str, Any]:
    """Validate the peak rates of a machine given by the user and return them as data.

    Args:
        given: A mapping, or a `Machine`, whose `to_dict` returns one.

    Raises:
        UnknownOptionError: It is neither, it has a rate that is not a number above 0, or an unknown name while a rate
            is missing.

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
    """Return whether a value is a rate; the rate of FLOPs may be a mapping from dtype to rate."""
    if isinstance(value, Mapping):
        rates: Mapping[Any, Any] = value
        return name == "flops_per_s" and all(_is_rate(one, "") for one in rates.values())
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < math.inf


def _example(given: Any, known: Mapping[str, Any]) -> str:
    """Return the code of the advice, with the given rates under the nearest valid names."""
    if callable(given):
        return "cost.roofline(ml.machine())"
    named = {nearest(name, _EXAMPLE) or name: value for name, value in known.items()} | dict(known)
    rates = {name: named[name] if _is_rate(named.get(name), name) else rate for name, rate in _EXAMPLE.items()}
    return f"cost.roofline({_written(rates)})"


def _written(rate: Any) -> str:
    """Format a rate, or a mapping of rates, as Python code."""
    if isinstance(rate, Mapping):
        rates: Mapping[Any, Any] = rate
        return "{" + ", ".join(f'"{name}": {_written(one)}' for name, one in rates.items()) + "}"
    return f"{float(rate):g}"
