"""Checks of a drawn picture: every wire is connected, and no text is covered or cut off."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from math import dist
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, fromstring

from mithril_nb.graph.records import LogicalGraph
from mithril_nb.viz.diagrams.layout import layout
from mithril_nb.viz.diagrams.logical import model_graph
from mithril_nb.viz.diagrams.nested import Scene
from mithril_nb.viz.svg import Point, Rect
from mithril_nb.viz.text import text_width

# Distance in px between the end of a wire and what it touches: the length of an arrow's gap.
_NEAR = 3.0


def model_layout(
    graph: LogicalGraph, expanded: Collection[str] = (), moved: Mapping[str, Point] | None = None, **facts: Any
) -> Scene:
    """Lay out a model; `facts` are arguments of `model_graph`, such as specs."""
    return layout(model_graph(graph, **facts), expanded, moved)


class Text(NamedTuple):
    """A line of text and the rectangle that it covers."""

    text: str
    box: Rect


def texts_of(svg: str) -> Iterator[Text]:
    """Yield the texts of a picture, from the ascent of capitals to the baseline."""
    for one in _elements(fromstring(svg), "text"):
        x, y, size = (float(one.attrib[name]) for name in ("x", "y", "font-size"))
        width = text_width(one.text or "", size, bold="font-weight" in one.attrib)
        left = x - {"middle": width / 2, "end": width}.get(one.attrib.get("text-anchor", ""), 0)
        yield Text(one.text or "", Rect(left, y - 0.75 * size, width, 0.75 * size))


def check_texts(svg: str) -> None:
    """Check that texts are inside the picture and do not overlap."""
    _, _, width, height = map(float, fromstring(svg).attrib["viewBox"].split())
    found = [*texts_of(svg)]
    for text, box in found:
        is_inside = box.x >= 0 and box.y >= 0 and box.x + box.w <= width + 0.5 and box.y + box.h <= height
        assert is_inside, f"{text!r} is cut off: {box} in {width} x {height}"
    for (text, box), (other, near) in itertools.combinations(found, 2):
        assert not box.overlaps(near), f"{text!r} covers {other!r}"


def check_boxes(scene: Scene) -> None:
    """Check that boxes do not overlap, and that each is inside its frame, below the title, or inside the picture."""
    frames = {node.key: Rect(node.x, node.y + 24, node.w, node.h - 24) for node in scene.nodes if node.expanded}
    closed = [(node.key, Rect(node.x, node.y, node.w, node.h)) for node in scene.nodes if not node.expanded]
    for (key, box), (other, near) in itertools.combinations(closed, 2):
        assert not box.overlaps(near), (key, other)
    for node in scene.nodes:
        frame = frames.get(node.parent, Rect(0, 0, scene.width, scene.height))
        assert frame.x < node.x < node.x + node.w < frame.right, node.key
        assert frame.y < node.y < node.y + node.h < frame.bottom, node.key


def check_wires(scene: Scene) -> None:
    """Check that each end of each wire touches the border of a box, or at the border of a frame, another wire."""
    boxes = [Rect(node.x, node.y, node.w, node.h) for node in scene.nodes if not node.expanded]
    frames = [Rect(node.x, node.y, node.w, node.h) for node in scene.nodes if node.expanded]
    starts, ends = [edge.points[0] for edge in scene.edges], [edge.points[-1] for edge in scene.edges]
    for edge in scene.edges:
        for end, others in ((edge.points[0], ends), (edge.points[-1], starts)):
            is_passed_on = any(_touches(end, frame) for frame in frames) and any(
                dist(end, one) < _NEAR for one in others
            )
            assert is_passed_on or any(_touches(end, box) for box in boxes), f"{edge.id} ends in empty space at {end}"
        assert all(0 <= x <= scene.width and 0 <= y <= scene.height for x, y in edge.points), edge.id


def _touches(point: Point, box: Rect) -> bool:
    x, y = point
    dx = min(abs(x - box.x), abs(x - box.x - box.w)) if box.y - _NEAR <= y <= box.y + box.h + _NEAR else 1e9
    dy = min(abs(y - box.y), abs(y - box.y - box.h)) if box.x - _NEAR <= x <= box.x + box.w + _NEAR else 1e9
    return min(dx, dy) <= _NEAR


def _elements(root: Element, name: str) -> Iterator[Element]:
    return (one for one in root.iter() if re.sub(r"{.*}", "", one.tag) == name)
