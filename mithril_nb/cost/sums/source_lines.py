"""The lines of Python behind the rows of costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mithril_nb.stages.records import Equation, Instruction
from mithril_nb.stages.trace.python_source import MODEL, lines_of_file


@dataclass(frozen=True)
class SourceLines:
    """The user's lines of Python that the rows of a cost come from.

    Attributes:
        of: The lines that each row comes from, by its id; rows without a line are left out.
        files: Path of each file by its label.
        model: The Python that builds the model, or `""`.
    """

    of: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    model: str = ""

    def behind_equations(self, equations: Iterable[Equation]) -> SourceLines:
        """Return the lines that equations of the same program come from."""
        shared: dict[str, tuple[str, ...]] = {}
        found = {one.id: shared.setdefault(one.source, (one.source,)) for one in equations if one.source}
        return replace(self, of=found)

    def behind_instructions(self, instructions: Iterable[Instruction]) -> SourceLines:
        """Return the lines that instructions of a stage of the same program come from."""
        return replace(self, of={one.id: one.source for one in instructions if one.source})

    def code(self, label: str) -> Sequence[str]:
        """Return the lines of a file, with line ends; empty if the file is not available."""
        if label == MODEL and self.model:
            return self.model.splitlines(keepends=True)
        return lines_of_file(self.files[label]) if label in self.files else ()
