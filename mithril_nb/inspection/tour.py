"""`Inspection.tour`: the moments of a lecture about a program, checked in advance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict

from mithril_nb.display import Shown, draw
from mithril_nb.errors import UnknownOptionError, listed, nearest, short_repr
from mithril_nb.graph.paths import lineage
from mithril_nb.stages.program_stages import ProgramStages, first_stage
from mithril_nb.stages.stage_kinds import title_of

_EXAMPLE = 'p.tour([ml.teach.Moment(("jaxpr", "hlo"), line=("jaxpr", 5), caption="Here")])'


@dataclass(frozen=True)
class Moment:
    """One moment of a lecture: one or two stages, and what is selected in them.

    Attributes:
        stages: Names of the stages, or one name. They are side by side, in the order of compilation.
        block: Path of the selected block; `""` for none.
        line: Instead of a block, the selected line: one of `stages`, and the number of the line, counted from 1. The
            lines of its equations are selected in all stages, on every device.
        caption: A sentence above the stages, as plain text.
        is_hidden: True if the second stage is hidden until the presenter reveals it.
    """

    stages: str | Sequence[str]
    block: str = ""
    line: tuple[str, int] | None = None
    caption: str = ""
    is_hidden: bool = False


class MomentData(TypedDict):
    """A moment for a front end. `equations` are those of the selected line."""

    stages: list[str]
    block: str
    equations: list[str]
    caption: str
    is_hidden: bool


@dataclass(frozen=True)
class Tour(Shown):
    """The moments of a lecture about a program. A notebook shows them in the explorer, in its lecture.

    Attributes:
        inspection: The program.
        moments: The moments.
        data: The moments as plain data, with the equations of the selected lines.
    """

    inspection: Any = field(repr=False)
    moments: tuple[Moment, ...]
    data: tuple[MomentData, ...] = field(repr=False)

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write the page of the program with this tour to a file, and return its path.

        Args:
            path: The file.
            **options: Options of `Inspection.to_html`, such as `stages` and `devices`.
        """
        self.inspection.to_html(path, tour=self, **options)
        return Path(path)

    def _ipython_display_(self) -> None:
        draw(self, "live")


def tour_of(program: ProgramStages, moments: Any) -> Tour:
    """Check the moments of a tour; see `Inspection.tour`."""
    if isinstance(moments, Tour):
        moments = moments.moments
    if not isinstance(moments, Sequence) or isinstance(moments, str):
        raise UnknownOptionError(f"a tour is a list of moments, not {short_repr(moments)}.", (), _EXAMPLE)
    checked = [_moment(entry, at) for at, entry in enumerate(moments, 1)]
    return Tour(program, tuple(checked), tuple(_data(program, entry, at) for at, entry in enumerate(checked, 1)))


def _error(at: int, problem: str, *facts: tuple[str, str]) -> UnknownOptionError:
    return UnknownOptionError(f"moment {at} of the tour {problem}.", facts, _EXAMPLE)


def _moment(entry: object, at: int) -> Moment:
    names = [attribute.name for attribute in fields(Moment)]
    if isinstance(entry, Mapping) and "stages" in entry and set(entry).issubset(names):
        entry = Moment(**entry)
    if not isinstance(entry, Moment):
        raise _error(
            at,
            f"is {short_repr(entry)}",
            ("needs", f"a Moment, or a dict with stages, and some of {', '.join(names[1:])}"),
        )
    if not (isinstance(entry.block, str) and isinstance(entry.caption, str) and isinstance(entry.is_hidden, bool)):
        raise _error(at, f"is {short_repr(entry, 200)}", ("needs", "texts as block and caption, a bool as is_hidden"))
    return entry


def _data(program: ProgramStages, moment: Moment, at: int) -> MomentData:
    stages = program.every_stage if program.given is None else program.given.stages
    names: list[Any] = list(moment.stages) if isinstance(moment.stages, list | tuple) else [moment.stages]
    for name in names:
        if name not in stages:
            raise _error(at, f"shows an unknown stage {short_repr(name)}", ("stages", ", ".join(stages)))
    if not 0 < len(set(names)) == len(names) < 3:
        raise _error(at, f"shows the stages {names}", ("needs", "one or two different stages"))
    if moment.is_hidden and len(names) < 2:
        raise _error(at, "hides the second stage, but shows one", ("needs", "two stages, or is_hidden=False"))
    if moment.block and moment.line is not None:
        raise _error(at, "selects a block and a line", ("needs", "one of them"))
    if moment.block:
        check_block(program, moment.block)
    return {
        "stages": sorted(names, key=stages.index),
        "block": moment.block,
        "equations": [] if moment.line is None else _equations(program, moment.line, names, at),
        "caption": moment.caption,
        "is_hidden": moment.is_hidden,
    }


def _equations(program: ProgramStages, line: object, names: Sequence[str], at: int) -> list[str]:
    match line:
        case [str(stage), int(number)] if stage in names and number is not True:
            pass
        case _:
            raise _error(at, f"selects the line {short_repr(line)}", ("needs", f"({names[0]!r}, 5), for example"))
    around = [each for each in program.stage(stage).instructions if each.line <= number < each.line + each.lines]
    equations = max(around, key=lambda each: each.line).equations if around else ()
    if not equations:
        reason = program.stage(stage).unavailable or "lines of brackets and constants, for example, have none"
        raise _error(
            at, f"selects line {number} of {title_of(stage)}, which belongs to no equation", ("reason", reason)
        )
    return list(equations)


def check_block(program: ProgramStages, path: object) -> None:
    """Check that a program has a block, or a group of blocks, at a path."""
    stage = program.stage(first_stage(program))
    shares = dict.fromkeys(each.shares for each in stage.instructions)
    paths = dict.fromkeys(outer for part in shares for block, _ in part for outer in lineage(block))
    paths |= dict.fromkeys(program.block_kinds)
    if path in paths:
        return
    near = nearest(path, paths) or next(iter(paths), None)
    facts = [("blocks", listed(paths))]
    facts += [("reason", stage.unavailable)] if stage.unavailable else []
    raise UnknownOptionError(
        f"program {program.name!r} has no block {short_repr(path)}.", tuple(facts), f"block={near!r}" if near else ""
    )
