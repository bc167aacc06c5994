"""Figures of costs: a new one needs changes in three files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

import mithril_nb
import mithril_nb as ml
from mithril_nb.figures import FIGURES, OF_BLOCKS, OF_XLA, share_of

PACKAGE = Path(mithril_nb.__file__).parent
CHANGES = {
    "figures.py": (
        'Figure("params",',
        'Figure("energy_j", "energy", "energy", "J", "Joules of one run", unknown="unknown_bytes"),\n        '
        'Figure("params",',
    ),
    "cost/records.py": (
        "    macs: int | None = None\n",
        "    macs: int | None = None\n    energy_j: int | None = None\n",
        "    unknown_transcendentals: int = 0\n",
        "    unknown_transcendentals: int = 0\n    energy_j: int | None = 0\n",
    ),
    "cost/formulas/rules.py": (
        '"wire_bytes": wire}',
        '"wire_bytes": wire, "energy_j": cost.figures["bytes_accessed"]}',
    ),
}
"""For each file, pairs of a text and its replacement."""
USE = """
import jax.numpy as jnp
import mithril_nb as ml
program = ml.inspect(lambda x: jnp.tanh(x) + 1, jnp.zeros(8), name="step")
cost = program.cost()
moved = cost.total.bytes_accessed
assert cost.total.energy_j == cost.by_role["forward"].energy_j == cost.unattributed.energy_j + sum(
    figures.energy_j for figures in cost.by_block.values()
) == moved > 0
assert cost.to_dict()["total"]["energy_j"] == sum(row["energy_j"] for row in cost.to_dict()["rows"]) == moved
assert cost.to_pandas()["energy_j"].sum() == cost.to_pandas("block")["energy_j"].sum() == moved
assert cost.compare(cost).total.to_dict()["delta"]["energy_j"] == 0
assert sum(figures.energy_j for figures in cost.by_line.values()) == moved
assert cost.formula(field="energy_j") == str(moved)
assert "energy" in str(cost)
assert "energy" in cost.treemap("energy_j").text
assert "energy" in cost.overlay(program, "energy_j").text
"""


def test_a_new_figure_takes_three_files(tmp_path: Path) -> None:
    copy = tmp_path / "mithril_nb"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("node_modules", "__pycache__", "frontend"))
    for name, texts in CHANGES.items():
        code = (copy / name).read_text(encoding="utf-8")
        for old, new in zip(texts[::2], texts[1::2], strict=True):
            assert code.count(old) == 1, (name, old)
            code = code.replace(old, new)
        (copy / name).write_text(code, encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    result = subprocess.run(
        [sys.executable, "-c", USE],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert result.returncode == 0, result.stderr


def test_figures_of_data_without_unknown_parts_are_exact() -> None:
    assert not FIGURES["flops"].is_bound({"flops": 3})
    assert FIGURES["transcendentals"].is_bound({"transcendentals": 3, "unknown": 1})
    assert not FIGURES["params"].is_bound({"params": 3, "unknown": 1})


def test_a_share_without_a_whole_is_zero() -> None:
    assert share_of(None, 0, False, False) == (0.0, "")
    assert share_of(0, 4, False, True) == (0.0, "")
    assert share_of(4, 4, True, False) == (1.0, "")


@pytest.mark.parametrize("source", ["analytic", "lowered", "compiled"])
def test_counts_for_comparison_with_xla_have_only_figures_of_xla(source: str) -> None:
    cost = ml.inspect(lambda x: jnp.tanh(x) @ x, jnp.zeros((8, 8))).cost(source)
    figures = [cost.once, *([cost.xla] if cost.xla else []), *(row.once for row in cost.rows)]
    for key in OF_BLOCKS:
        assert {getattr(once, key) is not None for once in figures} == {key in OF_XLA}, key
