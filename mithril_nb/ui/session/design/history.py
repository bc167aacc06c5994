"""Undo and redo: the designs before and after the current one, as a value.

A step links to the previous step, so histories share steps and adding one takes constant time. Designs share the blocks
and connections that an edit does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mithril_nb.ui.session.design.design import Change, Design

_ONE_GESTURE_S = 1.0


@dataclass(frozen=True, eq=False)
class Step:
    """One past or future change, linked to the next one in the same direction.

    Attributes:
        design: The design on the other side of the change.
        label: Label of the change: `"dimension of linear_0"`.
        renamed: Old and new path of a renamed block.
        next: The next step in the same direction; `None` for the last one.
        count: Number of edits from this step on.
        restored: Labels of the edits that the step restored, oldest first; empty if it is a single edit.
    """

    design: Design
    label: str
    renamed: tuple[str, str] | None = None
    next: Step | None = field(default=None, repr=False)
    count: int = 1
    restored: tuple[str, ...] = ()

    @property
    def edits(self) -> int:
        """Number of edits in this step."""
        return self.count - (self.next.count if self.next else 0)


@dataclass(frozen=True)
class History:
    """The current design, with the changes for undo and redo.

    Attributes:
        present: The current design.
        undo: The change that undo reverts; `None` at the start.
        redo: The change that redo applies; `None` at the end.
        changed_at: Time of the last change, in seconds.

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
        """Number of edits that undo can revert, counting restored edits one by one."""
        return self.undo.count if self.undo else 0

    def labels(self, most: int) -> tuple[str, ...]:
        """Return the labels of the latest changes, oldest first."""
        found, step = [], self.undo
        while step is not None and len(found) < most:
            found += reversed(step.restored or (step.label,))
            step = step.next
        return tuple(reversed(found[:most]))

    def with_change(self, change: Change, now_s: float) -> History:
        """Return the history after a change. Quick successive moves of one slider become one step."""
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
        # Copy the graph without its cached lookup tables, which are larger than the graph.
        design = replace(self.present, graph=replace(self.present.graph))
        count = edits + (next.count if next else 0)
        return Step(design, change.label, change.renamed, next, count, change.restored)
