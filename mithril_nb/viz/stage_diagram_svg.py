"""The picture of a stage's graph as self-contained SVG, and the same graph as text.

Hue is the block, pattern is the role: forward is solid, backward hatched, update dotted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from mithril_nb.stages.graph.stage_graph import ROOT, GraphNode, StageGraph
from mithril_nb.stages.records import ROLES
from mithril_nb.viz.diagrams import sizes
from mithril_nb.viz.diagrams.scene import Point
from mithril_nb.viz.diagrams.stages import StageBox, StageDiagram, StageWire, frame_title
from mithril_nb.viz.diagrams.svg import FONT, diagram_rules
from mithril_nb.viz.palette import HUES, LIGHT
from mithril_nb.viz.text.columns import columns
from mithril_nb.viz.text.escape import block_key, escaped, one_line
from mithril_nb.viz.text.units import percent
from mithril_nb.viz.text.width import elide, text_width

_LEGEND_H = 26
_CELL_H = 7
_CORNER = 5
_NO_ROLE = "without a role"


def stage_svg(diagram: StageDiagram, title: str = "", *, embedded: bool = False) -> str:
    """Return the picture as SVG text.

    Args:
        diagram: The diagram.
        title: Accessible name, read by screen readers; default: the name of the stage.
        embedded: Whether it is part of one of our HTML pages. Then it uses the page's colours, and its nodes are
            reachable by keyboard and linked to lines and rows.

    Returns:
        SVG with fixed width and height; equal arguments give equal text.
    """
    legend = diagram.has_roles
    width, height = max(diagram.width, 240 if legend else 60), max(diagram.height, 40) + (_LEGEND_H if legend else 0)
    nodes = len(diagram.boxes)
    name = one_line(title or diagram.stage)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mnb-diagram" role="{"group" if embedded else "img"}" '
        f'width="{_n(width)}" height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'font-family="{escaped(FONT)}" style="max-width:100%;height:auto">',
        f"<title>{escaped(name)}: {nodes} {'node' if nodes == 1 else 'nodes'}</title>",
        f"<desc>{escaped(_described(diagram))}</desc>",
        f"<style>{diagram_rules(embedded=embedded)}</style>",
        f'<rect class="ground" width="{_n(width)}" height="{_n(height)}" fill="{LIGHT.ground}"/>',
    ]
    for box in diagram.boxes:
        if box.opened:
            parts.extend((_opening(box, embedded), *_frame(box), "</g>"))
    for wire in diagram.wires:
        parts.extend(_wire(wire))
    for box in diagram.boxes:
        if not box.opened:
            drawn = _pill(box) if box.node.kind == "input" else _node(box, roles=diagram.has_roles)
            parts.extend((_opening(box, embedded), *drawn, "</g>"))
    if legend:
        parts.extend(_legend(diagram, height - _LEGEND_H))
    parts.append("</svg>")
    return "\n".join(parts)


def stage_graph_text(
    graph: StageGraph, opened: Collection[str] | None = None, shares: Mapping[str, float] | None = None
) -> str:
    """Return a stage's graph as an indented list with the content of the picture.

    Args:
        graph: The graph.
        opened: Keys of the nodes whose content is listed; default: `graph.first_view`.
        shares: Share of the cost by block path.
    """
    shown = graph.first_view(shares=shares) if opened is None else opened
    depth = {ROOT: -1}
    rows: list[tuple[str, ...]] = []
    for node in graph.visible(shown):
        depth[node.key] = depth[node.parent] + 1
        share = graph.share(node.key, shares or {})
        times = f" ×{node.repeat}" if node.repeat > 1 else ""
        rows.append(
            (
                f"{'  ' * depth[node.key]}{one_line(node.name)}{times}",
                "" if node.kind in ("block", "instruction") else node.kind,
                node.note,
                one_line(node.shape),
                _counted(node),
                "" if share is None else percent(share),
            )
        )
    return columns(rows) if rows else f"{graph.stage}: nothing to draw"


def _counted(node: GraphNode) -> str:
    if node.kind in ("instruction", "input"):
        return ""
    named = zip((*ROLES, _NO_ROLE), node.counts, strict=True)
    return ", ".join(f"{count} {name}" for name, count in named if count)


def _described(diagram: StageDiagram) -> str:
    tops = [box.node for box in diagram.boxes if box.node.parent == ROOT]
    named = ", ".join(one_line(node.name) + (f" ×{node.repeat}" if node.repeat > 1 else "") for node in tops)
    return f"In the order of the program: {named}."


def _opening(box: StageBox, embedded: bool) -> str:
    label = escaped(_tooltip(box))
    if not embedded:
        return f'<g class="node"><title>{label}</title>'
    if box.equations:
        link = f'data-e="{escaped(" ".join(box.equations))}" data-of="{escaped(block_key(box.node.block))}"'
    else:
        link = f'data-block="{escaped(block_key(box.node.block))}"' if box.node.block else ""
    inside = f' aria-expanded="{"true" if box.opened else "false"}"' if box.node.children else ""
    key = f'data-node="{escaped(block_key(box.node.key))}"'
    role = f'tabindex="0" role="button"{inside} aria-label="{label}"'
    return f'<g class="node" {key} {link} {role}><title>{label}</title>'


def _tooltip(box: StageBox) -> str:
    node = box.node
    times = f" ×{node.repeat}" if node.repeat > 1 else ""
    parts = [f"{node.kind} {one_line(node.name)}{times}"]
    parts += [
        part for part in (node.note, f"output {one_line(node.shape)}" if node.shape else "", _counted(node)) if part
    ]
    if box.share is not None:
        parts.append(f"{percent(box.share)} of the cost")
    return ", ".join(parts)


def _node(box: StageBox, *, roles: bool) -> Iterator[str]:
    t, node = LIGHT, box.node
    x, y, w, h = box.x, box.y, box.w, box.h
    hue = box.hue % HUES
    if node.repeat > 1:  # a stack of boxes marks a repeated node
        for off in (6, 3):
            yield (
                f'<rect class="box" x="{_n(x + off)}" y="{_n(y - off)}" width="{_n(w - off)}" height="{_n(h)}" rx="4" '
                f'fill="{t.surface}" stroke="{t.line}"/>'
            )
    yield (
        f'<rect class="box" x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="4" fill="{t.surface}" '
        f'stroke="{t.line}"/>'
    )
    yield (
        f'<path class="hue{hue}" d="M{_n(x + 6)} {_n(y)}h-2a4 4 0 0 0 -4 4v{_n(h - 8)}a4 4 0 0 0 4 4h2z" '
        f'fill="{t.hues[hue]}"/>'
    )
    left, right = x + sizes.LEFT, x + w - sizes.RIGHT
    cells = roles and node.kind != "instruction" and any(node.counts[:3])
    first = y + (22 if cells else h / 2 - 3)
    times = f"×{node.repeat}" if node.repeat > 1 else ""
    sign = 18 if roles and node.kind == "instruction" else 0
    room = right - left - sign - (text_width(times, sizes.NAME_SIZE, bold=True) + 8 if times else 0)
    yield _text(left, first, elide(one_line(node.name), sizes.NAME_SIZE, room, bold=True), sizes.NAME_SIZE, bold=True)
    if times:
        yield _text(right, first, times, sizes.NAME_SIZE, bold=True, anchor="end")
    share = percent(box.share) if box.share is not None else ""
    room = right - left - (text_width(share, sizes.SMALL_SIZE) + 8 if share else 0)
    below = one_line(node.note or node.shape)
    if below:
        yield _text(left, first + 17, elide(below, sizes.SMALL_SIZE, room), sizes.SMALL_SIZE, "muted")
    if share:
        yield _text(right, first + 17, share, sizes.SMALL_SIZE, "ink", anchor="end")
    if cells:
        yield from _cells(left, y + h - _CELL_H - 8, right - left, node.counts[:3], hue)
    elif roles and node.kind == "instruction":
        at = next((at for at, count in enumerate(node.counts[:3]) if count), None)
        if at is not None:
            yield from _cell(right - 12, y + 8, 12, at, hue)


def _cells(x: float, y: float, width: float, counts: Sequence[int], hue: int) -> Iterator[str]:
    """Draw the shares of forward, backward and update instructions as a bar of three patterns."""
    total = sum(counts)
    used = [at for at, count in enumerate(counts) if count]
    spare = width - 2 * (len(used) - 1) - 8 * len(used)  # each part is at least 8 px, so that its pattern is visible
    for at in used:
        length = round(8 + spare * counts[at] / total, 1)
        yield from _cell(x, y, length, at, hue)
        x += length + 2


def _cell(x: float, y: float, width: float, role: int, hue: int) -> Iterator[str]:
    """Draw one role's pattern: solid, hatched or dotted."""
    colour = LIGHT.hues[hue]
    if role == 0:
        yield (
            f'<rect class="hue{hue}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_CELL_H}" fill="{colour}"/>'
        )
        return
    yield (
        f'<rect class="rim{hue}" x="{_n(x + 0.5)}" y="{_n(y + 0.5)}" width="{_n(width - 1)}" height="{_CELL_H - 1}" '
        f'fill="none" stroke="{colour}"/>'
    )
    if role == 1:
        strokes = "".join(
            f"M{_n(x + at)} {_n(y + _CELL_H - 1)}l5 -{_CELL_H - 2}" for at in range(1, max(2, int(width) - 5), 4)
        )
        yield f'<path class="rim{hue}" d="{strokes}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
    else:
        middle = _n(y + _CELL_H / 2)
        yield (
            f'<path class="rim{hue}" d="M{_n(x + 3.5)} {middle}H{_n(x + width - 3)}" fill="none" stroke="{colour}" '
            'stroke-width="2.2" stroke-linecap="round" stroke-dasharray="0.1 4"/>'
        )


