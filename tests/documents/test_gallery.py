"""The programs of docs/gallery: their form, their stages, and what they compute, against NumPy and closed forms."""

from __future__ import annotations

import ast
import functools
import math
import re
import textwrap
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from fresh import run_fresh
from inline_code import ROOT
from numpy.lib.stride_tricks import sliding_window_view
from process import EIGHT_DEVICES

GALLERY = ROOT / "docs" / "gallery"
NAMES = [path.relative_to(GALLERY).with_suffix("").as_posix() for path in sorted(GALLERY.rglob("*.py"))]
STAGES = ("python", "graph", "jaxpr", "stablehlo", "hlo_before", "hlo")
MOST_LINES = 45
UNKNOWN = "FLOPs are unknown"
_DOCSTRING = re.compile(r"(?P<title>[^\n]{3,60})\.\n\n(?P<text>[^\n].*\.)\n", re.DOTALL)

Pairs = Iterator[tuple[Any, Any] | tuple[Any, Any, float]]
REFERENCES: dict[str, Callable[[Any, np.random.Generator], Pairs]] = {}


@functools.cache
def program(name: str) -> SimpleNamespace:
    path = GALLERY / f"{name}.py"
    names: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    return SimpleNamespace(**names)


@pytest.mark.parametrize("name", NAMES)
def test_programs_are_short_and_described(name: str) -> None:
    source = (GALLERY / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    found = _DOCSTRING.fullmatch(ast.get_docstring(tree, clean=False) or "")
    assert found
    assert len(re.findall(r"\.(?=\s|$)", found["text"])) <= 2
    code = [line for line in source.splitlines()[tree.body[0].end_lineno :] if line.strip()]
    assert 10 <= len(code) <= MOST_LINES


@pytest.mark.parametrize("name", NAMES)
def test_programs_have_their_stages_and_costs(name: str) -> None:
    p = program(name).p
    assert [stage for stage in STAGES if not p.stage(stage).text] == []
    is_unknown = UNKNOWN in (GALLERY / f"{name}.py").read_text(encoding="utf-8").replace("\n", " ")
    cost = p.cost().total
    assert cost.flops > 0
    assert bool(cost.unknown) == is_unknown


@pytest.mark.parametrize("name", NAMES)
def test_programs_compute_what_a_reference_computes(name: str) -> None:
    check(name)


def test_programs_of_many_devices_compute_the_same_on_eight() -> None:
    code = """
        import sys
        sys.path[:0] = ["tests", "tests/documents"]
        import test_gallery as gallery
        for name in gallery.NAMES:
            if name.startswith("many_devices/"):
                assert gallery.program(name).mesh.size == 8
                gallery.check(name)
    """
    run_fresh(textwrap.dedent(code), **EIGHT_DEVICES)


def check(name: str) -> None:
    """Compare results in float64, where an error of rounding cannot hide one of the program."""
    names = program(name)
    jax.config.update("jax_enable_x64", True)
    pairs = [*REFERENCES[name](names, np.random.default_rng(0))]
    assert pairs
    for actual, expected, *tolerance in pairs:
        (bound,) = tolerance or [1e-6]
        assert jax.tree.structure(actual) == jax.tree.structure(expected)
        for left, right in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
            left, right = np.asarray(left), np.asarray(right)
            assert left.shape == right.shape
            assert np.isfinite(right).all()
            np.testing.assert_allclose(left, right, rtol=bound, atol=bound * np.abs(right).max(initial=0.0))


def reference(name: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        REFERENCES[name] = function
        return function

    return register


def test_every_program_has_a_reference() -> None:
    assert sorted(REFERENCES) == NAMES


def arrays(rng: np.random.Generator, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def gradient(function: Callable[[Any], Any], params: Any) -> Any:
    """Return the derivatives of a function of NumPy by central differences."""
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda value: np.array(value, np.float64), params))
    grads = []
    for leaf in leaves:
        slopes = np.zeros(leaf.shape)
        for index in np.ndindex(leaf.shape):
            before = leaf[index]
            values = []
            for change in (1e-5, -1e-5):
                leaf[index] = before + change
                values.append(function(jax.tree.unflatten(structure, leaves)))
            leaf[index] = before
            slopes[index] = (values[0] - values[1]) / 2e-5
        grads.append(slopes)
    return jax.tree.unflatten(structure, grads)


def moved_by(rate: float, before: Any, after: Any) -> Any:
    """Return the gradients of a step of gradient descent."""
    return jax.tree.map(lambda old, new: (old - np.asarray(new)) / rate, before, after)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x: Any, axis: int = -1) -> Any:
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


