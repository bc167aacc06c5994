"""Check costs against other tools on the same programs, and measure how long counting takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from rich.table import Table

from benchmarks.corpus import Make, corpus
from benchmarks.corpus.program import Program, spec
from benchmarks.interleaved import Comparison, compare
from benchmarks.published import PUBLISHED, padded_products
from benchmarks.stages import compiled, paired
from mithril_nb.cost import SOURCES, Cost
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect

REPORT_BAR = 1.2
"""Bar for the time of the whole report of costs, relative to compiling alone."""
CLOSED_FORMS = {
    "a scan of ten 128x128 products": 41_943_040,
    "MLP, train step": 308_150_272,
    "GPT-2 small, forward": 64_456_359_936,
    "GPT-2 small, train step": 193_369_079_808,
    "GPT-2 small by scan, forward": 64_456_359_936,
    "GPT-2 small by scan, train step": 193_369_079_808,
    "ResNet-50, forward": 32 * 8_178_368_512,
}
"""FLOPs of matrix products and convolutions, padding included, from formulas: `tests/cost/test_closed_forms.py`."""
_FIELDS = ("flops", "transcendentals", "bytes_accessed", "params")
_MOST_BYTES = 600_000_000
_COUNT = re.compile(r"│[^│]*│[^│]*│[^│]*│[^│]*│ (\d+) ")


def cost_tables(full: bool) -> Iterator[Table]:
    """Yield the results, one table for each question.

    Args:
        full: Whether to use programs of realistic size, instead of small ones, where they are compiled.
    """
    yield sums_table(full)
    yield closed_forms_table()
    yield published_table()


def cost_comparisons(rounds: int, full: bool) -> Iterator[Comparison]:
    """Yield the time of the whole report, from all sources and with memory, relative to compiling alone."""
    programs = corpus(full=True)
    names = ["MLP, train step", "LeNet, train step", "GPT-2 small, train step" if full else "GPT-2 small, forward"]
    for name in names:
        fn, args = programs[name]()
        is_long = name.startswith("GPT")
        count = 2 if is_long else max(3, rounds // 20)
        pair = paired(fn, args, report, compiled)
        yield compare(f"costs by all sources, {name}", *pair, bar=REPORT_BAR, rounds=count)
        pair = paired(fn, args, report_with_memory, compiled)
        yield compare(f"the same and memory by block, {name}", *pair, bar=REPORT_BAR, rounds=count)


def report(fn: Callable[..., Any], args: tuple[Any, ...]) -> Inspection:
    """Count the cost of a program from all sources that do not run it."""
    inspection = inspect(fn, *args)
    for cost in inspection.costs().by_source.values():
        _ = cost.total
    return inspection


def report_with_memory(fn: Callable[..., Any], args: tuple[Any, ...]) -> Inspection:
    """Find the memory of each block over time, and count the cost of a program from all sources."""
    inspection = inspect(fn, *args)
    _ = inspection.memory.peak_bytes
    _ = inspection.costs().by_source["compiled"].total
    return inspection


@dataclass(frozen=True)
class Sums:
    """Results for one program.

    Attributes:
        name: Its name.
        is_exact: For each source, whether blocks and the unattributed part add up to the total in every figure.
        off: For each source, relative difference between our sum, with loops counted once, and XLA's FLOPs. Equations
            are compared with XLA's figure of the lowered program.
        peak: Relative difference between the predicted peak memory and `memory_analysis()`; `None` if unknown.
        unknown: Number of rows of all sources without known FLOPs but with a reason.
        silent: Number of rows without known FLOPs and without a reason.
    """

    name: str
    is_exact: dict[str, bool]
    off: dict[str, float | None]
    peak: float | None
    unknown: int
    silent: int


def sums(name: str, make: Make) -> Sums:
    """Compile a program and return its results."""
    fn, args = make()
    inspection = inspect(fn, *args, name=name)
    costs = {source: inspection.cost(source=source) for source in SOURCES}
    rows = [row for cost in costs.values() for row in cost.rows if row.flops is None]
    return Sums(
        name,
        {source: all(_adds_up(cost, field) for field in _FIELDS) for source, cost in costs.items()},
        {source: _off(cost, costs["lowered" if source == "analytic" else source]) for source, cost in costs.items()},
        _peak_off(inspection),
        len(rows),
        sum(not row.formula and row.repeats is not None for row in rows),
    )


def _adds_up(cost: Cost, field: str) -> bool:
    parts = [getattr(one, field) or 0 for one in (*cost.by_block.values(), cost.unattributed)]
    return sum(parts) == (getattr(cost.total, field) or 0)


def _off(cost: Cost, reference: Cost) -> float | None:
    if reference.xla is None or reference.xla.flops is None or cost.once.flops is None:
        return None
    return cost.once.flops / reference.xla.flops - 1 if reference.xla.flops else float(cost.once.flops != 0)


def _peak_off(inspection: Inspection) -> float | None:
    memory = inspection.memory
    if memory.xla is None or memory.peak_bytes is None:
        return None
    constants = memory.kinds.get("constants", 0)  # `memory_analysis()` omits them
    xla = memory.xla.argument + memory.xla.output + memory.xla.temp - memory.xla.alias
    return (memory.peak_bytes - constants) / xla - 1 if xla else None


def sums_table(full: bool) -> Table:
    """Return a table of whether parts add up over the corpus, and of the differences from XLA."""
    off = [f"{source} − XLA" for source in SOURCES]
    table = Table("sums over the corpus", *SOURCES, *off, "peak − XLA", "unknown", "silent")
    for name, make in corpus(full).items():
        if name.startswith("sharded"):  # needs eight devices
            continue
        found = sums(name, make)
        exact = ["exact" if found.is_exact[source] else "[red]not[/red]" for source in SOURCES]
        far = [_share(found.off.get(source), 0.005) for source in SOURCES]
        silent = f"[red]{found.silent}[/red]" if found.silent else "0"
        table.add_row(name, *exact, *far, _share(found.peak, 0.05), str(found.unknown), silent)
    return table


def closed_forms_table() -> Table:
    """Return our counts and those of other tools for programs with known costs, loops included; nothing is run."""
    others = {"ours": ours, "XLA, lowered": by_xla, "jax roofline": by_roofline, "flax tabulate": by_flax}
    table = Table("matrix products and convolutions", "FLOPs", *others)
    programs = corpus(full=True) | {"a scan of ten 128x128 products": ten_products}
    for name, expected in CLOSED_FORMS.items():
        fn, args = programs[name]()
        table.add_row(name, f"{expected:,}", *(_format_count(count(fn, args), expected) for count in others.values()))
    return table


def ten_products() -> Program:
    """Return a scan of ten matrix products."""
    return lambda x, w: lax.scan(lambda c, _: (c @ w, None), x, None, length=10)[0], (spec(128, 128),) * 2


def ours(fn: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """Count the FLOPs of matrix products and convolutions, padding included."""
    return 2 * sum(count for _, count in padded_products(inspect(fn, *args)))


def by_xla(fn: Callable[..., Any], args: tuple[Any, ...]) -> float | None:
    """Return XLA's FLOPs of the lowered program."""
    return (jax.jit(fn).lower(*args).cost_analysis() or {}).get("flops")


