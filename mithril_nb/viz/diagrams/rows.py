"""Place boxes in rows, which are read like text, and route wires between them.

Boxes in a row form columns. The vertical gaps between columns are channels, the horizontal gaps between rows are lanes.
A wire leaves a box at the right, runs through channels and lanes, and reaches a box from the left. It never crosses a
box.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate

from mithril_nb.viz.svg import Point

ROW_GAP = 18
TRACK = 8
CHANNEL, LANE = 36, 22
SCREEN = (820, 480)
"""Width and height in px of a level that fits on a screen."""
_FEW_LOOSE = 3

Interval = tuple[float, float]
End = tuple[str, str]
"""Where a wire ends: a box, and its input port. The box `""` is the border around all boxes."""
Way = tuple[str, str, End]
"""A wire: the box where it starts, the output there, and the end."""


@dataclass(frozen=True)
class Part:
    """A box: its size in px, and the distances in px of its inputs and outputs from its top, by name of the port.

    A port without an entry is in the middle of its side.
    """

    w: float
    h: float
    ins: Mapping[str, float]
    outs: Mapping[str, float]
    is_input: bool = False


@dataclass(frozen=True)
class Net:
    """All wires from one output, `source`, of the box `tail`. The box `""` is the border around all boxes."""

    tail: str
    source: str
    heads: tuple[End, ...]


@dataclass(frozen=True)
class Placed:
    """Corners of boxes in reading order, routes of wires, and heights where wires cross the border, by name."""

    w: float
    h: float
    corners: Mapping[str, Point]
    routes: Mapping[Way, tuple[Point, ...]]
    ins: Mapping[str, float]
    outs: Mapping[str, float]


@dataclass
class _Tracks:
    """The parallel tracks of one lane or channel. Wires that overlap are on different tracks."""

    intervals: dict[tuple[str, str], Interval] = field(default_factory=dict)
    places: dict[tuple[str, str], int] = field(default_factory=dict)
    count: int = 0

    def add(self, net: tuple[str, str], one: float, other: float) -> None:
        low, high = min(one, other), max(one, other)
        if net in self.intervals:
            low, high = min(low, self.intervals[net][0]), max(high, self.intervals[net][1])
        self.intervals[net] = low, high

    def settle(self) -> int:
        """Assign a track to the wires of each output, and return the number of tracks."""
        busy: list[tuple[float, int]] = []
        free: list[int] = []
        for net, (low, high) in sorted(self.intervals.items(), key=lambda item: item[1]):
            while busy and busy[0][0] < low:
                heappush(free, heappop(busy)[1])
            if not free:
                free.append(self.count)
                self.count += 1
            self.places[net] = heappop(free)
            heappush(busy, (high, self.places[net]))
        return self.count


@dataclass
class _Pins:
    """The pins on the left or right side of the border around all boxes: the heights at which wires cross it.

    Pins are at least `TRACK` px apart. Neighbours less than `2 * TRACK` px apart form a run. `lows` and `highs` are the
    heights of the first and the last pin of each run.
    """

    end: float
    heights: dict[str, float] = field(default_factory=dict)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)

    def add(self, name: str, wanted: float) -> None:
        """Place a pin at the wanted height. If it is taken, the pin goes below the run there, or above the run."""
        at = bisect_right(self.highs, wanted - TRACK)
        if at < len(self.lows) and self.lows[at] < wanted + TRACK:
            below = self.highs[at] + TRACK
            wanted = below if below < self.end else self.lows[at] - TRACK
        self.heights[name] = wanted
        start = bisect_right(self.highs, wanted - 2 * TRACK)
        stop = bisect_left(self.lows, wanted + 2 * TRACK)
        low = min([wanted, *self.lows[start:stop]])
        high = max([wanted, *self.highs[start:stop]])
        self.lows[start:stop], self.highs[start:stop] = [low], [high]


def arrange_lines(parts: Mapping[str, Part], nets: Sequence[Net], idle: Sequence[str] = ()) -> Placed:
    """Place boxes in rows and route wires.

    Args:
        parts: The boxes by key, in reading order.
        nets: The wires. A net that starts at the border and has no `heads` is an input that no box uses.
        idle: Names of the outputs at the border to which no wire leads.

    Returns:
        Positions in px from `(0, 0)`. No wire crosses a box.
    """
    return _Lines(parts, nets, idle).placed() if parts else Placed(0, 0, {}, {}, {}, {})


class _Lines:
    def __init__(self, parts: Mapping[str, Part], nets: Sequence[Net], idle: Sequence[str]):
        self._parts, self._nets, self._idle = parts, nets, idle
        columns = _columns(parts, nets)
        self._lines = _wrapped(columns, parts)
        self._spot = {
            key: (row, at) for row, line in enumerate(self._lines) for at, column in enumerate(line) for key in column
        }
        self._lanes = [_Tracks() for _ in range(len(self._lines) + 1)]
        self._channels = [[_Tracks() for _ in range(len(line) + 1)] for line in self._lines]
        self._margin = _Tracks()
        self._line_h = [_line_height(line, parts) for line in self._lines]
        # Pins need room in the first and in the last row: elsewhere they would overlap other boxes.
        for row, pins in (
            (0, {net.source for net in nets if not net.tail}),
            (-1, {*idle, *(port for net in nets for key, port in net.heads if not key)}),
        ):
            self._line_h[row] = max(self._line_h[row], (len(pins) + 1) * TRACK)

    def placed(self) -> Placed:
        self._ways = {(net.tail, net.source, head): self._way(net, head) for net in self._nets for head in net.heads}
        self._plan_lanes()
        self._tops = self._row_tops()
        self._y_of = self._heights()
        self._ins, self._outs = self._pins()
        self._plan_channels()
        self._columns_x()
        self._corners: dict[str, Point] = {}
        for row, line in enumerate(self._lines):
            for at, column in enumerate(line):
                room = max(self._parts[key].w for key in column)
                for key in column:
                    left = self._lefts[row][at] + (room - self._parts[key].w) // 2
                    self._corners[key] = (left, self._y_of[key])
        routes = {way: self._route(way, lanes) for way, lanes in self._ways.items()}
        height = self._tops[-1] + self._lane_h[-1]
        return Placed(self._width, height, self._corners, routes, self._ins, self._outs)

    def _end(self, key: str, *, is_tail: bool) -> tuple[int, int]:
        """Return the row and the channel where a wire leaves the box (`is_tail`) or reaches it."""
        if key:
            row, at = self._spot[key]
            return (row, at + 1) if is_tail else (row, at)
        return (0, 0) if is_tail else (len(self._lines) - 1, len(self._lines[-1]))

    def _way(self, net: Net, head: End) -> tuple[int, ...]:
        """Return the lanes that a wire uses: none, one, or two. Two lanes are connected in the margin at the left."""
        (row, at), (to_row, to_at) = self._end(net.tail, is_tail=True), self._end(head[0], is_tail=False)
        if row == to_row and at == to_at:
            return ()
        if row == to_row:
            return (row,) if at < to_at else (row + 1,)
        if to_row == row + 1:
            return (to_row,)
        return (row + 1, to_row) if to_row > row else (row, to_row + 1)

    def _plan_lanes(self) -> None:
        for (tail, source, head), lanes in self._ways.items():
            net = tail, source
            (_, at), (_, to_at) = self._end(tail, is_tail=True), self._end(head[0], is_tail=False)
            if len(lanes) == 1:
                self._lanes[lanes[0]].add(net, at, to_at)
            elif lanes:
                self._lanes[lanes[0]].add(net, at, -1)
                self._lanes[lanes[1]].add(net, -1, to_at)
                self._margin.add(net, *lanes)
        self._lane_h: list[float] = []
        for at, lane in enumerate(self._lanes):
            count = lane.settle()
            is_edge = at in (0, len(self._lanes) - 1)
            self._lane_h.append((count + 1) * TRACK if count else 6 if is_edge else LANE)

    def _row_tops(self) -> list[float]:
        tops, y = [], 0.0
        for row, height in enumerate(self._line_h):
            y += self._lane_h[row]
            tops.append(y)
            y += height
        return [*tops, y]

    def _heights(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for row, line in enumerate(self._lines):
            for column in line:
                y = self._tops[row] + (self._line_h[row] - _stack_height(column, self._parts)) // 2
                for key in column:
                    found[key] = y
                    y += self._parts[key].h + ROW_GAP
        return found

    def _pins(self) -> tuple[dict[str, float], dict[str, float]]:
        first, last = self._lines[0], self._lines[-1]
        ins, outs = _Pins(self._tops[0] + self._line_h[0]), _Pins(self._tops[-1])
        end = len(self._lines) - 1, len(last) - 1
        for net in self._nets:
            if net.tail == "":
                near = next((head for head in net.heads if self._spot.get(head[0]) == (0, 0)), None)
                ins.add(net.source, self._in_port(near) if near else self._middle(first))
            for port in (port for key, port in net.heads if not key):
                at_end = self._spot.get(net.tail) == end
                outs.add(port, self._out_port(net.tail, net.source) if at_end else self._middle(last))
        for port in self._idle:
            outs.add(port, self._middle(last))
        return ins.heights, outs.heights

    def _middle(self, line: Sequence[Sequence[str]]) -> float:
        column = line[0]
        return (self._y_of[column[0]] + self._y_of[column[-1]] + self._parts[column[-1]].h) / 2

    def _in_port(self, head: End) -> float:
        key, port = head
        part = self._parts[key]
        return self._y_of[key] + part.ins.get(port, part.h / 2)

    def _out_port(self, key: str, source: str) -> float:
        part = self._parts[key]
        return self._y_of[key] + part.outs.get(source, part.h / 2)

    def _plan_channels(self) -> None:
        self._ends: dict[Way, tuple[float, float]] = {}
        for way, lanes in self._ways.items():
            tail, source, head = way
            net = tail, source
            (row, at), (to_row, to_at) = self._end(tail, is_tail=True), self._end(head[0], is_tail=False)
            start = self._out_port(tail, source) if tail else self._ins[source]
            end = self._in_port(head) if head[0] else self._outs[head[1]]
            self._ends[way] = start, end
            if not lanes:
                if start != end:
                    self._channels[row][at].add(net, start, end)
                continue
            self._channels[row][at].add(net, start, self._lane_y(lanes[0], net))
            self._channels[to_row][to_at].add(net, self._lane_y(lanes[-1], net), end)

    def _lane_y(self, lane: int, net: tuple[str, str]) -> float:
        above = self._tops[lane] - self._lane_h[lane] if lane < len(self._lines) else self._tops[-1]
        return above + TRACK * (self._lanes[lane].places[net] + 1)

    def _columns_x(self) -> None:
        """Compute the left edges of columns and channels, and the total width."""
        margin = self._margin.settle()
        margin_w = (margin + 1) * TRACK if margin else 0.0
        self._lefts: list[list[float]] = [[] for _ in self._lines]
        self._channel_x: list[list[float]] = [[] for _ in self._lines]
        self._channel_w: list[list[float]] = [[] for _ in self._lines]
        self._width = 0.0
        for row, line in enumerate(self._lines):
            x = margin_w
            for at in range(len(line) + 1):
                count = self._channels[row][at].settle()
                is_edge = at in (0, len(line))
                least = (6 if not count else 2 * TRACK) if is_edge else CHANNEL
                room = max(least, (count + 2) * TRACK)
                self._channel_x[row].append(x)
                self._channel_w[row].append(room)
                x += room
                if at < len(line):
                    self._lefts[row].append(x)
                    x += max(self._parts[key].w for key in line[at])
            self._width = max(self._width, x)

    def _track_x(self, row: int, at: int, net: tuple[str, str]) -> float:
        tracks = self._channels[row][at]
        spare = self._channel_w[row][at] - TRACK * (tracks.count - 1)
        return self._channel_x[row][at] + spare / 2 + TRACK * tracks.places[net]

    def _route(self, way: Way, lanes: tuple[int, ...]) -> tuple[Point, ...]:
        tail, source, head = way
        net = tail, source
        start_y, end_y = self._ends[way]
        start = (self._corners[tail][0] + self._parts[tail].w if tail else 0.0, start_y)
        end = (self._corners[head[0]][0] if head[0] else self._width, end_y)
        (row, at), (to_row, to_at) = self._end(tail, is_tail=True), self._end(head[0], is_tail=False)
        if not lanes and start_y == end_y:
            return (start, end)
        x0 = self._track_x(row, at, net)
        if not lanes:
            return (start, (x0, start_y), (x0, end_y), end)
        x1 = self._track_x(to_row, to_at, net)
        first, last = self._lane_y(lanes[0], net), self._lane_y(lanes[-1], net)
        if len(lanes) == 1:
            return (start, (x0, start_y), (x0, first), (x1, first), (x1, end_y), end)
        xm = TRACK * (self._margin.places[net] + 1)
        return (start, (x0, start_y), (x0, first), (xm, first), (xm, last), (x1, last), (x1, end_y), end)


def _columns(parts: Mapping[str, Part], nets: Sequence[Net]) -> list[list[str]]:
    """Return the columns of boxes: a box is right of its producers, or without any, left of its first consumer."""
    place = {key: at for at, key in enumerate(parts)}
    before: dict[str, set[str]] = {key: set() for key in parts}
    after: dict[str, set[str]] = {key: set() for key in parts}
    for net in nets:
        for head, _ in net.heads:
            if net.tail and head and place[net.tail] < place[head]:
                before[head].add(net.tail)
                after[net.tail].add(head)
    rank: dict[str, int] = {}
    entered = {head for net in nets if not net.tail for head, _ in net.heads}
    for key in parts:
        rank[key] = max((rank[one] + 1 for one in before[key]), default=0)
    last = max(rank.values(), default=0)
    for key in reversed(list(parts)):
        if not before[key] and key not in entered and not (parts[key].is_input and not after[key]):
            rank[key] = max(0, min((rank[one] - 1 for one in after[key]), default=last))
    alone = [key for key in parts if not before[key] and not after[key] and key not in entered]
    loose = [key for key in alone if not parts[key].is_input]
    if len(loose) > _FEW_LOOSE:  # unconnected parts are placed in reading order
        rank |= {key: last + at for at, key in enumerate(loose, 1)}
        last += len(loose)
    columns: list[list[str]] = [[] for _ in range(last + 1)]
    height: dict[str, float] = {}
    for key in sorted(parts, key=lambda key: (rank[key], place[key])):
        columns[rank[key]].append(key)
    for column in columns:
        goal = {
            key: sum(height[one] for one in before[key]) / len(before[key]) if before[key] else float("inf")
            for key in column
        }
        column.sort(key=lambda key: (parts[key].is_input, goal[key], place[key]))
        for at, key in enumerate(column):
            height[key] = float(at)
    return [column for column in columns if column]


def _wrapped(columns: list[list[str]], parts: Mapping[str, Part]) -> list[list[list[str]]]:
    """Divide the columns into rows as wide as the screen. Rows that are too high for it get its proportions."""
    widths = [max(parts[key].w for key in column) + CHANNEL for column in columns]
    heights = [_stack_height(column, parts) for column in columns]

    def cut(limit: float) -> tuple[float, float, list[list[list[str]]]]:
        """Return the total width, the total height and the rows, if no row is wider than `limit`."""
        lines: list[list[list[str]]] = []
        sizes: list[tuple[float, float]] = []
        for column, width, height in zip(columns, widths, heights, strict=True):
            if not lines or sizes[-1][0] + width > limit:
                lines.append([])
                sizes.append((0.0, 0.0))
            lines[-1].append(column)
            sizes[-1] = sizes[-1][0] + width, max(sizes[-1][1], height)
        return max(width for width, _ in sizes), sum(height + LANE for _, height in sizes), lines

    limits = sorted({*accumulate(widths), max(widths)})
    at = bisect_right(limits, SCREEN[0])
    if at:
        _, high, lines = cut(limits[at - 1])
        if high <= SCREEN[1]:
            return lines

    def ratio(limit: float) -> float:
        whole, high, _ = cut(limit)
        return whole / high * SCREEN[1] / SCREEN[0]

    # `ratio` grows with the limit, and the best limit has a ratio near 1.
    at = bisect_left(limits, 1.0, key=ratio)
    best = min(limits[max(0, at - 1) : at + 1], key=lambda limit: max(ratio(limit), 1 / ratio(limit)))
    return cut(best)[2]


def _line_height(line: Sequence[Sequence[str]], parts: Mapping[str, Part]) -> float:
    return max(_stack_height(column, parts) for column in line)


def _stack_height(column: Sequence[str], parts: Mapping[str, Part]) -> float:
    return sum(parts[key].h for key in column) + ROW_GAP * (len(column) - 1)
