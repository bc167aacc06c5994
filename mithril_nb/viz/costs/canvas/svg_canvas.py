"""A canvas for shapes and texts, which returns one SVG for light and dark themes; and the layout of a cost picture.

A colour is given by its name, called a tone: `"ink"`, `"hue3"`, or `"tint3.1"`, which is tint 1 (of 0 to 3) of `"hue3"`
and paler. `"on tint3.1"` is a colour for text that is readable on `"tint3.1"`. The SVG has light colours as attributes,
for programs that ignore style sheets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mithril_nb.viz.costs.fields import Data, Field, whole_text
from mithril_nb.viz.palette import DARK, HUES, LIGHT, Theme, contrast, mix_colours, themed_rules
from mithril_nb.viz.svg import Point, Rect, element, line_path, number, opening, root_opening
from mithril_nb.viz.text import block_key, elide, escaped, one_line, text_width

TINTS = {LIGHT: (0.66, 0.52, 0.4, 0.28), DARK: (0.45, 0.37, 0.29, 0.21)}
"""For each theme, the share of the hue in tints 0 to 3. Text is readable on every tint."""
NO_HUE = HUES
"""Number of the grey hue, for blocks without a hue and for unattributed costs."""
SMALL, NORMAL, LARGE = 10, 11, 13


def colour(tone: str, theme: Theme) -> str:
    """Return the colour of a tone as `#rrggbb`. A tone is the name of a colour that differs between themes.

    Examples:
        >>> colour("hue0", LIGHT), colour("tint0.3", LIGHT), colour("on tint0.3", LIGHT)
        ('#0072B2', '#b8d8e9', '#1b2026')
    """
    if tone.startswith("on "):
        ground = colour(tone[3:], theme)
        return max((theme.ink, theme.ground), key=lambda ink: contrast(ink, ground))
    if tone.startswith("tint"):
        hue, _, level = tone[4:].partition(".")
        return mix_colours(colour(f"hue{hue}", theme), theme.ground, TINTS[theme][int(level)])

    if tone.startswith("hue"):
        return theme.muted if int(tone[3:]) == NO_HUE else theme.hues[int(tone[3:])]
    found = getattr(theme, tone)
    assert isinstance(found, str)
    return found


class SvgCanvas:
    """A canvas that collects the shapes drawn on it. Later shapes cover earlier ones."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._tones: dict[str, None] = {"ground": None, "ink": None}

    def rect(self, x: float, y: float, w: float, h: float, fill: str, *, stroke: str = "", rx: float = 0) -> None:
        """Draw a rectangle. Its edges are rounded to 0.1 px, so that rectangles side by side have no gap."""
        left, top = round(x, 1), round(y, 1)
        w, h = round(x + w, 1) - left, round(y + h, 1) - top
        look = self._look(fill, stroke, 1)
        self._parts.append(element("rect", **look, x=left, y=top, width=w, height=h, rx=rx or None))

    def path(self, d: str, *, fill: str = "", stroke: str = "", width: float = 1, dash: str = "") -> None:
        """Draw a path."""
        self._parts.append(element("path", **self._look(fill, stroke, width), stroke_dasharray=dash, d=d))

    def line(self, points: Sequence[Point], stroke: str, *, width: float = 1, dash: str = "") -> None:
        """Draw a line through points."""
        self.path(line_path(points), stroke=stroke, width=width, dash=dash)

    def hatched(self, x: float, y: float, w: float, h: float, stroke: str, step: float = 7) -> None:
        """Fill a rectangle with slanted lines."""
        strokes: list[str] = []
        at = step
        while at < w + h and len(strokes) < 400:
            start = (x + at, y) if at <= w else (x + w, y + at - w)
            end = (x, y + at) if at <= h else (x + at - h, y + h)
            strokes.append(line_path((start, end)))
            at += step
        self.path("".join(strokes), stroke=stroke)

    def striped(self, x: float, y: float, w: float, h: float, pattern: int, step: float = 6) -> None:
        """Draw lines in the background colour over a rectangle, to distinguish areas of the same colour.

        Args:
            x: Left edge.
            y: Top edge.
            w: Width.
            h: Height.
            pattern: 0 draws no lines, 1 horizontal lines, 2 vertical lines, and 3 draws both. 4, 5 and 6 draw the same
                as 1, 2 and 3 with twice the distance between lines; 7, 8 and 9 with three times the distance.
            step: Distance in px between the lines of patterns 1 to 3.
        """
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
        """Write one line of text.

        Args:
            x: Position of the start of the text, or of its middle or end if `anchor` is `"middle"` or `"end"`.
            y: Position of the base line.
            text: The text; any characters are allowed.
            tone: Name of the colour, such as `"ink"` or `"hue0"`; see `colour`.
            size: Size of the font in px.
            bold: Whether the text is bold.
            anchor: `"middle"`, `"end"`, or `""` for the start.
            room: Largest width in px. The middle of a wider text is replaced by `…`.
            halo: Whether the letters have a border in the background colour, which makes them readable on lines.
            turn: Rotation around `(x, y)` in degrees.
        """
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
        """Begin a group of shapes with a tooltip, which screen readers read aloud.

        Args:
            tooltip: The tooltip.
            name: CSS class of the group; `""` for none.
            block: Path of the block that the group shows, or `""` for unattributed costs. A page highlights the group
                together with other views of the block. `None` for a group that is not linked to a block.
        """
        group = opening("g", class_=name)
        link = "" if block is None else f' data-block="{escaped(block_key(block))}"'
        self._parts.append(f"{group[:-1]}{link}>{element('title', tooltip)}")

    def shift(self, x: float, y: float) -> None:
        """Begin a group of shapes that is moved right by `x` and down by `y`."""
        self._parts.append(opening("g", transform=f"translate({number(x)} {number(y)})"))

    def close(self) -> None:
        """End the group that the last `open` or `shift` began."""
        self._parts.append("</g>")

    def svg(self, width: float, height: float, title: str, described: str = "") -> str:
        """Return the SVG.

        Args:
            width: Width in px.
            height: Height in px.
            title: Accessible name, read by screen readers.
            described: A longer description, read by screen readers.
        """
        style = "max-width:100%;height:auto;font-variant-numeric:tabular-nums"
        head = root_opening("mnb-cost", width, height, font_size=NORMAL, style=style)
        about = element("title", one_line(title)) + (element("desc", described) if described else "")
        ground = element("rect", class_="f-ground", width=width, height=height, fill=LIGHT.ground)
        return "\n".join((head, f"{about}<style>{self._rules()}</style>", ground, *self._parts, "</svg>"))

    def _look(self, fill: str, stroke: str, width: float) -> dict[str, str | float | None]:
        """Return the SVG attributes of two tones, and add the tones to the style sheet."""
        tones = [(kind, tone) for kind, tone in (("f", fill), ("s", stroke)) if tone]
        self._tones.update(dict.fromkeys(tone for _, tone in tones))
        return {
            "class_": " ".join(f"{kind}-{_class(tone)}" for kind, tone in tones),
            "fill": colour(fill, LIGHT) if fill else "none",
            "stroke": colour(stroke, LIGHT) if stroke else None,
            "stroke_width": width if stroke and width != 1 else None,
        }

    def _rules(self) -> str:
        names = {tone: _class(tone) for tone in sorted(self._tones)}
        light, dark = _variables(names, LIGHT), _variables(names, DARK)
        drawn = "".join(f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}" for name in names.values())
        return themed_rules(".mnb-cost", light, dark) + drawn


