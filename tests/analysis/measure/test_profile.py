"""`ml.profile`: measured times of a program, without changing the user's arrays."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax_programs import spec
from raised import message_of

import mithril_nb as ml
from mithril_nb.analysis.measure import Machine, Profile
from mithril_nb.analysis.measure.profiling import BETWEEN, DISPATCH, _timed, middle_mean
from mithril_nb.analysis.measure.runs import RunTimes
from mithril_nb.errors import StageUnavailableError, UnexpectedInputError, UnknownOptionError
from mithril_nb.figures import COUNTED

PEAKS = Machine("cpu", "cpu", 2, jax.__version__, "", {"float32": 2e11}, 6e10, "2026-11-22 07:35 UTC")

ONCE: Any = {"runs": 1, "warm_up": 0, "peaks": PEAKS}


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


def test_blocks_and_unattributed_time_sum_to_the_total(loop: Profile) -> None:
    times = [figures.time_s for figures in (*loop.by_block.values(), loop.unattributed) if figures.time_s is not None]
    assert loop.total.time_s == sum(times) == sum(reversed(times)) == sum(seconds(loop).values())
    assert loop.subtree("").time_s == loop.total.time_s
    assert loop.total.time_s == sum(figures.time_s or 0 for figures in loop.by_role.values())
    assert all(time_s >= 0 for time_s in seconds(loop).values())


@given(
    st.lists(st.floats(1e-4, 1e-2), min_size=1, max_size=6),
    st.lists(st.tuples(*[st.floats(0, 1e7)] * 4), min_size=1, max_size=6),
)
def test_the_total_is_the_time_without_the_profiler(loop: Profile, walls: list[float], runs: list[Any]) -> None:
    """Also if instructions take longer with the profiler than a whole run without it."""
    cost = ml.inspect(jnp.sin, spec(4)).cost("lowered")
    first = cost.rows[0].id
    times = [RunTimes(a + b + c + d, {first: a, "other": b}, c, d, 2) for a, b, c, d in runs]
    rows, samples = _timed(cost, SimpleNamespace(walls_s=tuple(walls)), times)
    seconds_of_rows = sum(row.time_s or 0 for row in rows)
    around = sum(sum(samples[id]) for id in (BETWEEN, DISPATCH))
    wall_s = middle_mean(walls)
    if around:
        assert seconds_of_rows == pytest.approx(wall_s, rel=1e-6)
    assert seconds_of_rows <= wall_s * (1 + 1e-6)
    for id in (first, "other"):
        (time_s,) = (row.time_s for row in rows if row.id == id)
        assert min(samples[id]) * (1 - 1e-6) - 1e-11 <= time_s <= max(samples[id]) * (1 + 1e-6) + 1e-11


def test_shared_time_is_split_exactly(loop: Profile) -> None:
    third = (("a", 1 / 3), ("b", 1 / 3), ("c/d", 1 / 3))
    shared = replace(loop, rows=tuple(replace(row, blocks=third if row.role else ()) for row in loop.rows))
    parts = [shared.by_block[path].time_s for path in ("a", "b", "c/d")]
    assert max(parts) - min(parts) < 1e-9
    assert sum(parts) + shared.unattributed.time_s == shared.total.time_s == loop.total.time_s
    assert shared.subtree("c").time_s == parts[2]


def test_time_outside_instructions_has_its_own_rows(loop: Profile) -> None:
    assert {BETWEEN, DISPATCH} <= seconds(loop).keys()
    assert loop.unattributed.time_s >= seconds(loop)[BETWEEN] + seconds(loop)[DISPATCH]
    assert loop.instructions_s == pytest.approx(loop.total.time_s - seconds(loop)[BETWEEN] - seconds(loop)[DISPATCH])


def test_each_profiled_run_is_divided_completely(loop: Profile) -> None:
    assert {len(samples) for samples in loop.samples.values()} == {6}
    for place, wall_s in enumerate(loop.profiled_s):
        assert sum(samples[place] for samples in loop.samples.values()) == pytest.approx(wall_s)


def test_total_is_the_wall_time_without_the_profiler(loop: Profile) -> None:
    assert loop.total.time_s is not None
    assert loop.instructions_s is not None
    assert loop.total.time_s == pytest.approx(max(loop.wall_s, loop.instructions_s), abs=1e-9)
    spread = loop.spread
    assert spread is not None
    assert spread.least <= loop.wall_s <= spread.most
    assert abs(loop.profiler_s) <= max(loop.profiled_s) + max(loop.walls_s)


def test_loop_bodies_and_branches_have_their_own_times(loop: Profile) -> None:
    opcodes = {row.opcode for row in loop.rows if row.time_s is not None}
    assert {"while", "conditional", "sort"} <= opcodes
    sorts = [row for row in loop.rows if row.opcode == "sort" and row.time_s is not None]
    assert {row.blocks[0][0] for row in sorts} == {"inside", "choice"}
    # The loop runs the sort, whose time does not count for the loop as well.
    loops = sum(row.time_s for row in loop.rows if row.opcode == "while")
    assert loops + sum(row.time_s for row in sorts) < loop.total.time_s


def test_flops_and_bytes_are_those_of_the_compiled_program(loop: Profile) -> None:
    cost = ml.inspect(looping, jnp.ones((24, 24)), jnp.eye(24)).cost("compiled")
    for field in (*COUNTED, "params"):
        assert getattr(loop.total, field) == getattr(cost.total, field)
    assert loop.source == "measured"
    assert not any("nothing here is run" in note for note in loop.notes)


def test_runs_are_counted(loop: Profile) -> None:
    assert (loop.runs, loop.warm_up, len(loop.walls_s), len(loop.profiled_s)) == (6, 1, 6, 6)
    assert loop.times_run == 1 + 6 + 6 + 2 * 4  # the profiler is switched on and off four times: a first run after each
    called = []

    def program(x: Any) -> Any:
        jax.debug.callback(lambda: called.append(1))
        return x + 1

    found = ml.profile(program, jnp.ones(3), runs=2, warm_up=3, peaks=PEAKS)
    jax.effects_barrier()
    assert len(called) == found.times_run == 3 + 2 + 2 + 2 * 2
    assert f"debug_callback: side effects happened {found.times_run} times" in found.notes


def test_donated_arrays_of_the_user_stay_valid() -> None:
    step = jax.jit(lambda params, key, x: (jax.tree.map(lambda w: w - x.sum(), params), key), donate_argnums=(0, 1))
    params, key, x = {"w": jnp.ones((8, 8)), "b": np.ones(8, np.float32)}, jax.random.key(0), jnp.ones(3)
    found = ml.profile(step, params, key, x, runs=2, warm_up=1, peaks=PEAKS)
    assert found.times_run == 1 + 2 + 2 + 2 * 2
    assert not params["w"].is_deleted()
    assert not key.is_deleted()
    assert [np.asarray(one).sum() for one in (params["w"], params["b"], x)] == [64, 8, 3]


@pytest.mark.parametrize("given", [spec(8, dtype="int4"), jnp.ones(8, "int4"), np.ones(8, jnp.int4)])
def test_int4_arrays_have_the_compiled_layout(given: Any) -> None:
    found = ml.profile(lambda x: x.astype("int8") + 1, given, **ONCE)
    assert (found.total.flops, found.times_run) == (16, 4)


def test_missing_values_are_placeholders() -> None:
    def lookup(table: Any, tokens: Any) -> Any:
        return table[tokens]

    inspection = ml.inspect(lookup, spec(5, 4), spec(3, dtype="int32"))
    note = "placeholder values for {}: integers are 0, other numbers small and random"
    assert note.format("table, tokens") in ml.profile(inspection, **ONCE).notes
    # The last arguments suffice, as the inputs of a model with placeholder parameters.
    assert note.format("table") in ml.profile(inspection, jnp.arange(3), **ONCE).notes
    given = ml.profile(inspection, np.ones((5, 4)), jnp.arange(3), **ONCE)
    assert not any("placeholder" in note for note in given.notes)


def test_models_and_options_of_inspect_are_accepted() -> None:
    model = ml.models.Linear(4)
    found = ml.profile(model, shapes={"input": [2, 3]}, optimizer="adam", runs=2, warm_up=0, peaks=PEAKS)
    assert found.program == "train step"
    assert found.by_role["update"].time_s > 0
    assert found.total.params == 16
    given = {"params": jnp.ones((2, 3)), "axis": 0, "scale": 2.0}
    summed = ml.profile(
        lambda params, axis, scale: params.sum(axis) * scale,
        **given,
        static_argnames="axis",
        **ONCE,
    )
    assert summed.total.time_s > 0
    assert summed.total.params == 6
    assert not any("placeholder" in note for note in summed.notes)


def test_arguments_that_do_not_fit_are_rejected() -> None:
    inspection = ml.inspect(jnp.matmul, jnp.ones((2, 3)), jnp.ones((3, 4)), name="product")
    assert message_of(lambda: ml.profile(inspection, jnp.ones((3, 2)), 2.5)) == (
        "UnexpectedInputError: program 'product' does not take these arguments.\n"
        "    takes  a (2, 3) float32, b (3, 4) float32\n"
        "    given  (3, 2) float32, 2.5\n"
        "    Try: ml.profile(inspection)  # with placeholder values of the right shapes"
    )
    assert message_of(lambda: ml.profile(inspection, optimizer="adam")) == (
        "UnknownOptionError: program 'product' is already inspected, and takes no options.\n"
        "    given  optimizer=\n"
        "    Try: ml.profile(ml.inspect(program, *args, optimizer=...))"
    )
    assert message_of(lambda: ml.profile(inspection, runs=0)) == (
        "UnknownOptionError: ml.profile does not accept runs=0.\n    needs  a whole number, 1 or more\n"
        "    Try: ml.profile(inspection, runs=3)"
    )


def test_error_of_a_program_that_does_not_compile() -> None:
    def broken(x: Any) -> Any:
        raise ValueError("no such axis")

    with pytest.raises(StageUnavailableError) as refused:
        ml.profile(broken, jnp.ones(3))
    line = broken.__code__.co_firstlineno + 1
    assert str(refused.value) == (
        "program 'broken' cannot be traced.\n"
        "    ValueError  no such axis\n"
        f'    at          test_profile.py:{line}: raise ValueError("no such axis")\n'
        '    Try: print(inspection.stage("jaxpr").text)  # shows how far tracing came'
    )
    with pytest.raises(StageUnavailableError) as refused:
        ml.profile(jnp.tanh, jnp.ones(3), compiler_options={"no_such_option": True})
    lines = str(refused.value).splitlines()
    assert lines[0] == "program 'tanh' cannot be profiled: it does not compile."
    assert "no_such_option" in lines[1]
    assert lines[-1] == '    Try: inspection.cost(source="analytic")  # needs no compiler'


def test_advice_if_xla_compiles_another_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inspection = ml.inspect(jnp.tanh, jnp.ones(3))
    assert inspection.stage("hlo").text
    with monkeypatch.context() as patched:
        numbers = iter(range(9))
        patched.setattr("mithril_nb.stages.xla.compilation.fingerprint", lambda text: bytes([next(numbers)]))
        assert inspection.stage("asm").unavailable
        with pytest.raises(StageUnavailableError) as refused:
            ml.profile(inspection, **ONCE)
    assert str(refused.value) == (
        "program 'tanh' cannot be profiled with this inspection.\n"
        "    OtherProgramError  XLA compiled the program twice, to two different modules; "
        "inspect it again, and request this result first\n"
        "    Try: ml.profile(ml.inspect(program, *args))  # with a new inspection"
    )
    inspection = ml.inspect(jnp.tanh, jnp.ones(3))
    assert ml.profile(inspection, **ONCE).times_run
    assert inspection.stage("hlo").text


def test_misspelt_option_is_rejected() -> None:
    with pytest.raises(UnexpectedInputError, match="got an unexpected keyword argument 'run'"):
        ml.profile(jnp.tanh, jnp.ones(3), run=3)


def test_invalid_peaks_are_rejected_before_a_run() -> None:
    with pytest.raises(UnknownOptionError) as refused:
        ml.profile(jnp.tanh, jnp.ones(3), peaks=3)  # pyright: ignore[reportArgumentType]
    assert str(refused.value) == (
        "ml.profile does not accept peaks=3.\n    needs  the result of ml.machine()\n"
        "    Try: ml.profile(inspection, peaks=ml.machine())  # or omit peaks= to measure them"
    )


def test_note_on_peaks_of_another_device() -> None:
    other = replace(PEAKS, platform="gpu", device_kind="NVIDIA H100")
    found = ml.profile(jnp.tanh, jnp.ones(3), runs=1, warm_up=0, peaks=other)
    note = (
        "roofline: peaks= describes gpu NVIDIA H100, but the program ran on cpu, so roofline shares are not meaningful"
    )
    assert note in found.notes
    assert not any("peaks=" in note for note in ml.profile(jnp.tanh, jnp.ones(3), runs=1, peaks=PEAKS).notes)


def test_it_shows_as_a_table(loop: Profile) -> None:
    lines = str(loop).splitlines()
    assert lines[0].startswith("looping: ")
    assert lines[0].endswith(" per run, measured in 6 runs after 1 warm-up run")
    heads = ["block", "time", "share", "min to max", "FLOP/s", "bytes/s", "of the roofline"]
    assert re.split(r"  +", lines[1]) == heads
    blocks = [line.split("  ")[0] for line in lines[2:7]]
    assert sorted(blocks) == sorted(["inside", "choice", "looping", BETWEEN, DISPATCH])
    assert lines[7].split()[0] == "total"
    assert f"machine: {PEAKS}" in lines
    counted = "the program ran 21 times: 1 warm-up, 6 timed, 6 with the profiler, 8 not timed "
    assert f"{counted}(the first run of each round, with and without the profiler)" in lines
    assert loop.times_run == 21
    shown = loop._repr_mimebundle_()
    assert shown["text/plain"] == str(loop)
    cells = {unescape(cell) for cell in re.findall(r">([^<>]+)<", shown["text/html"])}
    for line in lines[1:]:  # the HTML has every cell of the text
        assert {cell for cell in re.split(r"  +", line)} <= cells, line
    data = json.loads(loop.to_json())
    assert data["total"]["time_s"] == loop.total.time_s
    assert data["machine"]["flops_per_s"] == {"float32": 2e11}


def test_plots_show_time(loop: Profile) -> None:
    assert loop.treemap().text.startswith("looping: time by block, measured")
    assert loop.treemap("flops").text.startswith("looping: FLOPs by block, measured")
    program = ml.inspect(looping, jnp.ones((24, 24)), jnp.eye(24))
    assert loop.overlay(program).text.startswith("looping, graph: time, measured")
    assert program.overlay(loop).text.startswith("looping, graph: time, measured")
    assert program.cost().treemap().text.startswith("looping: FLOPs by block, analytic")


def test_shares_above_the_roof_are_explained(loop: Profile) -> None:
    memory = "above 100 % of the roof: part of the data came from cache, which is faster than main memory"
    machine = replace(PEAKS, bytes_per_s=1.0)
    slow = replace(loop, machine=machine)
    assert slow.rate.limit == "memory"
    assert str(slow).splitlines().count(memory) == 1
    assert memory in unescape(slow._repr_mimebundle_()["text/html"])
    assert memory in slow.roofline().text.splitlines()
    assert memory in slow.roofline(machine).text.splitlines()
    quick = replace(loop, machine=replace(PEAKS, bytes_per_s=1e30, flops_per_s={"float32": 1e30}))
    assert "above 100 %" not in str(quick) + quick.roofline().text + quick._repr_mimebundle_()["text/html"]


def test_spread_and_rate_of_several_blocks() -> None:
    def nested(x: Any) -> Any:
        with jax.named_scope("net"):
            with jax.named_scope("up"):
                x = jnp.sort(x @ x)
            with jax.named_scope("down"):
                return jnp.sort(x @ x)

    found = ml.profile(nested, jnp.ones((16, 16)), runs=4, warm_up=1, peaks=PEAKS)
    lines = str(found).splitlines()
    assert [line.split("  ")[0] or line.split()[0] for line in lines[2:5]] == ["net", "up", "down"]
    both = found.spread_of(["net/up", "net/down"])
    assert both is not None
    parts = [found.spreads["net/up"], found.spreads["net/down"]]
    assert sum(one.least for one in parts) <= both.least <= both.most <= sum(one.most for one in parts) * (1 + 1e-9)
    assert found.spread_of(["nowhere"]) is None
    rate, times = found.rate_of(["net/up", "net/down"]), [found.by_block[one].time_s for one in ("net/up", "net/down")]
    flops = sum(found.by_block[one].flops or 0 for one in ("net/up", "net/down"))
    assert rate.flops_per_s == pytest.approx(flops / sum(one or 0.0 for one in times))


def test_rates_follow_from_costs_times_and_peaks(loop: Profile) -> None:
    assert {point["block"] for point in loop.roofline_points()} == {"inside", "choice", "looping"}
    for point in loop.roofline_points():
        rate, time_s = loop.rates[point["block"]], point["time_s"]
        assert rate.flops_per_s == point["flops"] / time_s
        least_s = {"compute": point["flops"] / 2e11, "memory": point["bytes_accessed"] / 6e10}
        assert rate.limit == max(least_s, key=least_s.__getitem__)
        assert rate.roofline == point["roofline"] == pytest.approx(max(least_s.values()) / time_s)
    assert loop.rate.bytes_per_s == loop.total.bytes_accessed / loop.total.time_s
    for path, spread in loop.spreads.items():
        assert spread.lower <= spread.median <= spread.upper, path


def test_a_comparison_of_profiles_has_times(loop: Profile) -> None:
    slower = replace(loop, rows=tuple(replace(row, time_s=row.time_s and 2 * row.time_s) for row in loop.rows))
    found = loop.compare(slower)
    assert found.total.delta.time_s == loop.total.time_s
    assert found.by_block["inside"].delta.time_s == pytest.approx(loop.by_block["inside"].time_s)
    (head, *rows) = found.tables["looping: measured -> looping: measured"]
    assert head[:4] == ("block", "µs before", "after", "change")
    micros = 1e6 * loop.total.time_s
    assert rows[-1][:4] == ("total", f"{micros:,.1f}", f"{2 * micros:,.1f}", f"+{micros:,.1f}")
    assert str(found.beside()).startswith("looping: time by block: measured, measured\n")
    assert "+100.0 %" in str(found.beside())
    assert "µs before" in found._repr_mimebundle_()["text/html"]


def test_comparison_with_unmeasured_costs(loop: Profile) -> None:
    counted = replace(loop, rows=tuple(replace(row, time_s=None) for row in loop.rows))
    (_, *rows) = next(iter(loop.compare(counted).tables.values()))
    assert rows[-1][:4] == ("total", f"{1e6 * loop.total.time_s:,.1f}", "unknown", "unknown")
    assert str(loop.compare(counted).beside()).startswith("looping: bytes accessed by block: ")
    (head, *_) = next(iter(counted.compare(counted).tables.values()))
    assert head[1] == "FLOPs before"


def test_block_missing_in_one_profile_took_no_time(loop: Profile) -> None:
    without = replace(loop, rows=tuple(row for row in loop.rows if "inside" not in dict(row.blocks)), params={})
    assert "inside" not in without.by_block
    assert loop.compare(without).by_block["inside"].after.time_s == 0