def convolution(x: Any, kernel: Any, padding: int) -> Any:
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    return np.einsum("nhwcij,ijco->nhwo", sliding_window_view(x, kernel.shape[:2], (1, 2)), kernel)


def causal_mix(queries: Any, keys: Any, values: Any) -> Any:
    """Attend with one head, query by query, to the keys before and at it."""
    mixed = []
    for time, query in enumerate(queries):
        weights = softmax(keys[: time + 1] @ query / math.sqrt(len(query)))
        mixed.append(weights @ values[: time + 1])
    return np.array(mixed)


@reference("networks/mlp")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = [(rng.normal(size=(a, b)), rng.normal(size=b)) for a, b in [(12, 8), (8, 6), (6, 5)]]
    images = rng.normal(size=(7, 3, 4))
    x = images.reshape(7, 12)
    for weight, bias in params[:-1]:
        x = np.maximum(x @ weight + bias, 0)
    yield jax.jit(names.mlp)(params, images), np.log(softmax(x @ params[-1][0] + params[-1][1]))


@reference("networks/lenet")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    variables = jax.tree.map(lambda spec: rng.normal(size=spec.shape) / 10, names.variables)
    images = rng.normal(size=(2, 28, 28, 1))
    layers = variables["params"]
    x = images
    for number, padding in enumerate([2, 0]):
        layer = layers[f"conv_{number}"]
        x = np.tanh(convolution(x, layer["kernel"], padding) + layer["bias"])
        x = (x[:, ::2, ::2] + x[:, 1::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, 1::2]) / 4
    x = x.reshape(2, -1)
    for name in ("dense_0", "dense_1"):
        x = np.tanh(x @ layers[name]["kernel"] + layers[name]["bias"])
    yield names.model.apply(variables, images), x @ layers["head"]["kernel"] + layers["head"]["bias"]


@reference("networks/resnet_block")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = [(rng.normal(size=(3, 3, 4, 4)), rng.normal(size=4), rng.normal(size=4)) for _ in range(2)]
    x = rng.normal(size=(2, 5, 6, 4))
    y = x
    for kernel, scale, shift in params:
        y = convolution(np.maximum(y, 0) if y is not x else x, kernel, 1)
        for channel in range(4):
            values = y[..., channel]
            spread = math.sqrt(((values - values.mean()) ** 2).mean() + 1e-5)
            y[..., channel] = (values - values.mean()) / spread * scale[channel] + shift[channel]
    yield jax.jit(names.block)(params, x), np.maximum(x + y, 0)


@reference("networks/lstm")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, weight=(3 + 4, 16), bias=(16,))
    sequence = rng.normal(size=(6, 2, 3))
    hidden = memory = np.zeros((2, 4))
    expected = []
    for x in sequence:
        gates = x @ params["weight"][:3] + hidden @ params["weight"][3:] + params["bias"]
        update, forget, candidate, output = (gates[:, start : start + 4] for start in (0, 4, 8, 12))
        memory = sigmoid(forget + 1) * memory + sigmoid(update) * np.tanh(candidate)
        hidden = sigmoid(output) * np.tanh(memory)
        expected.append(hidden)
    yield names.lstm(params, sequence), np.array(expected)


@reference("networks/attention")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    width = 2 * names.HEADS
    params = arrays(rng, qkv=(width, 3 * width), out=(width, width))
    x = rng.normal(size=(2, 5, width))
    expected = []
    for sequence in x:
        queries, keys, values = (sequence @ part for part in np.split(params["qkv"], 3, axis=1))
        heads = [causal_mix(queries[:, c], keys[:, c], values[:, c]) for c in np.split(np.arange(width), names.HEADS)]
        expected.append(np.concatenate(heads, axis=1) @ params["out"])
    yield jax.jit(names.attention)(params, x), np.array(expected)


