"""Trip counts that the user states: costs equal those of the same program with loops of this length."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import spec

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError

SQUARE = spec(8, 8)


def solver(rounds: int | None) -> Any:
    """Return a program with a loop in a scan, which contains a scan and a call; it ends by a value, or by a count."""

    def body(state: Any) -> Any:
        x, n = state
        x = lax.scan(lambda c, _: (jnp.tanh(c @ x), None), x, None, length=3)[0]
        return jax.jit(lambda x: x @ x + 1)(x), n + 1

    def condition(state: Any) -> Any:
        x, n = state
        return (n < rounds) if rounds is not None else (n < x.shape[0] * x[0, 0])

    def program(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            with jax.named_scope("solve"):
                return lax.while_loop(condition, body, (c, jnp.int32(0)))[0], None

        return lax.scan(step, x, None, length=5)[0] @ x

    return program


def line_of_loop() -> str:
    return f"test_stated_trips.py:{solver.__code__.co_firstlineno + 15}"


@pytest.mark.parametrize("source", ["analytic", "lowered", "compiled"])
def test_a_stated_trip_count_is_used_by_every_source(source: str) -> None:
    program, counted = ml.inspect(solver(None), SQUARE), ml.inspect(solver(20), SQUARE)
    before = program.cost(source)
    products = 2 * 8**3 * (5 * 20 * (3 + 1) + 1)
    for key in (line_of_loop(), "solve"):
        stated = ml.inspect(solver(None), SQUARE, trips={key: 20})
        for cost in (program.cost(source, trips={key: 20}), stated.cost(source)):
            assert cost.total.unknown == 0
            # The condition of the open loop has a few more operations than that of the other.
            assert 0 <= (cost.total.flops or 0) - (counted.cost(source).total.flops or 0) <= 5 * 21 * 4
            assert sum(row.flops or 0 for row in cost.rows if row.opcode in ("dot", "dot_general")) == products
        (loop,) = [node for node in stated.graph().nodes.values() if node.name == "while"]
        assert loop.note == "×20 rounds"
    assert program.cost(source) is before  # costs without trips are not changed
    if source == "analytic":
        assert before.macs is None
        assert program.cost(trips={"solve": 20}).macs == products // 2
        assert program.cost(trips={"solve": 0}).macs == 8**3


def test_a_place_without_an_open_loop_is_an_error() -> None:
    program = ml.inspect(solver(None), SQUARE, name="program")
    with pytest.raises(UnknownOptionError) as raised:
        program.cost(trips={"solv": 20})
    assert str(raised.value).splitlines() == [
        "cannot set the trip count of 'solv' to 20.",
        "    needs  a number of iterations, by line or block",
        f"    loops  {line_of_loop()}, solve",
        '    Try: inspection.cost(trips={"solve": 20})',
    ]
    for count in (-1, 2.5, True):
        with pytest.raises(UnknownOptionError):
            program.cost(trips={"solve": count})  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnknownOptionError, match="none unknown"):
        ml.inspect(solver(3), SQUARE).cost(trips={"solve": 3})
    with pytest.raises(UnknownOptionError):
        ml.inspect(solver(None), SQUARE, trips=[3])  # pyright: ignore[reportArgumentType]
