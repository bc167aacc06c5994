"""Memory: sums that are exact, peaks that are worked out by hand, and XLA's own account of the same programs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from benchmarks.corpus import corpus
from mithril_nb.cost.lives import held
from mithril_nb.cost.memory import MemoryUse, memory_of
from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.stages import inspect
from mithril_nb.stages.inspection import Inspection
from mithril_nb.stages.live_ranges import live_ranges_in


def square(size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((size, size), jnp.float32)


def check_sums(found: MemoryUse) -> None:
    """What is held adds up at every place, by block, and by kind, exactly."""
    assert [one.bytes for one in found.timeline] == held(found.lives, len(found.timeline))
    assert max(one.bytes for one in found.timeline) == found.peak_bytes
    assert found.peak_at is not None
    assert found.timeline[found.peak_at].bytes == found.peak_bytes
    assert sum(found.at_peak.values()) == sum(found.kinds.values()) == found.peak_bytes == found.subtree("")
    assert all(0 <= life.first <= life.last < len(found.timeline) for life in found.lives)
    assert found.filled_bytes == found.peak_bytes - found.kinds["unfilled"]


def check_xla(program: Inspection, found: MemoryUse) -> None:
    """The peak is what `memory_analysis()` adds up to, and the constants, which it leaves out."""
    told = program.compiled.memory_analysis()
    whole = told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes - told.alias_size_in_bytes
    assert found.peak_bytes == whole + found.kinds["constants"]
    assert found.notes == ()


def test_a_chain_of_products_holds_what_is_needed_and_no_more() -> None:
    def chain(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(4):
            x = jnp.tanh(x @ w)
        return x

    program = inspect(chain, square(64), square(64))
    found = program.memory
    check_sums(found)
    check_xla(program, found)
    one = 64 * 64 * 4
    # x, w, the result, which takes turns with one temporary: tanh is done in place, and the next product needs another.
    assert found.peak_bytes == 4 * one
    assert found.kinds["arguments"] == 2 * one


def test_what_nobody_needs_takes_no_memory() -> None:
    def wasteful(x: jax.Array) -> jax.Array:
        _ = x @ x @ x
        return x + 1

    found = inspect(wasteful, square(64)).memory
    assert found.peak_bytes == 2 * 64 * 64 * 4 + found.kinds["constants"]


def test_a_donated_argument_gives_its_memory_to_the_result() -> None:
    def step(x: jax.Array) -> jax.Array:
        return x * 2 + 1

    kept = inspect(jax.jit(step), square(64))
    donated = inspect(jax.jit(step, donate_argnums=0), square(64))
    one = 64 * 64 * 4
    assert kept.memory.peak_bytes == 2 * one + kept.memory.kinds["constants"]
    assert donated.memory.peak_bytes == one + donated.memory.kinds["constants"]
    check_sums(donated.memory)
    check_xla(donated, donated.memory)
    kinds = [(life.kind, life.size_bytes) for life in donated.memory.lives if life.size_bytes == one]
    assert kinds == [("arguments", one), ("outputs", one)], "one after the other"


def test_the_body_of_a_loop_is_held_by_the_block_in_it() -> None:
    def turn(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        with jax.named_scope("turn"):
            return jnp.tanh(x @ x), x[0]

    def loop(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.scan(turn, x, None, length=100)

    program = inspect(loop, square(64))
    found = program.memory
    check_sums(found)
    check_xla(program, found)
    one = 64 * 64 * 4
    # The argument, the carry, the product of the body, and 100 rows: as often as it goes round, each is there once.
    assert 3 * one + 100 * 64 * 4 <= found.filled_bytes < 4 * one + 100 * 64 * 4
    assert found.subtree("turn") >= one
    inside = {life.id for life in found.lives} & {one.id for one in program.stage("hlo").instructions}
    assert inside


@pytest.mark.parametrize("name", [name for name in corpus() if not name.startswith("sharded")][::4])
def test_it_adds_up_and_agrees_with_xla(name: str) -> None:
    fn, args = corpus()[name]()
    program = inspect(fn, *args)
    check_sums(program.memory)
    check_xla(program, program.memory)


def test_a_source_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownOptionError) as caught:
        memory_of(inspect(jnp.sin, jnp.zeros(3)), "guess")
    assert str(caught.value) == (
        "memory of 'sin' cannot be known by 'guess'.\n"
        "    sources  compiled\n"
        '    Try: memory_of(inspection, "compiled")'
    )


def test_live_ranges_end_where_the_report_of_the_peak_begins() -> None:
    sequence = "HloLiveRange (max 2):\n  InstructionSequence:\n    0:a\n    1:b\n"
    ranges = "  BufferLiveRange:\n    a{}:0-2\n    b{1}:1-2\n"
    found = live_ranges_in(f"{sequence}{ranges}  Live ranges at 1 (peak):\n    c{{}}:5-6\n")
    assert found.sequence == ("a", "b")
    assert found.ranges == {("a", "{}"): (0, 2), ("b", "{1}"): (1, 2)}


def test_a_program_that_does_not_compile_says_why() -> None:
    with pytest.raises(StageUnavailableError, match="memory of"):
        memory_of(inspect(lambda x: x @ x, jnp.zeros((2, 3))))
