"""Puzzles: a function to write that computes what another one computes, within bounds on its cost."""

from __future__ import annotations

import inspect as signatures
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.analysis.retraces import Watch, WatchReport
from mithril_nb.cost.mesh import Exchange
from mithril_nb.display import Shown
from mithril_nb.errors import DeviceNotFoundError, StageUnavailableError, UnknownOptionError, listed, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.stages import jax_jit
from mithril_nb.stages.failure import first_lines
from mithril_nb.stages.trace.params import COLLECTIVES
from mithril_nb.targets import inspect

_DRAWS = 3
"""Number of random inputs."""
_MOST_SHOWN = 3
_RANGE = (1, 9)
_KEYS = {"fry": "threefry2x32", "urbg": "unsafe_rbg"}
_OPCODES = frozenset(COLLECTIVES.values())


@dataclass(frozen=True)
class PuzzleResult(Shown):
    """The result of a try.

    Attributes:
        right: True if the function computes the same and keeps all bounds.
        reason: The first thing that is wrong: the input and element that differ, or the bound with its most expensive
            lines; `""` if it is right.
        figures: Each bounded figure of the function by name, as far as it was computed.
        inspection: The function at every stage; `None` if it cannot be traced.
    """

    right: bool
    reason: str = ""
    figures: tuple[tuple[str, int], ...] = ()
    inspection: Inspection | None = None


