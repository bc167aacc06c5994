"""The change of a program's costs with its settings, and values that are computed in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from mithril_nb.analysis.whatif.subjects import format_value, plain
from mithril_nb.cost import Cost, Figures
from mithril_nb.cost.by_name import ByName
from mithril_nb.cost.comparison import CostChange, CostComparison
from mithril_nb.display import Shown
from mithril_nb.jobs import JobQueue
from mithril_nb.stages.once import Once

Value = TypeVar("Value")


def quiet_queue() -> JobQueue:
    """Return a queue whose jobs store their errors. It prints none: they would appear in an unrelated cell."""
    return JobQueue("mithril_nb what-if", failed=lambda error: None)


class Future(Generic[Value]):
    """A value that is computed on first use, or in the background after `start`.

    An error is stored and raised by `result`; nothing is printed.

    Args:
        make: Function that computes the value.
        queue: Queue that runs the function in a background thread.

    Examples:
        >>> Future(lambda: 6 * 7, quiet_queue()).result()
        42
    """

    def __init__(self, make: Callable[[], Value], queue: JobQueue):
        self._once = Once(make)
        self._queue = queue
        # `Once` has no wait with a timeout.
        self._has_ended = threading.Event()

    @classmethod
    def of(cls, value: Value) -> Future[Value]:
        """Return a finished `Future` with a value."""
        done = cls(lambda: value, quiet_queue())
        done._make()
        return done

    @property
    def is_done(self) -> bool:
        """True if `result` returns or raises immediately."""
        return self._once.is_made

    def start(self) -> Future[Value]:
        """Start the computation in the background, unless it is done; return `self`."""
        if not self.is_done:
            self._queue.submit(lambda _: self._make(), self)
        return self

    def result(self, timeout: float | None = None) -> Value:
        """Return the value, waiting for it if needed.

        Args:
            timeout: Seconds to wait; by default without limit.
        """
        if timeout is None:
            return self._once.get()
        if not self.is_done:
            self.start()
            # `result()` without a timeout may have computed it in its own thread, which sets no event.
            if not self._has_ended.wait(timeout) and not self.is_done:
                raise TimeoutError(f"not ready after {timeout:g} s; the computation continues in the background.")
        return self._once.get()

    def _make(self) -> None:
        try:
            with suppress(Exception):  # `Once` stores it for `result`
                self._once.get()
        finally:
            self._has_ended.set()

    def __repr__(self) -> str:
        if self._once.has_failed:
            return "Future(failed; .result() raises the error)"
        return "Future(done; .result() returns it)" if self.is_done else "Future(not done yet; .result() waits for it)"


NOT_ASKED = "peak_bytes: not computed yet; change.peak_bytes computes it"
_NO_PEAK = "not computed for this change"


@dataclass(frozen=True)
class Peak:
    """The peak memory of a program.

    Attributes:
        bytes: The bytes; `None` if unknown.
        reason: Why the bytes are unknown; `""` if they are known.
        source: `"compiled"` if the bytes are from XLA's memory plan, `"analytic"` if they are an estimate from the
            equations; `""` if they are unknown.
    """

    bytes: int | None
    reason: str = ""
    source: str = ""


@dataclass(frozen=True)
class Change(Shown):
    """The costs of a program before and after a change of some settings, such as its batch size or dtype.

    Attributes:
        program: Name of the program.
        settings: For each setting that changed, by name, the value before and the value after.
        before: The cost before the change.
        after: The cost after the change.
        way: How `after` was found. `"learned and verified"` and `"traced"` are exact; `WhatIf.ways`
            describes them. `"estimate"` counts the arrays of the old equations in the new dtype. `"compiled"` counts
            the compiled program.
        notes: Limits of the costs, as text.
    """

    program: str
    settings: Mapping[str, tuple[Any, Any]]
    before: Cost
    after: Cost
    way: str
    notes: tuple[str, ...] = ()
    _peaks: Future[tuple[Peak, Peak]] | None = field(default=None, repr=False, compare=False)
    _compiled: Future[Change] | None = field(default=None, repr=False, compare=False)
    _exact: Callable[[], Future[Change]] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def comparison(self) -> CostComparison:
        """Both costs side by side, block by block."""
        return self.before.compare(self.after)

    @property
    def delta(self) -> Figures:
        """Total after minus total before. A cost is `None` if a part of it is unknown before or after."""
        return self.comparison.total.delta

    @property
    def by_block(self) -> Mapping[str, CostChange]:
        """The cost of each block, excluding the blocks inside it, with `.before`, `.after` and `.delta`."""
        return self.comparison.by_block

    @cached_property
    def by_role(self) -> Mapping[str, CostChange]:
        """The costs of the roles forward, backward and update, each with `.before`, `.after` and `.delta`."""
        before, after = self.before.by_role, self.after.by_role
        roles = dict.fromkeys((*before, *after))
        pairs = {role: CostChange(before.get(role, Figures()), after.get(role, Figures())) for role in roles}
        return ByName(pairs, f"changes of {self.program!r}", "role", "change.by_role")

    @property
    def peaks(self) -> tuple[Peak, Peak]:
        """The peak memory before and after.

        The first access traces and compiles both programs. If one of them has more than 1,500 equations, they are not
        compiled: both peaks are estimates from the equations, and their `source` is `"analytic"`. Then
        `change.compiled.result().peaks` has the peaks of XLA's memory plan. Peaks are estimates too if XLA provides no
        memory plan.
        """
        return self.memory.result()

    @cached_property
    def memory(self) -> Future[tuple[Peak, Peak]]:
        """The peaks as a `Future`: `change.memory.start()` computes them in the background."""
        return self._peaks or Future.of((Peak(None, _NO_PEAK), Peak(None, _NO_PEAK)))

    @property
    def peak_bytes(self) -> tuple[int | None, int | None]:
        """The peak bytes before and after; `None` if unknown, with the reason in `peaks`."""
        before, after = self.peaks
        return before.bytes, after.bytes

    @property
    def compiled(self) -> Future[Change]:
        """The change with the costs of the compiled programs, on one device.

        Any access starts the compiler in the background. `change.compiled.is_done` is true when the result is ready,
        and `change.compiled.result(timeout=60)` waits for it.
        """
        assert self._compiled is not None, "this is already a change of compiled programs"
        return self._compiled.start()

    @cached_property
    def exact(self) -> Future[Change]:
        """The change with exact costs. If this change is an estimate, they are computed in the background."""
        if self._exact is None:
            return Future.of(self)
        return self._exact()

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain data. This computes no peak: peaks are included only if they are known already."""
        peaks: list[dict[str, Any]] = [{"bytes": None, "reason": NOT_ASKED}] * 2
        if self._peaks is not None and self._peaks.is_done:
            peaks = [asdict(peak) for peak in self._peaks.result()]
        comparison = self.comparison
        first, second = (
            ", ".join(f"{name}={format_value(pair[at])}" for name, pair in self.settings.items()) for at in (0, 1)
        )
        return {
            "program": self.program,
            "source": self.before.source,
            "way": self.way,
            "settings": {name: [plain(value) for value in pair] for name, pair in self.settings.items()},
            "before": first or "before",
            "after": second or "after",
            "total": comparison.total.to_dict(),
            "by_block": {path: pair.to_dict() for path, pair in comparison.by_block.items()},
            "unattributed": comparison.unattributed.to_dict(),
            "by_role": {role: pair.to_dict() for role, pair in self.by_role.items()},
            "peak_bytes": {"before": peaks[0], "after": peaks[1]},
            "notes": [*self.notes, *(note for note in self.after.notes if note in self.before.notes)],
        }

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}: {before!r} -> {after!r}" for name, (before, after) in self.settings.items())
        return f"Change({self.program!r}, {settings or 'nothing'}; {self.way})"
