"""Memory: exact sums, peaks computed manually, and XLA's figures for the same programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from fresh import run_fresh
from hypothesis import given, settings
from hypothesis import strategies as st
from jax_programs import spec
from raised import message_of

import mithril_nb as ml
from benchmarks.corpus import corpus
from mithril_nb.cost.memory.liveness import held
from mithril_nb.cost.memory.use import MemoryUse, memory_of
from mithril_nb.errors import StageUnavailableError
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.inspection.inspection import Inspection
from mithril_nb.stages.xla.memory import live_ranges_in

ONE = 64 * 64 * 4
"""Bytes of the square arrays of these tests."""


def square(size: int) -> jax.ShapeDtypeStruct:
    return spec(size, size)


def check_sums(found: MemoryUse) -> None:
    """Check that live ranges add up exactly at every position, by block, and by kind."""
    assert [one.bytes for one in found.timeline] == held(found.lives, len(found.timeline))
    assert max(one.bytes for one in found.timeline) == found.peak_bytes
    assert found.peak_at is not None
    assert found.timeline[found.peak_at].bytes == found.peak_bytes
    assert sum(found.at_peak.values()) == sum(found.kinds.values()) == found.peak_bytes == found.subtree("")
    assert all(0 <= life.first <= life.last < len(found.timeline) for life in found.lives)
    assert found.filled_bytes is not None
    assert found.peak_bytes == found.filled_bytes + found.kinds["unfilled"]


def check_xla(program: Inspection, found: MemoryUse) -> None:
    """Check that the peak is the sum of `memory_analysis()` and the constants, which it leaves out."""
    told = program.compiled.memory_analysis()
    whole = told.argument_size_in_bytes + told.output_size_in_bytes + told.temp_size_in_bytes - told.alias_size_in_bytes
    assert found.peak_bytes == whole + found.kinds["constants"]
    assert found.notes == ()


def chain(x: jax.Array, w: jax.Array) -> jax.Array:
    for _ in range(4):
        x = jnp.tanh(x @ w)
    return x


def test_a_chain_of_products_keeps_only_live_values() -> None:
    program = inspect(chain, square(64), square(64))
    found = program.memory
    check_sums(found)
    check_xla(program, found)
    # x, w, the result, which alternates with one temporary: tanh runs in place, and the next product needs another.
    assert found.peak_bytes == 4 * ONE
    assert found.kinds["arguments"] == 2 * ONE


def test_a_temporary_in_an_output_buffer_counts_as_output() -> None:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        return w - 0.1 * (x.T @ x)  # the product uses the buffer of the result

    program = inspect(step, square(64), square(64))
    found = program.memory
    check_sums(found)
    check_xla(program, found)
    assert found.xla is not None
    assert (found.kinds["arguments"], found.kinds["outputs"]) == (found.xla.argument, found.xla.output)
    assert found.kinds["temporaries"] + found.kinds["unfilled"] == found.xla.temp
    assert {life.kind for life in found.lives if life.size_bytes == ONE} == {"arguments", "outputs"}


def test_unused_values_take_no_memory() -> None:
    def wasteful(x: jax.Array) -> jax.Array:
        _ = x @ x @ x
        return x + 1

    found = inspect(wasteful, square(64)).memory
    assert found.peak_bytes == 2 * ONE + found.kinds["constants"]


def test_a_donated_argument_gives_its_memory_to_the_result() -> None:
    def step(x: jax.Array) -> jax.Array:
        return x * 2 + 1

    kept = inspect(jax.jit(step), square(64))
    donated = inspect(jax.jit(step, donate_argnums=0), square(64))
    assert kept.memory.peak_bytes == 2 * ONE + kept.memory.kinds["constants"]
    assert donated.memory.peak_bytes == ONE + donated.memory.kinds["constants"]
    check_sums(donated.memory)
    check_xla(donated, donated.memory)
    kinds = [(life.kind, life.size_bytes) for life in donated.memory.lives if life.size_bytes == ONE]
    assert kinds == [("arguments", ONE), ("outputs", ONE)], "one after the other"


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
    # The argument, the carry, the product of the body, and 100 rows: each exists once, in every iteration.
    assert 3 * ONE + 100 * 64 * 4 <= found.filled_bytes < 4 * ONE + 100 * 64 * 4
    assert found.subtree("turn") >= ONE
    inside = {life.id for life in found.lives} & {one.id for one in program.stage("hlo").instructions}
    assert inside


def test_values_belong_to_the_block_that_produces_them() -> None:
    def turn(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        with jax.named_scope("turn"):
            return jnp.tanh(x @ x), None

    def program(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        with jax.named_scope("first"):
            y = x @ x
        z, _ = jax.lax.scan(turn, y, None, length=10)
        with jax.named_scope("last"):
            return z @ z, y.sum()

    found = inspect(program, square(64)).memory
    check_sums(found)
    of = {life.id: life.block for life in found.lives if life.size_bytes == ONE and life.kind != "arguments"}
    loops = {block for id, block in of.items() if id.startswith("while") or "{" in id}
    assert loops == {"turn"}, of
    assert set(of.values()) >= {"first", "turn", "last"}
    pointers = [life for life in found.lives if life.id.endswith("{}")]
    assert {life.block for life in pointers} == {""}, "what XLA keeps for itself"


def test_stacked_values_belong_to_blocks_in_the_loop_body() -> None:
    """The residuals of two blocks for a gradient: memory at the peak, and bytes moved."""

    def turn(x: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        with jax.named_scope("up"):
            x = jnp.tanh(x @ weights[0])
        with jax.named_scope("down"):
            return jnp.sin(x @ weights[1]), None

    def loss(weights: tuple[jax.Array, jax.Array], x: jax.Array) -> jax.Array:
        with jax.named_scope("layers"):
            return jax.lax.scan(turn, x, weights)[0].sum()

    many = spec(9, 64, 64)
    program = inspect(jax.grad(loss), (many, many), square(64))
    for found in (program.memory, memory_of(program, "analytic")):
        check_sums(found)
        assert found.at_peak["layers/up"] > 8 * ONE < found.at_peak["layers/down"]
        assert found.at_peak.get("layers", 0) <= 2 * ONE, "what the gradient hands from round to round"
    for source in ("lowered", "compiled"):
        found = program.cost(source)
        rows = {row.id: dict(row.blocks) for row in found.rows if "dynamic" in row.opcode or "dynamic" in row.id}
        assert rows  # one fusion stacks carried values, which belong to the loop, and shares a function with others
        assert not [(id, blocks) for id, blocks in rows.items() if blocks.get("layers", 0) > 0.25]
        # The loop itself only initialises the stacks with zeros, and counts.
        moved = [figures.bytes_accessed or 0 for figures in (found.by_block["layers"], found.total)]
        assert moved[0] < 0.1 * moved[1]


@pytest.mark.parametrize("name", [name for name in corpus() if not name.startswith("sharded")][::4])
def test_it_adds_up_and_agrees_with_xla(name: str) -> None:
    fn, args = corpus()[name]()
    program = inspect(fn, *args)
    check_sums(program.memory)
    check_xla(program, program.memory)
    assert program.memory.peak_bytes is not None
    estimated = memory_of(program, "analytic").peak_bytes
    assert estimated is not None
    assert 0.6 < estimated / program.memory.peak_bytes < 1.4, "the estimate ignores copies and packing"


PLACED = """
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from mithril_nb.cost import memory_of
from mithril_nb.inspection import inspect_function as inspect

mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
x = jax.ShapeDtypeStruct((64, 16), jnp.float32)
w = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=whole)
program = inspect(lambda x, w: jnp.tanh(x @ w), jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows), w)
for found in (program.memory, memory_of(program, "analytic")):
    print(found.peak_bytes - found.kinds["constants"], found.kinds["arguments"], *found.notes)


def placed(x):
    return jax.lax.with_sharding_constraint(x * 2, rows).sum()


def scaled(x):
    return x * 2


for program in (
    jax.jit(scaled, in_shardings=rows),
    jax.shard_map(scaled, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec("data")),
    placed,
    lambda x: jax.lax.with_sharding_constraint(x * 2, rows),
    jax.jit(scaled, out_shardings=rows),
    jax.jit(lambda x: x, in_shardings=rows, out_shardings=rows),
    jax.jit(scaled, in_shardings=whole, out_shardings=whole),
    jax.shard_map(scaled, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec()),
    scaled,
):
    print(*memory_of(inspect(program, x), "analytic").notes)
"""


def test_arrays_on_eight_devices_are_estimated_whole() -> None:
    note = "arrays that are sharded over devices count with their full size"
    compiled, analytic, *notes = run_fresh(PLACED, XLA_FLAGS="--xla_force_host_platform_device_count=8").split("\n")
    assert compiled == f"{(8 * 16 + 16 * 16 + 8 * 16) * 4} {(8 * 16 + 16 * 16) * 4}"
    assert analytic == f"{(64 * 16 + 16 * 16 + 64 * 16) * 4} {(64 * 16 + 16 * 16) * 4} {note}"
    assert notes[:9] == [note] * 6 + [""] * 3


def test_an_unknown_source_raises() -> None:
    assert message_of(lambda: memory_of(inspect(jnp.sin, jnp.zeros(3)), "guess")) == (
        "UnknownOptionError: cannot compute the memory of 'sin' from source 'guess'.\n"
        "    sources  analytic, compiled\n"
        '    Try: memory_of(inspection, "compiled")'
    )


def test_live_ranges_end_where_the_report_of_the_peak_begins() -> None:
    sequence = "HloLiveRange (max 2):\n  InstructionSequence:\n    0:a\n    1:b\n"
    ranges = "  BufferLiveRange:\n    a{}:0-2\n    b{1}:1-2\n"
    found = live_ranges_in(f"{sequence}{ranges}  Live ranges at 1 (peak):\n    c{{}}:5-6\n")
    assert found.sequence == ("a", "b")
    assert found.ranges == {("a", "{}"): (0, 2), ("b", "{1}"): (1, 2)}


def estimate(fn: Callable[..., Any], *args: Any) -> MemoryUse:
    found = memory_of(inspect(fn, *args), "analytic")
    check_sums(found)
    assert found.source == "analytic"
    assert found.xla is None
    return found


def test_the_estimate_of_a_chain_reuses_dead_operands() -> None:
    found = estimate(chain, square(64), square(64))
    assert found.peak_bytes == 4 * ONE, "x, w, the operand and the result of a product; tanh runs in place"
    assert found.timeline[0].bytes == 3 * ONE, "the first product takes x"


def test_the_estimate_leaves_out_unused_and_fused_values() -> None:
    def spare(x: jax.Array, unused: jax.Array) -> jax.Array:
        _ = x @ x
        return jnp.sum((x * 2 + 1) ** 2)

    assert estimate(spare, square(64), square(64)).peak_bytes == ONE + 4


def test_the_estimate_of_a_donated_argument() -> None:
    def step(x: jax.Array) -> jax.Array:
        return jnp.sin(x)

    assert estimate(jax.jit(step), square(64)).peak_bytes == 2 * ONE
    assert estimate(jax.jit(step, donate_argnums=0), square(64)).peak_bytes == ONE


def test_the_estimate_of_a_scan_keeps_all_stacked_results() -> None:
    def turn(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(carry @ carry), carry[0] + row

    found = estimate(lambda x, rows: jax.lax.scan(turn, x, rows), square(64), spec(100, 64))
    rows = 100 * 64 * 4
    row = 64 * 4
    # x, all rows, the carry, the product, the row of one iteration, all result rows.
    assert found.filled_bytes == 3 * ONE + 2 * rows + row
    kinds = {"arguments": ONE + rows, "outputs": ONE + rows, "temporaries": ONE + row}
    assert found.kinds == {**kinds, "constants": 0, "unfilled": 2 * 8}  # pointers to both results


def test_the_estimate_of_a_while_loop_holds_its_operands() -> None:
    def loop(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda s: s[0, 0] < 5, lambda s: s @ w, x)

    found = estimate(loop, square(64), square(64))
    assert found.peak_bytes == 4 * ONE
    assert found.kinds["outputs"] == ONE


def test_the_estimate_of_a_condition_counts_the_larger_branch() -> None:
    def either(flag: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.cond(flag, lambda a: jnp.sum(a @ a @ a), lambda a: jnp.sum(a), x)

    found = estimate(either, spec(dtype="bool"), square(64))
    assert found.peak_bytes is not None
    assert 3 * ONE < found.peak_bytes < 3 * ONE + 64, "x, and a product of the other product"


def test_the_estimate_of_an_identity_has_a_copy_of_its_argument() -> None:
    found = estimate(lambda x: x, square(64))
    assert found.peak_bytes == 2 * ONE
    assert found.kinds["arguments"] == found.kinds["outputs"] == ONE


def test_a_program_that_does_not_compile_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise RuntimeError("UNIMPLEMENTED: not on this machine")

    program = inspect(jnp.sin, square(64))
    monkeypatch.setattr(jax.stages.Lowered, "compile", refused)
    found = program.memory
    assert found.source == "analytic"
    assert found.peak_bytes == 2 * ONE
    assert found.notes == (
        "an estimate, because the program does not compile: RuntimeError: UNIMPLEMENTED: not on this machine",
    )
    assert message_of(lambda: memory_of(program)) == (
        "StageUnavailableError: memory of 'sin' is unknown: the program does not compile.\n"
        "    reason  RuntimeError: UNIMPLEMENTED: not on this machine\n"
        "    Try: inspection.memory  # an estimate, from the equations"
    )


def test_memory_with_symbolic_sizes_needs_numbers() -> None:
    x, y = jax.export.symbolic_args_specs((jnp.ones((2, 3)), jnp.ones((3, 2))), ("A, B", "B, A"))
    assert message_of(lambda: memory_of(inspect(jnp.matmul, x, y))) == (
        "StageUnavailableError: memory of 'matmul' is unknown: the program does not compile.\n"
        "    reason  XLA needs a number for each size, and has none for A, B\n"
        "    Try: ml.inspect(fn, *arrays)  # arrays with numbers for A, B"
    )


@pytest.mark.parametrize("shape", [("b", 4), ("b", "b")])
def test_memory_of_an_exported_program_with_symbolic_sizes(shape: tuple[Any, ...]) -> None:
    (b,) = jax.export.symbolic_shape("b")
    x = jax.ShapeDtypeStruct([b if dim == "b" else dim for dim in shape], "float32")
    assert message_of(lambda: ml.inspect(jax.export.export(jax.jit(jnp.sin))(x)).memory) == (
        "StageUnavailableError: memory of 'sin' is unknown: the program does not compile.\n"
        "    reason  XLA needs a number for each size, and has none for b\n"
        "    Try: ml.inspect(exported.call, *arrays)  # arrays of fixed sizes"
    )


@pytest.mark.parametrize(
    "read", [lambda one: one.memory, lambda one: one.cost("lowered"), lambda one: one.cost("compiled")]
)
def test_a_program_that_cannot_be_traced_says_why(read: Callable[[Inspection], Any]) -> None:
    with pytest.raises(StageUnavailableError, match="cannot be traced"):
        read(inspect(lambda x: x @ x, jnp.zeros((2, 3))))


def test_without_live_ranges_the_peak_is_known_and_the_timeline_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mithril_nb.stages.xla.memory._LIVE_RANGES", "not written on this platform")
    found = inspect(jnp.matmul, square(64), square(64)).memory
    assert found.source == "compiled"
    assert found.peak_bytes == sum(found.at_peak.values()) == sum(found.kinds.values()) == 3 * ONE
    assert (found.peak_at, found.filled_bytes, found.timeline, found.lives) == (None, None, (), ())
    assert found.notes == ("timeline: this platform does not report the live ranges of a program",)


def test_without_a_buffer_assignment_memory_analysis_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> MemoryUse:
        return inspect(
            jnp.matmul, square(64), square(64), compiler_options={"xla_dump_to": str(tmp_path)}
        ).memory  # fmt: skip

    found = told()
    assert found.kinds == {"arguments": 2 * ONE, "outputs": ONE, "temporaries": 0, "constants": 0, "unfilled": 0}
    assert found.at_peak == {"": 3 * ONE}
    assert found.xla is not None
    assert found.notes[0].startswith("timeline: XLA writes its files to")

    def silent(self: jax.stages.Compiled) -> None:
        raise NotImplementedError

    monkeypatch.setattr(jax.stages.Compiled, "memory_analysis", silent)
    found = told()
    assert (found.peak_bytes, found.xla, found.at_peak, found.kinds) == (None, None, {}, {})
    assert found.notes[0].startswith("peak_bytes, timeline: XLA writes its files to")


STEPS: tuple[Callable[[jax.Array, jax.Array], jax.Array], ...] = (
    lambda x, w: x @ w,
    lambda x, w: jnp.tanh(x) + w[0, 0],
    lambda x, w: jax.lax.scan(lambda c, _: (jnp.sin(c @ w), c[0, 0]), x, None, length=3)[0],
    lambda x, w: jax.lax.cond(x[0, 0] > 0, lambda a: a @ w, lambda a: jnp.sort(a), x),
    lambda x, w: jax.lax.fori_loop(0, 4, lambda _, c: c + c @ w, x),
    lambda x, w: jax.checkpoint(lambda a: jnp.exp(a @ w))(x),
    lambda x, w: jnp.concatenate([x, w])[::2],
    lambda x, w: x.at[0].set(w[0]),
)


@given(st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=5), st.booleans(), st.booleans())
@settings(max_examples=12, deadline=None)
def test_random_programs_add_up(steps: list[int], is_donated: bool, is_differentiated: bool) -> None:
    def forward(x: jax.Array, w: jax.Array) -> jax.Array:
        for number, step in enumerate(steps):
            with jax.named_scope(f"step_{number}"):
                x = STEPS[step](x, w)
        return x

    # JAX has no gradient through a loop of unknown length, so all lengths are known here.
    wanted = jax.grad(lambda x, w: forward(x, w).sum()) if is_differentiated else forward
    program = inspect(jax.jit(wanted, donate_argnums=(0,) if is_donated else ()), square(8), square(8))
    check_sums(program.memory)
    check_xla(program, program.memory)
    found = memory_of(program, "analytic")
    check_sums(found)
    blocks = {equation.block for equation in program.equations} | {""}
    assert found.at_peak.keys() | program.memory.at_peak.keys() <= blocks


@pytest.mark.parametrize("source", ["analytic", "compiled"])
def test_optimizer_state_belongs_to_its_block(source: str) -> None:
    fn, args = corpus()["LeNet, train step"]()
    found = memory_of(inspect(fn, *args), source)
    state = {life.block for life in found.lives if life.kind == "arguments" and ("mu" in life.id or "nu" in life.id)}
    assert {path.removesuffix("/convolution") for path in state} == {
        "features/conv_1", "features/conv_2", "compute_loss/lenet"
    }  # fmt: skip
