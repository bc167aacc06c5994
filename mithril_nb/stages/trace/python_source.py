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
from mithril_nb.stages.inference import blend_equally, in_program_order
from mithril_nb.stages.records import Equation, Instruction, Read, Role, format_lines, lines_of_source

# Maximum length, in lines, of a function or class that is shown whole. Of a longer one, only inner parts are shown.
_LONGEST = 200

MODEL = "model"
"""Label of the Python that builds a model, used like the name of a file."""

_NOTHING = "# no line of your code created an equation of this program"


@dataclass(frozen=True)
class SourceLine:
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
    lines: Mapping[str, SourceLine], equations: Sequence[Equation], failure: Failure | None = None
) -> Read:
    """Return the source code of the functions that created equations, and an instruction for each line that did.

    Args:
        lines: The line that created each equation, by id.
        equations: The equations of the program.
        failure: The error of the trace; `None` if it succeeded.
    """
    return _printed([(lines[equation.id], [equation]) for equation in equations if equation.id in lines], failure)


def source_of_instructions(
    instructions: Iterable[Instruction], files: Mapping[str, str], equations: Mapping[str, Equation]
) -> Read:
    """Like `source_of_functions`, for a program that has no jaxpr: read the `source` of each instruction.

    `files`: A dict from the label of each file, as in `Instruction.source`, to its path.
    """
    pairs: list[tuple[SourceLine, Sequence[Equation]]] = []
    for instruction in instructions:
        own_equations = [equations[id] for id in instruction.equations if id in equations]
        for source in instruction.source:
            label, first, last = lines_of_source(source)
            pairs.append((SourceLine(files[label], label, first, last), own_equations))
    return _printed(pairs)


def _printed(found_at: Iterable[tuple[SourceLine, Sequence[Equation]]], failure: Failure | None = None) -> Read:
    equations_at: dict[SourceLine, dict[str, Equation]] = {}
    ends: dict[SourceLine, int] = {}
    for source_line, equations in found_at:
        equations_at.setdefault(source_line, {}).update((equation.id, equation) for equation in equations)
        ends[source_line] = max(ends.get(source_line, source_line.line), source_line.end_line)
    printed: list[str] = []
    instructions: list[Instruction] = []
    files: dict[str, list[SourceLine]] = {}
    for source_line in equations_at:
        files.setdefault(source_line.file, []).append(source_line)
    failed = failure.location if failure is not None else None
    if failure is not None and failed is not None:
        files.setdefault(failed[0], []).append(SourceLine(failed[0], failure.source.rpartition(":")[0], failed[1]))
    for file, here in files.items():
        lines = lines_of_file(file)
        requested = sorted({source_line.line for source_line in here})
        by_line = {source_line.line: source_line for source_line in here if source_line in equations_at}
        for first, last in spans(lines, requested):
            printed.append(f"# {format_lines(here[0].label, [first])}")
            for number in range(first, last + 1):
                code = lines[number - 1] if number <= len(lines) else "# the source is not available"
                printed.append(" ".join(code.splitlines()).rstrip())  # editors also break lines at form feeds
                if number in by_line:
                    count = min(ends[by_line[number]], last) - number + 1
                    instructions.append(
                        _instruction(
                            str(by_line[number]), len(printed), [*equations_at[by_line[number]].values()], count
                        )
                    )
                if failure is not None and failed == (file, number):
                    printed += [f"    !! {line}" for line in failure.reason]
            printed.append("")
    return "\n".join(printed or [_NOTHING, ""]), tuple(instructions)


def source_of_model(
    text: str, blocks: Mapping[int, str], equations: Sequence[Equation], lines: Mapping[str, SourceLine]
) -> Read:
    """Return the Python that builds a model, and an instruction for each line that adds a block.

    `blocks`: A dict from the number of each line of `text` that adds a block to the path of this block. `equations`:
    The equations of the program. `lines`: A dict from the id of each equation that belongs to no block to the line that
    created it.
    """
    # The source of the user's functions outside the model, such as a loss function, is appended.
    instructions = []
    for line, block in sorted(blocks.items()):
        inside = [
            equation for equation in equations if equation.block == block or equation.block.startswith(f"{block}/")
        ]
        instructions.append(_instruction(f"{MODEL}:{line}", line, inside))
    if lines:
        below, others = source_of_functions(lines, equations)
        first = text.count("\n") + 1
        text = f"{text}\n{below}"
        instructions += [replace(instruction, line=instruction.line + first) for instruction in others]
    return text, tuple(instructions)


def lines_of_file(file: str) -> list[str]:
    """Return the lines of a file; `[]` if it cannot be read."""
    linecache.checkcache(file)  # it may have been edited since the last read
    return linecache.getlines(file)


def _instruction(id: str, line: int, equations: Sequence[Equation], count: int = 1) -> Instruction:
    # Calls are left out, because the equations of their bodies are counted already.
    counted = [equation for equation in equations if not equation.is_call] or equations
    shares = blend_equally(counted)
    roles: set[Role | None] = {equation.role for equation in counted}
    return Instruction(
        id,
        "line",
        line,
        in_program_order(equation.id for equation in equations),
        shares,
        roles.pop() if len(roles) == 1 else None,  # most lines have a forward and a backward part
        "tagged" if shares else None,
        count,
        source=(id,),
    )


def spans(lines: Sequence[str], requested: Sequence[int]) -> list[tuple[int, int]]:
    """Return the ranges of lines to show around the requested lines, as pairs of first and last line."""
    # A range is the whole function or statement around a requested line. If the file cannot be parsed, it extends
    # from two lines before the requested line to two lines after. Ranges that touch are joined.
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
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
        if first <= line <= last:
            if last - first < _LONGEST:
                return first, last
            return _around(node, line) or (line, line)
    return None
