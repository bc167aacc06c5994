"""Every node of a picture that takes data has a wire, in all stages and whichever nodes are open."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax_programs import block, spec

from benchmarks.corpus import corpus
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.viz.diagrams.stages import nested_stage

CORPUS = [name for name in corpus() if not name.startswith("sharded")]
STAGES = ("jaxpr", "stablehlo", "hlo")


def without_wire(graph, stage, opened):
    """Return the keys of visible closed nodes that read a value from outside, and have no wire."""
    nested = nested_stage(graph)
    shown = nested.visible_groups(opened)
    pieces = [piece for level in nested.pieces(nested.wires(shown)).values() for piece in level]
    wired = {end for piece in pieces for end in (piece.tail, piece.head)}
    # Rounds that are shown as one have no wires between them: a parameter of a fusion may connect only those.
    wired |= {end for flow in nested.rounds for end in (flow.source, flow.target)}
    by_id = {one.id: one for one in stage.instructions}
    found = []
    for node in graph.visible(shown):
        inside = {*graph.instructions_of(node.key)}
        makers = {operand for id in inside if id in by_id for operand in by_id[id].operands} - inside
        # A parameter is a part of its block, so what only reads it inside the block has no wire.
        taken = [
            id
            for id in makers
            if id in by_id and by_id[id].opcode != "constant" and not node.key.startswith(f"{graph.home.get(id)}/")
        ]
        if taken and node.key not in shown | wired and node.kind != "input":
            found.append(node.key)
    return found


def check(fn, args, stages=STAGES):
    inspection = inspect(fn, *args)
    for name in stages:
        graph, stage = inspection.graph(name), inspection.stage(name)
        for opened in ((), graph.first_view(), graph.nodes):
            assert without_wire(graph, stage, opened) == [], (name, len(opened))


@pytest.mark.parametrize("name", CORPUS)
def test_nodes_of_the_corpus_have_wires(name):
    check(*corpus()[name](), stages=("jaxpr", "stablehlo"))


@st.composite
def programs(draw: st.DrawFn):
    """Draw a program of blocks that read any earlier value, its gradients, and updates of some arguments."""
    plan = draw(st.lists(st.tuples(st.sampled_from("ab_"), st.integers(0, 5), st.integers(0, 5)), max_size=6))
    updates = draw(st.lists(st.integers(0, 2), max_size=3))

    def value(args):
        values = [*args]
        for at, (name, left, right) in enumerate(plan):
            left, right = values[left % len(values)], values[right % len(values)]
            if name == "_":
                values.append(left * right + at)
            else:
                with block(f"{name}_{at}"):
                    values.append(jnp.tanh(left) + right)
        return values[-1].sum()

    def program(params, x, count):
        args = (params, x, count)
        grads = jax.grad(value)(args)
        return [args[at] - 0.1 * grads[at] * (count + 1) for at in updates] or value(args), count + 1

    return program


@settings(max_examples=20, deadline=None)
@given(programs())
def test_nodes_of_random_programs_have_wires(program):
    check(program, (spec(3), spec(3), spec(3)))


def test_all_stages_have_the_inputs_of_the_program():
    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(lambda p: jnp.tanh(x @ p["w"]).sum())(params))

    for fn, args, names in ((jnp.sin, (spec(3),), ["x"]), (step, ({"w": spec(3, 5)}, spec(2, 3)), ["x"])):
        inspection = inspect(fn, *args)
        for stage in STAGES:
            inputs = [node.name for node in inspection.graph(stage).level() if node.kind == "input"]
            assert inputs == names, stage


def test_an_argument_of_a_function_with_several_calls_is_not_that_of_the_module():
    inner = jax.jit(lambda x: jnp.sin(x) * 2)
    inspection = inspect(lambda x, y: inner(inner(y)) + x, spec(3), spec(3))
    links = {(link.source, link.target) for link in inspection.graph("stablehlo").links}
    users = {target for source, target in links if source == "input:%arg0"}
    assert all("sin" not in user for user in users), links


def test_an_argument_that_a_function_returns_is_that_of_its_call():
    turn = jax.jit(lambda a, b, c: (jnp.sin(b), c, a))

    def program(x, y, z):
        return lax.fori_loop(0, 5, lambda _, carry: turn(*carry), (jnp.exp(z), jnp.exp(y), jnp.exp(x)))

    inspection = inspect(program, spec(3), spec(3), spec(3))
    ops = inspection.stage("stablehlo").instructions
    known = {"", *(one.id for one in ops)}
    for one in ops:
        assert known.issuperset((*one.carried, *one.results)), one
    assert not any(link.source.startswith("input:") and link.loop for link in inspection.graph("stablehlo").links)