@reference("networks/gpt")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    layers = arrays(rng, qkv=(2, 4, 3, 2, 2), out=(2, 4, 4), up=(2, 4, 16), down=(2, 16, 4))
    params = arrays(rng, embed=(5, 4), positions=(3, 4)) | {"layers": layers}
    tokens = rng.integers(5, size=(1, 4))

    def normalize(x: Any) -> Any:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)

    def loss(params: Any) -> float:
        total = 0.0
        for sequence in tokens:
            x = params["embed"][sequence[:-1]] + params["positions"]
            for number in range(2):
                layer = {name: value[number] for name, value in params["layers"].items()}
                y = normalize(x)
                heads = [causal_mix(*(y @ layer["qkv"][:, part, head] for part in range(3))) for head in range(2)]
                x = x + np.concatenate(heads, axis=1) @ layer["out"]
                x = x + gelu(normalize(x) @ layer["up"]) @ layer["down"]
            probabilities = softmax(normalize(x) @ params["embed"].T)
            total -= np.log(probabilities[range(3), sequence[1:]]).sum()
        return total / tokens[:, 1:].size

    value, grads = jax.jit(jax.value_and_grad(names.loss))(params, tokens)
    yield value, loss(params)
    yield grads, gradient(loss, params)


@reference("networks/mixture_of_experts")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, router=(4, 8), up=(8, 4, 6), down=(8, 6, 4))
    tokens = rng.normal(size=(10, 4))
    expected = []
    for token in tokens:
        scores = token @ params["router"]
        chosen = np.argsort(scores)[-2:]
        outputs = []
        for expert in chosen:
            hidden = token @ params["up"][expert]
            outputs.append((hidden * sigmoid(hidden)) @ params["down"][expert])
        expected.append(softmax(scores[chosen]) @ np.array(outputs))
    yield jax.jit(names.mixture)(params, tokens), np.array(expected)


@reference("networks/graph_network")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, hidden=(5, 4), head=(4, 3))
    nodes = rng.normal(size=(6, 5))
    senders, receivers = rng.integers(6, size=(2, 15))
    adjacency = np.eye(6)
    for sender, receiver in zip(senders, receivers, strict=True):
        adjacency[receiver, sender] += 1
    adjacency = np.diag(adjacency.sum(1) ** -0.5) @ adjacency @ np.diag(adjacency.sum(0) ** -0.5)
    x = np.maximum(adjacency @ nodes @ params["hidden"], 0)
    expected = np.log(softmax(adjacency @ x @ params["head"]))
    yield jax.jit(names.network)(params, nodes, senders, receivers), expected


@reference("networks/vae")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, encode=(6, 5), latent=(5, 4), decode=(2, 5), pixels=(5, 6))
    key, images = jax.random.key(1), rng.uniform(size=(3, 6))
    noise = np.asarray(jax.random.normal(key, (3, 2)))

    def loss(params: Any) -> float:
        codes = np.maximum(images @ params["encode"], 0) @ params["latent"]
        mean, variance = codes[:, :2], np.exp(codes[:, 2:])
        pixels = sigmoid(np.maximum((mean + np.sqrt(variance) * noise) @ params["decode"], 0) @ params["pixels"])
        likelihood = (images * np.log(pixels) + (1 - images) * np.log(1 - pixels)).sum()
        divergence = (variance + mean**2 - 1 - np.log(variance)).sum() / 2
        return (divergence - likelihood) / 3

    value, grads = jax.jit(jax.value_and_grad(names.loss))(params, key, images)
    yield value, loss(params)
    yield grads, gradient(loss, params)


@reference("training/sgd_step")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, w0=(4, 5), b0=(5,), w1=(5, 3), b1=(3,))
    images, labels = rng.normal(size=(6, 4)), rng.integers(3, size=6)

    def loss(params: Any) -> float:
        x = np.maximum(images @ params["w0"] + params["b0"], 0) @ params["w1"] + params["b1"]
        return -np.log(softmax(x)[range(6), labels]).mean()

    value, new = jax.jit(names.step)(params, images, labels)
    yield value, loss(params)
    yield moved_by(0.1, params, new), gradient(loss, params)