def _legend(diagram: StageDiagram, y: float) -> Iterator[str]:
    x = 12.0
    for at, role in enumerate(ROLES):
        if any(box.node.counts[at] for box in diagram.boxes):
            yield from _cell(x, y + 7, 22, at, HUES - 1)
            yield _text(x + 28, y + 14, role, sizes.SMALL_SIZE, "muted")
            x += 28 + text_width(role, sizes.SMALL_SIZE) + 18
    if any(wire.returns for wire in diagram.wires):
        yield from _wire(StageWire("", "", ((x, y + 10.5), (x + 26, y + 10.5)), returns=True))
        yield _text(x + 33, y + 14, "gradient flows back", sizes.SMALL_SIZE, "muted")


def _pill(box: StageBox) -> Iterator[str]:
    x, y, w, h = box.x, box.y, box.w, box.h
    yield (
        f'<rect class="box" x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="{_n(h / 2)}" '
        f'fill="{LIGHT.surface}" stroke="{LIGHT.line}"/>'
    )
    room = w - 24
    name = elide(_short_input(one_line(box.node.name)), sizes.SMALL_SIZE, room, bold=True)
    yield _text(x + w / 2, y + 14.5, name, sizes.SMALL_SIZE, bold=True, anchor="middle")
    shape = elide(one_line(box.node.shape), 10, room)
    yield _text(x + w / 2, y + 27, shape, 10, "muted", anchor="middle")


