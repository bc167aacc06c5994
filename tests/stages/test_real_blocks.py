"""Blocks in programs are blocks of their models: none comes from internal functions of mithril_nb or JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax_programs import spec

import mithril_nb as ml
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.models import CNN, GPT, GRU, LSTM, MLP, RNN, Dropout, Linear, ResNet, Sequential
from mithril_nb.stages.records import LOSS, OPTIMIZER
from tests.blocks.case import Case, all_cases

PSEUDO = {LOSS, OPTIMIZER}
"""Blocks outside the model; `mithril_nb.stages.records` documents them."""
ALWAYS = {"GRU", "GRUCell", "LSTM", "RNN", "Bidirectional", "Scan", "Repeat", "Cond", "GPT", "Conv2d", "Dropout"}
NETWORKS: dict[str, tuple[Any, list[int]]] = {
    "GRU": (GRU(4), [2, 5, 3]),
    "two GRUs": (Sequential(GRU(4), GRU(4)), [2, 5, 3]),
    "LSTM": (LSTM(4), [2, 5, 3]),
    "RNN": (RNN(4), [2, 5, 3]),
    "MLP with dropout": (Sequential(MLP(8, [8], 4), Dropout(0.5), Linear(3)), [2, 8]),
    "GPT": (GPT(11, 6, layers=2, heads=2, width=8), [2, 6]),
    "CNN": (CNN((4, 4), 3), [2, 1, 8, 8]),
    "ResNet": (ResNet((1, 1), 3, width=4, small=True), [2, 3, 16, 16]),
}


def example(case: Case):
    found: list[Any] = []

    @settings(max_examples=1, database=None, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.composite(case.draw)())
    def draw(drawn):
        found.append(drawn)

    draw()
    return found[0]


def check(inspection, paths):
    """Assert that all blocks in the equations and trees exist; return the number of equations."""
    for one in inspection.equations:
        assert one.block in paths | PSEUDO or (one.block == "" and not one.is_used), one
    for stage in ("graph", "jaxpr"):
        blocks = {node.block for node in inspection.graph(stage).nodes.values() if node.kind == "block"}
        assert blocks <= paths | PSEUDO | {""}, (stage, blocks - paths)
    return len(inspection.equations)


def test_blocks_of_the_library_are_real(stress):
    cases = all_cases()
    step = max(1, len(cases) // stress.size(short=30, long=len(cases)))
    chosen = [case for at, case in enumerate(cases) if at % step == 0 or case.name in ALWAYS]
    models = equations = 0
    for case in chosen:
        model, inputs = example(case)
        pm = ml.compile(model, ml.JaxBackend(), shapes={name: list(array.shape) for name, array in inputs.items()})
        paths = {path for path, _ in pm.graph.walk()}
        for program in ("forward", "forward+backward"):
            inspection = pm.inspect(program)
            if inspection.stage("jaxpr").unavailable is None:  # a block that returns no array has no gradient
                equations += check(inspection, paths)
        models += 1
    assert models > 20
    stress.report(models=models, equations=equations)


@pytest.mark.parametrize("program", ["forward", "forward+backward", "train step"])
@pytest.mark.parametrize("name", NETWORKS)
def test_blocks_of_networks_are_real(name, program):
    model, shape = NETWORKS[name]
    paths = {path for path, _ in model.graph.walk()}
    loss = {"loss": "mean_squared_error", "optimizer": "adam"} if program == "train step" else {}
    check(ml.inspect(model, shapes={model.inputs[0].name: shape}, program=program, **loss), paths)


def test_loop_invariants_of_a_scan_have_its_scope():
    def cell(h, x, params):
        with jax.named_scope("inner"):
            h = jnp.tanh(x @ params["w"] + h + jnp.sin(params["b"]))
        return h, h

    def encode(params, xs):
        with jax.named_scope("outer"):
            return lax.scan(lambda h, x: cell(h, x, params), jnp.zeros((2, 4)), xs)[1]

    def loss(params, xs):
        with jax.named_scope("head"):
            return (encode(params, xs) ** 2).sum()

    found = inspect(jax.grad(loss), {"w": spec(3, 4), "b": spec(4)}, spec(5, 2, 3)).equations
    (sine,) = [one for one in found if one.primitive == "sin"]
    assert (sine.id.count("."), sine.role) == (0, "forward"), "JAX computes it before the scan"
    assert sine.block == "head/outer/inner"
    assert {one.block for one in found} == {"head", "head/outer", "head/outer/inner"}
