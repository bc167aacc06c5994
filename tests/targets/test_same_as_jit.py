"""Functions are traced as `jax.jit` traces them: the same jaxpr, StableHLO and optimized HLO for the same call."""

from __future__ import annotations

import functools
import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jax_programs import programs
from process import EIGHT_DEVICES
from random_calls import random_call
from same_as_jit import differences
from stress import is_long
from transcript import facts_of, read_transcript

import mithril_nb as ml
from benchmarks.corpus import corpus
from mithril_nb.errors import StageUnavailableError

X = np.ones((3, 4), np.float32)


class Pair(NamedTuple):
    left: Any
    right: Any


class Scale:
    def run(self, x: Any, n: Any) -> Any:
        return x * n

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
    def jitted(self, x: Any, n: Any) -> Any:
        return x * n


def total(*parts: Any, k: Any = 1, **more: Any) -> Any:
    return sum(parts) * k + sum(more.values())


def flagged(x: Any, *, k: Any, flag: Any = True) -> Any:
    return jnp.where(flag, x * k, x)


def summed(x: Any, axis: int, keep: bool = False) -> Any:
    return x.sum(axis, keepdims=keep)


def first(x: Any, n: Any, /, **more: Any) -> Any:
    return x * n + more["offset"]


CALLS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], dict[str, Any]]] = {
    "numbers": (lambda x, y: x + y, (3, 4), {}, {}),
    "a library's function of numbers": (jnp.add, (3, 4.5), {}, {}),
    "numbers of several kinds": (lambda a, b, c, d: (a * b, c & d), (3, 4.5, True, 7), {}, {}),
    "a complex number": (lambda a, b: a * b, (1j, X), {}, {}),
    "a list": (sum, ([1, 2.0, X],), {}, {}),
    "containers": (lambda d: d["a"][0] * d["b"].left + d["b"].right, ({"a": (1, None), "b": Pair(2.0, X)},), {}, {}),
    "numbers of NumPy": (lambda a, b, c: a * b + c, (np.float32(2), np.int64(4), np.bool_(True)), {}, {}),
    "any number of arguments": (total, (X, 2, 3.0), {"z": 1, "y": np.int32(3)}, {}),
    "keywords alone": (flagged, (X,), {"k": 2, "flag": False}, {}),
    "positions alone": (first, (X, 3), {"offset": 2.0}, {}),
    "static by name": (summed, (X, 1), {"keep": True}, {"static_argnames": ("axis", "keep")}),
    "static by place": (summed, (X, 1), {}, {"static_argnums": 1}),
    "static by place from the end": (lambda x, axis: x.sum(axis), (X, 1), {}, {"static_argnums": -1}),
    "static by place, given by name": (summed, (X,), {"axis": 1}, {"static_argnums": 1}),
    "static of a method": (Scale().run, (X, 3), {}, {"static_argnums": 1}),
    "everything static": (lambda n: n * 2, (3,), {}, {"static_argnums": 0}),
    "a partial": (functools.partial(jnp.clip, min=0.0), (X,), {}, {}),
    "a partial that binds an array": (functools.partial(lambda w, n, x: (w @ x) * n, X.T, 3), (X,), {}, {}),
    "a gradient by a whole number": (jax.grad(lambda n, x: (x * n).sum(), allow_int=True), (3, X), {}, {}),
    "a gradient by a container": (
        jax.value_and_grad(lambda p: (p["n"] * p["x"]).sum(), allow_int=True),
        ({"n": 3, "x": X},),
        {},
        {},
    ),
    "an argument that has no tangent": (lambda x: 3, (np.zeros(3, jax.dtypes.float0),), {}, {}),
    "nothing": (lambda x: None, (X,), {}, {}),
    "nothing in containers": (lambda x: {"a": None, "b": (x + 1, None), "c": []}, (X,), {}, {}),
    "nothing as an argument": (lambda x, y: x, (X, None), {}, {}),
    "constants": (lambda x: (x, 3, 2.0, np.ones(2)), (X,), {}, {}),
    "no arguments": (lambda: jnp.ones(3), (), {}, {}),
    "an argument that is not used": (lambda x, y: x, (X, 3), {}, {}),
    "only a call of a jitted function": (lambda x: jax.nn.softmax(x, axis=0), (X,), {}, {}),
    "a jitted method": (Scale().jitted, (X, 3), {}, {}),
    "a mapped function": (jax.vmap(lambda x, n: x * n, (0, None)), (X, 3), {}, {}),
    "a random key": (lambda key: jax.random.normal(key, (3,)), (jax.random.key(0),), {}, {}),
    "a spec of a weak type": (
        lambda x: x * np.float16(2),
        (jax.ShapeDtypeStruct((), "float32", weak_type=True),),
        {},
        {},
    ),
}


