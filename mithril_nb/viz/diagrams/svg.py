"""A diagram as one self-contained SVG: readable on white and on black, without scripts, links or ids.

Light colours are attributes, for programs without style sheets; dark colours are in a media query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mithril_nb.errors import Diagnostic
from mithril_nb.viz.diagrams import sizes
from mithril_nb.viz.diagrams.scene import Diagram, DiagramEdge, DiagramNode, Point, port_text
from mithril_nb.viz.palette import DARK, HUES, LIGHT, Theme
from mithril_nb.viz.text.escape import block_key, escaped, one_line
from mithril_nb.viz.text.units import percent
from mithril_nb.viz.text.width import elide, text_width

FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
_EDGE_SIZE = 10
_Rect = tuple[float, float, float, float]


def diagram_svg(
    diagram: Diagram, problems: Sequence[Diagnostic] = (), title: str = "logical graph", *, embedded: bool = False
) -> str:
    """Return the picture as SVG text.

    Args:
        diagram: The diagram.
        problems: The problems that the `problem` indices refer to, for tooltips.
        title: Accessible name, read by screen readers.
        embedded: Whether it is part of one of our HTML pages. Then it uses the page's colours, and its blocks are
            reachable by keyboard and linked to lines and rows.

    Returns:
        SVG with fixed width and height; equal arguments give equal text.
    """
    blocks = sum(1 for node in diagram.nodes if node.path)
    role = "group" if embedded else "img"
    width, height = max(diagram.width, 60), max(diagram.height, 40)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mnb-diagram" role="{role}" width="{_n(width)}" '
        f'height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}" font-family="{escaped(FONT)}" '
        f'style="max-width:100%;height:auto">',
        f"<title>{escaped(one_line(title))}: {blocks} {'block' if blocks == 1 else 'blocks'}</title>",
        f"<style>{diagram_rules(embedded=embedded)}</style>",
        f'<rect class="ground" width="{_n(width)}" height="{_n(height)}" rx="4" fill="{LIGHT.ground}"/>',
    ]
    frames = [node for node in diagram.nodes if node.expanded]
    boxes = [node for node in diagram.nodes if not node.expanded]
    for node in frames:
        parts.extend((_opening(node, problems, embedded), *_frame(node), "</g>"))
    taken: list[_Rect] = [(node.x - 2, node.y - 2, node.x + node.w + 2, node.y + node.h + 2) for node in boxes]
    taken += [(node.x, node.y, node.x + node.w, node.y + _TITLE_ROW) for node in frames]
    chips = {port_text(node.path, port.name) for node in boxes if node.shape for port in node.outputs}
    for edge in diagram.edges:
        parts.extend(_edge(edge, problems))
    wires = [_middle(edge.points, at / 24) for edge in diagram.edges for at in range(25)]
    for edge in diagram.edges:
        if edge.shape and edge.source not in chips:
            parts.extend(_edge_label(edge, taken, wires))
    for node in boxes:
        drawn = _node(node) if node.path else _pill(node)
        parts.extend((_opening(node, problems, embedded), *drawn, "</g>"))
    parts.append("</svg>")
    return "\n".join(parts)


_TITLE_ROW = 24
# CSS variables of the style sheet of our pages.
_PAGE = Theme(
    *(f"var(--{name})" for name in "ground surface line wire ink muted accent bad cost track".split()),
    hues=tuple(f"var(--h{at})" for at in range(HUES)),
    code=LIGHT.code,
)


def diagram_rules(*, embedded: bool) -> str:
    """Return the CSS rules of the colours. Without a page, only dark ones: light ones are attributes."""
    if embedded:
        return "".join(_rules(_PAGE))
    return f"@media (prefers-color-scheme:dark){{{''.join(_rules(DARK))}}}"


def _rules(theme: Theme) -> Iterator[str]:
    fills = {
        "ground": theme.ground, "box": theme.surface, "ink": theme.ink, "muted": theme.muted, "cost": theme.cost,
        "track": theme.track, "head": theme.wire, "port": theme.ground, "chip": theme.ground, "badtext": theme.bad,
    }  # fmt: skip
    strokes = {"box": theme.line, "wire": theme.wire, "port": theme.wire, "chip": theme.line, "bad": theme.bad}
    for name, colour in fills.items():
        yield f".mnb-diagram .{name}{{fill:{colour}}}"
    for name, colour in strokes.items():
        yield f".mnb-diagram .{name}{{stroke:{colour}}}"
    yield f".mnb-diagram .halo{{stroke:{theme.ground}}}"
    for at, colour in enumerate(theme.hues):
        yield f".mnb-diagram .hue{at}{{fill:{colour}}}.mnb-diagram .rim{at}{{stroke:{colour}}}"


def _opening(node: DiagramNode, problems: Sequence[Diagnostic], embedded: bool) -> str:
    label = escaped(_tooltip(node, problems))
    if not embedded or not node.path:
        return f'<g class="node"><title>{label}</title>'
    link = f'data-block="{escaped(block_key(node.path))}" tabindex="0" role="button" aria-label="{label}"'
    return f'<g class="node" {link}><title>{label}</title>'


def _node(node: DiagramNode) -> Iterator[str]:
    t = LIGHT
    x, y, w, h = node.x, node.y, node.w, node.h
    if node.group:  # a second edge behind the box marks a group
        yield (
            f'<rect class="box" x="{_n(x + 4)}" y="{_n(y + 4)}" width="{_n(w)}" height="{_n(h)}" rx="4" '
            f'fill="{t.surface}" stroke="{t.line}"/>'
        )
    bad = node.problem is not None
    stroke = f'class="box bad" stroke="{t.bad}" stroke-width="1.5" stroke-dasharray="5 3"' if bad else (
        f'class="box" stroke="{t.line}"'
    )  # fmt: skip
    yield f'<rect {stroke} x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="4" fill="{t.surface}"/>'
    hue = node.hue % HUES
    yield (
        f'<path class="hue{hue}" d="M{_n(x + 6)} {_n(y)}h-2a4 4 0 0 0 -4 4v{_n(h - 8)}a4 4 0 0 0 4 4h2z" '
        f'fill="{t.hues[hue]}"/>'
    )
    kind = one_line(node.kind) if node.repeat == 1 else f"{one_line(node.kind)} ×{node.repeat}"
    left, right = x + sizes.LEFT, x + w - sizes.RIGHT
    room = w - sizes.LEFT - sizes.RIGHT
    shown = node.share is not None
    upper, lower = (y + 17, y + 34) if shown else (y + 21, y + 39)
    spare = room - text_width(kind, sizes.SMALL_SIZE) - sizes.GAP
    label = elide(one_line(node.label), sizes.SMALL_SIZE, max(spare, room * 0.6))
    yield from _row(left, right, upper, kind, sizes.SMALL_SIZE, "muted", label, "ink")
    shape = elide(one_line(node.shape), sizes.SMALL_SIZE, room * 0.6)
    yield from _row(left, right, lower, one_line(node.name), sizes.NAME_SIZE, "ink", shape, "muted", bold=True)
    if node.share is not None:
        text = percent(node.share)
        length = room - 40
        filled = max(0.0, min(1.0, node.share)) * length
        yield (
            f'<rect class="track" x="{_n(left)}" y="{_n(y + 42)}" width="{_n(length)}" height="4" rx="2" '
            f'fill="{t.track}"/>'
        )
        if filled >= 0.5:
            yield (
                f'<rect class="cost" x="{_n(left)}" y="{_n(y + 42)}" width="{_n(filled)}" height="4" rx="2" '
                f'fill="{t.cost}"/>'
            )
        yield _text(right, y + 47, text, 9.5, "muted", anchor="end")
    for port in (*node.inputs, *node.outputs):
        yield (
            f'<circle class="port" cx="{_n(x + port.x)}" cy="{_n(y + port.y)}" r="2.5" fill="{t.ground}" '
            f'stroke="{t.wire}"/>'
        )
    if bad:
        yield from _sign(x + w - 1, y + 1)


def _pill(node: DiagramNode) -> Iterator[str]:
    x, y, w, h = node.x, node.y, node.w, node.h
    yield (
        f'<rect class="box" x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="{_n(h / 2)}" '
        f'fill="{LIGHT.surface}" stroke="{LIGHT.line}"/>'
    )
    shape = elide(one_line(node.shape), sizes.SMALL_SIZE, (w - 2 * sizes.LEFT) * 0.65)
    name = one_line(node.name)
    if shape:
        yield from _row(
            x + sizes.LEFT, x + w - sizes.LEFT, y + 20, name, sizes.NAME_SIZE, "ink", shape, "muted", bold=True
        )
    else:
        name = elide(name, sizes.NAME_SIZE, w - 2 * sizes.LEFT, bold=True)
        yield _text(x + w / 2, y + 20, name, sizes.NAME_SIZE, "ink", bold=True, anchor="middle")


def _frame(node: DiagramNode) -> Iterator[str]:
    t, hue = LIGHT, node.hue % HUES
    x, y = node.x, node.y
    yield (
        f'<rect class="hue{hue}" x="{_n(x)}" y="{_n(y)}" width="{_n(node.w)}" height="{_n(node.h)}" rx="6" '
        f'fill="{t.hues[hue]}" fill-opacity="0.07"/>'
    )
    dashes = ' stroke-dasharray="5 3"' if node.problem is not None else ""
    rim = "bad" if node.problem is not None else f"rim{hue}"
    yield (
        f'<rect class="{rim}" x="{_n(x)}" y="{_n(y)}" width="{_n(node.w)}" height="{_n(node.h)}" rx="6" '
        f'fill="none" stroke="{t.bad if node.problem is not None else t.hues[hue]}"{dashes}/>'
    )
    room = sizes.title_width(node.name, node.kind)
    name = elide(one_line(node.name), sizes.NAME_SIZE, room * 0.75, bold=True)
    at = x + sizes.PAD / 2 + text_width(name, sizes.NAME_SIZE, bold=True) + sizes.GAP / 2
    yield _text(x + sizes.PAD / 2, y + 17, name, sizes.NAME_SIZE, "ink", bold=True)
    kind = elide(one_line(node.kind), sizes.SMALL_SIZE, max(20.0, x + room + sizes.PAD - at))
    yield _text(at, y + 17, kind, sizes.SMALL_SIZE, "muted")
    for port in (*node.inputs, *node.outputs):
        yield (
            f'<circle class="port" cx="{_n(x + port.x)}" cy="{_n(y + port.y)}" r="2.5" fill="{t.ground}" '
            f'stroke="{t.wire}"/>'
        )


def _edge(edge: DiagramEdge, problems: Sequence[Diagnostic]) -> Iterator[str]:
    t = LIGHT
    label = one_line(edge.id) + (f", {one_line(edge.shape)}" if edge.shape else "") + _problem(edge.problem, problems)
    points = edge.points
    bad = edge.problem is not None
    look = (
        f'class="wire bad" stroke="{t.bad}" stroke-width="2" stroke-dasharray="5 3"'
        if bad
        else f'class="wire" stroke="{t.wire}" stroke-width="1.5"'
    )
    (x0, y0), (x1, y1) = points[-2], points[-1]
    yield f'<g class="edge"><title>{escaped(label)}</title><path {look} fill="none" d="{curve_path(points)}"/>'
    head, colour = ("badtext", t.bad) if bad else ("head", t.wire)
    yield f'<path class="{head}" fill="{colour}" d="{arrow(x0, y0, x1, y1)}"/>'
    if bad:
        yield from _sign(*_middle(points))
    yield "</g>"


def _edge_label(edge: DiagramEdge, taken: list[_Rect], wires: Sequence[Point]) -> Iterator[str]:
    """Write the shape beside the curve if it covers nothing; otherwise only the tooltip has it."""
    text = one_line(edge.shape)
    width = text_width(text, _EDGE_SIZE)
    if width > 180:
        return
    for share in (0.5, 0.35, 0.65, 0.2, 0.8):
        x, y = _middle(edge.points, share)
        for left in (x + 6, x - 6 - width):
            rect = (left - 1, y - 6, left + width + 1, y + 6)
            if left < 0 or any(_overlap(rect, other) for other in taken):
                continue
            if not any(rect[0] < wx < rect[2] and rect[1] < wy < rect[3] for wx, wy in wires):
                taken.append(rect)
                halo = f'class="muted halo" paint-order="stroke" stroke="{LIGHT.ground}" stroke-width="3"'
                yield (
                    f'<text {halo} x="{_n(left)}" y="{_n(y + 3.5)}" font-size="{_EDGE_SIZE}" '
                    f'fill="{LIGHT.muted}">{escaped(text)}</text>'
                )
                return


def _row(
    left: float, right: float, y: float, first: str, size: float, look: str, second: str, other: str,
    *, bold: bool = False,
) -> Iterator[str]:  # fmt: skip
    """Write two texts into one row; the first is cut to the room that the second leaves."""
    room = right - left - (text_width(second, sizes.SMALL_SIZE) + sizes.GAP if second else 0)
    yield _text(left, y, elide(first, size, room, bold=bold), size, look, bold=bold)
    if second:
        yield _text(right, y, second, sizes.SMALL_SIZE, other, anchor="end")


def _text(x: float, y: float, text: str, size: float, look: str, *, bold: bool = False, anchor: str = "") -> str:
    colour = {"ink": LIGHT.ink, "muted": LIGHT.muted}[look]
    weight = ' font-weight="600"' if bold else ""
    place = f' text-anchor="{anchor}"' if anchor else ""
    return (
        f'<text class="{look}" x="{_n(x)}" y="{_n(y)}" font-size="{size}" fill="{colour}"{weight}{place}>'
        f"{escaped(text)}</text>"
    )


def _sign(x: float, y: float) -> Iterator[str]:
    """Draw the sign of a problem: a disc with an exclamation mark, so that it does not depend on colour alone."""
    yield f'<circle class="badtext" cx="{_n(x)}" cy="{_n(y)}" r="7" fill="{LIGHT.bad}"/>'
    yield (
        f'<path class="halo" d="M{_n(x)} {_n(y - 4)}v4.5M{_n(x)} {_n(y + 3)}v1" stroke="{LIGHT.ground}" '
        'stroke-width="2"/>'
    )


def _tooltip(node: DiagramNode, problems: Sequence[Diagnostic]) -> str:
    kind = one_line(node.kind)
    parts = [f"{kind} {one_line(node.name)}" if node.repeat == 1 else f"{kind} {one_line(node.name)} ×{node.repeat}"]
    if node.label:
        parts.append(one_line(node.label))
    if node.shape:
        parts.append(f"output {one_line(node.shape)}" if node.path else one_line(node.shape))
    if node.share is not None:
        parts.append(f"{percent(node.share)} of the cost")
    return ", ".join(parts) + _problem(node.problem, problems)


def _problem(index: int | None, problems: Sequence[Diagnostic]) -> str:
    if index is None:
        return ""
    return f"\nproblem: {problems[index]}" if 0 <= index < len(problems) else "\nproblem"


def curve_path(points: Sequence[Point]) -> str:
    """Return a cubic curve through its control points as an SVG path."""
    start = f"M{_n(points[0][0])} {_n(points[0][1])}"
    return start + "C" + " ".join(f"{_n(x)} {_n(y)}" for x, y in points[1:])


def curve_points(points: Sequence[Point]) -> list[Point]:
    """Return points on the curve, close enough to join them by straight lines.

    Examples:
        >>> curve_points([(0, 0), (0, 3), (9, 9), (9, 12)])[::6]
        [(0.0, 0.0), (4.5, 6.0), (9.0, 12.0)]
    """
    steps = 12 * ((len(points) - 1) // 3)
    return [_middle(points, at / steps) for at in range(steps + 1)]


def arrow(x0: float, y0: float, x1: float, y1: float) -> str:
    """Return a small triangle with its tip at `(x1, y1)`, pointing away from `(x0, y0)`."""
    dx, dy = x1 - x0, y1 - y0
    length = (dx * dx + dy * dy) ** 0.5
    ux, uy = (dx / length, dy / length) if length > 0.01 else (0.0, 1.0)
    bx, by = x1 - 7 * ux, y1 - 7 * uy
    corners = ((x1, y1), (bx - 3.2 * uy, by + 3.2 * ux), (bx + 3.2 * uy, by - 3.2 * ux))
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in corners) + "Z"


def _middle(points: Sequence[Point], share: float = 0.5) -> Point:
    """Return the point of the curve at parameter `share`, 0 to 1."""
    pieces = (len(points) - 1) // 3
    at = min(int(share * pieces), pieces - 1)
    t = share * pieces - at
    p0, p1, p2, p3 = points[3 * at : 3 * at + 4]
    a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
    return (
        a * p0[0] + b * p1[0] + c * p2[0] + d * p3[0],
        a * p0[1] + b * p1[1] + c * p2[1] + d * p3[1],
    )


def _overlap(one: _Rect, other: _Rect) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _n(value: float) -> str:
    """Format a coordinate with at most one decimal, equally on every machine."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"
