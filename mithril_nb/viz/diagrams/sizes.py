"""Sizes of nodes and positions of ports, computed from the texts of a node."""

from __future__ import annotations

from collections.abc import Sequence

from mithril_nb.viz.diagrams.scene import ScenePort
from mithril_nb.viz.text.escape import one_line
from mithril_nb.viz.text.width import text_width

NODE_H = 52
PILL_H = 30
HEADER_H = 30
PAD = 16
LEFT = 14  # from the node's edge to its text; includes the strip of the hue
RIGHT = 10
GAP = 12  # between the texts of one row
NAME_SIZE = 13
SMALL_SIZE = 11
NARROWEST, WIDEST = 132, 288
_GRID = 8  # widths are multiples of this, so that a small change of a text moves nothing


def node_width(name: str, kind: str, label: str, shape: str) -> int:
    """Return the width of a block's box: kind and label above, name and shape below.

    Examples:
        >>> node_width("relu_0", "Relu", "", ""), node_width("linear_0", "Linear", "64 → 10", "(32, 10) float32")
        (136, 184)
    """
    upper = text_width(one_line(kind), SMALL_SIZE) + _beside(label)
    lower = text_width(one_line(name), NAME_SIZE, bold=True) + _beside(shape)
    return _stepped(max(upper, lower) + LEFT + RIGHT)


def node_height(ports: int) -> int:
    """Return the height of a block's box with this number of ports on its fuller side.

    Examples:
        >>> node_height(1), node_height(6)
        (52, 84)
    """
    return max(NODE_H, 12 * (ports + 1))


def pill_width(name: str, shape: str) -> int:
    """Return the width of the box of a model's input or output: name and shape in one row.

    Examples:
        >>> pill_width("input", "(32, 784)")
        128
    """
    return _stepped(text_width(one_line(name), NAME_SIZE, bold=True) + _beside(shape) + 2 * LEFT, 72)


def title_width(name: str, kind: str) -> float:
    """Return the width of the title of an expanded group: its name and kind in one row."""
    names = text_width(one_line(name), NAME_SIZE, bold=True) + GAP / 2 + text_width(one_line(kind), SMALL_SIZE)
    return min(names, WIDEST)


def ports_at(names: Sequence[str], x: float, height: float) -> tuple[ScenePort, ...]:
    """Return ports spread evenly along the left side, at `x` 0, or the right side.

    Examples:
        >>> [port.y for port in ports_at(["left", "right"], 0, 54)]
        [18, 36]
    """
    return tuple(ScenePort(name, x, round(height * at / (len(names) + 1))) for at, name in enumerate(names, 1))


def _beside(text: str) -> float:
    return GAP + text_width(one_line(text), SMALL_SIZE) if text else 0.0


def _stepped(width: float, narrowest: int = NARROWEST) -> int:
    least = max(min(width, WIDEST), narrowest)
    return int(-(-least // _GRID) * _GRID)