@pytest.mark.parametrize("what", CALLS)
def test_call_traces_as_jit(what: str) -> None:
    fn, args, kwargs, static = CALLS[what]
    assert set(differences(fn, args, kwargs, **static)) <= {"hlo names"}
    found = ml.inspect(fn, *args, kwargs=kwargs, **static)
    unavailable = {name: found.stage(name).unavailable for name in ("python", "graph", "jaxpr", "stablehlo", "hlo")}
    assert {name: why for name, why in unavailable.items() if why} == {}
    assert found.cost().total.bytes_accessed is not None
    assert found.cost("compiled").total.bytes_accessed is not None
    jitted: Any = fn if hasattr(fn, "trace") else jax.jit(fn, **static)
    if not static and what not in ("a jitted method", "a spec of a weak type"):  # the signature is JAX's
        jax.tree.map(np.testing.assert_array_equal, found.compiled(*args, **kwargs), jitted(*args, **kwargs))


def plain(x: Any, k: Any = 2.0) -> Any:
    return jnp.sin(x) * k


@functools.wraps(plain)
def wrapped(x: Any) -> Any:
    return plain(x)


@functools.wraps(functools.partial(plain))
def wrapped_partial(x: Any) -> Any:
    return plain(x)


def renamed(x: Any) -> Any:
    return plain(x)


