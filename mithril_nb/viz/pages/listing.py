"""Stages as static HTML: lines with numbers, and a stripe at the left in the colours of the line's blocks.

Without scripts, the number of a line is a link to the matching line of the next stage. With scripts, hovering over a
line highlights the matching lines of all stages.

The module also returns stages as data, for widgets and for saved pages. The front end reads them in
`kernel/messages.ts`. The attributes of instructions are columns of whole numbers, which compress well: a line is the
difference to the line before, and other values are indices into tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, repeat
from operator import sub
from typing import TYPE_CHECKING, Any, TypeVar

from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.stages.records import column_of, shared_by_kernel
from mithril_nb.stages.stage_kinds import language_of, title_of
from mithril_nb.viz.html_parts import link_script, output_html
from mithril_nb.viz.languages import code_html, highlighted, op_help
from mithril_nb.viz.palette import HUES, hue_of, hues_of_blocks
from mithril_nb.viz.text import block_key, count_more, cut_text, escaped
from mithril_nb.viz.units import percent

if TYPE_CHECKING:
    from mithril_nb.inspection import Inspection
    from mithril_nb.stages.records import Instruction, Stage


Value = TypeVar("Value")
MOST_LINES = 400
MOST_CHARACTERS = 400
_LATE = (1 << 60,)
_MANY_INPUTS = 24
ORIGINS: Mapping[str, str] = {"tagged": "tagged", "inferred": "inferred", "kernel": "linked at kernel level"}
"""Labels of `Instruction.origin`: how the blocks of an instruction were found."""


@dataclass(frozen=True)
class Line:
    """A line of a stage, with the innermost instruction that contains it.

    `pieces` are pairs of a CSS class and a text. `starts` is true if the instruction starts at this line.
    """

    number: int
    pieces: list[tuple[str, str]]
    instruction: Instruction | None
    starts: bool


@dataclass(frozen=True)
class _Look:
    """The look of a group of panes. `panes_html` documents the attributes."""

    hues: Mapping[str, int]
    key: str
    is_linked: bool
    _stripes: dict[int, list[tuple[str, float]]] = field(default_factory=dict)

    def stripe(self, shares: tuple[tuple[str, float], ...]) -> list[tuple[str, float]]:
        """Return the bars of a stripe, one for each colour of the blocks: CSS class and share."""
        if id(shares) not in self._stripes:  # the instructions keep their shares, so ids stay unique
            found: dict[str, float] = {}
            for block, share in shares:
                look = hue_class(block, self.hues)
                found[look] = found.get(look, 0.0) + share
            self._stripes[id(shares)] = list(found.items())
        return self._stripes[id(shares)]


def listing_html(
    *stages: Stage,
    hues: Mapping[str, int] | None = None,
    most_lines: int | None = MOST_LINES,
    scripts: bool = True,
) -> str:
    """Return stages side by side as one self-contained HTML fragment.

    Args:
        *stages: The stages.
        hues: Colours of blocks, as indices by path; default: the result of `hues_seen`.
        most_lines: Largest number of lines shown of each stage; `None` shows all.
        scripts: If true, a script highlights linked lines.

    Returns:
        HTML in which every character of the stages is escaped.
    """
    hues = hues_seen(stages) if hues is None else hues
    key = key_of(stages)
    body = panes_html(stages, hues, key, most_lines) + (link_script() if scripts else "")
    return output_html(body, "listing", kind="mnb mnb-linked", key=key)


def key_of(stages: Sequence[Stage]) -> str:
    """Return a key that distinguishes these stages from others on the same page, for ids. It depends on their texts."""
    return hashlib.sha256("\0".join(stage.text for stage in stages).encode("utf-8", "replace")).hexdigest()[:8]


def panes_html(
    stages: Sequence[Stage],
    hues: Mapping[str, int],
    key: str,
    most_lines: int | None = MOST_LINES,
    *,
    skip_inputs: bool = False,
    is_linked: bool = True,
) -> str:
    """Return one pane for each stage, without style sheet and script.

    Args:
        stages: The stages.
        hues: Colours of blocks, as indices by path.
        key: A text that no other panes on the page have, such as the result of `key_of`. It is part of HTML ids.
        most_lines: Largest number of lines shown of each stage; `None` shows all.
        skip_inputs: If true, and if the program has many inputs, the first lines are left out: they only list the
            inputs.
        is_linked: If true, lines contain the data that `link_script` needs.
    """
    starts = [_first_equation(stage) if skip_inputs else 1 for stage in stages]
    shown = [
        lines_of(stage, most_lines, start) if stage.text else [] for stage, start in zip(stages, starts, strict=True)
    ]
    targets = [_first_lines(lines) for lines in shown]
    look = _Look(hues, key, is_linked)
    panes = []
    for at, (stage, lines) in enumerate(zip(stages, shown, strict=True)):
        others = [(at + step) % len(stages) for step in range(1, len(stages))]
        links = [(stages[other].name, targets[other]) for other in others]
        panes.append("".join(_pane(stage, lines, look, links)))
    return f'<div class="panes">{"".join(panes)}</div>'


def listing_text(stage: Stage, most_lines: int | None = None) -> str:
    r"""Return the first `most_lines` lines of a stage. If it is unavailable, the reason comes first.

    Examples:
        >>> from mithril_nb.stages.records import Stage
        >>> print(listing_text(Stage("jaxpr", "a\nb\nc"), most_lines=2))
        a
        b
        ... 1 more line
    """
    known = cut_text(stage.text, most_lines)
    return known if stage.unavailable is None else f"{stage}\n{known}".rstrip("\n")


def hues_seen(stages: Sequence[Stage]) -> dict[str, int]:
    """Return the colours of blocks as `hues_of_blocks` does, as indices by path.

    The blocks are sorted by their first equation. All stages of a program refer to the same equations, so a block has
    the same colour in all of them.
    """
    first: dict[str, tuple[int, ...]] = {}
    for stage in stages:
        # All lines of a kernel share one tuple of thousands of equations, which is read once.
        for instr in {(id(one.equations), id(one.shares)): one for one in stage.instructions}.values():
            numbers = [_numbers(one) or _LATE for one in instr.equations] if len(instr.shares) == 1 else []
            for block, _ in instr.shares:
                first[block] = min(first.get(block, _LATE), *numbers, _LATE)
    return hues_of_blocks(sorted(first, key=first.__getitem__))


def blocks_of(stages: Iterable[Stage]) -> set[str]:
    """Return the paths of all blocks to which instructions of the stages are attributed."""
    shares = distinct(one for stage in stages for one in _values_of(stage, "shares"))
    return {path for one in shares for path, _ in one}


def distinct(values: Iterable[Value]) -> Iterable[Value]:
    """Return each object once. Objects are compared by identity.

    Comparing by value would take minutes: all lines of a kernel share one tuple of up to thousands of blocks.
    """
    kept = list(values)
    return dict(zip(map(id, kept), kept, strict=True)).values()


def _values_of(stage: Stage, name: str) -> list[Any]:
    """Return the values of an attribute of the instructions. In machine code, there is one value for each kernel."""
    shared = shared_by_kernel(stage.instructions, name)
    return column_of(stage.instructions, name) if shared is None else [value for value, _ in shared]


@lru_cache(maxsize=1 << 16)
def _numbers(equation: str) -> tuple[int, ...]:
    """Return an equation's id as numbers that sort in program order; `()` if the text is not the id of an equation."""
    parts = [part.lstrip("b") for part in equation.split(".")]
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def _pane(
    stage: Stage, lines: list[Line], look: _Look, links: Sequence[tuple[str, Mapping[str, int]]]
) -> Iterator[str]:
    title = escaped(title_of(stage.name))
    gone = "" if stage.unavailable is None else f'<p class="gone">not available: {escaped(stage.unavailable)}</p>'
    if not lines:
        yield f'<section class="pane" aria-label="{title}"><header><b>{title}</b></header>{gone}</section>'
        return
    total = stage.text.count("\n") + (0 if stage.text.endswith("\n") else 1)
    yield (
        f'<section class="pane" data-stage="{escaped(stage.name)}" aria-label="{title}"><header><b>{title}</b>'
        f'<span class="quiet">{total:,} line{"" if total == 1 else "s"}</span></header>{gone}'
        f'<div class="code" tabindex="0" role="region" aria-label="{title}, text">'
        f'<div class="lines" style="--w:{len(str(lines[-1].number if lines else 0))}">'
    )
    above = lines[0].number - 1 if lines else 0
    for line in lines:
        yield _row(stage.name, line, look, links)
    yield "</div></div>"
    if len(lines) < total:
        before = f", {above:,} of them before these" if above else ""
        yield f'<div class="cut">{count_more(total - len(lines))}, not shown here{before}</div>'
    yield "</section>"


