"""What an operation computes with its shapes and axes, as a sentence made from its attributes.

Equations, StableHLO ops and HLO instructions have one form here, an `Operation`, so that one rule serves all stages. A
rule returns `None` if an attribute that it needs is missing; then the help text of the operation is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mithril_nb.graph.spec import TensorSpec

Axes = Sequence[int]


@dataclass(frozen=True)
class Operation:
    """An operation of any stage.

    Attributes:
        name: Its name with underscores, such as `dot_general`.
        inputs: Specs of the operands.
        outputs: Specs of the results.
        attributes: Params of an equation, or attributes of an instruction as text.
        combiner: For a reduction, the operation that combines two elements, such as `"add"`; `""` if unknown.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attributes: Mapping[str, Any]
    combiner: str = ""

    def numbers(self, *names: str) -> list[int] | None:
        """Return the numbers in the first of these attributes that exists; `None` if none does."""
        value = next((self.attributes[name] for name in names if self.attributes.get(name) is not None), None)
        return None if value is None else [int(number) for number in re.findall(r"(?<![\w.])-?\d+", str(value))]


def describe(op: Operation) -> str | None:
    """Return what an operation computes with its shapes and axes; `None` if there is no rule, or data is missing.

    Examples:
        >>> left, right = TensorSpec((2, 3), "float32"), TensorSpec((3, 4), "float32")
        >>> op = Operation("dot", (left, right), (TensorSpec((2, 4), "float32"),), {"lhs_contracting_dims": "{1}",
        ...     "rhs_contracting_dims": "{0}"})
        >>> describe(op).partition(". ")[2]
        'The result is (2, 4) float32: 24 multiply-adds.'
    """
    rule = _RULES.get(op.name)
    try:
        return rule(op) if rule and op.outputs else None
    except (IndexError, ValueError):  # a text that this version of the rules cannot read
        return None


def array(spec: TensorSpec) -> str:
    """Return a spec as text; an array without axes is a number."""
    return str(spec) if spec.shape else f"one {spec.dtype}"


def result(op: Operation) -> str:
    """Return the results of an operation as a sentence, with the number of elements."""
    specs = op.outputs
    if len(specs) != 1:
        parts = [array(spec) for spec in specs[:4]] + [f"{len(specs) - 4} more"] * (len(specs) > 4)
        return f"{len(specs)} results: {_and(parts)}."
    count = specs[0].size if specs[0].shape else None
    return f"The result is {array(specs[0])}{f': {count:,} elements' if count is not None and count != 1 else ''}."


def _and(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]])) if parts else ""


def _along(axes: Axes, spec: TensorSpec) -> str:
    sizes = [f"{axis} (size {spec.shape[axis]})" for axis in axes]
    return f"{'axis' if len(sizes) == 1 else 'axes'} {_and(sizes)}"


def _times(sizes: Sequence[Any]) -> str:
    return " × ".join(map(str, sizes))


def _dot(op: Operation) -> str | None:
    left, right, *_ = op.inputs
    numbers = op.attributes.get("dimension_numbers")
    if isinstance(numbers, tuple):
        pairs: list[tuple[Axes, Axes]] = [*numbers]  # pyright: ignore[reportAssignmentType]
    elif "contracting_dims" in op.attributes or "batching_dims" in op.attributes:
        split = (op.attributes.get(name, "x").split("x") for name in ("contracting_dims", "batching_dims"))
        pairs = [(_ints(first), _ints(second)) for first, second in split]
    elif "lhs_contracting_dims" in op.attributes or op.name == "dot":
        pairs = [
            (op.numbers(f"lhs_{kind}_dims") or [], op.numbers(f"rhs_{kind}_dims") or [])
            for kind in ("contracting", "batch")
        ]
    else:
        return None
    sums, batches = (
        _and(
            [
                f"axis {i} of the left with axis {j} of the right (size {left.shape[i]})"
                for i, j in zip(*pair, strict=True)
            ]
        )
        for pair in pairs
    )
    sizes = [*op.outputs[0].shape, *(left.shape[axis] for axis in pairs[0][0])]
    count = f": {prod(map(int, sizes)):,} multiply-adds" if all(isinstance(size, int) for size in sizes) else ""
    return (
        f"Multiplies {array(left)} by {array(right)}"
        f"{f' and sums over {sums}' if sums else ', each element of one by each of the other'}"
        f"{f', separately for each index of {batches}' if batches else ''}. "
        f"The result is {array(op.outputs[0])}{count}."
    )


