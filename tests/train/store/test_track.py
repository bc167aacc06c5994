"""`ml.track`: runs that go on bit for bit, are refused if something changed, and keep what was logged."""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mithril_nb as ml
from mithril_nb.errors import CheckpointError, DataError, RunStoreError, UnknownOptionError
from mithril_nb.train.store import tracking


def loop(path: Any, total: int = 4, **options: Any) -> Any:
    with ml.track(path, **options) as run:
        state = run.restore(jnp.zeros(2))
        for batch in run.steps([1.0, 2.0, 3.0], total=total):
            state = state + batch
            run.log({"loss": state[0]}, state=state)
    return run, state


def test_an_ended_run_is_not_overwritten(tmp_path: Path) -> None:
    for name in ("line", "line-2", "line-3"):
        run, state = loop(tmp_path / "line")
        assert (run.name, run.state, run.step) == (name, "done", 4)
        np.testing.assert_array_equal(state, 7.0)
    assert [run.name for run in ml.runs(tmp_path)] == ["line", "line-2", "line-3"]


def stopped(path: Any, **options: Any) -> None:
    with suppress(ZeroDivisionError), ml.track(path, **options) as run:
        state = run.restore(jnp.zeros(2))
        for batch in run.steps([1.0, 2.0, 3.0], total=4):
            state = state + batch
            run.log({"loss": state[0]}, state=state)
            if run.step == 2:
                raise ZeroDivisionError("planted")


def test_a_failed_run_keeps_its_reason_and_goes_on(tmp_path: Path) -> None:
    stopped(tmp_path / "line", config={"rate": 0.1})
    run = ml.runs(tmp_path)["line"]
    assert (run.state, run.step) == ("failed", 2)
    assert run.summary["reason"] == "ZeroDivisionError: planted"
    assert "raise ZeroDivisionError" in run.summary["traceback"]
    assert run.checkpoints == [2]  # the state of the last step, which nothing has donated
    with pytest.raises(RunStoreError, match=r"code of loop|0.1 → 0.2"):
        loop(tmp_path / "line", config={"rate": 0.2})
    with pytest.raises(ZeroDivisionError), ml.track(tmp_path / "x", config={"rate": 0.1}):
        raise ZeroDivisionError
    run, state = loop(tmp_path / "line", config={"rate": 0.2}, resume="anyway")
    np.testing.assert_array_equal(state, 7.0)
    stored = ml.runs(tmp_path)["line"]
    assert "changed: rate" in stored.events[1]["text"]
    assert stored.config == {"rate": 0.2}
    assert "reason" not in stored.summary


def started(rate: float = 0.1, decay: float = 0.0, power: int = 2, label: float = 1.0) -> Any:
    """Return a loop that reads an optimizer, a loss and data from outside, and stops after two steps."""
    optimizer = optax.adamw(rate, weight_decay=decay)
    targets = np.array([0.0, label], np.float32)
    loss = (lambda w: jnp.sum((w - targets) ** 2)) if power == 2 else (lambda w: jnp.sum((w - targets) ** 4))

    @jax.jit
    def step(w: Any, held: Any) -> Any:
        updates, held = optimizer.update(jax.grad(loss)(w), held, w)
        return optax.apply_updates(w, updates), held

    def run_loop(path: Any) -> None:
        with ml.track(path) as run:
            w = run.restore((jnp.zeros(2), optimizer.init(jnp.zeros(2))))
            for _ in run.steps([0]):
                w = step(*w)
                run.log(state=w)
                if run.step >= 2:
                    run.stop()

    return run_loop


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 0.2}, "-0.1 → -0.2"),
        ({"decay": 0.3}, "0.0 → 0.3"),
        ({"power": 4}, "code of"),
        ({"label": 2.0}, "hash"),
    ],
)
def test_a_changed_script_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    started()(tmp_path / "line")
    with pytest.raises(RunStoreError, match=message) as refused:
        started(**change)(tmp_path / "line")
    assert 'resume="anyway"' in refused.value.diagnostics[0].advice
    started()(tmp_path / "line")  # the same script goes on


