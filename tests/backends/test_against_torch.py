"""Every block compared with PyTorch: outputs, and gradients of params and inputs, in two precisions."""

import numpy as np
import pytest
from references import Arrays, Case, assert_same

from mithril_nb.models import (
    MLP,
    Add,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Gelu,
    LayerNorm,
    Linear,
    MaxPool2d,
    Model,
    Relu,
    Sigmoid,
    Softmax,
    Tanh,
)

torch = pytest.importorskip("torch", exc_type=ImportError)
F = torch.nn.functional
RANDOM = np.random.default_rng(1)


def in_torch(function):
    """A reference with PyTorch's gradients."""

    def reference(params: Arrays, inputs: Arrays, cotangent: np.ndarray) -> tuple[np.ndarray, Arrays]:
        tensors = {name: torch.tensor(array) for name, array in {**params, **inputs}.items()}
        for tensor in tensors.values():
            tensor.requires_grad_(tensor.is_floating_point())
        output = function(tensors)
        output.backward(torch.tensor(cotangent))
        return output.detach().numpy(), {
            name: tensor.grad.numpy() for name, tensor in tensors.items() if tensor.grad is not None
        }

    return reference


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape)


ELEMENTWISE = {
    "relu": (Relu(), torch.relu),
    "gelu": (Gelu(), F.gelu),
    "gelu-tanh": (Gelu(approximate=True), lambda x: F.gelu(x, approximate="tanh")),
    "sigmoid": (Sigmoid(), torch.sigmoid),
    "tanh": (Tanh(), torch.tanh),
    "softmax": (Softmax(), lambda x: F.softmax(x, -1)),
    "softmax-1": (Softmax(axis=1), lambda x: F.softmax(x, 1)),
    "softmax-0": (Softmax(axis=0), lambda x: F.softmax(x, 0)),
    "flatten": (Flatten(), lambda x: x.flatten(1)),
    "dropout": (Dropout(0.5), lambda x: x),
    "dropout-off": (Dropout(0.5, training=False), lambda x: x),
    "dropout-none": (Dropout(0.0, training=True), lambda x: x),
}


def test_blocks_without_params(dtype):
    inputs = {"input": 3 * normal(4, 3, 5)}
    cases = {
        name: Case(block, inputs, in_torch(lambda tensors, function=function: function(tensors["input"])))
        for name, (block, function) in ELEMENTWISE.items()
    }
    for right in ((2, 3, 4), (4,), (3, 1), (1, 1, 4), (), (2, 1, 1)):
        pair = {"left": normal(2, 3, 4), "right": normal(*right)}
        cases[f"add {right}"] = Case(Add(), pair, in_torch(lambda t: t["left"] + t["right"]))
    assert_same(cases, dtype)


def test_blocks_on_the_last_axis(dtype):
    def linear(tensors):
        return F.linear(tensors["input"], tensors["weight"].T, tensors.get("bias"))

    def norm(tensors):
        return F.layer_norm(tensors["input"], (6,), tensors.get("weight"), tensors.get("bias"), 1e-3)

    cases = {}
    for shape in ((3,), (4, 3), (2, 4, 3), (1, 3), (0, 3), (2, 0, 3)):
        for use_bias in (True, False):
            inputs = {"input": normal(*shape)}
            cases[f"linear {shape} {use_bias}"] = Case(Linear(5, use_bias), inputs, in_torch(linear))
    for flags in ((True, True), (True, False), (False, True), (False, False)):
        inputs = {"input": 5 + 2 * normal(2, 4, 6)}
        cases[f"layer_norm {flags}"] = Case(LayerNorm(*flags, 1e-3), inputs, in_torch(norm))
    rows = {"input": np.array([[0, 6, 6], [2, 0, 3]], "int32")}
    cases["embedding"] = Case(Embedding(7, 4), rows, in_torch(lambda t: F.embedding(t["input"], t["weight"])))
    assert_same(cases, dtype)


