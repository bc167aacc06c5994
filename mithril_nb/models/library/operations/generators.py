"""Blocks that generate arrays: constant, counting, or random."""

from __future__ import annotations

from typing import Any

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import ITEM_BYTES, as_dtype
from mithril_nb.models.library.operations.reshaping import KeepsShape, as_sizes, is_count
from mithril_nb.models.library.operations.statics import Typed, dtype_option
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN,
    UNKNOWN_SHAPE,
    Dim,
    Dims,
    MismatchError,
    Operator,
    Spec,
    TensorSpec,
    jnp,
)
from mithril_nb.models.shape_inference.dims import at_least_0, plus, times
from mithril_nb.models.shape_inference.folding import dtype_of, shape_of

__all__ = [
    "Arange",
    "Constant",
    "Eye",
    "EyeComplement",
    "Full",
    "Ones",
    "OnesLike",
    "PrimitiveRandInt",
    "PrimitiveRandn",
    "RandInt",
    "Randn",
    "Zeros",
    "ZerosLike",
]


class _Generator(Typed):
    input_ports = ()
    category = "Values"
    # A connected key is a seed, or the words of a JAX random key.
    input_dtypes = {"*": "int32", "key": "uint32"}

    @classmethod
    def infer(cls, options, inputs):
        """Return the requested shape."""
        return _inferred(wanted_shape(options["shape"]), options["dtype"])


class Ones(_Generator):
    """Array of ones.

    Args:
        shape: The shape. It may be connected, for example to `x.shape()`.
        dtype: The dtype; by default the model's.
    """

    shape: Any = None
    dtype: Any = None

    op = "ones"
    option_ports = ("shape", "dtype")
    formula = "y = 1"


class Zeros(Ones):
    """Array of zeros.

    Args:
        shape: The shape. It may be connected, for example to `x.shape()`.
        dtype: The dtype; by default the model's.
    """

    op = "zeros"
    formula = "y = 0"


class Full(_Generator):
    """Array of one repeated value.

    Args:
        shape: The shape. It may be connected, for example to `x.shape()`.
        value: The value.
        dtype: The dtype; by default the model's.
    """

    shape: Any = None
    value: float = 0.0
    dtype: Any = None

    op = "full"
    option_ports = ("shape", "value", "dtype")
    # Not "*": the value may be connected to a float.
    input_dtypes = {"shape": "int32"}
    formula = "y = value"


class ZerosLike(KeepsShape, Operator):
    """Zeros with the shape and dtype of the input."""

    op = "zeros_like"
    category = "Values"
    input_dtypes = {"*": "any"}
    formula = "y = 0"
    kernel = jnp.zeros_like


class OnesLike(ZerosLike):
    """Ones with the shape and dtype of the input."""

    op = "ones_like"
    formula = "y = 1"
    kernel = jnp.ones_like


class Eye(_Generator):
    """Matrix with ones on the diagonal and zeros elsewhere.

    Args:
        N: Number of rows.
        M: Number of columns; by default the number of rows.
        dtype: The dtype; by default the model's.
    """

    N: int | None = None
    M: int | None = None
    dtype: Any = None

    op = "eye"
    option_ports = ("N", "M", "dtype")
    formula = "y[i, j] = 1 if i = j, else 0"

    @classmethod
    def infer(cls, options, inputs):
        """Return `(N, M)`."""
        rows, columns = options["N"], options["M"]
        # UNKNOWN is a string too, so it is checked before the sizes, which may be names.
        columns = rows if columns is None else columns
        if UNKNOWN in (rows, columns):
            return _inferred(UNKNOWN_SHAPE, options["dtype"])
        return _inferred((_size("N", rows), _size("M", columns)), options["dtype"])


class EyeComplement(Eye):
    """Matrix with zeros on the diagonal and ones elsewhere.

    Args:
        N: Number of rows.
        M: Number of columns; by default the number of rows.
        dtype: The dtype; by default the model's.
    """

    op = "eye_complement"
    formula = "y[i, j] = 0 if i = j, else 1"


