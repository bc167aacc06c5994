"""The numbers of a run, column by column: grown by the training thread, read by any other."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

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
"""What is kept of each step."""

CURVES = COLUMNS[:5]
"""The columns that a live curve needs, in the order in which they are sent to it."""

FIRST_CAPACITY = 256


class History:
    """A table of float64 with a row per step; NaN where there is no value.

    A row is final once it is there, so that a reader can ask for the rows that are new to it. The row of an epoch's
    last step carries the validation figures.

    Attributes:
        version: Grows when rows were dropped because the run went back to an earlier step: read all rows again then.

    Examples:
        >>> history = History()
        >>> history.append(step=1, loss=0.5)
        >>> history.append(step=2, loss=0.25, validation_loss=0.5)
        >>> len(history), history["loss"], history.rows(1, ("step", "loss"))
        (2, array([0.5 , 0.25]), array([[2.  ],
               [0.25]]))
    """

    def __init__(self) -> None:
        self._table = np.full((len(COLUMNS), FIRST_CAPACITY), np.nan)
        self._count = 0
        self._lock = threading.Lock()
        self.version = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, column: str) -> np.ndarray:
        """Return a copy of one column."""
        return self.rows(0, (column,))[0]

    def __repr__(self) -> str:
        return f"History({self._count} steps: {', '.join(COLUMNS)})"

    def append(self, **values: float | None) -> None:
        """Add a row.

        Args:
            **values: Value of each column; a column that is left out, or `None`, is NaN.
        """
        row = [np.nan if (value := values.get(name)) is None else value for name in COLUMNS]
        with self._lock:
            if self._count == self._table.shape[1]:
                # Twice as wide each time: n rows are copied O(1) times each, also for a million steps.
                self._table = np.concatenate([self._table, np.full_like(self._table, np.nan)], axis=1)
            self._table[:, self._count] = row
            self._count += 1

    def restore(self, table: np.ndarray) -> None:
        """Take over the rows of an earlier run, as `rows()` gave them, in the place of those that are there."""
        with self._lock:
            self._count = table.shape[1]
            self._table = np.concatenate([table, np.full((len(COLUMNS), FIRST_CAPACITY), np.nan)], axis=1)
            self.version += 1

    def truncate(self, step: int) -> None:
        """Drop the rows after a step, when a run goes back to it."""
        with self._lock:
            before = self._count
            self._count = int(np.searchsorted(self._table[0, : self._count], step, side="right"))
            self.version += self._count != before

    def rows(self, start: int = 0, columns: Sequence[str] = COLUMNS) -> np.ndarray:
        """Return a copy of the rows from `start` on, as an array of shape (columns, rows).

        Args:
            start: Index of the first row; from the end, if negative.
            columns: Names of the columns, in the order wanted. `CURVES` is what live curves take.
        """
        places = [COLUMNS.index(name) for name in columns]
        with self._lock:
            return self._table[:, : self._count][places, start:]

    def to_dict(self) -> dict[str, np.ndarray]:
        """Return a copy of all columns by name, as `pandas.DataFrame` takes them."""
        return dict(zip(COLUMNS, self.rows(), strict=True))
