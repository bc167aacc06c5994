"""Only the most expensive branch of a condition counts; the cost of a branch with unknown parts is unknown."""

from __future__ import annotations

import sys

import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import on_host, spec

from mithril_nb.cost import SOURCES, Cost
from mithril_nb.cost.equations import SymbolicProgram
from mithril_nb.inspection import inspect_function as inspect

SQUARE = spec(8, 8)


def costs(source: str, first, second) -> Cost:
    return inspect(lambda p, x: lax.cond(p, first, second, x), spec(dtype="bool"), SQUARE).cost(source)


def hundred(x):
    return lax.scan(lambda c, _: (c * x, None), x, None, length=100)[0]


def until(x):
    return lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c * x, x)


@pytest.mark.parametrize("source", SOURCES)
def test_loops_count_in_the_cost_of_a_branch(source: str) -> None:
    found = costs(source, hundred, lambda x: x @ x)
    assert found.total.flops == pytest.approx(100 * 64, rel=0.05)
    assert found.total.unknown == 0
    assert all(row.flops == 0 for row in found.rows if "dot" in row.opcode)


def test_the_time_for_conditions_in_a_row_is_linear() -> None:
    def steps_for(count: int) -> int:
        def fn(p, x):
            for _ in range(count):
                x = lax.cond(p, lambda x: x * 2.0 + 1, lambda x: x - 1.0, x)
            return x

        program = SymbolicProgram("", inspect(fn, spec(dtype="bool"), SQUARE).equations, ())
        steps = [0]
        sys.setprofile(lambda frame, event, _: steps.__setitem__(0, steps[0] + 1))
        try:
            found = program.costs()
        finally:
            sys.setprofile(None)
        assert sum(row.flops or 0 for row in found if ".b" in row.id) == count * 2 * 64
        return steps[0]

    assert steps_for(80) < 2.5 * steps_for(40)


@pytest.mark.parametrize("source", SOURCES)
def test_transcendentals_count_in_the_cost_of_a_branch(source: str) -> None:
    found = costs(source, lambda x: jnp.sin(jnp.tanh(x)), lambda x: x + 1)
    assert (found.total.flops or 0, found.total.transcendentals) == (pytest.approx(0, abs=2), 128)


@pytest.mark.parametrize("source", SOURCES)
def test_a_branch_of_unknown_cost_is_not_zero(source: str) -> None:
    found = costs(source, until, lambda x: x @ x)
    assert found.total.flops == pytest.approx(2 * 8**3, abs=2)
    assert found.total.unknown > 0
    assert any(note.startswith("flops") and "trip count unknown" in note for note in found.notes)


def test_operations_without_a_rule_in_a_branch_are_listed() -> None:
    found = costs("analytic", lambda x: on_host(x) * 2, lambda x: x @ x)
    flops = {row.opcode: row.flops for row in found.rows}
    assert (flops["pure_callback"], flops["mul"], flops["dot_general"]) == (None, None, 2 * 8**3)
    assert [(one.opcode, one.reason) for one in found.unknown] == [
        ("pure_callback", "no rule: Python on the host"), ("mul", "trip count unknown"),
    ]  # fmt: skip
    assert found.formula() == (
        "2·8·8·8 + 1 + unknown (1 × pure_callback: the most expensive branch is unknown; "
        "1 × mul: the most expensive branch is unknown)"
    )


@pytest.mark.parametrize("source", SOURCES)
def test_unknown_transcendentals_are_listed(source: str) -> None:
    found = inspect(lambda x: lax.while_loop(lambda c: c[0, 0] < 9, jnp.tanh, x), SQUARE).cost(source)
    assert found.total.transcendentals is None
    assert any(note.startswith("transcendentals") and "1 × tanh" in note for note in found.notes)
    assert found.total.unknown >= 2  # the comparison too
    products = inspect(lambda x: lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c @ c, x), SQUARE).cost(source)
    assert (products.total.flops, products.total.transcendentals) == (None, 0)
