"""Norms and statistics of activations against NumPy, in runs and in the user's own loops."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions import session_of
from waiting import until

import mithril_nb as ml
from mithril_nb.compilation.values import Statistics
from mithril_nb.models import (
    GRU,
    MLP,
    BatchNorm,
    Dropout,
    Flatten,
    Linear,
    Mean,
    Model,
    Relu,
    Repeat,
    Shape,
    TransformerBlock,
)
from mithril_nb.train.norms import MOST_STEPS, NormsLog, OutputStatistics, activations_in_step, norms_in_step, norms_of


def _close(ours, reference):
    np.testing.assert_allclose(ours, reference, rtol=1e-5)


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=4),
    st.sampled_from(["float32", "float16", "bfloat16", "complex64"]),
    st.floats(-12, 12),
    st.integers(0, 2**32 - 1),
)
def test_norms_of_any_tree_are_those_of_numpy(shapes, dtype, exponent, seed):
    draw = np.random.default_rng(seed)
    exponent = exponent if dtype in ("float32", "complex64") else exponent / 4
    trees = [{"a": [jnp.asarray(10.0**exponent * draw.normal(size=s), dtype) for s in shapes]} for _ in range(3)]
    norms = norms_of(7, trees[0], norms_in_step(*trees))
    for ours, tree in zip((norms.gradient, norms.weight, norms.update), trees, strict=True):
        assert [*ours] == [f"a.{at}" for at in range(len(shapes))]
        wide = "complex128" if dtype == "complex64" else "float64"
        _close([*ours.values()], [np.linalg.norm(np.asarray(leaf).astype(wide).ravel()) for leaf in tree["a"]])


def test_a_large_array_has_the_norm_of_numpy():
    values = np.random.default_rng(0).normal(1, 2, 4_000_003).astype("float32")
    norms = jax.jit(norms_in_step)(values, values, values)
    np.testing.assert_allclose(norms, np.linalg.norm(np.float64(values)), rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{}, {"ema": 0.9}, {"accumulate": 2}, {"optimizer": optax.sgd(0.1)}],
    ids=["plain", "ema", "accumulate", "optax"],
)
def test_a_run_has_norms_by_block_and_trains_as_without(options):
    x = np.random.default_rng(0).normal(size=(48, 6)).astype("float32")
    data = x, (x.sum(1) > 0).astype("int32")
    pm = ml.compile(Model() + MLP([Relu(), Relu()], [8, 4]) + Linear(2), shapes={"input": [16, 6]})
    with pytest.warns(RuntimeWarning) if "accumulate" in options else nullcontext():
        run, plain = (
            ml.fit(pm, data, batch_size=16, epochs=1, seed=3, norms=n, **options)
            for n in (2 // options.get("accumulate", 1), None)
        )
    assert (run.norms, plain.norms) == (None, None)
    for either in (run, plain):
        either.wait()
    jax.tree.map(np.testing.assert_array_equal, run.params, plain.params)
    assert plain.norms is None
    norms = run.norms
    assert (norms.step, norms.weight.keys()) == (2, run.params.keys())
    names: dict[str, list[str]] = {}
    for array in pm.parameters:
        names.setdefault(array.path, []).append(array.name)
    blocks = norms.by_block(names)
    layers = {f"mlp_0/layer_{at}{end}" for at in (0, 1) for end in ("", "/linear_0")}
    assert blocks["gradient norm"].keys() == {"mlp_0", *layers, "linear_0"}
    inside = [value for name, value in norms.gradient.items() if name.startswith("mlp_0.")]
    _close(blocks["gradient norm"]["mlp_0"], np.linalg.norm(inside))
    own = [table["linear_0.weight"] ** 2 + table["linear_0.bias"] ** 2 for table in (norms.update, norms.weight)]
    _close(blocks["update / weight"]["linear_0"], (own[0] / own[1]) ** 0.5)


def test_the_norms_are_those_of_the_gradient_and_the_update():
    x = np.random.default_rng(1).normal(size=(8, 3)).astype("float32")
    y = x @ np.float32([[1], [2], [-1]]) + 30  # errors of one sign: sums that cancel lose digits
    pm = ml.compile(Model() + Linear(1), shapes={"input": [8, 3]})
    options = {"loss": "mean_squared_error", "optimizer": optax.sgd(0.25), "batch_size": 8}
    run = ml.fit(pm, (x, y), norms=1, epochs=3, **options).wait()
    before = ml.fit(pm, (x, y), epochs=2, **options).wait().params
    weight, bias = (np.float64(before[name]) for name in ("linear_0.weight", "linear_0.bias"))
    error = 2 * (x @ weight + bias - y) / 8
    gradient = {"linear_0.weight": np.linalg.norm(x.T @ error), "linear_0.bias": np.linalg.norm(error.sum(0))}
    for ours, factor in ((run.norms.gradient, 1), (run.norms.update, 0.25)):
        _close([ours[name] for name in gradient], [factor * value for value in gradient.values()])
    _close(run.norms.weight["linear_0.weight"], np.linalg.norm(weight))
    assert run.norms.step == 3


def test_the_workbench_shows_norms_of_the_model_as_it_is_now():
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    data = x, (x[:, 0] > 0).astype("int32")
    session = session_of(Model() + Linear(3) + Relu() + Linear(2), {"input": [16, 4]}, data=data, epochs=2)
    session.do("set_training", name="norms", value=4)
    session.do("train")
    until(lambda: session.training.run.state == "done")
    until(lambda: session.overlays.values.get("gradient norm"))
    zeros = session.overlays.values["activation zeros"]
    assert zeros == {path: row.zeros for path, row in session.training.run.norms.activations.items()}
    assert 0 < zeros["relu_0"] < 1
    assert ("own values: gradient norm", "gradient norm") in session.overlays.view()["choices"]
    norms = session.training.run.norms
    assert norms.step == 4
    ours = session.overlays.values["gradient norm"]
    parts = [norms.gradient[f"linear_1.{name}"] for name in ("weight", "bias")]
    assert ours == {"linear_0": pytest.approx(ours["linear_0"]), "linear_1": pytest.approx(np.linalg.norm(parts))}
    session.do("add_block", kind="Relu")
    assert session.overlays.values["gradient norm"] == {}
    session.do("undo")
    assert session.overlays.values["gradient norm"] == ours
    session.end()


def test_norms_of_blocks_with_shared_and_frozen_parameters():
    model = Model() + Linear(4) + Relu() + Linear(4) + Relu() + Linear(2)
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    session = session_of(model, {"input": [16, 4]}, data=(x, (x[:, 0] > 0).astype("int32")), epochs=4, norms=1)
    session.do("share", source="linear_0.weight", target="linear_1.weight")
    session.do("set_trainable", names=["linear_2.bias"], is_trainable=False)
    session.do("train")
    until(lambda: session.training.run.state == "done")
    norms, table = session.training.run.norms, session.training.norms()
    shared = next(name for name in norms.weight if "bias" not in name and "linear_2" not in name)
    for at in (0, 1):
        parts = [norms.weight[name] for name in (shared, f"linear_{at}.bias")]
        assert table["weight norm"][f"linear_{at}"] == pytest.approx(np.linalg.norm(parts))
    norm_titles = [title for title in table if "activation" not in title]
    assert [table[title]["linear_2"] for title in norm_titles] == [None, None, None]
    session.end()


def test_a_model_with_nothing_to_train_has_no_norms():
    x = np.ones((8, 3), "float32")
    run = ml.fit(ml.compile(Model() + Relu(), shapes={"input": [8, 3]}), (x, x), loss="mean_squared_error",
                 batch_size=8, epochs=2, norms=1).wait()  # fmt: skip
    assert run.norms.weight == {}


def test_a_change_that_the_dtype_rounds_away_has_the_norm_0():
    x = np.ones((8, 3), "float32")
    pm = ml.compile(Model() + Linear(1), ml.JaxBackend(dtype="bfloat16"), shapes={"input": [8, 3]})
    params = {"linear_0.weight": jnp.full((3, 1), 200, "bfloat16"), "linear_0.bias": jnp.full(1, 200, "bfloat16")}
    run = ml.fit(pm, (x, 800 + 0 * x[:, :1]), loss=lambda p, y: abs(p - y), optimizer=optax.sgd(1e-3), batch_size=8,
                 epochs=1, norms=1, params=params).wait()  # fmt: skip
    jax.tree.map(np.testing.assert_array_equal, run.params, params)
    assert set(run.norms.update.values()) == {0.0}


def test_the_norms_of_a_run_over_time_are_those_of_float64():
    draw = np.random.default_rng(0)
    x, w = draw.normal(size=(32, 5)).astype("float32"), draw.normal(size=(5,)).astype("float32")
    y = x @ w + 0.5
    run = ml.fit(
        lambda params, x: x @ params["w"] + params["b"],
        (x, y),
        params={"w": np.zeros(5, "float32"), "b": np.float32(0)},
        loss="mean_squared_error",
        optimizer="sgd",
        learning_rate=0.125,
        batch_size=32,
        epochs=40,
        norms=5,
    ).wait()
    assert run.norms == run.norms_history[-1]
    assert [norms.step for norms in run.norms_history] == [*range(5, 41, 5)]
    by_step = {norms.step: norms for norms in run.norms_history}
    params = {"w": np.zeros(5), "b": np.float64(0)}
    for step in range(1, 41):
        error = x.astype(float) @ params["w"] + params["b"] - y.astype(float)
        grads = {"w": 2 * x.T.astype(float) @ error / 32, "b": 2 * error.mean()}
        if step in (5, 10):  # later, the error is as small as the rounding of float32
            norms = by_step[step]
            for name, grad in grads.items():
                _close(norms.gradient[name], np.linalg.norm(grad))
                _close(norms.weight[name], np.linalg.norm(params[name]))
                _close(norms.update[name], 0.125 * np.linalg.norm(grad))
        params = {name: params[name] - 0.125 * grads[name] for name in params}


def test_the_norms_of_a_long_run_are_bounded_and_those_after_a_return_replace_the_later_ones():
    log = NormsLog()
    for step in range(1, 5_000):
        log.add(step, {"w": 0}, [step, 1.0, 2.0])
    steps = [norms.step for norms in log.steps()]
    assert len(steps) <= MOST_STEPS
    assert (steps[0], steps[-1]) == (1, 4_999)
    assert steps == sorted({int(norms.gradient["w"]) for norms in log.steps()})
    log.add(100, {"w": 0}, [0.0, 0.0, 0.0])
    assert [norms.step for norms in log.steps(1)] == [100]
    assert max(norms.step for norms in log.steps()) == 100


def test_the_inspector_receives_the_norms_of_a_block_over_time():
    x = np.random.default_rng(0).normal(size=(48, 6)).astype("float32")
    session = session_of(
        Model() + MLP([Relu()], [8]) + Linear(2), data=(x, (x.sum(1) > 0).astype("int32")), epochs=4, norms=2
    )
    replies = []
    session.listen(lambda kind, reply: replies.append(reply) if kind == "parameters" else None)
    session.do("train")
    until(lambda: session.training.run.state == "done", 30)
    names = [name for name in session.training.run.params if name.startswith("mlp_0")]
    session.do("request_parameters", names=[], inside=names, block="mlp_0")
    assert session.wait(30)
    head, history = replies[-1].head, session.training.run.norms_history
    assert head["block"] == "mlp_0"
    assert head["norms"]["activation std"] == [norms.activations["mlp_0"].std for norms in history]
    session.do("request_parameters", names=[], block="mlp_0/layer_0/relu_0")
    assert session.wait(30)
    relu = replies[-1].head["norms"]
    zeros = [norms.activations["mlp_0/layer_0/relu_0"].zeros for norms in history]
    assert (relu["activation zeros"], set(relu["gradient norm"])) == (zeros, {None})
    assert head["steps"] == [norms.step for norms in history]
    assert len(head["steps"]) > 1
    for at, norms in enumerate(history):
        _close(head["norms"]["gradient norm"][at], np.linalg.norm([norms.gradient[name] for name in names]))


def _assert_same(ours: OutputStatistics, reference: Statistics) -> None:
    # A mean of numbers that cancel has the rounding errors of the numbers.
    size = abs(reference.mean or 0) + (reference.std or 0)
    assert [value is None for value in ours] == [
        value is None for value in (reference.mean, reference.std, reference.zeros)
    ]
    for value, exact in ((ours.mean, reference.mean), (ours.std, reference.std)):
        assert value is None or abs(value - exact) <= 1e-5 * size
    assert ours.zeros is None or ours.zeros == pytest.approx(reference.zeros, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 6), max_size=3),
    st.sampled_from(["float32", "float16", "bfloat16", "complex64", "int32", "bool"]),
    st.floats(-15, 15),
    st.floats(-20, 20),
    st.sampled_from([None, np.nan, np.inf, -np.inf]),
    st.integers(0, 2**32 - 1),
)
def test_statistics_of_any_output_are_those_of_float64(shape, dtype, exponent, offset, bad, seed):
    draw = np.random.default_rng(seed)
    exponent = exponent if dtype in ("float32", "complex64") else exponent / 4
    values = 10.0**exponent * np.where(draw.random(shape) < 0.3, 0, draw.normal(offset, 1, shape))
    if bad is not None and dtype not in ("int32", "bool"):
        values = np.where(draw.random(shape) < 0.2, bad, values)
    value = jnp.asarray(values, dtype)
    graph = Relu().graph
    (op,) = [node.name for node in graph.nodes]
    numbers = jax.jit(lambda value: activations_in_step(graph, {op: {"output": value}}))(value)
    _assert_same(norms_of(1, {}, numbers, graph).activations[op], Statistics.of(value))


def _repeated() -> Model:
    model = Model() | Linear(6)(weight="w")
    model += Relu()
    model += Linear(6)(weight="w")
    return model + Repeat(Model() + Linear(6) + Relu(), 3) + Flatten() + Linear(2)


def _two_outputs() -> Model:
    model = Model()
    model |= GRU(5, return_state=True, name="gru")(input="input")
    model |= Shape(name="sizes")(input="gru.output")
    model |= Mean(axis=1, name="mean")(input="gru.output")
    model |= Linear(2, name="head")(input="mean.output", output="score")
    model |= Relu(name="other")(input="gru.hidden", output="rest")
    return model


@pytest.mark.parametrize(
    "make",
    [
        _repeated,
        lambda: (
            Model() + TransformerBlock(6, 2, dropout=0.3) + Flatten() + BatchNorm() + Relu() + Dropout(0.5) + Linear(2)
        ),
        _two_outputs,
    ],
    ids=["shared and repeated", "state and random numbers", "several outputs"],
)
def test_activations_in_a_run_are_those_of_the_model(make):
    x = np.random.default_rng(0).normal(size=(16, 4, 6)).astype("float32")
    pm = ml.compile(make(), shapes={"input": [8, 4, 6]})
    options = {"loss": lambda prediction, targets: (prediction - targets) ** 2, "batch_size": 8, "shuffle": False}
    output = {"output": "score"} if "score" in pm.output_names else {}
    targets = np.ones((16, 2), "float32")
    before = ml.fit(pm, (x, targets), steps=1, **options, **output).wait()
    run = ml.fit(pm, (x, targets), steps=2, norms=2, **options, **output).wait()
    key = jax.random.fold_in(jax.random.key(0), 1) if pm.needs_key else None
    traced = pm.trace_values({"input": x[8:]}, before.params, state=before.model_state, key=key, training=True)
    assert (run.norms.step, run.norms.activations.keys()) == (2, traced.values.keys())
    for path, activation in run.norms.activations.items():
        if path in traced.statistics:
            _assert_same(activation, traced.statistics[path])
        else:
            assert (path, activation) == ("sizes", OutputStatistics(None, None, None))


def test_activations_are_those_of_a_network_in_float64():
    x = np.random.default_rng(0).normal(size=(32, 5)).astype("float32")
    model = Model() + Linear(7) + Relu() + Linear(1)
    pm = ml.compile(model, shapes={"input": [32, 5]})
    start = pm.randomize_params(0)
    run = ml.fit(pm, (x, x[:, :1]), loss="mean_squared_error", batch_size=32, steps=1, norms=1, params=start).wait()
    params = {name: np.float64(array) for name, array in start.items()}
    hidden = x @ params["linear_0.weight"] + params["linear_0.bias"]
    arrays = {"linear_0": hidden, "relu_0": np.maximum(hidden, 0)}
    arrays["linear_1"] = arrays["relu_0"] @ params["linear_1.weight"] + params["linear_1.bias"]
    assert run.norms.activations.keys() == arrays.keys()
    for path, array in arrays.items():
        _close(run.norms.activations[path], [array.mean(), array.std(), (array == 0).mean()])


def test_steps_between_two_computations_are_the_program_of_a_run_without():
    x = np.ones((8, 3), "float32")
    pm = ml.compile(Model() + Linear(1), shapes={"input": [8, 3]})
    watched, plain = (
        ml.fit(pm, (x, x[:, :1]), loss="mean_squared_error", batch_size=8, epochs=4, norms=norms)._plan
        for norms in (2, None)
    )
    assert watched.program(1) is watched.program(3) is plain.program(1) is plain.program(2)
    assert watched.program(2) is not plain.program(2)