def _row(stage: str, line: Line, look: _Look, links: Sequence[tuple[str, Mapping[str, int]]]) -> str:
    instr, number = line.instruction, line.number
    code = code_html(line.pieces)
    if instr is None or not (instr.equations or instr.shares):
        return (
            f'<div class="l"><span class="n">{number}</span><span class="s"></span><span class="x">{code}</span></div>'
        )
    data = ""
    if look.is_linked:
        of = " ".join(block_key(block) for block, _ in instr.shares)
        data = f' data-e="{escaped(" ".join(instr.equations))}" data-of="{escaped(of)}"'
    goal = next(
        (f"#mnb-{look.key}-{name}-{lines[at]}" for name, lines in links for at in instr.equations if at in lines), ""
    )
    count = f'<a class="n" href="{escaped(goal)}">{number}</a>' if goal else f'<span class="n">{number}</span>'
    looks = "s" + {"inferred": " i", "kernel": " k"}.get(instr.origin or "", "")
    looks += {"backward": " rb", "update": " ru"}.get(instr.role or "", "")
    parts = look.stripe(instr.shares)
    bars = "".join(
        f'<i class="{hue}"{"" if len(parts) == 1 else f" style=flex-grow:{share:.2f}"}></i>' for hue, share in parts
    )
    stripe = f'<span class="{looks}"><span>{bars}</span></span>' if bars else '<span class="s"></span>'
    return (
        f'<div class="l" id="mnb-{look.key}-{escaped(stage)}-{number}"{data} '
        f'title="{escaped(_tooltip(stage, instr))}">{count}{stripe}<span class="x">{code}</span></div>'
    )