def _short_input(name: str) -> str:
    """Return the last key of an input's name, which distinguishes it from other inputs.

    Examples:
        >>> _short_input("batch['inputs']['tokens']"), _short_input("x")
        ('tokens', 'x')
    """
    last = name.rstrip("]").rpartition("[")[2].strip("'")
    return last if name.endswith("]") and not last.isdigit() else name


def _frame(box: StageBox) -> Iterator[str]:
    t, hue, node = LIGHT, box.hue % HUES, box.node
    x, y, w, h = box.x, box.y, box.w, box.h
    if node.repeat > 1:
        for off in (6, 3):
            yield (
                f'<rect class="rim{hue}" x="{_n(x + off)}" y="{_n(y - off)}" width="{_n(w - off)}" height="{_n(h)}" '
                f'rx="6" fill="none" stroke="{t.hues[hue]}" stroke-opacity="0.5"/>'
            )
        yield (
            f'<rect class="ground" x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="6" fill="{t.ground}"/>'
        )
    yield (
        f'<rect class="hue{hue}" x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="6" '
        f'fill="{t.hues[hue]}" fill-opacity="0.06"/>'
    )
    dashes = ' stroke-dasharray="6 3"' if node.kind in ("loop", "cond", "branch", "repeat") else ""
    yield (
        f'<rect class="rim{hue}" x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="6" fill="none" '
        f'stroke="{t.hues[hue]}"{dashes}/>'
    )
    name, rest = frame_title(node)
    room = w - 20
    name = elide(name, sizes.NAME_SIZE, room, bold=True)
    yield _text(x + 10, y + 18, name, sizes.NAME_SIZE, bold=True)
    at = 10 + text_width(name, sizes.NAME_SIZE, bold=True) + 8
    share = percent(box.share) if box.share is not None else ""
    rest = elide(" · ".join(part for part in (rest, share) if part), sizes.SMALL_SIZE, w - at - 10)
    if len(rest) > 1:
        yield _text(x + at, y + 18, rest, sizes.SMALL_SIZE, "muted")


