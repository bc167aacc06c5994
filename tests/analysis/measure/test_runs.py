"""The profiler always stops and its folder is deleted; without events, whole runs are timed."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.analysis.measure import Machine, Profile, profiling, runs
from mithril_nb.analysis.measure.profiling import WHOLE
from mithril_nb.analysis.measure.runs import Runner, Values, values_for
from mithril_nb.errors import ProfilingError

PEAKS = Machine("cpu", "cpu", 2, jax.__version__, "", {"float32": 2e11}, 6e10, "2026-11-22 07:35 UTC")


def profile_quickly(target: Any, *args: Any) -> Profile:
    return ml.profile(target, *args, runs=2, warm_up=0, peaks=PEAKS)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_profiler_folder_is_deleted(temporary: Path) -> None:
    assert profile_quickly(jnp.sin, jnp.ones(3)).total.time_s > 0
    assert not list(temporary.glob("mithril_nb_profile_*"))


def test_a_gpu_runs_without_cuda_graphs_under_the_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    inspection = ml.inspect(jnp.sin, jnp.ones(3), compiler_options={"xla_embed_ir_in_executable": True})
    assert profiling._recorded(inspection, inspection.compiled) is inspection.compiled, "on a CPU"
    monkeypatch.setattr(profiling, "_device_of", lambda compiled: SimpleNamespace(platform="gpu"))
    options: list[dict[str, Any]] = []
    compile = type(inspection.lowered).compile
    monkeypatch.setattr(
        type(inspection.lowered),
        "compile",
        lambda self, compiler_options: (options.append(compiler_options), compile(self, compiler_options))[1],
    )
    recorded = profiling._recorded(inspection, inspection.compiled)
    assert options == [{"xla_gpu_enable_command_buffer": "", "xla_embed_ir_in_executable": True}]
    used: list[str] = []
    plain, numbered = (lambda x, at=at: (used.append(at), recorded(x))[1] for at in ("plain", "numbered"))
    runner = Runner("sin", plain, values_for(inspection, (jnp.ones(3),)), numbered)
    runner.run()
    runner.run(0)
    assert used == ["plain", "numbered"]


def test_failed_run_leaves_arrays_and_profiler_unchanged(temporary: Path) -> None:
    asked = []

    def refuse(x: Any) -> Any:
        asked.append(x)
        if len(asked) > 4:  # under the profiler
            raise ValueError("the device is gone")
        return x

    def program(x: Any) -> Any:
        return jax.pure_callback(refuse, x, x, vmap_method="sequential") + 1

    x = jnp.ones(3)
    with pytest.raises(ProfilingError, match="program 'program' failed in run 5 of its measurement"):
        ml.profile(jax.jit(program, donate_argnums=0), x, runs=3, warm_up=2, peaks=PEAKS)
    assert float(x.sum()) == 3
    assert not list(temporary.glob("mithril_nb_profile_*"))
    assert profile_quickly(jnp.sin, x).total.time_s > 0


def test_error_of_a_failed_run() -> None:
    def gone() -> Any:
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    with pytest.raises(ProfilingError) as failed:
        Runner("net", gone, Values((), jax.tree.structure(((), {})), (), ())).run()
    assert str(failed.value) == (
        "program 'net' failed in run 1 of its measurement.\n"
        "    RuntimeError  RESOURCE_EXHAUSTED: out of memory\n"
        "    your arrays   are unchanged\n"
        "    Try: inspection.compiled(*args)  # shows where it fails"
    )


def test_an_interrupt_switches_the_profiler_off(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Runner.run

    def interrupted(runner: Runner, number: int | None = None) -> float:
        if number is not None:
            raise KeyboardInterrupt
        return whole(runner, number)

    monkeypatch.setattr(Runner, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        profile_quickly(jnp.sin, jnp.ones(3))
    assert not list(temporary.glob("mithril_nb_profile_*"))
    monkeypatch.setattr(Runner, "run", whole)
    assert profile_quickly(jnp.sin, jnp.ones(3)).by_block


def test_profiler_in_use_is_not_stopped(temporary: Path) -> None:
    with jax.profiler.trace(str(temporary / "theirs")):
        with pytest.raises(ProfilingError) as refused:
            profile_quickly(jnp.sin, jnp.ones(3))
    assert str(refused.value) == (
        "the profiler of JAX is in use; a process has only one.\n"
        "    RuntimeError  Profile has already been started. Only one profile may be run at a time.\n"
        "    Try: jax.profiler.stop_trace()  # then ml.profile again"
    )
    assert list((temporary / "theirs").rglob("*.xplane.pb"))


def test_threads_take_turns() -> None:
    found: dict[str, Profile] = {}

    def work(name: str, function: Any) -> None:
        found[name] = profile_quickly(function, jnp.ones((16, 16)))

    threads = [threading.Thread(target=work, args=(f.__name__, f)) for f in (jnp.sort, jnp.sin, jnp.exp)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: profile.program for name, profile in found.items()} == {"sort": "sort", "sin": "sin", "exp": "exp"}
    assert all(profile.total.time_s > 0 and not profile.unattributed.flops for profile in found.values())


def test_unreadable_trace_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, read = runs.read_recording, []

    def unreadable_first(*given: Any) -> runs.Recording:
        read.append(given)
        return runs.Recording({}, unavailable="it is empty") if len(read) == 1 else whole(*given)

    monkeypatch.setattr(runs, "read_recording", unreadable_first)
    found = profile_quickly(jnp.sin, jnp.ones(3))
    assert "times: 1 of the profiler's recordings are not used: it is empty" in found.notes
    assert (len(found.profiled_s), {len(samples) for samples in found.samples.values()}) == (1, {1})
    assert all(figures.time_s > 0 for figures in found.by_block.values())


@pytest.mark.parametrize("reason", ["no events", "broken file"])
def test_without_events_whole_runs_are_timed(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: Any) -> runs.Recording:
        if reason == "broken file":
            raise ValueError("not a trace")
        return runs.Recording({}, unavailable="the profiler of this platform records no instructions")

    monkeypatch.setattr(runs, "read_recording", unreadable)
    found = profile_quickly(jnp.sin, jnp.ones(3))
    assert found.total.time_s == pytest.approx(found.wall_s)
    assert [row.id for row in found.rows if row.time_s is not None] == [WHOLE]
    assert all(figures.time_s is None for figures in found.by_block.values())
    assert found.instructions_s is None
    assert found.notes[-1] == "times of instructions, blocks and roles: " + (
        "the profiler's events cannot be read: not a trace"
        if reason == "broken file"
        else "the profiler of this platform records no instructions"
    )
    assert WHOLE in str(found)
