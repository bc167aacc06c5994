"""Changes of programs made by functions, of fixed programs, and of mithril_nb models."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis.whatif.programs import perceptron, spec

import mithril_nb as ml
from mithril_nb.analysis.whatif import Change, what_if
from mithril_nb.analysis.whatif.cost_oracle import ESTIMATE, TRACED
from mithril_nb.errors import UnknownOptionError
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.targets import inspect
from mithril_nb.viz.text import escaped


def mlp() -> Model:
    model = Model()
    model += Linear(16)
    model += Relu()
    model += Linear(4)
    return model


def loss(params: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ params["w"]) ** 2)


PARAMS = {"w": np.ones((5, 3), "float32")}


def test_a_make_function_may_return_any_of_four_forms() -> None:
    def model(batch: int = 8) -> Any:
        return mlp(), {"input": [batch, 6]}

    def inspected(batch: int = 8) -> Any:
        return inspect(mlp(), shapes={"input": [batch, 6]})

    def pair(batch: int = 8) -> Any:
        return loss, (PARAMS, spec(batch, 5))

    def flat(batch: int = 8) -> Any:
        return loss, PARAMS, spec(batch, 5)

    changes = [what_if(make)(batch=16) for make in (model, inspected, pair, flat)]
    ours, theirs = ml.inspect(mlp(), shapes={"input": [16, 6]}).cost(), ml.inspect(loss, PARAMS, spec(16, 5)).cost()
    wanted = [ours, ours, theirs, theirs]
    assert [change.after.total for change in changes] == [cost.total for cost in wanted]
    assert [change.before.total == change.after.total for change in changes] == [False] * 4


def test_settings_may_replace_the_defaults() -> None:
    found = ml.what_if(perceptron, batch=32)
    assert found.settings == {"batch": 32, "width": 16, "dtype": "float32", "layers": (32, 4)}
    assert repr(found) == "WhatIf('perceptron': batch=32, width=16, dtype='float32', layers=(32, 4))"
    assert found.cost.total.flops == 2 * 32 * (16 * 32 + 32 * 4)
    assert found(layers=(64,)).after.total.flops == 2 * 32 * 16 * 64


def test_a_change_has_blocks_roles_and_totals() -> None:
    found = what_if(mlp(), shapes={"input": [8, 6]}, optimizer="adam")
    change = found(batch=16)
    before, after = change.before, change.after
    assert change.settings == {"batch": (8, 16)}
    assert change.delta.flops == (after.total.flops or 0) - (before.total.flops or 0)
    assert {path: pair.after for path, pair in change.by_block.items()} == dict(after.by_block)
    assert change.by_role["update"].delta.flops == 0
    assert (
        change.by_block["linear_0"].delta.flops == after.by_block["linear_0"].flops - before.by_block["linear_0"].flops
    )  # type: ignore[operator]
    sums = sum(pair.delta.flops or 0 for pair in change.by_block.values())
    assert sums + (change.comparison.unattributed.delta.flops or 0) == change.delta.flops


def test_a_model_has_inputs_attributes_and_remat_as_settings() -> None:
    found = what_if(mlp(), shapes={"input": [8, 6]}, loss="mean_squared_error")
    assert found.settings == {"batch": 8, "input.1": 6, "dtype": "float32", "remat": False}

    def cost(model: Model, *shape: int) -> Any:
        return ml.inspect(model, shapes={"input": list(shape)}, loss="mean_squared_error").cost().total

    wide = Model()
    wide += Linear(40)
    wide += Relu()
    wide += Linear(4)
    assert found({"linear_0.dimension": 40}).after.total == cost(wide, 8, 6)
    assert found({"input.1": 12}, batch=3).after.total == cost(mlp(), 3, 12)
    assert (found(remat=True).delta.flops or 0) > 0
    assert found(precision="highest").delta.flops == 0
    assert found.settings["linear_0.dimension"] == 16


def test_remat_recomputes_the_forward_pass() -> None:
    change = what_if(mlp(), shapes={"input": [512, 6]}, loss="mean_squared_error")(remat=True)
    forward = change.before.by_role["forward"].flops
    assert forward is not None
    assert 0.5 * forward < (change.delta.flops or 0) < 1.5 * forward
    assert None not in change.peak_bytes


def test_a_compiled_model_keeps_its_backend() -> None:
    compiled = ml.compile(mlp(), ml.JaxBackend(), shapes={"input": [8, 6]})
    assert what_if(compiled)(batch=16).after.total == ml.inspect(mlp(), shapes={"input": [16, 6]}).cost().total


def test_a_function_has_batch_dtype_and_precision_as_settings() -> None:
    found = what_if(loss, PARAMS, spec(7, 5))
    assert found.settings == {"dtype": "float32"}
    assert found(batch=14).after.total == inspect(loss, PARAMS, spec(14, 5)).cost().total
    half = {"w": spec(5, 3, dtype="bfloat16")}
    assert found(dtype="bfloat16").after.total == inspect(loss, half, spec(7, 5, dtype="bfloat16")).cost().total
    assert found(dtype=jnp.bfloat16, batch=7).after.total == found(dtype="bfloat16").after.total
    precise = found(precision="highest").compiled.result(60)
    assert (precise.way, precise.settings) == ("compiled", {"precision": (None, "highest")})


def test_an_inspection_changes_as_its_function_does() -> None:
    inspection = inspect(jax.jit(loss), PARAMS, spec(7, 5))
    assert what_if(inspection)(batch=9).after.total == inspect(loss, PARAMS, spec(9, 5)).cost().total


def test_the_batch_is_the_first_dim_that_can_vary() -> None:
    """A weight also has a first dim, but the product allows only one size of it."""
    found = what_if(jnp.matmul, spec(7, 5), spec(5, 3))
    assert found(batch=14).delta.flops == 2 * 7 * 5 * 3


def test_compiled_is_a_change_computed_in_the_background() -> None:
    change = what_if(perceptron)(batch=16)
    later = change.compiled
    compiled = later.result(60)
    assert later.is_done
    assert compiled.before.source == compiled.after.source == "compiled"
    assert compiled.settings == change.settings
    function, args = perceptron(batch=16)
    stats: Any = jax.jit(function).lower(*args).compile().memory_analysis()
    wanted = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    assert compiled.peak_bytes[1] == pytest.approx(wanted, rel=0.05)
    assert change.compiled.result(0.001) is compiled


def test_an_estimate_is_immediate_and_exact_figures_follow() -> None:
    found = what_if(perceptron, learns=True)
    found.close()  # so that nothing is traced ahead
    change = found(dtype="float16")
    assert change.way == "estimate"
    assert change.notes == ("bytes estimated: every float32 array counted as float16; change.exact adds conversions",)
    exact = change.exact.result(60)
    function, args = perceptron(dtype="float16")
    assert exact.way == "traced"
    assert exact.after.total == inspect(function, *args).cost().total
    assert change.after.total.bytes_accessed == exact.after.total.bytes_accessed  # nothing is converted here
    assert found(dtype="float16").way == "traced"
    assert exact.exact.result() is exact


def test_a_change_has_a_text_and_plain_data() -> None:
    change = what_if(perceptron)(batch=16)
    assert (
        str(change)
        == """\
