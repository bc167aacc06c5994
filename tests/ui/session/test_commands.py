"""Invalid commands of a page give a clear error and change nothing."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from sessions import session_of

from mithril_nb.errors import MithrilError, UnknownOptionError
from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.targets import inspect
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.exploring import Exploration

PATIENCE_S = 60.0
EXAMPLES: dict[str, dict[str, Any]] = {
    "add_block": {"kind": "Linear", "after": "linear_0"},
    "apply_what_if": {"changes": [["linear_0", "dimension", 512], ["", "batch", 64]]},
    "choose_device": {"device": "cpu"},
    "collapse": {"path": "mlp_0"},
    "connect": {"source": "linear_0.output", "target": "relu_0.input"},
    "delete_block": {"kind": "my_blocks/stem.json"},
    "disconnect": {"source": "linear_0.output", "target": "relu_0.input"},
    "expand": {"path": "mlp_0"},
    "duplicate": {"paths": ["linear_0"]},
    "expose": {"source": "linear_0.output"},
    "group": {"paths": ["linear_0", "relu_0"], "name": "stem"},
    "hide_output": {"output": "output"},
    "insert": {"path": "relu_0", "source": "linear_0.output", "target": "mlp_0.input"},
    "leave_stage": {"stage": "jaxpr"},
    "move": {"places": [["linear_0", 40, 120]]},
    "open_link": {"link": "#model=..."},
    "paste": {"text": "Linear(64)"},
    "place_block": {"kind": "Linear", "attributes": {"dimension": 8}},
    "reconnect": {"source": "linear_0.output", "target": "relu_0.input", "to": "mlp_0.input"},
    "remove": {"paths": ["linear_0"]},
    "rename": {"path": "linear_0", "name": "encoder"},
    "rename_input": {"input": "input", "name": "x"},
    "rename_output": {"output": "output", "name": "y"},
    "repeat": {"path": "linear_0", "count": 2},
    "replace_block": {"path": "relu_0", "kind": "Tanh"},
    "request_cost": {"source": "compiled"},
    "request_cost_picture": {"key": "map", "view": "treemap", "sources": ["analytic"]},
    "request_cost_rows": {"source": "analytic", "block": "linear_0", "figure": "flops"},
    "request_diff": {"number": 0},
    "request_explanation": {"stage": "jaxpr", "index": 0},
    "request_export": {"format": "html"},
    "request_fits": {"source": "linear_0.output"},
    "request_formula": {"block": "linear_0"},
    "request_instruction_history": {"stage": "hlo", "index": 0},
    "request_preview": {"key": "relu", "edit": "add_block", "args": {"kind": "Relu"}},
    "request_stage": {"stage": "jaxpr"},
    "request_value": {"block": "linear_0"},
    "request_parameters": {"names": ["linear_0.weight"]},
    "search_passes": {"text": "fusion"},
    "select": {"paths": ["linear_0"]},
    "save_block": {"path": "linear_0", "name": "stem"},
    "set_attribute": {"path": "linear_0", "name": "dimension", "value": 64},
    "set_learning_rate": {"value": 0.001},
    "set_loss": {"loss": "mean_squared_error"},
    "set_order": {"names": ["input"]},
    "set_output": {"output": "logits"},
    "set_program": {"program": "train step"},
    "set_source": {"text": "model = Linear(3)"},
    "set_training": {"name": "epochs", "value": 3},
    "set_initializer": {"parameter": "linear_0.weight", "initializer": "normal(0.02)"},
    "set_dtype": {"name": "input", "dtype": "bfloat16"},
    "set_trainable": {"names": ["linear_0"], "is_trainable": False},
    "set_shape": {"name": "input", "shape": ["batch", 64]},
    "share": {"source": "linear_0.weight", "target": "mlp_0/linear_0.weight"},
    "show_ports": {"paths": ["linear_0"], "is_shown": True},
    "show_overlay": {"name": "flops", "own": False},
    "ungroup": {"path": "mlp_0"},
    "unshare": {"target": "linear_0.weight"},
    "what_if": {"key": "wider", "changes": [["linear_0", "dimension", 512], ["", "batch", 64]]},
    "use_data_of": {"template": "mlp"},
}
NONSENSE = (None, 3, 2.5, math.nan, True, "x", b"x", [], {}, [1], [[1]], ["x", None], 10**400, object())


@pytest.fixture
def session(tmp_path, monkeypatch) -> Session:
    monkeypatch.chdir(tmp_path)  # *My blocks* are saved in the working directory
    model = Model() + Linear(8) + Relu() + MLP(8, [4], 2)
    return session_of(model, {"input": [4, 3]})


def commands_of(session: Session) -> list[str]:
    return [*session._commands()]


@pytest.mark.parametrize(
    ("command", "args", "text"),
    [
        (
            "select",
            {"paths": 3},
            "command 'select' failed: paths=3 is not a list of strings.\n"
            "    given  paths=3\n"
            "    takes  paths: a list of strings\n"
            '    Try: wb.do("select", paths=...)',
        ),
        (
            "select",
            {"paths": "linear_0"},
            "command 'select' failed: paths='linear_0' is not a list of strings.\n"
            "    given  paths='linear_0'\n"
            "    takes  paths: a list of strings\n"
            '    Try: wb.do("select", paths=...)',
        ),
        (
            "add_block",
            {"kind": ["Relu"], "after": 3},
            "command 'add_block' failed: kind=['Relu'] is not a string; after=3 is not a string or None.\n"
            "    given  kind=['Relu'], after=3\n"
            "    takes  kind: a string; after: a string or None\n"
            '    Try: wb.do("add_block", kind=...)',
        ),
        (
            "connect",
            {"source": None, "target": "relu_0.input"},
            "command 'connect' failed: source=None is not a string.\n"
            "    given  source=None, target='relu_0.input'\n"
            "    takes  source: a string; target: a string\n"
            '    Try: wb.do("connect", source=..., target=...)',
        ),
        (
            "request_diff",
            {"number": "x"},
            "command 'request_diff' failed: number='x' is not an integer.\n"
            "    given  number='x'\n"
            "    takes  number: an integer\n"
            '    Try: wb.do("request_diff", number=...)',
        ),
        (
            "apply_what_if",
            {"changes": None},
            "command 'apply_what_if' failed: changes=None is not a list of lists.\n"
            "    given  changes=None\n"
            "    takes  changes: a list of lists\n"
            '    Try: wb.do("apply_what_if", changes=...)',
        ),
        (
            "what_if",
            {"key": "k", "changes": [], "compile": 1, "width": math.nan},
            "command 'what_if' failed: compile=1 is not True or False; width=nan is not a number.\n"
            "    given  key='k', changes=[], compile=1, width=nan\n"
            "    takes  key: a string; changes: a list of lists; figure: a string; compile: True or False; "
            "width: a number\n"
            '    Try: wb.do("what_if", key=..., changes=...)',
        ),
        (
            "expand",
            {"path": ["a" * 99]},
            f"command 'expand' failed: path=['{'a' * 58}… is not a string.\n"
            f"    given  path=['{'a' * 58}…\n"
            "    takes  path: a string\n"
            '    Try: wb.do("expand", path=...)',
        ),
    ],
)
def test_wrong_types_are_reported_by_name(session, command, args, text):
    before = session.design
    with pytest.raises(UnknownOptionError) as caught:
        session.do(command, **args)
    assert str(caught.value) == text
    assert session.design is before
    assert str(session.run_command(command, args)) == text


def test_every_command_rejects_invalid_arguments(session):
    for command in commands_of(session):
        given = EXAMPLES.get(command, {})
        for name in given:
            for nonsense in NONSENSE:
                before = session.design
                try:
                    session.do(command, **{**given, name: nonsense})
                except MithrilError:
                    assert session.design is before
                else:
                    session.set_design(before)
    assert session.wait(PATIENCE_S)
    assert session.errors == []
    assert session.run_command("undo", {}) is None


def test_every_command_accepts_its_example(session):
    for command in commands_of(session):
        said = str(session.run_command(command, EXAMPLES.get(command, {})))
        assert "failed:" not in said, command  # but that there is no run, no such block, or no pass was read
    assert session.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("command", "args", "text"),
    [
        (
            "open_node",
            {"key": ["a"]},
            "command 'open_node' failed: key=['a'] is not a string.\n"
            "    given  key=['a']\n    takes  key: a string\n"
            '    Try: wb.do("open_node", key=...)',
        ),
        (
            "request_stage",
            {},
            "command 'request_stage' failed: missing a required argument: 'stage'.\n"
            "    given  nothing\n"
            "    takes  stage: a string\n"
            '    Try: wb.do("request_stage", stage=...)',
        ),
        (
            "dismiss",
            {"x": 1},
            "command 'dismiss' failed: got an unexpected keyword argument 'x'.\n"
            "    given  x=1\n    takes  nothing\n"
            '    Try: wb.do("dismiss")',
        ),
    ],
)
def test_explorer_reports_the_same(command, args, text):
    exploration = Exploration(inspect(jnp.sin, jax.ShapeDtypeStruct((3,), "float32")))
    assert str(exploration.run_command(command, args)) == text
