"""Starting the processes, handing their output through, and ending them all when one of them ends badly."""

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

from mithril_nb.errors import LaunchError, UnknownOptionError
from mithril_nb.launch.crew import Crew
from mithril_nb.launch.place import Place, free_address, own_environment
from mithril_nb.launch.verdict import failure, late

POLL_S = 0.05
"""How often the launcher looks who has ended."""
SETTLE_S = 0.3
"""How long the others may say something of their own when one has failed."""
GRACE_S = 5.0
"""How long a process has to end by itself after SIGTERM; then it is killed."""
INTERRUPT_S = 10.0
"""The same after Ctrl-C, which lets a script save what it has."""


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

    Their output comes through line by line with the number of the process before it. When one fails, the others are
    ended; whatever ends the launch, nothing of it is left running.

    Args:
        script: Path of the script. In it, `ml.distributed()` says which process it is in, and `ml.fit` shares the work.
        arguments: The script's own arguments.
        processes: How many there are, on all machines together.
        coordinator: `"host:port"` of process 0, to join those of other machines: one process is then started here.
            Default: all of them are started here.
        process_id: Which process is the one started here, counted from 0; with `coordinator` only.
        devices: Devices of each process: processors that JAX makes up on a CPU, or accelerators.
        start_timeout_s: How long all of them may take to meet.
        peer_timeout_s: After how long a process on another machine that does not answer is taken for dead.

    Raises:
        LaunchError: A process failed or did not come up; its `status` is the worst exit status.
        UnknownOptionError: A number that cannot be.
        KeyboardInterrupt: Ctrl-C; the processes were told so too.

    Examples:
        >>> launch("train.py", ["--epochs", "3"], processes=4)  # doctest: +SKIP
    """
    places = _places(processes, coordinator, process_id, devices, start_timeout_s, peer_timeout_s)
    if os.name != "posix":
        raise LaunchError(
            "launching needs process groups, which this system does not have.",
            (("system", sys.platform),),
            "Linux or macOS; or one process, with python train.py.",
        )
    if not Path(script).is_file():
        raise LaunchError(f"there is no script {str(script)!r}.", (), "mithril-nb launch --processes 2 train.py")
    with _signals() as asked, Crew() as crew:
        for place in places:
            crew.start(place, str(script), arguments, own_environment())
        _watch(crew, places[0], asked)


def _watch(crew: Crew, place: Place, asked: list[int]) -> None:
    """Hand output through until all have ended, or one has failed."""
    until = time.monotonic() + place.start_timeout_s
    while crew.running:
        crew.pump(POLL_S)
        if asked:
            _end_as_asked(crew, asked)
        if any(worker.has_failed for worker in crew.workers):
            crew.pump_for(SETTLE_S)
            crew.end(GRACE_S)
            raise failure(crew.workers, place.count)
        if time.monotonic() > until and not all(worker.is_ready for worker in crew.workers):
            crew.end(GRACE_S)
            raise late(crew.workers, place)
    if any(worker.has_failed for worker in crew.workers):
        raise failure(crew.workers, place.count)


def _end_as_asked(crew: Crew, asked: list[int]) -> None:
    """Hand a signal on, and end with it; a second one does not wait any more."""
    first = asked[0]
    crew.send(first)
    until = time.monotonic() + (INTERRUPT_S if first == signal.SIGINT else GRACE_S)
    while crew.running and len(asked) == 1 and time.monotonic() < until:
        crew.pump(POLL_S)
    crew.end(0 if len(asked) > 1 else GRACE_S)
    if first == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + first)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Give a list to which the signals that ask for an end are added."""
    asked: list[int] = []
    previous: Mapping[int, object] = {}
    if threading.current_thread() is threading.main_thread():

        def note(number: int, frame: FrameType | None) -> None:
            asked.append(number)

        ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        previous = {number: signal.signal(number, note) for number in ends}
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]


def _places(
    processes: int,
    coordinator: str | None,
    process_id: int | None,
    devices: int,
    start_timeout_s: float,
    peer_timeout_s: float,
) -> list[Place]:
    for name, value in (("processes", processes), ("devices", devices)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnknownOptionError(f"{name} must be an integer of at least 1.", (("got", repr(value)),), f"{name}=2")
    for name, value in (("start_timeout_s", start_timeout_s), ("peer_timeout_s", peer_timeout_s)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise UnknownOptionError(f"{name} is not a number of seconds.", (("got", repr(value)),), f"{name}=60")
    timeouts = (float(start_timeout_s), float(peer_timeout_s))
    if coordinator is None and process_id is None:
        address = free_address()
        return [Place(address, index, processes, devices, True, *timeouts) for index in range(processes)]
    host, _, port = (coordinator or "").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or process_id is None:
        raise UnknownOptionError(
            "to join processes on other machines, a process needs the address of process 0, and its own number.",
            (("coordinator", repr(coordinator)), ("process id", repr(process_id))),
            "mithril-nb launch --coordinator 10.0.0.1:4000 --process-id 1 --processes 2 train.py",
        )
    if isinstance(process_id, bool) or not isinstance(process_id, int) or not 0 <= process_id < processes:
        raise UnknownOptionError(
            "the process's number is not among those that there are.",
            (("process id", repr(process_id)), ("needed", f"0 to {processes - 1}, as there are {processes} processes")),
            f"--process-id {processes - 1}",
        )
    return [Place(str(coordinator), process_id, processes, devices, False, *timeouts)]
