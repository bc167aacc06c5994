"""The result of a search: the matching equations, instructions or blocks, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

from mithril_nb.display import Shown
from mithril_nb.graph.query import Query


@dataclass(frozen=True)
class Match:
    """One match of a search.

    Attributes:
        id: Id of the equation or instruction in its stage; the path of a block of a model.
        kind: The operation of the equation or instruction, or the kind of the block.
        block: Paths of the blocks that it belongs to, the block with the largest part of it first; empty if it is not
            attributed.
        role: `"forward"`, `"backward"` or `"update"`; `None` if unknown.
        dtype: Dtypes of the results, each once.
        flops: FLOPs in all its runs; `None` if unknown.
        bytes: Bytes read and written in all its runs; `None` if unknown.
        memory: Bytes of the results; `None` if unknown.
        line: The user's lines of Python that created it, as `"file.py:12"`.
        contains: The operations inside an HLO fusion, each once. They have separate FLOPs.
    """

    id: str
    kind: str
    block: tuple[str, ...] = ()
    role: str | None = None
    dtype: tuple[str, ...] = ()
    flops: int | None = None
    bytes: int | None = None
    memory: int | None = None
    line: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found(Shown, Sequence[Match]):
    """The matches of a search, in program order: a sequence of `Match`, shown as a table.

    Attributes:
        name: Name of the program or model.
        stage: Stage of the equations or instructions; `""` for the blocks of a model.
        query: The query.
        matches: The matches.
        searched: Number of items that were searched.
    """

    name: str
    stage: str
    query: Query
    matches: tuple[Match, ...]
    searched: int

    @overload
    def __getitem__(self, at: int) -> Match: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Match, ...]: ...

    def __getitem__(self, at: int | slice) -> Match | tuple[Match, ...]:
        return self.matches[at]

    def __len__(self) -> int:
        return len(self.matches)

    @property
    def blocks(self) -> tuple[str, ...]:
        """Paths of the blocks of the matches, each once."""
        return tuple(dict.fromkeys(path for match in self.matches for path in match.block))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data: `name`, `stage`, `query`, `searched` and `matches`."""
        matches = [asdict(match) for match in self.matches]
        head = {"name": self.name, "stage": self.stage, "query": str(self.query), "searched": self.searched}
        return {**head, "matches": matches}
