"""Corpus of programs: every equation has a block, every product has a role, and links stay within a layer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import spec

from benchmarks.corpus import corpus
from benchmarks.corpus.program import adam_step
from mithril_nb.inspection import Inspection, inspect
from mithril_nb.stages.hlo.text import fingerprint
from mithril_nb.stages.trace.traced import Program
from mithril_nb.stages.trace.tracing import trace

CORPUS = {name: make for name, make in corpus().items() if not name.startswith("sharded")}
PRODUCTS = ("dot_general", "conv_general_dilated")


@pytest.mark.parametrize("name", CORPUS)
def test_equations_have_blocks_and_products_have_roles(name: str) -> None:
    check(name)


def check(name: str) -> None:
    fn, args = corpus()[name]()
    program = Program(trace(fn, args), "params")
    assert [one.id for one in program.equations if not one.block or not one.origin] == []
    assert [one.id for one in program.equations if not one.is_call and one.role is None] == []
    roles = {one.role for one in program.equations if one.primitive in PRODUCTS}
    if name.endswith("forward"):
        assert roles <= {"forward"}
    elif name.endswith("train step"):
        assert roles == {"forward", "backward"}
        assert "update" in {one.role for one in program.equations}


def test_a_sharded_step_on_8_devices() -> None:
    code = "import test_corpus; test_corpus.check_sharded()"
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "NPROC": "8",
        "PYTHONPATH": os.pathsep.join(
            (os.getcwd(), os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__)))
        ),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def check_sharded() -> None:
    """Run the checks of the test above in a process with 8 devices."""
    name = "sharded, train step"
    check(name)
    fn, args = corpus()[name]()
    inspection = inspect(fn, *args)
    assert fingerprint(inspection.optimized.as_text() or "") == fingerprint(inspection.compiled.as_text() or "")
    partitioned = inspection.who_changed("hlo", "all-reduce").appeared
    assert partitioned is not None
    assert partitioned.name == "spmd-partitioning"
    apart = [jax.device_put(jnp.ones(()), device) for device in jax.devices()[1:3]]
    assert "incompatible devices" in str(inspect(jnp.add, *apart).stage("stablehlo").unavailable)
    alone = inspect(jnp.sin, apart[0])
    assert alone.compiled(apart[0]).devices() == {jax.devices()[1]}
    for stage in ("stablehlo", "hlo"):
        made = inspection.stage(stage)
        assert made.unavailable is None, made.unavailable
        products = [one for one in made.instructions if one.opcode in ("stablehlo.dot_general", "dot")]
        assert products
        for one in products:
            assert set(one.blocks) == {"compute_loss/mlp/dense"}
            assert one.role in ("forward", "backward")


# An oracle for other programs: each layer has its own prime width, so the shapes of a line identify its layer.

BATCH = 4
WIDTHS = (5, 7, 11, 13)
X, Y = spec(BATCH, WIDTHS[0]), spec(BATCH, WIDTHS[-1])
WEIGHTS = [spec(left, right) for left, right in pairwise(WIDTHS)]


def square(out: Any, target: Any) -> Any:
    return ((out - target) ** 2).mean()


def first(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def second(w: Any, x: Any) -> Any:
    return jax.nn.gelu(x @ w)


def third(w: Any, x: Any) -> Any:
    return x @ w


LAYERS = (first, second, third)


def by_functions(weights: Any, x: Any) -> Any:
    for layer, w in zip(LAYERS, weights, strict=True):
        x = layer(w, x)
    return x


def by_scopes(weights: Any, x: Any) -> Any:
    for layer, w in zip(LAYERS, weights, strict=True):
        with jax.named_scope(layer.__name__):
            x = jnp.sin(x @ w)
    return x


def by_jit(weights: Any, x: Any) -> Any:
    for layer, w in zip(LAYERS, weights, strict=True):
        x = jax.jit(layer)(w, x)
    return x


def by_remat(weights: Any, x: Any) -> Any:
    for layer, w in zip(LAYERS, weights, strict=True):
        x = jax.checkpoint(layer)(w, x)
    return x


def by_vmap(weights: Any, x: Any) -> Any:
    return jax.vmap(by_functions, (None, 0))(weights, x)


def by_scan(weights: Any, x: Any) -> Any:
    def body(w: Any, x: Any, layer: Any) -> Any:
        return lax.scan(lambda c, _: (c + layer(w, x), None), layer(w, x), None, length=3)[0]

    for layer, w in zip(LAYERS, weights, strict=True):
        x = body(w, x, layer)
    return x


def by_cond(weights: Any, x: Any) -> Any:
    for layer, w in zip(LAYERS, weights, strict=True):
        x = lax.cond(x[0, 0] > 0, layer, lambda w, x, layer=layer: -layer(w, x), w, x)
    return x


MADE = {fn.__name__: fn for fn in (by_functions, by_scopes, by_jit, by_remat, by_vmap, by_scan, by_cond)}
NAMES = {frozenset(pair): layer.__name__ for pair, layer in zip(pairwise(WIDTHS), LAYERS, strict=True)}


@pytest.fixture(params=MADE, scope="module")
def step(request: pytest.FixtureRequest) -> Inspection:
    fn, args = adam_step(MADE[request.param], WEIGHTS, X, Y, loss=square)
    return inspect(fn, *args, name=request.param)


def widths_in(shape: str) -> frozenset[int]:
    return frozenset(int(size) for size in re.findall(r"\d+", shape)) & frozenset(WIDTHS)


def products(inspection: Inspection, stage: str) -> dict[str, tuple[Any, str]]:
    """Return every matrix product with the layer that the widths of its operands and result identify."""
    made = inspection.stage(stage)
    lines = made.text.splitlines()
    specs = {one.id: [shape for each in (one.inputs, one.outputs) for shape in each] for one in inspection.equations}
    results = dict(re.findall(r"%([\w.\-]+) = \w+\[([\d,]*)\]", made.text))
    found = {}
    for one in made.instructions:
        if one.opcode not in ("dot_general", "stablehlo.dot_general", "dot"):
            continue
        line = lines[one.line - 1]
        if stage == "jaxpr":
            sizes = frozenset(size for each in specs[one.id] for size in each.shape) & frozenset(WIDTHS)
        elif stage == "stablehlo":
            sizes = frozenset().union(*(widths_in(shape) for shape in re.findall(r"tensor<([\dx]+)x\w+>", line)))
        else:
            names = re.findall(r"%([\w.\-]+)", line)
            sizes = frozenset().union(*(widths_in(results[name]) for name in names if name in results))
        found[one.id] = one, NAMES[sizes]
    return found


@pytest.mark.parametrize("stage", ["jaxpr", "stablehlo", "hlo"])
def test_products_belong_to_the_layer_of_their_widths(step: Inspection, stage: str) -> None:
    found = products(step, stage)
    assert len(found) >= 3 + 3 + 2
    for one, layer in found.values():
        assert {path.rpartition("/")[2] for path in one.blocks} == {layer}, (one, layer)
        assert one.origin == "tagged"
        assert one.role in ("forward", "backward")


@pytest.mark.parametrize("stage", ["stablehlo", "hlo"])
def test_links_of_products_stay_within_a_layer(step: Inspection, stage: str) -> None:
    here, there = products(step, "jaxpr"), products(step, stage)
    links = step.links("jaxpr", stage)
    assert {id for ids in links.values() for id in ids} >= there.keys()
    for id, (_, layer) in here.items():
        linked = {there[other][1] for other in links[id] if other in there}
        assert linked <= {layer}
        assert linked or stage == "hlo"  # XLA merges equal operations


def test_updates_belong_to_the_layer_of_the_weight(step: Inspection) -> None:
    found = [one for one in step.equations if one.role == "update" and not one.is_call]
    updates = [one for one in found if len(one.outputs[0].shape) == 2]
    assert len(updates) >= 3 * 8
    for one in updates:
        assert one.block.rpartition("/")[2] == NAMES[frozenset(one.outputs[0].shape)], one