def test_the_graph_is_compared(tmp_path: Path) -> None:
    for number, factor in enumerate((2.0, 2.0, 3.0)):
        inspection = ml.inspect(lambda x, by=factor: x * by, jnp.ones(2))
        track = functools.partial(ml.track, tmp_path / "line", graph=inspection)
        if number == 2:
            with pytest.raises(RunStoreError, match="graph"):
                track()
        else:
            with track() as run:
                run.log({"loss": 1})
                run.stop()


def test_all_kinds_of_leaves_are_restored(tmp_path: Path) -> None:
    state = {
        "key": jax.random.key(3), "half": jnp.ones(3, jnp.bfloat16), "count": 3, "rate": 0.5, "flag": True,
        "numpy": np.arange(3), "scalar": np.float32(2), "weak": jnp.asarray(2.0), "function": math.sin, "none": None,
    }  # fmt: skip
    with ml.track(tmp_path / "leaves") as run:
        run.log(state=state)
        run.stop()
    with ml.track(tmp_path / "leaves") as run:
        zeros = state | {"count": 0, "rate": 0.0, "flag": False, "numpy": np.zeros(3, int), "scalar": np.float32(0)}
        again = run.restore(zeros | {"half": jnp.zeros(3, jnp.bfloat16), "key": jax.random.key(0)})
        run.log(state=again)
    assert {name: type(leaf) for name, leaf in again.items()} == {name: type(leaf) for name, leaf in state.items()}
    assert jax.tree.all(
        jax.tree.map(lambda a, b: a is b or bool((a == b).all()) if hasattr(a, "all") else a == b, again, state)
    )


def test_a_state_of_another_shape_is_refused(tmp_path: Path) -> None:
    stopped(tmp_path / "line")
    with (
        pytest.raises(CheckpointError, match="belongs to another"),
        ml.track(tmp_path / "line", resume="anyway") as run,
    ):
        run.restore(jnp.zeros(3))


def test_a_loop_that_forgets_to_restore_loses_nothing(tmp_path: Path) -> None:
    stopped(tmp_path / "line")
    with pytest.raises(RunStoreError, match="did not restore"), ml.track(tmp_path / "line", resume="anyway") as run:
        run.log({"loss": 1})
    assert ml.runs(tmp_path)["line"].checkpoints == [2]


class Counting:
    """A loader whose iterators have a state of several types."""

    def __iter__(self) -> Any:
        return CountingIterator()


class CountingIterator:
    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        self.at += 1
        return self.at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "bytes": b"\0x", ("tuple", 1): [np.arange(3), None], "big": 2**100}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["bytes"] == b"\0x"
        assert state["big"] == 2**100
        np.testing.assert_array_equal(state["tuple", 1][0], np.arange(3))
        self.at = state["at"]


@pytest.mark.parametrize("loader", [Counting(), [*range(1, 100)], [1, 2, 3]], ids=["with a state", "a list", "epochs"])
def test_loaders_go_on(tmp_path: Path, loader: Any) -> None:
    seen: list[int] = []
    expected = list(itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), 7))
    for total in (3, 7):
        with ml.track(tmp_path / "line", config={"total": 1}) as run:
            run.restore(0)
            for batch in run.steps(loader, total=total):
                seen.append(batch)
                run.log(state=batch)
            if total == 3:
                run.stop()
    assert seen == expected


def test_iterables_without_a_state_are_skipped_aloud(tmp_path: Path) -> None:
    for total in (2, 5):
        seen = []
        with ml.track(tmp_path / "line") as run:
            run.restore(0)
            steps = run.steps(dict.fromkeys(range(3)), total=total)
            if total == 5:
                with pytest.warns(RuntimeWarning, match="2 batches are skipped"):
                    seen.append(next(steps))
                run.log(state=1)
            for batch in steps:
                seen.append(batch)
                run.log(state=1)
            if total == 2:
                run.stop()
    assert seen == [2, 0, 1]


def test_exhausted_and_empty_loaders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be iterated"), ml.track(tmp_path / "none") as run:
        next(run.steps(None))  # pyright: ignore[reportArgumentType]
    with ml.track(tmp_path / "a") as run:
        assert list(run.steps(iter([1, 2]))) == [1, 2]
    with ml.track(tmp_path / "b") as run:
        assert list(run.steps([1, 2], total=5)) == [1, 2, 1, 2, 1]
    for empty in ([], iter([])):
        with pytest.raises(DataError, match="no batch"), ml.track(tmp_path / "c", resume=False) as run:
            list(run.steps(empty))


