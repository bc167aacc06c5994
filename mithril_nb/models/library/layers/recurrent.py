"""Recurrent blocks that run over all steps of a time axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN_SHAPE,
    Dim,
    Dims,
    Inferred,
    Initializer,
    MismatchError,
    Operator,
    Options,
    PortNames,
    TensorSpec,
)
from mithril_nb.models.shape_inference.dims import agree, differ, is_open, meet, plus, times

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "GRUCell",
    "LSTMCell",
    "LSTMCellBody",
    "RNNCell",
]

# An orthogonal recurrent weight keeps the norm of the state over many steps. Keras and Flax use it too.
WEIGHT, RECURRENT, BIAS = Initializer("lecun_uniform"), Initializer("orthogonal"), Initializer("zeros")
OPEN = Initializer("ones")
"""Initializer of the forget gate's bias: an untrained gate keeps most of the state (Jozefowicz et al., 2015)."""
_OF_LSTM = {"w_c": Initializer("lecun_uniform", scale=2.0), "bias_f": OPEN}
"""An untrained input gate is 0.5 and halves the new cell state, so the weights of the new state are doubled. Without
the factor 2, ten layers in a row would lose nearly all of their input.
"""


def gate_initializers(*factors: float) -> dict[str, Initializer]:
    """Return the initializers of the concatenated gate weights `w_ih` and `w_hh`. `factors` scale `w_ih`, by gate."""
    return {"w_ih": replace(WEIGHT, parts=factors), "w_hh": replace(RECURRENT, parts=(1,) * len(factors))}


class _Cell(Operator):
    # A batch has sequences of different lengths, longest first. If some ended at the previous step, `input` has fewer
    # rows than the previous state. `hidden_compl` contains the other rows of the previous hidden state.

    # Optional, as in Mithril, where the size follows from `prev_hidden`.
    hidden_size: Size | None = None
    output_size: Size | None = None
    use_output: bool = True
    use_complement: bool = True

    category = "Layers"
    states: ClassVar[tuple[str, ...]] = ("hidden",)
    of_output: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the ports. The output map has parameters only if `use_output` is true."""
        more = (("hidden_compl", "use_complement"), ("output", "use_output"))
        # Without an output map there are no parameters that training would leave at their first values.
        unused = () if options["use_output"] else cls.of_output
        return PortNames(
            ("input", *(f"prev_{state}" for state in cls.states)),
            tuple(port for port in cls.initializers if port not in unused),
            (*cls.states, *(port for port, flag in more if options[flag])),
        )

    @classmethod
    def infer(cls, options, inputs):
        """Return the shapes of the outputs: for n rows of input and m rows of state, `hidden_compl` has m - n rows."""
        step = _last("input", inputs["input"])
        # All states have one size. The first that has a number decides.
        size = _size(options["hidden_size"], [("prev_" + state, inputs["prev_" + state]) for state in cls.states])
        shape = inputs["input"].shape
        state = (*shape[:-1], size) if size is not None and shape != UNKNOWN_SHAPE else _only(size)
        # The new state has the rows of the input: sequences that ended are dropped.
        outputs: dict[str, Dims] = dict.fromkeys(cls.states, state)
        for port in cls.states:
            _check_rows(f"prev_{port}", shape, inputs[f"prev_{port}"].shape)
        if options["use_complement"]:
            before = inputs["prev_hidden"].shape
            is_known = size is not None and LEADING not in (shape[0], before[0])
            # For named rows, an expression such as "m-n".
            rest = plus(before[0], times(shape[0], -1)) if is_known else LEADING
            outputs["hidden_compl"] = (rest, *before[1:-1], size) if is_known and size is not None else _only(size)
        declared = options["output_size"]
        # The output can be the next input, so by default it has as many features.
        out = declared if declared is not None else step
        if options["use_output"]:
            outputs["output"] = (*shape[:-1], out) if out is not None and shape != UNKNOWN_SHAPE else _only(out)
        named = "input_size" if step is None else step, "hidden_size" if size is None else size
        return Inferred(outputs, cls.shapes(*named, "input_size" if out is None else out))

    @classmethod
    def shapes(cls, step: Dim, size: Dim, out: Dim) -> Mapping[str, Dims]:
        """Return the shapes of the parameters, by port.

        Args:
            step: Number of features of the input.
            size: Size of the state.
            out: Number of features of the output.
        """
        raise NotImplementedError

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Return the shapes of inputs, as far as they are known, by port.

        The last size of the states is `hidden_size`. If `output_size` is `None`, the last size of `input` is that of
        the output.
        """
        shapes: dict[str, Dims] = {}
        if options["hidden_size"] is not None:
            shapes |= {f"prev_{state}": (LEADING, options["hidden_size"]) for state in cls.states}
        # Only then do input and output have the same number of features.
        if options["output_size"] is None and "output" in outputs and outputs["output"].shape[-1:] != UNKNOWN_SHAPE:
            shapes["input"] = (LEADING, *outputs["output"].shape[-1:])
        return shapes


