"""Costs as data: by equation, by block, for the whole program. Integers, so that sums are exact. No JAX here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from mithril_nb.cost.xla import Memory, Source
from mithril_nb.display import Shown
from mithril_nb.stages.frozen import quick_to_make
from mithril_nb.stages.records import UNATTRIBUTED, Role


@quick_to_make
@dataclass(frozen=True)
class EquationCost:
    """What one equation costs in a run of the program.

    Attributes:
        id: Its id.
        primitive: Its primitive.
        block: Path of its block.
        role: Its role.
        flops: FLOPs in all its runs; `None` if unknown.
        transcendentals: The same for transcendental functions.
        bytes: Bytes read and written in all its runs; `None` if unknown.
        repeats: How often it runs; 0 if it never does; `None` if unknown.
        each: FLOPs of one run; `None` if there is no rule, or a size that it needs is not known.
        once: FLOPs counted as XLA counts them, loops once.
        formula: How the FLOPs were computed, or why not.
        letters: What the letters of the formula stand for: numbers, or texts where a size has only a name.
    """

    id: str
    primitive: str
    block: str
    role: Role | None
    flops: int | None
    transcendentals: int | None
    bytes: int | None
    repeats: int | None
    each: int | None
    once: int
    formula: str
    letters: tuple[tuple[str, int | str], ...] = ()


@dataclass(frozen=True)
class BlockCost:
    """What one block costs, without the blocks inside it.

    Attributes:
        block: Its path; `"(loss)"`, `"(optimizer)"`, or `""` for what no block caused.
        flops: FLOPs of its equations of known cost; `None` if those come to nothing, and there are unknown ones.
        transcendentals: Their transcendentals; `None` in the same way, as are all sums below.
        bytes: Bytes that they read and write, unfused.
        params: Number of its parameters.
        forward: FLOPs of these in the forward pass,
        backward: in the backward pass,
        update: and in the optimizer.
        unknown: How many of its equations have no known FLOPs: if there are any, the sums are lower bounds.
        unknown_bytes: The same for bytes.
    """

    block: str
    flops: int | None = 0
    transcendentals: int | None = 0
    bytes: int | None = 0
    params: int = 0
    forward: int | None = 0
    backward: int | None = 0
    update: int | None = 0
    unknown: int = 0
    unknown_bytes: int = 0


@dataclass(frozen=True)
class Total:
    """The sum over all blocks, of what is known: exact.

    Attributes:
        flops: FLOPs.
        transcendentals: Transcendentals.
        bytes: Bytes read and written, unfused.
        params: Number of parameters.
        unknown: How many equations have no known FLOPs, and so are not in the sum.
        unknown_bytes: The same for bytes.
    """

    flops: int
    transcendentals: int
    bytes: int
    params: int
    unknown: int = 0
    unknown_bytes: int = 0


@dataclass(frozen=True)
class Unknown:
    """Equations whose cost is not in the total.

    Attributes:
        primitive: Their primitive.
        reason: `"no rule"`, `"size unknown"` or `"trip count unknown"`.
        count: How many equations.
        each: FLOPs of one round of them all, if there are rules.
        share: Their share of all the program's equations.
        blocks: The blocks that they are in.
    """

    primitive: str
    reason: str
    count: int
    each: int | None
    share: float
    blocks: tuple[str, ...]


@dataclass(frozen=True)
class CostReport(Shown):
    """What a program costs.

    Attributes:
        program: Name of the program.
        equations: The cost of every equation that is not just a call.
        rows: The cost of every block, in the order in which the program first comes to it.
        total: The sum of `rows`, exactly.
        sources: The same for the whole program, by who says so.
        unknown: What is not in the total.
        memory: What the compiled program needs, if it is compiled.
    """

    program: str
    equations: tuple[EquationCost, ...]
    rows: tuple[BlockCost, ...]
    total: Total
    sources: tuple[Source, ...]
    unknown: tuple[Unknown, ...] = ()
    memory: Memory | None = None

    @cached_property
    def by_block(self) -> Mapping[str, BlockCost]:
        """Rows by block path."""
        return {row.block: row for row in self.rows}

    @property
    def unattributed_share(self) -> float | None:
        """Share of the FLOPs that nothing is known to have caused: no block, nor the loss or the optimizer.

        Where costs are unknown, it is a bound or `None`, as `share_of` says.
        """
        return self.share_of(self.by_block.get(UNATTRIBUTED, BlockCost(UNATTRIBUTED)))[0]

    @property
    def attributed_share(self) -> float | None:
        """Share of the FLOPs that a block, the loss or the optimizer caused."""
        lost = self.unattributed_share
        return None if lost is None else 1.0 - lost

    def share_of(self, row: BlockCost) -> tuple[float | None, str]:
        """Return the share of the FLOPs that a block has, and which bound it is of the true one.

        Returns:
            The share with `""` if all costs are known, with `"≤"` if unknown ones are elsewhere, with `"≥"` if they are
            all in this block; `None` if they are in both, so that nobody can tell.
        """
        unknown = self.total.unknown
        if not unknown:
            return (row.flops or 0) / self.total.flops if self.total.flops else 0.0, ""
        if row.flops is None or not self.total.flops or 0 < row.unknown < unknown:
            return None, ""
        share = row.flops / self.total.flops
        is_exact = share == 1.0 if row.unknown else share == 0.0
        return share, "" if is_exact else "≥" if row.unknown else "≤"

    def source(self, name: str) -> Source | None:
        """Return the figures of one source, or `None` if it is not there."""
        return next((source for source in self.sources if source.name == name), None)

    def subtree(self, path: str) -> BlockCost:
        """Return the cost of a block with all blocks inside it; `""` gives the whole program."""
        inside = [row for row in self.rows if not path or row.block == path or row.block.startswith(f"{path}/")]
        return total_of(path, inside)

    def to_dict(self) -> dict[str, object]:
        """Return the same as JSON-able data, without the single equations."""
        whole = total_of("", self.rows)
        return {
            "program": self.program,
            "rows": [
                {
                    **asdict(row),
                    "label": row.block.rpartition("/")[2] or "(unattributed)",
                    "share": share,
                    "share_bound": bound,
                }
                for row in self.rows
                for share, bound in [self.share_of(row)]
            ],
            "total": {key: getattr(whole, key) for key in asdict(self.total)},
            "unattributed_share": self.unattributed_share,
            "unattributed_bound": self.share_of(self.by_block.get(UNATTRIBUTED, BlockCost(UNATTRIBUTED)))[1],
            "unknown": [{**asdict(one), "blocks": list(one.blocks)} for one in self.unknown],
            "sources": [asdict(source) for source in self.sources],
            "memory": None if self.memory is None else asdict(self.memory),
        }

    def __str__(self) -> str:
        lines = [f"{'block':<28} {'FLOPs':>16} {'forward':>16} {'backward':>16} {'update':>14} {'params':>12}"]
        for row in (*self.rows, total_of("total", self.rows)):
            name = row.block or "(unattributed)"
            flops, forward, backward, update = (
                _told(value, row.unknown) for value in (row.flops, row.forward, row.backward, row.update)
            )
            lines.append(f"{name:<28} {flops:>16} {forward:>16} {backward:>16} {update:>14} {row.params:>12,}")
        lines += [f"unknown: {one.count} x {one.primitive} ({one.reason})" for one in self.unknown]
        return "\n".join(lines)


def total_of(path: str, rows: Iterable[BlockCost]) -> BlockCost:
    """Return the sum of some rows, under the given path."""
    every = tuple(rows)

    def of(field: Callable[[BlockCost], int | None]) -> int | None:
        return known_sum(map(field, every))

    return BlockCost(
        path,
        of(lambda row: row.flops),
        of(lambda row: row.transcendentals),
        of(lambda row: row.bytes),
        sum(row.params for row in every),
        of(lambda row: row.forward),
        of(lambda row: row.backward),
        of(lambda row: row.update),
        sum(row.unknown for row in every),
        sum(row.unknown_bytes for row in every),
    )


def known_sum(values: Iterable[int | None]) -> int | None:
    """Return the sum of what is known; `None` if that is nothing, and there is something unknown.

    Examples:
        >>> known_sum([1, 2]), known_sum([1, None]), known_sum([0, None]), known_sum([])
        (3, 1, None, 0)
    """
    every = tuple(values)
    known = sum(value or 0 for value in every)
    return None if not known and None in every else known


def _told(value: int | None, unknown: int) -> str:
    """A sum in words. 0 beside unknown costs is exact: `known_sum` gives no 0 otherwise."""
    if value is None:
        return "unknown"
    return f"≥ {value:,}" if unknown and value else f"{value:,}"
