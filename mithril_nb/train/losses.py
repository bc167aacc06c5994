"""Losses and accuracies by name: pure functions of a prediction and its targets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mithril_nb.errors import UnknownOptionError, alike, short_repr

EXAMPLE = "loss=lambda prediction, targets: abs(prediction - targets).mean()"

TargetKind = Literal["labels", "binary", "like the output", "any"]


@dataclass(frozen=True)
class Loss:
    """A loss, and its requirements on the targets.

    Attributes:
        name: Name of the loss.
        function: Function of (prediction, targets) that returns one value per sample (or per token, ...), or a scalar.
        targets: Kind of targets that the loss requires: `"labels"` (integer classes), `"binary"` (numbers from 0 to 1),
            `"like the output"` (an array of the output's shape), or `"any"`.
        is_correct: Function of (prediction, targets) that returns for each sample whether the prediction is correct.
            `None` if accuracy is undefined for this loss.
        output: Name of the model's output to use as the prediction. By default, a model with one
            output uses that output, and a model with several uses a dict of all of them.
        parts: The losses of several outputs, whose sum this loss is; `()` if it is none.
        extras: Names of the further arguments that the function takes: `"params"`, `"weights"`.
    """

    name: str
    function: Callable[..., Any]
    targets: TargetKind = "any"
    is_correct: Callable[[Any, Any], Any] | None = None
    output: str | None = None
    parts: tuple[Loss, ...] = ()
    extras: tuple[str, ...] = ()

    def prediction(self, outputs: Mapping[str, Any]) -> Any:
        """Return the outputs of a model that the loss takes: the chosen output, the only one, or a dict of all.

        Raises:
            UnknownOptionError: The model has no output of the chosen name.
        """
        for part in self.parts:
            part.prediction(outputs)  # raises the error of an unknown output
        if self.output is None:
            return next(iter(outputs.values())) if len(outputs) == 1 else outputs
        if not isinstance(self.output, str) or self.output not in outputs:
            raise UnknownOptionError(
                f"the model has no output {short_repr(self.output)}.",
                (("outputs", ", ".join(map(repr, outputs))),),
            )
        return outputs[self.output]

    def goals(self, targets: Any) -> Any:
        """Return the targets of the chosen output."""
        return targets[self.output] if self.output is not None and isinstance(targets, Mapping) else targets

    def needs_output(self, outputs: Collection[str]) -> bool:
        """Return whether the user must choose one of several outputs. A loss with targets `"any"` takes all of them."""
        return self.output is None and len(outputs) > 1 and self.targets != "any"


def _aligned(prediction: Any, targets: Any) -> Any:
    # Otherwise (batch, 1) and (batch,) would silently broadcast to (batch, batch).
    return prediction.reshape(targets.shape) if prediction.shape == (*targets.shape, 1) else prediction


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Return -log softmax(logits)[label] for each label."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def mean_squared_error(prediction: Any, targets: Any) -> Any:
    """Return (prediction - target)² per element."""
    return jnp.square(_aligned(prediction, targets) - targets)


def binary_cross_entropy(logits: Any, targets: Any) -> Any:
    """Return -t log σ(logit) - (1 - t) log(1 - σ(logit)) per element."""
    logits = _aligned(logits, targets)
    return optax.sigmoid_binary_cross_entropy(logits, targets.astype(logits.dtype))


def is_argmax(logits: Any, labels: Any) -> Any:
    """Return `argmax(logits, axis=-1) == labels`, for logits without NaN and labels of 0 or more.

    Of equal maxima, only the first counts, as in argmax. XLA's argmax reduces pairs of value and index, which is slow
    on CPU. This function compares logits with that of the label, which takes half the time in a small training step.
    """
    labels = labels[..., None]
    own = jnp.take_along_axis(logits, labels, axis=-1)
    index = jax.lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1)
    return jnp.all(jnp.where(index < labels, logits < own, logits <= own), axis=-1)


# A function of the module, because the cache of compiled programs compares functions by identity.
def _is_class(logits: Any, labels: Any) -> Any:
    return is_argmax(logits, labels.astype(jnp.int32))


def with_accuracy(loss: Loss, prediction: Any, targets: Any) -> Loss:
    """Return a loss of the user with an accuracy if the targets are class labels, as for weighted cross entropy."""
    shape: tuple[int, ...] = getattr(prediction, "shape", ())
    is_array = loss.targets == "any" and isinstance(targets, np.ndarray) and targets.dtype.kind in "iu"
    if loss.is_correct is not None or not is_array or len(shape) < 2 or shape[-1] < 2:
        return loss
    are_labels = targets.shape[1:] == shape[1:-1] and targets.min() >= 0 and targets.max() < shape[-1]
    return replace(loss, is_correct=_is_class) if are_labels else loss


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
"""The losses available by name."""


def resolve_loss(loss: str | Loss | Callable[[Any, Any], Any] | Mapping[str, Any], output: str | None = None) -> Loss:
    """Return the loss for a name, for a function, or for a dict of them by output, whose sum it is.

    Examples:
        >>> resolve_loss("cross_entropy").targets
        'labels'
    """
    if isinstance(loss, Mapping) and loss and output is None:
        return _sum_of(tuple(loss.items()))
    if output is not None and not isinstance(loss, Mapping):
        return replace(resolve_loss(loss), output=output)
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        if loss in LOSSES:
            return LOSSES[loss]
        meant = (*alike(loss, LOSSES), "cross_entropy")[0]
        raise UnknownOptionError(f"unknown loss {loss!r}.", (("known", ", ".join(LOSSES)),), f'loss="{meant}"')
    if callable(loss):
        name = getattr(loss, "__name__", "loss")
        extras = tuple(name for name in ("params", "weights") if name in parameters_of(loss))
        if not takes(partial(loss, **dict.fromkeys(extras)), 2):
            raise UnknownOptionError(
                f"loss {name!r} must be a function of prediction and targets.",
                (("takes", str(inspect.signature(loss))),),
                EXAMPLE,
            )
        return Loss(name, loss, extras=extras)
    raise UnknownOptionError(
        f"loss must be a name or a function, not {loss!r}.",
        (("known", ", ".join(LOSSES)),),
        EXAMPLE,
    )


@cache  # the cache of compiled programs compares functions by identity
def _sum_of(losses: tuple[tuple[str, Any], ...]) -> Loss:
    parts = tuple(resolve_loss(loss, output) for output, loss in losses)

    def total(outputs: Mapping[str, Any], targets: Any, params: Any, weights: Any) -> Any:
        values = [loss_value(part, part.prediction(outputs), part.goals(targets), params, weights) for part in parts]
        if all(value.ndim for value in values):
            return sum(value.reshape(value.shape[0], -1).mean(axis=1) for value in values)
        # As a value per sample, the sum would be computed on padded batches, whose padding a scalar part would count.
        return sum(mean_over_batch(value, weights) for value in values)

    name = " + ".join(f"{part.name} of {part.output}" for part in parts)
    return parts[0] if len(parts) == 1 else Loss(name, total, parts=parts, extras=("params", "weights"))


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function by name; empty if its signature is not available."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some functions written in C have no signature
        return {}


def takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function accepts `count` positional arguments; True if its signature is not available.

    Examples:
        >>> takes(lambda a, b, c=0: a, 2), takes(lambda a: a, 2), takes(max, 2)
        (True, False, True)
    """
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have no signature
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def loss_value(loss: Loss, prediction: Any, targets: Any, params: Any = None, weights: Any = None) -> jax.Array:
    """Return the value of a loss as an array of floats."""
    if "weights" in loss.extras and weights is None and not loss.parts:
        weights = jnp.ones(len(jax.tree.leaves(targets)[0]))
    extras = {"params": params, "weights": weights}
    value = loss.function(prediction, targets, **{name: extras[name] for name in loss.extras})
    # JAX would report an integer loss only from inside value_and_grad, without its name.
    is_array = isinstance(value, jax.Array | np.ndarray | np.generic)
    if isinstance(value, float) or (is_array and jnp.issubdtype(value.dtype, jnp.floating)):
        return jnp.asarray(value)
    raise UnknownOptionError(
        f"loss {loss.name!r} does not return floats, so training cannot minimize it.",
        (
            ("got", f"{value.dtype} of shape {value.shape}" if is_array else short_repr(value)),
            ("needed", "one float, or an array of floats whose first axis is the batch"),
        ),
        EXAMPLE,
    )


def mean_over_batch(values: Any, weights: Any | None) -> Any:
    """Return the mean of the values, with a weight for each sample, or for each token of it; 0 if no weight is."""
    if values.ndim == 0:
        return values
    if weights is None:
        return jnp.mean(values)
    # What has no own weight counts equally: a padding row has weight 0 for all of its tokens.
    means = values.reshape(*weights.shape, -1).mean(axis=-1)
    total = jnp.sum(weights)
    return jnp.sum(means * weights) / jnp.where(total > 0, total, 1)
