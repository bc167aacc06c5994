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

from mithril_nb.display import columns
from mithril_nb.errors import StageUnavailableError, UnknownOptionError, nearest, short_repr
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.stage_kinds import has_machine_code, language_of, needs_compile, title_of
from mithril_nb.viz.costs.graph_overlays import page_overlays, stage_shares
from mithril_nb.viz.costs.tables.table import page_tables
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.html_parts import built, html_table, link_script, output_html, page_html, write_page
from mithril_nb.viz.pages.listing import blocks_of, equation_data, hue_class, hues_seen, key_of, panes_html, stage_data
from mithril_nb.viz.pages.packed_text import packed_text
from mithril_nb.viz.text import block_key, escaped, one_line, outer_paths

if TYPE_CHECKING:
    from mithril_nb.inspection import Inspection
    from mithril_nb.stages.records import Stage
    from mithril_nb.stages.xla.passes import Pass
    from mithril_nb.viz.diagrams.nested import Box, NestedGraph
    from mithril_nb.viz.diagrams.scene import Scene


SHOWN = ("jaxpr", "stablehlo")
"""Stages whose lines the output of a cell shows. They do not need the compiler."""
_MOST_LINES = 150


def summary_text(inspection: Inspection) -> str:
    """Return the stages of a program and the graph of its jaxpr as text. The program is not compiled."""
    from mithril_nb.viz.diagrams.stages import stage_graph_text

    stages = [inspection.stage(name) for name in _shown(inspection)]
    figures = {name: _figures(inspection, name) for name in inspection.stages}
    rows = [("stage", "lines", "instructions", "")]
    rows += [(title_of(name), *known) for name, known in figures.items()]
    parts = [f"program {inspection.name!r}", columns(rows, right={1, 2})]
    failed = next((stage.unavailable for stage in stages if stage.unavailable is not None), None)
    if failed is not None:
        parts.append("\n".join(map(one_line, failed.split("\n"))))
    graph = inspection.graph()
    if graph.level():
        parts.append(stage_graph_text(graph, shares=stage_shares(inspection, graph)))
    return "\n\n".join(parts)


def summary_html(inspection: Inspection, *, scripts: bool = True) -> str:
    """Return the graph, the first stages and a table of all stages as one self-contained HTML fragment.

    Args:
        inspection: The program.
        scripts: If true, a script highlights linked lines.
    """
    stages = [inspection.stage(name) for name in _shown(inspection)]
    hues = hues_seen(stages)
    key = key_of(stages)
    script = link_script() if scripts else ""
    panes = panes_html(stages, hues, key, _MOST_LINES, skip_inputs=True)
    _, _, scene = _graph(inspection, hues)
    body = f"{_picture(inspection, scene)}{panes}{stages_html(inspection)}{script}"
    plain = "" if scene is None else scene_svg(scene, title=f"graph of {inspection.name}")
    return output_html(body, "listing", "summary", kind="mnb mnb-linked", key=key, picture=plain)


def _shown(inspection: Inspection) -> Sequence[str]:
    return SHOWN if inspection.given is None else inspection.given.stages[:1]


def _picture(inspection: Inspection, scene: Scene | None) -> str:
    if scene is None:
        return ""
    return f'<div class="picture">{scene_svg(scene, title=f"graph of {inspection.name}", embedded=True)}</div>'


def stages_html(inspection: Inspection, names: Sequence[str] | None = None) -> str:
    """Return an HTML table with the length of each stage, or a note why it is missing.

    The table contains no times, so that saved notebooks do not change when they run again.

    Args:
        inspection: The program.
        names: Names of the stages; `None` for all stages.
    """
    shown = inspection.stages if names is None else names
    rows = [(title_of(name), *_figures(inspection, name)) for name in shown]
    return html_table(("stage", "lines", "instructions", "note"), rows, style="made")


