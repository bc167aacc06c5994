"""A profile as a text: what takes the time, how much it spreads, and how near it comes to what the machine can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST_BLOCKS = 30
_HEADS = ("", "time", "share", "least to most", "GFLOP/s", "GB/s", "of roofline")


def profile_text(
    profile: Mapping[str, Any], overhead: Mapping[str, float | None], nobody_s: float | None, machine: str
) -> str:
    """Return a profile as a table, the blocks that take longest first.

    Args:
        profile: What `Profile.to_dict` gives.
        overhead: Time of what is no instruction, by the name of its row.
        nobody_s: Seconds of the instructions that no block caused.
        machine: The peaks, in words.
    """
    whole_s = profile["total"]["time_s"]
    blocks = {path: figures["time_s"] for path, figures in profile["by_block"].items() if figures["time_s"] is not None}
    if nobody_s:
        blocks[""] = nobody_s
    order = sorted(blocks, key=lambda path: -blocks[path])
    shown = order if len(order) <= _MOST_BLOCKS else order[: _MOST_BLOCKS - 1]
    table: list[tuple[str, ...]] = [_HEADS]
    for path in shown:
        spread = None if path == "" else profile["spreads"].get(path)
        table.append(_line(path or "(no block)", blocks[path], whole_s, spread, profile["rates"].get(path)))
    if len(shown) < len(order):
        rest = order[len(shown) :]
        table.append(_line(f"({len(rest)} more blocks)", sum(blocks[path] for path in rest), whole_s))
    table += [_line(name, time_s, whole_s) for name, time_s in overhead.items()]
    table.append(_line("total", whole_s, whole_s, profile["spread"], profile["rate"]))
    roles = [
        f"{role or '(no role)'} {seconds(figures['time_s'])}"
        for role, figures in profile["by_role"].items()
        if figures["time_s"] is not None
    ]
    widths = [max(len(line[place]) for line in table) for place in range(len(_HEADS))]
    lines = [
        "  ".join(
            f"{cell:>{width}}" if place else f"{cell:<{width}}"
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    title = f"{profile['program']}: {seconds(profile['wall_s'])} a run, measured in {_runs(profile)}"
    told = [title, *lines, *([f"by role: {', '.join(roles)}"] if len(roles) > 1 else [])]
    return "\n".join([*told, *([f"machine: {machine}"] if machine else []), *profile["notes"]])


def seconds(time_s: float | None) -> str:
    """Return a time as a text of about three digits.

    Examples:
        >>> seconds(0.0123), seconds(4.5e-6), seconds(0.0), seconds(None)
        ('12.3 ms', '4.50 us', '0 s', 'unknown')
    """
    if time_s is None:
        return "unknown"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if time_s >= size:
            value = time_s / size
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{time_s * 1e9:.0f} ns" if time_s else "0 s"


def _line(
    name: str,
    time_s: float | None,
    whole_s: float | None,
    spread: Mapping[str, float] | None = None,
    rate: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    share = "" if time_s is None or not whole_s else f"{time_s / whole_s:.1%}"
    # The time is a mean over some of the runs: it lies between these, whatever the others did.
    spreads = "" if spread is None else f"{seconds(spread['least'])} to {seconds(spread['most'])}"
    rates = ("", "", "")
    if rate is not None:
        roofline = rate["roofline"]
        rates = (_giga(rate["flops_per_s"]), _giga(rate["bytes_per_s"]), "" if roofline is None else f"{roofline:.0%}")
    return (name, seconds(time_s), share, spreads, *rates)


def _giga(per_s: float | None) -> str:
    return "" if per_s is None else f"{per_s / 1e9:,.2f}"


def _runs(profile: Mapping[str, Any]) -> str:
    count = profile["runs"]
    return f"{count} run{'s' if count > 1 else ''} after {profile['warm_up']} to warm up"
