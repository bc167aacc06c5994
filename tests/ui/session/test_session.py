"""The session: commands from any thread, complete snapshots, and no lost updates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from sessions import session_of
from waiting import PATIENCE_S, until

from mithril_nb.errors import DataError
from mithril_nb.models import MLP, Linear, Model, Relu, Softmax
from mithril_nb.ui.session import Session


def mlp() -> Model:
    return Model() + Linear(64) + Relu() + Linear(10)


def data(count: int = 256) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 8)).astype("float32")
    return x, (x[:, 0] > 0).astype("int32")


@pytest.fixture
def session() -> Session:
    return session_of(mlp(), {"input": [32, 16]})


def test_snapshot_is_json_with_all_fields(session):
    assert session.wait(PATIENCE_S)
    snapshot = json.loads(json.dumps(session.snapshot()))
    assert snapshot["graph"]["boxes"]["path"] == ["", "linear_0", "relu_0", "linear_1", ""]
    assert (snapshot["graph"]["opened"], snapshot["graph"]["moved"]) == ([], {})
    assert snapshot["shapes"] == {"input": [32, 16]}
    assert snapshot["blocks"]["linear_0"]["params"][0] == {
        "name": "linear_0.weight",
        "port": "weight",
        "shape": "(16, 64)",
        "count": 1024,
        "is_trainable": True,
        "initializer": "",
        "usual": "he_uniform",
        "shared": [],
    }
    assert snapshot["cost"]["total"]["flops"] == sum(row["flops"] for row in snapshot["cost"]["rows"]) > 0
    assert snapshot["stages"]["jaxpr"]["state"] == "ready"
    assert snapshot["stages"]["hlo"]["state"] == "empty"
    assert snapshot["problems"] == []
    assert snapshot["notice"] is None


def test_a_change_answers_at_once_and_the_stages_follow(session):
    told: list[dict] = []
    session.listen(lambda kind, value: told.append(value) if kind == "snapshot" else None)
    for name in session.snapshot()["stages"]:
        session.request_stage(name)
    assert session.wait(PATIENCE_S)
    told.clear()
    session.do("set_attribute", path="linear_0", name="dimension", value=80)
    first = told[0]
    # Shapes are there in the first answer; the old stages stay until the new ones come.
    assert first["blocks"]["linear_0"]["outputs"][0]["shape"] == "(32, 80) float32"
    assert first["stages"]["hlo"]["state"] == "loading"
    assert first["stages"]["hlo"]["version"] == first["version"] - 1
    assert first["cost"]["stale"] is True
    assert session.wait(PATIENCE_S)
    last = told[-1]
    for name, state in last["stages"].items():
        assert state["state"] in (("ready", "unavailable") if name in ("llvm", "asm") else ("ready",)), name
        assert state["version"] == last["version"]
    assert last["cost"]["stale"] is False
    assert "f32[32,80]" in session.analysis.inspection.stage("hlo").text


def test_times_equal_those_of_an_explorer(session):
    assert session.wait(PATIENCE_S)
    assert session.snapshot()["status"]["optimize_s"] is None
    for stage in ("stablehlo", "hlo"):
        session.request_stage(stage)
    assert session.wait(PATIENCE_S)
    status = session.snapshot()["status"]
    elapsed = session.analysis.inspection.elapsed
    assert {name: status[f"{name}_s"] for name in ("trace", "lower", "optimize")} == elapsed
    assert status["compile_s"] is None


def test_undo_reuses_computed_stages(session):
    session.request_stage("hlo")
    assert session.wait(PATIENCE_S)
    before = session.analysis.inspection
    session.do("set_attribute", path="linear_0", name="dimension", value=80)
    assert session.wait(PATIENCE_S)
    session.do("undo")
    assert session.analysis.inspection is before
    assert session.wait(PATIENCE_S)
    assert session.snapshot()["stages"]["hlo"]["state"] == "ready"


def test_passes_belong_to_their_design(session):
    told: list[tuple[str, object]] = []
    session.listen(lambda kind, value: told.append((kind, value)) if kind != "snapshot" else None)

    def state() -> str:
        return session.snapshot()["passes"]["state"]

    assert session.wait(PATIENCE_S)
    assert state() == "empty"
    session.do("request_passes")
    assert state() == "loading"
    assert session.wait(PATIENCE_S)
    assert state() == "ready"
    first = session.passes.latest
    assert first is not None
    assert (first.head["version"], len(first.data)) == (1, len(session.analysis.inspection.passes))
    session.do("set_attribute", path="linear_0", name="dimension", value=80)
    assert state() == "stale"
    session.do("request_diff", number=2)  # what is on screen can still be current at
    assert session.wait(PATIENCE_S)
    assert [tuple(one.head.values())[:2] for kind, one in told if kind == "diff"] == [(1, 0), (1, 2)]
    session.do("request_passes")
    assert session.wait(PATIENCE_S)
    second = session.passes.latest
    assert second is not None
    assert (state(), second.head) == ("ready", {"version": 2, "number": 2})
    assert [tuple(one.head.values())[:2] for kind, one in told if kind == "diff"][2:] == [(2, 2)]
    session.do("disconnect", source="linear_0.output", target="relu_0.input")
    assert session.snapshot()["passes"] == {"state": "unavailable", "message": "the model has problems", "version": 0}
    assert session.errors == []


def test_only_the_latest_request_is_computed(session):
    session.request_stage("hlo")
    for width in range(20, 60):
        session.do("set_attribute", path="linear_0", name="dimension", value=width)
    assert session.wait(PATIENCE_S)
    version, inspection = session.stage("hlo") or (0, None)
    assert version == session.analysis.version
    assert inspection is session.analysis.inspection
    assert "f32[32,59]" in inspection.stage("hlo").text
    made = [program for program in session._seen.values() if program._inspection and program._inspection.is_compiled]
    assert len(made) <= 3, "replaced requests are not compiled"


def test_failed_command_changes_nothing(session):
    before, version = session.design, session.analysis.version
    problem = session.run_command("set_attribute", {"path": "linear_0", "name": "dimension", "value": "wide"})
    assert str(problem) == (
        "Linear cannot take dimension='wide'.\n"
        "    needs  a whole number from 1 to 1048576, or None\n"
        "    means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.\n"
        "    Try: Linear(dimension=64)"
    )
    assert (session.design, session.analysis.version) == (before, version)
    notice = session.snapshot()["notice"]
    assert notice["summary"] == "Linear cannot take dimension='wide'."
    assert len(session.errors) == 1
    session.do("dismiss")
    assert session.snapshot()["notice"] is None
    taken = {"path": "linear_0", "name": "relu_0"}
    assert "that name is taken" in str(session.run_command("rename", taken))
    assert session.snapshot()["notice"] is None, "the field of the name shows it"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("nonsense", {}),
        ("set_attribute", {"path": "linear_0"}),
        ("move", {"places": [["linear_0", "a", 0]]}),
        ("set_shape", {"shape": []}),
        ("connect", {}),
    ],
)
def test_invalid_commands_are_shown_and_harmless(session, name, args):
    before = session.design
    assert session.run_command(name, args) is not None
    assert session.design == before
    assert json.dumps(session.snapshot()["notice"]) != "null"


def test_shape_mismatch_marks_the_edge_and_keeps_stages(session):
    assert session.wait(PATIENCE_S)
    session.do("set_attribute", path="linear_1", name="input_size", value=7)
    snapshot = session.snapshot()
    assert snapshot["problems"][0]["edge"] == ["relu_0.output", "linear_1.input"]
    (edge,) = [edge for edge in session.diagram.edges if edge.problem is not None]
    assert (edge.source, edge.target) == ("relu_0.output", "linear_1.input")
    assert [found for found in snapshot["graph"]["flows"]["problem"] if found is not None] == [0]
    assert snapshot["stages"]["jaxpr"]["state"] == "stale"
    assert snapshot["stages"]["jaxpr"]["version"] == 1
    assert snapshot["cost"]["stale"] is True
    session.do("undo")
    assert session.snapshot()["problems"] == []


def test_input_without_shape_is_a_problem_with_advice(session):
    session.do("disconnect", source="relu_0.output", target="linear_1.input")
    (problem,) = session.analysis.problems
    assert str(problem) == (
        "'linear_1.input' is not connected, and input 'linear_1_input' of the model has no shape.\n"
        "    known  nothing\n"
        '    Try: wb.do("connect", source="relu_0.output", target="linear_1.input")'
        '  # or wb.do("set_shape", name="linear_1_input", shape=[32, 64])'
    )
    for advice in problem.advice.split("  # or "):
        exec(advice, {"wb": session})
        assert session.analysis.problems == ()
        session.do("undo")


def test_partially_known_shape_is_shown():
    session = session_of(Model() + Linear(64) + Softmax())
    try:
        blocks = session.snapshot()["blocks"]
    finally:
        session.end()
    assert blocks["linear_0"]["inputs"] == [{"port": "input", "shape": "unknown"}]
    assert blocks["softmax_0"]["inputs"] == [{"port": "input", "shape": "(…, 64) float32"}]
    assert blocks["softmax_0"]["outputs"] == [{"port": "output", "shape": "(…, 64) float32"}]


def test_empty_session():
    session = session_of()
    snapshot = session.snapshot()
    assert snapshot["cost"] is None
    assert snapshot["graph"]["boxes"] == {}
    session.do("add_block", kind="Linear")
    assert [node.name for node in session.model.graph.nodes] == ["linear_0"]
    session.do("set_shape", name="input", shape=[4, 8])
    assert session.wait(PATIENCE_S)
    assert session.snapshot()["stages"]["jaxpr"]["state"] == "ready"
    session.do("remove", paths=["linear_0"])
    assert session.snapshot()["stages"]["jaxpr"]["state"] == "stale"


def test_renamed_block_keeps_position_and_expansion():
    session = session_of(Model() + MLP(8, [4], 2), {"input": [3, 8]})
    session.do("expand", path="mlp_0")
    session.do("move", places=[["mlp_0/linear_0", 300, 200]])
    before = {node.path: (node.x, node.y) for node in session.diagram.nodes}
    session.do("rename", path="mlp_0", name="body")
    after = {node.path: (node.x, node.y) for node in session.diagram.nodes}
    assert after["body/linear_0"] == before["mlp_0/linear_0"]
    assert session.selection == ("body",)


def test_every_program_can_be_inspected(session):
    texts = set()
    for program in session.snapshot()["programs"]:
        session.do("set_program", program=program)
        assert session.wait(PATIENCE_S)
        texts.add(session.analysis.inspection.stage("jaxpr").text)
    assert len(texts) == 3


def test_commands_from_many_threads_are_consistent(session):
    def hammer(seed: int) -> None:
        for step in range(10):
            session.run_command(
                "set_attribute", {"path": "linear_0", "name": "dimension", "value": 10 * seed + step + 1}
            )
            session.run_command("undo", {})
            session.run_command("redo", {})

    threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.errors == []
    snapshot = session.snapshot()
    width = snapshot["blocks"]["linear_0"]["values"]["dimension"]
    assert snapshot["blocks"]["linear_0"]["outputs"][0]["shape"] == f"(32, {width}) float32"


def training_session(**options) -> Session:
    model = Model() + Linear(16) + Relu() + Linear(2)
    return session_of(model, {"input": [32, 8]}, **{"data": data(), "epochs": 2, **options})


def test_training_sends_curves_and_completes():
    session, rows, runs = training_session(validation=data(64)), [], []
    session.listen(
        lambda kind, value: (rows if kind == "curves" else runs).append(value) if kind != "snapshot" else None
    )
    session.do("train")
    run = session.training.run
    assert run is not None
    run.wait(PATIENCE_S)
    until(lambda: runs and runs[-1]["state"] == "done")
    # The sent rows are the whole history, each once and in order.
    told = np.concatenate([one.values for one in rows], axis=1)
    assert told.shape[1] == len(run.history) == 16
    assert list(told[0]) == list(range(1, 17))
    assert runs[-1]["points"] == 16


def test_run_survives_design_changes():
    session = training_session(epochs=100_000)
    session.do("train")
    first = session.training.run
    assert first is not None
    until(lambda: len(first.history) > 5)
    session.do("set_attribute", path="linear_0", name="dimension", value=24)
    assert first.state == "running"
    session.do("stop")
    until(lambda: first.state == "stopped")
    session.do("train")
    second = session.training.run
    assert second is not first
    assert session.training.runs == [first, second]
    assert first.params["linear_0.weight"].shape == (8, 16)
    until(lambda: len(second.history) > 5)
    session.do("pause")
    until(lambda: second.state == "paused")
    session.do("set_learning_rate", value=0.5)
    session.do("resume")
    until(lambda: second.state == "running")
    session.do("stop")
    until(lambda: second.state == "stopped")
    assert second.params["linear_0.weight"].shape == (8, 24)


def test_training_without_data_gives_advice():
    session = session_of(mlp(), {"input": [32, 16]})
    with pytest.raises(DataError) as caught:
        session.do("train")
    assert str(caught.value) == (
        "this workbench has no data to train on.\n"
        "    needs  arrays of samples and targets\n"
        '    Try: wb.do("use_data_of", template="mlp")  # or ml.workbench(model, data=(x, y))'
    )


def test_training_a_broken_model_reports_the_problem():
    session = training_session()
    session.do("set_attribute", path="linear_1", name="input_size", value=7)
    problem = session.run_command("train", {})
    assert problem is not None
    assert problem.summary.startswith("this model cannot be trained yet: cannot connect")
    assert problem.block == "linear_1"


def test_last_message_of_a_run_is_its_state():
    session, told = training_session(epochs=100_000), []

    def hear(kind, value):
        if kind in ("run", "snapshot"):
            told.append((value if kind == "run" else value["run"])["state"])

    session.listen(hear)
    session.do("train")
    run = session.training.run
    assert run is not None
    until(lambda: len(run.history) > 5)
    for _ in range(15):
        session.do("pause")
        until(lambda: run.state == "paused" and told[-1] == "paused")
        step = run.step
        session.do("step_once")
        until(lambda step=step: run.step == step + 1 and run.state == "paused" and told[-1] == "paused")
        session.do("resume")
        until(lambda: run.state == "running" and told[-1] == "running")
    session.do("stop")
    until(lambda: run.state == "stopped" and told[-1] == "stopped")


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        (
            "add_block",
            {"kind": "Relu", "x": "a", "y": 2},
            "('a', 2) is not a position.\n    needs  two numbers\n    Try: x=40, y=120",
        ),
        (
            "rename",
            {"path": "linear_0"},
            "command 'rename' failed: missing a required argument: 'name'.\n"
            "    given  path='linear_0'\n"
            "    takes  path: a string; name: a string\n"
            '    Try: wb.do("rename", path=..., name=...)',
        ),
        (
            "set_shape",
            {"name": "input", "shape": None},
            "None is not a shape for input 'input'.\n"
            "    because  it is not a list\n"
            "    needs    integers, or names of sizes such as batch\n"
            "    Try: shape=[32, 784]",
        ),
    ],
)
def test_failed_edit_leaves_no_trace(session, name, args, text):
    before = (session.design, session.snapshot()["graph"], session.selection)
    assert str(session.run_command(name, args)) == text
    assert (session.design, session.snapshot()["graph"], session.selection) == before
    session.do("add_block", kind="Relu")
    assert "relu_1" in session.model.graph.by_name


def test_blocks_are_added_in_command_order(session):
    session.do("select", paths=["linear_0"])
    for kind in ("Gelu", "Tanh", "Sigmoid"):
        session.do("add_block", kind=kind)
    edges = {edge.source.node: edge.target.node for edge in session.model.graph.edges}
    assert [edges[name] for name in ("linear_0", "gelu_0", "tanh_0", "sigmoid_0")] == [
        "gelu_0", "tanh_0", "sigmoid_0", "relu_0",
    ]  # fmt: skip
    session.do("add_block", kind="Softplus", after="gelu_0")
    assert next(edge.target.node for edge in session.model.graph.edges if edge.source.node == "gelu_0") == "softplus_0"


def test_unknown_paths_are_dropped(session):
    for path in ("ghost", ""):
        session.do("move", places=[[path, 1, 2]])
    session.do("expand", path="ghost")
    session.do("select", paths=["ghost", "relu_0"])
    assert (session._view.moved, session._view.expanded, session.selection) == ({}, frozenset(), ("relu_0",))


def test_renaming_keeps_the_shape_of_the_input_and_undo_the_view():
    model = Model() | Linear(3) | Linear(4)
    session = session_of(model, {"input": [2, 5], "linear_1_input": [2, 6]})
    session.do("move", places=[["linear_1", 200, 100]])
    session.do("select", paths=["linear_1"])
    place = session._view.moved["linear_1"]
    session.do("rename", path="linear_1", name="b")
    assert session.analysis.problems == ()
    assert session._view.moved == {"b": place}
    session.do("undo")
    assert (session._view.moved, session.selection) == ({"linear_1": place}, ("linear_1",))
    session.do("redo")
    assert (session._view.moved, session.selection) == ({"b": place}, ("b",))


def test_edge_at_a_group_border_has_the_canvas_name():
    session = session_of(Model() + MLP(8, [4], 2), {"input": [3, 8]})
    session.do("expand", path="mlp_0")
    edges = {(edge.source, edge.target) for edge in session.diagram.edges}
    assert ("mlp_0.input", "mlp_0/linear_0.input") in edges
    before = session.design.graph
    session.do("disconnect", source="mlp_0.input", target="mlp_0/linear_0.input")
    # Nothing else feeds that input, so it is an input of the group as before.
    assert session.design.graph.inputs == before.inputs
    assert session.analysis.problems == ()


def test_composed_model_has_no_attributes():
    session = session_of(Model() + MLP(8, [4], 2), {"input": [3, 8]})
    session.do("rename", path="mlp_0/relu_0", name="act")
    problem = session.run_command("set_attribute", {"path": "mlp_0", "name": "output_size", "value": 3})
    assert str(problem) == (
        "block 'mlp_0' is a model composed of blocks and has no attribute 'output_size'.\n"
        "    inside  'linear_0', 'act', 'linear_1'\n"
        '    Try: wb.do("expand", path="mlp_0")'
    )


def test_concurrent_train_commands_start_one_run():
    session = training_session(epochs=100_000)
    threads = [threading.Thread(target=session.run_command, args=("train", {})) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [run.state for run in session.training.runs].count("running") == len(session.training.runs) == 1
    session.do("stop")


def test_stages_are_computed_for_the_program_device():
    program = (
        "import jax\n"
        "import mithril_nb as ml\n"
        "from mithril_nb.models import Linear\n"
        "from mithril_nb.ui.session import Session, design_of\n"
        "backend = ml.JaxBackend(device='cpu:1')\n"
        "pm = ml.compile(Linear(3), backend, shapes={'input': [2, 4]})\n"
        "out = pm.evaluate(pm.randomize_params(), {'input': backend.ones(2, 4)})['output']\n"
        "session = Session(design_of(Linear(3), {'input': [2, 4]}), backend)\n"
        "for inspection in (pm.inspect(), session.analysis.inspection):\n"
        "    devices = {d for s in jax.tree.leaves(inspection.compiled.output_shardings) for d in s.device_set}\n"
        "    assert devices == out.devices(), (devices, out.devices())\n"
    )
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", program], env=flags, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
