"""Memory over time as layers: one for each top-level block, or for each part of an opened block."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.viz.costs.blocks import hue_or_grey, hues_of, path_text
from mithril_nb.viz.costs.canvas.svg_canvas import NO_HUE, TINTS
from mithril_nb.viz.palette import LIGHT, hues_of_blocks

Data = Mapping[str, Any]
"""Memory use as data: the result of `MemoryUse.to_dict()`."""

UNFILLED = "unfilled"
_MOST_LAYERS = 16
_SMALL = 0.004
"""Layers that never hold more than this share of the peak are merged."""


@dataclass(frozen=True)
class Layer:
    """The memory of a block and its content.

    Attributes:
        name: Its name.
        hue: Index of its hue; `None` for unused memory.
        tint: Index of the tint of its hue.
        block: Path of its block; `""` for no block, `None` for several.
        bytes: Bytes held at each drawn position.
        at_peak: Bytes held at the peak.
    """

    name: str
    hue: int | None
    tint: int
    block: str | None
    bytes: tuple[int, ...]
    at_peak: int


def assign_layers(blocks: Iterable[str], opened: Collection[str] = ()) -> dict[str, int]:
    """Return the blocks that get a layer each, with their tints: top-level blocks, or the parts of opened blocks.

    Args:
        blocks: Paths of the program's blocks, in program order.
        opened: Paths of the opened blocks.

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
    """Return the layers from bottom to top, and the positions of the timeline that are drawn.

    Args:
        data: Memory use with a timeline.
        most: Largest number of positions. Each group of positions is represented by its maximum, so the peak is kept.
        opened: Paths of blocks that are shown by their parts.
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
    """Return at most `most` positions of the values: all of them, or the first maximum of each group.

    Examples:
        >>> thin([1, 5, 2, 2, 9, 1], 3), thin([4, 3], 3)
        ([1, 2, 4], [0, 1])
    """
    if len(values) <= most:
        return list(range(len(values)))
    bounds = [at * len(values) // most for at in range(most + 1)]
    return [max(range(first, end), key=lambda place: (values[place], -place)) for first, end in pairwise(bounds)]
