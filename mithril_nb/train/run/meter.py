"""Speed of a run: training time without pauses, and steps per second over the last two seconds."""

from __future__ import annotations

import time
from collections import deque

WINDOW_S = 2.0


class Meter:
    """Clock of one training loop.

    Attributes:
        steps_per_s: Steps per second over the last two seconds; `None` before the second step.
    """

    def __init__(self, elapsed_s: float = 0.0) -> None:
        self.steps_per_s: float | None = None
        self._before_s = elapsed_s
        self._since: float | None = None
        self._marks: deque[tuple[float, int]] = deque()

    @property
    def elapsed_s(self) -> float:
        """Seconds between `go` and `rest`, plus those of earlier loops."""
        return self._before_s + (time.perf_counter() - self._since if self._since is not None else 0.0)

    def go(self) -> None:
        """Start the clock."""
        self._since = time.perf_counter()
        self._marks.clear()

    def rest(self) -> None:
        """Stop the clock."""
        self._before_s = self.elapsed_s
        self._since = None

    def skip(self, seconds: float) -> None:
        """Exclude time without steps (a validation) from the speed. `elapsed_s` still includes it."""
        self._marks = deque((at + seconds, number) for at, number in self._marks)

    def step(self, number: int) -> None:
        """Record a finished step. The first step of a loop, which may include compilation, only starts the clock."""
        now = time.perf_counter()
        marks = self._marks
        # Store at most twenty marks per second.
        if len(marks) < 2 or now - marks[-1][0] > WINDOW_S / 40:
            marks.append((now, number))
            while len(marks) > 2 and now - marks[0][0] > WINDOW_S:
                marks.popleft()
        since, first = marks[0]
        if number > first and now > since:
            self.steps_per_s = (number - first) / (now - since)
