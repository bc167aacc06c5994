"""`Cost`: the costs of a program by block, counted at one stage. The blocks sum exactly to the total."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mithril_nb.cost.by_name import ByName, nearest_path, unknown_name, with_outer
from mithril_nb.cost.comparison import CostChange, CostComparison, Difference, DifferenceRow
from mithril_nb.cost.equations import SymbolicProgram
from mithril_nb.cost.formulas.rules import OF_COMPLEX, RULES
from mithril_nb.cost.notes import ONE_OF, Unknown, notes_of_equations, unknown_of
from mithril_nb.cost.predicted import PRODUCTS
from mithril_nb.cost.records import CostRow, Figures, Fusion, count_unknown, group_by, is_unknown, only, sum_of, sums_by
from mithril_nb.display import UNATTRIBUTED_LABEL, Shown, draw, finite, for_stdout
from mithril_nb.errors import UnknownOptionError, installed, nearest, short_repr
from mithril_nb.figures import COUNTED, FIGURES, MEASURED, OF_XLA, SENT, UNKNOWN, share_of
from mithril_nb.graph.paths import is_within, lineage
from mithril_nb.stages.records import ROLES, UNATTRIBUTED, Equation, Instruction, lines_of_source
from mithril_nb.stages.trace.python_source import MODEL, lines_of_file, spans

if TYPE_CHECKING:
    import pandas


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
class Cost(Shown):
    """Costs of a program by block, counted at one stage.

    Unknown costs are left out of sums, so a sum is a lower bound. `notes` and `unknown` list the costs left out. A sum
    that depends on a symbolic size, such as `batch`, is `None`: `formula` returns it as text, `at` computes it for
    numbers.

    Attributes:
        program: Name of the program.
        source: What was counted: equations of the jaxpr (`"analytic"`), instructions of the HLO before XLA's passes
            (`"lowered"`) or after them (`"compiled"`), or the compiled program with measured times (`"measured"`).
        rows: The cost of each equation or instruction, in the order of the stage.
        params: Number of parameters by path of the block; `None` if it is unknown which inputs are parameters.
        notes: Notes on unknown costs and on counting conventions.
        xla: XLA's own totals for the program; `None` for `"analytic"`. XLA counts each loop as one iteration. Figures
            that XLA does not report are `None`.
        once: The same figures by our rules, with each loop counted as one iteration.
        fusions: The bytes that each fusion of a compiled program saves.
        symbolic: The equations that were counted; `None` if HLO instructions were counted.
        order: Paths of the blocks in the order of the program; by default the order of the rows.
        device: The `jax.Device` that the program is for; `None` for JAX's default.
        lines: The user's lines of Python that the rows come from.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect_function as inspect
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
    xla: Figures | None
    once: Figures
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
        return replace(self._sum(self.rows), params=params)

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
        by_block = {path: figures for path, figures in self._by_path.items() if path != UNATTRIBUTED}
        return ByName(by_block, f"costs of {self.program!r}")

    @cached_property
    def by_group(self) -> Mapping[str, Figures]:
        """The cost of each block that contains others, including all blocks inside it."""
        return {path: self.subtree(path) for path in with_outer(path.rpartition("/")[0] for path in self.by_block)}

    @property
    def unattributed(self) -> Figures:
        """The cost that is not attributed to a block."""
        return self._by_path.get(UNATTRIBUTED, self.nothing)

    @cached_property
    def nothing(self) -> Figures:
        """The cost of a block without equations: 0. `params` is `None` if the program's parameters are unknown."""
        has_times = [key for key in MEASURED if any(getattr(row, key) is not None for row in self.rows)]
        times: dict[str, Any] = dict.fromkeys(has_times, 0.0)
        return Figures(params=0 if self.params is not None else None, **times)

    @cached_property
    def by_role(self) -> Mapping[str, Figures]:
        """The cost of `"forward"`, `"backward"` and `"update"`; the key `""` has the cost without a role.

        Parameters are not counted, because they have no role.
        """
        sums = sums_by(self.rows, lambda row: ((row.role or "", 1.0),), all_known=bool(self.symbols))
        by_role = {role: sums.get(role, Figures()) for role in dict.fromkeys((*ROLES, *sums))}
        return ByName(by_role, f"costs of {self.program!r}", "role")

    @cached_property
    def by_block_and_role(self) -> Mapping[str, Mapping[str, Figures]]:
        """The cost of each block by role, without the blocks inside it; `""` means no block or no role."""

        def groups_of(row: CostRow) -> Sequence[tuple[tuple[str, str], float]]:
            return [((path, row.role or ""), share) for path, share in row.blocks or ((UNATTRIBUTED, 1.0),)]

        by_block: dict[str, dict[str, Figures]] = {}
        for (path, role), figures in sums_by(self.rows, groups_of, all_known=bool(self.symbols)).items():
            by_block.setdefault(path, {})[role] = figures
        # XLA changes the order of instructions, so blocks have the order of the jaxpr. Blocks not in it come last.
        ordered = [path for path in dict.fromkeys((*self.order, *by_block)) if path in by_block]
        ordered_blocks = {path: by_block[path] for path in ordered}
        return ByName(ordered_blocks, f"costs of {self.program!r}", called="cost.by_block_and_role")

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
        """
        if path == "":
            return self.total
        inside = self._inside.get(path, {})
        if not inside and not any(is_within(block, path) for block in self.order):
            if default is not None:
                return default
            paths = with_outer((*self._by_path, *self.order))
            call, otherwise = "cost.subtree({})", 'cost.subtree("")  # the whole program'
            subject, near = f"costs of {self.program!r}", nearest_path(path, paths)
            raise unknown_name(subject, "block", path, paths, call, otherwise, near)
        total = self._sum(self._by_path[block] for block in inside) if inside else self.nothing
        if not any(getattr(total, count) for count in UNKNOWN) or len(inside) < 2:
            return total
        # A fusion of several blocks with an unknown cost is unknown in each of them, but counts once in their sum.
        rows = [row for row in self._unknown_rows if any(block in inside for block, _ in row.blocks)]
        return replace(
            total,
            **count_unknown(rows),
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
        total, is_open = self.total, figures.unknown > 0
        is_open_elsewhere = figures.shared > 0 or figures.unknown < total.unknown
        return share_of(figures.flops, total.flops, is_open, is_open_elsewhere)

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
    def _by_path(self) -> Mapping[str, Figures]:
        by_path = {path: self._sum(roles.values()) for path, roles in self.by_block_and_role.items()}
        if self.params is None:
            return {path: replace(figures, params=None) for path, figures in by_path.items()}
        for path, count in self.params.items():
            by_path[path] = replace(by_path.get(path, Figures()), params=count)
        return by_path

    def _sum(self, parts: Iterable[Figures | CostRow]) -> Figures:
        # A cost that depends on a symbolic size may be most of the sum, so the sum of the rest would be misleading.
        return sum_of(parts, all_known=bool(self.symbols))

    @cached_property
    def _inside(self) -> Mapping[str, Mapping[str, None]]:
        # The paths of each block and of those inside it, computed once: with thousands of blocks, a search for each
        # block would take minutes.
        by_outer: dict[str, dict[str, None]] = {}
        for block in self._by_path:
            for outer in lineage(block):
                by_outer.setdefault(outer, {})[block] = None
        return by_outer

    @cached_property
    def _unknown_rows(self) -> list[CostRow]:
        return [row for row in self.rows if any(is_unknown(row, count) for count in UNKNOWN)]

    def at(self, **sizes: int) -> Cost:
        """Return the costs for sizes that replace the symbolic sizes. The program is not traced again.

        Args:
            **sizes: A number for each symbolic size; `symbols` has their names.

        Examples:
            >>> import jax
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> batch, width = jax.export.symbolic_shape("batch, width")
            >>> x, w = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((batch, width), (width, 10)))
            >>> cost = inspect(jnp.matmul, x, w).cost()
            >>> cost.symbols, cost.total.flops, cost.at(batch=32, width=784).total.flops
            (('batch', 'width'), None, 501760)
        """
        program = (self.symbolic or SymbolicProgram(self.program, (), ())).at(sizes)
        return of_equations(program.costs(), program, self.device, self.lines) if sizes else self

    def formula(self, path: str = "", field: str = "flops", role: str | None = None) -> str:
        """Return a formula for the total cost of a block, such as `"2·B·I·O + B·O"`.

        If equations have unknown costs, the formula ends with `" + unknown"` and the reasons.

        Args:
            path: The block; `""` is the whole program.
            field: `"flops"`, `"transcendentals"`, `"bytes_accessed"`, `"payload_bytes"`, `"wire_bytes"` or `"params"`.
            role: `"forward"`, `"backward"` or `"update"`; by default all.

        Examples:
            >>> import jax
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> def linear(x, w, b):
            ...     return x @ w + b
            >>> B, I, O = jax.export.symbolic_shape("B, I, O")
            >>> specs = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((B, I), (I, O), (O,)))
            >>> inspect(linear, *specs).cost().formula()
            '2·B·I·O + B·O'
            >>> inspect(linear, jnp.zeros((32, 784)), jnp.zeros((784, 10)), jnp.zeros(10)).cost().formula()
            '2·32·10·784 + 320'
        """
        if self.symbolic is None:
            raise UnknownOptionError(f"{self.source} costs of {self.program!r} have no formula; analytic costs have.")
        polynomial, unknown = self.symbolic.polynomial(path, field, role)
        text = ""
        if field in ("flops", "transcendentals") and not polynomial.names:
            text = self.symbolic.in_numbers(path, field, role)
        text = text or str(polynomial)
        return f"{text} + unknown ({'; '.join(unknown)})" if unknown else text

    @cached_property
    def by_line(self) -> ByLine:
        """Costs by line of the user's Python, such as `"net.py:12"`; the key `""` has the cost without a line.

        The cost of an equation that comes from several lines is split into equal parts. Parameters have no line and
        are not counted. `print(cost.by_line)` shows the source code with the costs next to it.
        """
        return figures_by_line(self)

    def slowest(self, count: int = 10) -> Slowest:
        """Return the instructions that take the most time, the slowest first, with what limits each.

        Args:
            count: Number of instructions.

        Raises:
            UnknownOptionError: The costs have no times: their source is not `"predicted"` or `"measured"`.

        Examples:
            >>> import mithril_nb as ml
            >>> program = ml.inspect(lambda x: x @ x, ml.zeros((64, 64)), device="h100")  # doctest: +SKIP
            >>> print(program.cost("predicted").slowest(3))  # doctest: +SKIP
        """
        timed = [key for key in MEASURED if getattr(self.total, key) is not None]
        if not timed:
            raise UnknownOptionError(
                f"{self.source} costs of {self.program!r} have no times.",
                (("needs", "predicted or measured costs"),),
                'inspection.cost("predicted").slowest()',
            )
        return Slowest(self, timed[0], count)

    def difference(self, other: Cost | None = None, of: str = "flops") -> Difference:
        """Return the differences between these costs and another count, with each loop counted as one iteration.

        There are two uses. Analytic costs are compared with `other`, by primitive. Lowered and compiled costs are
        compared with XLA's own count, by opcode.

        Args:
            other: Lowered or compiled costs of the same program; `None` for XLA's own count.
            of: `"flops"`, `"transcendentals"` or `"bytes_accessed"`.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> program = inspect(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4)))
            >>> program.cost("lowered").difference().total, program.cost().difference(program.cost("lowered")).total
            (0, 0)
        """
        if of not in OF_XLA:
            raise UnknownOptionError(
                f"cannot compare the costs of {self.program!r} by {of!r}.",
                (("known", ", ".join(OF_XLA)),),
                f'of="{nearest(of, OF_XLA) or "flops"}"',
            )
        if other is None and self.xla is not None:
            return _against_xla(self, of)
        if other is None or self.source != "analytic":
            raise UnknownOptionError(
                f"{self.source} costs of {self.program!r} cannot be compared in this way.",
                (("needs", "analytic costs and others, or lowered or compiled costs alone"),),
                'inspection.cost().difference(inspection.cost("lowered"))',
            )
        return _between(self, self._comparable(other), of)

    def compare(self, other: Cost) -> CostComparison:
        """Compare these costs, before a change, with the costs after it, by block.

        Args:
            other: The costs after the change: of another stage, or of another program.

        Raises:
            UnknownOptionError: `other` is not a `Cost`.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> program = inspect(lambda x: jnp.tanh(x + 1) * 2, jnp.zeros(1000))
            >>> program.cost("lowered").compare(program.cost("compiled")).saved_by_fusion > 0
            True
        """
        return compared(self, self._comparable(other))

    def _comparable(self, other: object) -> Cost:
        if isinstance(other, Cost):
            return other
        raise UnknownOptionError(
            f"costs of {self.program!r} cannot be compared with {short_repr(other, 40)}.",
            (("needs", "the Cost of another program or stage"),),
            'inspection.cost("lowered").compare(inspection.cost("compiled"))',
        )

    def treemap(self, field: str | None = None, width: int = 720) -> Any:
        """Return a treemap as a `mithril_nb.viz.costs.drawing.Drawing`: the area of each block is its cost.

        Args:
            field: `"flops"`, `"bytes_accessed"`, `"params"`, `"time_s"` or `"transcendentals"`. By default `"time_s"`
                if the time was measured, else `"flops"`.
            width: Width in px.
        """
        return draw(self, "treemap", field=self._drawn if field is None else field, width=width)

    def roofline(self, peaks: Any = None, width: int = 720) -> Any:
        """Return the machine's roofline with a point for each block, as a `mithril_nb.viz.costs.drawing.Drawing`.

        Args:
            peaks: The peak rates of the machine: the result of `ml.machine()`, or a dict such as
                `{"flops_per_s": 1e12, "bytes_per_s": 1e11, "source": "data sheet"}`. By default the rates that
                `ml.machine()` or a profile measured before and cached; if there are none, no roof is drawn. For a
                program compiled for an `ml.Device`, the peaks of the device.
            width: Width in px.
        """
        return draw(self, "roofline", peaks=peaks, width=width)

    def overlay(
        self, graph: Any, field: str | None = None, expanded: Collection[str] | None = None, *, own: bool = False
    ) -> Any:
        """Return the graph of the program with the cost on each node, as a `mithril_nb.viz.costs.drawing.Drawing`.

        Args:
            graph: The inspection that these costs come from, or its model. The `graph` of either works too.
            field: As for `treemap`, or `"payload_bytes"` or `"wire_bytes"`.
            expanded: Paths of the groups (blocks with other blocks inside) to draw with their contents; `()` for none.
                By default as many groups as fit.
            own: True to show the cost of each block without the blocks inside it.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> program = inspect(lambda x, w: jnp.tanh(x @ w), jnp.zeros((2, 3)), jnp.zeros((3, 4)), name="layer")
            >>> print(program.cost().overlay(program).text)
            layer, graph: FLOPs
            node                          FLOPs  share
            <lambda>                    48 FLOP  100 %
              dot_general  instruction  48 FLOP  100 %
              tanh         instruction   0 FLOP    0 %
        """
        name = self._drawn if field is None else field
        return draw(self, "overlay", graph=graph, field=name, expanded=expanded, own=own)

    def draw(self, kind: str, **options: Any) -> Any:
        """Return a chart of these costs.

        Args:
            kind: `"treemap"`, `"roofline"`, `"overlay"`, or a kind that a plugin registered with `display.renderer`.
            **options: Arguments of the chart: those of the method `treemap`, `roofline` or `overlay`.

        Examples:
            >>> import jax.numpy as jnp, mithril_nb as ml
            >>> ml.inspect(jnp.sin, jnp.zeros(3)).cost().draw("treemap", field="transcendentals", width=300).svg[:4]
            '<svg'
        """
        return draw(self, kind, **options)

    @property
    def _count(self) -> str:
        # Predicted times have the costs of the compiled program, and so has a profile, or analytic ones if there is no
        # optimized HLO.
        measured = "analytic" if self.xla is None else "compiled"
        return {"measured": measured, "predicted": "compiled"}.get(self.source, self.source)

    @property
    def _xla_title(self) -> str:
        return f"XLA {self._count}"

    @property
    def _drawn(self) -> str:
        return "time_s" if self.source == "measured" and self.total.time_s is not None else "flops"

    def to_dict(self, *, rows: bool = True) -> dict[str, Any]:
        """Return the costs as plain data, as charts, the workbench and JSON use them.

        Args:
            rows: True to add every equation or instruction.

        Returns:
            A dict with these attributes by name: `program`, `source`, `total`, `by_block`, `by_role`, `unattributed`,
            `unknown`, `notes`, `xla`, `once`, `fusions` and `rows`. A block in `by_block` is a dict with the attributes
            of `Figures`, the costs by role (`roles`), and the results of `share_of` (`share`, `share_bound`). If sizes
            are symbolic, it also has `formulas`, a dict from the name of a cost to its formula.
        """
        data = {
            "program": self.program,
            "source": self.source,
            "total": {**self.total.to_dict(), **self._formulas(None)},
            "by_block": {path: self._block(path, figures) for path, figures in self.by_block.items()},
            "by_role": {role: figures.to_dict() for role, figures in self.by_role.items()},
            "unattributed": self._block(UNATTRIBUTED, self.unattributed),
            "unknown": [{**vars(group), "blocks": list(group.blocks)} for group in self.unknown],
            "notes": list(self.notes),
            "xla": None if self.xla is None else _as_totals(self._xla_title, self.xla),
            "once": _as_totals(f"{self._count}, loops once", self.once),
            "fusions": [fusion.to_dict() for fusion in self.fusions],
        }
        return {**data, "rows": [row.to_dict() for row in self.rows]} if rows else data

    def _formulas(self, path: str | None) -> dict[str, Any]:
        formulas = {} if self.symbolic is None else self.symbolic.formulas.get(path, {})
        return {"formulas": dict(formulas)} if formulas else {}

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
            by: `"row"` gives one line for each equation or instruction. `"block"` gives one line for each block, and
                one for the cost not attributed to a block.
        """
        return data_frame(self.to_dict(rows=by == "row"), by)

    def __repr__(self) -> str:
        total = self.total
        figures = {"flops": total.flops, "bytes_accessed": total.bytes_accessed, "time_s": total.time_s}
        texts = ", ".join(f"{name}={value}" for name, value in figures.items() if value is not None)
        return f"{type(self).__name__}({self.program!r}, {self.source}: {texts})"

    def __str__(self) -> str:
        return for_stdout(f"{self.program}: {self.source}\n{draw(self, 'exact text')}")


