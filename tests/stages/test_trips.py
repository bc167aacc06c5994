"""Trip count of a `while`: known from the jaxpr if it counts to a number, unknown otherwise."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax_programs import equations_of, ops_of

import mithril_nb as ml
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.graph.tree import region_of

X = jax.ShapeDtypeStruct((4,), "float32")
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "ne")
}


def rounds(fn, *args) -> int | None:
    """Return the number of runs of the sine in a program, from its equation."""
    (sine,) = equations_of(inspect(fn, *args), "sin")
    return sine.repeats


def counted(is_on, step, start):
    """A loop of sines over a count."""

    def program(x):
        return lax.while_loop(lambda c: is_on(c[1]), lambda c: (jnp.sin(c[0]), step(c[1])), (x, start))

    return program


def by_running(how, start, step, end) -> int | None:
    """Count iterations by running; no loop here has more than 30, unless it never ends."""
    for count in range(30):
        if not COMPARE[how](start, end):
            return count
        start += step
    return None


def test_every_way_to_count_to_a_number():
    cases = list(product(COMPARE, (-3, 0, 5), (1, 3, -1, -2, 0), (-4, 0, 6)))
    found = {
        (how, start, step, end): rounds(
            counted(lambda i, how=how, end=end: COMPARE[how](i, end), lambda i, step=step: i + step, start), X
        )
        for how, start, step, end in cases
    }
    assert found == {case: by_running(*case) for case in cases}
    assert len(set(found.values())) > 8  # None among them


TOLD = {
    "taken away": (counted(lambda i: i > 0, lambda i: i - 2, 7), 4),
    "the number stands first": (counted(lambda i: jnp.greater(10, i), lambda i: 3 + i, 0), 4),
    "seen through a change of dtype": (counted(lambda i: i < 7, lambda i: i + jnp.int32(2), 0), 4),
    "a small dtype": (counted(lambda i: i < np.int8(100), lambda i: i + np.int8(20), np.int8(0)), 5),
    "past the end of its dtype": (counted(lambda i: i <= np.int8(120), lambda i: i + np.int8(20), np.int8(0)), None),
    "not with whole numbers": (counted(lambda i: i < 7.0, lambda i: i + 1.0, 0.0), None),
    "twice as much": (counted(lambda i: i < 100, lambda i: i * 2, 1), None),
    "for ever": (counted(lambda i: i == i, lambda i: i + 1, 0), None),
    "two reasons to end": (counted(lambda i: (i < 9) & (i != 4), lambda i: i + 1, 0), None),
    "another count's": (counted(lambda i: i[0] < 9, lambda i: (i[1], i[0] + 1), (0, 0)), None),
    "not at all": (counted(lambda i: i < 0, lambda i: i + 1, 0), 0),
}


@pytest.mark.parametrize("name", TOLD)
def test_known_and_unknown_counts(name):
    program, expected = TOLD[name]
    assert rounds(program, X) == expected


def test_the_end_may_be_a_loop_invariant():
    def program(x):
        def turn(carry):
            count, end, x = carry
            return count + 1, end, jnp.sin(x)

        return lax.while_loop(lambda c: c[0] < c[1], turn, (2, 9, x))[2]

    assert rounds(program, X) == 7


def test_an_end_known_only_at_run_time():
    def program(x, end):
        return lax.fori_loop(0, end, lambda _, x: jnp.sin(x), x)

    assert rounds(program, X, jax.ShapeDtypeStruct((), "int32")) is None


def test_conditions_run_once_more_and_nested_loops_multiply():
    inner = counted(lambda i: i < 4, lambda i: i + 1, 0)

    def program(x):
        return lax.scan(lambda x, _: (inner(x)[0], None), x, None, length=3)[0]

    runs = {one.primitive: one.repeats for one in inspect(program, X).equations}
    assert runs == {"scan": 1, "while": 3, "lt": 15, "sin": 12, "add": 12}


def fori(x):
    return lax.fori_loop(0, 6, lambda i, c: jnp.sin(c) + i, x)


LOOPS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "for": (fori, {"×6 rounds"}),
    "scan": (lambda x: lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=7), {"×7 rounds"}),
    "nested": (lambda x: lax.scan(lambda c, _: (fori(c), c), x, None, length=7), {"×6 rounds", "×7 rounds"}),
    "called twice": (lambda x: jax.jit(fori)(x) + jax.jit(fori)(x + 1), {"×6 rounds"}),
    "gradient": (jax.grad(lambda x: fori(x).sum()), {"×6 rounds"}),
    "batch": (jax.vmap(lambda x: fori(jnp.cos(x))), {"×6 rounds"}),
    "step of 3": (counted(lambda i: i < 10, lambda i: i + 3, 1), {"×3 rounds"}),
    "open": (lambda x: lax.while_loop(lambda c: c.sum() < 3, lambda c: c + 1, x), {"unknown number of rounds"}),
}


@pytest.mark.parametrize("name", LOOPS)
def test_every_stage_and_cost_has_the_same_trip_count(name):
    fn, wanted = LOOPS[name]
    inspection = inspect(fn, X)
    for stage in ("jaxpr", "stablehlo", "hlo_before", "hlo"):
        loops = [one for one in inspection.stage(stage).instructions if one.opcode.endswith(("scan", "while"))]
        notes = {region_of(one).note for one in loops}
        assert loops
        assert notes == (wanted if stage != "stablehlo" or name != "open" else {""}), stage
    lowered = ml.inspect(jax.jit(fn).lower(X))
    before = ops_of(lowered, "hlo_before", "while")
    assert {region_of(one).note for one in before} == wanted
    for found in (inspection, lowered):
        assert (found.cost("lowered").total.flops is None) == (name == "open")
