"""A scene as one self-contained SVG for light and dark themes, without scripts, links or ids.

Light colours are attributes, for programs that ignore style sheets; dark colours are in a media query. The colour of a
box shows its block. In the graph of a stage, a pattern shows roles: forward is solid, backward hatched, update dotted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mithril_nb.errors import Diagnostic
from mithril_nb.viz.diagrams.labels import GAP, NAME_SIZE, PAD, SMALL_SIZE, title_width
from mithril_nb.viz.diagrams.overlays import NodeValue, Overlay, draw_legend, legend_size
from mithril_nb.viz.diagrams.scene import Scene, SceneEdge, SceneNode, count_text, frame_texts, port_text
from mithril_nb.viz.diagrams.svg_nodes import (
    draw_box,
    draw_mark,
    draw_ports,
    draw_rect,
    draw_role,
    draw_sign,
    draw_text,
    mark_rules,
)
from mithril_nb.viz.palette import DARK, HUES, LIGHT, Theme
from mithril_nb.viz.svg import (
    Point,
    Rect,
    arrow,
    curve_path,
    curve_points,
    element,
    opening,
    point_along,
    root_opening,
    rounded_path,
)
from mithril_nb.viz.text import block_key, elide, one_line, text_width, times
from mithril_nb.viz.units import percent, titled

_EDGE_SIZE = 10
_LONGEST_LABEL = 180
_MOST_PLACED = 300
"""In a scene with more edges, no shapes are written beside the edges."""
_TITLE_ROW = 24
_STYLE = "max-width:100%;height:auto"
_LEGEND_H = 26
_WIDEST_LEGEND = 640

_BARS, _GRADIENT = "bars: instructions", "gradient flows back"


def scene_svg(
    scene: Scene,
    problems: Sequence[Diagnostic] = (),
    title: str = "",
    *,
    embedded: bool = False,
    overlay: Overlay | None = None,
) -> str:
    """Return the picture as SVG of fixed size. Equal arguments give equal text.

    Args:
        scene: The scene.
        problems: Problems for the tooltips. The nodes and edges of the scene refer to them by index.
        title: Accessible name, read by screen readers; default: the title of the scene.
        embedded: True if the picture is part of an HTML page of mithril_nb. The picture then uses the colours of the
            page. Its nodes can be reached by keyboard, and are linked to lines of code and rows of tables.
        overlay: Values to show on the nodes, with a legend below the graph.
    """
    roles = [at for at in range(len(scene.roles)) if any(node.counts[at] for node in scene.nodes)]
    overlay = overlay and overlay.of(node.key for node in scene.nodes)
    scale_w, scale_h = legend_size(overlay, max(scene.width, _WIDEST_LEGEND) - 24) if overlay else (0, 0)
    has_legend = len(roles) > 1 or any(edge.is_carried for edge in scene.edges)
    legend_h = (_LEGEND_H if has_legend else 0) + scale_h
    legend, legend_w = _legend(scene, roles, max(scene.height, 40)) if has_legend else ([], 60)
    width = max(scene.width, legend_w, scale_w + 24 if overlay else 0)
    height = max(scene.height, 40) + legend_h
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
        value = overlay and overlay.at(node.key)
        opened = _opening(node, scene, problems, embedded, overlay.description(node.key) if overlay else "")
        parts += (opened, *_frame(node, scene, value), *draw_mark(node), "</g>")
    for edge in scene.edges:
        parts += _edge(edge, problems)
    parts += _edge_labels(scene, frames, boxes)
    for node in boxes:
        value = overlay and overlay.at(node.key)
        opened = _opening(node, scene, problems, embedded, overlay.description(node.key) if overlay else "")
        parts += (opened, *draw_box(node, scene, len(roles) > 1, value), *draw_mark(node), "</g>")
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


def _rules(*, embedded: bool, has_marks: bool) -> str:
    """Return the CSS rules of the colours. If not `embedded`, they are the dark colours: light ones are attributes."""
    theme = _PAGE if embedded else DARK
    fills = {
        "ground": theme.ground, "box": theme.surface, "ink": theme.ink, "muted": theme.muted, "cost": theme.cost,
        "track": theme.track, "head": theme.wire, "port": theme.ground, "chip": theme.ground, "badtext": theme.bad,
    }  # fmt: skip
    strokes = {
        "box": theme.line, "wire": theme.wire, "port": theme.wire, "chip": theme.line, "bad": theme.bad,
        "halo": theme.ground,
    }  # fmt: skip
    rules = [f".mnb-diagram .{name}{{fill:{colour}}}" for name, colour in fills.items()]
    rules += [f".mnb-diagram .{name}{{stroke:{colour}}}" for name, colour in strokes.items()]
    for at, colour in enumerate(theme.hues):
        rules.append(f".mnb-diagram .hue{at}{{fill:{colour}}}.mnb-diagram .rim{at}{{stroke:{colour}}}")
    written = "".join([*rules, *(mark_rules(theme) if has_marks else ())])
    return written if embedded else f"@media (prefers-color-scheme:dark){{{written}}}"


def _opening(node: SceneNode, scene: Scene, problems: Sequence[Diagnostic], embedded: bool, value: str) -> str:
    label = _tooltip(node, scene, problems, value)
    is_model = scene.is_model
    links: dict[str, str] = {}
    if embedded and (node.path or not is_model):
        if node.equations:
            links |= {"data_e": " ".join(node.equations), "data_of": block_key(node.path)}
        elif node.path:
            links["data_block"] = block_key(node.path)
        links |= {"tabindex": "0", "role": "button"}
        links["aria_label"] = label
    return opening("g", class_="node", **links) + element("title", label)


def _tooltip(node: SceneNode, scene: Scene, problems: Sequence[Diagnostic], value: str) -> str:
    is_port = scene.is_model and node.is_pill
    parts = [
        times(f"{one_line(node.kind)} {one_line(node.name)}", node.repeat),
        one_line(node.label),
        f"{'' if is_port else 'output '}{one_line(node.shape)}" if node.shape else "",
        count_text(node.kind, node.counts, scene.roles),
        value or _share(node, scene),
        node.mark,
    ]
    return ", ".join(part for part in parts if part) + _problem(node.problem, problems)


def _share(node: SceneNode, scene: Scene) -> str:
    """Return a node's share of the FLOPs as text, in the same words as the front end; `""` if it is unknown."""
    if node.share is None:
        return ""
    is_block = scene.is_model or node.kind == "block"
    return f"{percent(node.share)} of {titled('FLOPs', own=False, has_groups=node.group and is_block)}"