def _figures(inspection: Inspection, name: str) -> tuple[str, str, str]:
    """Return the number of lines, the number of instructions, and a note: why the numbers are missing, or `""`."""
    if not inspection.has_stage(name):
        return "", "", "not computed yet"
    stage = inspection.stage(name)
    if stage.unavailable is not None:
        return "", "", stage.unavailable.partition("\n")[0]
    return f"{_lines(stage):,}", f"{len(stage.instructions):,}", ""


def _lines(stage: Stage) -> int:
    return stage.text.count("\n") + (not stage.text.endswith("\n"))


FIRST = ("jaxpr", "stablehlo", "hlo")
"""Stages that a page shows when it is opened."""
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
) -> str:
    """Return a program at all stages as one HTML file, and write it to `path` if given.

    Args:
        inspection: The program; missing stages are computed.
        path: Where to write the file.
        stages: Names of the stages to include; by default all. The program is compiled only if a stage needs it.
        overlay: Name of the overlay that the graph shows at first. Or the user's own values: for each title, values by
            path of the block.

    Returns:
        The text of the file.

    Raises:
        StageUnavailableError: A stage does not exist, or the front end is not built.
        UnknownOptionError: There is no overlay with this name, or the user's own values are not valid.
        ModelFileError: The file cannot be written.
    """
    page = _page(inspection, tuple(inspection.stages if stages is None else stages), overlay)
    return write_page(page, path, 'inspection.to_html("inspection.html")')


@paused_collector()
def _page(inspection: Inspection, names: tuple[str, ...], overlay: str | Mapping[str, Mapping[str, Any]]) -> str:
    is_compiled = needs_compile(names)
    if is_compiled:
        # All that needs the compiler is requested before the first read. Otherwise, the program is compiled twice.
        inspection.want(machine_code=has_machine_code(names), passes=True)
        inspection.begin_compiling()
    # XLA releases the GIL: while it compiles, everything that needs no compiler is computed and compressed.
    packed = _Packed()
    first = [*takewhile(lambda name: not needs_compile((name,)), names)] or [*names]
    stages = _add_stages(inspection, first, packed)
    # Kernels have the same blocks as the HLO. Reading their thousands of lines would be slow.
    hues = hues_seen([stage for stage in stages if not has_machine_code([stage.name])])
    nested, opened, scene = _graph(inspection, hues, is_linked=False)
    counted = _counted(inspection)
    folds = _fold_costs(inspection)
    costs = _costs(inspection, names, counted)
    stages += _add_stages(inspection, names[len(first) :], packed)
    passes, why = _passes(inspection) if is_compiled else ((), "")
    diffs = [one.diff for one in passes]
    graph = None
    if nested is not None:
        values = _overlays(inspection, nested.boxes, next(iter(counted.values()), None), overlay)
        graph = {**nested.to_dict(), "opened": opened, **values}
    tables, rows = ("", []) if costs is None else page_tables(costs, hues)
    packed.add_rest(
        {
            "jax": version("jax"),
            **_links(inspection, stages, hues),
            "shown": _first_open(inspection, names),
            "passes": diffs,
            "rows": rows,
            "graph": graph,
            "costs": folds,
        }
    )
    body = (
        f'{_picture(inspection, scene)}<div class="live" hidden></div>'
        f'<div class="plain"><p>{_PLAIN}</p>'
        f"{panes_html(stages, hues, key_of(stages), PLAIN_LINES, skip_inputs=True, is_linked=False)}</div>"
        f"{_passes_html(passes, diffs, why)}{f'<h2>Cost</h2>{tables}' if tables else ''}"
        f"<h2>Stages</h2>{stages_html(inspection, names)}"
    )
    script = f"<script>{built('page.js').rstrip()}</script>"
    scripts = f'<script type="text/plain" id="mnb-data">{packed.text}</script>{script}'
    sections = ("listing", "summary", "cost", "page")
    return page_html(
        inspection.name, "at every stage, by mithril_nb", body, *sections, kind="mnb-page", scripts=scripts
    )