class RNNCell(_Cell):
    """One step of a simple recurrent network (Elman, 1990), with an affine map from the hidden state to the output.

    Args:
        hidden_size: Size of the hidden state; by default taken from `prev_hidden`.
        output_size: Number of features of the output; by default as many as the input, so that the output can be the
            next input.
        use_output: If true, there is an output `output`.
        use_complement: If true, there is an output `hidden_compl`. For an input with n rows, it contains the rows of
            `prev_hidden` after the first n.

    Examples:
        >>> [port.name for port in RNNCell().outputs]
        ['hidden', 'hidden_compl', 'output']
    """

    op = "rnn_cell"
    formula = "h = tanh(x W_ih + h₋₁ W_hh + b_h), y = h W_ho + b_o"
    of_output = ("w_ho", "bias_o")
    # The order of the keys is the order of the ports, and so of the parameters.
    initializers = {"w_ih": WEIGHT, "w_hh": RECURRENT, "w_ho": WEIGHT, "bias_h": BIAS, "bias_o": BIAS}

    @classmethod
    def shapes(cls, step: Dim, size: Dim, out: Dim) -> Mapping[str, Dims]:
        """Return the shapes of the parameters. A weight is `(in, out)`."""
        return {"w_ih": (step, size), "w_hh": (size, size), "w_ho": (size, out), "bias_h": (size,), "bias_o": (out,)}


class LSTMCell(_Cell):
    """One step of a long short-term memory (Hochreiter and Schmidhuber, 1997).

    Each gate reads the concatenated input and hidden state. The output is an affine map of the hidden state.

    Args:
        hidden_size: Size of the hidden state and of the cell state; by default taken from `prev_hidden`.
        output_size: Number of features of the output; by default as many as the input, so that the output can be the
            next input.
        use_output: If true, there is an output `output`.
        use_complement: If true, there is an output `hidden_compl`. For an input with n rows, it contains the rows of
            `prev_hidden` after the first n.

    Examples:
        >>> [port.name for port in LSTMCell().outputs]
        ['hidden', 'cell', 'hidden_compl', 'output']
    """

    op = "lstm_cell"
    # Separate weights per gate, as in Mithril. `LSTM` below concatenates them, which is one matrix product.
    formula = "c = f c₋₁ + i tanh([x, h₋₁] W_c + b_c), h = o tanh(c), y = h W_out + b_out"
    states = ("hidden", "cell")
    of_output = ("w_out", "bias_out")
    initializers = {
        **dict.fromkeys(("w_i", "w_f", "w_c", "w_o", "w_out"), WEIGHT),
        **dict.fromkeys(("bias_f", "bias_i", "bias_c", "bias_o", "bias_out"), BIAS),
        **_OF_LSTM,
    }

    @classmethod
    def shapes(cls, step: Dim, size: Dim, out: Dim) -> Mapping[str, Dims]:
        """Return the shapes of the parameters. A gate's weight is `(step + size, size)`."""
        return {**_gates(step, size), "w_out": (size, out), "bias_out": (out,)}


