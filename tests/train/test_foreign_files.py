"""A run changes only files of its own checkpoint folder that it wrote: no links, and no files of other programs."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from mithril_nb.errors import CheckpointError
from mithril_nb.train import fit
from mithril_nb.train.checkpoints.file import content_id, read, write
from mithril_nb.train.checkpoints.folder_lock import NAME
from mithril_nb.train.checkpoints.saver import Checkpoints, Saver, checkpoints_in
from tests.train.resuming import resumed

NAMES = (NAME, ".lock", ".tmpa1B2c3", ".mithril_nb-abc.part", "notes", *(f"step-{n:010}.safetensors" for n in range(6)))
CONTENTS = (b"thesis", b"{}", b'{"pid": 1}', b"\x08\0\0\0\0\0\0\0{}      ", bytes(40))


def test_lock_is_not_written_through_a_link(small, blobs, tmp_path):
    thesis, folder = tmp_path / "thesis.tex", tmp_path / "ck"
    folder.mkdir()
    for name in (NAME, ".lock"):
        thesis.write_text("years")
        (folder / name).symlink_to(thesis)
    with pytest.raises(CheckpointError, match="it is a symbolic link"):
        fit(small, blobs, checkpoint=folder)
    (folder / NAME).unlink()
    (folder / NAME).write_text("of another program")
    with pytest.raises(CheckpointError, match="mithril_nb did not write this file"):
        fit(small, blobs, checkpoint=folder)
    (folder / NAME).unlink()
    assert fit(small, blobs, epochs=1, checkpoint=folder).wait().errors == []
    assert (thesis.read_text(), (folder / ".lock").is_symlink()) == ("years", True)


def test_link_in_place_of_a_checkpoint(small, blobs, tmp_path):
    thesis, folder = tmp_path / "thesis.tex", tmp_path / "ck"
    thesis.write_text("years")
    run = fit(small, blobs, epochs=2, batch_size=16, checkpoint=Checkpoints(folder, every_epoch=1))
    with pytest.warns(RuntimeWarning, match="File exists"):  # noqa: PT031 - it comes from the loop
        for event in run:
            if event.step == 2:
                (folder / "step-0000000008.safetensors").symlink_to(thesis)
    assert (thesis.read_text(), (folder / "step-0000000008.safetensors").is_symlink()) == ("years", True)
    with pytest.warns(RuntimeWarning, match="symbolic link"):
        assert resumed(small, blobs, folder).step == 4


def test_checkpoint_that_a_user_copied_is_not_pruned(small, blobs, two, tmp_path):
    run = fit(small, blobs, epochs=4, batch_size=16, checkpoint=Checkpoints(two, every_epoch=1, keep=1), resume=True)
    other = read(two / "step-0000000004.safetensors")
    for event in run:
        if event.step == 9:
            write(two / "step-0000000002.safetensors", other.arrays, other.facts | {"seed": 5})
    assert [path.name for path in checkpoints_in(two)] == ["step-0000000016.safetensors", "step-0000000002.safetensors"]


class Situation:
    """A folder beside which foreign files lie, and two runs that write checkpoints into it while files appear."""

    def __init__(self, root: Path, rng: np.random.Generator):
        self.root, self.folder, self.rng = root, root / "ck", rng
        self.folder.mkdir(parents=True)
        self.foreign: dict[Path, bytes | str] = {}
        for number in range(2):
            self._file(root / f"outside-{number}")
        self.written: int | None = None

    def _file(self, path: Path) -> None:
        content = CONTENTS[self.rng.integers(len(CONTENTS))]
        with suppress(FileExistsError), open(path, "xb") as file:
            file.write(content)
            self.foreign[path] = content

    def disturb(self) -> None:
        """Place a foreign file, link, folder or pipe, or change clocks."""
        path = self.folder / NAMES[self.rng.integers(len(NAMES))]
        with suppress(FileExistsError):
            match self.rng.integers(6):
                case 0 | 1:
                    self._file(path)
                case 2:
                    target = (self.root / "outside-0", self.root / "absent", self.folder / "notes")[
                        self.rng.integers(3)
                    ]
                    path.symlink_to(target)
                    self.foreign[path] = str(target)
                case 3:
                    os.link(self.root / "outside-1", path)
                    self.foreign[path] = self.foreign[self.root / "outside-1"]
                case 4:
                    path.mkdir()
                    self._file(path / "inside")
                case 5:
                    for own in self.folder.iterdir():
                        with suppress(FileNotFoundError):  # the saver has removed it meanwhile
                            os.utime(own, (0, self.rng.integers(2**32)), follow_symlinks=False)

    def run(self, steps: list[int]) -> None:
        """Write checkpoints as a run does, with a foreign change before each of them."""
        with suppress(CheckpointError):
            options = Checkpoints(self.folder, keep=int(self.rng.integers(1, 4)))
            saver = Saver(options, None, 0.1, {}, 0)
            with saver.reading():
                pass
            for step in steps:
                self.disturb()
                saver._farthest = max(saver._farthest, step)
                saver._write({"params": np.full(2, step)}, np.zeros((1, 1)), {"step": step})
                if saver.problem is None:
                    self.written = step
            saver.release()

    def damage(self) -> list[str]:
        """Return the foreign files that changed."""
        return [
            str(path)
            for path, content in self.foreign.items()
            if not os.path.lexists(path) or (os.readlink(path) if path.is_symlink() else path.read_bytes()) != content
        ]


def test_random_situations_of_a_folder(tmp_path, stress, monkeypatch):
    """No foreign file changes, and the latest checkpoint that was reported as written is there."""
    count = stress.size(short=150, long=10_000)
    monkeypatch.setattr("mithril_nb.train.checkpoints.saver.plan_facts", lambda plan: {})
    monkeypatch.setattr("mithril_nb.train.checkpoints.saver.equations_of", lambda plan, params: {})
    monkeypatch.setattr("mithril_nb.atomic_write.os.fsync", lambda descriptor: None)
    damaged, lost, written = [], [], 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        situation = Situation(tmp_path / str(seed), rng)
        for _ in range(rng.integers(3)):
            situation.disturb()
        runs = [sorted(rng.choice(6, 3, replace=False).tolist()) for _ in range(rng.integers(1, 4))]
        threads = [threading.Thread(target=situation.run, args=(steps,)) for steps in runs]
        is_race = seed % 3 == 0
        for thread in threads:
            thread.start()
            if not is_race:
                thread.join()
        for thread in threads:
            thread.join()
        damaged += situation.damage()
        if situation.written is not None:
            written += 1
            path = situation.folder / f"step-{situation.written:010}.safetensors"
            lost += [] if content_id(path) else [str(path)]
    stress.report(situations=count, with_checkpoints=written, foreign_changed=len(damaged), own_lost=len(lost))
    assert (damaged, lost) == ([], [])
    assert written > count // 10
