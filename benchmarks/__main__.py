"""Print the benchmarks as a table: `python -m benchmarks [--quick] [--full] [--only evaluate train compose ...]`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator

import jax
from rich.console import Console
from rich.table import Table

from benchmarks.attribution import attribution_tables
from benchmarks.compose import compose_tables
from benchmarks.costs import cost_comparisons, cost_tables
from benchmarks.emission import emission_comparisons, emission_times
from benchmarks.evaluate import evaluate_comparisons
from benchmarks.explorer import explorer_figures
from benchmarks.graph_view import graph_view_figures
from benchmarks.interleaved import Comparison
from benchmarks.messages import message_sizes
from benchmarks.observation import observation_comparisons
from benchmarks.predicted import MEDIAN_BAR, WORST_BAR, compile_times, predictions, summary
from benchmarks.profile import BAR as PROFILE_BAR
from benchmarks.profile import profile_sums
from benchmarks.saved_page import saved_page_figures
from benchmarks.stages import (
    DIFF_BAR_S,
    LARGE_MEMORY_BAR,
    MEMORY_BAR,
    large_comparisons,
    large_memory,
    median_ms,
    pass_times,
    stage_comparisons,
    stage_memory,
)
from benchmarks.starting import deep_chain, starting_times
from benchmarks.startup import startup_times
from benchmarks.tracking import GROWTH_BAR, logged_growth, store_times, tracking_comparisons
from benchmarks.train_step import train_step_comparisons
from benchmarks.watching import watching_comparisons
from benchmarks.whatif import what_if_tables
from benchmarks.workbench import workbench_figures

COMPARISONS: dict[str, Callable[[int], Iterator[Comparison]]] = {
    "evaluate": evaluate_comparisons,
    "train": train_step_comparisons,
    "observation": observation_comparisons,
    "watching": watching_comparisons,
    "tracking": tracking_comparisons,
    "emission": emission_comparisons,
}
PARTS = [
    *COMPARISONS, "stages", "large", "startup", "compose", "params", "depth", "attribution", "explorer", "workbench",
    "graph", "page", "messages", "runs", "profile", "costs", "whatif", "predicted", "devices",
]  # fmt: skip


def main() -> None:
    """Run the requested benchmarks and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a figure to quote")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--full", action="store_true", help="GPT-2 small, ResNet-50, 10,000 scopes too: takes an hour")
    options = parser.parse_args()
    rounds, repeats = (30, 3) if options.quick else (200, 7)
    console = Console()
    console.print(
        f"Python {platform.python_version()}, jax {jax.__version__}, {jax.devices()[0]}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}; {rounds} rounds A B B A, medians"
    )
    comparisons = [name for name in COMPARISONS if name in options.only]
    if comparisons:
        console.print(comparison_table(found for name in comparisons for found in COMPARISONS[name](rounds)))
    if "emission" in options.only:
        table = Table("emitted source", "time", "bar")
        for name, seconds, bar in emission_times():
            table.add_row(name, si(seconds), "" if bar is None else f"{bar:.0f} s")
        console.print(table)
    if "stages" in options.only:
        print_stages(console, rounds, options.full)
    if "large" in options.only:
        console.print(comparison_table(large_comparisons(options.full)))
        console.print(memory_table("lowered", large_memory(options.full), LARGE_MEMORY_BAR))
    if "startup" in options.only:
        table = Table("before the first step", "median")
        table.columns[1].justify = "right"
        for name, seconds in startup_times(repeats):
            table.add_row(name, si(seconds))
        console.print(table)
    if "compose" in options.only:
        for table in compose_tables(repeats):
            console.print(table)
    if "params" in options.only:
        table = Table("initial values", "ours", "one jax.jit", "ratio", "bar")
        for name, ours, theirs, bar in starting_times(repeats):
            table.add_row(name, si(ours), si(theirs), f"{ours / theirs:.2f}", f"{bar}")
        console.print(table)
    if "depth" in options.only:
        composed, compiled = deep_chain()
        console.print(
            f"a chain of 2,000 blocks, CPU time: {si(composed)} to compose, {si(compiled)} to compile and print; "
            f"recursion limit {sys.getrecursionlimit()}"
        )
    if "attribution" in options.only:
        for table in attribution_tables(full=not options.quick):
            console.print(table)
    if "explorer" in options.only:
        table = Table("the explorer in JupyterLab", "figure", "bar")
        for row in explorer_figures():
            table.add_row(*row)
        console.print(table)
    if "workbench" in options.only:
        table = Table("the workbench in JupyterLab", "figure", "bar")
        for row in workbench_figures():
            table.add_row(*row)
        console.print(table)
    if "graph" in options.only:
        table = Table("a graph in Chromium without a GPU", "figure", "bar")
        for row in graph_view_figures():
            table.add_row(*row)
        console.print(table)
    if "page" in options.only:
        table = Table("the saved page of an inspection", "figure", "bar")
        for row in saved_page_figures(options.full):
            table.add_row(*row)
        console.print(table)
    if "messages" in options.only:
        table = Table("messages between kernel and page", "size", "bar")
        for row in message_sizes():
            table.add_row(*row)
        console.print(table)
    if "runs" in options.only:
        table = Table("stored runs", "time", "bar")
        for name, taken_s, bar_s in store_times():
            table.add_row(name, f"{taken_s * 1e3:.0f} ms", f"{bar_s * 1e3:.0f} ms")
        growth, bar = f"{logged_growth() / 1e6:.1f} MB", f"{GROWTH_BAR / 1e6:.0f} MB"
        table.add_row("memory that 20,000 steps of 20 scalars take", growth, bar)
        console.print(table)
    if "profile" in options.only:
        table = Table(
            "measured times, one thread", "wall", "instructions", "with gaps", "with dispatch", "best 10 %", "bar"
        )
        for name, middle, best in profile_sums(1 if options.quick else 4):
            shown = f"[red]{middle.instructions:.3f} over[/red]" if middle.is_over else f"{middle.instructions:.3f}"
            ratios = [f"{ratio:.3f}" for ratio in (middle.with_gaps, middle.whole, best.instructions)]
            table.add_row(name, si(middle.wall_s), shown, *ratios, f"1 ± {PROFILE_BAR}")
        console.print(table)
    if "costs" in options.only:
        for table in cost_tables(options.full):
            console.print(table)
        console.print(comparison_table(cost_comparisons(rounds, options.full)))
    if "predicted" in options.only:
        table = Table("predicted times of this CPU, one thread", "predicted", "measured", "ratio")
        times = [*predictions(repeats)]
        for name, predicted_s, measured_s in times:
            table.add_row(name, si(predicted_s), si(measured_s), f"{predicted_s / measured_s:.2f}")
        median, worst = summary(times)
        table.caption = f"median error {median:.0%} (bar {MEDIAN_BAR:.0%}), worst ratio {worst:.2f} (bar {WORST_BAR})"
        console.print(table)
    if "devices" in options.only:
        table = Table("compiling for an H100", "figure", "bar")
        for row in compile_times(options.full):
            table.add_row(*row)
        console.print(table)
    if "whatif" in options.only:
        for table in what_if_tables(options.full):
            console.print(table)


