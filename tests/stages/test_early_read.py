"""A module read while XLA compiles equals the module read afterwards; if it cannot be read early, it is read late."""

from __future__ import annotations

import threading
import time
import weakref

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec

from mithril_nb.cost.hlo.instruction_costs import hlo_costs
from mithril_nb.inspection import Inspection, inspect
from mithril_nb.stages.hlo.text import fingerprint
from mithril_nb.stages.records import Stage
from mithril_nb.stages.xla.compilation import EarlyRead
from mithril_nb.stages.xla.passes import files_of_passes


def program(x, w):
    with jax.named_scope("net"):
        return jax.grad(lambda x: jnp.tanh(x @ w @ w).sum())(x)


def look() -> Inspection:
    return inspect(program, spec(8, 8), spec(8, 8))


@pytest.fixture
def reading_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read even a small program early: make XLA wait for the reader."""
    monkeypatch.setattr(
        EarlyRead, "__exit__", lambda self, *_: self._over.set() if self._thread.join(60) is None else None
    )


def everything(inspection: Inspection) -> list[object]:
    histories = inspection._pipeline.compilation.histories.get()
    hlo = inspection.stage("hlo")
    return [
        hlo.text, hlo.instructions, [(one.name, one.pipeline, one.after) for one in inspection.passes],
        {name: one.number for name, one in histories.appeared.items()},
        {name: one.number for name, one in histories.vanished.items()},
    ]  # fmt: skip


@pytest.fixture
def afterwards(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    with monkeypatch.context() as patch:
        patch.setattr(EarlyRead, "_run", lambda self: None)
        inspection = look()
        found = everything(inspection)
        assert inspection._pipeline.compilation._early_module() is None
    return found


@pytest.mark.usefixtures("reading_at_once")
def test_early_read_equals_late_read(afterwards: list[object]) -> None:
    inspection = look()
    assert everything(inspection) == afterwards
    decided = inspection._pipeline.compilation._early_module()
    assert decided is not None
    assert inspection.stage("hlo").instructions is decided.hlo[1]
    assert inspection.passes is decided.passes


@pytest.mark.usefixtures("reading_at_once")
def test_later_changes_of_the_module_are_used(afterwards, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(9))
    monkeypatch.setattr("mithril_nb.stages.xla.compilation.fingerprint", lambda text: bytes([next(numbers)]))
    inspection = look()
    assert everything(inspection) == afterwards
    decided = inspection._pipeline.compilation._early_module()
    assert decided is not None
    assert inspection.stage("hlo").instructions is not decided.hlo[1]


@pytest.mark.usefixtures("reading_at_once")
@pytest.mark.parametrize("changes_later", [False, True])
def test_costs_are_recounted_if_the_module_changes_later(changes_later, monkeypatch) -> None:
    counted: list[str] = []

    def count(stage: Stage, *args: object) -> object:
        counted.append(stage.name)
        return hlo_costs(stage, *args)

    monkeypatch.setattr("mithril_nb.cost.counting.hlo_costs", count)
    if changes_later:
        numbers = iter(range(9))
        monkeypatch.setattr("mithril_nb.stages.xla.compilation.fingerprint", lambda text: bytes([next(numbers)]))
    found = look().costs()
    assert counted == ["hlo_before", "hlo", *(["hlo"] if changes_later else [])]
    assert found["compiled"] == look().cost("compiled")


@pytest.mark.usefixtures("reading_at_once")
def test_helper_module_is_not_mistaken_for_the_program(monkeypatch) -> None:
    inspection = look()
    compilation = inspection._pipeline.compilation
    dump = compilation.dump.get()
    assert compilation._early_module() is not None
    dump._prefix = "module_0009.other"
    assert compilation._early_module() is None


@pytest.mark.usefixtures("reading_at_once")
def test_error_of_an_early_read_is_raised_on_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("text of a newer XLA")

    monkeypatch.setattr("mithril_nb.stages.pipeline.read_hlo", fail)
    inspection = look()
    assert inspection.compiled is not None
    assert "text of a newer XLA" in str(inspection.stage("hlo").unavailable)


def test_failed_compilation_leaves_no_thread() -> None:
    with pytest.raises(RuntimeError, match="out of memory"), EarlyRead(lambda: None) as ahead:
        raise RuntimeError("out of memory")
    deadline = time.monotonic() + 10
    while any("early read" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ahead.get() is None


def test_early_read_releases_the_program() -> None:
    class Kept:
        def make(self) -> int:
            return 1

    kept = Kept()
    gone = weakref.ref(kept)
    with EarlyRead(kept.make) as ahead:
        assert ahead.get() == 1
    del kept
    assert gone() is None


def test_fingerprints_of_different_modules_differ() -> None:
    text = '  %a = f32[] add(%b, %c), backend_config={"x":{"y":1},"z":2}\n'
    assert fingerprint(text) == fingerprint(text.replace('"x":{"y":1},"z":2', '"z":2,"x":{"y":1}'))
    assert fingerprint(text) != fingerprint(text.replace("add(%b", "add(%d"))
    assert fingerprint(text) != fingerprint(text.replace(":2", ":3"))
    assert fingerprint(text.replace(":2", ":12")) != fingerprint(text.replace(":2", ":21"))
    assert fingerprint(f'{text}op_name="ab"') != fingerprint(f'{text}op_name="ba"')
    assert fingerprint("backend_config={no json}") != fingerprint("backend_config={json no}")


def test_program_is_read_late_without_threads(afterwards, monkeypatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert everything(look()) == afterwards


@pytest.mark.usefixtures("reading_at_once")
def test_passes_written_later_are_included() -> None:
    inspection = look()
    compilation = inspection._pipeline.compilation
    compilation.want(passes=True)
    dump = compilation.dump.get()
    names = files_of_passes(dump)
    last = dump.path(names[-1], "txt").read_text()
    dump.path(f"{len(names) + 50:04d}.later.after_late-pass.before_end", "txt").write_text(
        last.replace(" tanh(", " negate(")
    )
    assert compilation._early_module() is None
    assert inspection.passes[-1].name == "late-pass"
