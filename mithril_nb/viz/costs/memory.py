"""Draw the memory that a program holds over time, as layers of blocks, and write it as text."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.viz.costs.blocks import LEAST_LISTED, hue_or_grey, hues_of, path_text, share_table, tree_of
from mithril_nb.viz.costs.canvas import FOOT, HEAD_H, MARGIN, NO_HUE, NORMAL, SMALL, TINTS, CostPage
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.fields import FIELDS
from mithril_nb.viz.palette import LIGHT, hues_of_blocks
from mithril_nb.viz.svg import Rect, number
from mithril_nb.viz.text import one_line, text_width, times
from mithril_nb.viz.units import UNKNOWN, capacity, exact, nbytes, percent

# Memory use as data: the result of `MemoryUse.to_dict()`.
Data = Mapping[str, Any]
_UNFILLED = "unfilled"
_MOST_LAYERS = 16
# Layers that always contain less than this share of the peak are merged.
_SMALL = 0.004
_AXIS_W = 58
_AXIS_H = 30
# Height in px above the layers, for the label of the peak.
_TOP = 22
# Smallest width in px of a drawn position. If positions are closer, only the one with the most memory is drawn.
_COLUMN = 2.5


@dataclass(frozen=True)
class MemoryLayer:
    """A layer of the picture: the memory of a block and the blocks inside it, unattributed memory, or unused memory."""

    name: str
    # Index of the colour in the palette; `None` for unused memory
    hue: int | None
    tint: int
    # Path of the block; `""` for unattributed memory, `None` for other memory
    block: str | None
    bytes: tuple[int, ...]
    at_peak: int

    @property
    def tone(self) -> str:
        """The colour of the layer as a tone; `""` for unused memory."""
        if self.hue is None:
            return ""
        return f"tint{self.hue}.{self.tint}" if self.block != "" else f"tint{NO_HUE}.2"


def memory_timeline(data: Data, width: int = 720, opened: Collection[str] = ()) -> Drawing:
    """Draw the memory over time. The blocks in `opened` are divided into the blocks inside them."""
    return Drawing(_svg(data, max(320, width), opened), memory_text(data))


def assign_layers(blocks: Iterable[str], opened: Collection[str] = ()) -> dict[str, int]:
    """Return a dict from the path of each block that has a layer to the index of its shade."""
    paths = list(blocks)

    def with_inside(path: str, tint: int) -> dict[str, int]:
        depth, around = path.count("/") + 2, f"{path}/"
        inside = [block for block in paths if path in opened and block.startswith(around)]
        if not inside:
            return {path: tint}
        layers: dict[str, int] = {}
        for at, group in enumerate(dict.fromkeys("/".join(child.split("/")[:depth]) for child in inside)):
            layers |= with_inside(group, at % len(TINTS[LIGHT]))
        return layers

    layers: dict[str, int] = {}
    for path in hues_of_blocks(paths):
        layers |= with_inside(path, 0)
    return layers


def layers_of(data: Data, most: int, opened: Collection[str] = ()) -> tuple[list[MemoryLayer], list[int]]:
    """Return the layers, the lowest first, and the at most `most` positions at which their sizes are sampled."""
    timeline = [moment["bytes"] for moment in data["timeline"]]
    sampled = thin(timeline, most)
    hues = hues_of({"by_block": data["blocks"], **({"hues": data["hues"]} if "hues" in data else {})})
    tints = assign_layers(data["blocks"], opened)
    changes: dict[tuple[str, int | None, str | None], list[int]] = {}
    order = {path: at for at, path in enumerate(data["blocks"])}
    for life in sorted(data["lives"], key=lambda life: order.get(life["block"], -1)):
        # Differences, and sums afterwards: a program may hold thousands of arrays over thousands of steps.
        steps = changes.setdefault(_layer_of(life, tints, hues), [0] * (len(timeline) + 1))
        steps[life["first"]] += life["size_bytes"]
        steps[life["last"] + 1] -= life["size_bytes"]
    layers: list[MemoryLayer] = []
    small: list[MemoryLayer] = []
    least = _SMALL * max(timeline, default=0)
    for (name, hue, block), steps in changes.items():
        held = list(accumulate(steps))
        sizes = tuple([held[at] for at in sampled])
        layer = MemoryLayer(name, hue, tints.get(block or "", 0), block, sizes, held[data["peak_at"]])
        # Unused memory has no hue and is no block, so it is never merged.
        (small if max(held) < least and hue is not None else layers).append(layer)
    while len(layers) + bool(small) > _MOST_LAYERS:
        smallest = min((layer for layer in layers if layer.hue is not None), key=lambda layer: max(layer.bytes))
        layers.remove(smallest)
        small.append(smallest)
    if len(small) > 1:
        sizes = tuple(map(sum, zip(*(layer.bytes for layer in small), strict=True)))
        small = [MemoryLayer(f"{len(small)} others", NO_HUE, 0, None, sizes, sum(layer.at_peak for layer in small))]
    layers += small
    layers.sort(key=lambda layer: (layer.hue is not None, layer.block != ""))
    return layers, sampled


# The name, the hue and the block of the layer that contains an array.
def _layer_of(
    life: Mapping[str, Any], layers: Collection[str], hues: Mapping[str, int]
) -> tuple[str, int | None, str | None]:
    block = str(life["block"])
    if life["kind"] == _UNFILLED:
        return _UNFILLED, None, None
    if not block:
        return f"{life['kind']} {UNATTRIBUTED_LABEL}", NO_HUE, ""
    path = block
    while path and path not in layers:
        path = path.rpartition("/")[0]
    is_around = not path and any(layer.startswith(f"{block}/") for layer in layers)
    path = path or block
    return path_text(path) + (" itself" if is_around else ""), hue_or_grey(path, hues), path


def thin(values: Sequence[int], most: int) -> list[int]:
    """Return the indices of all values. If there are more than `most`, keep the largest in each of `most` intervals."""
    if len(values) <= most:
        return list(range(len(values)))
    bounds = [at * len(values) // most for at in range(most + 1)]
    # Of equal values the first one is kept: there the peak is reached.
    return [max(range(first, end), key=lambda at: (values[at], -at)) for first, end in pairwise(bounds)]


# Labels of the kinds of memory.
KINDS = {
    "arguments": "arguments", "outputs": "outputs", "temporaries": "temporaries", "constants": "constants",
    "unfilled": "reserved but unfilled",
}  # fmt: skip
_LARGEST = 10
_BARS = "▁▂▃▄▅▆▇█"
_BARS_WIDE = 60


def memory_text(data: Data) -> str:
    """Return the use of memory as text: the peak, a small chart, the blocks and the largest values at the peak."""
    is_estimate = data["source"] == "analytic"
    lines = [f"{one_line(data['program'])}: memory, {data['source']}", _peak_text(data), *fits_text(data)]
    if data["timeline"]:
        sizes = [moment["bytes"] for moment in data["timeline"]]
        top = max(sizes) or 1
        bars = (_BARS[min(len(_BARS) - 1, sizes[at] * len(_BARS) // top)] for at in thin(sizes, _BARS_WIDE))
        lines.append(f"over time  {''.join(bars)}")
    if data["at_peak"] and data["peak_bytes"]:
        lines += ["", *_blocks(data)]
    at = data["peak_at"]
    if at is not None and data["lives"]:
        lives = [life for life in data["lives"] if life["first"] <= at <= life["last"] and life["kind"] != _UNFILLED]
        lives.sort(key=lambda life: -life["size_bytes"])
        during = f"live during {'position' if is_estimate else 'instruction'}s"
        rows = [("largest values at the peak", "bytes", "kind", "block", during)]
        for life in lives[:_LARGEST]:
            block = path_text(life["block"]) if life["block"] else UNATTRIBUTED_LABEL
            span = f"{life['first'] + 1:,} – {life['last'] + 1:,}"
            rows.append((one_line(life["id"]), nbytes(life["size_bytes"]), life["kind"], block, span))
        lines += ["", columns(rows, right={1, 4})]
    if stats := data["xla"]:
        # An aliased output is in the memory of an argument.
        total = stats["argument"] + stats["output"] + stats["temp"] - stats["alias"]
        parts = ", ".join(f"{name} {nbytes(stats[name])}" for name in ("argument", "output", "temp", "alias"))
        lines += [
            "", f"XLA's memory_analysis(): {parts}; argument + output + temp - alias {nbytes(total)}"
        ]  # fmt: skip
    return "\n".join((*lines, *map(one_line, data["notes"])))


def _peak_text(data: Data) -> str:
    if data["peak_bytes"] is None:
        return f"peak {UNKNOWN}"
    kinds, where = _kinds(data), ""
    if data["peak_at"] is not None and data["timeline"]:
        name = one_line(data["timeline"][data["peak_at"]]["id"])
        # In an estimate, the number of a position is not the id of an equation.
        step, kind = ("position", "equation ") if data["source"] == "analytic" else ("instruction", "")
        of = f"{step} {data['peak_at'] + 1:,} of {len(data['timeline']):,}"
        where = f" at {kind}{name}, {of}" if name else f" at {of}"
    return f"peak {nbytes(data['peak_bytes'])}{where}{': ' if kinds else ''}{kinds}"


def fits_text(data: Data) -> list[str]:
    """Return whether a program fits into its device, in one line; no line if the memory of the device is unknown."""
    size = data.get("capacity_bytes")
    if size is None:
        return []
    answer = {True: "yes", False: "no", None: UNKNOWN}[data["fits"]]
    share = f", {percent(data['peak_bytes'] / size)}" if data["peak_bytes"] is not None else ""
    reasons = (data["fits_reason"], *(data["notes"][-1:] if data["fits"] is None else ()))
    reason = next((f" ({one_line(reason.splitlines()[0])})" for reason in reasons if reason), "")
    return [f"fits in {capacity(size)}: {answer}{share}{reason}"]


def _kinds(data: Data) -> str:
    return ", ".join(f"{KINDS[kind]} {nbytes(size)}" for kind, size in data["kinds"].items() if size)


def _blocks(data: Data) -> Iterator[str]:
    peak, at_peak = data["peak_bytes"], data["at_peak"]
    order = {path: at for at, path in enumerate(data["blocks"])}
    paths = sorted(filter(None, at_peak), key=lambda path: order.get(path, len(order)))
    tree = tree_of({"by_block": {path: {"peak_bytes": at_peak[path]} for path in paths}}, "peak_bytes")
    rows: list[tuple[str, float]] = []
    hidden = 0
    stack = [(branch, 0) for branch in sorted(tree.inside, key=lambda branch: branch.value)]
    while stack:
        branch, depth = stack.pop()
        if branch.value < LEAST_LISTED * peak:
            hidden += sum(part.repeat for part in branch.walk() if part.own)
            continue
        rows.append(("  " * depth + times(branch.label, branch.repeat), branch.value))
        stack += [(child, depth + 1) for child in sorted(branch.inside, key=lambda child: child.value)]
    unfilled = data["kinds"].get(_UNFILLED, 0)
    rest = ((UNATTRIBUTED_LABEL, at_peak.get("", 0) - unfilled), ("(unfilled)", unfilled))
    rows += (row for row in rest if row[1])
    return share_table("at peak", ((name, nbytes(size), size) for name, size in rows), peak, hidden)


def _svg(data: Data, width: int, opened: Collection[str]) -> str:
    page = CostPage({**data, "total": {"peak_bytes": data["peak_bytes"]}}, FIELDS["peak_bytes"], "peak memory", width)
    height = round(max(190, min(300, width * 0.4)))
    if not data["timeline"] or not data["peak_bytes"]:
        reason = " ".join(data["notes"]) or "This program holds no memory."
        page.plate(reason)
        page.note(", ".join(f"{kind} {nbytes(size)}" for kind, size in data["kinds"].items() if size))
        return page.svg(_peak_text(data))
    layers, sampled = layers_of(data, int((width - 2 * MARGIN - _AXIS_W) / _COLUMN), opened)
    # Many layers need height, because a layer lower than a line of text has no name.
    height += 14 * max(0, len(layers) - 8)
    plot = Rect(MARGIN + _AXIS_W, HEAD_H + _TOP, width - 2 * MARGIN - _AXIS_W, height)
    top = _axes(page, plot, data["peak_bytes"], len(data["timeline"]))
    nearest = min(range(len(sampled)), key=lambda at: abs(sampled[at] - data["peak_at"]))
    _steps(page, plot, top, layers, len(sampled), nearest)
    _peak(page, plot, top, data, (nearest + 0.5) * plot.w / len(sampled))
    page.y = plot.bottom + _AXIS_H + FOOT
    held = sorted((layer for layer in layers if layer.at_peak), key=lambda layer: -layer.at_peak)
    page.legend([(layer.tone, f"{layer.name} {nbytes(layer.at_peak)}") for layer in held])
    for note in (f"at the peak: {_kinds(data)}", *data["notes"]):
        page.note(note)
    first = ", ".join(f"{layer.name} {percent(layer.at_peak / data['peak_bytes'])}" for layer in held[:8])
    return page.svg(f"{_peak_text(data)}; held by {first}.")


# Draws the axes, and returns the largest number on the vertical one: a round number that is at least the peak.
def _axes(page: CostPage, plot: Rect, peak: int, count: int) -> float:
    step = 10.0 ** math.floor(math.log10(max(peak, 10))) / 10
    # At most seven lines, at round numbers.
    step = next(step * factor for factor in (1, 2, 5, 10, 20) if step * factor * 7 >= peak)
    ticks = [step * at for at in range(max(2, math.ceil(peak / step) + 1))]
    for value in ticks:
        y = plot.y + plot.h * (1 - value / ticks[-1])
        page.level(plot, y, nbytes(value), tone="track" if value else "line", drop=4)
    base = plot.bottom + 14
    page.text(plot.x, base, "1", "muted", size=SMALL)
    page.text(plot.right, base, exact(count), "muted", size=SMALL, anchor="end")
    about = "position in execution order; loop bodies appear once"
    page.text(plot.x + plot.w / 2, base + 12, about, "muted", size=SMALL, anchor="middle", room=plot.w)
    return ticks[-1]


# Each layer reaches down to the axis and is drawn before the one below it, which covers its lower part: stacked
# outlines would leave hairlines between layers.
def _steps(page: CostPage, plot: Rect, top: float, layers: Sequence[MemoryLayer], count: int, peak: int) -> None:
    sums = [[0] * count]
    for layer in layers:
        sums.append([below + own for below, own in zip(sums[-1], layer.bytes, strict=True)])
    column, base = plot.w / count, plot.bottom
    for layer, above in reversed(list(zip(layers, sums[1:], strict=True))):
        if not any(layer.bytes):
            continue
        tooltip = f"{layer.name}\nat the peak {nbytes(layer.at_peak)}, at most {nbytes(max(layer.bytes))}"
        page.open(tooltip, "layer", layer.block)
        path, drawn = f"M{number(plot.x)} {number(base)}", number(base)
        for at, size in enumerate(above):
            y = number(base - plot.h * size / top)
            if y != drawn:
                path += f"H{number(plot.x + at * column)}V{y}"
                drawn = y
        path += f"H{number(plot.right)}V{number(base)}Z"
        # The first step starts at the left edge, where no level line is needed.
        path = path.replace(f"H{number(plot.x)}V", "V", 1)
        page.path(path, fill=layer.tone or "ground", stroke="ground")
        if layer.hue is None:
            y = plot.y + plot.h * (1 - min(above) / top)
            page.hatched(plot.x, y, plot.w, plot.bottom - y, "line", 6)
        page.close()
    for layer, below in zip(layers, sums, strict=False):
        _label(page, plot, top, layer, below, column, peak)


# If there is room elsewhere, the name does not cover the line of the peak.
def _label(
    page: CostPage, plot: Rect, top: float, layer: MemoryLayer, below: Sequence[int], column: float, peak: int
) -> None:
    span = int(-(-(text_width(layer.name, SMALL) + 8) // column))
    starts = range(0, len(below) - span + 1, max(1, span // 4))
    beside = [start for start in starts if not start <= peak < start + span]

    def room(start: int) -> tuple[float, float]:  # the height of the layer, and its middle
        low = max(below[start : start + span])
        high = min(below[at] + layer.bytes[at] for at in range(start, start + span))
        return plot.h * (high - low) / top, plot.h * (low + high) / 2 / top

    for allowed in (beside, starts):
        start = max(allowed, key=lambda start: room(start)[0], default=None)
        if start is None or room(start)[0] < SMALL + 2:
            continue
        tone = f"on {layer.tone}" if layer.hue is not None else "muted"
        x, y = plot.x + (start + span / 2) * column, plot.bottom - room(start)[1] + SMALL * 0.36
        page.text(x, y, layer.name, tone, size=SMALL, anchor="middle", halo=layer.hue is None)
        return


def _peak(page: CostPage, plot: Rect, top: float, data: Data, at: float) -> None:
    x = plot.x + at
    y = plot.y + plot.h * (1 - data["peak_bytes"] / top)
    page.line([(x, y), (x, plot.bottom)], "ink", dash="3 3")
    page.path(f"M{number(x)} {number(y - 1)}l-5 -8h10z", fill="ink")
    name = one_line(data["timeline"][data["peak_at"]]["id"])
    kind = "equation " if data["source"] == "analytic" else ""
    text = f"peak at {kind}{name}" if name else "peak"
    half = text_width(text, NORMAL) / 2
    middle = min(max(x, plot.x + half), plot.right - half)
    page.text(middle, y - 13, text, size=NORMAL, anchor="middle", room=plot.w, halo=True)