@reference("training/adam_step")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = [(rng.normal(size=(3, 4)), rng.normal(size=4)), (rng.normal(size=(4, 2)), rng.normal(size=2))]
    x, y = rng.normal(size=(5, 3)), rng.normal(size=(5, 2))

    def loss(params: Any) -> float:
        (w0, b0), (w1, b1) = params
        return ((np.tanh(x @ w0 + b0) @ w1 + b1 - y) ** 2).mean()

    new, state, expected = params, names.optimizer.init(params), params
    means = squares = jax.tree.map(np.zeros_like, params)
    for count in (1, 2):
        value, new, state = jax.jit(names.step)(new, state, x, y)
        yield value, loss(expected)
        grads = gradient(loss, expected)
        norm = math.sqrt(sum((grad**2).sum() for grad in jax.tree.leaves(grads)))
        assert norm > 1
        grads = jax.tree.map(lambda grad, norm=norm: grad / norm, grads)
        means = jax.tree.map(lambda mean, grad: 0.9 * mean + 0.1 * grad, means, grads)
        squares = jax.tree.map(lambda square, grad: 0.999 * square + 0.001 * grad**2, squares, grads)

        def update(param: Any, mean: Any, square: Any, count: int = count) -> Any:
            step = mean / (1 - 0.9**count) / (np.sqrt(square / (1 - 0.999**count)) + 1e-8)
            return param - 1e-3 * (step + 0.01 * param)

        expected = jax.tree.map(update, expected, means, squares)
        yield new, expected, 1e-7


@reference("training/gradient_accumulation")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, hidden=(3, 4), head=(4, 2))
    x, y = rng.normal(size=(16, 3)), rng.normal(size=(16, 2))

    def loss(params: Any) -> float:
        return ((gelu(x @ params["hidden"]) @ params["head"] - y) ** 2).mean()

    yield moved_by(0.1, params, jax.jit(names.step)(params, x, y)), gradient(loss, params)


@reference("training/mixed_precision")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = jax.tree.map(np.float32, arrays(rng, hidden=(4, 8), head=(8, 2)))
    x, y = rng.normal(size=(6, 4)).astype("float32"), rng.normal(size=(6, 2)).astype("float32")

    def loss(params: Any) -> float:
        return ((np.maximum(x @ params["hidden"], 0) @ params["head"] - y) ** 2).mean()

    step = jax.jit(names.step)
    new, scale = step(params, np.float32(128), x, y)
    yield moved_by(0.1, params, new), gradient(loss, params), 0.01
    yield scale, 128.0
    new, scale = step(params, np.float32(2.0**40), x, y)
    yield new, params, 0.0
    yield scale, 2.0**39


@reference("training/contrastive_loss")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, image=(4, 3), text=(5, 3), log_scale=())
    images, texts = rng.normal(size=(6, 4)), rng.normal(size=(6, 5))

    def loss(params: Any) -> float:
        left, right = images @ params["image"], texts @ params["text"]
        cosines = left @ right.T / np.linalg.norm(left, axis=1)[:, None] / np.linalg.norm(right, axis=1)
        logits = np.exp(params["log_scale"]) * cosines
        return -sum(np.log(np.diag(softmax(logits, axis))).mean() for axis in (0, 1)) / 2

    value, grads = jax.jit(jax.value_and_grad(names.loss))(params, images, texts)
    yield value, loss(params)
    yield grads, gradient(loss, params)


@reference("training/lora")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    frozen = [rng.normal(size=(4, 4)) for _ in range(3)]
    adapters = [(rng.normal(size=(4, 2)), rng.normal(size=(2, 4))) for _ in range(3)]
    x, y = rng.normal(size=(2, 5, 4))

    def loss(adapters: Any) -> float:
        output = x
        for weight, (down, up) in zip(frozen, adapters, strict=True):
            output = np.tanh(output @ (weight + 2.0 * down @ up))
        return ((output - y) ** 2).mean()

    yield moved_by(0.01, adapters, jax.jit(names.step)(adapters, frozen, x, y)), gradient(loss, adapters)


@reference("transformations/jacobians")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params, x = arrays(rng, hidden=(3, 5), head=(5, 7)), rng.normal(size=3)
    slopes = 1 - np.tanh(x @ params["hidden"]) ** 2
    jacobian = params["head"].T @ np.diag(slopes) @ params["hidden"].T
    yield jax.jit(names.jacobians)(params, x), (jacobian, jacobian)


@reference("transformations/hessian_vector_product")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    weights, vector = rng.normal(size=(2, 4))
    x, labels = rng.normal(size=(9, 4)), rng.choice([-1.0, 1.0], 9)
    probabilities = sigmoid(x @ weights)
    hessian = x.T @ np.diag(probabilities * (1 - probabilities)) @ x / 9 + 0.01 * np.eye(4)
    yield jax.jit(names.hessian_vector_product)(weights, vector, x, labels), hessian @ vector


