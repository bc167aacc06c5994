"""The history of a run: it grows, can be read meanwhile, and keeps its rows."""

from __future__ import annotations

import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mithril_nb.train import COLUMNS, CURVES, History


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