perceptron: batch=8 -> batch=16 (traced)
                    batch=8    batch=16    change
FLOPs            10.2 kFLOP  20.5 kFLOP  +100.0 %
transcendentals         288         576  +100.0 %
bytes accessed      7.55 kB     12.5 kB   +66.1 %
parameters              640         640      same

perceptron: FLOPs by block: batch=8, batch=16
block     batch=8    batch=16    change
run    10.2 kFLOP  20.5 kFLOP  +100.0 %
total  10.2 kFLOP  20.5 kFLOP  +100.0 %
time_s: not measured, because nothing ran
peak_bytes: not computed yet; change.peak_bytes computes it"""
    )
    data = change.to_dict()
    assert (data["settings"], data["way"]) == ({"batch": [8, 16]}, "traced")
    assert data["peak_bytes"]["after"] == {
        "bytes": None,
        "reason": "peak_bytes: not computed yet; change.peak_bytes computes it",
    }
    assert repr(change) == "Change('perceptron', batch: 8 -> 16; traced)"
    _ = change.peak_bytes
    assert change.to_dict()["peak_bytes"]["after"]["bytes"] == change.peak_bytes[1]
    shown = change._repr_mimebundle_()
    assert shown["image/svg+xml"].startswith("<svg")
    assert "peak memory" in shown["text/plain"]
    for cell in re.split(r" {2,}|\n+", shown["text/plain"]):  # the cell has the content of the text
        assert escaped(cell) in shown["text/html"] + shown["image/svg+xml"]


def test_an_empty_change_changes_nothing() -> None:
    change = what_if(perceptron)()
    assert isinstance(change, Change)
    assert (change.settings, change.delta.flops) == ({}, 0)


def test_a_mesh_is_a_setting() -> None:
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))

    def make(sharding: Any = None) -> Any:
        return loss, (PARAMS, jax.ShapeDtypeStruct((8, 5), "float32", sharding=sharding))

    change = what_if(make)(sharding=split)
    assert change.delta.flops == 0
    assert change.compiled.result(60).after.total.flops
    assert "sharding=NamedSharding" in str(change)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")  # JAX 0.12 warns when it is traced
def test_an_invalid_dtype_is_not_estimated() -> None:
    """As in tracing, 64 bits become 32 without `jax_enable_x64`, and an invalid dtype raises the same error."""
    found = what_if(perceptron, learns=True)
    assert found.ready(60)
    assert (found(dtype="float16").way, found(dtype="float64").way) == (ESTIMATE, TRACED)
    assert found(dtype="float64").delta.bytes_accessed == 0
    model = what_if(Linear(4), shapes={"input": [3, 5]}, learns=True)
    assert model.ready(60)
    with pytest.raises(UnknownOptionError, match="creates arrays of float64 only in its x64 mode"):
        model(dtype="float64")


def test_arrays_that_differ_in_the_middle_are_different_settings() -> None:
    """The repr of a long array shows only its ends."""

    def make(tables: list[Any]) -> Any:
        return (jnp.sin if tables[0].any() else jnp.negative), (spec(4),)

    found, table = what_if(make, tables=[np.zeros(5000)]), np.zeros(5000)
    table[2500] = 1
    change = found(tables=[table])
    assert list(change.settings) == ["tables"]
    assert change.delta.transcendentals == 4
    assert not found(tables=[np.zeros(5000)]).settings


def test_a_program_with_its_own_casts_has_a_note() -> None:
    shapes = {"input": [2, 5]}
    outside = what_if(ml.inspect(Linear(3), shapes=shapes))(dtype="bfloat16")
    assert any(note.startswith("dtype: the program casts more than before") for note in outside.notes)
    assert not what_if(Linear(3), shapes=shapes)(dtype="bfloat16").notes