renamed.__dict__["__wrapped__"] = plain
titled = functools.partial(plain)
titled.__dict__["__name__"] = "titled"
AROUND: dict[str, Any] = {
    "partial": functools.partial,
    "jit": jax.jit,
    "vmap": jax.vmap,
    "checkpoint": jax.checkpoint,
    "wraps": lambda fn: functools.wraps(fn)(lambda x: fn(x)),
}
INNER = (plain, wrapped, wrapped_partial, renamed, titled, lambda x: x * 2.0, Scale().run)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_program_name_follows_jit(depth: int, stress) -> None:
    x = jnp.ones((2, 2, 2))  # vmap may be around it three times
    ways = [*itertools.product(AROUND, repeat=depth)]
    shown = ways[:: 1 if stress.size(short=0, long=1) else max(1, len(ways) // 12)]
    for place, way in enumerate(shown):
        for inner in INNER if depth < 2 else (INNER[place % 6],):
            fn: Any = inner if inner is not INNER[-1] else functools.partial(inner, n=3)
            for what in way:
                fn = AROUND[what](fn)
            jitted: Any = fn if hasattr(fn, "trace") else jax.jit(fn)
            wanted = jitted.lower(x).as_text()
            assert ml.inspect(fn, x).lowered.as_text() == wanted, (inner, way)


def test_numbers_are_weakly_typed_inputs_as_in_make_jaxpr() -> None:
    found = ml.inspect(lambda x, y: x + y, 3, 4)
    assert [(one.name, str(one.spec)) for one in found.inputs] == [("x", "() int32"), ("y", "() int32")]
    assert [one.primitive for one in found.equations] == ["add"]
    assert found.compiled(3, 4) == 7
    (half,) = ml.inspect(lambda x, y: x * y, np.float16(1), 2.0).outputs
    assert str(half.spec) == "() float16"  # a Python number does not widen the dtype
    same = jax.make_jaxpr(lambda x, y: x + y)(3, 4)
    assert [one.weak_type for one in found._pipeline.traced.get().closed.in_avals] == [
        one.weak_type for one in same.in_avals
    ]


PROGRAMS = {
    **{name: make for name, make in corpus().items() if not name.startswith("sharded")},
    **{name: lambda program=program: program for name, program in programs().items()},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_corpus_traces_as_jit(name: str) -> None:
    fn, args = PROGRAMS[name]()
    # XLA makes the same HLO of the same StableHLO: compiling some is enough here.
    stages = ("stablehlo", "hlo") if is_long() or list(PROGRAMS).index(name) % 5 == 0 else ("stablehlo",)
    assert set(differences(fn, args, stages=stages)) <= {"hlo names"}


def test_random_calls_trace_as_jit(stress: Any) -> None:
    calls = stress.size(short=25, long=500)
    found = {}
    kinds: Counter[str] = Counter()
    for seed in range(calls):
        call = random_call(seed)
        kinds.update(call.kinds)
        found[seed] = differences(call.fn, call.args, call.kwargs, **call.static)
    stress.report(calls=calls, **kinds, hlo_named_otherwise=sum("hlo names" in one for one in found.values()))
    assert {seed: one for seed, one in found.items() if set(one) - {"hlo names"}} == {}
    assert {*kinds} == {"array", "container", "jitted", "keyword", "number", "partial", "static"}


def test_a_gradient_by_whole_numbers_has_no_tangent_and_no_arithmetic() -> None:
    found = ml.inspect(jax.grad(lambda n, x: (x * n).sum(), allow_int=True), 3, X)
    assert [str(one.spec) for one in found.outputs] == ["() float0"]
    assert found.stage("jaxpr").text.endswith("  in ((b'',):float0[]) }\n")
    assert found.cost().total.flops == 0
    assert found.compiled(3, X).dtype == jax.dtypes.float0


# Sharded programs


def test_sharded_jit_keeps_shardings_and_donation() -> None:
    tests = Path(__file__).parent.parent
    environment = {
        **os.environ,
        **EIGHT_DEVICES,
        "NPROC": "8",
        "PYTHONPATH": os.pathsep.join(map(str, (tests.parent, tests, tests / "targets"))),
    }
    code = "import test_same_as_jit; test_same_as_jit.check_sharded()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr


def check_sharded() -> None:
    """Check shardings, in a process with 8 devices."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*names)) for names in (("data",), ()))
    x = jax.ShapeDtypeStruct((32, 16), "float32")
    spread = jax.ShapeDtypeStruct((32, 16), "float32", sharding=rows)
    params = {"w": jax.ShapeDtypeStruct((16, 16), "float32")}

    def step(params: Any, x: Any, *, rate: Any, how: str = "up") -> Any:
        out = jnp.tanh(x @ params["w"])
        return {"w": params["w"] - rate * (x.T @ out)}, (out * out).mean()

    def product(params: Any, x: Any, n: Any) -> Any:
        return params, x @ params["w"] * n

    class Spread:
        @functools.partial(jax.jit, static_argnums=0, out_shardings=whole)
        def run(self, x: Any, n: Any) -> Any:
            return x * n

    inputs = {"in_shardings": (whole, rows), "out_shardings": (whole, rows), "donate_argnums": 0}
    every = {**inputs, "in_shardings": (whole, rows, whole)}
    keywords = jax.jit(step, static_argnames="how", out_shardings=(whole, whole), donate_argnums=0)
    cases: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
        "keywords": (keywords, (params, spread), {"rate": 0.1, "how": "up"}),
        "a static argument": (jax.jit(product, static_argnums=2, **inputs), (params, x, 3), {}),
        "a number": (jax.jit(product, **every), (params, x, 3), {}),
        "a method": (Spread().run, (spread, 3), {}),
        "only the arguments": (lambda x: x.sum(0), (spread,), {}),
        "only a call": (lambda x: jax.jit(lambda x: x * 2, out_shardings=rows)(x), (x,), {}),
        **{name: (*make(), {}) for name, make in corpus().items() if name.startswith("sharded")},
    }
    found = {name: differences(fn, args, kwargs) for name, (fn, args, kwargs) in cases.items()}
    assert {name: one for name, one in found.items() if one} == {}
    text = ml.inspect(cases["a static argument"][0], params, x, 3).stage("stablehlo").text
    assert "@jit_product" in text
    assert "tf.aliasing_output" in text or "jax.buffer_donor" in text


# Numbers that Python needs while it traces


def repeated(x: Any, count: int, scale: float = 1.0) -> Any:
    for _ in range(count):
        x = jnp.sin(x)
    return x * scale


def repeated_by(x: Any, config: Any) -> Any:
    return repeated(x, config["count"]) * config["scale"]


def first_of(count: int, /, x: Any) -> Any:
    return x[:count] if count > 1 else x


NEEDED = """
ml.inspect(jnp.sum, X, axis=0)
StageUnavailableError: 'sum' needs the value of a number, which jax.jit traces as an array without a value.
    given    axis=0
    because  ConcretizationTypeError

ml.inspect(repeated, X, 3, 2.0)
StageUnavailableError: 'repeated' needs the value of a number, which jax.jit traces as an array without a value.
    given    count=3, scale=2.0
    because  TracerIntegerConversionError

ml.inspect(first_of, 2, X)
StageUnavailableError: 'first_of' needs the value of a number, which jax.jit traces as an array without a value.
    given    count=2
    because  TracerBoolConversionError

ml.inspect(jnp.zeros, (4, 64))
StageUnavailableError: 'zeros' needs the value of a number, which jax.jit traces as an array without a value.
    given    shape=(4, 64)
    because  TypeError

ml.inspect(repeated_by, X, {"count": 3, "scale": 2.0})
StageUnavailableError: 'repeated_by' needs the value of a number, which jax.jit traces as an array without a value.
    given    config={'count': 3, 'scale': 2.0}
    because  TracerIntegerConversionError

ml.inspect(jax.jit(repeated), X, 3)
StageUnavailableError: 'repeated' needs the value of a number, which jax.jit traces as an array without a value.
    given    count=3
    because  TracerIntegerConversionError

ml.inspect(lambda x, n: x * (n % 7), X, 2**40)
StageUnavailableError: '<lambda>' needs the value of a number, which jax.jit traces as an array without a value.
    given    n=1099511627776
    because  OverflowError
"""


@pytest.mark.parametrize(("code", "message"), read_transcript(NEEDED))
def test_a_number_that_python_needs_is_named(code: str, message: str) -> None:
    # JAX's wording differs between releases.
    found = re.sub(r"(    because  \w+): .*", r"\1", facts_of(f"{code}.cost()", globals()))
    assert found == message


def test_other_trace_failures_are_reported_unchanged() -> None:
    with pytest.raises(StageUnavailableError, match="program '<lambda>' cannot be traced"):
        ml.inspect(lambda x, n: x @ x * n, X, 3).cost()


def test_the_stage_names_the_line_that_needs_a_number() -> None:
    why = ml.inspect(repeated, X, 3).stage("jaxpr").unavailable or ""
    assert why.startswith("StageUnavailableError: 'repeated' needs the value of a number")
    assert why.endswith("for _ in range(count):")
