"""Blocks of `models/library/networks`: transformers and unrolled cells, rewritten in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from mithril_nb.models import GPT, FeedForward, Model, SwiGLU, TransformerBlock, TransformerEncoder, Unembedding
from mithril_nb.models.library.networks.sequences import RowsLike
from tests.blocks.case import Arrays, Case, Draw, Drawn, arrays
from tests.blocks.cases.attention import multi_head_attention
from tests.blocks.cases.elementwise import gelu, gelu_tanh, relu, silu

few = st.integers(1, 3)


def inside(params: Arrays, name: str) -> Arrays:
    """Return the params of an inner block, by their inner names."""
    return {key.removeprefix(f"{name}."): value for key, value in params.items() if key.startswith(f"{name}.")}


def linear(params: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    """Return the affine map of an inner block."""
    return x @ params[f"{name}.weight"] + params.get(f"{name}.bias", 0)


def norm(params: Arrays, name: str, x: np.ndarray, kind: str = "layer") -> np.ndarray:
    """Return the norm of an inner block."""
    centered, eps = (x - x.mean(-1, keepdims=True), 1e-5) if kind == "layer" else (x, 1e-6)
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + eps)
    return scaled * params[f"{name}.weight"] + params.get(f"{name}.bias", 0)


ACTIVATIONS: dict[str, Any] = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh}


def feed_forward(params: Arrays, x: np.ndarray, activation: str) -> np.ndarray:
    """Return the result of `FeedForward` or `SwiGLU`."""
    if activation == "swiglu":
        return linear(params, "down", silu(linear(params, "gate", x)) * linear(params, "up", x))
    return linear(params, "down", ACTIVATIONS[activation](linear(params, "up", x)))


def block(options: Any, params: Arrays, x: np.ndarray, inputs: Arrays) -> np.ndarray:
    """Return the result of `TransformerBlock`."""
    attention = {**options, "is_cross": False}

    class Options:
        options = attention

    def attend(x: np.ndarray) -> np.ndarray:
        return multi_head_attention(Options(), inside(params, "attention"), {**inputs, "input": x})  # pyright: ignore

    def map_each(x: np.ndarray) -> np.ndarray:
        return feed_forward(inside(params, "mlp"), x, options["activation"])

    for number, part in enumerate((attend, map_each), start=1):
        if options["norm_first"]:
            x = x + part(norm(params, f"norm_{number}", x, options["norm"]))
        else:
            x = norm(params, f"norm_{number}", x + part(x), options["norm"])
    return x


def _block(draw: Draw, **more: Any) -> tuple[dict[str, Any], Arrays]:
    heads = draw(st.integers(1, 2))
    width, times, batch = 2 * heads * draw(st.integers(1, 2)), draw(few), draw(few)
    settings = {
        "width": width,
        "heads": heads,
        "hidden_size": draw(st.sampled_from((None, 3))),
        "activation": draw(st.sampled_from(("gelu", "gelu_tanh", "relu", "swiglu"))),
        "is_causal": draw(st.booleans()),
        "norm": draw(st.sampled_from(("layer", "rms"))),
        "norm_first": draw(st.booleans()),
        "use_rotary": draw(st.booleans()),
        "use_bias": draw(st.booleans()),
        "use_lengths": True,
    }
    lengths = draw(st.lists(st.integers(1, times), min_size=batch, max_size=batch))
    return settings, {"input": draw(arrays((batch, times, width))), "lengths": np.asarray(lengths)}


def _transformer_block(draw: Draw) -> Drawn:
    settings, inputs = _block(draw)
    return TransformerBlock(**settings), inputs


def _transformer_encoder(draw: Draw) -> Drawn:
    settings, inputs = _block(draw)
    return TransformerEncoder(2, **settings), inputs


def _transformer_encoder_reference(model: Model, params: Arrays, input: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    x = input
    for number in range(2):
        x = block(model.options, inside(params, f"block_{number}"), x, {"lengths": lengths})
    return norm(params, "norm", x, model.options["norm"]) if model.options["norm_first"] else x


def _gpt(draw: Draw) -> Drawn:
    times = draw(st.integers(1, 5))
    tokens = np.asarray(draw(st.lists(st.integers(0, 6), min_size=2 * times, max_size=2 * times))).reshape(2, times)
    return GPT(7, 5, 2, 2, 8, is_tied=draw(st.booleans())), {"input": tokens}


def _gpt_reference(params: Arrays, input: np.ndarray, is_tied: bool) -> np.ndarray:
    rows = params["embedding" if is_tied else "tokens.weight"]
    x = rows[input] + params["positions.weight"][: input.shape[1]]
    options = {"heads": 2, "kv_heads": None, "is_causal": True, "use_rotary": False, "activation": "gelu_tanh"}
    for number in range(2):
        x = block({**options, "norm": "layer", "norm_first": True}, inside(params, f"block_{number}"), x, {})
    return norm(params, "norm", x) @ (rows.T if is_tied else params["head.weight"])


def _feed_forward(draw: Draw) -> Drawn:
    width = draw(few)
    made = FeedForward(width, draw(st.sampled_from((None, 5))), draw(st.sampled_from(sorted(ACTIVATIONS))))
    return made, {"input": draw(arrays((draw(few), width)))}


def _swiglu(draw: Draw) -> Drawn:
    width = draw(few)
    return SwiGLU(width, draw(st.sampled_from((None, 5))), draw(st.booleans())), {"input": draw(arrays((2, width)))}


def _unembedding(draw: Draw) -> Drawn:
    lead = draw(st.sampled_from(((), (2,), (2, 0))))
    return Unembedding(draw(few)), {"input": draw(arrays((*lead, draw(few))))}


def _rows_like(draw: Draw) -> Drawn:
    rows = draw(st.integers(0, 3))
    # The harness gives first axes one name: test_sequences tests other names.
    return RowsLike(), {
        "input": draw(arrays((rows, *draw(st.sampled_from(((), (2,))))))),
        "like": draw(arrays((rows,))),
    }


CASES = [
    Case(
        "TransformerBlock",
        _transformer_block,
        lambda model, params, input, lengths: block(model.options, params, input, {"lengths": lengths}),
    ),
    Case("TransformerEncoder", _transformer_encoder, _transformer_encoder_reference),
    # The scores are sums of values that five norms have scaled up: error of at most 8e-6 in 60 examples.
    Case("GPT", _gpt, _gpt_reference, tolerance=3e-5),
    Case("FeedForward", _feed_forward, lambda params, input, activation: feed_forward(params, input, activation)),
    Case("SwiGLU", _swiglu, lambda params, input: feed_forward(params, input, "swiglu")),
    Case("Unembedding", _unembedding, lambda input, weight: input @ weight.T),
    Case("RowsLike", _rows_like, lambda input, like: input[: len(like)]),
]
