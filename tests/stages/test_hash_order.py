"""A program reads the same in every process: nothing depends on the order of a set of strings, which Python varies."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import sys, json
import mithril_nb as ml
from benchmarks.corpus import corpus
target, args = corpus()[sys.argv[1]]()
program = ml.inspect(target, *args)
for stage in program.stages:
    for row in program.stage(stage).instructions:
        print(stage, row.id, row.role, row.blocks, row.source)
for source in ("analytic", "lowered", "compiled"):
    print(program.cost(source).to_json(), [*program.cost(source).by_line])
"""


@pytest.mark.parametrize("name", ["LSTM by scan, train step", "steps in a scan", "mithril_nb MLP, train step"])
def test_roles_and_costs_are_the_same_in_every_process(name):
    texts = {
        subprocess.run(
            [sys.executable, "-c", CODE, name],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in range(4)
    }
    assert len(texts) == 1
