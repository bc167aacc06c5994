"""An ONNX graph that is being built: nodes, constants, and the name of each value's tensor."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mithril_nb.emission.program import Function, Number, Operand, Statement, Value
from mithril_nb.emission.rules import Context, Rules
from mithril_nb.emission.sizes import has_names

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
"""Dtypes of tensors in a graph."""
_WIDER = {
    "bool": "int32", "int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32", "uint32": "int64",
    "uint64": "int64",
}  # fmt: skip
_UNSIGNED = frozenset("Div Equal Greater GreaterOrEqual Less LessOrEqual MatMul Max Min Mod Sign".split())
"""Operators that onnxruntime computes in uint64, and whose results in int64 differ."""
_TOP = np.iinfo(np.int64).min
"""The highest bit: without it, uint64 in int64 has the same order."""
_SIZE_OPS = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.FloorDiv: "Div", ast.Mod: "Mod"}


def wider(operator: str, dtype: str) -> str:
    """Return the dtype in which onnxruntime computes an operator with exact results, modulo 2**bits for integers."""
    if dtype == "float16" and operator.startswith(("Reduce", "Scatter", "Sign")):  # its Sign of NaN is 0
        return "float32"
    return dtype if dtype == "uint64" and operator in _UNSIGNED else _WIDER.get(dtype, dtype)


@dataclass(frozen=True)
class OnnxNode:
    """One operation. Its unique name consists of the path of the block, the operator, and a number if needed."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    name: str
    source: str = ""
    """The user's line of Python, as `"file.py:12"`."""

    @property
    def bodies(self) -> dict[str, OnnxBody]:
        return {key: each for key, each in self.attributes.items() if isinstance(each, OnnxBody)}


Tensor = tuple[str, Value]
"""The name of a tensor, and a value with its shape and dtype."""


