"""Events of a run, and the table of its metrics."""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from mithril_nb.errors import UnknownOptionError, alike, short_repr

EventKind = Literal["started", "step", "epoch", "validation", "paused", "resumed", "stopped", "done", "failed"]


@dataclass(frozen=True, slots=True)
class TrainingEvent:
    """One event of a run.

    Attributes:
        kind: `"started"`, `"step"`, `"epoch"`, `"validation"` (within an epoch), `"paused"`, `"resumed"`, `"stopped"`,
            `"done"` or `"failed"`.
        step: Steps taken so far.
        epoch: The current epoch, from 1; 0 before the first step.
        steps: Total steps of the run.
        epochs: Total epochs of the run.
        loss: In a step event, the loss of the batch; in an epoch event and `"done"`, the mean over the steps of the
            epoch; else `None`.
        accuracy: Fraction of correct predictions, in the same events as the loss; `None` if not requested.
        validation_loss: Loss on the validation data, after each validation and in the last event; `None` without it.
        validation_accuracy: Accuracy on the validation data, in the same events; `None` if not requested.
        elapsed_s: Seconds of training so far, without pauses.
        steps_per_s: Steps per second over the last two seconds, without compilation; `None` while unknown.
        left_s: Estimated seconds until the end; `None` while unknown.
        learning_rate: The learning rate of the step, which includes the optimizer's own rate if the run's rate is
            relative to it; `None` if it is unknown, or before the first step of such a run.
        message: Text for the user, such as the reason why the run ended.
        metrics: The other metrics by the name of their column in the history, in the same events.

    Examples:
        >>> print(TrainingEvent("epoch", step=90, epoch=2, steps=450, epochs=10, loss=0.25, accuracy=0.9375))
        epoch 2/10  step 90/450  loss 0.25  accuracy 93.75 %
    """

    kind: EventKind
    step: int
    epoch: int
    steps: int = 0
    epochs: int = 0
    loss: float | None = None
    accuracy: float | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    elapsed_s: float = 0.0
    steps_per_s: float | None = None
    left_s: float | None = None
    learning_rate: float | None = None
    message: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])

    def __str__(self) -> str:
        parts = [] if self.kind in ("step", "epoch", "validation") else [self.kind]
        parts += [f"epoch {self.epoch}/{self.epochs}", f"step {self.step}/{self.steps}"]
        for label, loss in (("loss", self.loss), ("validation loss", self.validation_loss)):
            parts += [] if loss is None else [f"{label} {loss:.4g}"]
        for label, share in (("accuracy", self.accuracy), ("validation accuracy", self.validation_accuracy)):
            parts += [] if share is None else [f"{label} {100 * share:.2f} %"]
        parts += [f"{name.replace('_', ' ')} {value:.4g}" for name, value in self.metrics.items()]
        return "  ".join([*parts, self.message] if self.message else parts)


COLUMNS = (
    "step",
    "loss",
    "accuracy",
    "validation_loss",
    "validation_accuracy",
    "epoch",
    "learning_rate",
    "elapsed_s",
)
"""Values recorded for each step."""

CURVES = COLUMNS[:5]
"""Columns sent to a live curve, in this order."""


