"""Batches: each sample once per epoch, in an order fixed by the seed; and the history, which keeps its rows."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcript import facts_of

from mithril_nb.train import COLUMNS, CURVES, History
from mithril_nb.train.data import DataSet, batch_count, batches, epoch_order

sizes = st.tuples(st.integers(1, 80), st.integers(1, 33)).filter(lambda pair: pair[0] >= pair[1])


@given(sizes, st.integers(0, 5), st.integers(1, 4), st.booleans())
def test_padded_batches_hold_each_sample_once(size: tuple[int, int], seed: int, epoch: int, shuffle: bool) -> None:
    count, batch_size = size
    seen: list[int] = []
    found = list(batches(count, batch_size, epoch=epoch, seed=seed, shuffle=shuffle))
    assert len(found) == batch_count(count, batch_size, "pad")
    for indices, weights in found:
        assert len(indices) == batch_size
        assert (weights is None) == (count % batch_size == 0)
        seen += indices.tolist() if weights is None else indices[weights == 1].tolist()
        assert weights is None or set(weights.tolist()) <= {0.0, 1.0}
    assert sorted(seen) == list(range(count))


@given(sizes, st.integers(0, 5))
def test_dropped_and_short_tails(size: tuple[int, int], seed: int) -> None:
    count, batch_size = size
    full = list(batches(count, batch_size, seed=seed, tail="drop"))
    assert all(len(indices) == batch_size and weights is None for indices, weights in full)
    seen = np.concatenate([indices for indices, _ in full])
    assert len(set(seen.tolist())) == len(seen) == count // batch_size * batch_size
    short = np.concatenate([indices for indices, _ in batches(count, batch_size, seed=seed, tail="short")])
    assert sorted(short.tolist()) == list(range(count))


def test_each_epoch_and_seed_has_a_different_order() -> None:
    orders = {tuple(epoch_order(50, epoch, seed)) for epoch in (1, 2, 3) for seed in (0, 1)}
    assert len(orders) == 6
    assert epoch_order(50, 2, 1).tolist() == epoch_order(50, 2, 1).tolist()


@given(st.integers(2, 60), st.floats(0.05, 0.95), st.integers(0, 3))
def test_split_keeps_every_sample(count: int, fraction: float, seed: int) -> None:
    data = DataSet({"input": np.arange(count)[:, None]}, np.arange(count))
    left, held_out = data.split(fraction, seed)
    assert len(held_out) == round(fraction * count)
    assert sorted([*left.targets.tolist(), *held_out.targets.tolist()]) == list(range(count))
    np.testing.assert_array_equal(left.inputs["input"][:, 0], left.targets)


@pytest.mark.parametrize("targets", [np.arange(6), {"a": np.arange(6), "b": np.arange(6)}])
def test_batch_takes_matching_samples(targets: object) -> None:
    batch = DataSet({"x": np.arange(6), "y": np.arange(6) * 2}, targets).take(np.array([4, 1]))
    assert batch["inputs"]["x"].tolist() == [4, 1]
    assert batch["inputs"]["y"].tolist() == [8, 2]
    goals = batch["targets"] if isinstance(batch["targets"], dict) else {"": batch["targets"]}
    assert all(goal.tolist() == [4, 1] for goal in goals.values())


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False)), max_size=700), st.integers(-5, 710))
def test_rows_contain_the_appended_values(losses: list[float | None], start: int) -> None:
    history = History()
    for number, loss in enumerate(losses, 1):
        history.append(step=number, loss=loss)
    assert len(history) == len(losses)
    expected = np.array([np.nan if loss is None else loss for loss in losses], np.float64)
    np.testing.assert_array_equal(history["loss"], expected)
    np.testing.assert_array_equal(history.rows(start, ("loss",))[0], expected[start:])
    assert history.rows(0, CURVES).shape == (5, len(losses))
    assert np.isnan(history["accuracy"]).all()
    assert list(history.to_dict()) == list(COLUMNS)


def test_read_rows_do_not_change() -> None:
    history = History()
    history.append(step=1, loss=1.0)
    rows = history.rows()
    rows[:] = 0
    assert history["loss"].tolist() == [1.0]


def test_truncation_increases_the_version() -> None:
    history = History()
    for number in range(1, 6):
        history.append(step=number)
    history.truncate(9)
    assert history.version == 0
    history.truncate(3)
    assert (history["step"].tolist(), history.version) == ([1, 2, 3], 1)
    history.append(step=4, loss=2.0)
    assert history["loss"][-1] == 2.0


def test_reading_while_another_thread_appends() -> None:
    history = History()

    def work() -> None:
        for number in range(1, 5001):
            history.append(step=number, loss=float(number))

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        step, loss = history.rows(0, ("step", "loss"))
        np.testing.assert_array_equal(step, loss)
        assert step.tolist() == list(range(1, len(step) + 1))
    thread.join()
    assert len(history) == 5000


@pytest.mark.parametrize(("column", "near"), [("val_loss", "validation_loss"), ("lr", "learning_rate"), (3, "loss")])
def test_unknown_column_is_reported(column: Any, near: str) -> None:
    assert facts_of(lambda: History()[column]) == (
        f"UnknownOptionError: the history has no column {column!r}.\n"
        "    columns  step, loss, accuracy, validation_loss, validation_accuracy, epoch, learning_rate, elapsed_s"
    )
