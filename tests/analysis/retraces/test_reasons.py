"""The reason for each retrace as a full sentence, and the user's line."""

from __future__ import annotations

import dataclasses
import functools
import threading
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from analysis.retraces.reasons import reasons

import mithril_nb as ml

HERE = Path(__file__).name


def fresh(function):
    """Return a copy of a function: JAX caches traces per function object, also across `jax.jit`."""
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__qualname__ = function.__kwdefaults__, function.__qualname__
    return copy


def watch(function, **options):
    return ml.watch(jax.jit(fresh(function), **options))


def watched(function, *calls, **options):
    """Return the reasons for the retraces of a function called with each of the arguments."""
    seen = watch(function, **options)
    for args, kwargs in calls:
        seen(*args, **kwargs)
    return reasons(seen)


def call(*args, **kwargs):
    return args, kwargs


def f(x, n=2):
    return x * n


def first(params, scale=1.0):
    return jax.tree.map(lambda one: one * scale, params)


X = jnp.ones((32, 10))

REASONS = {
    "shape": (
        f,
        [call(X), call(jnp.ones((33, 10)))],
        "argument 1 `x` changed from f32[32,10] to f32[33,10]",
    ),
    "dtype": (
        f,
        [call(X), call(jnp.ones((32, 10), jnp.bfloat16))],
        "argument 1 `x` changed from f32[32,10] to bf16[32,10]",
    ),
    "weak to strong": (
        f,
        [call(X, 2.0), call(X, jnp.float32(2))],
        "argument 2 `n`: weak type became strong (f32[])",
    ),
    "strong to weak": (
        f,
        [call(X, jnp.float32(2)), call(X, 2.0)],
        "argument 2 `n`: strong type became weak (f32[])",
    ),
    "type and weakness": (
        f,
        [call(X, 2), call(X, jnp.float32(2))],
        "argument 2 `n` changed from weak i32[] to f32[]",
    ),
    "a Python scalar of another type": (
        f,
        [call(X, 2), call(X, 2.0)],
        "argument 2 `n` changed from i32[] to f32[]",
    ),
    "by name": (
        f,
        [call(X, 2), call(X, n=2)],
        "argument 2 `n` was given by position before and is given by name now",
    ),
    "by position": (
        f,
        [call(X, n=2), call(X, 2)],
        "argument 2 `n` was given by name before and is given by position now",
    ),
    "given": (f, [call(X), call(X, 2)], "argument 2 `n` was left out before and is given now"),
    "left out": (f, [call(X, 2), call(X)], "argument 2 `n` was given before and is left out now"),
    "several": (
        f,
        [call(X, 2.0), call(jnp.ones(3), jnp.float32(2))],
        "argument 1 `x` changed from f32[32,10] to f32[3]; argument 2 `n`: weak type became strong (f32[])",
    ),
    "a leaf": (
        first,
        [call({"w": X, "b": [X]}), call({"w": X, "b": [X.astype(jnp.int8)]})],
        "argument 1 `params['b'][0]` changed from f32[32,10] to i8[32,10]",
    ),
    "many leaves": (
        first,
        [call([X] * 5), call([X[0]] * 5)],
        "argument 1 `params[0]` changed from f32[32,10] to f32[10]; argument 1 `params[1]` changed from f32[32,10] "
        "to f32[10]; argument 1 `params[2]` changed from f32[32,10] to f32[10]; and 2 more changes",
    ),
    "a new leaf": (
        first,
        [call({"w": X}), call({"w": X, "b": X})],
        "argument 1 `params` changed its structure: new `['b']`",
    ),
    "other leaves": (
        first,
        [call({"w": X, "v": X}), call({"w": X, "b": X})],
        "argument 1 `params` changed its structure: new `['b']`, missing `['v']`",
    ),
    "list to tuple": (first, [call([X]), call((X,))], "argument 1 `params` changed from list to tuple"),
    "None to array": (first, [call(None), call(X)], "argument 1 `params` changed from None to f32[32,10]"),
    "array to dict": (first, [call(X), call({"w": X})], "argument 1 `params` changed from f32[32,10] to {'w': *}"),
    "variadic": (
        lambda *xs: xs[0],
        [call(X, X), call(X, X[0])],
        "argument 2 changed from f32[32,10] to f32[10]",
    ),
    "keyword-only": (
        lambda x, *, bias: x + bias,
        [call(X, bias=X), call(X, bias=X[0])],
        "argument `bias` changed from f32[32,10] to f32[10]",
    ),
    "random key": (
        lambda key: jax.random.key_data(key),
        [call(jax.random.key(0)), call(jax.random.split(jax.random.key(0)))],
        "argument 1 `key` changed from key<fry>[] to key<fry>[2]",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_reason_of_a_retrace(name):
    function, calls, reason = REASONS[name]
    assert watched(function, *calls) == [reason]


def test_static_value():
    assert watched(f, call(X, 3), call(X, 4), static_argnums=1) == ["static argument `n` changed from 3 to 4"]
    assert watched(f, call(X, n=3), call(X, n=4), static_argnames="n") == ["static argument `n` changed from 3 to 4"]
    assert watched(lambda *xs: xs[0], call(X, 3), call(X, 4), static_argnums=1) == [
        "static argument 2 changed from 3 to 4"
    ]


def act(x, fn):
    return fn(x)


def test_static_function():
    lambdas = [lambda x: x + 1 for _ in range(2)]
    line = lambdas[0].__code__.co_firstlineno
    assert watched(act, call(X, lambdas[0]), call(X, lambdas[1]), static_argnums=1) == [
        f"static argument `fn` is a new function object: `<lambda>` at {HERE}:{line}"
    ]
    assert watched(act, call(X, lambdas[0]), call(X, f), static_argnums=1) == [
        f"static argument `fn` changed from `<lambda>` at {HERE}:{line} to `f` at {HERE}:{f.__code__.co_firstlineno}"
    ]


class Config:
    """A class whose instances are compared by identity, as most are."""


def test_static_object_compared_by_identity():
    found = watched(lambda x, config: x, call(X, Config()), call(X, Config()), static_argnums=1)
    assert found == [
        "static argument `config` is a new object, not equal to the earlier one, "
        f"although both print the same: <{__name__}.Config object>"
    ]


def test_static_data_in_a_structure():
    wrap = [jax.tree_util.Partial(lambda x: x, X) for _ in range(2)]
    (reason,) = watched(lambda p: p(), call(wrap[0]), call(wrap[1]))
    assert reason.startswith("argument 1 `p` changed the static data in its structure CustomNode(Partial[")


def test_context():
    seen = watch(f)
    seen(X)
    with jax.enable_x64(True):
        seen(X)
    with jax.default_matmul_precision("float32"):
        seen(X)
    with jax.set_mesh(jax.make_mesh((1,), ("data",))):
        seen(X)
    assert reasons(seen) == [
        "jax_enable_x64 changed from False to True",
        "jax_default_matmul_precision changed from none to 'float32'",
        "the mesh of the context changed from none to (data: 1)",
    ]


def test_placement_compiles_again_without_a_trace():
    seen = watch(f)
    seen(X)
    seen(jax.device_put(X, jax.devices()[0]))
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    seen(jax.device_put(X, jax.NamedSharding(mesh, jax.P("data"))))
    report = seen.report()
    assert (report.traces, report.lowerings, report.compilations) == (2, 3, 3)
    assert [(retrace.reason, retrace.is_traced) for retrace in report.retraces] == [
        ("argument 1 `x` became committed to cpu:0", False),
        # The mesh is part of the type, so JAX traces again.
        ("argument 1 `x` became committed to P('data',) on the mesh (data: 1)", True),
    ]


def test_explicit_sharding_is_part_of_the_type():
    seen = watch(f)
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))
    for spec in (jax.P(), jax.P("data")):
        seen(jax.device_put(X, jax.NamedSharding(mesh, spec)))
    assert [(retrace.reason, retrace.is_traced) for retrace in seen.retraces] == [
        ("argument 1 `x` changed from f32[32,10] to f32[32@data,10]", True)
    ]


