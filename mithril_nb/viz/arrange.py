"""Place the boxes of one level of a graph, for any number of boxes.

Graphviz places up to `MOST` boxes in one call. A larger level is cut, in topological order, into bands. Each band is
placed separately and the bands are stacked. A link between bands passes through pins at their borders, so it still
runs around every box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mithril_nb.viz.engine import RANK_GAP, Box, Link, Pin, Placed, place
from mithril_nb.viz.records import Point

MOST = 200
_PIN = Box(8, 2, (4,), (4,))


def arrange(boxes: Sequence[Box], links: Sequence[Link], most: int = MOST) -> Placed:
    """Place boxes and route links like `engine.place`, for any number of boxes.

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
    placed: list[Placed] = []
    local: list[dict[int, int]] = []  # box -> its index in its band
    inner: list[dict[tuple[object, ...], int]] = []  # key of a link inside a band -> its index
    for number, band in enumerate(bands):
        mine = [boxes[at] for at in band]
        where = {at: index for index, at in enumerate(band)}
        found: dict[tuple[str, int, int], int] = {}  # (side, tail, out) -> index of the pin
        routes: dict[tuple[object, ...], int] = {}
        wires: list[Link] = []

        def pin(
            side: Pin,
            link: Link,
            found: dict[tuple[str, int, int], int] = found,
            mine: list[Box] = mine,
        ) -> int:
            key = (side, link.tail, link.out)
            if key not in found:
                found[key] = len(mine)
                mine.append(replace(_PIN, pin=side))
            return found[key]

        for at, link in enumerate(links):
            first, last = sorted((band_of[link.tail], band_of[link.head]))
            if not first <= number <= last:
                continue
            if first == last:
                key: tuple[object, ...] = ("link", at)
                wire = Link(where[link.tail], link.out, where[link.head], link.into)
            elif number == band_of[link.tail]:
                key = ("out", link.tail, link.out)
                wire = Link(where[link.tail], link.out, pin("bottom", link), 0)
            elif number == band_of[link.head]:
                key = ("into", at)
                wire = Link(pin("top", link), 0, where[link.head], link.into)
            else:
                key = ("through", link.tail, link.out)
                wire = Link(pin("top", link), 0, pin("bottom", link), 0)
            if key not in routes:
                routes[key] = len(wires)
                wires.append(wire)
        placed.append(place(tuple(mine), tuple(wires)))
        local.append(where)
        inner.append(routes)
    return _stacked(boxes, links, band_of, placed, local, inner)


def _stacked(
    boxes: Sequence[Box],
    links: Sequence[Link],
    band_of: dict[int, int],
    placed: list[Placed],
    local: list[dict[int, int]],
    inner: list[dict[tuple[object, ...], int]],
) -> Placed:
    width = max(part.w for part in placed)
    offsets: list[Point] = []
    y = 0.0
    for part in placed:
        offsets.append((round((width - part.w) / 2), y))
        y += part.h + RANK_GAP
    corners: list[Point] = []
    for at in range(len(boxes)):
        number = band_of[at]
        x0, y0 = offsets[number]
        x, y1 = placed[number].corners[local[number][at]]
        corners.append((x + x0, y1 + y0))
    curves: list[tuple[Point, ...]] = []
    for at, link in enumerate(links):
        first, last = band_of[link.tail], band_of[link.head]
        points: list[Point] = []
        step = 1 if first <= last else -1
        for number in range(first, last + step, step):
            if first == last:
                key: tuple[object, ...] = ("link", at)
            elif number == first:
                key = ("out", link.tail, link.out)
            else:
                key = ("into", at) if number == last else ("through", link.tail, link.out)
            x0, y0 = offsets[number]
            piece = [(x + x0, y + y0) for x, y in placed[number].curves[inner[number][key]]]
            points = join_curves(points, piece) if points else piece
        curves.append(tuple(points))
    return Placed(width, y - RANK_GAP, tuple(corners), tuple(curves))


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
