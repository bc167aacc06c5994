"""Losses and accuracies by name: pure functions of a prediction and its targets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mithril_nb.errors import UnknownOptionError, short_repr

EXAMPLE = "loss=lambda prediction, targets: abs(prediction - targets).mean()"

TargetKind = Literal["labels", "binary", "like the output", "any"]


@dataclass(frozen=True)
class Loss:
    """A loss, and what it asks of the targets.

    Attributes:
        name: What people call it.
        function: Takes prediction and targets; gives one value per sample (or per token, ...), or a scalar.
        targets: What the targets must be: class labels, 0 or 1, of the output's shape, or anything.
        is_correct: Takes prediction and targets; says per sample whether the prediction is right. `None` if that means
            nothing.
        output: Name of the model's output that is the prediction. By default the only output, or a dict of all.
    """

    name: str
    function: Callable[[Any, Any], Any]
    targets: TargetKind = "any"
    is_correct: Callable[[Any, Any], Any] | None = None
    output: str | None = None

    def prediction(self, outputs: Mapping[str, Any]) -> Any:
        """Return what the loss takes of a model's outputs: the chosen one, the only one, or all of them.

        Raises:
            UnknownOptionError: The model has no output of the chosen name.
        """
        if self.output is None:
            return next(iter(outputs.values())) if len(outputs) == 1 else outputs
        if not isinstance(self.output, str) or self.output not in outputs:
            raise UnknownOptionError(
                f"the model has no output {short_repr(self.output)}.",
                (("outputs", ", ".join(map(repr, outputs))),),
                f'output="{get_close_matches(str(self.output), outputs, 1, 0)[0]}"',
            )
        return outputs[self.output]

    def needs_output(self, outputs: Collection[str]) -> bool:
        """Return whether one of several outputs has to be chosen: only a function of the user takes all of them."""
        return self.output is None and len(outputs) > 1 and self.targets != "any"


def _aligned(prediction: Any, targets: Any) -> Any:
    """Return the prediction in the shape of the targets if only a last axis of size 1 is between them.

    (batch, 1) beside (batch,) would else broadcast to (batch, batch), in silence.
    """
    return prediction.reshape(targets.shape) if prediction.shape == (*targets.shape, 1) else prediction


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Return -log softmax(logits)[label] per sample.

    Args:
        logits: Array of shape (..., classes).
        labels: Array of integers of shape (...), from 0 to classes - 1.
    """
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def mean_squared_error(prediction: Any, targets: Any) -> Any:
    """Return (prediction - target)² per element."""
    return jnp.square(_aligned(prediction, targets) - targets)


def binary_cross_entropy(logits: Any, targets: Any) -> Any:
    """Return -t log σ(logit) - (1 - t) log(1 - σ(logit)) per element."""
    logits = _aligned(logits, targets)
    return optax.sigmoid_binary_cross_entropy(logits, targets.astype(logits.dtype))


def is_argmax(logits: Any, labels: Any) -> Any:
    """Return `argmax(logits, axis=-1) == labels`, ties included: the first of the largest wins.

    XLA's argmax reduces pairs of value and place, which is slow on a CPU; this took half of its share of a small step.
    """
    labels = labels[..., None]
    own = jnp.take_along_axis(logits, labels, axis=-1)
    place = jax.lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1)
    return jnp.all(jnp.where(place < labels, logits < own, logits <= own), axis=-1)


LOSSES = {
    loss.name: loss
    for loss in (
        Loss("cross_entropy", cross_entropy, "labels", is_argmax),
        Loss("mean_squared_error", mean_squared_error, "like the output"),
        Loss(
            "binary_cross_entropy",
            binary_cross_entropy,
            "binary",
            lambda logits, targets: (_aligned(logits, targets) > 0) == (targets > 0.5),
        ),
    )
}
"""The losses that have a name."""


def resolve_loss(loss: str | Loss | Callable[[Any, Any], Any], output: str | None = None) -> Loss:
    """Return the loss for a name or a function.

    Args:
        loss: One of `LOSSES`, or a function of (prediction, targets) that gives a scalar, or one value per sample. A
            model with several outputs hands it all of them as a dict.
        output: Name of the output that the loss takes instead.

    Raises:
        UnknownOptionError: No loss has this name, or the function does not take two arguments.

    Examples:
        >>> resolve_loss("cross_entropy").targets
        'labels'
    """
    if output is not None:
        return replace(resolve_loss(loss), output=output)
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        if loss in LOSSES:
            return LOSSES[loss]
        initials = {"".join(word[0] for word in name.split("_")): name for name in LOSSES}
        near = (*get_close_matches(loss, LOSSES, n=1), "cross_entropy")[0]
        meant = initials.get(loss.lower(), near)
        raise UnknownOptionError(f"unknown loss {loss!r}.", (("known", ", ".join(LOSSES)),), f'loss="{meant}"')
    if callable(loss):
        name = getattr(loss, "__name__", "loss")
        if not takes(loss, 2):
            raise UnknownOptionError(
                f"loss {name!r} is no function of a prediction and targets.",
                (("takes", str(inspect.signature(loss))),),
                EXAMPLE,
            )
        return Loss(name, loss)
    raise UnknownOptionError(
        f"a loss is a name or a function, not {loss!r}.",
        (("known", ", ".join(LOSSES)),),
        EXAMPLE,
    )


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments, as far as it says what it takes.

    Examples:
        >>> takes(lambda a, b, c=0: a, 2), takes(lambda a: a, 2), takes(max, 2)
        (True, False, True)
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # of some that are written in C
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def loss_value(loss: Loss, prediction: Any, targets: Any) -> jax.Array:
    """Return what a loss gives, as an array of floats.

    Raises:
        UnknownOptionError: It gives something else.
    """
    value = loss.function(prediction, targets)
    is_array = isinstance(value, jax.Array | np.ndarray | np.generic)
    if isinstance(value, float) or (is_array and jnp.issubdtype(value.dtype, jnp.floating)):
        return jnp.asarray(value)
    raise UnknownOptionError(
        f"loss {loss.name!r} gives nothing that training could make small.",
        (
            ("got", f"{value.dtype} of shape {value.shape}" if is_array else short_repr(value)),
            ("needed", "one float, or an array of floats whose first axis is the batch"),
        ),
        EXAMPLE,
    )


def mean_over_batch(values: Any, weights: Any | None) -> Any:
    """Return the mean of values, each sample (first axis) counting with its weight.

    Args:
        values: A scalar, which is returned as it is; or an array whose first axis is the batch.
        weights: Array of shape (batch,), 0 for the rows that only fill a short batch up. `None`: all count the same.
    """
    if values.ndim == 0:
        return values
    if weights is None:
        return jnp.mean(values)
    per_sample = values.reshape(values.shape[0], -1).mean(axis=1)
    return jnp.sum(per_sample * weights) / jnp.sum(weights)


def is_per_sample(loss: Loss, prediction: jax.ShapeDtypeStruct, targets: jax.ShapeDtypeStruct) -> bool:
    """Whether a loss gives a value per sample, so that rows can be left out of its mean; found without running it."""
    return jax.eval_shape(lambda *given: loss_value(loss, *given), prediction, targets).ndim > 0
