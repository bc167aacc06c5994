"""Resume a run from its checkpoints, for tests."""

from __future__ import annotations

from mithril_nb.train import fit


def resumed(small, blobs, folder, **options):
    return fit(small, blobs, **{"epochs": 2, "batch_size": 16, "checkpoint": folder, "resume": True, **options})