def test_cleared_cache():
    seen = watch(f)
    seen(X)
    seen.clear_cache()
    seen(X)
    assert reasons(seen) == [
        "an equal call was traced before; JAX's cache no longer holds it (cleared, or too many entries)"
    ]


def test_static_objects_that_only_their_class_distinguishes():
    class Odd:
        def __repr__(self):
            return "Odd()"

        def __hash__(self):
            return 5

        def __eq__(self, other):
            return self is other

    assert watched(lambda x, odd: x, call(X, Odd()), call(X, Odd()), static_argnums=1) == [
        "static argument `odd` is a new object, not equal to the earlier one, although both print the same: Odd()"
    ]

    class Closed(int, Odd):
        """A subclass of `int` has no weak references."""

        __hash__ = Odd.__hash__
        __repr__ = Odd.__repr__

        def __eq__(self, other):
            return self is other

    assert watched(lambda x, odd: x, call(X, Closed(1)), call(X, Closed(1)), static_argnums=1) == [
        "an equal call was traced before; JAX's cache no longer holds it (cleared, or too many entries), "
        "or a static argument is not equal to the earlier one"
    ]


@dataclasses.dataclass(frozen=True)
class Named:
    size: int
    name: str = "x"


def test_long_static_values():
    long = Named(2, "y" * 300)
    assert watched(lambda x, named: x, call(X, long), call(X, Named(2, "y" * 300 + "z")), static_argnums=1) == [
        f"static argument `named` changed at character 321 of its text, from ...{'y' * 40}') to ...{'y' * 40}z')"
    ]
    assert watched(lambda x, named: x, call(X, long), call(X, Named(3, "y" * 300)), static_argnums=1) == [
        "static argument `named` changed at character 12 of its text, "
        f"from Named(size=2, name='{'y' * 97}... to Named(size=3, name='{'y' * 97}..."
    ]
    endless = "y" * 30_000
    assert watched(lambda x, name: x, call(X, endless + "a"), call(X, endless + "b"), static_argnums=1) == [
        "static argument `name` is a new object, not equal to the earlier one, "
        f"although both print the same in the first 20,000 characters: '{'y' * 116}..."
    ]


