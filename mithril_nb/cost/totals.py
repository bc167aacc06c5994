"""`CostTotals`: sums of cost rows by block, group and role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mithril_nb.cost.by_name import ByBlock, ByRole, no_block, with_outer
from mithril_nb.cost.notes import Unknown, unknown_of
from mithril_nb.cost.records import (
    CostRow,
    Figures,
    Fusion,
    Source,
    is_unknown,
    pieces_of,
    rows_by_block,
    share_of,
    sum_of_figures,
    sum_of_rows,
)
from mithril_nb.cost.symbolic import SymbolicProgram
from mithril_nb.graph.paths import is_within
from mithril_nb.stages.records import ROLES, UNATTRIBUTED, Equation, Instruction
from mithril_nb.stages.trace.python_source import MODEL, lines_of_file


@dataclass(frozen=True)
class SourceLines:
    """The user's lines of Python that the rows of a cost come from.

    A line is a text such as `"net.py:12"`. Its label `"net.py"` is a short name of the file.

    Attributes:
        of: A dict from the id of a row to its lines; rows without a line are left out.
        inner: The same for lines in libraries, where a line of the user calls a library.
        files: A dict from the label of a file to its path.
        model: The Python code that builds the model; `""` if the program has no model.
    """

    of: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    inner: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    model: str = ""

    def of_equations(self, equations: Iterable[Equation]) -> SourceLines:
        """Return the same files, with the lines of these equations."""
        shared: dict[str, tuple[str, ...]] = {}
        with_source = [equation for equation in equations if equation.source]
        lines_of = {equation.id: shared.setdefault(equation.source, (equation.source,)) for equation in with_source}
        inner = {
            equation.id: shared.setdefault(line, (line,))
            for equation in with_source
            for line in [equation.library_source or equation.source]
        }
        return replace(self, of=lines_of, inner=inner)

    def of_instructions(self, instructions: Sequence[Instruction], equations: Iterable[Equation]) -> SourceLines:
        """Return the same files, with the lines of these instructions, which come from these equations."""
        inner = self.of_equations(equations).inner
        lines = {
            instruction.id: tuple(dict.fromkeys(line for id in instruction.equations for line in inner.get(id, ())))
            or instruction.library_source
            or instruction.source
            for instruction in instructions
            if instruction.source
        }
        return replace(
            self,
            of={instruction.id: instruction.source for instruction in instructions if instruction.source},
            inner=lines,
        )

    def code(self, label: str) -> Sequence[str]:
        """Return the lines of the file with a label, with line ends; empty if the file is not available."""
        if label == MODEL and self.model:
            return self.model.splitlines(keepends=True)
        return lines_of_file(self.files[label]) if label in self.files else ()


@dataclass(frozen=True)
class CostTotals:
    """The rows of a cost, and their exact sums by block, group and role. `Cost` documents the attributes."""

    program: str
    source: str
    rows: tuple[CostRow, ...]
    params: Mapping[str, int | None] | None
    notes: tuple[str, ...]
    xla: Source | None
    once: Source
    fusions: tuple[Fusion, ...] = ()
    symbolic: SymbolicProgram | None = field(default=None, repr=False, compare=False)
    order: tuple[str, ...] = field(default=(), repr=False, compare=False)
    device: Any = field(default=None, repr=False, compare=False)
    lines: SourceLines = field(default_factory=SourceLines, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "device": None}  # another process has other devices

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbolic sizes. Costs that depend on them are `None`; the method `at` computes them."""
        return () if self.symbolic is None else self.symbolic.symbols

    @cached_property
    def total(self) -> Figures:
        """The cost of the program: the exact sum of `by_block` and `unattributed`."""
        counts = [Figures(params=count) for count in (self.params or {}).values()]
        params = None if self.params is None else self._sum(counts).params
        return replace(self._sum_of_rows(self.rows), params=params)

    @cached_property
    def macs(self) -> int | None:
        """Multiply-adds (MACs): half the FLOPs of matrix products and convolutions; all other operations count 0.

        Products with padding or with the zeros of a dilation do not count. A complex product takes 8 FLOPs, so 4 MACs.
        The value is `None` if one count is unknown, or if `source` is not `"analytic"`. `CostRow.macs` has each count.

        Papers and other tools differ: they count products with padding, fvcore calls one MAC a flop, fvcore and thop
        count norms, and ptflops also biases and activations.
        """
        counts = [row.macs for row in self.rows]
        return None if self.symbolic is None or None in counts else sum(count or 0 for count in counts)

    @cached_property
    def by_block(self) -> Mapping[str, Figures]:
        """The cost of each block, without the blocks inside it.

        The cost of a fusion is split between the blocks that its instructions come from.
        """
        by_block = {path: figures for path, figures in self._every.items() if path != UNATTRIBUTED}
        return ByBlock(by_block, f"costs of {self.program!r}")

    @cached_property
    def by_group(self) -> Mapping[str, Figures]:
        """The cost of each block that contains others, including all blocks inside it."""
        return {path: self.subtree(path) for path in with_outer({path.rpartition("/")[0] for path in self.by_block})}

    @property
    def unattributed(self) -> Figures:
        """The cost that is not attributed to a block."""
        return self._every.get(UNATTRIBUTED, self.nothing)

    @cached_property
    def nothing(self) -> Figures:
        """The cost of a block without equations: 0. `params` is `None` if the program's parameters are unknown."""
        time_s = None if all(row.time_s is None for row in self.rows) else 0.0
        return Figures(params=0 if self.params is not None else None, time_s=time_s)

    @cached_property
    def by_role(self) -> Mapping[str, Figures]:
        """The cost of `"forward"`, `"backward"` and `"update"`; the key `""` has the cost without a role.

        Parameters are not counted, because they have no role.
        """
        rows: dict[str, list[CostRow]] = {role: [] for role in ROLES}
        for row in self.rows:
            for piece in pieces_of(row) if row.pieces else (row,):
                rows.setdefault(piece.role or "", []).append(piece)
        by_role = {role: self._sum_of_rows(some) for role, some in rows.items()}
        return ByRole(by_role, f"costs of {self.program!r}")

    @cached_property
    def by_block_and_role(self) -> Mapping[str, Mapping[str, Figures]]:
        """The cost of each block by role, without the blocks inside it; `""` means no block or no role."""
        by_block = rows_by_block(self.rows)
        # XLA changes the order of instructions, so blocks have the order of the jaxpr. Blocks not in it come last.
        ordered = [path for path in dict.fromkeys((*self.order, *by_block)) if path in by_block]
        ordered_sums = {path: {role: self._sum(parts) for role, parts in by_block[path].items()} for path in ordered}
        return ByBlock(ordered_sums, f"costs of {self.program!r}", "cost.by_block_and_role")

    @cached_property
    def unknown(self) -> tuple[Unknown, ...]:
        """Equations or instructions with unknown FLOPs, grouped by opcode and reason. The sums leave them out."""
        return unknown_of(self.rows)

    def subtree(self, path: str, default: Figures | None = None) -> Figures:
        """Return the cost of a block including all blocks inside it.

        Args:
            path: Path of the block; `""` is the whole program.
            default: The cost to return for a block from which no equation or instruction comes, such as a block that
                returns its input.

        Raises:
            UnknownBlockError: No equation or instruction comes from the block, and `default` is `None`.
        """
        if path == "":
            return self.total
        inside = self._inside.get(path, {})
        if not inside and not any(is_within(block, path) for block in self.order):
            if default is not None:
                return default
            paths = with_outer((*self._every, *self.order))
            subject = f"costs of {self.program!r}"
            raise no_block(subject, path, paths, 'cost.subtree("{}")', 'cost.subtree("")  # the whole program')
        total = self._sum(self._every[block] for block in inside) if inside else self.nothing
        if not (total.unknown or total.unknown_bytes or total.unknown_communication) or len(inside) < 2:
            return total
        # A fusion of several blocks with an unknown cost is unknown in each of them, but counts once in their sum.
        rows = [row for row in self._unknown_rows if any(block in inside for block, _ in row.blocks)]
        return replace(
            total,
            unknown=sum(map(is_unknown, rows)),
            unknown_bytes=sum(row.bytes_accessed is None for row in rows),
            unknown_communication=sum(row.wire_bytes is None for row in rows),
            unknown_transcendentals=sum(row.transcendentals is None for row in rows),
            shared=sum(is_unknown(row) and any(block not in inside for block, _ in row.blocks) for row in rows),
        )

    def share_of(self, figures: Figures) -> tuple[float | None, str]:
        """Return a block's share of the program's FLOPs, from 0 to 1, and a sign that marks a bound.

        Args:
            figures: The cost of the block, from `by_block` or `subtree`.

        Returns:
            A pair of share and sign:

            - `(0.25, "")`: the share is exact.
            - `(0.25, "≤")`: the share is an upper bound, because other blocks have unknown costs.
            - `(0.25, "≥")`: the share is a lower bound, because this block has unknown costs.
            - `(None, "")`: this block and others have unknown costs, so the share is unknown.
        """
        return share_of(figures, self.total)

    @property
    def unattributed_share(self) -> float | None:
        """Share of the FLOPs not attributed to a block, the loss or the optimizer, from 0 to 1.

        If costs are unknown, the share is a bound or `None`, as in `share_of`.
        """
        return self.share_of(self.unattributed)[0]

    @property
    def attributed_share(self) -> float | None:
        """Share of the FLOPs attributed to a block, the loss or the optimizer: 1 minus `unattributed_share`."""
        lost = self.unattributed_share
        return None if lost is None else 1.0 - lost

    @cached_property
    def _every(self) -> Mapping[str, Figures]:
        by_path = {path: self._sum(roles.values()) for path, roles in self.by_block_and_role.items()}
        if self.params is None:
            return {path: replace(figures, params=None) for path, figures in by_path.items()}
        for path, count in self.params.items():
            by_path[path] = replace(by_path.get(path, Figures()), params=count)
        return by_path

    def _sum(self, parts: Iterable[Figures]) -> Figures:
        # A cost that depends on a symbolic size may be most of the sum, so the sum of the rest would be misleading.
        return sum_of_figures(parts, all_known=bool(self.symbols))

    def _sum_of_rows(self, rows: Iterable[CostRow]) -> Figures:
        return sum_of_rows(rows, all_known=bool(self.symbols))

    @cached_property
    def _inside(self) -> Mapping[str, Mapping[str, None]]:
        """A dict from the path of each block to the paths in `_every` of this block and of all blocks inside it.

        Computed once: with thousands of blocks, a search for each block would take minutes.
        """
        by_outer: dict[str, dict[str, None]] = {}
        for block in self._every:
            for outer in with_outer([block]):
                by_outer.setdefault(outer, {})[block] = None
        return by_outer

    @cached_property
    def _unknown_rows(self) -> list[CostRow]:
        return [row for row in self.rows if is_unknown(row) or None in (row.bytes_accessed, row.wire_bytes)]
