"""The boxes of a scene as SVG: blocks, inputs and outputs of a model, nodes of a stage, and marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mithril_nb.viz.diagrams.labels import GAP, LEFT, NAME_SIZE, RIGHT, SMALL_SIZE
from mithril_nb.viz.diagrams.overlays import NodeValue, draw_tint, draw_value
from mithril_nb.viz.diagrams.scene import Scene, SceneNode
from mithril_nb.viz.palette import HUES, LIGHT, Theme
from mithril_nb.viz.svg import element, line_path, number
from mithril_nb.viz.text import elide, one_line, text_width, times
from mithril_nb.viz.units import percent

_CELL_H = 7
_VALUE_SIZE = 9.5
_LEAST_BELOW = 30
"""Smallest room in px for a note or shape beside a share. With less room, it is left out."""


def draw_box(node: SceneNode, scene: Scene, has_roles: bool, shown: NodeValue | None = None) -> Iterator[str]:
    """Draw a closed node with its share of the cost. If `shown` is given, its value is drawn instead."""
    if scene.is_model:
        yield from _port_pill(node) if node.is_pill else _block(node, shown)
    else:
        yield from _input_pill(node, shown) if node.kind == "input" else _stage_node(node, has_roles, shown)


def _block(node: SceneNode, shown: NodeValue | None) -> Iterator[str]:
    """Draw a block of a model: kind and label, name and shape, a bar, and ports."""
    x, y, w, h = node.x, node.y, node.w, node.h
    if node.group:  # a second edge behind the box marks a group
        yield draw_rect(x + 4, y + 4, w, h, "box", fill=LIGHT.surface, stroke=LIGHT.line)
    yield from _plate(node, shown)
    if shown is None and node.share is not None:
        shown = NodeValue(percent(node.share), max(0.0, min(1.0, node.share)))
    kind = times(one_line(node.kind), node.repeat)
    left, right = x + LEFT, x + w - RIGHT
    room = right - left
    upper, lower = (y + 17, y + 34) if shown is not None else (y + 21, y + 39)
    spare = room - text_width(kind, SMALL_SIZE) - GAP
    label = elide(one_line(node.label), SMALL_SIZE, max(spare, room * 0.6))
    yield from _row(left, right, upper, kind, SMALL_SIZE, "muted", label, "ink")
    shape = elide(one_line(node.shape), SMALL_SIZE, room * 0.6)
    yield from _row(left, right, lower, one_line(node.name), NAME_SIZE, "ink", shape, "muted", bold=True)
    if shown is not None:
        text = elide(shown.text, _VALUE_SIZE, room * 0.7)
        yield from draw_value(left, y + 42, room - max(40.0, text_width(text, _VALUE_SIZE) + 6), shown)
        yield draw_text(right, y + 47, text, _VALUE_SIZE, "muted", anchor="end")
    yield from draw_ports(node)
    if node.problem is not None:
        yield from draw_sign(x + w - 1, y + 1)


def _port_pill(node: SceneNode) -> Iterator[str]:
    """Draw an input or output of a model: name and shape in one row."""
    x, y, w = node.x, node.y, node.w
    yield _pill(node)
    shape = elide(one_line(node.shape), SMALL_SIZE, (w - 2 * LEFT) * 0.65)
    name, left, right = one_line(node.name), x + LEFT, x + w - LEFT
    if shape:
        yield from _row(left, right, y + 20, name, NAME_SIZE, "ink", shape, "muted", bold=True)
    else:
        name = elide(name, NAME_SIZE, right - left, bold=True)
        yield draw_text(x + w / 2, y + 20, name, NAME_SIZE, bold=True, anchor="middle")


def _stage_node(node: SceneNode, has_roles: bool, shown: NodeValue | None) -> Iterator[str]:
    """Draw a node of a stage: name, note or shape, share or value, and the patterns of its roles."""
    x, y, w, h, hue = node.x, node.y, node.w, node.h, node.hue % HUES
    if node.repeat > 1:  # a stack of boxes marks a repeated node
        for off in (6, 3):
            yield draw_rect(x + off, y - off, w - off, h, "box", fill=LIGHT.surface, stroke=LIGHT.line)
    yield from _plate(node, shown)
    left, right = x + LEFT, x + w - RIGHT
    is_instruction = node.kind == "instruction"
    has_cells = has_roles and not is_instruction and any(node.counts[:-1])
    first = y + (22 if has_cells else h / 2 - 3)
    repeat = times("", node.repeat).strip()
    room = right - left - (18 if has_roles and is_instruction else 0)
    room -= text_width(repeat, NAME_SIZE, bold=True) + 8 if repeat else 0
    yield draw_text(left, first, elide(one_line(node.name), NAME_SIZE, room, bold=True), NAME_SIZE, bold=True)
    if repeat:
        yield draw_text(right, first, repeat, NAME_SIZE, bold=True, anchor="end")
    share = shown.text if shown else percent(node.share) if node.share is not None else ""
    share = elide(share, SMALL_SIZE, right - left) if share else ""
    room = right - left - (text_width(share, SMALL_SIZE) + 8 if share else 0)
    below = one_line((node.kind == "lines" and node.shape) or node.label or node.shape)
    if below and room > _LEAST_BELOW:
        yield draw_text(left, first + 17, elide(below, SMALL_SIZE, room), SMALL_SIZE, "muted")
    if share:
        yield draw_text(right, first + 17, share, SMALL_SIZE, anchor="end")
    if shown:
        yield from draw_value(left, y + h - 6, right - left, shown)
    if has_cells:
        yield from _cells(left, y + h - _CELL_H - 8, right - left, node.counts[:-1], hue)
    elif has_roles and is_instruction:
        at = next((at for at, count in enumerate(node.counts[:-1]) if count), None)
        if at is not None:
            yield from draw_role(right - 12, y + 8, 12, at, hue)


def _input_pill(node: SceneNode, shown: NodeValue | None) -> Iterator[str]:
    """Draw an input of a program: name, and shape or value. Its name params['w'] is shortened to `w`."""
    middle, room = node.x + node.w / 2, node.w - 24
    last = node.name.rstrip("]").rpartition("[")[2].strip("'")
    name = last if node.name.endswith("]") and not last.isdigit() else node.name
    name = elide(one_line(name), SMALL_SIZE, room, bold=True)
    below = shown.text if shown else one_line(node.shape)
    yield _pill(node)
    yield draw_text(middle, node.y + 14.5, name, SMALL_SIZE, bold=True, anchor="middle")
    yield draw_text(middle, node.y + 27, elide(below, 10, room), 10, "muted", anchor="middle")


def _cells(x: float, y: float, width: float, counts: Sequence[int], hue: int) -> Iterator[str]:
    """Draw a bar with a part for each role, in the pattern of the role. Many instructions make a part long."""
    total = sum(counts)
    used = [at for at, count in enumerate(counts) if count]
    spare = width - 2 * (len(used) - 1) - 8 * len(used)  # each part is at least 8 px, so that its pattern is visible
    for at in used:
        length = round(8 + spare * counts[at] / total, 1)
        yield from draw_role(x, y, length, at, hue)
        x += length + 2


def draw_role(x: float, y: float, width: float, role: int, hue: int) -> Iterator[str]:
    """Draw the pattern of a role, given as an index into `ROLES`: solid, hatched or dotted."""
    colour = LIGHT.hues[hue]
    if role == 0:
        yield element("rect", class_=f"hue{hue}", x=x, y=y, width=width, height=_CELL_H, fill=colour)
        return
    rim = f"rim{hue}"
    yield element(
        "rect", class_=rim, x=x + 0.5, y=y + 0.5, width=width - 1, height=_CELL_H - 1, fill="none", stroke=colour
    )
    if role == 1:
        starts = (f"M{number(x + at)} {number(y + _CELL_H - 1)}" for at in range(1, max(2, int(width) - 5), 4))
        strokes = "".join(f"{start}l5 -{_CELL_H - 2}" for start in starts)
        yield element("path", class_=rim, d=strokes, fill="none", stroke=colour, stroke_width=1.4)
    else:
        middle = y + _CELL_H / 2
        yield element(
            "path", class_=rim, d=line_path(((x + 3.5, middle), (x + width - 3, middle))), fill="none", stroke=colour,
            stroke_width=2.2, stroke_linecap="round", stroke_dasharray="0.1 4",
        )  # fmt: skip


def draw_rect(x: float, y: float, w: float, h: float, name: str, rx: float = 4, **look: str | float | None) -> str:
    """Draw a rectangle with round corners."""
    return element("rect", class_=name, x=x, y=y, width=w, height=h, rx=rx, **look)


def _pill(node: SceneNode) -> str:
    return draw_rect(node.x, node.y, node.w, node.h, "box", node.h / 2, fill=LIGHT.surface, stroke=LIGHT.line)


def _plate(node: SceneNode, shown: NodeValue | None = None) -> Iterator[str]:
    """Draw the box of a node, the colour of its value, and a strip at its left edge in the colour of the block."""
    x, y, w, h, hue = node.x, node.y, node.w, node.h, node.hue % HUES
    bad: dict[str, Any] = {"stroke": LIGHT.bad, "stroke_width": 1.5, "stroke_dasharray": "5 3"}
    look: dict[str, Any] = {"stroke": LIGHT.line} if node.problem is None else bad
    yield draw_rect(x, y, w, h, "box" if node.problem is None else "box bad", fill=LIGHT.surface, **look)
    if shown is not None:
        yield from draw_tint(x, y, w, h, shown)
    yield element("path", class_=f"hue{hue}", d=strip_path(node), fill=LIGHT.hues[hue])


def strip_path(node: SceneNode) -> str:
    """Return the coloured strip at the left edge of a node as an SVG path."""
    return f"M{number(node.x + 6)} {number(node.y)}h-2a4 4 0 0 0 -4 4v{number(node.h - 8)}a4 4 0 0 0 4 4h2z"


def draw_ports(node: SceneNode) -> Iterator[str]:
    """Draw the ports of a node."""
    for port in (*node.inputs, *node.outputs):
        x, y = node.x + port.x, node.y + port.y
        yield element("circle", class_="port", cx=x, cy=y, r=2.5, fill=LIGHT.ground, stroke=LIGHT.wire)


def _row(
    left: float, right: float, y: float, first: str, size: float, look: str, second: str, other: str,
    *, bold: bool = False,
) -> Iterator[str]:  # fmt: skip
    """Write `first` at the left and `second` at the right of a row. If the row is too short, `first` is elided."""
    room = right - left - (text_width(second, SMALL_SIZE) + GAP if second else 0)
    yield draw_text(left, y, elide(first, size, room, bold=bold), size, look, bold=bold)
    if second:
        yield draw_text(right, y, second, SMALL_SIZE, other, anchor="end")


def draw_text(
    x: float, y: float, text: str, size: float, look: str = "ink", *, bold: bool = False, anchor: str = ""
) -> str:
    """Write one line of text."""
    return element(
        "text", text, class_=look, x=x, y=y, font_size=size, fill=LIGHT.ink if look == "ink" else LIGHT.muted,
        font_weight="600" if bold else "", text_anchor=anchor,
    )  # fmt: skip


def draw_sign(x: float, y: float) -> Iterator[str]:
    """Draw the sign of a problem: a disc with an exclamation mark, which is recognisable without colours."""
    yield element("circle", class_="badtext", cx=x, cy=y, r=7, fill=LIGHT.bad)
    d = f"M{number(x)} {number(y - 4)}v4.5M{number(x)} {number(y + 3)}v1"
    yield element("path", class_="halo", d=d, stroke=LIGHT.ground, stroke_width=2)


# Marks of a comparison

MARKS: Mapping[str, str] = {"added": "+", "removed": "−", "changed": "~"}
"""The sign of each mark in texts."""
_SIGNS = {
    "added": "M{x} {y}m-4 0h8m-4 -4v8",
    "removed": "M{x} {y}m-4 0h8",
    "changed": "M{x} {y}m-4.5 1.5c1.5 -4 3 -4 4.5 -1.5s3 2.5 4.5 -1.5",
}
"""The sign of each mark in pictures, as an SVG path around `{x} {y}`: a path looks the same with all fonts."""


def _mark_colour(mark: str, theme: Theme) -> str:
    return {"added": theme.code[2], "removed": theme.bad, "changed": theme.cost}[mark]


def mark_rules(theme: Theme) -> Iterator[str]:
    """Yield the CSS rules for the colours of marks in a theme."""
    for mark in MARKS:
        colour = _mark_colour(mark, theme)
        yield f".mnb-diagram .rim-{mark}{{stroke:{colour}}}.mnb-diagram .sign-{mark}{{fill:{colour}}}"


def draw_mark(node: SceneNode) -> Iterator[str]:
    """Draw the mark of a node: a rim, and a sign at its top left corner; nothing if the node has no mark."""
    if node.mark not in MARKS:
        return
    colour = _mark_colour(node.mark, LIGHT)
    dashes = "6 3" if node.mark == "changed" else ""
    yield draw_rect(
        node.x - 3, node.y - 3, node.w + 6, node.h + 6, f"rim-{node.mark}", 8, fill="none", stroke=colour,
        stroke_width=2.5, stroke_dasharray=dashes,
    )  # fmt: skip
    x, y = node.x - 1, node.y - 1
    yield element("circle", class_=f"sign-{node.mark}", cx=x, cy=y, r=8, fill=colour)
    sign = _SIGNS[node.mark].format(x=number(x), y=number(y))
    yield element("path", class_="halo", d=sign, fill="none", stroke=LIGHT.ground, stroke_width=2)
