"""Recurrent cells, which run one step, and the gates that all recurrent blocks share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.fields import whole
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.op import Inferred, Initializer, Operator, Options, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, agree, plus, times

__all__ = ["GRUCell", "LSTMCell", "LSTMCellBody", "RNNCell"]

WEIGHT, RECURRENT, BIAS = Initializer("lecun_uniform"), Initializer("orthogonal"), Initializer("zeros")
OPEN = Initializer("ones")
"""Bias of the forget gate, so that it initially keeps most of the state (Jozefowicz, Zaremba and Sutskever, 2015)."""
_OF_LSTM = {"w_c": Initializer("lecun_uniform", scale=2.0), "bias_f": OPEN}
"""Gates start half open. Doubling their input compensates, or ten layers would lose nearly all of it."""


def row(*factors: float) -> dict[str, Initializer]:
    """Return the initializer of concatenated gate weights, given a factor for each gate's input weights."""
    return {"w_ih": replace(WEIGHT, parts=factors), "w_hh": replace(RECURRENT, parts=(1,) * len(factors))}


class _Cell(Operator):
    """Base of the cells: maps the `input` of one step and the previous state to the next state.

    A batch contains sequences of different lengths, longest first, so a step may have fewer rows than the step before.
    The omitted rows are `hidden_compl`.
    """

    category = "Layers"
    states: ClassVar[tuple[str, ...]] = ("hidden",)
    of_output: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        hidden_size: Size | None = None,
        output_size: Size | None = None,
        use_output: bool = True,
        use_complement: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            name,
            hidden_size=hidden_size,
            output_size=output_size,
            use_output=use_output,
            use_complement=use_complement,
        )

    @classmethod
    def data_ports(cls, options: Options) -> tuple[str, ...]:
        """Return `input`, and the previous state: `prev_hidden` and others."""
        return ("input", *(f"prev_{state}" for state in cls.states))

    @classmethod
    def result_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the states, then the used ones of `hidden_compl` and `output`."""
        more = (("hidden_compl", "use_complement"), ("output", "use_output"))
        return (*cls.states, *(port for port, flag in more if options[flag]))

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(n, ..., in)` and `(m, ..., hidden)` to `(n, ..., hidden)` and `(m - n, ..., hidden)`."""
        step = _last("input", inputs["input"])
        size = _size(options["hidden_size"], [("prev_" + state, inputs["prev_" + state]) for state in cls.states])
        shape = inputs["input"].shape
        state = (*shape[:-1], size) if size is not None and shape != (LEADING,) else _only(size)
        outputs: dict[str, tuple[Dim, ...]] = dict.fromkeys(cls.states, state)
        for port in cls.states:
            _check_rows(f"prev_{port}", shape, inputs[f"prev_{port}"].shape)
        if options["use_complement"]:
            before = inputs["prev_hidden"].shape
            known = size is not None and LEADING not in (shape[0], before[0])
            rest = plus(before[0], times(shape[0], -1)) if known else LEADING
            outputs["hidden_compl"] = (rest, *before[1:-1], size) if known and size is not None else _only(size)
        wanted = options["output_size"]
        out = whole(wanted) if wanted is not None else step
        if options["use_output"]:
            outputs["output"] = (*shape[:-1], out) if out is not None and shape != (LEADING,) else _only(out)
        named = "input_size" if step is None else step, "hidden_size" if size is None else size
        params = cls.shapes(*named, "input_size" if out is None else out)
        return Inferred(outputs, {port: params[port] for port in cls.param_ports(options)})

    @classmethod
    def shapes(cls, step: Dim, size: Dim, out: Dim) -> Mapping[str, tuple[Dim, ...]]:
        """Return the shapes of the parameters."""
        raise NotImplementedError

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return all parameters; those of the output only if it is used."""
        last = () if options["use_output"] else cls.of_output
        return tuple(port for port in cls.initializers if port not in last)

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Mapping[str, tuple[Dim, ...]]:
        """Return `hidden_size` features for the states; without `output_size`, the input has the output's."""
        found: dict[str, tuple[Dim, ...]] = {}
        if options["hidden_size"] is not None:
            found |= {f"prev_{state}": (LEADING, whole(options["hidden_size"])) for state in cls.states}
        if options["output_size"] is None and "output" in outputs and outputs["output"].shape[-1:] != (LEADING,):
            found["input"] = (LEADING, *outputs["output"].shape[-1:])
        return found


