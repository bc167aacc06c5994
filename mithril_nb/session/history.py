"""Undo and redo: the designs before and after the present one, as a value.

Every step is kept: a step is a link to the step before it, so that all histories share them, and adding one takes
constant time. Designs share the blocks and connections that an edit leaves unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mithril_nb.session.design import Change, Design

_ONE_GESTURE_S = 1.0


@dataclass(frozen=True, eq=False)
class Step:
    """One change in the past or the future, and the steps behind it.

    Attributes:
        design: The design on the other side of the change.
        label: The change in words: `"dimension of linear_0"`.
        renamed: The path that changed, before and after.
        next: The step that follows in the same direction; `None` for the last one.
        count: Number of edits from this step on.
        restored: Labels of the edits that the step restored, oldest first; empty for a step that is one edit.
    """

    design: Design
    label: str
    renamed: tuple[str, str] | None = None
    next: Step | None = field(default=None, repr=False)
    count: int = 1
    restored: tuple[str, ...] = ()

    @property
    def edits(self) -> int:
        """Number of edits that this step is."""
        return self.count - (self.next.count if self.next else 0)


@dataclass(frozen=True)
class History:
    """The present design among those before and after it.

    Attributes:
        present: The design now.
        undo: The change that undo takes back; `None` at the start.
        redo: The change that redo does again; `None` at the end.
        changed_at: When the present came to be, in seconds.

    Examples:
        >>> from mithril_nb.graph.records import LogicalGraph
        >>> first, second = Design(LogicalGraph()), Design(LogicalGraph(), name="b")
        >>> history = History(first).with_change(Change(second, "rename"), 0.0)
        >>> history.undone().present == first, history.undone().redone().present.name
        (True, 'b')
        >>> history.edits, history.labels(20)
        (1, ('rename',))
    """

    present: Design
    undo: Step | None = None
    redo: Step | None = None
    changed_at: float = -1e9

    @property
    def edits(self) -> int:
        """Number of edits that undo can take back; restored edits are counted one by one."""
        return self.undo.count if self.undo else 0

    def labels(self, most: int) -> tuple[str, ...]:
        """Return the labels of the latest changes, oldest first."""
        found, step = [], self.undo
        while step is not None and len(found) < most:
            found += reversed(step.restored or (step.label,))
            step = step.next
        return tuple(reversed(found[:most]))

    def with_change(self, change: Change, now_s: float) -> History:
        """Return the history after a change. A slider's moves, close together and alike, become one step."""
        if change.design == self.present:
            return self
        same_gesture = (
            change.is_gesture
            and self.undo is not None
            and self.undo.label == change.label
            and not self.redo
            and now_s - self.changed_at < _ONE_GESTURE_S
        )
        undo = self.undo if same_gesture else self._step(change, self.undo, change.edits)
        return History(change.design, undo, None, now_s)

    def undone(self) -> History:
        """Return the history one step back; itself at the start."""
        if self.undo is None:
            return self
        return History(self.undo.design, self.undo.next, self._step(self.undo, self.redo, self.undo.edits))

    def redone(self) -> History:
        """Return the history one step on; itself at the end."""
        if self.redo is None:
            return self
        return History(self.redo.design, self._step(self.redo, self.undo, self.redo.edits), self.redo.next)

    def _step(self, change: Change | Step, next: Step | None, edits: int) -> Step:
        # A copy of the graph has none of the lookup tables that were computed from it, which take more than itself.
        design = replace(self.present, graph=replace(self.present.graph))
        count = edits + (next.count if next else 0)
        return Step(design, change.label, change.renamed, next, count, change.restored)
