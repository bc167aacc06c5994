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
from mithril_nb.figures import COUNTED, FIGURES, OF_BLOCKS, OF_XLA, share_of

PACKAGE = Path(mithril_nb.__file__).parent
ENTRY = (
    "figures.py",
    'Figure("params",',
    'Figure("int_ops", "integer operations", "int ops", "op", "Operations on integers", unknown="unknown_int_ops"),\n'
    '        Figure("params",',
)
OF_EQUATIONS = (
    "cost/formulas/rules.py",
    '"wire_bytes": wire}',
    '"wire_bytes": wire, "int_ops": cost.figures["flops"] if equation.outputs[0].dtype == "int32" else 0}',
)
OF_INSTRUCTIONS = (
    "cost/hlo/instruction_costs.py",
    "            wire_bytes=repeated(wire, sends),\n",
    "            wire_bytes=repeated(wire, sends),\n"
    '            int_ops=repeated(flops if instruction.shapes[0].dtype == "int32" else 0, runs),\n',
)
START = """
import jax, jax.numpy as jnp
import mithril_nb as ml
from mithril_nb.ui.session.cost_tables import cost_table, rows_of
from tools import contract

def program(length=8):
    return (lambda x: jnp.cumsum(x * 3 - x) + jnp.tanh(1.0).astype(int)), (jax.ShapeDtypeStruct((length,), "int32"),)

inspection = ml.inspect(program()[0], jnp.arange(8), name="step")
"""
SHOWN = """
for source in ("analytic", "lowered", "compiled"):
    cost = inspection.cost(source)
    count = cost.total.int_ops
    assert count == sum(row.int_ops for row in cost.rows) > 8, source
    assert cost.total.unknown_int_ops == 0
    # blocks, roles, lines
    assert count == cost.unattributed.int_ops + sum(figures.int_ops for figures in cost.by_block.values())
    assert count == sum(figures.int_ops for figures in cost.by_role.values())
    assert count == sum(figures.int_ops for figures in cost.by_line.values())
    assert "int ops" in str(cost.by_line) and "int ops" in str(cost.by_role) and "int ops" in str(cost)
    # data
    data = cost.to_dict()
    assert count == data["total"]["int_ops"] == sum(row["int_ops"] for row in data["rows"])
    assert count == cost.to_pandas()["int_ops"].sum() == cost.to_pandas("block")["int_ops"].sum()
    # comparison, pictures
    pair = cost.compare(inspection.cost("compiled"))
    assert pair.total.to_dict()["before"]["int_ops"] == count and "int ops before" in str(pair)
    assert "integer operations" in cost.treemap("int_ops").text
    # the Cost tab
    table = cost_table(cost, [], {})
    assert table["total"]["int_ops"] == count == sum(row["int_ops"] for row in table["rows"])
    paths = [row["block"] for row in table["rows"]]
    details = [row for path in paths for row in rows_of(cost, path, "int_ops")["rows"]]
    assert count == sum(row["figures"]["int_ops"] for row in details)
analytic = inspection.cost()
assert analytic.formula(field="int_ops") == str(analytic.total.int_ops)
assert "integer operations" in analytic.overlay(inspection, "int_ops").text
change = ml.what_if(program)(length=16)
assert change.after.total.int_ops > change.before.total.int_ops == analytic.total.int_ops
assert "integer operations" in str(change)
sweep = ml.sweep(program, length=[8, 16])
assert [point.int_ops for point in sweep.points] == [change.before.total.int_ops, change.after.total.int_ops]
assert "int_ops" in sweep.to_dict()["fields"] and "int_ops" in sweep.to_pandas()
size = jax.ShapeDtypeStruct(jax.export.symbolic_shape("N,"), "int32")
assert ml.inspect(lambda x: x * 3, size).cost().formula(field="int_ops") == "N"
ml.register_cost("tanh", lambda equation: {"int_ops": 1000})
assert inspection.cost().total.int_ops == analytic.total.int_ops + 1000
ml.register_cost("tanh", None)
page = contract.contract()
assert '  int_ops: ["Int ops", "op", "Operations on integers"],' in page
assert page.count('"int_ops"') == 3  # FIGURES, COUNTED and MAIN
"""
UNKNOWN_OF_INSTRUCTIONS = """
for source in ("lowered", "compiled"):
    cost = inspection.cost(source)
    assert cost.total.int_ops is None and cost.total.unknown_int_ops == len(cost.rows)
    assert cost.total.flops > 0 and cost.total.unknown == cost.total.unknown_bytes == 0
    assert cost.notes[0] == f"int_ops of {len(cost.rows)} rows: not counted"
    assert inspection.cost().compare(cost).total.delta.int_ops is None
    assert cost.to_pandas()["int_ops"].isna().all()
"""


@pytest.mark.parametrize(
    ("changes", "use"),
    [([ENTRY, OF_EQUATIONS, OF_INSTRUCTIONS], SHOWN), ([ENTRY, OF_EQUATIONS], UNKNOWN_OF_INSTRUCTIONS)],
    ids=["all", "equations"],
)
def test_a_new_figure_takes_three_files(changes: list[tuple[str, str, str]], use: str, tmp_path: Path) -> None:
    copy = tmp_path / "mithril_nb"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("node_modules", "__pycache__", "frontend"))
    for name, old, new in changes:
        code = (copy / name).read_text(encoding="utf-8")
        assert code.count(old) == 1, (name, old)
        (copy / name).write_text(code.replace(old, new), encoding="utf-8")
    (tmp_path / "use.py").write_text(START + use, encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    result = subprocess.run(
        [sys.executable, "use.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert result.returncode == 0, result.stderr


def test_sums_mark_unknown_rows_of_each_counted_figure() -> None:
    assert all(FIGURES[key].unknown for key in COUNTED)


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