class RNNCell(_Cell):
    """One step of a simple recurrent network (Elman, 1990), with a map from the hidden state to the output.

    Args:
        hidden_size: Size of the hidden state; by default taken from `prev_hidden`.
        output_size: Size of the output; by default the input's, so that an output can be the next input.
        use_output: If true, there is an `output`.
        use_complement: If true, there is a `hidden_compl`: the rows of `prev_hidden` beyond those of the input.

    Examples:
        >>> [port.name for port in RNNCell().outputs]
        ['hidden', 'hidden_compl', 'output']
    """

    op = "rnn_cell"
    formula = "h = tanh(x W_ih + h₋₁ W_hh + b_h), y = h W_ho + b_o"
    of_output: ClassVar = ("w_ho", "bias_o")
    initializers: ClassVar = {"w_ih": WEIGHT, "w_hh": RECURRENT, "w_ho": WEIGHT, "bias_h": BIAS, "bias_o": BIAS}

    @classmethod
    def shapes(cls, step: Dim, size: Dim, out: Dim) -> Mapping[str, tuple[Dim, ...]]:
        """Return shapes with weights as `(in, out)`."""
        return {"w_ih": (step, size), "w_hh": (size, size), "w_ho": (size, out), "bias_h": (size,), "bias_o": (out,)}


class LSTMCell(_Cell):
    """One step of a long short-term memory (Hochreiter and Schmidhuber, 1997), with an output map.

    Each gate reads the concatenated input and hidden state.

    Args:
        hidden_size: Size of the hidden state and of the cell state; by default taken from `prev_hidden`.
        output_size: Size of the output; by default the input's, so that an output can be the next input.
        use_output: If true, there is an `output`.
        use_complement: If true, there is a `hidden_compl`: the rows of `prev_hidden` beyond those of the input.

    Examples:
        >>> [port.name for port in LSTMCell().outputs]
        ['hidden', 'cell', 'hidden_compl', 'output']
    """

    op = "lstm_cell"
    formula = "c = f c₋₁ + i tanh([x, h₋₁] W_c + b_c), h = o tanh(c), y = h W_out + b_out"
    states: ClassVar = ("hidden", "cell")
    of_output: ClassVar = ("w_out", "bias_out")
    initializers: ClassVar = {
        **dict.fromkeys(("w_i", "w_f", "w_c", "w_o", "w_out"), WEIGHT),
        **dict.fromkeys(("bias_f", "bias_i", "bias_c", "bias_o", "bias_out"), BIAS),
        **_OF_LSTM,
    }

    @classmethod
    def shapes(cls, step: Dim, size: Dim, out: Dim) -> Mapping[str, tuple[Dim, ...]]:
        """Return shapes with weights as `(in, out)`; those of the gates read input and hidden state."""
        return {**_gates(step, size), "w_out": (size, out), "bias_out": (out,)}


