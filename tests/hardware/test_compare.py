"""The same program on several devices, side by side."""

from __future__ import annotations

import json
import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mithril_nb as ml
from mithril_nb.analysis.compare import Comparison, DeviceComparison
from mithril_nb.errors import UnknownOptionError

pytestmark = pytest.mark.usefixtures("compilers")


def loss(weights, x):
    with jax.named_scope("up"):
        hidden = jax.nn.gelu(x @ weights[0])
    with jax.named_scope("down"):
        return jnp.mean((hidden @ weights[1]).astype("float32") ** 2)


def spec(*shape):
    return jax.ShapeDtypeStruct(shape, "bfloat16")


@pytest.fixture(scope="module")
def compared(compilers):
    here = ml.inspect(jax.value_and_grad(loss), (spec(1024, 4096), spec(4096, 1024)), spec(512, 1024))
    return ml.compare(here, here.on("h100"), here.on("v5e"))


def test_figures_are_those_of_each_program(compared):
    assert compared.names == ("cpu", "h100", "v5e")
    for name, program in zip(compared.names, compared.programs, strict=True):
        figures = compared.figures[name]
        assert figures["flops"] == program.cost("compiled").total.flops
        assert figures["peak_bytes"] == program.memory.peak_bytes
        assert figures["fits"] is (None if name == "cpu" else True)
        by_block = [parts[name]["flops"] for parts in compared.blocks.values()]
        assert sum(by_block) == figures["flops"]
    predicted = {name: compared.figures[name]["predicted_s"] for name in compared.names}
    assert 0 < predicted["h100"] < predicted["v5e"]
    # Five products at the peaks of the data sheets: nothing can be faster.
    products = 5 * 2 * 512 * 1024 * 4096
    for name, peak in (("h100", 989e12), ("v5e", 197e12)):
        assert compared.figures[name]["at_peak"] == pytest.approx(products / peak / predicted[name], rel=0.01)


def test_instructions_are_counted(compared):
    """Against the text: those of the entry computation, which has no calls here."""
    for name, program in zip(compared.names, compared.programs, strict=True):
        entry = re.search(r"^ENTRY.*?^}", program.stage("hlo").text, re.DOTALL | re.MULTILINE)[0]
        assert compared.figures[name]["fusions"] == len(re.findall(r" fusion\(", entry))
        assert compared.figures[name]["collectives"] == 0


def test_a_comparison_is_shown(compared):
    text = str(compared)
    assert re.search(r"^predicted time +.* \d", text, re.MULTILINE)
    assert re.search(r"^fits +unknown +yes +yes$", text, re.MULTILINE)
    assert 'cpu: predicted time is left out: p.cost("predicted") first measures' in text
    page = compared.to_html()
    for name in compared.names:
        assert f"optimized HLO, {name}" in page
    assert json.loads(json.dumps(compared.to_dict()))["programs"]["h100"]["unavailable"] is None
    with pytest.raises(UnknownOptionError, match="no stage 'ptx'"):
        compared.to_html(stage="ptx")


def test_programs_that_do_not_compile_and_equal_devices(compared):
    here = compared.programs[0]
    assert isinstance(ml.compare(here, here), Comparison)
    assert isinstance(ml.compare(here.on("h100"), here.on("h100")), Comparison)
    large = ml.inspect(lambda x, w: jnp.tanh(x @ w) @ w, spec(60_000, 60_000), spec(60_000, 60_000), device="v5e")
    both = ml.compare(here, large, here.on("v5e"))
    assert isinstance(both, DeviceComparison)
    assert both.names == ("cpu", "v5e (1)", "v5e (2)")
    assert both.figures["v5e (1)"]["fits"] is False
    assert both.figures["v5e (1)"]["flops"] is None
    assert "RESOURCE_EXHAUSTED" in str(both)
    assert re.search(r"^fits +unknown +no +yes$", str(both), re.MULTILINE)


def test_sums_that_leave_out_unknown_costs_are_bounds():
    program = ml.inspect(lambda a: jnp.linalg.cholesky(a) @ a, jax.ShapeDtypeStruct((256, 256), "float32"))
    both = ml.compare(program, program.on("h100"))
    totals = {name: both.costs[name].total for name in both.names}
    assert totals["h100"].unknown > 0
    assert re.search(r"^FLOPs .* ≥ [\d.]+ MFLOP$", str(both), re.MULTILINE)


def test_the_share_of_the_peak_leaves_out_what_is_unknown():
    def program(w, x):
        return jnp.linalg.cholesky(x @ w) @ w

    square = jax.ShapeDtypeStruct((512, 512), "float32")
    both = ml.compare(ml.inspect(program, square, square), ml.inspect(program, square, square, device="h100"))
    cost, figures = both.costs["h100"], both.figures["h100"]
    assert cost.total.unknown_predicted > 0
    assert figures["at_peak_bound"] == "≈"
    assert figures["at_peak"] * cost.total.predicted_s == pytest.approx(2 * 2 * 512**3 / 494.7e12, rel=1e-3)
    assert re.search(r"^share of the peak +unknown +≈ [\d.]+ %$", str(both), re.MULTILINE)
    assert "share of the peak: without instructions whose time is unknown" in str(both)


def test_an_embedding_on_a_tpu_is_known():
    table, indices = jax.ShapeDtypeStruct((1000, 64), "float32"), jax.ShapeDtypeStruct((8, 2), "int32")
    here = ml.inspect(lambda t, i, w: t[i[:, 0], i[:, 1]] @ w, table, indices, jax.ShapeDtypeStruct((8,), "float32"))
    both = ml.compare(here, here.on("v5e"))
    assert "GatherScatterIndicesBitpacked" in both.programs[1].stage("hlo").text
    assert both.costs["v5e"].total.unknown_predicted == 0
    assert both.figures["v5e"]["at_peak_bound"] == ""


def test_the_same_machine_is_one_device():
    x = jnp.ones(3)
    assert isinstance(ml.compare(ml.inspect(jnp.sin, x), ml.inspect(jnp.cos, x, device="cpu")), Comparison)


def test_two_shardings_of_one_topology_are_compared_by_their_collectives():
    mesh = ml.device_mesh("v5e:2x4", data=2, model=4)
    x = jax.ShapeDtypeStruct((64, 256), "bfloat16", sharding=NamedSharding(mesh, P("data", None)))
    w = jax.ShapeDtypeStruct((256, 512), "bfloat16", sharding=NamedSharding(mesh, P("model", None)))
    program = ml.inspect(lambda x, w: x @ w, x, w, device="v5e:2x4")
    both = ml.compare(program, program.with_shardings({"w": P(None, "model")}))
    assert isinstance(both, DeviceComparison)
    assert both.names == ("v5e:2x4 (1)", "v5e:2x4 (2)")
    reduced, split = both.figures.values()
    assert reduced["collectives"] > split["collectives"] == 0
    assert reduced["wire_bytes"] > split["wire_bytes"] == 0
