"""Unknown communication is `None`, and no communication is 0: on eight devices, in fresh processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from cost.communicating import DEVICES, array, by_source, mesh, sums
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from mithril_nb.cost import SOURCES, Cost
from mithril_nb.inspection import inspect_function as inspect


def unknown(cost: Cost) -> list[str]:
    """The opcodes of the rows whose communication is unknown; the total is unknown if there are any."""
    found = [row.opcode for row in cost.rows if row.wire_bytes is None]
    assert (cost.total.wire_bytes is None) == (cost.total.payload_bytes is None) == bool(found)
    return found


def what_nothing_needs() -> None:
    """JAX drops a collective whose result is unused: here the value of the loss."""
    over = mesh(a=2, b=4)

    def local(w: jax.Array, x: jax.Array) -> jax.Array:
        return lax.pmean(jnp.mean(jnp.tanh(x @ w) ** 2), ("a", "b"))

    loss = jax.shard_map(local, mesh=over, in_specs=(P(), P(("a", "b"))), out_specs=P())
    program = inspect(jax.grad(loss), array(16, 4), array(8, 16))
    assert by_source(program) == [(256, 448)] * 3
    used = [one for one in program.equations if one.primitive.startswith("psum") and one.is_used]
    assert [one.outputs[0].shape for one in used] == [(16, 4)]


def literals() -> None:
    """A constant that `shard_map` casts is still a constant: no arithmetic on it is counted."""
    over = mesh(a=2, b=4)
    double = jax.shard_map(lambda x: x * 2 + (1.0 + jnp.float32(0)), mesh=over, in_specs=P("a"), out_specs=P("a"))
    program = inspect(double, array(8, 16))
    flops = {source: program.cost(source).total.flops for source in SOURCES}
    each = 2 * 4 * 16
    assert flops == {"analytic": 8 * each, "lowered": 8 * each, "compiled": each}  # of all devices, and of one


def partly_automatic() -> None:
    """A collective on an array that XLA partitions along another axis sends an unknown amount before partitioning."""
    over = mesh(a=2, b=4)

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        specs = P(None, "a"), P("a", None)
        local = jax.shard_map(
            lambda x, w: lax.psum(x @ w, "a"), mesh=over, in_specs=specs, out_specs=P(), axis_names={"a"}
        )
        return local(x, w)

    rows = array(8, 16, sharding=NamedSharding(over, P("b", None)))
    program = inspect(product, rows, array(16, 8))
    assert "all-reduce" in unknown(program.cost("lowered"))
    assert unknown(program.cost()) == ["dot_general", "psum_invariant"]
    assert sums(program.cost("compiled")) == (64, 64)


def names() -> None:
    """Instructions that only name existing values send nothing, even on sharded arrays."""
    rows = array(8, 16, sharding=NamedSharding(mesh(a=2, b=4), P("a")))
    program = inspect(lambda x: jnp.flip(lax.while_loop(lambda x: x[0, 0] < 9, lambda x: x * 2.0, x), 0), rows)
    found = unknown(program.cost("lowered"))
    assert {"multiply", "reverse"} <= {*found}
    assert not {*found} & {"constant", "parameter", "tuple", "get-tuple-element"}


def shown() -> None:
    """The jaxpr shows only JAX's own params, not those added for costs."""
    over = mesh(a=2, b=4)
    total = jax.shard_map(lambda x: lax.psum(x, "b"), mesh=over, in_specs=P("a", "b"), out_specs=P("a"))
    rows = array(8, 16, sharding=NamedSharding(over, P("a", "b")))
    stage = inspect(lambda x: total(x).T, rows).stage("jaxpr")
    lines = {one.opcode: stage.text.splitlines()[one.line - 1].strip() for one in stage.instructions}
    assert lines["psum_invariant"] == "d:f32[4,4] = psum_invariant[axes=(b,)] c"
    assert lines["transpose"] == "e:f32[4,8] = transpose[permutation=(1,0)] b"
    attributes = {key for one in stage.instructions for key, _ in one.attributes}
    assert {"axes", "permutation"} <= attributes
    assert not attributes & {"group_size", "partitioned"}


