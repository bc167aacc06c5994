"""Blocks whose operations are between other blocks are split, so that the graph shows the order of the blocks."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from graphlib import TopologicalSorter
from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import linen
from hypothesis import given, settings
from hypothesis import strategies as st

import mithril_nb as ml
from mithril_nb.stages.graph.tree import stage_graph

X = jax.ShapeDtypeStruct((2, 8, 8, 3), "float32")


class UNet(linen.Module):
    """Two levels with skip connections."""

    @linen.compact
    def __call__(self, x):
        skips = []
        for number, width in enumerate((4, 8)):
            x = linen.Conv(width, (3, 3), name=f"down_{number}")(x)
            skips.append(x)
            x = linen.max_pool(x, (2, 2), (2, 2))
        x = linen.Conv(16, (3, 3), name="bottom")(x)
        for number, skip in reversed([*enumerate(skips)]):
            x = linen.ConvTranspose(skip.shape[-1], (2, 2), (2, 2), name=f"up_{number}")(x)
            x = linen.Conv(skip.shape[-1], (3, 3), name=f"merge_{number}")(jnp.concatenate([x, skip], -1))
        return linen.Conv(3, (1, 1), name="out")(x)


class Mlp(linen.Module):
    """Dense layers with a relu between them."""

    depth: int

    @linen.compact
    def __call__(self, x):
        for _ in range(self.depth):
            x = linen.relu(linen.Dense(8)(x))
        return linen.Dense(2)(x)


class Tied(linen.Module):
    """An embedding whose weight is used twice."""

    @linen.compact
    def __call__(self, tokens):
        embed = linen.Embed(7, 4, name="embed")
        return embed.attend(linen.Dense(4, name="middle")(embed(tokens)))


def applied(module, *specs, differentiate=False):
    variables = jax.eval_shape(module.init, jax.random.key(0), *specs)

    def program(variables, *inputs):
        result = module.apply(variables, *inputs)
        return result.sum() if differentiate else result

    return ml.inspect(jax.grad(program) if differentiate else program, variables, *specs)


def graph_of(inspection, stage="jaxpr"):
    return stage_graph(inspection.stage(stage))


def wires(graph) -> set[tuple[str, str]]:
    """Return the links between the nodes of the top level, by name; repeated names have a number."""
    count: Counter[str] = Counter()
    names = {}
    for node in graph.level():
        count[node.name] += 1
        names[node.key] = node.name if count[node.name] == 1 else f"{node.name} {count[node.name]}"

    def top(key):
        while key not in names:
            key = graph.nodes[key].parent
        return names[key]

    return {(top(link.source), top(link.target)) for link in graph.links if "forward" in link.roles} - {
        (name, name) for name in names.values()
    }


def test_a_u_net_is_a_chain_with_skip_connections():
    found = wires(graph_of(applied(UNet(), X)))
    chain = [
        "inputs_0",
        "down_0",
        "reduce_window_max",
        "down_1",
        "reduce_window_max 2",
        "bottom",
        "up_1",
        "concatenate",
    ]
    chain += ["merge_1", "up_0", "concatenate 2", "merge_0", "out"]
    skips = {("down_1", "concatenate"), ("down_0", "concatenate 2")}
    assert found == {*pairwise(chain)} | skips


def test_the_backward_pass_is_with_its_forward_part():
    graph = graph_of(applied(UNet(), X, differentiate=True))
    parts = {node.name: node for node in graph.level() if node.kind == "lines"}
    assert {"reduce_window_max", "concatenate"} <= set(parts)
    opcodes = {one.id: one.opcode for one in applied(UNet(), X, differentiate=True).stage("jaxpr").instructions}
    for node in graph.level():
        inside = Counter(opcodes[id] for id in graph.instructions_of(node.key))
        assert inside["reduce_window_max"] == inside["select_and_scatter_add"]
        assert inside["concatenate"] == inside["split"]


def test_layers_with_an_activation_between_them_are_rounds():
    graph = graph_of(applied(Mlp(40), jax.ShapeDtypeStruct((2, 5), "float32")))
    names = [(node.name, node.repeat) for node in graph.level()]
    assert names == [("inputs_0", 1), ("Dense_0", 1), ("relu … Dense_1", 39), ("relu", 1), ("Dense_40", 1)]


def test_one_line_of_python_before_and_after_a_loop_is_two_nodes():
    class Layer(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.RNN(linen.SimpleCell(4), name="layer")(linen.Dense(4, name="first")(x))

    graph = graph_of(applied(Layer(), jax.ShapeDtypeStruct((2, 3, 5), "float32")))
    before: dict[str, set[str]] = {}
    inside = {node.key for node in graph.level("layer")}
    for link in graph.links:
        ends = [inside.intersection((end, *graph._above(end))) for end in (link.source, link.target)]
        if all(ends) and ends[0] != ends[1] and not link.loop:
            before.setdefault(ends[1].pop(), set()).update(ends[0])
    TopologicalSorter(before).prepare()  # raises if data comes back


def test_a_block_with_parameters_stays_whole():
    names = [node.name for node in graph_of(applied(Tied(), jax.ShapeDtypeStruct((2, 3), "int32"))).level()]
    assert names == ["inputs_0", "embed", "middle"]


def test_a_function_that_calls_modules_is_split_in_each_stage():
    inspection = applied(Mlp(3), jax.ShapeDtypeStruct((2, 5), "float32"))
    for stage in ("jaxpr", "stablehlo"):
        blocks = [node.block for node in graph_of(inspection, stage).level() if node.kind == "block"]
        assert blocks == ["Dense_0", "Dense_1", "Dense_2", "Dense_3"], stage


def test_a_function_that_is_called_several_times_keeps_its_name():
    def normalized(x):
        with jax.named_scope("norm"):
            return (x - x.mean()) * jax.lax.rsqrt(x.var() + 1e-5)

    def program(w, x):
        for number in range(2):
            x = normalized(x)
            with jax.named_scope(f"layer_{number}"):
                x = x @ w
        return x

    specs = [jax.ShapeDtypeStruct((3, 3), "float32")] * 2
    names = [node.name for node in graph_of(ml.inspect(program, *specs, params="w")).level() if node.kind != "input"]
    assert names == ["norm", "layer_0", "norm", "layer_1"]


def test_loops_of_two_hubs_are_both_kept():
    def program(x):
        for name in ("norm", "middle", "smooth", "norm", "smooth", "middle", "norm"):
            with jax.named_scope(name):
                x = jnp.sin(jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y), x)) if name != "middle" else x * 2
        return x

    inspection = ml.inspect(program, jax.ShapeDtypeStruct((3,), "float32"))
    graph = graph_of(inspection)
    held = Counter(id for node in graph.nodes.values() for id in node.ids)
    assert {one.id for one in inspection.stage("jaxpr").instructions if one.opcode != "parameter"} <= set(held)


STEPS = st.tuples(
    st.integers(0, 8), st.integers(0, 8), st.sampled_from(["a", "b", "hub", "layer", ""]), st.integers(0, 5)
)


@settings(max_examples=40)
@given(
    st.lists(STEPS, min_size=3, max_size=13),
    st.booleans(),
    st.sampled_from(["jaxpr", "stablehlo", "hlo_before", "hlo"]),
)
def test_random_programs_lose_nothing(steps, differentiate, stage):
    def apply(kind, left, right):
        if kind == 0:
            return jnp.sin(left) + right
        if kind == 1:
            return jnp.tanh(left) * right
        if kind == 2:
            return jnp.sin(left) + jnp.arange(3.0)
        if kind == 3:
            return jax.nn.relu(left) * right
        if kind == 4:
            return jax.lax.scan(lambda carry, _: (jnp.sin(carry) * right, None), left, None, length=3)[0]
        return jax.lax.cond(left.sum() > 0, lambda one: jnp.sin(one) * right, lambda one: jnp.cos(one) + 1, left)

    def program(x):
        values = [x]
        for one, other, name, kind in steps:
            with jax.named_scope(name) if name else nullcontext():
                values.append(apply(kind, values[one % len(values)], values[other % len(values)]))
        return sum(values).sum()

    spec = jax.ShapeDtypeStruct((3,), "float32")
    inspection = ml.inspect(jax.grad(program) if differentiate else program, spec)
    graph = inspection.graph(stage)
    held = Counter(id for node in graph.nodes.values() for id in node.ids)
    assert set(held.values()) <= {1}
    wanted = {one.id for one in inspection.stage(stage).instructions if "return" not in one.opcode}
    assert {id for id in wanted - set(held) if not id.startswith(("arg", "x"))} == set()
    assert {node.key for node in graph.nodes.values()} == set(graph.nodes)
