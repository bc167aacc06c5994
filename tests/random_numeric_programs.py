"""Random programs over all dtypes, with the results of JAX, for the tests of every format that programs are written in.

A program is a chain of operations of `jax.lax`. Its results are the arrays that the operations return. An operation
that rounds is applied only to exact arrays, so that each result has a known tolerance.
"""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SIGNED, UNSIGNED = ("int8", "int16", "int32"), ("uint8", "uint16", "uint32")
FLOATS, COMPLEX = ("float16", "bfloat16", "float32"), ("complex64",)
WIDE = ("int64", "uint64", "float64", "complex128")
"""Dtypes of programs under x64; a third of the programs."""
OUTSIDE = "floats that an integer cannot hold"
LARGEST_OF_NAN = "maximum or minimum of NaN"
LARGE = "integers beyond 2**24, or that may wrap around"
_TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-11, "complex64": 5e-5}


@dataclass(frozen=True)
class Result:
    """A result of JAX.

    Attributes:
        array: The result.
        is_exact: Whether another processor must compute the same bits.
        scale: The size of the terms of a sum, to which an error is relative; `None` if it is relative to each item.
        differences: The documented differences that may apply to this result.
    """

    array: np.ndarray
    is_exact: bool = True
    scale: float | None = None
    differences: frozenset[str] = frozenset()


@dataclass
class NumericProgram:
    """A random program.

    Attributes:
        seed: The seed that draws this program again.
        text: Its operations, in words.
        arguments: Its arguments, in order.
        results: The results of JAX.
        x64: Whether it needs 64 bits.
        steps: For each operation, its function and its operands, such as `("argument", 0)` and `("result", 1)`.
    """

    seed: int
    text: list[str] = field(default_factory=list[str])
    arguments: list[np.ndarray] = field(default_factory=list[np.ndarray])
    results: list[Result] = field(default_factory=list[Result])
    x64: bool = False
    steps: list[tuple[Callable[..., Any], list[tuple[str, int]]]] = field(default_factory=list[Any])

    def __call__(self, *arguments: Any) -> list[Any]:
        """Return the results, with the operations of JAX."""
        found: list[Any] = []
        for function, operands in self.steps:
            results = function(*((arguments if kind == "argument" else found)[index] for kind, index in operands))
            found += results if isinstance(results, list | tuple) else [results]
        return found

    def wrong(self, found: Sequence[Any], documented: Sequence[str] = ()) -> list[str]:
        """Return a text for each result of another library that is wrong.

        Args:
            found: The results of the library.
            documented: The documented differences of the library.
        """
        assert len(found) == len(self.results), (len(found), len(self.results))
        problems = []
        for place, (array, result) in enumerate(zip(found, self.results, strict=True)):
            if result.differences.intersection(documented):
                continue
            problem = _difference(np.asarray(array), result)
            if problem:
                problems.append(f"seed {self.seed}, result {place}: {problem}\n    {'; '.join(self.text)}")
        return problems


def _difference(found: np.ndarray, result: Result) -> str:
    expected = result.array
    if found.shape != expected.shape:
        return f"shape {found.shape} instead of {expected.shape}"
    if found.dtype != expected.dtype and (found.dtype.kind, expected.dtype.name) != ("i", "uint32"):
        return f"dtype {found.dtype} instead of {expected.dtype}"  # PyTorch holds uint32 in int64
    if expected.dtype.kind in "biu":
        found = found.astype(expected.dtype) if (found == found.astype(expected.dtype)).all() else found
        is_wrong = found != expected
    else:
        kind = np.complex128 if expected.dtype.kind == "c" else np.float64
        epsilon = _TOLERANCES.get(expected.dtype.name, 1e-11)
        least = float(jnp.finfo(expected.dtype).tiny)  # XLA rounds smaller numbers to zero
        one, other = found.astype(kind), expected.astype(kind)
        with np.errstate(all="ignore"):
            error = np.abs(one - other)
            bound = epsilon * (np.abs(other) if result.scale is None else result.scale)
            is_same = (one == other) | ((one != one) & (other != other)) | (error <= least)
            is_wrong = ~(is_same | (~np.bool_(result.is_exact) & np.isfinite(other) & (error <= bound)))
    if not is_wrong.any():
        return ""
    return f"{found[is_wrong].ravel()[:4]} instead of {expected[is_wrong].ravel()[:4]} ({expected.dtype})"


