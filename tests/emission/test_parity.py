"""Every kind of block in every library: outputs and gradients against JAX in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mithril_nb as ml
from tests.blocks.case import Arrays, all_cases
from tests.blocks.test_cases import _arrays, _as, _inferred, _rounded, _run
from tests.emission.libraries import differences, each_library, run_emitted
from tests.stress import is_long

CASES = {case.name: case for case in all_cases()}
CHOSEN = list(CASES) if is_long() else list(CASES)[::5]
"""`make stress` runs all kinds of blocks, which takes minutes: JAX compiles a reference for each."""


@dataclass(frozen=True)
class Example:
    """A block with its inputs as a program that returns its outputs and gradients.

    Attributes:
        function: The program, given a dtype.
        arguments: Its arguments by name, given a dtype.
        is_random: Whether its results depend on random numbers, which differ by dtype.
    """

    function: Callable[..., Any]
    arguments: Callable[[str], dict[str, Any]]
    is_random: bool

    def run(self, dtype: str, library: str) -> list[np.ndarray]:
        with jax.enable_x64(dtype == "float64"):
            arguments = self.arguments(dtype)
            return run_emitted(ml.inspect(self.function, *arguments.values()), library, arguments)

    @cache  # noqa: B019
    def expected(self, dtype: str) -> Any:
        with jax.enable_x64(dtype == "float64"):
            return jax.tree.map(np.asarray, jax.jit(self.function)(*self.arguments(dtype).values()))


@cache
def example_of(name: str) -> Example:
    model, inputs = drawn(name)

    def split(dtype: str) -> dict[str, Any]:
        params, state = _arrays(_inferred(model.graph, inputs, dtype))
        given = {port: _rounded(array, "float32") for port, array in inputs.items()}
        params = {port: _rounded(array, "float32") for port, array in params.items()}
        arrays = _as(given, dtype)
        floats = {port: one for port, one in arrays.items() if jnp.issubdtype(one.dtype, jnp.floating)}
        rest = {port: one for port, one in arrays.items() if port not in floats}
        return {"params": _as(params, dtype), "state": _as(state, dtype), "floats": floats, "rest": rest}

    def program(params: Any, state: Any, floats: Any, rest: Any) -> Any:
        dtype = "float64" if jax.config.jax_enable_x64 else "float32"

        def outputs(params: Any, floats: Any) -> Any:
            found = _run(model.graph, params, state, {**floats, **rest}, dtype)
            return {port: jnp.asarray(value) for port, value in found.items() if not isinstance(value, str)}

        values, back = jax.vjp(outputs, params, floats)
        return values, back(jax.tree.map(cotangent, values))

    return Example(program, split, CASES[name].reference is None)


def cotangent(value: jax.Array) -> Any:
    if not jnp.issubdtype(value.dtype, jnp.floating):
        return np.zeros(value.shape, jax.dtypes.float0)
    return jnp.cos(jnp.arange(value.size, dtype=value.dtype).reshape(value.shape))


def drawn(name: str) -> tuple[Any, Arrays]:
    """Return the largest of a few examples, always the same ones: the first ones have axes of size 0."""
    found: list[tuple[Any, Arrays]] = []

    @settings(max_examples=4, derandomize=True, database=None)
    @given(st.composite(CASES[name].draw)())
    def take(one: tuple[Any, Arrays]) -> None:
        found.append(one)

    take()

    def size(one: tuple[Any, Arrays]) -> tuple[bool, int]:
        sizes = [array.size for array in one[1].values()]
        return 0 < min(sizes, default=1) and sum(sizes) < 500, sum(sizes)

    return max(found, key=size)


@each_library
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CHOSEN)
def test_blocks_agree_with_jax(name: str, dtype: str, library: str) -> None:
    if library == "mlx" and dtype == "float64":
        return  # MLX has no float64 on a GPU, and only a few functions on a CPU
    example = example_of(name)
    if library == "torch" and dtype == "float64" and example.is_random:
        return  # 64 random bits are a uint64, which PyTorch has no arithmetic for
    found = example.run(dtype, library)
    assert differences(found, example.expected(dtype if example.is_random else "float64"), dtype) == []
