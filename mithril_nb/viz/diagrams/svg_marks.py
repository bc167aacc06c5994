"""The marks of a comparison on the nodes of a scene: a rim and a sign, so that colour is never the only difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mithril_nb.viz.diagrams.scene import SceneNode
from mithril_nb.viz.diagrams.svg_nodes import draw_rect
from mithril_nb.viz.palette import LIGHT, Theme
from mithril_nb.viz.svg import element, number

MARKS: Mapping[str, str] = {"added": "+", "removed": "−", "changed": "~"}
"""The sign of each mark."""
_SIGNS = {
    "added": "M{x} {y}m-4 0h8m-4 -4v8",
    "removed": "M{x} {y}m-4 0h8",
    "changed": "M{x} {y}m-4.5 1.5c1.5 -4 3 -4 4.5 -1.5s3 2.5 4.5 -1.5",
}
"""The signs as paths around a point, which look the same in every font."""


def _colour(mark: str, theme: Theme) -> str:
    return {"added": theme.code[2], "removed": theme.bad, "changed": theme.cost}[mark]


def mark_rules(theme: Theme) -> Iterator[str]:
    """Yield the CSS rules of the marks in a theme."""
    for mark in MARKS:
        colour = _colour(mark, theme)
        yield f".mnb-diagram .rim-{mark}{{stroke:{colour}}}.mnb-diagram .sign-{mark}{{fill:{colour}}}"


def draw_mark(node: SceneNode) -> Iterator[str]:
    """Draw the mark of a node: a rim around it, and its sign in the top left corner; nothing without a mark."""
    if node.mark not in MARKS:
        return
    colour = _colour(node.mark, LIGHT)
    dashes = "6 3" if node.mark == "changed" else ""
    yield draw_rect(
        node.x - 3, node.y - 3, node.w + 6, node.h + 6, f"rim-{node.mark}", 8, fill="none", stroke=colour,
        stroke_width=2.5, stroke_dasharray=dashes,
    )  # fmt: skip
    x, y = node.x - 1, node.y - 1
    yield element("circle", class_=f"sign-{node.mark}", cx=x, cy=y, r=8, fill=colour)
    sign = _SIGNS[node.mark].format(x=number(x), y=number(y))
    yield element("path", class_="halo", d=sign, fill="none", stroke=LIGHT.ground, stroke_width=2)