def padded(image, kernel, stride, padding, value=0.0):
    """The image with what "same" puts around it: the odd one after, so that ceil(size / stride) windows fit."""
    if padding == "valid":
        return image
    around = []
    for size, window, step in zip(image.shape[:1:-1], kernel[::-1], stride[::-1], strict=True):
        total = max((int(np.ceil(size / step)) - 1) * step + window - size, 0)
        around += [total // 2, total - total // 2]
    return F.pad(image, around, value=value)


WINDOWS = [
    ((3, 3), (1, 1), "same"), ((3, 3), (1, 1), "valid"), ((2, 2), (1, 1), "same"), ((4, 3), (2, 1), "same"),
    ((3, 3), (2, 2), "same"), ((2, 5), (3, 2), "valid"), ((1, 1), (2, 2), "same"), ((5, 5), (3, 3), "same"),
]  # fmt: skip


def test_blocks_on_images(dtype):
    def conv(kernel, stride, padding):
        return in_torch(
            lambda t: F.conv2d(padded(t["input"], kernel, stride, padding), t["weight"], t.get("bias"), stride=stride)
        )

    def pool(kernel, stride, padding):
        return in_torch(lambda t: F.max_pool2d(padded(t["input"], kernel, stride, padding, -np.inf), kernel, stride))

    cases = {}
    for number, (kernel, stride, padding) in enumerate(WINDOWS):
        use_bias, inputs = number % 2 == 0, {"input": normal(1 + number % 3, 2, 7, 6)}
        name = f"{kernel} {stride} {padding}"
        block = Conv2d(3, kernel, stride=stride, padding=padding, use_bias=use_bias)
        cases[f"conv2d {name} {use_bias}"] = Case(block, inputs, conv(kernel, stride, padding))
        cases[f"max_pool2d {name}"] = Case(MaxPool2d(kernel, stride, padding), inputs, pool(kernel, stride, padding))
    assert_same(cases, dtype)


def test_models(dtype):
    acts = {"relu": torch.relu, "gelu": F.gelu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}

    def mlp(act):
        def function(tensors):
            x = tensors["input"]
            for number in range(3):
                x = x @ tensors[f"linear_{number}.weight"] + tensors[f"linear_{number}.bias"]
                x = act(x) if number < 2 else x
            return x

        return in_torch(function)

    def classifier(tensors):
        x = F.conv2d(tensors["input"], tensors["conv2d_0.weight"], tensors["conv2d_0.bias"], padding=1)
        x = F.max_pool2d(torch.relu(x), 2).flatten(1)
        return F.softmax(x @ tensors["linear_0.weight"] + tensors["linear_0.bias"], -1)

    def residual(tensors):
        x, w = tensors["x"], tensors["w"]
        normed = F.layer_norm(x, (4,), tensors["layer_norm_0.weight"], tensors["layer_norm_0.bias"], 1e-5)
        return x + F.gelu(normed @ w) @ w

    images = Model()
    for block in (Conv2d(4, 3), Relu(), MaxPool2d(2), Flatten(), Linear(5), Softmax()):
        images += block
    tied = Model()
    tied |= LayerNorm()(input="x", output="normed")
    tied |= Linear(4, use_bias=False)(input="normed", weight="w", output="once")
    tied |= Gelu()(input="once", output="bent")
    tied |= Linear(4, use_bias=False)(input="bent", weight="w", output="twice")
    tied |= Add()(left="x", right="twice", output="output")
    cases = {
        "images": Case(images, {"input": normal(3, 1, 8, 8)}, in_torch(classifier)),
        "a shared weight": Case(tied, {"x": normal(2, 3, 4)}, in_torch(residual)),
    }
    for name, act in acts.items():
        cases[f"mlp {name}"] = Case(MLP(4, [5, 6], 3, name), {"input": normal(8, 4)}, mlp(act))
    assert_same(cases, dtype)
