"""Delivery of events to listeners in a separate thread, so that a slow or broken listener never delays training."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mithril_nb.errors import Diagnostic
from mithril_nb.train.run.events import TrainingEvent

Callback = Callable[[TrainingEvent], object]

LINGER_S = 1.0
"""Seconds that the thread waits for another event before it ends."""
MOST_ERRORS = 20
"""Maximum number of listener errors to store."""


@dataclass(eq=False)
class _Listener:
    callback: Callback
    every_s: float
    waiting: deque[TrainingEvent] = field(default_factory=deque)
    called_at: float = 0.0

    def add(self, event: TrainingEvent) -> bool:
        waiting = self.waiting
        if event.kind == "step" and waiting and waiting[-1].kind == "step":
            waiting[-1] = event
            return False
        waiting.append(event)
        return True


class Observers:
    """The listeners of a run: functions to call on each event.

    Attributes:
        errors: The different errors that listeners raised, up to `MOST_ERRORS`.
    """

    def __init__(self) -> None:
        self.errors: list[Diagnostic] = []
        self._listeners: list[_Listener] = []
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_calling = False

    def add(self, callback: Callback, every_s: float) -> Callable[[], None]:
        """Add a listener; return a function that removes it."""
        listener = _Listener(callback, every_s)
        with self._condition:
            self._listeners.append(listener)

        def remove() -> None:
            with self._condition:
                if listener in self._listeners:
                    self._listeners.remove(listener)
                listener.waiting.clear()
                self._condition.notify_all()

        return remove

    def notify(self, event: TrainingEvent) -> None:
        """Queue an event for each listener, which takes a few microseconds. Only the latest step stays queued."""
        if not self._listeners:
            return
        with self._condition:
            # The thread wakes up by itself when a queued step is due. Wake it only for a new entry.
            # A list, because `any` of a generator stops at the first new entry and would skip the other listeners.
            if any([listener.add(event) for listener in self._listeners]):
                self._condition.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mithril_nb observers", daemon=True)
                self._thread.start()

    def flush(self, timeout_s: float) -> None:
        """Wait until the listeners have received all events, at most for `timeout_s`."""
        if self._thread is not threading.current_thread():
            with self._condition:
                self._condition.wait_for(lambda: not self._is_calling and not self._due(), timeout_s)

    def stream(self, is_driven: Callable[[], bool], flush_s: float) -> Iterator[TrainingEvent]:
        """Yield events until the run ends. Steps may be skipped."""
        waiting: deque[TrainingEvent] = deque()
        stop = self.add(waiting.append, 0.0)
        try:
            while True:
                is_over = not is_driven()
                if is_over:  # read before the flush, so that events of the end are not missed
                    self.flush(flush_s)
                while waiting:
                    yield waiting.popleft()
                if is_over:
                    return
                time.sleep(0.01)
        finally:
            stop()

    def _due(self) -> list[tuple[float, _Listener]]:
        due: list[tuple[float, _Listener]] = []
        for listener in self._listeners:
            if listener.waiting:
                is_step = len(listener.waiting) == 1 and listener.waiting[0].kind == "step"
                due.append((listener.called_at + listener.every_s if is_step else 0.0, listener))
        return due

    def _work(self) -> None:
        while True:
            with self._condition:
                self._is_calling = False
                self._condition.notify_all()
                # An idle run needs no thread: end this one after a while without events.
                if not self._condition.wait_for(self._due, LINGER_S):
                    self._thread = None
                    return
                now, due = time.perf_counter(), self._due()
                ready: list[tuple[_Listener, list[TrainingEvent]]] = []
                for at, listener in due:
                    if at <= now:
                        ready.append((listener, [*listener.waiting]))
                        listener.waiting.clear()
                        listener.called_at = now
                if not ready:
                    self._condition.wait(min(at for at, _ in due) - now)
                    continue
                self._is_calling = True
            for listener, events in ready:
                for event in events:
                    self._call(listener, event)

    def _call(self, listener: _Listener, event: TrainingEvent) -> None:
        try:
            listener.callback(event)
        except Exception as error:
            name = getattr(listener.callback, "__qualname__", type(listener.callback).__name__)
            problem = Diagnostic(
                f"a listener of the run failed: {name!r} on event {event.kind!r}.",
                (("raised", f"{type(error).__name__}: {error}"),),
                "fix the listener, or call the function that run.observe() returned. The training continues.",
                code=type(error).__name__,
            )
            with self._condition:
                if len(self.errors) < MOST_ERRORS and problem not in self.errors:
                    self.errors.append(problem)
