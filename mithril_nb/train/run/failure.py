"""Messages of a run that fails."""

from __future__ import annotations

from dataclasses import replace

from mithril_nb.errors import Diagnostic, MithrilError


def divergence(
    step: int,
    epoch: int,
    epochs: int,
    loss: float,
    learning_rate: float,
    is_relative: bool,
    last: tuple[int, float] | None,
) -> Diagnostic:
    """Return the message for a loss that is NaN or infinite.

    Args:
        step: Step of that loss.
        epoch: Its epoch.
        epochs: Total epochs of the run.
        loss: The loss.
        learning_rate: Learning rate of that step.
        is_relative: True if the rate is a factor on the optimizer's own rate.
        last: Step and value of the last finite loss.
    """
    rate = f"{learning_rate:g}" + (" times the optimizer's own" if is_relative else "")
    return Diagnostic(
        f"the loss is {'NaN' if loss != loss else 'infinite'} at step {step}, epoch {epoch} of {epochs}.",
        (
            ("learning rate", rate),
            ("last finite loss", f"{last[1]:.4g} at step {last[0]}" if last else "none"),
        ),
        f"run.learning_rate = {learning_rate / 10:g}; run.resume()",
        code="TrainingError",
    )


def problem_of(error: BaseException, step: int) -> Diagnostic:
    """Return the message for an error that ended a run. Further diagnostics of the error become facts of the first."""
    if isinstance(error, MithrilError):
        first, *others = error.diagnostics
        return replace(first, facts=(*first.facts, *(("also", str(other)) for other in others)))
    text = str(error).strip().splitlines()
    return Diagnostic(
        f"training failed after step {step}: {type(error).__name__}" + (f": {text[0]}" if text else "."),
        (),
        "run.wait() raises the error itself, with its traceback.",
        code=type(error).__name__,
    )