class Slowest(Shown, tuple[CostRow, ...]):
    """The rows of a cost that take the most time, the slowest first. `print` shows their times as a table."""

    def __new__(cls, cost: Cost, key: str, count: int) -> Slowest:
        """Sort the rows of a cost by a time."""
        rows = [row for row in cost.rows if getattr(row, key)]
        return super().__new__(cls, sorted(rows, key=lambda row: -getattr(row, key))[:count])

    def __init__(self, cost: Cost, key: str, count: int):
        self._cost, self._key = cost, key

    def to_dict(self) -> dict[str, Any]:
        """Return the rows as plain data, with the total time."""
        total = self._cost.total
        return {
            "program": self._cost.program,
            "source": self._cost.source,
            "key": self._key,
            "total": {self._key: getattr(total, self._key), "unknown": FIGURES[self._key].unknown_in(total.to_dict())},
            "rows": [row.to_dict() for row in self],
        }


class ByLine(Shown, ByName[Figures]):
    """A dict from a line of Python, such as `"net.py:12"`, to its cost; the key `""` has the cost without a line.

    `print` shows the source code with the costs next to it.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mithril_nb.inspection import inspect_function as inspect
        >>> cost = inspect(lambda x, w: jnp.tanh(x @ w), jnp.zeros((2, 3)), jnp.zeros((3, 4))).cost()
        >>> sum(figures.flops for figures in cost.by_line.values()) == cost.total.flops
        True
    """

    def __init__(self, items: Mapping[str, Figures], cost: Cost, lines_of: Mapping[str, Sequence[str]]):
        super().__init__(items, f"costs of {cost.program!r}", "line")
        self._cost, self._lines_of = cost, lines_of

    @property
    def all_lines(self) -> ByLine:
        """The same costs by line of the library, such as `"optax/_src/transform.py:12"`, where the user calls one.

        Examples:
            >>> import jax
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> [*inspect(lambda x: jax.nn.softplus(x), jax.numpy.zeros(3)).cost().by_line.all_lines][0].split(":")[0]
            'jax/_src/nn/functions.py'
        """
        return figures_by_line(self._cost, self._cost.lines.inner)

    def to_dict(self) -> dict[str, Any]:
        """Return the costs as plain data.

        - `program`, `source`, `total`, `unattributed`: as in `Cost`.
        - `symbols`: a dict from each symbolic size to an example number.
        - `lines`: for each line its `source` (`"net.py:12"`), `file`, `line`, the costs, the results of
          `Cost.share_of` (`share`, `share_bound`), and for symbolic sizes `formulas` by name of the cost.
        - `code`: for each function with costs its `file`, the number of its first `line`, and `text`, a list of lines.
        """
        symbolic, lines_of = self._cost.symbolic, self._lines_of
        formulas: Mapping[str | None, Mapping[str, str]] = {}
        if symbolic is not None and symbolic.symbols:
            formulas = symbolic.formulas_by(lambda equation: next(map(_first_line, lines_of.get(equation.id, ())), ""))
        lines: list[dict[str, Any]] = []
        by_file: dict[str, list[int]] = {}
        for source, figures in self.items():
            if source:
                file, line, _ = lines_of_source(source)
                by_file.setdefault(file, []).append(line)
                lines.append({"source": source, "file": file, "line": line, **self._data(figures, formulas, source)})
        return {
            "program": self._cost.program,
            "source": self._cost.source,
            "symbols": dict(symbolic.example) if symbolic is not None and formulas else {},
            "total": {**self._data(self._cost.total, formulas, None), **({} if formulas else {"share": 1.0})},
            "unattributed": self._data(self[""], formulas, "") if "" in self else None,
            "lines": lines,
            "code": [part for file, numbers in by_file.items() for part in self._code(file, numbers)],
        }

    def _data(
        self, figures: Figures, formulas: Mapping[str | None, Mapping[str, str]], source: str | None
    ) -> dict[str, Any]:
        share, bound = self._cost.share_of(figures)
        if self._cost.source == "measured":
            total_s = self._cost.total.time_s
            share, bound = (figures.time_s or 0.0) / total_s if total_s else None, ""
        texts = {"formulas": dict(formulas.get(source, {}))} if formulas else {}
        return {**figures.to_dict(), **texts, "share": share, "share_bound": bound}

    def _code(self, file: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
        code = self._cost.lines.code(file)
        # Of libraries, show only the lines with costs: their functions are long.
        is_of_user = self._lines_of is self._cost.lines.of
        ranges = spans(code, numbers) if is_of_user else [(line, line) for line in numbers]
        parts = ((first, [line.rstrip() for line in code[first - 1 : last]]) for first, last in ranges)
        return [{"file": file, "line": first, "text": text} for first, text in parts if text]


def figures_by_line(cost: Cost, lines_of: Mapping[str, Sequence[str]] | None = None) -> ByLine:
    """Return the cost of each line of Python. A row that comes from several lines is split into equal parts."""
    lines_of = cost.lines.of if lines_of is None else lines_of

    def groups_of(row: CostRow) -> Sequence[tuple[str, float]]:
        return [(source, 1.0) for source in dict.fromkeys(map(_first_line, lines_of.get(row.id, ())))] or [("", 1.0)]

    sums = sums_by(cost.rows, groups_of, all_known=bool(cost.symbols))
    files = {label: index for index, label in enumerate(cost.lines.files)}

    def order(source: str) -> tuple[bool, int, str, int]:
        file, line, _ = lines_of_source(source)
        # Files in the order in which the program uses them; the cost without a line comes last.
        return not source, files.get(file, len(files)), file, line

    by_line = {source: sums[source] for source in sorted(sums, key=order)}
    if by_line.get("") == Figures():  # XLA's parameters and constants cost nothing
        del by_line[""]
    return ByLine(by_line, cost, lines_of)


def _first_line(source: str) -> str:
    file, line, _ = lines_of_source(source)
    return f"{file}:{line}" if file else source


def of_equations(
    rows: tuple[CostRow, ...], program: SymbolicProgram, device: Any = None, lines: SourceLines | None = None
) -> Cost:
    """Return the analytic cost of a program from the rows of its equations; `lines` has the user's source files."""
    notes = notes_of_equations(rows, program)
    once = only() if program.symbols else once_of(rows)
    sources = (lines or SourceLines()).of_equations(program.equations)
    return Cost(
        program.name,
        "analytic",
        rows,
        program.params,
        notes,
        None,
        once,
        symbolic=program,
        device=device,
        lines=sources,
    )


def compared(before: Cost, after: Cost, paths: Mapping[str, str] | None = None) -> CostComparison:
    """Return two costs side by side, block by block."""
    return CostComparison(
        f"{before.program}: {before.source}",
        f"{after.program}: {after.source}",
        CostChange(before.total, after.total),
        ByName(
            {
                name: CostChange(before.by_block.get(path, before.nothing), after.by_block.get(other, after.nothing))
                for name, path, other in _named(before.by_block, after.by_block, paths)
            },
            f"costs of {before.program!r} and {after.program!r}",
            called="comparison.by_block",
        ),
        CostChange(before.unattributed, after.unattributed),
        tuple(sorted(after.fusions, key=lambda fusion: -(fusion.saved or 0))),
        _one_sided(("before", before), ("after", after)),
    )


def _named(
    before: Mapping[str, Any], after: Mapping[str, Any], paths: Mapping[str, str] | None
) -> Iterator[tuple[str, str, str]]:
    # A path is `""` if the block was removed or is new.
    partners = {path: path for path in before} if paths is None else paths
    sources = {to: path for path, to in partners.items()}
    for path in before:
        to = partners.get(path, "")
        # A new block may have the path of a removed one. No path contains " (", so the suffix makes the name unique.
        yield to or (f"{path} (removed)" if path in after else path), path, to
    for path in after:
        if sources.get(path) not in before:
            yield path, sources.get(path, ""), path


def _one_sided(*sides: tuple[str, Cost]) -> tuple[str, ...]:
    return tuple(
        f"{name}: {note}; {other_name}: counted for all devices together"
        for (name, cost), (other_name, other) in (sides, sides[::-1])
        for note in cost.notes
        if note.startswith(ONE_OF) and not any(other_note.startswith(ONE_OF) for other_note in other.notes)
    )


# How XLA's HloCostAnalysis differs from our rules for instructions, by opcode.
_CONVENTIONS = {
    "conditional": "XLA also counts the operands, and takes each kind of cost from the branch where it is largest; "
    "we count one branch",
    "custom-call": "XLA counts -1 for each one without a cost_estimate; we leave it out",
}
_CONVENTIONS_IN_FUSIONS = {
    "gather": "in a fusion, XLA counts the whole operand; we count the elements that are read",
    "scatter": "in a fusion, XLA counts the whole operand and result; we count the elements that change",
}
# How XLA's count of lowered equations differs from our rules for equations, by primitive.
_CONVENTIONS_OF_EQUATIONS = {
    "abs": "for complex numbers, XLA counts one operation or those of the expansion; we count sqrt(re² + im²)",
    **dict.fromkeys(
        ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
        "XLA counts a window as long as the axis for each element; we count one operation for each element",
    ),
}


def _against_xla(cost: Cost, field: str = "flops") -> Difference:
    # XLA returns only totals, so `theirs` is `None` in each row. If the totals differ, rows of the opcodes in
    # `_CONVENTIONS` state a reason.
    groups = group_by(cost.rows, lambda row: row.opcode)
    conventions = dict(_CONVENTIONS)
    if field == "bytes_accessed":  # those of an instruction in a fusion count for the fusion
        fused = {row.opcode for row in cost.rows if row.bytes_accessed == 0}
        conventions |= {opcode: reason for opcode, reason in _CONVENTIONS_IN_FUSIONS.items() if opcode in fused}
    ours, theirs = getattr(cost.once, field), None if cost.xla is None else getattr(cost.xla, field)
    rows = tuple(
        DifferenceRow(
            opcode, len(rows), _once(rows, field), None,
            conventions[opcode] if theirs != ours and opcode in conventions else _reason_of_unknown(rows, field),
        )
        for opcode, rows in groups.items()
        if _once(rows, field) != 0 or (opcode in conventions and theirs != ours)
    )  # fmt: skip
    return Difference(cost.program, cost.source, cost._xla_title, field, ours, theirs, rows)


def _between(cost: Cost, other: Cost, field: str = "flops") -> Difference:
    # An instruction counts for the primitive of the equation that it comes from. If it comes from several
    # equations, it counts for the most expensive of them.
    by_id = {row.id: row for row in cost.rows}
    ours = group_by(cost.rows, lambda row: row.opcode)

    def primitive_of(row: CostRow) -> str:
        sources = [by_id[id] for id in row.equations if id in by_id]
        # An instruction without an equation. Parentheses distinguish its opcode from a primitive of the same name.
        return max(sources, key=lambda row: _value(row, field) or 0).opcode if sources else f"({row.opcode})"

    theirs = group_by(other.rows, primitive_of)
    present = {id for row in other.rows for id in row.equations}
    rows = []
    for primitive in dict.fromkeys((*ours, *theirs)):
        mine, others = ours.get(primitive, []), theirs.get(primitive, [])
        entry = DifferenceRow(
            primitive, len(mine) or len(others), _once(mine, field), _once(others, field),
            _reason_of_unknown(mine, field),
        )  # fmt: skip
        if not entry.reason and (uncounted := _reason_of_unknown(others, field)):
            entry = replace(entry, reason=f"{other.source}: {uncounted}")
        if entry.ours != entry.theirs and not entry.reason:
            # XLA's passes also remove instructions. In the lowered module, only JAX has removed equations.
            removed = [row for row in mine if row.id not in present] if other.source == "lowered" else []
            reason = _reason_of_removed(entry, removed, field) or _reason_of_rule(primitive, mine)
            entry = replace(entry, reason=reason or _reason_of_products(primitive, others, field))
        if entry.ours != 0 or entry.theirs != 0:
            rows.append(entry)
    return Difference(
        cost.program,
        cost.source,
        other.source,
        field,
        getattr(cost.once, field),
        getattr(other.once, field),
        tuple(rows),
        _one_sided((cost.source, cost), (other.source, other)),
    )


def _reason_of_removed(entry: DifferenceRow, rows: Sequence[CostRow], field: str) -> str:
    # `""` if removed equations do not explain the whole difference.
    count, cost = sum(_value(row, field) != 0 for row in rows), _once(rows, field)
    if not cost or entry.ours is None or entry.ours - (entry.theirs or 0) != cost:
        return ""
    noun = FIGURES[field].column
    return f"{count} of these equations, {cost:,} {noun}, have no instruction: JAX's lowering removes them"


def _reason_of_rule(primitive: str, rows: Iterable[CostRow]) -> str:
    formulas = [row.formula for row in rows]
    if primitive != "abs" or any("re² + im²" in formula for formula in formulas):
        if primitive in _CONVENTIONS_OF_EQUATIONS:
            return _CONVENTIONS_OF_EQUATIONS[primitive]
    is_complex = any("complex" in formula for formula in formulas)
    rule = (is_complex and RULES.get(primitive + OF_COMPLEX)) or RULES.get(primitive)
    if rule is None or rule.general.xla is None:
        return ""
    return f"XLA counts {rule.general.xla}, we count {rule.general.flops}"


def _reason_of_products(primitive: str, rows: Iterable[CostRow], field: str) -> str:
    rule = RULES.get(primitive)
    if field != "flops" or rule is None or rule.general.products == "0":
        return ""
    groups = group_by(rows, lambda row: row.opcode in PRODUCTS)
    products, others = (f"{_once(groups.get(is_product, []), field) or 0:,}" for is_product in (True, False))
    return f"XLA rewrites products: its products have {products} FLOPs, its other instructions {others}"


def _value(row: CostRow, field: str) -> int | None:
    return None if row.once is None else getattr(row.once, field)


def _once(rows: Iterable[CostRow], field: str) -> int | None:
    return FIGURES[field].add(_value(row, field) for row in rows)


def _reason_of_unknown(rows: Iterable[CostRow], field: str) -> str:
    unknown = [row for row in rows if _value(row, field) is None]
    if not unknown:
        return ""
    reasons = ", ".join(dict.fromkeys(row.unknown or row.formula for row in unknown))
    return f"{len(unknown)} not counted ({reasons})"


def once_of(rows: Iterable[CostRow]) -> Figures:
    """Return the sum of rows with each loop counted as one iteration, as XLA counts."""
    parts: list[Any] = [row.once or only() for row in rows]
    sums = {key: FIGURES[key].add(getattr(part, key) for part in parts) for key in OF_XLA}
    unknown = {count: number for count, number in count_unknown(parts).items() if UNKNOWN[count][0] in OF_XLA}
    return only(**sums, **unknown)


def _as_totals(name: str, figures: Figures) -> dict[str, Any]:
    counts = {"bytes" if key == "bytes_accessed" else key: getattr(figures, key) for key in OF_XLA}
    return {"name": name, **counts, "unknown": figures.unknown, "unknown_bytes": figures.unknown_bytes}


_INTEGERS = (*COUNTED, "params", "repeats", *UNKNOWN)


def data_frame(cost: Mapping[str, Any], by: str) -> pandas.DataFrame:
    """Return the result of `Cost.to_dict` as the table that `Cost.to_pandas` documents.

    Counts are integers, and unknown costs are `<NA>`.
    """
    if by not in ("row", "block"):
        raise UnknownOptionError(
            f"cannot list the costs of {cost['program']!r} by {by!r}.",
            (("known", "row, block"),),
            f'by="{nearest(by, ("row", "block")) or "block"}"',
        )
    pandas = installed("pandas", "to_pandas")
    sent = [key for key in (*SENT, "unknown_communication") if key in cost["total"]]
    times = [key for key in MEASURED if key in cost["total"]]
    if by == "row":
        keys = [key for key in COUNTED if key not in SENT or key in sent]
        lines = [{**dict.fromkeys(sent, 0), **row, "blocks": ", ".join(row["blocks"])} for row in cost["rows"]]
        columns = ["id", "opcode", "blocks", "role", *keys, "repeats", "formula", *times]
        columns += ["limited_by"] * ("predicted_s" in times)
        table = pandas.DataFrame(lines, columns=columns).set_index("id")
    else:
        blocks = {**cost["by_block"], UNATTRIBUTED_LABEL: cost["unattributed"]}
        left_out = ("roles", "unknown_transcendentals", *SENT, "unknown_communication")
        lines = [
            {
                "block": path,
                **{key: value for key, value in figures.items() if key not in left_out},
                **{role: figures["roles"][role]["flops"] for role in ("forward", "backward", "update")},
                **{key: figures.get(key, 0) for key in sent},
            }
            for path, figures in blocks.items()
        ]
        table = pandas.DataFrame(lines).set_index("block")
    integers = {name: "Int64" for name in table.columns if name in (*_INTEGERS, "forward", "backward", "update")}
    # Int64 and Float64 are pandas' nullable dtypes. With int64, a column with an unknown cost would become floats.
    return table.astype({**integers, **dict.fromkeys(times, "Float64")})
