"""Random folders: saves and autosaves change no foreign file, and lose no finished file.

A situation is a folder with foreign files, links and leftovers, a clock, and another process that does something in the
middle of a write. Random saves and autosaves run in it.
"""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import mithril_nb as ml
from mithril_nb import atomic_write
from mithril_nb.atomic_write import HELD, MARK, locked_folder, new_folder
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models import Relu
from mithril_nb.ui.session import autosave
from mithril_nb.ui.session.autosave import Autosave
from mithril_nb.ui.session.design import Design

START = Design(LogicalGraph())
EDITED = replace(START, program="forward")
NAMES = (
    "model.json",
    "cell.json",
    "other.json",
    "params.safetensors",
    ".mithril_nb-abc123.part",
    ".tmpAb12Cd",
    "export",
)


def content(path: Path):
    """Return all that a write could change in a file, a link or a folder."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    if stat.S_ISDIR(mode):
        return sorted(os.listdir(path))
    return (mode, path.read_bytes()) if stat.S_ISREG(mode) else mode


def everything(folder: Path) -> dict[Path, object]:
    return {path: content(path) for path in folder.rglob("*") if not path.parent.is_symlink()}


def place_foreign(path: Path, choose: random.Random, thesis: Path) -> None:
    """Create a foreign file, folder, link or pipe at a path."""
    match choose.randrange(8):
        case 0:
            path.write_text("thesis")
        case 1:
            path.symlink_to(thesis)
        case 2:
            path.symlink_to(path.with_name("missing"))
        case 3:
            path.symlink_to(choose.choice(NAMES))
        case 4:
            path.mkdir()
        case 5:
            path.mkdir()
            (path / choose.choice((HELD, "notes.txt"))).write_text(choose.choice(("", "notes")))
        case 6:
            path.mkdir()
            (path / HELD).symlink_to(thesis)
        case _:
            path.write_text('{"format": "mithril_nb.autosave"}')
    if path.exists() and choose.random() < 0.5:
        os.utime(path, (0, 0))


def leave_leftover(folder: Path, choose: random.Random):
    """Leave the temporary folder of a killed or a running process. Return the open file that a running one locks."""
    part, held = locked_folder(folder / "notes.txt")
    (part / "notes.txt").write_text("half")
    os.utime(part, (0, 0))
    if choose.random() < 0.5:
        return part, held
    held.close()
    return part, None


def act(folder: Path, choose: random.Random) -> Path:
    """Save something by a path. Return the path."""
    path = folder / choose.choice(("model.json", "other.json", "new.json", "params.safetensors"))
    match choose.randrange(4):
        case 0:
            ml.save(Relu(), path)
        case 1:
            ml.save_params({"w": [1.0]}, path)
        case 2:
            path = folder / "export"
            with new_folder(path) as part:
                (part / "a.txt").write_text("whole")
        case _:
            path = folder / "cell.json"
            session = Autosave(path, START)
            session.save(choose.choice((EDITED, EDITED, START)), 1, ("program",))
            if session.offer and choose.random() < 0.3:
                session.decline()
            session.end()
    return path


def test_random_situations_change_no_foreign_file(tmp_path, monkeypatch, stress):
    count, choose, lost, changed = stress.size(short=150, long=10_000), random.Random(11), [], []
    sync = atomic_write._sync
    for number in range(count):
        folder = tmp_path / str(number)
        folder.mkdir()
        thesis = folder.parent / f"thesis-{number}.tex"
        thesis.write_text("thesis")
        monkeypatch.setattr(autosave, "_IN_MEMORY", {})
        monkeypatch.setattr(autosave.time, "time", lambda: choose.choice((0.0, 1e9, 4e9)))
        own = set()
        for _ in range(choose.randrange(3)):
            own.add(act(folder, choose))
        own = {path for path in own if path.exists()}
        for name in NAMES:
            if choose.random() < 0.4 and not os.path.lexists(folder / name):
                place_foreign(folder / name, choose, thesis)
        leftovers = [leave_leftover(folder, choose) for _ in range(choose.randrange(3))]
        saved = {path: versions_of(path) for path in own}
        before = everything(folder) | {thesis: content(thesis)}

        def interrupted(path, flags, folder=folder, thesis=thesis, before=before):
            late = folder / "cell.json"
            if choose.random() < 0.2 and not os.path.lexists(late):
                place_foreign(late, choose, thesis)
                inside = [] if late.is_symlink() else late.rglob("*")
                before |= {late: content(late)} | {path: content(path) for path in inside}
            sync(path, flags)

        monkeypatch.setattr(atomic_write, "_sync", interrupted)
        chosen = set()
        for _ in range(choose.randint(1, 3)):
            monkeypatch.setattr(autosave, "_IN_MEMORY", {})  # as in another process
            try:
                path = act(folder, choose)
            except (OSError, ml.errors.MithrilError):
                continue
            if path.name != "cell.json":  # the user's own path: the save replaces the file, or that of a link
                chosen |= {path, Path(os.path.realpath(path))}
        monkeypatch.setattr(atomic_write, "_sync", sync)
        after = everything(folder) | {thesis: content(thesis)}
        for path, was in before.items():
            if any(path.is_relative_to(one) for one in chosen):
                continue
            is_leftover = any(path.is_relative_to(part) for part, held in leftovers if held is None)
            is_own = path in own and path.name == "cell.json"
            if after.get(path) != was and not (is_leftover or is_own):
                changed.append((number, path.name, was, after.get(path)))
        lost += [(number, path.name) for path, was in saved.items()
                 if path not in chosen and not was <= versions_of(path)]  # fmt: skip
        for _, held in leftovers:
            if held is not None:
                held.close()
    stress.report(situations=count, foreign_files_changed=len(changed), finished_files_lost=len(lost))
    assert (changed, lost) == ([], [])


def versions_of(path: Path) -> set[str]:
    """Return the ids of the versions in an autosave file: a session removes only its own version."""
    if path.name != "cell.json":
        return set()
    return {*(autosave._read(path) or ())}


_SAVING = """
import sys, mithril_nb as ml
from mithril_nb.models import Relu
from mithril_nb.ui.session.autosave import Autosave
from mithril_nb.ui.session.design import Design
from mithril_nb.graph.records import LogicalGraph
from dataclasses import replace
from pathlib import Path
folder, who, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
start = Design(LogicalGraph())
session = Autosave(folder / "cell.json", start)
for number in range(count):
    ml.save(Relu(), folder / "shared.json")
    ml.save(Relu(), folder / f"{who}-{number}.json")
    session.save(replace(start, program="forward"), number + 1, ("program",))
    session.flush()
    assert not session.problem, session.problem
