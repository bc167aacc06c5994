"""An ONNX graph that is being built: nodes, constants, and the name of each value's tensor."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mithril_nb.emission.program import Function, Number, Operand, Statement, Value
from mithril_nb.emission.rules import Rules
from mithril_nb.emission.sizes import Size
from mithril_nb.emission.unsupported import unsupported
from mithril_nb.errors import UnsupportedPrimitiveError

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
_SIZE_OPS = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.FloorDiv: "Div", ast.Mod: "Mod"}


def wider(op: str, dtype: str) -> str:
    """Return the dtype in which onnxruntime computes an operator with exact results, modulo 2**bits for integers."""
    if dtype == "float16" and op.startswith(("Reduce", "Scatter", "Sign")):  # its Sign of NaN is 0
        return "float32"
    return dtype if dtype == "uint64" and op in _UNSIGNED else _WIDER.get(dtype, dtype)


@dataclass(frozen=True)
class Node:
    """One operation.

    Attributes:
        op: Name of the ONNX operator.
        inputs: Names of the input tensors.
        outputs: Names of the output tensors.
        attributes: The attributes of the operator.
        name: Unique name: the path of the block, the operator, and a number if the name is already taken.
        source: The user's line of Python, as `"file.py:12"`; `""` if unknown.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    name: str
    source: str = ""

    @property
    def bodies(self) -> dict[str, Body]:
        """The bodies of a loop or a condition, by name of the attribute."""
        return {key: each for key, each in self.attributes.items() if isinstance(each, Body)}


Tensor = tuple[str, Value]
"""The name of a tensor, and a value with its shape and dtype."""