class _Packed:
    """The data of a page: JSON, compressed with gzip, as base64. Stages are added first, then the rest with `add_rest`.

    Attributes:
        text: The data; `""` before `add_rest`. It contains no times, so that equal programs give equal pages.
    """

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(_LEVEL, wbits=31)  # 31: gzip
        self._parts: list[bytes] = []
        self._before = '{"stages":['
        self.text = ""

    def add_stage(self, data: Mapping[str, Any]) -> None:
        columns = ",".join(f"{_json(name)}:{_numbers_json(column)}" for name, column in data["columns"].items())
        rest = _json({name: data[name] for name in data if name != "columns"})
        self._add(f'{self._before}{rest[:-1]},"columns":{{{columns}}}}}')
        self._before = ","

    def add_rest(self, data: Mapping[str, Any]) -> None:
        self._add(f"],{_json(data)[1:]}")
        self.text = base64.b64encode(b"".join([*self._parts, self._compressor.flush()])).decode()

    def _add(self, text: str) -> None:
        self._parts.append(self._compressor.compress(text.encode()))


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def _numbers_json(numbers: list[int]) -> str:
    """Return whole numbers as JSON. In kernels, with long runs of equal numbers, it is faster than `_json`."""
    if 8 * sum(map(ne, numbers, numbers[1:])) > len(numbers):
        return _json(numbers)
    return f"[{''.join([f'{number},' * len(list(run)) for number, run in groupby(numbers)])[:-1]}]"


def _add_stages(inspection: Inspection, names: Iterable[str], packed: _Packed) -> list[Stage]:
    """Compute stages, add them to `packed`, and return them."""
    stages = []
    for name in names:
        stage = inspection.stage(name)
        about = {"title": title_of(name), "language": language_of(name), "unavailable": stage.unavailable}
        data = stage_data(inspection, stage)
        text = packed_text(data.pop("text"))
        packed.add_stage({"name": name, **about, **text, **data})
        stages.append(stage)
    return stages


def _first_open(inspection: Inspection, names: Sequence[str]) -> list[str]:
    first = FIRST if inspection.given is None else inspection.given.stages[:3]
    return [name for name in first if name in names] or list(names[:1])


def _links(inspection: Inspection, stages: Sequence[Stage], hues: Mapping[str, int]) -> dict[str, Any]:
    """Return the data that link the stages: `equations`, and `hues` and `paths` of blocks.

    `paths` is a dict from `block_key` of a block to its path, for blocks where they differ.
    """
    paths = blocks_of(stages)
    groups = {outer for path in paths for outer in outer_paths(path)}
    return {
        "equations": equation_data(inspection, stages),
        "paths": {key: path for path in sorted(groups) if (key := block_key(path)) != path},
        "hues": {path: hue_class(path, hues) for path in sorted(paths)},
    }


def _graph(
    inspection: Inspection, hues: Mapping[str, int], *, is_linked: bool = True
) -> tuple[NestedGraph | None, list[str], Scene | None]:
    """Return the graph, the keys of its open nodes, and its scene; `None`, `[]` and `None` if the graph has no nodes.

    If `is_linked`, each node in the scene contains the ids of its equations, which may be thousands. They are not
    needed if a script replaces the picture.
    """
    from mithril_nb.viz.diagrams.layout import layout
    from mithril_nb.viz.diagrams.stages import nested_stage, opened_at_first

    graph = inspection.graph()
    if not graph.level():
        return None, [], None
    shares = stage_shares(inspection, graph)
    nested = nested_stage(graph, shares, hues)
    opened = opened_at_first(graph, nested, shares)
    drawn = nested if is_linked else replace(nested, boxes=tuple(replace(box, equations=()) for box in nested.boxes))
    return nested, sorted(opened), layout(drawn, opened)


