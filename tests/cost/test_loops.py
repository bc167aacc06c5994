"""Loops cost what the same program costs without them, by each way of counting: within 1 % of XLA's own total.

XLA itself counts a loop once, whatever its trip count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import spec

from benchmarks.corpus.transformers import attention, feed_forward, rms_norm
from mithril_nb.cost import SOURCES, Cost
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.viz.costs.tables.table import cost_text

Loop = Callable[[Callable[..., Any], Any, Any], Any]
"""Runs a function of the carry and one item over a tuple of items; returns the final carry."""
SQUARE = spec(64, 64)
COUNT = 4


def written_out(step: Callable[..., Any], carry: Any, items: Sequence[Any]) -> Any:
    for item in items:
        carry = step(carry, item)
    return carry


def stacked(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Stack the items of a program into one array for each leaf, as a scan needs them."""

    def scan(step: Callable[..., Any], carry: Any, items: Any) -> Any:
        return lax.scan(lambda c, item: (step(c, item), None), carry, items)[0]

    return partial(fn, scan)


def layer(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def layers(loop: Loop, x: Any, weights: Any) -> Any:
    return loop(layer, x, weights)


def gradient(loop: Loop, x: Any, weights: Any) -> Any:
    return jax.grad(lambda x, weights: (loop(layer, x, weights) ** 2).sum(), (0, 1))(x, weights)


def remat(loop: Loop, x: Any, weights: Any) -> Any:
    twice = jax.checkpoint(lambda x, w: layer(layer(x, w), w))
    return jax.grad(lambda x, weights: (loop(twice, x, weights) ** 2).sum(), (0, 1))(x, weights)


def conditional(loop: Loop, x: Any, weights: Any) -> Any:
    return loop(lambda x, w: lax.cond(x.sum() > 0, lambda x: x @ w, lambda x: x, x), x, weights)


def transformer(loop: Loop, x: Any, blocks: Any) -> Any:
    def block(x: Any, one: Any) -> Any:
        x = x + attention(one, rms_norm(one["norm_1"], x), 2)
        return x + feed_forward(one, rms_norm(one["norm_2"], x))

    return loop(block, x, blocks)


BLOCK = {
    "norm_1": (32,), "qkv": (32, 96), "out": (32, 32), "norm_2": (32,), "up": (32, 128), "down": (128, 32),
}  # fmt: skip
OVER_ITEMS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "layers": (layers, SQUARE, SQUARE),
    "their gradient": (gradient, SQUARE, SQUARE),
    "their gradient with remat": (remat, SQUARE, SQUARE),
    "a condition in a loop": (conditional, SQUARE, SQUARE),
    "vmap over the carry": (
        lambda loop, x, w: jax.vmap(lambda x: layers(loop, x, w))(x), spec(3, 64, 64), SQUARE,
    ),
    "a transformer": (
        transformer, spec(2, 16, 32), {name: spec(*shape) for name, shape in BLOCK.items()},
    ),
}  # fmt: skip


def pair(name: str) -> tuple[Inspection, Inspection]:
    """Return a program with a loop, and the same without."""
    fn, x, item = OVER_ITEMS[name]
    many = jax.tree.map(lambda one: spec(COUNT, *one.shape), item)
    return inspect(stacked(fn), x, many), inspect(partial(fn, written_out), x, [item] * COUNT)


def check(loop: Cost, without: Cost) -> None:
    assert loop.total.flops is not None
    told = without.total.flops if without.xla is None else without.xla.flops
    assert loop.total.flops == pytest.approx(told, rel=0.01)
    assert loop.total.transcendentals == without.total.transcendentals
    assert sum(figures.flops or 0 for figures in loop.by_block.values()) + (loop.unattributed.flops or 0) == (
        loop.total.flops
    )
    if loop.xla is not None and loop.xla.flops is not None:
        assert loop.xla.flops < 0.6 * loop.total.flops  # XLA counts the loop once, so the counts do differ


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", OVER_ITEMS)
def test_a_scan_costs_the_same_as_unrolled(name: str, source: str) -> None:
    loop, without = pair(name)
    if "remat" in name and source == "compiled":
        # Unrolled, XLA merges what remat recomputes with the first computation; in a loop it cannot.
        # XLA of JAX 0.12 keeps the recomputation in both.
        is_kept = jax.__version_info__ < (0, 12)
        assert is_kept == ((loop.cost(source).total.flops or 0) > 1.2 * (without.cost(source).total.flops or 0))
        check(loop.cost(source), without.cost("lowered"))
    else:
        check(loop.cost(source), without.cost(source))


