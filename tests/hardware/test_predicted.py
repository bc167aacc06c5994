"""Predicted times, and whether a program fits into the memory of a device."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.cost.predicted import predicted
from mithril_nb.errors import StageUnavailableError
from mithril_nb.hardware import device_named

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


def test_no_prediction_without_figures():
    with pytest.raises(StageUnavailableError, match="Try: inspection"):
        ml.inspect(jnp.sin, spec(3)).cost("predicted")
    assert predicted((), ml.inspect(jnp.sin, spec(3)).stage("hlo"), device_named("h100"))[0] == ()


@pytest.mark.parametrize(("width", "fits"), [(20_000, True), (30_000, True), (52_000, False), (60_000, False)])
def test_what_fits_into_a_tpu_is_the_compilers_answer(width, fits):
    program = ml.inspect(lambda x, w: jnp.tanh(x @ w) @ w, spec(width, width), spec(width, width), device="v5e")
    memory = program.memory
    assert memory.fits is fits
    assert ("RESOURCE_EXHAUSTED" in memory.fits_reason) is not fits
    assert memory.capacity_bytes == 16 * 2**30
    assert f"fits in 16 GiB: {'yes' if fits else 'no'}" in str(memory)
    assert memory.to_dict()["fits"] is fits


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
