"""Links of the bodies of `shard_map`, in processes with 8 forced CPU devices."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from fresh import run_fresh
from process import EIGHT_DEVICES

START = """
import sys
sys.path[:0] = ["tests", "tests/stages"]
import jax
jax.config.update("jax_use_shardy_partitioner", {shardy})
import test_shard_map
test_shard_map.measure()
"""
SAME = {"tanh": "tanh", "dot_general": "dot_general", "psum_invariant": "all_reduce", "all_gather": "all_gather"}
SAME |= {"ppermute": "collective_permute", "reduce_sum": "reduce", "exp": "exponential", "sin": "sine", "cos": "cosine"}
"""Primitives that JAX lowers to one op each: an oracle independent of links."""
NOTHING = frozenset({"pvary", "pcast", "copy", "copy_p", "stop_gradient", "convert_element_type", "reshape", "squeeze"})
"""Primitives that JAX may lower to nothing."""


def programs():
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import AxisType
    from jax.sharding import PartitionSpec as P

    line = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
    grid = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    w, x = jnp.ones((5, 5)), jnp.ones((16, 5))

    def on(body, mesh=line, axes="d", out=()):
        return jax.shard_map(body, mesh=mesh, in_specs=(P(), P(axes)), out_specs=P(*out))

    def layer(w, x):
        y = jnp.tanh(x @ w)
        return jax.nn.relu(y) + jnp.where(y > 0, y, 1.0)

    def summed(w, x):
        return lax.psum(layer(w, x).sum(0), "d")

    def looped(w, x):
        return lax.psum(lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=3)[0].sum(0), "d")

    def chosen(w, x):
        y = lax.cond(x[0, 0] > 0, lambda x: jnp.sin(x @ w), lambda x: jnp.cos(x @ w), x)
        return lax.psum(y.sum(0), "d")

    def passed_on(w, x):
        return jnp.exp(lax.ppermute(x @ w, "d", [(i, (i + 1) % 8) for i in range(8)]))

    def gathered(w, x):
        return lax.all_gather(jnp.tanh(x @ w), "b", axis=0, tiled=True)

    def loss(f):
        return jax.grad(lambda w, x: (f(w, x) ** 2).sum())

    rows = on(layer, out="d")
    return {
        "a sum over devices": (lambda w, x: on(summed)(w, x) * 2, w, x),
        "its gradient": (loss(on(summed)), w, x),
        "a loop inside": (on(looped), w, x),
        "the gradient of a loop inside": (loss(on(looped)), w, x),
        "branches inside": (on(chosen), w, x),
        "inside a loop": (lambda w, x: lax.scan(lambda c, _: (rows(w, c), None), x, None, length=3)[0], w, x),
        "inside a jit, twice": (lambda w, x: jax.jit(rows)(w, jax.jit(rows)(w, x)), w, x),
        "recomputed": (loss(on(lambda w, x: lax.psum(jax.checkpoint(layer)(w, x).sum(0), "d"))), w, x),
        "under vmap": (lambda w, x: jax.vmap(rows, (None, 0))(w, jnp.stack([x, x])), w, x),
        "a ring": (on(passed_on, out="d"), w, x),
        "a grid of devices": (on(gathered, grid, "a", (("a", "b"),)), w, x),
        "one in another": (
            jax.shard_map(
                lambda w, x: jax.shard_map(
                    lambda w, x: jnp.tanh(x @ w), in_specs=(P(), P("b")), out_specs=P("b"), axis_names={"b"}
                )(w, x),
                mesh=grid, in_specs=(P(), P("a")), out_specs=P("a"), axis_names={"a"},
            ),
            w,
            x,
        ),
    }  # fmt: skip


def measure():
    """Print for each program the links of the equations in the bodies; check their instruction histories."""
    from jax_programs import by_id, check_links
    from test_instruction_history import check

    from mithril_nb.inspection import inspect_function as inspect

    fates: Counter[str] = Counter()
    total = {"equations": 0, "linked": 0, "ops": 0, "inside": 0, "onward": 0, "instructions": 0, "back": 0}
    known = programs()
    if not __import__("jax").config.jax_use_shardy_partitioner:
        del known["one in another"]  # JAX itself lowers partly manual programs for Shardy only
    for name, (fn, *args) in known.items():
        inspection = inspect(fn, *args)
        for stage in ("stablehlo", "hlo"):
            assert inspection.stage(stage).unavailable is None, inspection.stage(stage).unavailable
        equations = {one.id: one for one in inspection.equations}
        inside = {id for id, one in equations.items() if "shard_map" in one.transforms and one.is_used}
        ops = by_id(inspection, "stablehlo")
        instructions = by_id(inspection, "hlo")
        down, deeper = check_links(inspection, "jaxpr", "stablehlo"), check_links(inspection, "stablehlo", "hlo")
        back = inspection.links("hlo", "stablehlo")
        for id in inside:
            one = equations[id]
            if one.is_call or one.primitive in NOTHING or None not in one.constants:
                continue  # JAX may fold constants into the code outside
            total["equations"] += 1
            total["linked"] += bool(down[id])
            assert down[id], (name, one)
            if one.primitive in SAME:
                assert f"stablehlo.{SAME[one.primitive]}" in {ops[op].opcode for op in down[id]}, (name, one)
        for op, one in ops.items():
            kinds = {primitive for primitive, opcode in SAME.items() if one.opcode == f"stablehlo.{opcode}"}
            if kinds:
                total["ops"] += 1
                total["inside"] += one.origin == "tagged" and inside.issuperset(one.equations)
                found = {equations[id].primitive for id in one.equations}
                assert found & kinds, (name, op, one.opcode, found)
                total["onward"] += bool(deeper[op])
        products = [one for one in instructions.values() if one.opcode in ("dot", "all-reduce", "collective-permute")]
        for one in products:
            total["instructions"] += 1
            total["back"] += bool(back[one.id]) and inside.issuperset(one.equations)
        assert products, name
        fates += check(inspection)
    # Six are constants multiplied by a gradient: they and their users lose their names before HLO.
    assert fates["unknown"] <= 0.03 * sum(fates.values()), fates
    print(*(f"{what} {count}" for what, count in total.items()), sep="\n")


@pytest.mark.parametrize("shardy", [True, False], ids=["Shardy", "GSPMD"])
def test_bodies_are_linked_in_both_directions(shardy, stress):
    flags = EIGHT_DEVICES | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.getcwd()}
    out = run_fresh(START.format(shardy=shardy), **flags)
    found = {name: int(count) for name, count in (line.split() for line in out.splitlines())}
    stress.report(**found)
    assert found["equations"] > 100
    assert found["linked"] == found["equations"]
    assert found["inside"] == found["ops"] > 40
    assert found["onward"] > 0.9 * found["ops"]  # XLA merges what is recomputed with the original
    assert found["back"] == found["instructions"] > 25