def _wire(wire: StageWire) -> Iterator[str]:
    t = LIGHT
    label = f"{one_line(wire.source)} → {one_line(wire.target)}" + (f", {one_line(wire.shape)}" if wire.shape else "")
    dashes = ' stroke-dasharray="5 3"' if wire.is_backward else ""
    yield (
        f'<g class="edge"><title>{escaped(label)}</title><path class="wire" stroke="{t.wire}" stroke-width="1.5" '
        f'fill="none"{dashes} d="{rounded_path(wire.points)}"/>'
    )
    if wire.is_end:
        x, y = wire.points[-1]
        yield f'<path class="head" fill="{t.wire}" d="M{_n(x)} {_n(y)}l-7 -3.4v6.8z"/>'
    if wire.returns:
        x, y = wire.points[0]
        yield (f'<path class="wire ground" fill="{t.ground}" stroke="{t.wire}" d="M{_n(x + 1)} {_n(y)}l7 -3.4v6.8z"/>')
    yield "</g>"


def rounded_path(points: Sequence[Point]) -> str:
    """Return a path through corners, each rounded as far as its sides allow."""
    path = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        if corner in (before, after):
            continue
        one, other = _towards(corner, before), _towards(corner, after)
        path.append(f"L{_n(one[0])} {_n(one[1])}Q{_n(corner[0])} {_n(corner[1])} {_n(other[0])} {_n(other[1])}")
    path.append(f"L{_n(points[-1][0])} {_n(points[-1][1])}")
    return "".join(path)


def _towards(corner: Point, end: Point) -> Point:
    dx, dy = end[0] - corner[0], end[1] - corner[1]
    length = abs(dx) + abs(dy)
    reach = min(_CORNER, length / 2) / length if length else 0
    return corner[0] + dx * reach, corner[1] + dy * reach


def _text(
    x: float, y: float, text: str, size: float, look: str = "ink", *, bold: bool = False, anchor: str = ""
) -> str:
    colour = {"ink": LIGHT.ink, "muted": LIGHT.muted}[look]
    weight = ' font-weight="600"' if bold else ""
    place = f' text-anchor="{anchor}"' if anchor else ""
    return (
        f'<text class="{look}" x="{_n(x)}" y="{_n(y)}" font-size="{size}" fill="{colour}"{weight}{place}>'
        f"{escaped(text)}</text>"
    )


def _n(value: float) -> str:
    """Format a coordinate with at most one decimal, equally on every machine."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"