def by_roofline(fn: Callable[..., Any], args: tuple[Any, ...]) -> float | None:
    """Return JAX's roofline estimate, which counts matrix products; `None` if its dependencies are missing."""
    try:
        from jax.experimental import roofline  # needs absl, which JAX does not install
    except ImportError:
        return None
    _, found = roofline.roofline(fn)(*args)
    return found.flops


def by_flax(fn: Callable[..., Any], args: tuple[Any, ...]) -> float | None:
    """Return the FLOPs in the summary of an equivalent Flax module; `None` if it would need much memory."""
    from flax import linen
    from flax.linen.summary import tabulate

    if sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(args)) > _MOST_BYTES:
        return None
    arrays = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), args)  # `tabulate` accepts no specs

    class Module(linen.Module):
        def __call__(self, *args: Any) -> Any:
            return fn(*args)

    options = {"width": 400, "force_terminal": False, "no_color": True}
    table = tabulate(Module(), jax.random.key(0), compute_flops=True, console_kwargs=options)(*arrays)
    found = _COUNT.search(table)
    return float(found.group(1)) if found else None


def published_table() -> Table:
    """Return our costs of networks next to published figures."""
    table = Table("published figures", "ours", "theirs", "off", "unit", "parameters", "source")
    for one in PUBLISHED:
        found = one.inspected()
        counted, params = one.counted(found), found.cost().total.params
        equal = f"{params:,}" if params == one.params else f"[red]{params:,}, not {one.params:,}[/red]"
        off = _share(counted / one.figure - 1, 0.01)
        table.add_row(one.network, f"{counted:,}", f"{one.figure:,.0f}", off, one.unit, equal, one.source)
    return table


def _format_count(count: float | None, expected: int) -> str:
    if count is None:
        return "–"
    return "exact" if count == expected else f"{100 * (count / expected - 1):+.2f} %"


def _share(share: float | None, bar: float) -> str:
    if share is None:
        return "unknown"
    text = f"{100 * share:+.3f} %"
    return f"[red]{text}[/red]" if abs(share) > bar else text