class Arange(_Generator):
    """Evenly spaced numbers, from `start` up to but not including `stop`.

    Args:
        start: The first number.
        stop: The end, which is excluded; required unless connected.
        step: The difference between consecutive numbers.
        dtype: The dtype; by default `"int32"` if `start`, `stop` and `step` are integers, else the model's.

    Examples:
        >>> Arange(0, 10, 2)
        Arange(start=0, stop=10, step=2, dtype=None)
        >>> Arange(stop=3)
        Arange(start=0, stop=3, step=1, dtype=None)
    """

    start: Any = 0
    stop: Any = None
    step: Any = 1
    dtype: Any = None

    op = "arange"
    option_ports = ("start", "stop", "step", "dtype")
    formula = "y[i] = start + i step"

    @classmethod
    def infer(cls, options, inputs):
        """Infer the number of items and the dtype."""
        start, stop, step = (options[port] for port in ("start", "stop", "step"))
        if UNKNOWN in (start, stop, step):
            return _inferred(UNKNOWN_SHAPE, options["dtype"])
        for port, bound in (("start", start), ("stop", stop), ("step", step)):
            # Larger integers do not fit into the 64-bit arithmetic of a program.
            is_number = isinstance(bound, int | float) and not isinstance(bound, bool) and abs(bound) < 2**63
            if not (is_number or isinstance(bound, str)) or (port == "step" and bound == 0):
                need = "a number below 2**63" if port != "step" else "a number other than 0"
                raise MismatchError(port, need, "Arange(0, 10, 2)  # or stop=x.shape()[0], the size of an axis")
        # A connected bound that is a name is the size of an axis, so an integer.
        is_whole = not any(isinstance(bound, float) for bound in (start, stop, step))
        return _inferred((steps(start, stop, step),), options["dtype"] or ("int32" if is_whole else None))  # pyright: ignore


class Randn(_Generator):
    """Normally distributed random numbers.

    Args:
        shape: The shape. It may be connected, for example to `x.shape()`.
        dtype: The dtype; by default the model's.
        key: An integer seed. It may be connected to an integer or a JAX random key. By default, each call draws new
            numbers.
    """

    shape: Any = None
    dtype: Any = None
    key: int | None = None

    op = "randn"
    option_ports = ("shape", "dtype", "key")
    category = "Random"
    formula = "y ~ N(0, 1)"


# Mithril has layers and primitives with equal names. The primitives load from its documents under these names.
class PrimitiveRandn(Randn):
    """The same as `Randn`, under the name of a primitive of Mithril.

    Args:
        shape: The shape. It may be connected, for example to `x.shape()`.
        dtype: The dtype; by default the model's.
        key: An integer seed. It may be connected to an integer or a JAX random key. By default, each call draws new
            numbers.
    """

    op = "primitive_randn"
    category = "As in Mithril"


class RandInt(_Generator):
    """Uniformly distributed random integers.

    Args:
        shape: The shape. It may be connected, for example to `x.shape()`.
        low: The minimum.
        high: One more than the maximum.
        dtype: The dtype; by default `"int32"`.
        key: An integer seed. It may be connected to an integer or a JAX random key. By default, each call draws new
            numbers.
    """

    shape: Any = None
    low: int = 0
    high: int = 2
    dtype: Any = None
    key: int | None = None

    op = "rand_int"
    option_ports = ("shape", "low", "high", "dtype", "key")
    category = "Random"
    formula = "y ~ U{low, ..., high - 1}"

    @classmethod
    def infer(cls, options, inputs):
        """Return the requested shape."""
        low, high, dtype = options["low"], options["high"], options["dtype"] or "int32"
        # A connected bound may be known only at run time, when a program can raise no error.
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            raise MismatchError(
                "high", f"a number above low={low}", f"RandInt(shape, {low}, {low + 10})", f"high={high}"
            )
        if isinstance(dtype, str) and dtype != UNKNOWN and "int" not in dtype:
            raise MismatchError("dtype", "an integer dtype", 'dtype="int32"', f"{dtype}")
        return _inferred(wanted_shape(options["shape"]), dtype)


class PrimitiveRandInt(RandInt):
    """The same as `RandInt`, under the name of a primitive of Mithril.

    Args:
        shape: The shape. It may be connected, for example to `x.shape()`.
        low: The minimum.
        high: One more than the maximum.
        dtype: The dtype; by default `"int32"`.
        key: An integer seed. It may be connected to an integer or a JAX random key. By default, each call draws new
            numbers.
    """

    op = "primitive_rand_int"
    category = "As in Mithril"


def wanted_shape(value: Value) -> Dims:
    """Return the attribute `shape` as a tuple of sizes; `("...",)` if its value is known only at run time.

    Examples:
        >>> wanted_shape((2, "batch")), wanted_shape(3)
        ((2, 'batch'), (3,))
    """
    if value == UNKNOWN:
        return UNKNOWN_SHAPE
    sizes = as_sizes("shape", value)
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise MismatchError("shape", "sizes of 0 or more", "shape=(2, 3)", f"shape={sizes}")
    return sizes


