"""What changes in the costs of a program when some of its settings do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from mithril_nb.cost import Cost, Figures
from mithril_nb.cost.comparison import Change as Pair
from mithril_nb.cost.comparison import Comparison
from mithril_nb.cost.roles import ByRole
from mithril_nb.display import Shown
from mithril_nb.whatif.behind import Later
from mithril_nb.whatif.settings import plain, told

NOT_ASKED = "peak_bytes: not asked for yet; change.peak_bytes finds it out"
_NO_PEAK = "not computed for this change"


@dataclass(frozen=True)
class Peak:
    """The most memory that a program holds at once.

    Attributes:
        bytes: So many bytes; `None` if nobody knows.
        reason: Why not.
        source: `"compiled"` if XLA planned it so, `"analytic"` for an estimate from the equations; `""` if unknown.
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
        way: How the figures came about: `"formula"`, `"learned and verified"` and `"traced"` are exact and the same;
            `"estimate"` has the equations of before with the dtype of after; `"compiled"` is what XLA says.
        notes: What is to be known besides.
    """

    program: str
    settings: Mapping[str, tuple[Any, Any]]
    before: Cost
    after: Cost
    way: str
    notes: tuple[str, ...] = ()
    _peaks: Later[tuple[Peak, Peak]] | None = field(default=None, repr=False, compare=False)
    _compiled: Later[Change] | None = field(default=None, repr=False, compare=False)
    _exact: Callable[[], Later[Change]] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def comparison(self) -> Comparison:
        """Both costs side by side, block by block."""
        return self.before.compare(self.after)

    @property
    def delta(self) -> Figures:
        """After less before, of the whole; `None` where one of them is not known."""
        return self.comparison.total.delta

    @property
    def by_block(self) -> Mapping[str, Pair]:
        """What each block costs by itself: `.before`, `.after` and `.delta`."""
        return self.comparison.by_block

    @cached_property
    def by_role(self) -> Mapping[str, Pair]:
        """The same for forward, backward and update."""
        before, after = self.before.by_role, self.after.by_role
        roles = dict.fromkeys((*before, *after))
        found = {role: Pair(before.get(role, Figures()), after.get(role, Figures())) for role in roles}
        return ByRole(found, f"what changes in {self.program!r}", "change.by_role")

    @property
    def peaks(self) -> tuple[Peak, Peak]:
        """The peak of memory before and after; where it is unknown, the reason.

        Waits for both programs to be traced, and compiled as far as XLA needs to plan their memory. If one of them has
        too many equations for that, both are estimates from the equations (`source` is `"analytic"`), and `compiled`
        has XLA's figures.
        """
        return self.memory.result()

    @cached_property
    def memory(self) -> Later[tuple[Peak, Peak]]:
        """The same, computed in the background once it is started: `change.memory.start()`."""
        return self._peaks or Later.of((Peak(None, _NO_PEAK), Peak(None, _NO_PEAK)))

    @property
    def peak_bytes(self) -> tuple[int | None, int | None]:
        """The most bytes that are held at once before and after; `None` where `peaks` says why not."""
        before, after = self.peaks
        return before.bytes, after.bytes

    @property
    def compiled(self) -> Later[Change]:
        """What XLA makes of it, a `Change` as well: the compiler is started behind when this is first asked for.

        `change.compiled.is_done` is true once it exists; `change.compiled.result(timeout=60)` waits for it. Figures
        are those of one device.
        """
        assert self._compiled is not None, "a change of compiled programs is what XLA makes of it"
        return self._compiled.start()

    @cached_property
    def exact(self) -> Later[Change]:
        """The same with exact figures, made behind if these are an estimate."""
        if self._exact is None:
            return Later.of(self)
        return self._exact()

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain data. Nothing is made for it: a peak is in it if it is known by now."""
        peaks: list[dict[str, Any]] = [{"bytes": None, "reason": NOT_ASKED}] * 2
        if self._peaks is not None and self._peaks.is_done:
            peaks = [asdict(peak) for peak in self._peaks.result()]
        found = self.comparison
        first, second = (", ".join(f"{name}={told(pair[at])}" for name, pair in self.settings.items()) for at in (0, 1))
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
        told = ", ".join(f"{name}: {before!r} -> {after!r}" for name, (before, after) in self.settings.items())
        return f"Change({self.program!r}, {told or 'nothing'}; {self.way})"
