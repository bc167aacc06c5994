"""Launchers started from the command line. Each is ended with all its processes, even if the test fails."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from process import ONE_DEVICE

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60.0
"""Nothing in these tests may take longer."""


class Launched:
    """A launcher in a separate process, whose output is collected while it runs."""

    def __init__(self, *arguments: str | Path):
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mithril_nb", "launch", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **ONE_DEVICE},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.out, self.err = "", ""
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in ("out", "err")]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str) -> None:
        for line in getattr(self.process, f"std{name}"):
            setattr(self, name, getattr(self, name) + line)

    def until(self, pattern: str) -> re.Match[str]:
        """Wait until something is printed."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            if found := re.search(pattern, self.out):
                return found
            assert self.process.poll() is None, self.out + self.err
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} within {LIMIT_S:g} s in:\n{self.out}{self.err}")

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Wait for its end; return its exit status."""
        status = self.process.wait(limit_s)
        for reader in self._readers:
            reader.join(5)
        return status

    def workers(self, count: int) -> list[int]:
        """Return the process ids that the scripts have printed as `pid 123`, by the process's number."""
        return [int(self.until(rf"\[{index}\] pid (\d+)\n")[1]) for index in range(count)]

    def close(self) -> None:
        """End it, and all that it started."""
        pids = [int(pid) for pid in re.findall(r"pid (\d+)\n", self.out)]
        for pid in (self.process.pid, *pids):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self.process.wait(10)
        for reader in self._readers:
            reader.join(5)
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture(scope="module")
def launched() -> Iterator[Callable[..., Launched]]:
    """Return a function that starts `mithril-nb launch` with arguments."""
    running: list[Launched] = []

    def start(*arguments: str | Path) -> Launched:
        running.append(Launched(*arguments))
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a script."""

    def write(code: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(code), encoding="utf-8")
        return path

    return write


def members(groups: list[int]) -> list[str]:
    """Return the running processes of some process groups. Zombies do not count."""
    listed = subprocess.run(["ps", "-e", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [" ".join(row) for row in rows if int(row[0]) in groups and not row[1].startswith("Z")]


@pytest.fixture
def nothing_left() -> Callable[..., None]:
    """Return a check that process groups become empty within a time limit."""

    def check(groups: list[int], within_s: float = 0.0) -> None:
        until = time.monotonic() + within_s
        while members(groups) and time.monotonic() < until:
            time.sleep(0.05)
        assert members(groups) == []

    return check
