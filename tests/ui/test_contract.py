"""The types of messages on the page are those of the kernel, and the messages have these types."""

from __future__ import annotations

import gzip
import json
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import pytest
from sessions import session_of

from mithril_nb.figures import FIGURES
from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.stages.transforms.stepping import step_through
from mithril_nb.targets import inspect
from mithril_nb.ui.session import Session
from mithril_nb.ui.session.commands import Reply
from mithril_nb.ui.session.exploring import Exploration
from mithril_nb.ui.session.snapshot import ExplorerSnapshot, WorkbenchSnapshot
from mithril_nb.ui.widgets.protocol import MESSAGES, stage_message, transforms_message
from tools import contract

PATIENCE_S = 60.0


def test_the_page_has_the_types_of_the_kernel() -> None:
    assert contract.FILE.read_text(encoding="utf-8") == contract.contract(), "run python -m tools.contract"


def misfits(value: Any, hint: Any, path: str = "") -> list[str]:
    """Return the places where JSON-able data do not have a type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return []
    if is_typeddict(hint) or is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        if not isinstance(value, dict):
            return [f"{path}: {value!r} is not {hint.__name__}"]
        figures = contract.WITH_FIGURES.get(hint.__name__, "") and FIGURES
        required = {name for name, part in hints.items() if get_origin(part) is not NotRequired}
        found = [f"{path}.{name}: missing" for name in sorted(required - value.keys())]
        found += [f"{path}.{name}: unknown" for name in value if name not in hints and name not in figures]
        for name, part in hints.items():
            if name in value:
                part = get_args(part)[0] if get_origin(part) is NotRequired else part
                found += misfits(value[name], part, f"{path}.{name}")
        return found
    if origin in (Union, UnionType):
        tries = [misfits(value, part, path) for part in args]
        return [] if [] in tries else min(tries, key=len)
    if origin is Literal:
        return [] if value in args else [f"{path}: {value!r}"]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{path}: {value!r} is no dict"]
        return [fault for key, part in value.items() for fault in misfits(part, args[1], f"{path}[{key}]")]
    if origin in (list, tuple):
        if not isinstance(value, list):
            return [f"{path}: {value!r} is no list"]
        parts = [args[0]] * len(value) if origin is list or args[-1] is ... else args
        if len(parts) != len(value):
            return [f"{path}: {value!r} has another length"]
        return [fault for at, part in enumerate(value) for fault in misfits(part, parts[at], f"{path}[{at}]")]
    if hint is float:
        return [] if isinstance(value, int | float) and not isinstance(value, bool) else [f"{path}: {value!r}"]
    fits = value is None if hint is NoneType else type(value) is hint
    return [] if fits else [f"{path}: {value!r} is no {hint}"]


def as_json(data: Any) -> Any:
    return json.loads(json.dumps(data))


def check(kind: str, head: Any, data: Any) -> None:
    head_type, data_type = MESSAGES[kind]
    assert misfits(as_json(dict(head)), head_type, kind) == []
    if data_type is None:
        assert data is None
    elif data is not None:
        assert misfits(as_json(data), data_type, f"{kind} data") == []


@pytest.fixture
def session() -> Session:
    model = Model() + Linear(8) + Relu() + MLP(8, [4], 2)
    data = np.ones((8, 3), "float32"), np.zeros(8, "int32")
    return session_of(model, {"input": [4, 3]}, data=data, epochs=1, batch_size=4)


def follow(session: Session | Exploration) -> dict[str, Any]:
    """Check everything that a session sends, and return the latest of each kind."""
    sent: dict[str, Any] = {}
    snapshots = WorkbenchSnapshot if isinstance(session, Session) else ExplorerSnapshot

    def listen(kind: str, value: Any) -> None:
        sent[kind] = value
        if kind == "snapshot":
            assert misfits(as_json(value), snapshots, "snapshot") == []
        elif isinstance(value, Reply):
            check(kind, value.head, value.data)
        elif kind == "run":
            check(kind, {"run": value}, None)

    session.listen(listen)
    return sent


COMMON = (
    ("request_passes", {}),
    ("request_cost", {"source": "lowered"}),
    ("request_cost_rows", {"source": "analytic", "block": "linear_0"}),
    ("request_cost_picture", {"key": "k", "view": "treemap", "sources": ["analytic"]}),
    ("request_formula", {"block": "linear_0"}),
    ("request_settings", {}),
    ("what_if", {"key": "k", "changes": [["", "batch", 8]]}),
    ("show_overlay", {"name": "flops"}),
    ("request_export", {"format": "html"}),
)
AFTER_PASSES = (
    ("search_passes", {"text": "fusion"}),
    ("request_diff", {"number": 0}),
    ("request_instruction_history", {"stage": "hlo", "index": 0}),
    ("request_explanation", {"stage": "jaxpr", "index": 0}),
)


@pytest.mark.parametrize("kind", ["workbench", "explorer"])
def test_messages_have_their_types(session: Session, kind: str) -> None:
    shown: Session | Exploration = session
    if kind == "explorer":
        shown = Exploration(inspect(MLP(8, [4], 2), shapes={"input": [4, 8]}))
    sent = follow(shown)
    if isinstance(shown, Exploration):
        shown.start()  # afterwards: its threads may draw the graph before a late listener hears of it
    for commands in (COMMON, AFTER_PASSES):
        for name, args in commands:
            shown.run_command(name, args)
        assert shown.wait(PATIENCE_S)
    if kind == "workbench":
        session.run_command("train", {})
        assert session.training.run is not None
        session.training.run.wait(PATIENCE_S)
        session.run_command("set_attribute", {"path": "linear_0", "name": "dimension", "value": -1})
    expected = {
        "passes",
        "diff",
        "pass_matches",
        "instruction_history",
        "explanation",
        "cost",
        "cost_rows",
        "cost_picture",
    }
    expected |= {"formula", "what_if", "overlay", "export", "snapshot"}
    expected |= {"run", "curves"} if kind == "workbench" else {"graph", "graph_shares"}
    assert sorted(expected - sent.keys()) == []
    head, [buffer] = stage_message("jaxpr", *(shown.stage("jaxpr") or (0, None)))
    assert head.pop("type") == "stage"
    check("stage", head, json.loads(gzip.decompress(buffer)))


def test_steps_of_transforms_have_their_types() -> None:
    steps = step_through(lambda x: (x * x).sum(), np.ones(3), through=("grad", ("vmap", 2)))
    head, [buffer] = transforms_message(steps)
    assert head.pop("type") == "transforms"
    check("transforms", head, json.loads(gzip.decompress(buffer)))