def times(count: int, loop: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a layer applied several times: in a loop, and unrolled."""

    def without(x: Any, w: Any) -> Any:
        for _ in range(count):
            x = layer(x, w)
        return x

    return loop, without


def nested(x: Any, w: Any) -> Any:
    def inner(x: Any) -> Any:
        return lax.scan(lambda x, _: (layer(x, w), None), x, None, length=2)[0]

    return lax.fori_loop(0, 3, lambda _, x: inner(x), x)


def counting(x: Any, w: Any) -> Any:
    return lax.while_loop(lambda c: c[1] < 6, lambda c: (layer(c[0], w), c[1] + 1), (x, 0))[0]


def counting_in_a_scan(x: Any, w: Any) -> Any:
    def turn(x: Any, _: Any) -> Any:
        return lax.while_loop(lambda c: c[1] >= 0, lambda c: (layer(c[0], w), c[1] - 1), (x, 1))[0], None

    return lax.scan(turn, x, None, length=3)[0]


def in_a_branch(x: Any, w: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda x: counting(x, w), lambda x: x, x)


def carrying_for_nothing(x: Any, w: Any) -> Any:
    """Of the carried values, the second only feeds itself, and the third only the second."""

    def turn(c: Any, _: Any) -> Any:
        return (layer(c[0], w), jnp.tanh(c[1] @ c[0] + c[2]), c[2] @ c[2]), c[1] @ w

    return lax.scan(turn, (x, x @ x, w), None, length=6)[0][0]


TIMES: dict[str, Callable[..., Any]] = {
    "fori_loop": lambda x, w: lax.fori_loop(0, 6, lambda _, x: layer(x, w), x),
    "while": counting,
    "loops in loops": nested,
    "while in a scan": counting_in_a_scan,
    "while in a branch": in_a_branch,
    "scan, two steps at a time": lambda x, w: lax.scan(lambda x, _: (layer(x, w), None), x, None, 6, unroll=2)[0],
    "scan, four steps at a time": lambda x, w: lax.scan(lambda x, _: (layer(x, w), None), x, None, 6, unroll=4)[0],
    "scan with an unused carry": carrying_for_nothing,
    "backwards": lambda x, w: lax.scan(lambda x, _: (layer(x, w), None), x, None, 6, reverse=True)[0],
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", TIMES)
def test_a_loop_with_a_given_trip_count(name: str, source: str) -> None:
    loop, without = times(6, TIMES[name])
    found = inspect(loop, SQUARE, SQUARE).cost(source)
    plain = inspect(without, SQUARE, SQUARE).cost(source)
    assert found.total.flops == pytest.approx(plain.total.flops, rel=0.01)
    assert found.total.transcendentals == plain.total.transcendentals
    assert found.total.flops is not None
    assert found.total.flops >= 6 * 2 * 64**3


def test_unused_loop_carries_cost_nothing() -> None:
    """JAX drops it since 0.12; before, XLA does when it compiles."""

    def idle(x: Any, w: Any) -> Any:
        def turn(c: Any) -> Any:
            return layer(c[0], w), c[1] + 1, c[2] @ c[0]

        return lax.while_loop(lambda c: c[1] < 6, turn, (x, 0, x @ x))[0]

    found = inspect(idle, SQUARE, SQUARE)
    assert found.cost().total == inspect(counting, SQUARE, SQUARE).cost().total
    assert found.cost("compiled").total.flops == found.cost().total.flops
    assert {value.id for value in found.values} == {"x", "w", "1{0}", "1{1}", "1.b1.0", "1.b1.1", "1.b1.2", "1.b0.0"}


def unknown(x: Any) -> Any:
    """A loop with a dynamic trip count around one with a static trip count."""
    return lax.while_loop(
        lambda c: c.sum() < 3, lambda c: lax.scan(lambda c, _: (c @ c, None), c, None, length=3)[0], x
    )


def carried(x: Any) -> Any:
    """A loop with a dynamic trip count, whose result the loop around it carries."""
    inner = partial(lax.while_loop, lambda c: c[0] < 5, lambda c: (c[0] + c[1], c[1] * 0.9, c[2] @ c[2]))
    return lax.scan(lambda c, _: (inner(c), None), (0.0, 1.0, x), None, length=5)[0]


def carried_by_index(x: Any) -> Any:
    inner = partial(lax.while_loop, lambda c: c[0] < 5, lambda c: (c[0] + c[1], c[1] * 0.9, c[2] @ c[2]))
    return lax.fori_loop(0, 6, lambda _, c: inner(c), (0.0, 1.0, x))


def either(x: Any) -> Any:
    return lax.cond(x.sum() > 0, unknown, lambda x: x * 2, x)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("program", [unknown, either, carried, carried_by_index])
def test_costs_in_a_loop_of_unknown_length_are_unknown(program: Callable[..., Any], source: str) -> None:
    cost = inspect(program, spec(8, 8)).cost(source)
    products = [row for row in cost.rows if "dot" in row.opcode]
    assert [(row.repeats, row.flops, row.once.flops) for row in products] == [(None, None, 2 * 8**3)]
    assert any("1 × dot" in note and "trip count unknown" in note for note in cost.notes)
    # The loop's condition runs at least once, but how often is unknown, so the known costs are outside the loop.
    assert (cost.total.flops or 0) < 2 * 8**3


@pytest.mark.parametrize("source", ["analytic", "lowered", "compiled"])
def test_a_note_states_that_the_most_expensive_branch_counts(source: str) -> None:
    def some(w, x):
        return lax.fori_loop(0, 6, lambda i, c: lax.cond(i % 2 == 0, lambda c: c @ w, lambda c: c, c), x)

    cost = inspect(some, spec(32, 32), spec(8, 32)).cost(source)
    word = "cond" if source == "analytic" else "conditional"
    note = f"1 × {word}: every run is counted as a run of the most expensive branch, as XLA counts; "
    note += "other branches cost less"
    assert note in cost.notes
    assert note in str(cost)
    assert "most expensive branch" not in str(inspect(lambda w, x: x @ w, spec(32, 32), spec(8, 32)).cost(source))


def test_loops_without_transcendentals_leave_their_sum_exact() -> None:
    def body(x: Any) -> Any:
        start = jnp.tanh(x).sum()
        return jax.lax.while_loop(lambda s: s < 3, lambda s: s + 1, start)

    program = inspect(body, spec(4, 5))
    for cost in (program.cost(), program.cost("lowered")):
        total = cost.total
        assert (total.transcendentals, total.unknown, total.unknown_transcendentals) == (20, 2, 0)
        assert cost.by_block["body"].unknown_transcendentals == 0
        assert total.to_dict()["unknown_transcendentals"] == 0
        in_blocks = next(line for line in str(cost).splitlines() if line.startswith("total"))
        in_lines = next(line for line in str(cost.by_line).splitlines() if line.endswith(" total"))
        for row in (in_blocks, in_lines):
            assert row.startswith("≥ 19") or "  ≥ 19  " in row
            assert "≥ 20" not in row


def test_old_saved_costs_bound_transcendentals_by_unknown_flops() -> None:
    def body(x: Any) -> Any:
        return jax.lax.while_loop(lambda s: s < 3, lambda s: s + 1, jnp.tanh(x).sum())

    data = inspect(body, spec(4, 5), name="program", params=()).cost().to_dict(rows=False)
    assert "≥ 20" not in cost_text(data)

    def older(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: older(one) for key, one in value.items() if key != "unknown_transcendentals"}

    assert "≥ 20" in cost_text(older(data))


def test_loops_with_transcendentals_bound_their_sum() -> None:
    def body(x: Any) -> Any:
        start = jnp.tanh(x).sum()
        return jax.lax.while_loop(lambda s: s < 3, lambda s: jnp.exp(s) + 1, start)

    cost = inspect(body, spec(4, 5)).cost()
    assert (cost.total.unknown, cost.total.unknown_transcendentals) == (3, 1)
    assert cost.subtree("body").to_dict()["unknown_transcendentals"] == 1
    assert "unknown_transcendentals" not in cost.to_pandas("block")
    for text in (str(cost), str(cost.by_line)):
        assert any("≥ 20" in line and line.split()[-1] in ("total", "%") for line in text.splitlines())
