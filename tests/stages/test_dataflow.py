"""Producer and users of each array of a jaxpr, through calls, loops and branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.trace.dataflow import BEFORE, Value

X = jax.ShapeDtypeStruct((4, 4), jnp.float32)


@jax.custom_vjp
def doubled(x):
    return jnp.sin(x) * 2


doubled.defvjp(lambda x: (doubled(x), x), lambda x, g: (g * x,))


def spare_operands(x):
    """Branches that need different operands, and a call that needs none."""
    y, z = jnp.cos(x), x @ x
    picked = jax.lax.switch(2, [lambda a, b: a + 1, lambda a, b: b * 2, lambda a, b: a - b], y, z)
    return jax.jit(lambda a, b: b)(z, picked)


def two_loops(x):
    """Constants in the condition and in the body, a nested loop, and values returned unchanged."""
    limit, step = x.sum(), (x @ x)[0]

    def turn(state):
        rows = jax.lax.scan(lambda c, row: (c + row, c), state[0], x)[1]
        return rows.sum() * step, state[1]

    return jax.lax.while_loop(lambda s: s[0].sum() < limit, turn, (x[0], x[1]))[0]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: x,
    "constants": lambda x: (jnp.zeros(3), 5),
    "custom_vjp": jax.grad(lambda x: doubled(x).sum()),
    "remat": jax.grad(lambda x: jax.checkpoint(lambda a: jnp.sin(a @ a).sum())(x)),
    "spare operands": spare_operands,
    "two loops": two_loops,
    "solve": lambda x: jnp.linalg.solve(x + 5 * jnp.eye(4), x),
    "inverse": jax.grad(lambda x: jnp.linalg.inv(x).sum()),
    "prefix sums": lambda x: jax.lax.associative_scan(jnp.multiply, x),
    "several results": lambda x: jnp.linalg.qr(x)[0] + jax.lax.top_k(x, 2)[0].sum(),
    "mapped": jax.vmap(lambda row: jax.lax.fori_loop(0, 3, lambda _, c: c * row, row)),
    "sorted": lambda x: jax.lax.sort([x, x * 2], num_keys=1)[1],
    "scatter": lambda x: x.at[jnp.array([0, 1])].add(1.0),
    "closed over": lambda x: x + jnp.asarray([[1.0, 2.0, 3.0, 4.0]]),
    "random": lambda x: x + jax.random.normal(jax.random.key(0), (4, 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_array_is_computed_before_its_uses(name):
    program = inspect(PROGRAMS[name], X)
    values, equations = program.values, program.equations
    assert [value.made for value in values] == sorted(value.made for value in values)
    assert len({(value.id, value.made) for value in values}) == len(values)
    for value in values:
        assert BEFORE <= value.made < len(equations)
        assert all(value.made <= use < len(equations) for use in value.uses), value
        assert value.uses == sorted(value.uses), value
    assert [value.id for value in values if value.is_argument] == [one.name for one in program.inputs]
    made = {value.made for value in values}
    for place, equation in enumerate(equations):
        if equation.is_used and not equation.is_call and equation.outputs:
            assert place in made, equation


def by_id(fn, *args) -> dict[str, Value]:
    return {value.id: value for value in inspect(fn, *args).values}


def test_operands_of_a_call_are_the_same_values_inside():
    found = by_id(lambda x: jax.jit(lambda a: jnp.sin(a) @ a)(x) + 1, X)
    assert found.keys() == {"x", "0.0", "0.1", "1"}
    assert found["x"].uses == [0, 1, 2], "the call and the two equations in it"
    assert found["0.1"].uses == [3], "what it gives is taken outside"
    assert found["1"].is_output


def test_constants_of_a_loop_are_needed_to_its_end():
    def loop(x, w):
        return jax.lax.scan(lambda c, _: (jnp.sin(c @ w), None), x, None, length=3)[0] + 1

    found = by_id(loop, X, X)
    assert found["w"].uses == [0, 1, 2]
    assert found["x"].uses == [0], "the first round begins with it, and it is needed no more"
    assert found["0"].uses == [1, 2, 3], "what is carried is one array"


def test_a_solve_uses_the_operands_of_the_jaxpr_that_runs():
    found = by_id(PROGRAMS["solve"], X)
    equations = inspect(PROGRAMS["solve"], X).equations
    solves = [place for place, one in enumerate(equations) if one.primitive == "triangular_solve"]
    assert solves
    assert not any(".x" in id for id in found), "each is one of those around it"
