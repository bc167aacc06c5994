"""Puzzles: a function to write that computes what another one computes, within bounds on its cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.analysis.retraces import Watch, WatchReport
from mithril_nb.display import Shown
from mithril_nb.errors import StageUnavailableError, UnknownOptionError, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.stages.failure import first_lines
from mithril_nb.targets import inspect

_DRAWS = 3
"""Number of random inputs."""
_MOST_SHOWN = 3


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
        bounds: The bounds by name.
        result: The result of the latest try; `None` before the first.
    """

    def __init__(self, spec: Callable[..., Any], args: tuple[Any, ...], bounds: dict[str, int]):
        self.name = getattr(spec, "__name__", type(spec).__name__)
        self.text = " ".join((getattr(spec, "__doc__", None) or "").split())
        self.bounds, self.result = bounds, None
        self._spec, self._args = spec, args

    def __repr__(self) -> str:
        return f"Puzzle({self.name!r}, {', '.join(f'{name}={bound:,}' for name, bound in self.bounds.items())})"

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Check a function, print the result, and return the function, so that the puzzle is a decorator."""
        print(self.check(fn))
        return fn

    def check(self, fn: Callable[..., Any]) -> PuzzleResult:
        """Check a function against the reference, and then against the bounds.

        The function runs on three random inputs with the shapes of the example. No error is raised: what the function
        raises is the reason.

        Args:
            fn: The function; it may be jitted.
        """
        self.result = self._checked(fn)
        return self.result

    def _checked(self, fn: Callable[..., Any]) -> PuzzleResult:
        draws = [_drawn(self._args, seed) for seed in range(_DRAWS)]
        expected = [self._spec(*args) for args in draws]
        with Watch() as seen:
            try:
                results = [fn(*args) for args in draws]
            except Exception as error:
                return PuzzleResult(False, f"it raises {type(error).__name__}: {first_lines(error)}")
        if all(result is None or result is ... for result in results) and expected[0] is not None:
            return PuzzleResult(False, "it returns nothing yet. Write its body")
        for number, (want, result) in enumerate(zip(expected, results, strict=True), 1):
            if difference := _difference(want, result):
                return PuzzleResult(False, f"with random input {number}, {difference}")
        if "traces" in self.bounds and (reason := _too_many_traces(seen.report(), self.bounds["traces"])):
            return PuzzleResult(False, reason)
        try:
            program = inspect(fn, *self._args, name=getattr(fn, "__name__", self.name))
            figures = {name: _figure(program, name) for name in self.bounds if name != "traces"}
        except (StageUnavailableError, UnknownOptionError) as error:
            return PuzzleResult(False, f"its cost is unknown: {error}")
        known = tuple((name, value) for name, value in figures.items() if value is not None)
        for name, value in figures.items():
            if value is None or value > self.bounds[name]:
                return PuzzleResult(False, _over(program, name, value, self.bounds[name]), known, program)
        return PuzzleResult(True, "", known, program)


def puzzle(
    spec: Callable[..., Any],
    *example_args: Any,
    flops: int | None = None,
    bytes_accessed: int | None = None,
    peak_bytes: int | None = None,
    equations: int | None = None,
    traces: int | None = None,
) -> Puzzle:
    """Return a puzzle: write a function that computes what `spec` computes, within bounds.

    Args:
        spec: The reference. Its docstring is the text of the puzzle.
        *example_args: Arguments: pytrees of arrays, `jax.ShapeDtypeStruct`s, or Python numbers. Arrays get random
            values, so a function that returns a constant is found out. Python numbers stay.
        flops: Most FLOPs, as `inspection.cost()` counts them.
        bytes_accessed: Most bytes that the equations read and write.
        peak_bytes: Largest peak of memory of the compiled function in bytes.
        equations: Most equations of its jaxpr, those in bodies of loops and calls included.
        traces: Most traces of any jitted function of the user in three calls with equal shapes.

    Returns:
        The puzzle; as a decorator, it checks the function and prints the result.

    Raises:
        UnknownOptionError: A bound is no whole number, or the reference itself does not run.

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
        with random input 1, element (0,) of the result is 11.3, and should be -19.1
    """
    given = {
        "flops": flops, "bytes_accessed": bytes_accessed, "peak_bytes": peak_bytes, "equations": equations,
        "traces": traces,
    }  # fmt: skip
    bounds = {name: bound for name, bound in given.items() if bound is not None}
    for name, bound in bounds.items():
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
            raise UnknownOptionError(
                f"ml.teach.puzzle does not accept {name}={short_repr(bound)}.",
                (("needs", "a whole number, the largest allowed"),),
                f"{name}=1_000",
            )
    try:
        jax.eval_shape(spec, *example_args)
    except Exception as error:
        raise UnknownOptionError(
            "the reference of the puzzle does not run with the example.",
            ((type(error).__name__, first_lines(error)),),
            "ml.teach.puzzle(spec, *example_args)  # arguments that spec takes",
        ) from error
    return Puzzle(spec, example_args, bounds)


def _too_many_traces(report: WatchReport, bound: int) -> str:
    own = [function for function in report.functions if function.library is None]
    most = max(own, key=lambda function: function.traces, default=None)
    if most is None or most.traces <= bound:
        return ""
    reasons = "; ".join(each.reason for each in most.retraces[:_MOST_SHOWN])
    return f"{_DRAWS} calls trace `{most.name}` {most.traces} times, and {bound} is allowed: {reasons}"


def _drawn(args: tuple[Any, ...], seed: int) -> tuple[Any, ...]:
    random = np.random.default_rng([20, seed])

    def array(leaf: Any) -> Any:
        if not hasattr(leaf, "dtype"):
            return leaf
        dtype = leaf.dtype
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(seed), leaf.shape)
        if jnp.issubdtype(dtype, jnp.floating):
            return jnp.asarray(random.normal(size=leaf.shape), dtype)
        if jnp.issubdtype(dtype, jnp.complexfloating):
            return jnp.asarray(random.normal(size=leaf.shape) + 1j * random.normal(size=leaf.shape), dtype)
        if dtype == jnp.bool_:
            return jnp.asarray(random.integers(0, 2, size=leaf.shape), dtype)
        return jnp.asarray(random.integers(1, 10, size=leaf.shape), dtype)

    return jax.tree.map(array, args)


def _difference(expected: Any, result: Any) -> str:
    """Return where a result differs from the expected one; `""` if they are equal up to rounding."""
    wanted, structure = jax.tree.flatten_with_path(expected)
    leaves, other = jax.tree.flatten(result)
    if structure != other:
        return f"its result has the structure {short_repr(other)}, and should have {short_repr(structure)}"
    for (path, want), leaf in zip(wanted, leaves, strict=True):
        name = f"result{jax.tree_util.keystr(path)}"
        want_type, leaf_type = jax.typeof(want), jax.typeof(leaf)
        if (want_type.shape, want_type.dtype) != (leaf_type.shape, leaf_type.dtype):
            texts = [f"{each.dtype}[{', '.join(map(str, each.shape))}]" for each in (leaf_type, want_type)]
            return f"the {name} is {texts[0]}, and should be {texts[1]}"
        if jnp.issubdtype(want_type.dtype, jax.dtypes.prng_key):
            want, leaf = jax.random.key_data(want), jax.random.key_data(leaf)
        left, right = np.asarray(leaf), np.asarray(want)
        inexact = jnp.issubdtype(right.dtype, jnp.inexact)
        if inexact:
            left, right = (each.astype("complex128" if np.iscomplexobj(each) else "float64") for each in (left, right))
            precision = float(jnp.finfo(want_type.dtype).eps)
            scale = max(float(np.max(np.abs(right), initial=0.0)), 1e-30)
            close = np.isclose(left, right, rtol=precision**0.5, atol=precision**0.75 * scale, equal_nan=True)
        else:
            close = left == right
        if not np.all(close):
            at = tuple(int(index) for index in np.argwhere(~close)[0])
            where = f"element {at} of the {name}" if at else f"the {name}"
            return f"{where} is {_short(left[at])}, and should be {_short(right[at])}"
    return ""


def _short(value: Any) -> str:
    return f"{value:.3g}" if np.issubdtype(type(value), np.inexact) else str(value)


def _figure(program: Inspection, name: str) -> int | None:
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
    reason = f"it has {value:,} {title[name]}, and at most {bound:,} are allowed"
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
