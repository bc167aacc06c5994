"""The operations of a backend on arrays: a table of names and of the JAX functions behind them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.errors import ShapeError, UnknownOptionError, short_repr
from mithril_nb.graph.spec import as_dtype

Function = Callable[..., Any]


def cross_entropy(logits: Any, targets: Any) -> jax.Array:
    """Return the cross-entropy of logits with labels, or with a probability for each class; the mean over the batch.

    Args:
        logits: Array of shape (..., classes).
        targets: Whole numbers of shape (...), or probabilities of the logits' shape.
    """
    logits, targets = _checked("cross_entropy", logits, targets)
    log_p = jax.nn.log_softmax(logits)
    if targets.ndim == logits.ndim:
        return -(targets * log_p).sum(-1).mean()
    right = jnp.take_along_axis(log_p, targets[..., None], -1, mode="clip")[..., 0]
    return -jnp.where(_known(logits, targets), right, jnp.nan).mean()


def cross_entropy_grad(logits: Any, targets: Any) -> jax.Array:
    """Return the gradient of `cross_entropy` by the logits: `(softmax(logits) - targets) / batch`."""
    logits, targets = _checked("cross_entropy_grad", logits, targets)
    if targets.ndim < logits.ndim:
        right = jax.nn.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
        targets = jnp.where(_known(logits, targets)[..., None], right, jnp.nan)
        total = 1.0
    else:
        total = targets.sum(-1, keepdims=True)
    count = max(logits.size // max(logits.shape[-1], 1), 1)
    return ((jax.nn.softmax(logits) * total - targets) / count).astype(logits.dtype)


def _known(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Whether each label is a class; one that is none makes NaN, which is seen."""
    return (labels >= 0) & (labels < logits.shape[-1])


def _checked(name: str, logits: Any, targets: Any) -> tuple[jax.Array, jax.Array]:
    logits, targets = jnp.asarray(logits), jnp.asarray(targets)
    whole = jnp.issubdtype(targets.dtype, jnp.integer)
    if logits.ndim == 0 or targets.shape != (logits.shape[:-1] if whole else logits.shape):
        needs = f"{logits.shape[:-1]} whole numbers, or {logits.shape} probabilities" if logits.ndim else "a class axis"
        is_one_hot = whole and targets.shape == logits.shape
        raise ShapeError(
            f"{name} cannot take targets of shape {targets.shape} {as_dtype(targets.dtype)!s}.",
            (("logits", f"{logits.shape} {as_dtype(logits.dtype)!s}"), ("needs", needs)),
            f'backend.array(targets, dtype="{as_dtype(logits.dtype)!s}")'
            if is_one_hot
            else 'backend.array(labels, dtype="int32")',
        )
    return logits, targets


def _concat(*arrays: Any, axis: int = 0) -> jax.Array:
    """Both `concat([a, b])` and `concat(a, b)`."""
    given = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], list | tuple) else arrays
    return jnp.concatenate([jnp.asarray(one) for one in given], axis=axis)


def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> jax.Array:
    shape = jnp.shape(x)
    end = end_dim % len(shape) if shape else 0
    return jnp.reshape(x, (*shape[:start_dim], -1, *shape[end + 1 :]))


def _cast(x: Any, dtype: Any) -> jax.Array:
    return jnp.asarray(x).astype(str(as_dtype(dtype)))


def _topk(x: Any, k: int) -> jax.Array:
    return jax.lax.top_k(x, k)[0]


def _one_hot(x: Any, num_classes: int, dtype: Any = "float32") -> jax.Array:
    return jax.nn.one_hot(x, num_classes, dtype=str(as_dtype(dtype)))


