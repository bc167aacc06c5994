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
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, repeat
from operator import sub
from typing import TYPE_CHECKING, Any, TypeVar

from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.graph.query import NUMBERS
from mithril_nb.stages.records import Instruction, Stage, column_of, shared_by_kernel
from mithril_nb.stages.stage_kinds import language_of, title_of
from mithril_nb.teach.explain_help import line_help, op_help, patterns_in
from mithril_nb.viz.html_parts import link_script, output_html
from mithril_nb.viz.languages import code_html, highlighted
from mithril_nb.viz.palette import HUES, hue_of, hues_of_blocks
from mithril_nb.viz.text import block_key, count_more, cut_text, escaped
from mithril_nb.viz.units import percent

if TYPE_CHECKING:
    from mithril_nb.inspection import Inspection

Value = TypeVar("Value")
MOST_LINES = 400
MOST_CHARACTERS = 400
_LATE = (1 << 60,)
_MANY_INPUTS = 24
# Labels of `Instruction.origin`: how the blocks of an instruction were found.
ORIGINS: Mapping[str, str] = {"tagged": "tagged", "inferred": "inferred", "kernel": "linked at kernel level"}


@dataclass(frozen=True)
class StageLine:
    """A line of a stage, as pairs of a CSS class and a text, with the innermost instruction that contains it."""

    number: int
    pieces: list[tuple[str, str]]
    instruction: Instruction | None


def listing_html(*stages: Stage, most_lines: int | None = MOST_LINES) -> str:
    """Return stages side by side as one self-contained HTML fragment."""
    key = key_of(stages)
    body = panes_html(stages, hues_seen(stages), key, most_lines) + link_script()
    return output_html(body, "listing", kind="mnb mnb-linked", key=key)


