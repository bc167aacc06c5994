"""Time of a what-if on GPT-2 small, by method, next to tracing and compiling again."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from rich.table import Table

from benchmarks.corpus.program import Program, adam_step, ints, spec
from benchmarks.gpt import HEADS, LAYERS, VOCABULARY, WIDTH, plain_forward, plain_shapes
from mithril_nb.analysis.whatif import Change, WhatIf, what_if
from mithril_nb.analysis.whatif.learning import comparable
from mithril_nb.cost import Cost
from mithril_nb.inspection import Inspection
from mithril_nb.targets import inspect

BAR_S = 0.3
"""Time within which a change must be returned."""
CHANGES: tuple[Mapping[str, Any], ...] = (
    {"batch": 8},
    {"tokens": 512},
    {"width": 1536},
    {"heads": 6},
    {"depth": 24},
    {"vocabulary": 32000},
    {"batch": 16, "width": 960},
    {"batch": 3, "tokens": 300, "width": 1200, "heads": 10, "depth": 20},
    {"remat": True},
    {"dtype": "bfloat16"},
)


@dataclass(frozen=True)
class Timing:
    """Measurements of one change.

    Attributes:
        settings: The changed settings.
        way: Origin of the figures.
        answer_s: Seconds until all blocks and roles are available.
        answer_cpu_s: CPU seconds of the same, which exclude other processes.
        trace_s: Seconds to trace the changed program and count its cost.
        trace_cpu_s: CPU seconds of the same.
        is_same: True if both give the same costs.
    """

    settings: str
    way: str
    answer_s: float
    answer_cpu_s: float
    trace_s: float
    trace_cpu_s: float
    is_same: bool


def forward(
    batch: int = 2,
    tokens: int = 128,
    width: int = WIDTH,
    depth: int = LAYERS,
    heads: int = HEADS,
    vocabulary: int = VOCABULARY,
    dtype: Any = "float32",
    remat: bool = False,
) -> Program:
    """Return the forward pass of GPT-2 small, or of a similar model."""
    params = {name: spec(*shape, dtype=dtype) for name, shape in plain_shapes(depth, width, vocabulary).items()}
    run: Any = functools.partial(plain_forward, layers=depth, heads=heads)
    return jax.checkpoint(run) if remat else run, (params, ints(batch, tokens))


@functools.wraps(forward, assigned=())  # copies the signature, and so the settings
def train_step(**settings: Any) -> Program:
    """Return its Adam train step."""
    function, (params, tokens) = forward(**settings)
    return adam_step(function, params, tokens, tokens)


MAKES: dict[str, Callable[..., Program]] = {"forward": forward, "train step": train_step}


def what_if_tables(full: bool, rounds: int = 3) -> Iterator[Table]:
    """Yield the time to prepare and the time of each change.

    Args:
        full: Whether the train step is compiled too, which takes half a minute.
        rounds: Number of measurements of each change, of which the median counts.
    """
    yield from (_table(name, make, rounds, name == "forward" or full) for name, make in MAKES.items())


def measure(make: Callable[..., Program], found: WhatIf, settings: Mapping[str, Any], rounds: int) -> Timing:
    """Measure one change, and a trace of the same program."""
    answers = [_timed(lambda: _read_all(found(**settings))) for _ in range(rounds)]
    traces = [_timed(lambda: _read_all(_traced(make, settings).cost())) for _ in range(rounds)]
    change, cost = answers[-1].value, traces[-1].value
    return Timing(
        ", ".join(f"{name}={value}" for name, value in settings.items()),
        change.way,
        statistics.median(one.wall_s for one in answers),
        statistics.median(one.cpu_s for one in answers),
        statistics.median(one.wall_s for one in traces),
        statistics.median(one.cpu_s for one in traces),
        comparable(change.after) == comparable(cost),
    )


def _table(name: str, make: Callable[..., Program], rounds: int, compiles: bool) -> Table:
    start = _timed(lambda: what_if(make, learns=True))
    prepared = _timed(start.value.ready)
    compiled = _timed(lambda: _compiled(make)) if compiles else None
    title = f"what if: GPT-2 small, {name}; first {start.wall_s:.1f} s, prepared in background {prepared.wall_s:.1f} s"
    if compiled is not None:
        title += f"; compiled in {compiled.wall_s:.1f} s"
    table = Table("change", "way", "returned in", "CPU", "traced in", "CPU", "same", f"bar {BAR_S:g} s", title=title)
    for settings in CHANGES:
        one = measure(make, start.value, settings, rounds)
        times = (one.answer_s, one.answer_cpu_s, one.trace_s, one.trace_cpu_s)
        met = "met" if one.answer_cpu_s <= BAR_S else "missed"
        table.add_row(
            one.settings, one.way, *(f"{1000 * value:.0f} ms" for value in times), "yes" if one.is_same else "NO", met
        )
    return table


@dataclass(frozen=True)
class _Timed:
    value: Any
    wall_s: float
    cpu_s: float


def _timed(do: Callable[[], Any]) -> _Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    value = do()
    return _Timed(value, time.perf_counter() - wall, time.process_time() - cpu)


def _read_all(found: Change | Cost) -> Change | Cost:
    """Compute all that a table shows: totals, blocks and roles."""
    cost = found.after if isinstance(found, Change) else found
    assert cost.total.flops is not None
    assert cost.by_block
    assert cost.by_role
    return found


def _traced(make: Callable[..., Program], settings: Mapping[str, Any]) -> Inspection:
    function, args = make(**settings)
    return inspect(function, *args)


def _compiled(make: Callable[..., Program]) -> Any:
    function, args = make()
    return jax.jit(function).lower(*args).compile()
