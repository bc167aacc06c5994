"""The device of a session: another one and back, its costs, and a compiler that is missing."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec
from waiting import PATIENCE_S, until

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import DeviceNotFoundError, UnavailableBackendError, UnknownOptionError
from mithril_nb.hardware import as_device, compiler_of
from mithril_nb.hardware.compilers import Compiler
from mithril_nb.models import MLP
from mithril_nb.targets import inspect
from mithril_nb.ui.session import Session, design_of
from mithril_nb.ui.session.exploring import Exploration


def two_layers(w: Any, x: Any) -> Any:
    with jax.named_scope("up"):
        x = jnp.tanh(x @ w)
    with jax.named_scope("down"):
        return x @ w.T


def explore(**options: Any) -> Exploration:
    exploration = Exploration(inspect(two_layers, spec(256, 512), spec(64, 256), **options))
    exploration.start()
    assert exploration.wait(PATIENCE_S)
    return exploration


def work(**options: Any) -> Session:
    session = Session(design_of(MLP(64, [32], 10), {"input": [32, 64]}), JaxBackend(), **options)
    assert session.wait(PATIENCE_S)
    return session


def do(session: Any, command: str, **args: Any) -> None:
    session.do(command, **args)
    assert session.wait(PATIENCE_S)


@pytest.fixture(params=[explore, work])
def session(request, compilers):
    session = request.param()
    do(session, "request_stage", stage="hlo")
    yield session
    session.end()


def test_another_device_and_back(session) -> None:
    before = {name: session.stage(name)[1].stage(name).text for name in ("jaxpr", "hlo")}
    version = session.snapshot()["version"]
    do(session, "request_stage", stage="asm")
    start = time.monotonic()
    session.do("choose_device", device="v5e")
    assert time.monotonic() - start < 1, "the kernel waited for the compiler"
    now = session.snapshot()
    assert now["device"]["name"] == "v5e"
    assert now["device"]["is_compiling"]
    assert now["stages"]["hlo"]["state"] == "loading"
    assert session.wait(PATIENCE_S)
    now = session.snapshot()
    assert now["version"] > version
    assert not now["device"]["is_compiling"]
    assert "v5e: fits in 16 GiB: yes" in now["device"]["facts"][0]
    assert "T(8,128)" in session.stage("hlo")[1].stage("hlo").text
    assert session.stage("jaxpr")[1].stage("jaxpr").text == before["jaxpr"]
    # What the device lacks has the reason.
    assert now["stages"]["asm"]["state"] == "unavailable"
    assert now["stages"]["asm"]["message"].startswith("the compiler for TPUs writes no files")
    do(session, "request_passes")
    assert "TPUs writes no files" in session.snapshot()["passes"]["message"]
    do(session, "request_cost", source="predicted")
    assert session.snapshot()["costs"]["sources"]["predicted"]["state"] == "ready"

    compiled = session.costs._program().local().elapsed
    do(session, "choose_device", device="cpu")
    now = session.snapshot()
    assert session.stage("hlo")[0] == now["version"]
    assert session.stage("hlo")[1].stage("hlo").text == before["hlo"]
    assert session.stage("hlo")[1].elapsed == compiled
    do(session, "request_cost", source="predicted")
    assert "the figures of its device are unknown" in session.snapshot()["costs"]["sources"]["predicted"]["message"]
    assert session.errors == []


def test_measured_times_stay_beside_predicted_ones(compilers) -> None:
    sent: list[Any] = []
    session = explore()
    session.listen(lambda kind, value: sent.append(value) if kind == "cost" else None)
    do(session, "measure")
    do(session, "choose_device", device="h100")
    for source in ("measured", "predicted"):
        do(session, "request_cost", source=source)
    measured, predicted = sent[-2:]
    assert measured.head["version"] == predicted.head["version"] == session.version
    assert measured.data["total"]["time_s"] > 0
    assert "measured on this machine, not on h100" in measured.data["notes"]
    assert predicted.data["total"]["predicted_s"] > 0
    assert predicted.data["total"]["time_s"] is None
    assert (
        "XLA chose default tiles and algorithms: autotuning needs the device" in session.snapshot()["device"]["facts"]
    )
    assert any("3 µs" in note or "predicted" in note for note in predicted.data["notes"])
    session.end()


def test_cancel_goes_back(session) -> None:
    session.do("choose_device", device="h100:8")
    session.do("cancel_device")
    assert session.snapshot()["device"]["name"] == "cpu"
    assert session.wait(PATIENCE_S)
    assert session.snapshot()["stages"]["hlo"]["state"] == "ready"
    with pytest.raises(DeviceNotFoundError):
        session.do("choose_device", device="h10")
    with pytest.raises(DeviceNotFoundError):
        session.do("choose_device", device="v5e:big")
    assert session.snapshot()["device"]["name"] == "cpu"


def test_an_edit_compiles_for_the_device(compilers) -> None:
    session = work(device=as_device("v5e"))
    do(session, "request_stage", stage="hlo")
    first = session.stage("hlo")
    do(session, "set_attribute", path="linear_0", name="dimension", value=48)
    version, program = session.stage("hlo")
    assert version > first[0]
    assert str(program.device) == "v5e"
    assert "bf16[32,48]" in program.stage("hlo").text or "48" in program.stage("hlo").text
    do(session, "undo")
    assert session.stage("hlo")[1] is first[1]
    session.end()


def test_a_program_that_begins_later_has_one_device() -> None:
    text = jax.jit(two_layers).lower(spec(256, 512), spec(64, 256)).compile().as_text()
    session = Exploration(inspect(text))
    device = session.snapshot()["device"]
    assert device["fixed"]
    assert device["choices"] == []
    with pytest.raises(UnknownOptionError, match="cannot be compiled for another device"):
        session.do("choose_device", device="h100")


@pytest.fixture
def missing(monkeypatch, tmp_path):
    """No compiler is installed, and an installation does what the list has."""
    steps: list[Any] = []
    target = compiler_of("tpu")

    def install(self, wheels=None, report=None, is_wanted=lambda: True):
        for step in steps:
            if isinstance(step, Exception):
                raise step
            report(*step)
            while step[0] == "wait" and is_wanted():
                time.sleep(0.01)
        if is_wanted():
            installed.append(self.platform)
        else:
            raise UnavailableBackendError("cancelled")

    installed: list[str] = []
    monkeypatch.setattr(Compiler, "is_installed", property(lambda self: self.platform in installed))
    monkeypatch.setattr(Compiler, "install", install)
    # The worker needs the real one.
    monkeypatch.setattr(Compiler, "check", lambda self: None)
    assert target.folder
    return steps


@pytest.mark.parametrize("make", [explore, work])
def test_installs_and_compiles(make, compilers, missing) -> None:
    missing[:] = [("Downloading libtpu.whl (140 MB)", None), ("Downloading libtpu.whl (140 MB)", 0.5)]
    session = make()
    views: list[Any] = []
    session.listen(lambda kind, value: views.append(value["device"]) if kind == "snapshot" else None)
    session.do("choose_device", device="v5e")
    device = session.snapshot()["device"]
    assert device["name"] == "cpu"
    assert device["missing"]["device"] == "v5e"
    assert "which is not installed" in device["missing"]["problem"]["summary"]
    assert {entry["needs_bytes"] > 0 for entry in device["choices"]} == {True}
    do(session, "install_compiler")
    until(lambda: session.snapshot()["device"]["name"] == "v5e")
    assert session.wait(PATIENCE_S)
    shown = [(view["missing"]["progress"], view["missing"]["share"]) for view in views if view["missing"]]
    assert ("Downloading libtpu.whl (140 MB)", 0.5) in shown
    device = session.snapshot()["device"]
    assert device["missing"] is None
    assert "fits in 16 GiB" in device["facts"][0]
    assert session.errors == []
    session.end()


def test_an_installation_that_fails_or_is_cancelled(compilers, missing) -> None:
    missing[:] = [UnavailableBackendError("the compiler for tpu cannot be installed.", (("because", "no network"),))]
    session = explore(device="v5e")
    assert session.snapshot()["device"]["name"] == "cpu"
    do(session, "install_compiler")
    problem = session.snapshot()["device"]["missing"]["problem"]
    assert problem["facts"] == [["because", "no network"]]
    missing[:] = [("wait", None)]
    session.do("install_compiler")
    until(lambda: session.snapshot()["device"]["missing"]["progress"] == "wait")
    session.do("cancel_device")
    assert session.wait(PATIENCE_S)
    device = session.snapshot()["device"]
    assert (device["missing"], device["name"]) == (None, "cpu")
    assert session.errors == []
