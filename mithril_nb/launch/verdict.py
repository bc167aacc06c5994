"""One message that says which process ended how."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from mithril_nb.errors import LaunchError
from mithril_nb.launch.crew import Worker
from mithril_nb.launch.place import Place

MOST_SHOWN = 3
"""Processes whose last lines are shown."""
LATE = 124
"""Exit status of a launch whose processes did not meet in time; that of timeout(1)."""


def failure(workers: Sequence[Worker], count: int) -> LaunchError:
    """Return what to say of processes that failed; its status is the worst of theirs.

    Args:
        workers: The processes of this machine.
        count: How many there are on all machines.
    """
    failed = [worker for worker in workers if worker.has_failed]
    others = [worker for worker in workers if not worker.has_failed]
    numbers = ", ".join(str(worker.index) for worker in failed)
    if len(failed) == 1:
        summary = f"process {numbers} of {count} {_how(failed[0])}."
    else:
        summary = f"processes {numbers} of {count} failed."
    facts = [_last_words(worker, len(failed) > 1) for worker in failed[:MOST_SHOWN]]
    facts += [(f"process {worker.index}", _how(worker)) for worker in failed[MOST_SHOWN:]]
    ended = [str(worker.index) for worker in others if worker.sent is not None]
    facts += [("ended", f"process {', '.join(ended)}, by mithril-nb")] if ended else []
    done = [str(worker.index) for worker in others if worker.sent is None]
    facts += [("done", f"process {', '.join(done)}")] if done else []
    killed = any(worker.status == -signal.SIGKILL for worker in failed)
    error = LaunchError(
        summary,
        tuple(facts),
        "the same command again; a script with ml.fit(..., checkpoint=folder, resume=True) goes on where it was."
        if killed
        else "what the last lines say; --processes 1 shows whether the script fails on one process too.",
    )
    error.status = max(_status(worker) for worker in failed)
    return error


def late(workers: Sequence[Worker], place: Place) -> LaunchError:
    """Return what to say when the processes have not met in time."""
    missing = [worker for worker in workers if not worker.is_ready]
    advice = (
        "--start-timeout 600, if the machine is busy."
        if place.is_local
        else f"the same command on every machine, with each --process-id once, and {place.coordinator} open to all."
    )
    error = LaunchError(
        f"the {place.count} processes did not meet within {place.start_timeout_s:g} s.",
        (
            ("coordinator", place.coordinator),
            ("waiting", f"process {', '.join(str(worker.index) for worker in missing)}, ended by mithril-nb"),
            *(_last_words(worker, False) for worker in missing[:MOST_SHOWN] if worker.last_lines),
        ),
        advice,
    )
    error.status = LATE
    return error


def _how(worker: Worker) -> str:
    status = worker.status or 0
    return f"was killed by {_name(-status)}" if status < 0 else f"ended with exit status {status}"


def _last_words(worker: Worker, with_end: bool) -> tuple[str, str]:
    lines = list(worker.last_lines) or ["(it wrote nothing)"]
    return f"process {worker.index}", "\n".join([f"{_how(worker)}:", *lines] if with_end else lines)


def _status(worker: Worker) -> int:
    status = worker.status or 0
    return 128 - status if status < 0 else status


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
