"""Costs of a program by one way of counting. The rows add up exactly to blocks, to roles and to the total."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mithril_nb.cost.blocks import ByBlock, no_block, with_outer
from mithril_nb.cost.comparison import Comparison, compared
from mithril_nb.cost.difference import Difference, against_xla, between
from mithril_nb.cost.drawn import Drawn
from mithril_nb.cost.lines import ByLine, SourceLines, figures_by_line
from mithril_nb.cost.multiply_adds import PRODUCTS, macs_of
from mithril_nb.cost.notes import notes_of_equations
from mithril_nb.cost.records import (
    CostRow,
    Figures,
    Fusion,
    Source,
    Unknown,
    is_unknown,
    once_of,
    share_of,
    sum_of_figures,
    sum_of_rows,
    unknown_of,
)
from mithril_nb.cost.roles import ByRole
from mithril_nb.cost.splits import pieces_of, rows_by_block
from mithril_nb.cost.symbolic_costs import SymbolicProgram
from mithril_nb.cost.tables import data_frame
from mithril_nb.display import draw, finite
from mithril_nb.errors import UnknownOptionError, nearest, short_repr
from mithril_nb.graph.paths import is_within
from mithril_nb.stages.records import ROLES, UNATTRIBUTED

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Cost(Drawn):
    """Costs of a program by one way of counting.

    Sums leave out unknown costs and are then lower bounds; `notes` and `unknown` list these costs.

    Attributes:
        program: Name of the program.
        source: `"analytic"`, `"lowered"`, `"compiled"` or `"measured"`.
        rows: Every equation or instruction, in the order of its stage.
        params: Number of parameters by block; `None` if it is unknown which inputs are parameters.
        notes: Notes on unknown figures and on counting conventions, with reasons.
        xla: XLA's own figures for the program, loops counted once; `None` for `"analytic"`.
        once: The sum of the rows with loops counted once, for comparison with `xla`.
        fusions: The bytes that each fusion of a compiled program saves.
        symbolic: The program, whose sizes may be symbolic; `None` if XLA counted.
        order: Blocks in execution order, which XLA does not keep; by default the order of the rows.
        device: The `jax.Device` that the program is for; `None` for JAX's default.
        lines: The user's lines of Python that the rows come from.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect
        >>> cost = inspect(lambda x, w: jnp.tanh(x @ w), jnp.zeros((2, 3)), jnp.zeros((3, 4)), name="layer").cost()
        >>> cost.total.flops, cost.total.transcendentals, cost.total.bytes_accessed, cost.macs
        (48, 8, 168, 24)
        >>> [(row.opcode, row.formula) for row in cost.rows]
        [('dot_general', '2·B·M·N·K'), ('tanh', 'n transcendentals')]
    """

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
        """The names of symbolic sizes; figures that depend on them are `None`, see `at`."""
        return () if self.symbolic is None else self.symbolic.symbols

    def at(self, **sizes: int) -> Cost:
        """Return the costs with numbers for the symbolic sizes, without tracing again.

        Args:
            **sizes: A number for each of `symbols`.

        Raises:
            UnknownOptionError: A name is missing or unknown, or a number is not a valid size.

        Examples:
            >>> import jax
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect
            >>> batch, width = jax.export.symbolic_shape("batch, width")
            >>> x, w = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((batch, width), (width, 10)))
            >>> cost = inspect(jnp.matmul, x, w).cost()
            >>> cost.symbols, cost.total.flops, cost.at(batch=32, width=784).total.flops
            (('batch', 'width'), None, 501760)
        """
        program = (self.symbolic or SymbolicProgram(self.program, (), ())).at(sizes)
        return of_equations(program.costs(), program, self.device, self.lines) if sizes else self

    def formula(self, path: str = "", field: str = "flops", role: str | None = None) -> str:
        """Return the formula of the total cost of a block, in the names of sizes or in their numbers.

        Args:
            path: The block; `""` is the whole program.
            field: `"flops"`, `"transcendentals"`, `"bytes_accessed"`, `"payload_bytes"`, `"wire_bytes"` or `"params"`.
            role: `"forward"`, `"backward"` or `"update"`; by default all.

        Raises:
            UnknownOptionError: There is no such block, figure or role; or the counts are XLA's, which have no formulas.

        Examples:
            >>> import jax
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect
            >>> def linear(x, w, b):
            ...     return x @ w + b
            >>> def cost(*sizes):
            ...     B, I, O = sizes
            ...     return inspect(linear, *(jax.ShapeDtypeStruct(s, "float32") for s in ((B, I), (I, O), (O,)))).cost()
            >>> cost(*jax.export.symbolic_shape("B, I, O")).formula()
            '2·B·I·O + B·O'
            >>> cost(32, 784, 10).formula()
            '2·32·10·784 + 320'
        """
        if self.symbolic is None:
            raise UnknownOptionError(
                f"costs of {self.program!r} that XLA counts have no formulas.",
                (("source", self.source),),
                'inspection.cost(source="analytic").formula()',
            )
        polynomial, unknown = self.symbolic.polynomial(path, field, role)
        text = ""
        if field in ("flops", "transcendentals") and not polynomial.names:
            text = self.symbolic.in_numbers(path, field, role)
        text = text or str(polynomial)
        return f"{text} + unknown ({'; '.join(unknown)})" if unknown else text

    @cached_property
    def total(self) -> Figures:
        """The cost of the program: exactly the sum of `by_block` and `unattributed`."""
        counts = [Figures(params=count) for count in (self.params or {}).values()]
        params = None if self.params is None else self._sum(counts).params
        return replace(self._sum_of_rows(self.rows), params=params)

    @cached_property
    def macs(self) -> int | None:
        """Multiply-accumulate operations of matrix products and convolutions, with padding; one is 2 FLOPs.

        Biases, activations and norms count 0. `mithril_nb.cost.multiply_adds` has the convention and each count.
        `None` if some are unknown, or if XLA counted: `inspection.cost().macs` counts the equations.
        """
        return None if self.symbolic is None else macs_of(self.rows, self.symbolic.equations_of(PRODUCTS))

    @cached_property
    def by_block(self) -> Mapping[str, Figures]:
        """The self cost of each block, without the blocks inside it. The cost of a fusion is split exactly."""
        known = {path: figures for path, figures in self._every.items() if path != UNATTRIBUTED}
        return ByBlock(known, f"costs of {self.program!r}")

    @cached_property
    def by_group(self) -> Mapping[str, Figures]:
        """The total cost of each block that contains others: the sum over it and all blocks inside it.

        For all other blocks the total cost equals the self cost in `by_block`.
        """
        return {path: self.subtree(path) for path in with_outer({path.rpartition("/")[0] for path in self.by_block})}

    @property
    def unattributed(self) -> Figures:
        """The cost that is not attributed to a block."""
        return self._every.get(UNATTRIBUTED, self.nothing)

    @cached_property
    def nothing(self) -> Figures:
        """Figures of a block without rows; its parameters are unknown if those of the program are."""
        time_s = None if all(row.time_s is None for row in self.rows) else 0.0
        return Figures(params=0 if self.params is not None else None, time_s=time_s)

    @cached_property
    def by_role(self) -> Mapping[str, Figures]:
        """The cost of `"forward"`, `"backward"` and `"update"`; `""` is the cost without a role.

        Parameters have no role.
        """
        rows: dict[str, list[CostRow]] = {role: [] for role in ROLES}
        for row in self.rows:
            for piece in pieces_of(row) if row.pieces else (row,):
                rows.setdefault(piece.role or "", []).append(piece)
        found = {role: self._sum_of_rows(some) for role, some in rows.items()}
        return ByRole(found, f"costs of {self.program!r}")

    @cached_property
    def by_line(self) -> ByLine:
        """Figures of each of the user's lines of Python, by `"net.py:12"`; `""` is the cost without a line.

        They add up to `total`. A row that comes from several lines is split into equal parts. Parameters have no line.
        `print` shows the source with the figures next to it.
        """
        return figures_by_line(self)

    @cached_property
    def by_block_and_role(self) -> Mapping[str, Mapping[str, Figures]]:
        """The self cost of each block in each role; `""` is no block, or no role."""
        known = rows_by_block(self.rows)
        ordered = [*(path for path in self.order if path in known), *(path for path in known if path not in self.order)]
        found = {path: {role: self._sum(one) for role, one in known[path].items()} for path in ordered}
        return ByBlock(found, f"costs of {self.program!r}", "cost.by_block_and_role")

    @cached_property
    def unknown(self) -> tuple[Unknown, ...]:
        """Operations with unknown FLOPs, which the sums leave out, by opcode and reason."""
        return unknown_of(self.rows)

    def subtree(self, path: str, default: Figures | None = None) -> Figures:
        """Return the total cost of a block, with all blocks inside it; `""` gives the whole program.

        Args:
            path: The block.
            default: The figures to return for a block that no row comes from, such as a block that only passes its
                input on.

        Raises:
            UnknownBlockError: No row comes from such a block, and there is no default.
        """
        if path == "":
            return self.total
        inside = {block for block in self._every if is_within(block, path)}
        if not inside and not any(is_within(block, path) for block in self.order):
            if default is not None:
                return default
            known = with_outer((*self._every, *self.order))
            what = f"costs of {self.program!r}"
            raise no_block(what, path, known, 'cost.subtree("{}")', 'cost.subtree("") is the whole.')
        found = self._sum(self._every[block] for block in inside) if inside else self.nothing
        if not (found.unknown or found.unknown_bytes or found.unknown_communication) or len(inside) < 2:
            return found
        # A fusion of several blocks is counted in each of them, but only once in their sum.
        rows = [row for row in self._unknown_rows if any(block in inside for block, _ in row.blocks)]
        return replace(
            found,
            unknown=sum(map(is_unknown, rows)),
            unknown_bytes=sum(row.bytes_accessed is None for row in rows),
            unknown_communication=sum(row.wire_bytes is None for row in rows),
            unknown_transcendentals=sum(row.transcendentals is None for row in rows),
            shared=sum(is_unknown(row) and any(block not in inside for block, _ in row.blocks) for row in rows),
        )

    def share_of(self, figures: Figures) -> tuple[float | None, str]:
        """Return the block's share of the program's FLOPs, and whether it is exact or a bound.

        Args:
            figures: The cost of the block, from `by_block` or `subtree`.

        Returns:
            The share with `""` if all costs are known, with `"≤"` if unknown costs are elsewhere, with `"≥"` if they
            are all in this block; `None` if they are in both, so that no bound exists.
        """
        return share_of(figures, self.total)

    @property
    def unattributed_share(self) -> float | None:
        """Share of the FLOPs not attributed to a block, the loss or the optimizer.

        If costs are unknown, it is a bound or `None`; see `share_of`.
        """
        return self.share_of(self.unattributed)[0]

    @property
    def attributed_share(self) -> float | None:
        """Share of the FLOPs attributed to a block, the loss or the optimizer."""
        lost = self.unattributed_share
        return None if lost is None else 1.0 - lost

    def difference(self, other: Cost | None = None, of: str = "flops") -> Difference:
        """Return where this count and another differ, by primitive or opcode, with loops counted once in both.

        Args:
            other: Costs of another stage of the same program; only for `"analytic"` costs. By default XLA's own figure
                for this stage, which only `"lowered"` and `"compiled"` have.
            of: `"flops"`, `"transcendentals"` or `"bytes_accessed"`.

        Raises:
            UnknownOptionError: There is no such figure; XLA has none for this way of counting; `other` is not a
                `Cost`; or `other` is given for costs of instructions.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect
            >>> program = inspect(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4)))
            >>> program.cost("lowered").difference().total, program.cost().difference(program.cost("lowered")).total
            (0, 0)
        """
        known = ("flops", "transcendentals", "bytes_accessed")
        if of not in known:
            raise UnknownOptionError(
                f"costs of {self.program!r} do not differ in {of!r}.",
                (("known", ", ".join(known)),),
                f'of="{nearest(of, known) or "flops"}"',
            )
        if other is not None:
            other = _costs(other, f"the difference of {self.program!r} is to")
            if self.source == "analytic":
                return between(self, other, of)
            raise UnknownOptionError(
                f"the {self.source} costs of {self.program!r} have no difference by primitive to other costs.",
                (("by primitive", "analytic"), ("given", f"{self.source}, {other.source}")),
                f'inspection.cost("analytic").difference(inspection.cost("{_against(self, other)}"))',
            )
        if self.xla is None:
            raise UnknownOptionError(
                f"XLA has no figure to compare with the {self.source} costs of {self.program!r}.",
                (("has one for", "lowered, compiled"),),
                'inspection.cost().difference(inspection.cost("lowered"))',
            )
        return against_xla(self, of)

    def compare(self, other: Cost) -> Comparison:
        """Return the changes from these costs to `other`: by block, in total, and the savings of each of its fusions.

        Args:
            other: Costs of another stage, or of another program.

        Raises:
            UnknownOptionError: `other` is not a `Cost`.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect
            >>> program = inspect(lambda x: jnp.tanh(x + 1) * 2, jnp.zeros(1000))
            >>> program.cost("lowered").compare(program.cost("compiled")).saved_by_fusion > 0
            True
        """
        return compared(self, _costs(other, f"costs of {self.program!r} are compared with"))

    @cached_property
    def _every(self) -> Mapping[str, Figures]:
        found = {path: self._sum(roles.values()) for path, roles in self.by_block_and_role.items()}
        if self.params is None:
            return {path: replace(figures, params=None) for path, figures in found.items()}
        for path, count in self.params.items():
            found[path] = replace(found.get(path, Figures()), params=count)
        return found

    def _sum(self, parts: Iterable[Figures]) -> Figures:
        # A cost that depends on a symbolic size may dominate the sum, so the sum of the rest would be misleading.
        return sum_of_figures(parts, all_known=bool(self.symbols))

    def _sum_of_rows(self, rows: Iterable[CostRow]) -> Figures:
        return sum_of_rows(rows, all_known=bool(self.symbols))

    @cached_property
    def _unknown_rows(self) -> list[CostRow]:
        return [row for row in self.rows if is_unknown(row) or None in (row.bytes_accessed, row.wire_bytes)]

    def to_dict(self, *, rows: bool = True) -> dict[str, Any]:
        """Return the costs as plain data, as charts, the workbench and JSON use them.

        Args:
            rows: True to add every equation or instruction.

        Returns:
            `program`, `source`, `total`, `by_block` (in the order of the program), `by_role`, `unattributed`,
            `unknown`, `notes`, `xla`, `once`, `fusions`, and `rows` if requested. A block has the figures of
            `Figures`, `roles`, its `share` of the FLOPs, `share_bound`, and `formulas` of the figures that depend
            on symbolic sizes.
        """
        data = {
            "program": self.program,
            "source": self.source,
            "total": {**self.total.to_dict(), **self._formulas(None)},
            "by_block": {path: self._block(path, figures) for path, figures in self.by_block.items()},
            "by_role": {role: figures.to_dict() for role, figures in self.by_role.items()},
            "unattributed": self._block(UNATTRIBUTED, self.unattributed),
            "unknown": [{**vars(one), "blocks": list(one.blocks)} for one in self.unknown],
            "notes": list(self.notes),
            "xla": None if self.xla is None else asdict(self.xla),
            "once": asdict(self.once),
            "fusions": [one.to_dict() for one in self.fusions],
        }
        return {**data, "rows": [row.to_dict() for row in self.rows]} if rows else data

    def _formulas(self, path: str | None) -> dict[str, Any]:
        known = {} if self.symbolic is None else self.symbolic.formulas.get(path, {})
        return {"formulas": dict(known)} if known else {}

    def _block(self, path: str, figures: Figures) -> dict[str, Any]:
        share, bound = self.share_of(figures)
        roles = self.by_block_and_role.get(path, {})
        return {
            **figures.to_dict(),
            **self._formulas(path),
            "roles": {role: roles.get(role, Figures()).to_dict() for role in dict.fromkeys((*ROLES, *roles))},
            "share": share,
            "share_bound": bound,
        }

    def to_json(self, *, rows: bool = True) -> str:
        """Return the costs as JSON."""
        return json.dumps(finite(self.to_dict(rows=rows)), allow_nan=False)

    def to_pandas(self, by: str = "row") -> pandas.DataFrame:
        """Return the costs as a `pandas.DataFrame`.

        Args:
            by: `"row"` gives one line for each equation or instruction, `"block"` one for each block.

        Raises:
            UnknownOptionError: There is no such table.
            UnavailableBackendError: pandas is not installed.
        """
        return data_frame(self.to_dict(rows=by == "row"), by)

    def __repr__(self) -> str:
        total = self.total
        figures = {"flops": total.flops, "bytes_accessed": total.bytes_accessed, "time_s": total.time_s}
        known = ", ".join(f"{name}={value}" for name, value in figures.items() if value is not None)
        return f"{type(self).__name__}({self.program!r}, {self.source}: {known})"

    def __str__(self) -> str:
        return f"{self.program}: {self.source}\n{draw(self, 'exact text')}"


def _against(cost: Cost, other: Cost) -> str:
    """Return the source of the one of two costs that counts instructions."""
    return cost.source if other.source == "analytic" else other.source


def _costs(given: object, what: str) -> Cost:
    """Return `given` if it is a `Cost`.

    Raises:
        UnknownOptionError: It is not a `Cost`.
    """
    if isinstance(given, Cost):
        return given
    raise UnknownOptionError(
        f"{what} another program or stage, not {short_repr(given, 40)}.",
        (("needs", "a Cost"), ("given", type(given).__name__)),
        'inspection.cost("lowered").compare(inspection.cost("compiled"))',
    )


def of_equations(
    rows: tuple[CostRow, ...], program: SymbolicProgram, device: Any = None, lines: SourceLines | None = None
) -> Cost:
    """Return the cost of a program from the costs of its equations.

    Args:
        rows: The cost of each equation.
        program: The program.
        device: The `jax.Device` that it is for.
        lines: The files that contain its lines of Python.
    """
    notes = notes_of_equations(rows, program)
    once = Source("analytic, loops once") if program.symbols else once_of("analytic", rows)
    places = (lines or SourceLines()).behind_equations(program.equations)
    return Cost(
        program.name, "analytic", rows, program.params, notes, None, once, symbolic=program, device=device, lines=places
    )
