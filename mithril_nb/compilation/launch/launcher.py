"""Start the processes of a launch, forward their output, end all of them if one fails, and report how each ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import FrameType

from mithril_nb.backends.backend import check_count
from mithril_nb.compilation.launch.process_group import (
    LaunchedProcess,
    ProcessGroup,
    Rank,
    free_address,
)
from mithril_nb.errors import LaunchError, UnknownOptionError

POLL_S = 0.05
"""Seconds between two checks for processes that have ended."""
SETTLE_S = 0.3
"""Seconds in which the other processes may still print errors after one has failed."""
GRACE_S = 5.0
"""Seconds that a process has to end after SIGTERM, before it is killed."""
INTERRUPT_S = 10.0
"""Seconds that a process has to end after Ctrl-C, so that a script can save its state."""


def launch(
    script: str | PathLike[str],
    arguments: Sequence[str] = (),
    *,
    processes: int = 2,
    coordinator: str | None = None,
    process_id: int | None = None,
    devices: int = 1,
    start_timeout_s: float = 120.0,
    peer_timeout_s: float = 60.0,
) -> None:
    """Run a training script on several processes, and return when all of them are done.

    Each line of output starts with the index of its process. If one process fails, the launcher ends the others. No
    process is left running, no matter how the launch ends.

    Args:
        script: Path of the script. In the script, `ml.distributed()` returns the index of the process, and `ml.fit`
            splits the work.
        arguments: Arguments of the script.
        processes: Number of processes, on all machines together.
        coordinator: Address `"host:port"` of process 0, to use several machines. Then run the launcher once for each
            process. By default, all processes run on this machine.
        process_id: Index of the process to start, from 0; only with `coordinator`.
        devices: Number of devices of each process. On a CPU, these are virtual devices of JAX.
        start_timeout_s: Seconds that the processes may take to connect.
        peer_timeout_s: Seconds after which a process on another machine that does not answer counts as dead.

    Raises:
        LaunchError: A process failed or did not connect (`status` is the highest exit status), the script does not
            exist, or the system is Windows.
        UnknownOptionError: An option has an invalid value.
        KeyboardInterrupt: The user pressed Ctrl-C. The processes receive the signal too.

    Examples:
        >>> launch("train.py", ["--epochs", "3"], processes=4)  # doctest: +SKIP
    """
    ranks = _ranks(processes, coordinator, process_id, devices, start_timeout_s, peer_timeout_s)
    # Windows has no process groups to end the processes that a script has started.
    if os.name != "posix":
        raise LaunchError(
            "mithril-nb launch needs process groups, which this system does not support.",
            (("system", sys.platform),),
            "python train.py  # one process; mithril-nb launch works on Linux and macOS",
        )
    if not Path(script).is_file():
        raise LaunchError(f"script {str(script)!r} does not exist.", (), "mithril-nb launch --processes 2 train.py")
    with _signals() as received, ProcessGroup() as group:
        for rank in ranks:
            group.start(rank, str(script), arguments, os.environ)  # each rank overwrites the variable of its own rank
        _watch(group, ranks[0], received)


def _watch(group: ProcessGroup, rank: Rank, received: list[int]) -> None:
    until = time.monotonic() + rank.start_timeout_s
    while group.running:
        group.pump(POLL_S)
        if received:
            _end_after_signal(group, received)
        if any(worker.has_failed for worker in group.workers):
            # One failure often makes others fail within milliseconds. Their messages help to find the first.
            group.pump_for(SETTLE_S)
            group.end(GRACE_S)
            raise failure(group.workers, rank.count)
        # A process that has connected may run for days; only the start is limited.
        if time.monotonic() > until and not all(worker.is_ready for worker in group.workers):
            group.end(GRACE_S)
            raise late(group.workers, rank)
    if any(worker.has_failed for worker in group.workers):
        raise failure(group.workers, rank.count)


def _end_after_signal(group: ProcessGroup, received: list[int]) -> None:
    first = received[0]
    group.send(first)
    until = time.monotonic() + (INTERRUPT_S if first == signal.SIGINT else GRACE_S)
    # A second Ctrl-C means: now.
    while group.running and len(received) == 1 and time.monotonic() < until:
        group.pump(POLL_S)
    group.end(0 if len(received) > 1 else GRACE_S)
    if first == signal.SIGINT:
        raise KeyboardInterrupt
    # The exit status by which shells report a signal.
    raise SystemExit(128 + first)


@contextmanager
def _signals() -> Iterator[list[int]]:
    received: list[int] = []
    previous: Mapping[int, object] = {}
    # Python sets signal handlers in the main thread only.
    if threading.current_thread() is threading.main_thread():

        def note(number: int, frame: FrameType | None) -> None:
            received.append(number)

        ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        previous = {number: signal.signal(number, note) for number in ends}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]


def _ranks(
    processes: int,
    coordinator: str | None,
    process_id: int | None,
    devices: int,
    start_timeout_s: float,
    peer_timeout_s: float,
) -> list[Rank]:
    processes, devices = (
        check_count("processes", processes),
        check_count("devices", devices),
    )
    for name, value in (("start_timeout_s", start_timeout_s), ("peer_timeout_s", peer_timeout_s)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise UnknownOptionError(f"{name} must be a number of seconds.", (("got", repr(value)),), f"{name}=60")
    timeouts = (float(start_timeout_s), float(peer_timeout_s))
    if coordinator is None and process_id is None:
        address = free_address()
        return [Rank(address, index, processes, devices, True, *timeouts) for index in range(processes)]
    # From the right: an IPv6 address contains colons.
    host, _, port = (coordinator or "").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or process_id is None:
        raise UnknownOptionError(
            "a launch on several machines needs the address of process 0 and the index of this process.",
            (("coordinator", repr(coordinator)), ("process id", repr(process_id))),
            "mithril-nb launch --coordinator 10.0.0.1:4000 --process-id 1 --processes 2 train.py",
        )
    if isinstance(process_id, bool) or not isinstance(process_id, int) or not 0 <= process_id < processes:
        raise UnknownOptionError(
            "the process id is out of range.",
            (("process id", repr(process_id)), ("needed", f"0 to {processes - 1}, for {processes} processes")),
            f"--process-id {processes - 1}",
        )
    return [Rank(str(coordinator), process_id, processes, devices, False, *timeouts)]


MOST_SHOWN = 3
"""Maximum number of processes whose last lines are shown."""
LATE = 124
"""Exit status of a launch whose processes did not connect in time, as in timeout(1)."""


def failure(workers: Sequence[LaunchedProcess], count: int) -> LaunchError:
    """Return the error for failed processes. Its `status` is the highest of their exit statuses."""
    failed = [worker for worker in workers if worker.has_failed]
    others = [worker for worker in workers if not worker.has_failed]
    numbers = ", ".join(str(worker.index) for worker in failed)
    if len(failed) == 1:
        summary = f"process {numbers} of {count} {_describe_end(failed[0])}."
    else:
        summary = f"processes {numbers} of {count} failed."
    facts = [_last_lines(worker, len(failed) > 1) for worker in failed[:MOST_SHOWN]]
    facts += [(f"process {worker.index}", _describe_end(worker)) for worker in failed[MOST_SHOWN:]]
    ended = [str(worker.index) for worker in others if worker.sent is not None]
    facts += [("ended by mithril-nb", f"process {', '.join(ended)}")] if ended else []
    done = [str(worker.index) for worker in others if worker.sent is None]
    facts += [("done", f"process {', '.join(done)}")] if done else []
    # Mostly the kernel, for lack of memory. A run on one process would not show the reason.
    killed = any(worker.status == -signal.SIGKILL for worker in failed)
    error = LaunchError(
        summary,
        tuple(facts),
        "ml.fit(..., checkpoint=folder, resume=True)  # in the script; the same command then resumes the training"
        if killed
        else "mithril-nb launch --processes 1 train.py  # shows whether the script also fails on one process",
    )
    # A process that the launcher ended has the status of the signal, which is no reason of the failure.
    # As shells report a signal: 128 and its number, which `subprocess` gives as a negative status.
    statuses = (worker.status or 0 for worker in failed)
    error.status = max(128 - status if status < 0 else status for status in statuses)
    return error


def late(workers: Sequence[LaunchedProcess], rank: Rank) -> LaunchError:
    """Return the error for processes that did not connect in time."""
    missing = [worker for worker in workers if not worker.is_ready]
    advice = (
        f"mithril-nb launch --processes {rank.count} --start-timeout 600 train.py  # if the machine is busy"
        if rank.is_local
        else f"mithril-nb launch --coordinator {rank.coordinator} --process-id 0 --processes {rank.count} train.py"
        "  # one such command for each process id; all machines must reach the coordinator"
    )
    error = LaunchError(
        f"the {rank.count} processes did not connect within {rank.start_timeout_s:g} s.",
        (
            ("coordinator", rank.coordinator),
            ("not connected", f"process {', '.join(str(worker.index) for worker in missing)}"),
            *(_last_lines(worker, False) for worker in missing[:MOST_SHOWN] if worker.last_lines),
        ),
        advice,
    )
    error.status = LATE
    return error


def _describe_end(worker: LaunchedProcess) -> str:
    status = worker.status or 0
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-status}"


def _last_lines(worker: LaunchedProcess, with_end: bool) -> tuple[str, str]:
    lines = list(worker.last_lines) or ["(no output)"]
    return f"process {worker.index}", "\n".join([f"{_describe_end(worker)}:", *lines] if with_end else lines)
