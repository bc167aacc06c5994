"""The common parts of cost pictures: head, legend and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mithril_nb.viz.costs.canvas.squares import Rect
from mithril_nb.viz.costs.canvas.svg_canvas import LARGE, NORMAL, SvgCanvas, wrap_text
from mithril_nb.viz.costs.fields import Data, Field, whole_text
from mithril_nb.viz.text.escape import one_line
from mithril_nb.viz.text.width import elide, text_width

MARGIN = 8
HEAD_H = 32
FOOT = 8
_ROW = 17
_MOST_ROWS = 3
_MOST_NOTES = 4
_MOST_LINES = 2


class Page:
    """A sheet with a head; further parts are added from top to bottom.

    Args:
        data: The data of the picture: `program`, `source`, and `total` if there is one.
        kind: Field to show; `None` for several fields.
        title: Title of the picture.
        width: Width in px.

    Attributes:
        sheet: The sheet to draw on.
        y: Lower edge of the drawn part.
        width: Its width in px.
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
        """Draw an empty plate with the reason why there is nothing to draw."""
        self.sheet.rect(within.x, within.y, within.w, 96, "surface", stroke="line", rx=4)
        lines = wrap_text(reason, 12, within.w - 32)[:4]
        at = within.y + 52 - 8 * (len(lines) - 1)
        for place, line in enumerate(lines):
            self.sheet.text(within.x + within.w / 2, at + 16 * place, line, "muted", size=12, anchor="middle")
        self.y = within.y + 96 + FOOT

    def legend(self, entries: Sequence[tuple[str, str]], patterns: Mapping[str, int] | None = None) -> None:
        """Draw a legend in a few rows; entries without room are counted.

        Args:
            entries: A tone and a text each; an empty tone is hatched.
            patterns: Patterns of entries with the same tone, by text, as in `SvgCanvas.striped`.
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
        """Write a note if there is room; the text of the picture has all notes."""
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
    """Return the notes that a page does not show in full: notes after the first few, and long ones.

    Args:
        notes: All notes.
        width: Width of the page in px.

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
