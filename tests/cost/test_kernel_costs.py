"""Pallas kernels, primitives that JAX expands in lowering, and custom calls: counted inside, or by an estimate."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental import sparse
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax_programs import spec

from mithril_nb.cost import Cost
from mithril_nb.cost.formulas.rules import counted
from mithril_nb.cost.hlo.instruction_costs import hlo_costs
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages import Equation
from mithril_nb.stages.hlo.syntax import attribute_pairs, read_line
from mithril_nb.stages.records import Instruction, Stage

SIZES = M, N, K = 64, 96, 128
BLOCK = 16, 32, 8


def product(left: Any, right: Any, out: Any) -> None:
    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        out[...] = jnp.zeros_like(out)

    out[...] += left[...] @ right[...]


def matmul(x: Any, y: Any, **options: Any) -> Any:
    (m, n, k), (rows, columns, inner) = SIZES, BLOCK
    return pl.pallas_call(
        product,
        grid=(m // rows, n // columns, k // inner),
        in_specs=[
            pl.BlockSpec((rows, inner), lambda i, j, k: (i, k)),
            pl.BlockSpec((inner, columns), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((rows, columns), lambda i, j, k: (i, j)),
        out_shape=spec(m, n),
        interpret=True,
        **options,
    )(x, y)


def kernel(body: Any, shape: tuple[int, ...] = (64, 128), steps: int = 4, **options: Any) -> Cost:
    def program(x: Any) -> Any:
        block = pl.BlockSpec((shape[0] // steps, *shape[1:]), lambda i: (i, 0))
        return pl.pallas_call(
            body, grid=(steps,), in_specs=[block], out_specs=block, out_shape=spec(*shape), interpret=True, **options
        )(x)

    return inspect(program, spec(*shape)).cost()


STEPS = (M // 16) * (N // 32) * (K // 8)


def test_a_kernel_costs_its_equations_times_the_grid() -> None:
    found = inspect(matmul, spec(M, K), spec(K, N))
    cost = found.cost()
    # The product, the sum with the result so far, and in each step a comparison and its conversion to a number.
    flops = 2 * M * N * K + M * N * K // 8 + 2 * STEPS
    assert (cost.total.flops, cost.macs) == (flops, M * N * K)
    assert {row.repeats for row in cost.rows[1:]} == {STEPS}
    assert cost.unknown == ()
    (node,) = [node for node in found.graph().nodes.values() if node.name == "pallas_call"]
    assert (node.kind, node.note) == ("loop", "grid (4,3,16)")
    lowered = found.cost("lowered")  # a loop over the grid
    assert lowered.total.flops == pytest.approx(flops, rel=0.01)
    # As in a loop, XLA and we count one step of the grid.
    assert cost.once.flops == flops // STEPS
    assert lowered.once.flops == pytest.approx(flops // STEPS, rel=0.02)


def test_the_lines_and_scopes_of_a_kernel_have_its_cost() -> None:
    def named(x: Any, out: Any) -> None:
        with jax.named_scope("double"):
            out[...] = x[...] * 2
        out[...] += 1.0

    cost = kernel(named)
    assert (cost.by_block["double"].flops, cost.total.flops) == (64 * 128, 2 * 64 * 128)
    first = named.__code__.co_firstlineno
    flops = {line: figures.flops for line, figures in cost.by_line.items() if figures.flops}
    assert flops == {f"test_kernel_costs.py:{first + n}": 64 * 128 for n in (2, 3)}
    (call,) = [row for row in cost.rows if row.bytes_accessed]
    assert (call.opcode, call.bytes_accessed) == ("pallas_call", 2 * 4 * 64 * 128)


def test_bytes_count_each_fetch_of_a_block() -> None:
    cost = inspect(matmul, spec(M, K), spec(K, N)).cost()
    left, right, out = 16 * 8 * STEPS, 8 * 32 * STEPS, M * N  # the result block stays while the last axis advances
    assert cost.total.bytes_accessed == 4 * (left + right + out)
    result = matmul(jnp.ones((M, K)), jnp.ones((K, N)))
    assert result.shape == (M, N)
    assert float(result[0, 0]) == K


def test_loops_branches_and_special_functions_count_inside_of_a_kernel() -> None:
    def body(x: Any, out: Any) -> None:
        value = lax.fori_loop(0, 5, lambda _, c: jnp.exp(c) * 2, x[...])
        out[...] = lax.cond(pl.program_id(0) > 1, lambda v: v * v + v, lambda v: v, value)

    total = kernel(body).total
    items = 64 * 128
    assert total.transcendentals == 5 * items
    assert 5 * items + 2 * items <= (total.flops or 0) <= 5 * items + 2 * items + 4 * 20


def unruly(x: Any, out: Any) -> None:
    out[...] = lax.while_loop(lambda c: c[0, 0] < 3, lambda c: c * 2, x[...])


def test_a_kernel_with_an_unknown_loop_names_it_or_costs_its_estimate() -> None:
    cost = kernel(unruly)
    assert {(one.opcode, one.reason) for one in cost.unknown} >= {("mul", "trip count unknown")}
    assert cost.total.bytes_accessed == 2 * 4 * 64 * 128
    estimated = kernel(unruly, cost_estimate=pl.CostEstimate(flops=700, transcendentals=30, bytes_accessed=10))
    (row,) = estimated.rows
    assert (row.flops, row.transcendentals, row.formula) == (700, 30, "700 + 30 transcendentals: its cost_estimate")
    assert estimated.macs is None  # an estimate may contain products


def test_a_known_kernel_does_not_cost_its_estimate() -> None:
    def twice(x: Any, out: Any) -> None:
        out[...] = x[...] * 2

    estimate = pl.CostEstimate(flops=10_000, transcendentals=0, bytes_accessed=1)
    assert kernel(twice, cost_estimate=estimate).total.flops == 8_192


def test_the_grid_may_depend_on_a_symbolic_size() -> None:
    def twice(x: Any) -> Any:
        block = pl.BlockSpec((16, 128), lambda i: (i, 0))
        return pl.pallas_call(
            lambda given, out: out.__setitem__(..., given[...] * 2),
            grid=(x.shape[0] // 16,), in_specs=[block], out_specs=block,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        )(x)  # fmt: skip

    (b,) = jax.export.symbolic_shape("b")
    cost = inspect(twice, spec(16 * b, 128)).cost()
    assert (cost.formula(), cost.formula(field="bytes_accessed")) == ("2048·b", "16384·b")
    assert cost.at(b=4).total == inspect(twice, spec(64, 128)).cost().total


def test_a_kernel_under_vmap_and_grad_of_another_counts_each_run() -> None:
    def twice(x: Any) -> Any:
        return pl.pallas_call(
            lambda given, out: out.__setitem__(..., given[...] * 2), out_shape=spec(8, 128), interpret=True
        )(x)

    assert inspect(jax.vmap(twice), spec(5, 8, 128)).cost().total.flops == 5 * 8 * 128
    scanned = inspect(lambda x: lax.scan(lambda c, _: (twice(c), None), x, None, length=3)[0], spec(8, 128))
    assert scanned.cost().total.flops == 3 * 8 * 128


def test_a_search_counts_the_same_on_every_jax() -> None:
    """JAX 0.12 expands it only in lowering, from `call_hi_primitive`."""
    found = inspect(jnp.searchsorted, spec(64), spec(10)).cost()
    assert found.unknown == ()
    assert 10 * 6 * 2 <= (found.total.flops or 0) <= 10 * 7 * 20


def test_a_custom_call_costs_the_estimate_of_its_author() -> None:
    estimate = '{"bytes_accessed":7,"flops":5,"transcendentals":1}'
    config = f'{{"custom_call_config": {{"body": "TUzv", "cost_estimate": {estimate}}}}}'
    head = '  ROOT %k.1 = f32[64]{0} custom-call(%x), custom_call_target="tpu_custom_call"'
    unknown = None, None, None, "no rule: a library call"
    for text, expected in ((config, (5, 1, 7, "its cost_estimate")), ("{}", unknown)):
        line = read_line(f"{head}, backend_config={text}")
        assert not isinstance(line, str)
        assert "estimate" not in line.text  # the displayed text stays as XLA prints it
        (found,) = costs_of_line(line.attributes)
        assert (found.flops, found.transcendentals, found.bytes_accessed, found.formula) == expected


def test_a_library_call_costs_its_estimate_or_has_a_reason() -> None:
    specs = (TensorSpec((4,)),)
    plain = Equation("0", "tpu_custom_call", "", None, specs, specs)
    known = Equation("0", "tpu_custom_call", "", None, specs, specs, params=(("estimate", (5, 1, 7)),))
    assert (counted(plain).figures["flops"], counted(plain).formula) == (None, "no rule: an opaque custom call")
    assert tuple(counted(known).figures[key] for key in ("flops", "transcendentals")) == (5, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = jax.ffi.ffi_call("anything", spec(4))
    (unknown,) = inspect(lambda x: call(x) + 1, spec(4)).cost().unknown
    assert (unknown.opcode, unknown.reason) == ("ffi_call", "no rule: an opaque custom call")


def costs_of_line(attributes: str) -> Any:
    line = Instruction("k.1", "custom-call", 2, attributes=attribute_pairs(attributes), shapes=(TensorSpec((64,)),))
    return hlo_costs(Stage("hlo", "ENTRY %main (x: f32[64]) -> f32[64] {\n  ROOT %k.1\n}", (line,)), {})[0]


def test_a_primitive_of_another_package_costs_what_it_lowers_to() -> None:
    dense = jnp.eye(16)
    cost = inspect(lambda a, x: a @ x, sparse.BCOO.fromdense(dense), spec(16, 8)).cost()
    assert cost.unknown == ()
    assert cost.macs == 16 * 8  # of the 16 elements that are not 0
    outer = Primitive("outer_of_tests")
    outer.def_abstract_eval(lambda x: x)
    assert inspect(outer.bind, spec(8, 8)).cost().unknown[0].reason == "no rule"
    for body, flops in ((lambda x: jnp.tanh(x @ x) + 1, 2 * 8**3 + 8 * 8), (lambda x: x[:, 99999].undefined, None)):
        named = Primitive("named_of_tests")
        named.def_abstract_eval(lambda x: x)
        mlir.register_lowering(named, mlir.lower_fun(body, multiple_results=False))
        found = inspect(lambda x, named=named: lax.fori_loop(0, 3, lambda _, c: named.bind(c), x), spec(8, 8)).cost()
        if flops is None:
            assert found.unknown[0].reason == "no rule"
        else:
            assert (found.total.flops, found.total.transcendentals) == (3 * flops, 3 * 8 * 8)
            assert found.macs == 3 * 8**3
