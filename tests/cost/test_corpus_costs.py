"""Programs of many kinds: parts add up to the total, the total equals XLA's, and unknown costs have a reason."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from cost.sums import check_sums
from jax_programs import flops_by_xla, spec

from benchmarks.corpus import corpus
from mithril_nb.inspection import inspect_function as inspect

CORPUS = {name: make for name, make in corpus().items() if not name.startswith("sharded")}
UNKNOWN = {"while, forward"}
"""Programs with unknown costs: the trip count depends on values."""


@pytest.mark.parametrize("name", CORPUS)
def test_equations_cost_as_xla_counts_when_lowered(name: str) -> None:
    fn, args = CORPUS[name]()
    found = inspect(fn, *args, name=name)
    analytic, lowered = found.cost(), found.cost("lowered")
    check_sums(analytic)
    check_sums(lowered)
    assert lowered.xla is not None
    assert lowered.once.flops == pytest.approx(lowered.xla.flops, rel=1e-6)  # XLA adds in float32
    # Before its passes XLA also counts the loop counter, which is not an equation of a scan.
    assert flops_by_xla(analytic) == pytest.approx(lowered.xla.flops, rel=0.005)
    unknown = [row for cost in (analytic, lowered) for row in cost.rows if row.flops is None]
    assert bool(unknown) == (name in UNKNOWN)
    assert all(row.formula for row in unknown)
    assert all(row.repeats is None or "no rule" in row.formula for row in unknown)


def test_constant_arguments_of_custom_derivatives() -> None:
    """`softplus` subtracts a constant 0, which XLA folds; a jitted function is lowered separately."""

    @jax.custom_jvp
    def shifted(x: Any, by: Any) -> Any:
        return (x - by) * 2

    shifted.defjvp(lambda given, moved: (shifted(*given), moved[0] * 2))
    x = spec(7)
    for fn in (lambda x: shifted(x, 0.0), lambda x: jax.jit(lambda x, by: (x - by) * 2)(x, 0.0), jax.nn.softplus):
        found = inspect(fn, x)
        assert found.cost().total.flops == found.cost("lowered").total.flops


def test_derivatives_along_a_single_axis_start_with_a_one() -> None:
    found = inspect(jax.jacrev(lambda x: (jnp.sin(x) ** 2).sum(keepdims=True)), spec(7))
    assert found.cost().total.flops == found.cost("lowered").total.flops


def test_a_constant_may_change_with_its_dtype() -> None:
    def program(x: Any) -> Any:
        return x + jax.lax.convert_element_type(jax.lax.convert_element_type(jnp.full((), 0.4), "int32"), "float32")

    found = inspect(program, spec(7))
    assert found.cost().total.flops == found.cost("lowered").total.flops