class LSTMCellBody(Operator):
    """One step of a long short-term memory, without the output map of `LSTMCell`.

    The output contains the new cell state and the new hidden state, concatenated along the first axis.

    Args:
        hidden_size: Size of the hidden state and of the cell state; by default taken from `prev_hidden`.

    Examples:
        >>> [port.name for port in LSTMCellBody().inputs if port.role == "data"]
        ['input', 'prev_hidden', 'prev_cell']
    """

    hidden_size: Size | None = None

    op = "lstm_cell_body"
    category = "Layers"
    formula = "y = [c, o tanh(c)], c = f c₋₁ + i tanh([x, h₋₁] W_c + b_c)"
    input_ports = ("input", "prev_hidden", "prev_cell")
    initializers = {
        **dict.fromkeys(("w_i", "w_f", "w_c", "w_o"), WEIGHT),
        **dict.fromkeys(("bias_f", "bias_i", "bias_c", "bias_o"), BIAS),
        **_OF_LSTM,
    }

    @classmethod
    def infer(cls, options, inputs):
        """Map states `(n, ..., hidden)` to `(2 n, ..., hidden)`."""
        step, shape = _last("input", inputs["input"]), inputs["input"].shape
        states = [(port, inputs[port]) for port in ("prev_hidden", "prev_cell")]
        size = _size(options["hidden_size"], states)
        for port, spec in states:
            _check_rows(port, shape, spec.shape, may_be_more=False)
        rows = shape[0] if shape else LEADING
        is_known = rows != LEADING and size is not None
        # Concatenated on the first axis, and not stacked, as in Mithril.
        output = (times(rows, 2), *shape[1:-1], size) if is_known and size is not None else _only(size)
        gates = _gates("input_size" if step is None else step, "hidden_size" if size is None else size)
        return Inferred({"output": output}, gates)


class GRUCell(_Cell):
    """One step of a gated recurrent unit (Cho et al., 2014).

    The reset gate multiplies the product of state and weight, and not the state, as in PyTorch.

    Args:
        hidden_size: Size of the hidden state; by default taken from `prev_hidden`.
        output_size: Number of features of the output; by default as many as the input, so that the output can be the
            next input.
        use_output: If true, there is an output `output`, an affine map of the hidden state.
        use_complement: If true, there is an output `hidden_compl`. For an input with n rows, it contains the rows of
            `prev_hidden` after the first n.

    Examples:
        >>> [port.name for port in GRUCell().outputs], [port.name for port in GRUCell(use_output=True).outputs]
        (['hidden'], ['hidden', 'output'])
    """

    hidden_size: Size | None = None
    output_size: Size | None = None
    # The defaults of the cells above are those of Mithril. A plain cell returns its state only.
    use_output: bool = False
    use_complement: bool = False

    op = "gru_cell"
    formula = "n = tanh(x W_n + r (h₋₁ U_n + b_n)), h = n + z (h₋₁ - n)"
    of_output = ("w_out", "bias_out")
    initializers = {
        **gate_initializers(1, 1, 2),
        "bias": BIAS,
        "bias_n": BIAS,
        "w_out": WEIGHT,
        "bias_out": BIAS,
    }

    @classmethod
    def shapes(cls, step: Dim, size: Dim, out: Dim) -> Mapping[str, Dims]:
        """Return the shapes of the parameters. The three gates are concatenated along the last axis."""
        return {**gate_shapes(step, size, 3), "bias_n": (size,), "w_out": (size, out), "bias_out": (out,)}


def _last(port: str, spec: TensorSpec) -> Dim | None:
    # A scalar has no last axis; the check below refuses it like a vector.
    *rest, last = spec.shape or (None,)
    if not rest and last != LEADING:
        need = "(batch, ..., features)"
        raise MismatchError(port, need, "use an array with at least 2 axes.", f"rank {len(spec.shape)}")
    return None if last == LEADING else last


