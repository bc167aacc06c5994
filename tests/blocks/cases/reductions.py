"""Blocks of `models/library/operations/reductions.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import KINDS, Cumsum, Trapezoid, Unique
from tests.blocks.case import Case, Draw, Drawn, arrays, axis, call, filled_shapes, shapes, truths, whole


def _axes(draw: Draw, rank: int) -> int | list[int] | None:
    """Draw all, one or several axes, some counted from the end."""
    if draw(st.booleans()):
        return None
    chosen = draw(st.lists(st.integers(0, rank - 1), max_size=rank, unique=True)) if rank else []
    axes = [axis - rank if draw(st.booleans()) else axis for axis in chosen]
    return axes[0] if len(axes) == 1 and draw(st.booleans()) else axes


def _reduction(kind: str, can_be_empty: bool = True, dtypes: str = "f", **more: Any) -> Callable[[Draw], Drawn]:
    def draw_block(draw: Draw) -> Drawn:
        shape = draw(shapes)
        if can_be_empty and shape and draw(st.integers(0, 5)) == 0:
            shape = (0, *shape[1:])
        values = {"f": lambda s: draw(arrays(s)), "i": lambda s: whole(draw, s, -3, 3), "b": lambda s: truths(draw, s)}
        x = values[draw(st.sampled_from(dtypes))](shape)
        options = {name: draw(st.sampled_from(choices)) for name, choices in more.items()}
        return KINDS[kind](axis=_axes(draw, len(shape)), keepdim=draw(st.booleans()), **options), {"input": x}

    return draw_block


def _like(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input, axis, keepdim: function(input, axis=axis, keepdims=keepdim)


def _mean(input: np.ndarray, axis: Any, keepdim: bool) -> Any:
    return np.sum(input, axis, keepdims=keepdim) / np.sum(np.ones(input.shape), axis, keepdims=keepdim)


def _variance(input: np.ndarray, axis: Any, keepdim: bool, correction: float) -> Any:
    count = np.sum(np.ones(input.shape), axis, keepdims=keepdim)
    squares = np.sum((input - _mean(input, axis, True)) ** 2, axis, keepdims=keepdim)
    return squares / np.maximum(count - correction, 0)


def _log_sum_exp(input: np.ndarray, axis: Any, keepdim: bool) -> Any:
    return np.log(np.sum(np.exp(input), axis, keepdims=keepdim))


def _norm(input: np.ndarray, axis: Any, keepdim: bool, p: float) -> Any:
    if p == np.inf:
        return np.max(np.abs(input), axis, keepdims=keepdim, initial=0.0)
    return np.sum(np.abs(input) ** p, axis, keepdims=keepdim) ** (1 / p)


def _place(kind: str) -> Callable[[Draw], Drawn]:
    def draw_block(draw: Draw) -> Drawn:
        shape = draw(shapes)
        along = draw(st.none() | axis(shape)) if shape else None
        x = draw(arrays(shape)) if draw(st.booleans()) else whole(draw, shape, -1, 1)
        return KINDS[kind](along, draw(st.booleans())), {"input": x}

    return draw_block


def _cumsum(draw: Draw) -> Drawn:
    shape = draw(filled_shapes)
    x = draw(st.sampled_from((whole, truths)))(draw, shape) if draw(st.booleans()) else draw(arrays(shape))
    return Cumsum(draw(axis(shape))), {"input": x}


def _trapezoid(draw: Draw) -> Drawn:
    shape = draw(filled_shapes)
    x = draw(arrays(shape if draw(st.booleans()) else shape[-1:]))
    return Trapezoid(), {"y": whole(draw, shape) if draw(st.booleans()) else draw(arrays(shape)), "x": x}


def _unique(draw: Draw) -> Drawn:
    x = whole(draw, draw(shapes), -2, 2)
    return Unique(draw(st.integers(1, 8)), draw(st.none() | st.just(7.0))), {
        "input": x / 2 if draw(st.booleans()) else x
    }


def _distinct(input: np.ndarray, size: int, fill_value: float | None) -> np.ndarray:
    values = np.unique(input)[:size]
    return np.concatenate([values, np.full(size - len(values), values[0] if fill_value is None else fill_value)])


FLOATING: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "Mean": (_mean, "ib", {}),
    "Variance": (_variance, "ib", {"correction": (0.0, 0.5)}),
    "LogSumExp": (_log_sum_exp, "i", {}),
    "Norm": (_norm, "i", {"p": (1.0, 2.0, 3.5, np.inf)}),
}
"""Reference of each reduction to floats, the other dtypes that it accepts, and its attributes."""


def _of_whole(draw: Draw) -> Drawn:
    kind = draw(st.sampled_from(list(FLOATING)))
    _, dtypes, options = FLOATING[kind]
    return _reduction(kind, dtypes=dtypes, **options)(draw)


CASES = [
    *(Case(kind, _reduction(kind, **options), reference) for kind, (reference, _, options) in FLOATING.items()),
    Case("Sum", _reduction("Sum", dtypes="fib"), _like(np.sum)),
    Case("Prod", _reduction("Prod", dtypes="fib"), _like(np.prod)),
    Case("Max", _reduction("Max", False, "fib"), _like(np.max)),
    Case("Min", _reduction("Min", False, "fib"), _like(np.min)),
    Case("ArgMax", _place("ArgMax"), _like(np.argmax), is_differentiable=False),
    Case("ArgMin", _place("ArgMin"), _like(np.argmin), is_differentiable=False),
    Case("Cumsum", _cumsum, np.cumsum),
    Case("Trapezoid", _trapezoid, np.trapezoid),
    # The choice of kept items is discontinuous.
    Case("Unique", _unique, _distinct, is_differentiable=False),
    # JAX computes with 32-bit integers in float32, in x64 mode too.
    Case(
        "floating reductions of whole numbers",
        _of_whole,
        lambda model, params, inputs: call(FLOATING[model.kind][0], model, params, inputs),
        tolerance64=1e-6,
    ),
]
