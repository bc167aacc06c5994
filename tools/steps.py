"""Run programs: announce them, show or log their output, and measure their time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The clone."""

WORK = ROOT / ".make"
"""Logs and temporary files; git ignores it."""


class Stop(SystemExit):
    """Ends the run with a message: the failure, the facts, and advice."""

    def __init__(self, what: str, facts: Sequence[str] = (), advice: str = "") -> None:
        lines = [what, *("    " + line for fact in facts for line in fact.splitlines())]
        if advice:
            lines.append("    Try: " + advice)
        super().__init__("\n".join(lines))


def say(text: str) -> None:
    """Print a line and flush it, so that it appears immediately in a file too."""
    print(text, flush=True)


def duration(elapsed_s: float) -> str:
    """Format seconds as `4.2 s` or `3 min 05 s`."""
    if elapsed_s < 60:
        return f"{elapsed_s:.1f} s"
    minutes, seconds = divmod(round(elapsed_s), 60)
    return f"{minutes} min {seconds:02d} s"


def end_with_the_children() -> None:
    """Make SIGTERM raise an exception, so that running child processes are ended first."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def run(command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> int:
    """Run a program with inherited output, and return its exit status."""
    process = subprocess.Popen(list(command), env=None if env is None else dict(env), cwd=cwd)
    return _wait(process)


def run_quietly(command: Sequence[str], log: Path, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> int:
    """Run a program with its output in `log`; a terminal shows the last line while it runs."""
    log.parent.mkdir(parents=True, exist_ok=True)
    live = sys.stdout.isatty()
    with log.open("w", encoding="utf-8") as kept:
        process = subprocess.Popen(
            list(command),
            env=None if env is None else dict(env),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                kept.write(line)
                if live:
                    _show(line)
        except BaseException:
            _end(process)
            raise
        finally:
            process.stdout.close()
            if live:
                _show("")
    return _wait(process)


class Beside:
    """A program that runs in the background, with its output in a log. It ends with its `with` block.

    Args:
        command: The command.
        log: File for its output.
        env: Its environment variables; by default those of this process.
        cwd: Its working folder.
    """

    def __init__(
        self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None, cwd: Path = ROOT
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("w", encoding="utf-8") as kept:
            self._process = subprocess.Popen(
                list(command),
                env=None if env is None else dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=kept,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Beside:
        """Return the running program."""
        return self

    def __exit__(self, *failure: object) -> None:
        """End the program and its children, unless `finish` has waited for it."""
        if self._process.poll() is None:
            _ask_group(self._process, signal.SIGTERM)
            try:
                self._process.wait(8)
            except subprocess.TimeoutExpired:
                _ask_group(self._process, signal.SIGKILL)
                self._process.wait()

    def finish(self) -> int:
        """Wait until it ends, print its output, and return its exit status."""
        status = self._process.wait()
        text = self._log.read_text(encoding="utf-8", errors="replace").rstrip()
        if text:
            say(text)
        return status


def _ask_group(process: subprocess.Popen[bytes], to_end: int) -> None:
    """Send a signal to a program and all its children, such as those of npm."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, to_end) if hasattr(os, "killpg") else process.terminate()  # Windows has no groups


def tail(log: Path, lines: int = 25) -> str:
    """Return the last lines of a log."""
    with log.open(encoding="utf-8", errors="replace") as kept:
        return "".join(deque(kept, maxlen=lines)).rstrip()


def output(command: Sequence[str], timeout_s: float = 30) -> str | None:
    """Return the output of a program, or `None` if it is missing or fails."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, timeout=timeout_s, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _wait(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> int:
    try:
        return process.wait()
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    if isinstance(sys.exc_info()[1], SystemExit):
        process.terminate()  # Ctrl-C in a terminal reaches the program directly, a SIGTERM to this process does not
    for ask_again in (process.terminate, process.kill):
        try:
            process.wait(8)
            return
        except subprocess.TimeoutExpired:
            ask_again()
    process.wait()


def _show(line: str) -> None:
    width = max(20, shutil.get_terminal_size().columns - 6)
    sys.stdout.write("\r\033[K" + ("    " + line.strip()[:width] if line.strip() else ""))
    sys.stdout.flush()


class Clock:
    """Measures the time of each part of a run.

    Attributes:
        parts: Name, seconds and exit status of each part, in order.
    """

    def __init__(self) -> None:
        self.parts: list[tuple[str, float, int]] = []
        self._started = time.monotonic()

    def part(self, name: str, work: Callable[[], int]) -> int:
        """Print a headline and run `work()`, which returns an exit status."""
        say(f"\n── {name} " + "─" * max(3, 76 - len(name)))
        started = time.monotonic()
        status = work()
        self.parts.append((name, time.monotonic() - started, status))
        return status

    @property
    def total_s(self) -> float:
        """Seconds since the clock was created."""
        return time.monotonic() - self._started

    def table(self) -> str:
        """Return one line for each part and one for the total."""
        width = max(len(name) for name, _, _ in self.parts)
        lines = [
            f"  {name:<{width}}  {duration(elapsed):>12}  {'ok' if status == 0 else f'FAILED ({status})'}"
            for name, elapsed, status in self.parts
        ]
        return "\n".join([*lines, f"  {'all':<{width}}  {duration(self.total_s):>12}"])


def is_root() -> bool:
    """Return whether this process may install system packages."""
    return hasattr(os, "geteuid") and os.geteuid() == 0
