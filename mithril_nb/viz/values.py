"""Pictures and statistics of the values inside a model: images, heat maps, histograms and numbers."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np

from mithril_nb.display import columns
from mithril_nb.errors import Diagnostic
from mithril_nb.viz.html_parts import Markup, html_table, output_html, problems_html
from mithril_nb.viz.svg import element, root_opening
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import percent

HEADS = ("mean", "std", "min", "max", "zeros", "NaN", "inf")
_MOST_BARS, _BINS = 32, 24
_MOST_TILES, _MOST_PIXELS = 16, 64
# From the smallest to the largest value. Without negative values, only the upper half is used.
_COLD, _MIDDLE, _HOT = (33, 102, 172), (247, 247, 247), (178, 24, 43)
_NOT_FINITE = (255, 0, 220)
_BAR = "#4a8fc7"  # visible on both themes
_LEVELS = 127


def value_picture(value: Any, width: float = 160, height: float = 96) -> tuple[str, str]:
    """Return a picture of an array as SVG, and a text that describes it.

    A scalar is drawn as a number, a vector as bars, or as a histogram if it is long, a matrix as a heat map, and an
    array with more dimensions as heat maps side by side, such as the channels of an image. Of leading dimensions, such
    as a batch, the first element is drawn. Pixels that are NaN or infinite are magenta.

    Args:
        value: An array of numbers or booleans.
        width: Width in px.
        height: Height in px.

    Examples:
        >>> value_picture(np.arange(6.0).reshape(2, 3))[1]
        'heat map from 0 to 5'
        >>> value_picture(np.zeros((2, 3, 8, 8)))[1]
        '3 heat maps from 0 to 0, of the first of 2'
    """
    array = np.asarray(value)
    array = np.abs(array) if array.dtype.kind == "c" else array
    numbers = array.astype(np.float64)
    # A batch of 1 needs no dimension.
    while numbers.ndim > 1 and len(numbers) == 1:
        numbers = numbers[0]
    first = ""
    if numbers.ndim > 3:
        first = f", of the first of {int(np.prod(numbers.shape[:-3]))}"
        numbers = numbers.reshape(-1, *numbers.shape[-3:])[:1].reshape(numbers.shape[-3:]) if numbers.size else numbers
    if not numbers.size:
        return _svg(width, height, [], "no elements"), "no elements"
    finite = numbers[np.isfinite(numbers)]
    ends = f"from {finite.min():.4g} to {finite.max():.4g}" if finite.size else "without finite elements"
    if numbers.ndim == 0:
        text = f"{numbers:.6g}"
        label = element("text", text, x=4, y=height / 2 + 5, font_size=15, fill="currentColor")
        return _svg(width, height, [label], text), text
    if numbers.ndim == 1:
        is_short = len(numbers) <= _MOST_BARS
        heights = numbers if is_short else _histogram(finite)
        about = f"{len(numbers)} bars {ends}" if is_short else f"histogram {ends}"
        return _svg(width, height, _bars(heights, width, height), about), about
    tiles = numbers[None] if numbers.ndim == 2 else numbers
    about = "heat map" if len(tiles) == 1 else f"{len(tiles)} heat maps"
    if len(tiles) > _MOST_TILES:
        about = f"{_MOST_TILES} of {about}"
    return _svg(width, height, _tiles(tiles[:_MOST_TILES], width, height), f"{about} {ends}{first}"), (
        f"{about} {ends}{first}"
    )


def sample_picture(sample: Any, width: float, height: float) -> str:
    """Return an input of one sample as SVG or as text.

    An image with 3 channels, first or last, is drawn in colours: integers from 0 to 255, other numbers from 0 to 1, or
    from the smallest to the largest. A large image is averaged to at most two pixels per px. Of other arrays, floats
    are drawn by `value_picture`, and integers are a text.
    """
    array = np.asarray(sample)
    if array.ndim == 3 and array.shape[-1] in (1, 3) and array.shape[0] not in (1, 3):
        array = np.moveaxis(array, -1, 0)
    if array.ndim == 3 and array.shape[0] == 3 and array.size:
        pixels = np.moveaxis(array, 0, -1).astype(np.float64)
        least, most, top = pixels.min(), pixels.max(), 255 if array.dtype.kind in "iu" else 1
        if least >= 0 and most <= top:
            least, most = 0, top
        tall, wide = pixels.shape[:2]
        factor = min(width / wide, height / tall)
        for axis, drawn in enumerate((tall * factor, wide * factor)):
            pixels = _averaged(pixels, max(int(2 * drawn), 1), axis)  # enough for screens with two pixels per px
        scaled = np.round((pixels - least) / ((most - least) or 1) * 255).astype(np.uint8)
        image = _image(_encoded(scaled, 2), 0, 0, wide * factor, tall * factor)
        return _svg(width, height, [image], f"image of {wide} × {tall} pixels")
    if array.ndim < 2 and (array.dtype.kind in "iub" or array.size < 2):
        return escaped(" ".join(np.array2string(array, threshold=16, precision=4).split()))
    return value_picture(array, width, height)[0]


def _svg(width: float, height: float, parts: list[str], label: str) -> str:
    opening = root_opening("mnb-value", width, height, style="max-width:100%;height:auto")
    return f"{opening}{element('title', label)}{''.join(parts)}</svg>"


def _histogram(finite: Any) -> Any:
    # The range of extreme numbers would overflow.
    scale = float(np.abs(finite).max(initial=0)) or 1.0
    return np.histogram(finite / scale, _BINS)[0]


def _bars(heights: Any, width: float, height: float) -> list[str]:
    finite = np.nan_to_num(heights, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float64)
    scale = float(np.abs(finite).max()) or 1.0
    top, bottom = max(0.0, float((finite / scale).max())), min(0.0, float((finite / scale).min()))
    unit, step = (height - 2) / ((top - bottom) or 1.0), width / len(finite)
    zero = 1 + top * unit
    bars: list[str] = []
    for index, (number, share) in enumerate(zip(heights, finite / scale, strict=True)):
        box: dict[str, float] = {"x": index * step, "width": max(step - 1, 1), "y": zero - max(share, 0) * unit}
        is_finite = bool(np.isfinite(number))
        tall = max(abs(share) * unit, 0.5) if is_finite else height - 2
        fill = _BAR if is_finite else f"rgb{_NOT_FINITE}"
        bars.append(element("rect", fill=fill, height=tall, **{**box, **({} if is_finite else {"y": 1})}))
    return bars


def _tiles(tiles: Any, width: float, height: float) -> list[str]:
    # As many columns as keep the tiles largest.
    rows, cells = tiles.shape[1:]
    ratio = min(max(cells / rows, 0.125), 8.0)
    sizes = [
        (min((width - n + 1) / n, (height / -(-len(tiles) // n) - 1) * ratio), n) for n in range(1, len(tiles) + 1)
    ]
    wide, count = max(sizes)
    finite = np.abs(tiles[np.isfinite(tiles)])
    scale = float(finite.max(initial=0)) or 1.0
    tall = wide / ratio
    return [
        _image(_png(_thinned(tile) / scale), index % count * (wide + 1), index // count * (tall + 1), wide, tall)
        for index, tile in enumerate(tiles)
    ]


def _image(png: str, x: float, y: float, width: float, height: float) -> str:
    return (
        '<image preserveAspectRatio="none" style="image-rendering:pixelated" '
        f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" href="data:image/png;base64,{png}"/>'
    )


def _thinned(tile: Any) -> Any:
    """Return a matrix with at most 64 rows and columns; a cell is the element furthest from 0, and a NaN stays."""
    for axis in (0, 1):
        count = tile.shape[axis]
        if count > _MOST_PIXELS:
            starts = np.unique(np.arange(_MOST_PIXELS) * count // _MOST_PIXELS)
            most, least = np.maximum.reduceat(tile, starts, axis), np.minimum.reduceat(tile, starts, axis)
            tile = np.where(np.abs(most) >= np.abs(least), most, least)
    return tile


def _averaged(pixels: Any, most: int, axis: int) -> Any:
    """Return pixels with at most `most` along an axis; a larger number is averaged over equal parts."""
    count = pixels.shape[axis]
    if count <= most:
        return pixels
    starts = np.arange(most) * count // most
    sizes = np.diff(starts, append=count)
    return np.add.reduceat(pixels, starts, axis) / np.expand_dims(sizes, tuple(range(1, pixels.ndim - axis)))


def _png(shares: Any) -> str:
    """Return a picture of numbers from -1 to 1 as base64."""
    levels = np.arange(-_LEVELS, _LEVELS + 1) / _LEVELS
    ends = np.where(levels[:, None] < 0, _COLD, _HOT)
    colours = np.round(_MIDDLE + (ends - np.array(_MIDDLE)) * np.abs(levels)[:, None]).astype(np.uint8)
    palette = np.vstack([colours, np.array([_NOT_FINITE], np.uint8)])
    is_finite = np.isfinite(shares)
    index = np.where(is_finite, np.round(np.where(is_finite, shares, 0) * _LEVELS) + _LEVELS, len(colours))
    return _encoded(index.astype(np.uint8), 3, (b"PLTE", palette.tobytes()))


def _encoded(pixels: Any, colour_type: int, *chunks: tuple[bytes, bytes]) -> str:
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, colour_type, 0, 0, 0)
    chunks = ((b"IHDR", head), *chunks, (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    data = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()


def statistics_texts(statistics: Mapping[str, Any]) -> tuple[str, ...]:
    """Return statistics, from `Statistics.to_dict`, as texts in the order of `HEADS`."""
    numbers = ("—" if statistics[name] is None else f"{statistics[name]:.4g}" for name in HEADS[:4])
    zeros = "—" if statistics["zeros"] is None else percent(statistics["zeros"])
    return (*numbers, zeros, *(f"{statistics[name]:,}" if statistics[name] else "" for name in ("nan", "inf")))


def _rows(traced: Any, gradients: bool) -> list[tuple[str, ...]]:
    statistics = traced.gradient_statistics if gradients else traced.statistics
    return [
        (one_line(name), " × ".join(map(str, row.shape)) or "scalar", *statistics_texts(row.to_dict()))
        for name, row in statistics.items()
    ]


def _tables(traced: Any) -> list[tuple[str, Mapping[str, Any], list[tuple[str, ...]]]]:
    tables = [("values", traced.values, _rows(traced, False))]
    return [*tables, ("gradients", traced.gradients, _rows(traced, True))] if traced.gradients else tables


def _problems(traced: Any) -> list[Diagnostic]:
    return [problem for problem in (traced.first_bad, traced.first_bad_gradient) if problem is not None]


def values_text(traced: Any) -> str:
    """Return the statistics of traced values, and their first NaN or infinity, as plain text."""
    heads = ("shape", *HEADS)
    right = set(range(2, 2 + len(HEADS)))
    tables = [columns([(title, *heads), *rows], right=right) for title, _, rows in _tables(traced)]
    return "\n\n".join([*map(str, _problems(traced)), *tables])


def values_html(traced: Any) -> str:
    """Return traced values as one self-contained HTML fragment: a table with a picture of each value."""
    body = problems_html(_problems(traced))
    for title, values, rows in _tables(traced):
        numeric = traced.gradient_statistics if title == "gradients" else traced.statistics
        pictures = (value_picture(values[name], 96, 48)[0] for name in numeric)
        cells = (
            (name, shape, Markup(f"<td>{picture}</td>"), *numbers)
            for (name, shape, *numbers), picture in zip(rows, pictures, strict=True)
        )
        body += html_table(("block", "shape", title, *HEADS), cells, caption=title)
    return output_html(body, "problems", "cost")
