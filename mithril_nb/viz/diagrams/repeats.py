"""Find repeated parts of a model, which a picture shows as one box with ×N. Only structure is compared, not names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mithril_nb.graph.records import Block, Node
from mithril_nb.stages.graph.folds import rounds

MOST_ON_A_LEVEL = 24
"""A level with more nodes is shortened: repeated ops and sequences of blocks become one box each, too."""
_FEWEST_ROUNDS = 3
_MOST_RUNS = 8


@dataclass(frozen=True)
class Run:
    """A sequence of blocks of a model or group that occurs several times in a row.

    Attributes:
        start: Index of the first block.
        period: Number of blocks in the sequence.
        count: How often the sequence occurs.
    """

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """Index after the last block."""
        return self.start + self.period * self.count


def repeated_runs(nodes: Sequence[Node]) -> tuple[Run, ...]:
    """Return the repeated sequences of blocks in a model or group, in order.

    Three or more equal composite blocks in a row are always returned. If there are more than `MOST_ON_A_LEVEL` blocks,
    repeated ops and longer sequences such as `Linear`, `Relu` are returned, too.

    Args:
        nodes: The blocks directly inside the model or group.

    Examples:
        >>> from mithril_nb.models import MLP, Linear, Model, Relu
        >>> model = Model()
        >>> for _ in range(3):
        ...     model += MLP(8, (4,), 8)
        >>> repeated_runs(model.graph.nodes)
        (Run(start=0, period=1, count=3),)
        >>> for _ in range(20):
        ...     model += Linear(8)
        ...     model += Relu()
        >>> repeated_runs(model.graph.nodes)
        (Run(start=0, period=1, count=3), Run(start=3, period=2, count=20))
    """
    tokens = _tokens(nodes)
    found = _equal_groups(nodes, tokens)
    while len(nodes) - sum(run.end - run.start - 1 for run in found) > MOST_ON_A_LEVEL and len(found) < _MOST_RUNS:
        run = _largest_run(tokens, found)
        if run is None:
            break
        found.append(run)
    return tuple(sorted(found, key=lambda run: run.start))


def _tokens(nodes: Sequence[Node]) -> list[int]:
    """Return a number for each block. Blocks with the same structure have the same number."""
    known: dict[Block, int] = {}
    by_id: dict[int, int] = {}  # hashing a composite block visits all blocks inside it
    for node in nodes:
        if id(node.block) not in by_id:
            by_id[id(node.block)] = known.setdefault(node.block, len(known))
    return [by_id[id(node.block)] for node in nodes]


def _equal_groups(nodes: Sequence[Node], tokens: Sequence[int]) -> list[Run]:
    found: list[Run] = []
    start = 0
    for at in range(1, len(nodes) + 1):
        if at < len(nodes) and tokens[at] == tokens[start]:
            continue
        if at - start >= _FEWEST_ROUNDS and nodes[start].block.graph is not None:
            found.append(Run(start, 1, at - start))
        start = at
    return found


def _largest_run(tokens: Sequence[int], taken: Sequence[Run]) -> Run | None:
    best: Run | None = None
    edges = sorted((run.start, run.end) for run in taken)
    start = 0
    for stop, after in [*edges, (len(tokens), len(tokens))]:
        found = rounds(tokens[start:stop], _FEWEST_ROUNDS)
        if found is not None:
            run = Run(start + found[0], found[1], found[2])
            if best is None or run.end - run.start > best.end - best.start:
                best = run
        start = after
    return best
