"""Blocks of `models/library/operations/reductions.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import KINDS, Cumsum, Model, Trapezoid, Unique
from tests.blocks.case import Arrays, Case, arrays, filled_shapes, shapes
from tests.blocks.cases.arithmetic import truths, whole


def _axes(draw: st.DrawFn, rank: int) -> int | list[int] | None:
    """Draw all, one or several axes, some counted from the end."""
    if draw(st.booleans()):
        return None
    chosen = draw(st.lists(st.integers(0, rank - 1), max_size=rank, unique=True)) if rank else []
    axes = [axis - rank if draw(st.booleans()) else axis for axis in chosen]
    return axes[0] if len(axes) == 1 and draw(st.booleans()) else axes


def _reduction(kind: str, reference: Callable[..., Any], can_be_empty: bool = True, kinds: str = "f", **more):
    def drawn(draw: st.DrawFn) -> tuple[Model, Arrays]:
        shape = draw(shapes)
        if can_be_empty and shape and draw(st.integers(0, 5)) == 0:
            shape = (0, *shape[1:])
        values = {"f": lambda s: draw(arrays(s)), "i": lambda s: whole(draw, s, -3, 3), "b": lambda s: truths(draw, s)}
        x = values[draw(st.sampled_from(kinds))](shape)
        options = {name: draw(strategy) for name, strategy in more.items()}
        return KINDS[kind](axis=_axes(draw, len(shape)), keepdim=draw(st.booleans()), **options), {"input": x}

    def compute(model: Model, params: Arrays, inputs: Arrays) -> dict[str, Any]:
        options = {name: model.options[name] for name in more}
        with np.errstate(all="ignore"):
            return {
                "output": reference(
                    inputs["input"], axis=model.options["axis"], keepdims=model.options["keepdim"], **options
                )
            }

    return drawn, compute


def _empty_is_nan(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a NumPy reduction: an empty array gives NaN without a warning."""

    def compute(x: np.ndarray, axis: Any, keepdims: bool, correction: float = 0.0) -> Any:
        count = np.sum(np.ones(x.shape), axis=axis, keepdims=keepdims)
        with np.errstate(all="ignore"):
            mean = np.sum(x, axis=axis, keepdims=True) / np.sum(np.ones(x.shape), axis=axis, keepdims=True)
            return function(x, mean, axis, keepdims, np.maximum(count - correction, 0))

    return compute


@_empty_is_nan
def _mean(x: np.ndarray, mean: Any, axis: Any, keepdims: bool, count: Any) -> Any:
    return np.sum(x, axis=axis, keepdims=keepdims) / count


@_empty_is_nan
def _variance(x: np.ndarray, mean: Any, axis: Any, keepdims: bool, count: Any) -> Any:
    return np.sum((x - mean) ** 2, axis=axis, keepdims=keepdims) / count


def _log_sum_exp(x: np.ndarray, axis: Any, keepdims: bool) -> Any:
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def _norm(x: np.ndarray, axis: Any, keepdims: bool, p: float) -> Any:
    if p == np.inf:
        return np.max(np.abs(x), axis=axis, keepdims=keepdims, initial=0.0)
    return np.sum(np.abs(x) ** p, axis=axis, keepdims=keepdims) ** (1 / p)


def _place(kind: str, reference: Callable[..., Any]) -> Case:
    def drawn(draw: st.DrawFn) -> tuple[Model, Arrays]:
        shape = draw(shapes)
        axis = draw(st.none() | st.integers(-len(shape), len(shape) - 1)) if shape else None
        x = draw(arrays(shape)) if draw(st.booleans()) else whole(draw, shape, -1, 1)
        return KINDS[kind](axis, draw(st.booleans())), {"input": x}

    def compute(model: Model, params: Arrays, inputs: Arrays) -> dict[str, Any]:
        axis, keepdim = model.options["axis"], model.options["keepdim"]
        return {"output": reference(inputs["input"], axis=axis, keepdims=keepdim)}

    return Case(kind, drawn, compute, is_differentiable=False)


def _cumsum(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shape = draw(filled_shapes)
    x = draw(st.sampled_from((whole, truths)))(draw, shape) if draw(st.booleans()) else draw(arrays(shape))
    return Cumsum(draw(st.integers(-len(shape), len(shape) - 1))), {"input": x}


def _trapezoid(draw: st.DrawFn) -> tuple[Model, Arrays]:
    shape = draw(filled_shapes)
    x = draw(arrays(shape if draw(st.booleans()) else shape[-1:]))
    return Trapezoid(), {"y": whole(draw, shape) if draw(st.booleans()) else draw(arrays(shape)), "x": x}


def _unique(draw: st.DrawFn) -> tuple[Model, Arrays]:
    x = whole(draw, draw(shapes), -2, 2)
    return Unique(draw(st.integers(1, 8)), draw(st.none() | st.just(7.0))), {
        "input": x / 2 if draw(st.booleans()) else x
    }


def _unique_reference(model: Model, params: Arrays, inputs: Arrays) -> dict[str, Any]:
    size, fill = model.options["size"], model.options["fill_value"]
    found = np.unique(inputs["input"])[:size]
    rest = found[0] if fill is None else fill
    return {"output": np.concatenate([found, np.full(size - len(found), rest)])}


FLOATING = {
    "Mean": _reduction("Mean", _mean, kinds="ib"),
    "Variance": _reduction("Variance", _variance, kinds="ib", correction=st.sampled_from((0.0, 0.5))),
    "LogSumExp": _reduction("LogSumExp", _log_sum_exp, kinds="i"),
    "Norm": _reduction("Norm", _norm, kinds="i", p=st.sampled_from((1.0, 2.0, 3.5, np.inf))),
}


def _of_whole(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return FLOATING[draw(st.sampled_from(list(FLOATING)))][0](draw)


CASES = [
    Case("Mean", *_reduction("Mean", _mean)),
    Case("Sum", *_reduction("Sum", np.sum, kinds="fib")),
    Case("Prod", *_reduction("Prod", np.prod, kinds="fib")),
    Case("Max", *_reduction("Max", np.max, can_be_empty=False, kinds="fib")),
    Case("Min", *_reduction("Min", np.min, can_be_empty=False, kinds="fib")),
    Case("Variance", *_reduction("Variance", _variance, correction=st.sampled_from((0.0, 0.5)))),
    Case("LogSumExp", *_reduction("LogSumExp", _log_sum_exp)),
    Case("Norm", *_reduction("Norm", _norm, p=st.sampled_from((1.0, 2.0, 3.5, np.inf)))),
    _place("ArgMax", np.argmax),
    _place("ArgMin", np.argmin),
    Case("Cumsum", _cumsum, lambda model, _, given: {"output": np.cumsum(given["input"], axis=model.options["axis"])}),
    Case("Trapezoid", _trapezoid, lambda _, __, given: {"output": np.trapezoid(given["y"], given["x"])}),
    # The choice of kept items is discontinuous.
    Case("Unique", _unique, _unique_reference, is_differentiable=False),
    # JAX computes with 32-bit integers in float32, in x64 mode too.
    Case(
        "floating reductions of whole numbers",
        _of_whole,
        lambda model, params, given: FLOATING[model.kind][1](model, params, given),
        tolerance64=1e-6,
    ),
]
