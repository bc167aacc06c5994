"""Attribution against an oracle: each layer has its own odd width, so shapes identify the layer of a line."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax
from jax_programs import linear_params, mean_square, mlp, spec, train_step

from benchmarks.corpus.own_widths import by_width, own_widths
from benchmarks.corpus.program import adam_step
from mithril_nb.inspection import inspect_function as inspect

BATCH = 3
WIDTHS = (5, 7, 11, 13, 17)
OWNERS = {frozenset(pair): f"linear_{index}" for index, pair in enumerate(pairwise(WIDTHS))}
X, Y = spec(BATCH, WIDTHS[0]), spec(BATCH, WIDTHS[-1])


def with_gradient():
    forward = mlp(WIDTHS)

    def loss(params, x):
        out = forward(params, x)
        with jax.named_scope("role:loss"):
            return (out**2).mean()

    return jax.value_and_grad(loss), (linear_params(WIDTHS), X)


CLIPPED = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
DECLARED: dict[str, tuple[Any, Any]] = {
    "forward": (mlp(WIDTHS), (linear_params(WIDTHS), X)),
    "forward and backward": with_gradient(),
    "train step": train_step(mlp(WIDTHS), linear_params(WIDTHS), [X], Y),
    "clipped train step": train_step(mlp(WIDTHS), linear_params(WIDTHS), [X], Y, optimizer=CLIPPED),
}
"""Programs that declare their blocks, as those of mithril_nb do."""


def linear_0(w, x):
    return jnp.tanh(x @ w)


def linear_1(w, x):
    return jax.nn.gelu(x @ w)


def linear_2(w, x):
    return x @ w


def linear_3(w, x):
    return jnp.sin(x @ w)


LAYERS = (linear_0, linear_1, linear_2, linear_3)


def scoped(layer):
    def call(w, x):
        with jax.named_scope(layer.__name__):
            return jnp.sin(x @ w)

    return call


def scanned(layer):
    def body(w, x):
        return lax.scan(lambda c, _: (c + layer(w, x), None), layer(w, x), None, length=3)[0]

    return body


def branched(layer):
    return lambda w, x: lax.cond(x[0, 0] > 0, layer, lambda w, x: -layer(w, x), w, x)


AROUND = {
    "functions": lambda layer: layer, "scopes": scoped, "jit": jax.jit, "remat": jax.checkpoint,
    "vmap": lambda layer: jax.vmap(layer, (None, 0)), "scan": scanned, "cond": branched,
}  # fmt: skip


def by_users(around):
    """Return a train step whose blocks come from the user's functions or scopes."""
    layers = [around(layer) for layer in LAYERS]

    def network(weights, x):
        for layer, w in zip(layers, weights, strict=True):
            x = layer(w, x)
        return x

    return adam_step(network, [spec(left, right) for left, right in pairwise(WIDTHS)], X, Y, loss=mean_square)


@cache
def inspected(name):
    fn, args = DECLARED[name] if name in DECLARED else by_users(AROUND[name])
    return inspect(fn, *args, name=name)


@pytest.fixture(params=[*DECLARED, *AROUND])
def inspection(request):
    return inspected(request.param)


@pytest.fixture(params=DECLARED)
def declared(request):
    return inspected(request.param)


def shapes_by_name(text) -> dict[str, set[int]]:
    """Return the sizes in the result of each HLO instruction, without the parser under test."""
    return {
        name: {int(size) for size in sizes.split(",") if size}
        for name, sizes in re.findall(r"%([\w.\-]+) = \w+\[([\d,]*)\]", text)
    }


def products(inspection, stage) -> list[tuple[Any, str]]:
    """Return every matrix product with the layer that the widths of its operands and result identify."""
    made = inspection.stage(stage)
    lines, shapes = made.text.splitlines(), shapes_by_name(made.text)
    specs = {one.id: (*one.inputs, *one.outputs) for one in inspection.equations}
    found = []
    for one in made.instructions:
        if one.opcode not in ("dot_general", "stablehlo.dot_general", "dot"):
            continue
        line = lines[one.line - 1]
        if stage == "hlo":
            sizes = set().union(*(shapes.get(name, set()) for name in re.findall(r"%([\w.\-]+)", line)))
        elif stage == "stablehlo":
            sizes = {int(size) for shape in re.findall(r"tensor<([\dx]+)x\w+>", line) for size in shape.split("x")}
        else:
            sizes = {size for each in specs[one.id] for size in each.shape}
        found.append((one, OWNERS[frozenset(sizes & set(WIDTHS))]))
    return found


