"""A mesh of devices: which slice of each array a device holds, and the collectives, as text and HTML."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.viz.html_parts import Markup, cell, html_table, output_html, paragraphs
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import UNKNOWN, nbytes, percent, seconds

if TYPE_CHECKING:
    from mithril_nb.cost.mesh import Exchange, MeshUse, Sliced

_MOST_ARRAYS = 200
_MOST_CELLS = 4096  # of all pictures together: an output of a cell should stay below a MB
# Above this number of devices, the cells of a picture have no room for the slices.
_MOST_NAMED = 64
_HEADS = ("collective", "along", "blocks", "role", "payload", "sent", "predicted", "because")


def mesh_text(use: MeshUse) -> str:
    """Return arrays and collectives as plain text."""
    arrays = [("array", "shape", "split", "on one device"), *map(_array_row, use.arrays[:_MOST_ARRAYS])]
    parts = [_title(use), columns(arrays, right={3})]
    if len(use.arrays) > _MOST_ARRAYS:
        parts.append(f"and {len(use.arrays) - _MOST_ARRAYS:,} more arrays")
    rows = [_HEADS, *map(_exchange_row, use.collectives)]
    parts.append(columns(rows, right={4, 5, 6}) if use.collectives else "no collectives")
    return "\n\n".join((*parts, *use.notes))


def mesh_html(use: MeshUse) -> str:
    """Return a picture of the mesh for each kind of array, and a table of the collectives, as one HTML fragment."""
    # Equal layers have equal slices. The arrays that are split come first: of the others, each device holds the whole.
    groups: dict[Any, list[Sliced]] = {}
    for array in sorted(use.arrays, key=lambda array: array.counts is None or prod(array.counts) == 1):
        groups.setdefault((array.shape, array.dtype, array.slices), []).append(array)
    most = max(1, _MOST_CELLS // len(use.coordinates))
    # The browser closes the other pictures with the same name; those of another output have another name.
    key = sha256(mesh_text(use).encode()).hexdigest()[:8]
    pictures = ""
    for at, arrays in enumerate([*groups.values()][:most]):
        names = ", ".join(one_line(array.name) for array in arrays[:4])
        names += f" and {len(arrays) - 4:,} more" if len(arrays) > 4 else ""
        about = escaped(", ".join(_array_row(arrays[0])[1:]))
        pictures += (
            f'<details name="mnb-mesh-{key}"{"" if at else " open"}><summary><b>{escaped(names)}</b> '
            f'<span class="quiet">{about}</span></summary>{_picture(use, arrays[0])}</details>'
        )
    more = len(groups) - most
    pictures += f"<p>and {more:,} other kinds of arrays</p>" if more > 0 else ""
    rows = (
        (row[0], *(cell(text, "words") if at in (0, 1, 2, 6) else cell(text) for at, text in enumerate(row[1:])))
        for row in map(_exchange_row, use.collectives)
    )
    table = html_table(_HEADS, rows, words=7) if use.collectives else "<p>no collectives</p>"
    body = f"<p><b>{escaped(_title(use))}</b></p>{pictures}{table}{paragraphs(use.notes)}"
    return output_html(body, "cost", "mesh")


def _title(use: MeshUse) -> str:
    axes = " × ".join(f"{one_line(name)} {size}" for name, size in use.axes.items())
    return f"{one_line(use.program)} on {use.device}: {axes}"


def _array_row(array: Sliced) -> tuple[str, str, str, str]:
    shape = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    return one_line(array.name), shape, _split_text(array), nbytes(array.bytes)


def _split_text(array: Sliced) -> str:
    if array.counts is None:
        return UNKNOWN
    if prod(array.counts) == 1:
        return "whole on each device"
    parts = []
    for dim, count in enumerate(array.counts):
        if count > 1:
            names = "unknown axes" if array.axes is None else " and ".join(map(one_line, array.axes[dim]))
            parts.append(f"dimension {dim} in {count} along {names}")
    return ", ".join(parts)


def _exchange_row(exchange: Exchange) -> tuple[str, ...]:
    along = UNKNOWN if exchange.axes is None else ", ".join(map(one_line, exchange.axes))
    shares = sorted(exchange.blocks, key=lambda pair: -pair[1])
    blocks = ", ".join(
        one_line(path) if len(shares) == 1 else f"{one_line(path)} {percent(share)}" for path, share in shares[:4]
    )
    blocks += f" and {len(shares) - 4} more" if len(shares) > 4 else ""
    sizes = nbytes(exchange.payload_bytes), nbytes(exchange.wire_bytes), seconds(exchange.predicted_s)
    role = exchange.role or ""
    return exchange.opcode, along, blocks or UNATTRIBUTED_LABEL, role, *sizes, one_line(exchange.reason)


def _picture(use: MeshUse, array: Sliced) -> str:
    """Return the mesh as a table: the last axis in columns, the others in rows."""
    names, sizes = [*use.axes], [*use.axes.values()]
    devices = {position: device for device, position in enumerate(use.coordinates)}
    width = sizes[-1]

    def row(above: tuple[int, ...]) -> Iterator[str]:
        yield ", ".join(f"{one_line(name)} {index}" for name, index in zip(names, above, strict=False)) or " "
        for column in range(width):
            device = devices[(*above, column)]
            slice_text = _slice_text(array, device)
            text = slice_text if len(devices) <= _MOST_NAMED else _number(array, device)
            yield Markup(
                f'<td title="{escaped(f"device {device}: {slice_text}")}"><i class="{_colour(array, device)}"></i>'
                f"{escaped(f'{device}: {text}')}</td>"
            )

    heads = ("", *(f"{one_line(names[-1])} {column}" for column in range(width)))
    above = [tuple(map(int, position)) for position in np.ndindex(*sizes[:-1])]
    return html_table(heads, map(row, above), style="cost mesh")


def _slice_text(array: Sliced, device: int) -> str:
    ranges = array.range_of(device)
    if ranges is None or array.counts is None:
        return UNKNOWN
    split = [":" if count == 1 else f"{start}:{end}" for (start, end), count in zip(ranges, array.counts, strict=True)]
    return f"[{', '.join(split)}]"


def _number(array: Sliced, device: int) -> str:
    if array.slices is None or array.counts is None:
        return UNKNOWN
    return f"slice {int(np.ravel_multi_index(array.slices[device], array.counts)) if array.counts else 0}"


def _colour(array: Sliced, device: int) -> str:
    # With more slices than colours, different slices would look equal.
    if array.slices is None or array.counts is None or prod(array.counts) > HUES:
        return "hx"
    return f"h{int(np.ravel_multi_index(array.slices[device], array.counts)) if array.counts else 0}"
