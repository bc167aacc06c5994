"""Programs that JAX rejects: the error of JAX, the user's line, and the equations before it."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from functools import cache, partial

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.failure import Failure, failure_of

WRONG = "TypeError: dot_general requires contracting dimensions to have the same shape, got (3,) and (5,)."


def inner(x, w):
    y = jnp.sin(x)
    return y @ w  # fails


def no_such_key(x, w):
    return {"a": x * 2}["b"]  # fails


def endless(x, w):
    return endless(x + 1, w)


def in_a_library(x, w):
    return json.loads("{") + x * 2


def of_a_number(x, w):
    return jnp.zeros(int((x * 2).sum()))


BODIES = {
    "nested": (lambda x, w: inner(x * 2, w), ("mul", "sin")),
    "mapped": (lambda x, w: jax.vmap(lambda x: inner(x, w))(x * 2), ("mul", "sin")),
    "derived": (lambda x, w: jax.grad(lambda x: inner(x, w).sum())(x * 2), ("mul", "sin", "cos")),
    "scanned": (lambda x, w: jax.lax.scan(lambda c, _: (inner(c, w), None), x * 2, None, length=2), ("mul",)),
    "jitted": (lambda x, w: jax.jit(inner)(x * 2, w), ("mul",)),
}
"""Programs that call `inner`, and the equations before the failing line."""


@cache
def looked_at(fn):
    return inspect(fn, spec(4, 3), spec(5, 6))


def marked(inspection):
    """Return the lines of the jaxpr that state why it ends, without line numbers."""
    lines = inspection.stage("jaxpr").text.splitlines()
    return [re.sub(r"\.py:\d+", ".py:1", line.strip()) for line in lines if line.startswith("    !! ")]


@pytest.mark.parametrize("name", BODIES)
def test_equations_exist_up_to_the_failing_line(name):
    fn, primitives = BODIES[name]
    inspection = looked_at(fn)
    stage = inspection.stage("jaxpr")
    assert tuple(one.opcode for one in stage.instructions if one.opcode != "parameter") == primitives
    assert marked(inspection) == ["!! test_failure.py:1  return y @ w  # fails", f"!! {WRONG}"]
    reason = f"{WRONG}\n  at test_failure.py:{inner.__code__.co_firstlineno + 2}: return y @ w  # fails"
    for each in inspection.stages:
        assert inspection.stage(each).unavailable == reason
    assert all(inspection.stage(each).text == "" for each in inspection.stages[3:])


def test_the_text_of_a_program_that_fails():
    assert looked_at(BODIES["nested"][0]).stage("jaxpr").text == textwrap.dedent(f"""\
        {{ lambda
            a:f32[4,3]  # x
            b:f32[5,6]  # w
          let
            c:f32[4,3] = mul a 2.0:f32[]
            d:f32[4,3] = sin c
            !! test_failure.py:{inner.__code__.co_firstlineno + 2}  return y @ w  # fails
            !! {WRONG}
        """)


PYTHON = {
    no_such_key: ['!! test_failure.py:1  return {"a": x * 2}["b"]  # fails', "!! KeyError: 'b'"],
    in_a_library: [
        '!! test_failure.py:1  return json.loads("{") + x * 2',
        "!! JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ],
}


@pytest.mark.parametrize("fn", PYTHON, ids=lambda fn: fn.__name__)
def test_python_errors_have_a_line_too(fn):
    assert marked(looked_at(fn)) == PYTHON[fn]


def test_jax_own_advice_is_kept():
    def choosing(x):
        if x.sum() > 0:
            return x
        return -x

    first, *rest = marked(inspect(choosing, spec(3)))
    assert first == "!! test_failure.py:1  if x.sum() > 0:"
    assert rest[0] == "!! TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[]."
    assert rest[-1].endswith("errors.html#jax.errors.TracerBoolConversionError")
    number = marked(looked_at(of_a_number))
    assert number[0] == "!! test_failure.py:1  return jnp.zeros(int((x * 2).sum()))"
    assert number[1].startswith("!! ConcretizationTypeError: Abstract tracer value encountered where concrete value")


def test_an_endless_recursion_ends(request):
    request.addfinalizer(partial(sys.setrecursionlimit, sys.getrecursionlimit()))
    sys.setrecursionlimit(400)  # a quarter of the depth has a sixteenth of the frames
    inspection = looked_at(endless)
    first, second = marked(inspection)
    assert first == "!! test_failure.py:1  return endless(x + 1, w)"
    assert second.startswith("!! RecursionError: maximum recursion depth exceeded")
    assert {one.opcode for one in inspection.stage("jaxpr").instructions} <= {"parameter", "add"}


def test_wrong_number_of_arguments():
    stage = inspect(inner, spec(3)).stage("jaxpr")
    assert stage.text == textwrap.dedent("""\
        { lambda
            a:f32[3]  # args[0]
          let
            !! TypeError: inner() missing 1 required positional argument: 'w'
        """)
    assert stage.unavailable == "TypeError: inner() missing 1 required positional argument: 'w'"


def test_long_messages_are_cut_and_empty_ones_replaced():
    long = failure_of(ValueError("\n".join(map(str, range(99)))))
    assert long.message.splitlines() == [str(number) for number in range(8)]
    assert failure_of(AssertionError()).text == "AssertionError: no message"


def test_lines_and_text():
    failure = Failure("ValueError", "one\ntwo", "net.py:3", "y = f(x)")
    assert failure.lines == ("net.py:3  y = f(x)", "ValueError: one", "two")
    assert failure.reason == ("ValueError: one", "two")
    assert failure.text == "ValueError: one\ntwo\n  at net.py:3: y = f(x)"
