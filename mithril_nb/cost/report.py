"""Costs added up: by equation, by block, by role, for the whole program. Integers, so that sums are exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from mithril_nb.cost import contractions, randomness, reductions  # noqa: F401  They register their rules.
from mithril_nb.cost.rules import RULES, Work, bytes_moved, is_folded
from mithril_nb.cost.xla import Memory, Source, memory_of, source_of
from mithril_nb.display import Shown
from mithril_nb.stages.inspection import Inspection
from mithril_nb.stages.records import UNATTRIBUTED, Equation, Role

ANALYTIC = "analytic (jaxpr)"
ANALYTIC_ONCE = "analytic, loops once"
LOWERED = "XLA lowered"
COMPILED = "XLA compiled"

NO_RULE = "no rule"
NO_TRIP_COUNT = "trip count unknown"


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
        each: FLOPs of one run; `None` if there is no rule.
        once: FLOPs counted as XLA counts them, loops once.
        formula: How the FLOPs were computed, or why not.
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


@dataclass(frozen=True)
class BlockCost:
    """What one block costs, without the blocks inside it.

    Attributes:
        block: Its path; `"(loss)"`, `"(optimizer)"`, or `""` for what no block caused.
        flops: FLOPs of its equations.
        transcendentals: Their transcendentals.
        bytes: Bytes that they read and write, unfused.
        params: Number of its parameters.
        forward: FLOPs of these in the forward pass,
        backward: in the backward pass,
        update: and in the optimizer.
        unknown: How many of its equations have no known cost.
    """

    block: str
    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0
    params: int = 0
    forward: int = 0
    backward: int = 0
    update: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class Total:
    """The sum over all blocks.

    Attributes:
        flops: FLOPs.
        transcendentals: Transcendentals.
        bytes: Bytes read and written, unfused.
        params: Number of parameters.
    """

    flops: int
    transcendentals: int
    bytes: int
    params: int


@dataclass(frozen=True)
class Unknown:
    """Equations whose cost is not in the total.

    Attributes:
        primitive: Their primitive.
        reason: `"no rule"` or `"trip count unknown"`.
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
    def unattributed_share(self) -> float:
        """Share of the FLOPs that no block caused."""
        lost = self.by_block.get(UNATTRIBUTED)
        return lost.flops / self.total.flops if lost is not None and self.total.flops else 0.0

    @property
    def attributed_share(self) -> float:
        """Share of the FLOPs that some block caused."""
        return 1.0 - self.unattributed_share

    def source(self, name: str) -> Source | None:
        """Return the figures of one source, or `None` if it is not there."""
        return next((source for source in self.sources if source.name == name), None)

    def subtree(self, path: str) -> BlockCost:
        """Return the cost of a block with all blocks inside it; `""` gives the whole program."""
        inside = [row for row in self.rows if not path or row.block == path or row.block.startswith(f"{path}/")]
        return _sum(path, inside)

    def to_dict(self) -> dict[str, object]:
        """Return the same as JSON-able data, without the single equations."""
        return {
            "program": self.program,
            "rows": [
                {
                    **asdict(row),
                    "label": row.block.rpartition("/")[2] or "(unattributed)",
                    "share": row.flops / self.total.flops if self.total.flops else 0.0,
                }
                for row in self.rows
            ],
            "total": asdict(self.total),
            "unattributed_share": self.unattributed_share,
            "unknown": [{**asdict(one), "blocks": list(one.blocks)} for one in self.unknown],
            "sources": [asdict(source) for source in self.sources],
            "memory": None if self.memory is None else asdict(self.memory),
        }

    def __str__(self) -> str:
        lines = [f"{'block':<28} {'FLOPs':>16} {'forward':>16} {'backward':>16} {'update':>14} {'params':>12}"]
        for row in (*self.rows, _sum("total", self.rows)):
            name = row.block or "(unattributed)"
            split = f"{row.forward:>16,} {row.backward:>16,} {row.update:>14,}"
            lines.append(f"{name:<28} {row.flops:>16,} {split} {row.params:>12,}")
        lines += [f"unknown: {one.count} x {one.primitive} ({one.reason})" for one in self.unknown]
        return "\n".join(lines)


def report(inspection: Inspection) -> CostReport:
    """Add up what a program costs, from its jaxpr alone: nothing is lowered, compiled or run.

    Figures of XLA that are there already are taken along; `with_xla` makes them.

    Args:
        inspection: The program.

    Returns:
        Its costs.

    Raises:
        StageUnavailableError: The program cannot be traced.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from mithril_nb.stages import inspect
        >>> square = jax.ShapeDtypeStruct((128, 128), jnp.float32)
        >>> def ten(x, w):
        ...     return jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=10)[0]
        >>> report(inspect(ten, square, square)).total.flops
        41943040
    """
    found = cost_equations(inspection.equations)
    blocks: dict[str, list[EquationCost]] = {}
    for cost in found:
        blocks.setdefault(cost.block, []).append(cost)
    params: dict[str, int] = {}
    for one in inspection.inputs:
        if one.is_param:
            params[one.block] = params.get(one.block, 0) + (one.spec.size or 0)
            blocks.setdefault(one.block, [])
    rows = tuple(_block(path, costs, params.get(path, 0)) for path, costs in blocks.items())
    whole = _sum("", rows)
    total = Total(whole.flops, whole.transcendentals, whole.bytes, whole.params)
    sources = [Source(ANALYTIC, total.flops, total.transcendentals, total.bytes)]
    once = sum(cost.once for cost in found)
    if once != total.flops:
        sources.append(Source(ANALYTIC_ONCE, once))
    made = CostReport(inspection.name, found, rows, total, tuple(sources), _unknown(found))
    return with_xla(made, inspection, lower=False)