def _ints(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


def _columns(parts: Sequence[str], usual: int) -> Iterator[list[int]]:
    """Yield the first, second and third number of each part; `usual` for a missing number."""
    rows = [[*_ints(part), usual] for part in parts]
    return ([row[at] if at < len(row) else usual for row in rows] for at in range(3))


_COMBINED = {
    "add": "Sum", "maximum": "Largest element", "minimum": "Smallest element", "multiply": "Product",
    "and": "And", "or": "Or", "xor": "Exclusive or",
}  # fmt: skip


_OTHER = "Combination, by a small computation, of all elements"


def _reduce(op: Operation) -> str | None:
    axes = op.numbers("axes", "dimensions")
    if axes is None:
        return None
    source = op.inputs[0]
    first = _COMBINED.get(op.combiner, _OTHER)
    if op.name in ("argmax", "argmin"):
        first = f"Index of the {'largest' if op.name == 'argmax' else 'smallest'} element"
    sizes = [source.shape[axis] for axis in axes]
    count = prod(map(int, sizes)) if all(isinstance(size, int) for size in sizes) else 1
    each = f", each element from {count:,} elements" if count > 1 else ""
    over = f"over {_along(axes, source)}" if axes else "over no axis"
    return f"{first} {over} of {array(source)}{each}. {result(op)}"


def _broadcast(op: Operation) -> str | None:
    axes, source, out = op.numbers("broadcast_dimensions", "dims", "dimensions"), op.inputs[0], op.outputs[0]
    if axes is None or len(axes) != len(source.shape):
        return None
    if not source.shape and out.shape:
        return f"Repeats one {source.dtype} in each element of {array(out)}."
    moved = _and([f"axis {at} becomes axis {axis}" for at, axis in enumerate(axes)])
    new = [axis for axis in range(len(out.shape)) if axis not in axes]
    grown = [axis for at, axis in enumerate(axes) if source.shape[at] != out.shape[axis]]
    parts = [moved if axes != [*range(len(axes))] else ""]
    parts += [f"{_along(new, out)} of the result {'is' if len(new) == 1 else 'are'} new" if new else ""]
    parts += [f"{_along(grown, out)} {'repeats' if len(grown) == 1 else 'repeat'} the operand" if grown else ""]
    return f"Broadcasts {array(source)} to {array(out)}: {'; '.join(filter(None, parts)) or 'nothing changes'}."


def _plain(template: str, *names: str) -> Callable[[Operation], str | None]:
    """Return a rule that fills a template: `axes` and `numbers` of the first attribute of these names, and arrays."""

    def rule(op: Operation) -> str | None:
        numbers = op.numbers(*names) if names else []
        if numbers is None:
            return None
        axes = _along(numbers, op.inputs[0]) if "{axes}" in template else ""
        arrays, shapes = [*map(array, op.inputs)], [spec.shape for spec in op.inputs]
        return template.format(
            axes=axes,
            numbers=_and([*map(str, numbers)]),
            of=arrays,
            shapes=shapes,
            out=op.outputs[0],
            result=result(op),
        )

    return rule


def _running(title: str) -> Callable[[Operation], str | None]:
    rule = _plain(f"Running {title} along {{axes}} of {{of[0]}}", "axis")

    def running(op: Operation) -> str | None:
        text = rule(op)
        end = ", from the last element to the first." if str(op.attributes.get("reverse")) == "True" else "."
        return text and f"{text}{end} {result(op)}"

    return running


def _top_k(op: Operation) -> str | None:
    count, source = op.numbers("k"), op.inputs[0]
    if not count:
        return None
    axis = op.numbers("axis") or [len(source.shape) - 1]
    return f"The {count[0]} largest elements along {_along(axis, source)} of {array(source)}, and their indices."


def _reshape(op: Operation) -> str | None:
    source, shape, order = array(op.inputs[0]), op.outputs[0].shape, op.numbers("dimensions")
    if order:
        return f"Permutes the axes of {source} to the order {_and([*map(str, order)])}, and gives it the shape {shape}."
    return f"Gives {source} the shape {shape}; the order of its elements stays."


def _slice(op: Operation) -> str | None:
    source = op.inputs[0]
    starts, ends, steps = (op.numbers(name) for name in ("start_indices", "limit_indices", "strides"))
    if starts is None and "slice" in op.attributes:
        starts, ends, steps = _columns(op.attributes["slice"].split(","), 1)
    if starts is None or ends is None or len(starts) != len(source.shape):
        return None
    ranges = [
        ":" if (start, end, step) == (0, size, 1) else f"{start}:{end}{f':{step}' if step != 1 else ''}"
        for start, end, step, size in zip(starts, ends, steps or [1] * len(starts), source.shape, strict=True)
    ]
    return f"Takes the part [{', '.join(ranges)}] of {array(source)}. {result(op)}"


def _pad(op: Operation) -> str | None:
    source = op.inputs[0]
    low, high, inner = (op.numbers(name) for name in ("low", "high", "interior"))
    if config := op.numbers("padding_config"):
        low, high, inner = config[::3], config[1::3], config[2::3]
    elif "padding" in op.attributes:  # 1_2_0x0_1 in HLO, where the last number may be missing
        low, high, inner = _columns(op.attributes["padding"].split("x"), 0)
    if low is None or high is None or inner is None:
        return None
    words = [
        f"axis {axis} by {before} before, {after} after" + (f" and {between} between neighbours" if between else "")
        for axis, (before, after, between) in enumerate(zip(low, high, inner, strict=True))
        if before or after or between
    ]
    return f"Pads {array(source)}: {_and(words) or 'no axis'}. {result(op)}"


def _concatenate(op: Operation) -> str | None:
    axis = op.numbers("dimension", "dim", "dimensions")
    if not axis:
        return None
    sizes = [spec.shape[axis[0]] for spec in op.inputs]
    joined = " + ".join(map(str, sizes)) if len(sizes) < 9 else f"{len(sizes)} sizes"
    return f"Joins {len(sizes)} arrays along axis {axis[0]}: {joined} = {op.outputs[0].shape[axis[0]]}. {result(op)}"


def _gather(op: Operation) -> str | None:
    named = _named(op, "offset_dims", "collapsed_slice_dims", "start_index_map", "operand_batching_dims")
    sizes, axes, offsets = op.numbers("slice_sizes"), named.get("start_index_map"), named.get("offset_dims")
    if sizes is None or axes is None or offsets is None:
        return None
    source, out = op.inputs[0], op.outputs[0]
    count = prod(int(size) for axis, size in enumerate(out.shape) if axis not in offsets)
    batch = named.get("operand_batching_dims")
    each = f", separately for each index of {_along(batch, source)}" if batch else ""
    return (
        f"Picks {count:,} slice{'' if count == 1 else 's'} of shape {_shape(sizes)} from {array(source)} at the "
        f"indices in its second operand, which count along {_along(axes, source)}{each}. {result(op)}"
    )


def _scatter(op: Operation) -> str | None:
    named = _named(op, "update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    axes = named.get("scatter_dims_to_operand_dims")
    if axes is None:
        return None
    kinds = {"add": "Adds", "write": "Writes"}
    kind = kinds.get(op.combiner, "Writes or combines")
    source, updates = op.inputs[0], op.inputs[-1]
    if len(op.inputs) != 3:
        return None
    where = f"at the indices in its second operand, which count along {_along(axes, source)}"
    return f"{kind} updates {array(updates)} into {array(source)} {where}."


def _shape(sizes: Axes) -> str:
    return str(tuple(sizes))


def _named(op: Operation, *names: str) -> dict[str, Axes]:
    """Return the axes that an equation has as one nested tuple, and other stages as one attribute each."""
    numbers = op.attributes.get("dimension_numbers")
    if isinstance(numbers, tuple):
        return dict(zip(names, numbers, strict=False))  # pyright: ignore[reportReturnType]
    return {name: axes for name in names if (axes := op.numbers(name)) is not None}


def _window(spatial: Axes, sizes: Sequence[Any], of: TensorSpec) -> str:
    over = _and(
        [f"{size} along axis {axis} (size {of.shape[axis]})" for size, axis in zip(sizes, spatial, strict=True)]
    )
    return f"each window of {over}"


def _steps(op: Operation, keep: Axes) -> str:
    parts: list[str] = []
    for title, usual, names in (
        ("moved by", 1, ("window_strides", "stride")),
        ("operand dilated by", 1, ("lhs_dilation", "lhs_dilate", "base_dilation", "base_dilations")),
        ("window dilated by", 1, ("rhs_dilation", "rhs_dilate", "window_dilation", "window_dilations")),
    ):
        values = op.numbers(*names) or []
        chosen = [values[at] for at in keep if at < len(values)]
        parts += [f"{title} {_times(chosen)}"] if any(value != usual for value in chosen) else []
    pads = op.numbers("padding", "pad") or []
    pairs = [tuple(pads[2 * at : 2 * at + 2]) for at in keep if len(pads) > 2 * at + 1]
    parts += [f"padded by {_times([f'({low}, {high})' for low, high in pairs])}"] if any(map(any, pairs)) else []
    return f", {', '.join(parts)}" if parts else ""


def _convolution(op: Operation) -> str | None:
    specs: Any = op.attributes.get("dimension_numbers")
    labels = op.attributes.get("dim_labels", "")
    left, kernel = op.inputs[:2]
    if isinstance(specs, tuple):
        (_, _, *of_left), (features, channel, *of_kernel), _ = specs
    elif match := re.match(r"(\w+)_(\w+)->", labels):
        digits = sorted(label for label in match[2] if label.isdigit())
        of_left, of_kernel = ([names.index(label) for label in digits] for names in match.groups())
        features, channel = match[2].index("o"), match[2].index("i")
    else:
        return None
    sizes: Any = [kernel.shape[axis] for axis in of_kernel]
    groups = {name: op.numbers(name) for name in ("feature_group_count", "batch_group_count")}
    grouped = [
        f"{numbers[0]} groups of {'features' if name.startswith('feature') else 'the batch'}"
        for name, numbers in groups.items()
        if numbers and numbers[0] > 1
    ]
    window = f"{_window(of_left, sizes, left)}{_steps(op, range(len(sizes)))}, and over " if sizes else ""
    return (
        f"Convolution of {array(left)} with the kernel {array(kernel)}: sums products over {window}"
        f"{_along([channel], kernel)} of the kernel, for {kernel.shape[features]} output features"
        f"{f', in {_and(grouped)}' if grouped else ''}. {result(op)}"
    )


def _reduce_window(op: Operation) -> str | None:
    sizes, source = op.numbers("window_dimensions") or [], op.inputs[0]
    if not sizes or len(sizes) != len(source.shape):
        return None
    axes = [axis for axis, size in enumerate(sizes) if size > 1]
    first = _COMBINED.get(op.combiner, _OTHER)
    window = _window(axes, [sizes[axis] for axis in axes], source)
    return f"{first} in {window}{_steps(op, axes)}. {result(op)}"


def _sort(op: Operation) -> str | None:
    axis = op.numbers("dimension", "dimensions")
    keys = int(op.attributes.get("num_keys", 1))
    source, *others = op.inputs
    many = f"{len(op.inputs)} arrays together" if others else array(source)
    by = f", by the first {keys} of them" if keys > 1 else ""
    return f"Sorts {many} along {_along(axis[:1], source)}{by}." if axis else None


def _fft(op: Operation) -> str | None:
    lengths = op.numbers("fft_lengths", "fft_length", "length")
    kind = op.attributes.get("fft_type") or op.attributes.get("type") or "FFT or its inverse"
    many = f"last {len(lengths)} axes, of lengths" if lengths and len(lengths) > 1 else "last axis, of length"
    return f"Fourier transform ({kind}) along the {many} {_times(lengths)}. {result(op)}" if lengths else None


_COMPARED = {"EQ": "equals", "NE": "differs from", "LT": "is less than", "LE": "is at most", "GT": "is greater than"}
_COMPARED["GE"] = "is at least"


def _compare(op: Operation) -> str | None:
    words = _COMPARED.get(op.attributes.get("direction", ""))
    return words and f"True where the left element {words} the right one. {result(op)}"


def _loop(op: Operation) -> str | None:
    trips = op.numbers("length", "known_trip_count")
    if not trips:
        return None
    end = ", from the last slice to the first" if op.attributes.get("reverse") is True else ""
    return f"Runs its body {trips[0]:,} time{'' if trips[0] == 1 else 's'}{end}. {result(op)}"


_RULES: dict[str, Callable[[Operation], str | None]] = {
    **dict.fromkeys(("dot_general", "dot", "gemm", "custom_call"), _dot),
    **dict.fromkeys(("reduce", "argmax", "argmin"), _reduce),
    **{f"reduce_{name}": _reduce for name in ("sum", "max", "min", "prod", "and", "or", "xor")},
    **dict.fromkeys(("broadcast_in_dim", "broadcast"), _broadcast),
    **dict.fromkeys(("reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min"), _reduce_window),
    **dict.fromkeys(("scatter", "scatter_add"), _scatter),
    **dict.fromkeys(("conv_general_dilated", "convolution"), _convolution),
    **dict.fromkeys(("scan", "while"), _loop),
    "slice": _slice, "pad": _pad, "concatenate": _concatenate, "gather": _gather, "sort": _sort, "compare": _compare,
    "fft": _fft,
    **{
        f"cum{name}": _running(title)
        for name, title in (("sum", "sum"), ("prod", "product"), ("max", "maximum"), ("min", "minimum"))
    },
    **dict.fromkeys(("convert_element_type", "convert"), _plain("Turns each element of {of[0]} into {out.dtype}.")),
    **dict.fromkeys(
        ("rev", "reverse"), _plain("Reverses the order of elements along {axes} of {of[0]}.", "dimensions", "dims")
    ),
    **dict.fromkeys(("jit", "pjit"), _plain("Runs the body of a jitted function. {result}")),
    "transpose": _plain(
        "Permutes the axes of {of[0]}: those of the result are axes {numbers} of the operand. {result}",
        "permutation", "dims", "dimensions",
    ),
    "reshape": _reshape,
    "dynamic_slice": _plain("Cuts a block of shape {out.shape} out of {of[0]}, at the position in its last operands."),
    "dynamic_update_slice": _plain(
        "Replaces a block of shape {shapes[1]} in {of[0]}, at the position in its last operands."
    ),
    "iota": _plain("Counts 0, 1, 2, … along axis {numbers}. {result}", "dimension", "dim", "iota_dimension"),
    "squeeze": _plain("Drops {axes} of {of[0]}. {result}", "dimensions"),
    "split": _plain("Cuts {of[0]} along {axes} into pieces. {result}", "axis"),
    "top_k": _top_k,
    "get_tuple_element": _plain("Takes result {numbers} of its operand, counted from 0. {result}", "index"),
}  # fmt: skip
