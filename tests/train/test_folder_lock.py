"""One run at a time uses a checkpoint folder, and no lock outlives its process."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from transcript import message_of
from waiting import until

from mithril_nb.atomic_write import locked_folder
from mithril_nb.errors import CheckpointError
from mithril_nb.train import fit
from mithril_nb.train.checkpoints import folder_lock
from mithril_nb.train.checkpoints.folder_lock import NAME, STALE_S, FolderLock
from mithril_nb.train.checkpoints.saver import Checkpoints, checkpoints_in
from tests.train.resuming import resumed

HOLD = """
import sys, time
from pathlib import Path
from mithril_nb.train.checkpoints.folder_lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


def refused(folder, process: str, advice: str) -> str:
    """Return the full text of the error, in the form of `text`."""
    return f"""another run is using the folder for checkpoints.
    folder {folder}
    process {process}
    Try: ml.fit(model, data, checkpoint="another-folder") # or {advice}"""


def text(caught) -> str:
    """Return the text of an error without the padding of its facts and the time of the lock."""
    lines = [line for line in str(caught.value).splitlines() if not line.startswith("    since")]
    return "\n".join("    " + " ".join(line.split()) if line.startswith("    ") else line for line in lines)


def holder(folder) -> subprocess.Popen:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    return child


def test_second_run_is_rejected_until_the_first_ends(small, blobs, two):
    first = resumed(small, blobs, two, epochs=100_000)
    first.start()
    until(lambda: first.step > 8)
    for options in ({}, {"resume": False}):
        with pytest.raises(CheckpointError) as caught:
            resumed(small, blobs, two, **options)
        assert text(caught) == refused(two, f"{os.getpid()}, which is this process", "call run.stop() of that run")
    first.pause()
    until(lambda: first.state == "paused")
    with pytest.raises(CheckpointError, match="another run is using"):
        resumed(small, blobs, two)
    first.stop()
    first.wait()
    assert resumed(small, blobs, two, epochs=100_000).step == first.step
    assert not (two / NAME).exists()


def test_loop_holds_the_folder_until_it_ends(small, blobs, two):
    events = iter(resumed(small, blobs, two, epochs=4))
    assert next(events).kind == "resumed"
    with pytest.raises(CheckpointError, match="another run is using"):
        resumed(small, blobs, two)
    events.close()
    assert resumed(small, blobs, two).step == 8


@pytest.mark.parametrize("ends", ["done", "stopped", "failed", "interrupted", "paused"])
def test_every_end_unlocks(small, blobs, tmp_path, ends):
    run = fit(small, blobs, epochs=4, batch_size=16, checkpoint=tmp_path)
    errors = {"failed": ZeroDivisionError, "interrupted": KeyboardInterrupt}

    def train() -> None:
        for event in run:
            assert event.kind == "done" or (tmp_path / NAME).exists() == (event.kind != "stopped")
            if event.step == 2:
                if ends in errors:
                    raise errors[ends]
                {"done": lambda: None, "stopped": run.stop, "paused": run.pause}[ends]()

    if ends in errors:
        with pytest.raises(errors[ends]):
            train()
    else:
        train()
        assert run.state == ends
    assert not (tmp_path / NAME).exists()
    until(lambda: "mithril_nb heartbeat" not in {thread.name for thread in threading.enumerate()})


def test_a_step_that_raises_unlocks(mlp, blobs, tmp_path):
    class Failing(mlp):
        def forward(self, params, inputs, *, key=None, training=False):
            if training and armed:
                raise ZeroDivisionError
            return super().forward(params, inputs, key=key, training=training)

    armed: list[int] = []
    run = fit(Failing(4, 3), blobs, batch_size=16, checkpoint=tmp_path)
    armed.append(1)
    with pytest.raises(ZeroDivisionError):
        run.wait()
    assert os.listdir(tmp_path) == []


def test_folder_that_cannot_be_locked_is_rejected(small, blobs, tmp_path):
    (tmp_path / NAME).mkdir()
    assert message_of(lambda: fit(small, blobs, checkpoint=tmp_path)) == (
        f"""CheckpointError: the folder for checkpoints cannot be locked.
    folder   {tmp_path}
    because  Is a directory: {str(tmp_path / NAME)!r}
    Try: ml.fit(model, data, checkpoint="runs/digits")"""
    )