OPERATIONS: dict[str, tuple[Function, str]] = {
    # item by item
    "add": (jnp.add, "Return the sum, item by item."),
    "subtract": (jnp.subtract, "Return the difference, item by item."),
    "multiply": (jnp.multiply, "Return the product, item by item."),
    "divide": (jnp.divide, "Return the quotient, item by item."),
    "floor_divide": (jnp.floor_divide, "Return the quotient rounded down, item by item."),
    "remainder": (jnp.remainder, "Return what a division leaves, item by item."),
    "power": (jnp.power, "Return the power, item by item."),
    "negative": (jnp.negative, "Return `-x`."),
    "abs": (jnp.abs, "Return the absolute value."),
    "sign": (jnp.sign, "Return -1, 0 or 1."),
    "square": (jnp.square, "Return the square."),
    "sqrt": (jnp.sqrt, "Return the square root."),
    "exp": (jnp.exp, "Return the exponential."),
    "log": (jnp.log, "Return the natural logarithm."),
    "log1p": (jnp.log1p, "Return `log(1 + x)`, exact near 0."),
    "expm1": (jnp.expm1, "Return `exp(x) - 1`, exact near 0."),
    "sin": (jnp.sin, "Return the sine."),
    "cos": (jnp.cos, "Return the cosine."),
    "tan": (jnp.tan, "Return the tangent."),
    "floor": (jnp.floor, "Return the whole number below."),
    "ceil": (jnp.ceil, "Return the whole number above."),
    "round": (jnp.round, "Return the nearest whole number, or that many `decimals`."),
    "clip": (jnp.clip, "Return the items held between a least and a greatest."),
    "maximum": (jnp.maximum, "Return the greater, item by item."),
    "minimum": (jnp.minimum, "Return the lesser, item by item."),
    "where": (jnp.where, "Return items of the second array where the first is true, else of the third."),
    "cast": (_cast, "Return the items in another dtype."),
    "nan_to_num": (jnp.nan_to_num, "Return the items with NaN as zero and infinity as the greatest number."),
    # truth
    "equal": (jnp.equal, "Return whether items are equal."),
    "not_equal": (jnp.not_equal, "Return whether items differ."),
    "less": (jnp.less, "Return whether items of the first are less."),
    "less_equal": (jnp.less_equal, "Return whether items of the first are not greater."),
    "greater": (jnp.greater, "Return whether items of the first are greater."),
    "greater_equal": (jnp.greater_equal, "Return whether items of the first are not less."),
    "logical_and": (jnp.logical_and, "Return whether both are true."),
    "logical_or": (jnp.logical_or, "Return whether one is true."),
    "logical_not": (jnp.logical_not, "Return whether it is not true."),
    "isnan": (jnp.isnan, "Return whether items are NaN."),
    "isfinite": (jnp.isfinite, "Return whether items are neither NaN nor infinite."),
    # products
    "matmul": (jnp.matmul, "Return the matrix product; of two vectors, their dot product."),
    "dot": (jnp.dot, "Return the dot product."),
    "einsum": (jnp.einsum, "Return a sum of products, in Einstein's notation."),
    "outer": (jnp.outer, "Return the product of each item of one vector with each of the other."),
    # over axes
    "sum": (jnp.sum, "Return the sum, over all items or along `axis`."),
    "mean": (jnp.mean, "Return the mean, over all items or along `axis`."),
    "max": (jnp.max, "Return the greatest, of all items or along `axis`."),
    "min": (jnp.min, "Return the least, of all items or along `axis`."),
    "prod": (jnp.prod, "Return the product, of all items or along `axis`."),
    "var": (jnp.var, "Return the variance, of all items or along `axis`."),
    "std": (jnp.std, "Return the standard deviation, of all items or along `axis`."),
    "any": (jnp.any, "Return whether one item is true, of all or along `axis`."),
    "all": (jnp.all, "Return whether every item is true, of all or along `axis`."),
    "argmax": (jnp.argmax, "Return the place of the greatest, of all items or along `axis`."),
    "argmin": (jnp.argmin, "Return the place of the least, of all items or along `axis`."),
    "argsort": (jnp.argsort, "Return the places that would sort the items along the last axis."),
    "sort": (jnp.sort, "Return the items sorted along the last axis."),
    "cumsum": (jnp.cumsum, "Return the sums of all items up to each, along `axis`."),
    "logsumexp": (jax.nn.logsumexp, "Return `log(sum(exp(x)))`, without overflow."),
    "norm": (jnp.linalg.norm, "Return the Euclidean norm, of all items or along `axis`."),
    "topk": (_topk, "Return the `k` greatest along the last axis, the greatest first."),
    # activations and losses
    "relu": (jax.nn.relu, "Return what is positive, the rest as zero."),
    "leaky_relu": (jax.nn.leaky_relu, "Return what is positive, the rest times `negative_slope`."),
    "elu": (jax.nn.elu, "Return what is positive, else `alpha * (exp(x) - 1)`."),
    "gelu": (jax.nn.gelu, "Return `x` times the normal distribution's share below it."),
    "silu": (jax.nn.silu, "Return `x * sigmoid(x)`."),
    "softplus": (jax.nn.softplus, "Return `log(1 + exp(x))`."),
    "sigmoid": (jax.nn.sigmoid, "Return `1 / (1 + exp(-x))`."),
    "tanh": (jnp.tanh, "Return the hyperbolic tangent."),
    "softmax": (jax.nn.softmax, "Return shares that sum to 1 along the last axis, or `axis`."),
    "log_softmax": (jax.nn.log_softmax, "Return the logarithm of `softmax`."),
    "cross_entropy": (cross_entropy, cross_entropy.__doc__ or ""),
    "cross_entropy_grad": (cross_entropy_grad, cross_entropy_grad.__doc__ or ""),
    # shapes
    "reshape": (jnp.reshape, "Return the items in another shape."),
    "transpose": (jnp.transpose, "Return the array with its axes reversed, or in a given order."),
    "swapaxes": (jnp.swapaxes, "Return the array with two axes swapped."),
    "concat": (_concat, "Return a list of arrays joined along `axis`."),
    "stack": (jnp.stack, "Return a list of arrays of one shape along a new `axis`."),
    "split": (jnp.split, "Return the array cut into equal parts along `axis`."),
    "flatten": (_flatten, "Return all axes from `start_dim` to `end_dim` as one."),
    "squeeze": (jnp.squeeze, "Return the array without its axes of size 1."),
    "expand_dims": (jnp.expand_dims, "Return the array with a new axis of size 1."),
    "broadcast_to": (jnp.broadcast_to, "Return the array repeated to a shape."),
    "tile": (jnp.tile, "Return the array repeated along its axes."),
    "repeat": (jnp.repeat, "Return each item repeated."),
    "flip": (jnp.flip, "Return the array in reverse order, along `axis` or all axes."),
    "pad": (jnp.pad, "Return the array with items around it."),
    "take": (jnp.take, "Return the items at some places along `axis`."),
    "one_hot": (_one_hot, "Return for each whole number a row with a 1 at its place."),
}
"""What each is computed by, and what it says of itself."""

