"""Two texts of a stage side by side. Each line that differs has a sign, and unchanged lines are folded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mithril_nb.stages.stage_kinds import title_of
from mithril_nb.viz.languages import code_html
from mithril_nb.viz.pages.listing import Line, lines_of
from mithril_nb.viz.text import block_key, escaped

if TYPE_CHECKING:
    from mithril_nb.analysis.compare import BlockChange, Comparison, StageComparison
    from mithril_nb.stages.records import Instruction

_AROUND = 2
"""Number of unchanged lines shown before and after a difference."""
_MOST_FOLDED = 300
"""Largest number of unchanged lines in a fold. If there are more, the page contains only their number."""
_SIGNS = {"same": ("", ""), "added": ("", "+"), "removed": ("−", ""), "changed": ("~", "~")}


class Links:
    """Texts that link rows on a page which compares a program before (left) and after a change (right).

    The page highlights rows with the same link. Corresponding blocks have the same link: the path of the block on the
    right. The link of corresponding equations is the id of the equation on the right.

    Args:
        found: The comparison.
    """

    def __init__(self, found: Comparison):
        self._paths = found.paths
        self._taken = {one.after for one in found.blocks if one.after is not None} | set(found.paths.values())
        self._equations = found.stage("jaxpr").matches if "jaxpr" in found.stages else {}

    def block(self, one: BlockChange) -> str:
        """Return the link of a block that differs between the sides, percent-encoded."""
        return block_key(self.path(one.path, is_left=one.after is None))

    def path(self, path: str, is_left: bool) -> str:
        """Return the link of a block on the left or right side.

        The link of a block that exists only on the left is its path. The text ` (removed)` is appended if another block
        on the right has this path.
        """
        if not is_left:
            return path
        return self._paths.get(path) or (f"{path} (removed)" if path in self._taken else path)

    def equation(self, id: str, is_left: bool) -> str:
        """Return the link of an equation. An equation that exists only on the left is linked by its id after a `b`."""
        return self._equations.get(id, f"b{id}") if is_left else id

    def attributes(self, left: Instruction | None, right: Instruction | None) -> str:
        """Return the HTML attributes that link a row with these instructions to other parts of the page."""
        equations: dict[str, None] = {}
        blocks: dict[str, None] = {}
        for one, is_left in ((left, True), (right, False)):
            if one is not None:
                equations |= dict.fromkeys(self.equation(id, is_left) for id in one.equations)
                blocks |= dict.fromkeys(block_key(self.path(path, is_left)) for path, _ in one.shares if path)
        found = f' data-e="{escaped(" ".join(equations))}"' if equations else ""
        return f'{found} data-of="{escaped(" ".join(blocks))}"' if blocks else found


def stage_html(found: StageComparison, links: Links, most_rows: int, *, is_open: bool) -> str:
    """Return a stage before and after the change, side by side, as HTML without a style sheet.

    Args:
        found: The stage on both sides.
        links: The links of the comparison.
        most_rows: Approximate limit of the number of rows.
        is_open: If true, the stage is unfolded at first.
    """
    title = escaped(title_of(found.name))
    head = f'<summary><b>{title}</b> <span class="quiet">{escaped(found.summary)}</span></summary>'
    if found.unavailable is not None:
        return f'<details class="pane">{head}<p class="gone">not available {escaped(found.unavailable)}</p></details>'
    rows = "".join(_Rows(found, links).html(most_rows))
    width = len(str(max(len(found.rows), 1)))
    return (
        f'<details class="pane" data-stage="{escaped(found.name)}"{" open" if is_open else ""}>{head}'
        f'<div class="code" tabindex="0" role="region" aria-label="{title}, before and after">'
        f'<div class="pairs" style="--w:{width}">{rows}</div></div></details>'
    )


class _Rows:
    def __init__(self, found: StageComparison, links: Links):
        self._found, self._links = found, links
        self._sides = lines_of(found.before, None), lines_of(found.after, None)

    def html(self, most: int) -> Iterator[str]:
        """Yield about `most` rows, and folds of unchanged rows."""
        from mithril_nb.analysis.compare.stages import runs

        rows, left = self._found.rows, most
        for start, end in runs(rows):
            if left <= 0:
                yield f'<div class="cut">{len(rows) - start:,} more lines, not shown here</div>'
                return
            if rows[start].mark != "same":
                yield from map(self._row, range(start, min(end, start + left)))
                if end - start > left:
                    yield f'<div class="cut">{len(rows) - start - left:,} more lines, not shown here</div>'
                    return
                left -= end - start
                continue
            head, tail = _AROUND if start else 0, _AROUND if end < len(rows) else 0
            if end - start <= head + tail + 1:
                head, tail = end - start, 0
            yield from map(self._row, range(start, start + head))
            yield from self._fold(start + head, end - tail, left)
            yield from map(self._row, range(end - tail, end))
            left -= min(end - start, _MOST_FOLDED)

    def _fold(self, start: int, end: int, most: int) -> Iterator[str]:
        count = end - start
        if not count:
            return
        if count > min(most, _MOST_FOLDED):
            yield f'<div class="cut">{count:,} unchanged lines, not included</div>'
            return
        inside = "".join(map(self._row, range(start, end)))
        lines = f"{count:,} unchanged line{'' if count == 1 else 's'}"
        yield f'<details class="fold"><summary>{lines}</summary>{inside}</details>'

    def _row(self, at: int) -> str:
        row = self._found.rows[at]
        lines = [side[at - 1] if at else None for side, at in zip(self._sides, (row.before, row.after), strict=True)]
        left, right = (line.instruction if line else None for line in lines)
        moved = ""
        if row.before is not None and row.after is None and row.before in self._found.moved:
            moved = f"moved to line {self._found.moved[row.before]}"
        look = f" m-{row.mark}" if row.mark != "same" else ""
        hover = f' title="{moved}"' if moved else ""
        sides = "".join(_cell(line, sign, row.mark) for line, sign in zip(lines, _SIGNS[row.mark], strict=True))
        return f'<div class="l{look}"{self._links.attributes(left, right)}{hover}>{sides}</div>'


def _cell(line: Line | None, sign: str, mark: str) -> str:
    if line is None:
        return '<span class="n"></span><span class="g"></span><span class="x none"></span>'
    name = f' role="img" aria-label="{mark}"' if sign else ""
    code = code_html(line.pieces)
    return f'<span class="n">{line.number}</span><span class="g"{name}>{sign}</span><span class="x">{code}</span>'
