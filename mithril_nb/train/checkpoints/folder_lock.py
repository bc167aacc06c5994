"""A lock on a folder of checkpoints: one run at a time, and no lock outlives its process.

The operating system locks a file in the folder and unlocks it when the process ends, even if it is killed. The content
of the file names the holder. Some file systems lock a file for one host only, or not at all. There, the holder keeps
the lock by a heartbeat: it updates the file's modification time again and again. A file that mithril_nb did not write,
or a symbolic link, is never changed.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import tempfile
import threading
import time
import uuid
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from mithril_nb.atomic_write import lock_file, open_regular
from mithril_nb.errors import CheckpointError

NAME = ".mithril_nb.lock"
HEARTBEAT_S = 10.0
STALE_S = 60.0
"""Age of the last heartbeat after which another run may take over a lock without an operating system lock."""
MOST_TRIES = 100
_LONGEST = 10_000


class FolderLock:
    """Lock of one run on one folder. It also excludes other runs of the same process."""

    def __init__(self, folder: Path):
        self.path = folder / NAME
        self._mutex = threading.RLock()
        self._file: IO[bytes] | None = None
        self._run, self._text = "", b""
        self._drop: weakref.finalize | None = None
        _LOCKS.add(self)

    @property
    def is_held(self) -> bool:
        """True if this run holds the folder: the lock file still exists and names this run."""
        return self._file is not None and _content(self.path) == self._text

    def acquire(self) -> None:
        """Lock the folder; do nothing if this run holds it."""
        with self._mutex:
            for _ in range(MOST_TRIES):
                if self.is_held:
                    return
                self.release()
                self._try()
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def release(self) -> None:
        """Unlock the folder and remove the file."""
        with self._mutex:
            # Do not call self._drop(): it does nothing once `weakref.finalize` has run at interpreter exit.
            detached = None if self._drop is None else self._drop.detach()
            self._drop = self._file = None
            if detached is not None:
                detached[1](*detached[2])

    def _try(self) -> None:
        # If the previous holder removes the file meanwhile, `is_held` stays False.
        descriptor = None
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)  # follows no link
        except FileExistsError:
            with suppress(FileNotFoundError):  # the previous holder has just removed it
                descriptor = open_regular(self.path, os.O_RDWR)
            if descriptor is None:
                return
        # Unbuffered, so that other hosts read the holder at once.
        file = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            is_locked = lock_file(file)
            about = file.read(_LONGEST)
            holder = _holder(about)
            if is_locked is False:
                raise self._in_use(holder, None)
            if holder is not None and (is_locked is None or holder["machine"] != _machine()):
                # By the file system's clock, which all hosts share: their own clocks may differ by minutes.
                with tempfile.TemporaryFile(dir=self.path.parent) as now:
                    age_s = os.fstat(now.fileno()).st_mtime - os.fstat(file.fileno()).st_mtime
                if age_s < STALE_S:
                    raise self._in_use(holder, max(0.0, age_s))
            if holder is None and about:
                raise OSError(errno.EEXIST, "mithril_nb did not write this file", str(self.path))
            self._run = uuid.uuid4().hex
            about = {"pid": os.getpid(), "host": socket.gethostname(), "machine": _machine(), "run": self._run}
            self._text = json.dumps(about | {"since": time.strftime("%Y-%m-%d %H:%M:%S")}).encode()
            file.truncate(0)
            file.seek(0)
            file.write(self._text)
        except BaseException:
            file.close()
            raise
        ended = threading.Event()
        self._file = file
        self._drop = weakref.finalize(self, _drop, self.path, file, self._text, ended, os.getpid())
        self._drop.atexit = False  # `run/control.py` stops the runs first, and they write a last checkpoint
        arguments = (self.path, self._text, ended)
        threading.Thread(target=_beat, args=arguments, name="mithril_nb heartbeat", daemon=True).start()

    def _in_use(self, holder: dict[str, Any] | None, age_s: float | None) -> CheckpointError:
        facts, advice = [("folder", str(self.path.parent))], "stop that run"
        if holder is None:
            facts.append(("process", "unknown"))
        else:
            is_own = any(holder["run"] == lock._run for lock in tuple(_LOCKS))
            where = ", which is this process" if is_own else f" on host {holder['host']!r}"
            facts += [("process", f"{holder['pid']}{where}"), ("since", holder["since"])]
            advice = "call run.stop() of that run" if is_own else advice
        if age_s is not None:
            facts.append(("heartbeat", f"{age_s:.0f} s ago; the lock expires {STALE_S:.0f} s after the last heartbeat"))
            advice += f"; if it was killed, wait {STALE_S - age_s:.0f} s, or remove {str(self.path)!r}"
        return CheckpointError(
            "another run is using the folder for checkpoints.",
            tuple(facts),
            f'ml.fit(model, data, checkpoint="another-folder")  # or {advice}',
        )


_LOCKS: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def in_use(folder: Path) -> bool:
    """Return whether a process that is alive holds the lock of a folder."""
    try:
        with os.fdopen(open_regular(folder / NAME), "rb") as file:
            is_locked, beat_at = lock_file(file), os.fstat(file.fileno()).st_mtime
            # On a file system without locks, a lock is held while its heartbeat is young.
            return is_locked is False or (is_locked is None and time.time() - beat_at < STALE_S)
    except OSError:
        return False


def _forget_all() -> None:
    # A forked child inherits the open files, and an open copy would keep a folder locked after the parent ends.
    for lock in tuple(_LOCKS):
        if lock._drop is not None and lock._file is not None:
            lock._drop.detach()
            lock._file.close()
        lock._mutex = threading.RLock()  # another thread of the parent may have held it, and does not exist here
        lock._drop = lock._file = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _drop(path: Path, file: IO[bytes], text: bytes, ended: threading.Event, process: int) -> None:
    ended.set()
    is_own = os.getpid() == process and _content(path) == text
    if os.name != "posix":  # Windows cannot remove an open file; a file that the next holder has opened stays
        file.close()
    if is_own:
        with suppress(OSError):
            path.unlink()
    file.close()


def _beat(path: Path, text: bytes, ended: threading.Event) -> None:
    while not ended.wait(HEARTBEAT_S):
        with suppress(OSError):
            if _content(path) == text:
                # Where the platform can, not through a link that has replaced the file since it was read.
                os.utime(path, follow_symlinks=os.utime not in os.supports_follow_symlinks)


def _content(path: Path) -> bytes | None:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(_LONGEST)
    except OSError:
        return None


def _holder(about: bytes) -> dict[str, Any] | None:
    try:
        holder = json.loads(about)
        return {"pid": int(holder["pid"]), **{name: str(holder[name]) for name in ("host", "machine", "since", "run")}}
    except (ValueError, KeyError, TypeError):
        return None


@cache
def _machine() -> str:
    # Processes that share operating system locks have the same id.
    with suppress(OSError):  # containers of one kernel share its locks but have different host names
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()
