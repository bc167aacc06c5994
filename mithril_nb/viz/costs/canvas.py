"""An SVG canvas with tones, the page around a picture, axes, marks, and names that are short but not ambiguous.

A tone is the name of a colour: `"ink"`, `"hue3"`, or `"tint3.1"`, which is tint 1 (of 0 to 3) of hue 3. `"on X"` is the
colour of text on the tone X.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mithril_nb.viz.costs.fields import Data, Field, whole_text
from mithril_nb.viz.palette import DARK, HUES, LIGHT, Theme, contrast, mix_colours, themed_rules
from mithril_nb.viz.svg import Point, Rect, element, line_path, number, opening, root_opening
from mithril_nb.viz.text import block_key, elide, escaped, one_line, text_width

# For each theme, the share of the hue in tints 0 to 3. Text is readable on every tint.
TINTS = {LIGHT: (0.66, 0.52, 0.4, 0.28), DARK: (0.45, 0.37, 0.29, 0.21)}
# Number of the grey hue, for blocks without a hue and for unattributed costs.
NO_HUE = HUES
SMALL, NORMAL, LARGE = 10, 11, 13


def colour(tone: str, theme: Theme) -> str:
    """Return the colour of a tone in a theme."""
    if tone.startswith("on "):
        ground = colour(tone[3:], theme)
        return max((theme.ink, theme.ground), key=lambda ink: contrast(ink, ground))
    if tone.startswith("tint"):
        hue, _, level = tone[4:].partition(".")
        return mix_colours(colour(f"hue{hue}", theme), theme.ground, TINTS[theme][int(level)])
    if tone.startswith("hue"):
        # The number after the last hue is `NO_HUE`.
        return (*theme.hues, theme.muted)[int(tone[3:])]
    return getattr(theme, tone)


def wrap_text(text: str, size: float, width: float) -> list[str]:
    """Break a text into lines of at most `width` px. In a word that is wider, the middle is replaced by `…`."""
    lines: list[str] = []
    for word in one_line(text).split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(joined, size) <= width:
            lines[-1] = joined
        else:
            lines.append(elide(word, size, width))
    return lines


def _class(tone: str) -> str:
    return tone.replace(" ", "-").replace(".", "-")


MARGIN = 8
HEAD_H = 32
FOOT = 8
_ROW = 17
_MOST_ROWS = 3
_MOST_NOTES = 4
_MOST_LINES = 2


class CostPage:
    """A picture with a heading, shapes in tones, and below what is already drawn a legend and notes."""

    def __init__(self, data: Data, kind: Field | None, title: str, width: int):
        self._parts: list[str] = []
        self._tones: set[str] = {"ground", "ink"}
        self.width = width
        self.y: float = HEAD_H
        self._notes = 0
        self.title = ", ".join(part for part in (str(data.get("program") or ""), str(data.get("source") or "")) if part)
        total = "" if kind is None else whole_text(data, kind)
        base = HEAD_H - 12
        room = width - 2 * MARGIN - text_width(total, LARGE, bold=True) - 12
        title = elide(title, LARGE, room, bold=True)
        self.text(MARGIN, base, title, size=LARGE, bold=True)
        used = text_width(title, LARGE, bold=True) + 10
        about = elide(one_line(self.title), NORMAL, room - used)
        if room - used > 30 and len(about) > 1:
            self.text(MARGIN + used, base, about, "muted")
        if total:
            self.text(width - MARGIN, base, total, size=LARGE, bold=True, anchor="end")
        self.title = f"{title}: {self.title}" if self.title else title

    def explain(self, reason: str) -> str:
        """Return the picture with a box that explains why there is nothing to draw."""
        self.plate(reason)
        return self.svg(reason)

    def plate(self, reason: str) -> None:
        """Draw a box with a text that explains why there is nothing to draw."""
        width = self.width - 2 * MARGIN
        self.rect(MARGIN, HEAD_H, width, 96, "surface", stroke="line", rx=4)
        lines = wrap_text(reason, 12, width - 32)[:4]
        at = HEAD_H + 52 - 8 * (len(lines) - 1)
        for index, line in enumerate(lines):
            self.text(MARGIN + width / 2, at + 16 * index, line, "muted", size=12, anchor="middle")
        self.y = HEAD_H + 96 + FOOT

    def legend(self, entries: Sequence[tuple[str, str]], patterns: Mapping[str, int] | None = None) -> None:
        """Draw a legend in at most three rows. If entries are left out, the legend ends with their number."""
        x, row = float(MARGIN), 0
        for index, (tone, text) in enumerate(entries):
            label = elide(one_line(text), NORMAL, min(240, self.width - 2 * MARGIN - 16))
            length = 16 + text_width(label, NORMAL)
            more = f"and {len(entries) - index} more"
            is_end = row == _MOST_ROWS - 1 and index < len(entries) - 1
            spare = text_width(more, NORMAL) + 14 if is_end else 0
            # The last row keeps room for the number of the entries that do not fit.
            if x + length + spare > self.width - MARGIN and x > MARGIN:
                if row == _MOST_ROWS - 1:
                    self.text(x, self.y + 10, more, "muted")
                    break
                x, row = float(MARGIN), row + 1
                self.y += _ROW
            # Squares in the colour of the ground need an edge to be visible.
            edge = "" if tone.startswith(("hue", "tint")) else "muted"
            self.rect(x, self.y + 1, 10, 10, tone or "ground", rx=2, stroke=edge)
            if not tone:
                self.hatched(x, self.y + 1, 10, 10, "muted", 5)
            self.striped(x, self.y + 1, 10, 10, (patterns or {}).get(text, 0), 3)
            self.text(x + 15, self.y + 10, label)
            x += length + 14
        self.y += _ROW + 3 if entries else 0

    def note(self, text: str) -> None:
        """Write a note in at most two lines. A page shows at most four notes; `hidden_notes` returns the others."""
        if self._notes >= _MOST_NOTES:
            return
        self._notes += 1
        for line in wrap_text(text, NORMAL, self.width - 2 * MARGIN)[:_MOST_LINES]:
            self.text(MARGIN, self.y + 10, line, "muted")
            self.y += 15

    def svg(self, described: str) -> str:
        """Return the SVG. `described` is its description for screen readers."""
        style = "max-width:100%;height:auto;font-variant-numeric:tabular-nums"
        width, height = self.width, self.y + 6
        head = root_opening("mnb-cost", width, height, font_size=NORMAL, style=style)
        about = element("title", one_line(self.title)) + (element("desc", described) if described else "")
        ground = element("rect", class_="f-ground", width=width, height=height, fill=LIGHT.ground)
        return "\n".join((head, f"{about}<style>{self._rules()}</style>", ground, *self._parts, "</svg>"))

    # Shapes

    def rect(self, x: float, y: float, w: float, h: float, fill: str, *, stroke: str = "", rx: float = 0) -> None:
        """Draw a rectangle. Its edges are rounded to 0.1 px, so that neighbours have no gap."""
        # Rounding the size instead would leave gaps of 0.1 px, which browsers draw as light lines.
        left, top = round(x, 1), round(y, 1)
        w, h = round(x + w, 1) - left, round(y + h, 1) - top
        self._parts.append(
            element("rect", **self._look(fill, stroke, 1), x=left, y=top, width=w, height=h, rx=rx or None)
        )

    def path(self, d: str, *, fill: str = "", stroke: str = "", width: float = 1, dash: str = "") -> None:
        """Draw a path."""
        self._parts.append(element("path", **self._look(fill, stroke, width), stroke_dasharray=dash, d=d))

    def line(self, points: Sequence[Point], stroke: str, *, width: float = 1, dash: str = "") -> None:
        """Draw a line through points."""
        self.path(line_path(points), stroke=stroke, width=width, dash=dash)

    def level(
        self, area: Rect, y: float, text: str, *, tone: str = "track", size: float = SMALL, drop: float = 3.5
    ) -> None:
        """Draw a line of the grid across a plot, with the text of its tick at the left; `drop` lowers the text."""
        self.line([(area.x, y), (area.right, y)], tone)
        self.text(area.x - 6, y + drop, text, "muted", size=size, anchor="end")

    def hatched(self, x: float, y: float, w: float, h: float, stroke: str, step: float = 7) -> None:
        """Draw slanted lines over a rectangle."""
        strokes = ""
        at = step
        # The limit keeps files small: a picture may be 10,000 px wide.
        while at < w + h and at <= 400 * step:
            start = (x + at, y) if at <= w else (x + w, y + at - w)
            end = (x, y + at) if at <= h else (x + at - h, y + h)
            strokes += line_path((start, end))
            at += step
        self.path(strokes, stroke=stroke)

    def striped(self, x: float, y: float, w: float, h: float, pattern: int, step: float = 6) -> None:
        """Draw lines over a rectangle: lying, upright or both, and then the same with larger distances; none for 0."""
        if not pattern:
            return
        step *= 1 + (pattern - 1) // 3
        kind = (pattern - 1) % 3
        rows = [y + step * at for at in range(1, min(400, math.ceil(h / step)))] if kind != 1 else []
        columns = [x + step * at for at in range(1, min(400, math.ceil(w / step)))] if kind != 0 else []
        lines = [line_path(((x, at), (x + w, at))) for at in rows]
        lines += [line_path(((at, y), (at, y + h))) for at in columns]
        if lines:
            self.path("".join(lines), stroke="ground")

    def text(
        self, x: float, y: float, text: str, tone: str = "ink", *, size: float = NORMAL, bold: bool = False,
        anchor: str = "", room: float | None = None, halo: bool = False, turn: float = 0,
    ) -> None:  # fmt: skip
        """Write one line of text."""
        text = one_line(text)
        if room is not None:
            text = elide(text, size, room, bold=bold)
        self._parts.append(
            element(
                "text", text, **self._look(tone, "ground" if halo else "", 3), x=x, y=y,
                font_size=size if size != NORMAL else None, font_weight="600" if bold else "", text_anchor=anchor,
                transform=f"rotate({number(turn)} {number(x)} {number(y)})" if turn else "",
                paint_order="stroke" if halo else "", stroke_linejoin="round" if halo else "",
            )
        )  # fmt: skip

    def open(self, tooltip: str, name: str = "", block: str | None = None) -> None:
        """Begin a group of shapes with a tooltip, which screen readers read aloud."""
        group = opening("g", class_=name)
        link = "" if block is None else f' data-block="{escaped(block_key(block))}"'
        self._parts.append(f"{group[:-1]}{link}>{element('title', tooltip)}")

    def close(self) -> None:
        """End the group that the last `open` or `shift` began."""
        self._parts.append("</g>")

    def _look(self, fill: str, stroke: str, width: float) -> dict[str, str | float | None]:
        tones = [(kind, tone) for kind, tone in (("f", fill), ("s", stroke)) if tone]
        self._tones.update(tone for _, tone in tones)
        return {
            "class_": " ".join(f"{kind}-{_class(tone)}" for kind, tone in tones),
            # Viewers without style sheets show these attributes; the classes follow the theme.
            "fill": colour(fill, LIGHT) if fill else "none",
            "stroke": colour(stroke, LIGHT) if stroke else None,
            "stroke_width": width if stroke and width != 1 else None,
        }

    def _rules(self) -> str:
        names = {tone: _class(tone) for tone in sorted(self._tones)}
        light, dark = (
            "".join(f"--{name}:{colour(tone, theme)};" for tone, name in names.items()) for theme in (LIGHT, DARK)
        )
        drawn = "".join(f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}" for name in names.values())
        return themed_rules(".mnb-cost", light, dark) + drawn


def hidden_notes(notes: Sequence[str], width: int) -> tuple[str, ...]:
    """Return the notes that `CostPage.note` shows only in part or not at all."""
    room = width - 2 * MARGIN
    return tuple(
        note
        for index, note in enumerate(notes)
        if index >= _MOST_NOTES or len(wrap_text(note, NORMAL, room)) > _MOST_LINES
    )


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic axis from the number `low` at `start` to `high` at `end`, in px."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    def at(self, value: float) -> float:
        """Return the position of a number in px."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Return at most `most` round numbers on the axis. If it is logarithmic, they are powers of ten."""
        if self.is_log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            # With many decades, only each second or third one has a tick.
            return [10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first + 1) / most)))]
        step = _step(self.high - self.low, most - 1)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(at * step, 12) for at in range(first, last + 1)]


