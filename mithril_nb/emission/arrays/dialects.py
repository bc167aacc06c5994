"""Names of the same operations in NumPy, PyTorch, MLX and JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mithril_nb.emission.program import Number

Library = Literal["numpy", "torch", "mlx", "jax"]

INFIX = {
    "add": "+", "add_any": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
"""Operators by primitive. They are the same in every library."""
_SAME = {
    name: name
    for name in "exp log sin cos tan sinh cosh tanh sqrt abs sign floor ceil expm1 log1p square real imag".split()
}
_ARC = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2",
}  # fmt: skip
_NUMPY = {
    **_SAME, **_ARC, "max": "maximum", "min": "minimum", "is_finite": "isfinite", "conj": "conj", "cbrt": "cbrt",
    "exp2": "exp2", "nextafter": "nextafter", "rem": "fmod",
}  # fmt: skip
_TORCH = {
    **_SAME, **{name: name for name in _ARC}, "max": "maximum", "min": "minimum", "is_finite": "isfinite",
    "conj": "conj", "exp2": "exp2", "nextafter": "nextafter", "rem": "fmod", "rsqrt": "rsqrt", "logistic": "sigmoid",
    "erf": "erf", "erfc": "erfc", "erf_inv": "erfinv", "lgamma": "lgamma", "digamma": "digamma",
}  # fmt: skip
_MLX = {
    **_SAME, **_ARC, "max": "maximum", "min": "minimum", "is_finite": "isfinite", "conj": "conjugate",
    "rsqrt": "rsqrt", "logistic": "sigmoid", "erf": "erf", "erf_inv": "erfinv",
}  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """The names of operations and dtypes in one library.

    Attributes:
        name: Name of the backend, such as `"numpy"`.
        title: Name of the library in sentences, such as `"NumPy"`.
        module: Name of the module in the source, such as `"np"`.
        imports: The import lines.
        functions: A dict from a primitive to the library's function: NumPy's is `"arcsin"` for `"asin"`.
        axis: Name of the argument for axes: `"axis"` or `"dim"`.
        keepdims: Name of the argument that keeps reduced axes.
        permute: Name of the method that permutes axes.
        cast: Name of the method that converts the dtype.
        dtypes: A dict from JAX's dtypes to the library's. Dtypes that the library does not support are missing.
    """

    name: Library
    title: str
    module: str
    imports: tuple[str, ...]
    functions: Mapping[str, str]
    axis: str
    keepdims: str
    permute: str
    cast: str
    dtypes: Mapping[str, str]

    def dtype(self, name: str) -> str | None:
        """Return the expression of a dtype; `None` if the library does not support it."""
        found = self.dtypes.get(name)
        return None if found is None else f"{self.module}.{found}"

    def number(self, one: Number) -> str:
        """Return a Python number, such as `2.0`. In an operation, it takes the dtype of the other operand."""
        value = one.value
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            text = "nan" if value != value else "inf"
            return f"{'-' if value < 0 else ''}{self.module}.{text}"
        return one.text

    def typed(self, one: Number) -> str:
        """Return a number with its dtype, such as np.float32(2.0)."""
        if self.name in ("numpy", "jax"):
            return f"{self.module}.{self.dtypes[one.dtype]}({self.number(one)})"
        if self.name == "torch":
            return f"torch.tensor({self.number(one)}, dtype={self.dtype(one.dtype)})"
        if one.dtype == "uint64" and one.value.real >= 2**63:  # MLX takes no larger number
            return f"~mx.array({2**64 - 1 - int(one.value.real)}, mx.uint64)"
        return f"mx.array({self.number(one)}, {self.dtype(one.dtype)})"


_FLOATS = {name: name for name in ("float16", "float32", "float64", "complex64")}
_SIGNED = {name: name for name in ("int8", "int16", "int32", "int64")}
_UNSIGNED = {name: name for name in ("uint8", "uint16", "uint32", "uint64")}
DIALECTS: dict[Library, Dialect] = {
    "numpy": Dialect(
        "numpy", "NumPy", "np", ("import numpy as np",), _NUMPY, "axis", "keepdims", "transpose", "astype",
        {**_FLOATS, **_SIGNED, **_UNSIGNED, "complex128": "complex128", "bool": "bool_", "float0": "bool_"},
    ),
    "torch": Dialect(
        "torch", "PyTorch", "torch", ("import torch",), _TORCH, "dim", "keepdim", "permute", "to",
        # PyTorch lacks most arithmetic on uint32, so int64 arrays hold such values.
        {
            **_FLOATS, **_SIGNED, "uint8": "uint8", "uint32": "int64", "complex128": "complex128", "bool": "bool",
            "bfloat16": "bfloat16", "float0": "bool",
        },
    ),
    "mlx": Dialect(
        "mlx", "MLX", "mx", ("import mlx.core as mx",), _MLX, "axis", "keepdims", "transpose", "astype",
        {**_FLOATS, **_SIGNED, **_UNSIGNED, "bfloat16": "bfloat16", "bool": "bool_", "float0": "bool_"},
    ),
    "jax": Dialect(
        "jax", "JAX", "jnp", ("import jax", "import jax.numpy as jnp"), _NUMPY, "axis", "keepdims", "transpose",
        "astype",
        {
            **_FLOATS, **_SIGNED, **_UNSIGNED, "complex128": "complex128", "bfloat16": "bfloat16", "bool": "bool_",
            "float0": "bool_",
        },
    ),
}  # fmt: skip
"""The libraries, by the name of their backend."""
