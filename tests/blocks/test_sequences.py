"""Unrolled cells on sequences of several lengths, and bidirectional recurrence."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.models import GRU, LSTM, RNN, GRUCell, LSTMCell, Model, RNNCell
from mithril_nb.models.library.networks.sequences import (
    Bidirectional,
    EncoderDecoder,
    EncoderDecoderInference,
    ManyToOne,
    OneToMany,
    OneToManyInference,
)
from tests.blocks.cases.recurrent import rnn_cell

random = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return random.normal(size=shape).astype("float32")


def evaluated(model: Model, **inputs: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return outputs, and the params that computed them."""
    pm = ml.compile(model, shapes={name: list(array.shape) for name, array in inputs.items()})
    params = pm.randomize_params(0)
    found = pm.evaluate(params, {name: jnp.asarray(array) for name, array in inputs.items()})
    return {k: np.asarray(v) for k, v in found.items()}, {k: np.asarray(v) for k, v in params.items()}


def step(params: dict[str, np.ndarray], x: np.ndarray, hidden: np.ndarray) -> dict[str, np.ndarray]:
    return rnn_cell(RNNCell(), params, {"input": x, "prev_hidden": hidden})


@pytest.mark.parametrize("teacher_forcing", [False, True])
def test_one_to_many_continues_with_the_remaining_sequences(teacher_forcing: bool):
    x, start = drawn(4, 1, 3), drawn(4, 1, 5)
    targets = {f"target{t}": drawn(rows, 1, 3) for t, rows in enumerate((4, 3, 1)) if t or teacher_forcing}
    found, params = evaluated(OneToMany(RNNCell(), 3, teacher_forcing), input=x, initial_hidden=start, **targets)
    expected = [step(params, x, start)]
    for t, rows in ((1, 3), (2, 1)):
        fed = targets[f"target{t - 1}"] if teacher_forcing else expected[-1]["output"]
        expected.append(step(params, fed[:rows], expected[-1]["hidden"]))
    for t, one in enumerate(expected):
        np.testing.assert_allclose(found[f"output{t}"], one["output"], 1e-5, 1e-6)
    np.testing.assert_allclose(found["hidden"], expected[-1]["hidden"], 1e-5, 1e-6)
    assert sorted(params) == ["bias_h", "bias_o", "w_hh", "w_ho", "w_ih"]


def test_one_to_many_in_inference_feeds_itself():
    x, start = drawn(2, 1, 3), drawn(2, 1, 5)
    found, params = evaluated(OneToManyInference(RNNCell(), 4), input=x, initial_hidden=start)
    for t in range(4):
        one = step(params, x, start)
        np.testing.assert_allclose(found[f"output{t}"], one["output"], 1e-5, 1e-6)
        x, start = one["output"], one["hidden"]


def test_many_to_one_collects_final_states():
    inputs = {f"input{t}": drawn(rows, 1, 3) for t, rows in enumerate((5, 3, 3, 1))}
    found, params = evaluated(ManyToOne(RNNCell(), 4), initial_hidden=drawn(5, 1, 2) * 0, **inputs)
    for row, length in enumerate((4, 3, 3, 1, 1)):
        hidden = np.zeros((1, 1, 2), "float32")
        for t in range(length):
            hidden = step(params, inputs[f"input{t}"][row : row + 1], hidden)["hidden"]
        np.testing.assert_allclose(found["hidden_concat"][row : row + 1], hidden, 1e-5, 1e-6)


@pytest.mark.parametrize("cell", [RNNCell(), LSTMCell(), GRUCell()], ids=lambda cell: cell.kind)
def test_the_decoder_starts_from_the_encoders_final_state(cell: Model):
    order = np.asarray([2, 0, 1], "int32")
    inputs = {f"input{t}": drawn(rows, 1, 3) for t, rows in enumerate((3, 2))}
    decoded = {"decoder_input": drawn(3, 1, 3), "target1": drawn(2, 1, 3)}
    cells = {"initial_cell": drawn(3, 1, 4), "decoder_initial_cell": drawn(3, 1, 4)} if cell.kind == "LSTMCell" else {}
    start = {"initial_hidden": drawn(3, 1, 4), "indices": order}
    found, params = evaluated(EncoderDecoder(cell, 2, 2), **inputs, **start, **decoded, **cells)
    encoder = {key: value for key, value in params.items() if not key.startswith("decoder_")}
    decoder = {key.removeprefix("decoder_"): value for key, value in params.items() if key.startswith("decoder_")}
    first = {k: v for k, v in cells.items() if k == "initial_cell"}
    pm = ml.compile(
        ManyToOne(cell, 2),
        shapes={k: list(v.shape) for k, v in (inputs | first | {"initial_hidden": start["initial_hidden"]}).items()},
    )
    own = {**{p.name: jnp.zeros(p.spec.shape) for p in pm.parameters}, **encoder}
    ended = pm.evaluate(own, {**inputs, **first, "initial_hidden": start["initial_hidden"]})["hidden_concat"]
    second = {"initial_cell": cells["decoder_initial_cell"]} if cells else {}
    given = {"input": decoded["decoder_input"], "target1": decoded["target1"], "initial_hidden": ended[order], **second}
    pm = ml.compile(OneToMany(cell, 2), shapes={k: list(v.shape) for k, v in given.items()})
    expected = pm.evaluate(decoder, given)
    for name in ("output0", "output1"):
        np.testing.assert_allclose(found[name], expected[name], 1e-5, 1e-6)
    assert "w_ho" not in encoder
    assert "w_out" not in encoder


def test_encoder_decoder_inference_has_an_output_per_step():
    model = EncoderDecoderInference(RNNCell(), 2, 3)
    inputs = {f"input{t}": drawn(rows, 1, 3) for t, rows in enumerate((3, 2))}
    more = {"initial_hidden": drawn(3, 1, 4), "indices": np.arange(3, dtype="int32"), "decoder_input": drawn(3, 1, 3)}
    found, _ = evaluated(model, **inputs, **more)
    assert {name: array.shape for name, array in found.items()} == {
        "output0": (3, 1, 3),
        "output1": (3, 1, 3),
        "output2": (3, 1, 3),
        "hidden": (3, 1, 4),
    }


@pytest.mark.parametrize("kind", [RNN, LSTM, GRU])
@pytest.mark.parametrize("sequence", [True, False])
def test_bidirectional_runs_one_block_per_direction(kind: type[Model], sequence: bool):
    x = drawn(2, 5, 3)
    found, params = evaluated(Bidirectional(kind(4, return_sequence=sequence)), input=x)
    summed, _ = evaluated(Bidirectional(kind(4, return_sequence=sequence), merge="sum"), input=x)
    parts = []
    for way, given in (("forward", x), ("backward", x[:, ::-1])):
        pm = ml.compile(kind(4, return_sequence=sequence), shapes={"input": [2, 5, 3]})
        own = {key.removeprefix(f"{way}."): value for key, value in params.items() if key.startswith(way)}
        out = np.asarray(pm.evaluate(own, {"input": given})["output"])
        parts.append(out[:, ::-1] if way == "backward" and sequence else out)
    np.testing.assert_allclose(found["output"], np.concatenate(parts, -1), 1e-5, 1e-6)
    np.testing.assert_allclose(summed["output"], parts[0] + parts[1], 1e-5, 1e-6)


def test_the_complement_has_the_omitted_rows():
    found, _ = evaluated(RNNCell(), input=drawn(2, 1, 3), prev_hidden=(before := drawn(5, 1, 4)))
    assert found["hidden"].shape == (2, 1, 4)
    np.testing.assert_array_equal(found["hidden_compl"], before[2:])
