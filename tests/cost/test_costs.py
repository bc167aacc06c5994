"""Costs by each way of counting: blocks and roles add up exactly to the total."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import jax
import jax.numpy as jnp
import pytest
from cost.sums import check_sums
from fresh import run_fresh
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax_programs import programs, spec
from raised import message_of

import mithril_nb as ml
from mithril_nb.cost import SOURCES, Cost, CostRow, Figures
from mithril_nb.cost.records import split_number
from mithril_nb.errors import StageUnavailableError, UnknownBlockError, UnknownOptionError
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.records import Role


@pytest.fixture(scope="module")
def step() -> Inspection:
    fn, args = programs()["mlp train step"]
    return inspect(fn, *args)


@pytest.mark.parametrize("source", SOURCES)
def test_blocks_and_roles_add_up_to_the_total(step: Inspection, source: str) -> None:
    cost = step.cost(source=source)
    check_sums(cost)
    assert cost is step.cost(source=source)
    assert cost.once.flops == cost.total.flops  # without a loop
    assert cost.unattributed.flops == 0
    assert cost.by_block["linear_0"].params == 784 * 512 + 512
    assert cost.total.time_s is None
    assert cost.notes == ("time_s: not measured, because nothing ran",)
    assert all(cost.by_role[role].flops for role in ("forward", "backward", "update"))
    assert json.loads(cost.to_json())["total"]["flops"] == cost.total.flops


def test_blocks_inside_of_blocks() -> None:
    def program(x, w):
        with jax.named_scope("net"):
            with jax.named_scope("linear"):
                x = x @ w
            return jnp.tanh(x) + 1

    cost = inspect(program, spec(2, 8), spec(8, 4)).cost()
    assert {path: figures.flops for path, figures in cost.by_block.items()} == {"net/linear": 2 * 2 * 8 * 4, "net": 8}
    assert cost.subtree("net").flops == cost.total.flops == 136
    assert cost.subtree("net/linear").flops == 128


def test_a_program_that_cannot_be_compiled_still_has_analytic_costs() -> None:
    found = inspect(lambda x: x @ x, spec(8, 8), compiler_options={"no_such_option": True})
    assert found.cost().total.flops == 2 * 8**3
    with pytest.raises(StageUnavailableError) as error:
        found.cost("compiled")
    assert str(error.value).startswith("program '<lambda>' has no compiled costs.\n    reason  ")
    assert str(error.value).endswith('Try: inspection.cost(source="analytic")')


@pytest.mark.parametrize(
    ("source", "near"),
    [
        ("guessed", "analytic"),
        ("compile", "compiled"),
        ("Lowered", "lowered"),
        (["lowered"], "analytic"),
        ({}, "analytic"),
    ],
)
def test_an_unknown_source_of_costs_raises(source: Any, near: str, step: Inspection) -> None:
    for call, advice in ((step.cost, f'cost(source="{near}")'), (step.costs, f'costs("{near}")')):
        with pytest.raises(UnknownOptionError) as error:
            call(source)
        assert str(error.value) == (
            f"cannot count the costs of 'step' from source {source!r}.\n"
            "    sources  analytic, lowered, compiled\n"
            f"    Try: inspection.{advice}"
        )
        assert near in repr(eval(error.value.diagnostics[0].advice, {"inspection": step}))


def test_measured_costs_point_to_profile(step: Inspection) -> None:
    with pytest.raises(UnknownOptionError) as error:
        step.cost("measured")
    assert error.value.diagnostics[0].advice == "ml.profile(inspection)"
    assert eval("ml.profile(inspection, runs=1)", {"ml": ml, "inspection": step}).source == "measured"


def nested(x: Any, w: Any) -> Any:
    with jax.named_scope("net"):
        with jax.named_scope("up"):
            x = jnp.tanh(x @ w)
        with jax.named_scope("down"):
            x = x @ w
    with jax.named_scope("head"):
        return x + 1


def test_the_text_is_a_tree_with_exact_sums() -> None:
    cost = inspect(nested, spec(20, 30), spec(30, 30), name="program").cost()
    lines = [line.split() for line in str(cost).splitlines()]
    assert lines[:7] == [
        ["program:", "analytic"],
        ["block", "FLOPs", "transcendentals", "bytes", "share"],
        ["net", "72,000", "600", "21,600", "99.2", "%"],
        ["up", "36,000", "600", "13,200", "49.6", "%"],
        ["down", "36,000", "0", "8,400", "49.6", "%"],
        ["head", "600", "0", "4,804", "0.8", "%"],
        ["(unattributed)", "0", "0", "0", "0", "%"],
    ]
    assert [line[: len(line) - len(line.lstrip())] for line in str(cost).splitlines()[2:6]] == ["", "  ", "  ", ""]


@pytest.mark.parametrize("source", SOURCES)
def test_unknown_blocks_raise_and_the_nearest_is_advised(source: str) -> None:
    cost: Any = inspect(nested, spec(2, 3), spec(3, 3), name="program").cost(source)
    assert cost.by_block_and_role["net/up"]["forward"].transcendentals == 6
    near = {"hed": "head", "dwn": "net/down", "net.up": "net/up", "of another program": "", 3: "", None: ""}
    for path, other in (near | {"nett": "net", "ne": "net", "net/": "net"}).items():
        with pytest.raises(UnknownBlockError) as error:
            cost.subtree(path)
        assert error.value.diagnostics[0].advice == f'cost.subtree("{other}")' + "  # the whole program" * (not other)
        assert cost.subtree(path, cost.nothing) == cost.nothing
    for path, other in near.items():
        for name in ("by_block", "by_block_and_role"):
            by_block = getattr(cost, name)
            with pytest.raises(UnknownBlockError) as error:
                _ = by_block[path]
            advice = f'cost.{name}["{other}"]' if other else f"[*cost.{name}]"
            assert str(error.value) == (
                f"costs of 'program' have no block {path!r}.\n    blocks  net/up, net/down, head\n    Try: {advice}"
            )
            assert (path in by_block, by_block.get(path)) == (False, None)
    with pytest.raises(
        UnknownBlockError, match="have no entry for block 'net' itself, only for blocks inside it"
    ) as one:
        _ = cost.by_block["net"]
    assert one.value.diagnostics[0].advice == 'cost.subtree("net")  # adds them up'


def test_costs_are_a_mapping_from_each_way_of_counting() -> None:
    inspection = inspect(nested, spec(2, 3), spec(3, 3), name="program")
    costs = inspection.costs("analytic", "lowered")
    assert list(costs) == ["analytic", "lowered"] == list(costs.keys())
    assert [cost.source for cost in costs.values()] == ["analytic", "lowered"]
    assert (len(costs), "lowered" in costs, "compiled" in costs, costs.get("compiled")) == (2, True, False, None)
    assert str(costs).splitlines()[0] == "program: analytic, lowered"
    assert message_of(lambda: costs["compiled"]) == (
        "UnknownOptionError: these costs of 'program' have no source 'compiled'.\n    sources  analytic, lowered"
    )
    missing = replace(costs, unavailable={"compiled": "no compiler"})
    assert message_of(lambda: missing["compiled"]) == (
        "StageUnavailableError: program 'program' has no compiled costs.\n    reason  no compiler"
    )


def test_a_block_without_cost_is_not_an_error() -> None:
    def program(x):
        with jax.named_scope("only"):
            y = jnp.zeros(3)  # XLA's program has no separate instruction for it
        with jax.named_scope("head"):
            return x * 2 + y

    cost = replace(inspect(program, spec(3), params=()).cost("compiled"), order=("only", "head", "deep/inside"))
    assert cost.subtree("only") == cost.subtree("deep") == cost.subtree("deep/inside") == Figures()


def test_an_unknown_shared_by_blocks_bounds_their_parent() -> None:
    rows = [
        CostRow("0", "dot", (("net/a", 1.0),), None, 60, 0, 8, 1, "n"),
        CostRow("1", "fusion", (("net/a", 0.5), ("net/b", 0.5)), None, None, None, 8, None, "n"),
        CostRow("2", "dot", (("head", 1.0),), None, 40, 0, 8, 1, "n"),
    ]
    cost = Cost("program", "compiled", tuple(rows), {}, (), None, Figures())
    assert cost.share_of(cost.subtree("net")) == (0.6, "≥")
    assert cost.share_of(cost.subtree("net/a")) == cost.share_of(cost.by_block["net/a"]) == (None, "")
    assert cost.share_of(cost.by_block["head"]) == (0.4, "≤")
    assert cost.share_of(cost.total) == (1.0, "")
    assert "shared" not in cost.to_dict()["by_block"]["net/a"]


def test_costs_are_compared_with_costs_alone(step: Inspection) -> None:
    advice = 'Try: inspection.cost("lowered").compare(inspection.cost("compiled"))'
    assert message_of(lambda: step.cost().compare(cast("Cost", 3))) == (
        "UnknownOptionError: "
        f"costs of 'step' cannot be compared with 3.\n    needs  the Cost of another program or stage\n    {advice}"
    )
    with pytest.raises(UnknownOptionError, match="costs of 'step' cannot be compared with 'flops'"):
        step.cost().difference(cast("Cost", "flops"))


def test_a_time_that_is_nan_is_null_in_json() -> None:
    row = CostRow("%r", "dot", (("a", 1.0),), None, 10**400, 0, 0, 1, "", float("nan"))
    data = json.loads(Cost("step", "measured", (row,), {}, (), None, Figures()).to_json())
    assert (data["total"]["time_s"], data["rows"][0]["time_s"], data["total"]["flops"]) == (None, None, 10**400)


@given(value=st.integers(0, 10**18), weights=st.lists(st.floats(0.001, 1.0), min_size=1, max_size=7))
def test_parts_of_a_whole_sum_to_it(value: int, weights: list[float]) -> None:
    shares = [Fraction(weight) / sum(map(Fraction, weights)) for weight in weights]
    parts = [part or 0 for part in split_number(value, shares)]
    assert sum(parts) == value
    assert all(abs(part - value * share) <= 1 for part, share in zip(parts, shares, strict=True))


def test_seconds_add_up_over_rows_blocks_and_roles() -> None:
    def row(blocks: tuple[tuple[str, float], ...], role: Role | None, time_s: float | None) -> CostRow:
        return CostRow("%r", "dot", blocks, role, 0, 0, 0, 1, "", time_s)

    rows = (
        row((("net/a", 1 / 3), ("net/b", 2 / 3)), "forward", 0.3),
        row((("net/a", 0.5),), "backward", 0.1),  # half of it, and all known costs
        row((("net", 1.0),), "forward", None),
        row((), None, 0.2),
    )
    found = Cost("step", "measured", rows, {"net": 5}, (), None, Figures())
    assert {path: figures.time_s for path, figures in found.by_block.items()} == {
        "net/a": pytest.approx(0.2), "net/b": pytest.approx(0.2), "net": None,
    }  # fmt: skip
    assert (found.unattributed.time_s, found.total.time_s) == (0.2, pytest.approx(0.6))
    assert found.subtree("net").time_s == pytest.approx(0.4)
    times = {role: figures.time_s for role, figures in found.by_role.items()}
    assert times == {"forward": 0.3, "backward": 0.1, "update": None, "": 0.2}


def test_the_figures_of_no_rows_are_cached() -> None:
    cost = inspect(nested, spec(2, 3), spec(3, 3)).cost()
    assert cost.nothing is cost.nothing  # a comparison uses them for each block, and they are computed from all rows


def test_an_identity_costs_nothing() -> None:
    cost = inspect(lambda x: x, spec(2), params=()).cost()
    assert cost.total == cost.unattributed == cost.subtree("") == cost.subtree("net", Figures()) == Figures()
    with pytest.raises(UnknownBlockError, match="have no block 'net'"):
        cost.subtree("net")


def test_parameters_are_unknown_if_not_named() -> None:
    program = inspect(nested, spec(2, 3), spec(3, 3), name="program")
    for source in SOURCES:
        cost = program.cost(source)
        assert {
            one.params for one in (cost.total, cost.unattributed, cost.subtree("net"), *cost.by_block.values())
        } == {None}
        assert cost.notes[0] == (
            "params: none of the arguments x, w is called 'params'; "
            'pass ml.inspect(..., params="x"), or params=() if the program has no parameters'
        )
        assert json.loads(cost.to_json())["unattributed"]["params"] is None
    assert program.cost().to_pandas("block")["params"].isna().all()
    # Nothing looks like parameters here, so tables omit them; charts and formulas of parameters give the reason.
    shown = program.cost()._repr_mimebundle_()
    for text in (
        str(program.cost()),
        str(program.costs("analytic", "lowered")),
        shown["text/html"].partition("<details")[0],
    ):
        assert "transcendentals" in text
        assert "params" not in text
    assert "called 'params'" in program.cost().formula(field="params")
    assert program.cost().treemap("params").text.splitlines()[1].startswith("parameters: unknown. none of the arg")
    changed = program.cost().compare(inspect(nested, spec(2, 3), spec(3, 3), params="w").cost())
    assert (changed.total.after.params, changed.total.delta.params) == (9, None)


def test_tables_name_arguments_that_look_like_parameters() -> None:
    def net(x, table, weights):
        return x @ weights["w"] + weights["b"] + table["one"].sum()

    weights = {"w": spec(3, 4), "b": spec(4)}
    program = inspect(net, spec(2, 3), {"one": spec(5)}, weights)
    note = (
        "the parameters in weights are not counted: none of the arguments x, table, weights is called 'params'; "
        'pass ml.inspect(..., params="weights"), or params=() if the program has no parameters'
    )
    for source in SOURCES:
        assert program.cost(source).notes[0] == note
    assert note in str(program.cost()).splitlines()
    assert program.cost().treemap("params").text.splitlines()[1] == f"parameters: unknown. {note}"
    assert [
        line.split()[-2]
        for line in str(inspect(net, spec(2, 3), {"one": spec(5)}, weights, params="weights").cost()).splitlines()[1:2]
    ] == ["params"]


def test_a_scan_within_a_scan() -> None:
    def inner(c):
        return lax.scan(lambda c, _: (c @ c, None), c, None, length=3)[0]

    found = inspect(lambda x: lax.scan(lambda c, _: (inner(c), None), x, None, length=5)[0], spec(8, 8))
    for source in SOURCES:
        products = [row for row in found.cost(source).rows if "dot" in row.opcode]
        assert [(row.repeats, row.flops, row.once.flops) for row in products] == [(15, 15 * 2 * 8**3, 2 * 8**3)]


def test_the_repr_of_costs_is_one_line():
    square = spec(8, 8)
    program = inspect(jnp.matmul, square, square)
    analytic, lowered = program.cost(), program.cost("lowered")
    assert repr(analytic) == "Cost('matmul', analytic: flops=1024, bytes_accessed=768)"
    assert repr(program.costs("analytic", "lowered")) == "Costs('matmul': analytic, lowered)"
    assert repr(analytic.compare(lowered)) == "CostComparison('matmul: analytic' -> 'matmul: lowered')"


def test_blocks_are_in_program_order_by_each_source():
    fn, args = programs()["mlp train step"]
    program = inspect(fn, *args)
    wanted = list(program.cost().by_block)
    for source in ("lowered", "compiled"):
        found = list(program.cost(source).by_block)
        assert found == [block for block in wanted if block in found]


SPREAD = """
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from mithril_nb.inspection import inspect_function as inspect

mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
rows, whole = (NamedSharding(mesh, spec) for spec in (PartitionSpec("d"), PartitionSpec()))
x = jax.ShapeDtypeStruct((8, 16), "float32", sharding=rows)
w = jax.ShapeDtypeStruct((16, 4), "float32", sharding=whole)
program = inspect(jnp.matmul, x, w, params=())
for source in ("analytic", "lowered", "compiled"):
    cost = program.cost(source)
    print(cost.total.flops, *cost.notes[:-1])
print(str(program.cost("lowered").compare(program.cost("compiled"))).splitlines()[-1])
print("counted for one of 8 devices, which all have the same costs" in str(program.cost("compiled")))
double = jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=PartitionSpec("d"), out_specs=PartitionSpec("d"))
cost = inspect(double, x, params=()).cost()
print(cost.total.flops, *cost.notes[:-1])
print(str(program.cost().difference(program.cost("compiled"))).splitlines()[-1])
mapped = inspect(double, x)
for source in ("analytic", "lowered"):
    cost, compiled = mapped.cost(source), mapped.cost("compiled")
    print(cost.compare(compiled).devices, compiled.compare(cost).devices)
print(mapped.cost().difference(compiled).devices)
"""


SIDES = (("after", "before"), ("before", "after"), ("compiled", "analytic"))


def test_notes_name_figures_for_one_of_several_devices() -> None:
    flops, lowered, devices, compared, is_printed, mapped, difference, *on_one = run_fresh(
        SPREAD, XLA_FLAGS="--xla_force_host_platform_device_count=8"
    ).splitlines()
    unknown = 'rows on sharded arrays: XLA adds collectives when it compiles; cost("compiled") counts them'
    assert flops == f"1024 payload_bytes and wire_bytes of 1 {unknown}"
    assert lowered.startswith("1024 payload_bytes and wire_bytes of ")
    assert lowered.endswith(unknown)
    one_device = "counted for one of 8 devices, which all have the same costs"
    assert devices == f"128 {one_device}"
    assert compared == f"after: {one_device}; before: counted for all devices together"
    assert is_printed == "True"
    assert difference == f"compiled: {one_device}; analytic: counted for all devices together"
    notes = [f"('{first}: {one_device}; {then}: counted for all devices together',)" for first, then in SIDES]
    assert on_one == [f"{notes[0]} {notes[1]}"] * 2 + [notes[2]]
    count, _, told = mapped.partition(" ")
    assert told == "shard_map: equations inside run on each device, and are counted for all devices together"
    assert count == "128"
