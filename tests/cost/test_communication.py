"""Payload and wire bytes of collectives: closed forms on eight devices, and rules for all parallel primitives."""

from __future__ import annotations

import os
from typing import Any

import jax
import pytest
from fresh import run_fresh
from process import EIGHT_DEVICES

from mithril_nb.cost.equations import equation_row
from mithril_nb.cost.formulas.communication import sent
from mithril_nb.cost.formulas.parsing import parse
from mithril_nb.cost.formulas.rules import counted
from mithril_nb.cost.notes import notes_of_communication
from mithril_nb.stages.trace.equations import sites_of
from mithril_nb.stages.trace.params import COLLECTIVES
from mithril_nb.stages.trace.traced import record_of

CASES = (
    "data_parallel_by_xla data_parallel fully_sharded pipeline tensor_parallel sharded_only_inside "
    "partly_automatic silent unknown branches light_branches shown"
).split()
OPEN = "what_nothing_needs literals partly_automatic names shown boundaries propagated explicit nested_loops".split()
START = """
import sys
sys.path[:0] = ["tests", "tests/cost"]
import communicating
"""
FLAGS = EIGHT_DEVICES | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.getcwd()}
QUIET = {
    "axis_index", "precv", "preduced", "vary_unreduced_cast", "vary_unreduced_cast_p", "all_gather_done",
    "all_to_all_done", "pbroadcast_done", "ppermute_done", "psum_done", "reduce_scatter_done",
}  # fmt: skip
"""Parallel primitives that send nothing: they name, cast, receive, or wait."""


@pytest.mark.parametrize("half", [0, 1])
def test_closed_forms(half: int) -> None:
    cases = CASES[half::2]
    code = f"for name in {cases}:\n    communicating.CASES[name]()\n    print(name)"
    assert run_fresh(START + code, **FLAGS).split() == cases


@pytest.mark.parametrize("half", [0, 1])
def test_communication_before_partitioning_is_unknown(half: int) -> None:
    cases = OPEN[half::2]
    code = f"import open_communication\nfor name in {cases}:\n    open_communication.CASES[name]()\n    print(name)"
    assert run_fresh(START + code, **FLAGS).split() == cases


def test_random_collectives_cost_the_same_in_each_stage(stress: Any) -> None:
    count = stress.size(short=12, long=300)
    found = run_fresh(START + f"print(communicating.random_programs({count}))", timeout=1400, **FLAGS)
    stress.report(collectives=int(found))
    assert int(found) >= count


def test_each_parallel_primitive_of_jax_is_counted_or_sends_nothing() -> None:
    from jax._src.lax import parallel
    from jax.extend.core import Primitive

    names = {one.name for one in vars(parallel).values() if isinstance(one, Primitive)}
    assert {"psum", "all_gather", "ppermute", "all_to_all", "reduce_scatter"} <= names
    assert names - QUIET - COLLECTIVES.keys() == set()
    assert not QUIET & COLLECTIVES.keys()


@pytest.mark.parametrize(
    ("kind", "payload", "wire"),
    [
        ("all-reduce", 1200, 1600),
        ("all-gather", 3600, 2400),
        ("reduce-scatter", 1200, 800),
        ("all-to-all", 1200, 800),
        ("collective-permute", 1200, 1200),
        ("collective-broadcast", 1200, 1200),
        ("ragged-all-to-all", None, None),
    ],
)
def test_what_one_device_sends_in_a_ring_of_three(kind: str, payload: int | None, wire: int | None) -> None:
    assert sent(kind, [1200], 3) == (payload, wire)
    assert sent(kind, [1200], 1) == (0, 0)
    assert sent(kind, [1200], None) == sent(kind, [None], 3) == sent(kind, [1200, None], 3) == (None, None)


def test_parts_of_a_byte_are_rounded_up_for_each_operand() -> None:
    assert sent("all-reduce", [1, 1], 3) == (2, 4)
    assert sent("all-to-all", [1, 1], 3) == (2, 2)  # the operands of an all-to-all are parts of one


def test_sizes_may_be_symbolic() -> None:
    size = parse("4·batch")
    assert sent("all-reduce", [size], 8) == (size, parse("7·batch"))
    assert str(sent("reduce-scatter", [parse("batch")], 8)[1]) == "-floor(-7·batch/8)"


def test_axes_outside_of_a_shard_map_have_no_size() -> None:
    jaxpr = jax.make_jaxpr(lambda x: jax.lax.psum(x, "i"), axis_env=[("i", 4)])(1.0)
    (site,), _ = sites_of(jaxpr.jaxpr)
    equation = record_of(site)
    assert equation.param["group_size"] is None
    row = equation_row(equation, counted(equation), equation.repeats)
    assert (row.payload_bytes, row.wire_bytes) == (None, None)
    assert notes_of_communication([row]) == (
        "payload_bytes and wire_bytes of 1 × psum: the number of devices or the size of an operand is unknown",
    )
