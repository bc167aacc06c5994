"""The widgets without a browser: traits, messages, and errors of handlers."""

from __future__ import annotations

import gc
import gzip
import json
import threading
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE_S, until

import mithril_nb as ml
from mithril_nb.errors import UnexpectedInputError, UnknownOptionError
from mithril_nb.models import MLP, Gelu, Linear, Model, Relu
from mithril_nb.ui.session import Session, design_of
from mithril_nb.ui.widgets import front_end
from mithril_nb.ui.widgets.front_end import shared_assets
from mithril_nb.viz.html_parts import built

# What the workbench under test sent to its front end.
sent: list = []


@pytest.fixture
def model() -> Model:
    return Model(name="net") + Linear(12) + Relu() + Linear(3)


@pytest.fixture
def wb(model, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(96, 5)).astype("float32")
    wb = ml.workbench(model, shapes={"input": [8, 5]}, data=(x, (x[:, 0] > 0).astype("int32")), epochs=2)
    sent.clear()
    monkeypatch.setattr(wb, "send", lambda content, buffers=None: sent.append((content, buffers)))
    yield wb
    wb.close()


def ask(wb, command: str, /, **args):
    """Send a command as the front end does; return the reply."""
    wb._receive(wb, {"type": "command", "id": 7, "name": command, "args": args}, [])
    assert wb._packer.wait(PATIENCE_S)
    return next(content for content, _ in reversed(sent) if content["type"] == "reply")


@pytest.mark.parametrize("name", ["model", "selection", "run"])
def test_a_trait_has_its_value_before_threads_set_it(wb, name) -> None:
    # traitlets creates a missing value on the first read, over the value that another thread has set meanwhile.
    assert wb.trait_has_value(name)


def test_stages_do_not_depend_on_who_requests_them_first(monkeypatch) -> None:
    monkeypatch.setattr("mithril_nb.ui.session.stages.StageMaker.follow", lambda maker, analysis: None)
    wb = ml.workbench(Linear(3), shapes={"input": [8, 5]})
    stage = wb.stages["jaxpr"]
    assert stage.instructions
    assert [one.id for one in stage.instructions if Path(__file__).name in str(one.source)] == []


def test_another_model_keeps_the_chosen_output_and_loss():
    wb = ml.workbench(Linear(3), shapes={"input": [8, 5]})
    wb.session.do("set_output", output="output")
    wb.session.do("set_loss", loss="mean_squared_error")
    before = wb.session.design
    wb.model = Model.of(design_of(Linear(7), None).graph, "other")
    after = wb.session.design
    assert (after.name, after.graph == before.graph) == ("other", False)
    assert (after.output, after.loss, after.shapes) == ("output", "mean_squared_error", before.shapes)
    wb.close()


def test_live_values_follow_the_widget(wb, model):
    assert wb.model == model
    assert wb.run is None
    ask(wb, "select", paths=["relu_0"])
    assert wb.selection == ("relu_0",)
    ask(wb, "add_block", kind="Gelu", after="relu_0")
    assert [node.name for node in wb.model.graph.nodes] == ["linear_0", "relu_0", "gelu_0", "linear_1"]
    assert wb.selection == ("gelu_0",)
    assert wb.cost.by_block.keys() >= {"linear_0", "relu_0", "gelu_0", "linear_1", "(loss)"}
    built: dict = {}
    exec(wb.source, built)
    assert (built["model"], built["model"].name) == (wb.model, wb.model.name)


def test_the_widget_follows_values_that_are_set(wb):
    seen = []
    wb.observe(lambda change: seen.append(change["new"]), "model")
    wb.model = Linear(4) + Gelu()
    assert next(block["kind"] for block in wb.snapshot["blocks"].values()) == "Linear"
    assert seen == [wb.model]
    wb.selection = ("linear_0",)
    assert wb.snapshot["selection"] == ["linear_0"]
    wb.do("undo")
    assert [node.block.kind for node in wb.model.graph.nodes] == ["Linear", "Relu", "Linear"]


def test_the_history_repeats_a_model_that_is_set(wb, model):
    wb.do("add_block", kind="Gelu")
    wb.model = Linear(4) + Gelu()
    wb.do("set_attribute", path="linear_0", name="dimension", value=6)
    again = Session(design_of(model, {"input": [8, 5]}), ml.JaxBackend())
    exec(wb.history.to_python(), {"wb": again})
    assert again.design == wb.session.design
    again.end()