def wrap_text(text: str, size: float, width: float) -> list[str]:
    """Break a text into lines of at most `width` px. In a word that is wider, the middle is replaced by `…`.

    Examples:
        >>> wrap_text("nothing here is run, so no time is known", 11, 120)
        ['nothing here is run,', 'so no time is known']
    """
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


def _variables(names: Mapping[str, str], theme: Theme) -> str:
    return "".join(f"--{name}:{colour(tone, theme)};" for tone, name in names.items())


MARGIN = 8
HEAD_H = 32
FOOT = 8
_ROW = 17
_MOST_ROWS = 3
_MOST_NOTES = 4
_MOST_LINES = 2


class Page:
    """A picture with a heading. Legend and notes are added below what is already drawn.

    Args:
        data: The costs to draw. The heading contains `program` and `source`, and the cost `kind` from `total`.
        kind: The cost whose total is in the heading; `None` for a heading without a total.
        title: Title of the picture.
        width: Width in px.

    Attributes:
        sheet: The canvas to draw on.
        y: Lower edge in px of what is already drawn.
        width: Width in px.
    """

    def __init__(self, data: Data, kind: Field | None, title: str, width: int):
        self.sheet = SvgCanvas()
        self.width = width
        self.y: float = HEAD_H
        self._notes = 0
        self.title = ", ".join(part for part in (str(data.get("program") or ""), str(data.get("source") or "")) if part)
        whole = "" if kind is None else whole_text(data, kind)
        base = HEAD_H - 12
        room = width - 2 * MARGIN - text_width(whole, LARGE, bold=True) - 12
        title = elide(title, LARGE, room, bold=True)
        self.sheet.text(MARGIN, base, title, size=LARGE, bold=True)
        used = text_width(title, LARGE, bold=True) + 10
        about = elide(one_line(self.title), NORMAL, room - used)
        if room - used > 30 and len(about) > 1:
            self.sheet.text(MARGIN + used, base, about, "muted")
        if whole:
            self.sheet.text(width - MARGIN, base, whole, size=LARGE, bold=True, anchor="end")
        self.title = f"{title}: {self.title}" if self.title else title

    def plate(self, within: Rect, reason: str) -> None:
        """Draw a box with a text that explains why there is nothing to draw."""
        self.sheet.rect(within.x, within.y, within.w, 96, "surface", stroke="line", rx=4)
        lines = wrap_text(reason, 12, within.w - 32)[:4]
        at = within.y + 52 - 8 * (len(lines) - 1)
        for place, line in enumerate(lines):
            self.sheet.text(within.x + within.w / 2, at + 16 * place, line, "muted", size=12, anchor="middle")
        self.y = within.y + 96 + FOOT

    def legend(self, entries: Sequence[tuple[str, str]], patterns: Mapping[str, int] | None = None) -> None:
        """Draw a legend in at most three rows. If entries are left out, the legend ends with their number.

        Args:
            entries: Pairs of tone and text. The square before the text has this colour; for the tone `""` it is
                hatched.
            patterns: Pattern of the square, as in `SvgCanvas.striped`, by text of the entry.
        """
        x, row = float(MARGIN), 0
        for place, (tone, text) in enumerate(entries):
            shown = elide(one_line(text), NORMAL, min(240, self.width - 2 * MARGIN - 16))
            length = 16 + text_width(shown, NORMAL)
            more = f"and {len(entries) - place} more"
            is_end = row == _MOST_ROWS - 1 and place < len(entries) - 1
            spare = text_width(more, NORMAL) + 14 if is_end else 0
            if x + length + spare > self.width - MARGIN and x > MARGIN:
                if row == _MOST_ROWS - 1:
                    self.sheet.text(x, self.y + 10, more, "muted")
                    break
                x, row = float(MARGIN), row + 1
                self.y += _ROW
            edge = "" if tone.startswith(("hue", "tint")) else "muted"
            self.sheet.rect(x, self.y + 1, 10, 10, tone or "ground", rx=2, stroke=edge)
            if not tone:
                self.sheet.hatched(x, self.y + 1, 10, 10, "muted", 5)
            self.sheet.striped(x, self.y + 1, 10, 10, (patterns or {}).get(text, 0), 3)
            self.sheet.text(x + 15, self.y + 10, shown)
            x += length + 14
        self.y += _ROW + 3 if entries else 0

    def note(self, text: str) -> None:
        """Write a note in at most two lines. A page shows at most four notes; `hidden_notes` returns the others."""
        if self._notes >= _MOST_NOTES:
            return
        self._notes += 1
        for line in wrap_text(text, NORMAL, self.width - 2 * MARGIN)[:_MOST_LINES]:
            self.sheet.text(MARGIN, self.y + 10, line, "muted")
            self.y += 15

    def svg(self, described: str) -> str:
        """Return the page as SVG text."""
        return self.sheet.svg(self.width, self.y + 6, self.title, described)


def hidden_notes(notes: Sequence[str], width: int) -> tuple[str, ...]:
    """Return the notes that `Page.note` shows only in part or not at all.

    Examples:
        >>> hidden_notes(["a", "b", "c", "d", "e"], 720)
        ('e',)
    """
    room = width - 2 * MARGIN
    return tuple(
        note
        for place, note in enumerate(notes)
        if place >= _MOST_NOTES or len(wrap_text(note, NORMAL, room)) > _MOST_LINES
    )
