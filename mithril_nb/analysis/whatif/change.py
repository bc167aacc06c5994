"""The change of a program's costs when some of its settings change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from mithril_nb.analysis.whatif.future import Future
from mithril_nb.analysis.whatif.settings import format_value, plain
from mithril_nb.cost import Cost, Figures
from mithril_nb.cost.by_name import ByRole
from mithril_nb.cost.comparison import Change as Pair
from mithril_nb.cost.comparison import Comparison
from mithril_nb.display import Shown

NOT_ASKED = "peak_bytes: not computed yet; read change.peak_bytes to compute it"
_NO_PEAK = "not computed for this change"


@dataclass(frozen=True)
class Peak:
    """The peak memory of a program.

    Attributes:
        bytes: The bytes; `None` if unknown.
        reason: The reason if unknown.
        source: `"compiled"` for XLA's plan, `"analytic"` for an estimate from the equations; `""` if unknown.
    """

    bytes: int | None
    reason: str = ""
    source: str = ""


@dataclass(frozen=True)
class Change(Shown):
    """The costs of a program before and after some of its settings changed.

    Attributes:
        program: Name of the program.
        settings: For each setting that changed, its values before and after.
        before: The cost before.
        after: The cost after.
        way: Origin of the figures. `"formula"`, `"learned and verified"` and `"traced"` are exact and equal;
            `"estimate"` uses the equations of `before` with the dtype of `after`; `"compiled"` is XLA's.
        notes: Notes on the figures.
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
    def comparison(self) -> Comparison:
        """Both costs side by side, block by block."""
        return self.before.compare(self.after)

    @property
    def delta(self) -> Figures:
        """Total after minus total before; `None` for unknown figures."""
        return self.comparison.total.delta

    @property
    def by_block(self) -> Mapping[str, Pair]:
        """The own cost of each block: `.before`, `.after` and `.delta`."""
        return self.comparison.by_block

    @cached_property
    def by_role(self) -> Mapping[str, Pair]:
        """The costs of forward, backward and update: `.before`, `.after` and `.delta`."""
        before, after = self.before.by_role, self.after.by_role
        roles = dict.fromkeys((*before, *after))
        found = {role: Pair(before.get(role, Figures()), after.get(role, Figures())) for role in roles}
        return ByRole(found, f"the change of {self.program!r}", "change.by_role")

    @property
    def peaks(self) -> tuple[Peak, Peak]:
        """The peak memory before and after, each with the reason if unknown.

        Waits until both programs are traced, and compiled as far as XLA's memory plan needs. If one of them has too
        many equations for that, both are estimates from the equations (`source` is `"analytic"`); `compiled` has XLA's
        figures.
        """
        return self.memory.result()

    @cached_property
    def memory(self) -> Future[tuple[Peak, Peak]]:
        """The peaks, computed in the background after `change.memory.start()`."""
        return self._peaks or Future.of((Peak(None, _NO_PEAK), Peak(None, _NO_PEAK)))

    @property
    def peak_bytes(self) -> tuple[int | None, int | None]:
        """The peak bytes before and after; `None` if unknown, with the reason in `peaks`."""
        before, after = self.peaks
        return before.bytes, after.bytes

    @property
    def compiled(self) -> Future[Change]:
        """The change of the compiled programs; the first access starts the compiler in the background.

        `change.compiled.is_done` is true when it is ready; `change.compiled.result(timeout=60)` waits for it. The
        figures are per device.
        """
        assert self._compiled is not None, "this is already a change of compiled programs"
        return self._compiled.start()

    @cached_property
    def exact(self) -> Future[Change]:
        """The change with exact figures; if this one is an estimate, they are computed in the background."""
        if self._exact is None:
            return Future.of(self)
        return self._exact()

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain data. It computes nothing: the peak is included only if it is known."""
        peaks: list[dict[str, Any]] = [{"bytes": None, "reason": NOT_ASKED}] * 2
        if self._peaks is not None and self._peaks.is_done:
            peaks = [asdict(peak) for peak in self._peaks.result()]
        found = self.comparison
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
            "total": found.total.to_dict(),
            "by_block": {path: pair.to_dict() for path, pair in found.by_block.items()},
            "unattributed": found.unattributed.to_dict(),
            "by_role": {role: pair.to_dict() for role, pair in self.by_role.items()},
            "peak_bytes": {"before": peaks[0], "after": peaks[1]},
            "notes": [*self.notes, *(note for note in self.after.notes if note in self.before.notes)],
        }

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}: {before!r} -> {after!r}" for name, (before, after) in self.settings.items())
        return f"Change({self.program!r}, {settings or 'nothing'}; {self.way})"
