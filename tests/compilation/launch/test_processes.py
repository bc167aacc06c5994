"""Agreement of several processes, tested in one process that also plays the others."""

from __future__ import annotations

import numpy as np
import pytest
from transcript import facts_of

import mithril_nb as ml
from mithril_nb.models import Linear
from mithril_nb.train import prepare
from mithril_nb.train.processes import Processes

X, Y = np.ones((12, 4), np.float32), np.zeros((12, 3), np.float32)


@pytest.fixture
def second_of_two(monkeypatch):
    """Make this process act as the second of two, with a function that returns the data of the first."""
    monkeypatch.setattr(prepare, "distributed", lambda: Processes(1, 2))

    def others(change):
        def gather(mine):
            first = bytearray(mine.tobytes())
            change(first)
            return np.stack([np.frombuffer(bytes(first), np.uint8), mine])

        monkeypatch.setattr(prepare.multihost_utils, "process_allgather", gather)

    return others


def fit(**options):
    return ml.fit(Linear(3), (X, Y), loss="mean_squared_error", **{"batch_size": 4, "epochs": 2, **options})


def test_single_process_keeps_everything():
    me = ml.distributed()
    assert (me.index, me.count, me.is_main, me.rows(5)) == (0, 1, True, slice(0, 5))
    assert me.assemble(X) is X
    assert me.replicate(X) is X
    assert me.whole_outputs() == {}


def test_the_rows_of_all_processes_are_the_batch():
    rows = [np.arange(12)[Processes(index, 4).rows(12)].tolist() for index in range(4)]
    assert np.concatenate(rows).tolist() == list(range(12))
    assert {len(share) for share in rows} == {3}


def test_differing_processes_are_reported(second_of_two):
    def change(sent):
        sent[0:24] = b"%024d" % 10  # samples
        sent[72:96] = b"%024d" % 5  # epochs: after samples, data, batch_size

    second_of_two(change)
    assert facts_of(lambda: fit()) == (
        """DataError: the processes have different data or options.
    samples  10, 12
    epochs   5, 2"""
    )


def test_indivisible_batch_is_rejected(second_of_two, monkeypatch):
    monkeypatch.setattr(Processes, "mesh", property(lambda me: type("Mesh", (), {"devices": np.zeros(4)})))
    assert facts_of(lambda: fit(batch_size=6)) == (
        """DataError: batch_size is not divisible by the number of devices.
    batch_size  6
    devices     4 in total, in 2 processes"""
    )
