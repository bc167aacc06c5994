"""A rule for every primitive of the installed JAX; a reason only for Python on the host and for opaque calls."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jax
import jax._src
import jax.numpy as jnp
import jax.scipy as jsp
import pytest
from jax import lax
from jax.extend.core import Primitive
from jax_programs import spec

from mithril_nb.cost import CostRow, cost_of
from mithril_nb.cost.formulas.rules import RULES
from mithril_nb.cost.formulas.structure import CALLS
from mithril_nb.inspection import inspect_function as inspect

REASONS = {"Python on the host", "an opaque custom call", "an exported program without a jaxpr"}
"""Reasons why a primitive may have no count."""
OF_RUNTIME = "thunky."
"""Start of the names of primitives that are thunks of XLA's runtime, which no API of `jax` produces."""


@lru_cache(maxsize=1)
def primitives() -> frozenset[str]:
    """Return the names of all primitives in any module of JAX, whether or not this platform can run them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(jax._src.__path__, "jax._src."):
            try:
                importlib.import_module(module.name)
            except Exception:  # needs a missing library or hardware
                continue
    # Primitives of `jax.experimental.sparse`, which another test may import, cost what they lower to.
    modules = [one for name, one in [*sys.modules.items()] if name.partition(".")[0] == "jax" and "sparse" not in name]
    made = [one.name for module in modules for one in vars(module).values() if isinstance(one, Primitive)]
    return frozenset(name for name in made if not name.startswith(OF_RUNTIME))


def test_each_primitive_of_jax_has_a_rule() -> None:
    names = primitives()
    assert len(names) > 300  # as many have 0.10 and 0.12, kernels of all platforms included
    assert {"dot_general", "cholesky", "fft", "pallas_call", "igamma", "wgmma", "psum"} <= names
    assert sorted(names - RULES.keys()) == []


def test_only_callbacks_and_opaque_calls_have_a_reason() -> None:
    without = {name: rule.reason for name, rule in RULES.items() if rule.reason and name not in CALLS}
    assert set(without.values()) == REASONS
    assert {name for name, reason in without.items() if reason == "Python on the host"} == {
        "pure_callback", "io_callback", "buffer_callback", "debug_callback",
    }  # fmt: skip
    arithmetic = "matmul dot conv eig svd cholesky fft sort reduce cum erf gamma bessel"
    assert not [name for name in without for word in arithmetic.split() if word in name]


X, Y, Z = spec(6, 6), spec(6, 6), spec(6, 6, dtype="complex64")
VECTOR, INTS, BOOLS, KEY = spec(12), spec(12, dtype="int32"), spec(12, dtype="bool"), spec(2, dtype="uint32")
SKIPPED = {"load", "save", "savez", "set_printoptions"}
"""Functions that read or write files or global state."""


def public(module: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in dir(module):
        one = getattr(module, name)
        if not name.startswith("_") and name not in SKIPPED and callable(one) and not isinstance(one, type):
            yield name, one


def calls(module: Any, *argument_lists: tuple[Any, ...]) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Yield each public function of a module with the first argument list that it can be traced with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in public(module):
            for args in argument_lists:
                try:
                    jax.eval_shape(lambda *given, call=function: call(*given), *args)
                except Exception:  # not with these arguments
                    continue
                yield name, function, args
                break


REAL = (X,), (X, Y), (X, Y, X), (VECTOR,), (VECTOR, VECTOR), (VECTOR, VECTOR, VECTOR), (INTS,), (INTS, INTS), (BOOLS,)
MODULES: dict[str, tuple[Any, tuple[tuple[Any, ...], ...], int]] = {
    "jax.numpy": (jnp, REAL, 200),
    "jax.numpy of complex numbers": (jnp, ((Z,), (Z, Z), (Z, Z, Z)), 100),
    "jax.lax": (lax, (*REAL, (KEY,)), 80),
    "jax.lax of complex numbers": (lax, ((Z,), (Z, Z)), 30),
    "jax.lax.linalg": (lax.linalg, (*REAL, (VECTOR, VECTOR, VECTOR, spec(12, 2)), (X, VECTOR), (X, spec(6))), 10),
    "jax.numpy.linalg": (jnp.linalg, REAL, 20),
    "jax.numpy.linalg of complex numbers": (jnp.linalg, ((Z,), (Z, Z)), 15),
    "jax.numpy.fft": (jnp.fft, (*REAL, (Z,)), 12),
    "jax.scipy.linalg": (jsp.linalg, REAL, 15),
    "jax.scipy.special": (jsp.special, REAL, 40),
    "jax.scipy.fft": (jsp.fft, REAL, 3),
    "jax.scipy.signal": (jsp.signal, REAL, 3),
    "jax.scipy.stats": (jsp.stats, REAL, 1),
    "jax.scipy.stats.norm": (jsp.stats.norm, REAL, 5),
    "jax.scipy.stats.gamma": (jsp.stats.gamma, REAL, 3),
    "jax.scipy.stats.beta": (jsp.stats.beta, REAL, 2),
    "jax.scipy.stats.t": (jsp.stats.t, REAL, 1),
    "jax.random": (jax.random, ((KEY,), (KEY, VECTOR), (KEY, VECTOR, VECTOR)), 25),
}  # fmt: skip


MOVES = frozenset(
    "broadcast_in_dim complex concatenate copy create_token dce_sink dynamic_slice dynamic_update_slice empty gather "
    "imag iota optimization_barrier pad platform_index random_clone random_unwrap random_wrap real reshape rev scatter "
    "slice split squeeze stack stop_gradient tile transpose unstack".split()
)
"""Primitives that only move or rename data: they may take no arithmetic. Any other takes some, or a reason is below."""
NOTHING = {
    "0: folded by XLA", "0: unused", "0: another branch costs more", "0: the same dtype",
    "0: only one case", "0: a real number",
}  # fmt: skip


def is_costless(row: CostRow) -> bool:
    """Return whether a row counts no arithmetic without a reason."""
    each = row.once
    if (
        each is None
        or each.flops
        or each.transcendentals
        or row.repeats == 0
        or row.opcode in MOVES
        or row.formula in NOTHING
    ):
        return False
    sizes = dict(row.letters)
    return row.formula != "in - out" or sizes["in"] != sizes["out"]  # over an axis of one element


@pytest.mark.parametrize("name", MODULES)
def test_each_function_of_an_api_costs_something_known(name: str) -> None:
    module, arguments, least = MODULES[name]
    unknown: dict[str, list[str]] = {}
    counted = 0
    for function, call, args in calls(module, *arguments):
        found = cost_of(inspect(lambda *given, call=call: call(*given), *args))
        counted += 1
        # The trip count of a loop may depend on values; the cost of one iteration is known.
        rows = [row for row in found.rows if row.flops is None and row.unknown != "trip count unknown"]
        rows += [row for row in found.rows if not row.unknown and is_costless(row)]
        if rows:
            unknown[function] = [f"{row.opcode}: {row.formula}" for row in rows]
    assert counted >= least
    assert unknown == {}
