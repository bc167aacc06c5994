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
from mithril_nb.stages.inference import blend, by_place
from mithril_nb.stages.records import Equation, Instruction, Role, format_lines, lines_of_source

_LONGEST = 200
"""Longest function or class, in lines, that is shown whole; of a longer one, only the functions that matter inside."""

MODEL = "model"
"""Label of the Python that builds a model, used like the name of a file."""

_NOTHING = "# no line of your code created an equation of this program"


@dataclass(frozen=True)
class Place:
    """A line of Python.

    Attributes:
        file: Path of the file, as Python reports it.
        label: Short name of the file for display.
        line: Number of the line, from 1.
        end_line: Last line of the expression that begins there; 0 for the same line.
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
    """Return the functions that created equations, and an instruction for each line that created any.

    Args:
        places: The line that created each equation, by id; equations without a line of the user are left out.
        equations: The equations.
        failure: The error of a stage. Its reason is inserted below the line that raised it, with `!!` before each line.
    """
    return _shown([(places[one.id], [one]) for one in equations if one.id in places], failure)


def source_of_instructions(
    instructions: Iterable[Instruction], files: Mapping[str, str], equations: Mapping[str, Equation]
) -> tuple[str, tuple[Instruction, ...]]:
    """Return the functions behind the instructions of a stage, and an instruction for each line that created any.

    Args:
        instructions: The instructions, with their lines.
        files: Path of each file by its label.
        equations: The equations of the instructions by id.
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

    The source of functions that created equations outside all blocks, such as a loss function, is appended.

    Args:
        text: The Python.
        blocks: A mapping from the number of a line to the path of the block that this line adds.
        equations: The equations.
        places: A mapping from the id of each equation outside all blocks to the line that created it.
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
    """Return the current lines of a file, with their line ends; `[]` if the file is not available."""
    linecache.checkcache(file)  # it may have been edited since the last read
    return linecache.getlines(file)


def _instruction(id: str, line: int, made: Sequence[Equation], count: int = 1) -> Instruction:
    # A call would count the equations of its body twice.
    counted = [one for one in made if not one.is_call] or made
    shares = blend((((one.block, 1.0),) if one.block else (), 1.0) for one in counted)
    roles: set[Role | None] = {one.role for one in counted}
    return Instruction(
        id,
        "line",
        line,
        tuple(sorted({one.id for one in made}, key=by_place)),
        shares,
        roles.pop() if len(roles) == 1 else None,  # most lines have a forward and a backward part
        "tagged" if shares else None,
        count,
        source=(id,),
    )


def _unbroken(code: str) -> str:
    """Return a line of Python without characters that other programs treat as line breaks, such as form feeds."""
    return " ".join(code.splitlines()).rstrip()


def spans(lines: Sequence[str], requested: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last line of each statement around the requested lines, in order; adjacent ones are joined.

    If the file cannot be parsed, two lines before and after each requested line are used instead.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # Python warned when it imported the file
            tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):  # a cell with magics, a changed file, a binary file
        spans = [(max(line - 2, 1), min(line + 2, max(len(lines), line))) for line in requested]
    else:
        spans = sorted({_around(tree, line) or (line, line) for line in requested})
    joined: list[tuple[int, int]] = []
    # Statements on adjacent lines are shown as one piece.
    for first, last in spans:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined


def _around(tree: ast.AST, line: int) -> tuple[int, int] | None:
    """Return the largest statement around a line that is short enough to be shown whole."""
    for node in ast.iter_child_nodes(tree):
        # These contain statements, but are not statements themselves.
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
