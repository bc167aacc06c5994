"""Memory use over time: as layers for a picture, and as text. Each top-level block has a layer.

The user can open a block. The blocks inside it then have a layer each, instead of the block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.viz.costs.blocks import hue_or_grey, hues_of, path_text, tree_of
from mithril_nb.viz.costs.canvas.svg_canvas import NO_HUE, TINTS
from mithril_nb.viz.palette import LIGHT, hues_of_blocks
from mithril_nb.viz.text import one_line, times
from mithril_nb.viz.units import UNKNOWN, nbytes, percent

Data = Mapping[str, Any]
"""Memory use as data: the result of `MemoryUse.to_dict()`."""

UNFILLED = "unfilled"
_MOST_LAYERS = 16
_SMALL = 0.004
"""Layers that always contain less than this share of the peak are merged."""


@dataclass(frozen=True)
class Layer:
    """A layer in the picture of memory over time.

    It shows the memory of a block and the blocks inside it, unattributed memory, or unused memory.

    Attributes:
        name: Name of the layer.
        hue: Index of the colour in the palette; `None` for unused memory.
        tint: Index of the shade of this colour.
        block: Path of the block; `""` for unattributed memory; `None` for several blocks and for unused memory.
        bytes: Bytes at each drawn moment of the timeline.
        at_peak: Bytes at the peak.
    """

    name: str
    hue: int | None
    tint: int
    block: str | None
    bytes: tuple[int, ...]
    at_peak: int


def assign_layers(blocks: Iterable[str], opened: Collection[str] = ()) -> dict[str, int]:
    """Return a dict from the path of each block that has a layer to the index of its shade.

    Args:
        blocks: Paths of the program's blocks, in program order.
        opened: Paths of the blocks that the user has opened.

    Examples:
        >>> blocks = ["embed", "mlp/up/weight", "mlp/down", "head"]
        >>> assign_layers(blocks)
        {'embed': 0, 'mlp': 0, 'head': 0}
        >>> assign_layers(blocks, ["mlp"])
        {'embed': 0, 'mlp/up': 0, 'mlp/down': 1, 'head': 0}
    """
    paths = list(blocks)

    def with_inside(path: str, tint: int) -> dict[str, int]:
        depth, around = path.count("/") + 2, f"{path}/"
        inside = [one for one in paths if path in opened and one.startswith(around)]
        if not inside:
            return {path: tint}
        found: dict[str, int] = {}
        for at, one in enumerate(dict.fromkeys("/".join(one.split("/")[:depth]) for one in inside)):
            found |= with_inside(one, at % len(TINTS[LIGHT]))
        return found

    layers: dict[str, int] = {}
    for path in hues_of_blocks(paths):
        layers |= with_inside(path, 0)
    return layers


def layers_of(data: Data, most: int, opened: Collection[str] = ()) -> tuple[list[Layer], list[int]]:
    """Return the layers from bottom to top, and the indices of the moments of the timeline that are drawn.

    Args:
        data: Memory use, as returned by `MemoryUse.to_dict()`.
        most: Largest number of drawn moments.
        opened: Paths of the blocks that the user has opened.
    """
    timeline = [moment["bytes"] for moment in data["timeline"]]
    places = thin(timeline, most)
    hues = hues_of({"by_block": data["blocks"], **({"hues": data["hues"]} if "hues" in data else {})})
    tints = assign_layers(data["blocks"], opened)
    changes: dict[tuple[str, int | None, str | None], list[int]] = {}
    order = {path: at for at, path in enumerate(data["blocks"])}
    for life in sorted(data["lives"], key=lambda life: order.get(life["block"], -1)):
        key = _key(life, tints, hues)
        of_layer = changes.setdefault(key, [0] * (len(timeline) + 1))
        of_layer[life["first"]] += life["size_bytes"]
        of_layer[life["last"] + 1] -= life["size_bytes"]
    found: list[Layer] = []
    small: list[Layer] = []
    least = _SMALL * max(timeline, default=0)
    for (name, hue, block), steps in changes.items():
        held = list(accumulate(steps))
        shown = tuple([held[place] for place in places])
        layer = Layer(name, hue, tints.get(block or "", 0), block, shown, held[data["peak_at"]])
        (small if max(held) < least and hue is not None else found).append(layer)
    while len(found) + bool(small) > _MOST_LAYERS:
        least_of = min((one for one in found if one.hue is not None), key=lambda one: max(one.bytes))
        found.remove(least_of)
        small.append(least_of)
    if len(small) == 1:
        found += small
    elif small:
        together = tuple(map(sum, zip(*(one.bytes for one in small), strict=True)))
        found.append(Layer(f"{len(small)} others", NO_HUE, 0, None, together, sum(one.at_peak for one in small)))
    found.sort(key=lambda one: (one.hue is not None, one.block != ""))
    return found, places


def _key(
    life: Mapping[str, Any], layers: Collection[str], hues: Mapping[str, int]
) -> tuple[str, int | None, str | None]:
    if life["kind"] == "unfilled":
        return UNFILLED, None, None
    block = str(life["block"])
    if not block:
        return f"{life['kind']} {UNATTRIBUTED_LABEL}", NO_HUE, ""
    path = block
    while path and path not in layers:
        path = path.rpartition("/")[0]
    if path:
        return path_text(path), hue_or_grey(path, hues), path
    is_around = any(one.startswith(f"{block}/") for one in layers)
    return path_text(block) + (" itself" if is_around else ""), hue_or_grey(block, hues), block


def thin(values: Sequence[int], most: int) -> list[int]:
    """Return the indices of all values. If there are more than `most`, keep the largest in each of `most` intervals.

    Examples:
        >>> thin([1, 5, 2, 2, 9, 1], 3), thin([4, 3], 3)
        ([1, 2, 4], [0, 1])
    """
    if len(values) <= most:
        return list(range(len(values)))
    bounds = [at * len(values) // most for at in range(most + 1)]
    return [max(range(first, end), key=lambda place: (values[place], -place)) for first, end in pairwise(bounds)]


KINDS = {
    "arguments": "arguments", "outputs": "outputs", "temporaries": "temporaries", "constants": "constants",
    "unfilled": "reserved but unfilled",
}  # fmt: skip
"""Labels of the kinds of memory."""
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
        peak 8 B at x, instruction 1 of 2: arguments 8 B
        over time  ██
        <BLANKLINE>
        block  at peak  share
        net        8 B  100 %  ████████████████████
        <BLANKLINE>
        largest values at the peak  bytes  kind       block  live during instructions
        x                             8 B  arguments  net                       1 – 2
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
    """Return one line: the peak, the instruction at which it occurs, and the bytes of each kind of memory there."""
    if data["peak_bytes"] is None:
        return f"peak {UNKNOWN}"
    kinds = ", ".join(f"{KINDS[kind]} {nbytes(size)}" for kind, size in data["kinds"].items() if size)
    where = ""
    if data["peak_at"] is not None and data["timeline"]:
        name = one_line(data["timeline"][data["peak_at"]]["id"])
        of = f"{_step(data)} {data['peak_at'] + 1:,} of {len(data['timeline']):,}"
        kind = "equation " if data["source"] == "analytic" else ""
        where = f" at {kind}{name}, {of}" if name else f" at {of}"
    return f"peak {nbytes(data['peak_bytes'])}{where}{': ' if kinds else ''}{kinds}"


def _step(data: Data) -> str:
    """Return the word for a position of the timeline. In an estimate, its number is not the id of an equation."""
    return "position" if data["source"] == "analytic" else "instruction"


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
        rows.append(("  " * depth + times(branch.label, branch.repeat), *_share(branch.value, peak)))
        stack += [(one, depth + 1) for one in sorted(branch.inside, key=lambda one: one.value)]
    unfilled = data["kinds"].get("unfilled", 0)
    lost = data["at_peak"].get("", 0) - unfilled
    for name, size in ((UNATTRIBUTED_LABEL, lost), ("(unfilled)", unfilled)):
        if size:
            rows.append((name, *_share(size, peak)))
    text = columns(rows, right={1, 2})
    if hidden:
        text += f"\nnot listed: {hidden} {'block' if hidden == 1 else 'blocks'} with less than {percent(_LEAST_LISTED)}"
    return text


def _share(size: float, peak: int) -> tuple[str, str, str]:
    return nbytes(size), percent(size / peak), "█" * round(20 * size / peak)


def _values(data: Data) -> str:
    at = data["peak_at"]
    there = [one for one in data["lives"] if one["first"] <= at <= one["last"] and one["kind"] != "unfilled"]
    there.sort(key=lambda one: -one["size_bytes"])
    rows: list[tuple[str, ...]] = [
        ("largest values at the peak", "bytes", "kind", "block", f"live during {_step(data)}s")
    ]
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
