"""The table of devices, and the comparison of programs on several devices, in plain text and in HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.figures import FIGURES
from mithril_nb.hardware import Devices
from mithril_nb.viz.costs.fields import FIELDS, at_least
from mithril_nb.viz.html_parts import cell, html_table, link_script, output_html, page_html, paragraphs, write_page
from mithril_nb.viz.pages.listing import hues_seen, key_of, panes_html
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import UNKNOWN, capacity, nbytes, percent, si

if TYPE_CHECKING:
    from mithril_nb.analysis.compare import DeviceComparison

_PEAKS = {"bfloat16": "bf16", "tensorfloat32": "tf32", "float32": "f32", "float8_e4m3fn": "f8", "int8": "int8"}
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
            capacity(device.memory_bytes),
            si(device.bytes_per_s, "B/s"),
            *(si(device.flops_per_s.get(dtype)) for dtype in _PEAKS),
            si(device.link_bytes_per_s, "B/s"),
            devices.missing.get(device.platform, "ready"),
        )
        for device in devices
    ]


# A comparison of devices

_CELL_LINES, _PAGE_LINES = 40, 2000


def _count(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


# Rows that are not figures of a cost.
_OTHERS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "instructions": ("instructions that run", _count),
    "fusions": ("of these, fusions", _count),
    "library_calls": ("library calls", _count),
    "collectives": ("collectives", _count),
    # In the unit of the other tables of devices, and in that of the peak.
    "capacity_bytes": ("memory of the device", lambda size: f"{capacity(size)}, {nbytes(size)}" if size else UNKNOWN),
    "fits": ("fits", lambda fits: UNKNOWN if fits is None else "yes" if fits else "no"),
}
_ROWS = (
    *("instructions", "fusions", "library_calls", "collectives", "flops", "bytes_accessed", "wire_bytes"),
    *("peak_bytes", "capacity_bytes", "fits", "predicted_s", "at_peak"),
)
_MEASURES = 'p.cost("predicted") first measures rates of this machine, in half a minute'
# Left out if no program has any.
_OPTIONAL = ("library_calls", "collectives", "wire_bytes")


def comparison_text(comparison: DeviceComparison) -> str:
    """Return the tables of a comparison as plain text."""
    right = range(1, len(comparison.names) + 1)
    tables = [columns([("", *comparison.names), *_figure_rows(comparison)], right)]
    title, rows = _block_rows(comparison)
    tables.append(columns([(title, *comparison.names), *rows], right))
    return "\n\n".join([*tables, *_notes(comparison)])


def comparison_html(comparison: DeviceComparison) -> str:
    """Return a comparison as the output of a cell."""
    stages = _stages(comparison, "hlo")
    return output_html(_body(comparison, stages, _CELL_LINES) + link_script(), "listing", "summary", "cost",
                       kind="mnb mnb-linked", key=key_of(stages))  # fmt: skip


def comparison_page(comparison: DeviceComparison, path: str | Path | None, stage: str) -> str:
    """Return a comparison as one HTML file, and write it to `path` if given."""
    body = _body(comparison, _stages(comparison, stage), _PAGE_LINES)
    title = f"{comparison.programs[0].name} on {', '.join(comparison.names)}"
    sections = ("listing", "summary", "cost", "page")
    page = page_html(title, "compared by mithril_nb", body, *sections, kind="mnb-linked", scripts=link_script())
    return write_page(page, path)


def _stages(comparison: DeviceComparison, stage: str) -> list[Any]:
    pairs = zip(comparison.programs, comparison.names, strict=True)
    return [replace(program.stage(stage), name=f"{stage}@{name}") for program, name in pairs]


def _body(comparison: DeviceComparison, stages: Sequence[Any], most_lines: int) -> str:
    title, rows = _block_rows(comparison)
    by_device = html_table(("", *comparison.names), _figure_rows(comparison))
    by_block = html_table((title, *comparison.names), rows)
    panes = panes_html(stages, hues_seen(stages), key_of(stages), most_lines, skip_inputs=True)
    return f"{by_device}{by_block}{paragraphs(_notes(comparison))}{panes}"


def _figure_rows(comparison: DeviceComparison) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for key in _ROWS:
        values = [figures[key] for figures in comparison.figures.values()]
        if key in _OPTIONAL and not any(values) and None not in values:
            continue
        if key == "at_peak":
            rows.append(("share of the peak", *map(_share_of_peak, comparison.figures.values())))
        elif key in _OTHERS:
            title, form = _OTHERS[key]
            rows.append((title, *map(form, values)))
        else:
            texts = (_text(key, figures) for figures in comparison.figures.values())
            rows.append((FIELDS[key].title, *texts))
    return rows


def _block_rows(comparison: DeviceComparison) -> tuple[str, list[tuple[str, ...]]]:
    """Return the title of the figure by block, and a row for each block: predicted time if some program has it."""
    is_predicted = any(cost.total.predicted_s is not None for cost in comparison.costs.values())
    key = "predicted_s" if is_predicted else "flops"
    rows = [
        (one_line(path) or UNATTRIBUTED_LABEL, *(_text(key, parts.get(name)) for name in comparison.names))
        for path, parts in comparison.blocks.items()
        if any(part and (part.get(key) != 0 or FIGURES[key].unknown_in(part)) for part in parts.values())
    ]
    return f"{FIELDS[key].title} by block", rows


def _share_of_peak(figures: Mapping[str, Any]) -> str:
    text, bound = percent(figures["at_peak"]), figures["at_peak_bound"]
    return f"{bound} {text.removeprefix('< ')}" if bound else text


def _text(key: str, part: Mapping[str, Any] | None) -> str:
    """Format a figure of a program or block: unknown, a lower bound, or a number. No instruction has a `None` block."""
    if part is None:
        return "none"
    return at_least(FIELDS[key].short(part.get(key)), FIGURES[key].is_bound(part))


def _notes(comparison: DeviceComparison) -> list[str]:
    notes = [f"{name}: {one_line(reason)}" for name, reason in comparison.unavailable.items()]
    if bounds := {figures["at_peak_bound"] for figures in comparison.figures.values()} - {""}:
        approximate = " (≈: their products, too)" if "≈" in bounds else ""
        notes.append(f"share of the peak: without instructions whose time is unknown{approximate}")
    for name, cost in comparison.costs.items():
        if cost.source == "compiled":
            notes.append(f"{name}: predicted time is left out: {_MEASURES}")
        notes += [f"{name}: {note}" for note in cost.notes if "time_s: not measured" not in note]
    notes += [f"{name}: {memory.fits_reason}" for name, memory in comparison.memories.items() if memory.fits is False]
    return notes