class History:
    """A table of float64 with a row per step and the columns `COLUMNS`, then own metrics; NaN for a missing value.

    A row never changes after it is added, so a reader needs to request only new rows. The row of an epoch's last step
    holds the validation metrics.

    Attributes:
        columns: Names of the columns.
        steps_per_epoch: Number of steps in an epoch.
        validated: Indices of the rows with a validation, whose metrics may be NaN.
        version: Increases when rows are dropped or replaced, because the run goes back to an earlier step or resumes
            from a checkpoint. Readers must then read all rows again.

    Examples:
        >>> history = History()
        >>> history.append(step=1, loss=0.5)
        >>> history.append(step=2, loss=0.25, validation_loss=0.5)
        >>> len(history), history["loss"], history.rows(1, ("step", "loss"))
        (2, array([0.5 , 0.25]), array([[2.  ],
               [0.25]]))
    """

    def __init__(self, metrics: Sequence[str] = (), steps_per_epoch: int = 1) -> None:
        self.columns = (*COLUMNS, *metrics)
        self.steps_per_epoch = steps_per_epoch
        self.validated: list[int] = []
        # Row by row. Appending to an array takes O(1) time on average, and NumPy reads it without a copy.
        self._values = array("d")
        self._lock = threading.Lock()  # a widget reads rows while the run appends one
        self.version = 0

    def __len__(self) -> int:
        return len(self._values) // len(self.columns)

    def __getitem__(self, column: str) -> np.ndarray:
        """Return a copy of one column."""
        return self.rows(0, (column,))[0]

    def __repr__(self) -> str:
        return f"History({len(self)} steps: {', '.join(self.columns)})"

    def append(self, **values: float | None) -> None:
        """Add a row.

        Args:
            **values: Value of each column. Missing columns and `None` become NaN.
        """
        row = [math.nan if (value := values.get(name)) is None else value for name in self.columns]
        with self._lock:
            if any(name.startswith("validation_") and value is not None for name, value in values.items()):
                self.validated.append(len(self))
            self._values.extend(row)

    def restore(self, table: np.ndarray, columns: Sequence[str] = COLUMNS, validated: Sequence[int] = ()) -> None:
        """Replace all rows by those of an earlier run with these columns, as returned by `rows()`."""
        own = np.full((len(self.columns), table.shape[1]), np.nan)
        for name, values in zip(columns, table, strict=True):
            if name in self.columns:
                own[self.columns.index(name)] = values
        with self._lock:
            self._values = array("d", own.T.tobytes())
            self.validated = list(validated)
            self.version += 1

    def truncate(self, step: int) -> None:
        """Drop the rows after a step. A run that goes back to a step calls this."""
        with self._lock:
            # The column of steps is sorted, because a run that goes back to a step drops the later rows here.
            count = bisect_right(self._values[:: len(self.columns)], step)
            self.version += count != len(self)
            del self._values[count * len(self.columns) :]
            del self.validated[bisect_left(self.validated, count) :]

    def rows(self, start: int = 0, columns: Sequence[str] | None = None) -> np.ndarray:
        """Return a copy of the rows from `start` on, as an array of shape (columns, rows).

        Args:
            start: Index of the first row; from the end, if negative.
            columns: Names of the columns, in the order to return; default: all.

        Raises:
            UnknownOptionError: A column does not exist.
        """
        own = self.columns
        columns = own if columns is None else columns
        for name in columns:
            if name not in own:
                raise UnknownOptionError(
                    f"the history has no column {short_repr(name)}.",
                    (("columns", ", ".join(own)),),
                    f'run.history["{(*alike(name, own), "loss")[0]}"]',
                )
        indices = [own.index(name) for name in columns]
        with self._lock:  # the copy by `indices` ends before an append: an array that NumPy holds cannot grow
            return np.frombuffer(self._values).reshape(-1, len(own)).T[indices, start:]

    def latest_means(self, most: int) -> tuple[float | None, float | None]:
        """Return the mean loss and accuracy of the latest epoch; each is `None` if it has no values.

        Args:
            most: Number of steps in an epoch.
        """
        epochs, *columns = self.rows(max(0, len(self) - most), ("epoch", "loss", "accuracy"))
        of_latest = [column[epochs == epochs[-1]] if epochs.size else column for column in columns]
        numbers = [column[~np.isnan(column)] for column in of_latest]
        loss, accuracy = (float(column.mean()) if column.size else None for column in numbers)
        return loss, accuracy

    def to_dict(self) -> dict[str, np.ndarray]:
        """Return a copy of all columns by name, in the form that `pandas.DataFrame` accepts."""
        return dict(zip(self.columns, self.rows(), strict=True))
