"""Lay out a nested graph: place its boxes level by level, and route its wires.

The boxes of a level are in rows, which are read like text. Boxes in a row form columns. The vertical gaps between
columns are channels, the horizontal gaps between rows are lanes. A wire leaves a box at the right, runs through
channels and lanes, and reaches a box from the left. It never crosses a box.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import chain, repeat

from mithril_nb.viz.diagrams.nested import GRADIENT, ROOT, Box, NestedGraph, Piece, Scene, SceneEdge, end_id
from mithril_nb.viz.svg import Point

MARGIN = 12
PAD = 10
TITLE_H = 28
# Width and height in px that the first picture may have.
FIRST_VIEW = (900, 520)
ROW_GAP = 18
TRACK = 8
CHANNEL, LANE = 28, 24
# Width in px of the rows of a picture: that of the output of a notebook. The front end uses that of its canvas.
WIDTH = 820
_FEW_LOOSE = 3
# Where wires start: a box, and its output port. The box `""` is the border around all boxes.
Net = tuple[str, str]
# Where a wire ends: a box, and its input port.
End = tuple[str, str]


def layout(graph: NestedGraph, opened: Collection[str] = (), moved: Mapping[str, Point] | None = None) -> Scene:
    """Return the positions of all visible boxes and wires.

    Args:
        graph: The graph.
        opened: Keys of the groups to draw open. A group inside a closed one stays closed.
        moved: Positions of the boxes that the user moved, by key: of the top left corner, relative to the group.
    """
    expanded = graph.visible_groups(opened)
    wires = graph.wires(expanded)
    returned = {
        (wire.target, wire.source, bool(wire.loop)) for wire in wires if 1 in wire.roles or GRADIENT in wire.roles
    }
    level = (
        _LayoutPlan(graph, expanded, graph.pieces(wires), returned, moved or {})
        .level(ROOT, WIDTH)
        .shifted(MARGIN, MARGIN)
    )
    # The layout needs the ends of wires at the frame of a repeated part, but only blocks have ports.
    boxes = (box if box.path or not box.expanded else replace(box, ins={}, outs={}) for box in level.boxes)
    size = level.w + 2 * MARGIN, level.h + 2 * MARGIN
    return Scene(graph.title, *size, tuple(boxes), tuple(level.edges), graph.is_model, graph.roles)


def fits_first_view(graph: NestedGraph, opened: Collection[str], scale: float = 1) -> bool:
    """Return whether a picture is readable without zooming. `scale` is the factor by which it is drawn smaller."""
    scene = layout(graph, opened)
    return scene.width * scale <= FIRST_VIEW[0] and scene.height * scale <= FIRST_VIEW[1]


@dataclass
class _LaidOutLevel:
    w: float
    h: float
    ins: Mapping[str, float]
    outs: Mapping[str, float]
    boxes: list[Box] = field(default_factory=list[Box])
    edges: list[SceneEdge] = field(default_factory=list[SceneEdge])
    # For each of the first edges, whether it starts and whether it ends at the border.
    borders: list[tuple[bool, bool]] = field(default_factory=list[tuple[bool, bool]])

    def shifted(self, dx: float, dy: float) -> _LaidOutLevel:
        boxes = [replace(box, x=box.x + dx, y=box.y + dy) for box in self.boxes]
        edges = [replace(edge, points=tuple((x + dx, y + dy) for x, y in edge.points)) for edge in self.edges]
        return replace(self, boxes=boxes, edges=edges)


@dataclass(frozen=True)
class _LayoutPlan:
    graph: NestedGraph
    expanded: frozenset[str]
    pieces: Mapping[str, list[Piece]]
    returned: Collection[tuple[str, str, bool]]
    moved: Mapping[str, Point]

    def level(self, key: str, width: float) -> _LaidOutLevel:
        boxes: dict[str, Box] = {}
        inside: dict[str, _LaidOutLevel] = {}
        for box in self.graph.children.get(key, []):
            if box.key in self.expanded:
                # A frame with rows of this width fits into the row around it.
                boxes[box.key], inside[box.key] = _frame(box, self.level(box.key, width - 2 * (PAD + LANE)))
            else:
                ins, outs = _port_heights(box.inputs, box.h), _port_heights(box.outputs, box.h)
                boxes[box.key] = replace(box, ins=ins, outs=outs)
        nets: dict[Net, dict[End, list[Piece]]] = {}
        for port in self.graph.by_key[key].inputs if key else ():
            # A port without wires needs a height at the border, too: another level may lead to it.
            nets["", port] = {}
        for piece in self.pieces.get(key, ()):
            nets.setdefault((piece.tail, piece.source), {}).setdefault((piece.head, piece.port), []).append(piece)
        idle = [port for group, port in self.graph.idle if group == key]
        moved = [name for name in boxes if name in self.moved]
        # Wires through a group without boxes need room, too.
        room = {":": Box(":", "", "", 24, 16)} if len(moved) == len(boxes) else {}
        placed = arrange_lines(boxes | room, nets, idle, width, moved)
        corners = {name: corner for name, corner in placed.corners.items() if name in boxes}
        dx, dy = (PAD, TITLE_H) if key else (MARGIN, MARGIN)
        for name in moved:
            x, y = self.moved[name]
            corners[name] = max(0, round(x) - dx), max(0, round(y) - dy)
        level = _LaidOutLevel(
            max((placed.w, *(corners[name][0] + box.w for name, box in boxes.items()))),
            max((placed.h, *(corners[name][1] + box.h for name, box in boxes.items()))),
            placed.ins,
            placed.outs,
        )
        for name, (x, y) in corners.items():  # in reading order
            level.boxes.append(replace(boxes[name], x=x, y=y))
            if name in inside:
                inside[name] = inside[name].shifted(x, y)
                level.boxes += inside[name].boxes
        for net, heads in nets.items():
            for head, pieces in heads.items():
                is_curve = (net, head) not in placed.routes
                if is_curve:
                    if net[0]:
                        box, (x, y) = boxes[net[0]], corners[net[0]]
                        start = x + box.w, y + box.outs.get(net[1], box.h / 2)
                    else:
                        start = 0.0, placed.ins[net[1]]
                    if head[0]:
                        box, (x, y) = boxes[head[0]], corners[head[0]]
                        end = x, y + box.ins.get(head[1], box.h / 2)
                    else:
                        end = level.w, placed.outs[head[1]]
                    points = curve(start, end)
                else:
                    points = placed.routes[net, head]
                level.edges.append(self._edge(pieces, head[0] or key, points, is_curve))
                level.borders.append((not net[0], not head[0]))
        for name in boxes:
            level.edges += inside[name].edges if name in inside else ()
        return level

    def _edge(self, pieces: Sequence[Piece], end: str, points: tuple[Point, ...], is_curve: bool) -> SceneEdge:
        wires = [piece.wire for piece in pieces]
        first = wires[0]
        return SceneEdge(
            end_id(first.source, first.out),
            end_id(first.target, first.into) if len(wires) == 1 else end,
            points,
            is_curve,
            self.graph.shape_text(first.shapes),
            first.problem,
            is_backward=not any(0 in wire.roles or not wire.roles for wire in wires),
            returns=any((wire.source, wire.target, bool(wire.loop)) in self.returned for wire in wires),
            is_end=end == first.target,
            is_carried=bool(first.loop),
        )


def _port_heights(names: Sequence[str], height: float) -> dict[str, float]:
    return {name: round(height * at / (len(names) + 1)) for at, name in enumerate(names, 1)}


def _frame(box: Box, inner: _LaidOutLevel) -> tuple[Box, _LaidOutLevel]:
    # A long title may need more room than the boxes.
    w = max(inner.w + 2 * PAD, box.title_w)
    ins, outs = ({name: y + TITLE_H for name, y in ends.items()} for ends in (inner.ins, inner.outs))
    level = inner.shifted(PAD, TITLE_H)
    edges: list[SceneEdge] = []
    for edge, (starts, ends) in zip(level.edges, chain(inner.borders, repeat((False, False))), strict=False):
        start = (0, edge.points[0][1]) if starts else edge.points[0]
        end = (w, edge.points[-1][1]) if ends else edge.points[-1]
        # The frame may be wider than its content, and wires must reach its border.
        points = curve(start, end) if edge.is_curve and (starts or ends) else (start, *edge.points[1:-1], end)
        edges.append(replace(edge, points=points))
    frame = replace(box, w=w, h=inner.h + TITLE_H + PAD, expanded=True, ins=ins, outs=outs)
    return frame, replace(level, edges=edges)


def curve(start: Point, end: Point) -> tuple[Point, Point, Point, Point]:
    """Return the four points of a Bézier curve that leaves `start` to the right and reaches `end` from the left."""
    reach = max(24.0, abs(end[0] - start[0]) / 2)  # as the front end draws it while a block is dragged
    return (start, (start[0] + reach, start[1]), (end[0] - reach, end[1]), end)


@dataclass(frozen=True)
class PlacedLevel:
    """Boxes and wires of a level with positions in px. `ins` and `outs` are the heights of wires at the border."""

    w: float
    h: float
    corners: Mapping[str, Point]
    routes: Mapping[tuple[Net, End], tuple[Point, ...]]
    ins: Mapping[str, float]
    outs: Mapping[str, float]


# The parallel tracks of one lane or channel: wires that overlap are on different tracks.
@dataclass
class _Tracks:
    intervals: dict[Net, tuple[float, float]] = field(default_factory=dict[Net, tuple[float, float]])
    track_of: dict[Net, int] = field(default_factory=dict[Net, int])
    count: int = 0

    def add(self, net: Net, first: float, last: float) -> None:
        low, high = self.intervals.get(net, (first, first))
        self.intervals[net] = min(first, last, low), max(first, last, high)

    def settle(self) -> int:
        busy: list[tuple[float, int]] = []
        free: list[int] = []
        for net, (low, high) in sorted(self.intervals.items(), key=lambda entry: entry[1]):
            while busy and busy[0][0] < low:
                heappush(free, heappop(busy)[1])
            if not free:
                free.append(self.count)
                self.count += 1
            # The lowest free track, so that bundles of wires stay narrow.
            self.track_of[net] = heappop(free)
            heappush(busy, (high, self.track_of[net]))
        return self.count


# Pins are at least TRACK px apart. Neighbours less than 2 * TRACK px apart form a run; lows and highs are the heights
# of the first and the last pin of each run.
@dataclass
class _Pins:
    end: float
    heights: dict[str, float] = field(default_factory=dict)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)

    def add(self, name: str, position: float) -> None:
        # If the height is taken, the pin goes below the run there, or above it.
        at = bisect_right(self.highs, position - TRACK)
        if at < len(self.lows) and self.lows[at] < position + TRACK:
            below = self.highs[at] + TRACK
            position = below if below < self.end else self.lows[at] - TRACK
        self.heights[name] = position
        start = bisect_right(self.highs, position - 2 * TRACK)
        stop = bisect_left(self.lows, position + 2 * TRACK)
        low = min([position, *self.lows[start:stop]])
        high = max([position, *self.highs[start:stop]])
        self.lows[start:stop], self.highs[start:stop] = [low], [high]


def arrange_lines(
    boxes: Mapping[str, Box],
    nets: Mapping[Net, Collection[End]],
    idle: Sequence[str] = (),
    width: float = WIDTH,
    apart: Collection[str] = (),
) -> PlacedLevel:
    """Place boxes in rows, and route wires between them.

    Args:
        boxes: The boxes by key, in reading order; at least one that is not in `apart`.
        nets: The ends of the wires, by the output where they start.
        idle: Names of the outputs at the border to which no wire leads.
        width: Width in px of the rows.
        apart: Keys of the boxes that need no room in the rows. Their wires have no routes.
    """
    return _Rows(boxes, nets, idle, width, apart).placed()


class _Rows:
    def __init__(
        self,
        boxes: Mapping[str, Box],
        nets: Mapping[Net, Collection[End]],
        idle: Sequence[str],
        width: float,
        apart: Collection[str],
    ):
        self._boxes, self._nets, self._idle = boxes, nets, idle
        columns = [[key for key in column if key not in apart] for column in _columns(boxes, nets)]
        self._rows = _wrapped([column for column in columns if column], boxes, width)
        self._spot = {
            key: (row, at) for row, line in enumerate(self._rows) for at, keys in enumerate(line) for key in keys
        }
        self._lanes = [_Tracks() for _ in range(len(self._rows) + 1)]
        self._channels = [[_Tracks() for _ in range(len(line) + 1)] for line in self._rows]
        self._margin = _Tracks()
        self._row_h = [max(_stack_height(column, boxes) for column in line) for line in self._rows]
        # Pins need room in the first and in the last row: elsewhere they would overlap other boxes.
        for row, pins in (
            (0, {source for tail, source in nets if not tail}),
            (-1, {*idle, *(port for heads in nets.values() for key, port in heads if not key)}),
        ):
            self._row_h[row] = max(self._row_h[row], (len(pins) + 1) * TRACK)
        # For each wire, the row and the channel where it starts, those where it ends, and the lanes between them.
        starts = {"": (0, 0)} | {key: (row, at + 1) for key, (row, at) in self._spot.items()}
        ends = {"": (len(self._rows) - 1, len(self._rows[-1]))} | self._spot
        self._wires = [
            (net, head, starts[net[0]], ends[head[0]], _lanes_between(starts[net[0]], ends[head[0]]))
            for net, heads in nets.items()
            for head in heads
            if net[0] in starts and head[0] in ends
        ]

    def placed(self) -> PlacedLevel:
        self._plan_lanes()
        self._tops: list[float] = []
        y = 0.0
        for lane_h, row_h in zip(self._lane_h, self._row_h, strict=False):
            self._tops.append(y + lane_h)
            y = self._tops[-1] + row_h
        self._tops.append(y)
        self._y_of: dict[str, float] = {}
        for line, top, row_h in zip(self._rows, self._tops, self._row_h, strict=False):
            for column in line:
                y = top + (row_h - _stack_height(column, self._boxes)) // 2
                for key in column:
                    self._y_of[key] = y
                    y += self._boxes[key].h + ROW_GAP
        self._ins, self._outs = self._pins()
        self._plan_channels()
        self._columns_x()
        self._corners: dict[str, Point] = {}
        for line, lefts in zip(self._rows, self._lefts, strict=True):
            for column, left in zip(line, lefts, strict=True):
                room = max(self._boxes[key].w for key in column)
                for key in column:
                    self._corners[key] = (left + (room - self._boxes[key].w) // 2, self._y_of[key])
        routes = {wire[:2]: self._route(*wire) for wire in self._wires}
        height = self._tops[-1] + self._lane_h[-1]
        return PlacedLevel(self._width, height, self._corners, routes, self._ins, self._outs)

    def _plan_lanes(self) -> None:
        for net, _, (_, at), (_, to_at), lanes in self._wires:
            if len(lanes) == 1:
                self._lanes[lanes[0]].add(net, at, to_at)
            elif lanes:
                self._lanes[lanes[0]].add(net, at, -1)
                self._lanes[lanes[1]].add(net, -1, to_at)
                self._margin.add(net, *lanes)
        self._lane_h: list[float] = []
        for at, lane in enumerate(self._lanes):
            count = lane.settle()
            least = LANE if 0 < at < len(self._rows) else 6
            self._lane_h.append(max(least, (count + 1) * TRACK) if count else least)

    def _pins(self) -> tuple[dict[str, float], dict[str, float]]:
        first, last = self._rows[0], self._rows[-1]
        ins, outs = _Pins(self._tops[0] + self._row_h[0]), _Pins(self._tops[-1])
        end = len(self._rows) - 1, len(last) - 1
        for (tail, source), heads in self._nets.items():
            if not tail:
                near = next((head for head in heads if self._spot.get(head[0]) == (0, 0)), None)
                ins.add(source, self._in_port(near) if near else self._middle(first))
            for port in (port for key, port in heads if not key):
                at_end = self._spot.get(tail) == end
                outs.add(port, self._out_port((tail, source)) if at_end else self._middle(last))
        for port in self._idle:
            outs.add(port, self._middle(last))
        return ins.heights, outs.heights

    def _middle(self, line: Sequence[Sequence[str]]) -> float:
        column = line[0]
        return (self._y_of[column[0]] + self._y_of[column[-1]] + self._boxes[column[-1]].h) / 2

    def _in_port(self, head: End) -> float:
        box = self._boxes[head[0]]
        return self._y_of[head[0]] + box.ins.get(head[1], box.h / 2)

    def _out_port(self, net: Net) -> float:
        box = self._boxes[net[0]]
        return self._y_of[net[0]] + box.outs.get(net[1], box.h / 2)

    def _plan_channels(self) -> None:
        self._ends: dict[tuple[Net, End], tuple[float, float]] = {}
        for net, head, (row, at), (to_row, to_at), lanes in self._wires:
            start = self._out_port(net) if net[0] else self._ins[net[1]]
            end = self._in_port(head) if head[0] else self._outs[head[1]]
            self._ends[net, head] = start, end
            if lanes:
                self._channels[row][at].add(net, start, self._lane_y(lanes[0], net))
                self._channels[to_row][to_at].add(net, self._lane_y(lanes[-1], net), end)
            elif start != end:
                self._channels[row][at].add(net, start, end)

    def _lane_y(self, lane: int, net: Net) -> float:
        above = self._tops[lane] - self._lane_h[lane] if lane < len(self._rows) else self._tops[-1]
        return above + TRACK * (self._lanes[lane].track_of[net] + 1)

    def _columns_x(self) -> None:
        margin = self._margin.settle()
        self._lefts: list[list[float]] = []
        self._channel_at: list[list[tuple[float, float]]] = []  # left edge and width
        self._width = 0.0
        for line, channels in zip(self._rows, self._channels, strict=True):
            x = (margin + 1) * TRACK if margin else 0.0
            lefts, channel_at = list[float](), list[tuple[float, float]]()
            for at, channel in enumerate(channels):
                count = channel.settle()
                # The channel at the end of a row is needed only by wires that turn there.
                least = LANE if at == 0 else CHANNEL if at < len(line) else 6
                room = max(least, (count + 2) * TRACK) if count else least
                channel_at.append((x, room))
                x += room
                if at < len(line):
                    lefts.append(x)
                    x += max(self._boxes[key].w for key in line[at])
            self._lefts.append(lefts)
            self._channel_at.append(channel_at)
            self._width = max(self._width, x)

    def _track_x(self, row: int, at: int, net: Net) -> float:
        tracks, (x, room) = self._channels[row][at], self._channel_at[row][at]
        return x + (room - TRACK * (tracks.count - 1)) / 2 + TRACK * tracks.track_of[net]

    def _route(
        self, net: Net, head: End, start_at: tuple[int, int], end_at: tuple[int, int], lanes: tuple[int, ...]
    ) -> tuple[Point, ...]:
        start_y, end_y = self._ends[net, head]
        start = (self._corners[net[0]][0] + self._boxes[net[0]].w if net[0] else 0.0, start_y)
        end = (self._corners[head[0]][0] if head[0] else self._width, end_y)
        if not lanes and start_y == end_y:
            return (start, end)
        x0 = self._track_x(*start_at, net)
        if not lanes:
            return (start, (x0, start_y), (x0, end_y), end)
        x1 = self._track_x(*end_at, net)
        first, last = self._lane_y(lanes[0], net), self._lane_y(lanes[-1], net)
        if len(lanes) == 1:
            return (start, (x0, start_y), (x0, first), (x1, first), (x1, end_y), end)
        xm = TRACK * (self._margin.track_of[net] + 1)
        return (start, (x0, start_y), (x0, first), (xm, first), (xm, last), (x1, last), (x1, end_y), end)


# The lanes that a wire uses: none, one, or two, which are connected in the margin at the left.
def _lanes_between(start: tuple[int, int], end: tuple[int, int]) -> tuple[int, ...]:
    (row, at), (to_row, to_at) = start, end
    if row == to_row:
        return () if at == to_at else (row,) if at < to_at else (row + 1,)
    first, last = (row + 1, to_row) if to_row > row else (row, to_row + 1)
    return (first,) if first == last else (first, last)


# A box is right of its producers; without any, it is left of its first consumer.
def _columns(boxes: Mapping[str, Box], nets: Mapping[Net, Collection[End]]) -> list[list[str]]:
    index = {key: at for at, key in enumerate(boxes)}
    before: dict[str, set[str]] = {key: set() for key in boxes}
    after: dict[str, set[str]] = {key: set() for key in boxes}
    entered: set[str] = set()
    for (tail, _), heads in nets.items():
        for head, _ in heads:
            if not tail:
                entered.add(head)
            elif head and index[tail] < index[head]:
                before[head].add(tail)
                after[tail].add(head)
    inputs = {key for key, box in boxes.items() if box.kind == "input"}
    rank: dict[str, int] = {}
    for key in boxes:
        rank[key] = max((rank[earlier] + 1 for earlier in before[key]), default=0)
    last = max(rank.values(), default=0)
    for key in reversed(list(boxes)):
        if not before[key] and key not in entered and (key not in inputs or after[key]):
            rank[key] = max(0, min((rank[later] - 1 for later in after[key]), default=last))
    loose = [key for key in boxes if not before[key] and not after[key] and key not in entered | inputs]
    if len(loose) > _FEW_LOOSE:  # unconnected boxes are placed in reading order
        rank |= {key: last + at for at, key in enumerate(loose, 1)}
    columns = defaultdict[int, list[str]](list)
    for key in boxes:
        columns[rank[key]].append(key)
    height: dict[str, float] = {}
    ordered = [columns[at] for at in sorted(columns)]
    for column in ordered:
        goal = {
            key: sum(height[earlier] for earlier in before[key]) / len(before[key]) if before[key] else float("inf")
            for key in column
        }
        column.sort(key=lambda key: (key in inputs, goal[key], index[key]))
        height |= {key: float(at) for at, key in enumerate(column)}
    return ordered


# As few rows as the width allows, of lengths as equal as possible. An output is beside the column before it if both
# fit.
def _wrapped(columns: Sequence[list[str]], boxes: Mapping[str, Box], width: float) -> list[list[list[str]]]:
    lengths = [max(boxes[key].w for key in column) + CHANNEL for column in columns]
    tied = [
        at > 0
        and all(boxes[key].is_pill and boxes[key].kind == "output" for key in column)
        and lengths[at - 1] + lengths[at] <= width
        for at, column in enumerate(columns)
    ]
    # For the first columns, by their number: the number of rows, the sum of squared lengths, the start of the last row.
    best: list[tuple[int, float, int]] = [(0, 0, 0)]
    for stop in range(1, len(columns) + 1):
        length, choices = 0.0, list[tuple[int, float, int]]()
        for start in range(stop - 1, -1, -1):
            length += lengths[start]
            if length > width and choices:
                break
            if not tied[start]:
                choices.append((best[start][0] + 1, best[start][1] + length**2, start))
        best.append(min(choices, key=lambda choice: choice[:2]))
    lines: list[list[list[str]]] = []
    stop = len(columns)
    while stop:
        start = best[stop][2]
        lines.insert(0, list(columns[start:stop]))
        stop = start
    return lines


def _stack_height(column: Sequence[str], boxes: Mapping[str, Box]) -> float:
    return sum(boxes[key].h for key in column) + ROW_GAP * (len(column) - 1)
