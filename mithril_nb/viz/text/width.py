"""Widths of texts from a table, because a layout must not depend on the fonts of the machine that computes it."""

from __future__ import annotations

import unicodedata

# Advance widths in hundredths of the font size, from a wide UI font: text that fits in it fits in the others.
_CLASSES = {
    30: "ijl|.,:;'!",
    34: " `",
    40: 'ftIr()[]/\\-"',
    54: "csJkvxyz",
    60: "abdeghnopqu_*?LFE$#^{}",
    64: "0123456789",
    68: "TZSXYVKPABR~+<>=",
    76: "CDGHNOQU&",
    84: "w→←×",
    92: "mMW%@…",
}
_WIDTHS = {char: width for width, chars in _CLASSES.items() for char in chars}
_USUAL = 60


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width in px of one line of text in a common sans font of `size` px.

    Examples:
        >>> text_width("ii", 10) < text_width("mm", 10) < text_width("mm", 10, bold=True)
        True
    """
    total = 0
    for char in text:
        width = _WIDTHS.get(char)
        if width is None:
            if unicodedata.combining(char):
                width = 0
            else:
                width = 104 if unicodedata.east_asian_width(char) in "WF" else _USUAL
        total += width
    return total * size / 100 * (1.11 if bold else 1.0)


def elide(text: str, size: float, width: float, *, bold: bool = False) -> str:
    """Return the text, shortened to `width` px if needed by replacing its middle with `…`.

    The end is kept because names often differ in their ends: `linear_0`, `linear_1`.

    Examples:
        >>> elide("short", 12, 100)
        'short'
        >>> elide("a_very_long_name_of_a_block_12", 12, 100)
        'a_very_lo…k_12'
    """
    if text_width(text, size, bold=bold) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        keep = (low + high + 1) // 2
        if text_width(_cut(text, keep), size, bold=bold) <= width:
            low = keep
        else:
            high = keep - 1
    return _cut(text, low)


def _cut(text: str, keep: int) -> str:
    tail = keep // 3
    return text[: keep - tail] + "…" + (text[-tail:] if tail else "")
