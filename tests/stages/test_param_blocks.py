"""Blocks of parameters whose names match no block: the block that computes with the parameter."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import spec

from mithril_nb.inspection import inspect_function as inspect

SCOPE = jax.named_scope
PARAMS = {"w": spec(8, 16), "b": spec(16), "v": spec(16, 4), "tied": spec(4)}


def network(params, x):
    half = jax.tree.map(
        lambda one: one.astype("bfloat16").astype("float32"), params
    )  # moved at the top, outside all blocks
    with SCOPE("net"):
        with SCOPE("hidden"):
            x = jnp.tanh(x @ half["w"] + half["b"][None])
        with SCOPE("out"):
            x = x @ half["v"] + half["tied"]
    with SCOPE("head"):
        return (x * half["tied"]).sum()


def step(params, x):
    return jax.tree.map(lambda old, slope: old - 0.1 * slope, params, jax.grad(network)(params, x))


def owners(fn, params, *args) -> dict[str, str]:
    found = inspect(fn, params, *args).inputs
    return {one.name.removeprefix("params['").removesuffix("']"): one.block for one in found if one.is_param}


@pytest.mark.parametrize("fn", [network, jax.jit(network), jax.value_and_grad(network), step, jax.checkpoint(network)])
def test_parameters_belong_to_the_block_that_uses_them(fn):
    inspection = inspect(fn, PARAMS, spec(2, 8))
    found = {one.name: one for one in inspection.inputs}
    blocks = {"w": "net/hidden", "b": "net/hidden", "v": "net/out"}
    assert {name: found[f"params['{name}']"].block for name in blocks} == blocks
    assert (found["params['tied']"].block, found["params['tied']"].used_by) == ("", ("head", "net/out"))
    assert not found["x"].block
    cost = inspection.cost()
    assert {path: figures.params for path, figures in cost.by_block.items() if figures.params} == {
        "net/hidden": 8 * 16 + 16, "net/out": 16 * 4,
    }  # fmt: skip
    assert (cost.unattributed.params, cost.total.params) == (4, 8 * 16 + 16 + 16 * 4 + 4)
    assert "unattributed params: params['tied'], because 2 blocks share it: head and net/out" in cost.notes


def test_blocks_within_one_block_share_a_parameter():
    def fn(params, x):
        with SCOPE("net"):
            for name in ("first", "second"):
                with SCOPE(name):
                    x = x @ params["w"]
        return x

    assert owners(fn, {"w": spec(4, 4)}, spec(2, 4)) == {"w": "net"}


def test_parameters_of_stacked_layers_belong_to_the_layer():
    def scanned(params, x):
        def layer(x, own):
            with SCOPE("layer"):
                return jnp.tanh(x @ own["w"]) + own["b"], None

        return lax.scan(layer, x, params)[0]

    stacked = {"w": spec(5, 4, 4), "b": spec(5, 4)}
    assert owners(scanned, stacked, spec(2, 4)) == {"w": "layer", "b": "layer"}
    assert owners(jax.grad(lambda params, x: scanned(params, x).sum()), stacked, spec(2, 4))["w"] == "layer"


def test_parameters_pass_through_loops_and_branches():
    def fn(params, x):
        def body(place, x):
            with SCOPE("loop"):
                return x @ params["w"]

        def often(x):
            with SCOPE("often"):
                return x * params["v"]

        x = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, body(*c)), (0, x))[1]
        return lax.cond(x.sum() > 0, often, lambda x: x, x)

    assert owners(fn, {"v": spec(4), "w": spec(4, 4)}, spec(2, 4)) == {"v": "often", "w": "loop"}


def test_an_unused_parameter_has_no_block():
    found = inspect(lambda params, x: x * params["w"], {"unused": spec(3), "w": spec(4)}, spec(4)).inputs
    assert [(one.block, one.used_by) for one in found] == [("", ()), ("<lambda>", ()), ("", ())]


def test_names_take_precedence():
    def fn(params, x):
        with SCOPE("first"):
            x = x @ params["second"]["w"]
        with SCOPE("second"):
            return x + 1

    assert owners(fn, {"second": {"w": spec(4, 4)}}, spec(2, 4)) == {"second']['w": "second"}
