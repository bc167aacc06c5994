"""Questions about calls of a jitted function: which of them trace it again, and which value of a global they use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from random import Random
from types import CodeType, FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.analysis.retraces import Watched
from mithril_nb.inspection import Inspection
from mithril_nb.stages.transforms.kinds import Examples
from mithril_nb.teach.answers import TOLERANCE, Each
from mithril_nb.teach.question import Candidate

_CALLS = 4
_MOST_BYTES = 64 << 20
"""Most bytes of arguments, because the calls of a question run."""
_OTHER_DTYPES = {"float32": "float16", "float64": "float32", "int32": "int16", "bfloat16": "float32"}

_CHANGES = "Each line has what differs from the first call. "

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A text, with the arguments that it describes."""


def retrace(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask which calls of the jitted program trace it: others hit the cache."""
    args, variants = _calls(program)
    first: Call = ("the arguments of the program", args, {})
    for _ in range(4 if len(variants) > 1 else 0):
        chosen = random.sample(variants, min(len(variants), _CALLS - 1))
        yield _traces(program.name, program.function, [first, *_with_a_repeated(chosen, random)])


def retrace_of_codes(
    function: Callable[..., Any], codes: Sequence[str], options: Mapping[str, Any], random: Random
) -> Iterator[Candidate]:
    """Ask which of some calls, as expressions of `f`, trace a function that is jitted with these options."""
    first, *others = codes
    for _ in range(4):
        chosen = random.sample(others, min(len(others), _CALLS - 1))
        in_order = _with_a_repeated(chosen, random)
        yield _traces(function.__name__, function, [(code, (), {}) for code in (first, *in_order)], options, True)


def stale(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask which value of a global number the calls of the jitted program use, after it was changed."""
    function = inspect.unwrap(program.function)
    if not isinstance(function, FunctionType):
        return
    values = function.__globals__
    names = [name for name in _names(function.__code__) if type(values.get(name)) in (int, float)]
    names = [name for name in names if isfinite(values[name])]
    args, variants = _calls(program)
    others = [call for call in variants if _key(call[1], call[2]) != _key(args, {})]
    for name in random.sample(names, len(names)):
        for _ in range(4 if len(others) > 1 else 0):
            before, after = random.sample(others, 2)
            first: Call = ("the arguments of the program", args, {})
            try:
                yield _stale(program, function, name, [first, before], _with_a_repeated([first, before, after], random))
            except Exception:  # the number may be a size or an axis, and the program does not run with another one
                break


def _calls(program: Inspection) -> tuple[tuple[Any, ...], list[Call]]:
    """Return arguments for a program, and calls with other ones; none if they are too large to run."""
    leaves = jax.tree.leaves(program.arguments)
    size = sum(np.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves if hasattr(leaf, "dtype"))
    if size > _MOST_BYTES:
        return (), []
    make = Examples()
    args: Any = jax.tree.map(lambda leaf: make.like(leaf) if hasattr(leaf, "dtype") else leaf, program.arguments)
    return args, [call for call in _variants(program, args) if _runs(program.function, call)]


def _with_a_repeated(chosen: list[Any], random: Random) -> list[Any]:
    # One of the calls is repeated, so that a hit is never only the call that changes nothing.
    calls = [*chosen, random.choice(chosen)]
    random.shuffle(calls)
    return calls


def _runs(function: Callable[..., Any], call: Call) -> bool:
    _, args, kwargs = call
    try:
        jax.eval_shape(lambda: function(*args, **kwargs))
    except Exception:  # a program need not work with other shapes and dtypes
        return False
    return True


def _traces(
    name: str,
    function: Callable[..., Any],
    calls: Sequence[Call],
    options: Mapping[str, Any] | None = None,
    is_code: bool = False,
) -> Candidate:
    runs = 0

    def fresh(*args: Any, **kwargs: Any) -> Any:  # a new function object has no cache yet
        nonlocal runs
        runs += 1
        return function(*args, **kwargs)

    fresh.__signature__ = inspect.signature(function)  # pyright: ignore[reportFunctionMemberAccess]
    watched = Watched(jax.jit(fresh, **(options or {})))
    truth: list[str] = []
    second: list[str] = []
    reasons: list[str] = []
    for number, (text, args, kwargs) in enumerate(calls, 1):
        before, runs_before = watched.report(), runs
        names: Any = getattr(function, "__globals__", {})
        result = eval(text, {**names, "f": watched}) if is_code else watched(*args, **kwargs)
        jax.block_until_ready(result)
        report = watched.report()
        truth.append("trace" if report.traces > before.traces else "hit")
        # Not jitted._cache_size(): it also grows if an array of JAX follows one of NumPy, without a trace.
        second.append("trace" if runs > runs_before else "hit")
        # Not those whose `call` is `number`: a call in the arguments of a call is counted as well.
        reasons += [f"Call {number} traces: {each.reason}." for each in report.retraces[len(before.retraces) :]]
    lines = [f"{number}. {text}" for number, (text, _, _) in enumerate(calls, 1)]
    settings = "".join(f", {key}={value!r}" for key, value in (options or {}).items())
    return Candidate(
        f"`f = jax.jit({name}{settings})` is called {len(calls)} times. "
        f"{'' if is_code else _CHANGES}Which calls trace the function, and which hit the cache?",
        Each(tuple(f"call {number}" for number in range(1, len(calls) + 1)), ("trace", "hit")),
        tuple(truth),
        tuple(second),
        " ".join(["The first call traces.", *reasons]) + " The others have the same shapes, dtypes and structure as an "
        "earlier call, whose program JAX kept.",
        code="\n".join(lines),
    )


def _stale(
    program: Inspection, function: FunctionType, name: str, before: Sequence[Call], after: Sequence[Call]
) -> Candidate:
    old = function.__globals__[name]
    new = old * 2 or 1
    eager = {value: _with_globals(function, {**function.__globals__, name: value}) for value in (old, new)}
    namespace = {**function.__globals__, name: old}
    jitted = jax.jit(_with_globals(function, namespace))
    by_key: dict[Any, Any] = {}
    truth: list[str] = []
    second: list[str | None] = []
    for number, (_, args, kwargs) in enumerate((*before, *after)):
        namespace[name] = old if number < len(before) else new
        by_key.setdefault(_key(args, kwargs), namespace[name])
        result = jitted(*args, **kwargs)
        if number >= len(before):
            truth.append(f"{by_key[_key(args, kwargs)]!r}")
            equal = [value for value, run in eager.items() if _is_close(result, run(*args, **kwargs))]
            second.append(f"{equal[0]!r}" if len(equal) == 1 else None)
    lines = [f"{number}. {text}" for number, (text, _, _) in enumerate((*before, *after), 1)]
    lines.insert(len(before), f"{name} = {new!r}")
    new_calls = [f"call {number}" for number, value in enumerate(truth, len(before) + 1) if value == f"{new!r}"]
    return Candidate(
        f"`{program.name}` reads the global `{name}`, which is {old!r}. `f = jax.jit({program.name})` is called, "
        f"`{name}` is set to {new!r}, and `f` is called again. {_CHANGES}"
        f"Which value of `{name}` do the later calls use?",
        Each(tuple(f"call {number}" for number in range(len(before) + 1, len(lines))), (f"{old!r}", f"{new!r}")),
        tuple(truth),
        tuple(second),
        f"The value is read while tracing, and is a constant of the traced program. Programs with {new!r} are used by: "
        f"{', '.join(new_calls) or 'no call'}. The other calls hit the cache with a "
        f"program that was traced while `{name}` was {old!r}.",
        near=((tuple(f"{new!r}" for _ in truth), "A call that hits the cache does not run the Python code."),),
        code="\n".join(lines),
    )


def _with_globals(function: FunctionType, namespace: dict[str, Any]) -> FunctionType:
    copy = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _names(code: CodeType) -> list[str]:
    inner = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const)]
    return list(dict.fromkeys([*code.co_names, *inner]))


def _key(args: Any, kwargs: Any) -> Any:
    leaves, structure = jax.tree.flatten((args, kwargs))
    return structure, tuple(str(jax.typeof(leaf)) + str(jax.typeof(leaf).weak_type) for leaf in leaves)


def _is_close(left: Any, right: Any) -> bool:
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.allclose(*(jnp.asarray(leaf, "float32") for leaf in pair), rtol=TOLERANCE) for pair in pairs)


def _variants(program: Inspection, args: tuple[Any, ...]) -> Iterator[Call]:
    """Yield calls that differ in one way, with a text that states it."""
    names = [leaf.name for leaf in program.traced_program.trace.inputs]
    leaves, tree = jax.tree.flatten(args)
    if len(names) != len(leaves):
        return

    def with_leaves(change: Callable[[Any], Any]) -> tuple[Any, ...]:
        return jax.tree.unflatten(tree, [change(leaf) for leaf in leaves])

    make = Examples()
    make.like(jax.ShapeDtypeStruct((1,), "float32"))  # the values begin elsewhere than those of `args`
    yield (
        "the same arguments with other values",
        with_leaves(lambda leaf: make.like(leaf) if hasattr(leaf, "dtype") else leaf),
        {},
    )
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
