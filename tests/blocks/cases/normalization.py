"""Blocks of `models/library/layers/normalization.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import KINDS, Model
from tests.blocks.case import Arrays, Case, Draw, Drawn, arrays, filled_shapes, on

EPS = (1e-5, 1e-3, 0.1)


def _affine(params: Arrays, x: np.ndarray, axis: int) -> np.ndarray:
    shape = [-1 if other == axis % x.ndim else 1 for other in range(x.ndim)]
    for name, array in params.items():
        if name.endswith("weight"):
            x = x * array.reshape(shape)
    for name, array in params.items():
        if name.endswith("bias"):
            x = x + array.reshape(shape)
    return x


def _standard(x: np.ndarray, axes: Any, eps: float) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _layer_norm(params: Arrays, input: np.ndarray, eps: float) -> np.ndarray:
    return _affine(params, _standard(input, -1, eps), -1)


def _rms_norm(params: Arrays, input: np.ndarray, eps: float) -> np.ndarray:
    return _affine(params, input / np.sqrt(np.square(input).mean(-1, keepdims=True) + eps), -1)


def _group_norm(model: Model, params: Arrays, input: np.ndarray, eps: float) -> np.ndarray:
    groups = model.options.get("num_groups", input.shape[1])
    parts = [_standard(part, tuple(range(1, input.ndim)), eps) for part in np.split(input, groups, 1)]
    return _affine(params, np.concatenate(parts, 1), 1)


def _batch_norm(params: Arrays, input: np.ndarray, eps: float, inference: bool | None) -> np.ndarray:
    x = input
    if inference is False:
        return _affine(params, _standard(x, (0, *range(2, x.ndim)), eps), 1)
    shape = (1, -1, *(1,) * (x.ndim - 2))
    mean, variance = (params[name].reshape(shape) for name in ("running_mean", "running_var"))
    learned = {name: array for name, array in params.items() if name in ("weight", "bias")}
    return _affine(learned, (x - mean) / np.sqrt(variance + eps), 1)


def _last(kind: str, reference: Any, *flags: str) -> Case:
    shapes = filled_shapes.map(lambda shape: (*shape, 3))
    return Case(kind, on(kind, shapes, eps=EPS, **dict.fromkeys(flags, (False, True))), reference)


def _channels(kind: str, reference: Any, least: int, most: int) -> Case:
    def draw_block(draw: Draw) -> Drawn:
        given = {name: draw(st.booleans()) for name in ("use_scale", "use_bias")} | {"eps": draw(st.sampled_from(EPS))}
        groups = draw(st.integers(1, 3))
        if kind == "GroupNorm":
            given["num_groups"] = groups
        if kind.startswith("BatchNorm"):
            given |= {"inference": draw(st.sampled_from((None, True, False))), "momentum": 0.2}
        rank = draw(st.integers(least, most))
        # At least two samples: a constant batch has no direction.
        shape = (draw(st.integers(2, 4)), groups * 2, *(draw(st.integers(2, 3)) for _ in range(rank - 2)))
        return KINDS[kind](**given), {"input": draw(arrays(shape))}

    return Case(kind, draw_block, reference)


CASES = [
    _last("LayerNorm", _layer_norm, "use_scale", "use_bias"),
    _last("RMSNorm", _rms_norm, "use_scale"),
    Case("ElementWiseAffine", on("ElementWiseAffine", filled_shapes), lambda params, input: _affine(params, input, -1)),
    _channels("GroupNorm", _group_norm, 2, 4),
    _channels("InstanceNorm", _group_norm, 3, 5),
    _channels("BatchNorm", _batch_norm, 2, 5),
    _channels("BatchNorm1d", _batch_norm, 2, 3),
    _channels("BatchNorm2d", _batch_norm, 4, 4),
    _channels("BatchNorm2D", _batch_norm, 4, 4),
]