SPELLINGS = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power", "neg": "negative", "absolute": "abs",
    "reduce_sum": "sum", "reduce_mean": "mean", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod",
    "concatenate": "concat", "unsqueeze": "expand_dims", "clamp": "clip", "mod": "remainder", "swish": "silu",
}  # fmt: skip
"""Second names."""


def refused(name: str, arrays: tuple[Any, ...], options: dict[str, Any], error: Exception) -> Exception:
    """Return what to say where JAX cannot do an operation on these arrays."""
    because = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if wrong := _NO_ARRAY.search(str(error)):  # its first line has the address of a function of JAX
        because = f"{wrong[2]} is no array of numbers, but of type {wrong[1]}"
    shapes = [_told(one) for given in arrays for one in (given if isinstance(given, list | tuple) else (given,))]
    named = [(key, _told(value)) for key, value in options.items() if value is not None]
    told = (*([("given", ", ".join(shapes) or "nothing")] if shapes or not named else []), *named)
    is_shape = "shape" in because or (isinstance(error, ValueError) and "dtype" not in because)
    return (ShapeError if is_shape else UnknownOptionError)(
        f"{name} cannot be done with these arguments.",
        (*told, ("because", because)),
        f"help(backend.{name})",
    )


_NO_ARRAY = re.compile(r"problematic value is of type <class '(\w+)'> and was passed to the function at path (\w+)")


def _told(given: Any) -> str:
    shape = getattr(given, "shape", None)
    return f"{tuple(shape)} {given.dtype}" if shape is not None else short_repr(given)
