"""Questions about calls of a jitted function: which of them trace it again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.analysis.retraces import Watched
from mithril_nb.inspection import Inspection
from mithril_nb.stages.transforms.kinds import Examples
from mithril_nb.teach.answers import Each
from mithril_nb.teach.question import Candidate

_CALLS = 4
_MOST_BYTES = 64 << 20
"""Most bytes of arguments, because the calls of a question run."""
_OTHER_DTYPES = {"float32": "float16", "float64": "float32", "int32": "int16", "bfloat16": "float32"}

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def retrace(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask which calls of the jitted program trace it: others hit the cache."""
    leaves = jax.tree.leaves(program.arguments)
    size = sum(np.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves if hasattr(leaf, "dtype"))
    if size > _MOST_BYTES:
        return
    make = Examples()
    args: Any = jax.tree.map(lambda leaf: make.like(leaf) if hasattr(leaf, "dtype") else leaf, program.arguments)
    variants = [call for call in _variants(program, args) if _runs(program.function, call)]
    for _ in range(4):
        if len(variants) < 2:
            return
        chosen = random.sample(variants, min(len(variants), _CALLS - 1))
        # One of the calls is repeated, so that a hit is never only the call that changes nothing.
        calls = [*chosen, random.choice(chosen)]
        random.shuffle(calls)
        first: Call = ("the arguments of the program", args, {})
        yield _candidate(program, [first, *calls])


def _runs(function: Callable[..., Any], call: Call) -> bool:
    _, args, kwargs = call
    try:
        jax.eval_shape(lambda: function(*args, **kwargs))
    except Exception:  # a program need not work with other shapes and dtypes
        return False
    return True


def _candidate(program: Inspection, calls: list[Call]) -> Candidate:
    name = program.name

    def fresh(*args: Any, **kwargs: Any) -> Any:  # a new function object has no cache yet
        return program.function(*args, **kwargs)

    fresh.__signature__ = inspect.signature(program.function)  # pyright: ignore[reportFunctionMemberAccess]
    jitted = jax.jit(fresh)
    watched = Watched(jitted)
    truth: list[str] = []
    second: list[str] = []
    reasons: list[str] = []
    for number, (_, args, kwargs) in enumerate(calls, 1):
        traces, entries = watched.report().traces, jitted._cache_size()  # pyright: ignore
        jax.block_until_ready(watched(*args, **kwargs))
        report = watched.report()
        truth.append("trace" if report.traces > traces else "hit")
        second.append("trace" if jitted._cache_size() > entries else "hit")  # pyright: ignore
        reasons += [f"Call {number} traces: {each.reason}." for each in report.retraces if each.call == number]
    lines = [f"{number}. {text}" for number, (text, _, _) in enumerate(calls, 1)]
    return Candidate(
        f"`f = jax.jit({name})` is called {len(calls)} times. Which calls trace the function, and which hit the cache?",
        Each(tuple(f"call {number}" for number in range(1, len(calls) + 1)), ("trace", "hit")),
        tuple(truth),
        tuple(second),
        " ".join(["The first call traces.", *reasons]) + " The others have the same shapes, dtypes and structure as an "
        "earlier call.",
        code="\n".join(lines),
    )


def _variants(program: Inspection, args: tuple[Any, ...]) -> Iterator[Call]:
    """Yield calls that differ in one way, with a text that states it."""
    names = [leaf.name for leaf in program.traced_program.trace.inputs]
    leaves, tree = jax.tree.flatten(args)
    if len(names) != len(leaves):
        return

    def with_leaves(change: Callable[[Any], Any]) -> tuple[Any, ...]:
        return jax.tree.unflatten(tree, [change(leaf) for leaf in leaves])

    yield "the same arguments with other values", with_leaves(lambda leaf: leaf + 0 * leaf), {}
    arrays = [(at, leaf) for at, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]
    batches = {leaf.shape[0] for _, leaf in arrays if leaf.ndim}
    for size in sorted(batches):
        if size < 2:
            continue
        fewer = with_leaves(lambda leaf, size=size: leaf[: size // 2] if leaf_has(leaf, size) else leaf)
        which = ", ".join(names[at] for at, leaf in arrays if leaf_has(leaf, size))
        yield f"{which}: {size // 2} instead of {size} rows", fewer, {}
    for at, leaf in arrays:
        dtype = _OTHER_DTYPES.get(leaf.dtype.name)
        if dtype is not None:
            changed = partial(_replaced, leaves, at, leaf.astype(dtype))
            yield f"{names[at]} as {dtype} instead of {leaf.dtype.name}", jax.tree.unflatten(tree, changed()), {}
        if leaf.ndim == 0 and jnp.issubdtype(leaf.dtype, jnp.inexact):
            number = _replaced(leaves, at, float(leaf))
            yield f"{names[at]} as a Python float instead of an array", jax.tree.unflatten(tree, number), {}
    for at, argument in enumerate(args):
        name = program.traced_program.trace.arguments[at] if at < len(program.traced_program.trace.arguments) else ""
        if isinstance(argument, dict) and len(argument) > 1:  # pyright: ignore[reportUnknownArgumentType]
            turned: Any = dict(reversed(argument.items()))  # pyright: ignore
            yield f"{name} as a dict with its keys in reverse order", (*args[:at], turned, *args[at + 1 :]), {}
        if isinstance(argument, list):
            yield f"{name} as a tuple instead of a list", (*args[:at], tuple(argument), *args[at + 1 :]), {}  # pyright: ignore
    last = program.traced_program.trace.arguments[-1:]
    if len(args) > 1 and last and last[0].isidentifier():
        yield f"the last argument by keyword, {last[0]}=", args[:-1], {last[0]: args[-1]}


def leaf_has(leaf: Any, size: int) -> bool:
    """Return whether an argument has this number of rows."""
    return bool(getattr(leaf, "ndim", 0)) and leaf.shape[0] == size


def _replaced(leaves: list[Any], at: int, leaf: Any) -> list[Any]:
    return [*leaves[:at], leaf, *leaves[at + 1 :]]