def _problem(index: int | None, problems: Sequence[Diagnostic]) -> str:
    if index is None:
        return ""
    return f"\nproblem: {problems[index]}" if 0 <= index < len(problems) else "\nproblem"


def _legend(scene: Scene, roles: Sequence[int], y: float) -> tuple[list[str], float]:
    """Return the legend of the roles and the kinds of wires, and its width."""
    x, found = 12.0, list[str]()
    if len(roles) > 1:
        found.append(draw_text(x, y + 14, _BARS, SMALL_SIZE, "muted"))
        x += text_width(_BARS, SMALL_SIZE) + 10
    for at in roles if len(roles) > 1 else ():
        found += draw_role(x, y + 7, 22, at, HUES - 1)
        found.append(draw_text(x + 28, y + 14, scene.roles[at], SMALL_SIZE, "muted"))
        x += 28 + text_width(scene.roles[at], SMALL_SIZE) + 18
    wires = [(_GRADIENT, True)] if any(edge.returns for edge in scene.edges) else []
    wires += [("for the next round", False)] if any(edge.is_carried for edge in scene.edges) else []
    for text, returns in wires:
        found += _edge(
            SceneEdge("", "", ((x, y + 10.5), (x + 26, y + 10.5)), returns=returns, is_carried=not returns), ()
        )
        found.append(draw_text(x + 33, y + 14, text, SMALL_SIZE, "muted"))
        x += 33 + text_width(text, SMALL_SIZE) + 18
    return found, x - 6


