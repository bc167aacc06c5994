"""`Cost`: the costs of a program by block, counted at one stage. The blocks sum exactly to the total."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mithril_nb.cost.comparison import CostComparison, compared
from mithril_nb.cost.difference import Difference, against_xla, between
from mithril_nb.cost.lines import ByLine, figures_by_line
from mithril_nb.cost.notes import notes_of_equations
from mithril_nb.cost.records import CostRow, Figures, Source, once_of
from mithril_nb.cost.symbolic import SymbolicProgram
from mithril_nb.cost.tables import data_frame
from mithril_nb.cost.totals import CostTotals, SourceLines
from mithril_nb.display import Shown, draw, finite, for_stdout
from mithril_nb.errors import UnknownOptionError, nearest, short_repr
from mithril_nb.stages.records import ROLES, UNATTRIBUTED

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Cost(CostTotals, Shown):
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
        xla: XLA's own totals for the program; `None` for `"analytic"`. XLA counts each loop as one iteration.
        once: The totals with each loop counted as one iteration, for comparison with `xla`.
        fusions: The bytes that each fusion of a compiled program saves.
        symbolic: The equations that were counted; `None` if HLO instructions were counted.
        order: Paths of the blocks in the order of the program; by default the order of the rows.
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

    def at(self, **sizes: int) -> Cost:
        """Return the costs for sizes that replace the symbolic sizes. The program is not traced again.

        Args:
            **sizes: A number for each symbolic size; `symbols` has their names.

        Raises:
            UnknownOptionError: A name is missing or unknown, or a number is not a valid size.
            MithrilError: The program cannot have these sizes.

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
        """Return a formula for the total cost of a block, such as `"2·B·I·O + B·O"`.

        If equations have unknown costs, the formula ends with `" + unknown"` and the reasons.

        Args:
            path: The block; `""` is the whole program.
            field: `"flops"`, `"transcendentals"`, `"bytes_accessed"`, `"payload_bytes"`, `"wire_bytes"` or `"params"`.
            role: `"forward"`, `"backward"` or `"update"`; by default all.

        Raises:
            UnknownOptionError: The block, field or role is unknown, or `source` is not `"analytic"`.

        Examples:
            >>> import jax
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect
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
            raise UnknownOptionError(
                f"cannot write a formula for the {self.source} costs of {self.program!r}.",
                (("needs", "analytic costs"), ("given", f"{self.source} costs")),
                'inspection.cost(source="analytic").formula()',
            )
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

    def difference(self, other: Cost | None = None, of: str = "flops") -> Difference:
        """Return the differences between these costs and another count, with each loop counted as one iteration.

        There are two uses. Analytic costs are compared with `other`, by primitive. Lowered and compiled costs are
        compared with XLA's own count, by opcode.

        Args:
            other: Lowered or compiled costs of the same program; `None` for XLA's own count.
            of: `"flops"`, `"transcendentals"` or `"bytes_accessed"`.

        Raises:
            UnknownOptionError: `of` is unknown, or `other` fits neither of the two uses.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect
            >>> program = inspect(jnp.matmul, jnp.zeros((2, 3)), jnp.zeros((3, 4)))
            >>> program.cost("lowered").difference().total, program.cost().difference(program.cost("lowered")).total
            (0, 0)
        """
        fields = ("flops", "transcendentals", "bytes_accessed")
        if of not in fields:
            raise UnknownOptionError(
                f"cannot compare the costs of {self.program!r} by {of!r}.",
                (("known", ", ".join(fields)),),
                f'of="{nearest(of, fields) or "flops"}"',
            )
        if other is not None:
            other = self._comparable(other)
            if self.source == "analytic":
                return between(self, other, of)
            against = self.source if other.source == "analytic" else other.source
            raise UnknownOptionError(
                f"cannot compare {self.source} costs of {self.program!r} with {other.source} costs by primitive.",
                (("needs", "analytic costs before .difference"), ("given", f"{self.source} costs")),
                f'inspection.cost("analytic").difference(inspection.cost("{against}"))',
            )
        if self.xla is None:
            raise UnknownOptionError(
                f"XLA has no count to compare with the {self.source} costs of {self.program!r}.",
                (("needs", "lowered or compiled costs"), ("given", f"{self.source} costs")),
                'inspection.cost().difference(inspection.cost("lowered"))',
            )
        return against_xla(self, of)

    def compare(self, other: Cost) -> CostComparison:
        """Compare these costs, before a change, with the costs after it, by block.

        Args:
            other: The costs after the change: of another stage, or of another program.

        Raises:
            UnknownOptionError: `other` is not a `Cost`.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect
            >>> program = inspect(lambda x: jnp.tanh(x + 1) * 2, jnp.zeros(1000))
            >>> program.cost("lowered").compare(program.cost("compiled")).saved_by_fusion > 0
            True
        """
        return compared(self, self._comparable(other))

    def _comparable(self, other: object) -> Cost:
        """Return `other`, or raise `UnknownOptionError` if it is not a `Cost`."""
        if isinstance(other, Cost):
            return other
        raise UnknownOptionError(
            f"costs of {self.program!r} cannot be compared with {short_repr(other, 40)}.",
            (("needs", "the Cost of another program or stage"), ("given", type(other).__name__)),
            'inspection.cost("lowered").compare(inspection.cost("compiled"))',
        )

    def treemap(self, field: str | None = None, width: int = 720) -> Any:
        """Return a treemap as a `mithril_nb.viz.costs.drawing.Drawing`: the area of each block is its cost.

        Args:
            field: `"flops"`, `"bytes_accessed"`, `"params"`, `"time_s"` or `"transcendentals"`. By default `"time_s"`
                if the time was measured, else `"flops"`.
            width: Width in px.

        Raises:
            UnknownOptionError: Unknown field, or the width is not valid.
        """
        return draw(self, "treemap", field=self._drawn if field is None else field, width=width)

    def roofline(self, peaks: Any = None, width: int = 720) -> Any:
        """Return the machine's roofline with a point for each block, as a `mithril_nb.viz.costs.drawing.Drawing`.

        Args:
            peaks: The peak rates of the machine: the result of `ml.machine()`, or a dict such as
                `{"flops_per_s": 1e12, "bytes_per_s": 1e11, "source": "data sheet"}`. By default the rates that
                `ml.machine()` or a profile measured before and cached; if there are none, no roof is drawn.
            width: Width in px.

        Raises:
            UnknownOptionError: `peaks` or `width` is not valid.
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

        Raises:
            UnknownOptionError: Unknown field, `graph` is not a graph, or the costs belong to another graph.
            UnknownBlockError: The graph has no such group.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect
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

        Raises:
            LookupError: No chart of this kind is registered.

        Examples:
            >>> import jax.numpy as jnp, mithril_nb as ml
            >>> ml.inspect(jnp.sin, jnp.zeros(3)).cost().draw("treemap", field="transcendentals", width=300).svg[:4]
            '<svg'
        """
        return draw(self, kind, **options)

    @property
    def _drawn(self) -> str:
        """The field that charts show by default."""
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
            "xla": None if self.xla is None else asdict(self.xla),
            "once": asdict(self.once),
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

        Raises:
            UnknownOptionError: `by` is neither `"row"` nor `"block"`.
            UnavailableBackendError: pandas is not installed.
        """
        return data_frame(self.to_dict(rows=by == "row"), by)

    def __repr__(self) -> str:
        total = self.total
        figures = {"flops": total.flops, "bytes_accessed": total.bytes_accessed, "time_s": total.time_s}
        texts = ", ".join(f"{name}={value}" for name, value in figures.items() if value is not None)
        return f"{type(self).__name__}({self.program!r}, {self.source}: {texts})"

    def __str__(self) -> str:
        return for_stdout(f"{self.program}: {self.source}\n{draw(self, 'exact text')}")


def of_equations(
    rows: tuple[CostRow, ...], program: SymbolicProgram, device: Any = None, lines: SourceLines | None = None
) -> Cost:
    """Return the analytic cost of a program from the rows of its equations; `lines` has the user's source files."""
    notes = notes_of_equations(rows, program)
    once = Source("analytic, loops once") if program.symbols else once_of("analytic", rows)
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
