"""Buffers: XLA's report against JAX's own sums, and random text."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import corpus
from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.xla.memory import Held, buffers_in

ASSIGNMENT = """BufferAssignment:
allocation 0: size 40, parameter 2, shape |f32[10]| at ShapeIndex {}, maybe-live-out:
 value: <402 w.1 @0> (size=40,offset=0): f32[10]{0}
 value: <403 add_fusion (phi) @0> (size=40,offset=0): f32[10]{0}
allocation 1: size 4, color 1, constant:
 value: <5 constant.3 @1> (size=4,offset=0): f32[]
allocation 2: size 4, thread-local:
allocation 3: size 64, maybe-live-out:
 value: <9 while.7{1} @0> (size=32,offset=32): f32[8]{0}
allocation 4: size 68, preallocated-temp:

Total bytes used: 180 (180B)

Used values:
<402 w.1 @0>
 positions:
"""


def test_every_attribute_of_a_buffer_is_read():
    found = buffers_in(ASSIGNMENT)
    assert [(one.number, one.size_bytes, one.kind, one.parameter, one.is_given_back) for one in found] == [
        (4, 68, "temporary", None, False),
        (3, 64, "result", None, True),
        (0, 40, "parameter", 2, True),
        (1, 4, "constant", None, False),
        (2, 4, "thread-local", None, False),
    ], "the largest first, whatever XLA's order"
    assert [held.instruction for held in found[2].values] == ["w.1", "add_fusion"]
    assert found[1].values == (Held("while.7", "{1}", 32, 32),)
    assert str(found[1]) == "3. 64 bytes, result: while.7{1}"


@pytest.mark.parametrize("name", ["MLP, train step", "LSTM by scan, train step", "switch, forward"])
def test_buffers_sum_to_jax_figures_and_name_instructions(name):
    programs = corpus(full=False)
    fn, args = programs[name]()
    program = inspect(fn, *args)
    by_kind: dict[str, int] = {}
    for buffer in program.buffers:
        by_kind[buffer.kind] = by_kind.get(buffer.kind, 0) + buffer.size_bytes
        assert all(held.offset_bytes + held.size_bytes <= buffer.size_bytes for held in buffer.values)
    stats = program.compiled.memory_analysis()
    assert by_kind.get("parameter", 0) == stats.argument_size_in_bytes
    assert by_kind.get("result", 0) == stats.output_size_in_bytes
    assert by_kind.get("temporary", 0) == stats.temp_size_in_bytes
    known = {one.id for one in program.stage("hlo").instructions}
    assert {held.instruction for buffer in program.buffers for held in buffer.values} <= known


def test_donated_argument_holds_a_result():
    program = inspect(jax.jit(lambda x: x + 1, donate_argnums=0), jnp.zeros(64))
    (buffer,) = (one for one in program.buffers if one.kind == "parameter")
    assert buffer.is_given_back
    assert len(buffer.values) == 2


def test_program_that_does_not_compile_states_the_reason():
    program = inspect(lambda x: x @ x, jnp.zeros((2, 3)))
    with pytest.raises(StageUnavailableError, match="has no buffers"):
        _ = program.buffers


@given(st.text(alphabet=ASSIGNMENT + "€", max_size=200))
def test_no_text_stops_the_reader(text):
    for line in ASSIGNMENT.splitlines():
        assert isinstance(buffers_in(f"{line}\n{text}"), tuple)