def decades(values: Iterable[float], start: float, end: float) -> Scale:
    """Return a logarithmic scale that contains the values, all above 0. Its ends are powers of ten."""
    numbers = [*values]
    low, high = math.floor(math.log10(min(numbers)) + 1e-9), math.ceil(math.log10(max(numbers)) - 1e-9)
    # A single number needs an axis of one decade, because its own has length 0.
    return Scale(10.0**low, 10.0 ** max(high, low + 1), start, end, True)


def scale_of(values: Iterable[float], start: float, end: float) -> Scale:
    """Return a scale that contains the values.

    The scale is logarithmic if all values are above 0 and the largest is more than 100 times the smallest. Otherwise it
    is linear and contains 0.

    Examples:
        >>> scale_of([2, 8], 0, 100), scale_of([2, 800], 0, 100).is_log
        (Scale(low=0.0, high=8.0, start=0, end=100, is_log=False), True)
    """
    numbers = [*values] or [0.0]
    low, high = min(numbers), max(numbers)
    if low > 0 and high / low > 100:
        return decades(numbers, start, end)
    low = min(low, 0.0)
    if high <= low:
        # All values are equal: the axis needs some length.
        low, high = (0.0, high * 2) if high > 0 else (low, low + 1)
    step = _step(high - low, 5)
    return Scale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, start, end, False)