def test_static_object_whose_repr_fails():
    class Broken:
        def __init__(self, size):
            self.size = size

        def __repr__(self):
            raise RuntimeError("no text")

        def __hash__(self):
            return 1

        def __eq__(self, other):
            return self.size == other.size

    assert watched(lambda x, b: x, call(X, Broken(1)), call(X, Broken(1)), call(X, Broken(2)), static_argnums=1) == [
        "static argument `b` is a Broken that cannot be printed, and is not equal to the earlier Broken"
    ]


def test_comparison_with_the_most_similar_call():
    seen = watch(f)
    seen(X, 2)
    seen(jnp.ones(3), 2.0)
    seen(X, 2.0)
    assert seen.retraces[-1].reason == "argument 2 `n` changed from i32[] to f32[]", "one dtype, not a rank and axes"
    seen(jnp.ones((2, 2)), 2)
    assert seen.retraces[-1].reason == "argument 1 `x` changed from f32[32,10] to f32[2,2]"


@pytest.mark.parametrize(
    ("earlier", "last", "reason"),
    [
        ((1.0, jnp.ones(3)), jnp.float32(1), "argument 1 `x`: weak type became strong (f32[])"),
        (
            (X, jnp.ones((33, 10))),
            jnp.ones((32, 10), jnp.bfloat16),
            "argument 1 `x` changed from f32[32,10] to bf16[32,10]",
        ),
        ((jnp.ones((2, 3)), jnp.ones((2, 4))), jnp.ones((2, 5)), "argument 1 `x` changed from f32[2,4] to f32[2,5]"),
        ((jnp.ones((5, 3)), jnp.ones((2, 4))), jnp.ones((5, 6)), "argument 1 `x` changed from f32[5,3] to f32[5,6]"),
    ],
)
def test_parts_of_a_type_are_counted(earlier, last, reason):
    seen = watch(f)
    for x in (*earlier, last):
        seen(x)
    assert seen.retraces[-1].reason == reason


class Model:
    def step(self, x):
        return x + 1

    def __call__(self, x):
        return x + 2


