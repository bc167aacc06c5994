"""Place the boxes of one level of a graph in ranks from top to bottom, and route curves around them, by Graphviz.

Graphviz receives numbers instead of names, and no text. Every box is a table of empty cells of fixed size, so Graphviz
loads no font. So positions are equal on all machines, and Fontconfig prints no warnings in notebooks.

Graphviz places up to `MOST` boxes in one call. A larger level is cut, in topological order, into bands. Each band is
placed separately and the bands are stacked. A link between bands passes through pins at their borders, so it still
runs around every box.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import graphviz

from mithril_nb.viz.svg import Point

Pin = Literal["", "top", "bottom"]
_Key = tuple[str | int, ...]


@dataclass(frozen=True)
class Box:
    """A box to place: its size, the `x` of its ports along the top and bottom, and the rank it is pinned to."""

    w: float
    h: float
    tops: tuple[float, ...]
    bottoms: tuple[float, ...]
    pin: Pin = ""


@dataclass(frozen=True)
class Link:
    """A link from port `out` at the bottom of box `tail` to port `into` at the top of box `head`, by index."""

    tail: int
    out: int
    head: int
    into: int


@dataclass(frozen=True)
class Placed:
    """Top left corners of the boxes and control points of the links, in the given order, from `(0, 0)`."""

    w: float
    h: float
    corners: tuple[Point, ...]
    curves: tuple[tuple[Point, ...], ...]


RANK_GAP = 38
SIBLING_GAP = 24
MOST = 200
_PIN = Box(8, 2, (4,), (4,))

_TABLE = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0">'
_lock = threading.Lock()  # Graphviz keeps global state


@lru_cache(maxsize=256)
def place(boxes: tuple[Box, ...], links: tuple[Link, ...]) -> Placed:
    """Place boxes in ranks from top to bottom with few crossings, and route the links around them.

    Args:
        boxes: At most about 200; the time grows quickly with their number.
        links: Links between existing boxes. Links that run upwards, as in a cycle, are routed too.

    Returns:
        Positions in px; equal arguments give equal positions in every process.
    """
    if not boxes:
        return Placed(0, 0, (), ())
    found = _run(_dot(boxes, links).source)
    corners: dict[int, Point] = {}
    left, bottom, right, top = (float(part) for part in found["bb"].split(","))
    for item in found.get("objects", ()):
        if not item["name"].startswith("n"):
            continue  # the pinned ranks are listed too, as subgraphs
        at = int(item["name"][1:])
        x, y = (float(part) for part in item["pos"].split(","))
        corners[at] = (round(x - left - boxes[at].w / 2), round(top - y - boxes[at].h / 2))
    curves: list[tuple[Point, ...]] = [()] * len(links)
    for edge in found.get("edges", ()):
        pairs = (pair.split(",") for pair in edge["pos"].split())
        at = int(edge["id"])
        curve = tuple((float(x) - left, top - float(y)) for x, y in pairs)
        link = links[at]
        (tail_x, tail_y), (head_x, head_y) = corners[link.tail], corners[link.head]
        tail, head = boxes[link.tail], boxes[link.head]
        start = (tail_x + tail.bottoms[link.out], tail_y + tail.h)
        curves[at] = snap_ends(curve, start, (head_x + head.tops[link.into], head_y))
    places = tuple(corners[at] for at in range(len(boxes)))
    return Placed(round(right - left), round(top - bottom), places, tuple(curves))


def snap_ends(curve: Sequence[Point], start: Point, end: Point) -> tuple[Point, ...]:
    """Return the curve with its ends moved exactly to `start` and `end`, keeping its directions there.

    Examples:
        >>> snap_ends([(0, 0), (0, 5), (0, 15), (0, 20)], (1, 0), (0, 21))
        ((1, 0), (1, 5), (0, 16), (0, 21))
    """
    points = list(curve)
    for at, near, goal in ((0, 1, start), (-1, -2, end)):
        dx, dy = goal[0] - points[at][0], goal[1] - points[at][1]
        points[near] = (points[near][0] + dx, points[near][1] + dy)
        points[at] = goal
    inner = ((round(x, 1), round(y, 1)) for x, y in points[1:-1])
    return (points[0], *inner, points[-1])


def _dot(boxes: tuple[Box, ...], links: tuple[Link, ...]) -> graphviz.Digraph:
    gaps = {"ranksep": f"{RANK_GAP / 72:.4f}", "nodesep": f"{SIBLING_GAP / 72:.4f}"}
    dot = graphviz.Digraph("g", graph_attr={"rankdir": "TB", **gaps, "splines": "true"})
    dot.attr("node", shape="plain", margin="0", label="")
    dot.attr("edge", dir="none", label="")
    for at, box in enumerate(boxes):
        dot.node(f"n{at}", f"<{_table(box)}>")
    for pin, rank in (("top", "source"), ("bottom", "sink")):
        pinned = graphviz.Digraph(pin, graph_attr={"rank": rank})
        for at, box in enumerate(boxes):
            if box.pin == pin:
                pinned.node(f"n{at}")
        dot.subgraph(pinned)
    for at, link in enumerate(links):
        dot.edge(f"n{link.tail}:o{link.out}:s", f"n{link.head}:i{link.into}:n", id=str(at))
    return dot


def _table(box: Box) -> str:
    """Return a box as two rows of empty cells that fill it exactly, with each port's cell centred on the port."""
    upper = round(box.h) // 2
    rows = (_row("i", box.tops, box.w, upper), _row("o", box.bottoms, box.w, round(box.h) - upper))
    return _TABLE + "".join(f"<TR><TD>{_TABLE}<TR>{row}</TR></TABLE></TD></TR>" for row in rows) + "</TABLE>"