def hue_class(block: str, hues: Mapping[str, int]) -> str:
    """Return the CSS class for the colour of a block: `"hx"` if it has none, as the loss."""
    hue = hue_of(block, hues)
    return "hx" if hue is None else f"h{hue % HUES}"


def _tooltip(stage: str, instr: Instruction) -> str:
    """Return the tooltip of an instruction."""
    shares = sorted(instr.shares, key=lambda pair: -pair[1])[:6]
    blocks = [block if len(instr.shares) == 1 else f"{block} {percent(share)}" for block, share in shares]
    origin = ORIGINS.get(instr.origin or "", "")
    parts = [", ".join(blocks) or UNATTRIBUTED_LABEL, instr.opcode, instr.role or "", origin]
    if instr.equations:
        listed = ", ".join(instr.equations[:8]) + (", …" if len(instr.equations) > 8 else "")
        parts.append(f"equation{'' if len(instr.equations) == 1 else 's'} {listed}")
    lines = [" · ".join(part for part in parts if part), op_help(stage, instr.opcode) or ""]
    lines.append(f"inside of {', '.join(instr.transforms)}" if instr.transforms else "")
    source = instr.source or instr.library_source  # showing both would make a page a tenth larger
    lines.append(", ".join(source[:4]) + (", …" if len(source) > 4 else ""))
    return "\n".join(line for line in lines if line)


def _first_equation(stage: Stage) -> int:
    """Return the line two above the first equation; 1 if there are at most `_MANY_INPUTS` lines before the equation."""
    line = next((one.line for one in _shown(stage) if any(_numbers(id) for id in one.equations)), 0)
    return line - 2 if line > _MANY_INPUTS else 1


def lines_of(stage: Stage, most: int | None, start: int = 1) -> list[Line]:
    """Return at most `most` lines from line `start` on, each with the innermost instruction that contains it."""
    end = -1 if most is None else start - 1 + most
    shown = stage.text.removesuffix("\n").split("\n", end)[start - 1 : None if end < 0 else end]
    end = start + len(shown)
    owner: dict[int, Instruction] = {}
    for instr in _shown(stage):  # in order of lines, so an inner instruction overrides the one around it
        if instr.line >= end:
            break
        for number in range(max(instr.line, start), min(instr.line + instr.lines, end)):
            owner[number] = instr
    short = "\n".join(line[:MOST_CHARACTERS] for line in shown)
    lines = []
    for number, (pieces, whole) in enumerate(
        zip(highlighted(short, language_of(stage.name)), shown, strict=True), start
    ):
        if len(whole) > MOST_CHARACTERS:
            pieces.append(("c", f" … {len(whole) - MOST_CHARACTERS:,} more characters"))
        instr = owner.get(number)
        lines.append(Line(number, pieces, instr, instr is not None and instr.line == number))
    return lines


def _shown(stage: Stage) -> Iterable[Instruction]:
    """Return the instructions of a stage without their operands, which are slow to read."""
    plain = getattr(stage.instructions, "without_operands", None)
    return stage.instructions if plain is None else plain()


