"""The registry of rules of the array emitter: each rule returns the expression of a primitive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mithril_nb.emission.arrays.dialects import Dialect, Library
from mithril_nb.emission.program import Number, Operand, Statement
from mithril_nb.emission.rules import Rules
from mithril_nb.emission.sizes import number
from mithril_nb.emission.unsupported import unsupported
from mithril_nb.errors import UnsupportedPrimitiveError


class Context:
    """The context that each rule receives. A rule is a function that returns the expression of a primitive.

    The methods return parts of expressions, and record the helper functions in use.

    Attributes:
        dialect: The names of operations in the library.
        helpers: Names of the helper functions that the source uses so far.
    """

    def __init__(self, dialect: Dialect):
        self.dialect = dialect
        self.helpers: set[str] = set()

    @property
    def rules(self) -> Rules[Context, str]:
        """The rules of the library, by primitive."""
        return RULES

    @property
    def library(self) -> Library:
        """Name of the backend, such as `"numpy"`."""
        return self.dialect.name

    @property
    def module(self) -> str:
        """Name of the library's module in the source, such as `"np"`."""
        return self.dialect.module

    def operand(self, one: Operand) -> str:
        """Return the expression of an operand. A number is written without a dtype: `2.0`.

        JAX and MLX read numbers without a dtype as signed integers, so large unsigned numbers have one.
        """
        is_large = isinstance(one, Number) and one.dtype.startswith("uint") and one.value.real >= 2**31
        if is_large and self.library in ("jax", "mlx"):
            return self.array(one)
        return self.dialect.number(one) if isinstance(one, Number) else one.name

    def array(self, one: Operand) -> str:
        """Return the expression of an operand. A number is written with its dtype: np.float32(2.0)."""
        return self.dialect.typed(one) if isinstance(one, Number) else one.name

    def operands(self, statement: Statement) -> list[str]:
        """Return the expressions of the operands, such as `x` and `2.0`.

        If all operands are numbers, the first is written with its dtype: np.float32(1.0) and 2.0.
        """
        if all(isinstance(one, Number) for one in statement.inputs):
            return [self.array(statement.inputs[0]), *map(self.operand, statement.inputs[1:])]
        return [self.operand(one) for one in statement.inputs]

    def arrays(self, statement: Statement) -> list[str]:
        """Return the expression of `array` for each operand."""
        return [self.array(one) for one in statement.inputs]

    def right(self, text: str) -> str:
        """Return the right operand of an operator. Add parentheses if it starts with a minus: `x - (-y)`."""
        return f"({text})" if text.startswith("-") else text

    def function(self, primitive: str, *arguments: str) -> str:
        """Return a call of the library's function for a primitive."""
        return f"{self.module}.{self.dialect.functions[primitive]}({', '.join(arguments)})"

    def helper(self, name: str, *arguments: str) -> str:
        """Return a call of a helper function. The source will contain this function."""
        self.helpers.add(name)
        return f"{name}({', '.join(arguments)})"

    def dtype(self, name: str) -> str:
        """Return the expression of a dtype, such as `np.float32`. A random key is an array of uint32."""
        found = self.dialect.dtype("uint32" if name.startswith("key<") else name)
        assert found is not None, name  # `_Emitter._check` raises for other dtypes
        return found

    def cast(self, text: str, dtype: str) -> str:
        """Return the expression that converts an array to a dtype: x.astype(np.float32)."""
        return f"{text}.{self.dialect.cast}({self.dtype(dtype)})"

    def full_shape(self, one: Operand) -> tuple[int, ...]:
        """Return the shape of an operand in the source. Except in JAX, a random key has another axis of size 2."""
        return (*one.shape, 2) if one.dtype.startswith("key<") and self.library != "jax" else one.shape

    def unsupported(self, statement: Statement, reason: str = "") -> UnsupportedPrimitiveError:
        """Return the error for a statement that the library cannot express."""
        return unsupported(statement, self.library, reason)


RULES: Rules[Context, str] = Rules()
"""The rule of each primitive, except control flow."""
rule = RULES.rule


def sizes(shape: Sequence[Any]) -> str:
    """Return a tuple of sizes or axes as Python.

    Examples:
        >>> sizes([2, 3]), sizes([2]), sizes([])
        ('(2, 3)', '(2,)', '()')
    """
    return repr(tuple(map(number, shape)))


def changed(options: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Return the arguments of a call whose value differs from the default, from a value and the default of each.

    Examples:
        >>> changed({"strides": ((2, 2), (1, 1)), "groups": (1, 1)})
        ['strides=(2, 2)']
    """
    return [f"{key}={plain(value)}" for key, (value, usual) in options.items() if plain(value) != plain(usual)]


def plain(value: Any) -> str:
    """Return nested sequences of integers, strings and `None` as Python, with tuples instead of lists."""
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(plain, value))}{',' if len(value) == 1 else ''})"
    return repr(value if value is None or isinstance(value, bool | str) else number(value))
