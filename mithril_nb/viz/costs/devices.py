"""The table of devices, in plain text and in HTML."""

from __future__ import annotations

from mithril_nb.display import columns
from mithril_nb.hardware import Devices
from mithril_nb.viz.html_parts import cell, html_table, output_html
from mithril_nb.viz.text import escaped
from mithril_nb.viz.units import nbytes, si

_PEAKS = {"bfloat16": "bf16", "float32": "f32", "float8_e4m3fn": "f8", "int8": "int8"}
_HEADS = ("device", "title", "memory", "bytes/s", *(f"{short} FLOP/s" for short in _PEAKS.values()), "link", "compiler")
_NOTE = "Figures of the manufacturers, of one device, without sparsity; link: to other devices, in one direction."


def devices_text(devices: Devices) -> str:
    """Return the table as plain text."""
    return columns([_HEADS, *_rows(devices)], right=range(2, len(_HEADS) - 1)) + f"\n{_NOTE}"


def devices_html(devices: Devices) -> str:
    """Return the table as one self-contained HTML fragment."""
    rows = ((row[0], cell(row[1], "words"), *row[2:-1], cell(row[-1], "words")) for row in _rows(devices))
    table = html_table(_HEADS, rows, words=1)
    sources = sorted({device.source for device in devices})
    return output_html(f"{table}<p>{escaped(_NOTE)} {escaped('. '.join(sources))}.</p>", "cost")


def _rows(devices: Devices) -> list[tuple[str, ...]]:
    return [
        (
            device.name,
            device.title,
            nbytes(device.memory_bytes),
            si(device.bytes_per_s, "B/s"),
            *(si(device.flops_per_s.get(dtype)) for dtype in _PEAKS),
            si(device.link_bytes_per_s, "B/s"),
            devices.missing.get(device.platform, "ready"),
        )
        for device in devices
    ]