def _overlays(
    inspection: Inspection,
    boxes: Sequence[Box],
    counted: Mapping[str, Any] | None,
    overlay: str | Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the overlays of the graph, and the name of the overlay shown at first, or `""`."""
    own = {} if isinstance(overlay, str) else overlay
    found = [] if counted is None else list(page_overlays(inspection, boxes, inspection.graph(), counted, own))
    first = overlay if isinstance(overlay, str) else found[0]["name"] if found else ""
    names = dict.fromkeys(one["name"] for one in found)
    if first and first not in names:
        raise UnknownOptionError(
            f"the page has no overlay {short_repr(first)}.",
            (("known", ", ".join(names) or "none"),),
            f'inspection.to_html("page.html", overlay="{nearest(first, list(names)) or "flops"}")',
        )
    return {"overlays": found, "overlay": first}


def _passes(inspection: Inspection) -> tuple[tuple[Pass, ...], str]:
    """Return the passes, and the reason if they are not available."""
    try:
        return inspection.passes, ""
    except StageUnavailableError as error:
        return (), str(error)


def _passes_html(passes: Sequence[Pass], diffs: Sequence[str], why: str) -> str:
    if not passes:
        return f'<h2>Passes of XLA</h2><p class="gone">{escaped(why)}</p>' if why else ""
    rows = "".join(
        f"<li><b>{escaped(f'{one.number}. {one.name}')}</b> <span class=quiet>{escaped(one.pipeline)}</span>"
        f'<span class="size">{_signed(diff)}</span></li>'
        for one, diff in zip(passes, diffs, strict=True)
    )
    return f'<h2>Passes of XLA that changed something</h2><div class="sides"><ol class="passes">{rows}</ol></div>'


def _signed(diff: str) -> str:
    lines = diff.split("\n")
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"+{added:,} −{removed:,}"


def _fold_costs(inspection: Inspection) -> dict[str, Any] | None:
    """Return FLOPs by block and role, and by line of Python; `None` if the program cannot be traced.

    The page shows them beside folded lines.
    """
    from mithril_nb import cost

    try:
        found = cost.cost_of(inspection)
    except StageUnavailableError:
        return None

    def row(block: str, figures: cost.Figures, roles: Mapping[str, cost.Figures]) -> dict[str, Any]:
        known = {role: {"flops": one.flops} for role, one in roles.items() if role and one.flops}
        return {"block": block, "flops": figures.flops, "unknown": {"flops": figures.unknown}, "roles": known}

    rows = [row(path, one, found.by_block_and_role.get(path, {})) for path, one in found.by_block.items()]
    lines = {
        line: {"flops": one.flops, **({"unknown": {"flops": one.unknown}} if one.unknown else {})}
        for line, one in found.by_line.items()
        if line and (one.flops or one.unknown)
    }
    return {"source": found.source, "rows": rows, "lines": lines, "total": row("", found.total, found.by_role)}


def _counted(inspection: Inspection) -> dict[str, dict[str, Any]]:
    """Return the costs that need no compiler as data, by source. The graph shows the first of them."""
    from mithril_nb import cost

    found = {}
    with suppress(StageUnavailableError):  # the table of stages shows the reason
        first = cost.cost_of(inspection)
        found[first.source] = first.to_dict()
        if inspection.has_stage("hlo_before") and "lowered" not in found:
            found["lowered"] = cost.cost_of(inspection, "lowered").to_dict()
    return found


def _costs(
    inspection: Inspection, names: Sequence[str], counted: Mapping[str, dict[str, Any]]
) -> dict[str, Any] | None:
    """Return all costs as data; `None` if the program has none. Costs in `counted` are not computed again."""
    from mithril_nb import cost

    try:
        found = cost.costs_so_far(inspection, names)
    except StageUnavailableError:
        return None  # the table of stages shows the reason
    rest = replace(found, by_source={name: one for name, one in found.items() if name not in counted}).to_dict()
    return {**rest, "sources": {name: counted.get(name) or rest["sources"][name] for name in found}}
