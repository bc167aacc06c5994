"""The explorer without a browser: its messages, its saved state, and its static output."""

from __future__ import annotations

import functools
import gzip
import json
import threading
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_programs import spec
from waiting import PATIENCE_S

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError
from mithril_nb.targets import inspect
from mithril_nb.ui.widgets import Explorer, explore, session_widget


def scaled(weight: Any, x: Any) -> Any:
    with jax.named_scope("scale"):
        return jnp.tanh(x @ weight) * 2 + 1


class Page:
    """The page of an explorer: sends commands and stores messages."""

    def __init__(self, explorer: Explorer):
        self.explorer = explorer
        self.got: list[tuple[dict[str, Any], list[bytes] | None]] = []
        explorer.send = lambda content, buffers=None: self.got.append((content, buffers))  # type: ignore[method-assign]

    def ask(self, name: str, **args: Any) -> dict[str, Any]:
        self.explorer._receive(self.explorer, {"type": "command", "id": 7, "name": name, "args": args}, [])
        assert self.explorer._packer.wait(PATIENCE_S)
        return next(content for content, _ in reversed(self.got) if content["type"] == "reply")

    def latest(self, type: str) -> tuple[dict[str, Any], Any]:
        content, buffers = next(item for item in reversed(self.got) if item[0]["type"] == type)
        (raw,) = buffers or [b"null"]
        return content, json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


@pytest.fixture(scope="module")
def page() -> Page:
    page = Page(explore(scaled, spec(5, 6), spec(2, 5)))
    page.explorer.session.start()
    assert page.explorer.session.wait(PATIENCE_S)
    return page


def test_nothing_is_traced_before_it_is_shown() -> None:
    explorer = explore(scaled, spec(5, 6), spec(2, 5))
    assert repr(explorer) == "Explorer(Inspection('scaled', computed: none yet))"
    inspection = inspect(scaled, spec(5, 6), spec(2, 5))
    assert explore(inspection).inspection is inspection
    with pytest.raises(UnknownOptionError, match="cannot inspect 3"):
        explore(3)


def test_stage_message_has_all_instructions(page: Page) -> None:
    for name in ("jaxpr", "stablehlo"):
        assert page.ask("request_stage", stage=name)["ok"]
        content, data = page.latest("stage")
        stage = page.explorer.stages[name]
        assert content == {"type": "stage", "stage": name, "version": 1, "short": False}
        assert data["text"] == stage.text
        columns, tables = data["columns"], data["tables"]
        lines = list(accumulate(columns["step"]))
        for at, one in enumerate(stage.instructions):
            told = {key: tables[key][columns[key][at]] for key in tables}
            assert (lines[at], columns["lines"][at]) == (one.line, one.lines)
            if name == "jaxpr":  # for searches
                assert told.pop("dtypes") == list(dict.fromkeys(spec.dtype for spec in one.shapes))
                assert told.pop("memory") == sum(spec.size * 4 for spec in one.shapes)
                assert {told.pop("flops"), told.pop("bytes")} != {None} or one.opcode in ("parameter", "jit")
            assert told == {
                "opcode": one.opcode, "equations": list(one.equations), "shares": [list(pair) for pair in one.shares],
                "role": one.role, "origin": one.origin, "transforms": list(one.transforms),
                "source": list(one.source), "library": list(one.library_source),
            }  # fmt: skip
        assert dict(data["help"])[next(one for one in tables["opcode"] if "tanh" in one)]
    assert not page.ask("request_stage", stage="fortran")["ok"]
    page.explorer.errors.clear()


def test_reloaded_page_receives_initial_data(page: Page) -> None:
    assert page.ask("hello")["ok"]
    content, data = page.latest("graph")
    assert content["stage"] == "jaxpr"
    assert data["boxes"]["key"]
    assert set(data["opened"]) <= set(data["boxes"]["key"])
    page.ask("request_passes")
    assert page.explorer.session.wait(PATIENCE_S)
    page.got.clear()
    page.ask("hello")
    content, rows = page.latest("passes")
    assert content == {"type": "passes", "version": 1, "number": 0}
    assert page.explorer.session.wait(PATIENCE_S)
    assert page.latest("diff")[0]["number"] == 0
    assert [row[1] for row in rows] == [one.name for one in page.explorer.inspection.passes]