@reference("transformations/per_example_gradients")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params, key = arrays(rng, hidden=(3, 4), head=(4, 3)), jax.random.key(2)
    x, labels = rng.normal(size=(5, 3)) * np.array([[0.1], [1], [1], [1], [0.01]]), rng.integers(3, size=5)
    keys = dict(zip(["head", "hidden"], jax.random.split(key), strict=True))
    total = {name: 0.5 * np.asarray(jax.random.normal(keys[name], params[name].shape)) for name in params}
    norms = []
    for example, label in zip(x, labels, strict=True):

        def loss(params: Any, example: Any = example, label: int = label) -> float:
            return -np.log(softmax(np.tanh(example @ params["hidden"]) @ params["head"])[label])

        grads = gradient(loss, params)
        norms.append(math.sqrt(sum((grad**2).sum() for grad in grads.values())))
        total = {name: total[name] + grads[name] * min(1, 1 / norms[-1]) for name in params}
    assert min(norms) < 1 < max(norms)
    yield jax.jit(names.private_gradient)(params, key, x, labels), {name: total[name] / 5 for name in params}


@reference("transformations/implicit_differentiation")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    weight = rng.normal(size=(4, 4))
    weight *= 0.6 / np.linalg.norm(weight, 2)
    x, target = rng.normal(size=(2, 3, 4))

    def loss(arguments: Any) -> float:
        weight, x = arguments
        z = np.zeros((3, 4))
        for _ in range(100):
            z = np.tanh(z @ weight + x)
        return ((z - target) ** 2).sum()

    value, grads = jax.jit(jax.value_and_grad(names.loss, argnums=(0, 1)))(weight, x, target)
    yield value, loss((weight, x)), 1e-5
    yield grads, gradient(loss, (weight, x)), 1e-5


@reference("transformations/rematerialization")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, up=(2, 3, 5), down=(2, 5, 3))
    x, y = rng.normal(size=(2, 4, 3))

    def loss(params: Any) -> float:
        output = x
        for up, down in zip(params["up"], params["down"], strict=True):
            output = output + np.sin(gelu(output @ up) @ down)
        return ((output - y) ** 2).mean()

    yield jax.jit(jax.grad(names.loss))(params, x, y), gradient(loss, params)


@reference("transformations/maml")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, w0=(1, 4), b0=(4,), w1=(4, 1), b1=(1,))
    support, query = rng.normal(size=(2, 2, 3, 5, 1))  # inputs and outputs of five points of three tasks

    def meta_loss(params: Any) -> float:
        losses = []
        for x, y, new_x, new_y in zip(*support, *query, strict=True):
            hidden = np.tanh(x @ params["w0"] + params["b0"])
            error = 2 * (hidden @ params["w1"] + params["b1"] - y) / y.size
            back = error @ params["w1"].T * (1 - hidden**2)
            grads = {"w0": x.T @ back, "b0": back.sum(0), "w1": hidden.T @ error, "b1": error.sum(0)}
            adapted = {name: params[name] - 0.05 * grads[name] for name in params}
            hidden = np.tanh(new_x @ adapted["w0"] + adapted["b0"])
            losses.append(((hidden @ adapted["w1"] + adapted["b1"] - new_y) ** 2).mean())
        return sum(losses) / len(losses)

    value, grads = jax.jit(jax.value_and_grad(names.meta_loss))(params, tuple(support), tuple(query))
    yield value, meta_loss(params)
    yield grads, gradient(meta_loss, params)


@reference("scientific/lorenz")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    def velocity(state: Any) -> Any:
        x, y, z = state
        return np.array([10 * (y - x), 28 * x - x * z - y, x * y - 8 / 3 * z])

    state, expected = rng.normal(size=3), []
    states, _ = names.lyapunov(state, np.array([1.0, 0, 0]), steps=100)
    for _ in range(100):
        k1 = velocity(state)
        k2 = velocity(state + 0.005 * k1)
        k3 = velocity(state + 0.005 * k2)
        k4 = velocity(state + 0.01 * k3)
        state = state + 0.01 * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        expected.append(state)
    yield states, np.array(expected)
    _, exponent = names.lyapunov(state, np.array([1.0, 0, 0]), steps=100_000)
    yield exponent, 0.9056, 0.02  # Viswanath (1998)