def jitted_inner():
    def inner(x):
        return x - 1

    return jax.jit(inner)


LINE = (lambda: 0).__code__.co_firstlineno
NEW_OBJECTS = {
    f"`<lambda>` at {HERE}:{LINE + 2}": lambda: jax.jit(lambda x: x + 3),
    f"`inner` at {HERE}:{jitted_inner().__wrapped__.__code__.co_firstlineno}": jitted_inner,
    f"functools.partial of `f` at {HERE}:{f.__code__.co_firstlineno} with n=5": lambda: jax.jit(
        functools.partial(f, n=5)
    ),
    f"the bound method `Model.step` at {HERE}:{Model.step.__code__.co_firstlineno}": lambda: jax.jit(Model().step),
    "an instance of `Model`": lambda: jax.jit(Model()),
}


class TestNewFunctionObject:
    """Calls of `jax.jit` on a new object each time."""

    @pytest.mark.parametrize("text", NEW_OBJECTS)
    def test_each_object_is_described(self, text):
        with ml.watch() as seen:
            for _ in range(3):
                NEW_OBJECTS[text]()(X)
        reports = [one for one in seen.report().functions if one.library is None]
        assert [one.traces for one in reports] == [3]
        assert reasons(seen) == [f"a new function object: {text}"] * 2

    def test_the_same_function_is_not_traced_again(self):
        def other(x):
            return x - 4

        with ml.watch() as seen:
            for _ in range(3):
                jax.jit(other)(X)
        assert seen.report()["other"].traces == 1

    def test_with_another_shape(self):
        with ml.watch() as seen:
            for size in (2, 3):
                jax.jit(lambda x: x + 6)(jnp.ones(size))
        line = (lambda: 0).__code__.co_firstlineno - 1
        assert reasons(seen) == [
            f"a new function object: `<lambda>` at {HERE}:{line}; argument 1 `x` changed from f32[2] to f32[3]"
        ]

    def test_other_options_compile_again_without_a_trace(self):
        def plain(x):
            return x - 8

        with ml.watch() as seen:
            jax.jit(plain)(jnp.ones(3))
            jax.jit(plain, donate_argnums=0)(jnp.ones(3))
        assert [(retrace.reason, retrace.is_traced) for retrace in seen.retraces] == [
            ("the option donate_argnums of jax.jit changed from () to (0,)", False)
        ]


def helper(function, x):
    return function(x)  # the user's line


def test_line_is_the_innermost_user_line():
    seen = watch(f)
    helper(seen, X)
    helper(seen, X[0])
    line = helper.__code__.co_firstlineno + 1
    assert [(retrace.file, retrace.line, retrace.place, retrace.call) for retrace in seen.retraces] == [
        (__file__, line, f"{HERE}:{line}", 2)
    ]


def test_line_of_a_call_from_a_library():
    seen = ml.watch(jax.jit(lambda x: (x * x).sum()))
    jax.grad(seen)(X)
    jax.grad(seen)(X[0])
    line = (lambda: 0).__code__.co_firstlineno - 1
    assert [retrace.place for retrace in seen.retraces] == [f"{HERE}:{line}"]


def test_line_is_unknown_in_a_thread_of_library_code():
    seen = watch(f)
    seen(X)
    thread = threading.Thread(target=seen, args=(X[0],))
    thread.start()
    thread.join()
    (retrace,) = seen.retraces
    assert (retrace.file, retrace.line, retrace.place) == ("", 0, "")
    assert str(retrace) == "unknown line: argument 1 `x` changed from f32[32,10] to f32[10]"


def test_function_inside_another_trace():
    inner = jax.jit(lambda x: x + 9)

    def outer(x):
        return inner(x)  # here

    with ml.watch() as seen:
        jitted = jax.jit(outer)
        jitted(X)
        jitted(X[0])
    retrace = next(one for one in seen.retraces if one.line == outer.__code__.co_firstlineno + 1)
    assert retrace.reason == "argument 1 `x` changed from f32[32,10] to f32[10]"
    assert retrace.trace_s is None, "its time is part of the time of the outer trace"
