"""`time_backends`: the time of each block of a program, run by XLA and as NumPy, PyTorch and C source."""

from __future__ import annotations

import ast
import ctypes
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np

from mithril_nb.analysis.measure.profiling import inspected, profile
from mithril_nb.analysis.measure.runs import values_for
from mithril_nb.backends.emitted import EmittedBackend
from mithril_nb.backends.with_autograd.torch_backend import TorchBackend
from mithril_nb.backends.with_manualgrad.c_backend import CBackend
from mithril_nb.backends.with_manualgrad.numpy_backend import NumpyBackend
from mithril_nb.display import columns
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.arrays.rules import Library
from mithril_nb.emission.c import compiling
from mithril_nb.emission.c.emit import emit
from mithril_nb.emission.source import Source
from mithril_nb.emission.stage import instructions_of
from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.paths import lineage
from mithril_nb.hardware.machines import Machine
from mithril_nb.inspection import Inspection
from mithril_nb.stages.trace import traced

BACKENDS: dict[str, type[EmittedBackend]] = {"numpy": NumpyBackend, "torch": TorchBackend, "c": CBackend}
# With given peaks, `profile` measures none, which would take seconds.
_UNKNOWN_PEAKS = Machine("", "", 1, "", "", {"float32": math.inf}, math.inf, "", "")
_CLOCK = """
#include <time.h>
int64_t mithril_nb_times[{count}];
static int64_t mithril_nb_before;
static void mithril_nb_tick(int line) {{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    const int64_t read = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (line) mithril_nb_times[line] += read - mithril_nb_before;
    mithril_nb_before = read;
}}
"""


@dataclass(frozen=True)
class BackendTimes:
    """FLOPs and times of the blocks of a program on several backends; print it to see a table.

    Attributes:
        flops: Analytic FLOPs by path of the block; `None` if unknown. A block includes the blocks inside it.
        seconds: Seconds by backend, then by path of the block. A block includes the blocks inside it.
        totals: Seconds of the whole program by backend.
    """

    flops: Mapping[str, int | None]
    seconds: Mapping[str, Mapping[str, float]]
    totals: Mapping[str, float]

    def __str__(self) -> str:
        head = ("block", "FLOPs", *(f"{name}, us" for name in self.totals))
        rows = [
            (
                path,
                "unknown" if flops is None else f"{flops:,}",
                *(_us(times.get(path)) for times in self.seconds.values()),
            )
            for path, flops in self.flops.items()
        ]
        return columns([head, *rows, ("program", "", *map(_us, self.totals.values()))], range(1, len(head)))


def time_backends(
    target: Any, *args: Any, backends: Sequence[str] | None = None, runs: int = 10, **options: Any
) -> BackendTimes:
    """Run one program with XLA and as source emitted for other backends, and return the time of each block.

    In emitted source, a clock is read after each statement. If a statement computes several equations, such as a fused
    loop in C, each equation gets an equal share of its time, which counts for the equation's block.

    Args:
        target: An `Inspection`, or any target of `ml.inspect`.
        *args: Arguments of the program, as in `ml.profile`; missing ones get placeholder values.
        backends: Backends to compare with XLA: names among `"numpy"`, `"torch"` and `"c"`; by default all that are
            available.
        runs: Number of measured runs. Times of emitted source are medians over the runs; for XLA see `ml.profile`.
        **options: The other arguments of `ml.inspect`.

    Examples:
        >>> import mithril_nb as ml
        >>> pm = ml.compile(ml.models.MLP(4, [8], 3), shapes={"input": [5, 4]})
        >>> found = time_backends(pm.inspect(), backends=["numpy"], runs=3)
        >>> found.flops["linear_0"], found.seconds["numpy"]["linear_0"] > 0, [*found.totals]
        (360, True, ['XLA', 'numpy'])
    """
    names = [name for name, kind in BACKENDS.items() if kind.available()] if backends is None else list(backends)
    unknown = [name for name in names if name not in BACKENDS]
    if unknown:
        raise UnknownOptionError(
            f"time_backends has no backend {unknown[0]!r}.",
            (("known", ", ".join(BACKENDS)),),
            f"backends={[*BACKENDS]!r}",
        )
    inspection, arguments = inspected(target, args, options)
    analytic = inspection.cost("analytic")
    measured = profile(inspection, *arguments, runs=runs, warm_up=2, peaks=_UNKNOWN_PEAKS)
    values, seconds, totals = values_for(inspection, arguments), dict[str, dict[str, float]](), dict[str, float]()
    inside = {path: measured.subtree(path).time_s for path in (*measured.by_group, *measured.by_block)}
    seconds["XLA"] = {path: time_s for path, time_s in inside.items() if time_s is not None}
    totals["XLA"] = measured.wall_s
    for name in names:
        samples = _python(inspection, name, values, runs) if name != "c" else _c(inspection, values, runs)
        totals[name] = statistics.median(total for total, _ in samples)
        paths = {path for _, by_block in samples for path in by_block}
        seconds[name] = {path: statistics.median(by_block.get(path, 0.0) for _, by_block in samples) for path in paths}
    return BackendTimes({path: analytic.subtree(path).flops for path in analytic.by_block}, seconds, totals)


_Sample = tuple[float, dict[str, float]]


