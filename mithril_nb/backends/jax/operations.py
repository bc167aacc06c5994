"""Array operations of the backend: a table of names and JAX functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.errors import ShapeError, UnknownOptionError, listed, short_repr
from mithril_nb.graph.spec import as_dtype

Function = Callable[..., Any]


def cross_entropy(logits: Any, targets: Any) -> jax.Array:
    """Return the mean cross-entropy of logits and targets over the batch.

    Args:
        logits: Array of shape (..., classes).
        targets: Labels, as integers of shape (...), or class probabilities of shape (..., classes).
    """
    logits, targets = _checked("cross_entropy", logits, targets)
    log_p = jax.nn.log_softmax(logits)
    if targets.ndim == logits.ndim:
        return -(targets * log_p).sum(-1).mean()
    # `_known` tests the labels. The default mode would test them again, and it accepts negative labels.
    right = jnp.take_along_axis(log_p, targets[..., None], -1, mode="clip")[..., 0]
    return -jnp.where(_known(logits, targets), right, jnp.nan).mean()


def cross_entropy_grad(logits: Any, targets: Any) -> jax.Array:
    """Return the gradient of `cross_entropy` with respect to the logits: `(softmax(logits) - targets) / batch`."""
    logits, targets = _checked("cross_entropy_grad", logits, targets)
    if targets.ndim < logits.ndim:
        right = jax.nn.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
        targets = jnp.where(_known(logits, targets)[..., None], right, jnp.nan)
        total = 1.0
    else:
        total = targets.sum(-1, keepdims=True)
    # Without classes, Python would raise ZeroDivisionError; an empty batch must not divide by 0 either.
    count = max(logits.size // max(logits.shape[-1], 1), 1)
    return ((jax.nn.softmax(logits) * total - targets) / count).astype(logits.dtype)


def _known(logits: jax.Array, labels: jax.Array) -> jax.Array:
    # The callers return NaN for other labels, so that the user notices.
    return (labels >= 0) & (labels < logits.shape[-1])


def _checked(name: str, logits: Any, targets: Any) -> tuple[jax.Array, jax.Array]:
    logits, targets = jnp.asarray(logits), jnp.asarray(targets)
    # Float targets are probabilities, so they need a class axis: broadcasting would hide float labels.
    is_integer = jnp.issubdtype(targets.dtype, jnp.integer)
    if logits.ndim == 0 or targets.shape != (logits.shape[:-1] if is_integer else logits.shape):
        needs = f"{logits.shape[:-1]} integers, or {logits.shape} probabilities" if logits.ndim else "a class axis"
        raise ShapeError(
            f"{name} does not accept targets of shape {targets.shape} {as_dtype(targets.dtype)!s}.",
            (("logits", f"{logits.shape} {as_dtype(logits.dtype)!s}"), ("needs", needs)),
        )
    return logits, targets


def _concat(*arrays: Any, axis: int = 0) -> jax.Array:
    operands = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], list | tuple) else arrays
    return jnp.concatenate([jnp.asarray(array) for array in operands], axis=axis)


def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> jax.Array:
    shape = jnp.shape(x)
    # A scalar becomes an array of one item.
    end = end_dim % len(shape) if shape else 0
    return jnp.reshape(x, (*shape[:start_dim], -1, *shape[end + 1 :]))


# Named, because JAX's messages about arguments start with the name of the function.
def _cast(x: Any, dtype: Any) -> jax.Array:
    return jnp.asarray(x).astype(str(as_dtype(dtype)))


def _topk(x: Any, k: int) -> jax.Array:
    return jax.lax.top_k(x, k)[0]


def _one_hot(x: Any, num_classes: int, dtype: Any = "float32") -> jax.Array:
    return jax.nn.one_hot(x, num_classes, dtype=str(as_dtype(dtype)))


OPERATIONS: dict[str, tuple[Function, str]] = {
    # elementwise
    "add": (jnp.add, "Return the elementwise sum."),
    "subtract": (jnp.subtract, "Return the elementwise difference."),
    "multiply": (jnp.multiply, "Return the elementwise product."),
    "divide": (jnp.divide, "Return the elementwise quotient."),
    "floor_divide": (jnp.floor_divide, "Return the elementwise quotient, rounded down."),
    "remainder": (jnp.remainder, "Return the elementwise remainder of a division."),
    "power": (jnp.power, "Return the elementwise power."),
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
    "floor": (jnp.floor, "Return the values rounded down."),
    "ceil": (jnp.ceil, "Return the values rounded up."),
    "round": (jnp.round, "Return the values rounded to integers, or to `decimals`."),
    "clip": (jnp.clip, "Return the values limited to a range."),
    "maximum": (jnp.maximum, "Return the elementwise maximum."),
    "minimum": (jnp.minimum, "Return the elementwise minimum."),
    "where": (jnp.where, "Return elements of the second array where the first is true, otherwise of the third."),
    "cast": (_cast, "Return the array in another dtype."),
    "nan_to_num": (jnp.nan_to_num, "Replace NaN by zero and infinity by the largest finite number."),
    # logic
    "equal": (jnp.equal, "Return the elementwise `x == y`."),
    "not_equal": (jnp.not_equal, "Return the elementwise `x != y`."),
    "less": (jnp.less, "Return the elementwise `x < y`."),
    "less_equal": (jnp.less_equal, "Return the elementwise `x <= y`."),
    "greater": (jnp.greater, "Return the elementwise `x > y`."),
    "greater_equal": (jnp.greater_equal, "Return the elementwise `x >= y`."),
    "logical_and": (jnp.logical_and, "Return the elementwise logical and."),
    "logical_or": (jnp.logical_or, "Return the elementwise logical or."),
    "logical_not": (jnp.logical_not, "Return the elementwise logical not."),
    "isnan": (jnp.isnan, "Return whether each element is NaN."),
    "isfinite": (jnp.isfinite, "Return whether each element is finite."),
    # products
    "matmul": (jnp.matmul, "Return the matrix product; for two vectors, the dot product."),
    "dot": (jnp.dot, "Return the dot product."),
    "einsum": (jnp.einsum, "Return a sum of products in Einstein notation."),
    "outer": (jnp.outer, "Return the outer product of two vectors."),
    # reductions
    "sum": (jnp.sum, "Return the sum over all elements or along `axis`."),
    "mean": (jnp.mean, "Return the mean over all elements or along `axis`."),
    "max": (jnp.max, "Return the maximum over all elements or along `axis`."),
    "min": (jnp.min, "Return the minimum over all elements or along `axis`."),
    "prod": (jnp.prod, "Return the product over all elements or along `axis`."),
    "var": (jnp.var, "Return the variance over all elements or along `axis`."),
    "std": (jnp.std, "Return the standard deviation over all elements or along `axis`."),
    "any": (jnp.any, "Return whether any element is true, over all elements or along `axis`."),
    "all": (jnp.all, "Return whether all elements are true, over all elements or along `axis`."),
    "argmax": (jnp.argmax, "Return the index of the maximum, over all elements or along `axis`."),
    "argmin": (jnp.argmin, "Return the index of the minimum, over all elements or along `axis`."),
    "argsort": (jnp.argsort, "Return the indices that sort the array along the last axis."),
    "sort": (jnp.sort, "Return the array sorted along the last axis."),
    "cumsum": (jnp.cumsum, "Return the cumulative sum along `axis`."),
    "logsumexp": (jax.nn.logsumexp, "Return `log(sum(exp(x)))` without overflow."),
    "norm": (jnp.linalg.norm, "Return the Euclidean norm over all elements or along `axis`."),
    "topk": (_topk, "Return the `k` largest elements along the last axis, in descending order."),
    # activations and losses
    "relu": (jax.nn.relu, "Return `max(x, 0)`."),
    "leaky_relu": (jax.nn.leaky_relu, "Return `x` if positive, otherwise `negative_slope * x`."),
    "elu": (jax.nn.elu, "Return `x` if positive, otherwise `alpha * (exp(x) - 1)`."),
    "gelu": (jax.nn.gelu, "Return `x * Phi(x)`, with the normal distribution function Phi."),
    "silu": (jax.nn.silu, "Return `x * sigmoid(x)`."),
    "softplus": (jax.nn.softplus, "Return `log(1 + exp(x))`."),
    "sigmoid": (jax.nn.sigmoid, "Return `1 / (1 + exp(-x))`."),
    "tanh": (jnp.tanh, "Return the hyperbolic tangent."),
    "softmax": (jax.nn.softmax, "Return `exp(x) / sum(exp(x))` along the last axis, or `axis`."),
    "log_softmax": (jax.nn.log_softmax, "Return the logarithm of `softmax`."),
    "cross_entropy": (cross_entropy, cross_entropy.__doc__ or ""),
    "cross_entropy_grad": (cross_entropy_grad, cross_entropy_grad.__doc__ or ""),
    # shapes
    "reshape": (jnp.reshape, "Return the array in another shape."),
    "transpose": (jnp.transpose, "Return the array with its axes reversed, or in a given order."),
    "swapaxes": (jnp.swapaxes, "Return the array with two axes swapped."),
    "concat": (_concat, "Concatenate a list of arrays along `axis`."),
    "stack": (jnp.stack, "Stack a list of arrays of one shape along a new `axis`."),
    "split": (jnp.split, "Split the array into equal parts along `axis`."),
    "flatten": (_flatten, "Merge all axes from `start_dim` to `end_dim` into one."),
    "squeeze": (jnp.squeeze, "Return the array without its axes of size 1."),
    "expand_dims": (jnp.expand_dims, "Return the array with a new axis of size 1."),
    "broadcast_to": (jnp.broadcast_to, "Broadcast the array to a shape."),
    "tile": (jnp.tile, "Return the array repeated along its axes."),
    "repeat": (jnp.repeat, "Return each element repeated."),
    "flip": (jnp.flip, "Return the array in reverse order, along `axis` or all axes."),
    "pad": (jnp.pad, "Return the array with padding around it."),
    "take": (jnp.take, "Return the elements at the given indices along `axis`."),
    "one_hot": (_one_hot, "Return the one-hot encoding of integers."),
}
"""JAX function and docstring of each operation."""

SPELLINGS = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power", "neg": "negative", "absolute": "abs",
    "reduce_sum": "sum", "reduce_mean": "mean", "reduce_max": "max", "reduce_min": "min", "reduce_prod": "prod",
    "concatenate": "concat", "unsqueeze": "expand_dims", "clamp": "clip", "mod": "remainder", "swish": "silu",
}  # fmt: skip
"""The operation to which each alias refers."""


def operation_error(name: str, arrays: tuple[Any, ...], options: dict[str, Any], error: Exception) -> Exception:
    """Return the error for an operation that JAX rejects for these arguments."""
    # JAX writes a function with its address, which differs from run to run.
    because = re.sub(r"<function (\w+) at 0x\w+>", r"\1", str(error).strip().partition("\n")[0])
    values = [array for value in arrays for array in (value if isinstance(value, list | tuple) else (value,))]
    named = [(key, _describe(value)) for key, value in options.items() if value is not None]
    # JAX raises TypeError for some wrong shapes and ValueError for some wrong dtypes: only the text distinguishes them.
    is_shape = "shape" in because or (isinstance(error, ValueError) and "dtype" not in because)
    return (ShapeError if is_shape else UnknownOptionError)(
        f"{name} does not accept these arguments.",
        (*([("given", listed(map(_describe, values)))] if values else []), *named, ("because", because)),
    )


def _describe(argument: Any) -> str:
    shape = getattr(argument, "shape", None)
    return f"{tuple(shape)} {argument.dtype}" if shape is not None else short_repr(argument)
