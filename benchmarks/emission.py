"""Emitted NumPy, PyTorch and C against hand-written code and `jax.jit`: outputs and all gradients of small models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from scipy.special import erf

import mithril_nb as ml
from benchmarks.evaluate import repeated
from benchmarks.gpt import CONTEXT, HEADS, LAYERS, VOCABULARY, WIDTH
from benchmarks.interleaved import Comparison, compare
from benchmarks.plain import CLASSES, mlp
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.c import compiling
from mithril_nb.emission.c.emit import emit
from mithril_nb.emission.python_text import load
from mithril_nb.models import CNN, GPT, Model, TransformerBlock

BATCH, TIME, FEATURES, ATTENTION_HEADS = 32, 32, 64, 4
Params = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """A model, and hand-written code for it.

    Attributes:
        name: Display name.
        model: Composes the model, from `input` to `output`.
        shape: Shape of the input.
        in_numpy: Returns the output and the gradients of the parameters, from (params, input, gradient of the output).
        in_torch: Returns an `nn.Module` with these parameters.
        c_bar: Largest acceptable ratio of emitted C to `jax.jit`.
    """

    name: str
    model: Callable[[], Model]
    shape: tuple[int, ...]
    in_numpy: Callable[[Params, Any, Any], tuple[Any, Params]]
    in_torch: Callable[[Params], Any]
    c_bar: float


def emission_comparisons(rounds: int) -> Iterator[Comparison]:
    """Yield the comparisons of each model; both sides must compute the same gradients.

    Each side gets the parameters, the input and d(loss)/d(output), and returns the gradients of all parameters.
    """
    import torch

    torch.set_num_threads(1)
    for work in WORKS:
        rng = np.random.default_rng(0)
        x = rng.normal(size=work.shape).astype(np.float32)
        run, params = _source(work, ml.NumpyBackend(), x)
        wanted = run(params)
        by_hand = _flat(params)
        g = _output_gradient(work, x)
        _assert_equal(wanted, work.in_numpy(by_hand, x, g)[1])
        yield compare(
            f"emitted NumPy / by hand, {work.name}",
            repeated(run, params),
            repeated(work.in_numpy, by_hand, x, g),
            bar=1.1,
            rounds=rounds,
        )
        run, on_torch = _emitted(work, ml.TorchBackend(), x)
        _assert_equal({name: value.numpy() for name, value in run(on_torch).items()}, wanted)
        physical = ml.compile(work.model(), ml.TorchBackend(), shapes={"input": list(work.shape)})
        emitted = physical.as_module(on_torch)
        ours = _module_step(emitted, emitted, torch.from_numpy(x), torch.from_numpy(g))
        module = work.in_torch(_flat(params))
        compiled = _module_step(torch.compile(emitted), emitted, torch.from_numpy(x), torch.from_numpy(g))
        for kind, one in (("PyTorch", module), ("torch.compile", torch.compile(module))):
            theirs = _module_step(one, module, torch.from_numpy(x), torch.from_numpy(g))
            yield compare(
                f"emitted PyTorch / by hand in {kind}, {work.name}",
                repeated(ours if kind == "PyTorch" else compiled),
                repeated(theirs),
                bar=1.05 if kind == "PyTorch" else None,
                rounds=rounds,
            )
        run, in_c = _emitted(work, ml.CBackend(), x)
        _assert_equal(run(in_c), wanted)
        jitted, on_jax = _emitted(work, ml.JaxBackend(), x)
        yield compare(
            f"emitted C / jax.jit, {work.name}",
            repeated(run, in_c),
            repeated(jitted, on_jax),
            bar=work.c_bar,
            rounds=rounds,
        )


def emission_times() -> Iterator[tuple[str, float, float | None]]:
    """Yield seconds and bars for GPT-2 small's forward and backward: emission of NumPy and C, and the compiler."""
    model = GPT(vocabulary=VOCABULARY, context=CONTEXT, layers=LAYERS, heads=HEADS, width=WIDTH)
    physical = ml.compile(model, ml.JaxBackend(), shapes={"input": [1, 64]})
    inspection = physical.inspect("forward+backward")
    since = time.perf_counter()
    program = inspection.traced_program
    traced_s = time.perf_counter() - since
    yield "GPT-2 small, forward and backward: trace", traced_s, None
    since = time.perf_counter()
    file = emit(program)
    yield "GPT-2 small: emit C", time.perf_counter() - since, 2.0
    since = time.perf_counter()
    compiling.load({"model": file.source.text})
    yield "GPT-2 small: compile the C file", time.perf_counter() - since, 60.0


