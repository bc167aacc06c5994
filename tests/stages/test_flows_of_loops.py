"""Data and gradients in the graphs of random programs: out of loops, to their next rounds, and past sums."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax_programs import block, by_id, spec

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.viz.diagrams.layout import layout
from mithril_nb.viz.diagrams.stages import nested_stage

# Different ones, because equal blocks are folded into one node.
START = (jnp.sin, jnp.cos, jnp.exp)
INNER = (jnp.tanh, jnp.sinh, jnp.cosh, jnp.sqrt, jnp.cbrt)
OUTER = (jnp.arctan, jnp.expm1, jnp.log1p)
SIZES = (5, 7, 11, 13, 17)
Links = set[tuple[str, str]]


def name_of(graph, key):
    """Return the innermost block of a node, without the blocks around it."""
    return graph.nodes[key].block.rpartition("/")[2]


def links_of(graph) -> tuple[Links, Links]:
    """Return the blocks that exchange data in one round, and from one round to the next."""
    now: Links = set()
    later: Links = set()
    for link in graph.links:
        ends = name_of(graph, link.source), name_of(graph, link.target)
        if graph.nodes[link.source].kind != "input" and graph.nodes[link.target].kind != "loop":
            (later if link.loop else now).add(ends)
    return now, later


def random_loop(seed) -> tuple[Callable[..., Any], Links, Links]:
    """Return a scan or `while` with random blocks in its body, and the links between its blocks."""
    rng = random.Random(seed)
    carries, blocks = rng.randrange(1, 4), rng.randrange(1, 6)
    is_scan = seed % 3 > 0
    # Values of a round: the carries, then the results of the blocks.
    reads = [[rng.randrange(carries + at) for _ in range(rng.randrange(1, 3))] for at in range(blocks)]
    following = [rng.randrange(carries, carries + blocks) if rng.random() < 0.8 else at for at in range(carries)]
    stacked = [rng.randrange(carries, carries + blocks) for _ in range(2)] if is_scan else []
    after = [rng.randrange(carries + len(stacked)) for _ in range(3)]

    def body(values):
        known = list(values)
        for at, places in enumerate(reads):
            with block(f"inner_{at}"):
                known.append(INNER[at](sum(known[place] for place in places)))
        return known

    def program(x):
        starts = []
        for at in range(carries):
            with block(f"start_{at}"):
                starts.append(START[at](x))
        if is_scan:

            def step(values, _):
                known = body(values)
                return tuple(known[at] for at in following), tuple(known[at] for at in stacked)

            last, rows = lax.scan(step, tuple(starts), None, length=3)
            given = [*last, *rows]
        else:

            def again(values):
                return values[0].sum() < 3

            def turn(values):
                known = body(values)
                return tuple(known[at] for at in following)

            given = [*lax.while_loop(again, turn, tuple(starts))]
        result = jnp.zeros(3)
        for at, place in enumerate(after):
            with block(f"outer_{at}"):
                value = given[place] if place < carries else given[place][0]
                result = result * OUTER[at](value)
        return result

    def sources(place):
        """Return the block whose result the next round reads as a value of this one."""
        seen = set()
        while place < carries and place not in seen:
            seen.add(place)
            place = following[place]
        return None if place < carries else f"inner_{place - carries}"

    later = {
        (maker, f"inner_{at}")
        for at, places in enumerate(reads)
        for place in places
        if (maker := sources(place)) and place < carries
    }
    leaving = [following[place] if place < carries else stacked[place - carries] for place in after]
    out = {(f"inner_{place - carries}", f"outer_{at}") for at, place in enumerate(leaving) if place >= carries}
    return program, later, out


@pytest.mark.parametrize("seed", range(24))
def test_data_leaves_a_loop_where_it_is_computed(seed):
    program, later, out = random_loop(seed)
    graph = inspect(program, jnp.ones(3)).graph()
    now, carried = links_of(graph)
    used = {source for source, _ in (*now, *carried)} | {target for _, target in (*now, *carried)}
    known = {(source, target) for source, target in later if {source, target} <= used}
    assert {one for one in carried if one[1].startswith("inner")} == known
    assert {one for one in now if one[0].startswith("inner") and one[1].startswith("outer")} == out


def loop_of_two(is_scan) -> Callable[[jax.Array], jax.Array]:
    """Return a program with a loop over two values, and a block before and after it."""

    def turn(values):
        with block("inner_0"):
            first = jnp.tanh(values[0])
        with block("inner_1"):
            return first, jnp.cosh(values[1] + first)

    def program(x):
        with block("start"):
            x = jnp.sin(x)
        if is_scan:
            values, _ = lax.scan(lambda values, _: (turn(values), None), (x, x), None, length=3)
        else:
            values = lax.while_loop(lambda values: values[0].sum() < 3, turn, (x, x))
        with block("outer"):
            return jnp.arctan(values[1])

    return program


@pytest.mark.parametrize("is_scan", [True, False])
def test_stablehlo_has_the_data_flow_of_a_loop(is_scan):
    inspection = inspect(loop_of_two(is_scan), jnp.ones(3))
    expected = links_of(inspection.graph("jaxpr"))
    now, later = links_of(inspection.graph("stablehlo"))
    blocks = {"start", "inner_0", "inner_1", "outer"}
    assert {ends for ends in now if blocks.issuperset(ends)} == {
        ends for ends in expected[0] if blocks.issuperset(ends)
    }
    assert ("inner_1", "outer") in now
    assert ("start", "outer") not in now
    assert {ends for ends in later if blocks.issuperset(ends)} <= expected[1]


@pytest.mark.parametrize("is_scan", [True, False])
@pytest.mark.parametrize("stage", ["hlo_before", "hlo"])
def test_hlo_has_the_data_flow_of_a_loop(stage, is_scan):
    inspection = inspect(loop_of_two(is_scan), jnp.ones(3))
    graph, found = inspection.graph(stage), by_id(inspection, stage)

    def blocks_of(ids):
        return {path for id in ids for path, _ in found[id].shares}

    reached = {id for id, one in found.items() if blocks_of([id]) == {"outer"} and one.opcode in ("atan2", "fusion")}
    assert reached
    while more := {source for source, target, _ in graph.flows if target in reached} - reached:
        reached |= more
    assert blocks_of(reached) >= {"start", "inner_0", "inner_1", "outer"}
    assert blocks_of(source for source, _, _ in graph.carried) >= {"inner_0", "inner_1"}
    body = next(one for one in found.values() if one.opcode == "while").results
    for source, target, _ in graph.carried:
        maker = body[int(dict(found[target].attributes)["index"])]
        assert source in (maker, *found[maker].results)  # in a fusion, the instruction that computes its result


def test_hlo_has_the_rounds_of_a_loop_over_one_array():
    def program(x):
        return lax.while_loop(lambda s: s.sum() < 30, lambda s: s + jnp.tanh(s), x)

    inspection = inspect(program, jnp.ones(3))
    for stage in ("hlo_before", "hlo"):
        found = by_id(inspection, stage)
        (made,) = next(one for one in found.values() if one.opcode == "while").results
        assert {source for source, _, _ in inspection.graph(stage).carried} == {made}, stage


def test_hlo_has_no_rounds_of_values_that_a_loop_does_not_change():
    def turn(state):
        return jnp.tanh(state[0]) * state[1], state[1], state[2] + 1

    def program(x):
        return lax.while_loop(lambda s: (s[2] < 3) & (s[1].sum() < 9), turn, (x, x, 0))

    inspection = inspect(program, jnp.ones(3))
    for stage in ("hlo_before", "hlo"):
        found = by_id(inspection, stage)
        carried = inspection.graph(stage).carried
        assert carried, stage
        for source, target, _ in carried:
            assert found[source].opcode != "get-tuple-element", (stage, source, target)


def test_each_result_of_an_op_is_a_separate_operand():
    def program(x):
        first, second = jax.jit(lambda x: (jnp.sin(x), x.sum()), inline=False)(x)
        return first + second * 2

    stage = inspect(program, jnp.ones(3)).stage("stablehlo")
    calls = [one for one in stage.instructions if one.opcode.endswith("call")]
    assert [len(one.results) for one in calls] == [2]
    assert any(1 in one.picks for one in stage.instructions)


OPS = {"scale": jnp.sin, "tanh": jnp.tanh, "stop": lax.stop_gradient}


def random_network(seed) -> tuple[Callable[..., Any], dict[str, jax.Array], Links]:
    """Return the loss of random blocks, its params, and the wires along which its gradient flows back.

    A gradient flows along a wire if the loss changes with what is added on this wire alone, and if the block where the
    wire starts depends on a parameter.
    """
    rng = random.Random(seed)
    plan: list[tuple[str, tuple[int, ...]]] = [("scale", (0,))]
    for at in range(2, rng.randrange(4, 12)):
        kind = rng.choice(["scale", "scale", "tanh", "sum", "sum", "stop"])
        count = min(at, 2 if kind == "sum" else 1)
        plan.append((kind, tuple(rng.sample(range(max(0, at - 4), at), count) if at >= count else (0,))))
    params = {f"w{at}": jnp.float32(1 + at / 9) for at, (kind, _) in enumerate(plan, 1) if kind == "scale"}
    wires = [(tail, at) for at, (_, tails) in enumerate(plan, 1) for tail in tails]

    def forward(params, x, added):
        values = [x]
        for at, (kind, tails) in enumerate(plan, 1):
            taken = [values[tail] + added[tail, at] if added else values[tail] for tail in tails]
            with block(f"block_{at}"):
                value = taken[0] * params[f"w{at}"] if kind == "scale" else taken[0]
                for _ in range(at):  # blocks of different lengths, because equal ones are folded into one node
                    value = value + taken[-1] if kind == "sum" else OPS[kind](value)
                values.append(value)
        with block("head"):
            return jnp.sum(values[-1] ** 2)

    def loss(params, x):
        return forward(params, x, {})

    x = jnp.asarray([0.3, 0.7, 1.1])
    nothing = {wire: jnp.zeros(3) for wire in wires}
    moved = jax.grad(forward, argnums=2)(params, x, nothing)
    learns = {0: False}
    for at, (kind, tails) in enumerate(plan, 1):
        learns[at] = kind == "scale" or (kind != "stop" and any(learns[tail] for tail in tails))
    names = {at: f"block_{at}" for at in learns}
    return loss, params, {
        (names[tail], names[at]) for tail, at in wires if learns[tail] and bool(jnp.any(moved[tail, at] != 0))
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_gradients_flow_back_past_sums(seed):
    loss, params, expected = random_network(seed)
    graph = inspect(jax.grad(loss), params, jnp.ones(3)).graph()
    scene = layout(nested_stage(graph))
    found = {(edge.source, edge.target) for edge in scene.edges if edge.returns and edge.target != "head"}
    assert {one for one in found if all(end.startswith("block") for end in one)} == expected


def test_a_function_with_a_quoted_name_is_connected():
    """MLIR writes `@"fσ"` with escapes; JAX names functions after those of the user."""

    def f(x):
        return jnp.sin(x)

    f.__name__ = f.__qualname__ = "fσ"
    stage = inspect(lambda x: jax.jit(f)(jnp.cos(x)), jax.ShapeDtypeStruct((3,), "float32")).stage("stablehlo")
    found = {one.opcode: one for one in stage.instructions}
    assert found["stablehlo.sine"].operands == (found["stablehlo.cosine"].id,)
    assert found["call"].results == (found["stablehlo.sine"].id,)


@st.composite
def loops_of_one_line(draw: st.DrawFn) -> tuple[Callable[..., Any], int, int]:
    """Draw a program of loops that one line of Python makes. The carry of each has its own size.

    Also return their number, and the number of linear ones: their backward pass reads nothing of the forward pass.
    """
    kinds = draw(st.lists(st.sampled_from(["data", "tanh", "linear", "step"]), min_size=2, max_size=5))
    rounds = [draw(st.sampled_from([3, 3, 4])) for _ in kinds]
    has_scopes = draw(st.booleans())

    def loop(turn, start, count):
        return lax.scan(lambda c, _: (turn(c), None), start, None, length=count)[0]

    def program(w, x):
        def loss(w):
            total = 0.0
            for at, (kind, count) in enumerate(zip(kinds, rounds, strict=True)):
                with block(f"part_{at}") if has_scopes else nullcontext():
                    start = jnp.full(SIZES[at], x.sum())
                    if kind == "tanh":
                        start = loop(lambda c: jnp.tanh(c * w), start, count)
                    elif kind == "linear":
                        start = loop(lambda c: c + w, start, count)
                    elif kind == "data":
                        start = loop(jnp.sin, start, count)
                    else:
                        start = loop(lambda c: c - 0.1 * jax.grad(lambda c: jnp.cosh(c).sum())(c), start, count)
                    total += start.sum() * w
            return total

        return w - 0.1 * jax.grad(loss)(w)

    return program, len(kinds), kinds.count("linear")


@settings(max_examples=25, deadline=None)
@given(loops_of_one_line())
def test_two_loops_are_two_nodes(drawn):
    program, count, linear = drawn
    inspection = inspect(program, spec(), spec(2))
    for name in ("jaxpr", "stablehlo", "hlo"):
        graph, found = inspection.graph(name), by_id(inspection, name)
        loops = [node for node in graph.nodes.values() if node.kind == "loop"]
        for node in loops:
            inside = [found[id] for id in graph.instructions_of(node.key) if node.key not in graph.hidden]
            sizes = {size for one in inside for made in one.shapes for size in made.shape} & {*SIZES}
            assert len(sizes) <= 1, (name, node.key, node.members)
        assert count <= len(loops) <= 2 * count, name
    notes = [node.note for node in inspection.graph("jaxpr").nodes.values() if node.kind == "loop"]
    assert count <= len(notes) <= count + linear, "a loop and its backward pass are one node"
