"""What a program costs by one way of counting: rows that add up to blocks, to roles and to the whole, exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mithril_nb.cost.hlo_costs import hlo_costs
from mithril_nb.cost.records import EquationCost, known_sum
from mithril_nb.cost.symbolic_costs import SymbolicProgram
from mithril_nb.cost.xla import Source, source_of
from mithril_nb.display import Shown
from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.stages.frozen import quick_to_make
from mithril_nb.stages.records import UNATTRIBUTED, Role, Stage

if TYPE_CHECKING:
    from mithril_nb.stages.inspection import Inspection

SOURCES = ("analytic", "lowered", "compiled")
"""Ways of counting: equations by our rules, or instructions as XLA counts them, before or after its passes."""
_STAGES = {"lowered": "hlo_before", "compiled": "hlo"}
_TIME = "time_s: nothing here is run, so no time is known"


@quick_to_make
@dataclass(frozen=True)
class Figures:
    """What something costs in one run of the program; `None` where nothing of it is known.

    Attributes:
        flops: Arithmetic operations.
        transcendentals: Calls of `exp`, `tanh`, `sqrt`, ...
        bytes_accessed: Bytes read and written.
        params: Number of parameters.
        time_s: Seconds.
    """

    flops: int | None = 0
    transcendentals: int | None = 0
    bytes_accessed: int | None = 0
    params: int | None = 0
    time_s: float | None = None


@quick_to_make
@dataclass(frozen=True)
class CostRow:
    """What one equation, or one instruction, costs in one run of the program.

    Attributes:
        id: Its id in its stage.
        opcode: Its primitive, or its opcode.
        blocks: Pairs of block path and share; nothing if no block caused it.
        role: Which part of a step it belongs to.
        flops: FLOPs in all its runs; `None` if unknown.
        transcendentals: The same for transcendental functions.
        bytes_accessed: The same for bytes read and written.
        repeats: How often it runs; `None` if unknown.
        formula: How the FLOPs of one run are computed, or why not.
        letters: What the letters of the formula stand for: numbers, or texts where a size has only a name.
        time_s: Seconds of all its runs; `None` if nobody measured them.
    """

    id: str
    opcode: str
    blocks: tuple[tuple[str, float], ...]
    role: Role | None
    flops: int | None
    transcendentals: int | None
    bytes_accessed: int | None
    repeats: int | None
    formula: str
    time_s: float | None = None
    letters: tuple[tuple[str, int | str], ...] = ()

    @property
    def explained(self) -> str:
        """The formula with what its letters stand for: `"2·B·M·N·K with B=1, M=128, N=512, K=784"`."""
        told = ", ".join(f"{letter}={value}" for letter, value in self.letters)
        return f"{self.formula} with {told}" if told else self.formula


@dataclass(frozen=True)
class Cost(Shown):
    """What a program costs by one way of counting.

    What is unknown is in no sum: `notes` name it, and a sum beside it is a lower bound.

    Attributes:
        program: Name of the program.
        source: `"analytic"`, `"lowered"` or `"compiled"`.
        rows: Every equation or instruction, in the order of its stage.
        params: Number of parameters by block.
        notes: What is not known, and why.
        xla: What XLA says of the whole, loops once; `None` for `"analytic"`, which asks nobody.
        once: The sum of the rows with loops once, to stand beside `xla`.
        symbolic: The program with sizes that may have names and no numbers; `None` if XLA counted.
    """

    program: str
    source: str
    rows: tuple[CostRow, ...]
    params: Mapping[str, int | None]
    notes: tuple[str, ...]
    xla: Source | None
    once: Source
    symbolic: SymbolicProgram | None = field(default=None, repr=False, compare=False)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of sizes that have no numbers yet; what depends on them is `None`, see `at`."""
        return () if self.symbolic is None else self.symbolic.symbols

    def at(self, **sizes: int) -> Cost:
        """Return what the program costs with numbers in the place of the names of sizes. Nothing is traced again.

        Args:
            **sizes: A number for each of `symbols`.

        Raises:
            UnknownOptionError: A name that is missing or that it does not have, or a number that is no size.

        Examples:
            >>> import jax
            >>> import jax.numpy as jnp
            >>> from mithril_nb.stages import inspect
            >>> batch, width = jax.export.symbolic_shape("batch, width")
            >>> x, w = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((batch, width), (width, 10)))
            >>> cost = inspect(jnp.matmul, x, w).cost()
            >>> cost.symbols, cost.total.flops, cost.at(batch=32, width=784).total.flops
            (('batch', 'width'), None, 501760)
        """
        program = (self.symbolic or SymbolicProgram(self.program, (), ())).at(sizes)
        return of_equations(program.costs(), program) if sizes else self

    def formula(self, path: str = "", field: str = "flops", role: str | None = None) -> str:
        """Return what a block costs with all blocks inside it, in the names of sizes, or in their numbers.

        Args:
            path: The block; `""` is the whole program.
            field: `"flops"`, `"transcendentals"`, `"bytes_accessed"` or `"params"`.
            role: `"forward"`, `"backward"` or `"update"`; by default all.

        Raises:
            UnknownOptionError: There is no such block, figure or role; or XLA counted, and not our rules.

        Examples:
            >>> import jax
            >>> import jax.numpy as jnp
            >>> from mithril_nb.stages import inspect
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
        return self.symbolic.formula(path, field, role)

    @cached_property
    def total(self) -> Figures:
        """All of it: the sum of `by_block` and `unattributed`, exactly."""
        return self._sum(self._every.values())

    @cached_property
    def by_block(self) -> Mapping[str, Figures]:
        """What each block costs by itself, without the blocks inside it. Shares of a fusion are split exactly."""
        return {path: figures for path, figures in self._every.items() if path != UNATTRIBUTED}

    @property
    def unattributed(self) -> Figures:
        """What no block caused, or nobody knows."""
        return self._every.get(UNATTRIBUTED, Figures())

    @cached_property
    def by_role(self) -> Mapping[str, Figures]:
        """What `"forward"`, `"backward"` and `"update"` cost; `""` is what has no role. Parameters have none."""
        rows: dict[str, list[Figures]] = {"forward": [], "backward": [], "update": []}
        for row in self.rows:
            figures = Figures(row.flops, row.transcendentals, row.bytes_accessed, time_s=row.time_s)
            rows.setdefault(row.role or "", []).append(figures)
        return {role: self._sum(found) for role, found in rows.items()}

    def subtree(self, path: str) -> Figures:
        """Return what a block costs with all blocks inside it; `""` gives the whole program."""
        return self._sum(
            figures
            for block, figures in self._every.items()
            if not path or block == path or block.startswith(f"{path}/")
        )

    @cached_property
    def _every(self) -> Mapping[str, Figures]:
        parts: dict[str, list[Figures]] = {}
        for row in self.rows:
            if len(row.blocks) < 2:  # nearly all: there is nothing to split
                path = row.blocks[0][0] if row.blocks else UNATTRIBUTED
                figures = Figures(row.flops, row.transcendentals, row.bytes_accessed, time_s=row.time_s)
                parts.setdefault(path, []).append(figures)
                continue
            split = [_split(value, row.blocks) for value in (row.flops, row.transcendentals, row.bytes_accessed)]
            whole = sum(share for _, share in row.blocks)
            for place, (path, share) in enumerate(row.blocks):
                time_s = None if row.time_s is None else row.time_s * (share / whole if whole else 1.0)
                parts.setdefault(path, []).append(Figures(*(values[place] for values in split), time_s=time_s))
        for path, count in self.params.items():
            parts.setdefault(path, []).append(Figures(params=count))
        return {path: self._sum(found) for path, found in parts.items()}

    def _sum(self, parts: Iterable[Figures]) -> Figures:
        every = tuple(parts)

        def of(field: Callable[[Figures], int | None]) -> int | None:
            values = [field(one) for one in every]
            # What depends on a size without a number may be any part of the whole: the rest would say nothing of it.
            return None if self.symbols and None in values else known_sum(values)

        return Figures(
            of(lambda one: one.flops), of(lambda one: one.transcendentals), of(lambda one: one.bytes_accessed),
            of(lambda one: one.params), _seconds(every),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain data."""
        return {
            "program": self.program,
            "source": self.source,
            "total": asdict(self.total),
            "by_block": {path: asdict(figures) for path, figures in self.by_block.items()},
            "by_role": {role: asdict(figures) for role, figures in self.by_role.items()},
            "unattributed": asdict(self.unattributed),
            "rows": [{**asdict(row), "blocks": dict(row.blocks)} for row in self.rows],
            "notes": list(self.notes),
            "xla": None if self.xla is None else asdict(self.xla),
            "once": asdict(self.once),
        }

    def to_json(self) -> str:
        """Return the same as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def __str__(self) -> str:
        rows = [*self.by_block.items(), ("(unattributed)", self.unattributed), ("total", self.total)]
        table = [("block", "FLOPs", "transcendentals", "bytes", "params")]
        table += [
            (path, *map(_told, (figures.flops, figures.transcendentals, figures.bytes_accessed, figures.params)))
            for path, figures in rows
            if figures != Figures() or path == "total"
        ]
        widths = [max(len(line[place]) for line in table) for place in range(5)]
        lines = [
            "  ".join(
                [f"{line[0]:<{widths[0]}}", *(f"{cell:>{widths[place]}}" for place, cell in enumerate(line) if place)]
            )
            for line in table
        ]
        return "\n".join([f"{self.program}: {self.source}", *lines, *self.notes])


_KNOWN: WeakKeyDictionary[Inspection, dict[str, Cost]] = WeakKeyDictionary()


def cost_of(inspection: Inspection, source: str = "analytic") -> Cost:
    """Return what a program costs, by one way of counting; made once for each.

    Args:
        inspection: The program.
        source: One of `SOURCES`. `"analytic"` only traces it, `"lowered"` lowers and `"compiled"` compiles it.

    Raises:
        UnknownOptionError: There is no such way of counting.
        StageUnavailableError: The program cannot be traced, lowered or compiled.
    """
    if source not in SOURCES:
        raise UnknownOptionError(
            f"costs of {inspection.name!r} cannot be counted by {source!r}.",
            (("sources", ", ".join(SOURCES)),),
            'inspection.cost(source="analytic")',
        )
    known = _KNOWN.setdefault(inspection, {})
    if source not in known:
        known[source] = _analytic(inspection) if source == "analytic" else _counted(inspection, source)
    return known[source]


def _analytic(inspection: Inspection) -> Cost:
    program = SymbolicProgram(inspection.name, inspection.equations, inspection.inputs)
    return of_equations(program.costs(), program)


def of_equations(costs: Iterable[EquationCost], program: SymbolicProgram) -> Cost:
    """Return what a program costs whose equations are known.

    Args:
        costs: What each of its equations costs.
        program: The program.
    """
    found = tuple(costs)
    rows = tuple(
        CostRow(
            one.id, one.primitive, ((one.block, 1.0),) if one.block else (), one.role, one.flops, one.transcendentals,
            one.bytes, one.repeats, one.formula, letters=one.letters,
        )
        for one in found
    )  # fmt: skip
    once = Source("analytic, loops once", sum(one.once for one in found))
    notes = (*program.notes, _TIME) if program.symbols else _notes(rows)
    return Cost(program.name, "analytic", rows, program.params, notes, None, once, program)


def _counted(inspection: Inspection, source: str) -> Cost:
    stage = inspection.stage(_STAGES[source])
    if stage.unavailable is not None:
        raise StageUnavailableError(
            f"program {inspection.name!r} has no {source} costs.",
            (("reason", stage.unavailable),),
            'inspection.cost(source="analytic")',
        )
    costs = hlo_costs(stage, _trips(inspection, stage))
    rows = tuple(
        CostRow(
            one.instruction.id, one.instruction.opcode, one.instruction.shares, one.instruction.role,
            _times(one.flops, one.repeats), _times(one.transcendentals, one.repeats), _times(one.bytes, one.repeats),
            one.repeats, one.formula,
        )
        for one in costs
    )  # fmt: skip

    def once(field: str) -> int:
        return sum((getattr(one, field) or 0) * one.once for one in costs)

    return Cost(
        inspection.name,
        source,
        rows,
        SymbolicProgram(inspection.name, (), inspection.inputs).params,
        _notes(rows),
        source_of(f"XLA {source}", lambda: inspection.analysis(source)),
        Source(f"{source}, loops once", once("flops"), once("transcendentals"), once("bytes")),
    )


def _trips(inspection: Inspection, stage: Stage) -> dict[str, int]:
    """Return how often loops go round that come from a scan: XLA finds it out later than before its passes."""
    lengths = {one.id: one.param.get("length") for one in inspection.equations if one.primitive == "scan"}
    found: dict[str, int] = {}
    for one in stage.instructions if lengths else ():
        # The loop of a scan has the equations of its body as well, and so those of scans within: the outermost is its.
        own = min((id for id in one.equations if id in lengths), key=len, default="") if one.opcode == "while" else ""
        length = lengths.get(own)
        if isinstance(length, int):
            found[one.id] = length
    return found


def _notes(rows: Iterable[CostRow]) -> tuple[str, ...]:
    groups: dict[tuple[str, str, str], int] = {}
    for row in rows:
        unknown = [name for name in ("flops", "bytes_accessed") if getattr(row, name) is None]
        if unknown:
            why = "nobody knows how often it runs" if row.repeats is None else row.formula
            key = " and ".join(unknown), row.opcode, why
            groups[key] = groups.get(key, 0) + 1
    told = [f"{names} of {count} × {opcode}: {why}" for (names, opcode, why), count in groups.items()]
    return (*told, _TIME)


def _times(each: int | None, repeats: int | None) -> int | None:
    if each == 0 or repeats == 0:
        return 0
    return None if each is None or repeats is None else each * repeats


def _split(value: int | None, shares: tuple[tuple[str, float], ...]) -> list[int | None]:
    """Return the parts of a whole number by shares, themselves whole, that sum to it; the largest rests are rounded up.

    Examples:
        >>> _split(10, (("a", 1 / 3), ("b", 1 / 3), ("c", 1 / 3)))
        [4, 3, 3]
    """
    if value is None or len(shares) < 2:
        return [value] * max(len(shares), 1)
    weights = [Fraction(share) for _, share in shares]
    wanted = [value * weight / sum(weights) for weight in weights]
    parts = [int(part) for part in wanted]
    for place in sorted(range(len(parts)), key=lambda place: parts[place] - wanted[place])[: value - sum(parts)]:
        parts[place] += 1
    return [*parts]


def _seconds(parts: Iterable[Figures]) -> float | None:
    """Return the sum of what was measured; `None` if nothing was: a row without an event took no time of its own."""
    known = [one.time_s for one in parts if one.time_s is not None]
    return math.fsum(known) if known else None


def _told(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
