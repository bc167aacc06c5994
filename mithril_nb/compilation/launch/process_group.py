"""The processes of a launch that run on this machine: environment, output and end."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import IO, Any, TextIO

VARIABLE = "MITHRIL_NB_LAUNCH"
"""Environment variable that holds the `Rank` of a worker."""
LATER_S = 30.0
"""Seconds that a worker waits for the others after the launcher's timeout, so that the launcher reports the timeout."""


@dataclass(frozen=True)
class Rank:
    """The position of one process among the processes that are launched together.

    Attributes:
        coordinator: `"host:port"` of process 0, to which all processes connect.
        index: Index of this process, from 0.
        count: Number of processes.
        devices: Number of devices of this process.
        is_local: True if all processes are on this machine.
        start_timeout_s: Seconds that the processes may take to connect.
        peer_timeout_s: Seconds after which a process that does not answer counts as dead.
    """

    coordinator: str
    index: int
    count: int
    devices: int = 1
    is_local: bool = True
    start_timeout_s: float = 120.0
    peer_timeout_s: float = 60.0

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of the process: those of `base`, and settings of JAX and XLA.

        Examples:
            >>> variables = Rank("127.0.0.1:4000", 1, 2).environment({"HOME": "here"})
            >>> variables["HOME"], variables["JAX_NUM_CPU_DEVICES"]
            ('here', '1')
        """
        threads = base.get("NPROC", "")
        # The older way to set the number of devices, without effect next to JAX_NUM_CPU_DEVICES.
        flags = re.sub(r"--xla_force_host_platform_device_count=\S*", "", base.get("XLA_FLAGS", ""))
        unproxied = ",".join(filter(None, (base.get("no_grpc_proxy"), self.coordinator.rpartition(":")[0])))
        return {
            **base,
            VARIABLE: json.dumps(asdict(self)),
            # JAX's default. A setting of the user's environment, such as MPI, would need another launcher.
            "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            "JAX_NUM_CPU_DEVICES": str(self.devices),
            "XLA_FLAGS": flags.strip(),
            # XLA's pool has a thread per processor, and a collective blocks one thread per device. If no thread is left
            # for the work that the collective waits for, the program deadlocks.
            "NPROC": str(max(8, 4 * self.devices, int(threads) if threads.isdecimal() else 0)),
            # JAX's preemption service would catch SIGTERM, and wait until all processes have received it.
            "JAX_ENABLE_PREEMPTION_SERVICE": "false",
            # A web proxy would intercept the connections between the processes.
            "no_grpc_proxy": unproxied,
            # A pipe is block-buffered, so output would come late, or never from a killed process.
            "PYTHONUNBUFFERED": "1",
        }

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Rank:
        """Return the rank that `Rank.environment` has stored in an environment."""
        return cls(**json.loads(environment[VARIABLE]))

    def join(self) -> None:
        """Connect to the other processes, and wait until JAX lists the devices of all of them."""
        import jax

        jax.config.update("jax_check_proxy_envs", False)  # JAX would warn about `no_grpc_proxy`
        mine = [self.index * self.devices + local for local in range(self.devices)]
        jax.distributed.initialize(
            self.coordinator,
            self.count,
            self.index,
            # On several machines, a process uses all accelerators of its machine, or what a cluster assigns to it.
            local_device_ids=mine if self.is_local else None,
            initialization_timeout=int(self.start_timeout_s + LATER_S),
            heartbeat_timeout_seconds=max(1, round(self.peer_timeout_s)),
            # By default, JAX listens on all addresses of the machine.
            coordinator_bind_address=self.coordinator if self.is_local else None,
        )
        jax.devices()


def free_address() -> str:
    """Return an unused address on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


LAST_LINES = 12
"""Number of last lines of output to keep for each process, for the error message."""
LONGEST_LINE = 65536
"""Length in bytes at which an unfinished line is printed."""
REAP_S = 10.0
"""Seconds to wait for a killed process to end."""


