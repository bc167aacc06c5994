"""Connections as values: `linear.output`, `a + b`, `x[0]`, `IOKey("x", shape=[2, 3])`.

A `Connection` names a port of a block. An `Expression`, such as `a + b`, describes blocks that are added to a model
when one of its blocks reads the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import Block
from mithril_nb.graph.spec import Dim

Operation = Callable[["Tensorlike", Any], "Expression"]


class Handle(Protocol):
    """The attributes of `Model` that this module reads. `Model` imports this module, so it cannot be imported here."""

    name: str | None

    @property
    def block(self) -> Block:
        """The current frozen block."""
        ...

    @property
    def kind(self) -> str:
        """The kind of the block."""
        ...


def _operators(kind: str, first: str = "left", second: str = "right") -> tuple[Operation, Operation]:
    """Return a binary operator and its reflection. `first` and `second` are the inputs for its operands."""

    def operation(self: Tensorlike, other: Any) -> Expression:
        return _binary(kind, first, self, second, other)

    # In `2 - x`, Python calls `x.__rsub__(2)`.
    def reflected(self: Tensorlike, other: Any) -> Expression:
        return _binary(kind, first, other, second, self)

    return operation, reflected


def _reduction(kind: str, doc: str) -> Any:
    def reduction(self: Tensorlike, axis: Any = None, keepdim: bool = False) -> Expression:
        return _unary(kind, self, axis=axis, keepdim=keepdim)

    reduction.__doc__ = doc
    return reduction


class Tensorlike:
    """Base of `Connection` and `Expression`: operators and array methods, each of which returns an `Expression`."""

    # `==` builds a block, as on arrays, so connections are hashed by identity.
    __hash__ = object.__hash__
    # Makes NumPy pass `array * connection` to the connection, instead of looping over the items of the array.
    __array_ufunc__ = None

    __add__, __radd__ = _operators("Add")
    __sub__, __rsub__ = _operators("Subtract")
    __mul__, __rmul__ = _operators("Multiply")
    __truediv__, __rtruediv__ = _operators("Divide", "numerator", "denominator")
    __floordiv__, __rfloordiv__ = _operators("FloorDivide", "numerator", "denominator")
    __mod__, __rmod__ = _operators("Mod", "numerator", "denominator")
    __pow__, __rpow__ = _operators("Power", "base", "exponent")
    __matmul__, __rmatmul__ = _operators("MatrixMultiply")
    # Python reflects comparisons itself: `2 < x` is `x > 2`.
    __lt__ = _operators("Less")[0]
    __le__ = _operators("LessEqual")[0]
    __gt__ = _operators("Greater")[0]
    __ge__ = _operators("GreaterEqual")[0]
    __and__, __rand__ = _operators("LogicalAnd")
    __or__, __ror__ = _operators("LogicalOr")
    __xor__, __rxor__ = _operators("LogicalXOr")
    __lshift__, __rlshift__ = _operators("ShiftLeft", "input", "shift")
    __rshift__, __rrshift__ = _operators("ShiftRight", "input", "shift")

    def __eq__(self, other: object) -> Any:
        return _binary("Equal", "left", self, "right", other)

    def __ne__(self, other: object) -> Any:
        return _binary("NotEqual", "left", self, "right", other)

    def __invert__(self) -> Expression:
        return _unary("LogicalNot", self)

    def __neg__(self) -> Expression:
        return _unary("Negate", self)

    def __abs__(self) -> Expression:
        return _unary("Absolute", self)

    def __bool__(self) -> bool:
        # A TypeError, as JAX raises for a traced array.
        raise TypeError("a connection has no truth value before the model runs. Use the block Where or Cond.")

    def __iter__(self) -> Any:
        raise TypeError(
            "a connection cannot be iterated over before the model runs. Index it, x[0], or use the block Split."
        )

    def __getitem__(self, index: Any) -> Expression:
        items = index if isinstance(index, tuple) else (index,)
        if any(_is_connected(item) for item in items):
            parts = [_value_of(item) for item in items]
            return Expression("Indexer", {"input": self, "index": parts[0] if len(parts) == 1 else _packed(parts)})
        return Expression("Indexer", {"input": self}, {"index": _index(index)})

    sum = _reduction("Sum", "Return the sum of all items, or the sums along `axis`.")
    mean = _reduction("Mean", "Return the mean of all items, or the means along `axis`.")
    max = _reduction("Max", "Return the maximum of all items, or the maxima along `axis`.")
    min = _reduction("Min", "Return the minimum of all items, or the minima along `axis`.")
    prod = _reduction("Prod", "Return the product of all items, or the products along `axis`.")

    def var(self, axis: Any = None, keepdim: bool = False, correction: float = 0.0) -> Expression:
        """Return the variance of all items, or the variances along `axis`. Divides by the count minus `correction`."""
        return _unary("Variance", self, axis=axis, keepdim=keepdim, correction=correction)

    argmax = _reduction("ArgMax", "Return the index of the maximum of the flattened array, or those along `axis`.")
    argmin = _reduction("ArgMin", "Return the index of the minimum of the flattened array, or those along `axis`.")

    def abs(self) -> Expression:
        """Return the absolute values."""
        return _unary("Absolute", self)

    def exp(self) -> Expression:
        """Return the elementwise exponential."""
        return _unary("Exponential", self)

    def sqrt(self) -> Expression:
        """Return the elementwise square root."""
        return _unary("Sqrt", self)

    def reshape(self, *shape: Any) -> Expression:
        """Return the array in another shape. One size may be -1, and a size may be an expression: `x.shape()[0]`."""
        # `x.reshape(2, 3)` and `x.reshape((2, 3))`, as in NumPy.
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], Tensorlike | list | tuple) else shape
        if isinstance(sizes, Tensorlike):
            return Expression("Reshape", {"input": self, "shape": sizes})
        if any(isinstance(size, Tensorlike) for size in sizes):
            return Expression("Reshape", {"input": self, "shape": _packed([_value_of(size) for size in sizes])})
        return Expression("Reshape", {"input": self}, {"shape": tuple(sizes)})

    def transpose(self, *axes: Any) -> Expression:
        """Return the array with its axes in the order of `axes`; without arguments, in reverse order."""
        # `x.transpose(1, 0)` and `x.transpose((1, 0))`, as in NumPy.
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return _unary("Transpose", self, axes=order)

    @property
    def T(self) -> Expression:
        """The array with its axes in reverse order."""
        return self.transpose()

    def cast(self, dtype: Any) -> Expression:
        """Return the array with its items converted to `dtype`."""
        return _unary("Cast", self, dtype=dtype)

    def shape(self) -> Expression:
        """Return the shape as a static value, which is known before the program runs."""
        return _unary("Shape", self)

    def size(self, dim: int | None = None) -> Expression:
        """Return the number of items, or the size of the axis `dim`, as a static value."""
        return _unary("Size", self, dim=dim)

    def split(self, split_size: int, axis: int = 0) -> Expression:
        """Split `axis` into `split_size` equal parts, and stack the parts along a new first axis."""
        return _unary("Split", self, split_size=split_size, axis=axis)


class Connection(Tensorlike):
    """A port of a block, or a named connection of a model: `linear.output`, `model.hidden`."""

    def __init__(self, model: Handle, port: str):
        self.model, self.port = model, port

    def __repr__(self) -> str:
        return f"{self.model.kind}(...).{self.port}"


class Expression(Tensorlike):
    """A block that is not part of a model yet, and the values of its inputs. A model adds it on first use.

    Args:
        kind: The kind of block.
        inputs: A dict from the names of input ports to their values: other expressions, connections, numbers or arrays.
        options: The arguments of the block's constructor, by name.
    """

    def __init__(self, kind: str, inputs: Mapping[str, Any], options: Mapping[str, Any] | None = None):
        self.kind, self.inputs, self.options = kind, dict(inputs), dict(options or {})

    def __repr__(self) -> str:
        arguments = [f"{port}={value!r}" for port, value in {**self.options, **self.inputs}.items()]
        return f"{self.kind}({', '.join(arguments)})"

    @property
    def is_value(self) -> bool:
        """True if the result is a static value, which is known before the program runs: `x.shape()[0] * 2`."""
        if self.kind in _VALUES:
            return True
        # Whether the result is static depends on the indexed value, not on the index.
        data = [operand for port, operand in self.inputs.items() if port != "index"]
        return self.kind in _KEEP_VALUES and all(
            isinstance(operand, Expression) and operand.is_value for operand in data
        )


# Compared by identity: two keys without a name are two connections.
@dataclass(frozen=True, eq=False)
class IOKey:
    """A connection with a name, a shape, a dtype and other properties that the user declares.

    Attributes:
        name: Name of the connection. With `""` or `None`, the model generates a name.
        value: A constant number or array that the connection carries; `None` for no constant.
        shape: Shape of the array; an unknown size is a name, as in `["batch", 4]`. `None` declares no shape.
        type: Dtype of the array, such as `"float32"` or `ml.float32`. `None` declares no dtype.
        expose: True makes the connection an output of the model even if a block reads it.
        differentiable: True if training changes the array, false if not; `None` leaves the choice to the block.

    Raises:
        UnknownOptionError: `name` is neither a string nor `None`.

    Examples:
        >>> from mithril_nb.models import Linear, Model
        >>> model = Model()
        >>> model |= Linear(3)(input=IOKey("x", shape=["batch", 4]), output=IOKey("y", expose=True))
        >>> [port.name for port in (*model.inputs, *model.outputs)]
        ['x', 'y']
    """

    name: str | None = ""
    value: Any = None
    shape: Sequence[Dim] | None = None
    type: Any = None
    expose: bool | None = None
    differentiable: bool | None = None

    def __post_init__(self):
        if not isinstance(self.name, str | None):
            raise UnknownOptionError(
                f"IOKey cannot take name={short_repr(self.name)}.",
                (("needs", "a string, the name of a connection"),),
                'IOKey("x")  # or IOKey(value=3.0) for a constant',
            )


def _unary(kind: str, x: Any, **options: Any) -> Expression:
    return Expression(kind, {"input": x}, options)


def _binary(kind: str, first: str, a: Any, second: str, b: Any) -> Expression:
    # In `x.shape()[0] * 2`, the 2 becomes a static value too, so that the product is known before the program runs.
    if isinstance(b, Expression) and isinstance(a, int) and kind in _KEEP_VALUES and b.is_value:
        a = _value_of(a)
    elif isinstance(a, Expression) and isinstance(b, int) and kind in _KEEP_VALUES and a.is_value:
        b = _value_of(b)
    return Expression(kind, {first: a, second: b})


# The kinds are named, because the blocks import this module.
_VALUES = {"Shape", "Size", "Length", "ToTuple", "Slice", "Value", "Dtype"}
_KEEP_VALUES = {"Indexer", "Add", "Subtract", "Multiply", "FloorDivide"}


def _is_connected(item: Any) -> bool:
    bounds = (item.start, item.stop, item.step) if isinstance(item, slice) else (item,)
    return any(isinstance(bound, Tensorlike) for bound in bounds)


def _value_of(item: Any) -> Tensorlike:
    if isinstance(item, Tensorlike):
        return item
    if not isinstance(item, slice):
        # The spelling in attributes, which are JSON.
        return Expression("Value", {}, {"value": "..." if item is Ellipsis else item})
    bounds = {"start": item.start, "stop": item.stop, "step": item.step}
    connected = {port: bound for port, bound in bounds.items() if isinstance(bound, Tensorlike)}
    return Expression("Slice", connected, {port: bound for port, bound in bounds.items() if port not in connected})


def _packed(items: list[Tensorlike]) -> Expression:
    return Expression(
        "ToTuple", {f"input{position}": item for position, item in enumerate(items, 1)}, {"n": len(items)}
    )


def _index(index: Any) -> tuple[Any, ...]:
    return tuple(
        ("slice", part.start, part.stop, part.step) if isinstance(part, slice) else "..." if part is Ellipsis else part
        for part in (index if isinstance(index, tuple) else (index,))
    )