def boundaries() -> None:
    """XLA moves arrays if a `shard_map`, a call or the result of a program needs another sharding."""
    over = mesh(a=2, b=4)
    whole, columns, rows = (NamedSharding(over, spec) for spec in (P(), P(None, "b"), P("a", None)))
    split = jax.shard_map(lambda x: x * 2, mesh=over, in_specs=P(("a", "b")), out_specs=P(("a", "b")))
    every = jax.shard_map(lambda x: x * 2, mesh=over, in_specs=P(), out_specs=P())
    narrow = jax.shard_map(lambda x: x * 2, mesh=over, in_specs=P(None, "b"), out_specs=P(None, "b"))
    x, replicated, by_column, by_row = (array(8, 16, sharding=one) for one in (None, whole, columns, rows))
    for fn, given, payload, wire in (
        (split, by_column, 64, 48),
        (every, by_column, 512, 384),
        (jax.jit(split, out_shardings=whole), x, 512, 448),
        (jax.jit(lambda x: x @ x.T, out_shardings=rows), x, 640, 512),
        (lambda x: jax.jit(lambda y: y, out_shardings=whole)(x), by_row, 512, 256),
        # An argument that is also a result is not in an equation.
        (jax.jit(lambda x: x, out_shardings=whole), by_row, 512, 256),
        (jax.jit(lambda x: x, out_shardings=columns), by_row, 512, 256),
        (jax.jit(lambda x: x, in_shardings=rows, out_shardings=whole), x, 512, 256),
        (jax.jit(lambda x: (x, x + 1), out_shardings=(whole, rows)), by_row, 512, 256),
    ):
        program = inspect(fn, given)
        for source in ("analytic", "lowered"):
            cost = program.cost(source)
            assert unknown(cost), (source, payload)
            assert any("XLA adds collectives when it compiles" in note for note in cost.notes)
        assert "+ unknown (" in program.cost().formula(field="wire_bytes")
        assert sums(program.cost("compiled")) == (payload, wire)
        assert program.cost().total.flops is not None
    # XLA shards arguments, and values computed from them, as a `shard_map` needs them; details depend on its version.
    for fn, given in (
        (lambda x: (narrow(x), x.sum()), x),
        (lambda x: (narrow(x), x @ x.T), x),
        (lambda x: (narrow(x), split(x)), x),
        (lambda x: jax.jit(lambda x: narrow(jnp.sort(x, 1)))(x), x),
        (lambda x: narrow(jnp.sort(x, 1)), replicated),
    ):
        program = inspect(fn, given)
        assert unknown(program.cost())
        assert unknown(program.cost("lowered"))
        assert sums(program.cost("compiled")) > (0, 0)
    # Nothing can be moved here.
    for fn, given in (
        (narrow, by_column),
        (narrow, x),
        (lambda x: narrow(narrow(x)), by_column),
        (lambda x: jax.jit(narrow, in_shardings=columns, out_shardings=columns)(x), by_column),
        (jax.jit(narrow, out_shardings=columns), x),
        (jax.jit(lambda x: x @ x.T, out_shardings=whole), x),
        (jax.jit(lambda x: x, out_shardings=whole), x),
        (jax.jit(lambda x: x, out_shardings=rows), x),
        (jax.jit(lambda x: x, out_shardings=rows), replicated),
        (jax.jit(lambda x: x, out_shardings=rows), by_row),
        (lambda x: (narrow(x), split(x), x @ x.T), replicated),
        (lambda x: (narrow(x), narrow(x), x), x),
        (jax.jit(lambda x: (narrow(x), x.sum()), in_shardings=whole), x),
    ):
        assert by_source(inspect(fn, given)) == [(0, 0)] * 3


