"""Counts that depend on more than the sizes of an equation, against closed forms computed in integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import spec

from mithril_nb.stages import inspect


def over_i(name: str) -> Callable[..., Any]:
    return jax.vmap(lambda x: getattr(lax, name)(x, "i"), axis_name="i")


@pytest.mark.parametrize("name", ["psum", "pmax", "pmin"])
def test_a_collective_over_an_axis_of_vmap_is_a_reduction(name: str) -> None:
    assert inspect(over_i(name), spec(500)).cost().total.flops == 500 - 1
    assert inspect(over_i(name), spec(500, 3)).cost().total.flops == 500 * 3 - 3
    assert inspect(over_i(name), spec(0, 3)).cost().total.flops == 0
    cost = inspect(over_i(name), spec(500)).cost("lowered")
    assert cost.total.flops == 500 - 1


def test_a_collective_over_vmap_and_devices_counts_both() -> None:
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    both = jax.vmap(lambda x: lax.psum(x, ("i", "d")), axis_name="i")
    split = jax.shard_map(both, mesh=mesh, in_specs=jax.P(), out_specs=jax.P(), check_vma=False)
    found = inspect(split, spec(500, 3)).cost()
    assert sum(row.flops or 0 for row in found.rows if row.opcode.startswith("psum")) == (500 * 3 - 3) + 3


def test_a_collective_of_complex_numbers_counts_real_sums() -> None:
    found = inspect(over_i("psum"), spec(500, dtype="complex64")).cost()
    assert found.total.flops == 2 * (500 - 1)
    assert found.notes[0] == "1 × psum: 998 FLOPs by 2·(in - out); XLA counts 499 by in - out, 0.5 times as many"
