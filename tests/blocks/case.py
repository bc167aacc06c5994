"""Test cases of blocks: how to draw a block with its inputs, and its reference output."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mithril_nb.models import KINDS, Model

Arrays = dict[str, np.ndarray]
Drawn = tuple[Model, Arrays]
Shape = tuple[int, ...]
Draw = st.DrawFn


@dataclass(frozen=True)
class Case:
    """The test case of one kind of block.

    Attributes:
        name: Unique; usually the kind of the block.
        draw: Draws a block with random attributes, and an array for each of its data inputs: floating ones as float64.
            Shapes vary, sizes of 1 and 0 included where they make sense.
        reference: Computes the output, or a dict of outputs, in float64 by NumPy, SciPy, Flax, ...: not by our own
            code, and not by the function that the kernel calls. The names of its arguments are inputs, parameters or
            attributes of the block; `model`, `params` and `inputs` are all of them. A function of a library gets the
            inputs, then the attributes, by position. `None` for blocks that draw random numbers, which have separate
            tests.
        is_differentiable: True if its gradient is compared with finite differences.
        tolerance: Relative and absolute, in float32.
        tolerance64: The same in float64.
    """

    name: str
    draw: Callable[[Draw], Drawn]
    reference: Callable[..., Any] | None
    is_differentiable: bool = True
    tolerance: float = 1e-5
    tolerance64: float = 1e-9

    def expected(self, model: Model, params: Arrays, inputs: Arrays) -> dict[str, Any]:
        """Return the outputs by the reference."""
        outputs = call(self.reference, model, params, inputs)
        return outputs if isinstance(outputs, dict) else {"output": outputs}


def call(function: Callable[..., Any], model: Model, params: Arrays, inputs: Arrays) -> Any:
    """Return the result of a function with the arguments of a reference. NumPy does not warn of NaN."""
    with np.errstate(all="ignore"):
        if not str(getattr(function, "__module__", "")).startswith("tests."):
            return function(*inputs.values(), *model.options.values())
        named = {**model.options, **params, **inputs, "model": model, "params": params, "inputs": inputs}
        return function(*(named[name] for name in inspect.signature(function).parameters))


def all_cases() -> list[Case]:
    """Return every case of every module in `tests/blocks/cases`; each module has a list `CASES`."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("cases/*.py"))
    return [case for name in names for case in importlib.import_module(f"tests.blocks.cases.{name}").CASES]


@cache
def examples(case: Case, count: int = 1) -> list[Drawn]:
    """Return examples of a case, the largest first, and last the one that Hypothesis draws first, of sizes of 1."""
    drawn: list[Drawn] = []

    @settings(
        max_examples=max(count, 6), database=None, derandomize=True, phases=[Phase.generate], deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.composite(case.draw)())
    def take(example: Drawn) -> None:
        drawn.append(example)

    take()
    simplest, *others = drawn
    others.sort(key=lambda example: min((array.size for array in example[1].values()), default=0), reverse=True)
    return [*others, simplest]


@st.composite
def arrays(draw: Draw, shape: Shape, least: float = -3.0, most: float = 3.0) -> np.ndarray:
    """Return spread-out floats: no two are so close that a finite difference would see a tie."""
    seed = draw(st.integers(0, 2**16))
    random = np.random.default_rng(seed)
    return random.uniform(least, most, shape)


def whole(draw: Draw, shape: Shape, least: int = -9, most: int = 9) -> np.ndarray:
    """Draw integers."""
    return np.random.default_rng(draw(st.integers(0, 2**16))).integers(least, most + 1, shape)


def truths(draw: Draw, shape: Shape) -> np.ndarray:
    """Draw booleans."""
    return np.random.default_rng(draw(st.integers(0, 2**16))).random(shape) < 0.5


few = st.integers(1, 4)
shapes = st.lists(few, min_size=0, max_size=4).map(tuple)
"""Shapes of rank 0 to 4."""
filled_shapes = st.lists(few, min_size=1, max_size=4).map(tuple)
"""The same of rank 1 to 4."""
leads = st.sampled_from(((), (2,), (1, 3)))
"""Batch axes."""


@st.composite
def _sometimes_empty(draw: Draw) -> Shape:
    shape = draw(shapes)
    return (0, *shape[1:]) if draw(st.integers(0, 5)) == 0 else shape


sometimes_empty = _sometimes_empty()
"""Shapes of rank 0 to 4, sometimes with a 0."""


def paired(draw: Draw, count: int = 2) -> list[Shape]:
    """Draw shapes that broadcast: each lacks some leading axes of a common shape, and has some sizes of 1."""
    shape = draw(sometimes_empty)
    return [
        tuple(size if draw(st.booleans()) else 1 for size in shape[draw(st.integers(0, len(shape))) :])
        for _ in range(count)
    ]


def axis(shape: Shape) -> st.SearchStrategy[int]:
    """Return the axes of a shape, counted from either end."""
    return st.integers(-len(shape), len(shape) - 1)


def new_axis(shape: Shape) -> st.SearchStrategy[int]:
    """Return the positions of a new axis."""
    return st.integers(-len(shape) - 1, len(shape))


def on(
    kind: str, shape: st.SearchStrategy[Shape] = shapes, least: float = -3.0, most: float = 3.0, **options: Any
) -> Callable[[Draw], Drawn]:
    """Return a function that draws a block of one kind, and its `input`.

    Args:
        kind: The kind.
        shape: The shapes of the input.
        least: The lower bound of the input.
        most: Its upper bound.
        options: The attributes: values to choose from, a strategy, or a function from the shape to a strategy.
    """

    def draw_block(draw: Draw) -> Drawn:
        size = draw(shape)
        drawn = {name: draw(_strategy(choices, size)) for name, choices in options.items()}
        return KINDS[kind](**drawn), {"input": draw(arrays(size, least, most))}

    return draw_block


def _strategy(choices: Any, shape: Shape) -> st.SearchStrategy[Any]:
    if isinstance(choices, st.SearchStrategy):
        return choices
    return choices(shape) if callable(choices) else st.sampled_from(choices)
