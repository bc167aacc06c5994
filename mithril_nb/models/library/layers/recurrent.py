"""Recurrent blocks that run over all steps of a time axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.fields import as_int
from mithril_nb.models.library.layers.recurrent_cells import (
    BIAS,
    OPEN,
    RECURRENT,
    WEIGHT,
    gate_initializers,
    gate_shapes,
)
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.op import Inferred, Operator, Options, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, meet

__all__ = ["GRU", "LSTM", "RNN"]


class _Recurrent(Operator):
    """Base of the blocks that run over all steps of `(..., time, features)`."""

    category = "Layers"
    states: ClassVar[tuple[str, ...]] = ("hidden",)
    gates: ClassVar[int] = 1
    initializers: ClassVar = {"w_ih": WEIGHT, "w_hh": RECURRENT, "bias": BIAS}

    def __init__(
        self,
        hidden_size: Size,
        return_sequence: bool = True,
        return_state: bool = False,
        use_initial_state: bool = False,
        is_reversed: bool = False,
        use_bias: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            name,
            hidden_size=hidden_size,
            return_sequence=return_sequence,
            return_state=return_state,
            use_initial_state=use_initial_state,
            is_reversed=is_reversed,
            use_bias=use_bias,
        )

    @classmethod
    def data_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the data inputs. They include the initial states if `use_initial_state` is true."""
        return ("input", *(f"initial_{state}" for state in cls.states if options["use_initial_state"]))

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the parameters. Each parameter concatenates those of all gates."""
        return tuple(port for port in cls.initializers if options["use_bias"] or not port.startswith("bias"))

    @classmethod
    def result_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the outputs. They include the final states if `return_state` is true."""
        return ("output", *(cls.states if options["return_state"] else ()))

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(..., time, in)` to `(..., time, hidden)`, or to `(..., hidden)` without `return_sequence`."""
        shape, size = inputs["input"].shape, as_int(options["hidden_size"])
        unknown = shape[:1] == (LEADING,)
        if len(shape) < 2 and not unknown:
            need = "(..., time, features)"
            raise MismatchError("input", need, "use an array with at least 2 axes.", f"rank {len(shape)}")
        state = (*shape[:-2], size) if not unknown or len(shape) > 2 else (LEADING, size)
        for port in cls.data_ports(options)[1:]:
            if meet(inputs[port].shape, state, {}) is None:
                advice = "connect the final state of another recurrent block, or leave use_initial_state out."
                raise MismatchError(port, str(state), advice, str(inputs[port].shape))
        output = (*shape[:-1], size) if shape != (LEADING,) else (LEADING, size)
        step: Dim = "input_size" if shape == (LEADING,) else tuple(shape)[-1]
        params = {**gate_shapes(step, size, cls.gates), "bias_n": (size,)}
        return Inferred(
            {"output": output if options["return_sequence"] else state, **dict.fromkeys(cls.states, state)},
            {port: params[port] for port in cls.param_ports(options)},
        )

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Mapping[str, tuple[Dim, ...]]:
        """Infer the last size of each initial state: it is `hidden_size`."""
        return dict.fromkeys(cls.data_ports(options)[1:], (LEADING, as_int(options["hidden_size"])))


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
    states: ClassVar = ("hidden", "cell")
    gates = 4
    initializers: ClassVar = {**gate_initializers(1, 1, 2, 1), "bias": replace(OPEN, parts=(0, 1, 0, 0))}


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
    initializers: ClassVar = {**gate_initializers(1, 1, 2), "bias": BIAS, "bias_n": BIAS}
