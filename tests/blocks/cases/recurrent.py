"""Blocks of `models/library/layers/recurrent.py`: cells compared with NumPy, whole sequences with a loop of cells."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from scipy.special import expit

from mithril_nb.models import GRU, LSTM, RNN, GRUCell, LSTMCell, LSTMCellBody, Model, RNNCell
from tests.blocks.case import Arrays, Case, Draw, Drawn, arrays, few

Step = Callable[..., tuple[np.ndarray, ...]]
"""A function of params, an input and states. It returns the next states."""


def _cell(block: type[Model], *states: str):
    """Return a function that draws a cell; its state may have more rows than its input."""

    def draw_one(draw: Draw) -> Drawn:
        size, rows = draw(few), draw(st.integers(0, 3))
        middle = draw(st.sampled_from(((), (1,), (2,))))
        output_size = draw(st.sampled_from((None, 2)))
        use_output, use_complement = draw(st.booleans()), draw(st.booleans())
        says = draw(st.booleans())
        made = block(size if says else None, output_size, use_output, use_complement)
        # The harness gives axes of one size one name, so axes that a rule distinguishes have one size here:
        # test_sequences has the others.
        more = 0 if use_complement else draw(st.integers(0, 2))
        inputs = {"input": draw(arrays((rows, *middle, size if says else draw(few))))}
        return made, inputs | {f"prev_{state}": draw(arrays((rows + more, *middle, size))) for state in states}

    return draw_one


def _step_of(step: Step, weight: str, bias: str) -> Callable[[Model, Arrays, Arrays], Arrays]:
    """Return the reference of a cell: it steps the rows that its input has, and returns the others."""

    def reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
        x, *states = inputs.values()
        outputs = dict(zip(("hidden", "cell"), step(params, x, *(state[: len(x)] for state in states)), strict=False))
        rest = {"hidden_compl": inputs["prev_hidden"][len(x) :]} if model.options["use_complement"] else {}
        out = {"output": outputs["hidden"] @ params[weight] + params[bias]} if model.options["use_output"] else {}
        return outputs | rest | out

    return reference


def rnn_cell_step(params: Arrays, x: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray]:
    """Return one step of `RNNCell`."""
    return (np.tanh(x @ params["w_ih"] + hidden @ params["w_hh"] + params["bias_h"]),)


def _lstm_gates(params: Arrays, x: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    both = np.concatenate((x, hidden), -1)
    gate = {name: both @ params[f"w_{name}"] + params[f"bias_{name}"] for name in "ifco"}
    cell = expit(gate["f"]) * cell + expit(gate["i"]) * np.tanh(gate["c"])
    return expit(gate["o"]) * np.tanh(cell), cell


def _lstm_cell_body(draw: Draw) -> Drawn:
    size, lead = draw(few), (draw(st.integers(0, 3)), *draw(st.sampled_from(((), (1,), (2,)))))
    inputs = {"input": draw(arrays((*lead, draw(few))))}
    return LSTMCellBody(), inputs | {port: draw(arrays((*lead, size))) for port in ("prev_hidden", "prev_cell")}


def _lstm_cell_body_reference(params: Arrays, inputs: Arrays) -> np.ndarray:
    return np.concatenate(_lstm_gates(params, *inputs.values())[::-1], 0)


def _over_time(block: type[Model], *states: str):
    def draw_one(draw: Draw) -> Drawn:
        lead = draw(st.sampled_from(((), (2,), (1, 2), (0,))))
        size, starts = draw(few), draw(st.booleans())
        made = block(size, draw(st.booleans()), draw(st.booleans()), starts, draw(st.booleans()), draw(st.booleans()))
        times = size if starts else draw(st.integers(0, 4))
        inputs = {"input": draw(arrays((*lead, times, draw(few))))}
        if starts:
            inputs |= {f"initial_{state}": draw(arrays((*lead, size))) for state in states}
        return made, inputs

    return draw_one


def rnn_step(params: Arrays, x: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray]:
    """Return one step of `RNN`."""
    return (np.tanh(x @ params["w_ih"] + hidden @ params["w_hh"] + params.get("bias", 0)),)


def lstm_step(params: Arrays, x: np.ndarray, hidden: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return one step of `LSTM`."""
    gates = np.split(x @ params["w_ih"] + hidden @ params["w_hh"] + params.get("bias", 0), 4, -1)
    cell = expit(gates[1]) * cell + expit(gates[0]) * np.tanh(gates[2])
    return expit(gates[3]) * np.tanh(cell), cell


def gru_step(params: Arrays, x: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray]:
    """Return one step of `GRU`."""
    size = hidden.shape[-1]
    ours, theirs = x @ params["w_ih"] + params.get("bias", 0), hidden @ params["w_hh"]
    reset, update = (expit((ours + theirs)[..., at * size : (at + 1) * size]) for at in range(2))
    new = np.tanh(ours[..., 2 * size :] + reset * (theirs[..., 2 * size :] + params.get("bias_n", 0)))
    return ((1 - update) * new + update * hidden,)


def _loop_of(step: Step, *states: str) -> Callable[[Model, Arrays, Arrays], Arrays]:
    def reference(model: Model, params: Arrays, inputs: Arrays) -> Arrays:
        x, size = inputs["input"], model.options["hidden_size"]
        now = tuple(inputs.get(f"initial_{state}", np.zeros((*x.shape[:-2], size))) for state in states)
        output = np.zeros((*x.shape[:-1], size))
        times = range(x.shape[-2])
        for t in reversed(times) if model.options["is_reversed"] else times:
            now = step(params, x[..., t, :], *now)
            output[..., t, :] = now[0]
        outputs = {"output": output if model.options["return_sequence"] else now[0]}
        return outputs | (dict(zip(states, now, strict=True)) if model.options["return_state"] else {})

    return reference


rnn_cell = _step_of(rnn_cell_step, "w_ho", "bias_o")
CASES = [
    Case("RNNCell", _cell(RNNCell, "hidden"), rnn_cell),
    Case("GRUCell", _cell(GRUCell, "hidden"), _step_of(gru_step, "w_out", "bias_out")),
    Case("LSTMCell", _cell(LSTMCell, "hidden", "cell"), _step_of(_lstm_gates, "w_out", "bias_out")),
    Case("LSTMCellBody", _lstm_cell_body, _lstm_cell_body_reference),
    Case("RNN", _over_time(RNN, "hidden"), _loop_of(rnn_step, "hidden")),
    Case("LSTM", _over_time(LSTM, "hidden", "cell"), _loop_of(lstm_step, "hidden", "cell")),
    Case("GRU", _over_time(GRU, "hidden"), _loop_of(gru_step, "hidden")),
]
