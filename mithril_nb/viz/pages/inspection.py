"""An inspection as the output of a cell, and as one self-contained HTML file.

The output of a cell shows a graph, the first lines of the first stages, and a table of all stages. It does not compile
the program.

The file contains all stages. It is compressed: a program of 200,000 lines is a file of a few MB. A script unpacks the
stages and draws the visible lines only. Without scripts, the file shows the graph, the first lines of each stage, the
names of the passes, and the costs.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from itertools import groupby, takewhile
from operator import ne
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mithril_nb.analysis.compare.devices import device_name
from mithril_nb.display import columns
from mithril_nb.errors import StageUnavailableError, UnknownOptionError, short_repr
from mithril_nb.hardware import Device
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.records import Stage
from mithril_nb.stages.stage_kinds import has_machine_code, language_of, needs_compile, title_of
from mithril_nb.viz.costs.overlays import page_overlays, stage_shares
from mithril_nb.viz.costs.tables.table import page_tables
from mithril_nb.viz.diagrams.layout import layout
from mithril_nb.viz.diagrams.nested import NestedGraph, Scene
from mithril_nb.viz.diagrams.stages import nested_stage, opened_at_first, stage_graph_text
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.html_parts import built, html_table, link_script, main_html, output_html, page_html, write_page
from mithril_nb.viz.pages.listing import (
    blocks_of,
    count_lines,
    equation_data,
    hue_class,
    hues_seen,
    key_of,
    panes_html,
    stage_data,
)
from mithril_nb.viz.pages.packed_text import packed_text
from mithril_nb.viz.text import block_key, escaped, one_line, outer_paths

if TYPE_CHECKING:
    from mithril_nb.cost import Cost, Figures
    from mithril_nb.inspection import Inspection
    from mithril_nb.inspection.tour import MomentData
    from mithril_nb.stages.xla.passes import Pass
# Stages whose lines the output of a cell shows. They do not need the compiler.
SHOWN = ("jaxpr", "stablehlo")
_MOST_LINES = 150


def summary_text(inspection: Inspection) -> str:
    """Return the stages of a program and the graph of its jaxpr as text. The program is not compiled."""
    stages = _first_stages(inspection)
    rows = [("stage", "lines", "instructions", ""), *_rows(inspection, inspection.stages)]
    parts = [f"program {inspection.name!r}", columns(rows, right={1, 2})]
    failed = next((stage.unavailable for stage in stages if stage.unavailable is not None), None)
    if failed is not None:
        parts.append("\n".join(map(one_line, failed.split("\n"))))
    graph = inspection.graph()
    if graph.level():
        parts.append(stage_graph_text(graph, shares=stage_shares(inspection, graph)))
    return "\n\n".join(parts)


def summary_html(inspection: Inspection) -> str:
    """Return the graph, the first stages and a table of all stages as one self-contained HTML fragment."""
    stages = _first_stages(inspection)
    hues, key = hues_seen(stages), key_of(stages)
    panes = panes_html(stages, hues, key, _MOST_LINES, skip_inputs=True)
    _, _, scene = _graph(inspection, hues)
    body = f"{_picture(inspection, scene)}{panes}{_stages_html(inspection, inspection.stages)}{link_script()}"
    plain = "" if scene is None else scene_svg(scene, title=f"graph of {inspection.name}")
    return output_html(body, "listing", "summary", kind="mnb mnb-linked", key=key, picture=plain)


def _first_stages(inspection: Inspection) -> list[Stage]:
    names = SHOWN if inspection.given is None else inspection.given.stages[:1]
    return [inspection.stage(name) for name in names]


def _picture(inspection: Inspection, scene: Scene | None) -> str:
    if scene is None:
        return ""
    return f'<div class="picture">{scene_svg(scene, title=f"graph of {inspection.name}", embedded=True)}</div>'


# The table contains no times, so that saved notebooks do not change when they run again.
def _stages_html(inspection: Inspection, names: Sequence[str]) -> str:
    return html_table(("stage", "lines", "instructions", "note"), _rows(inspection, names), style="made")


def _rows(inspection: Inspection, names: Iterable[str]) -> list[tuple[str, str, str, str]]:
    rows = []
    for name in names:
        figures = "", "", "not computed yet"
        if inspection.has_stage(name):
            stage = inspection.stage(name)
            figures = f"{count_lines(stage.text):,}", f"{len(stage.instructions):,}", ""
            if stage.unavailable is not None:
                figures = "", "", stage.unavailable.partition("\n")[0]
        rows.append((title_of(name), *figures))
    return rows


# Stages that a page shows when it is opened.
FIRST = ("jaxpr", "stablehlo", "hlo")
PLAIN_LINES = 40
_LEVEL = 6  # 9 takes three times as long for 1 % less
_PLAIN = (
    "The first lines of each stage. With JavaScript, this page shows all lines, highlights linked lines, lets you open "
    "blocks of the graph, and shows what each pass changed."
)


def inspection_page(
    inspection: Inspection,
    path: str | Path | None = None,
    stages: Sequence[str] | None = None,
    overlay: str | Mapping[str, Mapping[str, Any]] = "",
    devices: Sequence[Any] = (),
    tour: Sequence[MomentData] = (),
) -> str:
    """Return a program at all stages, and on each device, as one HTML file, and write it to `path` if given."""
    programs = {device_name(program): program for program in (inspection, *map(inspection.on, devices))}
    pages: list[tuple[str, str, str]] = []

    def names_of(program: Inspection) -> tuple[str, ...]:
        return tuple(program.stages if stages is None else stages)

    for program in programs.values():
        missing = {name for moment in tour for name in moment["stages"]}.difference(names_of(program))
        if missing:
            facts = (("page", ", ".join(names_of(program))), ("missing", ", ".join(sorted(missing))))
            raise UnknownOptionError("the tour shows stages that the page does not have.", facts)
    for device, program in programs.items():
        about, body, data = _parts(program, names_of(program), overlay, tour)
        if devices:
            names = (f"<option{' selected' * (other == device)}>{escaped(other)}</option>" for other in programs)
            body = f'<p class="device" hidden><label>device <select>{"".join(names)}</select></label></p>{body}'
        pages.append((about, body, f'<script type="text/plain" id="mnb-data">{data}</script>'))
    (about, body, scripts), *others = pages
    name, kind, sections = inspection.name, "mnb-page", ("listing", "summary", "cost", "page")
    for title, contents, data in others:  # a script shows a template when its device is chosen
        scripts += f"<template>{main_html(name, title, contents, kind)}{data}</template>"
    scripts += f"<script>{built('page.js').rstrip()}</script>"
    return write_page(page_html(name, about, body, *sections, kind=kind, scripts=scripts), path)


@paused_collector()
def _parts(
    inspection: Inspection,
    names: tuple[str, ...],
    overlay: str | Mapping[str, Mapping[str, Any]],
    tour: Sequence[MomentData],
) -> tuple[str, str, str]:
    from mithril_nb import cost

    is_compiled = needs_compile(names)
    if is_compiled:
        # All that needs the compiler is requested before the first read. Otherwise, the program is compiled twice.
        inspection.want(machine_code=has_machine_code(names), passes=True)
        inspection.begin_compiling()
    # XLA releases the GIL: while it compiles, everything that needs no compiler is computed and compressed.
    packed = _Packed()
    first = [*takewhile(lambda name: not needs_compile((name,)), names)] or [*names]
    stages = packed.add_stages(inspection, first)
    # Kernels have the same blocks as the HLO. Reading their thousands of lines would be slow.
    hues = hues_seen([stage for stage in stages if not has_machine_code([stage.name])])
    nested, opened, scene = _graph(inspection, hues, is_linked=False)
    counted: dict[str, dict[str, Any]] = {}
    folds = None
    tables, rows = "", list[str]()
    with suppress(StageUnavailableError):  # the table of stages shows the reason
        analytic = cost.cost_of(inspection)
        folds, counted[analytic.source] = _fold_costs(analytic), analytic.to_dict()
        if inspection.has_stage("hlo_before") and "lowered" not in counted:
            counted["lowered"] = cost.cost_of(inspection, "lowered").to_dict()
    with suppress(StageUnavailableError):
        costs = cost.costs_so_far(inspection, names)
        # Costs that were counted above are not converted again: a table has thousands of rows.
        data = replace(costs, by_source={name: costs[name] for name in costs if name not in counted}).to_dict()
        sources = {name: counted.get(name) or data["sources"][name] for name in costs}
        tables, rows = page_tables({**data, "sources": sources}, hues)
    stages += packed.add_stages(inspection, names[len(first) :])
    passes, why = (), ""
    if is_compiled:
        try:
            passes = inspection.passes
        except StageUnavailableError as error:
            why = str(error)
    graph = None
    if nested is not None:
        own = {} if isinstance(overlay, str) else overlay
        data = next(iter(counted.values()), None)
        overlays = list(page_overlays(inspection, nested.boxes, inspection.graph(), data, own)) if data else []
        # The first overlay is the user's, if there are own values.
        name = overlay if isinstance(overlay, str) else overlays[0]["name"] if overlays else ""
        known = dict.fromkeys(entry["name"] for entry in overlays)
        if name and name not in known:
            raise UnknownOptionError(
                f"the page has no overlay {short_repr(name)}.", (("known", ", ".join(known) or "none"),)
            )
        graph = {**nested.to_dict(), "opened": opened, "overlays": overlays, "overlay": name}
    to_open = FIRST if inspection.given is None else inspection.given.stages[:3]
    paths = blocks_of(stages)
    groups = {outer for path in paths for outer in outer_paths(path)}
    packed.add_rest(
        {
            "jax": version("jax"),
            "equations": equation_data(inspection, stages),
            "paths": {key: path for path in sorted(groups) if (key := block_key(path)) != path},
            "hues": {path: hue_class(path, hues) for path in sorted(paths)},
            "shown": [name for name in to_open if name in names] or list(names[:1]),
            "passes": [step.diff for step in passes],
            "rows": rows,
            "graph": graph,
            "costs": folds,
            "tour": tour,
        }
    )
    body = (
        f'{_picture(inspection, scene)}<div class="live" hidden></div>'
        f'<div class="plain"><p>{_PLAIN}</p>'
        f"{panes_html(stages, hues, key_of(stages), PLAIN_LINES, skip_inputs=True, is_linked=False)}</div>"
        f"{_passes_html(passes, why)}{f'<h2>Cost</h2>{tables}' if tables else ''}"
        f"<h2>Stages</h2>{_stages_html(inspection, names)}"
    )
    device = inspection.device
    target = f" for {device.title or device.name} ({device})" if isinstance(device, Device) else ""
    return f"at every stage{target}, by mithril_nb", body, packed.text


# The data contain no times, so that equal programs give equal pages.
class _Packed:
    def __init__(self) -> None:
        self._compressor = zlib.compressobj(_LEVEL, wbits=31)  # 31: gzip
        self._parts: list[bytes] = []
        self._before = '{"stages":['
        self.text = ""

    def add_stages(self, inspection: Inspection, names: Iterable[str]) -> list[Stage]:
        stages = []
        for name in names:
            stage = inspection.stage(name)
            about = {"name": name, "title": title_of(name), "language": language_of(name)}
            data = stage_data(inspection, stage)
            text, numbers = packed_text(data.pop("text")), data.pop("columns")
            columns = ",".join(f"{_json(column)}:{_numbers_json(values)}" for column, values in numbers.items())
            rest = _json({**about, "unavailable": stage.unavailable, **text, **data})
            self._add(f'{self._before}{rest[:-1]},"columns":{{{columns}}}}}')
            self._before = ","
            stages.append(stage)
        return stages

    def add_rest(self, data: Mapping[str, Any]) -> None:
        self._add(f"],{_json(data)[1:]}")
        self.text = base64.b64encode(b"".join([*self._parts, self._compressor.flush()])).decode()

    def _add(self, text: str) -> None:
        self._parts.append(self._compressor.compress(text.encode()))


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


# Kernels have long runs of equal numbers, which are faster to write at once than with `json`.
def _numbers_json(numbers: list[int]) -> str:
    if 8 * sum(map(ne, numbers, numbers[1:])) > len(numbers):
        return _json(numbers)
    return f"[{''.join([f'{number},' * len(list(run)) for number, run in groupby(numbers)])[:-1]}]"


# `is_linked` adds the ids of equations to each node of the scene. They may be thousands, and a page whose script
# replaces the picture does not need them.
def _graph(
    inspection: Inspection, hues: Mapping[str, int], *, is_linked: bool = True
) -> tuple[NestedGraph | None, list[str], Scene | None]:
    graph = inspection.graph()
    if not graph.level():
        return None, [], None
    shares = stage_shares(inspection, graph)
    nested = nested_stage(graph, shares, hues)
    opened = opened_at_first(graph, nested, shares)
    drawn = nested if is_linked else replace(nested, boxes=tuple(replace(box, equations=()) for box in nested.boxes))
    return nested, sorted(opened), layout(drawn, opened)


def _passes_html(passes: Sequence[Pass], why: str) -> str:
    if not passes:
        return f'<h2>Passes of XLA</h2><p class="gone">{escaped(why)}</p>' if why else ""
    rows = ""
    for step in passes:
        # Not `changes`, which parses both modules of each pass.
        added, removed = (sum(line.startswith(sign) for line in step.diff.split("\n")) for sign in "+-")
        rows += (
            f"<li><b>{escaped(f'{step.number}. {step.name}')}</b> <span class=quiet>{escaped(step.pipeline)}</span>"
            f'<span class="size">+{added:,} −{removed:,}</span></li>'
        )
    return f'<h2>Passes of XLA that changed something</h2><div class="sides"><ol class="passes">{rows}</ol></div>'


# FLOPs by block and role, and by line of Python, which the page shows beside folded lines.
def _fold_costs(counted: Cost) -> dict[str, Any]:
    def row(block: str, figures: Figures, roles: Mapping[str, Figures]) -> dict[str, Any]:
        by_role = {role: {"flops": part.flops} for role, part in roles.items() if role and part.flops}
        return {"block": block, "flops": figures.flops, "unknown": {"flops": figures.unknown}, "roles": by_role}

    rows = [row(path, figures, counted.by_block_and_role.get(path, {})) for path, figures in counted.by_block.items()]
    lines = {
        line: {"flops": figures.flops, **({"unknown": {"flops": figures.unknown}} if figures.unknown else {})}
        for line, figures in counted.by_line.items()
        if line and (figures.flops or figures.unknown)
    }
    return {"source": counted.source, "rows": rows, "lines": lines, "total": row("", counted.total, counted.by_role)}
