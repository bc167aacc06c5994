"""Undo and redo: the designs of before and after, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from mithril_nb.session.design import Change, Design

_KEPT = 200
_ONE_GESTURE_S = 1.0


@dataclass(frozen=True)
class History:
    """Where the design stands among those of before and after.

    Attributes:
        present: The design now.
        past: Pairs of a design and the change that led away from it, oldest first.
        future: Pairs of a design and the change that led to it, next first.
        changed_at: When the present came to be, in seconds.

    Examples:
        >>> from mithril_nb.graph.records import LogicalGraph
        >>> first, second = Design(LogicalGraph()), Design(LogicalGraph(), name="b")
        >>> history = History(first).with_change(Change(second, "rename"), 0.0)
        >>> history.undone().present == first, history.undone().redone().present.name
        (True, 'b')
    """

    present: Design
    past: tuple[tuple[Design, Change], ...] = ()
    future: tuple[tuple[Design, Change], ...] = ()
    changed_at: float = -1e9

    @property
    def undo(self) -> Change | None:
        """The change that undo takes back; `None` at the start."""
        return self.past[-1][1] if self.past else None

    @property
    def redo(self) -> Change | None:
        """The change that redo does again; `None` at the end."""
        return self.future[0][1] if self.future else None

    def with_change(self, change: Change, now_s: float) -> History:
        """Return the history after a change. A slider's moves, close together and alike, become one step."""
        if change.design == self.present:
            return self
        same_gesture = (
            change.is_gesture
            and self.undo is not None
            and self.undo.label == change.label
            and not self.future
            and now_s - self.changed_at < _ONE_GESTURE_S
        )
        past = self.past if same_gesture else (*self.past, (self.present, change))[-_KEPT:]
        return History(change.design, past, (), now_s)

    def undone(self) -> History:
        """Return the history one step back; itself at the start."""
        if not self.past:
            return self
        design, change = self.past[-1]
        return History(design, self.past[:-1], ((self.present, change), *self.future))

    def redone(self) -> History:
        """Return the history one step on; itself at the end."""
        if not self.future:
            return self
        design, change = self.future[0]
        return History(design, (*self.past, (self.present, change)), self.future[1:])