def comparison_table(found: Iterator[Comparison]) -> Table:
    """Return the table of comparisons; a ratio over its bar is red and marked."""
    table = Table("against hand-written JAX", "ours", "hand-written", "ratio", "middle half", "best 10 %", "bar")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in found:
        is_over = each.bar is not None and each.ratio > each.bar
        ratio = f"[red]{each.ratio:.3f} over[/red]" if is_over else f"{each.ratio:.3f}"
        spread = f"{each.spread[0]:.3f} to {each.spread[1]:.3f}"
        bar = "" if each.bar is None else f"{each.bar:.2f}"
        table.add_row(each.name, si(each.ours_s), si(each.theirs_s), ratio, spread, f"{each.best:.3f}", bar)
    return table


def print_stages(console: Console, rounds: int, full: bool) -> None:
    """Print the cost of inspecting programs; `tests/stages` checks that it changes neither results nor costs."""
    console.print(comparison_table(stage_comparisons(rounds, full)))
    console.print(memory_table("compiled", stage_memory(full), MEMORY_BAR))
    name, count, listed_s, times = pass_times(full)
    console.print(f"{name}: {count} passes listed in {si(listed_s)}; diff {median_ms(times)} (bar {si(DIFF_BAR_S)})")


def memory_table(bare: str, found: Iterator[tuple[str, int, int]], bar: float) -> Table:
    """Return the table of the peak memory of new processes, inspected and `bare`."""
    table = Table("peak memory of a new process", "inspected", bare, "ratio", "bar")
    for name, ours, theirs in found:
        table.add_row(name, f"{ours / 1e6:.0f} MB", f"{theirs / 1e6:.0f} MB", f"{ours / theirs:.2f}", f"{bar}")
    return table


def si(seconds: float) -> str:
    """Format a time.

    Examples:
        >>> si(0.00123), si(2.0), si(3.2e-5)
        ('1.23 ms', '2.00 s', '32.0 us')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds / size >= 100 else f"{seconds / size:#.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


if __name__ == "__main__":
    main()
