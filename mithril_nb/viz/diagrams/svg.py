"""A scene as one self-contained SVG for light and dark themes, without scripts, links or ids.

Light colours are attributes, for programs that ignore style sheets; dark colours are in a media query. The colour of a
box shows its block. In the graph of a stage, a pattern shows roles: forward is solid, backward hatched, update dotted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any

from mithril_nb.errors import Diagnostic
from mithril_nb.viz.diagrams.logical import GAP, LEFT, NAME_SIZE, PAD, RIGHT, SMALL_SIZE, title_width
from mithril_nb.viz.diagrams.nested import Box, Scene, SceneEdge, port_text
from mithril_nb.viz.diagrams.overlays import NodeValue, Overlay, draw_legend, draw_tint, draw_value, legend_size
from mithril_nb.viz.diagrams.stages import count_text, frame_texts
from mithril_nb.viz.palette import DARK, HUES, LIGHT, Theme
from mithril_nb.viz.svg import (
    Point,
    Rect,
    arrow,
    curve_path,
    curve_points,
    element,
    line_path,
    number,
    opening,
    point_along,
    root_opening,
    rounded_path,
)
from mithril_nb.viz.text import block_key, elide, one_line, text_width, times
from mithril_nb.viz.units import percent, titled

_EDGE_SIZE = 10
_LONGEST_LABEL = 180
# In a scene with more edges, no shapes are written beside the edges.
_MOST_PLACED = 300
_TITLE_ROW = 24
_STYLE = "max-width:100%;height:auto"
_LEGEND_H = 26
_WIDEST_LEGEND = 640
_BARS, _GRADIENT = "bars: instructions", "gradient flows back"
_CELL_H = 7
# Smallest room in px for a note or shape beside a share. With less room, it is left out.
_LEAST_BELOW = 30


def scene_svg(
    scene: Scene,
    problems: Sequence[Diagnostic] = (),
    title: str = "",
    *,
    embedded: bool = False,
    overlay: Overlay | None = None,
) -> str:
    """Return a scene as SVG.

    Args:
        scene: The scene.
        problems: The problems of the graph, for the tooltips of nodes and edges.
        title: Accessible name; by default the title of the scene.
        embedded: If true, the SVG is part of an HTML page: its colours are CSS variables, and its nodes are linked.
        overlay: The values to show on the nodes, instead of their shares of the cost.
    """
    roles = [at for at in range(len(scene.roles)) if any(node.counts[at] for node in scene.nodes)]
    overlay = overlay and overlay.of(node.key for node in scene.nodes)
    scale_w, scale_h = legend_size(overlay, max(scene.width, _WIDEST_LEGEND) - 24) if overlay else (0, 0)
    has_legend = len(roles) > 1 or any(edge.is_carried for edge in scene.edges)
    legend, legend_w = _legend(scene, roles, max(scene.height, 40)) if has_legend else ([], 60)
    width = max(scene.width, legend_w, scale_w + 24 if overlay else 0)
    height = max(scene.height, 40) + (_LEGEND_H if has_legend else 0) + scale_h

    def draw(node: Box) -> Iterator[str]:
        value = overlay and overlay.at(node.key)
        yield _opening(node, scene, problems, embedded, overlay.description(node.key) if overlay else "")
        if node.expanded:
            yield from _frame(node, scene, value)
        elif scene.is_model:
            yield from _port_pill(node) if node.is_pill else _block(node, value)
        else:
            yield from _input_pill(node, value) if node.kind == "input" else _stage_node(node, len(roles) > 1, value)
        yield from _mark(node)
        yield "</g>"

    parts = [
        root_opening("mnb-diagram", width, height, role="group" if embedded else "img", style=_STYLE),
        element("title", f"{one_line(title or scene.title)}: {scene.counted}"),
    ]
    if not scene.is_model:
        tops = ", ".join(times(one_line(node.name), node.repeat) for node in scene.nodes if not node.parent)
        parts.append(element("desc", f"In the order of the program: {tops}."))
    parts.append(f"<style>{_rules(embedded=embedded, has_marks=any(node.mark for node in scene.nodes))}</style>")
    parts.append(element("rect", class_="ground", width=width, height=height, rx=4, fill=LIGHT.ground))
    frames = [node for node in scene.nodes if node.expanded]
    boxes = [node for node in scene.nodes if not node.expanded]
    for node in frames:
        parts += draw(node)
    for edge in scene.edges:
        parts += _edge(edge, problems)
    for (x, y), is_bad in forks(scene.edges).items():
        dot = "badtext" if is_bad else "head"
        parts.append(element("circle", class_=dot, cx=x, cy=y, r=3, **_light(dot)))
    parts += _edge_labels(scene, frames, boxes)
    for node in boxes:
        parts += draw(node)
    parts += legend
    if overlay:
        parts += draw_legend(overlay, 12, height - scale_h, width - 24)
    parts.append("</svg>")
    return "\n".join(parts)


# The colours of `styles.css`, as CSS variables.
_PAGE = Theme(
    *(f"var(--{name})" for name in "ground surface line wire ink muted accent bad cost track".split()),
    hues=tuple(f"var(--h{at})" for at in range(HUES)),
    code=("var(--ck)", "var(--cf)", "var(--ct)", "var(--cm)", "var(--cs)", "var(--cc)"),
)


# The colours of each class, as names in `Theme`.
_FILLS = {
    "ground": "ground", "box": "surface", "ink": "ink", "muted": "muted", "cost": "cost", "track": "track",
    "head": "wire", "port": "ground", "chip": "ground", "badtext": "bad",
}  # fmt: skip
_STROKES = {"box": "line", "wire": "wire", "port": "wire", "chip": "line", "bad": "bad", "halo": "ground"}


# The light colours are attributes, because viewers without CSS ignore the rules.
def _light(name: str) -> dict[str, Any]:
    kinds = (("fill", _FILLS), ("stroke", _STROKES))
    return {kind: getattr(LIGHT, colours[name]) for kind, colours in kinds if name in colours}


def _rules(*, embedded: bool, has_marks: bool) -> str:
    theme = _PAGE if embedded else DARK
    css = "".join(
        f".mnb-diagram .{name}{{{kind}:{getattr(theme, colour)}}}"
        for kind, colours in (("fill", _FILLS), ("stroke", _STROKES))
        for name, colour in colours.items()
    )
    for at, colour in enumerate(theme.hues):
        css += f".mnb-diagram .hue{at}{{fill:{colour}}}.mnb-diagram .rim{at}{{stroke:{colour}}}"
    for mark, colour in _mark_colours(theme).items() if has_marks else ():
        css += f".mnb-diagram .rim-{mark}{{stroke:{colour}}}.mnb-diagram .sign-{mark}{{fill:{colour}}}"
    return css if embedded else f"@media (prefers-color-scheme:dark){{{css}}}"


def _opening(node: Box, scene: Scene, problems: Sequence[Diagnostic], embedded: bool, value: str) -> str:
    if not value and node.share is not None:  # in the same words as the front end
        has_groups = node.is_group and (scene.is_model or node.kind == "block")
        value = f"{percent(node.share)} of {titled('FLOPs', own=False, has_groups=has_groups)}"
    texts = (
        times(f"{one_line(node.kind)} {one_line(node.name)}", node.repeat),
        one_line(node.label),
        f"{'' if scene.is_model and node.is_pill else 'output '}{one_line(node.shape)}" if node.shape else "",
        count_text(node.kind, node.counts, scene.roles),
        value,
        node.mark,
    )
    label = ", ".join(text for text in texts if text) + _problem(node.problem, problems)
    links: dict[str, str] = {}
    if embedded and (node.path or not scene.is_model):
        if node.equations:
            links |= {"data_e": " ".join(node.equations), "data_of": block_key(node.path)}
        elif node.path:
            links["data_block"] = block_key(node.path)
        links |= {"tabindex": "0", "role": "button", "aria_label": label}
    return opening("g", class_="node", **links) + element("title", label)


def _problem(index: int | None, problems: Sequence[Diagnostic]) -> str:
    if index is None:
        return ""
    return f"\nproblem: {problems[index]}" if 0 <= index < len(problems) else "\nproblem"


def _legend(scene: Scene, roles: Sequence[int], y: float) -> tuple[list[str], float]:
    x, parts = 12.0, list[str]()
    if len(roles) > 1:
        parts.append(_text(x, y + 14, _BARS, SMALL_SIZE, "muted"))
        x += text_width(_BARS, SMALL_SIZE) + 10
    for at in roles if len(roles) > 1 else ():
        parts += _role(x, y + 7, 22, at, HUES - 1)
        parts.append(_text(x + 28, y + 14, scene.roles[at], SMALL_SIZE, "muted"))
        x += 28 + text_width(scene.roles[at], SMALL_SIZE) + 18
    wires = [(_GRADIENT, True)] if any(edge.returns for edge in scene.edges) else []
    wires += [("for the next round", False)] if any(edge.is_carried for edge in scene.edges) else []
    for text, returns in wires:
        parts += _edge(
            SceneEdge("", "", ((x, y + 10.5), (x + 26, y + 10.5)), returns=returns, is_carried=not returns), ()
        )
        parts.append(_text(x + 33, y + 14, text, SMALL_SIZE, "muted"))
        x += 33 + text_width(text, SMALL_SIZE) + 18
    return parts, x - 6


def _frame(node: Box, scene: Scene, value: NodeValue | None) -> Iterator[str]:
    share = value.text if value else "" if node.share is None else percent(node.share)
    x, y, w, h, hue = node.x, node.y, node.w, node.h, node.hue % HUES
    colour, bad = LIGHT.hues[hue], node.problem is not None
    if node.repeat > 1 and not scene.is_model:
        for off in (6, 3):
            yield _rect(x + off, y - off, w - off, h, f"rim{hue}", 6, fill="none", stroke=colour, stroke_opacity="0.5")
        yield _rect(x, y, w, h, "ground", 6, **_light("ground"))
    yield _rect(x, y, w, h, f"hue{hue}", 6, fill=colour, fill_opacity="0.07")
    # Dashes mark what is drawn once and runs several times, or only sometimes.
    dashes = "5 3" if bad else "6 3" if node.kind in ("loop", "cond", "branch", "repeat") else ""
    yield _rect(
        x, y, w, h, "bad" if bad else f"rim{hue}", 6, fill="none", stroke=LIGHT.bad if bad else colour,
        stroke_dasharray=dashes,
    )  # fmt: skip
    if scene.is_model:
        left, base, gap = x + PAD / 2, y + 17, GAP / 2
        room = title_width(node.name, node.kind)
        name, rest = one_line(node.name), times(one_line(node.kind), node.repeat)
        rest = f"{rest} · {value.text}" if value else rest
        name_room, end = room * 0.75, x + (w - PAD if value else room + PAD)
    else:
        left, base, gap = x + 10, y + 18, 8
        name, rest = frame_texts(node.name, node.repeat, node.label, node.shape)
        rest = " · ".join(part for part in (rest, share) if part)
        name_room, end = w - 20, x + w - 10
    name = elide(name, NAME_SIZE, name_room, bold=True)
    yield _text(left, base, name, NAME_SIZE, bold=True)
    left += text_width(name, NAME_SIZE, bold=True) + gap
    rest = elide(rest, SMALL_SIZE, max(20.0, end - left) if scene.is_model else end - left)
    if len(rest) > 1:
        yield _text(left, base, rest, SMALL_SIZE, "muted")
    yield from _ports(node)


def edge_points(edge: SceneEdge) -> Sequence[Point]:
    """Return points on an edge that are close enough to be joined by straight lines."""
    return curve_points(edge.points) if edge.is_curve else edge.points


def _edge(edge: SceneEdge, problems: Sequence[Diagnostic]) -> Iterator[str]:
    bad = edge.problem is not None
    label = (
        one_line(edge.label) + (f", {one_line(edge.shape)}" if edge.shape else "") + _problem(edge.problem, problems)
    )
    dashes = "5 3" if bad or edge.is_backward else "2 3" if edge.is_carried else ""
    path = element(
        "path", class_="wire bad" if bad else "wire", stroke=LIGHT.bad if bad else LIGHT.wire,
        stroke_width=2 if bad else 1.5, stroke_dasharray=dashes, fill="none",
        d=curve_path(edge.points) if edge.is_curve else rounded_path(edge.points),
    )  # fmt: skip
    yield opening("g", class_="edge") + element("title", label) + path
    if edge.is_end:
        head = "badtext" if bad else "head"
        yield element("path", class_=head, **_light(head), d=arrow(*edge.points[-2:]))
    if edge.returns:
        x, y = edge.points[0]
        d = arrow((x + 8, y), (x + 1, y))
        yield element("path", class_="wire ground", fill=LIGHT.ground, stroke=LIGHT.wire, d=d)
    if bad:
        yield from _sign(*point_along(edge_points(edge), 0.5))
    yield "</g>"


def forks(edges: Sequence[SceneEdge]) -> dict[Point, bool]:
    """Return where edges of one wire part, and whether one of them has a problem. Dots distinguish them from crossings.

    `forksOf` of the front end does the same.
    """
    lines = sorted(
        (edge.source, edge.is_carried, edge.points, edge.problem is not None) for edge in edges if not edge.is_curve
    )
    points: dict[Point, bool] = {}
    # In the order of their corners, a line has its longest part in common with a neighbour.
    for (*wire, one, is_bad), (*other_wire, other, is_other_bad) in pairwise(lines):
        if wire != other_wire or one == other or one[0] != other[0]:
            continue
        at = next(at for at, (a, b) in enumerate(zip_longest(one, other)) if a != b)
        if at == min(len(one), len(other)):
            continue
        a, b, (x, y) = one[at], other[at], one[at - 1]
        if (a[0] - x) * (b[0] - x) + (a[1] - y) * (b[1] - y) > 0:
            x, y = min(a, b, key=lambda corner: abs(corner[0] - x) + abs(corner[1] - y))
        elif at == 1:
            continue
        points[x, y] = points.get((x, y), False) or is_bad or is_other_bad
    return points


# `placeLabels` of the front end does the same.
def _edge_labels(scene: Scene, frames: Sequence[Box], boxes: Sequence[Box]) -> Iterator[str]:
    if len(scene.edges) > _MOST_PLACED:
        return
    # Frames are transparent, so only their title and lower border are in the way.
    occupied = [Rect(node.x - 2, node.y - 2, node.w + 4, node.h + 4) for node in boxes]
    for node in frames:
        occupied += [Rect(node.x, node.y, node.w, _TITLE_ROW), Rect(node.x, node.y + node.h, node.w, 0)]
    nodes = {node.key: node for node in scene.nodes}
    for side in ("ins", "outs"):
        for node in scene.nodes:
            key = "" if node.is_pill else node.key
            nodes |= {port_text(key, port): node for port in getattr(node, side)}
    # A shape is left out if the box of the source shows it, or if data of the same shape enters the source.
    in_box = {node.key for node in boxes if node.shape and (scene.is_model or not node.label or node.kind == "lines")}
    entering = {(nodes[edge.target].key, edge.shape) for edge in scene.edges if edge.target in nodes}
    lines = [edge_points(edge) for edge in scene.edges]
    wires = [point_along(line, at / 24) for line in lines for at in range(25)]

    def free_spot(line: Sequence[Point], width: float) -> Point | None:
        for share in (0.5, 0.35, 0.65, 0.2, 0.8):
            x, middle = point_along(line, share)
            left = x - width / 2
            for y in (middle - 9, middle + 9):
                rect = Rect(left - 1, y - 6, width + 2, 12)
                if left < 0 or y < 6 or any(map(rect.overlaps, occupied)):
                    continue
                if not any(left - 1 < wx < left + width + 1 and y - 6 < wy < y + 6 for wx, wy in wires):
                    occupied.append(rect)
                    return left, y
        return None

    for edge, line in zip(scene.edges, lines, strict=True):
        text = elide(one_line(edge.shape), _EDGE_SIZE, _LONGEST_LABEL)
        source = nodes[edge.source].key if edge.source in nodes else ""
        if not text or source in in_box or (source, edge.shape) in entering:
            continue
        if spot := free_spot(line, text_width(text, _EDGE_SIZE)):
            yield element(
                "text", text, class_="muted halo", paint_order="stroke", stroke=LIGHT.ground,
                stroke_width=3, x=spot[0], y=spot[1] + 3.5, font_size=_EDGE_SIZE, fill=LIGHT.muted,
            )  # fmt: skip


def _block(node: Box, value: NodeValue | None) -> Iterator[str]:
    x, y, w, h = node.x, node.y, node.w, node.h
    if node.is_group:  # a second edge behind the box marks a group
        yield _rect(x + 4, y + 4, w, h, "box", **_light("box"))
    yield from _plate(node, value)
    if value is None and node.share is not None:
        value = NodeValue(percent(node.share), max(0.0, min(1.0, node.share)))
    kind = times(one_line(node.kind), node.repeat)
    left, right = x + LEFT, x + w - RIGHT
    room = right - left
    label = elide(one_line(node.label), SMALL_SIZE, max(room - text_width(kind, SMALL_SIZE) - GAP, room * 0.6))
    yield from _row(left, right, y + 16, kind, SMALL_SIZE, "muted", label, "ink")
    yield _text(left, y + 32, elide(one_line(node.name), NAME_SIZE, room, bold=True), NAME_SIZE, bold=True)
    if node.shape:
        yield _text(left, y + 47, elide(one_line(node.shape), SMALL_SIZE, room), SMALL_SIZE, "muted")
    if value is not None:
        text = elide(value.text, SMALL_SIZE, room * 0.7)
        yield from draw_value(left, y + 53, room - max(40.0, text_width(text, SMALL_SIZE) + 6), value)
        yield _text(right, y + 59, text, SMALL_SIZE, "muted", anchor="end")
    yield from _ports(node)
    if node.problem is not None:
        yield from _sign(x + w - 1, y + 1)


def _port_pill(node: Box) -> Iterator[str]:
    middle, room = node.x + node.w / 2, node.w - LEFT - RIGHT
    yield _pill(node)
    name, shape = elide(one_line(node.name), NAME_SIZE, room, bold=True), elide(one_line(node.shape), SMALL_SIZE, room)
    yield _text(middle, node.y + (17 if shape else 24), name, NAME_SIZE, bold=True, anchor="middle")
    if shape:
        yield _text(middle, node.y + 32, shape, SMALL_SIZE, "muted", anchor="middle")


def _stage_node(node: Box, has_roles: bool, value: NodeValue | None) -> Iterator[str]:
    x, y, w, h, hue = node.x, node.y, node.w, node.h, node.hue % HUES
    if node.repeat > 1:  # a stack of boxes marks a repeated node
        for off in (6, 3):
            yield _rect(x + off, y - off, w - off, h, "box", **_light("box"))
    yield from _plate(node, value)
    left, right = x + LEFT, x + w - RIGHT
    is_instruction = node.kind == "instruction"
    has_cells = has_roles and not is_instruction and any(node.counts[:-1])
    first = y + (22 if has_cells else h / 2 - 3)
    repeat = times("", node.repeat).strip()
    room = right - left - (18 if has_roles and is_instruction else 0)
    room -= text_width(repeat, NAME_SIZE, bold=True) + 8 if repeat else 0
    # The number of rounds must stay readable, so the name gives way.
    yield _text(left, first, elide(one_line(node.name), NAME_SIZE, room, bold=True), NAME_SIZE, bold=True)
    if repeat:
        yield _text(right, first, repeat, NAME_SIZE, bold=True, anchor="end")
    share = value.text if value else percent(node.share) if node.share is not None else ""
    share = elide(share, SMALL_SIZE, right - left) if share else ""
    room = right - left - (text_width(share, SMALL_SIZE) + 8 if share else 0)
    below = one_line((node.kind == "lines" and node.shape) or node.label or node.shape)
    if below and room > _LEAST_BELOW:
        yield _text(left, first + 17, elide(below, SMALL_SIZE, room), SMALL_SIZE, "muted")
    if share:
        yield _text(right, first + 17, share, SMALL_SIZE, anchor="end")
    if value:
        yield from draw_value(left, y + h - 6, right - left, value)
    if has_cells:
        # A bar with a part for each role, at least 8 px long, so that its pattern is visible.
        roles = [(at, count) for at, count in enumerate(node.counts[:-1]) if count]
        spare = right - left - 2 * (len(roles) - 1) - 8 * len(roles)
        for at, count in roles:
            length = round(8 + spare * count / sum(node.counts[:-1]), 1)
            yield from _role(left, y + h - _CELL_H - 8, length, at, hue)
            left += length + 2
    elif has_roles and is_instruction:
        at = next((at for at, count in enumerate(node.counts[:-1]) if count), None)
        if at is not None:
            yield from _role(right - 12, y + 8, 12, at, hue)


# The name params['w'] is shortened to w.
def _input_pill(node: Box, value: NodeValue | None) -> Iterator[str]:
    middle, room = node.x + node.w / 2, node.w - 24
    last = node.name.rstrip("]").rpartition("[")[2].strip("'")
    name = last if node.name.endswith("]") and not last.isdigit() else node.name
    name = elide(one_line(name), SMALL_SIZE, room, bold=True)
    below = value.text if value else one_line(node.shape)
    yield _pill(node)
    yield _text(middle, node.y + 14.5, name, SMALL_SIZE, bold=True, anchor="middle")
    yield _text(middle, node.y + 27, elide(below, 10, room), 10, "muted", anchor="middle")


def _role(x: float, y: float, width: float, role: int, hue: int) -> Iterator[str]:
    if role == 0:
        yield _rect(x, y, width, _CELL_H, f"hue{hue}", None, fill=LIGHT.hues[hue])
        return
    rim, look = f"rim{hue}", {"fill": "none", "stroke": LIGHT.hues[hue]}
    yield _rect(x + 0.5, y + 0.5, width - 1, _CELL_H - 1, rim, None, **look)
    if role == 1:
        starts = (f"M{number(x + at)} {number(y + _CELL_H - 1)}" for at in range(1, max(2, int(width) - 5), 4))
        strokes = "".join(f"{start}l5 -{_CELL_H - 2}" for start in starts)
        yield element("path", class_=rim, d=strokes, **look, stroke_width=1.4)
    else:
        middle = y + _CELL_H / 2
        yield element(
            "path", class_=rim, d=line_path(((x + 3.5, middle), (x + width - 3, middle))), **look, stroke_width=2.2,
            stroke_linecap="round", stroke_dasharray="0.1 4",
        )  # fmt: skip


def _rect(x: float, y: float, w: float, h: float, name: str, rx: float | None = 4, **look: str | float | None) -> str:
    return element("rect", class_=name, x=x, y=y, width=w, height=h, rx=rx, **look)


def _pill(node: Box) -> str:
    return _rect(node.x, node.y, node.w, node.h, "box", node.h / 2, **_light("box"))


def _plate(node: Box, value: NodeValue | None = None) -> Iterator[str]:
    x, y, w, h, hue = node.x, node.y, node.w, node.h, node.hue % HUES
    bad = {} if node.problem is None else {**_light("bad"), "stroke_width": 1.5, "stroke_dasharray": "5 3"}
    yield _rect(x, y, w, h, "box bad" if bad else "box", **{**_light("box"), **bad})
    if value is not None:
        yield from draw_tint(x, y, w, h, value)
    strip = f"M{number(x + 6)} {number(y)}h-2a4 4 0 0 0 -4 4v{number(h - 8)}a4 4 0 0 0 4 4h2z"
    yield element("path", class_=f"hue{hue}", d=strip, fill=LIGHT.hues[hue])


def _ports(node: Box) -> Iterator[str]:
    for side, ports in ((0, node.ins), (node.w, node.outs)):
        for y in ports.values():
            yield element("circle", class_="port", cx=node.x + side, cy=node.y + y, r=2.5, **_light("port"))


def _row(
    left: float, right: float, y: float, first: str, size: float, look: str, second: str, other: str,
    *, bold: bool = False,
) -> Iterator[str]:  # fmt: skip
    room = right - left - (text_width(second, SMALL_SIZE) + GAP if second else 0)
    yield _text(left, y, elide(first, size, room, bold=bold), size, look, bold=bold)
    if second:
        yield _text(right, y, second, SMALL_SIZE, other, anchor="end")


def _text(
    x: float, y: float, text: str, size: float, look: str = "ink", *, bold: bool = False, anchor: str = ""
) -> str:
    return element(
        "text", text, class_=look, x=x, y=y, font_size=size, **_light(look), font_weight="600" if bold else "",
        text_anchor=anchor,
    )  # fmt: skip


# A disc with an exclamation mark is recognisable without colours.
def _sign(x: float, y: float) -> Iterator[str]:
    yield element("circle", class_="badtext", cx=x, cy=y, r=7, **_light("badtext"))
    d = f"M{number(x)} {number(y - 4)}v4.5M{number(x)} {number(y + 3)}v1"
    yield element("path", class_="halo", d=d, stroke=LIGHT.ground, stroke_width=2)


# Marks of a comparison
# The sign of each mark in texts.
MARKS: Mapping[str, str] = {"added": "+", "removed": "−", "changed": "~"}
# The sign of each mark in pictures, as an SVG path around `{x} {y}`: a path looks the same with all fonts.
_SIGNS = {
    "added": "M{x} {y}m-4 0h8m-4 -4v8",
    "removed": "M{x} {y}m-4 0h8",
    "changed": "M{x} {y}m-4.5 1.5c1.5 -4 3 -4 4.5 -1.5s3 2.5 4.5 -1.5",
}


def _mark_colours(theme: Theme) -> dict[str, str]:
    return {"added": theme.code[2], "removed": theme.bad, "changed": theme.cost}


def _mark(node: Box) -> Iterator[str]:
    if node.mark not in MARKS:
        return
    colour = _mark_colours(LIGHT)[node.mark]
    dashes = "6 3" if node.mark == "changed" else ""
    yield _rect(
        node.x - 3, node.y - 3, node.w + 6, node.h + 6, f"rim-{node.mark}", 8, fill="none", stroke=colour,
        stroke_width=2.5, stroke_dasharray=dashes,
    )  # fmt: skip
    x, y = node.x - 1, node.y - 1
    yield element("circle", class_=f"sign-{node.mark}", cx=x, cy=y, r=8, fill=colour)
    sign = _SIGNS[node.mark].format(x=number(x), y=number(y))
    yield element("path", class_="halo", d=sign, fill="none", stroke=LIGHT.ground, stroke_width=2)
