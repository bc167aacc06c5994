"""The Python behind a program as a stage: the user's functions, with the equations that each line created.

For a mithril_nb model it is the Python that builds the model, with the block that each line adds.
"""

from __future__ import annotations

import ast
import linecache
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mithril_nb.stages.failure import Failure
from mithril_nb.stages.inference import blend, program_order
from mithril_nb.stages.records import Equation, Instruction, Role, format_lines, lines_of_source

_LONGEST = 200
"""Maximum length, in lines, of a function or class that is shown whole. Of a longer one, only inner parts are shown."""

MODEL = "model"
"""Label of the Python that builds a model, used like the name of a file."""

_NOTHING = "# no line of your code created an equation of this program"


@dataclass(frozen=True)
class Place:
    """A line of Python that created equations.

    Attributes:
        file: Path of the file, as Python reports it.
        label: Short name of the file for display.
        line: Number of the line, from 1.
        end_line: Last line of the expression that created the equations; 0 if it has only one line.
    """

    file: str
    label: str
    line: int
    end_line: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.label}:{self.line}"


def source_of_functions(
    places: Mapping[str, Place], equations: Sequence[Equation], failure: Failure | None = None
) -> tuple[str, tuple[Instruction, ...]]:
    """Return the source code of the functions that created equations, and an instruction for each line that did.

    Args:
        places: The line that created each equation, by id. Equations without a line are ignored.
        equations: The equations of the program.
        failure: The error of the trace; `None` if it succeeded. It is inserted below the line that raised it, in lines
            that start with !!.
    """
    return _shown([(places[one.id], [one]) for one in equations if one.id in places], failure)


def source_of_instructions(
    instructions: Iterable[Instruction], files: Mapping[str, str], equations: Mapping[str, Equation]
) -> tuple[str, tuple[Instruction, ...]]:
    """Like `source_of_functions`, for a program that has no jaxpr: read the `source` of each instruction.

    Args:
        instructions: The instructions of a stage.
        files: A dict from the label of each file, as in `Instruction.source`, to its path.
        equations: A dict from the ids in `Instruction.equations` to the equations.
    """
    found: list[tuple[Place, Sequence[Equation]]] = []
    for one in instructions:
        made = [equations[id] for id in one.equations if id in equations]
        for source in one.source:
            label, first, last = lines_of_source(source)
            found.append((Place(files[label], label, first, last), made))
    return _shown(found)


def _shown(
    found_at: Iterable[tuple[Place, Sequence[Equation]]], failure: Failure | None = None
) -> tuple[str, tuple[Instruction, ...]]:
    made: dict[Place, dict[str, Equation]] = {}
    ends: dict[Place, int] = {}
    for place, equations in found_at:
        made.setdefault(place, {}).update((one.id, one) for one in equations)
        ends[place] = max(ends.get(place, place.line), place.end_line)
    shown: list[str] = []
    found: list[Instruction] = []
    files: dict[str, list[Place]] = {}
    for place in made:
        files.setdefault(place.file, []).append(place)
    failed = failure.place if failure is not None else None
    if failure is not None and failed is not None:
        files.setdefault(failed[0], []).append(Place(failed[0], failure.source.rpartition(":")[0], failed[1]))
    for file, here in files.items():
        lines = lines_of_file(file)
        requested = sorted({place.line for place in here})
        by_line = {place.line: place for place in here if place in made}
        for first, last in spans(lines, requested):
            shown.append(f"# {format_lines(here[0].label, [first])}")
            for number in range(first, last + 1):
                shown.append(_unbroken(lines[number - 1]) if number <= len(lines) else "# the source is not available")
                if number in by_line:
                    count = min(ends[by_line[number]], last) - number + 1
                    found.append(
                        _instruction(str(by_line[number]), len(shown), [*made[by_line[number]].values()], count)
                    )
                if failure is not None and failed == (file, number):
                    shown += [f"    !! {line}" for line in failure.reason]
            shown.append("")
    return "\n".join(shown or [_NOTHING, ""]), tuple(found)


def source_of_model(
    text: str, blocks: Mapping[int, str], equations: Sequence[Equation], places: Mapping[str, Place]
) -> tuple[str, tuple[Instruction, ...]]:
    """Return the Python that builds a model, and an instruction for each line that adds a block.

    The source of the user's functions outside the model, such as a loss function, is appended.

    Args:
        text: The Python that builds the model.
        blocks: A dict from the number of each line of `text` that adds a block to the path of this block.
        equations: The equations of the program.
        places: A dict from the id of each equation that belongs to no block to the line that created it.
    """
    found = []
    for line, block in sorted(blocks.items()):
        inside = [one for one in equations if one.block == block or one.block.startswith(f"{block}/")]
        found.append(_instruction(f"{MODEL}:{line}", line, inside))
    if places:
        below, others = source_of_functions(places, equations)
        first = text.count("\n") + 1
        text = f"{text}\n{below}"
        found += [replace(one, line=one.line + first) for one in others]
    return text, tuple(found)


def lines_of_file(file: str) -> list[str]:
    """Return the lines of a file; `[]` if it cannot be read."""
    linecache.checkcache(file)  # it may have been edited since the last read
    return linecache.getlines(file)


def _instruction(id: str, line: int, made: Sequence[Equation], count: int = 1) -> Instruction:
    # Calls are left out, because the equations of their bodies are counted already.
    counted = [one for one in made if not one.is_call] or made
    shares = blend((((one.block, 1.0),) if one.block else (), 1.0) for one in counted)
    roles: set[Role | None] = {one.role for one in counted}
    return Instruction(
        id,
        "line",
        line,
        tuple(sorted({one.id for one in made}, key=program_order)),
        shares,
        roles.pop() if len(roles) == 1 else None,  # most lines have a forward and a backward part
        "tagged" if shares else None,
        count,
        source=(id,),
    )


def _unbroken(code: str) -> str:
    """Return a line of Python without form feeds and other characters that editors treat as line breaks."""
    return " ".join(code.splitlines()).rstrip()


def spans(lines: Sequence[str], requested: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ranges of lines to show around the requested lines, as pairs of first and last line.

    A range is the whole function or statement around a requested line. If the file cannot be parsed, it extends from
    two lines before the requested line to two lines after. Ranges that touch are joined.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # Python warned when it imported the file
            tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):  # a cell with magics, a changed file, a binary file
        spans = [(max(line - 2, 1), min(line + 2, max(len(lines), line))) for line in requested]
    else:
        spans = sorted({_around(tree, line) or (line, line) for line in requested})
    joined: list[tuple[int, int]] = []

    for first, last in spans:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined


def _around(tree: ast.AST, line: int) -> tuple[int, int] | None:
    """Return first and last line of the largest statement around a line that has at most `_LONGEST` lines."""
    for node in ast.iter_child_nodes(tree):
        # `except` and `case` clauses contain statements, but are not statements.
        if isinstance(node, (ast.ExceptHandler, ast.match_case)):
            inner = _around(node, line)
            if inner is not None:
                return inner
        last = getattr(node, "end_lineno", None)
        if not isinstance(node, ast.stmt) or last is None:
            continue
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        if first <= line <= last:
            if last - first < _LONGEST:
                return first, last
            return _around(node, line) or (line, line)
    return None
