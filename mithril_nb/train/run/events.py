"""Events of a training run: one frozen record per step, epoch, and change of the run's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EventKind = Literal["started", "step", "epoch", "paused", "resumed", "stopped", "done", "failed"]


@dataclass(frozen=True, slots=True)
class TrainingEvent:
    """One event of a run.

    Attributes:
        kind: Kind of the event.
        step: Steps taken so far.
        epoch: The current epoch, from 1; 0 before the first step.
        steps: Total steps of the run.
        epochs: Total epochs of the run.
        loss: Loss of the step's batch (for an epoch, the mean over its steps); `None` before the first step.
        accuracy: Fraction of correct predictions in the batch (for an epoch, the mean); `None` if not requested.
        validation_loss: Loss on the validation data, in epoch events.
        validation_accuracy: Accuracy on the validation data, in epoch events.
        elapsed_s: Seconds of training so far, without pauses.
        steps_per_s: Steps per second over the last two seconds, without compilation; `None` while unknown.
        left_s: Estimated seconds until the end; `None` while unknown.
        learning_rate: The learning rate, or the factor on the optimizer's own rate if the run's rate is relative.
        message: Text for the user, such as the reason of the end.

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

    def __str__(self) -> str:
        parts = [] if self.kind in ("step", "epoch") else [self.kind]
        parts += [f"epoch {self.epoch}/{self.epochs}", f"step {self.step}/{self.steps}"]
        for label, loss in (("loss", self.loss), ("validation loss", self.validation_loss)):
            parts += [] if loss is None else [f"{label} {loss:.4g}"]
        for label, share in (("accuracy", self.accuracy), ("validation accuracy", self.validation_accuracy)):
            parts += [] if share is None else [f"{label} {100 * share:.2f} %"]
        return "  ".join([*parts, self.message] if self.message else parts)
