"""Memory use of a program as text: the peak, its blocks, and its largest values."""

from __future__ import annotations

from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.viz.costs.blocks import path_text, tree_of
from mithril_nb.viz.costs.memory.layers import Data, thin
from mithril_nb.viz.text.escape import one_line
from mithril_nb.viz.text.units import UNKNOWN, nbytes, percent

KINDS = {
    "arguments": "arguments", "outputs": "outputs", "temporaries": "temporaries", "constants": "constants",
    "unfilled": "reserved but unfilled",
}  # fmt: skip
"""Display names of the kinds of memory."""
_LARGEST = 10
_BARS = "▁▂▃▄▅▆▇█"
_BARS_WIDE = 60
_LEAST_LISTED = 0.001


def memory_text(data: Data) -> str:
    """Return the memory use of a program as text.

    Args:
        data: Memory use, as returned by `MemoryUse.to_dict()`.

    Examples:
        >>> life = {"id": "x", "kind": "arguments", "block": "net", "size_bytes": 8, "first": 0, "last": 1}
        >>> print(memory_text({
        ...     "program": "f", "source": "compiled", "peak_bytes": 8, "peak_at": 0, "filled_bytes": 8,
        ...     "timeline": [{"id": "x", "bytes": 8}, {"id": "sin", "bytes": 8}], "at_peak": {"net": 8},
        ...     "kinds": {"arguments": 8, "outputs": 0}, "lives": [life], "blocks": ["net"], "xla": None, "notes": []}))
        f: memory, compiled
        peak 8 B at x, place 1 of 2: arguments 8 B
        over time  ██
        <BLANKLINE>
        block  at peak  share
        net        8 B  100 %  ████████████████████
        <BLANKLINE>
        largest values at the peak  bytes  kind       block  places
        x                             8 B  arguments  net     1 – 2
    """
    lines = [f"{one_line(data['program'])}: memory, {data['source']}", peak_text(data)]
    if data["timeline"]:
        lines.append(f"over time  {_bars(data)}")
    if data["at_peak"] and data["peak_bytes"]:
        lines += ["", _blocks(data)]
    if data["peak_at"] is not None and data["lives"]:
        lines += ["", _values(data)]
    if data["xla"]:
        lines += ["", _xla(data["xla"])]
    return "\n".join((*lines, *(one_line(note) for note in data["notes"])))


def peak_text(data: Data) -> str:
    """Return the peak, its position and its kinds of memory in one line."""
    if data["peak_bytes"] is None:
        return f"peak {UNKNOWN}"
    kinds = ", ".join(f"{KINDS[kind]} {nbytes(size)}" for kind, size in data["kinds"].items() if size)
    where = ""
    if data["peak_at"] is not None and data["timeline"]:
        name = one_line(data["timeline"][data["peak_at"]]["id"])
        of = f"place {data['peak_at'] + 1:,} of {len(data['timeline']):,}"
        kind = "equation " if data["source"] == "analytic" else ""
        where = f" at {kind}{name}, {of}" if name else f" at {of}"
    return f"peak {nbytes(data['peak_bytes'])}{where}{': ' if kinds else ''}{kinds}"


def _bars(data: Data) -> str:
    values = [moment["bytes"] for moment in data["timeline"]]
    places = thin(values, _BARS_WIDE)
    top = max(values) or 1
    return "".join(_BARS[min(len(_BARS) - 1, values[place] * len(_BARS) // top)] for place in places)


def _blocks(data: Data) -> str:
    peak = data["peak_bytes"]
    order = {path: at for at, path in enumerate(data["blocks"])}
    paths = sorted((path for path in data["at_peak"] if path), key=lambda path: order.get(path, len(order)))
    tree = tree_of({"by_block": {path: {"peak_bytes": data["at_peak"][path]} for path in paths}}, "peak_bytes")
    rows: list[tuple[str, ...]] = [("block", "at peak", "share", "")]
    hidden = 0
    stack = [(branch, 0) for branch in sorted(tree.inside, key=lambda one: one.value)]
    while stack:
        branch, depth = stack.pop()
        if branch.value < _LEAST_LISTED * peak:
            hidden += sum(one.repeat for one in branch.walk() if one.own)
            continue
        times = f" ×{branch.repeat}" if branch.repeat > 1 else ""
        rows.append((f"{'  ' * depth}{branch.label}{times}", *_share(branch.value, peak)))
        stack += [(one, depth + 1) for one in sorted(branch.inside, key=lambda one: one.value)]
    unfilled = data["kinds"].get("unfilled", 0)
    lost = data["at_peak"].get("", 0) - unfilled
    for name, size in ((UNATTRIBUTED_LABEL, lost), ("(unfilled)", unfilled)):
        if size:
            rows.append((name, *_share(size, peak)))
    text = columns(rows, right={1, 2})
    return f"{text}\nnot listed: {hidden} blocks with less than {percent(_LEAST_LISTED)} each" if hidden else text


def _share(size: float, peak: int) -> tuple[str, str, str]:
    return nbytes(size), percent(size / peak), "█" * round(20 * size / peak)


def _values(data: Data) -> str:
    at = data["peak_at"]
    there = [one for one in data["lives"] if one["first"] <= at <= one["last"] and one["kind"] != "unfilled"]
    there.sort(key=lambda one: -one["size_bytes"])
    rows: list[tuple[str, ...]] = [("largest values at the peak", "bytes", "kind", "block", "places")]
    rows += [
        (
            one_line(one["id"]),
            nbytes(one["size_bytes"]),
            one["kind"],
            path_text(one["block"]) if one["block"] else UNATTRIBUTED_LABEL,
            f"{one['first'] + 1:,} – {one['last'] + 1:,}",
        )
        for one in there[:_LARGEST]
    ]
    return columns(rows, right={1, 4})


def _xla(stats: dict[str, Any]) -> str:
    whole = stats["argument"] + stats["output"] + stats["temp"] - stats["alias"]
    parts = ", ".join(f"{name} {nbytes(stats[name])}" for name in ("argument", "output", "temp", "alias"))
    return f"XLA's memory_analysis(): {parts}; argument + output + temp - alias {nbytes(whole)}"