@pytest.mark.parametrize("stage", ["jaxpr", "stablehlo", "hlo"])
def test_products_belong_to_the_layer_of_their_widths(inspection, stage):
    found, count = products(inspection, stage), len(OWNERS)
    for one, owner in found:
        assert {path.rpartition("/")[2] for path in one.blocks} == {owner}, one
        assert one.origin == "tagged", one
        assert one.role in ("forward", "backward"), one
        assert inspection.name not in DECLARED or one.blocks == {owner: 1.0}, one
    roles = Counter(one.role for one, _ in found)
    backward = 0 if inspection.name == "forward" else 2 * count - 1
    assert roles.total() >= count + backward
    if inspection.name in DECLARED:
        assert (roles["forward"], roles["backward"]) == (count, backward)


@pytest.mark.parametrize("stage", ["stablehlo", "hlo"])
def test_links_of_products_stay_within_a_layer(inspection, stage):
    there = {one.id: owner for one, owner in products(inspection, stage)}
    links = inspection.links("jaxpr", stage)
    assert {id for ids in links.values() for id in ids} >= there.keys()
    for one, owner in products(inspection, "jaxpr"):
        linked = {there[id] for id in links[one.id] if id in there}
        assert linked <= {owner}, one
        assert linked or (stage == "hlo" and inspection.name not in DECLARED), one  # XLA merges equal operations


def owners_of(sizes: set[int]):
    """Return the blocks that may contain a line with these sizes: adjacent layers share a width."""
    widths = sizes & set(WIDTHS)
    if len(widths) == 2:
        return {OWNERS[frozenset(widths)]}
    (width,) = widths
    place = WIDTHS.index(width)
    return {f"linear_{place - 1}", f"act_{place - 1}", f"linear_{place}", "(loss)" if width == WIDTHS[-1] else ""}


def test_hlo_lines_belong_to_blocks_of_their_widths(declared):
    text = declared.stage("hlo").text
    shapes = shapes_by_name(text)
    checked = 0
    for instruction in declared.stage("hlo").instructions:
        sizes = shapes.get(instruction.id, set())
        known = sizes & set(WIDTHS)
        if not known or instruction.opcode in ("fusion", "call", "broadcast", "parameter"):
            continue
        assert set(instruction.blocks) <= owners_of(sizes) | {"(optimizer)"}, text.splitlines()[instruction.line - 1]
        checked += 1
    assert checked >= 10


def test_stablehlo_lines_belong_to_blocks_of_their_widths(declared):
    lines = declared.stage("stablehlo").text.splitlines()
    checked = 0
    for instruction in declared.stage("stablehlo").instructions:
        if instruction.opcode.endswith(("return", "func", "constant", "broadcast_in_dim")):
            continue
        line = lines[instruction.line - 1]
        result = re.findall(r"tensor<([\dx]+)x\w+>", line)
        sizes = {int(size) for size in result[-1].split("x")} if result else set()
        if sizes & set(WIDTHS):
            assert set(instruction.blocks) <= owners_of(sizes), line
            checked += 1
    assert checked >= 10


@pytest.mark.parametrize("name", ["train step", "clipped train step", *AROUND])
def test_updates_belong_to_the_layer_of_the_weight(name):
    updates = [one for one in inspected(name).equations if one.role == "update" and not one.is_call]
    matrices = [one for one in updates if len(one.outputs[0].shape) == 2]
    assert len(matrices) >= len(OWNERS) * 8
    for one in matrices:
        assert one.block.rpartition("/")[2] == OWNERS[frozenset(one.outputs[0].shape)], one


OWN_WIDTHS = own_widths()


@pytest.mark.parametrize("name", OWN_WIDTHS)
def test_lines_belong_to_the_block_of_their_width(name):
    own = OWN_WIDTHS[name]()
    # Compile one of them too: XLA's inliner gives unnamed instructions the name of the function around them.
    compiled = ("hlo",) if name == "blocks of Flax nnx, hand-written train step" else ()
    for stage in ("jaxpr", "stablehlo", *compiled):
        found = by_width(own.stage(stage).instructions)
        assert len(found) > 250
        assert [one for one, is_right in found if not is_right] == []
