"""The colours of both themes, and the hue of each block. A hue is the index of a colour, 0 to 7.

The hues derive from Okabe and Ito's colour-blind-safe set, with the contrast that AA requires of signs. In the front
end they are `--mnb-hue-0` to `--mnb-hue-7`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from mithril_nb.viz.text import outer_paths

LIGHT_HUES = ("#0072B2", "#D55E00", "#009E73", "#C2699B", "#B8860B", "#3590C8", "#7A5195", "#5D6D7E")
DARK_HUES = ("#4FA8DC", "#F08A4B", "#3CC79A", "#E3A0C5", "#E0B040", "#8CCBF2", "#B08BD0", "#A3B1BF")
HUES = len(LIGHT_HUES)
# Share of the accent colour in the background of a line: of a highlighted line, and of a pinned line.
LIT, PINNED = 0.11, 0.19
_FEWEST_HUES = 3


def hues_of_blocks(paths: Iterable[str]) -> dict[str, int]:
    """Return the hue of each top-level block, 0 to 7. The blocks inside it have the same hue; see `hue_of`.

    If there are fewer than three top-level blocks, the one with the most blocks inside is replaced by the blocks
    directly inside it, until there are three: a program inside a single function would otherwise have one colour. The
    loss and the optimizer have no hue.
    """
    children: dict[str, dict[str, None]] = {}
    inside: dict[str, int] = {}
    for path in dict.fromkeys(paths):
        around = () if path.startswith("(") else outer_paths(path)
        for above, here in pairwise(("", *around)):
            children.setdefault(above, {})[here] = None
            inside[here] = inside.get(here, 0) + 1
    hued = list(children.get("", ()))
    while len(hued) < _FEWEST_HUES:
        largest = max((path for path in hued if path in children), key=inside.__getitem__, default=None)
        if largest is None:
            break
        at = hued.index(largest)
        hued[at : at + 1] = children[largest]
    return {path: at % HUES for at, path in enumerate(hued)}


def hue_of(block: str, hues: Mapping[str, int]) -> int | None:
    """Return the hue of a block, or else of the nearest block around it with a hue; `None` if there is none."""
    while block and block not in hues:
        block = block.rpartition("/")[0]
    return hues.get(block)


@dataclass(frozen=True)
class Theme:
    """The colours of one theme. Text has the contrast that level AA of WCAG requires."""

    ground: str
    surface: str
    line: str
    wire: str
    ink: str
    muted: str
    accent: str
    bad: str
    cost: str
    track: str
    hues: tuple[str, ...]
    code: tuple[str, str, str, str, str, str]


LIGHT = Theme(
    ground="#ffffff",
    surface="#f7f8fa",
    line="#c5ccd3",
    wire="#6b7681",
    ink="#1b2026",
    muted="#545d68",
    accent="#6a3df0",
    bad="#b3261e",
    cost="#8a4b08",
    track="#e3e7eb",
    hues=LIGHT_HUES,
    code=("#7d2a8c", "#1f4e9c", "#0b6b5b", "#8a4b08", "#8c1d40", "#525b65"),
)
DARK = Theme(
    ground="#15181c",
    surface="#1f242a",
    line="#444d57",
    wire="#8d98a4",
    ink="#e8ebee",
    muted="#a7b0ba",
    accent="#b49bff",
    bad="#ff8a80",
    cost="#f2b366",
    track="#343b43",
    hues=DARK_HUES,
    code=("#d8a3e8", "#8fbcf5", "#6fd0bb", "#f2b366", "#f79ab0", "#9aa4af"),
)


def themed_rules(selector: str, light: str, dark: str) -> str:
    """Return CSS rules that apply `light` or `dark`, two lists of declarations, to a selector.

    The theme of JupyterLab decides between them; on other pages, the theme of the system does.
    """
    return (
        # Rules with the attribute are more specific, so that JupyterLab's theme wins over the system's.
        f"{selector}{{{light}}}@media (prefers-color-scheme:dark){{{selector}{{{dark}}}"
        f'[data-jp-theme-light="true"] {selector}{{{light}}}}}[data-jp-theme-light="false"] {selector}{{{dark}}}'
    )


def luminance(colour: str) -> float:
    """Return the relative luminance of a `#rrggbb` colour: 0 is black, 1 is white."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    # The transfer function of sRGB, with the constants of WCAG 2.2.
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21, by the formula of WCAG 2.

    Level AA needs 4.5 for text and 3 for signs.
    """
    dark, light = sorted((luminance(first), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def mix_colours(colour: str, ground: str, amount: float) -> str:
    """Mix `amount` (0 to 1) of `colour` into `ground` and return it as solid `#rrggbb`."""
    parts = (
        round(int(ground[at : at + 2], 16) * (1 - amount) + int(colour[at : at + 2], 16) * amount) for at in (1, 3, 5)
    )
    return "#" + "".join(f"{part:02x}" for part in parts)
