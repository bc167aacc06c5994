"""Find functions such as the softmax that several operations of a jaxpr compute together."""

from __future__ import annotations

import math
from ast import literal_eval
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.patterns import FUNCTIONS, functions
from mithril_nb.stages.records import ById

_REDUCTIONS = frozenset({"reduce_sum", "reduce_max"})
_COPIES = frozenset({"stop_gradient", "convert_element_type", "copy"})
Shape = tuple[int, ...]
_NORMS = frozenset({"layer_norm", "rms_norm"})
# Operations without which there is no known function, because a search at each operation would take too long.
_NEEDED = {
    "exp": frozenset({"softmax", "log_softmax"}), "sqrt": _NORMS, "rsqrt": _NORMS, "erf": frozenset({"gelu"}),
    "erfc": frozenset({"gelu"}), "tanh": frozenset({"gelu_tanh"}), "logistic": frozenset({"silu"}),
}  # fmt: skip
# Maximum number of operations after one in `_NEEDED` to the result of the function.
_FARTHEST = 3
_DTYPE = "float32"  # patterns are compared without dtypes


@dataclass(frozen=True, eq=False)
class _Array:
    shape: Shape
    dtype: str = _DTYPE
    size: int = 1  # not 0: an empty array also shows what is computed


@dataclass(frozen=True)
class _Number:
    value: float
    dtype: str = _DTYPE
    shape: tuple[()] = ()


@dataclass(frozen=True, eq=False)
class _Operation:
    primitive: str
    inputs: tuple[Any, ...]
    outputs: tuple[_Array]
    params: Mapping[str, Any]
    id: str
    block: str = ""
    role: None = None


def known_functions(ids: Iterable[str], by_id: ById) -> dict[str, tuple[str, str]]:
    """Return for each operation that is a part of a known function, by id, the name of the function and its result.

    `ids`: The operations to search, in program order.
    """
    # A constant has no name.
    arrays: dict[tuple[str, int], Any] = {}
    producers: dict[Any, _Operation] = {}
    near: dict[Any, dict[str, int]] = {}  # the operations of `_NEEDED` that an array depends on, with their distance
    names: dict[str, tuple[str, str]] = {}

    def operand(name: str, pick: int) -> Any:
        maker = by_id.get(name)
        if maker is None:
            return _number(name)
        spec = maker.shapes[pick] if pick < len(maker.shapes) else TensorSpec((), _DTYPE)
        return arrays.setdefault((name, pick), _Array(_numbers(spec.shape)))

    def compute(primitive: str, inputs: Sequence[Any], shape: Shape, id: str, **params: Any) -> _Array:
        array = _Array(shape)
        producers[array] = _Operation(primitive, tuple(inputs), (array,), params, id)
        return array

    for id in ids:
        operation = by_id[id]
        is_var = (
            dict(operation.attributes).get("name") == "_var"
        )  # of `jnp.var`, which a gradient gives further results
        if (
            operation.role not in ("forward", None)
            or not operation.operands
            or (len(operation.shapes) != 1 and not is_var)
        ):
            continue
        inputs = [
            operand(*read)
            for read in zip(operation.operands, operation.picks or (0,) * len(operation.operands), strict=True)
        ]
        first, shape, attributes, primitive = (
            inputs[0],
            _numbers(operation.shapes[0].shape),
            dict(operation.attributes),
            operation.opcode,
        )
        axes = literal_eval(attributes.get("broadcast_dimensions", "()"))
        if axes and len(axes) == len(first.shape):
            # The pattern of an operand of size 1 along an axis is that of the array that is repeated along this axis.
            sizes = dict(zip(axes, first.shape, strict=True))
            primitive, shape = "reshape", tuple([sizes.get(axis, 1) for axis in range(len(shape))])
        if primitive == "reshape" and first in producers and producers[first].primitive in _REDUCTIONS:
            arrays[id, 0] = array = _Array(shape)  # a reduction that keeps its axes
            producers[array] = replace(producers[first], outputs=(array,))
            near[array] = near[first]
        elif primitive in _COPIES or (primitive == "reshape" and first.shape == shape):
            arrays[id, 0] = first
        elif primitive == "max" and first == _Number(-math.inf):  # the maximum of an empty array
            arrays[id, 0] = inputs[1]
        elif primitive == "sqrt" and isinstance(first, _Number):
            arrays[id, 0], names[id] = _Number(math.sqrt(first.value)), ("", id)
        elif is_var and inputs[1:] == [_Number(0)] and (axes := _reduced(id, by_id)):
            sizes = tuple([1 if axis in axes else size for axis, size in enumerate(first.shape)])
            count = _Number(math.prod(first.shape[axis] for axis in axes))
            mean = compute("div", [compute("reduce_sum", [first], sizes, id, axes=axes), count], sizes, id)
            square = compute("square", [compute("sub", [first, mean], first.shape, id)], first.shape, id)
            arrays[id, 0] = compute("div", [compute("reduce_sum", [square], shape, id, axes=axes), count], shape, id)
        else:
            if primitive == "integer_pow" and attributes["y"] == "2":
                primitive = "square"
            params = {key: literal_eval(attributes[key]) for key in ("axes", "y") if key in attributes}
            arrays[id, 0] = array = compute(primitive, inputs, shape, id, **params)
            before = [(key, far + 1) for array in inputs for key, far in near.get(array, {}).items() if far < _FARTHEST]
            near[array] = {**dict(before), **({primitive: 0} if primitive in _NEEDED else {})}
            patterns = [pattern for key, _ in before for pattern in FUNCTIONS if pattern[0] in _NEEDED[key]]
            for name, match, _ in functions(producers[array], patterns, producers):
                if (
                    match.bound["x"].shape == shape
                ):  # or the item of a scan, which has the shape of the whole array here
                    names.update((each.id, (name.removesuffix("_tanh"), id)) for each in match.statements)
                    break
    return names


def _reduced(call: str, by_id: ById) -> tuple[int, ...]:
    inside = (by_id[f"{call}.{at}"] for at in range(9) if f"{call}.{at}" in by_id)
    sums = (dict(instruction.attributes)["axes"] for instruction in inside if instruction.opcode == "reduce_sum")
    return literal_eval(next(sums, "()"))


def _numbers(shape: tuple[int | str, ...]) -> Shape:
    return tuple([size if isinstance(size, int) else hash(size) for size in shape])


def _number(text: str) -> Any:
    try:
        return _Number(float(text.partition(":")[0]))
    except ValueError:
        return _Array(())
