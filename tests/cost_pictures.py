"""A strict parser for SVGs of costs: position, colour and background of each text; and example costs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from mithril_nb.figures import OF_BLOCKS, OVERVIEW
from mithril_nb.viz.palette import contrast, mix_colours
from mithril_nb.viz.svg import Rect
from mithril_nb.viz.text import text_width

SVG = "{http://www.w3.org/2000/svg}"
TAGS = {"svg", "title", "desc", "style", "rect", "g", "path", "text"}
FIGURES = tuple(key for key in OVERVIEW if key in OF_BLOCKS and key != "predicted_s")


@dataclass(frozen=True)
class Written:
    """A text: its box, its area, and its colour and background in light and dark."""

    text: str
    box: Rect
    inks: tuple[str, str]
    grounds: tuple[str, str]
    turned: bool


@dataclass(frozen=True)
class Drawn:
    """The content of an SVG."""

    root: ElementTree.Element
    width: float
    height: float
    texts: tuple[Written, ...]

    @property
    def tooltips(self) -> list[str]:
        """The tooltips."""
        return [
            found.findtext(f"{SVG}title") or ""
            for found in self.root.iter(f"{SVG}g")
            if found.find(f"{SVG}title") is not None
        ]


def read(svg: str) -> Drawn:
    """Parse an SVG. It must be well-formed, have a title, and neither run nor load anything."""
    root = ElementTree.fromstring(svg)
    assert root.attrib["role"] == "img"
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in TAGS
        assert not any(key.startswith("on") or key.endswith("href") or key == "id" for key in element.attrib)
    style = root.findtext(f"{SVG}style") or ""
    assert "url(" not in style
    assert "@import" not in style
    themes = [
        dict(re.findall(r"--([\w-]+):(#\w{6})", part)) for part in re.findall(r"\.mnb-cost\{([^}]*)\}", style)[:2]
    ]
    assert len(themes) == 2
    assert themes[0].keys() == themes[1].keys()
    rects: list[tuple[Rect, tuple[str, str]]] = []
    texts = tuple(_walk(root, 0, 0, (themes[0], themes[1]), rects))
    return Drawn(root, float(root.attrib["width"]), float(root.attrib["height"]), texts)


def read_scene(svg: str) -> Drawn:
    """Parse the picture of a graph, whose colours are attributes in light themes and CSS rules in dark ones."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in TAGS | {"circle"}
        assert not any(key.startswith("on") or key.endswith("href") or key == "id" for key in element.attrib)
    dark = dict(re.findall(r"\.mnb-diagram \.(\w+)\{fill:(#\w{6})\}", root.findtext(f"{SVG}style") or ""))
    rects: list[tuple[Rect, tuple[str, str]]] = []
    texts: list[Written] = []
    for element in root.iter():
        fill, name = element.get("fill", "none"), (element.get("class") or "").split(" ")[0]
        if fill == "none":
            continue
        colours = (fill.lower(), dark.get(name, fill).lower())
        if element.tag == f"{SVG}rect":
            place = Rect(*(float(element.get(key, "0")) for key in ("x", "y", "width", "height")))
            below = [grounds for rect, grounds in rects if _holds(rect, place.x + place.w / 2, place.y + place.h / 2)]
            share = float(element.get("fill-opacity", "1"))
            grounds = below[-1] if below else colours
            mixed = tuple(mix_colours(one, ground, share) for one, ground in zip(colours, grounds, strict=True))
            rects.append((place, (mixed[0], mixed[1])))
        elif element.tag == f"{SVG}text":
            texts.append(_written(element, 0, 0, colours, rects))
    return Drawn(root, float(root.attrib["width"]), float(root.attrib["height"]), tuple(texts))


def _walk(
    element: ElementTree.Element, dx: float, dy: float, themes: tuple[dict[str, str], dict[str, str]],
    rects: list[tuple[Rect, tuple[str, str]]],
) -> Iterator[Written]:  # fmt: skip
    moved = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", element.get("transform", ""))
    dx, dy = (dx + float(moved[1]), dy + float(moved[2])) if moved else (dx, dy)
    fill = re.search(r"\bf-([\w-]+)", element.get("class", ""))
    if element.tag == f"{SVG}rect" and fill:
        place = Rect(*(float(element.get(key, "0")) for key in ("x", "y", "width", "height")))
        assert element.attrib["fill"] == themes[0][fill[1]]
        rects.append((Rect(place.x + dx, place.y + dy, place.w, place.h), (themes[0][fill[1]], themes[1][fill[1]])))
    if element.tag == f"{SVG}text":
        assert fill
        assert element.attrib["fill"] == themes[0][fill[1]]
        yield _written(element, dx, dy, (themes[0][fill[1]], themes[1][fill[1]]), rects)
    for child in element:
        yield from _walk(child, dx, dy, themes, rects)


