"""The interface to Graphviz: boxes and links in, positions and curves out.

Graphviz receives numbers instead of names, and no text. Every box is a table of empty cells of fixed size, so Graphviz
loads no font. So positions are equal on all machines, and Fontconfig prints no warnings in notebooks.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from mithril_nb.viz.records import Point

Pin = Literal["", "top", "bottom"]


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
    found = _run("\n".join(_dot_lines(boxes, links)))
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


def _dot_lines(boxes: tuple[Box, ...], links: tuple[Link, ...]) -> list[str]:
    lines = [
        "digraph g {",
        f"graph [rankdir=TB ranksep={RANK_GAP / 72:.4f} nodesep={SIBLING_GAP / 72:.4f} splines=true];",
        'node [shape=plain margin=0 label=""]; edge [dir=none label=""];',
    ]
    pinned: dict[str, list[str]] = {"top": [], "bottom": []}
    for at, box in enumerate(boxes):
        lines.append(f"n{at} [label=<{_table(box)}>];")
        if box.pin:
            pinned[box.pin].append(f"n{at};")
    for pin, rank in (("top", "source"), ("bottom", "sink")):
        if pinned[pin]:
            lines.append(f"subgraph {pin} {{ rank={rank}; {' '.join(pinned[pin])} }}")
    for at, link in enumerate(links):
        lines.append(f"n{link.tail}:o{link.out}:s -> n{link.head}:i{link.into}:n [id={at}];")
    return [*lines, "}"]


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