def test_worker_does_not_undo_assignments(wb):
    with wb.hold_trait_notifications():  # the traits are set, but the session is not yet updated
        wb.model = Linear(4) + Gelu()
        wb.selection = ("gelu_0",)
        worker = threading.Thread(target=wb._on_change, args=("snapshot", wb.session.snapshot()))
        worker.start()
        worker.join(PATIENCE_S)
    assert [node.block.kind for node in wb.model.graph.nodes] == ["Linear", "Gelu"]
    assert (wb.session.model, wb.session.selection) == (wb.model, ("gelu_0",))


def test_commands_get_a_reply_and_errors_are_in_it(wb):
    assert ask(wb, "set_attribute", path="linear_0", name="dimension", value=20) == {
        "type": "reply",
        "id": 7,
        "ok": True,
        "error": None,
    }
    reply = ask(wb, "connect", source="linear_1.output", target="linear_0.input")
    assert reply["ok"] is False
    assert reply["error"]["code"] == "CycleError"
    assert reply["error"]["facts"] == [["cycle", "linear_0 -> relu_0 -> linear_1 -> linear_0"]]
    assert wb.snapshot["notice"]["summary"] == "connecting 'linear_1.output' to 'linear_0.input' closes a cycle."
    assert len(wb.errors) == 1


def test_handler_errors_are_shown_and_stored(wb, monkeypatch):
    def breaks(*_):
        raise ZeroDivisionError("of the handler's own")

    monkeypatch.setattr(wb.session, "run_command", breaks)
    wb._receive(wb, {"type": "command", "id": 1, "name": "undo", "args": {}}, [])
    assert wb.snapshot["notice"]["summary"] == "ZeroDivisionError: of the handler's own"
    assert isinstance(wb.errors[-1], ZeroDivisionError)


def test_stage_is_sent_as_gzip_on_request(wb):
    assert ask(wb, "request_stage", stage="jaxpr")["ok"]
    assert wb.session.wait(PATIENCE_S)
    ask(wb, "request_stage", stage="jaxpr")
    content, (packed,) = next(item for item in reversed(sent) if item[0]["type"] == "stage")
    data = json.loads(gzip.decompress(packed))
    stage = wb.stages["jaxpr"]
    assert (content["stage"], content["version"]) == ("jaxpr", wb.snapshot["version"])
    assert data["text"] == stage.text
    assert list(accumulate(data["columns"]["step"])) == [one.line for one in stage.instructions]
    used = {equation for group in data["tables"]["equations"] for equation in group}
    assert {equation for equation in used if not equation.startswith("arg")} == set(data["equations"]["id"])
    assert not ask(wb, "request_stage", stage="fortran")["ok"]


def test_stages_are_a_lazy_mapping(wb):
    wb.session.wait(PATIENCE_S)
    assert (next(iter(wb.stages)), len(wb.stages), "asm" in wb.stages) == ("python", 8, True)
    assert wb.stages["stablehlo"].text
    assert not wb.session.analysis.inspection.is_compiled
    assert "computed: jaxpr, stablehlo" in repr(wb.stages)
    with pytest.raises(KeyError, match="fortran"):
        wb.stages["fortran"]


def test_passes_and_diffs_are_sent_on_request(wb):
    assert ask(wb, "request_passes")["ok"]
    assert wb.session.wait(PATIENCE_S)
    assert wb.snapshot["passes"] == {"state": "ready", "message": "", "version": 1}
    assert ask(wb, "request_diff", number=0)["ok"]
    at = next(at for at, one in enumerate(wb.stages["hlo_before"].instructions) if one.opcode == "dot")
    assert ask(wb, "request_instruction_history", stage="hlo_before", index=at)["ok"]
    assert wb.session.wait(PATIENCE_S)
    content, (raw,) = next(item for item in reversed(sent) if item[0]["type"] == "diff")
    assert content == {"type": "diff", "version": 1, "number": 0, "cut": False}
    assert json.loads(gzip.decompress(raw)) == wb.session.analysis.inspection.passes[0].diff
    history = next(content for content, _ in reversed(sent) if content["type"] == "instruction_history")
    assert (history["stage"], history["index"]) == ("hlo_before", at)
    assert ask(wb, "request_instruction_history", stage="asm", index=0)["error"]["summary"] == "unknown stage 'asm'."
    assert ask(wb, "request_diff", number="a")["ok"] is False


