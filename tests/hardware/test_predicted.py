"""Predicted times, and whether a program fits into the memory of a device."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from benchmarks.corpus import corpus
from mithril_nb.errors import UnknownOptionError
from mithril_nb.hardware import calibration, device_named
from mithril_nb.hardware.machines import Machine
from mithril_nb.stages.hlo.module import HloModule

pytestmark = pytest.mark.usefixtures("compilers")


def spec(*shape, dtype="bfloat16"):
    return jax.ShapeDtypeStruct(shape, dtype)


def step(w, x):
    with jax.named_scope("up"):
        y = jnp.tanh(x @ w)
    with jax.named_scope("down"):
        return y @ w.T


@pytest.fixture(scope="module", params=["h100", "a100", "v4", "v5e", "v5p", "v6e", "tpu7x"])
def program(request, compilers):
    return ml.inspect(step, spec(4096, 4096), spec(4096, 4096), device=request.param)


def test_a_large_product_takes_as_long_as_the_peak_says(program):
    device, cost = program.device, program.cost("predicted")
    at_peak = 2 * 2 * 4096**3 / device.flops_per_s["bfloat16"]
    # No kernel is faster than the peak. Without its device, the compiler uses one of the two cores of a v4: its own
    # `optimal_seconds` is 2.0 times the time at the peak of the chip, and 1.0 to 1.2 times for v5e, v5p and v6e.
    assert 1.0 <= cost.total.predicted_s / at_peak < (2.5 if device.name == "v4" else 2.0)


def test_parts_add_up(program):
    cost = program.cost("predicted")
    assert cost.total.unknown_predicted == 0
    assert cost.total.predicted_s == math.fsum(row.predicted_s for row in cost.rows)
    parts = [*cost.by_block.values(), cost.unattributed]
    assert cost.total.predicted_s == math.fsum(part.predicted_s or 0.0 for part in parts)
    assert cost.total.time_s is None
    assert cost.by_block["up"].predicted_s > 0
    assert cost.by_block["down"].predicted_s > 0


def test_data_and_texts(program):
    cost = program.cost("predicted")
    assert cost.to_dict()["total"]["predicted_s"] == cost.total.predicted_s
    assert "predicted_s" not in program.cost("compiled").to_dict()["total"]
    assert "predicted time" in str(cost)
    assert any(note.startswith("predicted_s: ") and program.device.source in note for note in cost.notes)
    assert f"{program.device.name}" in " ".join(cost.notes)
    assert "predicted" in str(program.overlay(cost))
    assert "roof: " in str(cost.roofline())


@pytest.mark.parametrize(
    ("device", "dtype", "precision", "peak"),
    [
        ("h100", "float32", "default", "tensorfloat32"),
        ("h100", "float32", "highest", "float32"),
        ("h100", "float32", "F32_F32_F32", "float32"),
        ("h100", "bfloat16", "default", "bfloat16"),
        ("v5e", "float32", "default", "bfloat16"),
    ],
)
def test_the_roof_is_the_peak_that_the_products_can_reach(device, dtype, precision, peak):
    square = jax.ShapeDtypeStruct((4096, 4096), dtype)
    program = ml.inspect(partial(jnp.matmul, precision=precision), square, square, device=device)
    rates = ml.devices()[device].flops_per_s
    for source in ("analytic", "lowered", "compiled", "predicted"):
        cost = program.cost(source)
        assert dict(cost.device.flops_per_s) == {peak: rates[peak]}
    assert str(cost.roofline()).splitlines()[-1].endswith("arithmetic")


def test_the_slowest_kernels_and_what_limits_them(program):
    cost = program.cost("predicted")
    slowest = cost.slowest(2)
    assert [row.predicted_s for row in slowest] == sorted((row.predicted_s for row in cost.rows), reverse=True)[:2]
    has_cycles = program.device.platform == "tpu" and program.device.clock_hz is not None
    assert slowest[0].limited_by == ("cycles" if has_cycles else "FLOPs")
    assert all(bool(row.predicted_s) == bool(row.limited_by) for row in cost.rows)
    assert slowest[0].id in str(slowest)
    assert "limited by" in slowest._repr_mimebundle_()["text/html"]
    with pytest.raises(UnknownOptionError, match="compiled costs of 'step' have no times"):
        program.cost("compiled").slowest()


def test_a_small_kernel_is_limited_by_its_launch_and_a_large_one_by_bytes():
    def limit(size):
        return ml.inspect(lambda x: x + 1, spec(size), device="h100").cost("predicted").slowest(1)[0].limited_by

    assert (limit(8), limit(2**27)) == ("launch", "bytes")


def test_a_prefetch_into_vmem_reads_the_memory_once():
    table = jax.ShapeDtypeStruct((50_000, 256), "float32")
    program = ml.inspect(lambda t, i: jnp.tanh(t[i]), table, jax.ShapeDtypeStruct((64,), "int32"), device="v5e")
    (row,) = (row for row in program.cost("predicted").rows if row.opcode == "copy-start" and row.bytes_accessed > 1e6)
    assert row.bytes_accessed == 2 * 4 * 50_000 * 256
    assert row.predicted_s == pytest.approx(4 * 50_000 * 256 / program.device.bytes_per_s)


def test_what_is_above_the_roof_of_a_tpu_is_in_vmem():
    function, args = corpus()["GPT-2 small, train step"]()
    program = ml.inspect(function, *args, device="v5e")
    spaces = {id: body.spaces for body in HloModule.of(program.stage("hlo")).computations.values() for id in body.by_id}
    cost, rate = program.cost("predicted"), program.device.bytes_per_s
    above = [row for row in cost.rows if row.predicted_s and row.bytes_accessed / rate > row.predicted_s * 1.0005]
    operands = {instruction.id: instruction.operands for instruction in program.stage("hlo").instructions}
    assert above
    for row in above:
        assert any(1 in spaces[row.id].get(id, ()) for id in (row.id, *operands[row.id]))


def test_a_roof_is_explained_by_the_memory_of_the_device(program):
    cost = program.cost("predicted")
    slow = str(cost.roofline(peaks={**program.device.to_dict(), "flops_per_s": {"bfloat16": 1e18}, "bytes_per_s": 1e9}))
    assert ("in VMEM, S(1) in the HLO" in slow, "from cache" in slow) == (
        (True, False) if program.device.platform == "tpu" else (False, True)
    )


def test_the_time_of_a_loop_is_explained_as_that_of_all_runs():
    program = ml.inspect(
        lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, 7)[0],
        spec(512, dtype="float32"),
        device="h100",
    )
    cost = program.cost("predicted")
    row = next(row for row in cost.rows if row.repeats == 7 and row.predicted_s)
    text = ml.explain(program, "hlo", row.id)["cost"]
    assert row.predicted_s
    assert f"Predicted time of 7 runs together: {row.predicted_s * 1e6:.3g} µs" in text


def test_unknown_figures_are_unknown():
    program = ml.inspect(step, spec(64, 64), spec(64, 64), device="h100")
    device = replace(device_named("h100"), flops_per_s={}, vector_flops_per_s=None)
    cost = program.on(device).cost("predicted")
    assert cost.total.predicted_s is None
    assert cost.total.unknown_predicted > 0
    assert "unknown" in str(program.on(device).cost("predicted"))
    partly = program.on(replace(device, vector_flops_per_s=1e12)).cost("predicted")
    assert partly.total.unknown_predicted < cost.total.unknown_predicted or partly.total.predicted_s is None
    assert program.on(replace(device_named("h100"), bytes_per_s=None)).cost("predicted").total.predicted_s is None


def test_collectives_take_the_links():
    mesh = jax.sharding.AbstractMesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    program = ml.inspect(jnp.sum, jax.ShapeDtypeStruct((64, 1024), "float32", sharding=sharding), device="h100:8")
    cost = program.cost("predicted")
    (row,) = (row for row in cost.rows if row.wire_bytes)
    assert row.limited_by == "links"
    assert row.predicted_s == pytest.approx(row.wire_bytes / program.device.link_bytes_per_s, rel=1e-2, abs=1e-12)
    without = program.on(replace(program.device, link_bytes_per_s=None)).cost("predicted")
    assert without.total.unknown_predicted == 1


def test_loops_count_each_iteration():
    def loop(w, x):
        return jax.lax.scan(lambda y, _: (jnp.tanh(y @ w), None), x, None, length=10)[0]

    ten = ml.inspect(loop, spec(1024, 1024), spec(1024, 1024), device="h100").cost("predicted").total.predicted_s
    one = ml.inspect(lambda w, x: jnp.tanh(x @ w), spec(1024, 1024), spec(1024, 1024), device="h100")
    # The body also counts its iterations and copies its result.
    assert 10 < ten / one.cost("predicted").total.predicted_s < 30


RATES = {
    "launch": [(1, 1e7)], "bytes": [(1e5, 1e11), (1e7, 2e10)], "transpose": [(1e5, 1e10)], "patches": [(1, 1e8)],
    "results": [(1e6, 1e9)],
    **{f"dot {side}": [(1, 1e9), (512, 1e11)] for side in "mnk"}, "tanh": [(1, 1e9)], "power": [(1, 1e8)],
    "flops": [(1, 2e10)], "reduce": [(1, 1e9)], "gather": [(1, 1e8)],
}  # fmt: skip


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """The calls of the measurement, which takes half a minute."""
    calls = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibration, "measured_rates", lambda: calls.append(1) or RATES)
    peaks = Machine("cpu", "cpu", 2, "", "", {"float32": 1e11}, 2e10, "now", "measured")
    monkeypatch.setattr(calibration, "machine", lambda dtypes, device: peaks)
    return calls


def test_prediction_for_this_cpu(calls):
    program = ml.inspect(step, spec(512, 512, dtype="float32"), spec(512, 512, dtype="float32"))
    cost = program.cost("predicted")
    assert cost.total.unknown_predicted == 0
    assert cost.total.predicted_s == math.fsum(row.predicted_s for row in cost.rows)
    assert cost.by_block["up"].predicted_s > 2 * 512**3 / 1e11
    assert any("measured" in note and "rates.json" in note for note in cost.notes)
    assert program.cost("predicted").total == cost.total
    assert calls == [1]


@pytest.mark.parametrize("name", ["LeNet, train step", "GPT-2 small by scan, train step", "remat, gradient"])
def test_predictions_of_the_corpus(name, calls):
    function, args = corpus()[name]()
    total = ml.inspect(function, *args).cost("predicted").total
    assert total.unknown_predicted == 0
    assert total.predicted_s > 0


def test_a_library_call_is_unknown(calls):
    total = ml.inspect(lambda x: jax.lax.top_k(x, 2)[0], spec(64, 8, dtype="float32")).cost("predicted").total
    assert total.unknown_predicted or total.predicted_s is None


def test_a_peak_that_is_not_measured(calls):
    total = ml.inspect(jnp.matmul, spec(8, 8, dtype="int32"), spec(8, 8, dtype="int32")).cost("predicted").total
    assert total.unknown_predicted or total.predicted_s is None


GIB = 2**30
USABLE = 15.75 * GIB  # of a v5e


def sized(size):
    return spec(int(size // 2 // 4096), 4096)


def layers(save):
    def loss(w, x):
        def layer(x, w):
            return jnp.tanh(x @ w), None

        return jax.lax.scan(save(layer), x, w)[0].astype("float32").sum()

    return jax.grad(loss)


AROUND_THE_LIMIT = {
    "argument and result fit": (lambda x: x * 2, [sized(0.49 * USABLE)], True),
    "argument and result do not": (lambda x: x * 2, [sized(0.51 * USABLE)], False),
    "two arguments and a result fit": (jnp.add, [sized(0.32 * USABLE)] * 2, True),
    "two arguments and a result do not": (jnp.add, [sized(0.35 * USABLE)] * 2, False),
    "a donated argument fits": (jax.jit(lambda x: x * 2, donate_argnums=0), [sized(0.95 * USABLE)], True),
    "a donated argument does not": (jax.jit(lambda x: x * 2, donate_argnums=0), [sized(1.02 * USABLE)], False),
    "a scalar result fits": (lambda x: x.astype("float32").sum(), [sized(0.9 * USABLE)], True),
    "an argument alone does not": (lambda x: x.astype("float32").sum(), [sized(1.01 * USABLE)], False),
    "activations with remat fit": (layers(jax.checkpoint), [spec(12, 1024, 1024), spec(200_000, 1024)], True),
    "activations of 48 layers do not": (layers(lambda f: f), [spec(48, 1024, 1024), spec(200_000, 1024)], False),
}


def test_what_fits_into_a_tpu_is_the_compilers_answer(stress):
    names = [*AROUND_THE_LIMIT][:: stress.size(short=3, long=1)]
    for name in names:
        function, specs, fits = AROUND_THE_LIMIT[name]
        program = ml.inspect(function, *specs, device="v5e")
        memory = program.memory
        assert (name, memory.fits) == (name, fits)
        assert ("RESOURCE_EXHAUSTED" in memory.fits_reason) is not fits
        assert (program.stage("hlo").unavailable is None) is fits
        assert memory.capacity_bytes == 16 * GIB
        assert f"fits in 16 GiB: {'yes' if fits else 'no'}" in str(memory)
        assert memory.to_dict()["fits"] is fits
    stress.report(programs=len(names))


def test_what_fits_into_a_gpu_is_an_estimate():
    small, large = (
        ml.inspect(jnp.add, spec(size, 2**20), spec(size, 2**20), device="l4").memory for size in (128, 2**13)
    )
    assert (small.fits, large.fits) == (True, False)
    assert "an estimate" in small.fits_reason
    assert ml.inspect(jnp.sin, spec(3)).memory.fits is None


def test_other_costs_have_no_predicted_time():
    def work(x):
        return jnp.sort(jax.pure_callback(lambda x: x, x, x)) + jnp.tanh(x)

    for source in ("analytic", "lowered", "compiled"):
        cost = ml.inspect(jax.jit(work), spec(8, dtype="float32")).cost(source)
        parts = [cost.total, *cost.by_block.values(), *cost.by_role.values()]
        assert {(part.predicted_s, part.unknown_predicted) for part in parts} == {(None, 0)}
        assert "predicted" not in cost.to_json()


@pytest.mark.parametrize("by", ["row", "block"])
def test_predicted_times_in_pandas(program, by):
    cost = program.cost("predicted")
    table = cost.to_pandas(by)
    assert table["predicted_s"].sum() == pytest.approx(cost.total.predicted_s)
    assert "predicted_s" not in program.cost("compiled").to_pandas(by).columns
