"""Atomic writes: whole or unchanged, alone or concurrently, without leftovers."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mithril_nb import atomic_write
from mithril_nb.atomic_write import locked_folder, replacing, write_text


def test_a_block_that_raises_leaves_the_old_content(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as part:  # noqa: PT012 - it raises in the middle
        part.write_text("half")
        raise RuntimeError
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["a.txt"])


def test_a_killed_write_is_removed_by_a_later_write(tmp_path):
    code = """
import os, signal, sys
from mithril_nb.atomic_write import replacing
with replacing(sys.argv[1]) as part:
    part.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "a.txt"
    path.write_text("old")
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False)
    (left,) = [name for name in os.listdir(tmp_path) if name != "a.txt"]
    assert path.read_text() == "old"
    assert left.endswith(".part")
    write_text(path, "new")
    assert (path.read_text(), os.listdir(tmp_path)) == ("new", ["a.txt"])


@pytest.mark.parametrize("has_locks", [True, False])
def test_a_write_keeps_a_concurrent_one(tmp_path, monkeypatch, has_locks):
    if not has_locks:
        monkeypatch.setattr(atomic_write, "lock_file", lambda file: None)
    with replacing(tmp_path / "a.txt") as part:
        part.write_text("a")
        write_text(tmp_path / "b.txt", "b")
        assert part.exists()
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt"]


def left_of_a_killed_process(folder: Path, name: str = "b.txt") -> Path:
    """Return the temporary folder of a process that was killed while it wrote a file."""
    left, held = locked_folder(folder / name)
    held.close()  # the system does so when the process ends
    return left


def test_without_locks_no_leftover_is_removed(tmp_path, monkeypatch):
    left = left_of_a_killed_process(tmp_path)
    os.utime(left, (0, 0))
    with monkeypatch.context() as patched:
        patched.setattr(atomic_write, "lock_file", lambda file: None)
        write_text(tmp_path / "a.txt", "a")
        assert left.exists()
    write_text(tmp_path / "a.txt", "a")
    assert os.listdir(tmp_path) == ["a.txt"]


def test_threads_that_write_one_file_never_mix(tmp_path):
    path, seen = tmp_path / "a.txt", set()

    def write(digit: str) -> None:
        for _ in range(20):
            write_text(path, digit * 50_000)
            seen.add(path.read_text())

    threads = [threading.Thread(target=write, args=(digit,)) for digit in "123"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen <= {digit * 50_000 for digit in "123"}
    assert os.listdir(tmp_path) == ["a.txt"]


def test_mode_and_symbolic_links_are_kept(tmp_path):
    (tmp_path / "real").mkdir()
    path = tmp_path / "real" / "a.txt"
    path.write_text("old")
    path.chmod(0o640)
    (tmp_path / "link.txt").symlink_to(path)
    write_text(tmp_path / "link.txt", "new\n")
    assert (tmp_path / "link.txt").is_symlink()
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new\n", 0o640)
    mask = os.umask(0o022)
    os.umask(mask)
    write_text(tmp_path / "fresh.txt", "")
    assert stat.S_IMODE((tmp_path / "fresh.txt").stat().st_mode) == 0o666 & ~mask


def test_a_device_is_written_to_and_not_replaced():
    write_text(os.devnull, "gone")
    assert not os.path.isfile(os.devnull)


def test_a_folder_that_was_not_replaced_completely_comes_back(tmp_path):
    left = left_of_a_killed_process(tmp_path, "export")
    for name in ("old", "new"):  # the old folder was moved away, and the new one not yet to its place
        (left / name).mkdir()
        (left / name / "a.txt").write_text(name)
    write_text(tmp_path / "notes.txt", "whole")
    assert sorted(os.listdir(tmp_path)) == ["export", "notes.txt"]
    assert (tmp_path / "export" / "a.txt").read_text() == "old"


def test_a_circle_of_links_is_not_replaced(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write_text(tmp_path / "a", "gone")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