def _only(size: Dim | None) -> Dims:
    return UNKNOWN_SHAPE if size is None else (LEADING, size)


def _size(hidden: Dim | None, states: list[tuple[str, TensorSpec]]) -> Dim | None:
    first = "hidden_size"
    for port, spec in states:
        size = _last(port, spec)
        if hidden is None:
            first, hidden = port, size
        # `prev_cell` must have the size of `prev_hidden`, and both that of the attribute.
        elif differ(size, hidden):
            need = f"(..., {hidden}), like {first}"
            detail = f"axis {len(spec.shape) - 1}: {size} != {hidden}"
            raise MismatchError(port, need, f"use {hidden} as the last size of {port}.", detail)
    return hidden


def _check_rows(port: str, shape: Dims, state: Dims, *, may_be_more: bool = True) -> None:
    """Raise a `MismatchError` if the leading sizes of the input and of the state at `port` differ."""
    if LEADING in (*shape[:1], *state[:1]):
        return
    rows, state_rows = shape[:1], state[:1]
    # Rows beyond those of the input belong to sequences that have ended. Named rows may turn out to be more.
    more = may_be_more and isinstance(state_rows[0], int) and isinstance(rows[0], int) and state_rows[0] > rows[0]
    if not agree(state[:-1], (*state_rows, *shape[1:-1]) if more else shape[:-1]):
        need = f"{shape[:-1]} as the leading sizes, like the input" + (", or more rows" if may_be_more else "")
        raise MismatchError(port, need, "use one state for each row of the input.", f"{state[:-1]}")


def _gates(step: Dim, size: Dim) -> dict[str, Dims]:
    # Each gate reads [x, h], so the sizes of both are added.
    weights = dict.fromkeys(("w_i", "w_f", "w_c", "w_o"), (plus(step, size), size))
    return {**weights, **dict.fromkeys(("bias_f", "bias_i", "bias_c", "bias_o"), (size,))}


def gate_shapes(step: Dim, size: Dim, count: int) -> dict[str, Dims]:
    """Return the shapes of the concatenated weights and biases of `count` gates, by port."""
    return {"w_ih": (step, times(size, count)), "w_hh": (size, times(size, count)), "bias": (times(size, count),)}


class _Recurrent(Operator):
    hidden_size: Size
    return_sequence: bool = True
    return_state: bool = False
    use_initial_state: bool = False
    # The order of the result is not reversed: step t of the output belongs to step t of the input.
    is_reversed: bool = False
    use_bias: bool = True

    category = "Layers"
    states: ClassVar[tuple[str, ...]] = ("hidden",)
    gates: ClassVar[int] = 1
    initializers = {"w_ih": WEIGHT, "w_hh": RECURRENT, "bias": BIAS}

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the ports. Each parameter concatenates those of all gates."""
        return PortNames(
            ("input", *(f"initial_{state}" for state in cls.states if options["use_initial_state"])),
            # `GRU` has a second bias inside the reset gate, as in cuDNN, PyTorch and Keras (reset_after).
            tuple(port for port in cls.initializers if options["use_bias"] or not port.startswith("bias")),
            ("output", *(cls.states if options["return_state"] else ())),
        )

    @classmethod
    def infer(cls, options, inputs):
        """Map `(..., time, in)` to `(..., time, hidden)`, or to `(..., hidden)` without `return_sequence`."""
        shape, size = inputs["input"].shape, options["hidden_size"]
        unknown = is_open(shape)
        if len(shape) < 2 and not unknown:
            need = "(..., time, features)"
            raise MismatchError("input", need, "use an array with at least 2 axes.", f"rank {len(shape)}")
        # A state has no time axis. An open shape of one known axis does not show where it is.
        state = (*shape[:-2], size) if not unknown or len(shape) > 2 else (LEADING, size)
        for port in cls.ports(options).inputs[1:]:
            if meet(inputs[port].shape, state, {}) is None:
                advice = "connect the final state of another recurrent block, or leave use_initial_state out."
                raise MismatchError(port, str(state), advice, str(inputs[port].shape))
        output = (*shape[:-1], size) if shape != UNKNOWN_SHAPE else (LEADING, size)
        step: Dim = "input_size" if shape == UNKNOWN_SHAPE else tuple(shape)[-1]
        return Inferred(
            {"output": output if options["return_sequence"] else state, **dict.fromkeys(cls.states, state)},
            {**gate_shapes(step, size, cls.gates), "bias_n": (size,)},
        )

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the last size of each initial state: it is `hidden_size`."""
        return dict.fromkeys(cls.ports(options).inputs[1:], (LEADING, options["hidden_size"]))


