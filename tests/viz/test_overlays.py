"""Overlays: values on the nodes of a graph add up, are readable in both themes, and are never 0 if unknown."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from cost_pictures import HOSTILE, check, costs
from hypothesis import given, settings
from hypothesis import strategies as st

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError
from mithril_nb.models import MLP, Linear, Model, Relu, Sigmoid
from mithril_nb.viz.costs.fields import FIELDS
from mithril_nb.viz.costs.node_values import cost_values, user_values
from mithril_nb.viz.costs.overlays import NAMES, overlay_of, page_overlays
from mithril_nb.viz.diagrams.nested import Box
from mithril_nb.viz.diagrams.overlays import TINT, UNKNOWN, Overlay
from mithril_nb.viz.diagrams.stages import nested_stage
from mithril_nb.viz.palette import DARK, LIGHT, contrast, mix_colours
from mithril_nb.viz.units import titled

BLOCKS = {"norm": 20, "mlp_0/linear_0": 430, "mlp_0/linear_1": 260, "head": 280, "skip": None, "(loss)": 10}


@pytest.fixture(scope="module")
def step():
    model = Model() + Linear(16) + Relu() + MLP(activations=[Relu(), Sigmoid()], dimensions=[8, 4])
    return model, ml.inspect(model, shapes={"input": [8, 32]}, program="train step")


def test_golden(golden, nested):
    golden("overlay.svg", overlay_of(costs(BLOCKS), nested).svg)
    golden("overlay.txt", overlay_of(costs(BLOCKS), nested).text)
    check(overlay_of(costs(BLOCKS), nested, expanded={"mlp_0"}, own=True).svg)


def test_groups_are_open_as_asked_or_as_in_the_first_view(step):
    model, inspection = step
    cost = inspection.cost()
    for drawn in (
        lambda **options: cost.overlay(model, **options),
        lambda **options: inspection.overlay(graph=model, **options),
    ):
        assert "layer_1" in drawn().text
        assert "layer_1" not in drawn(expanded=()).text


def test_the_most_expensive_group_opens_first():
    model = Model()
    for widths in ([8] * 5, [8] * 5, [256] * 5):  # only one of them fits
        model += MLP(8, widths, 8)
    inspection = ml.inspect(model, shapes={"input": [8, 8]})
    for drawn in (inspection.cost().overlay(model), inspection.overlay(graph=model)):
        assert [group for group in ("mlp_0", "mlp_1", "mlp_2") if f"{group}/linear_0" in drawn.svg] == ["mlp_2"]


def test_text_is_readable_on_every_tint():
    for theme in (LIGHT, DARK):
        for colour in (theme.cost, *theme.hues):
            ground = mix_colours(colour, theme.surface, TINT)
            assert min(contrast(theme.ink, ground), contrast(theme.muted, ground)) >= 4.5, (colour, ground)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join),
        st.none() | st.integers(0, 10**12),
        min_size=1,
        max_size=8,
    )
)
def test_both_conventions_add_up(blocks):
    data = costs(blocks)
    paths = {path[:at] for path in blocks for at in range(1, len(path) + 1) if path[at : at + 1] in ("", "/")}
    nodes = [Box(path, path, "Op", 9, 9, path=path) for path in sorted(paths)]
    inner, own = (cost_values(data, nodes, FIELDS["flops"], own=own) for own in (False, True))
    for path in paths:
        inside = [value for block, value in blocks.items() if block == path or block.startswith(f"{path}/")]
        known = [value for value in inside if value is not None]
        assert inner.values[path] == (sum(known) if known else None)
        assert own.values[path] == (blocks[path] if path in blocks else None if data["total"]["flops"] is None else 0)
        assert inner.at(path).text.startswith("≥") == (len(known) < len(inside) and sum(known) > 0)
        for values in (inner, own):
            shown = values.at(path)
            assert shown.is_unknown == (values.values[path] is None), "an unknown value is never drawn as 0"
            assert shown.text == UNKNOWN or not shown.is_unknown
    tops = [value for path, value in inner.values.items() if "/" not in path and value is not None]
    assert sum(tops) == sum(value or 0 for value in own.values.values()) == (data["total"]["flops"] or 0)


def test_a_node_of_a_stage_has_the_cost_of_its_instructions(step):
    _, program = step
    graph, cost = program.graph(), program.cost()
    nodes = nested_stage(graph).boxes
    found = cost_values(cost.to_dict(), nodes, FIELDS["flops"], graph=graph)
    for node in graph.nodes.values():
        if node.kind == "block" and node.block:
            assert found.values[node.key] == cost.subtree(node.block).flops
    tops = [found.values[node.key] for node in graph.level() if node.kind != "input"]
    assert sum(tops) == cost.total.flops == found.total
    own = cost_values(cost.to_dict(), nodes, FIELDS["flops"], own=True, graph=graph)
    assert own.values["mlp_0"] == cost.by_block["mlp_0"].flops < found.values["mlp_0"]


@pytest.mark.parametrize("name", NAMES)
def test_every_overlay_can_be_read(step, name):
    model, program = step
    if name in ("role", "sharding"):
        with pytest.raises(UnknownOptionError, match=f"a model has no {name}"):
            program.overlay(name, model)
    else:
        check(program.overlay(name, model).svg)
    for own in (False, True):
        assert check(program.overlay(name, own=own).svg).texts


def test_titles_name_the_convention(step):
    _, program = step
    assert titled("FLOPs", own=False) in program.overlay("flops").svg
    assert titled("FLOPs", own=True) in program.overlay("flops", own=True).svg
    assert "inner blocks" not in ml.inspect(jnp.sin, jnp.ones(3)).overlay("flops").svg, "no block contains another"


def test_a_partly_unknown_block_has_a_bound(nested):
    data = costs({"norm": 20, "mlp_0/linear_0": 430, "mlp_0/linear_1": None, "head": 280}, 0)
    data["by_block"]["head"]["unknown"] = data["total"]["unknown"] = 1
    drawing = overlay_of(data, nested)
    rows = [" ".join(line.split()) for line in drawing.text.splitlines()]
    assert {"norm LayerNorm 20 FLOP 2.7 %", "mlp_0 MLP ≥ 430 FLOP 58.9 %", "head Linear ≥ 280 FLOP 38.4 %"} <= {*rows}
    assert "≥: some costs are unknown; shares refer to the known part" in rows
    found = check(drawing.svg)
    assert any("FLOPs, with inner blocks: ≥ 280 FLOP, 38.4 %" in one for one in found.tooltips)
    assert "MLP · ≥ 430 FLOP" in [one.text for one in found.texts]


def test_values_of_which_nothing_is_known(nested):
    for value in (0, None):
        drawn = check(overlay_of(costs({"norm": value, "head": value}, value), nested).svg)
        assert ("?" in [one.text for one in drawn.texts]) == (value is None)


def test_costs_of_another_model_raise(nested):
    with pytest.raises(UnknownOptionError) as raised:
        overlay_of(costs({"conv_0": 3}), nested)
    assert str(raised.value) == (
        "the costs of 'train step' contain no block of this graph.\n"
        "    costs  conv_0\n"
        "    graph  norm, mlp_0, mlp_0 / linear_0, mlp_0 / relu_0 and 3 more"
    )
    with pytest.raises(UnknownOptionError) as raised:
        overlay_of(costs({"a": 3}), 3)
    assert str(raised.value) == (
        "costs of 'train step' cannot be shown on 3.\n"
        "    needs  an inspection, a mithril_nb model, or the graph of one of them"
    )


def test_your_own_values(step):
    model, program = step
    drawing = program.overlay({"linear_0": 0.25, "mlp_0": float("nan")}, model, title="sparsity")
    rows = [" ".join(line.split()) for line in drawing.text.splitlines()]
    assert rows[:3] == ["train step, graph: sparsity", "node sparsity", "linear_0 Linear 0.25"]
    assert rows[3:5] == ["relu_0 Relu unknown", "mlp_0 MLP unknown"]
    assert {"frozen", "trained"} <= {one.text for one in check(
        program.overlay({"linear_0": "frozen", "mlp_0": "trained"}, model).svg).texts}  # fmt: skip
    with pytest.raises(UnknownOptionError) as raised:
        program.overlay({"linaer_0": 1}, model)
    assert str(raised.value).startswith("the graph has no node 'linaer_0' to show a value on.")
    with pytest.raises(UnknownOptionError, match="must be all numbers or all texts"):
        program.overlay({"linear_0": 1, "mlp_0": "x"}, model)
    with pytest.raises(UnknownOptionError, match="neither a number nor a text"):
        program.overlay({"linear_0": [1]}, model)
    with pytest.raises(UnknownOptionError) as raised:
        program.overlay("flop")
    assert str(raised.value).startswith("unknown overlay 'flop'.")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_stay_data(name, step):
    model, program = step
    check(program.overlay({"linear_0": name, "relu_0": "x"}, model, title=name).svg)
    nodes = [Box(name, name, name, 9, 9, path=name)]
    assert user_values({name: 1}, nodes, name).to_dict([name])["values"] == [1]


def test_shardings_are_shown_where_the_program_states_them():
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    by_rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d", None))

    def program(x):
        return jax.lax.with_sharding_constraint(jnp.tanh(x), by_rows) * 2

    found = ml.inspect(program, jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=by_rows)).overlay("sharding")
    rows = dict(line.rsplit("  ", 1) for line in found.text.splitlines()[2:])
    values = {name.split()[0]: value.strip() for name, value in rows.items()}
    assert values["x"] == values["sharding_constraint"] == "P('d', None)"
    assert values["tanh"] == values["mul"] == "unknown"


def test_shardings_of_jit_and_shard_map_are_shown():
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    whole, rows = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("d")
    placed = jax.jit(lambda w, x: x @ w, in_shardings=[jax.sharding.NamedSharding(mesh, one) for one in (whole, rows)])
    mapped = jax.shard_map(lambda x: (jax.lax.psum(x, "d"), x), mesh=mesh, in_specs=rows, out_specs=(whole, rows))
    spec = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    texts = [ml.inspect(fn, *args).overlay("sharding").text for fn, args in ((placed, (spec, spec)), (mapped, (spec,)))]
    assert ("P()" in texts[0], texts[0].count("P('d',)")) == (True, 1)
    assert [line.endswith("P(), P('d',)") for line in texts[1].splitlines() if "shard_map" in line] == [True]


def test_shardings_of_results_and_of_types_are_shown():
    devices = (1,), ("d",)
    mesh, typed = (
        jax.make_mesh(*devices, axis_types=(kind,))
        for kind in (jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit)
    )
    rows, of_types = (jax.sharding.NamedSharding(one, jax.sharding.PartitionSpec("d")) for one in (mesh, typed))
    x, y = (jax.ShapeDtypeStruct((8,), jnp.float32, sharding=one) for one in (None, of_types))
    placed = jax.jit(lambda x: jnp.tanh(jnp.sin(x)), out_shardings=rows)
    with jax.set_mesh(typed):
        texts = [ml.inspect(fn, x).overlay("sharding").text for fn, x in ((placed, x), (lambda x: placed(x) + 1, x))]
        texts.append(ml.inspect(lambda x: jnp.tanh(jnp.sin(x)), y).overlay("sharding").text)
    sharded = [{line.split()[0] for line in text.splitlines() if line.endswith("P('d',)")} for text in texts]
    assert sharded == [{"<lambda>", "tanh"}, {"<lambda>"}, {"x", "<lambda>", "sin", "tanh"}]


def test_values_of_hlo_graphs_are_those_of_their_instructions(step):
    _, program = step
    for stage, source in (("hlo_before", "lowered"), ("hlo", "compiled")):
        text = program.overlay("flops", stage).text
        assert text.splitlines()[0].endswith(f", {source}")
        assert text == program.overlay(program.cost(source), stage).text
    assert "compiled" not in program.overlay("flops", "stablehlo").text


def test_many_categories_share_the_last_hue():
    found = Overlay("x", "x", {str(at): f"kind {at:02}" for at in range(12)})
    assert (len(found.categories), found.categories[-1]) == (8, "other")
    assert {found.at(str(at)).hue for at in range(7, 12)} == {7}
    assert found.to_dict(["0", "9"])["values"] == [0, 7]


def test_a_page_has_all_overlays_in_the_order_of_its_boxes(step):
    _, program = step
    nodes, graph = nested_stage(program.graph()).boxes, program.graph()
    found = list(page_overlays(program, nodes, graph, program.cost().to_dict(), {"mine": {"linear_0": 3}}))
    assert all(len(one["values"]) == len(nodes) for one in found)
    assert [one["name"] for one in found][:3] == ["own values: mine", "flops", "flops"]
    assert {one["name"] for one in found} >= {"flops", "bytes_accessed", "params", "role", "dtype"}