def _row(letter: str, ports: tuple[float, ...], width: float, height: int) -> str:
    cells: list[str] = []
    done = 0

    def fill(until: int, name: str = "") -> None:
        nonlocal done
        if until > done:
            port = f' PORT="{name}"' if name else ""
            cells.append(f'<TD{port} WIDTH="{until - done}" HEIGHT="{height}"></TD>')
            done = until

    for index, x in enumerate(ports):
        end = width if index + 1 == len(ports) else (x + ports[index + 1]) / 2
        reach = max(1.0, min(x - done, end - x))
        fill(round(x - reach))
        fill(round(x + reach), f"{letter}{index}")
    fill(round(width))
    return "".join(cells)


def _run(dot: str) -> dict:
    import pygraphviz  # takes 0.3 s, so imported only when a picture is drawn

    with _lock:
        graph = pygraphviz.AGraph(string=dot)
        try:
            return json.loads(str(graph.draw(format="json0", prog="dot"), "utf-8"))  # pyright: ignore[reportArgumentType]
        finally:
            graph.close()


def arrange(boxes: Sequence[Box], links: Sequence[Link], most: int = MOST) -> Placed:
    """Place boxes and route links like `place`, for any number of boxes.

    Args:
        boxes: The boxes; boxes pinned to the top go into the first band, boxes pinned to the bottom into the last.
        links: The links between them.
        most: Largest number of boxes in one Graphviz call.

    Returns:
        The places, in px from `(0, 0)`.
    """
    if len(boxes) <= most:
        return place(tuple(boxes), tuple(links))
    bands = _bands(boxes, links, most)
    band_of = {at: number for number, band in enumerate(bands) for at in band}
    routes = [_route(at, link, band_of) for at, link in enumerate(links)]
    placed: list[Placed] = []
    inner: list[dict[_Key, int]] = []  # key of a piece of a link in a band -> its index
    for number, band in enumerate(bands):
        mine = [boxes[at] for at in band]
        where = {at: index for index, at in enumerate(band)}
        pins: dict[tuple[Pin, int, int], int] = {}  # (side, tail, out) -> index of the pin
        wires: dict[_Key, Link] = {}
        for link, route in zip(links, routes, strict=True):
            key = route.get(number)
            if key is None or key in wires:
                continue
            tail, head = (where.get(link.tail), link.out), (where.get(link.head), link.into)
            if key[0] in ("into", "through"):
                tail = (_pin_of(link, "top", mine, pins), 0)
            if key[0] in ("out", "through"):
                head = (_pin_of(link, "bottom", mine, pins), 0)
            wires[key] = Link(*tail, *head)  # pyright: ignore[reportArgumentType]  # an end without a pin is in the band
        placed.append(place(tuple(mine), tuple(wires.values())))
        inner.append({key: at for at, key in enumerate(wires)})
    return _stacked(bands, placed, routes, inner)