def _emitted(work: Work, backend: Any, x: Any) -> tuple[Callable[[Params], Params], Params]:
    """Return a function from parameters to their gradients on a backend, and parameters for it."""
    physical = ml.compile(work.model(), backend, shapes={"input": list(work.shape)})
    params = physical.randomize_params(0)
    inputs, gradients = ({name: _on(backend, one) for name, one in pair.items()} for pair in (
        {"input": x},
        {"output": _output_gradient(work, x)},
    ))  # fmt: skip

    def run(params: Params) -> Params:
        return physical.evaluate(params, inputs, output_gradients=gradients)[1]

    return run, params


def _source(work: Work, backend: Any, x: Any) -> tuple[Callable[[Params], Params], Params]:
    """Return what `_emitted` returns, but the function of the emitted file itself, without the checks of `evaluate`."""
    physical = ml.compile(work.model(), backend, shapes={"input": list(work.shape)})
    function = load(emit_arrays(physical.inspect("forward+backward").traced_program, backend.name))
    inputs, gradients = {"input": x}, {"output": _output_gradient(work, x)}
    return lambda params: function(params, inputs, gradients)[1], physical.randomize_params(0)


def _on(backend: Any, array: Any) -> Any:
    return jax.numpy.asarray(array) if isinstance(backend, ml.JaxBackend) else backend.from_numpy(array)


def _output_gradient(work: Work, x: Any) -> Any:
    shape = x.shape if len(x.shape) == 3 else (len(x), CLASSES)
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _flat(params: Params) -> Params:
    return {name: np.asarray(value) for name, value in params.items()}


def _assert_equal(ours: Params, theirs: Params) -> None:
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        value = np.asarray(value)
        scale = np.abs(value).max()
        np.testing.assert_allclose(np.asarray(ours[name]) / scale, value / scale, atol=1e-4, err_msg=name)


def _module_step(module: Callable[[Any], Any], owner: Any, x: Any, g: Any) -> Callable[[], Any]:
    import torch

    leaves = list(owner.parameters())

    def step() -> Any:
        return torch.autograd.grad(module(x), leaves, g)

    return step


# By hand, in NumPy


def mlp_in_numpy(params: Params, x: Any, g: Any) -> tuple[Any, Params]:
    """Return the output and the gradients of two Linear blocks with a Relu between them."""
    hidden = x @ params["linear_0.weight"] + params["linear_0.bias"]
    active = np.maximum(hidden, 0)
    output = active @ params["linear_1.weight"] + params["linear_1.bias"]
    d_hidden = np.where(hidden > 0, g @ params["linear_1.weight"].T, 0)
    return output, {
        "linear_0.weight": x.T @ d_hidden,
        "linear_0.bias": d_hidden.sum(0),
        "linear_1.weight": active.T @ g,
        "linear_1.bias": g.sum(0),
    }