@reference("scientific/heat_equation")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    rows, columns = 2 * np.pi * np.arange(12) / 12, 2 * np.pi * np.arange(16) / 16
    wave = np.cos(rows[:, None] * 2 + columns * 3 + 0.4)
    factor = 1 + names.RATIO * (2 * math.cos(4 * math.pi / 12) + 2 * math.cos(6 * math.pi / 16) - 4)
    yield names.diffuse(5 + wave, steps=7), 5 + factor**7 * wave


@reference("scientific/poisson_fft")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    rows, columns = np.arange(12)[:, None] / 12, np.arange(16) / 16
    potential, charge = np.zeros((12, 16)), np.zeros((12, 16))
    for k, m in [(1, 0), (0, 3), (2, -5), (5, 7), (-4, 2)]:
        wave = rng.normal() * np.cos(2 * np.pi * (k * rows + m * columns) + rng.normal())
        potential += wave
        charge += (2 * np.pi) ** 2 * (k**2 + m**2) * wave
    yield jax.jit(names.solve)(charge), potential


@reference("scientific/n_body")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    positions, velocities = rng.normal(size=(2, 5, 3))
    masses = rng.uniform(1, 2, size=5)
    actual = names.simulate(positions, velocities, masses, steps=20)

    def forces() -> Any:
        result = np.zeros((5, 3))
        for i in range(5):
            for j in range(5):
                difference = positions[j] - positions[i]
                result[i] += masses[j] * difference / (difference @ difference + 0.01**2) ** 1.5
        return result

    velocities = velocities + 0.0005 * forces()
    for _ in range(20):
        positions = positions + 0.001 * velocities
        velocities = velocities + 0.001 * forces()
    yield actual, (positions, velocities - 0.0005 * forces())


@reference("scientific/kalman_filter")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    """Condition the Gaussian of all states on the measurements at once."""

    def covariance(size: int) -> Any:
        root = rng.normal(size=(size, size))
        return root @ root.T + np.eye(size)

    model = {"motion": rng.normal(size=(3, 3)) / 2, "motion_noise": covariance(3)}
    model |= {"sensor": rng.normal(size=(2, 3)), "sensor_noise": covariance(2)}
    mean, start, times = rng.normal(size=3), covariance(3), 4
    measurements = rng.normal(size=(times, 2))
    means, log_likelihood = names.kalman_filter(model, mean, start, measurements)

    motion = model["motion"]
    # The states are a linear function of the first state and the noise of each motion.
    influence = np.zeros((3 * times, 3 * (times + 1)))
    for time in range(times):
        for source in range(time + 2):
            power = np.linalg.matrix_power(motion, time + 1 - source)
            influence[3 * time : 3 * time + 3, 3 * source : 3 * source + 3] = power
    sources = np.kron(np.eye(times + 1), model["motion_noise"])
    sources[:3, :3] = start
    prior, joint = influence[:, :3] @ mean, influence @ sources @ influence.T
    sensor = np.kron(np.eye(times), model["sensor"])
    spread = sensor @ joint @ sensor.T + np.kron(np.eye(times), model["sensor_noise"])
    surprise = measurements.ravel() - sensor @ prior
    expected = []
    for time in range(times):
        known, state = slice(2 * time + 2), slice(3 * time, 3 * time + 3)
        gain = (joint @ sensor.T)[state, known] @ np.linalg.inv(spread[known, known])
        expected.append(prior[state] + gain @ surprise[known])
    yield means, np.array(expected)
    distance = surprise @ np.linalg.solve(spread, surprise)
    yield log_likelihood, -0.5 * (distance + np.linalg.slogdet(2 * np.pi * spread)[1])


@reference("scientific/conjugate_gradient")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    root, right_side = rng.normal(size=(20, 20)), rng.normal(size=20)
    matrix = root @ root.T + np.eye(20)
    x, count = jax.jit(names.conjugate_gradient)(matrix, right_side)
    yield x, np.linalg.solve(matrix, right_side), 1e-4
    assert 0 < count <= 20
    yield names.conjugate_gradient(np.eye(20), right_side), (right_side, 1)


@reference("scientific/physics_informed_network")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params, points = arrays(rng, w0=(5,), b0=(5,), w1=(5,)), rng.uniform(size=6)

    def loss(params: Any) -> float:
        def hidden(x: Any) -> Any:
            return np.tanh(np.multiply.outer(x, params["w0"]) + params["b0"])

        values = hidden(points)
        curvature = (-2 * values * (1 - values**2) * params["w0"] ** 2) @ params["w1"]
        residual = curvature + np.pi**2 * np.sin(np.pi * points)
        return (residual**2).mean() + (hidden(0.0) @ params["w1"]) ** 2 + (hidden(1.0) @ params["w1"]) ** 2

    value, new = jax.jit(names.step)(params, points)
    yield value, loss(params)
    yield moved_by(1e-3, params, new), gradient(loss, params)