def propagated() -> None:
    """XLA partitions arrays before a constraint or a `shard_map`, and their other results: all are unknown."""
    over = mesh(a=2, b=4)
    rows, whole = NamedSharding(over, P(("a", "b"))), NamedSharding(over, P())
    split = jax.shard_map(lambda x: x * 2, mesh=over, in_specs=P(("a", "b")), out_specs=P(("a", "b")))

    def placed(x: jax.Array) -> jax.Array:
        return lax.with_sharding_constraint(x, rows)

    def twice(x: jax.Array) -> jax.Array:
        return lax.scan(lambda c, _: (jnp.cumsum(c, 0), None), x, None, length=2)[0]

    def siblings(place: Callable[..., Any]) -> Callable[..., Any]:
        def both(x: jax.Array) -> Any:
            y = jnp.sin(x)
            return jnp.sum(y), place(y)

        return both

    def one_part(x: jax.Array) -> Any:
        y = jnp.sin(x)
        return jnp.cumsum(y, 1), lax.with_sharding_constraint(y, P(None, "b"))

    loose, kept = array(16, 16), array(16, 16, sharding=whole)
    flag = array(dtype="bool")
    for fn, given, opcodes in (
        (siblings(placed), (loose,), {"sin", "reduce_sum"}),
        (siblings(placed), (kept,), {"sin", "reduce_sum"}),
        (siblings(split), (kept,), {"sin", "reduce_sum"}),
        (jax.jit(siblings(split)), (kept,), {"sin", "reduce_sum"}),
        (siblings(jax.jit(lambda x: x * 2, in_shardings=rows)), (kept,), {"sin", "reduce_sum"}),
        (jax.jit(siblings(lambda x: x), out_shardings=(whole, rows)), (kept,), {"sin", "reduce_sum"}),
        (lambda x: placed(jnp.cumsum(x, 0)), (loose,), {"cumsum"}),
        (lambda x: split(jnp.sort(x, 0)), (loose,), {"sort"}),
        (lambda x: (split(x), jnp.sum(x)), (loose,), {"reduce_sum"}),
        (lambda x: placed(twice(x)), (loose,), {"cumsum"}),
        (lambda x: split(twice(x)), (kept,), {"cumsum"}),
        (lambda p, x: placed(lax.cond(p, lambda x: jnp.cumsum(x, 0), lambda x: x, x)), (flag, loose), {"cumsum"}),
        (lambda p, x: siblings(split)(lax.cond(p, twice, jnp.cos, x)), (flag, kept), {"cumsum", "cos", "reduce_sum"}),
        (lambda x: jax.jit(siblings(split))(jnp.cos(x)), (kept,), {"cos", "sin", "reduce_sum"}),
        (
            jax.shard_map(one_part, mesh=over, in_specs=P("a"), out_specs=P("a"), axis_names={"a"}),
            (loose,),
            {"sin", "cumsum"},
        ),
    ):
        program = inspect(fn, *given)
        assert opcodes <= {*unknown(program.cost())}, opcodes
        assert unknown(program.cost("lowered")), opcodes
        assert sums(program.cost("compiled")) > (0, 0), opcodes
    # XLA does not partition arrays connected to a sharded one only by scalars and whole arrays.
    for fn, given, opcodes in (
        (lambda x, y: (split(x), jnp.cumsum(y, 0)), (loose, loose), []),
        (lambda x, y: (split(x) * y[0, 0], jnp.cumsum(y * y[0, 0], 0)), (loose, kept), ["mul"]),
        (lambda x, y: (placed(x) + y[:1], jnp.cumsum(y, 0)), (loose, kept), ["sharding_constraint", "slice", "add"]),
        (lambda x: jnp.cumsum(lax.with_sharding_constraint(x, whole), 0), (loose,), []),
    ):
        assert [one for one in unknown(inspect(fn, *given).cost()) if one != "broadcast_in_dim"] == opcodes


def explicit() -> None:
    """Arrays on explicit axes have their shardings in their types: XLA partitions no others."""
    over = jax.make_mesh((DEVICES,), ("a",), axis_types=(AxisType.Explicit,))
    rows, whole = (array(16, 16, sharding=NamedSharding(over, spec)) for spec in (P("a"), P()))
    program = inspect(lambda x, y: (x.sum(), jnp.sin(jnp.cumsum(y, 0)), x + y), rows, whole)
    assert unknown(program.cost()) == ["reduce_sum", "add"]


def nested_loops() -> None:
    """The time to follow shardings through loops in loops grows with their number, not with their combinations."""

    def loops(depth: int) -> Callable[..., Any]:
        inner = loops(depth - 1) if depth else lambda x: x * 2.0
        return lambda x: lax.fori_loop(0, 2, lambda _, x: inner(x), x)

    cost = inspect(loops(30), array(8, 8, sharding=NamedSharding(mesh(a=DEVICES), P("a")))).cost()
    assert unknown(cost) == ["mul"]


CASES: dict[str, Callable[[], Any]] = {
    one.__name__: one
    for one in (
        what_nothing_needs, literals, partly_automatic, names, shown, boundaries, propagated, explicit, nested_loops,
    )
}  # fmt: skip