def _frame(node: SceneNode, scene: Scene, value: NodeValue | None) -> Iterator[str]:
    """Draw an open group: background, rim, title, and its share of the cost or its value in an overlay."""
    share = value.text if value else "" if node.share is None else percent(node.share)
    x, y, w, h, hue = node.x, node.y, node.w, node.h, node.hue % HUES
    colour, bad = LIGHT.hues[hue], node.problem is not None
    if node.repeat > 1 and not scene.is_model:
        for off in (6, 3):
            yield draw_rect(
                x + off, y - off, w - off, h, f"rim{hue}", 6, fill="none", stroke=colour, stroke_opacity="0.5"
            )
        yield draw_rect(x, y, w, h, "ground", 6, fill=LIGHT.ground)
    yield draw_rect(x, y, w, h, f"hue{hue}", 6, fill=colour, fill_opacity="0.07")
    dashes = "5 3" if bad else "6 3" if node.kind in ("loop", "cond", "branch", "repeat") else ""
    yield draw_rect(
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
    yield draw_text(left, base, name, NAME_SIZE, bold=True)
    left += text_width(name, NAME_SIZE, bold=True) + gap
    rest = elide(rest, SMALL_SIZE, max(20.0, end - left) if scene.is_model else end - left)
    if len(rest) > 1:
        yield draw_text(left, base, rest, SMALL_SIZE, "muted")
    yield from draw_ports(node)


def edge_path(edge: SceneEdge) -> str:
    """Return the line of an edge as an SVG path."""
    return curve_path(edge.points) if edge.is_curve else rounded_path(edge.points)


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
        d=edge_path(edge),
    )  # fmt: skip
    yield opening("g", class_="edge") + element("title", label) + path
    if edge.is_end:
        head, colour = ("badtext", LIGHT.bad) if bad else ("head", LIGHT.wire)
        yield element("path", class_=head, fill=colour, d=arrow(*edge.points[-2:]))
    if edge.returns:
        x, y = edge.points[0]
        d = arrow((x + 8, y), (x + 1, y))
        yield element("path", class_="wire ground", fill=LIGHT.ground, stroke=LIGHT.wire, d=d)
    if bad:
        yield from draw_sign(*point_along(edge_points(edge), 0.5))
    yield "</g>"


def _edge_labels(scene: Scene, frames: Sequence[SceneNode], boxes: Sequence[SceneNode]) -> Iterator[str]:
    """Write the shape of the data above or below each edge. Where it would cover something, only the tooltip shows it.

    A shape is left out if the box of the source shows it, or if data of the same shape enters the source. The function
    `placeLabels` of the front end does the same.
    """
    if len(scene.edges) > _MOST_PLACED:
        return
    taken = [Rect(node.x - 2, node.y - 2, node.w + 4, node.h + 4) for node in boxes]
    for node in frames:
        taken += [Rect(node.x, node.y, node.w, _TITLE_ROW), Rect(node.x, node.y + node.h, node.w, 0)]
    nodes = {node.key: node for node in scene.nodes}
    for node in scene.nodes:
        key = "" if node.is_pill else node.key
        nodes |= {port_text(key, port.name): node for port in node.inputs}
    for node in scene.nodes:
        key = "" if node.is_pill else node.key
        nodes |= {port_text(key, port.name): node for port in node.outputs}
    in_box = {node.key for node in boxes if node.shape and (scene.is_model or not node.label or node.kind == "lines")}
    entering = {(nodes[edge.target].key, edge.shape) for edge in scene.edges if edge.target in nodes}
    lines = [edge_points(edge) for edge in scene.edges]
    wires = [point_along(line, at / 24) for line in lines for at in range(25)]
    for edge, line in zip(scene.edges, lines, strict=True):
        text = elide(one_line(edge.shape), _EDGE_SIZE, _LONGEST_LABEL)
        width = text_width(text, _EDGE_SIZE)
        source = nodes[edge.source].key if edge.source in nodes else ""
        is_shown = text and source not in in_box and (source, edge.shape) not in entering
        place = _free_place(line, width, taken, wires) if is_shown else None
        if place is not None:
            left, y = place
            taken.append(Rect(left - 1, y - 6, width + 2, 12))
            yield element(
                "text", text, class_="muted halo", paint_order="stroke", stroke=LIGHT.ground,
                stroke_width=3, x=left, y=y + 3.5, font_size=_EDGE_SIZE, fill=LIGHT.muted,
            )  # fmt: skip


def _free_place(line: Sequence[Point], width: float, taken: Sequence[Rect], wires: Sequence[Point]) -> Point | None:
    for share in (0.5, 0.35, 0.65, 0.2, 0.8):
        x, middle = point_along(line, share)
        left = x - width / 2
        for y in (middle - 9, middle + 9):
            rect = Rect(left - 1, y - 6, width + 2, 12)
            if left < 0 or y < 6 or any(map(rect.overlaps, taken)):
                continue
            if not any(left - 1 < wx < left + width + 1 and y - 6 < wy < y + 6 for wx, wy in wires):
                return left, y
    return None
