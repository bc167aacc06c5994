"""The transforms of a function, for a front end. On request, both sides of each are run on numbers and compared."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mithril_nb.jobs import JobQueue
from mithril_nb.stages.transforms.stepping import TransformSteps
from mithril_nb.stages.transforms.transform import Comparison
from mithril_nb.ui.session.commands import command
from mithril_nb.ui.session.design.analysis import problem_of


class TransformRequests:
    """The transform steps, and the comparison of their numbers.

    Args:
        steps: The steps; `None` without transforms.
        changed: Called in the thread when `view` changes.
        failed: Receives unexpected errors.

    Attributes:
        steps: The steps, or `None`.
        commands: Functions of the commands, by name.
    """

    def __init__(
        self, steps: TransformSteps | None, changed: Callable[[], None], failed: Callable[[BaseException], None]
    ):
        self.steps = steps
        self._changed, self._failed = changed, failed
        self._lock = threading.Lock()
        self._view: dict[str, Any] = {"state": "empty", "message": "", "compared": []}
        self._worker = JobQueue("mithril_nb-transforms")

    def view(self) -> dict[str, Any] | None:
        """Return the state of the comparison. Per step: whether the numbers agree (`None` if unknown), and a text."""
        return None if self.steps is None else dict(self._view)

    @command
    def compare_transforms(self) -> None:
        """Run both sides of each step on the same numbers."""
        with self._lock:
            if self._view["state"] in ("loading", "ready"):
                return
            self._view = {"state": "loading", "message": "", "compared": []}
        self._changed()
        self._worker.submit(lambda _: self._compare())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the comparison; return False on timeout."""
        return self._worker.wait(timeout_s)

    def end(self) -> None:
        """Cancel all requests."""
        self._worker.end()

    def _compare(self) -> None:
        assert self.steps is not None
        try:
            compared = [_result(one) for one in self.steps.check()]
            self._view = {"state": "ready", "message": "", "compared": compared}
            self._changed()
        except Exception as error:  # the thread has no caller
            self._view = {"state": "failed", "message": str(problem_of(error)), "compared": []}
            self._failed(error)


def _result(one: Comparison) -> tuple[bool | None, str]:
    return one.agrees, str(one).removeprefix(f"{one.step}: ")