class RNN(_Recurrent):
    """A simple recurrent network over the time steps of `(..., time, features)` (Elman, 1990).

    Args:
        hidden_size: Size of the hidden state.
        return_sequence: If true, `output` contains the hidden states of all steps; if false, that of the last step.
        return_state: If true, the last hidden state is also an output `hidden`.
        use_initial_state: If true, there is an input `initial_hidden`; else the initial state is zero.
        is_reversed: If true, run from the last step to the first.
        use_bias: If true, add a bias.

    Examples:
        >>> [port.name for port in RNN(32).inputs]
        ['input', 'w_ih', 'w_hh', 'bias']
    """

    op = "rnn"
    formula = "h[t] = tanh(x[t] W_ih + h[t-1] W_hh + b)"


class LSTM(_Recurrent):
    """Long short-term memory over the time steps of `(..., time, features)` (Hochreiter and Schmidhuber, 1997).

    Each weight concatenates the weights of the gates in the order input, forget, cell, output, as in Equinox and
    PyTorch.

    Args:
        hidden_size: Size of the hidden state and of the cell state.
        return_sequence: If true, `output` contains the hidden states of all steps; if false, that of the last step.
        return_state: If true, the last hidden state and cell state are also outputs `hidden` and `cell`.
        use_initial_state: If true, there are inputs `initial_hidden` and `initial_cell`; else both states are zero.
        is_reversed: If true, run from the last step to the first.
        use_bias: If true, add a bias.

    Examples:
        >>> [port.name for port in LSTM(32, return_state=True).outputs]
        ['output', 'hidden', 'cell']
    """

    op = "lstm"
    formula = "c[t] = f c[t-1] + i g, h[t] = o tanh(c[t])"
    states = ("hidden", "cell")
    gates = 4
    initializers = {**gate_initializers(1, 1, 2, 1), "bias": replace(OPEN, parts=(0, 1, 0, 0))}


class GRU(_Recurrent):
    """A gated recurrent unit over the time steps of `(..., time, features)` (Cho et al., 2014).

    As in Equinox and PyTorch, the reset gate multiplies the product of state and weight, and not the state. Each weight
    concatenates the weights of the gates in the order reset, update, new state.

    Args:
        hidden_size: Size of the hidden state.
        return_sequence: If true, `output` contains the hidden states of all steps; if false, that of the last step.
        return_state: If true, the last hidden state is also an output `hidden`.
        use_initial_state: If true, there is an input `initial_hidden`; else the initial state is zero.
        is_reversed: If true, run from the last step to the first.
        use_bias: If true, add biases.

    Examples:
        >>> [port.name for port in GRU(32).inputs]
        ['input', 'w_ih', 'w_hh', 'bias', 'bias_n']
    """

    op = "gru"
    formula = "h[t] = n + z (h[t-1] - n), n = tanh(x W_n + r (h[t-1] U_n + b_n))"
    gates = 3
    initializers = {**gate_initializers(1, 1, 2), "bias": BIAS, "bias_n": BIAS}
