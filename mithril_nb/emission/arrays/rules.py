"""The names of operations in NumPy, PyTorch, MLX and JAX, and the context of the rules, which return expressions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mithril_nb.emission.program import Number, Operand, Statement
from mithril_nb.emission.python_text import PythonEmitter
from mithril_nb.emission.rules import Rules
from mithril_nb.emission.sizes import number

Library = Literal["numpy", "torch", "mlx", "jax"]

_SAME = {
    name: name for name in "exp log sin cos tan sinh cosh tanh sqrt abs floor ceil expm1 log1p square real imag".split()
}
_ARC = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2",
}  # fmt: skip
_COMMON = {**_SAME, "max": "maximum", "min": "minimum", "is_finite": "isfinite"}
_NUMPY = {
    **_COMMON, **_ARC, **{name: name for name in "sign conj cbrt exp2 nextafter".split()}, "rem": "fmod",
}  # fmt: skip
_TORCH = {
    **_COMMON, **{name: name for name in (*_ARC, *"conj exp2 nextafter rsqrt erf erfc lgamma digamma".split())},
    "rem": "fmod", "logistic": "sigmoid", "erf_inv": "erfinv",
}  # fmt: skip
_MLX = {
    **_COMMON, **_ARC, "conj": "conjugate", "rsqrt": "rsqrt", "logistic": "sigmoid", "erf": "erf", "erf_inv": "erfinv",
}  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """The names of operations and dtypes in one library.

    Attributes:
        module: Name of the module in the source, such as `"np"`.
        functions: A dict from a primitive to the library's function: NumPy's is `"arcsin"` for `"asin"`.
        dtypes: A dict from JAX's dtypes to the library's. Dtypes that the library does not support are missing.
        axis: Name of the argument for axes.
        keepdims: Name of the argument that keeps reduced axes.
        permute: Name of the method that permutes axes.
        cast: Name of the method that converts the dtype.
    """

    title: str
    module: str
    imports: tuple[str, ...]
    functions: Mapping[str, str]
    dtypes: Mapping[str, str]
    axis: str = "axis"
    keepdims: str = "keepdims"
    permute: str = "transpose"
    cast: str = "astype"


_DTYPES = {name: name for name in "float16 float32 float64 complex64 int8 int16 int32 int64 uint8".split()}
_UNSIGNED = {name: name for name in ("uint16", "uint32", "uint64")}
_NUMPY_DTYPES = {**_DTYPES, **_UNSIGNED, "complex128": "complex128", "bool": "bool_", "float0": "bool_"}
DIALECTS: dict[Library, Dialect] = {
    "numpy": Dialect("NumPy", "np", ("import numpy as np",), _NUMPY, _NUMPY_DTYPES),
    "torch": Dialect(
        "PyTorch", "torch", ("import torch",), _TORCH,
        # PyTorch lacks most arithmetic on uint32, so int64 arrays hold such values.
        {
            **_DTYPES, "uint32": "int64", "complex128": "complex128", "bool": "bool", "bfloat16": "bfloat16",
            "float0": "bool",
        },
        "dim", "keepdim", "permute", "to",
    ),
    "mlx": Dialect(
        "MLX", "mx", ("import mlx.core as mx",), _MLX,
        {**_DTYPES, **_UNSIGNED, "bfloat16": "bfloat16", "bool": "bool_", "float0": "bool_"},
    ),
    "jax": Dialect(
        "JAX", "jnp", ("import jax", "import jax.numpy as jnp"), _NUMPY, {**_NUMPY_DTYPES, "bfloat16": "bfloat16"}
    ),
}  # fmt: skip
"""The libraries, by the name of their backend."""


class ArrayContext(PythonEmitter):
    """The context of the rules, which return the expression of a primitive."""

    def __init__(self, library: Library):
        super().__init__()
        self.backend = self.library = library
        self.dialect = DIALECTS[library]
        self.module = self.dialect.module

    def number(self, number: Number) -> str:
        """Return a Python number, such as `2.0`. In an operation, it takes the dtype of the other operand."""
        value = number.value
        if isinstance(value, float) and not math.isfinite(value):
            return f"{'-' if value < 0 else ''}{self.module}.{'nan' if value != value else 'inf'}"
        return number.text

    def operand(self, operand: Operand) -> str:
        # JAX and MLX read numbers without a dtype as signed integers, so large unsigned numbers have one.
        is_large = isinstance(operand, Number) and operand.dtype.startswith("uint") and operand.value.real >= 2**31
        if is_large and self.library in ("jax", "mlx"):
            return self.array(operand)
        return self.number(operand) if isinstance(operand, Number) else operand.name

    def array(self, operand: Operand) -> str:
        """Return the expression of an operand. A number is written with its dtype: np.float32(2.0)."""
        if not isinstance(operand, Number):
            return operand.name
        text, dtype, value = self.number(operand), self.dtype(operand.dtype), operand.value
        if self.library == "torch":  # its dtypes are no functions
            return f"torch.tensor({text}, dtype={dtype})"
        if self.library != "mlx":
            return f"{dtype}({text})"  # a scalar of NumPy; jnp.float32 is a function too
        if operand.dtype == "uint64" and value.real >= 2**63:  # MLX takes no larger number
            return f"~mx.array({2**64 - 1 - int(value.real)}, mx.uint64)"
        return f"mx.array({text}, {dtype})"

    def operands(self, op: Statement) -> list[str]:
        if all(isinstance(operand, Number) for operand in op.inputs):  # else Python would choose the dtype
            return [self.array(op.operand), *map(self.operand, op.inputs[1:])]
        return [*map(self.operand, op.inputs)]

    def arrays(self, op: Statement) -> list[str]:
        return [*map(self.array, op.inputs)]

    def right(self, text: str) -> str:
        return f"({text})" if text.startswith("-") else text

    def function(self, primitive: str, *arguments: str) -> str:
        return f"{self.module}.{self.dialect.functions[primitive]}({', '.join(arguments)})"

    def helper(self, name: str, *arguments: str) -> str:
        self.helpers.add(name)
        return f"{name}({', '.join(arguments)})"

    def dtype_or_none(self, name: str) -> str | None:
        # Keys of other generators, such as `key<rbg>`, have other random numbers, so no library has them.
        dtype = self.dialect.dtypes.get("uint32" if name == "key<fry>" else name)
        return dtype and f"{self.module}.{dtype}"

    def dtype(self, name: str) -> str:
        dtype = self.dtype_or_none(name)
        assert dtype is not None, name  # `_ArrayEmitter.source` raises for other dtypes
        return dtype

    def cast(self, text: str, dtype: str) -> str:
        return f"{text}.{self.dialect.cast}({self.dtype(dtype)})"

    def permuted(self, text: str, order: Sequence[int]) -> str:
        return f"{text}.{self.dialect.permute}({', '.join(str(int(axis)) for axis in order)})"

    def full_shape(self, operand: Operand) -> tuple[int, ...]:
        """Return the shape of an operand in the source. Except in JAX, a random key has another axis of size 2."""
        return (*operand.shape, 2) if operand.dtype.startswith("key<") and self.library != "jax" else operand.shape


RULES: Rules[ArrayContext, str] = Rules()
"""The rule of each primitive, except control flow."""
rule = RULES.rule


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex")) and dtype != "float0"


def sizes(shape: Sequence[Any]) -> str:
    """Return a tuple of sizes or axes as Python: `"(2,)"`."""
    return repr(tuple(map(number, shape)))


def changed(options: Mapping[str, tuple[Any, Any]]) -> list[str]:
    return [f"{key}={plain(value)}" for key, (value, usual) in options.items() if plain(value) != plain(usual)]


def plain(value: Any) -> str:
    """Return nested sequences of integers, strings and `None` as Python, with tuples instead of lists."""
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(plain, value))}{',' if len(value) == 1 else ''})"
    return repr(value if value is None or isinstance(value, bool | str) else number(value))