@dataclass(frozen=True)
class OnnxBody:
    """The body of a loop or a branch of a condition. It may also read any earlier tensor of the graph around it."""

    nodes: tuple[OnnxNode, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class OnnxGraph(Context):
    """An ONNX graph under construction. The methods take and return names of tensors.

    Attributes:
        tensors: The name of each value's tensor.
        constants: The arrays of constants, by name of the tensor.
        sizes: A vector with the number of each size that has a name, by this name.
    """

    backend = "onnx"

    def __init__(self) -> None:
        self.tensors: dict[Operand, str] = {}
        self.nodes: list[OnnxNode] = []
        self.constants: dict[str, np.ndarray] = {}
        self.sizes: dict[str, str] = {}
        self._names: set[str] = set()
        self._constant_names: dict[Any, str] = {}

    # Names

    def new_name(self, hint: str) -> str:
        hint = hint or "_"
        name, number = hint, 0
        while name in self._names:
            number += 1
            name = f"{hint}_{number}"
        self._names.add(name)
        return name

    def tensor(self, operand: Operand) -> str:
        """Return the tensor of an operand. A number becomes a constant."""
        return self.constant(operand.value, operand.dtype) if isinstance(operand, Number) else self.tensors[operand]

    def constant(self, array: Any, dtype: Any = None) -> str:
        """Return a constant tensor. Equal arrays share one tensor."""
        array = np.asarray(array, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constant_names:  # the bytes tell -0.0 from 0.0, and one NaN from another
            # The label makes the graph readable in a viewer.
            label = str(array.item()) if array.size == 1 else "x".join(map(str, array.shape)) or "empty"
            name = self.new_name(f"constant_{array.dtype}_{label}")
            self.constants[name] = array
            self._constant_names[key] = name
        return self._constant_names[key]

    def integers(self, items: Iterable[Any]) -> str:
        items = list(items)
        if not has_names(items):
            return self.constant(items, np.int64)
        return self.add("Concat", *(self._size(ast.parse(str(item), mode="eval").body) for item in items), axis=0)

    def _size(self, formula: Any) -> str:
        if isinstance(formula, ast.Constant):
            return self.integers([formula.value])
        if isinstance(formula, ast.Name):
            return self.sizes[formula.id]
        if isinstance(formula, ast.UnaryOp):
            return self.add("Neg", self._size(formula.operand))
        if isinstance(formula, ast.Call):
            return self.add(ast.unparse(formula.func).title(), *map(self._size, formula.args))
        left, right = map(self._size, (formula.left, formula.right))
        if isinstance(formula.op, ast.Pow):  # the operators Pow and ReduceProd round integers
            return functools.reduce(lambda power, base: self.add("Mul", power, base), [left] * formula.right.value)
        if isinstance(formula.op, ast.FloorDiv):  # Div rounds toward zero
            left = self.add("Sub", left, self.add("Mod", left, right))
        return self.add(_SIZE_OPS[type(formula.op)], left, right)

    def scalar(self, size: Any) -> str:
        return self.add("Squeeze", self.integers([size])) if has_names([size]) else self.constant(size, np.int64)

    def full(self, number: Any, shape: Sequence[Any], dtype: str) -> str:
        if not has_names(shape):
            return self.constant(np.full(shape, number), dtype)
        return self.add("Expand", self.constant(number, dtype), self.integers(shape))

    def indices(self, shape: Sequence[Any], axis: int, dtype: str = "int64") -> str:
        if not has_names(shape):
            return self.constant(np.indices(shape)[axis], dtype)
        count = self.add("Range", *map(self.scalar, (0, shape[axis], 1)))
        column = self.reshape(count, [-1, *[1] * (len(shape) - axis - 1)])
        return self.cast(self.add("Expand", column, self.integers(shape)), dtype, "int64")

    # Nodes

    def add(self, operator: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        """Add a node and return its first output. If `outputs` is empty, the node has one output with a new name."""
        block, source = (self.at.block, self.at.source) if self.at is not None else ("", "")
        name = self.new_name(f"{block}/{operator}" if block else operator)
        names = tuple(outputs) or (self.new_name(f"{name}_output"),)
        self.nodes.append(OnnxNode(operator, inputs, names, attributes, name, source))
        return names[0]

    def __getattr__(self, operator: str) -> Callable[..., str]:
        # An operator by its name: graph.Add(x, y).
        if not operator[0].isupper():
            raise AttributeError(operator)
        return functools.partial(self.add, operator)

    def add_all(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        names = [self.new_name(f"{operator}_output") for _ in range(count)]
        self.add(operator, *inputs, outputs=names, **attributes)
        return names

    def operands(self, op: Statement) -> list[str]:
        return [*map(self.tensor, op.inputs)]

    def reshape(self, name: str, shape: Iterable[int]) -> str:
        return self.add("Reshape", name, self.integers(shape), allowzero=1)  # else 0 copies the size of the input

    def cast(self, name: str, dtype: str, source: str = "") -> str:
        return name if dtype == source else self.add("Cast", name, to=dtype)

    def compute(self, operator: str, dtype: str, arrays: Iterable[str], *more: str, **attributes: Any) -> str:
        """Add a node, and return its output in the dtype of `arrays`; see `wider`."""
        wide = wider(operator, dtype)
        return self.cast(self.add(operator, *self.widened(operator, dtype, arrays), *more, **attributes), dtype, wide)

    def widened(self, operator: str, dtype: str, arrays: Iterable[str]) -> list[str]:
        """Return tensors of a dtype in the dtype in which onnxruntime computes an operator."""
        return [self.cast(each, wider(operator, dtype), dtype) for each in arrays]

    def where(self, condition: str, true: str, false: str, dtype: str) -> str:
        if dtype in ("bool", "int16", "uint16", "uint64"):  # onnxruntime has no Where of these dtypes
            wide = _WIDER[dtype]
            return self.cast(self.add("Where", condition, self.cast(true, wide), self.cast(false, wide)), dtype)
        return self.add("Where", condition, true, false)

    def key(self, name: str, dtype: str) -> str:
        """Return keys of the items of a tensor: numbers in the same order, of a dtype that onnxruntime can sort.

        NaN has no place in the order. `from_key` returns the items.
        """
        if dtype not in _WIDER:
            return name
        name = self.cast(name, _WIDER[dtype])
        return self.add("BitwiseXor", name, self.constant(_TOP, np.int64)) if dtype == "uint64" else name

    def from_key(self, name: str, dtype: str) -> str:
        """Return items of a dtype from their keys; see `key`."""
        if dtype == "uint64":
            name = self.add("BitwiseXor", name, self.constant(_TOP, np.int64))
        return self.cast(name, dtype) if dtype in _WIDER else name

    # Statements

    def write(self, function: Function) -> None:
        for op in function.statements:
            with self.writing(op):
                if op.primitive not in RULES:
                    raise self.unsupported()
                if op.outputs and not any(value.size for value in op.outputs):  # some operators reject empty arrays
                    names = [self.full(0, value.shape, value.dtype) for value in op.outputs]
                else:
                    names = RULES.write(self, op)
            self.tensors.update(zip(op.outputs, [names] if isinstance(names, str) else names, strict=True))


RULES: Rules[OnnxGraph, str | list[str]] = Rules()
"""Functions by primitive. Each adds the nodes of a statement, and returns the tensors of its results."""
rule = RULES.rule


def number_of(operand: Operand) -> Any:
    return operand.value if isinstance(operand, Number) else None
