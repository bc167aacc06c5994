"""Networks for images: LeNet and ResNet-50."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.program import Make, adam_step, ints, sgd_step, spec


def programs(full: bool) -> dict[str, Make]:
    """Return the programs of this family."""
    batch = 64 if full else 2
    lenet_params = {
        "conv_1": {"w": spec(5, 5, 1, 6), "b": spec(6)},
        "conv_2": {"w": spec(5, 5, 6, 16), "b": spec(16)},
        "dense": [{"w": spec(*shape), "b": spec(shape[1])} for shape in ((400, 120), (120, 84), (84, 10))],
    }
    digits = spec(batch, 32, 32, 1)
    depths, width, size, images = ((3, 4, 6, 3), 64, 224, 32) if full else ((2, 1), 4, 32, 2)
    params = resnet_shapes(depths, width, classes=1000 if full else 10)
    photos, labels = spec(images, size, size, 3), ints(images)
    return {
        "LeNet, forward": lambda: (lenet, (lenet_params, digits)),
        "LeNet, train step": lambda: adam_step(lenet, lenet_params, digits, ints(batch)),
        "ResNet-50, forward": lambda: (resnet, (params, photos)),
        "ResNet-50, train step": lambda: sgd_step(resnet, params, photos, labels),
    }


def convolution(w: Any, x: Any, stride: int = 1, padding: str = "SAME") -> Any:
    """Return a convolution of channels-last images."""
    return lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pooled(x: Any, size: int, stride: int, padding: str = "VALID") -> Any:
    """Return the maximum of each window."""
    window, strides = (1, size, size, 1), (1, stride, stride, 1)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)


def lenet(params: Any, x: Any) -> Any:
    """Return the logits of LeNet-5."""
    with jax.named_scope("features"):
        for name in ("conv_1", "conv_2"):
            with jax.named_scope(name):
                x = jnp.tanh(convolution(params[name]["w"], x, padding="VALID") + params[name]["b"])
            x = pooled(x, 2, 2)
    x = x.reshape(x.shape[0], -1)
    for number, layer in enumerate(params["dense"]):
        x = x @ layer["w"] + layer["b"]
        x = jnp.tanh(x) if number < 2 else x
    return x


def resnet_shapes(depths: tuple[int, ...], width: int, classes: int) -> dict[str, Any]:
    """Return the specs of the params of a network of bottlenecks."""

    def norm(channels: int) -> dict[str, Any]:
        return {"scale": spec(channels), "shift": spec(channels)}

    params: dict[str, Any] = {"stem": {"w": spec(7, 7, 3, width), "norm": norm(width)}}
    channels = width
    for stage, depth in enumerate(depths):
        inner = width * 2**stage
        for number in range(depth):
            shapes = ((1, 1, channels, inner), (3, 3, inner, inner), (1, 1, inner, 4 * inner))
            block: dict[str, Any] = {f"w{k}": spec(*shape) for k, shape in enumerate(shapes)}
            block |= {f"norm{k}": norm(shape[-1]) for k, shape in enumerate(shapes)}
            if number == 0:
                block |= {"shortcut": spec(1, 1, channels, 4 * inner), "shortcut_norm": norm(4 * inner)}
            params[f"stage_{stage}_block_{number}"] = block
            channels = 4 * inner
    return params | {"head": {"w": spec(channels, classes), "b": spec(classes)}}


def batch_norm(params: Any, x: Any) -> Any:
    """Return images normalised over the batch."""
    mean = x.mean((0, 1, 2))
    variance = ((x - mean) ** 2).mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * params["scale"] + params["shift"]


def bottleneck(params: Any, x: Any, stride: int) -> Any:
    """Return one residual block."""
    kept = x
    for k, step in enumerate((1, stride, 1)):
        x = batch_norm(params[f"norm{k}"], convolution(params[f"w{k}"], x, step))
        x = jax.nn.relu(x) if k < 2 else x
    if "shortcut" in params:
        kept = batch_norm(params["shortcut_norm"], convolution(params["shortcut"], kept, stride))
    return jax.nn.relu(x + kept)


def resnet(params: Any, x: Any) -> Any:
    """Return the logits."""

    def stem(x: Any) -> Any:
        x = jax.nn.relu(batch_norm(params["stem"]["norm"], convolution(params["stem"]["w"], x, 2)))
        return pooled(x, 3, 2, "SAME")

    x = stem(x)
    for name in params:
        if name.startswith("stage"):
            with jax.named_scope(name):
                x = bottleneck(params[name], x, 2 if name.endswith("block_0") and "stage_0" not in name else 1)
    return x.mean((1, 2)) @ params["head"]["w"] + params["head"]["b"]
