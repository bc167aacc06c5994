"""The cost of a node of a stage is never less than the costs of the nodes inside, whatever blocks they belong to."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import spec

from benchmarks.corpus import corpus
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.viz.costs.fields import FIELDS
from mithril_nb.viz.costs.node_values import cost_values, memory_values
from mithril_nb.viz.costs.overlays import stage_shares
from mithril_nb.viz.diagrams.stages import nested_stage, stage_graph_text

CORPUS = corpus()
SQUARE = spec(8, 8)


def check(program: Inspection, stage: str = "jaxpr", source: str = "analytic") -> None:
    graph, cost = program.graph(stage), program.cost(source)
    nodes = nested_stage(graph).boxes
    for field in ("flops", "bytes_accessed"):
        values = cost_values(cost.to_dict(), nodes, FIELDS[field], graph=graph)
        for node in nodes:
            inside = [values.values.get(one.key) or 0 for one in graph.level(node.key)]
            total = values.values.get(node.key)
            assert not inside or total is None or total >= sum(inside), (program.name, field, node.key, total, inside)
            assert total is not None or not any(inside), (program.name, field, node.key)
        top = sum(values.values.get(node.key) or 0 for node in graph.level())
        assert top == (getattr(cost.total, field) or 0), (program.name, field)
    if stage == "jaxpr":
        # Without the costs of instructions, the node of a block has the values of the blocks inside.
        peak = {path: one.bytes_accessed or 0 for path, one in cost.by_block.items()}
        sums = memory_values(peak, nodes, "analytic", own=False, graph=graph).values
        for node in nodes:
            largest = max((sums.get(one.key) or 0 for one in graph.level(node.key)), default=0)
            assert sums.get(node.key) is None or sums[node.key] >= largest, (program.name, node.key)
        shares = stage_shares(program, graph)
        for key, share in shares.items():
            assert share >= sum(shares.get(one.key, 0) for one in graph.level(key)) - 1e-9


@pytest.mark.parametrize("name", [name for name in CORPUS if not name.startswith("sharded")])
def test_a_node_of_the_corpus_is_not_less_than_its_parts(name: str) -> None:
    fn, args = CORPUS[name]()
    check(inspect(fn, *args, name=name))


def random_program(seed: int) -> Any:
    """Return a function of two matrices that calls named blocks inside and outside of loops, branches and gradients."""
    pick = random.Random(seed)

    def block(name: str, depth: int) -> Any:
        made = [part(depth - 1) for _ in range(pick.randint(1, 3))]

        def run(w: Any, x: Any) -> Any:
            with jax.named_scope(name):
                for one in made:
                    x = one(w, x)
                return jnp.tanh(x @ w)

        return run

    def part(depth: int) -> Any:
        kind = pick.choice(["shared", "shared", "block", "scan", "cond", "jit", "grad"]) if depth > 0 else "shared"
        if kind == "shared":
            return pick.choice(shared)
        if kind == "block":
            return block(pick.choice("abc"), depth)
        inner, length = part(depth - 1), pick.randint(2, 4)
        if kind == "scan":
            return lambda w, x: lax.scan(lambda c, _: (inner(w, c), None), x, None, length=length)[0]
        if kind == "cond":
            return lambda w, x: lax.cond(x.sum() > 0, lambda x: inner(w, x), lambda x: x + 1, x)
        if kind == "jit":
            return jax.jit(inner)
        return lambda w, x: x - jax.grad(lambda x: inner(w, x).sum())(x)

    shared: list[Any] = [lambda w, x: x * 2]
    shared += [block(name, 0) for name in ("net", "head")]
    parts = [part(3) for _ in range(pick.randint(2, 4))]

    def program(w: Any, x: Any) -> Any:
        for one in parts:
            x = one(w, x)
        return x

    return program


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_a_node_of_a_random_program_is_not_less_than_its_parts(start: int) -> None:
    for seed in range(start, start + 20):
        check(inspect(random_program(seed), SQUARE, SQUARE, name=f"program {seed}"))


@pytest.mark.parametrize("seed", range(4))
def test_a_node_of_a_compiled_program_is_not_less_than_its_parts(seed: int) -> None:
    check(inspect(random_program(seed), SQUARE, SQUARE), "hlo", "compiled")


def net(w: Any, x: Any) -> Any:
    with jax.named_scope("net"):
        return jnp.tanh(x @ w)


def rollout(w: Any, x: Any) -> Any:
    def step(state: Any, _: Any) -> Any:
        return net(w, state), None

    return lax.scan(step, net(w, x), None, length=4)[0]


def test_a_block_called_outside_and_inside_a_scan() -> None:
    program = inspect(rollout, SQUARE, SQUARE)
    text = program.cost().overlay(program).text
    assert [line.split()[0] for line in text.splitlines()[2:6]] == ["net", "rollout", "scan", "net"]
    assert [line.split()[-2] for line in text.splitlines()[2:6]] == ["20.0", "80.0", "80.0", "80.0"]
    # The default picture shows the share of the scan, too.
    graph = program.graph()
    lines = stage_graph_text(graph, shares=stage_shares(program, graph)).splitlines()
    assert next(line for line in lines if line.strip().startswith("scan")).endswith("80.0 %")