session.end()
"""


def test_two_processes_that_save_in_one_folder_lose_nothing(tmp_path, stress):
    count = stress.size(short=10, long=500)
    commands = [[sys.executable, "-c", _SAVING, str(tmp_path), who, str(count)] for who in "ab"]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=600) for process in processes] == [0, 0]
    names = {f"{who}-{number}.json" for who in "ab" for number in range(count)}
    assert {*os.listdir(tmp_path)} == names | {"shared.json", "cell.json"}
    assert all(ml.load(tmp_path / name) for name in names | {"shared.json"})
    versions = json.loads((tmp_path / "cell.json").read_text())["versions"]
    assert [version["edits"] for version in versions] == [count, count]


@pytest.mark.parametrize("about", [b"", b"notes", MARK[:-1]])
def test_a_foreign_folder_with_our_name_is_kept(tmp_path, about):
    left = tmp_path / ".mithril_nb-abc123.part"
    left.mkdir()
    (left / HELD).write_bytes(about)
    os.utime(left, (0, 0))
    ml.save(Relu(), tmp_path / "model.json")
    assert (left / HELD).read_bytes() == about


@pytest.mark.parametrize("name", [b"", b"a/b", b"a\0b"])
def test_a_leftover_with_an_invalid_name_is_kept(tmp_path, name):
    left = tmp_path / ".mithril_nb-abc123.part"
    for folder in ("old", "new"):
        (left / folder).mkdir(parents=True)
    (left / HELD).write_bytes(MARK + name)
    ml.save(Relu(), tmp_path / "model.json")
    assert (left / "old").exists()