def _columns(x: Any) -> Any:
    """Return the 3x3 windows of x as rows: (batch, height, width, features * 9)."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return found.transpose(0, 2, 3, 1, 4, 5).reshape(*x.shape[:1], *x.shape[2:], -1)


def _conv(x: Any, weight: Any) -> tuple[Any, Any]:
    columns = _columns(x)
    return (columns @ weight.reshape(len(weight), -1).T).transpose(0, 3, 1, 2), columns


def _pool(x: Any) -> tuple[Any, Any]:
    batch, features, height, width = x.shape
    tiles = x.reshape(batch, features, height // 2, 2, width // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    tiles = tiles.reshape(*tiles.shape[:4], 4)
    first = tiles.argmax(-1)[..., None]
    return np.take_along_axis(tiles, first, -1)[..., 0], first


def _unpool(g: Any, first: Any) -> Any:
    tiles = np.zeros((*g.shape, 4), g.dtype)
    np.put_along_axis(tiles, first, g[..., None], -1)
    batch, features, height, width = g.shape
    tiles = tiles.reshape(batch, features, height, width, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    return tiles.reshape(batch, features, height * 2, width * 2)


def cnn_in_numpy(params: Params, x: Any, g: Any) -> tuple[Any, Params]:
    """Return the output and the gradients of two 3x3 convolutions with Relu and 2x2 pooling, and a Linear block."""
    found: Params = {}
    kept = []
    for place in range(2):
        weight, bias = params[f"conv2d_{place}.weight"], params[f"conv2d_{place}.bias"]
        hidden, columns = _conv(x, weight)
        hidden = hidden + bias.reshape(1, -1, 1, 1)
        x, first = _pool(np.maximum(hidden, 0))
        kept.append((weight, columns, hidden > 0, first))
    flat = x.reshape(len(x), -1)
    output = flat @ params["linear_0.weight"] + params["linear_0.bias"]
    found |= {"linear_0.weight": flat.T @ g, "linear_0.bias": g.sum(0)}
    g = (g @ params["linear_0.weight"].T).reshape(x.shape)
    for place, (weight, columns, active, first) in reversed(list(enumerate(kept))):
        g = np.where(active, _unpool(g, first), 0)
        rows = g.transpose(0, 2, 3, 1)
        d_weight = np.tensordot(rows, columns, axes=([0, 1, 2], [0, 1, 2]))
        found |= {f"conv2d_{place}.weight": d_weight.reshape(weight.shape), f"conv2d_{place}.bias": g.sum((0, 2, 3))}
        if place:
            g, _ = _conv(g, weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))
    return output, found


def transformer_in_numpy(params: Params, x: Any, g: Any) -> tuple[Any, Params]:
    """Return the output and the gradients of a Transformer block that normalizes first."""
    found: Params = {}

    def linear(name: str, x: Any) -> Any:
        return x @ params[f"{name}.weight"] + params[f"{name}.bias"]

    def linear_gradients(name: str, x: Any, g: Any) -> Any:
        rows, columns = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
        found.update({f"{name}.weight": rows.T @ columns, f"{name}.bias": columns.sum(0)})
        return g @ params[f"{name}.weight"].T

    def norm(name: str, x: Any) -> tuple[Any, Any, Any]:
        centred = x - x.mean(-1, keepdims=True)
        inverse = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        unit = centred * inverse
        return unit * params[f"{name}.weight"] + params[f"{name}.bias"], unit, inverse

    def norm_gradients(name: str, unit: Any, inverse: Any, g: Any) -> Any:
        found.update({f"{name}.weight": (g * unit).sum((0, 1)), f"{name}.bias": g.sum((0, 1))})
        g = g * params[f"{name}.weight"]
        return inverse * (g - g.mean(-1, keepdims=True) - unit * (g * unit).mean(-1, keepdims=True))

    batch, steps, width = x.shape
    size = width // ATTENTION_HEADS

    def heads(x: Any) -> Any:
        return x.reshape(batch, steps, ATTENTION_HEADS, size).transpose(0, 2, 1, 3)

    def merged(x: Any) -> Any:
        return x.transpose(0, 2, 1, 3).reshape(batch, steps, width)

    normed, unit_1, inverse_1 = norm("norm_1", x)
    query, key, value = (heads(one) for one in np.split(linear("attention.qkv", normed), 3, -1))
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(size)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = merged(weights @ value)
    middle = x + linear("attention.out", mixed)
    again, unit_2, inverse_2 = norm("norm_2", middle)
    up = linear("mlp.up", again)
    share = 0.5 * (1 + erf(up / np.float32(math.sqrt(2))))
    active = up * share
    output = middle + linear("mlp.down", active)

    d_active = linear_gradients("mlp.down", active, g)
    density = np.exp(-0.5 * up * up) / np.float32(math.sqrt(2 * math.pi))
    d_again = linear_gradients("mlp.up", again, d_active * (share + up * density))
    d_middle = g + norm_gradients("norm_2", unit_2, inverse_2, d_again)
    d_mixed = heads(linear_gradients("attention.out", mixed, d_middle))
    d_weights = d_mixed @ value.swapaxes(-1, -2)
    d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdims=True)) / math.sqrt(size)
    parts = (d_scores @ key, d_scores.swapaxes(-1, -2) @ query, weights.swapaxes(-1, -2) @ d_mixed)
    d_normed = linear_gradients("attention.qkv", normed, np.concatenate([merged(one) for one in parts], -1))
    norm_gradients("norm_1", unit_1, inverse_1, d_normed)
    return output, found


# By hand, in PyTorch


def _set(module: Any, weight: Any, bias: Any) -> Any:
    """Return a module with these arrays as its parameters."""
    import torch

    module.weight = torch.nn.Parameter(torch.from_numpy(np.ascontiguousarray(weight)))
    module.bias = torch.nn.Parameter(torch.from_numpy(np.array(bias)))
    return module


def _linear(params: Params, name: str) -> Any:
    import torch

    weight = params[f"{name}.weight"]
    return _set(torch.nn.Linear(*weight.shape), weight.T, params[f"{name}.bias"])


def mlp_in_torch(params: Params) -> Any:
    """Return two Linear modules with a ReLU between them."""
    from torch import nn

    return nn.Sequential(_linear(params, "linear_0"), nn.ReLU(), _linear(params, "linear_1"))


def cnn_in_torch(params: Params) -> Any:
    """Return two convolutions with ReLU and pooling, and a Linear module."""
    from torch import nn

    layers: list[Any] = []
    for place in range(2):
        weight = params[f"conv2d_{place}.weight"]
        conv = nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1)
        layers += [_set(conv, weight, params[f"conv2d_{place}.bias"]), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), _linear(params, "linear_0"))


def transformer_in_torch(params: Params) -> Any:
    """Return a Transformer block that normalizes first."""
    import torch
    from torch import nn

    class Block(nn.Module):
        norm_1: Any
        norm_2: Any

        def __init__(self) -> None:
            super().__init__()
            for name in ("norm_1", "norm_2"):
                setattr(self, name, _set(nn.LayerNorm(FEATURES), params[f"{name}.weight"], params[f"{name}.bias"]))
            self.qkv, self.out = _linear(params, "attention.qkv"), _linear(params, "attention.out")
            self.up, self.down = _linear(params, "mlp.up"), _linear(params, "mlp.down")

        def forward(self, x: Any) -> Any:
            batch, steps, width = x.shape
            whole = self.qkv(self.norm_1(x)).reshape(batch, steps, 3, ATTENTION_HEADS, -1).permute(2, 0, 3, 1, 4)
            mixed = torch.nn.functional.scaled_dot_product_attention(*whole)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, steps, width))
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm_2(x))))

    return Block()


WORKS = (
    Work("MLP 64-128-10", lambda: mlp((128, CLASSES)), (BATCH, 64), mlp_in_numpy, mlp_in_torch, 1.0),
    Work("CNN 8-16 on 16x16", lambda: CNN((8, 16), CLASSES), (BATCH, 1, 16, 16), cnn_in_numpy, cnn_in_torch, 2.0),
    Work(
        "Transformer block, 8 times 32 tokens",
        lambda: TransformerBlock(width=FEATURES, heads=ATTENTION_HEADS),
        (8, TIME, FEATURES),
        transformer_in_numpy,
        transformer_in_torch,
        2.0,
    ),
)
