"""`find_lr`: the range test of learning rates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import optax

from mithril_nb.backends.backend import check_count
from mithril_nb.display import Shown
from mithril_nb.errors import TrainingError, UnknownOptionError, short_repr
from mithril_nb.train.fit import fit

FEWEST_STEPS = 10
_REFUSED = (
    "learning_rate", "epochs", "accumulate", "stop", "keep_best", "checkpoint", "resume", "track", "validation",
    "validate_every",
)  # fmt: skip


@dataclass(frozen=True)
class LearningRates(Shown):
    """Result of `find_lr`.

    Attributes:
        history: Columns `"learning_rate"` and `"loss"`: the rate of each step, and the loss of its batch before it.
        suggestion: Rate at which the smoothed loss falls most; `None` if it does not fall by clearly more than the loss
            varies from step to step, or if fewer than 10 steps had a finite loss.
    """

    history: dict[str, np.ndarray]
    suggestion: float | None

    def __repr__(self) -> str:
        return f"LearningRates(suggestion={self.suggestion}, {len(self.history['loss'])} steps)"


def find_lr(
    model: Any,
    data: Any,
    *,
    loss: Any = "cross_entropy",
    optimizer: Any = "adam",
    low: float = 1e-6,
    high: float = 1.0,
    steps: int = 100,
    **options: Any,
) -> LearningRates:
    """Train with a rate that grows from `low` to `high` by the same factor in each step, and suggest a learning rate.

    This is the range test of Smith, "Cyclical Learning Rates for Training Neural Networks", WACV 2017, with rates that
    grow exponentially. The model is not changed; an iterator of batches is used up by `steps`. The test ends early at a
    loss that is NaN or infinite.

    Args:
        model: A model, as in `ml.fit`.
        data: Data, as in `ml.fit`.
        loss: A loss, as in `ml.fit`.
        optimizer: A name or an optax factory, such as `optax.adamw`.
        low: First learning rate.
        high: Last learning rate.
        steps: Steps of the test, at least 10.
        **options: Other options of `ml.fit`, such as `batch_size`, `params` and `seed`.

    Raises:
        UnknownOptionError: `low` and `high` are no positive range, or an option is wrong.
        TrainingError: The loss of the first step is NaN or infinite.

    Examples:
        >>> import jax.numpy as jnp
        >>> x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
        >>> def line(params, x):
        ...     return x * params
        >>> rates = find_lr(line, (x, 3 * x), params=jnp.zeros(1), loss="mean_squared_error", optimizer="sgd", high=10)
        >>> 0.01 < rates.suggestion < 3
        True
    """
    if not all(isinstance(rate, int | float | np.number) for rate in (low, high)) or not 0 < low < high < math.inf:
        facts = (("low", short_repr(low)), ("high", short_repr(high)))
        raise UnknownOptionError("low and high must be positive, and low the smaller one.", facts, "low=1e-6, high=1")
    if check_count("steps", steps) < FEWEST_STEPS:
        raise UnknownOptionError(f"steps must be at least {FEWEST_STEPS}.", (("got", str(steps)),), "steps=100")
    for name in options:
        if name in _REFUSED:
            raise UnknownOptionError(f"find_lr takes no argument {name!r}.", (), "low=1e-6, high=1, steps=100")
    schedule = optax.exponential_decay(low, steps - 1, high / low)
    run = fit(model, data, loss=loss, optimizer=optimizer, learning_rate=schedule, steps=steps, **options)
    try:
        for _ in run:
            pass
    except TrainingError:
        if not len(run.history):
            raise
    rates, losses = run.history.rows(0, ("learning_rate", "loss"))
    return LearningRates({"learning_rate": rates, "loss": losses}, _steepest(rates, losses))


def _steepest(rates: np.ndarray, losses: np.ndarray) -> float | None:
    if len(losses) < FEWEST_STEPS:
        return None
    width = max(3, len(losses) // 10) | 1  # odd, so that a mean has the rate of its middle
    means = np.convolve(losses, np.full(width, 1 / width), "valid")
    rates = rates[width // 2 :][: len(means)]
    end = int(np.argmin(means)) + 1
    # Small rates hardly change the loss, so its steps show how much batches differ: independent losses of the variance
    # v have squared steps of 2 v. The least of many means is low by chance, hence the factor 4.
    noise = math.sqrt(np.mean(np.diff(losses[: len(losses) // 2]) ** 2) / 2)
    if end < 2 or means[0] - means[end - 1] <= 4 * noise * math.sqrt(2 / width):
        return None
    return float(rates[np.argmin(np.gradient(means[:end], np.log(rates[:end])))])
