"""Batches of iterables train as the same samples in arrays do, are checked as they are, and resume where they were."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

from mithril_nb.errors import DataError, UnknownOptionError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.train import fit

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 4)).astype(np.float32), RNG.integers(0, 3, 40)
W = RNG.uniform(0.1, 2, 40).astype(np.float32)
BATCHES = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8)]


class Counting:
    """Batches in an order that is drawn anew in each iteration; with the state of its draws."""

    def __init__(self, *, on_iterator: bool) -> None:
        self.index, self.draws, self.on_iterator = 0, np.random.default_rng(7), on_iterator

    def __iter__(self) -> Any:
        self.index = 0
        return Cursor(self) if self.on_iterator else self._batches()

    def _batches(self) -> Iterator[Any]:
        while self.index < 5:
            self.index += 1
            yield BATCHES[int(self.draws.integers(5))]


class Loader(Counting):
    def state_dict(self) -> dict[str, Any]:
        return {"index": self.index, "draws": self.draws.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.draws.bit_generator.state = state["draws"]
        self.loaded = state["index"]

    def __iter__(self) -> Any:
        self.index, self.loaded = getattr(self, "loaded", 0), 0
        return self._batches()


class Cursor:
    def __init__(self, owner: Counting) -> None:
        self.owner, self.batches = owner, owner._batches()

    def __iter__(self) -> Cursor:
        return self

    def __next__(self) -> Any:
        return next(self.batches)

    def get_state(self) -> Any:
        return repr((self.owner.index, self.owner.draws.bit_generator.state)).encode(), (1, np.arange(2))

    def set_state(self, state: Any) -> None:
        assert isinstance(state, tuple)
        assert state[1][1].tolist() == [0, 1]
        self.owner.index, self.owner.draws.bit_generator.state = eval(state[0])


def train(small: Any, data: Any, **options: Any) -> Any:
    return fit(small, data, **{"optimizer": optax.adam(0.01), "shuffle": False, **options}).wait()


def assert_same(ours: Any, theirs: Any, atol: float = 0.0) -> None:
    for own, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(own, other, atol=atol, rtol=0)


class Columns(dict[str, Any]):
    """Stands for a Dataset of Hugging Face."""

    column_names = ("x", "label")

    def with_format(self, kind: str) -> Any:
        assert kind == "numpy"
        return self

    def __getitem__(self, name: Any) -> Any:
        return dict(self) if isinstance(name, slice) else super().__getitem__(name)


class StreamedColumns:
    """Stands for an IterableDataset of Hugging Face."""

    column_names = ("x", "label")

    def with_format(self, kind: str) -> Any:
        return self

    def iter(self, batch_size: int) -> Iterator[Any]:
        for i in range(0, 40, batch_size):
            yield {"x": X[i : i + batch_size], "label": Y[i : i + batch_size]}


def loader_of_torch() -> Any:
    torch = pytest.importorskip("torch")
    samples = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    return torch.utils.data.DataLoader(samples, batch_size=8)


@pytest.mark.parametrize(
    "data",
    [
        lambda: BATCHES,
        lambda: (batch for batch in BATCHES * 2),
        lambda: [{"inputs": x, "targets": y} for x, y in BATCHES],
        lambda: [{"image": x, "label": y, "weights": np.ones(8)} for x, y in BATCHES],
        loader_of_torch,
        lambda: {"x": X, "y": Y},
        lambda: pd.DataFrame(X, columns=list("abcd")).assign(label=Y),
        lambda: (pd.DataFrame(X, columns=list("abcd")), pd.Series(Y, dtype="Int64")),
        lambda: (pytest.importorskip("torch").tensor(X), pytest.importorskip("torch").tensor(Y)),
        lambda: Columns(x=X, label=Y),
        StreamedColumns,
        lambda: (X, Y, np.ones(40)),
    ],
)
def test_every_form_of_data_trains_as_arrays(small: Any, data: Any) -> None:
    options = {"steps": 10, "batch_size": 8}
    run, reference = train(small, data(), **options), train(small, (X, Y), **options)
    assert run.step == 10
    assert_same(run.params, reference.params, 1e-6)


def test_the_last_short_batch_counts(small: Any) -> None:
    batches = [(X[i : i + 16], Y[i : i + 16]) for i in range(0, 40, 16)]
    run = train(small, batches, epochs=2, validation=batches)
    reference = train(small, (X, Y), epochs=2, batch_size=16, validation=(X, Y))
    assert run.steps == 6
    assert_same(run.params, reference.params, 1e-6)
    assert run.history["validation_loss"][-1] == pytest.approx(reference.history["validation_loss"][-1], abs=1e-6)


@pytest.mark.parametrize("size", [8, 16])
def test_losses_are_means_by_weights(small: Any, size: int) -> None:
    run = train(small, (X, Y, W), epochs=1, batch_size=size, validation=(X, Y, W))
    params, adam = small.randomize_params(0), optax.adam(0.01)
    params = jax.tree.map(jnp.asarray, params)
    held = adam.init(params)

    def loss(params: Any, x: Any, y: Any, w: Any) -> Any:
        logits = small.forward(params, {"input": x})["output"]
        return (optax.softmax_cross_entropy_with_integer_labels(logits, y) * w).sum() / w.sum()

    for i in range(0, 40, size):
        x, y, w = X[i : i + size], Y[i : i + size], W[i : i + size]
        updates, held = adam.update(jax.grad(loss)(params, x, y, w), held)
        params = optax.apply_updates(params, updates)
    assert_same(run.params, params, 1e-6)
    assert run.history["validation_loss"][-1] == pytest.approx(float(loss(params, X, Y, W)), abs=1e-6)


def test_masks_of_tokens_and_losses_of_params() -> None:
    tokens = RNG.normal(size=(6, 5, 4)).astype(np.float32)
    labels, mask = RNG.integers(0, 3, (6, 5)), RNG.integers(0, 2, (6, 5)).astype(np.float32)
    start = {"w": jnp.asarray(RNG.normal(size=(4, 3)), jnp.float32)}

    def loss(params: Any, x: Any, y: Any, m: Any) -> Any:
        values = optax.softmax_cross_entropy_with_integer_labels(x @ params["w"], y)
        return (values * m).sum() / m.sum() + 0.1 * jnp.square(params["w"]).sum()

    def with_penalty(prediction: Any, targets: Any, params: Any) -> Any:
        values = optax.softmax_cross_entropy_with_integer_labels(prediction, targets)
        return values + 0.1 * jnp.square(params["w"]).sum()

    def own(prediction: Any, targets: Any, weights: Any, params: Any) -> Any:
        values = optax.softmax_cross_entropy_with_integer_labels(prediction, targets)
        return (values * weights).sum() / weights.sum() + 0.1 * jnp.square(params["w"]).sum()

    expected = start["w"] - 0.5 * jax.grad(loss)(start, tokens, labels, mask)["w"]
    for function in (with_penalty, own):
        run = fit(
            lambda params, x: x @ params["w"],
            (tokens, labels, mask),
            params=start,
            loss=function,
            optimizer=optax.sgd(0.5),
            steps=1,
            batch_size=6,
        ).wait()
        np.testing.assert_allclose(run.params["w"], expected, atol=1e-6)
    with pytest.raises(DataError, match="weights do not fit"):
        fit(lambda p, x: x @ p["w"], (tokens, labels, mask), params=start, loss=lambda p, t: p.mean(), batch_size=6)


class TwoOutputs:
    input_names, output_names, needs_key = ("input",), ("a", "b"), False
    input_specs = MappingProxyType({"input": TensorSpec(("batch", 4))})

    def forward(self, params: Any, inputs: Any, *, key: Any = None, training: bool = False) -> Any:
        return {name: inputs["input"] @ params[name] for name in self.output_names}

    def randomize_params(self, seed: Any = None) -> Any:
        return {name: np.ones(4, np.float32) for name in self.output_names}


def squares(prediction: Any, targets: Any) -> Any:
    return jnp.square(prediction - targets)


def mean_of_squares(prediction: Any, targets: Any) -> Any:
    return squares(prediction, targets).mean()


def weighted(prediction: Any, targets: Any, weights: Any, params: Any) -> Any:
    return (squares(prediction, targets) * weights).sum() / weights.sum() + jnp.abs(params["a"]).sum()


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize("parts", [(squares, squares), (squares, mean_of_squares), (squares, weighted)])
def test_a_sum_of_losses_counts_each_sample_by_its_weight(parts: Any, has_weights: bool) -> None:
    x, y, w = X[:10], X[:10, 0], W[:10] if has_weights else np.ones(10, np.float32)
    data = (x, {"a": y, "b": 2 * y}, *([w] if has_weights else []))
    options = {"loss": dict(zip("ab", parts, strict=True)), "learning_rate": 0.0, "shuffle": False, "batch_size": 8}
    if has_weights and mean_of_squares in parts:
        with pytest.raises(DataError, match="weights do not fit"):
            fit(TwoOutputs(), data, **options)
        return
    run = fit(TwoOutputs(), data, validation=data, epochs=1, optimizer="sgd", **options).wait()
    values = (x.sum(1) - y) ** 2 + (x.sum(1) - 2 * y) ** 2
    penalty = 4.0 if weighted in parts else 0.0
    expected = [np.average(values[rows], weights=w[rows]) + penalty for rows in (slice(8), slice(8, 10))]
    np.testing.assert_allclose(run.history["loss"], expected, rtol=1e-5)
    assert run.validation["loss"] == pytest.approx(np.average(values, weights=w) + penalty, rel=1e-5)


def test_values_of_each_output_are_not_of_samples(small: Any) -> None:
    def by_output(prediction: Any, targets: Any) -> Any:
        return squares(prediction, targets).mean(0)

    goals = X[:, :3]
    run = fit(small, (X, goals), loss=by_output, validation=(X, goals), batch_size=16, epochs=1).wait()
    guess = np.asarray(small.forward(run.params, {"input": X})["output"])
    assert run.validation["loss"] == pytest.approx(np.square(guess - goals).mean(), rel=1e-5)
    with pytest.raises(DataError, match="weights do not fit"):
        fit(small, (X, goals, W), loss=by_output, batch_size=16)


def test_weights_that_would_count_twice_or_do_not_fit_are_refused(small: Any) -> None:
    def twice(prediction: Any, targets: Any, weights: Any) -> Any:
        return squares(prediction[:, 0], targets) * weights

    with pytest.raises(DataError, match="weighted twice"):
        fit(small, (X, X[:, 0], W), loss=twice)
    of_tokens = (X, Y, np.ones((40, 5)))
    with pytest.raises(DataError, match="validation data: the weights do not fit"):
        fit(small, (X, Y), validation=of_tokens)
    with pytest.raises(DataError, match="weights do not fit"):
        fit(small, (X, Y)).evaluate(of_tokens)
    with pytest.raises(DataError, match="weights do not fit"):
        fit(small, [BATCHES[0], of_tokens], steps=2).wait()


@pytest.mark.parametrize("make", [lambda: Loader(on_iterator=False), lambda: Counting(on_iterator=True)])
@pytest.mark.parametrize("at", [3, 5, 7])
def test_iterables_with_a_state_resume_exactly(small: Any, make: Any, at: int, tmp_path: Path) -> None:
    whole = train(small, make(), steps=12)
    train(small, make(), steps=at, checkpoint=tmp_path)
    resumed = train(small, make(), steps=12, checkpoint=tmp_path, resume=True)
    assert_same(resumed.params, whole.params)
    assert resumed.history["loss"].tolist() == whole.history["loss"].tolist()


def test_other_iterables_warn_of_a_resume(small: Any, tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="does not resume exactly"):
        train(small, BATCHES, steps=3, checkpoint=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(small, BATCHES, steps=3)


def test_a_run_goes_back_with_its_iterable(small: Any) -> None:
    bad = [(x, y) for x, y in BATCHES]
    run = fit(small, Loader(on_iterator=False), steps=12, optimizer="sgd", learning_rate=0.1)
    events = iter(run)
    while run.step < 5:
        next(events)
    run.learning_rate = 1e30
    with pytest.raises(Exception, match=r"is (NaN|infinite)"):
        list(events)
    run.learning_rate = 0.1
    run.resume().wait()
    assert run.params is not bad
    assert_same(
        run.params, train(small, Loader(on_iterator=False), steps=12, optimizer="sgd", learning_rate=0.1).params
    )


TABLE = pd.DataFrame({"a": [1.0, 2.0], "town": ["Ulm", "Bonn"], "y": [0, 1]})
REFUSED = [
    ("'town'", lambda: (TABLE[["a", "town"]], TABLE["y"])),
    ("'town'", lambda: TABLE),
    ("name of the targets", lambda: TABLE[["a", "town"]]),
    ("different lengths", lambda: ([[1.0, 2.0], [3.0]], [0, 1])),
    ("different lengths", lambda: [([[1.0, 2.0], [3.0]], [0, 1])] and iter([([[1.0, 2.0], [3.0]], [0, 1])])),
    ("out of range", lambda: (X, Y + 1)),
    ("out of range", lambda: [(X, Y), (X, Y + 1)][1:]),
    ("NaN", lambda: (np.where(X > 2, np.nan, X), Y)),
    ("NaN", lambda: [(np.where(X > 2, np.nan, X), Y)]),
    ("empty", lambda: (X[:0], Y[:0])),
    ("no more batches", lambda: iter(())),
    ("pair", lambda: iter([X])),
    ("weights", lambda: (X, Y, -W)),
    ("pair", lambda: X),
]


@pytest.mark.parametrize(("message", "data"), REFUSED)
def test_bad_data_is_refused_before_the_first_step(small: Any, message: str, data: Any) -> None:
    with pytest.raises(DataError, match=message):
        fit(small, data(), steps=2, batch_size=2)


def test_bad_batches_and_ends_of_iterators_name_the_batch(small: Any) -> None:
    run = fit(small, [(X, Y), (X, Y + 3)], steps=4)
    with pytest.raises(DataError, match="data: batch 2: labels are out of range"):
        run.wait()
    assert run.state == "failed"
    assert run.step == 1
    run = fit(small, iter(BATCHES), steps=9)
    with pytest.raises(DataError, match="no more batches"):
        run.wait()
    assert run.step == 5
    assert len(run.history) == 5


def test_steps_before_a_failure_are_in_the_history() -> None:
    def slow(params: Any, x: Any) -> Any:  # so that the loop dispatches ahead
        return x @ params["w"] + 0 * jnp.linalg.matrix_power(params["w"][0, 0] * jnp.ones((400, 400)), 5).sum()

    run = fit(slow, iter(BATCHES), params={"w": jnp.zeros((4, 3))}, steps=9)
    with pytest.raises(DataError, match="no more batches"):
        run.wait()
    assert run.history["step"].tolist() == [1, 2, 3, 4, 5]


def test_iterables_need_a_length(small: Any) -> None:
    with pytest.raises(DataError, match="length of the run"):
        fit(small, iter(BATCHES), epochs=2)
    with pytest.raises(DataError, match="length of the run"):
        fit(small, BATCHES)
    with pytest.raises(UnknownOptionError, match="fraction"):
        fit(small, BATCHES, epochs=1, validation=0.5)
    with pytest.raises(UnknownOptionError, match="exclude"):
        fit(small, (X, Y), epochs=1, steps=3)
