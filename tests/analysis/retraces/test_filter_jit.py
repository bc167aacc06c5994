"""Reasons for retraces under `eqx.filter_jit` name the arguments of the user's function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from analysis.retraces.reasons import reasons

import mithril_nb as ml

eqx = pytest.importorskip("equinox")
HERE = Path(__file__).name
X = jnp.ones((4, 3))


class Net(eqx.Module):
    weight: jax.Array
    scale: float
    activation: Callable[[Any], Any]
    depth: int = eqx.field(static=True, default=1)

    def __call__(self, x: Any) -> Any:
        return self.activation(x @ self.weight) * self.scale

    @eqx.filter_jit
    def twice(self, x: Any) -> Any:
        return self(x) * 2


def square(x: Any) -> Any:
    return x * x


def net(sizes: tuple[int, int] = (3, 2), scale: float = 1.0, activation: Any = jnp.tanh, depth: int = 1) -> Net:
    return Net(jnp.ones(sizes), scale, activation, depth)


def predict(model: Any, x: Any, *, n: int = 1, config: Any = None) -> Any:
    return model(x) * n * (1 if config is None else config["scale"])


CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "shape": ((net(), jnp.ones((5, 3))), {}, "argument 2 `x` changed from f32[4,3] to f32[5,3]"),
    "dtype": ((net(), X.astype("bfloat16")), {}, "argument 2 `x` changed from f32[4,3] to bf16[4,3]"),
    "an array of a module": (
        (net((3, 5)), X), {}, "argument 1 `model.weight` changed from f32[3,2] to f32[3,5]"
    ),
    "a number of a module": ((net(scale=2.0), X), {}, "argument 1 `model.scale` changed from 1.0 to 2.0"),
    "a static field": (
        (net(depth=2), X), {},
        "argument 1 `model` changed from CustomNode(Net[(Missing, 1)], [*, *, *]) to "
        "CustomNode(Net[(Missing, 2)], [*, *, *])",
    ),
    "a number": ((net(), X), {"n": 2}, "static argument `n` was left out before and is given now"),
    "a container": (
        (net(), X), {"config": {"scale": 2}}, "argument `config` was left out before and is given now"
    ),
    "by name": (
        (net(),), {"x": X[:2]},
        "argument 2 `x` was given by position before and is given by name now; "
        "argument 2 `x` changed from f32[4,3] to f32[2,3]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_reasons_name_the_arguments_of_the_user(what: str) -> None:
    args, kwargs, reason = CASES[what]
    step = ml.watch(eqx.filter_jit(predict))
    eqx.clear_caches()
    step(net(), X)
    step(*args, **kwargs)
    (retrace,) = step.retraces
    assert retrace.reason == reason
    assert retrace.place.startswith(HERE)


def test_numbers_functions_and_their_changes() -> None:
    step = ml.watch(eqx.filter_jit(predict))
    eqx.clear_caches()
    for n, activation in ((1, square), (2, square), (2, jnp.tanh), (2, lambda x: x), (2, lambda x: x)):
        step(net(activation=activation), X, n=n, config={"scale": n})
    first, second, third, fourth = (retrace.reason for retrace in step.retraces)
    assert first == "argument `config['scale']` changed from 1 to 2; static argument `n` changed from 1 to 2"
    assert second.startswith(f"argument 1 `model.activation` changed from `square` at {HERE}:")
    assert third.startswith("argument 1 `model.activation` changed from ")
    assert third.rpartition(" to ")[2].startswith(f"`<lambda>` at {HERE}:")
    assert fourth.startswith(f"argument 1 `model.activation` is a new function object: `<lambda>` at {HERE}:")


def test_jitting_again_creates_a_new_function_object() -> None:
    with ml.watch() as seen:
        for _ in range(2):
            eqx.filter_jit(lambda x: x * 3)(X)
        for size in (4, 5):
            eqx.filter_jit(net((size, 2)))(jnp.ones((3, size)))
        for size in (4, 5):
            net((size, 2)).twice(jnp.ones((3, size)))
    reports = {one.name: one for one in seen.report().functions if one.library is None}
    found = {name: reasons(one) for name, one in reports.items()}
    (fresh,) = found["<lambda>"]
    assert fresh.startswith(f"a new function object: `<lambda>` at {HERE}:")
    (module,) = (found[name] for name in found if name not in ("<lambda>", "twice"))
    assert module == [
        "argument 1 `x` changed from f32[3,4] to f32[3,5]; argument `self.weight` changed from f32[4,2] to f32[5,2]"
    ]
    assert found["twice"] == [
        "argument 1 `self.weight` changed from f32[4,2] to f32[5,2]; argument 2 `x` changed from f32[3,4] to f32[3,5]"
    ]
    for one in reports.values():
        assert one.place.startswith(HERE), one
        assert one.traces == one.lowerings == one.compilations == 2, one