def test_a_run_is_steered_from_another_handle(tmp_path: Path) -> None:
    rates: list[float] = []

    def loop() -> None:
        with ml.track(tmp_path / "line") as run:
            for _ in run.steps([0]):
                rates.append(run.knob("rate", 0.1))
                run.log({"loss": 1.0})
                time.sleep(0.005)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    wait_for(
        lambda: (tmp_path / "runs.sqlite").exists() and [*ml.runs(tmp_path)] and ml.runs(tmp_path)["line"].step > 2
    )
    stored = ml.runs(tmp_path)["line"]
    with pytest.raises(UnknownOptionError, match="no knob 'decay'"):
        stored.set("decay", 1.0)
    with pytest.raises(RunStoreError, match="training this run"):
        ml.track(tmp_path / "line")
    stored.set("rate", 0.5)
    stored.pause()
    wait_for(lambda: stored.state == "paused")
    count = len(rates)
    stored.step_once()
    wait_for(lambda: len(rates) > count)
    time.sleep(0.4)
    assert len(rates) == count + 1
    assert rates[-2:] == [0.1, 0.5]
    stored.step_once(3)
    wait_for(lambda: len(rates) == count + 4)
    time.sleep(0.4)
    assert len(rates) == count + 4
    stored.resume()
    wait_for(lambda: len(rates) > count + 3)
    stored.stop()
    thread.join(10)
    assert stored.state == "stopped"
    assert [event["text"] for event in stored.events][:2] == ["rate: 0.1 → 0.5", "paused"]
    with pytest.raises(RunStoreError, match="is not running"):
        stored.pause()


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_ctrl_c_ends_the_loop_between_two_steps(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background of a shell ignores Ctrl-C

    def loop() -> None:
        with ml.track(tmp_path / "line") as run:
            state = run.restore(0)
            for batch in run.steps([1], total=50):
                state += batch
                if run.step == 3:
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.01)
                run.log({"loss": 1.0}, state=state)

    with pytest.raises(KeyboardInterrupt):
        loop()
    stored = ml.runs(tmp_path)["line"]
    assert (stored.state, stored.step, stored.checkpoints) == ("stopped", 3, [3])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_best_checkpoint_is_kept(tmp_path: Path) -> None:
    values = [0.5, 0.2, math.nan, 0.4, 0.9, 0.8]
    with ml.track(tmp_path / "line", checkpoint_every=1, keep=1, keep_best="accuracy") as run:
        for _ in run.steps([0], total=6):
            run.log({"accuracy": values[run.step - 1]}, state=run.step)
    stored = ml.runs(tmp_path)["line"]
    assert stored.checkpoints == [5, 6]
    assert stored.summary["best"] == {"metric": "accuracy", "step": 5, "value": 0.9}
    assert stored.params(best=True)[""] == 5
    assert stored.params()[""] == 6


