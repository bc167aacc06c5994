"""Blocks of `models/library/layers/normalization.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import KINDS, ElementWiseAffine, Model
from tests.blocks.case import Arrays, Case, arrays, filled_shapes

# States in the harness: uniform(0.5, 1.5) drawn after the parameters; see `_arrays` there.
Ranks = tuple[int, ...]


def _affine(params: Arrays, x: np.ndarray, axis: int) -> Arrays:
    shape = [-1 if other == axis % x.ndim else 1 for other in range(x.ndim)]
    for name, array in params.items():
        if name.endswith("weight"):
            x = x * array.reshape(shape)
    for name, array in params.items():
        if name.endswith("bias"):
            x = x + array.reshape(shape)
    return {"output": x}


def _standard(x: np.ndarray, axes: Any, eps: float) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _layer_norm(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    return _affine(params, _standard(inputs["input"], -1, model.options["eps"]), -1)


def _rms_norm(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    x = inputs["input"]
    return _affine(params, x / np.sqrt(np.square(x).mean(-1, keepdims=True) + model.options["eps"]), -1)


def _group_norm(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    x, groups = inputs["input"], model.options.get("num_groups", inputs["input"].shape[1])
    parts = [_standard(part, tuple(range(1, x.ndim)), model.options["eps"]) for part in np.split(x, groups, 1)]
    return _affine(params, np.concatenate(parts, 1), 1)


def _batch_norm(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
    x, eps = inputs["input"], model.options["eps"]
    if model.options["inference"] is False:
        return _affine(params, _standard(x, (0, *range(2, x.ndim)), eps), 1)
    shape = (1, -1, *(1,) * (x.ndim - 2))
    mean, variance = (params[name].reshape(shape) for name in ("running_mean", "running_var"))
    learned = {name: array for name, array in params.items() if name in ("weight", "bias")}
    return _affine(learned, (x - mean) / np.sqrt(variance + eps), 1)


def _flags(draw: st.DrawFn, *names: str) -> dict[str, Any]:
    return {"eps": draw(st.sampled_from((1e-5, 1e-3, 0.1))), **{name: draw(st.booleans()) for name in names}}


def _last(kind: str, *flags: str) -> Any:
    return lambda draw: (KINDS[kind](**_flags(draw, *flags)), {"input": draw(arrays((*draw(filled_shapes), 3)))})


def _channels(kind: str, least: int, most: int) -> Any:
    def draw(draw: st.DrawFn) -> tuple[Model, Arrays]:
        given = _flags(draw, "use_scale", "use_bias")
        groups = draw(st.integers(1, 3))
        if kind == "GroupNorm":
            given["num_groups"] = groups
        if kind.startswith("BatchNorm"):
            given |= {"inference": draw(st.sampled_from((None, True, False))), "momentum": 0.2}
        rank = draw(st.integers(least, most))
        # At least two samples: a constant batch has no direction.
        shape = (draw(st.integers(2, 4)), groups * 2, *(draw(st.integers(2, 3)) for _ in range(rank - 2)))
        return KINDS[kind](**given), {"input": draw(arrays(shape))}

    return draw


def _element_wise(draw: st.DrawFn) -> tuple[Model, Arrays]:
    return ElementWiseAffine(), {"input": draw(arrays(draw(filled_shapes)))}


CASES = [
    Case("LayerNorm", _last("LayerNorm", "use_scale", "use_bias"), _layer_norm),
    Case("RMSNorm", _last("RMSNorm", "use_scale"), _rms_norm),
    Case("ElementWiseAffine", _element_wise, lambda _, params, given: _affine(params, given["input"], -1)),
    Case("GroupNorm", _channels("GroupNorm", 2, 4), _group_norm),
    Case("InstanceNorm", _channels("InstanceNorm", 3, 5), _group_norm),
    Case("BatchNorm", _channels("BatchNorm", 2, 5), _batch_norm),
    Case("BatchNorm1d", _channels("BatchNorm1d", 2, 3), _batch_norm),
    Case("BatchNorm2d", _channels("BatchNorm2d", 4, 4), _batch_norm),
    Case("BatchNorm2D", _channels("BatchNorm2D", 4, 4), _batch_norm),
]