def steps(start: int | float | str, stop: int | float | str, step: int | float | str) -> Dim:
    """Return the number of items from `start` to `stop` by `step`; `"..."` if it is unknown.

    A name, such as `"n"`, is a number that is not known yet. The result is then an expression.

    Examples:
        >>> steps(0, 10, 3), steps(0, "n", 1), steps(1, "n", 2)
        (4, 'n', '(max(n-1,0)+1)//2')
    """
    if not isinstance(start, str) and not isinstance(stop, str) and not isinstance(step, str):
        if all(isinstance(bound, int) for bound in (start, stop, step)):
            return len(range(int(start), int(stop), int(step)))
        # The ceiling of (stop - start) / step, as in NumPy, without a conversion that rounds the quotient first.
        return max(0, int(-((start - stop) // step)))
    if isinstance(step, int) and not isinstance(start, float) and not isinstance(stop, float):
        # A name may be smaller than the other bound. The range is then empty, not negative.
        far, near = (stop, start) if step > 0 else (start, stop)
        length = at_least_0(plus(far, times(near, -1)))
        return length if step in (1, -1) else f"({plus(length, abs(step) - 1)})//{abs(step)}"
    return LEADING


def _size(port: str, value: Value) -> Dim:
    # A string is the name of an unknown size.
    if not (is_count(value) or isinstance(value, str)):
        raise MismatchError(port, "a size of 0 or more", f"{port}=3  # or a connected size: {port}=x.shape()[0]")
    return value  # pyright: ignore[reportReturnType]


def _inferred(shape: Dims, dtype: Value) -> Spec | Dims:
    return shape if dtype is None else TensorSpec(shape, dtype_option("dtype", dtype))


class Constant(Operator):
    """Constant array.

    Args:
        value: A number, or nested lists of numbers. Lists at the same depth have the same length.
        dtype: Dtype of the array; by default the model's dtype for floats, `"int32"` for integers, `"bool"` for
            booleans.

    Raises:
        UnknownOptionError: The value is not an array of numbers, or a number does not fit into the dtype.
        UnknownDtypeError: The dtype is unknown.
    """

    op = "constant"
    input_ports = ()
    category = "Values"
    formula = "y = value"

    def __init__(self, value: Any = 0.0, dtype: str | None = None, name: str | None = None):
        # The value is stored as nested tuples, which JSON keeps and which hash.
        super().__init__(name, value=value, dtype=None if dtype is None else str(as_dtype(dtype)))
        value, dtype = self.options["value"], self.options["dtype"]
        numbers = _leaves(value, shape_of(value))
        if numbers is None or not all(isinstance(number, int | float) for number in numbers):
            raise UnknownOptionError(
                f"Constant cannot take value={short_repr(value)}.",
                (("needs", "a number, or nested lists of numbers, of equal length at each depth"),),
                "Constant([[1.0, 2.0], [3.0, 4.0]])",
            )
        # "None" for floats without a dtype: they take the dtype of the model, which is not known here.
        named = str(dtype or dtype_of(value))
        bits, is_signed = 8 * ITEM_BYTES.get(named, 8), not named.startswith("uint")
        # The conversion of an integer to a float goes through a 64-bit integer.
        width = bits if "int" in named else 64
        least, most = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if is_signed else (0, 2**width - 1)
        for number in numbers:
            if isinstance(number, int) and not least <= number <= most:
                raise UnknownOptionError(
                    f"Constant cannot hold {short_repr(number, 24)} in {named if 'int' in named else '64 bits'}.",
                    (("needs", f"whole numbers from {least} to {most}"),),
                    f'Constant({number}, dtype="float32")' if abs(number) < 2**63 else "Constant(1e30)",
                )

    @classmethod
    def infer(cls, options, inputs):
        """Return the shape and dtype of the value."""
        value = options["value"]
        shape, dtype = shape_of(value), options["dtype"] or dtype_of(value)
        return TensorSpec(shape, str(dtype)) if dtype else shape


def _leaves(value: Value, shape: tuple[int, ...]) -> list[Value] | None:
    # Python lists can be ragged; `shape_of` only reads the first entry at each depth.
    if not shape or not isinstance(value, tuple):
        return None if shape or isinstance(value, tuple) else [value]
    if len(value) != shape[0]:
        return None
    leaves: list[Value] = []
    for entry in value:
        inner = _leaves(entry, shape[1:])
        if inner is None:
            return None
        leaves += inner
    return leaves