@pytest.mark.filterwarnings("ignore:.*loss is NaN")
def test_metrics_of_all_kinds(tmp_path: Path) -> None:
    with ml.track(tmp_path / "line") as run:
        run.log({"loss": jnp.float32(0.5), "image": np.eye(2), "half": jnp.bfloat16(1.5)})
        run.log({"loss": np.nan})
        run.log({"accuracy": 1}, step=10)
    stored = ml.runs(tmp_path)["line"]
    history = stored.history
    np.testing.assert_array_equal(history["step"], [1, 2, 10])
    np.testing.assert_array_equal(history["loss"], [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(history["accuracy"], [np.nan, np.nan, 1])
    np.testing.assert_array_equal(stored.arrays("image")[1], np.eye(2))
    with (
        pytest.warns(RuntimeWarning, match="metric 'name' of step 1 cannot be stored"),
        ml.track(tmp_path / "text") as run,
    ):
        run.log({"name": "text", "loss": 2})
    np.testing.assert_array_equal(ml.runs(tmp_path)["text"].history["loss"], [2])


@pytest.mark.parametrize("folder", ["a\0b", "x" * 300, "file", "file/runs", b"runs", 3])
def test_folders_that_cannot_be_used(tmp_path: Path, folder: Any) -> None:
    (tmp_path / "file").write_text("")
    path = f"{tmp_path}/{folder}" if isinstance(folder, str) else folder
    with pytest.raises((RunStoreError, UnknownOptionError)):
        ml.track(f"{path}/line" if isinstance(folder, str) else folder)
    with pytest.raises(RunStoreError):
        ml.runs(path)


@pytest.mark.parametrize("value", [-1.0, 0.0, math.nan, math.inf, "a", None, True, jnp.ones(2)])
def test_values_that_no_slider_has(tmp_path: Path, value: Any) -> None:
    with ml.track(tmp_path / "line") as run:
        with pytest.raises(UnknownOptionError, match="takes a positive number"):
            run.knob("rate", value, log=True)
        assert run.knob("rate", jnp.float32(0.5), log=True) == 0.5
        with pytest.raises(UnknownOptionError, match="takes a positive number"):
            run.set("rate", -1)
        assert run.knob("offset", -1.0) == -1


def test_a_run_that_continues_gets_new_tags(tmp_path: Path) -> None:
    for tags in (["a", "b"], "wide", ["b", "c"]):
        with ml.track(tmp_path / "line", tags=tags) as run:
            run.log({"loss": 1}, state=run.restore(0.0))
            run.stop()
    assert ml.runs(tmp_path)["line"].summary["tags"] == ["a", "b", "wide", "c"]


@pytest.mark.parametrize("options", [{"keep_best": 3}, {"tags": 3}, {"config": 3}])
def test_options_of_other_types(tmp_path: Path, options: Any) -> None:
    with pytest.raises(UnknownOptionError, match=f"{next(iter(options))} must be"):
        ml.track(tmp_path / "line", **options)


@pytest.mark.parametrize("name", ["..x", ".x", "a\0b", "x" * 101, "a\\b", "x."])
def test_names_that_are_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownOptionError, match="is not a name"):
        ml.track(f"{tmp_path}/runs/{name}")


@pytest.mark.parametrize("config", [{"a": object()}, {1: 2}, {"a": [np.ones(3)]}])
def test_a_config_that_is_no_json(tmp_path: Path, config: Any) -> None:
    with pytest.raises(UnknownOptionError, match=r"config"):
        ml.track(tmp_path / "line", config=config)
    assert not (tmp_path / "line").exists()


def test_what_the_loop_changes_later_is_not_stored(tmp_path: Path) -> None:
    """A loop may reuse its own NumPy arrays: metrics and checkpoints have the values of their step."""
    weight, total, order = np.zeros(1_000_000, np.float32), np.zeros(()), np.arange(3)

    class Loader:
        def __iter__(self) -> Any:
            return iter([1.0, 1.0, 1.0])

        def get_state(self) -> Any:
            return {"order": order}

        def set_state(self, state: Any) -> None:
            raise AssertionError

    with ml.track(tmp_path / "line", checkpoint_every=1, keep=9) as run:
        for _ in run.steps(Loader(), total=3):
            weight += 1
            total += 1
            order -= 1
            run.log({"total": total, "first": weight[:2]}, state={"weight": weight})
    stored = ml.runs(tmp_path)["line"]
    assert stored.history["total"].tolist() == [1, 2, 3]
    assert [stored.arrays("first")[step][0] for step in (1, 2, 3)] == [1, 2, 3]
    for step in (1, 2, 3):
        assert np.unique(stored.params(step=step)["['weight']"]).tolist() == [step]


def test_a_step_that_failed_halfway_is_not_stored(tmp_path: Path) -> None:
    state = {"numpy": np.zeros(2), "jax": jnp.zeros(2)}
    with suppress(ZeroDivisionError), ml.track(tmp_path / "line", checkpoint_every=2) as run:
        for _ in range(4):
            state["numpy"][0] += 1
            state["jax"] = state["jax"] + 1
            if run.step == 3:
                raise ZeroDivisionError
            state["numpy"][1] += 1
            run.log(state=state)
    assert ml.runs(tmp_path)["line"].checkpoints == [2]


def test_types_of_numbers_are_those_of_the_stored_state(tmp_path: Path) -> None:
    """A number that a step has made an array stays one: a weak type would change the dtype of later results."""
    with ml.track(tmp_path / "line") as run:
        run.log(state={"a": jnp.float32(0.3), "b": jnp.asarray(0.3), "c": 0.3})
        run.stop()
    with ml.track(tmp_path / "line") as run:
        again = run.restore({"a": 0.0, "b": 0.0, "c": jnp.float32(0)})
        run.log(state=again)
    assert [getattr(leaf, "weak_type", "python") for leaf in again.values()] == [False, True, "python"]


def test_a_start_that_does_nothing_changes_nothing(tmp_path: Path) -> None:
    stopped(tmp_path / "line")
    with suppress(OSError), ml.track(tmp_path / "line", resume="anyway"):
        raise OSError
    assert ml.runs(tmp_path)["line"].step == 2
    with ml.track(tmp_path / "line", resume="anyway"):
        pass
    assert (ml.runs(tmp_path)["line"].step, ml.runs(tmp_path)["line"].state) == (2, "stopped")


def test_a_run_has_one_loop(tmp_path: Path) -> None:
    with ml.track(tmp_path / "line") as run:
        run.steps([1])
        with pytest.raises(RunStoreError, match="called before"):
            run.steps([1])
        with pytest.raises(UnknownOptionError, match="step cannot be set"):
            run.log({"loss": 1}, step=3)
        with pytest.raises(UnknownOptionError, match="finite"):
            run.set("rate", run.knob("rate", 0.1) * math.nan)


def test_a_loop_that_iterates_itself_continues_its_loader(tmp_path: Path) -> None:
    class Loader:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Any:
            while self.at < 6:
                self.at += 1
                yield self.at

        def get_state(self) -> int:
            return self.at

        def set_state(self, state: int) -> None:
            self.at = state

    seen: list[int] = []
    for stop in (3, 9):
        loader = Loader()
        with ml.track(tmp_path / "line", checkpoint_every=1, resume="anyway") as run:
            state = run.restore(0, loader)
            for batch in loader:
                state += batch
                seen.append(batch)
                run.log(state=state)
                if batch == stop:
                    run.stop()
                    break
    assert seen == [1, 2, 3, 4, 5, 6]
    assert state == 21


def test_a_changed_default_of_a_knob_counts(tmp_path: Path) -> None:
    for default, expected in ((0.1, 0.1), (0.1, 0.5), (0.2, 0.2)):
        with ml.track(tmp_path / "line", resume="anyway") as run:
            run.restore(0)
            assert run.knob("rate", default) == expected
            if default == 0.1 == expected:
                run.set("rate", 0.5)
            run.log({"loss": 1}, state=1)
            run.stop()
        assert ml.runs(tmp_path)["line"].summary["knobs"]["rate"]["value"] == (0.5 if default == 0.1 else 0.2)


def test_checkpoints_of_a_lost_database_are_not_continued_silently(tmp_path: Path) -> None:
    stopped(tmp_path / "line")
    for file in (*tmp_path.glob("runs.sqlite*"), tmp_path / "line" / "run.safetensors"):
        file.unlink()
    with pytest.raises(RunStoreError, match="the database lacks"):
        loop(tmp_path / "line")


HELPER = "LR = {rate}\ndef inner(w):\n    return w * {rate}\ndef step(w):\n    return inner(w)\n"
USES = [
    "import {name} as h\ndef loop(w): return h.step(w)",
    "from {name} import LR\ndef loop(w): return w * LR",
    "import functools, jax, {name}\ndef loop(w): return f(w)\nf = jax.jit(functools.partial({name}.step))",
    "import {name}\nclass Base:\n    def step(self, w): return {name}.step(w)\nclass Own(Base): pass\nown = Own()\n"
    "def loop(w): return own.step(w)",
    "import {name}\nclass Own:\n    @property\n    def rate(self): return {name}.LR\nown = Own()\n"
    "def loop(w): return own.rate",
    "import functools, {name}\ndef double(f):\n    @functools.wraps(f)\n    def g(w): return f(w) * {name}.LR\n"
    "    return g\n"
    "@double\ndef loop(w): return w",
]


def test_other_files_of_the_user_count(tmp_path: Path) -> None:
    for number, use in enumerate(USES):
        code = use.format(name="helper") + f"\nimport mithril_nb as ml\nwith ml.track('runs/{number}') as run:\n"
        (tmp_path / f"script_{number}.py").write_text(code + "    run.log({'loss': loop(1.0)})\n    run.stop()\n")
    (tmp_path / "all.py").write_text(
        "import runpy, mithril_nb\n"
        f"for number in range({len(USES)}):\n"
        "    try: runpy.run_path(f'script_{number}.py', run_name='__main__'); print('continues')\n"
        "    except mithril_nb.errors.RunStoreError as error: print('refused')\n"
    )

    def start(rate: float) -> list[str]:
        (tmp_path / "helper.py").write_text(HELPER.format(rate=rate))
        done = subprocess.run([sys.executable, "all.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert [start(0.25), start(0.25), start(0.5)] == [
        [end] * len(USES) for end in ("continues", "continues", "refused")
    ]


class CountingLoader(CountingIterator):
    """A loader that has the state itself."""

    def __iter__(self) -> Any:
        while True:
            yield next(self)


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize(
    "loader_type", [lambda: [1.0], Counting, CountingLoader], ids=["a list", "iterators with a state", "with a state"]
)
def test_a_state_that_is_logged_rarely_is_stored(tmp_path: Path, fails: bool, loader_type: Any) -> None:
    """Checkpoints are due after so many steps, not at their multiples; the last logged state is never lost."""

    def loop(end: int) -> Any:
        with ml.track(tmp_path / "line", checkpoint_every=10, keep=9, resume="anyway") as run:
            state = run.restore(jnp.zeros(()))
            for batch in run.steps(loader_type(), total=end):
                state = state + batch
                if run.step % 4 == 0:
                    run.log({"sum": state}, state=state)
                if fails and run.step == 25 and end == 26:
                    raise ZeroDivisionError
        return state

    with suppress(ZeroDivisionError):
        loop(26)
    assert ml.runs(tmp_path)["line"].checkpoints == [12, 20, 24]
    if fails:
        with warnings.catch_warnings(action="ignore"):
            assert loop(30) == sum(itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader_type())), 30))


