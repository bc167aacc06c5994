"""Whole programs: totals against XLA and closed forms, sums exact, loops counted as often as they run."""

from __future__ import annotations

from itertools import pairwise

import jax
import pytest
from cost.sums import check_sums
from jax import lax
from jax_programs import EVERYTHING_PARAMS, everything, linear_params, mlp, on_host, programs, spec, train_step

from mithril_nb.cost import Cost, cost_of, costs_of, costs_so_far
from mithril_nb.figures import FIGURES, LOCAL
from mithril_nb.inspection import inspect_function as inspect

PROGRAMS = programs()
SQUARE = spec(128, 128)


def cost(fn, *args) -> Cost:
    return cost_of(inspect(fn, *args))


def by_role(found: Cost, block: str) -> tuple[int | None, ...]:
    roles = found.to_dict()["by_block"][block]["roles"]
    return tuple(roles[role]["flops"] for role in ("forward", "backward", "update"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_total_equals_xla(name: str) -> None:
    fn, args = PROGRAMS[name]
    found = cost(fn, *args)
    figures = jax.jit(fn).lower(*args).cost_analysis()
    once = found.once.flops  # XLA counts the loop inside `random_bits` once
    assert once == pytest.approx(figures["flops"], rel=1e-4)
    assert found.total.transcendentals == figures.get("transcendentals", 0)
    assert found.unknown == ()
    assert found.attributed_share == 1.0
    check_sums(found)


def test_a_loop_with_dynamic_trip_count_is_unknown() -> None:
    def fn(x):
        return lax.while_loop(lambda c: c.sum() < 3, lambda c: (c @ c) * 2, x) + 1

    found = cost(fn, spec(8, 8))
    unknown = {one.opcode: one for one in found.unknown}
    assert found.total.flops == 64
    assert set(unknown) == {"dot_general", "mul", "reduce_sum", "lt"}
    assert unknown["dot_general"].reason == "trip count unknown"
    assert unknown["dot_general"].each == 2 * 8**3
    assert unknown["dot_general"].share == 1 / 5
    assert [one.flops for one in found.rows if one.opcode == "dot_general"] == [None]
    check_sums(found)


def test_partitioner_annotations_cost_nothing() -> None:
    def draw(key):
        return jax.random.normal(key, (4,))

    old, new = (inspect(draw, key).cost("lowered") for key in (jax.random.PRNGKey(0), jax.random.key(0)))
    assert new.unknown == ()
    assert (new.total.flops, new.total.transcendentals) == (old.total.flops, old.total.transcendentals)


def test_unknown_is_not_zero_with_loops_counted_once() -> None:
    for source in ("analytic", "compiled"):
        found = inspect(on_host, spec(8, 8)).cost(source)
        assert found.once is not None
        assert (found.total.transcendentals, found.once.transcendentals) == (None, None)


def test_operations_without_a_rule_are_listed() -> None:
    found = cost(lambda x: on_host(x) + 1, spec(9))
    (unknown,) = found.unknown
    assert (unknown.opcode, unknown.reason, unknown.count, unknown.each) == (
        "pure_callback",
        "no rule: Python on the host",
        1,
        None,
    )
    assert found.total.flops == 9


def test_the_train_step_of_an_mlp_in_closed_form() -> None:
    """Batch 128: one matrix product forward and two backward in each layer, except the gradient of the input."""
    widths = (784, 512, 256, 10)
    step, args = train_step(mlp(widths), linear_params(widths), [spec(128, 784)], spec(128, 10))
    found = cost(step, *args)
    products = sum(one.flops or 0 for one in found.rows if one.opcode == "dot_general")
    assert products == 308_150_272 == 2 * 128 * (2 * 784 * 512 + 3 * 512 * 256 + 3 * 256 * 10)
    rows = found.by_block
    assert rows["linear_0"].params == 784 * 512 + 512
    assert by_role(found, "linear_0")[0] == 2 * 128 * 784 * 512 + 128 * 512
    assert by_role(found, "linear_1")[1] == 2 * (2 * 128 * 512 * 256) + 127 * 256
    assert found.total.params == sum(a * b + b for a, b in pairwise(widths))
    assert found.subtree("linear_1") == rows["linear_1"]


def test_remat_is_paid_twice_and_nested_blocks_add_up() -> None:
    step, args = train_step(everything, EVERYTHING_PARAMS, [spec(3, 7)], spec(3, 9))
    found = cost(step, *args)
    check_sums(found)
    remat = [one for one in found.rows if dict(one.blocks) == {"remat": 1.0} and one.opcode == "dot_general"]
    assert [one.flops for one in remat if one.role == "forward"] == [2 * 3 * 7 * 9]
    assert (
        sum(one.flops or 0 for one in remat if one.role == "backward") == 2 * 2 * 3 * 7 * 9
    )  # again, and the weight's
    assert found.subtree("scan").flops == found.by_block["scan"].flops + found.by_block["scan/cell"].flops
    assert by_role(found, "scan/cell")[0] >= 3 * 2 * 3 * 9 * 9


def test_costs_so_far_lower_nothing() -> None:
    inspection = inspect(lambda x: (x @ x).sum(), SQUARE)
    assert list(costs_so_far(inspection).by_source) == ["analytic"]
    assert not inspection.is_lowered
    costs = costs_of(inspection)
    assert list(costs.by_source) == ["analytic", "lowered", "compiled"]
    total, lowered = costs["analytic"].total, costs["lowered"].xla
    assert (lowered.flops, lowered.transcendentals) == (total.flops, total.transcendentals)
    assert (costs.memory.argument, costs.memory.output) == (128 * 128 * 4, 4)
    assert costs_so_far(inspection) == costs


def test_side_by_side_costs_of_a_program_that_does_not_compile() -> None:
    costs = costs_of(inspect(lambda x: x @ x, spec(8, 8), name="square", compiler_options={"no_such_option": True}))
    assert list(costs.by_source) == ["analytic", "lowered"]
    assert costs.memory is None
    assert "no_such_option" in costs.unavailable["compiled"]
    assert f"no compiled costs: {costs.unavailable['compiled']}" in str(costs).splitlines()


def test_a_platform_without_cost_analysis_has_no_figures() -> None:
    inspection = inspect(lambda a, b: lax.linalg.triangular_solve(a, b), spec(9, 9), spec(9, 9))
    assert cost_of(inspection, "lowered").xla.flops is None  # XLA returns -1
    assert cost_of(inspection).total.flops == 9**3


def test_costs_as_data() -> None:
    widths = (5, 7, 3)
    data = cost(mlp(widths), linear_params(widths), spec(2, 5)).to_dict()
    counts = [FIGURES[key].unknown for key in LOCAL if key != "transcendentals"]
    zeros = {**dict.fromkeys((*LOCAL, *counts), 0), "time_s": None}
    flops = 2 * 2 * (35 + 21) + 2 * 7 + 2 * 3 + 2 * 7
    assert data["total"] == {**zeros, "flops": flops, "bytes_accessed": 796, "params": 66}
    block = data["by_block"]["linear_0"]
    figures = {**zeros, "flops": 154, "bytes_accessed": 432, "params": 42}
    assert {key: block[key] for key in figures} == figures
    assert block["roles"]["forward"] == {**figures, "params": 0}
    assert (block["roles"]["backward"]["flops"], block["share"], block["share_bound"]) == (0, 154 / 258, "")
    assert (data["unattributed"]["share"], data["unattributed"]["flops"]) == (0.0, 0)
    assert next(iter(data["by_block"])) == "linear_0"


def test_an_empty_program() -> None:
    found = cost(lambda x: x, spec(3))
    assert found.total.flops == 0
    assert (found.rows, found.by_block) == ((), {})
    assert found.attributed_share == 1.0


def test_the_gradient_of_gelu_is_counted_in_full_on_every_jax():
    # JAX 0.12 has a primitive for its polynomial, which 0.10 expands.
    x = spec(32, 128)

    def backward(x, g):
        return jax.vjp(lambda x: jax.nn.gelu(x, approximate=False), x)[1](g)

    costs = costs_of(inspect(backward, x, x), ("analytic", "lowered"))
    assert costs["analytic"].unknown == ()
    assert costs["analytic"].total.flops == costs["lowered"].xla.flops


def solver(where: tuple[str, ...]):
    """A program whose blocks `known`, `some` and `none` have known, partly known and unknown costs."""

    def run(x):
        for block in ("known", "some", "none"):
            with jax.named_scope(f"block:{block}"):
                if block != "none":
                    x = x @ x
                if block in where:
                    x = on_host(x)
        return x

    return cost(run, spec(8, 8))


def test_a_block_of_unknown_cost_does_not_cost_nothing() -> None:
    found = solver(("some", "none"))
    product = 2 * 8**3
    rows = found.by_block
    assert (rows["known"].flops, rows["some"].flops, rows["none"].flops) == (product, product, None)
    assert (rows["none"].transcendentals, rows["none"].unknown) == (None, 1)
    assert by_role(found, "none") == (None, 0, 0)
    assert rows["none"].bytes_accessed == 2 * 8 * 8 * 4  # known without a rule
    assert (found.total.flops, found.total.unknown) == (2 * product, 2)
    shares = {path: (row["share"], row["share_bound"]) for path, row in found.to_dict()["by_block"].items()}
    # Costs are unknown in `some` and elsewhere, so its share has no bound.
    assert shares == {"known": (0.5, "≤"), "some": (None, ""), "none": (None, "")}
    lines = {line.split()[0]: line.split()[1:4] for line in str(found).splitlines() if line}
    assert lines["known"] == ["1,024", "0", "768"]
    assert lines["some"][:3] == ["≥", "1,024", "unknown"]
    assert lines["none"] == ["unknown", "unknown", "512"]
    assert lines["total"] == ["≥", "2,048", "unknown"]


def test_a_share_with_all_unknown_costs_is_a_lower_bound() -> None:
    found = solver(("some",))
    assert found.share_of(found.by_block["some"]) == (0.5, "≥")
    assert found.share_of(found.by_block["known"]) == (0.5, "≤")
    assert found.share_of(found.subtree("")) == (1.0, "")
    assert (found.unattributed_share, found.attributed_share) == (0.0, 1.0)


def test_a_program_of_unknown_cost_has_no_total() -> None:
    found = cost(on_host, spec(9, 9))
    assert found.total.flops is None
    assert found.attributed_share is None
