"""A comparison of two models or programs: as text, as the output of a cell, and as one self-contained HTML file.

It shows both graphs, the costs, and then each stage with both texts side by side. If the user clicks a block or a line,
a script highlights it on both sides. The page is readable without scripts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.stages.stage_kinds import title_of
from mithril_nb.viz.diagrams.marked import marked_scene
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.diagrams.svg import scene_svg
from mithril_nb.viz.diagrams.svg_nodes import MARKS
from mithril_nb.viz.html_parts import Markup, cell, html_table, link_script, output_html, page_html, write_page
from mithril_nb.viz.pages.side_by_side import Links, stage_html
from mithril_nb.viz.palette import hue_of, hues_of_blocks
from mithril_nb.viz.text import block_key, escaped, listed, one_line

if TYPE_CHECKING:
    from mithril_nb.analysis.compare import BlockChange, Comparison
    from mithril_nb.cost.comparison import Change
    from mithril_nb.stages.graph.stage_graph import StageGraph

_SIGNS = {**MARKS, "renamed": "→", "moved": "→"}
_MOST_LISTED, _MOST_DETAILS = 200, 5
_MOST_ROWS = 24
"""If a table has more blocks, the blocks with unchanged costs share a row."""
_SECTIONS = ("listing", "summary", "cost", "comparison")
_PAGE_ROWS, _CELL_ROWS = 4000, 200


def comparison_text(found: Comparison) -> str:
    """Return a comparison as text: summary, blocks that differ, stages, and costs."""
    heads = [("before", _side(found.before)), ("after", _side(found.after))]
    parts = [f"{columns(heads, ())}\n{found.summary}"]
    rows: list[tuple[str, ...]] = [
        (_SIGNS[one.mark], _path(one), one_line(one.kind), _details(one)) for one in found.blocks[:_MOST_LISTED]
    ]
    rows += [("...", f"{len(found.blocks) - _MOST_LISTED:,} more", "", "")] * (len(found.blocks) > _MOST_LISTED)
    parts += [columns(rows, ())] if rows else []
    wires = [f"+ {one_line(one)}" for one in found.connections.added]
    wires += [f"− {one_line(one)}" for one in found.connections.removed]
    parts += ["connections\n" + listed(wires, _MOST_LISTED, "\n")] if wires else []
    if found.quick_stages:
        table = [("stage", "difference"), *((title_of(one), found.stage(one).summary) for one in found.quick_stages)]
        parts.append(columns(table, ()))
    if found.cost is not None:
        head, *costs = _cost_rows(found)
        parts.append(columns([head, *((one_line(name), *cells) for name, *cells in costs)], range(1, len(head))))
        parts[-1] += "".join(f"\n{note}" for note in found.cost.notes)
    else:
        parts.append(found.cost_unavailable)
    return "\n\n".join(parts)


def comparison_html(found: Comparison) -> str:
    """Return a comparison as the output of a cell: summary, graphs, first stage, and costs."""
    stages = [] if found.first_stage is None else [found.first_stage]
    body = _body(found, stages, _CELL_ROWS) + link_script()
    heading = f'<p class="names">{_heading(found)}</p>'
    return output_html(heading + body, *_SECTIONS, kind="mnb mnb-linked mnb-compare")


def comparison_page(found: Comparison, path: str | Path | None, stages: Sequence[str]) -> str:
    """Return a comparison as one HTML file, and write it to `path` if given.

    Args:
        found: The comparison.
        path: Where to write the file.
        stages: Names of the stages to include.

    Raises:
        ModelFileError: The file cannot be written.
    """
    title = f"{found.before.name} → {found.after.name}"
    body = f'<p class="names">{_heading(found)}</p>{_body(found, stages, _PAGE_ROWS)}'
    page = page_html(
        title, "compared by mithril_nb", body, *_SECTIONS, "page", kind="mnb-linked mnb-compare", scripts=link_script()
    )
    return write_page(page, path, 'comparison.to_html("comparison.html")')


def _body(found: Comparison, stages: Sequence[str], most_rows: int) -> str:
    links = Links(found)
    texts = "".join(
        stage_html(found.stage(name), links, most_rows, is_open=name == found.first_stage) for name in stages
    )
    texts = f"<h2>Stages</h2>{texts}" if texts else ""
    return f"{_summary(found, links)}{_graphs(found, links)}{_costs(found, links)}{texts}"


def _side(side: object) -> str:
    name, version = one_line(getattr(side, "name", "")), getattr(side, "jax", "")
    return f"{name} (jax {one_line(version)})" if version else name


def _heading(found: Comparison) -> str:
    sides = (("before", found.before), ("after", found.after))
    return "".join(f"<span><b>{word}</b> {escaped(_side(side))}</span>" for word, side in sides)


def _path(one: BlockChange) -> str:
    paths = [one_line(path) or "(model)" for path in dict.fromkeys((one.before, one.after)) if path is not None]
    return " → ".join(paths)


def _details(one: BlockChange) -> str:
    parts = [f"and {one.inside} blocks inside"] if one.inside > 1 else ["and 1 block inside"] if one.inside else []
    parts = [one.mark, *parts] if one.mark in ("renamed", "moved") else parts
    for name, before, after in one.details[:_MOST_DETAILS]:
        texts = [_cut(text) for text in (before, after)]
        parts.append(f"{one_line(name)}: {texts[0]} → {texts[1]}" if before else f"{one_line(name)}: {texts[1]}")
    parts += [f"and {len(one.details) - _MOST_DETAILS} more"] if len(one.details) > _MOST_DETAILS else []
    return ", ".join(parts)


def _cut(text: str) -> str:
    shown = one_line(text)
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


def _summary(found: Comparison, links: Links) -> str:
    items = "".join(
        f'<li><button type="button" data-block="{escaped(links.block(one))}"><span class="g m-{_look(one.mark)}" '
        f'aria-hidden="true">{_SIGNS[one.mark]}</span> <b>{escaped(_path(one))}</b> {escaped(one_line(one.kind))} '
        f'<span class="quiet">{escaped(_details(one) or one.mark)}</span></button></li>'
        for one in found.blocks[:_MOST_LISTED]
    )
    more = len(found.blocks) - _MOST_LISTED
    items += f"<li>and {more:,} more</li>" if more > 0 else ""
    wires = [("added", one) for one in found.connections.added] + [
        ("removed", one) for one in found.connections.removed
    ]
    shown = "".join(
        f'<li><span class="g m-{mark}">{MARKS[mark]}</span> {escaped(one_line(one))}</li>'
        for mark, one in wires[:_MOST_LISTED]
    )
    more = f"<li>and {len(wires) - _MOST_LISTED:,} more</li>" if len(wires) > _MOST_LISTED else ""
    title = f"{len(wires):,} connection{'' if len(wires) == 1 else 's'} differ{'s' if len(wires) == 1 else ''}"
    wiring = f"<details><summary>{title}</summary><ul>{shown}{more}</ul></details>" if wires else ""
    return (
        f'<p class="sum">{escaped(found.summary)}</p>' + (f'<ul class="changes">{items}</ul>' if items else "") + wiring
    )


def _look(mark: str) -> str:
    """Return the CSS class of a mark. For renamed and moved blocks, it is `"changed"`."""
    return mark if mark in MARKS else "changed"


# Graphs


def _graphs(found: Comparison, links: Links) -> str:
    left, right = _scene(found, links, True), _scene(found, links, False)
    if left is None or right is None:
        return ""
    hues = {node.path: node.hue for node in right.nodes if node.path}
    known = [(node, hue_of(node.path, hues)) for node in left.nodes]
    left = replace(left, nodes=tuple(node if hue is None else replace(node, hue=hue) for node, hue in known))
    sides = []
    for is_left, side, scene in ((True, found.before, left), (False, found.after, right)):
        word = "before" if is_left else "after"
        picture = scene_svg(scene, title=f"graph {word}: {side.name}", embedded=True)
        # A large picture shrinks to the width of its pane, but only as long as its labels are readable.
        size = f"--drawn-w:{scene.width}px;--drawn-h:{scene.height}px"
        sides.append(
            f'<section class="side" aria-label="graph {word}" style="{size}"><h3>{word}</h3>{picture}</section>'
        )
    legend = "".join(
        f'<span class="m-{mark}"><span class="g">{sign}</span> {mark}</span>' for mark, sign in MARKS.items()
    )
    hint = '<span class="quiet">Click a block or a line to select it on both sides; Esc clears</span>'
    return f'<p class="legend">{legend}{hint}</p><div class="two">{"".join(sides)}</div>'


def _scene(found: Comparison, links: Links, is_left: bool) -> Scene | None:
    """Return the graph of one side with positions, marks and links; `None` if there is no graph."""
    graph = (found.before if is_left else found.after).graph if found.has_models else None
    marks = {path: _look(one.mark) for one in found.blocks if (path := one.before if is_left else one.after)}
    if graph is not None:
        scene = marked_scene(graph, marks, {})
    else:
        stage = _stage_graph(found, is_left)
        if stage is None:
            return None
        hues = hues_of_blocks(node.block for node in stage.nodes.values() if node.block)
        scene = marked_scene(stage, _marks_of_nodes(found, stage, marks, is_left), hues)
    nodes = tuple(
        replace(
            node,
            path=links.path(node.path, is_left) if node.path else "",
            equations=tuple(links.equation(one, is_left) for one in node.equations),
        )
        for node in scene.nodes
    )
    return replace(scene, nodes=nodes)


def _stage_graph(found: Comparison, is_left: bool) -> StageGraph | None:
    from mithril_nb.stages.graph.tree import stage_graph

    if found.first_stage is None:
        return None
    side = found.before if is_left else found.after
    graph = stage_graph(side.stage(found.first_stage))
    return graph if graph.level() else None


def _marks_of_nodes(found: Comparison, graph: StageGraph, marks: Mapping[str, str], is_left: bool) -> dict[str, str]:
    """Return marks of the nodes of a stage, by key: the mark of the block, or else one for the instructions inside."""
    assert found.first_stage is not None
    stage = found.stage(found.first_stage)
    own = {one.id for one in (stage.removed if is_left else stage.added)}
    changed = {pair[0 if is_left else 1].id for pair in stage.changed if pair[1].line not in stage.rewired}
    only = "removed" if is_left else "added"
    result: dict[str, str] = {}
    for node in graph.nodes.values():
        if not node.key:
            continue
        ids = graph.instructions_of(node.key)
        if node.kind == "block" and node.block in marks:
            result[node.key] = marks[node.block]
        elif ids and own.issuperset(ids):
            result[node.key] = only
        elif not own.isdisjoint(ids) or not changed.isdisjoint(ids):
            result[node.key] = "changed"
    return result


# Costs


def _costs(found: Comparison, links: Links) -> str:
    if found.cost is None:
        return f'<p class="quiet">{escaped(found.cost_unavailable)}</p>' if found.cost_unavailable else ""
    head, *rows = _cost_rows(found)
    shown = [_cost_row(name, cells, name in found.cost.by_block) for name, *cells in rows[:-1]]
    total, *cells = rows[-1]
    foot = f'<tr class="total"><th scope="row">{escaped(total)}</th>{"".join(map(cell, cells))}</tr>'
    notes = "".join(f'<p class="quiet">{escaped(note)}</p>' for note in found.cost.notes)
    return f"<h2>Cost by block</h2>{html_table(head, shown, foot=foot)}{notes}"


def _cost_row(name: str, cells: Sequence[str], is_block: bool) -> Markup:
    shown = escaped(one_line(name))
    link, title = "", shown
    if is_block:
        link = f' data-block="{escaped(block_key(name))}"'
        title = f'<button type="button"{link}>{shown}</button>'
    return Markup(f'<tr{link}><th scope="row" title="{shown}">{title}</th>{"".join(map(cell, cells))}</tr>')


def _cost_rows(found: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield the titles, a row for each block, and the total. If there are many blocks, unchanged ones share a row."""
    from mithril_nb.cost.comparison import Change, change_cells
    from mithril_nb.cost.records import sum_of

    assert found.cost is not None
    yield "block", "FLOPs before", "after", "change", "bytes before", "after", "change"
    every = dict(found.cost.by_block)
    same = [change for change in every.values() if change.before == change.after]
    is_long = len(every) > _MOST_ROWS and len(same) > 1
    for name, change in every.items():
        if not (is_long and change.before == change.after):
            yield name, *change_cells(change)
    if is_long:
        total: Change = Change(*(sum_of(getattr(one, side) for one in same) for side in ("before", "after")))
        yield f"{len(same):,} unchanged blocks", *change_cells(total)
    if found.cost.unattributed.before != found.cost.unattributed.after or any(
        figures.flops or figures.bytes_accessed for figures in vars(found.cost.unattributed).values()
    ):
        yield UNATTRIBUTED_LABEL, *change_cells(found.cost.unattributed)
    yield "total", *change_cells(found.cost.total)
