"""An overlay shows one value on each node of a graph: a number as a bar, a category as a colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mithril_nb.display import AT_LEAST
from mithril_nb.viz import units
from mithril_nb.viz.diagrams.logical import SMALL_SIZE
from mithril_nb.viz.palette import HUES, LIGHT
from mithril_nb.viz.svg import element, number
from mithril_nb.viz.text import elide, one_line, text_width

# A number, the name of a category, or `None` if unknown.
Value = float | str | None
# Text of an unknown value.
UNKNOWN = "?"
# Category of the rarest values, if there are more categories than colours.
OTHER = "other"
# Opacity of the colour behind a text for the largest value. The text must remain readable.
TINT = 0.18
# Sizes in the legend, in px: length of a bar, height of a row, and largest width of a text.
_BAR, _ROW, _LONGEST = 44, 18, 180


@dataclass(frozen=True)
class NodeValue:
    """The value on one node."""

    text: str
    level: float | None = None
    hue: int | None = None

    @property
    def is_unknown(self) -> bool:
        """True if the value is neither a number nor a category."""
        return self.level is None and self.hue is None


@dataclass(frozen=True)
class Overlay:
    """Values on the nodes of a graph: all numbers, or all categories."""

    name: str
    title: str
    # Values by key of the node. Nodes without an entry, such as inputs, show no value.
    values: Mapping[str, Value] = field(repr=False)
    # Unit of the numbers, such as `"FLOP"`, `"B"` or `"s"`
    unit: str = ""
    # Keys of the nodes whose number is a lower bound
    bounds: Collection[str] = field(default=frozenset(), repr=False)
    # Texts to show instead of the number, such as a formula, by key of the node
    texts: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    # Sum over the whole program. `None` if it is unknown, or if a sum has no meaning.
    total: float | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """The categories, most frequent first; `()` for numbers. If there are too many, the last one is `OTHER`."""
        counts = Counter(value for value in self.values.values() if isinstance(value, str))
        named = tuple(sorted(counts, key=lambda category: (-counts[category], category)))
        # With more categories than hues, two frequent ones could look equal: the rarest share a hue instead.
        return named if len(named) <= HUES else (*named[: HUES - 1], OTHER)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest known number; `(0, 0)` if no number is known."""
        numbers = [value for value in self.values.values() if isinstance(value, int | float)]
        return (min(numbers), max(numbers)) if numbers else (0, 0)

    @property
    def heading(self) -> str:
        """The title, and the sum over the program if it is known."""
        return one_line(self.title) + ("" if self.total is None else f": {self.format(self.total)} in total")

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
        return NodeValue(text or self._bound(key) + self.format(value), self._level(value))

    def description(self, key: str) -> str:
        """Return the text of a tooltip: title, exact value, and share; `""` if the node shows no value."""
        node_value = self.at(key)
        if node_value is None:
            return ""
        value, text = self.values[key], node_value.text
        if node_value.is_unknown:
            text = units.UNKNOWN if text == UNKNOWN else f"{text}; of this node: {units.UNKNOWN}"
        elif not isinstance(value, str) and value is not None and key not in self.texts:
            exact = f"{value:.9g} s" if self.unit == "s" else f"{units.exact(value)} {self.unit}".rstrip()
            text = self._bound(key) + exact + (f", {units.percent(value / self.total)}" if self.total else "")
        return f"{one_line(self.title)}: {text}"

    def _bound(self, key: str) -> str:
        return AT_LEAST if key in self.bounds and self.values[key] else ""

    def format(self, value: float) -> str:
        """Format a number with its unit."""
        return units.seconds(value) if self.unit == "s" else units.si(value, self.unit)

    def _level(self, value: float) -> float:
        # Bars start at 0: a scale from the smallest value would exaggerate differences.
        low, high = min(0, self.ends[0]), max(0, self.ends[1])
        return (value - low) / (high - low) if high > low else 0.0

    def of(self, keys: Iterable[str]) -> Overlay:
        """Return the overlay for some nodes only, given by key. Its scale spans only their values."""
        return replace(self, values={key: self.values[key] for key in keys if key in self.values})

    def to_dict(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the overlay as JSON-able data for the front end, with values in the order of `keys`.

        A value is a number, the index of a category, `"?"` if it is unknown, or `None` if the node shows no value.
        """
        index = {category: at for at, category in enumerate(self.categories)}
        values: list[Value] = []
        bounds: list[int] = []
        texts: dict[str, str] = {}
        for at, key in enumerate(keys):
            value, text = self.values.get(key), self.texts.get(key, "")
            if isinstance(value, str):
                text = text if value in index else one_line(value)
                value = index.get(value, HUES - 1)
            elif value is None and key in self.values:
                value = UNKNOWN
            values.append(value)
            if key in self.bounds:
                bounds.append(at)
            if text:
                texts[str(at)] = text
        return {
            "name": self.name,
            "title": one_line(self.title),
            "unit": self.unit,
            "total": self.total,
            "categories": [one_line(category) for category in self.categories],
            "values": values,
            "bounds": bounds,
            "texts": texts,
            "notes": list(self.notes),
        }


def known_number(value: float | None) -> float | None:
    """Return a number, or `None` if it cannot be drawn: NaN, infinite, or at least 1e150."""
    return value if value is not None and abs(value) < 1e150 else None


def draw_value(x: float, y: float, width: float, value: NodeValue) -> Iterator[str]:
    """Draw a bar of 4 px height. It is full in the colour of a category, and hatched for an unknown value."""

    def bar(name: str, length: float, fill: str) -> str:
        return element("rect", class_=name, x=x, y=y, width=length, height=4, rx=2, fill=fill)

    yield bar("track", width, LIGHT.track)
    if value.hue is not None:
        yield bar(f"hue{value.hue % HUES}", width, LIGHT.hues[value.hue % HUES])
    elif value.level is None:
        # Hatched, because an empty bar would be 0.
        starts = range(0, int(width - 4) + 1, 5)
        d = "".join(f"M{number(x + start)} {number(y + 4)}l4 -4" for start in starts)
        yield element("path", class_="wire", d=d, fill="none", stroke=LIGHT.wire, stroke_width=1)
    elif value.level * width >= 0.5:
        yield bar("cost", round(value.level * width, 1), LIGHT.cost)


def draw_tint(x: float, y: float, w: float, h: float, value: NodeValue) -> Iterator[str]:
    """Draw the colour of a value behind the text of a node; nothing for an unknown value or 0."""
    look = {"x": x, "y": y, "width": w, "height": h, "rx": 4}
    if value.hue is not None:
        hue = value.hue % HUES
        yield element("rect", class_=f"hue{hue}", **look, fill=LIGHT.hues[hue], fill_opacity=str(TINT))
    elif value.level is not None and value.level > 0:
        yield element("rect", class_="cost", **look, fill=LIGHT.cost, fill_opacity=f"{TINT * value.level:.3f}")


def draw_legend(overlay: Overlay, x: float, y: float, width: float) -> Iterator[str]:
    """Draw the legend: a title, and a bar for each of the `legend_values`."""
    heading = elide(overlay.heading, SMALL_SIZE, width, bold=True)
    yield element("text", heading, x=x, y=y + 12, font_size=SMALL_SIZE, font_weight="600", class_="ink", fill=LIGHT.ink)
    for left, row, value, text in _placed(overlay, width):
        top = y + 22 + row * _ROW
        yield from draw_value(x + left, top, _BAR, value)
        yield element(
            "text", text, x=x + left + _BAR + 6, y=top + 6, font_size=SMALL_SIZE, class_="muted", fill=LIGHT.muted
        )


def legend_size(overlay: Overlay, width: float) -> tuple[float, float]:
    """Return the width, at most `width`, and the height of the legend in px."""
    placed = _placed(overlay, width)
    ends = [left + _BAR + 6 + text_width(text, SMALL_SIZE) for left, _, _, text in placed]
    rows = placed[-1][1] if placed else 0
    return min(width, max(text_width(overlay.heading, SMALL_SIZE, bold=True), *ends, 0)), 40 + rows * _ROW


def _placed(overlay: Overlay, width: float) -> list[tuple[float, int, NodeValue, str]]:
    rows: list[tuple[float, int, NodeValue, str]] = []
    left, row = 0.0, 0
    for value in legend_values(overlay):
        text = elide(value.text, SMALL_SIZE, _LONGEST)
        needed = _BAR + 6 + text_width(text, SMALL_SIZE)
        if left and left + needed > width:
            left, row = 0.0, row + 1
        rows.append((left, row, value, text))
        left += needed + 18
    return rows


def legend_values(overlay: Overlay) -> list[NodeValue]:
    """Return the entries of the legend: the smallest and largest number, or the categories; and `unknown` if needed."""
    values = [NodeValue(one_line(category), hue=at) for at, category in enumerate(overlay.categories)]
    if any(isinstance(value, int | float) for value in overlay.values.values()):
        values += [NodeValue(overlay.format(end), overlay._level(end)) for end in dict.fromkeys(overlay.ends)]
    return values + [NodeValue("unknown")] * (None in overlay.values.values())
