"""A shape instead of an array: `(4, 64)` instead of `jax.ShapeDtypeStruct((4, 64), "float32")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError

W = jax.ShapeDtypeStruct((64, 3), "float32")
DENSE = nnx.Linear(64, 3, rngs=nnx.Rngs(0))
TRY = '\n    Try: jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the sizes'


def closing(x: Any) -> Any:
    return DENSE(x * x)


def total(x: Any) -> Any:
    return x.sum()


def in_dict(batch: Any) -> Any:
    return batch["x"].dot(jnp.ones((64, 3)))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "a function": (
        total,
        ((4, 64),),
        """the argument 'x' of 'total' contains sizes instead of an array.
    given    (4, 64)
    because  AttributeError: 'tuple' object has no attribute 'sum'""",
    ),
    "a function that is jitted": (
        jax.jit(lambda x, w: x.mean() * w),
        ((4, 64), W),
        """the argument 'x' of '<lambda>' contains sizes instead of an array.
    given    (4, 64)
    because  AttributeError: 'tuple' object has no attribute 'mean'""",
    ),
    "a list in a dict": (
        in_dict,
        ({"x": [4, 64]},),
        """the argument 'batch' of 'in_dict' contains sizes instead of an array.
    given    {'x': [4, 64]}
    because  AttributeError: 'list' object has no attribute 'dot'""",
    ),
    "a function around a module": (
        closing,
        ((4, 64),),
        """the argument 'x' of 'closing' contains sizes instead of an array.
    given    (4, 64)
    because  TypeError: can't multiply sequence by non-int of type 'tuple'""",
    ),
    **{
        f"a module of {library}": (
            module,
            ((4, 64),),
            f"""the argument '{name}' of '{kind}' contains sizes instead of an array.
    given    (4, 64)
    because  a module computes with arrays""",
        )
        for library, module, name, kind in (
            ("linen", nn.Dense(3), "inputs", "Dense"),
            ("nnx", DENSE, "inputs", "Linear"),
            ("Equinox", eqx.nn.Linear(64, 3, key=jax.random.key(0)), "x", "Linear"),
        )
    },
}


@pytest.mark.parametrize("what", CASES)
def test_shape_instead_of_array_is_rejected_with_advice(what: str) -> None:
    fn, args, text = CASES[what]
    with pytest.raises(StageUnavailableError) as error:
        ml.inspect(fn, *args).cost()
    assert str(error.value) == text + TRY
    spec = eval(error.value.diagnostics[0].advice.removesuffix("  # instead of the sizes"))
    if "Equinox" not in what and "Python" not in what:
        meant = [{"x": spec} if isinstance(arg, dict) else spec if isinstance(arg, tuple) else arg for arg in args]
        assert ml.inspect(fn, *meant).cost().total.flops != 0


def test_stage_reports_the_error_and_its_line() -> None:
    stage = ml.inspect(closing, (4, 64)).stage("jaxpr")
    assert stage.unavailable is not None
    assert stage.unavailable.startswith(
        "StageUnavailableError: the argument 'x' of 'closing' contains sizes instead of an array."
    )
    assert stage.unavailable.endswith("return DENSE(x * x)")


def test_intended_sizes_are_accepted() -> None:
    assert ml.inspect(jnp.zeros, (4, 64), static_argnames="shape").outputs[0].spec.shape == (4, 64)
    assert ml.inspect(jnp.reshape, W, (3, 64), static_argnames="shape").stage("jaxpr").unavailable is None
    with pytest.raises(StageUnavailableError, match=r"cannot reshape array of shape \(64, 3\)"):
        ml.inspect(jnp.reshape, W, (5, 64), static_argnames="shape").cost()
    assert ml.inspect(jax.jit(jnp.zeros, static_argnums=0), (4, 64)).stage("jaxpr").unavailable is None
