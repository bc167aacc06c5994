"""Costs, pictures and profiles on request: computed in threads, then sent, or the reason if they fail."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P
from jax_programs import spec
from sessions import session_of
from waiting import PATIENCE_S

from mithril_nb.analysis.whatif import what_if
from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.figures import LOCAL
from mithril_nb.inspection import Inspection
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.targets import inspect
from mithril_nb.ui.session import cost_requests
from mithril_nb.ui.session.commands import Client, ProgramView
from mithril_nb.ui.session.cost_requests import PICTURES, CostRequests
from mithril_nb.ui.session.cost_tables import MOST_ROWS, cost_table, rows_of
from mithril_nb.viz.costs.fields import BLOCK_FIELDS

Told = list[tuple[str, Any]]


def net(params: Any, x: Any) -> Any:
    for at, w in enumerate(params):
        with jax.named_scope(f"layer_{at}"):
            x = jnp.tanh(x @ w)
    return x.sum()


HUES = {"layer_0": 5, "layer_1": 3}


def desk_of(inspection: Inspection, version: int = 1) -> tuple[CostRequests, Told, list[BaseException]]:
    told: Told = []
    failed: list[BaseException] = []
    current = ProgramView(version, lambda: inspection, ("layer_1", "layer_0"), HUES, lambda: what_if(inspection))
    return (
        CostRequests(lambda: current, Client(lambda *what: told.append(what), lambda: None, failed.append)),
        told,
        failed,
    )


@pytest.fixture(scope="module")
def program() -> Inspection:
    return inspect(jax.grad(net), [spec(5, 7), spec(7, 3)], spec(2, 5))


@pytest.mark.parametrize("source", ["analytic", "lowered", "compiled"])
def test_table_adds_up_in_model_order(program, source) -> None:
    desk, told, failed = desk_of(program)
    desk.request_cost(source)
    assert desk.wait(PATIENCE_S)
    [(kind, table)] = told
    assert (kind, table.head) == ("cost", {"source": source, "version": 1})
    data = json.loads(json.dumps(table.data))
    assert [row["block"] for row in data["rows"]][:2] == ["layer_1", "layer_0"]
    assert [row["hue"] for row in data["rows"]][:2] == [3, 5]
    for figure in (*LOCAL, "params"):
        assert sum(row[figure] for row in data["rows"]) == data["total"][figure]
    for row in (*data["rows"], data["total"]):
        parts = [of.get("flops", 0) for of in row["roles"].values()]
        assert sum(parts) <= row["flops"], "the rest has no role"
    assert data["total"]["flops"] == program.cost(source).total.flops
    assert desk.view()[source] == {"state": "ready", "message": "", "version": 1}
    assert failed == []


def test_rows_are_sorted_by_cost_and_the_rest_counted() -> None:
    def long(x: Any) -> Any:
        with jax.named_scope("many"):
            for _ in range(MOST_ROWS + 3):
                x = jnp.sin(x) + 1
        return x

    desk, told, _ = desk_of(inspect(long, spec(9)))
    desk.request_cost_rows("analytic", "many", "transcendentals")
    assert desk.wait(PATIENCE_S)
    [(_, found)] = told
    rows = found.data["rows"]
    assert len(rows) == MOST_ROWS
    assert found.data["left"] == 2 * (MOST_ROWS + 3) - MOST_ROWS
    assert {row["opcode"] for row in rows} == {"sin"}
    assert rows[0]["figures"]["transcendentals"] == 9
    assert rows[0]["formula"] == "n transcendentals"


@pytest.mark.parametrize("source", ["analytic", "compiled", "measured"])
def test_rows_of_a_broken_program(program, source) -> None:
    desk, told, failed = desk_of(program)
    desk._measured = program, 1, program.cost("compiled")  # measured before the model broke
    desk._program = lambda: ProgramView(2, broken, (), {}, lambda: what_if(program))
    desk.request_cost_rows(source, "layer_0")
    assert desk.wait(PATIENCE_S)
    assert (told, failed) == ([], [])
    assert desk.view()[source]["state"] == "unavailable"
    assert "does not run" in desk.view()[source]["message"]


def broken() -> Inspection:
    raise StageUnavailableError("the model does not run.")


def test_fusion_is_shared_between_blocks(program) -> None:
    cost = program.cost("compiled")
    desk, told, _ = desk_of(program)
    for block in ("layer_0", "layer_1", ""):
        desk.request_cost_rows("compiled", block)
        assert desk.wait(PATIENCE_S)
    flops = sum(row["figures"]["flops"] for _, found in told for row in found.data["rows"])
    assert all(found.data["left"] == 0 for _, found in told)
    assert flops == pytest.approx(cost.total.flops)


@pytest.mark.parametrize("view", sorted(PICTURES))
def test_every_picture_has_text_and_hues(program, view) -> None:
    desk, told, failed = desk_of(program)
    sources = ["lowered", "compiled"] if view == "beside" else ["compiled"]
    desk.request_cost_picture("the key", view, sources, "flops", 640, ["layer_1"])
    assert desk.wait(PATIENCE_S)
    [(kind, picture)] = told
    assert (kind, picture.head, picture.data["reason"]) == ("cost_picture", {"key": "the key"}, "")
    svg = picture.data["svg"]
    assert 'data-block="layer_1"' in svg
    assert "layer_1" in picture.data["text"]
    assert "hue3" in svg or "tint3" in svg, "the hue that the page gives layer_1"
    assert failed == []


def test_failed_compilation_keeps_uncompiled_costs() -> None:
    def f(x: Any) -> Any:
        return jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct((3,), "float32"), x) + jnp.ones(4)

    desk, told, failed = desk_of(inspect(f, spec(3)))
    desk.request_cost("compiled")
    desk.request_cost_picture("k", "memory", ["compiled"])
    desk.measure()
    assert desk.wait(PATIENCE_S)
    states = desk.view()
    assert states["compiled"]["state"] == states["measured"]["state"] == "unavailable"
    assert "3" in states["compiled"]["message"]
    assert "4" in states["compiled"]["message"]
    [picture] = [value for kind, value in told if kind == "cost_picture"]
    assert picture.data == {"svg": "", "text": "", "reason": states["compiled"]["message"]}
    assert failed == [], "an expected failure is not recorded as an error"


def test_measured_costs_fill_table_and_roofline() -> None:
    model = Model(name="net") + Linear(7) + Relu()
    session = session_of(model, {"input": [4, 5]})
    told: Told = []
    session.listen(lambda *what: told.append(what))
    assert session.run_command("measure", {}) is None
    assert session.wait(PATIENCE_S)
    [table] = [value for kind, value in told if kind == "cost"]
    assert table.head["source"] == "measured"
    assert table.data["total"]["time_s"] > 0
    assert sum(row["time_s"] or 0 for row in table.data["rows"]) == pytest.approx(table.data["total"]["time_s"])
    assert any("placeholder" in note for note in table.data["notes"]), "missing values are reported as placeholders"
    assert (
        session.run_command("request_cost_picture", {"key": "k", "view": "roofline", "sources": ["measured"]}) is None
    )
    assert session.wait(PATIENCE_S)
    assert "linear_0" in told[-1][1].data["text"]
    session.do("set_attribute", path="linear_0", name="dimension", value=9)
    assert session.wait(PATIENCE_S)
    snapshot = session.snapshot()
    assert snapshot["costs"]["sources"]["measured"] == {"state": "ready", "message": "", "version": 1}
    assert snapshot["version"] == 2
    assert session.errors == []


def test_invalid_requests_are_rejected(program) -> None:
    desk, _, _ = desk_of(program)
    known = ", ".join(BLOCK_FIELDS)
    for command, args, text in (
        ("request_cost", ["told"], "unknown source 'told'.\n"
            "    known  analytic, lowered, compiled, predicted, measured\n"
            "    Try: source=\"analytic\""),
        ("request_cost_rows", ["analytic", "a", "cents"], f"unknown figure 'cents'.\n    known  {known}\n"
            "    Try: figure=\"flops\""),
        (
            "request_cost_picture", ["k", "pie", ["analytic"]],
            "unknown view 'pie'.\n    known  treemap, roofline, memory, beside\n    Try: view=\"treemap\"",
        ),
        (
            "request_cost_picture", ["k", "beside", ["analytic"]],
            "the picture 'beside' received 1 sources.\n    needs  2, before and after\n"
            '    Try: sources=["lowered", "compiled"]',
        ),
    ):  # fmt: skip
        with pytest.raises(UnknownOptionError) as caught:
            getattr(desk, command)(*args)
        assert str(caught.value) == text


def test_unexpected_error_is_stored_and_shown(program, monkeypatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("one / zero")

    monkeypatch.setattr(cost_requests, "cost_table", broken)
    desk, _, failed = desk_of(program)
    monkeypatch.setattr(cost_requests, "PICTURES", {"treemap": broken})
    desk.request_cost_picture("k", "treemap", ["analytic"])
    assert desk.wait(PATIENCE_S)
    assert [type(one) for one in failed] == [ZeroDivisionError]
    desk.request_cost("analytic")
    assert desk.wait(PATIENCE_S)
    assert len(failed) == 2
    assert desk.view()["analytic"]["state"] == "failed"
    assert "one / zero" in desk.view()["analytic"]["message"]


def test_table_counts_unknown_values() -> None:
    def f(x: Any) -> Any:
        with jax.named_scope("search"):
            return jax.lax.while_loop(lambda v: v.sum() < 100, lambda v: v * 2 + 1, x)

    desk, told, _ = desk_of(inspect(f, spec(3)))
    desk.request_cost("analytic")
    assert desk.wait(PATIENCE_S)
    [(_, table)] = told
    row = next(row for row in table.data["rows"] if row["block"] == "search")
    assert row["unknown"]["flops"] > 0
    assert row["unknown"]["flops"] == table.data["total"]["unknown"]["flops"]
    assert any("while" in note or "mul" in note for note in table.data["notes"])


def test_table_has_formulas_for_symbolic_sizes() -> None:
    batch, width = jax.export.symbolic_shape("batch, width")

    def net(x: Any, w: Any) -> Any:
        with jax.named_scope("head"):
            return jnp.tanh(x @ w @ w) * 2 + 1

    cost = inspect(net, *(jax.ShapeDtypeStruct(shape, "float32") for shape in ((batch, width), (width, width)))).cost()
    table = cost_table(cost, ["head"], {})
    flops = "4·batch·width² + 2·batch·width"
    (row,) = (row for row in table["rows"] if row["block"] == "head")
    assert row["formulas"]["flops"] == table["total"]["formulas"]["flops"] == [flops, flops]
    assert row["formulas"]["bytes_accessed"] == ["40·batch·width + 8·width² + 8", "40·batch·width + 8·width² + 8"]
    assert (row["flops"], row["unknown"]) == (None, {})
    assert rows_of(cost, "head", "flops")["rows"][0]["formula"] == "2·B·M·N·K with B=1, M=batch, N=width, K=width"


def test_table_has_costs_per_python_line() -> None:
    def net(x: Any, w: Any) -> Any:
        y = x @ w
        return jnp.tanh(y)

    cost = inspect(net, jnp.ones((2, 3)), jnp.ones((3, 4))).cost()
    first, second = cost_table(cost, [], {})["lines"].items()
    assert first == (next(iter(cost.by_line)), {"flops": 48, "bytes_accessed": 104})
    assert second[1] == {"bytes_accessed": 64, "transcendentals": 8}


def test_table_has_communication_figures() -> None:
    def rows(communicate: Any, out: Any) -> dict[str, Any]:
        def step(x: Any) -> Any:
            with jax.named_scope("loss"):
                return communicate(jnp.sin(x))

        mesh = jax.sharding.AbstractMesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
        over = jax.shard_map(step, mesh=mesh, in_specs=P("d"), out_specs=out)
        table = cost_table(inspect(jax.make_jaxpr(over)(spec(8, 5))).cost(), [], {})
        found = {**{row["block"]: row for row in table["rows"]}, "total": table["total"]}
        keys = ("payload_bytes", "wire_bytes")
        return {name: {key: row[key] for key in keys if key in row} for name, row in found.items()}

    sent = {"payload_bytes": 40, "wire_bytes": 60}
    found = rows(lambda x: jax.lax.psum(x, "d"), P())
    assert (found["loss"], found["total"]) == (sent, sent)
    assert rows(lambda x: x, P("d"))["total"] == {}


def test_composite_block_has_self_and_total_cost() -> None:
    def net(x: Any, w: Any) -> Any:
        with jax.named_scope("mlp"):
            y = x + 1
            with jax.named_scope("up"):
                y = y @ w
        with jax.named_scope("head"), jax.named_scope("out"):
            return y @ w

    def table(*sizes: Any) -> dict[str, Any]:
        specs = [jax.ShapeDtypeStruct(shape, "float32") for shape in (sizes[:2], (sizes[1], sizes[1]))]
        found = cost_table(inspect(net, *specs).cost(), ["mlp", "mlp/up", "head", "head/out"], {})
        assert [row["block"] for row in found["rows"]] == ["mlp", "mlp/up", "head", "head/out"]
        return {row["block"]: row for row in found["rows"]}

    rows = table(4, 8)
    assert {path: row["flops"] for path, row in rows.items()} == {"mlp": 32, "mlp/up": 512, "head": 0, "head/out": 512}
    assert {path: row["total"]["flops"] for path, row in rows.items() if "total" in row} == {"mlp": 544, "head": 512}
    batch, width = jax.export.symbolic_shape("batch, width")
    rows = table(batch, width)
    assert rows["mlp"]["total"]["formulas"]["flops"][1] == "2·batch·width² + batch·width"
    assert rows["mlp"]["formulas"]["flops"][1] == "batch·width"
