"""Large programs: the links of small ones are correct, and inspection stays cheap."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchmarks import large
from benchmarks.corpus import ours
from benchmarks.stages import LARGE_MEMORY_BAR, peak_bytes
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.trace.provenance.attribution import are_all_in_blocks
from tests.jax_programs import programs, spec

SMALL: dict[str, Any] = {
    "flat": large.flat(20),
    "deep": large.deep(3),
    "calling": large.calling(5),
    "nested": large.nested(7, 4),
    "recurrent": large.recurrent(2, 4),
    "updating": large.updating(4),
    "mapped": large.mapped(3),
} | programs()
OURS: dict[str, Any] = {name: make() for name, make in ours.programs(False).items()}


@pytest.mark.parametrize("name", SMALL)
def test_the_outline_matches_the_equations(name):
    fn, args = SMALL[name]
    program = inspect(fn, *args)._pipeline.program.get()

    def count(site):
        return 1 + sum(count(child) for _, body in site.bodies for child in body)

    ids, inside, _, have_frames = program.trace.outline
    assert ids == [site.id for site in program.sites]
    assert inside == {place: count(site) for place, site in enumerate(program.sites) if site.bodies}
    assert have_frames == all(site.equation.source_info.traceback is not None for site in program.sites)


@pytest.mark.parametrize("name", SMALL | OURS)
def test_links_match_the_instructions(name):
    fn, args = (SMALL | OURS)[name]
    inspection = inspect(fn, *args)
    links = [inspection.links("jaxpr", "stablehlo"), inspection.links("stablehlo", "jaxpr")]
    made = [inspection.stage(stage).instructions for stage in ("jaxpr", "stablehlo")]
    for found, source, target in zip(links, made, reversed(made), strict=True):
        groups = [(one.id, set(one.equations)) for one in target]
        assert found == {one.id: {id for id, ids in groups if not ids.isdisjoint(one.equations)} for one in source}


@pytest.mark.parametrize("name", SMALL)
def test_equations_certainly_in_blocks_have_blocks(name):
    fn, args = SMALL[name]
    program = inspect(fn, *args)._pipeline.program.get()
    assert are_all_in_blocks(program.trace)
    assert {one.id for one in program.equations if not one.block} == set()
    assert program.outside == frozenset()


@pytest.mark.parametrize("name", OURS)
def test_equations_around_a_model_may_have_no_block(name):
    fn, args = OURS[name]
    program = inspect(fn, *args)._pipeline.program.get()
    assert not are_all_in_blocks(program.trace)
    assert program.outside == {one.id for one in program.equations if not one.block}


def test_links_of_user_programs_skip_attribution():
    fn, args = SMALL["calling"]
    inspection = inspect(fn, *args)
    before = inspection.links("jaxpr", "stablehlo")
    program = inspection._pipeline.program.get()
    assert not program._attributed.is_made
    assert inspection.equations[0].block == "program"
    assert program._attributed.is_made
    assert inspection.links("jaxpr", "stablehlo") == before


def test_a_step_in_20_loops_is_as_fast_as_in_2():
    params = {"weight": spec(8, 8), "bias": spec(8)}

    def loss(params, x):
        return ((jnp.tanh(x @ params["weight"]) + params["bias"]) ** 2).sum()

    def step(params, x):
        return jax.tree.map(lambda one, slope: one - 0.1 * slope, params, jax.grad(loss)(params, x))

    def level(depth, params, x):
        def body(carry, _):
            return (level(depth - 1, carry[0], x), carry[1] + 1), None

        return lax.scan(body, (params, 0), length=3)[0][0] if depth else step(params, x)

    def roles(depth):
        inspection = inspect(lambda params, x: level(depth, params, x), params, spec(4, 8))
        return [(one.primitive, one.role) for one in inspection.equations if one.primitive not in ("scan", "add")]

    assert roles(20) == roles(2)  # without a cache, nested loops took 2^20 iterations


def test_inspecting_needs_little_more_memory_than_lowering(stress):
    name = f"flat, {stress.size(short=5_000, long=50_000):,} equations"
    ratio = peak_bytes(name, "to_stablehlo") / peak_bytes(name, "lower")
    stress.report(memory=round(ratio, 3))
    assert ratio <= LARGE_MEMORY_BAR