def _python(inspection: Inspection, name: str, values: Any, runs: int) -> list[_Sample]:
    program = inspection.traced_program
    source = emit_arrays(program, cast(Library, name))
    times: dict[int, int] = {}
    before = 0

    def tick(line: int) -> None:
        nonlocal before
        now = time.perf_counter_ns()
        times[line] = times.get(line, 0) + now - before
        # The clock is read again, so the bookkeeping of a tick does not count for the next line.
        before = time.perf_counter_ns()

    timed = {number for number, line in enumerate(source.lines, 1) if line.equations}
    tree = ast.fix_missing_locations(_Ticking(timed).visit(ast.parse(source.text)))
    space: dict[str, Any] = {"__name__": "emitted", "_tick": tick}
    exec(compile(tree, f"<{source.name}>", "exec"), space)
    function, backend = space[source.function], BACKENDS[name]()
    positional, named = jax.tree.map(lambda leaf: backend.from_numpy(_numbers(leaf)), values.arguments())
    arguments = {**dict(zip(program.trace.arguments, positional, strict=False)), **named}
    # An argument without arrays is no parameter of the emitted function.
    arguments = {argument: tree for argument, tree in arguments.items() if jax.tree.leaves(tree)}
    shares = _shares_by_line(source, program)

    def run() -> Mapping[int, int]:
        nonlocal before
        times.clear()
        before = time.perf_counter_ns()
        function(**arguments)
        return times

    return _samples(run, lambda line: shares.get(line, ()), runs)


class _Ticking(ast.NodeTransformer):
    def __init__(self, timed: set[int]):
        self._timed = timed

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if any(line in self._timed for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)):
            node.body = [*self._ticked(node.body)]
        return node

    def _ticked(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        for statement in body:
            for name in ("body", "orelse"):
                if getattr(statement, name, None):
                    setattr(statement, name, [*self._ticked(getattr(statement, name))])
            yield statement
            # Code after these statements never runs.
            if not isinstance(statement, ast.Return | ast.Break):
                call = ast.Call(ast.Name("_tick", ast.Load()), [ast.Constant(statement.lineno)], [])
                yield ast.copy_location(ast.Expr(call), statement)


def _c(inspection: Inspection, values: Any, runs: int) -> list[_Sample]:
    program = inspection.traced_program
    file = emit(program)
    text, groups = _ticking_c(file.source)
    library = compiling.load({"timed": text})
    routine = compiling.Routine(library, file)
    times = (ctypes.c_int64 * (len(file.source.lines) + 1)).in_dll(library, "mithril_nb_times")
    leaves = [_numbers(leaf) for leaf in jax.tree.leaves(values.arguments())]
    shares = _shares_by_line(file.source, program)

    def run() -> Mapping[int, int]:
        ctypes.memset(times, 0, ctypes.sizeof(times))
        routine(*leaves)
        return {line: times[line] for line in groups if times[line]}

    return _samples(run, lambda line: [path for each in groups[line] for path in shares.get(each, ())], runs)


def _ticking_c(source: Source) -> tuple[str, dict[int, range]]:
    lines, groups = list[str](), dict[int, range]()
    is_body, is_emitted, start = False, False, 0
    for number, line in enumerate(source.lines, 1):
        text = line.text
        # Statements of a function's body have four spaces; deeper ones, closing braces and casts to void are parts of
        # them.
        starts = is_body and text.startswith("    ") and not text.startswith(("     ", "    }", "    (void)"))
        if is_body and (starts or text == "}"):
            lines.append(f"    mithril_nb_tick({start});")
            if start:
                groups[start] = range(start, number)
            start = number if starts else 0
        # Helpers come first; their time belongs to the lines that call them.
        is_emitted = is_emitted or line.block != "" or text.startswith("// The whole program")
        is_body = (is_body or (is_emitted and text == "{")) and text != "}"
        lines.append(text)
        if text.startswith("#include <string.h>"):
            lines.append(_CLOCK.format(count=len(source.lines) + 1))
    return "".join(f"{line}\n" for line in lines), groups


def _shares_by_line(source: Source, program: traced.Program) -> dict[int, tuple[str, ...]]:
    _, rows = instructions_of(source, program.by_id, program.inputs)
    return {row.line: tuple([path for path, _ in row.shares]) for row in rows if row.line is not None}


def _samples(run: Callable[[], Mapping[int, int]], blocks: Callable[[int], Sequence[str]], runs: int) -> list[_Sample]:
    samples: list[_Sample] = []
    for number in range(runs + 2):
        began = time.perf_counter_ns()
        times = dict(run())
        total = (time.perf_counter_ns() - began) / 1e9
        sums: dict[str, float] = {}
        for line, elapsed in times.items():
            paths = blocks(line)
            for path in paths:
                for outer in lineage(path):
                    sums[outer] = sums.get(outer, 0.0) + elapsed / 1e9 / len(paths)
        if number >= 2:  # the first runs warm up
            samples.append((total, sums))
    return samples


def _numbers(leaf: Any) -> np.ndarray:
    # NumPy has no dtype for random keys; emitted source takes their words.
    is_key = hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def _us(value: float | None) -> str:
    return "" if value is None else f"{value * 1e6:,.0f}"