def test_the_best_metric_may_be_logged_after_the_state(tmp_path: Path) -> None:
    with ml.track(tmp_path / "line", checkpoint_every=100, keep_best=("score", "max")) as run:
        for _ in run.steps([0], total=6):
            run.log({"loss": 1}, state=run.step)
            run.log({"score": 5 - abs(run.step - 3)})
    assert ml.runs(tmp_path)["line"].summary["best"] == {"metric": "score", "step": 3, "value": 5}


def test_a_run_without_states_warns(tmp_path: Path) -> None:
    run = ml.track(tmp_path / "line", checkpoint_every=1)
    run.log({"loss": 1})
    with pytest.warns(RuntimeWarning, match="no state was logged"):
        run.finish("done")


def test_a_loss_that_is_not_finite_warns_once_and_the_state_before_it_is_kept(tmp_path: Path) -> None:
    first_step = 8

    @jax.jit
    def step(state: Any, batch: Any) -> Any:
        loss = jnp.sum(jnp.log(state["w"]) * batch)
        return {"w": state["w"] - 0.125 * batch + 0 * loss, "count": state["count"] + 1}, loss

    zeros = {"w": jnp.zeros(2), "count": 0}

    def train() -> None:
        with ml.track(tmp_path / "line", checkpoint_every=2, keep=1) as run:
            state = run.restore({"w": jnp.ones(2), "count": 0})
            for batch in run.steps([1.0], total=20):
                state, loss = step(state, batch)
                run.log({"loss": loss, "speed": math.inf}, state=state)
            time.sleep(0.5)  # for the thread that reads the values
            run.log({"speed": 1})

    with pytest.warns(RuntimeWarning, match=r"loss is infinite at step 9\. ml\.find_nan") as warned:
        train()
    assert [Path(warning.filename) for warning in warned] == [Path(__file__)]
    stored = ml.runs(tmp_path)["line"]
    assert [(event["step"], event["text"]) for event in stored.events] == [(9, "loss is infinite"), (20, "done")]
    assert stored.checkpoints == [first_step, 20]
    before = stored.restore(zeros, step=first_step)
    np.testing.assert_array_equal(before["w"], 0.0)
    assert before["count"] == first_step
    assert ml.find_nan(step, before, 1.0).equation.primitive == "mul"


