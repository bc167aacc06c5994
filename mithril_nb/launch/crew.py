"""The processes of a launch on this machine: their output, their ends, and an end for all of them on every way out."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, TextIO

from mithril_nb.launch.place import Place

LAST_LINES = 12
"""Lines of each process that are kept for the message about its end."""
LONGEST_LINE = 65536
"""Bytes after which a line that does not end is shown all the same."""
REAP_S = 10.0
"""How long the system may take to end a process that was killed."""


class Worker:
    """One process, the leader of a process group of its own.

    Attributes:
        index: Its number among all processes.
        is_ready: Whether it has met the others.
        status: Its exit status as `subprocess` has it, `None` while it runs.
        sent: The last signal that the launcher sent it to end it, `None` if it ended by itself.
        last_lines: The last lines that it wrote.
    """

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket, index: int):
        self.process, self.link, self.index = process, link, index
        self.is_ready = False
        self.status: int | None = None
        self.sent: int | None = None
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def has_failed(self) -> bool:
        """Whether it ended badly, and not because the launcher ended it."""
        return self.status not in (None, 0) and self.sent is None

    def look(self) -> None:
        """Note its end; end what it has started and left behind."""
        if self.status is None and (status := self.process.poll()) is not None:
            self.status = status
            self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to its whole process group, if there is anybody left."""
        with suppress(ProcessLookupError, PermissionError):  # macOS refuses to signal what has ended but is not reaped
            os.killpg(self.process.pid, number)


class Crew:
    """All processes that one launcher has started. As a context manager, it leaves none of them running.

    Attributes:
        workers: The processes.
    """

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._unfinished: dict[int, bytes] = {}

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        try:
            self.end(0)
        finally:
            for worker in self.workers:
                worker.link.close()
            for key in tuple(self._selector.get_map().values()):
                key.fileobj.close()  # pyright: ignore[reportAttributeAccessIssue]
            self._selector.close()

    @property
    def running(self) -> list[Worker]:
        """The processes that have not ended."""
        return [worker for worker in self.workers if worker.status is None]

    def start(self, place: Place, script: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start one process."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "mithril_nb.launch.worker", str(theirs.fileno()), script, *arguments]
            process = subprocess.Popen(
                command,
                env=place.environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        worker = Worker(process, ours, place.index)
        self.workers.append(worker)
        for stream, shown in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, (worker, shown))
        self._selector.register(ours, selectors.EVENT_READ, (worker, None))

    def pump(self, timeout_s: float) -> None:
        """Wait for output at most for a time, hand it through, and note who has ended."""
        if not self._selector.get_map():
            time.sleep(timeout_s)
        for key, _ in self._selector.select(timeout_s):
            self._read(key.fileobj, *key.data)
        for worker in self.running:
            worker.look()

    def pump_for(self, seconds: float) -> None:
        """Hand output through for a time, or until all have ended."""
        until = time.monotonic() + seconds
        while self.running and (left := until - time.monotonic()) > 0:
            self.pump(min(0.05, left))

    def send(self, number: int) -> None:
        """Send a signal to all that run, by which they are to end."""
        for worker in self.running:
            worker.sent = number
            worker.signal(number)

    def end(self, grace_s: float) -> None:
        """End all that run: by SIGTERM, and after a time by SIGKILL. Then show what they had still to say."""
        if grace_s > 0 and self.running:
            self.send(signal.SIGTERM)
            self.pump_for(grace_s)
        self.send(signal.SIGKILL)
        until = time.monotonic() + REAP_S
        while self.running and time.monotonic() < until:
            self.pump(0.01)
        self._drain()

    def _drain(self) -> None:
        """Show what is left in the pipes, without waiting for whoever still holds one open."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                self._read(key.fileobj, *key.data)

    def _read(self, source: Any, worker: Worker, shown: TextIO | None) -> None:
        if shown is None:
            worker.is_ready = bool(source.recv(64)) or worker.is_ready
            self._selector.unregister(source)  # it has said all that it ever says, or is gone
            return
        stream: IO[bytes] = source
        number = stream.fileno()
        data = os.read(number, LONGEST_LINE)
        *lines, rest = (self._unfinished.pop(number, b"") + data).split(b"\n")
        if rest and data and len(rest) < LONGEST_LINE:
            self._unfinished[number] = rest
        elif rest:
            lines.append(rest)
        for line in lines:
            _show(worker, line.decode("utf-8", "replace").rstrip("\r"), shown)
        if not data:
            self._selector.unregister(stream)
            stream.close()


def _show(worker: Worker, line: str, shown: TextIO) -> None:
    worker.last_lines.append(line)
    encoding = getattr(shown, "encoding", None) or "utf-8"
    shown.write(f"[{worker.index}] {line}\n".encode(encoding, "replace").decode(encoding))
    shown.flush()