def _first_lines(lines: Sequence[Line]) -> dict[str, int]:
    """Return the number of the first line of each equation, by id."""
    first: dict[str, int] = {}
    seen: set[int] = set()
    for line in lines:
        if line.instruction is not None and line.starts and id(line.instruction.equations) not in seen:
            seen.add(id(line.instruction.equations))  # all lines of a kernel share them
            for equation in line.instruction.equations:
                first.setdefault(equation, line.number)
    return first


_COLUMNS = {name: name for name in ("opcode", "equations", "shares", "role", "origin", "transforms", "source")}
_COLUMNS["library"] = "library_source"
"""For each column of the data, the attribute of an instruction."""


def stage_data(inspection: Inspection, stage: Stage) -> dict[str, Any]:
    """Return a stage as JSON-able data. It contains ids of equations, and `equation_data` returns the equations."""
    starts = column_of(stage.instructions, "line")
    columns: dict[str, list[int]] = {
        "step": list(map(sub, starts, [0, *starts])),
        "lines": column_of(stage.instructions, "lines"),
    }
    tables: dict[str, list[Any]] = {}
    for column, name in _COLUMNS.items():
        shared = shared_by_kernel(stage.instructions, name)
        if shared is None:
            columns[column], tables[column] = _indexed(column_of(stage.instructions, name))
        else:
            indices, tables[column] = _indexed([value for value, _ in shared])
            counts = [count for _, count in shared]
            columns[column] = [*chain.from_iterable(map(repeat, indices, counts))]
    searched = _searched(inspection, stage, columns, tables)
    return {
        "text": stage.text,
        **searched,
        "columns": columns,
        "tables": tables,
        "help": [(opcode, text) for opcode in tables["opcode"] if (text := op_help(stage.name, opcode)) is not None],
    }


def _searched(
    inspection: Inspection, stage: Stage, columns: dict[str, list[int]], tables: dict[str, list[Any]]
) -> dict[str, Any]:
    """Add to `columns` and `tables` the data of instructions that the search of the front end needs, such as dtypes.

    Return the kinds of blocks by path, under the key `"kinds"`. Only the first stage can be searched: for other stages,
    nothing is added, and the result is `{}`.
    """
    from mithril_nb.graph.query import NUMBERS
    from mithril_nb.inspection.finding import costs_of_stage, dtypes_of, numbers_of
    from mithril_nb.stages.program_stages import first_stage

    if stage.name != first_stage(inspection) or stage.unavailable is not None:
        return {}
    rows = costs_of_stage(inspection, stage.name)
    numbers = [numbers_of(one, rows.get(one.id)) for one in stage.instructions]
    columns["dtypes"], tables["dtypes"] = _indexed(dtypes_of(one.shapes) for one in stage.instructions)
    for key in NUMBERS:
        columns[key], tables[key] = _indexed(one[key] for one in numbers)
    return {"kinds": dict(inspection.block_kinds)}


def equation_data(inspection: Inspection, stages: Iterable[Stage]) -> dict[str, Any]:
    """Return the equations of the instructions of stages as data. An untraced program has none."""
    from mithril_nb.stages.program_stages import known_equations

    available = (stage for stage in stages if stage.unavailable is None)
    groups = distinct(one for stage in available for one in _values_of(stage, "equations"))
    used = {equation for group in groups for equation in group}
    known = [one for one in known_equations(inspection) if one.id in used] if used else []
    found: dict[str, Any] = {
        "id": [one.id for one in known],
        "source": [one.source_lines for one in known],
        "tables": {},
    }
    for column, values in (
        ("primitive", (one.primitive for one in known)),
        ("block", (one.block for one in known)),
        ("role", (one.role for one in known)),
    ):
        found[column], found["tables"][column] = _indexed(values)
    return found


def _indexed(values: Iterable[Hashable]) -> tuple[list[int], list[Any]]:
    """Return the index of each value in a list of distinct values, and this list."""
    kept = values if isinstance(values, list) else list(values)
    ids = list(map(id, kept))
    distinct = dict(zip(ids, kept, strict=True))
    if len(distinct) == 1:  # all lines of a kernel share their equations
        return [0] * len(kept), list(distinct.values())
    places: dict[Hashable, int] = {}
    place_of = {id: places.setdefault(value, len(places)) for id, value in distinct.items()}
    return list(map(place_of.__getitem__, ids)), list(places)
