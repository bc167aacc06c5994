"""Recurrent networks with a separate cell for each step, and bidirectional recurrence.

A batch contains sequences of different lengths, longest first. Each step runs only on the rows of sequences that have
not ended.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Literal

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.models.composite import Composite
from mithril_nb.models.connection import IOKey
from mithril_nb.models.library.operations import Add, Concat, PermuteTensor
from mithril_nb.models.library.operations.reshaping import is_count
from mithril_nb.models.model import Model, with_attributes
from mithril_nb.models.op import LEADING, MismatchError, Operator, TensorSpec
from mithril_nb.models.shape_inference.dims import check_axis

__all__ = [
    "Bidirectional",
    "EncoderDecoder",
    "EncoderDecoderInference",
    "ManyToOne",
    "OneToMany",
    "OneToManyInference",
    "RowsLike",
]


class RowsLike(Operator):
    """Truncates `input` to the number of rows of `like`.

    Examples:
        >>> [port.name for port in RowsLike().inputs]
        ['input', 'like']
    """

    op = "rows_like"
    category = "Shape"
    formula = "y = input[:rows of like]"
    input_ports = ("input", "like")
    input_dtypes = {"*": "any"}

    @classmethod
    def infer(cls, options, inputs):
        """Map an input `(m, *rest)` to `(n, *rest)`, for n rows of `like`."""
        # Only the number of rows of `like` is used; its other axes may have any size.
        rows, shape = inputs["like"].shape[:1], inputs["input"].shape
        for port in cls.input_ports:
            check_axis(port, inputs[port].shape, f"use an input {port} with rows.")
        if isinstance(rows[0], int) and isinstance(shape[0], int) and rows[0] > shape[0]:
            advice = "sort the sequences by length, longest first."
            need = f"at most {shape[0]} rows, like the input"
            raise MismatchError("like", need, advice, f"axis 0: {rows[0]}")
        # The rows are unknown, and so may be the axes after them.
        output = (LEADING, *shape[1:]) if LEADING in (rows[0], shape[0]) else (*rows, *shape[1:])
        return TensorSpec(output, inputs["input"].dtype)


class OneToMany(Composite):
    """Runs a cell step by step from one input. The input of each later step is the output of the step before.

    The inputs are `input`, `initial_hidden`, for an LSTM also `initial_cell`, and one target for each step after the
    first: `target1`, `target2`, ... A step runs only on the first n sequences, where n is the number of rows of its
    target. Without `teacher_forcing`, the values of targets are not used. The outputs are `output0`, `output1`, ...,
    `hidden`, and for an LSTM `cell`: the state after the last step.

    Args:
        cell_type: The cell, such as `RNNCell()`; all steps share its parameters.
        max_sequence_length: Number of steps.
        teacher_forcing: If true, a step reads the previous target instead of the previous output. The first step then
            has a target too, `target0`.

    Raises:
        UnknownOptionError: `cell_type` is not a cell, or a length is invalid.

    Examples:
        >>> from mithril_nb.models import RNNCell
        >>> [port.name for port in OneToMany(RNNCell(), 3).outputs]
        ['output0', 'output1', 'hidden', 'output2']
    """

    def __init__(
        self, cell_type: Model, max_sequence_length: int, teacher_forcing: bool = False, name: str | None = None
    ):
        super().__init__(name)
        # A decoder reads its outputs. No sequence is added back later, so no `hidden_compl` is needed.
        cell = _cell(self, cell_type, use_output=True, use_complement=False)
        _check_length(self, "max_sequence_length", max_sequence_length)
        for step in range(max_sequence_length):
            source = "input"
            if step:
                before = f"target{step - 1}" if teacher_forcing else f"step_{step - 1}.output"
                self |= RowsLike(name=f"rows_{step}")(input=before, like=f"target{step}")
                # Sequences without a target at this step have ended. They are the last rows: longer ones come first.
                source = f"rows_{step}.output"
            _add_step(self, cell, step, source, is_last=step == max_sequence_length - 1)


class OneToManyInference(Composite):
    """Runs a cell step by step from one input. The input of each later step is the output of the step before.

    Unlike in `OneToMany`, there are no targets: all sequences have `max_sequence_length` steps.

    Args:
        cell_type: The cell, such as `RNNCell()`; all steps share its parameters.
        max_sequence_length: Number of steps.

    Raises:
        UnknownOptionError: `cell_type` is not a cell, or a length is invalid.

    Examples:
        >>> from mithril_nb.models import RNNCell
        >>> [port.name for port in OneToManyInference(RNNCell(), 3).inputs]
        ['input', 'initial_hidden', 'w_ih', 'w_hh', 'w_ho', 'bias_h', 'bias_o']
    """

    def __init__(self, cell_type: Model, max_sequence_length: int, name: str | None = None):
        super().__init__(name)
        cell = _cell(self, cell_type, use_output=True, use_complement=False)
        _check_length(self, "max_sequence_length", max_sequence_length)
        for step in range(max_sequence_length):
            source = f"step_{step - 1}.output" if step else "input"
            _add_step(self, cell, step, source, is_last=step == max_sequence_length - 1)


class ManyToOne(Composite):
    """Runs a cell over the inputs `input0`, `input1`, ..., one for each step.

    Each row of an input belongs to one sequence, and longer sequences come first. So inputs of later steps can have
    fewer rows. The output `hidden_concat` contains the hidden state of each sequence after its last step, in the order
    of the rows of `input0`.

    Args:
        cell_type: The cell, such as `RNNCell()`; all steps share its parameters.
        max_sequence_length: Number of steps.

    Raises:
        UnknownOptionError: `cell_type` is not a cell or has no output `hidden_compl`, or a length is invalid.

    Examples:
        >>> from mithril_nb.models import GRUCell
        >>> [port.name for port in ManyToOne(GRUCell(), 3).outputs]
        ['hidden_concat']
    """

    def __init__(self, cell_type: Model, max_sequence_length: int, name: str | None = None):
        super().__init__(name)
        _check_length(self, "max_sequence_length", max_sequence_length)
        # All sequences have a first step, so the cell of this step needs no `hidden_compl`.
        first = _cell(self, cell_type, use_complement=False)
        cell = _cell(self, cell_type, use_complement=True)
        if max_sequence_length > 1 and "hidden_compl" not in {port.name for port in cell.outputs}:
            raise _cell_error(self, cell_type, "an output hidden_compl: prev_hidden[n:] for an input with n rows")
        last = max_sequence_length - 1
        for step in range(max_sequence_length):
            _add_step(self, cell if step else first, step, f"input{step}", is_last=step == last, ends={"hidden"})
        # The longest sequences are the first rows, so the states of later steps come first.
        ended = [f"step_{last}.hidden", *(f"step_{step}.hidden_compl" for step in range(last, 0, -1))]
        joined = {f"input{index}": source for index, source in enumerate(ended, start=1)}
        self |= Concat(len(ended), axis=0, name="ends")(**joined, output="hidden_concat")


class EncoderDecoder(Composite):
    """Sequence to sequence (Sutskever et al., 2014): a `ManyToOne` encoder, and a `OneToMany` decoder.

    Row i of the decoder starts from the encoder's final state in row `indices[i]`. So the encoder's rows can be sorted
    by the lengths of inputs, and the decoder's rows by the lengths of targets. The inputs of the decoder, except for
    the targets, have the prefix `decoder_`: `decoder_input`, `decoder_w_ih`, ...

    Args:
        cell_type: The cell of encoder and decoder, such as `RNNCell()`. They do not share parameters.
        max_input_sequence_length: Number of steps of the encoder.
        max_target_sequence_length: Number of steps of the decoder.
        teacher_forcing: If true, the decoder reads targets instead of its previous outputs.

    Raises:
        UnknownOptionError: `cell_type` is not a cell, or a length is invalid.

    Examples:
        >>> from mithril_nb.models import RNNCell
        >>> [port.name for port in EncoderDecoder(RNNCell(), 2, 2).inputs if port.role == "data"]
        ['input0', 'initial_hidden', 'input1', 'indices', 'decoder_input', 'target1']
    """

    def __init__(
        self,
        cell_type: Model,
        max_input_sequence_length: int,
        max_target_sequence_length: int,
        teacher_forcing: bool = False,
        name: str | None = None,
    ):
        super().__init__(name)
        # Checked first: the message then names this block, and not the encoder inside it.
        _cell(self, cell_type)
        _check_length(self, "max_target_sequence_length", max_target_sequence_length)
        decoder = OneToMany(cell_type, max_target_sequence_length, teacher_forcing, name="decoder")
        _encode_decode(self, cell_type, max_input_sequence_length, decoder)


class EncoderDecoderInference(Composite):
    """`EncoderDecoder` without targets: all sequences have `max_target_sequence_length` steps of the decoder.

    Args:
        cell_type: The cell of encoder and decoder, such as `RNNCell()`. They do not share parameters.
        max_input_sequence_length: Number of steps of the encoder.
        max_target_sequence_length: Number of steps of the decoder.

    Raises:
        UnknownOptionError: `cell_type` is not a cell, or a length is invalid.

    Examples:
        >>> from mithril_nb.models import RNNCell
        >>> [port.name for port in EncoderDecoderInference(RNNCell(), 2, 2).outputs]
        ['output0', 'hidden', 'output1']
    """

    def __init__(
        self,
        cell_type: Model,
        max_input_sequence_length: int,
        max_target_sequence_length: int,
        name: str | None = None,
    ):
        super().__init__(name)
        _cell(self, cell_type)
        _check_length(self, "max_target_sequence_length", max_target_sequence_length)
        decoder = OneToManyInference(cell_type, max_target_sequence_length, name="decoder")
        _encode_decode(self, cell_type, max_input_sequence_length, decoder)


class Bidirectional(Composite):
    """Runs a recurrent block in both time directions, with separate parameters.

    Args:
        layer: An `RNN`, `LSTM` or `GRU` block.
        merge: `"concat"` concatenates the two outputs along the last axis, `"sum"` adds them.

    Raises:
        UnknownOptionError: `layer` cannot be reversed, or `merge` is invalid.

    Examples:
        >>> from mithril_nb.models import LSTM
        >>> [node.name for node in Bidirectional(LSTM(32)).graph.nodes]
        ['forward', 'backward', 'merge']
    """

    def __init__(self, layer: Model, merge: Literal["concat", "sum"] = "concat", name: str | None = None):
        super().__init__(name)
        # Any block with this attribute, so also a user-defined one.
        if not isinstance(layer, Model) or "is_reversed" not in layer.options:
            raise UnknownOptionError(
                f"Bidirectional cannot reverse {layer!r}.", (("needs", "RNN, LSTM or GRU"),), "Bidirectional(LSTM(32))"
            )
        if merge not in ("concat", "sum"):
            raise UnknownOptionError(
                f"Bidirectional cannot take merge={merge!r}.",
                (("needs", "one of 'concat', 'sum'"),),
                "Bidirectional(LSTM(32), merge='concat')",
            )
        for direction, is_reversed in (("forward", False), ("backward", True)):
            self |= _named(with_attributes(layer, {"is_reversed": is_reversed}), direction)(input="input")
        # The two blocks name their inputs differently.
        ends = ("input1", "input2") if merge == "concat" else ("left", "right")
        both = Concat(2, axis=-1, name="merge") if merge == "concat" else Add(name="merge")
        self |= both(**dict(zip(ends, ("forward.output", "backward.output"), strict=True)), output="output")


def _cell(model: Model, cell: Model, **flags: bool) -> Model:
    if not isinstance(cell, Model):
        raise _cell_error(model, cell, "a block")
    ports = {port.name for port in cell.inputs}
    # A user-defined cell need not have these attributes.
    cell = with_attributes(cell, {key: value for key, value in flags.items() if key in cell.options})
    outputs = {port.name for port in cell.outputs}
    for port in ("input", "prev_hidden"):
        if port not in ports:
            raise _cell_error(model, cell, f"an input {port}")
    # The convention of all cells: state `x` is read as `prev_x`.
    needed = {port.removeprefix("prev_") for port in ports if port.startswith("prev_")}
    for port in sorted(needed | ({"output"} if flags.get("use_output") else set())):
        if port not in outputs:
            raise _cell_error(model, cell, f"an output {port}")
    return cell


def _cell_error(model: Model, cell: Any, needs: str) -> UnknownOptionError:
    kind = type(model).__name__
    return UnknownOptionError(f"{kind} cannot run {cell!r} step by step.", (("needs", needs),), _call(model))


def _call(model: Model) -> str:
    # The advice must be a call that works for each of the six networks.
    lengths = [name for name in signature(type(model)).parameters if name.startswith("max_")]
    return f"{type(model).__name__}(RNNCell(hidden_size=32), {', '.join(f'{name}=10' for name in lengths)})"


def _check_length(model: Model, name: str, length: Any) -> None:
    if not is_count(length, 1):
        kind = type(model).__name__
        raise UnknownOptionError(
            f"{kind} cannot take {name}={short_repr(length)}.", (("needs", "a whole number, 1 or more"),), _call(model)
        )


def _add_step(
    model: Model, cell: Model, step: int, source: str, *, is_last: bool, ends: frozenset[str] | set[str] = frozenset()
) -> None:
    # One name for all steps, so that they share their parameters.
    params = {port.name: port.name for port in cell.inputs if port.role == "param"}
    outputs = {port.name for port in cell.outputs}
    states = [port.name.removeprefix("prev_") for port in cell.inputs if port.name.startswith("prev_")]
    before = {f"prev_{state}": f"step_{step - 1}.{state}" if step else f"initial_{state}" for state in states}
    names = {"output": IOKey(f"output{step}", expose=True)} if "output" in outputs else {}
    # Only the last state is an output of the network; a `ManyToOne` collects hidden states itself.
    last = {state: state for state in states if is_last and state not in ends}
    model |= _named(cell, f"step_{step}")(input=source, **params, **before, **names, **last)


def _named(model: Model, name: str) -> Model:
    return Model.of_block(model.block, name)


def _encode_decode(model: Model, cell: Model, steps: int, decoder: Model) -> None:
    _check_length(model, "max_input_sequence_length", steps)
    # The decoder reads only the encoder's states, so the encoder needs no parameters for outputs.
    encoder = ManyToOne(_cell(model, cell, use_output=False), steps, name="encoder")
    more = {port.name: f"encoder_{port.name}" for port in encoder.outputs if port.name != "hidden_concat"}
    model |= encoder(**{port.name: port.name for port in encoder.inputs}, **more)
    model |= PermuteTensor(name="order")(input="encoder.hidden_concat", indices="indices")
    inputs = {port.name: port.name for port in decoder.inputs if port.name.startswith("target")}
    inputs |= {port.name: f"decoder_{port.name}" for port in decoder.inputs if port.name not in inputs}
    outputs = {port.name: port.name for port in decoder.outputs}
    model |= decoder(**{**inputs, "initial_hidden": "order.output"}, **outputs)