@dataclass(frozen=True)
class Body:
    """The body of a loop or a branch of a condition. It may also read any earlier tensor of the graph around it."""

    nodes: tuple[Node, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass
class Graph:
    """An ONNX graph under construction. The methods take and return names of tensors.

    Attributes:
        tensors: The name of each value's tensor.
        nodes: The nodes, in the order of execution.
        constants: The arrays of constants, by name of the tensor.
        sizes: A vector with the number of each size that has a name, by this name.
    """

    tensors: dict[Value, str] = field(default_factory=dict[Value, str])
    nodes: list[Node] = field(default_factory=list[Node])
    constants: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    sizes: dict[str, str] = field(default_factory=dict[str, str])
    _taken: set[str] = field(default_factory=set[str])
    _known: dict[Any, str] = field(default_factory=dict[Any, str])
    _at: Statement | None = None

    # Names

    def new_name(self, wanted: str) -> str:
        """Take an unused name for a tensor or a node, and return it."""
        wanted = wanted or "_"
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    def tensor(self, one: Operand) -> str:
        """Return the tensor of an operand. A number becomes a constant."""
        if isinstance(one, Value):
            return self.tensors[one]
        return self.constant(np.asarray(one.value, one.dtype))

    def constant(self, array: Any, dtype: Any = None) -> str:
        """Return a constant tensor. Equal arrays share one tensor."""
        array = np.asarray(array, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            shown = str(array.item()) if array.size == 1 else "x".join(map(str, array.shape)) or "empty"
            name = self.new_name(f"constant_{array.dtype}_{shown}")
            self.constants[name] = array
            self._known[key] = name
        return self._known[key]

    def integers(self, items: Iterable[Any]) -> str:
        """Return an int64 vector, such as sizes or axes: a constant, unless sizes have names."""
        items = list(items)
        if not any(isinstance(item, Size) for item in items):
            return self.constant(items, np.int64)
        return self.add("Concat", *(self._size(ast.parse(str(item), mode="eval").body) for item in items), axis=0)

    def _size(self, formula: Any) -> str:
        """Return a vector with the number of a size, from its Python syntax tree."""
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
        """Return a size as an int64 scalar."""
        return self.add("Squeeze", self.integers([size])) if isinstance(size, Size) else self.constant(size, np.int64)

    def full(self, number: Any, shape: Sequence[Any], dtype: str) -> str:
        """Return a tensor that is filled with a number: a constant, unless sizes have names."""
        if not any(isinstance(size, Size) for size in shape):
            return self.constant(np.full(shape, number), dtype)
        return self.add("Expand", self.constant(number, dtype), self.integers(shape))

    def indices(self, shape: Sequence[Any], axis: int, dtype: str = "int64") -> str:
        """Return a tensor of a shape whose items are their index along an axis."""
        if not any(isinstance(size, Size) for size in shape):
            return self.constant(np.indices(shape)[axis], dtype)
        count = self.add("Range", *map(self.scalar, (0, shape[axis], 1)))
        column = self.reshape(count, [-1, *[1] * (len(shape) - axis - 1)])
        return self.cast(self.add("Expand", column, self.integers(shape)), dtype, "int64")

    # Nodes

    def add(self, op: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        """Add a node and return its first output. If `outputs` is empty, the node has one output with a new name."""
        block = self._at.block if self._at is not None else ""
        prefix = f"{block}/{op}" if block else op
        name = self.new_name(prefix)
        made = tuple(outputs) or (self.new_name(f"{name}_output"),)
        source = self._at.source if self._at is not None else ""
        self.nodes.append(Node(op, inputs, made, attributes, name, source))
        return made[0]

    def add_all(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with `count` outputs, and return them."""
        names = [self.new_name(f"{op}_output") for _ in range(count)]
        self.add(op, *inputs, outputs=names, **attributes)
        return names

    def reshape(self, name: str, shape: Iterable[int]) -> str:
        """Add a reshape of a tensor, and return its output."""
        return self.add("Reshape", name, self.integers(shape), allowzero=1)

    def cast(self, name: str, dtype: str, source: str = "") -> str:
        """Add a conversion of a tensor to another dtype than `source`, and return its output."""
        return name if dtype == source else self.add("Cast", name, to=dtype)

    def compute(self, op: str, dtype: str, arrays: Iterable[str], *more: str, **attributes: Any) -> str:
        """Add a node, and return its output in the dtype of `arrays`; see `wider`."""
        wide = wider(op, dtype)
        return self.cast(self.add(op, *self.widened(op, dtype, arrays), *more, **attributes), dtype, wide)

    def widened(self, op: str, dtype: str, arrays: Iterable[str]) -> list[str]:
        """Return tensors of a dtype in the dtype in which onnxruntime computes an operator."""
        return [self.cast(each, wider(op, dtype), dtype) for each in arrays]

    def where(self, condition: str, true: str, false: str, dtype: str) -> str:
        """Add a selection of items of two tensors of a dtype, and return its output."""
        if dtype in ("bool", "int16", "uint16", "uint64"):
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

    def unsupported(self, one: Statement, reason: str = "") -> UnsupportedPrimitiveError:
        """Return the error for a statement that ONNX cannot express."""
        return unsupported(one, "onnx", reason)

    # Statements

    def write(self, function: Function) -> None:
        """Add the nodes of a function's statements."""
        for one in function.statements:
            self.write_statement(one)

    def write_statement(self, one: Statement) -> None:
        """Add the nodes of a statement.

        Raises:
            UnsupportedPrimitiveError: ONNX cannot express the statement.
        """
        before, self._at = self._at, one
        if one.primitive not in RULES:
            raise self.unsupported(one)
        if one.outputs and not any(value.size for value in one.outputs):  # not every operator accepts empty arrays
            names = [self.full(0, value.shape, value.dtype) for value in one.outputs]
        else:
            names = RULES.write(self, one)
        self.tensors.update(zip(one.outputs, [names] if isinstance(names, str) else names, strict=True))
        self._at = before


RULES: Rules[Graph, str | list[str]] = Rules()
"""Functions by primitive. Each adds the nodes of a statement, and returns the tensors of its results."""
rule = RULES.rule


def neutral(kind: str, dtype: str) -> Any:
    """Return the number that changes no `"Sum"`, `"Prod"`, `"Max"` or `"Min"`, such as the smallest for `"Max"`."""
    if kind in ("Sum", "Prod"):
        return int(kind == "Prod")
    if np.dtype(dtype).kind == "f":
        return -np.inf if kind == "Max" else np.inf
    limits = np.iinfo(dtype) if dtype != "bool" else None
    return kind == "Min" if limits is None else limits.min if kind == "Max" else limits.max


def number_of(one: Operand) -> Any:
    """Return the value of a number, or `None` for an array."""
    return one.value if isinstance(one, Number) else None