class LaunchedProcess:
    """A process that the launcher has started.

    Attributes:
        index: Index of the process among all processes.
        is_ready: True if the process has connected to the others.
        status: Exit status as `subprocess` reports it, `-9` for SIGKILL; `None` while the process runs.
        sent: The last signal that the launcher sent to the process; `None` if it sent none.
        last_lines: The last lines that the process printed.
    """

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket, index: int):
        self.process, self.link, self.index = process, link, index
        self.is_ready = False
        self.status: int | None = None
        self.sent: int | None = None
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def has_failed(self) -> bool:
        """True if the process ended with an error by itself. False if it runs, or if the launcher ended it."""
        return self.status not in (None, 0) and self.sent is None

    def poll(self) -> None:
        """If the process has ended, record its exit status and kill the processes that it started."""
        if self.status is None and (status := self.process.poll()) is not None:
            self.status = status
            # Data loaders and other children of the script outlive it otherwise.
            self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to the process and the processes that it started."""
        with suppress(ProcessLookupError, PermissionError):  # macOS rejects a signal to an ended, unreaped process
            os.killpg(self.process.pid, number)


class ProcessGroup:
    """All processes that one launcher has started. As a context manager, the group ends all of them on exit."""

    def __init__(self) -> None:
        self.workers: list[LaunchedProcess] = []
        self._selector = selectors.DefaultSelector()
        self._unfinished: dict[int, bytes] = {}

    def __enter__(self) -> ProcessGroup:
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
    def running(self) -> list[LaunchedProcess]:
        """The processes that have not ended."""
        return [worker for worker in self.workers if worker.status is None]

    def start(self, rank: Rank, script: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start one process."""
        # The process reports over it that it has connected. The launcher's end closes when the launcher dies.
        ours, theirs = socket.socketpair()
        with theirs:
            command = [
                sys.executable,
                "-m",
                "mithril_nb.compilation.launch.worker",
                str(theirs.fileno()),
                script,
                *arguments,
            ]
            process = subprocess.Popen(
                command,
                env=rank.environment(environment),
                # Several processes cannot share a terminal's input.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                # A group for each process, so that a signal reaches its children and not the launcher.
                process_group=0,
            )
        worker = LaunchedProcess(process, ours, rank.index)
        self.workers.append(worker)
        for stream, out in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, (worker, out))
        self._selector.register(ours, selectors.EVENT_READ, (worker, None))

    def pump(self, timeout_s: float) -> None:
        """Forward output and record which processes have ended. Wait at most `timeout_s` for output."""
        if not self._selector.get_map():
            time.sleep(timeout_s)
        for key, _ in self._selector.select(timeout_s):
            self._read(key.fileobj, *key.data)
        for worker in self.running:
            worker.poll()

    def pump_for(self, seconds: float) -> None:
        """Forward output for some seconds, or until all processes have ended."""
        until = time.monotonic() + seconds
        while self.running and (left := until - time.monotonic()) > 0:
            self.pump(min(0.05, left))

    def send(self, number: int) -> None:
        """Send a signal to all running processes, and record it as the reason of their end."""
        for worker in self.running:
            worker.sent = number
            worker.signal(number)

    def end(self, grace_s: float) -> None:
        """End all running processes with SIGTERM, and after `grace_s` with SIGKILL. Then print their last output."""
        if grace_s > 0 and self.running:
            self.send(signal.SIGTERM)
            self.pump_for(grace_s)
        self.send(signal.SIGKILL)
        until = time.monotonic() + REAP_S
        while self.running and time.monotonic() < until:
            self.pump(0.01)
        # Print what is left, but not until the pipes close: a process that left its group may keep them open.
        while ready := self._selector.select(0):
            for key, _ in ready:
                self._read(key.fileobj, *key.data)

    def _read(self, source: Any, worker: LaunchedProcess, out: TextIO | None) -> None:
        if out is None:
            worker.is_ready = bool(source.recv(64)) or worker.is_ready
            self._selector.unregister(source)  # the worker sends one message only, or has ended
            return
        stream: IO[bytes] = source
        number = stream.fileno()
        # Not `readline`, which would block on an unfinished line.
        data = os.read(number, LONGEST_LINE)
        *lines, rest = (self._unfinished.pop(number, b"") + data).split(b"\n")
        if rest and data and len(rest) < LONGEST_LINE:
            self._unfinished[number] = rest
        # The stream ended, or the line is too long to keep.
        elif rest:
            lines.append(rest)
        for line in lines:
            text = line.decode("utf-8", "replace").rstrip("\r")
            worker.last_lines.append(text)
            # A log file may be ASCII; a character that it lacks must not end the launch.
            encoding = getattr(out, "encoding", None) or "utf-8"
            out.write(f"[{worker.index}] {text}\n".encode(encoding, "replace").decode(encoding))
            out.flush()
        if not data:
            self._selector.unregister(stream)
            stream.close()
