"""Costs as pandas tables: exact integers; unknown costs are missing, never 0."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import on_host, spec
from raised import message_of

from mithril_nb.cost import Cost
from mithril_nb.errors import UnknownOptionError
from mithril_nb.inspection import inspect_function as inspect


def cost() -> Cost:
    def fn(params, x):
        with jax.named_scope("linear"):
            x = x @ params
        with jax.named_scope("solve"):
            return on_host(jnp.tanh(x))

    return inspect(fn, spec(8, 8), spec(8, 8), name="program").cost()


def test_a_row_for_each_equation() -> None:
    found = cost()
    table: Any = found.to_pandas()
    assert list(table.index) == [row.id for row in found.rows]
    assert table["flops"].sum() == found.total.flops == 2 * 8**3
    assert (str(table["flops"].dtype), str(table["time_s"].dtype)) == ("Int64", "Float64")
    assert table.loc[table["opcode"] == "pure_callback", "flops"].isna().all()
    assert table["time_s"].isna().all()
    assert list(table["blocks"]) == [", ".join(path for path, _ in row.blocks) for row in found.rows]
    assert table.iloc[0]["formula"] == "2·B·M·N·K"


def test_a_row_for_each_block() -> None:
    table: Any = cost().to_pandas(by="block")
    assert list(table.index) == ["linear", "solve", "solve/on_host", "(unattributed)"]
    assert list(table.loc["linear", ["flops", "params", "forward"]]) == [1024, 64, 1024]
    assert table["bytes_accessed"].sum() == cost().total.bytes_accessed
    assert table.loc["solve/on_host", "unknown"] == 1
    assert table["flops"].isna()["solve/on_host"]


def test_an_empty_program_has_an_empty_table() -> None:
    table = inspect(lambda x: x, spec(3)).cost().to_pandas()
    assert (len(table), "flops" in table) == (0, True)


def test_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert message_of(lambda: cost().to_pandas(by="layer")) == (
        "UnknownOptionError: "
        "cannot list the costs of 'program' by 'layer'.\n    known  row, block\n    Try: by=\"block\""
    )
    with pytest.raises(UnknownOptionError) as error:
        cost().to_pandas(by="rows")
    assert str(error.value).endswith('    Try: by="row"')
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert message_of(lambda: cost().to_pandas()) == (
        "UnavailableBackendError: "
        "to_pandas needs pandas.\n    because  import of pandas halted; None in sys.modules\n"
        "    Try: pip install pandas"
    )


def test_costs_by_block_and_by_role_print_as_tables() -> None:
    def loss(w, x):
        with jax.named_scope("net"):
            return jnp.tanh(x @ w).sum()

    program = inspect(jax.grad(loss), jnp.ones((3, 4)), jnp.ones((2, 3)), name="step")
    cost = program.cost()
    assert str(cost.by_block).splitlines()[:2] == ["costs of 'step'", "block  FLOPs  transcendentals  bytes"]
    roles = [line.split() for line in str(cost.by_role).splitlines()[1:]]
    assert roles[0] == ["role", "FLOPs", "transcendentals", "bytes"]
    assert [row[0] for row in roles[1:]] == [*cost.by_role, "sum"]
    flops = [int(row[-3].replace(",", "")) for row in roles[1:]]
    assert flops == [*(one.flops for one in cost.by_role.values()), program.flops]
    (batch,) = jax.export.symbolic_shape("batch")
    named = inspect(jnp.tanh, spec(batch)).cost()
    assert str(named.by_role).splitlines()[-1].split() == ["sum", "0", "unknown", "unknown"]
    assert str(cost.by_block_and_role) == repr(cost.by_block_and_role)