def test_formula_message_has_terms_and_text(wb):
    assert ask(wb, "request_formula", block="linear_1")["ok"]
    assert wb.session.wait(PATIENCE_S)
    head, [buffer] = next((content, buffers) for content, buffers in sent if content["type"] == "formula")
    assert head == {"type": "formula", "block": "linear_1", "version": wb.snapshot["version"]}
    found = json.loads(gzip.decompress(buffer))
    assert found["whole"] == wb.cost.formula("linear_1")
    assert found["terms"][0]["letters"] == [["B", 1], ["M", 8], ["N", 3], ["K", 12]]
    assert found["text"].splitlines()[0] == f"linear_1: {found['whole']}"


def test_curves_are_sent_as_float64_separately(wb):
    ask(wb, "train")
    assert wb.run is not None
    wb.run.wait(PATIENCE_S)
    until(lambda: any(c["type"] == "run" and c["run"]["state"] == "done" for c, _ in sent))
    ask(wb, "request_curves")
    content, (raw,) = next(item for item in reversed(sent) if item[0]["type"] == "curves")
    assert content["from"] == 0
    columns = np.frombuffer(raw, "<f8").reshape(len(content["columns"]), -1)
    assert list(columns[0]) == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(columns[1], wb.run.history["loss"])


def test_the_large_bundle_is_sent_once_for_all_widgets(model, monkeypatch):
    monkeypatch.setattr(front_end, "is_jupyter", lambda: True)
    wb, other = ml.workbench(model), ml.workbench(model)
    assert other.assets is wb.assets is shared_assets()
    assert len(wb._esm) < 2_000 < len(wb.assets._esm) < 420_000
    assert "<script" not in json.dumps(wb.get_state(["_esm"]))


def test_a_saved_workbench_keeps_a_picture(wb):
    data, _ = wb._repr_mimebundle_()
    assert data["image/svg+xml"].startswith("<svg")
    assert "linear_0" in data["image/svg+xml"]
    assert data["text/plain"] == "Workbench of 'net': linear_0, relu_0, linear_1"


@pytest.mark.parametrize(("blocks", "is_drawn"), [(20, True), (300, False)])
def test_no_picture_is_drawn_after_each_edit_of_a_large_model(blocks, is_drawn):
    model = Model()
    for _ in range(blocks):
        model += Relu()
    wb = ml.workbench(model, shapes={"input": [2, 3]}, autosave=False)
    assert wb._quick_picture() is None, "nothing has changed"
    wb.session.do("add_block", kind="Gelu")
    assert (wb._quick_picture() is not None) == is_drawn
    wb.close()


def test_names_are_data_everywhere(model):
    hostile = "<img src=x onerror=alert(1)>\"'&/.%"
    wb = ml.workbench(Model() | Linear(3, name=hostile), shapes={"input": [2, 4]})
    assert wb.session.wait(PATIENCE_S)
    assert wb.session.errors == []
    data, _ = wb._repr_mimebundle_()
    assert "<img" not in data["image/svg+xml"]
    json.dumps(wb.snapshot)
    (path,) = wb.snapshot["blocks"]
    assert wb.snapshot["blocks"][path]["name"] == hostile
    assert {row["block"] for row in wb.snapshot["cost"]["rows"]} >= {path}
    wb.do("rename", path=path, name="plain")
    assert list(wb.snapshot["blocks"]) == ["plain"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"lr": 1}, UnknownOptionError, "workbench takes no argument 'lr'."),
        ({"program": "backward"}, UnknownOptionError, "unknown program 'backward'."),
        ({"autosave": 3}, UnknownOptionError, "cannot save edits to 3."),
        ({"backend": "torch"}, UnknownOptionError, "a workbench cannot run on 'torch'."),
        ({"optimizer": "adm"}, UnknownOptionError, "unknown optimizer 'adm'."),
        ({"learning_rate": -1}, UnknownOptionError, "the learning rate must be a finite number of at least 0."),
        ({"loss": "mse"}, UnknownOptionError, "unknown loss 'mse'."),
        ({"epochs": 0}, UnknownOptionError, "epochs must be an integer of at least 1."),
        ({"batch_size": 2.5}, UnknownOptionError, "batch_size must be an integer of at least 1."),
        ({"seed": "a"}, UnknownOptionError, "cannot use 'a' as a seed."),
        ({"metrics": ("recall",)}, UnknownOptionError, "unknown metric 'recall'."),
        ({"shapes": [32, 64]}, UnknownOptionError, "shapes must be given by name, in a dict."),
        ({"shapes": {"input": 5}}, UnknownOptionError, "5 is not a shape for input 'input'."),
        ({"shapes": {"image": [1]}}, UnexpectedInputError, "the model has no input 'image'."),
    ],
)
def test_wrong_options_are_rejected_by_name(model, options, error, text):
    with pytest.raises(error) as caught:
        ml.workbench(model, **options)
    assert str(caught.value).splitlines()[0] == text