def with_xla(costs: CostReport, inspection: Inspection, *, lower: bool = True, compile: bool = False) -> CostReport:
    """Return the report with XLA's own figures, for the stages that exist or are asked for.

    Args:
        costs: The report.
        inspection: The program that it is about.
        lower: Whether to lower the program for it.
        compile: Whether to compile the program for it, which may take long.

    Raises:
        Exception: What JAX or XLA said when they could not lower or compile it.
    """
    sources = [source for source in costs.sources if source.name not in (LOWERED, COMPILED)]
    memory = costs.memory
    if lower or compile or inspection.is_lowered:
        _ = inspection.lowered
        sources.append(source_of(LOWERED, lambda: inspection.analysis("lowered")))
    if compile or inspection.is_compiled:
        _ = inspection.compiled
        sources.append(source_of(COMPILED, lambda: inspection.analysis("compiled")))
        memory = memory_of(lambda: inspection.analysis("memory"))
    return replace(costs, sources=tuple(sources), memory=memory)


def cost_equations(equations: Iterable[Equation]) -> tuple[EquationCost, ...]:
    """Return what each equation costs that is not just a call of others.

    Of the branches of a condition only the dearest counts, as in XLA.
    """
    everything = tuple(equations)
    found = tuple(_cost(equation) for equation in everything if not equation.is_call)
    for condition in reversed([one for one in everything if one.primitive == "cond" and one.is_call]):
        found = _dearest_branch(condition.id, found)
    return found


def _cost(equation: Equation) -> EquationCost:
    rule = RULES.get(equation.primitive)
    repeats = equation.repeats if equation.is_used else 0
    work: Work | None = None
    if not equation.is_used:
        work, formula = Work(0), "0: nothing needs it"
    elif rule is None:
        formula = NO_RULE
    elif is_folded(equation):
        work, formula = Work(0), "0: XLA folds it"
    else:
        work = rule.work(equation)
        formula = NO_RULE if work is None else rule.formula
    moved = bytes_moved(equation)
    is_known = work is not None and repeats is not None
    return EquationCost(
        equation.id,
        equation.primitive,
        equation.block,
        equation.role,
        work.flops * repeats if work is not None and repeats is not None else None,
        work.transcendentals * repeats if work is not None and repeats is not None else None,
        None if moved is None or repeats is None else moved * repeats,
        repeats,
        None if work is None else work.flops,
        0 if work is None else (work.flops if work.once is None else work.once),
        formula if is_known or work is None else f"{formula}; {NO_TRIP_COUNT}",
    )


def _dearest_branch(condition: str, found: tuple[EquationCost, ...]) -> tuple[EquationCost, ...]:
    branches: dict[str, int] = {}
    start = len(condition) + 1
    for cost in found:
        if cost.id.startswith(f"{condition}.b"):
            branch = cost.id[start:].split(".", 1)[0]
            branches[branch] = branches.get(branch, 0) + cost.once
    if len(branches) < 2:
        return found
    dearest = max(branches, key=lambda branch: branches[branch])
    return tuple(
        replace(cost, flops=0, transcendentals=0, bytes=0, repeats=0, once=0, formula="0: another branch costs more")
        if cost.id.startswith(f"{condition}.b") and not cost.id.startswith(f"{condition}.{dearest}.")
        else cost
        for cost in found
    )


def _block(path: str, costs: list[EquationCost], params: int) -> BlockCost:
    def of(role: str) -> int:
        return sum(cost.flops or 0 for cost in costs if cost.role == role)

    return BlockCost(
        path,
        sum(cost.flops or 0 for cost in costs),
        sum(cost.transcendentals or 0 for cost in costs),
        sum(cost.bytes or 0 for cost in costs),
        params,
        of("forward"),
        of("backward"),
        of("update"),
        sum(1 for cost in costs if cost.flops is None),
    )


def _sum(path: str, rows: Iterable[BlockCost]) -> BlockCost:
    every = tuple(rows)

    def of(field: Callable[[BlockCost], int]) -> int:
        return sum(map(field, every))

    return BlockCost(
        path,
        of(lambda row: row.flops),
        of(lambda row: row.transcendentals),
        of(lambda row: row.bytes),
        of(lambda row: row.params),
        of(lambda row: row.forward),
        of(lambda row: row.backward),
        of(lambda row: row.update),
        of(lambda row: row.unknown),
    )


def _unknown(found: tuple[EquationCost, ...]) -> tuple[Unknown, ...]:
    groups: dict[tuple[str, str], list[EquationCost]] = {}
    for cost in found:
        if cost.flops is None:
            groups.setdefault((cost.primitive, NO_RULE if cost.each is None else NO_TRIP_COUNT), []).append(cost)
    return tuple(
        Unknown(
            primitive,
            reason,
            len(costs),
            sum(cost.each or 0 for cost in costs) if reason == NO_TRIP_COUNT else None,
            len(costs) / len(found),
            tuple(dict.fromkeys(cost.block for cost in costs)),
        )
        for (primitive, reason), costs in groups.items()
    )
