"""An explored program: its first view, results on request, and errors."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec
from waiting import PATIENCE_S, until

from mithril_nb.errors import StageUnavailableError, UnknownOptionError
from mithril_nb.stages.transforms.stepping import step_through
from mithril_nb.stages.xla.passes import Changes
from mithril_nb.targets import inspect
from mithril_nb.ui.session import passes
from mithril_nb.ui.session.commands import Client, ProgramView, Reply
from mithril_nb.ui.session.cost_tables import cost_table
from mithril_nb.ui.session.exploring import Exploration, GraphView
from mithril_nb.ui.session.passes import PassRequests, TransformRequests


def layers(params: Any, x: Any) -> Any:
    for at in range(3):
        with jax.named_scope(f"layer_{at}"):
            x = jnp.tanh(x @ params[at])
    return x.sum()


def explored(function: Any, *args: Any) -> tuple[Exploration, list[tuple[str, Any]]]:
    sent: list[tuple[str, Any]] = []
    exploration = Exploration(inspect(function, *args))
    exploration.listen(lambda kind, value: sent.append((kind, value)))
    exploration.start()
    assert exploration.wait(PATIENCE_S)
    return exploration, sent


@pytest.fixture(scope="module")
def program() -> tuple[Exploration, list[tuple[str, Any]]]:
    return explored(jax.grad(layers), [spec(5, 5)] * 3, spec(2, 5))


def states(exploration: Exploration) -> dict[str, str]:
    return {name: state["state"] for name, state in exploration.snapshot()["stages"].items()}


def test_the_first_view_needs_no_compiler(program) -> None:
    exploration, sent = program
    assert [name for name, state in states(exploration).items() if state == "ready"] == ["jaxpr", "stablehlo"]
    assert not exploration.inspection.is_compiled
    snapshot = exploration.snapshot()
    assert snapshot["name"] == "grad(layers)" or snapshot["name"] == "layers"
    assert snapshot["cost"]["total"]["flops"] > 0
    assert snapshot["status"]["optimize_s"] is snapshot["status"]["compile_s"] is None
    assert snapshot["status"]["attributed"] == 1.0
    assert [row["block"] for row in snapshot["cost"]["rows"]][:3] == ["layer_0", "layer_1", "layer_2"]
    assert [snapshot["blocks"][f"layer_{at}"]["hue"] for at in range(3)] == [0, 1, 2]
    json.dumps(snapshot, allow_nan=False)
    # The stages are announced one after the other, the graph between them.
    kinds = [kind for kind, _ in sent]
    assert kinds.index("graph") < len(kinds) - 1 - kinds[::-1].index("snapshot")
    assert exploration.errors == []


LOWERED = jax.jit(layers).lower([spec(5, 5)] * 3, spec(2, 5))


@pytest.mark.parametrize(
    ("given", "source", "missing"),
    [
        (LOWERED, "lowered", ["analytic", "measured"]),
        (LOWERED.as_text(), "lowered", ["analytic", "measured"]),
        (jax.export.export(jax.jit(layers))([spec(5, 5)] * 3, spec(2, 5)), "lowered", ["analytic", "measured"]),
        (LOWERED.compile(), "compiled", ["analytic", "lowered", "measured"]),
        (
            LOWERED.compiler_ir("hlo").as_serialized_hlo_module_proto(),
            "lowered",
            ["analytic", "compiled", "predicted", "measured"],
        ),
    ],
    ids=["a jax.stages.Lowered", "StableHLO text", "an exported program", "a jax.stages.Compiled", "HLO bytes"],
)
def test_program_without_jaxpr_has_available_costs(given: Any, source: str, missing: list[str]) -> None:
    exploration, _ = explored(given)
    now = exploration.snapshot()
    hues = {path: block["hue"] for path, block in now["blocks"].items()}
    wanted = exploration.inspection.cost(source)
    assert now["cost"] == cost_table(wanted, list(now["blocks"]), hues)
    assert now["cost"]["rows"]
    assert now["cost"]["total"]["flops"] == wanted.total.flops
    unavailable = {name: one for name, one in now["costs"]["sources"].items() if one["state"] == "unavailable"}
    assert list(unavailable) == missing
    assert unavailable["analytic"]["message"].endswith(": it has no jaxpr")
    assert exploration.errors == []


def graph_of(exploration) -> dict:
    """Return the graph as the front end receives it, with the key of each box and whether it is open."""
    return dict(exploration.graph())["graph"].data


def test_graph_is_made_once(monkeypatch) -> None:
    inspection, asked = inspect(layers, [spec(5, 5)] * 3, spec(2, 5)), []
    graph = inspection.graph
    monkeypatch.setattr(inspection, "graph", lambda stage: asked.append(stage) or graph(stage))
    view = GraphView(inspection)
    assert not view.is_made("jaxpr")
    assert view.graph("jaxpr", {}).data == view.graph("jaxpr", {}).data
    assert view.is_made("jaxpr")
    assert asked == ["jaxpr"]


def test_boxes_have_a_block_or_equations(program) -> None:
    boxes = graph_of(program[0])["boxes"]
    layer = next(at for at, name in enumerate(boxes["name"]) if name.startswith("layer_0"))
    assert boxes["path"][layer] == "layer_0"
    assert all(path or ids for path, ids in zip(boxes["path"], boxes["equations"], strict=True))


def test_shares_of_the_cost_follow_the_graph(program) -> None:
    graph, shares = (reply.data for _, reply in program[0].graph())
    assert len(shares) == len(graph["boxes"]["key"])
    known = [share for share, parent in zip(shares, graph["boxes"]["parent"], strict=True) if share and parent < 0]
    assert sum(known) == pytest.approx(1)


def test_open_nodes_are_remembered(program) -> None:
    exploration, sent = program
    first = graph_of(exploration)["opened"]
    sent.clear()
    assert exploration.run_command("close_node", {"key": first[0]}) is None
    assert graph_of(exploration)["opened"] == first[1:]
    assert exploration.run_command("open_node", {"key": first[0]}) is None
    assert exploration.run_command("open_node", {"key": "no such node"}) is None
    assert graph_of(exploration)["opened"] == first
    assert sent == []  # the front end has opened it already


def test_early_click_keeps_the_first_view() -> None:
    view = GraphView(inspect(layers, [spec(5, 5)] * 3, spec(2, 5)))
    view.graph("jaxpr", {})
    view.stage = "stablehlo"
    view.open("layer_1")
    clicked = view.graph("stablehlo", {})
    other = GraphView(inspect(layers, [spec(5, 5)] * 3, spec(2, 5)))
    other.stage = "stablehlo"
    assert clicked == other.graph("stablehlo", {})
    assert clicked.data["opened"]


def test_failed_commands_are_reported(program) -> None:
    exploration, _ = program
    problem = exploration.run_command("explode", {})
    assert str(problem) == (
        "unknown command 'explode'.\n"
        "    known  request_stage, leave_stage, show_graph, open_node, close_node, select, dismiss, choose_device,"
        " cancel_device, install_compiler, request_passes,"
        " request_diff, search_passes, request_instruction_history, request_explanation, request_cost,"
        " request_cost_rows, request_formula, request_cost_picture, measure, request_settings, what_if, show_overlay,"
        " request_export\n"
        '    Try: wb.do("request_stage")'
    )
    assert str(exploration.run_command("show_graph", {"stage": "asm"})) == (
        "unknown stage 'asm'.\n    known  jaxpr, stablehlo, hlo_before, hlo\n    Try: stage=\"jaxpr\""
    )
    assert exploration.snapshot()["notice"]["summary"] == "unknown stage 'asm'."
    exploration.run_command("dismiss", {})
    assert exploration.snapshot()["notice"] is None
    exploration.errors.clear()


def test_passes_diffs_and_histories_on_request(program) -> None:
    exploration, sent = program
    sent.clear()
    assert exploration.snapshot()["passes"]["state"] == "empty"
    exploration.run_command("request_passes", {})
    assert exploration.snapshot()["passes"]["state"] == "loading"
    exploration.run_command("show_graph", {"stage": "hlo"})
    assert exploration.wait(PATIENCE_S)
    assert exploration.snapshot()["passes"]["state"] == "ready"
    assert exploration.passes.latest is not None
    rows = exploration.passes.latest.data
    assert [row[0] for row in rows] == list(range(len(rows)))
    assert all(count is not None for row in rows for count in row[3:])
    number = max(rows, key=lambda row: row[3] + row[4])[0]
    exploration.run_command("request_diff", {"number": number})
    gone = next(
        at for at, one in enumerate(exploration.inspection.stage("hlo_before").instructions) if one.opcode == "tanh"
    )
    exploration.run_command("request_instruction_history", {"stage": "hlo_before", "index": gone})
    assert exploration.wait(PATIENCE_S)
    diff = next(value for kind, value in reversed(sent) if kind == "diff")
    assert diff.head["number"] == number
    assert any(line.startswith(("+", "-")) for line in diff.data.splitlines())
    history = next(value.head for kind, value in sent if kind == "instruction_history")
    assert (history["stage"], history["index"]) == ("hlo_before", gone)
    assert {what for what, _, _ in history["events"]} <= {"appeared in", "vanished in"}
    sent.clear()
    at = next(at for at, one in enumerate(exploration.inspection.stage("jaxpr").instructions) if one.opcode == "tanh")
    exploration.run_command("request_instruction_history", {"stage": "jaxpr", "index": at})
    assert exploration.wait(PATIENCE_S)
    history = next(value.head for kind, value in sent if kind == "instruction_history")
    assert (history["stage"], history["index"]) == ("jaxpr", at)
    assert history["became"].startswith("kept as ") or any("by" in what for what, _, _ in history["events"])
    # With the program compiled, its graph is drawn.
    assert exploration.snapshot()["status"]["optimize_s"] > 0
    assert dict(exploration.graph())["graph"].head == {"stage": "hlo"}
    assert exploration.errors == []


def test_search_in_the_diffs_of_all_passes(program, monkeypatch) -> None:
    exploration, sent = program
    exploration.run_command("request_passes", {})
    assert exploration.wait(PATIENCE_S)

    def search(text: str) -> tuple[int, dict[int, list[int]]]:
        sent.clear()
        exploration.run_command("search_passes", {"text": text})
        assert exploration.wait(PATIENCE_S)
        [found] = [value for kind, value in sent if kind == "pass_matches"]
        assert (found.head["version"], found.head["text"]) == (1, text)
        return found.head["total"], dict(found.data)

    diffs = {one.number: one.diff.split("\n") for one in exploration.inspection.passes}
    expected = {
        number: [at for at, line in enumerate(lines, 1) if "fusion" in line.lower()] for number, lines in diffs.items()
    }
    total = sum(map(len, expected.values()))
    assert search("FUSION") == (total, {number: lines for number, lines in expected.items() if lines})
    assert search("no such text") == (0, {})
    monkeypatch.setattr(passes, "MOST_MATCHES", 2)
    found = search("fusion")
    assert (found[0], sum(map(len, found[1].values()))) == (total, 2)
    # Only the latest of several searches is answered.
    sent.clear()
    for text in ("f", "fu", "fusion"):
        exploration.run_command("search_passes", {"text": text})
    assert exploration.wait(PATIENCE_S)
    assert [value.head["text"] for kind, value in sent if kind == "pass_matches"][-1] == "fusion"
    assert exploration.errors == []


def test_long_diff_is_cut(monkeypatch) -> None:
    monkeypatch.setattr(passes, "MOST_DIFF_LINES", 3)
    exploration, sent = explored(jnp.tanh, spec(5, 7))
    exploration.run_command("request_passes", {})
    assert exploration.wait(PATIENCE_S)
    number, whole = max(enumerate(one.diff for one in exploration.inspection.passes), key=lambda pair: len(pair[1]))
    exploration.run_command("request_diff", {"number": number})
    assert exploration.wait(PATIENCE_S)
    diff = next(value for kind, value in reversed(sent) if kind == "diff")
    assert diff.head == {"version": 1, "number": number, "cut": True}
    assert diff.data.splitlines() == whole.split("\n")[:3]


class SlowPass:
    """A pass of a large program: its results take until the test releases it."""

    name = pipeline = "slow"

    def __init__(self, number: int, log: list[str]):
        self.number, self._log = number, log
        self.resume = {"size": threading.Event(), "diff": threading.Event()}

    def _take_long(self, what: str) -> None:
        self._log.append(f"{what} {self.number}")
        assert self.resume[what].wait(PATIENCE_S)

    @property
    def changes(self) -> Changes:
        self._take_long("size")
        return Changes()

    def diff_lines(self) -> Iterator[str]:
        self._take_long("diff")
        yield "+ %new"


def desk_of(make: Callable[[], Any]) -> tuple[PassRequests, list[Any]]:
    sent: list[Any] = []
    page = Client(lambda *news: sent.append(news), lambda: sent.append(("changed", None)), sent.append)
    return PassRequests(lambda: ProgramView(4, make, (), {}, pytest.fail), page), sent


def test_diff_requests_take_precedence_over_counts(monkeypatch) -> None:
    monkeypatch.setattr(passes, "_REST_S", 0.2)
    log: list[str] = []
    made = [SlowPass(number, log) for number in range(3)]
    desk, sent = desk_of(lambda: SimpleNamespace(passes=made))
    desk.request_passes()
    until(lambda: log == ["diff 0"])
    assert [kind for kind, _ in sent] == ["changed"], "the list comes with the first diff"
    made[0].resume["diff"].set()
    until(lambda: log == ["diff 0", "size 0"])
    desk.request_diff(1)
    until(lambda: log == ["diff 0", "size 0", "diff 1"])
    made[0].resume["size"].set()
    time.sleep(0.5)
    assert log == ["diff 0", "size 0", "diff 1"], "nothing else takes time meanwhile"
    for one in made:
        for event in one.resume.values():
            event.set()
    assert desk.wait(PATIENCE_S)
    assert log == ["diff 0", "size 0", "diff 1", "size 1", "size 2", "diff 2"]
    desk.request_diff(2)
    assert desk.wait(PATIENCE_S)
    assert len(log) == 6, "it was there"
    assert [kind for kind, _ in sent] == ["changed", "passes", "diff", "changed", "diff", "passes", "diff"]
    wanted = [Reply({"version": 4, "number": at, "cut": False}, "+ %new\n") for at in range(3)]
    assert [value for kind, value in sent if kind == "diff"] == wanted


def test_failed_passes_report_why_and_can_be_retried() -> None:
    def unavailable() -> Any:
        raise StageUnavailableError("no passes of 'f'.", (("because", "XLA wrote nothing down"),))

    desk, sent = desk_of(unavailable)
    with pytest.raises(UnknownOptionError) as caught:
        desk.request_diff(0)
    assert str(caught.value) == ('no passes have been read.\n    passes  none\n    Try: wb.do("request_passes")')
    desk.request_passes()
    assert desk.wait(PATIENCE_S)
    assert desk.view(4) == {"state": "unavailable", "message": "XLA wrote nothing down", "version": 4}
    assert desk.view(5)["state"] == "stale"
    assert sent == [("changed", None)] * 2
    error = OSError("the disk is full")

    def broken() -> Any:
        raise error

    desk, sent = desk_of(broken)
    for _ in range(2):
        desk.request_passes()
        assert desk.wait(PATIENCE_S)
    assert desk.view(4) == {"state": "failed", "version": 4, "message": "OSError: the disk is full"}
    assert sent == [("changed", None), ("changed", None), error] * 2


def test_transforms_are_compared_on_request() -> None:
    ran: list[int] = []

    def squares(x: Any) -> Any:
        jax.debug.callback(lambda: ran.append(1))
        return (x**2).sum()

    steps = step_through(squares, jnp.arange(3.0), through=("grad", "jit"))
    exploration = Exploration(inspect(squares, spec(3)), steps)
    assert exploration.snapshot()["transforms"] == {"state": "empty", "message": "", "compared": []}
    assert ran == []
    assert exploration.run_command("compare_transforms", {}) is None
    assert exploration.snapshot()["transforms"]["state"] == "loading"
    assert exploration.wait(PATIENCE_S)
    found = exploration.snapshot()["transforms"]
    assert (found["state"], [agrees for agrees, _ in found["compared"]]) == ("ready", [True, True, True])
    assert found["compared"][0][1].startswith("agrees with the Python function: off by 0")
    assert ran
    assert exploration.errors == []


def test_failed_comparison_can_be_retried() -> None:
    def check() -> Any:
        raise OSError("the disk is full")

    sent: list[Any] = []
    client = Client(lambda *reply: None, lambda: sent.append("changed"), sent.append)
    desk = TransformRequests(SimpleNamespace(check=check), client)  # type: ignore[arg-type]
    for _ in range(2):
        desk.compare_transforms()
        assert desk.wait(PATIENCE_S)
    assert desk.view() == {"state": "failed", "message": "OSError: the disk is full", "compared": []}
    assert [type(one) for one in sent] == [str, OSError] * 2
    assert TransformRequests(None, client).view() is None


def test_untraceable_program_shows_the_traced_part() -> None:
    def broken(x):
        return jnp.sin(x) + jnp.ones(7)

    exploration, _ = explored(broken, spec(3))
    assert states(exploration)["jaxpr"] == "unavailable"
    assert exploration.stage("jaxpr") == (1, exploration.inspection)
    assert exploration.stage("stablehlo") is None
    assert "sin" in exploration.inspection.stage("jaxpr").text
    assert exploration.snapshot()["stages"]["jaxpr"]["message"]
    assert exploration.errors == []
    assert graph_of(exploration)["boxes"]


def test_a_line_is_explained_and_its_fate_needs_the_passes() -> None:
    exploration, sent = explored(jax.grad(layers), [spec(5, 5)] * 3, spec(2, 5))
    index = next(
        at for at, row in enumerate(exploration.inspection.stage("jaxpr").instructions) if row.opcode == "tanh"
    )

    def explanation() -> dict[str, list[str]]:
        sent.clear()
        exploration.run_command("request_explanation", {"stage": "jaxpr", "index": index})
        assert exploration.wait(PATIENCE_S)
        head = next(value.head for kind, value in sent if kind == "explanation")
        assert (head["stage"], head["index"], head["version"]) == ("jaxpr", index, exploration.version)
        return {kind: [text for name, text, _ in head["clauses"] if name == kind] for kind, *_ in head["clauses"]}

    before = explanation()
    assert before["what"][0].startswith("Hyperbolic tangent")
    assert before["fate"] == ["Known after the passes are read, in the tab Passes."]
    exploration.run_command("request_passes", {})
    assert exploration.wait(PATIENCE_S)
    assert explanation()["fate"][0].startswith("Fused into wrapped_tanh by pass ")
    exploration.run_command("request_explanation", {"stage": "jaxpr", "index": 10**6})
    assert exploration.wait(PATIENCE_S)
    assert exploration.errors == []
