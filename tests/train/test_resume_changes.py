"""A run does not resume with another optimizer, loss or data, however small the change, unless the user insists."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mithril_nb.errors import CheckpointError
from mithril_nb.train import fit
from mithril_nb.train.checkpoints.equations import difference, equations_of
from mithril_nb.train.data import DataSet
from tests.train.conftest import PlainMLP
from tests.train.resuming import resumed

MODEL = PlainMLP(4, 8, 3)
X = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
DATA = (X, np.arange(32) % 3)
FUNCTIONS = tuple(jax.jit(partial(jnp.multiply, factor)) for factor in (2, 3, 5))


def facts(**options):
    run = fit(options.pop("model", MODEL), DATA, **options)
    return equations_of(run._plan, run._state.params)


def changes(then, now):
    return {name: text for name, result in facts(**now).items() if (text := difference(facts(**then)[name], result))}


def trained(blobs, folder, **options):
    fit(MODEL, blobs, epochs=2, batch_size=16, checkpoint=folder, **options).wait()


@pytest.mark.parametrize(
    ("then", "now", "text"),
    [
        (optax.adam(1e-3), optax.adam(1e-1), "mul -0.001 in the checkpoint, mul -0.1 here"),
        (optax.adamw(1e-3, weight_decay=1e-4), optax.adamw(1e-3, weight_decay=0.5), "mul 0.0001 in the checkpoint"),
        (optax.adam(optax.cosine_decay_schedule(1e-3, 9)), optax.adam(optax.cosine_decay_schedule(1e-3, 8)), "min 8"),
        (optax.inject_hyperparams(optax.sgd)(1e-3), optax.inject_hyperparams(optax.sgd)(1e-2), "start 0.01 here"),
    ],
)
def test_hyperparameters_of_a_transformation(blobs, tmp_path, then, now, text):
    trained(blobs, tmp_path, optimizer=then)
    with pytest.raises(CheckpointError) as caught:
        resumed(MODEL, blobs, tmp_path, optimizer=now, epochs=3)
    assert f"    optimizer  {text}" in str(caught.value) or text in str(caught.value)
    assert 'Try: resume="anyway"' in str(caught.value)
    run = resumed(MODEL, blobs, tmp_path, optimizer=now, epochs=3, resume="anyway").wait()
    assert (run.step, len(run.history)) == (12, 12)


@given(st.lists(st.sampled_from(FUNCTIONS), min_size=3, max_size=5), st.data())
@settings(max_examples=25, deadline=None)
def test_which_function_each_line_of_a_loss_calls(functions, data):
    """JAX outlines jitted functions: one call of another function of the same text is another loss."""
    others = [*functions]
    others[data.draw(st.integers(1, len(functions) - 1))] = data.draw(st.sampled_from(functions))

    def loss(functions):
        def value(prediction, targets):
            return sum(function(prediction[:, 0] * (i + 1)) for i, function in enumerate(functions)).mean()

        return value

    assert [*changes({"loss": loss(functions)}, {"loss": loss(others)})] == ["loss"] * (functions != others)


def test_the_order_of_the_operands_of_an_outlined_function():
    def loss(function):
        outlined = jax.jit(function)
        return lambda prediction, targets: outlined(prediction.sum(-1), targets.astype("float32"))

    below, above = (loss(lambda a, b: jnp.maximum(a - b, 0)), loss(lambda a, b: jnp.maximum(b - a, 0)))
    assert [*changes({"loss": below}, {"loss": above})] == ["loss"]
    assert changes({"loss": below}, {"loss": loss(lambda x, y: jnp.maximum(x - y, 0))}) == {}


def test_sign_of_a_lambda_and_its_closure(blobs, tmp_path):
    def loss(sign, scale):
        return lambda prediction, targets: sign * scale * jnp.mean((prediction[:, 0] - targets) ** 2)

    trained(blobs, tmp_path, loss=loss(1, 0.5))
    assert resumed(MODEL, blobs, tmp_path, loss=loss(1, 0.5)).step == 8  # the short last batch included
    for other in (
        loss(-1, 0.5),
        loss(1, 0.25),
        lambda prediction, targets: jnp.mean((targets - prediction[:, 1]) ** 2),
    ):
        with pytest.raises(CheckpointError, match=r"loss  .* here"):
            resumed(MODEL, blobs, tmp_path, loss=other)


def test_each_edited_label_is_noticed(tmp_path):
    x, y = np.zeros((5000, 4), np.float32), np.arange(5000) % 3
    fit(MODEL, (x, y), epochs=1, batch_size=1000, checkpoint=tmp_path).wait()
    for place in (1, 777, 4998):
        edited = y.copy()
        edited[place] = (edited[place] + 1) % 3
        with pytest.raises(CheckpointError, match="data    the run began with other samples"):
            resumed(MODEL, (x, edited), tmp_path, batch_size=1000)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_data_fingerprint_covers_all_bytes(data):
    shape = data.draw(st.tuples(st.integers(1, 400), st.integers(1, 5)))
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    strided = np.repeat(array, 2, axis=1)[:, ::2]
    assert DataSet({"input": strided}, array).fingerprint == DataSet({"input": array}, array).fingerprint
    edited = array.copy()
    edited[data.draw(st.integers(0, shape[0] - 1)), data.draw(st.integers(0, shape[1] - 1))] += 1
    for other in (DataSet({"input": edited}, array), DataSet({"input": array}, edited)):
        assert other.fingerprint != DataSet({"input": array}, array).fingerprint


def test_model_without_a_graph(mlp):
    class Other(PlainMLP):
        def forward(self, params, inputs, **options):
            return {"output": 2 * super().forward(params, inputs, **options)["output"]}

    assert changes({"model": mlp(4, 8, 3)}, {"model": Other(4, 8, 3)}) == {"model": "mul 2 here"}


FACTORIES = (
    "adam",
    "adamw",
    "sgd",
    "rmsprop",
    "lion",
    "adagrad",
    "adabelief",
    "nadam",
    "lamb",
    "yogi",
    "adan",
    "lbfgs",
)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(FACTORIES), st.data())
def test_each_hyperparameter_of_each_optimizer(name, data):
    """A change of any float of a factory changes the equations; the same values give the same equations."""
    factory = getattr(optax, name)
    values = {"learning_rate": 0.125}
    for parameter in inspect.signature(factory).parameters.values():
        if isinstance(parameter.default, float) and parameter.name not in ("eps_root", "initial_accumulator_value"):
            values[parameter.name] = parameter.default
    changed = data.draw(st.sampled_from(sorted(values)))
    wrap = data.draw(
        st.sampled_from(
            [
                lambda inner: inner,
                lambda inner: optax.chain(optax.clip_by_global_norm(1.0), inner),
                lambda inner: optax.multi_transform(
                    {"a": inner, "b": optax.sgd(0.1)},
                    lambda tree: {key: "a" if key.endswith("weight") else "b" for key in tree},
                ),
            ]
        )
    )
    if name == "lbfgs":
        wrap = lambda inner: inner  # noqa: E731 - its line search needs the outermost place
    then, again = ({"optimizer": wrap(factory(**values))} for _ in range(2))
    assert changes(then, again) == {}
    other = values | {changed: values[changed] * 0.75 + 0.0625}
    assert set(changes(then, {"optimizer": wrap(factory(**other))})) == {"optimizer"}


def test_another_process_gives_the_same_facts():
    code = """
        import optax, jax.numpy as jnp
        from tests.train.test_resume_changes import facts
        weights = jnp.arange(3.0)
        schedule = optax.cosine_decay_schedule(1e-3, 9)
        print(facts(optimizer=optax.adamw(schedule), loss=lambda p, t: weights[t] * p[:, 0]))
        print(facts(optimizer=optax.multi_transform({"a": optax.adam(1), "b": optax.lion(2)},
              lambda tree: {name: "ab"[len(name) % 2] for name in tree})))
    """
    path = os.pathsep.join(["tests", os.environ.get("PYTHONPATH", "")])
    texts = {
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert "hash" in texts.pop()