class LSTMCellBody(Operator):
    """The gates of `LSTMCell` alone: cell state and hidden state after the step, concatenated.

    Args:
        hidden_size: Size of the hidden state and of the cell state; by default taken from `prev_hidden`.

    Examples:
        >>> [port.name for port in LSTMCellBody().inputs if port.role == "data"]
        ['input', 'prev_hidden', 'prev_cell']
    """

    op = "lstm_cell_body"
    category = "Layers"
    formula = "y = [c, o tanh(c)], c = f c₋₁ + i tanh([x, h₋₁] W_c + b_c)"
    input_ports = ("input", "prev_hidden", "prev_cell")
    initializers: ClassVar = {
        **dict.fromkeys(("w_i", "w_f", "w_c", "w_o"), WEIGHT),
        **dict.fromkeys(("bias_f", "bias_i", "bias_c", "bias_o"), BIAS),
        **_OF_LSTM,
    }

    def __init__(self, hidden_size: Size | None = None, name: str | None = None):
        super().__init__(name, hidden_size=hidden_size)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(n, ..., in)` and two of `(n, ..., hidden)` to `(2 n, ..., hidden)`."""
        step, shape = _last("input", inputs["input"]), inputs["input"].shape
        states = [(port, inputs[port]) for port in ("prev_hidden", "prev_cell")]
        size = _size(options["hidden_size"], states)
        for port, spec in states:
            _check_rows(port, shape, spec.shape, may_be_more=False)
        rows = shape[0] if shape else LEADING
        known = rows != LEADING and size is not None
        output = (times(rows, 2), *shape[1:-1], size) if known and size is not None else _only(size)
        gates = _gates("input_size" if step is None else step, "hidden_size" if size is None else size)
        return Inferred({"output": output}, gates)


class GRUCell(_Cell):
    """One step of a gated recurrent unit (Cho et al., 2014), with the reset gate applied after the product.

    Args:
        hidden_size: Size of the hidden state; by default taken from `prev_hidden`.
        output_size: Size of the output; by default the input's, so that an output can be the next input.
        use_output: Whether there is an `output`, a linear map of the hidden state.
        use_complement: If true, there is a `hidden_compl`: the rows of `prev_hidden` beyond those of the input.

    Examples:
        >>> [port.name for port in GRUCell().outputs], [port.name for port in GRUCell(use_output=True).outputs]
        (['hidden'], ['hidden', 'output'])
    """

    op = "gru_cell"
    formula = "n = tanh(x W_n + r (h₋₁ U_n + b_n)), h = n + z (h₋₁ - n)"
    of_output: ClassVar = ("w_out", "bias_out")
    initializers: ClassVar = {
        **row(1, 1, 2),
        "bias": BIAS,
        "bias_n": BIAS,
        "w_out": WEIGHT,
        "bias_out": BIAS,
    }

    def __init__(
        self,
        hidden_size: Size | None = None,
        output_size: Size | None = None,
        use_output: bool = False,
        use_complement: bool = False,
        name: str | None = None,
    ):
        super().__init__(hidden_size, output_size, use_output, use_complement, name)

    @classmethod
    def shapes(cls, step: Dim, size: Dim, out: Dim) -> Mapping[str, tuple[Dim, ...]]:
        """Return shapes with weights as `(in, out)`; reset, update and new-state gates are concatenated."""
        return {**row_of_gates(step, size, 3), "bias_n": (size,), "w_out": (size, out), "bias_out": (out,)}


def _last(port: str, spec: TensorSpec) -> Dim | None:
    *rest, last = spec.shape or (None,)
    if not rest and last != LEADING:
        raise MismatchError(port, "(batch, ..., features)", "an array with 2 axes or more.", f"rank {len(spec.shape)}")
    return None if last == LEADING else last


def _only(size: Dim | None) -> tuple[Dim, ...]:
    return (LEADING,) if size is None else (LEADING, size)


def _size(wanted: Value, states: list[tuple[str, TensorSpec]]) -> Dim | None:
    """Return the size of the state: `hidden_size` of the block, or else of the previous state."""
    first, found = "hidden_size", wanted if wanted is None else whole(wanted)
    for port, spec in states:
        size = _last(port, spec)
        if found is None:
            first, found = port, size
        elif isinstance(size, int) and isinstance(found, int) and size != found:
            need = f"(..., {found}), like {first}"
            raise MismatchError(port, need, "states of one size.", f"axis {len(spec.shape) - 1}: {size} != {found}")
    return found


def _check_rows(port: str, shape: tuple[Dim, ...], state: tuple[Dim, ...], *, may_be_more: bool = True) -> None:
    """Raise if a state does not fit an input: all axes but the last must match, and the state may have more rows."""
    if LEADING in (*shape[:1], *state[:1]):
        return
    rows, known = shape[:1], state[:1]
    more = may_be_more and isinstance(known[0], int) and isinstance(rows[0], int) and known[0] > rows[0]
    if not agree(state[:-1], (*known, *shape[1:-1]) if more else shape[:-1]):
        need = ("at least " if may_be_more else "") + f"the rows of the input, {shape[:-1]}, then features"
        raise MismatchError(port, need, "one state per row of the input.", f"{state[:-1]} beside {shape[:-1]}")


def _gates(step: Dim, size: Dim) -> dict[str, tuple[Dim, ...]]:
    weights = dict.fromkeys(("w_i", "w_f", "w_c", "w_o"), (plus(step, size), size))
    return {**weights, **dict.fromkeys(("bias_f", "bias_i", "bias_c", "bias_o"), (size,))}


def row_of_gates(step: Dim, size: Dim, count: int) -> dict[str, tuple[Dim, ...]]:
    """Return the shapes of the concatenated weights and biases of several gates."""
    return {"w_ih": (step, times(size, count)), "w_hh": (size, times(size, count)), "bias": (times(size, count),)}