@reference("scientific/game_of_life")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    glider = np.zeros((8, 8), bool)
    glider[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = True
    yield names.play(glider, 4 * 8), glider  # four generations move it by one cell along both axes
    yield names.play(glider, 4), np.roll(glider, (1, 1), (0, 1))
    board = rng.random((6, 7)) < 0.4
    expected = np.zeros_like(board)
    for row, column in np.ndindex(6, 7):
        around = [board[(row + i) % 6, (column + j) % 7] for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        expected[row, column] = sum(around) in ((2, 3) if board[row, column] else (3,))
    yield names.play(board, 1), expected


@reference("sampling/hamiltonian_monte_carlo")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    x, labels = 5 * rng.normal(size=(60, 3)), rng.choice([-1.0, 1.0], 60)  # steep, so that some steps are rejected
    weights, outcomes = rng.normal(size=3), set()

    def log_density(weights: Any) -> float:
        return np.log(sigmoid(labels * (x @ weights))).sum() - weights @ weights / 2

    def slope(weights: Any) -> Any:
        return x.T @ (labels * sigmoid(-labels * (x @ weights))) - weights

    transition = jax.jit(functools.partial(names.transition, x=x, labels=labels))
    for seed in range(40):
        key = jax.random.key(seed)
        key_momentum, key_accept = jax.random.split(key)
        momentum = np.asarray(jax.random.normal(key_momentum, (3,)))
        proposal, speed = weights, momentum + names.STEP / 2 * slope(weights)
        for _ in range(names.LEAPS):
            proposal = proposal + names.STEP * speed
            speed = speed + names.STEP * slope(proposal)
        speed = speed - names.STEP / 2 * slope(proposal)
        change = log_density(proposal) - speed @ speed / 2 - log_density(weights) + momentum @ momentum / 2
        accepted = bool(jax.random.uniform(key_accept) < np.exp(change))
        yield transition(key, weights), (proposal if accepted else weights, accepted)
        outcomes.add(accepted)
        weights = proposal
    assert outcomes == {True, False}


@reference("sampling/particle_filter")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    """The model is linear and Gaussian, so a Kalman filter is exact."""
    measurements = rng.normal(size=12)
    mean, variance, means, log_likelihood = 0.0, 1.0, [], 0.0
    for measurement in measurements:
        mean, variance = names.DECAY * mean, names.DECAY**2 * variance + names.MOTION**2
        spread = variance + names.SENSOR**2
        log_likelihood -= 0.5 * ((measurement - mean) ** 2 / spread + math.log(2 * math.pi * spread))
        mean += variance / spread * (measurement - mean)
        variance *= 1 - variance / spread
        means.append(mean)
    actual = names.particle_filter(jax.random.key(3), measurements, count=50_000)
    yield actual, (np.array(means), log_likelihood), 0.01


@reference("reinforcement/ppo_loss")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, hidden=(3, 4), policy=(4, 3), value=(4,))
    batch = arrays(rng, observations=(8, 3), advantages=(8,), returns=(8,))
    batch |= {"actions": rng.integers(3, size=8), "log_probabilities": np.log(rng.uniform(0.2, 0.5, size=8))}

    def loss(params: Any) -> float:
        hidden = np.tanh(batch["observations"] @ params["hidden"])
        probabilities = softmax(hidden @ params["policy"])
        advantages = batch["advantages"] - batch["advantages"].mean()
        advantages = advantages / math.sqrt((advantages**2).mean())
        gains = []
        for row, action, old, advantage in zip(
            probabilities, batch["actions"], batch["log_probabilities"], advantages, strict=True
        ):
            ratio = row[action] / math.exp(old)
            gains.append(advantage * (min(ratio, 1.2) if advantage > 0 else max(ratio, 0.8)))
        entropy = -(probabilities * np.log(probabilities)).sum(1).mean()
        error = ((hidden @ params["value"] - batch["returns"]) ** 2).mean()
        return 0.5 * error - np.mean(gains) - 0.01 * entropy

    value, grads = jax.jit(jax.value_and_grad(names.loss))(params, batch)
    yield value, loss(params)
    yield grads, gradient(loss, params)


@reference("reinforcement/generalized_advantage")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    rewards, values = rng.normal(size=(6, 2)), rng.normal(size=(7, 2))
    is_last = (rng.random((6, 2)) < 0.3).astype(float)
    assert 0 < is_last.sum() < 12
    expected = np.zeros((6, 2))
    for time, column in np.ndindex(6, 2):
        for later in range(time, 6):
            future = 0 if is_last[later, column] else 0.99 * values[later + 1, column]
            difference = rewards[later, column] + future - values[later, column]
            expected[time, column] += (0.99 * 0.95) ** (later - time) * difference
            if is_last[later, column]:
                break
    yield names.advantages(rewards, values, is_last), (expected, expected + values[:-1])


@reference("reinforcement/q_learning")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params, slow = arrays(rng, hidden=(3, 5), head=(5, 4)), arrays(rng, hidden=(3, 5), head=(5, 4))
    batch = arrays(rng, observations=(6, 3), next=(6, 3), rewards=(6,))
    batch |= {"actions": rng.integers(4, size=6), "is_last": np.array([0.0, 1, 0, 0, 1, 0])}

    def values(params: Any, observations: Any) -> Any:
        return np.maximum(observations @ params["hidden"], 0) @ params["head"]

    targets = []
    for row in range(6):
        best = values(params, batch["next"][row]).argmax()
        future = 0 if batch["is_last"][row] else 0.99 * values(slow, batch["next"][row])[best]
        targets.append(batch["rewards"][row] + future)

    def loss(params: Any) -> float:
        errors = np.abs(values(params, batch["observations"])[range(6), batch["actions"]] - targets)
        return float(np.mean([error**2 / 2 if error < 1 else error - 0.5 for error in errors]))

    value, new, new_slow = jax.jit(names.step)(params, slow, batch)
    yield value, loss(params)
    yield moved_by(1e-3, params, new), gradient(loss, params)
    yield new_slow, {name: 0.995 * slow[name] + 0.005 * np.asarray(new[name]) for name in slow}


@reference("kernels/pallas_softmax")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    x = 100 * rng.normal(size=(3 * names.ROWS, 10))
    yield jax.jit(names.softmax)(x), softmax(x)


@reference("kernels/flash_attention")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    queries, keys, values = 5 * rng.normal(size=(3, 2, 3 * names.BLOCK, 4))
    queries = queries[:, :7]
    expected = [softmax(q @ k.T / 2) @ v for q, k, v in zip(queries, keys, values, strict=True)]
    yield names.attention(queries, keys, values), np.array(expected)


@reference("kernels/linear_recurrence")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    a, x = rng.normal(size=(2, 13, 3))
    state, expected = np.zeros(3), []
    for factor, term in zip(a, x, strict=True):
        state = factor * state + term
        expected.append(state)
    yield jax.jit(names.recurrence)(a, x), np.array(expected)


@reference("many_devices/data_parallel")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, hidden=(3, 4), head=(4, 2))
    x, y = rng.normal(size=(2 * names.mesh.size, 3)), rng.normal(size=(2 * names.mesh.size, 2))

    def loss(params: Any) -> float:
        return ((np.maximum(x @ params["hidden"], 0) @ params["head"] - y) ** 2).mean()

    shardings = names.copied, names.split, names.split
    new = jax.jit(names.step, in_shardings=shardings, out_shardings=names.copied)(params, x, y)
    yield moved_by(0.1, params, new), gradient(loss, params)


@reference("many_devices/tensor_parallel")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    params = arrays(rng, up=(3, 2 * names.mesh.size), down=(2 * names.mesh.size, 3))
    x = rng.normal(size=(5, 3))
    shardings = {name: names.params[name].sharding for name in params}, names.copied
    actual = jax.jit(names.mlp, in_shardings=shardings, out_shardings=names.copied)(params, x)
    yield actual, gelu(x @ params["up"]) @ params["down"]


@reference("many_devices/sharded_cross_entropy")
def _(names: Any, rng: np.random.Generator) -> Pairs:
    words = 3 * names.mesh.size
    hidden, weights, labels = rng.normal(size=(5, 4)), 9 * rng.normal(size=(4, words)), rng.integers(words, size=5)
    expected = -np.log(softmax(hidden @ weights)[range(5), labels]).mean()
    yield jax.jit(names.loss)(hidden, weights, labels), expected