# The smallest step of 1, 2, 2.5 or 5 times a power of ten with which `parts` steps cover the span.
def _step(span: float, parts: int) -> float:
    power = 10.0 ** math.floor(math.log10(span / parts))
    return next(size * power for size in (1, 2, 2.5, 5, 10) if size * power * parts >= span * (1 - 1e-9))


def _polygon(*corners: tuple[float, float]) -> Callable[[float, float, float], str]:
    def path(x: float, y: float, r: float) -> str:
        return "M" + "L".join(f"{number(x + r * dx)} {number(y + r * dy)}" for dx, dy in corners) + "Z"

    return path


def _circle(x: float, y: float, r: float) -> str:
    size, across = f"a{number(r)} {number(r)} 0 1 0", number(2 * r)
    return f"M{number(x - r)} {number(y)}{size} {across} 0{size} -{across} 0Z"


# One function for each shape of mark: it returns an SVG path. Different shapes distinguish points without colours.
MARKS = (
    _circle,
    _polygon((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    _polygon((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
    _polygon((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    _polygon((0, 1.15), (1.1, -0.85), (-1.1, -0.85)),
    _polygon(
        (-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4), (0.4, 1.1), (-0.4, 1.1),
        (-0.4, 0.4), (-1.1, 0.4), (-1.1, -0.4), (-0.4, -0.4),
    ),
    _polygon((0, -1.15), (1.1, -0.35), (0.7, 0.95), (-0.7, 0.95), (-1.1, -0.35)),
    _polygon((-1.15, 0), (-0.55, -1), (0.55, -1), (1.15, 0), (0.55, 1), (-0.55, 1)),
)  # fmt: skip


def mark(page: CostPage, shape: int, x: float, y: float, tone: str, *, hollow: bool = False, r: float = 4.5) -> None:
    """Draw the mark of a point, about `2 * r` px wide, with its centre at `(x, y)`."""
    d = MARKS[shape % len(MARKS)](x, y, r)
    page.path(d, fill="ground" if hollow else tone, stroke=tone if hollow else "ground", width=1.8 if hollow else 1)


def tick_text(value: float) -> str:
    """Format a round number in few characters.

    Examples:
        >>> [tick_text(value) for value in (0, 0.001, 0.25, 10, 2500, 1e9)]
        ['0', '0.001', '0.25', '10', '2.5 k', '1 G']
    """
    for power, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(value) >= 10.0**power * (1 - 1e-9):
            return f"{value / 10.0**power:.4g} {prefix}"
    return f"{value:.4g}"