class Puzzle(Shown):
    """A puzzle. Use it as a decorator of the function that solves it, or call `check`. Created by `ml.teach.puzzle`.

    Attributes:
        name: Name of the puzzle: that of its reference.
        text: What to write: the docstring of the reference.
        bounds: The bounds by name; those of collectives by opcode.
        result: The result of the latest try; `None` before the first.
    """

    def __init__(
        self,
        spec: Callable[..., Any],
        args: tuple[Any, ...],
        bounds: dict[str, int],
        ranges: tuple[tuple[int, int], ...],
    ):
        self.name = getattr(spec, "__name__", type(spec).__name__)
        self.text = " ".join((getattr(spec, "__doc__", None) or "").split())
        self.bounds, self.result = bounds, None
        self._spec, self._args, self._ranges, self._tries = spec, args, ranges, 0

    def __repr__(self) -> str:
        return f"Puzzle({self.name!r}, {', '.join(f'{name}={bound:,}' for name, bound in self.bounds.items())})"

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Check a function, print the result, and return the function, so that the puzzle is a decorator."""
        print(self.check(fn))
        return fn

    def check(self, fn: Callable[..., Any]) -> PuzzleResult:
        """Check a function against the reference, and then against the bounds.

        The function runs on three random inputs with the shapes of the example, other ones in each check. No error is
        raised: what the function raises is the reason.

        Args:
            fn: The function; it may be jitted.
        """
        self._tries += 1
        self.result = self._checked(fn)
        return self.result

    def _draw(self, number: int, *, is_rounded: bool = False) -> tuple[Any, ...]:
        draws = zip(self._args, self._ranges, strict=True)
        random = _Random(self._tries, number)
        return tuple(_drawn(arg, limits, random, is_rounded) for arg, limits in draws)

    def _checked(self, fn: Callable[..., Any]) -> PuzzleResult:
        # Each call gets its own arguments: a function may change or donate them.
        expected = [_copied(self._spec(*self._draw(number))) for number in range(_DRAWS)]
        rounded = [_copied(self._spec(*self._draw(number, is_rounded=True))) for number in range(_DRAWS)]
        results: list[Any] = []
        with Watch() as seen:
            try:
                for number in range(_DRAWS):
                    results.append(_copied(fn(*self._draw(number))))
            except (Exception, SystemExit) as error:
                return PuzzleResult(False, f"it raises {type(error).__name__}: {first_lines(error)}")
        if all(result is None or result is ... for result in results) and expected[0] is not None:
            return PuzzleResult(False, "it returns nothing yet. Write its body")
        for number, (want, near, result) in enumerate(zip(expected, rounded, results, strict=True), 1):
            if difference := _difference(want, near, result):
                return PuzzleResult(False, f"with random input {number}, {difference}")
        if "traces" in self.bounds and (reason := _too_many_traces(seen.report(), self.bounds["traces"])):
            return PuzzleResult(False, reason)
        try:
            program = inspect(fn, *self._args, name=getattr(fn, "__name__", self.name))
            if self.bounds:
                _ = program.equations  # code that cannot be traced is refused also if only its traces are bounded
            figures = {name: _figure(program, name) for name in self.bounds if name != "traces"}
        except (StageUnavailableError, UnknownOptionError) as error:
            return PuzzleResult(False, f"its cost is unknown: {error}")
        except SystemExit as error:
            return PuzzleResult(False, f"its cost is unknown: it raises SystemExit: {first_lines(error)}")
        computed = tuple((name, value) for name, value in figures.items() if value is not None)
        for name, value in figures.items():
            if value is None or value > self.bounds[name]:
                return PuzzleResult(False, _over(program, name, value, self.bounds[name]), computed, program)
        return PuzzleResult(True, "", computed, program)


def puzzle(
    spec: Callable[..., Any],
    *example_args: Any,
    flops: int | None = None,
    bytes_accessed: int | None = None,
    peak_bytes: int | None = None,
    equations: int | None = None,
    traces: int | None = None,
    collectives: Mapping[str, int] | None = None,
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> Puzzle:
    """Return a puzzle: write a function that computes what `spec` computes, within bounds.

    Args:
        spec: The reference. Its docstring is the text of the puzzle.
        *example_args: Arguments: pytrees of arrays, `jax.ShapeDtypeStruct`s, or Python numbers. Arrays get random
            values, so a function that returns a constant is found out. Python numbers stay. Floats are normally
            distributed, and integers are from 1 to 9.
        flops: Most FLOPs, as `inspection.cost()` counts them.
        bytes_accessed: Most bytes that the equations read and write.
        peak_bytes: Largest peak of memory of the compiled function in bytes.
        equations: Most equations of its jaxpr, those in bodies of loops and calls included.
        traces: Most traces of any jitted function of the user in three calls with equal shapes.
        collectives: Most collectives of the compiled program by opcode, such as `{"all-gather": 0}`, including
            collectives that the function calls itself. A program of one device has none, so bound `peak_bytes` as well:
            it is the peak of one device. The process needs several devices.
        ranges: Least and largest integer of an argument by its name, such as `{"ids": (0, 199)}`. State it where the
            function must also be right for zero, negative or large integers.

    Returns:
        The puzzle; as a decorator, it checks the function and prints the result.

    Raises:
        UnknownOptionError: A bound is no whole number, a range is none, there is no such collective, or the reference
            itself does not run.
        DeviceNotFoundError: `collectives` is bounded, and the process has one device.

    Examples:
        >>> import jax, jax.numpy as jnp, mithril_nb as ml
        >>> def product(a, b, x):
        ...     "Compute A B x."
        ...     return (a @ b) @ x
        >>> matrix = jax.ShapeDtypeStruct((64, 64), "float32")
        >>> chain = ml.teach.puzzle(product, matrix, matrix, jax.ShapeDtypeStruct((64,), "float32"), flops=20_000)
        >>> @chain
        ... def better(a, b, x):
        ...     return a @ (b @ x)
        right: 16,384 FLOPs
        >>> print(chain.check(lambda a, b, x: a @ x).reason)
        with random input 1, element (0,) of the result is 21.6, and should be 126
    """
    by_name = {
        "flops": flops, "bytes_accessed": bytes_accessed, "peak_bytes": peak_bytes, "equations": equations,
        "traces": traces,
    }  # fmt: skip
    if collectives is not None and not (isinstance(collectives, Mapping) and {*collectives} <= _OPCODES):
        raise UnknownOptionError(
            f"ml.teach.puzzle does not accept collectives={short_repr(collectives)}.",
            (("collectives", ", ".join(sorted(_OPCODES))),),
            'collectives={"all-gather": 0}',
        )
    bounds = {**(collectives or {}), **{name: bound for name, bound in by_name.items() if bound is not None}}
    for name, bound in bounds.items():
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
            raise UnknownOptionError(
                f"ml.teach.puzzle does not accept {name}={short_repr(bound)}.",
                (("needs", "a whole number, the largest allowed"),),
                f'collectives={{"{name}": 0}}' if name in _OPCODES else f"{name}=1_000",
            )
    if collectives:
        require_devices(2, "a bound of collectives")
    try:
        jax.eval_shape(spec, *example_args)
    except Exception as error:
        raise UnknownOptionError(
            "the reference of the puzzle does not run with the example.",
            ((type(error).__name__, first_lines(error)),),
            "ml.teach.puzzle(spec, *example_args)  # arguments that spec takes",
        ) from error
    return Puzzle(spec, example_args, bounds, _ranges(spec, example_args, ranges or {}))


def require_devices(count: int, subject: str) -> None:
    """Raise an error if the process has fewer devices."""
    if jax.device_count() < count:
        raise DeviceNotFoundError(
            f"{subject} needs {count} devices.",
            (("present", listed([str(device) for device in jax.devices()])),),
            'os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"  # before the first import of JAX',
        )


def _ranges(
    spec: Callable[..., Any], args: tuple[Any, ...], ranges: Mapping[str, tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    names = list(signatures.signature(spec).parameters) if ranges else []
    for name, limits in ranges.items():
        is_range = isinstance(limits, tuple) and len(limits) == 2 and all(type(limit) is int for limit in limits)
        if name not in names[: len(args)] or not is_range or limits[0] > limits[1]:
            raise UnknownOptionError(
                f"ml.teach.puzzle does not accept ranges={short_repr(dict(ranges))}.",
                (("arguments", ", ".join(names)), ("needs", "the least and the largest integer of an argument")),
                f'ranges={{"{names[0] if names else "x"}": (0, 9)}}',
            )
    return tuple(ranges.get(names[at], _RANGE) if at < len(names) else _RANGE for at in range(len(args)))


def _too_many_traces(report: WatchReport, bound: int) -> str:
    own = [function for function in report.functions if function.library is None]
    most = max(own, key=lambda function: function.traces, default=None)
    if most is None or most.traces <= bound:
        return ""
    reasons = "; ".join(each.reason for each in most.retraces[:_MOST_SHOWN])
    return f"{_DRAWS} calls trace `{most.name}` {most.traces} times, and {bound} is allowed: {reasons}"


class _Random:
    """Random values of one input of a try."""

    def __init__(self, tries: int, number: int):
        self.of_input = np.random.default_rng([20, tries, number])
        self.of_try, self.number = np.random.default_rng([21, tries]), number
        self.signs = np.random.default_rng([22, tries, number])

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> Any:
        """Return integers from `low` to `high`; a scalar differs from that of the input before."""
        if shape or low == high:
            return self.of_input.integers(low, high, size=shape, endpoint=True)
        span = high - low + 1
        start, step = int(self.of_try.integers(span)), int(self.of_try.integers(1, span))
        return low + (start + self.number * step) % span


def _drawn(arg: Any, limits: tuple[int, int], random: _Random, is_rounded: bool) -> Any:
    """Return an argument with random values; if `is_rounded`, with floats that differ by a rounding."""

    def rounded(values: Any, dtype: Any) -> Any:
        signs = random.signs.choice([-1, 1], np.shape(values))
        return jnp.asarray(values * (1 + signs * float(jnp.finfo(dtype).eps)) if is_rounded else values, dtype)

    def array(leaf: Any) -> Any:
        if not hasattr(leaf, "dtype"):
            return leaf
        dtype, shape = leaf.dtype, leaf.shape
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            kind = str(dtype).removeprefix("key<").removesuffix(">")
            key = jax.random.key(int(random.of_input.integers(2**31)), impl=_KEYS.get(kind, kind))
            return jax.random.split(key, shape) if shape else key
        if jnp.issubdtype(dtype, jnp.floating):
            return rounded(random.of_input.normal(size=shape), dtype)
        if jnp.issubdtype(dtype, jnp.complexfloating):
            return rounded(random.of_input.normal(size=shape) + 1j * random.of_input.normal(size=shape), dtype)
        low, high = (0, 1) if dtype == jnp.bool_ else limits
        return jnp.asarray(random.integers(low, high, shape), dtype)

    return jax.tree.map(array, arg)


@dataclass(frozen=True)
class _Copy:
    """A leaf of a result: its type as text, and its values in NumPy; `None` if it is no array."""

    type: str
    values: Any = None


def _copied(result: Any) -> Any:
    return jax.tree.map(_copy, result) if result is not ... else result


def _copy(leaf: Any) -> _Copy:
    try:
        aval = jax.typeof(leaf)
        is_key = jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)
        values = np.array(jax.random.key_data(leaf) if is_key else jnp.asarray(leaf))
    except (TypeError, OverflowError, AttributeError):  # no array, or an int of too many digits
        return _Copy(f"of type {type(leaf).__name__}")
    return _Copy(f"{aval.dtype}[{', '.join(map(str, aval.shape))}]", values)


def _difference(expected: Any, rounded: Any, result: Any) -> str:
    """Return where a result differs from the expected one; `""` if they are equal up to rounding.

    Args:
        expected: The result of the reference.
        rounded: Its result for inputs that differ by a rounding.
        result: The result of the function.
    """
    wanted, structure = jax.tree.flatten_with_path(expected)
    leaves, other = jax.tree.flatten(result)
    if structure != other:
        return f"its result has the structure {short_repr(other)}, and should have {short_repr(structure)}"
    for (path, want), near, leaf in zip(wanted, jax.tree.leaves(rounded), leaves, strict=True):
        name = f"result{jax.tree_util.keystr(path)}"
        if want.type != getattr(leaf, "type", None) or want.values is None:
            return f"the {name} is {getattr(leaf, 'type', leaf)}, and should be {want.type}"
        left, right = leaf.values, want.values
        close = _is_close(left, right, near.values) if jnp.issubdtype(right.dtype, jnp.inexact) else left == right
        if not np.all(close):
            at = tuple(int(index) for index in np.argwhere(~close)[0])
            where = f"element {at} of the {name}" if at else f"the {name}"
            return f"{where} is {_short(left[at])}, and should be {_short(right[at])}"
    return ""


def _is_close(left: Any, right: Any, near: Any) -> Any:
    """Return which elements differ by no more than other orders of the same operations do."""
    eps = float(jnp.finfo(right.dtype).eps)
    is_short = eps > 1e-4  # 16 bits or fewer
    left, right, near = (
        each.astype("complex128" if jnp.issubdtype(each.dtype, jnp.complexfloating) else "float64")
        for each in (left, right, near)
    )
    size = np.abs(right)
    sizes = size[np.isfinite(size) & (size > 0)]
    # The geometric mean: one large element must not hide the errors of others.
    scale = float(np.exp(np.mean(np.log(sizes)))) if sizes.size else 0.0
    both = np.isfinite(near) & np.isfinite(right)
    change = np.abs(np.where(both, near, 0) - np.where(both, right, 0))
    relative, absolute, changes = (min(4 * eps, eps**0.5), eps, 1) if is_short else (eps**0.5, eps**0.75, 64)
    # Steps between have about the size of the inputs, 1, also where the result is much smaller.
    least = (eps if is_short else 16 * eps) * min(float(np.max(sizes, initial=0.0)), 1.0)
    return np.isclose(left, right, rtol=relative, atol=absolute * scale + changes * change + least, equal_nan=True)


def _short(value: Any) -> str:
    return f"{value:.3g}" if np.issubdtype(type(value), np.inexact) else str(value)


def _collectives(program: Inspection, opcode: str) -> list[Exchange]:
    is_of_one_device = jax_jit.compile_facts(program.lowered)["partitions"] == 1  # which has no mesh
    return [] if is_of_one_device else [each for each in program.mesh.collectives if each.opcode == opcode]


def _figure(program: Inspection, name: str) -> int | None:
    if name in _OPCODES:
        return len(_collectives(program, name))
    if name == "equations":
        return len(program.equations)
    if name == "peak_bytes":
        memory = program.memory
        return memory.peak_bytes if memory.source == "compiled" else None
    total = program.cost("analytic").total
    unknown = total.unknown if name == "flops" else total.unknown_bytes
    return None if unknown else getattr(total, name)


def _over(program: Inspection, name: str, value: int | None, bound: int) -> str:
    title = {"flops": "FLOPs", "bytes_accessed": "bytes", "peak_bytes": "bytes at its peak", "equations": "equations"}
    if value is None:
        return f"its number of {title[name]} is unknown, so the bound of {bound:,} cannot be checked"
    reason = f"it has {value:,} {title.get(name, f'`{name}`')}, and at most {bound:,} are allowed"
    if name in _OPCODES:
        payloads = [(each.payload_bytes, each.reason) for each in _collectives(program, name)[:_MOST_SHOWN]]
        most = [f"{'unknown' if nbytes is None else f'{nbytes:,}'} bytes: {why}" for nbytes, why in payloads]
        return f"{reason}. They pass {'; '.join(most)}"
    if name not in ("flops", "bytes_accessed"):
        return reason
    rows = sorted(program.cost("analytic").rows, key=lambda row: -(getattr(row, name) or 0))[:_MOST_SHOWN]
    by_id = {equation.id: equation for equation in program.equations}
    lines = [
        f"equation {row.id}, `{row.opcode}`{f' from {by_id[row.id].source}' if by_id[row.id].source else ''}: "
        f"{getattr(row, name):,} ({row.formula})"
        for row in rows
        if getattr(row, name)
    ]
    return f"{reason}. Most are in {'; '.join(lines)}"