def test_idle_run_does_not_lock_the_folder(small, blobs, tmp_path):
    options = {"epochs": 2, "batch_size": 16, "checkpoint": tmp_path, "resume": True}
    idle, other = fit(small, blobs, **options), fit(small, blobs, **options)
    other.wait()
    before = [path.read_bytes() for path in checkpoints_in(tmp_path)]
    assert message_of(lambda: idle.start().wait()) == (
        f"""CheckpointError: another run has written checkpoints in the folder of this run.
    folder  {tmp_path}
    latest  step-0000000008.safetensors
    Try: ml.fit(model, data, checkpoint={str(tmp_path)!r}, resume=True)  # continues from there"""
    )
    assert (idle.state, idle.step) == ("failed", 0)
    assert idle.message == (
        "another run has written checkpoints in the folder of this run; run.params holds the params of step 0."
    )
    assert [path.read_bytes() for path in checkpoints_in(tmp_path)] == before
    assert not (tmp_path / NAME).exists()


def test_a_run_continues_on_its_own_checkpoints(small, blobs, tmp_path):
    run = fit(small, blobs, epochs=1, batch_size=16, checkpoint=Checkpoints(tmp_path, every_s=1e-9)).wait()
    run.resume(epochs=1).wait()
    assert (run.state, run.errors, checkpoints_in(tmp_path)[0].name) == ("done", [], "step-0000000008.safetensors")


def test_copied_checkpoint_still_belongs_to_the_run(small, blobs, tmp_path):
    run = fit(small, blobs, epochs=1, batch_size=16, checkpoint=Checkpoints(tmp_path, keep=1)).wait()
    path = tmp_path / "step-0000000004.safetensors"
    os.utime(path, (0, 0))
    shutil.copy(path, tmp_path / "step-0000000003.safetensors")
    shutil.copy(path, tmp_path.parent / "kept")
    run.resume(epochs=1).wait()
    shutil.copy(tmp_path.parent / "kept", path)  # from a backup
    run.resume(epochs=1).wait()
    assert (run.state, run.errors, os.listdir(tmp_path)) == ("done", [], ["step-0000000012.safetensors"])


def test_stop_unlocks_the_folder_of_an_idle_loop(small, blobs, two):
    run = resumed(small, blobs, two, epochs=4)
    events = iter(run)
    assert [next(events).kind for _ in range(2)] == ["resumed", "step"]
    with pytest.raises(CheckpointError, match=r"or call run.stop\(\) of that run"):
        resumed(small, blobs, two)
    run.stop()
    assert (run.state, run.message) == (
        "stopped",
        "stopped; run.params holds the params of step 9; run.resume() continues from there.",
    )
    assert resumed(small, blobs, two, epochs=4).step == 9
    assert [event.kind for event in events] == ["stopped"]
    assert run.resume().wait().state == "done"


def test_stop_in_a_loop_that_is_paused_unlocks_the_folder(small, blobs, two):
    run = resumed(small, blobs, two, epochs=4)
    for event in run:
        run.pause()
        if event.kind == "paused":
            run.stop()
            assert (run.state, (two / NAME).exists()) == ("stopped", False)


@pytest.mark.parametrize("signal_number", [None, signal.SIGKILL])
def test_the_lock_of_another_process_ends_with_it(small, blobs, two, signal_number):
    with holder(two) as child:
        with pytest.raises(CheckpointError) as caught:
            resumed(small, blobs, two)
        assert text(caught) == refused(two, f"{child.pid} on host {os.uname().nodename!r}", "stop that run")
        if signal_number is None:
            child.stdin.close()
        else:
            child.send_signal(signal_number)
        child.wait(30)
        assert (two / NAME).exists() == (signal_number is not None)
        if signal_number is not None:  # as if its process id belonged to another process now, which is alive
            about = json.loads((two / NAME).read_text())
            (two / NAME).write_text(json.dumps({**about, "pid": os.getppid()}))
        assert resumed(small, blobs, two).step == 8
    assert sorted(os.listdir(two)) == ["step-0000000004.safetensors", "step-0000000008.safetensors"]


def test_child_of_a_killed_run_does_not_keep_the_lock(tmp_path):
    code = """
import os, sys, time
from pathlib import Path
from mithril_nb.train.checkpoints.folder_lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
if child := os.fork():
    print(child, flush=True)
    os.kill(os.getpid(), 9)
sys.stdin.read()
"""
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        orphan = int(child.stdout.readline())
        child.wait(30)
        os.kill(orphan, 0)
        lock = FolderLock(tmp_path)
        lock.acquire()
        assert lock.is_held
        lock.release()
        child.stdin.close()