def _written(
    element: ElementTree.Element, dx: float, dy: float, inks: tuple[str, str], rects: list[tuple[Rect, tuple[str, str]]]
) -> Written:  # fmt: skip
    text, size = element.text or "", float(element.get("font-size", "11"))
    width = text_width(text, size, bold=element.get("font-weight") == "600")
    x, y = float(element.attrib["x"]) + dx, float(element.attrib["y"]) + dy
    x -= {"middle": width / 2, "end": width}.get(element.get("text-anchor", ""), 0)
    box = Rect(x, y - 0.78 * size, width, size)
    below = [grounds for rect, grounds in rects if _holds(rect, x + width / 2, y - size * 0.35)]
    assert below, f"{text!r} is outside of the sheet"
    return Written(text, box, inks, below[-1], "rotate" in element.get("transform", ""))


def _holds(rect: Rect, x: float, y: float) -> bool:
    return rect.x <= x <= rect.x + rect.w and rect.y <= y <= rect.y + rect.h


def check(svg: str) -> Drawn:
    """Parse an SVG in which every text must be readable, inside the sheet, and clear of other texts."""
    drawn = read_scene(svg) if 'class="mnb-diagram"' in svg else read(svg)
    for one in drawn.texts:
        for ink, ground in zip(one.inks, one.grounds, strict=True):
            assert contrast(ink, ground) >= 4.5, f"{one.text!r}: {ink} on {ground}"
        if not one.turned:
            assert one.box.x >= -0.5, one.text
            assert one.box.x + one.box.w <= drawn.width + 0.5, one.text
        assert one.box.y >= -0.5, one.text
        assert one.box.y + one.box.h <= drawn.height + 0.5, one.text
    level = [one for one in drawn.texts if not one.turned]
    for at, one in enumerate(level):
        for other in level[at + 1 :]:
            w = min(one.box.x + one.box.w, other.box.x + other.box.w) - max(one.box.x, other.box.x)
            h = min(one.box.y + one.box.h, other.box.y + other.box.h) - max(one.box.y, other.box.y)
            assert w <= 1 or h <= 1.5, f"{one.text!r} is over {other.text!r}"
    return drawn


def costs(blocks: Mapping[str, Any], lost: Any = 0, notes: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """Return costs as data, from one number per block for all fields, or one number per field."""

    def figures(given: Any) -> dict[str, Any]:
        return dict(given) if isinstance(given, Mapping) else dict.fromkeys(FIGURES, given)

    by_block = {path: figures(value) for path, value in blocks.items()}
    rest = figures(lost)

    def total(field: str) -> Any:
        known = [one[field] for one in (*by_block.values(), rest) if one.get(field) is not None]
        return sum(known) if known else None

    whole = {field: total(field) for field in FIGURES}
    return {
        "program": "train step", "source": "analytic", "by_block": by_block, "unattributed": rest, "total": whole,
        "by_role": {}, "notes": list(notes), **more,
    }  # fmt: skip


def gpt(layers: int = 12, spread: int = 0) -> dict[str, Any]:
    """Return costs like those of GPT-2 small; with `spread`, each block has a different cost."""
    parts = {
        "norm_1": (4_344_832, 38_834_288), "attention/qkv": (2_742_119_424, 307_095_640),
        "attention/split": (0, 18_874_368), "attention/attention": (307_514_368, 77_217_812),
        "attention/merge": (0, 3_145_728), "attention/out": (914_039_808, 103_938_136), "sum_1": (196_608, 2_359_296),
        "norm_2": (4_344_832, 38_834_288), "mlp/up": (3_656_159_232, 408_674_392),
        "mlp/gelu_0": (17_301_504, 169_869_348), "mlp/down": (3_654_951_936, 401_209_432),
        "sum_2": (196_608, 2_359_296),
    }  # fmt: skip

    def of(flops: int, size: int, at: int = 0) -> dict[str, Any]:
        more = spread * at
        return {
            "flops": flops and flops + more,
            "bytes_accessed": size,
            "transcendentals": 0,
            "params": 8,
            "time_s": None,
        }

    blocks = {"tokens": of(540_758_016, 6_179_523_128), "positions": of(10_518_528, 125_042_736)}
    for layer in range(layers):
        blocks |= {f"block_{layer}/{name}": of(*numbers, layer) for name, numbers in parts.items()}
    blocks |= {
        "norm": of(4_151_296, 36_000_000),
        "head": of(59_288_332_288, 620_000_000),
        "(loss)": of(64_334_342, 7e8),
    }
    return costs(blocks, dict.fromkeys(FIGURES, 0), ("time_s: not measured, because nothing ran",))


# Unusual names for blocks, settings and programs.
HOSTILE = (
    "<script>alert('x')</script>", '"&\'<>', "a\x00b\x1b[31m", "\u202eevil", "many words " * 20, "%2F", "(loss)",
    "名前" * 20, "a\nb\tc", "]]>", "--x:#000000}</style>", "\ud800",
)  # fmt: skip
