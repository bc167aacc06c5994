"""A comparison of two models or programs: as text, as the output of a cell, and as one self-contained HTML file.

It shows both graphs, the costs, and then each stage with both texts side by side. If the user clicks a block or a line,
a script highlights it on both sides. The page is readable without scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.figures import MAIN
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.stages.graph.tree import stage_graph
from mithril_nb.stages.records import Instruction
from mithril_nb.stages.stage_kinds import title_of
from mithril_nb.viz.diagrams.nested import Scene
from mithril_nb.viz.diagrams.picture import marked_scene
from mithril_nb.viz.diagrams.svg import MARKS, scene_svg
from mithril_nb.viz.html_parts import Markup, cell, html_table, link_script, output_html, page_html, write_page
from mithril_nb.viz.languages import code_html
from mithril_nb.viz.pages.listing import StageLine, lines_of
from mithril_nb.viz.palette import hue_of, hues_of_blocks
from mithril_nb.viz.text import block_key, escaped, listed, one_line

if TYPE_CHECKING:
    from mithril_nb.analysis.compare import BlockChange, Comparison, StageComparison

_SIGNS = {**MARKS, "renamed": "→", "moved": "→"}
_MOST_LISTED, _MOST_DETAILS = 200, 5
# If a table has more blocks, the blocks with unchanged costs share a row.
_MOST_ROWS = 24
_SECTIONS = ("listing", "summary", "cost", "comparison")
_PAGE_ROWS, _CELL_ROWS = 4000, 200
# Number of unchanged lines shown before and after a difference.
_AROUND = 2
# Largest number of unchanged lines in a fold. If there are more, the page contains only their number.
_MOST_FOLDED = 300
# The signs of a line of a stage, before and after.
_SIDES = {"same": ("", ""), "added": ("", "+"), "removed": ("−", ""), "changed": ("~", "~")}


def comparison_text(comparison: Comparison) -> str:
    """Return a comparison as text: summary, blocks that differ, stages, and costs."""
    heads = [("before", _side(comparison.before)), ("after", _side(comparison.after))]
    parts = [f"{columns(heads, ())}\n{comparison.summary}"]
    blocks = comparison.blocks
    rows = [
        (_SIGNS[change.mark], _path(change), one_line(change.kind), _details(change))
        for change in blocks[:_MOST_LISTED]
    ]
    if len(blocks) > _MOST_LISTED:
        rows.append(("...", f"{len(blocks) - _MOST_LISTED:,} more", "", ""))
    parts += [columns(rows, ())] if rows else []
    wires = [f"{MARKS[mark]} {one_line(wire)}" for mark, wire in _wires(comparison)]
    parts += ["connections\n" + listed(wires, _MOST_LISTED, "\n")] if wires else []
    if comparison.quick_stages:
        stages = [(title_of(name), comparison.stage(name).summary) for name in comparison.quick_stages]
        parts.append(columns([("stage", "difference"), *stages], ()))
    if comparison.cost is not None:
        head, *costs = _cost_rows(comparison)
        table = columns([head, *((one_line(name), *cells) for name, *cells in costs)], range(1, len(head)))
        parts.append("\n".join((table, *comparison.cost.notes)))
    else:
        parts.append(comparison.cost_unavailable)
    return "\n\n".join(parts)


def comparison_html(comparison: Comparison) -> str:
    """Return a comparison as the output of a cell: summary, graphs, first stage, and costs."""
    stages = [] if comparison.first_stage is None else [comparison.first_stage]
    body = _body(comparison, stages, _CELL_ROWS) + link_script()
    return output_html(body, *_SECTIONS, kind="mnb mnb-linked mnb-compare")


def comparison_page(comparison: Comparison, path: str | Path | None, stages: Sequence[str]) -> str:
    """Return a comparison as one HTML file, and write it to `path` if given."""
    title = f"{comparison.before.name} → {comparison.after.name}"
    body = _body(comparison, stages, _PAGE_ROWS)
    page = page_html(
        title, "compared by mithril_nb", body, *_SECTIONS, "page", kind="mnb-linked mnb-compare", scripts=link_script()
    )
    return write_page(page, path)


def _body(comparison: Comparison, stages: Sequence[str], most_rows: int) -> str:
    links = Links(comparison)
    sides = (("before", comparison.before), ("after", comparison.after))
    heading = "".join(f"<span><b>{word}</b> {escaped(_side(side))}</span>" for word, side in sides)
    texts = "".join(
        _stage_html(comparison.stage(name), links, most_rows, is_open=name == comparison.first_stage) for name in stages
    )
    texts = f"<h2>Stages</h2>{texts}" if texts else ""
    summary, graphs, costs = _summary(comparison, links), _graphs(comparison, links), _costs(comparison)
    return f'<p class="names">{heading}</p>{summary}{graphs}{costs}{texts}'


def _side(side: object) -> str:
    name, version = one_line(getattr(side, "name", "")), getattr(side, "jax", "")
    return f"{name} (jax {one_line(version)})" if version else name


def _wires(comparison: Comparison) -> list[tuple[str, str]]:
    added, removed = comparison.connections.added, comparison.connections.removed
    return [*(("added", wire) for wire in added), *(("removed", wire) for wire in removed)]


def _path(change: BlockChange) -> str:
    paths = dict.fromkeys((change.before, change.after))
    return " → ".join(one_line(path) or "(model)" for path in paths if path is not None)


def _details(change: BlockChange) -> str:
    parts = [change.mark] if change.mark in ("renamed", "moved") else []
    parts += [f"and {change.inside} block{'s' if change.inside > 1 else ''} inside"] if change.inside else []
    for name, *texts in change.details[:_MOST_DETAILS]:
        before, after = (text if len(text) <= 60 else f"{text[:59]}…" for text in map(one_line, texts))
        parts.append(f"{one_line(name)}: {before} → {after}" if texts[0] else f"{one_line(name)}: {after}")
    more = len(change.details) - _MOST_DETAILS
    return ", ".join([*parts, f"and {more} more"] if more > 0 else parts)


def _summary(comparison: Comparison, links: Links) -> str:
    blocks, wires = comparison.blocks, _wires(comparison)
    items = [
        f'<li><button type="button" data-block="'
        f'{escaped(block_key(links.path(change.path, change.after is None)))}"><span class="g m-{_look(change.mark)}" '
        f'aria-hidden="true">{_SIGNS[change.mark]}</span> <b>{escaped(_path(change))}</b> '
        f"{escaped(one_line(change.kind))} "
        f'<span class="quiet">{escaped(_details(change) or change.mark)}</span></button></li>'
        for change in blocks[:_MOST_LISTED]
    ]
    rows = [
        f'<li><span class="g m-{mark}">{MARKS[mark]}</span> {escaped(one_line(wire))}</li>'
        for mark, wire in wires[:_MOST_LISTED]
    ]
    for lines, count in ((items, len(blocks)), (rows, len(wires))):
        if count > _MOST_LISTED:
            lines.append(f"<li>and {count - _MOST_LISTED:,} more</li>")
    title = f"{len(wires):,} connection{'' if len(wires) == 1 else 's'} differ{'s' if len(wires) == 1 else ''}"
    changes = f'<ul class="changes">{"".join(items)}</ul>' if items else ""
    wiring = f"<details><summary>{title}</summary><ul>{''.join(rows)}</ul></details>" if wires else ""
    return f'<p class="sum">{escaped(comparison.summary)}</p>{changes}{wiring}'


def _look(mark: str) -> str:
    return mark if mark in MARKS else "changed"


class Links:
    """Texts that link rows on a page which compares a program before (left) and after a change (right).

    The page highlights rows with the same link. Corresponding blocks have the same link: the path of the block on the
    right. The link of corresponding equations is the id of the equation on the right.
    """

    def __init__(self, comparison: Comparison):
        self._paths = comparison.paths
        after = {change.after for change in comparison.blocks if change.after is not None}
        self._on_the_right = after | set(comparison.paths.values())
        self._equations = comparison.stage("jaxpr").matches if "jaxpr" in comparison.stages else {}

    def path(self, path: str, is_left: bool) -> str:
        """Return the link of a block on the left or right side.

        The link of a block that exists only on the left is its path. The text ` (removed)` is appended if another block
        on the right has this path.
        """
        if not is_left:
            return path
        return self._paths.get(path) or (f"{path} (removed)" if path in self._on_the_right else path)

    def equation(self, id: str, is_left: bool) -> str:
        """Return the link of an equation. An equation that exists only on the left is linked by its id after a `b`."""
        return self._equations.get(id, f"b{id}") if is_left else id

    def attributes(self, left: Instruction | None, right: Instruction | None) -> str:
        """Return the HTML attributes that link a row with these instructions to other parts of the page."""
        equations: dict[str, None] = {}
        blocks: dict[str, None] = {}
        for instruction, is_left in ((left, True), (right, False)):
            if instruction is not None:
                equations |= dict.fromkeys(self.equation(id, is_left) for id in instruction.equations)
                # Both sides have the path on the right, so that a click selects the same block on both.
                blocks |= dict.fromkeys(block_key(self.path(path, is_left)) for path, _ in instruction.shares if path)
        attributes = f' data-e="{escaped(" ".join(equations))}"' if equations else ""
        return f'{attributes} data-of="{escaped(" ".join(blocks))}"' if blocks else attributes


# Graphs


def _graphs(comparison: Comparison, links: Links) -> str:
    left, right = _scene(comparison, links, True), _scene(comparison, links, False)
    if left is None or right is None:
        return ""
    # A block has the same colour on both sides, although others were added before it.
    hues = {node.path: node.hue for node in right.nodes if node.path}
    hued = [(node, hue_of(node.path, hues)) for node in left.nodes]
    left = replace(left, nodes=tuple(node if hue is None else replace(node, hue=hue) for node, hue in hued))
    sides = ""
    for word, side, scene in (("before", comparison.before, left), ("after", comparison.after, right)):
        picture = scene_svg(scene, title=f"graph {word}: {side.name}", embedded=True)
        # A large picture shrinks to the width of its pane, but only as long as its labels are readable.
        size = f"--drawn-w:{scene.width}px;--drawn-h:{scene.height}px"
        sides += f'<section class="side" aria-label="graph {word}" style="{size}"><h3>{word}</h3>{picture}</section>'
    legend = "".join(
        f'<span class="m-{mark}"><span class="g">{sign}</span> {mark}</span>' for mark, sign in MARKS.items()
    )
    hint = '<span class="quiet">Click a block or a line to select it on both sides; Esc clears</span>'
    return f'<p class="legend">{legend}{hint}</p><div class="two">{sides}</div>'


def _scene(comparison: Comparison, links: Links, is_left: bool) -> Scene | None:
    side = comparison.before if is_left else comparison.after
    changes = ((change.before if is_left else change.after, change) for change in comparison.blocks)
    marks = {path: _look(change.mark) for path, change in changes if path}
    if comparison.has_models and side.graph is not None:
        scene = marked_scene(side.graph, marks, {})
    else:
        graph = None if comparison.first_stage is None else stage_graph(side.stage(comparison.first_stage))
        if graph is None or not graph.level():
            return None
        hues = hues_of_blocks(node.block for node in graph.nodes.values() if node.block)
        scene = marked_scene(graph, _marks_of_nodes(comparison, graph, marks, is_left), hues)
    nodes = tuple(
        replace(
            node,
            path=links.path(node.path, is_left) if node.path else "",
            equations=tuple(links.equation(equation, is_left) for equation in node.equations),
        )
        for node in scene.nodes
    )
    return replace(scene, nodes=nodes)


def _marks_of_nodes(
    comparison: Comparison, graph: StageGraph, marks: Mapping[str, str], is_left: bool
) -> dict[str, str]:
    assert comparison.first_stage is not None
    stage = comparison.stage(comparison.first_stage)
    own = {instruction.id for instruction in (stage.removed if is_left else stage.added)}
    # If only the operands differ, the connection has changed and not the instruction.
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


def _costs(comparison: Comparison) -> str:
    if comparison.cost is None:
        return f'<p class="quiet">{escaped(comparison.cost_unavailable)}</p>' if comparison.cost_unavailable else ""
    head, *rows, (total, *totals) = _cost_rows(comparison)
    lines = []
    for name, *cells in rows:
        label, link = escaped(one_line(name)), ""
        title = label
        if name in comparison.cost.by_block:
            link = f' data-block="{escaped(block_key(name))}"'
            title = f'<button type="button"{link}>{label}</button>'
        lines.append(Markup(f'<tr{link}><th scope="row" title="{label}">{title}</th>{"".join(map(cell, cells))}</tr>'))
    foot = f'<tr class="total"><th scope="row">{escaped(total)}</th>{"".join(map(cell, totals))}</tr>'
    notes = "".join(f'<p class="quiet">{escaped(note)}</p>' for note in comparison.cost.notes)
    return f"<h2>Cost by block</h2>{html_table(head, lines, foot=foot)}{notes}"


# If there are many blocks, unchanged ones share a row.
def _cost_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    from mithril_nb.cost.comparison import CostChange, change_cells, heads_of
    from mithril_nb.cost.records import sum_of

    assert comparison.cost is not None
    yield "block", *heads_of()
    changes = dict(comparison.cost.by_block)
    same = [change for change in changes.values() if change.before == change.after]
    is_long = len(changes) > _MOST_ROWS and len(same) > 1
    for name, change in changes.items():
        if not (is_long and change.before == change.after):
            yield name, *change_cells(change)
    if is_long:
        total = CostChange(*(sum_of(getattr(change, side) for change in same) for side in ("before", "after")))
        yield f"{len(same):,} unchanged blocks", *change_cells(total)
    if comparison.cost.unattributed.before != comparison.cost.unattributed.after or any(
        getattr(figures, key) for figures in vars(comparison.cost.unattributed).values() for key in MAIN
    ):
        yield UNATTRIBUTED_LABEL, *change_cells(comparison.cost.unattributed)
    yield "total", *change_cells(comparison.cost.total)


# Stages: each line that differs has a sign, and unchanged lines are folded


def _stage_html(stage: StageComparison, links: Links, most_rows: int, *, is_open: bool) -> str:
    title = escaped(title_of(stage.name))
    head = f'<summary><b>{title}</b> <span class="quiet">{escaped(stage.summary)}</span></summary>'
    if stage.unavailable is not None:
        return f'<details class="pane">{head}<p class="gone">not available {escaped(stage.unavailable)}</p></details>'
    texts = lines_of(stage.before, None), lines_of(stage.after, None)

    def row(at: int) -> str:
        row = stage.rows[at]
        lines = [text[at - 1] if at else None for text, at in zip(texts, (row.before, row.after), strict=True)]
        left, right = (line.instruction if line else None for line in lines)
        hover = ""
        if row.before is not None and row.after is None and row.before in stage.moved:
            hover = f' title="moved to line {stage.moved[row.before]}"'
        # Most lines are unchanged, and a page of thousands needs no class for them.
        look = f" m-{row.mark}" if row.mark != "same" else ""
        sides = "".join(_cell(line, sign, row.mark) for line, sign in zip(lines, _SIDES[row.mark], strict=True))
        return f'<div class="l{look}"{links.attributes(left, right)}{hover}>{sides}</div>'

    rows = "".join(_folded(stage, row, most_rows))
    width = len(str(max(len(stage.rows), 1)))
    return (
        f'<details class="pane" data-stage="{escaped(stage.name)}"{" open" if is_open else ""}>{head}'
        f'<div class="code" tabindex="0" role="region" aria-label="{title}, before and after">'
        f'<div class="pairs" style="--w:{width}">{rows}</div></div></details>'
    )


def _folded(stage: StageComparison, row: Callable[[int], str], left: int) -> Iterator[str]:
    from mithril_nb.analysis.compare.stages import runs

    rows = stage.rows
    for start, end in runs(rows):
        is_same = rows[start].mark == "same"
        # A run of differences is cut where the budget ends; a fold counts as what it contains.
        cut = start if left <= 0 else end if is_same else min(end, start + left)
        if not is_same:
            yield from map(row, range(start, cut))
        if cut < end:
            yield f'<div class="cut">{len(rows) - cut:,} more lines, not shown here</div>'
            return
        if not is_same:
            left -= end - start
            continue
        head, tail = _AROUND if start else 0, _AROUND if end < len(rows) else 0
        if end - start <= head + tail + 1:
            head, tail = end - start, 0
        yield from map(row, range(start, start + head))
        count = end - start - head - tail
        if count > min(left, _MOST_FOLDED):
            yield f'<div class="cut">{count:,} unchanged lines, not included</div>'
        elif count:
            inside = "".join(map(row, range(start + head, end - tail)))
            lines = f"{count:,} unchanged line{'' if count == 1 else 's'}"
            yield f'<details class="fold"><summary>{lines}</summary>{inside}</details>'
        yield from map(row, range(end - tail, end))
        left -= min(end - start, _MOST_FOLDED)


def _cell(line: StageLine | None, sign: str, mark: str) -> str:
    if line is None:
        return '<span class="n"></span><span class="g"></span><span class="x none"></span>'
    name = f' role="img" aria-label="{mark}"' if sign else ""
    code = code_html(line.pieces)
    return f'<span class="n">{line.number}</span><span class="g"{name}>{sign}</span><span class="x">{code}</span>'