def test_short_hlo_has_the_same_instructions(page: Page) -> None:
    page.ask("request_stage", stage="hlo")
    assert page.explorer.session.wait(PATIENCE_S)
    page.ask("request_stage", stage="hlo")
    _, whole = page.latest("stage")
    assert page.ask("request_stage", stage="hlo", short=True)["ok"]
    content, short = page.latest("stage")
    assert content["short"]
    assert short["columns"] == whole["columns"]
    assert len(short["text"]) < 0.5 * len(whole["text"])
    lines = short["text"].split("\n")
    instructions = page.explorer.stages["hlo"].instructions
    seen = set()
    for line, places in zip(short["shown"]["line"], short["shown"]["instructions"], strict=True):
        assert 1 <= line <= len(lines)
        seen.update(places)
        assert all(0 <= at < len(instructions) for at in places)
    tanh = next(at for at, one in enumerate(instructions) if one.opcode == "tanh")
    assert tanh in seen


def test_other_messages_are_answered_while_a_text_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(explore(scaled, spec(5, 6), spec(2, 5)))
    page.explorer.session.start()
    assert page.explorer.session.wait(PATIENCE_S)
    packs, goes_on, packed = threading.Event(), threading.Event(), []

    def pack(stage: str, version: int, inspection: Any, *, short: bool) -> Any:
        packs.set()
        assert goes_on.wait(PATIENCE_S)
        packed.append((stage, short))
        if short:
            raise ValueError("no text in short")
        return {"type": "stage", "stage": stage}, []

    def send(id: int, name: str, **args: Any) -> None:
        page.explorer._receive(page.explorer, {"type": "command", "id": id, "name": name, "args": args}, [])

    def replies() -> list[tuple[int, bool]]:
        return [(content["id"], content["ok"]) for content, _ in page.got if content["type"] == "reply"]

    monkeypatch.setattr(session_widget, "stage_message", pack)
    send(1, "request_stage", stage="jaxpr")
    assert packs.wait(PATIENCE_S)
    send(2, "request_stage", stage="stablehlo")
    send(3, "request_stage", stage="jaxpr")
    send(4, "dismiss")
    send(5, "request_stage", stage="stablehlo", short=True)
    assert replies() == [(4, True), (2, True)], "the later request for a stage wins"
    goes_on.set()
    assert page.explorer._packer.wait(PATIENCE_S)
    assert packed == [("jaxpr", False), ("jaxpr", False), ("stablehlo", True)]
    assert replies()[2:] == [(1, True), (3, True), (5, False)]
    assert [str(error) for error in page.explorer.errors] == ["no text in short"]


def test_transforms_have_a_mark_on_each_equation() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.sin(w @ x))

    page = Page(explore(loss, spec(4, 3), spec(3), through=("grad", ("vmap", 2))))
    assert page.ask("hello")["ok"]
    content, (first, grad, vmap) = page.latest("transforms")
    assert content == {"type": "transforms", "left_out": []}
    assert (first["name"], first["before"], first["after"]["marks"]) == ("trace", None, [])
    assert grad["before"]["text"] == first["after"]["text"]
    lines = grad["after"]["text"].split("\n")
    told = [
        (lines[line - 1].split("= ")[1].split("[")[0].split(" ")[0], *rest) for line, *rest in grad["after"]["marks"]
    ]
    assert told[:2] == [("dot_general", "0", "kept", ["0"], "", False), ("sin", "1", "kept", ["1"], "", False)]
    assert ("cos", "2", "new", ["1"]) in [one[:4] for one in told]
    assert next(others for _, id, _, others, _, _ in grad["before"]["marks"] if id == "1") == ["1", "2", "5"]
    assert next(mark[4] for mark in vmap["before"]["marks"]) == "adds a batch axis of 2"
    assert page.explorer.snapshot["transforms"]["state"] == "empty"
    data, _ = page.explorer._repr_mimebundle_()
    assert 'class="cost"' in data["text/html"], "with no kernel the costs are a table"
    assert "for the backward pass" in data["text/html"]
    assert "for the backward pass" in data["text/plain"]


