"""The recorded learning rate is the rate that moved the params, or unknown; no other number is silently missing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.train import fit

DATA = (np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32))


class Slope:
    """A model whose loss has the gradient 1, so that Adam and SGD move each param by the learning rate."""

    input_names, output_names, needs_key = ("input",), ("output",), False

    def __init__(self):
        self.input_specs = {"input": TensorSpec(("batch", 1))}

    def forward(self, params, inputs, *, key=None, training=False):
        return {"output": inputs["input"] * (params["a"] + params["b"])}

    def randomize_params(self, seed=None):
        return {"a": np.float32(0), "b": np.float32(0)}


def recorded_and_true(optimizer, factor=1.0, **options):
    run = fit(Slope(), DATA, optimizer=optimizer, loss=lambda p, t: p[:, 0], batch_size=2, epochs=3, **options)
    places = [0.0]
    for event in run:
        if event.kind == "step":
            places.append(float(run.params["a"]))
            run.learning_rate = factor
    return run.history["learning_rate"], -np.diff(places)


def labelled(inner, other):
    return optax.multi_transform({"a": inner, "b": other}, lambda params: {name: name for name in params})


rates = st.one_of(
    st.sampled_from([0.5, 0.125, 1.0]),
    st.sampled_from(
        [
            optax.linear_schedule(0.5, 0.25, 4),
            optax.cosine_decay_schedule(0.5, 10),
            optax.piecewise_constant_schedule(0.5, {2: 0.5}),
            optax.warmup_constant_schedule(0.0, 0.5, 3),
        ]
    ),
)
factories = st.sampled_from([optax.sgd, optax.adam, optax.adamax])
plain = st.builds(lambda factory, rate: factory(rate), factories, rates)
injected = st.builds(
    lambda factory, rate: optax.inject_hyperparams(factory)(learning_rate=rate),
    st.sampled_from([optax.sgd, optax.adam]),
    rates,
)
KNOWN = (
    lambda inner: inner,
    lambda inner: optax.chain(optax.clip(10.0), inner),
    lambda inner: optax.chain(inner, optax.scale(0.5)),
    lambda inner: optax.chain(optax.chain(inner), optax.scale_by_schedule(optax.linear_schedule(1.0, 0.5, 4))),
    lambda inner: optax.named_chain(("clip", optax.clip(10.0)), ("inner", inner)),
    lambda inner: labelled(inner, optax.set_to_zero()),
    lambda inner: optax.with_extra_args_support(inner),
)
UNKNOWN = (
    lambda inner: optax.chain(optax.scale(0.5), inner),
    lambda inner: optax.chain(inner, optax.scale_by_adam()),
    lambda inner: labelled(inner, optax.sgd(0.75)),
    lambda inner: optax.masked(inner, {"a": True, "b": False}),
    lambda inner: optax.apply_if_finite(inner, 3),
    lambda inner: optax.MultiSteps(inner, 2).gradient_transformation(),
    lambda inner: optax.GradientTransformation(inner.init, lambda *args: inner.update(*args)),
)


@settings(max_examples=40)
@given(plain | injected, st.lists(st.sampled_from(KNOWN), max_size=2), st.sampled_from([1.0, 0.25]))
def test_recorded_rate_is_the_rate_that_moved_the_params(inner, wrappers, factor):
    for wrapper in wrappers:
        inner = wrapper(inner)
    recorded, true = recorded_and_true(inner, factor)
    np.testing.assert_allclose(recorded, true, rtol=1e-4, atol=1e-6)


@settings(max_examples=20)
@given(plain | injected, st.sampled_from(UNKNOWN))
def test_recorded_rate_is_true_or_unknown(inner, wrapper):
    recorded, true = recorded_and_true(wrapper(inner))
    known = ~np.isnan(recorded)
    np.testing.assert_allclose(recorded[known], true[known], rtol=1e-4, atol=1e-6)


SCHEDULES = {  # of a highest rate and a number of steps
    "constant_schedule": lambda rate, steps: optax.constant_schedule(rate),
    "cosine_decay_schedule": lambda rate, steps: optax.cosine_decay_schedule(rate, steps, 0.1, 2.0),
    "cosine_onecycle_schedule": lambda rate, steps: optax.cosine_onecycle_schedule(steps + 3, rate),
    "exponential_decay": lambda rate, steps: optax.exponential_decay(rate, steps, 0.3, 1, steps > 4, rate / 9),
    "join_schedules": lambda rate, steps: optax.join_schedules(
        [optax.linear_schedule(0.0, rate, steps), optax.cosine_decay_schedule(rate, steps)], [steps]
    ),
    "linear_onecycle_schedule": lambda rate, steps: optax.linear_onecycle_schedule(steps + 3, rate),
    "linear_schedule": lambda rate, steps: optax.linear_schedule(rate, rate / 7, steps, 2),
    "piecewise_constant_schedule": lambda rate, steps: optax.piecewise_constant_schedule(rate, {2: 0.3, steps: 0.7}),
    "piecewise_interpolate_schedule": lambda rate, steps: optax.piecewise_interpolate_schedule(
        "cosine", rate, {2: 0.3, steps + 2: 0.7}
    ),
    "polynomial_schedule": lambda rate, steps: optax.polynomial_schedule(rate, rate / 3, 3, steps, 1),
    "sgdr_schedule": lambda rate, steps: optax.sgdr_schedule(
        [{"init_value": 0.0, "peak_value": rate, "warmup_steps": 1, "decay_steps": steps + 2}] * 4
    ),
    "warmup_constant_schedule": lambda rate, steps: optax.warmup_constant_schedule(0.0, rate, steps),
    "warmup_cosine_decay_schedule": lambda rate, steps: optax.warmup_cosine_decay_schedule(0.0, rate, 2, steps + 3),
    "warmup_exponential_decay_schedule": lambda rate, steps: optax.warmup_exponential_decay_schedule(
        0.0, rate, 2, steps, 0.5
    ),
}
WAYS = {
    "a schedule": lambda schedule: {"optimizer": "adam", "learning_rate": schedule},
    "inside": lambda schedule: {"optimizer": optax.adamw(schedule)},
    "injected": lambda schedule: {"optimizer": optax.inject_hyperparams(optax.sgd)(learning_rate=schedule)},
}


def test_no_schedule_of_optax_is_missing():
    names = {name for name in dir(optax.schedules) if name[0].islower() and not name.startswith("inject")}
    assert names == SCHEDULES.keys()


@pytest.mark.parametrize("name", SCHEDULES)
@settings(max_examples=4)
@given(rate=st.floats(2.0**-20, 1.0, width=32), steps=st.integers(3, 8), way=st.sampled_from([*WAYS]))
def test_recorded_rates_are_those_of_optax(name, rate, steps, way):
    schedule = SCHEDULES[name](rate, steps)
    run = fit(Slope(), DATA, loss=lambda p, t: p[:, 0], batch_size=2, epochs=6, **WAYS[way](schedule)).wait()
    expected = jax.jit(jax.vmap(lambda step: jnp.asarray(schedule(step), jnp.float32)))(jnp.arange(12))
    np.testing.assert_allclose(run.history["learning_rate"], expected, rtol=0, atol=1e-7)


def test_rate_of_a_schedule_and_of_a_line_search():
    schedule = optax.linear_schedule(0.5, 0.0, 5)
    for options in ({"optimizer": "adam", "learning_rate": schedule}, {"optimizer": optax.sgd(schedule)}):
        run = fit(Slope(), DATA, loss="mean_squared_error", batch_size=2, epochs=2, **options)
        events = [*run]
        np.testing.assert_allclose(run.history["learning_rate"], [0.5, 0.4, 0.3, 0.2], rtol=1e-6)
        assert events[0].learning_rate is None
        rates = [event.learning_rate for event in events[1:]]
        np.testing.assert_allclose(rates, [0.5, 0.4, 0.4, 0.3, 0.2, 0.2, 0.2], rtol=1e-6)
        assert run.learning_rate == 1.0
    frozen = optax.partition({"all": optax.set_to_zero()}, lambda params: dict.fromkeys(params, "all"))
    for optimizer in (optax.lbfgs(), optax.rprop(0.1), optax.polyak_sgd(), frozen):
        run = fit(Slope(), DATA, loss="mean_squared_error", optimizer=optimizer, batch_size=2, epochs=1).wait()
        assert np.isnan(run.history["learning_rate"]).all()


def test_weighted_cross_entropy_has_an_accuracy(small, blobs):
    x, y = blobs
    weights = jnp.asarray([1.0, 2.0, 3.0])

    def weighted(logits, labels):
        return weights[labels] * optax.softmax_cross_entropy_with_integer_labels(logits, labels)

    run = fit(small, blobs, loss=weighted, epochs=2, batch_size=16).wait()
    right = np.mean(np.argmax(small.forward(run.params, {"input": x})["output"], -1) == y)
    assert run.evaluate(blobs)["accuracy"] == pytest.approx(right)
    assert np.isfinite(run.history["accuracy"]).all()
    assert np.isnan(
        fit(small, blobs, loss=weighted, metrics=(), batch_size=16, epochs=1).wait().history["accuracy"]
    ).all()


def test_numbers_have_no_accuracy(small, blobs):
    with pytest.raises(UnknownOptionError, match="undefined for loss '<lambda>'"):
        fit(small, (blobs[0], blobs[0][:, 0]), loss=lambda p, t: p.mean(), metrics="accuracy", batch_size=16)


def test_scalar_loss_takes_each_sample_of_an_epoch(small, blobs):
    def scalar(logits, labels):
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    run = fit(small, blobs, loss=scalar, epochs=1, batch_size=16, learning_rate=0.0, validation=blobs).wait()
    assert run.steps == 4
    whole = fit(small, blobs, epochs=1, batch_size=16, learning_rate=0.0, validation=blobs).wait()
    np.testing.assert_allclose(run.history["loss"], whole.history["loss"], rtol=1e-5)
    np.testing.assert_allclose(run.evaluate(blobs)["loss"], whole.evaluate(blobs)["loss"], rtol=1e-5)


def test_last_event_has_the_validation_metrics(small, blobs):
    *_, epoch, last = fit(small, blobs, validation=blobs, epochs=2, batch_size=16)
    assert last.kind == "done"
    for name in ("loss", "accuracy", "validation_loss", "validation_accuracy"):
        assert getattr(last, name) == getattr(epoch, name) is not None
