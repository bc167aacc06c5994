"""One message about how each process ended."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from mithril_nb.compilation.launch.process_group import Worker
from mithril_nb.compilation.launch.rank import Rank
from mithril_nb.errors import LaunchError

MOST_SHOWN = 3
"""Maximum number of processes whose last lines are shown."""
LATE = 124
"""Exit status of a launch whose processes did not connect in time, as in timeout(1)."""


def failure(workers: Sequence[Worker], count: int) -> LaunchError:
    """Return the error for failed processes. Its status is the highest of theirs.

    Args:
        workers: The processes of this machine.
        count: Number of processes on all machines.
    """
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
    facts += [("ended", f"process {', '.join(ended)}, by mithril-nb")] if ended else []
    done = [str(worker.index) for worker in others if worker.sent is None]
    facts += [("done", f"process {', '.join(done)}")] if done else []
    killed = any(worker.status == -signal.SIGKILL for worker in failed)
    error = LaunchError(
        summary,
        tuple(facts),
        "the same command again; a script with ml.fit(..., checkpoint=folder, resume=True) resumes where it was."
        if killed
        else "fix the error in the last lines; --processes 1 shows whether the script fails on one process too.",
    )
    error.status = max(_status(worker) for worker in failed)
    return error


def late(workers: Sequence[Worker], rank: Rank) -> LaunchError:
    """Return the error for processes that did not connect in time."""
    missing = [worker for worker in workers if not worker.is_ready]
    advice = (
        "--start-timeout 600, if the machine is busy."
        if rank.is_local
        else f"the same command on each machine with a different --process-id; open {rank.coordinator} to all of them."
    )
    error = LaunchError(
        f"the {rank.count} processes did not connect within {rank.start_timeout_s:g} s.",
        (
            ("coordinator", rank.coordinator),
            ("waiting", f"process {', '.join(str(worker.index) for worker in missing)}, ended by mithril-nb"),
            *(_last_lines(worker, False) for worker in missing[:MOST_SHOWN] if worker.last_lines),
        ),
        advice,
    )
    error.status = LATE
    return error


def _describe_end(worker: Worker) -> str:
    status = worker.status or 0
    return f"was killed by {_name(-status)}" if status < 0 else f"ended with exit status {status}"


def _last_lines(worker: Worker, with_end: bool) -> tuple[str, str]:
    lines = list(worker.last_lines) or ["(no output)"]
    return f"process {worker.index}", "\n".join([f"{_describe_end(worker)}:", *lines] if with_end else lines)


def _status(worker: Worker) -> int:
    status = worker.status or 0
    return 128 - status if status < 0 else status


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
