"""Convolutions and pools: tests beyond the cases."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    Conv2d,
    Convolution2D,
    ConvTranspose2d,
    GlobalAvgPool2d,
    MaxPool2D,
    MaxPool2d,
    Model,
    PrimitiveConvolution2D,
    Size,
)


def run(model: Model, params: Any = None, **inputs: Any) -> Any:
    pm = ml.compile(model, shapes={name: array.shape for name, array in inputs.items()})
    return pm.evaluate(pm.randomize_params(0) if params is None else params, inputs)["output"]


def image(*shape: int, dtype: str = "float32") -> Any:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), dtype)


def test_attributes_may_be_connected() -> None:
    x = image(2, 3, 4, 8)
    model = Model()
    model |= Size(dim=2)(input="x", output="rows")
    model |= MaxPool2D(2)(input="x", kernel_size="rows", output="output")
    np.testing.assert_array_equal(run(model, x=x), run(MaxPool2d(4), input=x))
    model = Model()
    model |= Size(dim=0)(input="y", output="groups")
    model |= Convolution2D(3, 4, padding=1)(input="x", groups="groups", output="output")
    x, params = image(2, 6, 5, 5), {"weight": image(4, 3, 3, 3), "bias": image(4)}
    named = {f"convolution2d_0.{name}": array for name, array in params.items()}
    expected = run(Conv2d(4, 3, padding=1, groups=2), params, input=x)
    np.testing.assert_array_equal(run(model, named, x=x, y=jnp.zeros(2)), expected)
    # Unknown values must not lead to a guessed shape.
    assert str(ml.compile(model).output_specs["output"]) == "('...',) float32"


def test_windows_may_be_given() -> None:
    x, weight = image(2, 4, 6, 6), image(3, 2, 3, 3)
    given = Model() | PrimitiveConvolution2D(use_bias=False)(input="x", weight="w", stride=2, groups=2, output="output")
    learned = run(Conv2d(3 * 1, 3, stride=2, padding=0, use_bias=False), {"weight": image(3, 4, 3, 3)}, input=x)
    assert learned.shape == (2, 3, 2, 2)
    with pytest.raises(MithrilError):  # 3 channels do not divide into 2 groups
        run(given, x=x, w=weight)
    weight = image(6, 2, 3, 3)
    expected = run(Conv2d(6, 3, stride=2, padding=0, groups=2, use_bias=False), {"weight": weight}, input=x)
    np.testing.assert_array_equal(run(given, x=x, w=weight), expected)
    unsized = Model() | Convolution2D(use_bias=False, stride=2, groups=2)(input="x", weight="w", output="output")
    np.testing.assert_array_equal(run(unsized, x=x, w=weight), expected)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (2, 2), (3, 2), (4, 2), (2, 3), (5, 3)])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_transposed_convolutions_agree_with_flax(kernel: int, stride: int, padding: str) -> None:
    x = image(2, 3, 5, 6)
    theirs = linen.ConvTranspose(4, (kernel,) * 2, (stride,) * 2, padding.upper(), transpose_kernel=True)
    params = theirs.init(jax.random.key(0), x.transpose(0, 2, 3, 1))
    expected = theirs.apply(params, x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    weight = params["params"]["kernel"].transpose(3, 2, 0, 1)  # (h, w, out, in)
    ours = ConvTranspose2d(4, kernel, stride=stride, padding=padding, use_bias=False)
    out = run(ours, {"weight": weight}, input=x)
    if padding == "valid" and stride > kernel:  # Flax adds items that no window reaches; PyTorch and mithril_nb do not
        expected = expected[:, :, : out.shape[2], : out.shape[3]]
    np.testing.assert_allclose(out, expected, 1e-4, 1e-5)


def test_a_transposed_convolution_is_the_gradient_of_its_convolution() -> None:
    x, weight = image(2, 4, 9, 8), image(6, 2, 3, 3)
    how: Any = {"stride": 2, "padding": (1, (0, 1)), "dilation": 2, "groups": 2, "use_bias": False}
    out, back = jax.vjp(lambda x: run(Conv2d(6, 3, **how), {"weight": weight}, input=x), x)
    ours = run(ConvTranspose2d(4, 3, output_padding=0, **how), {"weight": weight}, input=out)
    expected = back(out)[0]
    rows, columns = ours.shape[2:]
    # Trailing items that no window reaches have no gradient, and are omitted.
    np.testing.assert_allclose(ours, expected[:, :, :rows, :columns], 1e-4, 1e-4)
    assert not np.any(expected[:, :, rows:])
    assert not np.any(expected[:, :, :, columns:])


def test_single_items_windows_of_size_1_and_empty_batches() -> None:
    x = image(0, 2, 4, 4)
    for block in (Conv2d(3), ConvTranspose2d(3), MaxPool2d(2), AvgPool2d(2), AdaptiveAvgPool2d(3), GlobalAvgPool2d()):
        assert run(block, input=x).shape[0] == 0
    one = image(1, 1, 1, 1)
    np.testing.assert_array_equal(run(MaxPool2d(1), input=one), one)
    np.testing.assert_array_equal(run(AvgPool2d(1), input=one), one)
    np.testing.assert_array_equal(run(AdaptiveAvgPool2d(1), input=one), one)


def test_nan_and_infinity_stay_in_their_windows() -> None:
    x = image(1, 1, 4, 4).at[0, 0, 0, 0].set(jnp.nan).at[0, 0, 3, 3].set(jnp.inf)
    for block in (MaxPool2d(2), AvgPool2d(2), AdaptiveAvgPool2d(2)):
        out = run(block, input=x)[0, 0]
        assert np.isnan(out[0, 0])
        assert np.isinf(out[1, 1])
        assert np.isfinite(out[[0, 1], [1, 0]]).all()
    dilated = run(MaxPool2d(2, 1, dilation=2), input=x)[0, 0]
    assert np.isnan(dilated[0, 0])
    assert np.isinf(dilated[1, 1])
    assert np.isfinite(dilated[0, 1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_means_in_16_bits_are_summed_in_32(dtype: str) -> None:
    x = jnp.full((1, 1, 64, 64), 1000.0, dtype)  # the sum of a window overflows float16
    backend = ml.JaxBackend(dtype=dtype)
    for block in (AvgPool2d(64), AdaptiveAvgPool2d(1), GlobalAvgPool2d()):
        out = ml.compile(block, backend, shapes={"input": x.shape}).evaluate({}, {"input": x})["output"]
        assert out.dtype == dtype
        np.testing.assert_array_equal(out.ravel(), x[0, 0, 0, :1])
