"""The device of a session: another one and back, its costs, and a compiler that is missing."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec
from waiting import PATIENCE_S, until

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import DeviceNotFoundError, UnavailableBackendError, UnknownOptionError
from mithril_nb.hardware import as_device, compiler_of
from mithril_nb.hardware import compilers as module
from mithril_nb.hardware.compilers import Compiler
from mithril_nb.models import MLP
from mithril_nb.targets import inspect
from mithril_nb.ui.session import Session, design_of
from mithril_nb.ui.session.commands import Client
from mithril_nb.ui.session.devices import DeviceRequests
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


@pytest.mark.parametrize("then", [None, "cpu"])
def test_a_model_that_breaks_is_not_compiled(then, compilers) -> None:
    session, ends = work(device=as_device("v5e")), threading.Event()
    assert "fits in 16 GiB" in session.snapshot()["device"]["facts"][0]
    session.devices._slow.submit(lambda _: ends.wait(PATIENCE_S), "another compilation")
    session.do("set_attribute", path="linear_0", name="dimension", value=48)
    assert session.snapshot()["device"]["is_compiling"]
    session.do("add_block", kind="MatrixMultiply")
    assert not session.analysis.can_run
    if then:
        session.do("choose_device", device=then)
    ends.set()
    assert session.wait(PATIENCE_S)
    device = session.snapshot()["device"]
    assert (device["name"], device["is_compiling"], device["facts"]) == (then or "v5e", False, [])
    do(session, "undo")
    assert bool(session.snapshot()["device"]["facts"]) == (then is None)
    assert session.errors == []
    session.end()


@pytest.mark.parametrize("make", [explore, work])
def test_a_device_of_the_code_that_has_no_name(make, compilers) -> None:
    device = replace(as_device("v5e"), name="mine", title="My TPU", chip="v5e").with_topology("2x2")
    session = make(device=device)
    for name in ("cpu", "mine", "mine:2x2", "cpu", "mine:2x2"):
        session.do("choose_device", device=name)
        assert session.snapshot()["device"]["name"] == name
    assert session.devices.device == device
    assert session.wait(PATIENCE_S)
    now = session.snapshot()["device"]
    assert "fits in 16 GiB" in now["facts"][0]
    entry = now["choices"][-1]
    assert (entry["name"], entry["title"], entry["topologies"]) == ("mine", "My TPU", ["2x2"])
    assert session.errors == []
    session.end()


def test_a_device_of_this_machine_that_is_not_the_default() -> None:
    gpu = SimpleNamespace(platform="gpu", device_kind="NVIDIA A100")
    client, shown = Client(lambda *_: None, lambda: None, lambda _: None), []
    requests = DeviceRequests(
        lambda: pytest.fail("compiled"), client, threading.RLock(), lambda: shown.append(requests.device),
        first=gpu, local=jax.devices("cpu")[0], fixed="",
    )  # fmt: skip
    for name in ("cpu", "gpu"):
        requests.choose_device(name)
    assert shown == [None, gpu]
    entry = requests.view()["choices"][-1]
    assert (entry["name"], entry["title"], entry["memory_bytes"]) == ("gpu", "NVIDIA A100", None)


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
    assert device["missing"]["can_install"]
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


def test_an_installation_that_is_cancelled_before_it_begins(compilers, missing) -> None:
    session = explore(device="v5e")
    ends = threading.Event()
    session.devices._quick.submit(lambda _: ends.wait(PATIENCE_S), "another request")
    session.do("install_compiler")
    session.do("cancel_device")
    ends.set()
    assert session.wait(PATIENCE_S)
    device = session.snapshot()["device"]
    assert (device["missing"], device["name"]) == (None, "cpu")
    session.end()


@pytest.mark.parametrize("fails", [True, False])
def test_the_missing_compiler_changes_under_the_lock(fails, compilers, missing, monkeypatch) -> None:
    missing[:] = [("Downloading", None), *([UnavailableBackendError("no network")] if fails else [])]
    session, owned = explore(device="v5e"), []

    def change(self: DeviceRequests, value: Any) -> None:
        owned.append(self._lock._is_owned())
        vars(self)["_missing"] = value

    monkeypatch.setattr(
        DeviceRequests, "_missing", property(lambda self: vars(self)["_missing"], change), raising=False
    )
    do(session, "install_compiler")
    do(session, "choose_device", device="v5e:2x2")
    session.do("cancel_device")
    assert len(owned) >= 2
    assert all(owned)
    session.end()


@pytest.mark.parametrize("make", [explore, work])
def test_a_jax_that_names_no_compiler(make, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("MITHRIL_NB_COMPILERS", str(tmp_path))
    monkeypatch.setattr(Compiler, "is_in_environment", False)
    monkeypatch.setattr(module.metadata, "requires", lambda name: ["numpy"])
    compiler_of.cache_clear()
    try:
        session = make(device=as_device("h100:8"))
        assert "names no compiler" in session.snapshot()["device"]["missing"]["problem"]["summary"]
        assert session.snapshot()["device"]["missing"]["can_install"] is False
        for name, platform in (("h100:8", "cuda"), ("v5e", "tpu")):
            do(session, "choose_device", device=name)
            problem = session.snapshot()["device"]["missing"]["problem"]
            assert f"names no compiler for {platform}" in problem["summary"]
            do(session, "install_compiler")
            assert session.snapshot()["device"]["missing"]["problem"] == problem
        assert session.snapshot()["device"]["name"] == "cpu"
        assert session.snapshot()["device"]["choices"] == []
        assert session.errors == []
        session.end()
    finally:
        compiler_of.cache_clear()
