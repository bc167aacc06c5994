"""What a run says when it cannot go on."""

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
    """Return the message for a loss that is no number any more.

    Args:
        step: The step whose loss it was.
        epoch: Its epoch.
        epochs: Of how many.
        loss: The loss.
        learning_rate: The rate of that step.
        is_relative: Whether the rate is a factor on the optimizer's own.
        last: Step and loss of the last finite one.
    """
    rate = f"{learning_rate:g}" + (" times the optimizer's own" if is_relative else "")
    return Diagnostic(
        f"the loss is {'NaN' if loss != loss else 'infinite'} at step {step}, epoch {epoch} of {epochs}.",
        (
            ("learning rate", rate),
            ("last finite loss", f"{last[1]:.4g} at step {last[0]}" if last else "none"),
        ),
        f"run.learning_rate = {learning_rate / 10:g}; run.go_on()",
        code="TrainingError",
    )


def problem_of(error: BaseException, step: int) -> Diagnostic:
    """Return the message for whatever ended a run; if the error carries several, the first with the others as facts."""
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
