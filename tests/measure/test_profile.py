"""`ml.profile`: what a program takes when it runs, and that nothing of the person's is touched meanwhile."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import mithril_nb as ml
from mithril_nb.measure import Machine, Profile
from mithril_nb.measure.profiles import BETWEEN, DISPATCH

PEAKS = Machine("cpu", "cpu", 2, jax.__version__, "", {"float32": 2e11}, 6e10, "2026-11-22 07:35 UTC")


def looping(x: Any, w: Any) -> Any:
    def body(carry: Any, _: Any) -> Any:
        with jax.named_scope("inside"):
            return jnp.sort(carry @ w, axis=0), carry.sum()

    y, sums = lax.scan(body, x, None, length=7)
    with jax.named_scope("choice"):
        y = lax.cond(sums[0] > 0, lambda v: jnp.sort(v, axis=1), lambda v: jnp.sin(v) @ v, y)
    return y, sums


@pytest.fixture(scope="module")
def loop() -> Profile:
    return ml.profile(looping, jnp.ones((24, 24)), jnp.eye(24), runs=6, warm_up=1, peaks=PEAKS)


def seconds(profile: Profile, rows: Any = None) -> dict[str, float]:
    return {row.id: row.time_s for row in rows or profile.rows if row.time_s is not None}


def test_blocks_and_what_is_nobodys_sum_to_the_whole_exactly(loop: Profile) -> None:
    times = [figures.time_s for figures in (*loop.by_block.values(), loop.unattributed) if figures.time_s is not None]
    assert loop.total.time_s == sum(times) == sum(reversed(times)) == sum(seconds(loop).values())
    assert loop.subtree("").time_s == loop.total.time_s
    assert loop.total.time_s == sum(figures.time_s or 0 for figures in loop.by_role.values())
    assert all(time_s >= 0 for time_s in seconds(loop).values())


def test_what_no_instruction_takes_is_told_apart(loop: Profile) -> None:
    assert {BETWEEN, DISPATCH} <= seconds(loop).keys()
    assert loop.unattributed.time_s >= seconds(loop)[BETWEEN] + seconds(loop)[DISPATCH]
    assert loop.instructions_s == pytest.approx(loop.total.time_s - seconds(loop)[BETWEEN] - seconds(loop)[DISPATCH])


def test_each_run_under_the_profiler_is_divided_whole(loop: Profile) -> None:
    assert {len(samples) for samples in loop.samples.values()} == {6}
    for place, wall_s in enumerate(loop.profiled_s):
        assert sum(samples[place] for samples in loop.samples.values()) == pytest.approx(wall_s)


def test_bodies_of_loops_and_branches_have_times_of_their_own(loop: Profile) -> None:
    opcodes = {row.opcode for row in loop.rows if row.time_s is not None}
    assert {"while", "conditional", "sort"} <= opcodes
    sorts = [row for row in loop.rows if row.opcode == "sort" and row.time_s is not None]
    assert {row.blocks[0][0] for row in sorts} == {"inside", "choice"}
    # The loop runs the sort: what that takes is not the loop's as well.
    loops = sum(row.time_s for row in loop.rows if row.opcode == "while")
    assert loops + sum(row.time_s for row in sorts) < loop.total.time_s


def test_it_costs_what_the_compiled_program_costs(loop: Profile) -> None:
    cost = ml.inspect(looping, jnp.ones((24, 24)), jnp.eye(24)).cost("compiled")
    for field in ("flops", "bytes_accessed", "transcendentals", "params"):
        assert getattr(loop.total, field) == getattr(cost.total, field)
    assert loop.source == "measured"
    assert not any("nothing here is run" in note for note in loop.notes)


def test_runs_are_counted(loop: Profile) -> None:
    assert (loop.runs, loop.warm_up, len(loop.walls_s), len(loop.profiled_s)) == (6, 1, 6, 6)
    assert loop.times_run == 1 + 6 + 6 + 4  # each of the four times that the profiler is switched on has a first run
    called = []

    def program(x: Any) -> Any:
        jax.debug.callback(lambda: called.append(1))
        return x + 1

    found = ml.profile(program, jnp.ones(3), runs=2, warm_up=3, peaks=PEAKS)
    jax.effects_barrier()
    assert len(called) == found.times_run == 3 + 2 + 2 + 2
    assert f"debug_callback: what it does outside was done {found.times_run} times" in found.notes