def key_of(stages: Sequence[Stage]) -> str:
    """Return a key that distinguishes these stages from others on the same page, for ids. It depends on their texts."""
    # A name may contain half of a surrogate pair, which UTF-8 cannot encode.
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
        key: Distinguishes the ids of the lines from others on the page.
        most_lines: Largest number of lines of a stage.
        skip_inputs: If true, a pane starts near the first equation: the inputs of a large program fill a screen.
        is_linked: If false, the lines lack the ids of their equations and blocks, which a script reads.
    """
    panes_lines = [
        lines_of(stage, most_lines, _first_equation(stage) if skip_inputs else 1) if stage.text else []
        for stage in stages
    ]
    targets = [(stage.name, _first_lines(lines)) for stage, lines in zip(stages, panes_lines, strict=True)]

    @cache  # the lines of a kernel share up to thousands of blocks
    def stripe(shares: tuple[tuple[str, float], ...]) -> str:
        by_hue: dict[str, float] = {}
        for block, share in shares:
            hue = hue_class(block, hues)
            by_hue[hue] = by_hue.get(hue, 0.0) + share
        # Without quotes: a page may have a stripe on each of 200,000 lines.
        widths = {hue: f" style=flex-grow:{share:.2f}" if len(by_hue) > 1 else "" for hue, share in by_hue.items()}
        return "".join(f'<i class="{hue}"{width}></i>' for hue, width in widths.items())

    def row(stage: str, line: StageLine, links: Sequence[tuple[str, Mapping[str, int]]]) -> str:
        instr, number = line.instruction, line.number
        code = f'<span class="x">{code_html(line.pieces)}</span></div>'
        if instr is None or not (instr.equations or instr.shares):
            return f'<div class="l"><span class="n">{number}</span><span class="s"></span>{code}'
        data = ""
        if is_linked:
            of = " ".join(block_key(block) for block, _ in instr.shares)
            data = f' data-e="{escaped(" ".join(instr.equations))}" data-of="{escaped(of)}"'
        goal = next(
            (f"#mnb-{key}-{name}-{lines[at]}" for name, lines in links for at in instr.equations if at in lines), ""
        )
        count = f'<a class="n" href="{escaped(goal)}">{number}</a>' if goal else f'<span class="n">{number}</span>'
        looks = "s" + {"inferred": " i", "kernel": " k"}.get(instr.origin or "", "")
        looks += {"backward": " rb", "update": " ru"}.get(instr.role or "", "")
        bars = stripe(instr.shares)
        bars = f'<span class="{looks}"><span>{bars}</span></span>' if bars else '<span class="s"></span>'
        return (
            f'<div class="l" id="mnb-{key}-{escaped(stage)}-{number}"{data} '
            f'title="{escaped(_tooltip(stage, instr, line.pieces))}">{count}{bars}{code}'
        )

    def pane(stage: Stage, lines: Sequence[StageLine], links: Sequence[tuple[str, Mapping[str, int]]]) -> Iterator[str]:
        title = escaped(title_of(stage.name))
        gone = "" if stage.unavailable is None else f'<p class="gone">not available: {escaped(stage.unavailable)}</p>'
        if not lines:
            yield f'<section class="pane" aria-label="{title}"><header><b>{title}</b></header>{gone}</section>'
            return
        total = count_lines(stage.text)
        yield (
            f'<section class="pane" data-stage="{escaped(stage.name)}" aria-label="{title}"><header><b>{title}</b>'
            f'<span class="quiet">{total:,} line{"" if total == 1 else "s"}</span></header>{gone}'
            f'<div class="code" tabindex="0" role="region" aria-label="{title}, text">'
            f'<div class="lines" style="--w:{len(str(lines[-1].number))}">'
        )
        for line in lines:
            yield row(stage.name, line, links)
        yield "</div></div>"
        if len(lines) < total:
            above = lines[0].number - 1
            before = f", {above:,} of them before these" if above else ""
            yield f'<div class="cut">{count_more(total - len(lines))}, not shown here{before}</div>'
        yield "</section>"

    panes = (
        "".join(pane(stage, lines, [*targets[at + 1 :], *targets[:at]]))
        for at, (stage, lines) in enumerate(zip(stages, panes_lines, strict=True))
    )
    return f'<div class="panes">{"".join(panes)}</div>'


def count_lines(text: str) -> int:
    """Return the number of lines of a text, whose last line may lack a line break."""
    return text.count("\n") + (not text.endswith("\n"))


def listing_text(stage: Stage, most_lines: int | None = None) -> str:
    """Return the first `most_lines` lines of a stage. If it is unavailable, the reason comes first."""
    text = cut_text(stage.text, most_lines)
    return text if stage.unavailable is None else f"{stage}\n{text}".rstrip("\n")


def hues_seen(stages: Sequence[Stage]) -> dict[str, int]:
    """Return the colours of blocks as `hues_of_blocks` does, as indices by path.

    The blocks are sorted by their first equation. All stages of a program refer to the same equations, so a block has
    the same colour in all of them.
    """
    first: dict[str, tuple[int, ...]] = {}
    for stage in stages:
        # All lines of a kernel share one tuple of thousands of equations, which is read once.
        for instr in {
            (id(instruction.equations), id(instruction.shares)): instruction for instruction in stage.instructions
        }.values():
            numbers = [_numbers(equation) or _LATE for equation in instr.equations] if len(instr.shares) == 1 else []
            for block, _ in instr.shares:
                first[block] = min(first.get(block, _LATE), *numbers, _LATE)
    return hues_of_blocks(sorted(first, key=first.__getitem__))


def blocks_of(stages: Iterable[Stage]) -> set[str]:
    """Return the paths of all blocks to which instructions of the stages are attributed."""
    shares = distinct(shares for stage in stages for shares in _values_of(stage, "shares"))
    return {path for part in shares for path, _ in part}


def distinct(values: Iterable[Value]) -> Iterable[Value]:
    """Return each object once. Objects are compared by identity.

    Comparing by value would take minutes: all lines of a kernel share one tuple of up to thousands of blocks.
    """
    as_list = list(values)
    return dict(zip(map(id, as_list), as_list, strict=True)).values()


# The instructions of a kernel share their values: in machine code, one value for each kernel is enough.
def _values_of(stage: Stage, name: str) -> list[Any]:
    shared = shared_by_kernel(stage.instructions, name)
    return column_of(stage.instructions, name) if shared is None else [value for value, _ in shared]


# Numbers sort in program order, ids as texts do not.
@lru_cache(maxsize=1 << 16)
def _numbers(equation: str) -> tuple[int, ...]:
    # Ids of equations inside a branch contain `b` and the number of the branch.
    parts = [part.lstrip("b") for part in equation.split(".")]
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def hue_class(block: str, hues: Mapping[str, int]) -> str:
    """Return the CSS class for the colour of a block: `"hx"` if it has none, as the loss."""
    hue = hue_of(block, hues)
    return "hx" if hue is None else f"h{hue % HUES}"


def _tooltip(stage: str, instr: Instruction, pieces: Iterable[tuple[str, str]]) -> str:
    shares = sorted(instr.shares, key=lambda pair: -pair[1])[:6]
    blocks = [block if len(instr.shares) == 1 else f"{block} {percent(share)}" for block, share in shares]
    origin = ORIGINS.get(instr.origin or "", "")
    parts = [", ".join(blocks) or UNATTRIBUTED_LABEL, instr.opcode, instr.role or "", origin]
    if instr.equations:
        listed = ", ".join(instr.equations[:8]) + (", …" if len(instr.equations) > 8 else "")
        parts.append(f"equation{'' if len(instr.equations) == 1 else 's'} {listed}")
    lines = [" · ".join(part for part in parts if part), op_help(stage, instr.opcode) or ""]
    lines += line_help(stage, "".join(text for _, text in pieces))
    lines.append(f"inside of {', '.join(instr.transforms)}" if instr.transforms else "")
    source = instr.source or instr.library_source  # showing both would make a page a tenth larger
    lines.append(", ".join(source[:4]) + (", …" if len(source) > 4 else ""))
    return "\n".join(line for line in lines if line)


def _first_equation(stage: Stage) -> int:
    equations = (instr.line for instr in without_operands(stage) if any(map(_numbers, instr.equations)))
    line = next(equations, 0)
    return line - 2 if line > _MANY_INPUTS else 1


def lines_of(stage: Stage, most: int | None, start: int = 1) -> list[StageLine]:
    """Return at most `most` lines from line `start` on, each with the innermost instruction that contains it."""
    end = -1 if most is None else start - 1 + most
    # Only these lines are split: machine code may have 200,000.
    texts = stage.text.removesuffix("\n").split("\n", end)[start - 1 : None if end < 0 else end]
    end = start + len(texts)
    owner: dict[int, Instruction] = {}
    for instr in without_operands(stage):  # in order of lines, so an inner instruction overrides the one around it
        if instr.line >= end:
            break
        for number in range(max(instr.line, start), min(instr.line + instr.lines, end)):
            owner[number] = instr
    short = "\n".join(line[:MOST_CHARACTERS] for line in texts)
    lines = []
    for number, pieces in enumerate(highlighted(short, language_of(stage.name)), start):
        more = len(texts[number - start]) - MOST_CHARACTERS
        if more > 0:
            pieces.append(("c", f" … {more:,} more characters"))
        lines.append(StageLine(number, pieces, owner.get(number)))
    return lines


def without_operands(stage: Stage) -> Iterable[Instruction]:
    """Return the instructions of a stage without reading their operands, which takes long for a large program."""
    plain = getattr(stage.instructions, "without_operands", None)
    return stage.instructions if plain is None else plain()


def _first_lines(lines: Sequence[StageLine]) -> dict[str, int]:
    first: dict[str, int] = {}
    seen: set[int] = set()
    for line in lines:
        instr = line.instruction
        if instr is not None and instr.line == line.number and id(instr.equations) not in seen:
            seen.add(id(instr.equations))  # all lines of a kernel share them
            for equation in instr.equations:
                first.setdefault(equation, line.number)
    return first


_COLUMNS = {name: name for name in ("opcode", "equations", "shares", "role", "origin", "transforms", "source")}
# For each column of the data, the attribute of an instruction.
_COLUMNS["library"] = "library_source"


def stage_data(inspection: Inspection, stage: Stage) -> dict[str, Any]:
    """Return a stage as JSON-able data. It contains ids of equations, and `equation_data` returns the equations."""
    from mithril_nb.inspection.finding import costs_of_stage, dtypes_of, numbers_of
    from mithril_nb.stages.program_stages import first_stage

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
            values, counts = zip(*shared, strict=True) if shared else ((), ())
            indices, tables[column] = _indexed(values)
            columns[column] = [*chain.from_iterable(map(repeat, indices, counts))]
    data: dict[str, Any] = {"text": stage.text}
    if stage.name == first_stage(inspection) and stage.unavailable is None:  # only the first stage can be searched
        data["kinds"] = dict(inspection.block_kinds)
        rows = costs_of_stage(inspection, stage.name)
        numbers = [numbers_of(instr, rows.get(instr.id)) for instr in stage.instructions]
        columns["dtypes"], tables["dtypes"] = _indexed(dtypes_of(instr.shapes) for instr in stage.instructions)
        for key in NUMBERS:
            columns[key], tables[key] = _indexed(row[key] for row in numbers)
    texts = ((opcode, op_help(stage.name, opcode)) for opcode in tables["opcode"])
    if patterns := patterns_in(stage.name, stage.text):
        data["patterns"] = patterns
    return {**data, "columns": columns, "tables": tables, "help": [pair for pair in texts if pair[1] is not None]}


def equation_data(inspection: Inspection, stages: Iterable[Stage]) -> dict[str, Any]:
    """Return the equations of the instructions of stages as data. An untraced program has none."""
    from mithril_nb.stages.program_stages import known_equations

    available = (stage for stage in stages if stage.unavailable is None)
    groups = distinct(group for stage in available for group in _values_of(stage, "equations"))
    used = {equation for group in groups for equation in group}
    rows = [row for row in known_equations(inspection) if row.id in used] if used else []
    data: dict[str, Any] = {"id": [row.id for row in rows], "source": [row.source_lines for row in rows], "tables": {}}
    for column in ("primitive", "block", "role"):
        data[column], data["tables"][column] = _indexed(getattr(row, column) for row in rows)
    return data


def _indexed(values: Iterable[Hashable]) -> tuple[list[int], list[Any]]:
    as_list = list(values)
    by_id = dict(zip(map(id, as_list), as_list, strict=True))
    if len(by_id) == 1:  # all lines of a kernel share their equations
        return [0] * len(as_list), list(by_id.values())
    indices: dict[Hashable, int] = {}
    index_of = {id: indices.setdefault(value, len(indices)) for id, value in by_id.items()}
    return [index_of[id(value)] for value in as_list], list(indices)