def programs(count: int, first: int = 0) -> Iterator[NumericProgram]:
    """Yield random programs. The same seed gives the same program."""
    return map(program, range(first, first + count))


@functools.cache
def program(seed: int) -> NumericProgram:
    """Return the random program of a seed."""
    x64 = seed % 3 == 2
    draw = _Draw(seed, x64)
    with warnings.catch_warnings(), jax.enable_x64(x64):
        warnings.simplefilter("ignore")
        for _ in range(draw.random.randint(1, 3)):
            draw.choose(_OPERATIONS)(draw)
    return draw.program


class _Draw:
    """Draws one program, and computes its results step by step."""

    def __init__(self, seed: int, x64: bool):
        self.random, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.choose = self.random.choice
        self.program = NumericProgram(seed, x64=x64)
        self.values: list[tuple[tuple[str, int], Result]] = []
        """The arguments and results so far, each with its name, such as `("argument", 0)`."""

    def dtype(self, *groups: Sequence[str]) -> str:
        names = [name for group in groups for name in group]
        kinds = {jnp.dtype(name).kind for name in names}
        wide = [name for name in WIDE if self.program.x64 and jnp.dtype(name).kind in kinds]
        return self.choose([*names, *wide])

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = self.choose([0, 1, 2, 2, 3]) if rank is None else rank
        return tuple(self.random.randint(1, 4) for _ in range(rank))

    def array(self, dtype: str, shape: tuple[int, ...], special: bool = True) -> np.ndarray:
        """Return a random array; `special` with NaN, infinities, and the largest and least integers."""
        kind, size = jnp.dtype(dtype).kind, int(np.prod(shape))
        if dtype == "bool":
            return self.numbers.integers(0, 2, shape).astype(bool)
        if kind in "iu":
            limits = np.iinfo(dtype)
            numbers: list[Any] = [0, 1, 2, 3, 7, 100, limits.max]
            numbers += [-1, -2, -100] if kind == "i" else []
            numbers += [limits.min, limits.min + 1, limits.max - 1] if special else []
            return np.array([self.choose(numbers) for _ in range(size)], dtype).reshape(shape)
        found = self.numbers.normal(size=shape) * self.choose([1, 3, 30])
        if kind == "c":
            return (found + 1j * self.numbers.normal(size=shape)).astype(dtype)
        if special:
            limits = jnp.finfo(dtype)
            numbers = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, -2.5, 300.0, -1.5, float(limits.max)]
            numbers += [1e20, -1e20] if dtype not in ("float16",) else []
            chosen = np.array([self.choose(numbers) for _ in range(size)]).reshape(shape)
            found = np.where(self.numbers.random(shape) < 0.5, chosen, found)
        return np.asarray(found).astype(dtype)

    def argument(self, array: np.ndarray) -> int:
        self.values.append((("argument", len(self.program.arguments)), Result(array)))
        self.program.arguments.append(array)
        return len(self.values) - 1

    def operand(self, dtype: str, shape: tuple[int, ...] | None = None, special: bool = True, old: float = 0.4) -> int:
        """Return the place of an exact value of a dtype: an earlier one, with probability `old`, or an argument."""
        known = [
            place for place, (_, value) in enumerate(self.values)
            if value.is_exact and value.array.dtype == dtype and shape in (None, value.array.shape)
            and (special or value.array.dtype.kind in "biu")
        ]  # fmt: skip
        if known and self.random.random() < old:
            return self.choose(known)
        return self.argument(self.array(dtype, self.shape() if shape is None else shape, special))

    def number(self, dtype: str, special: bool = True) -> np.ndarray:
        """Return a constant, which a program contains as a literal."""
        return self.array(dtype, (), special)

    def __getitem__(self, place: int) -> np.ndarray:
        return self.values[place][1].array

    def marks_of_nan(self, *places: int) -> list[str]:
        """Return the difference that may apply to a maximum or minimum of some values."""
        return [LARGEST_OF_NAN] if any((self[place] != self[place]).any() for place in places) else []

    def apply(
        self, name: str, function: Callable[..., Any], *places: int,
        exact: bool = True, scale: float | None = None, differences: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Append an operation to the program."""
        taken = [self.values[place][1] for place in places]
        found = jax.jit(function)(*(one.array for one in taken))
        found = found if isinstance(found, list | tuple) else [found]
        marks = frozenset(differences).union(*(one.differences for one in taken))
        integers = [
            array for array in map(np.asarray, (*(one.array for one in taken), *found)) if array.dtype.kind in "iu"
        ]
        marks |= {LARGE} if any((np.abs(array.astype(float)) > 2**24).any() for array in integers) else set()
        for array in found:
            array = np.asarray(array)
            is_exact = all(one.is_exact for one in taken) and (exact or array.dtype.kind in "biu")
            result = Result(array, is_exact, scale, marks)
            self.values.append((("result", len(self.program.results)), result))
            self.program.results.append(result)
        self.program.steps.append((function, [self.values[place][0] for place in places]))
        shapes = ", ".join(f"{one.array.dtype}{list(one.array.shape)}" for one in taken)
        self.program.text.append(f"{name}({shapes})")


def _is_integer(dtype: Any) -> bool:
    return jnp.dtype(dtype).kind in "iu"


Operation = Callable[[_Draw], None]
_OPERATIONS: list[Operation] = []


def _operation(function: Operation) -> Operation:
    _OPERATIONS.append(function)
    return function


_INTEGER_OPERATIONS = (
    lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.max, lax.min, lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor,
    lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic,
)  # fmt: skip
_FLOAT_OPERATIONS = (lax.add, lax.sub, lax.mul, lax.div, lax.max, lax.min, lax.rem, lax.atan2, lax.nextafter)
_COMPARISONS = (lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge)


def _name(function: Any) -> str:
    return getattr(function, "__name__", str(function))


@_operation
def _integer_binary(draw: _Draw, functions: Sequence[Any] = _INTEGER_OPERATIONS) -> None:
    function, dtype = draw.choose(functions), draw.dtype(SIGNED, UNSIGNED)
    left = draw.operand(dtype)
    right: Any = draw.number(dtype) if draw.random.random() < 0.3 else draw.operand(dtype, draw[left].shape)
    if isinstance(right, int):
        draw.apply(_name(function), function, left, right, differences=[LARGE])
    elif draw.random.random() < 0.7:
        draw.apply(f"{_name(function)} {right}", lambda x: function(x, right), left, differences=[LARGE])
    else:
        left = draw.operand(dtype, special=False)
        draw.apply(f"{right} {_name(function)}", lambda x: function(right, x), left, differences=[LARGE])


_operation(functools.partial(_integer_binary, functions=(lax.div, lax.rem)))


@_operation
def _float_binary(draw: _Draw) -> None:
    function, dtype = draw.choose(_FLOAT_OPERATIONS), draw.dtype(FLOATS)
    left, special = draw.operand(dtype), function not in (lax.rem, lax.atan2)
    if not special:
        left = draw.operand(dtype, special=False)
    exact, compares = function in (lax.max, lax.min, lax.nextafter), function in (lax.max, lax.min)
    if draw.random.random() < 0.4:
        number = draw.number(dtype, special)
        marks = [LARGEST_OF_NAN] if np.isnan(number) else draw.marks_of_nan(left)
        draw.apply(
            f"{_name(function)} {number}", lambda x: function(x, number), left, exact=exact,
            differences=marks if compares else (),
        )  # fmt: skip
        return
    right = draw.operand(dtype, draw[left].shape, special)
    marks = draw.marks_of_nan(left, right) if compares else []
    draw.apply(_name(function), function, left, right, exact=exact, differences=marks)


@_operation
def _unary(draw: _Draw) -> None:
    kind = draw.choose(("integer", "float", "smooth", "complex"))
    if kind == "integer":
        functions = (lax.neg, lax.abs, lax.sign, lax.bitwise_not, lax.population_count, lax.clz, lax.square)
        functions = (*functions, lambda x: lax.integer_pow(x, 3))
        function, dtype = draw.choose(functions), draw.dtype(SIGNED, UNSIGNED)
        draw.apply(_name(function), function, draw.operand(dtype), differences=[LARGE])
    elif kind == "float":
        functions = (lax.neg, lax.abs, lax.sign, lax.floor, lax.ceil, lax.is_finite, lax.sqrt, lax.square)
        functions = (*functions, lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), lax.round)
        function, dtype = draw.choose(functions), draw.dtype(FLOATS)
        draw.apply(_name(function), function, draw.operand(dtype), exact=function not in (lax.sqrt, lax.square))
    else:
        functions = (lax.exp, lax.sin, lax.cos, lax.tanh, lax.logistic, lax.expm1)
        functions += (lax.erf, lax.asinh, lax.atan, lax.exp2) if kind == "smooth" else (lax.conj, lax.real, lax.imag)
        function, dtype = draw.choose(functions), draw.dtype(FLOATS if kind == "smooth" else COMPLEX)
        place = draw.argument((draw.array(dtype, draw.shape(), False) / np.asarray(30, dtype)).astype(dtype))
        scale = float(np.abs(np.asarray(function(draw[place])).astype(complex)).max())
        draw.apply(_name(function), function, place, exact=False, scale=scale + 0.01)


@_operation
def _complex_binary(draw: _Draw) -> None:
    function, dtype = draw.choose((lax.add, lax.sub, lax.mul, lax.div, lax.eq, lax.ne)), draw.dtype(COMPLEX)
    left = draw.operand(dtype, special=False)
    right = draw.operand(dtype, draw[left].shape, special=False)
    scale = float(np.abs(np.asarray(function(draw[left], draw[right]))).max())
    draw.apply(_name(function), function, left, right, exact=False, scale=scale)


@_operation
def _make_complex(draw: _Draw) -> None:
    dtype = draw.choose(["float32", "float64"] if draw.program.x64 else ["float32"])
    left = draw.operand(dtype, special=False)
    draw.apply("complex", lax.complex, left, draw.operand(dtype, draw[left].shape, special=False))


@_operation
def _compare(draw: _Draw) -> None:
    function, dtype = draw.choose(_COMPARISONS), draw.dtype(SIGNED, UNSIGNED, FLOATS, ("bool",))
    left = draw.operand(dtype)
    if draw.random.random() < 0.4:
        number = draw.number(dtype)
        draw.apply(f"{_name(function)} {number}", lambda x: function(x, number), left)
    else:
        draw.apply(_name(function), function, left, draw.operand(dtype, draw[left].shape))


@_operation
def _logic(draw: _Draw) -> None:
    left = draw.operand("bool")
    function = draw.choose((lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor, lax.max, lax.min, lax.bitwise_not))
    others = [] if function is lax.bitwise_not else [draw.operand("bool", draw[left].shape)]
    draw.apply(_name(function), function, left, *others)


@_operation
def _select(draw: _Draw) -> None:
    dtype = draw.dtype(SIGNED, UNSIGNED, FLOATS, COMPLEX, ("bool",))
    which = draw.operand("bool")
    shape = draw[which].shape
    if draw.random.random() < 0.4:
        number = np.broadcast_to(draw.number(dtype), shape)
        draw.apply(
            f"where {number.ravel()[:1]}", lambda b, x: lax.select(b, number, x), which, draw.operand(dtype, shape)
        )
    else:
        draw.apply("where", lax.select, which, draw.operand(dtype, shape), draw.operand(dtype, shape))


@_operation
def _clamp(draw: _Draw) -> None:
    dtype = draw.dtype(SIGNED, UNSIGNED, FLOATS)
    numbers = [number for number in (draw.number(dtype), draw.number(dtype)) if number == number]
    if len(numbers) == 2 and (dtype != "bfloat16" or draw.random.random() < 0.5):
        least, most = sorted(numbers)
        place = draw.operand(dtype)
        marks = draw.marks_of_nan(place)
        draw.apply(f"clamp {least} {most}", lambda x: lax.clamp(least, x, most), place, differences=marks)


@_operation
def _convert(draw: _Draw) -> None:
    dtype, to = (draw.dtype(SIGNED, UNSIGNED, FLOATS, COMPLEX, ("bool",)) for _ in range(2))
    place = draw.operand(dtype, special=jnp.dtype(dtype).kind != "c")
    marks = []
    if jnp.dtype(to).kind in "iu" and jnp.dtype(dtype).kind in "fcV":
        numbers, limits = np.trunc(draw[place].real.astype("float64")), np.iinfo(to)
        marks = [] if ((numbers >= limits.min) & (numbers <= float(limits.max) * (1 - 2**-53))).all() else [OUTSIDE]
    # Between floats, the result is the nearest number; a double rounding or a number near the limit may differ.
    exact = not (jnp.dtype(to).kind in "fVc" and jnp.dtype(dtype).kind in "iufVc")
    draw.apply(f"convert to {to}", lambda x: lax.convert_element_type(x, to), place, exact=exact, differences=marks)


_operation(_convert)  # twice as often as others


@_operation
def _bitcast(draw: _Draw) -> None:
    pairs = [("int8", "uint8"), ("int16", "uint16"), ("int32", "uint32"), ("float32", "int32"), ("float32", "uint32")]
    pairs += [
        ("float16", "int16"),
        ("bfloat16", "int16"),
        *([("int64", "uint64"), ("float64", "int64")] * draw.program.x64),
    ]
    dtype, to = draw.choose(pairs)
    place = draw.argument(np.nan_to_num(draw.array(dtype, draw.shape())).astype(dtype))  # NaN has several forms
    draw.apply(f"bitcast to {to}", lambda x: lax.bitcast_convert_type(x, jnp.dtype(to)), place)


def _product_dtypes(draw: _Draw) -> tuple[str, str | None]:
    dtype = draw.dtype(SIGNED, UNSIGNED, FLOATS, COMPLEX)
    wider: dict[str, tuple[str, ...]] = {
        "int8": ("int16", "int32", "float32"), "uint8": ("uint16", "uint32", "int32", "float32"), "int16": ("int32",),
        "uint16": ("uint32",), "float16": ("float32",), "bfloat16": ("float32",),
        "float32": ("float64",) if draw.program.x64 else (), "int32": ("int64",) if draw.program.x64 else (),
    }  # fmt: skip
    return dtype, draw.choose([None, *wider.get(dtype, ())])


def _factor(draw: _Draw, dtype: str, shape: tuple[int, ...], is_wide: bool) -> int:
    array = draw.array(dtype, shape, special=False)
    if jnp.dtype(dtype).kind in "fV" and is_wide:  # products that the narrow dtype cannot hold
        array = (array * np.asarray(20, dtype)).astype(dtype)
    return draw.argument(array)


def _multiply(draw: _Draw, name: str, function: Callable[..., Any], left: int, right: int, to: str | None) -> None:
    dtype = to or str(draw[left].dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = "complex128" if jnp.dtype(dtype).kind == "c" else "float64"
        sizes = [jnp.asarray(np.abs(draw[place].astype(kind)), "float32") for place in (left, right)]
        scale = float(jnp.max(jnp.asarray(function(*sizes)), initial=0))
    typed: Any = lambda x, y: function(x, y, preferred_element_type=to) if to else function(x, y)  # noqa: E731
    draw.apply(f"{name} to {to}", typed, left, right, exact=False, scale=scale)


@_operation
def _dot(draw: _Draw) -> None:
    dtype, to = _product_dtypes(draw)
    sizes = dict(zip("abcij", (draw.random.randint(1, 4) for _ in range(5)), strict=True))
    equations = ("ij,jb->ib", "ij,j->i", "j,jb->b", "j,j->", "aij,ajb->aib", "ij,bj->ib", "ji,jb->ib", "aij,ijb->ab")
    equation = draw.choose((*equations, "aij,bj->aib", "ai,ai->a", "i,j->ij", "abij,abjc->abic"))
    shapes = [tuple(sizes[letter] for letter in part) for part in equation.split("->")[0].split(",")]
    left, right = (_factor(draw, dtype, shape, bool(to)) for shape in shapes)

    def product(x: Any, y: Any, **options: Any) -> Any:
        return jnp.einsum(equation, x, y, **options)

    _multiply(draw, f"einsum {equation}", product, left, right, to)


_operation(_dot)


@_operation
def _dense(draw: _Draw) -> None:
    """A quantized dense layer: an integer product, whose sum is scaled and clipped."""
    dtype = draw.choose(("int8", "uint8"))
    left, right = (draw.argument(draw.array(dtype, shape)) for shape in ((3, 8), (8, 4)))

    def dense(x: Any, w: Any) -> Any:
        total = lax.dot(x, w, preferred_element_type=jnp.int32)
        scaled = total.astype(jnp.float32) * np.float32(0.0078125)  # exact
        return total, lax.clamp(np.float32(-128), lax.round(scaled), np.float32(127)).astype(jnp.int8)

    draw.apply("quantized dense", dense, left, right)


@_operation
def _convolution(draw: _Draw) -> None:
    dtype, to = _product_dtypes(draw)
    rank, groups = draw.random.randint(1, 2), draw.choose((1, 1, 2))
    left = _factor(draw, dtype, (2, 2, *draw.random.choices((4, 5), k=rank)), bool(to))
    right = _factor(draw, dtype, (2, 2 // groups, *draw.random.choices((1, 2, 3), k=rank)), bool(to))
    options: dict[str, Any] = {
        "window_strides": draw.random.choices((1, 2), k=rank), "padding": draw.choose(("VALID", "SAME")),
        "rhs_dilation": draw.random.choices((1, 1, 2), k=rank), "feature_group_count": groups,
    }  # fmt: skip
    _multiply(
        draw, f"conv {options}", lambda x, y, **more: lax.conv_general_dilated(x, y, **options, **more), left, right, to
    )


@_operation
def _reduce(draw: _Draw) -> None:
    functions = (jnp.sum, jnp.prod, jnp.max, jnp.min, jnp.argmax, jnp.argmin)
    function, dtype = draw.choose(functions), draw.dtype(SIGNED, UNSIGNED, FLOATS)
    adds = function in (jnp.sum, jnp.prod)
    place = draw.operand(dtype, draw.shape(draw.random.randint(1, 3)), special=not adds or _is_integer(dtype))
    if not _is_integer(dtype) and function is jnp.prod:
        place = draw.argument(np.sign(draw[place]) + np.asarray(0.5, dtype))
    axis = draw.choose([None, *range(draw[place].ndim)])
    keeps = draw.random.random() < 0.3
    options: dict[str, Any] = {"dtype": dtype} if adds else {}
    marks = [LARGE] if adds else draw.marks_of_nan(place)
    total = np.abs(draw[place].astype("float64")).sum() if function is jnp.sum else None
    draw.apply(
        f"{_name(function)} axis {axis}", lambda x: function(x, axis=axis, keepdims=keeps, **options), place,
        exact=not adds, scale=total, differences=marks,
    )  # fmt: skip


@_operation
def _reduce_bits(draw: _Draw) -> None:
    function = draw.choose((lax.reduce_and, lax.reduce_or, lax.reduce_xor))
    dtype = draw.choose(("bool", draw.dtype(SIGNED, UNSIGNED)))
    place = draw.operand(dtype, draw.shape(2))
    axes = draw.choose(((0,), (1,), (0, 1)))
    draw.apply(f"{_name(function)} {axes}", lambda x: function(x, axes), place)


@_operation
def _cumulate(draw: _Draw) -> None:
    function, dtype = (
        draw.choose((lax.cumsum, lax.cumprod, lax.cummax, lax.cummin)),
        draw.dtype(SIGNED, UNSIGNED, FLOATS),
    )
    adds = function in (lax.cumsum, lax.cumprod)
    place = draw.operand(dtype, draw.shape(2), special=not adds or _is_integer(dtype))
    if adds and not _is_integer(dtype):
        place = draw.argument(np.sign(draw[place]) + np.asarray(0.5, dtype))
    axis, reverse = draw.random.randint(0, 1), draw.random.random() < 0.4
    marks = [LARGE] if adds else draw.marks_of_nan(place)
    draw.apply(
        f"{_name(function)} axis {axis} {reverse}", lambda x: function(x, axis, reverse), place,
        exact=not adds, scale=float(np.abs(draw[place].astype("float64")).sum()), differences=marks,
    )  # fmt: skip


_ANY = (SIGNED, UNSIGNED, FLOATS, COMPLEX, ("bool",))


@_operation
def _move(draw: _Draw) -> None:
    place = draw.operand(draw.dtype(*_ANY), draw.shape(2))
    dtype, (rows, columns) = str(draw[place].dtype), draw[place].shape
    number = draw.number(dtype)
    functions: dict[str, Callable[[Any], Any]] = {
        "reshape": lambda x: lax.reshape(x, (rows * columns,)), "transpose": lambda x: x.T,
        "reverse": lambda x: lax.rev(x, (1,)),
        "slice": lambda x: x[rows // 2 :, :: -1 if columns > 1 else 1],
        "join": lambda x: lax.concatenate([x, x[:1]], 0),
        "broadcast": lambda x: lax.broadcast_in_dim(x, (2, rows, columns), (1, 2)),
        "stack": lambda x: jnp.stack([x, x]), "tile": lambda x: jnp.tile(x, (2, 1)),
        f"pad {number}": lambda x: lax.pad(x, number, ((1, 0, 1), (-1, 2, 0))),
    }  # fmt: skip
    name = draw.choose(list(functions))
    draw.apply(name, functions[name], place)


@_operation
def _index(draw: _Draw) -> None:
    place = draw.operand(draw.dtype(*_ANY), (4, 3))
    dtype = str(draw[place].dtype)
    rows = draw.argument(np.asarray([draw.choose((0, 1, 3, 3, -1, 4, 9)) for _ in range(3)], "int32"))
    other = draw.operand(dtype, (3, 3), special=False)
    unique = draw.argument(np.asarray(draw.random.sample(range(4), 3), "int32"))
    functions: dict[str, tuple[Callable[..., Any], list[int]]] = {
        "rows": (lambda x, i: x[i], [place, rows]),
        "rows, clipped": (lambda x, i: jnp.take(x, i, 0, mode="clip"), [place, rows]),
        "rows, filled": (lambda x, i: jnp.take(x, i, 0, mode="fill"), [place, rows]),
        "items": (lambda x, i: x[i, jnp.array([0, 2, 1])], [place, rows]),
        "dynamic slice": (lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (2, 2)), [place, rows]),
        "update slice": (lambda x, y, i: lax.dynamic_update_slice(x, y, (i[0], i[1])), [place, other, rows]),
        "set rows": (lambda x, i, y: x.at[i].set(y), [place, unique, other]),
    }  # fmt: skip
    if _is_integer(dtype):
        functions["add rows"] = (lambda x, i, y: x.at[i].add(y), [place, rows, other])
        functions["multiply rows"] = (lambda x, i, y: x.at[i].multiply(y), [place, rows, other])
        functions["max of rows"] = (lambda x, i, y: x.at[i].max(y), [place, rows, other])
    name = draw.choose(list(functions))
    draw.apply(name, functions[name][0], *functions[name][1], differences=[LARGE] if name[:3] in ("add", "mul") else [])


@_operation
def _sort(draw: _Draw) -> None:
    dtype = draw.dtype(SIGNED, UNSIGNED, FLOATS, ("bool",))
    place = draw.operand(dtype, draw.shape(2))
    if jnp.dtype(dtype).kind in "fV":  # zeros of both signs are equal, NaN is the largest
        place = draw.argument(draw[place] + np.zeros((), dtype))
    other = draw.operand(draw.dtype(SIGNED, FLOATS), draw[place].shape)
    axis = draw.random.randint(0, 1)
    count = draw.random.randint(1, draw[place].shape[1])
    which = draw.choose(("sort", "sort two", "argsort", "top_k"))
    if which == "sort two":
        draw.apply("sort two", lambda x, y: lax.sort((x, y), axis, num_keys=1), place, other)
    elif which == "top_k" and dtype != "bool":
        draw.apply("top_k", lambda x: lax.top_k(x, count), place)
    else:
        function = jnp.argsort if which == "argsort" else lambda x, axis: lax.sort(x, axis)
        draw.apply(which, lambda x: function(x, axis=axis), place)


@_operation
def _pool(draw: _Draw) -> None:
    dtype = draw.dtype(SIGNED, UNSIGNED, FLOATS)
    combine = draw.choose((lax.max, lax.min, lax.add))
    is_integer = _is_integer(dtype)
    place = draw.operand(dtype, (1, 2, 5, 4), special=combine is not lax.add or is_integer)
    limits: Any = np.iinfo(dtype) if is_integer else jnp.finfo(dtype)
    starts = {lax.max: limits.min if is_integer else -np.inf, lax.min: limits.max if is_integer else np.inf, lax.add: 0}
    steps, padding = draw.choose(((1, 1), (2, 2), (2, 1))), draw.choose(("VALID", "SAME"))
    marks = draw.marks_of_nan(place)
    start = np.asarray(starts[combine], dtype)
    draw.apply(
        f"pool {_name(combine)} {steps} {padding}",
        lambda x: lax.reduce_window(x, start, combine, (1, 1, 2, 3), (1, 1, *steps), padding), place,
        exact=combine is not lax.add, differences=marks,
        scale=float(np.abs(draw[place].astype("float64")).max()) * 6 if combine is lax.add else None,
    )  # fmt: skip


@_operation
def _loop(draw: _Draw) -> None:
    dtype = draw.dtype(SIGNED, UNSIGNED)
    place = draw.operand(dtype, (3,))
    number = draw.number(dtype)
    scanned = lambda x: lax.scan(lambda c, item: (c * item + number, c ^ item), x[0], x)  # noqa: E731
    functions: dict[str, Callable[[Any], Any]] = {
        "scan": scanned,
        "while": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x + number), (0, x))[1],
        "cond": lambda x: lax.cond(x[0] > x[1], lambda: x - number, lambda: x & number),
        "switch": lambda x: lax.switch(x[0].astype("int32"), [lambda: x, lambda: ~x, lambda: x + x]),
    }
    name = draw.choose(list(functions))
    draw.apply(f"{name} {number}", functions[name], place, differences=[LARGE])


@_operation
def _iota(draw: _Draw) -> None:
    dtype, shape = draw.dtype(SIGNED, UNSIGNED, FLOATS), draw.shape(2)
    place = draw.operand(dtype, shape, special=False)
    draw.apply("eq iota", lambda x: lax.eq(x, lax.broadcasted_iota(dtype, shape, 1)), place)


@_operation
def _integer_chain(draw: _Draw) -> None:
    """A polynomial of integers that wraps, with constants on both sides."""
    dtype = draw.dtype(SIGNED, UNSIGNED)
    place, numbers = draw.operand(dtype), [draw.number(dtype) for _ in range(3)]
    draw.apply(
        f"polynomial {numbers}", lambda x: numbers[0] - (x * numbers[1] + numbers[2]) * x, place, differences=[LARGE]
    )