def power(x: Any, n: int, scale: Any = 1.0, *, kind: str = "sin") -> Any:
    return (getattr(jnp, kind)(x) ** n * scale).sum() if n > 1 else x.sum()


@pytest.mark.parametrize(
    ("fn", "args", "options"),
    [
        (power, (2,), {"static_argnums": 1}),
        (power, (2,), {"static_argnames": "n"}),
        (power, (), {"n": 2, "static_argnames": ("n",)}),
        (power, (), {"kwargs": {"n": 2, "kind": "sin"}, "static_argnames": "n"}),
        (functools.partial(power, scale=1.0), (2,), {"static_argnames": "n"}),
        (jax.jit(power, static_argnames=("n", "kind")), (2,), {"kind": "sin"}),
        (ml.watch(jax.jit(power, static_argnums=1)), (2,), {}),
    ],
)
def test_transforms_of_a_call_have_its_static_arguments(fn: Any, args: Any, options: dict[str, Any]) -> None:
    steps = explore(fn, jnp.ones(3), *args, **options, through=("grad", "jit")).session.transforms.steps
    wanted = ml.step_through(lambda x: power(x, 2), jnp.ones(3), through=("grad", "jit"))
    assert (steps.problem, steps.name) == (None, "power")
    texts = [one.after.text.replace("<lambda>", "power") for one in wanted]
    assert [one.after.text for one in steps] == texts
    assert [one.agrees for one in steps.check()] == [True] * 3


def test_transforms_of_a_call_have_its_arrays_by_name() -> None:
    steps = explore(scaled, spec(5, 6), x=spec(2, 5), name="net", through=("sum", "grad")).session.transforms.steps
    wanted = ml.step_through(scaled, spec(5, 6), spec(2, 5), through=("sum", "grad"))
    assert [one.after.text for one in steps] == [one.after.text for one in wanted]


def test_transforms_are_compared_on_given_arrays() -> None:
    seen: list[list[float]] = []

    def watched(x: Any) -> Any:
        jax.debug.callback(lambda x: seen.append(x.tolist()), x)
        return (x**2).sum()

    steps = explore(watched, np.array([3.0, 5.0], "float32"), through=("jit",)).session.transforms.steps
    assert [one.agrees for one in steps.check()] == [True, True]
    assert {tuple(one) for one in seen} == {(3.0, 5.0)}


def test_rejected_transform_lists_skipped_ones() -> None:
    page = Page(explore(jnp.sin, spec(3), through=("grad", "jit")))
    page.ask("hello")
    content, steps = page.latest("transforms")
    assert content["left_out"] == ["jit"]
    assert steps[1]["after"] is None
    assert steps[1]["problem"]["summary"] == "step 1 of 'sin', 'grad', cannot be applied."


def test_unsteppable_targets_are_rejected() -> None:
    with pytest.raises(UnknownOptionError) as caught:
        explore(inspect(scaled, spec(5, 6), spec(2, 5)), through=("grad",))
    assert str(caught.value) == (
        "cannot step through transforms of Inspection('scaled', computed: none yet).\n"
        "    needs  a function and its arguments\n"
        '    Try: ml.explore(fn, *args, through=("grad",))'
    )
    with pytest.raises(UnknownOptionError, match="step_through has no transform 'gradient'"):
        explore(scaled, spec(5, 6), spec(2, 5), through=("gradient",))


def test_saved_state_is_small_without_texts(page: Page) -> None:
    kept = json.dumps(page.explorer.snapshot)
    assert len(kept) < 20_000
    assert "lambda" not in kept
    assert "stablehlo." not in kept


def test_static_picture_without_a_widget(page: Page) -> None:
    data, _ = page.explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "scale" in data["text/html"]
    assert data["text/plain"].startswith("program 'scaled'") or "scaled" in data["text/plain"]
