"""Undo and redo: the designs of before and after, as a value."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mithril_nb.session.design import Design

_KEPT = 200
_ONE_GESTURE_S = 1.0


@dataclass(frozen=True)
class History:
    """Where the design stands among those of before and after.

    Attributes:
        present: The design now.
        past: Pairs of design and the label of the change that led away from it, oldest first.
        future: The same for what was undone, next first.
        changed_at: When the present came to be, in seconds.

    Examples:
        >>> from mithril_nb.graph.records import LogicalGraph
        >>> first = Design(LogicalGraph())
        >>> history = History(first).with_change(Design(LogicalGraph(), name="b"), "rename", 0.0)
        >>> history.undone().present == first, history.undone().redone().present.name
        (True, 'b')
    """

    present: Design
    past: tuple[tuple[Design, str], ...] = ()
    future: tuple[tuple[Design, str], ...] = ()
    changed_at: float = -1e9

    def with_change(self, design: Design, label: str, now_s: float) -> History:
        """Return the history after a change. A slider's moves, close together and alike, become one step."""
        if design == self.present:
            return self
        same_gesture = (
            bool(self.past) and self.past[-1][1] == label and " of " in label and not self.future
            and now_s - self.changed_at < _ONE_GESTURE_S
        )  # fmt: skip
        past = self.past if same_gesture else (*self.past, (self.present, label))[-_KEPT:]
        return History(design, past, (), now_s)

    def undone(self) -> History:
        """Return the history one step back; itself at the start."""
        if not self.past:
            return self
        design, label = self.past[-1]
        return replace(self, present=design, past=self.past[:-1], future=((self.present, label), *self.future),
                       changed_at=-1e9)  # fmt: skip

    def redone(self) -> History:
        """Return the history one step on; itself at the end."""
        if not self.future:
            return self
        design, label = self.future[0]
        return replace(self, present=design, past=(*self.past, (self.present, label)), future=self.future[1:],
                       changed_at=-1e9)  # fmt: skip
