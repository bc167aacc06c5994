"""`ml.register_cost`: rules of the user, and the whole text of each error."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.extend.core import Primitive
from jax_programs import spec

import mithril_nb as ml
from mithril_nb.backends.backend import MithrilWarning
from mithril_nb.cost.counting import forget_analytic
from mithril_nb.cost.formulas.rules import USER_RULES
from mithril_nb.errors import UnknownOptionError
from mithril_nb.inspection import inspect_function as inspect

SMOOTH = Primitive("smooth")
SMOOTH.def_abstract_eval(lambda x, **_: x)


@pytest.fixture(autouse=True)
def no_rules_are_left() -> Iterator[None]:
    known = ml.inspect(program, spec(8, 4))
    known.cost()  # makes its primitives known, so tests do not depend on earlier ones
    yield
    for name in list(USER_RULES):
        ml.register_cost(name, None)


def test_rules_may_change_while_other_threads_count_costs() -> None:
    programs = [inspect(lambda x: x + 1, spec(2)) for _ in range(300)]
    for one in programs:
        assert one.equations  # traced here: the thread only counts
    failures: list[Exception] = []
    is_done = threading.Event()

    def forget() -> None:
        while not is_done.is_set():
            try:
                forget_analytic()
            except Exception as error:
                failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=forget)
    thread.start()
    try:
        for one in programs:
            one.cost()
    finally:
        is_done.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert failures == []


def program(x: Any) -> Any:
    return SMOOTH.bind(x, order=3) + 1


def items(equation: Any) -> int:
    return equation.param["order"] * math.prod(equation.inputs[0].shape)


def test_a_primitive_of_the_user_has_the_rule_of_the_user() -> None:
    inspection = ml.inspect(program, spec(8, 4))
    assert [(one.opcode, one.reason) for one in inspection.cost().unknown] == [("smooth", "no rule")]
    ml.register_cost(SMOOTH, items)
    cost = inspection.cost()  # counted again
    assert (cost.unknown, cost.total.flops, cost.rows[0].flops) == ((), 4 * 32, 3 * 32)
    assert cost.rows[0].explained == "flops: ml.register_cost with flops=96"
    ml.register_cost("smooth", None)
    assert [one.opcode for one in inspection.cost().unknown] == ["smooth"]


def test_a_rule_may_return_every_figure() -> None:
    ml.register_cost("smooth", lambda equation: {"flops": np.int64(5), "transcendentals": 2.4, "bytes_accessed": 7})
    row = ml.inspect(program, spec(8, 4)).cost().rows[0]
    assert (row.flops, row.transcendentals, row.bytes_accessed) == (5, 2, 7)
    assert row.formula == "flops + calls transcendentals: ml.register_cost"
    ml.register_cost("smooth", lambda equation: {"transcendentals": 3})
    row = ml.inspect(program, spec(8, 4)).cost().rows[0]
    assert (row.flops, row.transcendentals, row.bytes_accessed) == (0, 3, 2 * 4 * 32)
    assert (row.payload_bytes, row.wire_bytes) == (0, 0)
    ml.register_cost("smooth", lambda equation: {"payload_bytes": 128, "wire_bytes": 224})
    cost = ml.inspect(program, spec(8, 4)).cost()
    assert (cost.total.payload_bytes, cost.rows[0].wire_bytes) == (128, 224)
    assert "communication of one device: payload 128 B, wire 224 B" in str(cost)
    ml.register_cost("smooth", lambda equation: None)
    assert ml.inspect(program, spec(8, 4)).cost().rows[0].unknown == "no rule"


def test_a_rule_may_compute_with_symbolic_sizes() -> None:
    ml.register_cost(SMOOTH, items)
    (b,) = jax.export.symbolic_shape("b")
    cost = ml.inspect(program, spec(b, 4)).cost()
    assert (cost.formula(), cost.at(b=8).total.flops) == ("16·b", 128)
    ml.register_cost(SMOOTH, lambda equation: int(np.zeros(equation.inputs[0].shape).size))
    cost = ml.inspect(program, spec(b, 4)).cost()
    assert cost.rows[0].formula == "size unknown: the rule of 'smooth' needs numbers"
    assert cost.at(b=8).total.flops == 64


def test_a_user_rule_takes_precedence() -> None:
    ml.register_cost("dot_general", lambda equation: 11)
    assert ml.inspect(jnp.matmul, spec(3, 3), spec(3, 3)).cost().total.flops == 11

    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...] @ x[...]

    call = pl.pallas_call(kernel, out_shape=spec(8, 8), interpret=True)
    assert ml.inspect(call, spec(8, 8)).cost().total.flops == 11
    ml.register_cost("pallas_call", lambda equation: 13)
    assert ml.inspect(call, spec(8, 8)).cost().total.flops == 13
    ml.register_cost("ffi_call", lambda equation: 17 * len(equation.param["target_name"]))
    assert ml.inspect(jax.ffi.ffi_call("four", spec(4)), spec(4)).cost().total.flops == 17 * 4
    ml.assert_cost(jax.ffi.ffi_call("four", spec(4)), spec(4), flops=68, unknown="fail")


@pytest.mark.parametrize("given", [3, None, "", lambda x: x])
def test_an_invalid_primitive_raises(given: Any) -> None:
    with pytest.raises(UnknownOptionError, match=r"^ml.register_cost needs a primitive or its name, not "):
        ml.register_cost(given, items)


def test_a_misspelt_name_warns_with_the_nearest_primitive() -> None:
    with pytest.warns(MithrilWarning) as warned:
        ml.register_cost("dot_genral", items)
    (text,) = (str(one.message) for one in warned)
    assert text == "ml.register_cost has a rule for the unknown primitive 'dot_genral'; 'dot_general' is similar."
    assert warned[0].filename == __file__


def test_names_that_may_be_right_do_not_warn() -> None:
    for name in ("dot_general", "ffi_call", "smooth", "completely_different"):
        ml.register_cost(name, items)


def test_an_invalid_rule_raises() -> None:
    with pytest.raises(UnknownOptionError) as error:
        ml.register_cost(SMOOTH, 1000)  # pyright: ignore[reportArgumentType]
    assert str(error.value) == (
        "ml.register_cost needs a function as the rule of 'smooth', not 1000.\n"
        "    Try: ml.register_cost('smooth', lambda equation: 1_000)  # FLOPs"
    )


def test_a_primitive_that_holds_equations_raises() -> None:
    with pytest.raises(UnknownOptionError, match="cannot take 'scan': its cost is the sum over the equations inside"):
        ml.register_cost("scan", items)


RETURNED = {
    "a text": (lambda equation: "many", "returned 'many'"),
    "less than nothing": (lambda equation: -1, "returned -1"),
    "another figure": (lambda equation: {"flop": 1}, "returned {'flop': 1}"),
    "an error": (lambda equation: 1 / 0, "raised ZeroDivisionError: 'division by zero'"),
}


@pytest.mark.parametrize("case", RETURNED)
def test_a_rule_that_returns_no_count_raises(case: str) -> None:
    rule, told = RETURNED[case]
    ml.register_cost(SMOOTH, rule)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnknownOptionError) as error:
        ml.inspect(program, spec(8, 4)).cost()
    assert f"called the rule of 'smooth', which {told}" in str(error.value)


def test_a_rule_of_the_user_counts_before_xla_folds() -> None:
    inspection = ml.inspect(lambda x: x * 1.0, spec(8, 4))
    assert inspection.cost().total.flops == 0  # XLA folds it without the rule
    ml.register_cost("mul", lambda equation: 7)
    row = inspection.cost().rows[-1]
    assert (row.flops, row.explained) == (7, "flops: ml.register_cost with flops=7")