def elsewhere(age_s: float, folder) -> None:
    """Create the lock of a run on another host in a folder, with an old heartbeat."""
    about = {"pid": 7, "host": "node-7", "machine": "other", "since": "2026-01-02 03:04:05", "run": "r"}
    (folder / NAME).write_text(json.dumps(about))
    then = time.time() - age_s
    os.utime(folder / NAME, (then, then))


def test_run_on_another_host_has_a_heartbeat(small, blobs, two):
    elsewhere(20.0, two)
    with pytest.raises(CheckpointError) as caught:
        resumed(small, blobs, two)
    ago, left = (int(found) for found in re.search(r"(\d+) s ago.* wait (\d+) s", str(caught.value), re.S).groups())
    assert 20 <= ago < 50
    assert abs(ago + left - 60) <= 1
    assert (
        str(caught.value)
        == f"""another run is using the folder for checkpoints.
    folder     {two}
    process    7 on host 'node-7'
    since      2026-01-02 03:04:05
    heartbeat  {ago} s ago; the lock expires 60 s after the last heartbeat
    Try: ml.fit(model, data, checkpoint="another-folder")  # or stop that run; if it was killed, wait {left} s, or \
remove {str(two / NAME)!r}"""
    )
    elsewhere(STALE_S + 1, two)
    assert resumed(small, blobs, two).step == 8


def test_heartbeat_counts_without_file_locks(small, blobs, two, monkeypatch):
    def flock(file, flags):
        raise OSError(errno.ENOTSUP, "not here")

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(folder_lock, "HEARTBEAT_S", 0.01)
    lock = FolderLock(two)
    lock.acquire()
    os.utime(two / NAME, (0, 0))
    until(lambda: os.stat(two / NAME).st_mtime > 1)
    with pytest.raises(CheckpointError, match="heartbeat  0 s ago"):
        resumed(small, blobs, two)
    lock.release()
    assert resumed(small, blobs, two).step == 8


def test_lost_lock_is_noticed_before_the_next_write(small, blobs, tmp_path):
    run = fit(small, blobs, epochs=1, batch_size=16, checkpoint=tmp_path)
    with pytest.warns(RuntimeWarning) as caught:  # noqa: PT031 - it comes from the loop
        for event in run:
            if event.step == 2:
                (tmp_path / NAME).unlink()
                other = FolderLock(tmp_path)
                other.acquire()
    assert [str(one.message).splitlines()[:2] for one in caught] == [
        [
            "the checkpoint of step 4 could not be written; the training continues.",
            "    because  another run is using the folder for checkpoints.",
        ]
    ]
    assert (run.state, checkpoints_in(tmp_path), other.is_held) == ("done", [], True)
    other.release()


def test_a_lock_that_was_removed_is_taken_again(small, blobs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    run = fit(small, blobs, epochs=1, batch_size=16, checkpoint=tmp_path.name)
    for event in run:
        if event.step == 2:
            (tmp_path / NAME).unlink()
            monkeypatch.chdir("/")  # the run stays in its folder
    assert (run.errors, os.listdir(tmp_path)) == ([], ["step-0000000004.safetensors"])


def test_unreferenced_lock_is_released(tmp_path):
    lock = FolderLock(tmp_path)
    lock.acquire()
    del lock
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_many_threads_and_one_lock(tmp_path):
    """A thread that removes the file may race with one that has just opened it."""
    inside, most, won = [], [], []

    def work() -> None:
        lock = FolderLock(tmp_path)
        while len(won) < 100:
            try:
                lock.acquire()
            except CheckpointError:
                continue
            inside.append(lock)
            most.append(len(inside))
            won.append(lock)
            inside.remove(lock)
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (max(most), os.listdir(tmp_path)) == (1, [])


def test_next_run_removes_only_leftovers_of_killed_writes(small, blobs, two):
    (two / ".step-0000000012.safetensors.part").write_bytes(b"half")
    (two / ".tmpa1B2c3").write_bytes(b"of another program")
    folder, held = locked_folder(two / "step-0000000012.safetensors")
    (folder / "step-0000000012.safetensors").write_bytes(b"half")
    held.close()
    (two / "notes.tmp").write_text("mine")
    assert resumed(small, blobs, two).step == 8
    assert sorted(os.listdir(two)) == [
        ".step-0000000012.safetensors.part",
        ".tmpa1B2c3",
        "notes.tmp",
        "step-0000000004.safetensors",
        "step-0000000008.safetensors",
    ]