def test_misspelt_training_option_gives_a_suggestion(model):
    with pytest.raises(UnknownOptionError) as caught:
        ml.workbench(model, epoch=3)
    assert str(caught.value) == (
        "workbench takes no argument 'epoch'.\n"
        "    takes  model, shapes, backend, program, autosave, output, device, data, loss, optimizer, learning_rate,"
        " epochs, batch_size, validation, seed, metrics, norms\n"
        "    Try: epochs=3"
    )


def test_missing_front_end_gives_build_advice(monkeypatch, tmp_path):
    monkeypatch.setattr("mithril_nb.viz.html_parts.STATIC", tmp_path)
    with pytest.raises(ml.errors.StageUnavailableError, match=r"the front end of the widgets is not built: assets\.js"):
        built("assets.js")
    shared_assets.cache_clear()
    front_end._with_bundle.cache_clear()
    with pytest.raises(ml.errors.StageUnavailableError, match=r"the front end of the widgets is not built"):
        ml.workbench()
    gc.collect()  # the incomplete widget closes without an error, which pytest would report


def test_an_empty_workbench_opens():
    wb = ml.workbench()
    assert wb.cost is None
    assert wb._repr_mimebundle_()[0]["text/plain"] == "Workbench: no block yet"


def test_run_can_be_watched_and_controlled(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype("float32")
    run = ml.fit(MLP(4, [8], 2), (x, (x[:, 0] > 0).astype("int32")), epochs=100_000)
    live = ml.watch(run)
    told = []
    monkeypatch.setattr(live, "send", lambda content, buffers=None: told.append(content))
    run.start()
    until(lambda: live.run.get("points", 0) > 3)
    live._receive(live, {"type": "command", "id": 1, "name": "stop", "args": {}}, [])
    until(lambda: live.run["state"] == "stopped")
    live._receive(live, {"type": "command", "id": 2, "name": "explode", "args": {}}, [])
    assert told[-1]["ok"] is False
    assert told[-1]["error"]["summary"] == "unknown command 'explode'."
    live.close()
    with pytest.raises(UnknownOptionError, match="cannot watch 3"):
        ml.watch(3)  # pyright: ignore[reportArgumentType]


def test_no_assignment_is_lost_while_the_worker_publishes(wb):
    stop = threading.Event()

    def publish():
        while not stop.is_set():
            wb.session.select(["relu_0"])

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for width in range(4, 34):
            wb.model = Linear(width) + Relu()
            assert wb.session.model.graph.by_name["linear_0"].block.options["dimension"] == width
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("name", ["half \ud800/é", "\udc80"])
def test_names_with_half_a_surrogate_pair_are_shown(name):
    model = Model(name) | Linear(3, name=name)(input=name)
    widget = ml.workbench(model, shapes={name: [2, 4]}, autosave=False)
    sent = []
    widget.comm.send = lambda data=None, **_: sent.append(data)
    widget.session.do("rename", path=model.find("kind:Linear").blocks[0], name=f"{name}2")
    widget.send_state()
    assert sent
    for shown in (widget._repr_mimebundle_(), widget.get_state(), model._repr_mimebundle_(), *sent):
        json.dumps(shown, ensure_ascii=False, default=repr).encode()
    widget.close()
