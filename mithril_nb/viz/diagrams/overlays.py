"""An overlay shows one value on each node of a graph: a number as a bar, a category as a colour."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mithril_nb.display import AT_LEAST
from mithril_nb.viz import units
from mithril_nb.viz.diagrams.labels import SMALL_SIZE
from mithril_nb.viz.palette import HUES, LIGHT
from mithril_nb.viz.svg import element, number
from mithril_nb.viz.text import elide, one_line, text_width

Value = float | str | None
"""A number, the name of a category, or `None` if unknown."""
UNKNOWN = "?"
"""Text of an unknown value."""
OTHER = "other"
"""Category of the rarest values, if there are more categories than colours."""
TINT = 0.18
"""Opacity of the colour behind a text for the largest value. The text must remain readable."""
_BAR, _ROW, _LONGEST = 44, 18, 180
"""Sizes in the legend, in px: length of a bar, height of a row, and largest width of a text."""


@dataclass(frozen=True)
class NodeValue:
    """The value on one node.

    Attributes:
        text: A number with its unit, a category, a formula, or `"?"` if the value is unknown.
        level: Length of the bar, 0 to 1; `None` for a category and for an unknown value.
        hue: Index of the category's colour; `None` for a number and for an unknown value.
    """

    text: str
    level: float | None = None
    hue: int | None = None

    @property
    def is_unknown(self) -> bool:
        """True if the value is neither a number nor a category."""
        return self.level is None and self.hue is None


@dataclass(frozen=True)
class Overlay:
    """Values on the nodes of a graph: all numbers, or all categories.

    Attributes:
        name: Name, such as `"flops"`.
        title: Title, such as `"FLOPs, with inner blocks"`.
        values: Values by key of the node. Nodes without an entry, such as inputs, show no value.
        unit: Unit of the numbers, such as `"FLOP"`, `"B"` or `"s"`.
        bounds: Keys of the nodes whose number is a lower bound.
        texts: Texts to show instead of the number, such as a formula, by key of the node.
        total: Sum over the whole program. `None` if it is unknown, or if a sum has no meaning.
        notes: Notes for the user.

    Examples:
        >>> overlay = Overlay("flops", "FLOPs", {"a": 2000, "b": 500, "c": None}, "FLOP", bounds={"b"})
        >>> [overlay.at(key).text for key in "abc"], overlay.at("d")
        (['2.00 kFLOP', '≥ 500 FLOP', '?'], None)
        >>> Overlay("dtype", "dtype", {"a": "int32", "b": "float32"}).categories
        ('float32', 'int32')
    """

    name: str
    title: str
    values: Mapping[str, Value] = field(repr=False)
    unit: str = ""
    bounds: Collection[str] = field(default=frozenset(), repr=False)
    texts: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    total: float | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """The categories, most frequent first; `()` for numbers. If there are too many, the last one is `OTHER`."""
        found = Counter(value for value in self.values.values() if isinstance(value, str))
        named = tuple(sorted(found, key=lambda one: (-found[one], one)))
        return named if len(named) <= HUES else (*named[: HUES - 1], OTHER)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest known number; `(0, 0)` if no number is known."""
        known = [value for value in self.values.values() if isinstance(value, int | float)]
        return (min(known), max(known)) if known else (0, 0)

    @cached_property
    def has_unknown(self) -> bool:
        """True if the value of a node is unknown."""
        return any(value is None for value in self.values.values())

    @property
    def heading(self) -> str:
        """The title, and the sum over the program if it is known."""
        whole = "" if self.total is None else f": {self.format(self.total)} in total"
        return f"{one_line(self.title)}{whole}"

    def at(self, key: str) -> NodeValue | None:
        """Return the value on a node; `None` if the node shows no value."""
        if key not in self.values:
            return None
        value = self.values[key]
        if isinstance(value, str):
            hue = self.categories.index(value) if value in self.categories else HUES - 1
            return NodeValue(one_line(value), hue=hue)
        text = self.texts.get(key)
        if value is None:
            return NodeValue(text or UNKNOWN)
        bound = AT_LEAST if key in self.bounds and value else ""
        return NodeValue(text or f"{bound}{self.format(value)}", self._level(value))

    def description(self, key: str) -> str:
        """Return the text of a tooltip: title, exact value, and share; `""` if the node shows no value.

        Examples:
            >>> Overlay("flops", "own FLOPs", {"a": 1024}, "FLOP", total=2048).description("a")
            'own FLOPs: 1,024 FLOP, 50.0 %'
        """
        shown = self.at(key)
        if shown is None:
            return ""
        value, text = self.values[key], shown.text
        if shown.is_unknown:
            text = units.UNKNOWN if text == UNKNOWN else f"{text}; of this node: {units.UNKNOWN}"
        elif not isinstance(value, str) and value is not None and key not in self.texts:
            bound = AT_LEAST if key in self.bounds and value else ""
            text = f"{bound}{self._exact(value)}"
            text += f", {units.percent(value / self.total)}" if self.total else ""
        return f"{one_line(self.title)}: {text}"

    def _exact(self, value: float) -> str:
        return f"{value:.9g} s" if self.unit == "s" else f"{units.exact(value)} {self.unit}".rstrip()

    def format(self, value: float) -> str:
        """Format a number with its unit."""
        return units.seconds(value) if self.unit == "s" else units.si(value, self.unit)

    def _level(self, value: float) -> float:
        low, high = min(0, self.ends[0]), max(0, self.ends[1])
        return (value - low) / (high - low) if high > low else 0.0

    def _text(self, key: str) -> str:
        """Return the text of a node for the front end; `""` if the front end can compute it from the value."""
        value = self.values.get(key)
        return one_line(value) if isinstance(value, str) and value not in self.categories else self.texts.get(key, "")

    def of(self, keys: Iterable[str]) -> Overlay:
        """Return the overlay for some nodes only, given by key. Its scale spans only their values."""
        return replace(self, values={key: self.values[key] for key in keys if key in self.values})

    def to_dict(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the overlay as JSON-able data for the front end, with values in the order of `keys`.

        A value is a number, the index of a category, `"?"` if it is unknown, or `None` if the node shows no value.
        """
        listed = list(keys)
        places = {one: at for at, one in enumerate(self.categories)}

        def value_of(key: str) -> float | str | None:
            value = self.values.get(key)
            if isinstance(value, str):
                return places.get(value, HUES - 1)
            return value if value is not None else UNKNOWN if key in self.values else None

        known = {at: key for at, key in enumerate(listed)}
        return {
            "name": self.name,
            "title": one_line(self.title),
            "unit": self.unit,
            "total": self.total,
            "categories": [one_line(one) for one in self.categories],
            "values": [value_of(key) for key in listed],
            "bounds": [at for at, key in known.items() if key in self.bounds],
            "texts": {str(at): text for at, key in known.items() if (text := self._text(key))},
            "notes": list(self.notes),
        }


def known_number(value: float | None) -> float | None:
    """Return a number, or `None` if it cannot be drawn: NaN, infinite, or at least 1e150.

    Examples:
        >>> known_number(2.5), known_number(float("nan")), known_number(None)
        (2.5, None, None)
    """
    if value is None or not abs(value) < 1e150 or math.isnan(value):
        return None
    return value


def draw_value(x: float, y: float, width: float, shown: NodeValue) -> Iterator[str]:
    """Draw a bar of 4 px height. It is full in the colour of a category, and hatched for an unknown value."""
    yield element("rect", class_="track", x=x, y=y, width=width, height=4, rx=2, fill=LIGHT.track)
    if shown.hue is not None:
        hue = shown.hue % HUES
        yield element("rect", class_=f"hue{hue}", x=x, y=y, width=width, height=4, rx=2, fill=LIGHT.hues[hue])
    elif shown.level is not None and shown.level * width >= 0.5:
        yield element(
            "rect", class_="cost", x=x, y=y, width=round(shown.level * width, 1), height=4, rx=2, fill=LIGHT.cost
        )
    elif shown.level is None:
        yield _hatch(x, y, width, 4)


def draw_tint(x: float, y: float, w: float, h: float, shown: NodeValue) -> Iterator[str]:
    """Draw the colour of a value behind the text of a node; nothing for an unknown value or 0."""
    look = {"x": x, "y": y, "width": w, "height": h, "rx": 4}
    if shown.hue is not None:
        hue = shown.hue % HUES
        yield element("rect", class_=f"hue{hue}", **look, fill=LIGHT.hues[hue], fill_opacity=str(TINT))
    elif shown.level is not None and shown.level > 0:
        yield element("rect", class_="cost", **look, fill=LIGHT.cost, fill_opacity=f"{TINT * shown.level:.3f}")


def _hatch(x: float, y: float, w: float, h: float) -> str:
    step = 5
    starts = (x + at for at in range(0, int(w - h) + 1, step))
    d = "".join(f"M{number(start)} {number(y + h)}l{number(h)} {number(-h)}" for start in starts)
    return element("path", class_="wire", d=d, fill="none", stroke=LIGHT.wire, stroke_width=1)


def draw_legend(overlay: Overlay, x: float, y: float, width: float) -> Iterator[str]:
    """Draw the legend: a title, and a bar for each of the `legend_values`."""
    yield _text(x, y + 12, elide(overlay.heading, SMALL_SIZE, width, bold=True), bold=True)
    for left, row, shown, text in _placed(overlay, width):
        top = y + 22 + row * _ROW
        yield from draw_value(x + left, top, _BAR, shown)
        yield _text(x + left + _BAR + 6, top + 6, text)


def legend_size(overlay: Overlay, width: float) -> tuple[float, float]:
    """Return the width, at most `width`, and the height of the legend in px."""
    placed = _placed(overlay, width)
    ends = [left + _BAR + 6 + text_width(text, SMALL_SIZE) for left, _, _, text in placed]
    rows = placed[-1][1] if placed else 0
    return min(width, max(text_width(overlay.heading, SMALL_SIZE, bold=True), *ends, 0)), 40 + rows * _ROW


def _placed(overlay: Overlay, width: float) -> list[tuple[float, int, NodeValue, str]]:
    """Return each entry of the legend as left edge, row, value and text. A row is at most `width` px wide."""
    found: list[tuple[float, int, NodeValue, str]] = []
    left, row = 0.0, 0
    for shown in legend_values(overlay):
        text = elide(shown.text, SMALL_SIZE, _LONGEST)
        needed = _BAR + 6 + text_width(text, SMALL_SIZE)
        if left and left + needed > width:
            left, row = 0.0, row + 1
        found.append((left, row, shown, text))
        left += needed + 18
    return found


def legend_values(overlay: Overlay) -> list[NodeValue]:
    """Return the entries of the legend: the smallest and largest number, or the categories; and `unknown` if needed.

    Examples:
        >>> [one.text for one in legend_values(Overlay("x", "x", {"a": 3, "b": 12, "c": None}, "B"))]
        ['3 B', '12 B', 'unknown']
    """
    found = [NodeValue(one_line(one), hue=at) for at, one in enumerate(overlay.categories)]
    numbers = [value for value in overlay.values.values() if isinstance(value, int | float)]
    if numbers:
        found += [NodeValue(overlay.format(end), overlay._level(end)) for end in dict.fromkeys(overlay.ends)]
    return [*found, *([NodeValue("unknown")] if overlay.has_unknown else [])]


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    look = {"class_": "ink" if bold else "muted", "fill": LIGHT.ink if bold else LIGHT.muted}
    return element("text", text, x=x, y=y, font_size=SMALL_SIZE, font_weight="600" if bold else "", **look)