def _route(at: int, link: Link, band_of: Mapping[int, int]) -> dict[int, _Key]:
    """Return the bands that a link passes, from tail to head, with the key of its piece in each.

    Links with the same source share the pieces that leave its band and pass others.
    """
    first, last = band_of[link.tail], band_of[link.head]
    if first == last:
        return {first: ("link", at)}
    step = 1 if first < last else -1
    through = {number: ("through", link.tail, link.out) for number in range(first + step, last, step)}
    return {first: ("out", link.tail, link.out), **through, last: ("into", at)}


def _pin_of(link: Link, side: Pin, mine: list[Box], pins: dict[tuple[Pin, int, int], int]) -> int:
    """Return the index of the pin of a link's source at the border of a band; add it if it is missing."""
    key = (side, link.tail, link.out)
    if key not in pins:
        pins[key] = len(mine)
        mine.append(replace(_PIN, pin=side))
    return pins[key]


def _stacked(
    bands: Sequence[Sequence[int]],
    placed: Sequence[Placed],
    routes: Sequence[Mapping[int, _Key]],
    inner: Sequence[Mapping[_Key, int]],
) -> Placed:
    width = max(part.w for part in placed)
    offsets: list[Point] = []
    y = 0.0
    for part in placed:
        offsets.append((round((width - part.w) / 2), y))
        y += part.h + RANK_GAP
    corners: dict[int, Point] = {}
    for (x0, y0), band, part in zip(offsets, bands, placed, strict=True):
        corners |= {at: (x0 + x, y0 + y) for at, (x, y) in zip(band, part.corners, strict=False)}
    curves: list[tuple[Point, ...]] = []
    for route in routes:
        points: list[Point] = []
        for number, key in route.items():
            x0, y0 = offsets[number]
            piece = [(x + x0, y + y0) for x, y in placed[number].curves[inner[number][key]]]
            points = join_curves(points, piece) if points else piece
        curves.append(tuple(points))
    return Placed(width, y - RANK_GAP, tuple(corners[at] for at in range(len(corners))), tuple(curves))


def join_curves(one: list[Point], other: list[Point]) -> list[Point]:
    """Join two curves, with a smooth piece between them if they do not meet.

    Examples:
        >>> join_curves([(0, 0), (0, 1), (0, 2), (0, 3)], [(0, 3), (0, 4), (0, 5), (0, 6)])
        [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6)]
    """
    if one[-1] == other[0]:
        return [*one, *other[1:]]
    return [*one, *curve(one[-1], other[0])[1:], *other[1:]]


def curve(start: Point, end: Point) -> tuple[Point, Point, Point, Point]:
    """Return a curve that leaves `start` downwards and reaches `end` from above.

    Examples:
        >>> curve((0, 0), (50, 60))
        ((0, 0), (0, 30.0), (50, 30.0), (50, 60))
    """
    reach = abs(end[1] - start[1]) / 2 if end[1] >= start[1] else max(40.0, (start[1] - end[1]) / 4)
    return (start, (start[0], round(start[1] + reach, 1)), (end[0], round(end[1] - reach, 1)), end)


def _bands(boxes: Sequence[Box], links: Sequence[Link], most: int) -> list[list[int]]:
    """Return the boxes in topological order (ties in the given order), cut into bands of at most `most`."""
    waiting = [0] * len(boxes)
    after: list[list[int]] = [[] for _ in boxes]
    for link in links:
        waiting[link.head] += 1
        after[link.tail].append(link.head)
    order: list[int] = []
    seen: set[int] = set()
    # A stack keeps chains together. In a cycle no box is free, so the next box in the given order is taken.
    for start in sorted(range(len(boxes)), key=lambda at: (boxes[at].pin != "top", waiting[at] > 0, at)):
        stack = [start]
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            order.append(at)
            for following in reversed(after[at]):
                waiting[following] -= 1
                if waiting[following] == 0:
                    stack.append(following)
    order.sort(key=lambda at: {"top": 0, "": 1, "bottom": 2}[boxes[at].pin])
    return [order[at : at + most] for at in range(0, len(order), most)]
