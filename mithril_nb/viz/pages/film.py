"""One block from Python to machine code: its lines in each stage, and a small player that moves linked lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from mithril_nb.display import Shown
from mithril_nb.graph.paths import is_within
from mithril_nb.stages.records import Instruction, Stage
from mithril_nb.stages.stage_kinds import has_machine_code, language_of, title_of
from mithril_nb.viz.html_parts import output_html, page_html, paragraphs, write_page
from mithril_nb.viz.languages import code_html, highlighted
from mithril_nb.viz.pages.listing import MOST_CHARACTERS, distinct, without_operands
from mithril_nb.viz.text import escaped, one_line

if TYPE_CHECKING:
    from mithril_nb.inspection import Inspection
MOST_LINES = 40
_MARKS = {
    "linked": '<span class="m"></span>',
    "away": '<span class="m" title="linked to a line that the film does not show">…</span>',
    "new": '<span class="m" title="no link to the stage before">+</span>',
}
_SECTIONS = ("heading", "listing")


@dataclass(frozen=True)
class FilmLine:
    """A line of a stage.

    Attributes:
        number: Number of the line in the text of the stage.
        text: The line.
        before: Indices of the linked lines in the stage before.
        is_linked: True if it is linked to any line of the stage before, shown or not.
        origin: How its block was found: `"tagged"`, `"inferred"` or `"kernel"`; `None` if unknown.
    """

    number: int
    text: str
    before: tuple[int, ...]
    is_linked: bool
    origin: str | None


@dataclass(frozen=True)
class FilmStage:
    """The lines of the block in one stage; `count` is their number, and `lines` are the first of them."""

    name: str
    lines: tuple[FilmLine, ...]
    count: int

    def summary(self, before: str) -> str:
        """Return how many lines there are, and how they are linked to the stage `before`, if any."""
        parts = [f"{self.count:,} line{'' if self.count == 1 else 's'} of the block"]
        if len(self.lines) < self.count:
            parts.append(f"the first {len(self.lines)} are shown")
        if before:
            away = sum(line.is_linked and not line.before for line in self.lines)
            new = sum(not line.is_linked for line in self.lines)
            parts.append(f"{len(self.lines) - away - new} linked to lines of {title_of(before)}")
            parts += [f"{away} linked to lines that are not shown (…)"] * bool(away)
            parts += [f"{new} without a link (+)"] * bool(new)
        origins = [line.origin for line in self.lines]
        parts += [f"{origins.count('inferred')} inferred"] * ("inferred" in origins)
        parts += ["linked at kernel level"] * ("kernel" in origins)
        return ", ".join(parts)


@dataclass(frozen=True)
class Film(Shown):
    """One block of a program, from Python to machine code.

    A notebook shows a player; without scripts, it shows the lines of all stages below each other.

    Attributes:
        name: Name of the program.
        block: Path of the block.
        stages: The stages with lines of the block, in order.
        notes: The stages that are left out, with the reasons.
    """

    name: str
    block: str
    stages: tuple[FilmStage, ...] = field(repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def text(self) -> str:
        """The number of lines in each stage, and their links."""
        stages = map("{}: {}".format, (title_of(stage.name) for stage in self.stages), self._summaries)
        return "\n".join([f"film of {self.block!r} in {self.name!r}", *stages, *self.notes])

    @property
    def html(self) -> str:
        """The player as HTML for the output of a cell."""
        return output_html(f"<h2>{escaped(one_line(self.block))}</h2>{self._player}", *_SECTIONS)

    def save(self, path: str | Path) -> Path:
        """Write the player to an HTML file, which needs no network and no kernel, and return its path."""
        about = f"in {one_line(self.name)}, from Python to machine code, by mithril_nb"
        write_page(page_html(self.block, about, self._player, *_SECTIONS, "page", kind="mnb-film", scripts=""), path)
        return Path(path)

    @property
    def _summaries(self) -> list[str]:
        before = ["", *(stage.name for stage in self.stages[:-1])]
        return [stage.summary(name) for name, stage in zip(before, self.stages, strict=True)]

    @property
    def _player(self) -> str:
        parts = {
            "label": escaped(one_line(f"Film of {self.block}")),
            "rows": str(max((len(stage.lines) for stage in self.stages), default=0)),
            "bar": "".join(f'<li><button type="button">{title_of(stage.name)}</button></li>' for stage in self.stages),
            "stages": "".join(
                _stage_html(stage, summary, is_first=at == 0)
                for at, (stage, summary) in enumerate(zip(self.stages, self._summaries, strict=True))
            ),
            "notes": paragraphs(self.notes),
        }
        # One pass, because a line may contain the name of a part.
        return re.sub(r"\$(\w+)", lambda name: parts.get(name[1], name[0]), _template())


@cache
def _template() -> str:
    return files("mithril_nb.viz.pages").joinpath("film.html").read_text(encoding="utf-8")


def _stage_html(stage: FilmStage, summary: str, *, is_first: bool) -> str:
    title = title_of(stage.name)
    code = highlighted("\n".join(line.text[:MOST_CHARACTERS] for line in stage.lines), language_of(stage.name))
    rows = ""
    for line, pieces in zip(stage.lines, code, strict=True):
        more = len(line.text) - MOST_CHARACTERS
        rest = f" … {more:,} more characters" if more > 0 else ""
        mark = _MARKS["linked" if line.before or is_first else "away" if line.is_linked else "new"]
        before = f' data-before="{" ".join(map(str, line.before))}"' if line.before else ""
        rows += (
            f'<li class="film-line"{before}><span class="n">{line.number}</span> {mark}'
            f'<span class="x">{code_html(pieces)}{rest}</span></li>'
        )
    return (
        f'<section class="film-stage" aria-label="{title}"><h2>{title}</h2><p>{escaped(summary)}</p>'
        f'<ol class="film-lines" tabindex="0" aria-label="Lines of {title}">{rows}</ol></section>'
    )


def film_of(program: Inspection, block: str) -> Film:
    """Return the film of a block, which the program has; see `Inspection.film`."""
    names = program.stages
    program.want(machine_code=has_machine_code(names), passes=False)
    stages: list[FilmStage] = []
    notes: list[str] = []
    equations_before: frozenset[str] = frozenset()
    indices: Mapping[str, list[int]] = {}  # of the shown lines of the stage before, by equation
    for name in names:
        stage = program.stage(name)
        owners = _owners(stage, block)
        if not owners:
            reason = stage.unavailable.partition("\n")[0] if stage.unavailable else "no line belongs to the block"
            notes.append(f"{title_of(name)} is left out: {reason}")
            continue
        texts = stage.text.split("\n")
        lines = [
            FilmLine(
                number,
                texts[number - 1],
                tuple(sorted({at for equation in owner.equations for at in indices.get(equation, ())})),
                not equations_before.isdisjoint(owner.equations),
                owner.origin,
            )
            for number, owner in list(owners.items())[:MOST_LINES]
        ]
        stages.append(FilmStage(name, tuple(lines), len(owners)))
        equations_before = frozenset().union(*distinct(each.equations for each in without_operands(stage)))
        indices = {}
        for at, line in enumerate(lines):
            for equation in owners[line.number].equations:
                indices.setdefault(equation, []).append(at)
    return Film(program.name, block, tuple(stages), tuple(notes))


def _owners(stage: Stage, block: str) -> dict[int, Instruction]:
    """Return the innermost instruction on each line of a block, in the order of the lines."""
    innermost = {
        number: each for each in without_operands(stage) for number in range(each.line, each.line + each.lines)
    }
    # The lines of a kernel share one tuple of thousands of blocks.
    all_shares = distinct(each.shares for each in innermost.values())
    inside = {id(shares) for shares in all_shares if any(is_within(path, block) for path, _ in shares if path)}
    return {number: each for number, each in sorted(innermost.items()) if id(each.shares) in inside}