def test_the_checkpoint_before_a_bad_loss_is_kept_though_no_state_has_nan(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"), ml.track(tmp_path / "line", checkpoint_every=5, keep=1) as run:
        for _ in run.steps([0], total=30):
            run.log({"loss": math.nan if run.step == 12 else 1.0}, state=run.step)
    assert ml.runs(tmp_path)["line"].checkpoints == [10, 30]


def test_a_loss_that_is_bad_again_is_an_event_and_only_its_checkpoint_is_kept(tmp_path: Path) -> None:
    losses = {4: math.inf, 12: math.nan, 13: math.nan, 22: -math.inf}

    def train() -> None:
        with ml.track(tmp_path / "line", checkpoint_every=5, keep=1) as run:
            for _ in run.steps([0], total=30):
                run.log({"loss": losses.get(run.step, 1.0), "speed": 1}, state=run.step)

    with pytest.warns(RuntimeWarning, match="loss is (NaN|infinite) at step") as warned:
        train()
    stored = ml.runs(tmp_path)["line"]
    events = [(event["step"], event["text"]) for event in stored.events]
    assert events == [(4, "loss is infinite"), (12, "loss is NaN"), (22, "loss is infinite"), (30, "done")]
    text = " ".join(str(warning.message) for warning in warned)
    assert re.findall(r"loss is (?:NaN|infinite) at step \d+", text) == [
        "loss is infinite at step 4",
        "loss is NaN at step 12",
        "loss is infinite at step 22",
    ]
    assert stored.checkpoints == [20, 30]


def test_the_events_of_a_loss_that_is_nan_at_each_second_step_are_limited(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"), ml.track(tmp_path / "line") as run:
        for number in range(1_000):
            run.log({"loss": 1.0 if number % 2 else math.nan})
    steps = [event["step"] for event in ml.runs(tmp_path)["line"].events if "metric" in event]
    assert steps == [*range(1, 200, 2)]


def test_rows_of_fast_steps_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "FLUSH_S", 60.0)  # as if the thread that reads the values got no time
    with ml.track(tmp_path / "line") as run:
        for number in range(2_000):
            run.log({"loss": number})
            assert len(run._waiting) <= tracking.MOST_ROWS
    np.testing.assert_array_equal(ml.runs(tmp_path)["line"].history["loss"], np.arange(2_000))


def test_the_loop_waits_for_no_locked_database_and_no_row_is_lost(tmp_path: Path) -> None:
    is_locked, may_fail = threading.Event(), iter([True, False, False])

    def train() -> None:
        with ml.track(tmp_path / "line") as run:
            run.log({"loss": 0.0, "early": 5})
            write = run._database.change

            def slow(*arguments: Any, **options: Any) -> Any:
                is_locked.wait(30)
                if next(may_fail, False):
                    raise RunStoreError("the disk is full.", ())
                return write(*arguments, **options)

            run._database.change = slow  # pyright: ignore[reportAttributeAccessIssue]
            run._wake.set()
            for number in range(1, 3 * tracking.MOST_ROWS):
                run.log({"loss": number})  # while the thread writes
            run.note("after the lock")
            is_locked.set()

    with pytest.warns(RuntimeWarning, match="disk is full"):
        train()
    stored = ml.runs(tmp_path)["line"]
    np.testing.assert_array_equal(stored.history["loss"], np.arange(3 * tracking.MOST_ROWS))
    assert [event["text"] for event in stored.events] == ["after the lock", "done"]


def test_a_restored_state_with_nan_is_not_kept_as_a_sound_one(tmp_path: Path) -> None:
    for total in (4, 8, 12):
        with ml.track(tmp_path / "line", checkpoint_every=2, keep=1) as run:
            state = run.restore({"w": jnp.ones(2)})
            for _ in run.steps(range(12), total=total):
                state = {"w": state["w"] + (jnp.nan if run.step > 2 else 1)}
                run.log({"validation_loss": math.nan}, state=state)  # no warning: many loops have it for "not computed"
            run._control.request("stop")
    assert ml.runs(tmp_path)["line"].checkpoints == [2, 12]
