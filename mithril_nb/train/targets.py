"""Checks of training targets against the loss and the model's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from mithril_nb.train.data import DataSet, Problems
from mithril_nb.train.losses import Loss


def check_targets(
    data: DataSet, loss: Loss, outputs: Mapping[str, jax.ShapeDtypeStruct], what: str = "data"
) -> DataSet:
    """Return the data with targets cast to the dtype that the loss expects.

    Args:
        data: Inputs and targets.
        loss: The loss. A user's function accepts any targets.
        outputs: Spec of each of the model's outputs for one batch.
        what: Name of the data in messages.

    Raises:
        DataError: Labels are not integers or out of range, binary targets are not between 0 and 1, or shapes do not
            match.
    """
    problems = Problems()
    if loss.targets == "any":
        return data
    if isinstance(data.targets, dict) or loss.needs_output(outputs):
        problems.add(
            f"loss {loss.name!r} takes one output and one array of targets.",
            (("outputs", ", ".join(map(repr, outputs))), ("targets", _names(data.targets))),
            "choose an output with output=, or pass a function as loss=, which takes a dict of the outputs and the "
            "targets.",
        )
        problems.raise_if_any()
    name, output = loss.output or next(iter(outputs)), loss.prediction(outputs)
    check = {"labels": _labels, "binary": _binary, "like the output": _like_output}[loss.targets]
    targets = check(np.asarray(data.targets), name, output, loss, what, problems)
    problems.raise_if_any()
    return DataSet(data.inputs, targets)


def _labels(targets: np.ndarray, name: str, output: Any, loss: Loss, what: str, problems: Problems) -> np.ndarray:
    width = output.shape[-1] if output.shape else 1
    facts = [("targets", f"{targets.shape} {targets.dtype}"), ("output", f"{name!r} {output.shape} {output.dtype}")]
    if targets.ndim == len(output.shape) and targets.shape[-1] == width and targets.shape[1:] == output.shape[1:]:
        problems.add(
            f"{what}: the targets look one-hot; loss {loss.name!r} expects class labels.",
            facts,
            "y = y.argmax(axis=-1)",
        )
    elif targets.shape[1:] != output.shape[1:-1]:
        needed = ("samples", *output.shape[1:-1])
        is_same_size = int(np.prod(targets.shape[1:])) == int(np.prod(needed[1:]))
        reshaped = (
            "y = y.ravel()" if len(needed) == 1 else f"y = y.reshape({', '.join(map(str, ('len(y)', *needed[1:])))})"
        )
        problems.add(
            f"{what}: the shape of the labels does not match the output.",
            [*facts, ("needed", f"labels of shape {needed}")],
            reshaped if is_same_size else "",
        )
    elif targets.dtype.kind not in "iu":
        problems.add(
            f"{what}: the labels are not integers; loss {loss.name!r} expects class labels.",
            [*facts, ("first", repr(targets.flat[0].item()))],
            'y = y.astype("int32")  # for classes; loss="mean_squared_error" for numbers',
        )
    elif targets.min() < 0 or targets.max() >= width:
        bad = (targets < 0) | (targets >= width)
        first = tuple(int(place) for place in np.argwhere(bad)[0])
        problems.add(
            f"{what}: labels are out of range for an output of width {width}.",
            [
                ("labels", f"from {targets.min()} to {targets.max()}"),
                ("needed", f"from 0 to {width - 1}"),
                ("first", f"[{', '.join(map(str, first))}] is {targets[first]}, {int(bad.sum())} in all"),
            ],
            f"a last block of width {int(targets.max()) + 1}, or labels that start at 0."
            if targets.min() >= 0
            else "y = np.unique(y, return_inverse=True)[1]",
        )
    else:
        return targets.astype(np.int32)
    return targets


def _binary(targets: np.ndarray, name: str, output: Any, loss: Loss, what: str, problems: Problems) -> np.ndarray:
    targets = _like_output(targets, name, output, loss, what, problems)
    if not problems.found and (targets.min() < 0 or targets.max() > 1):
        problems.add(
            f"{what}: the targets are not between 0 and 1; loss {loss.name!r} expects probabilities.",
            [("targets", f"from {targets.min():g} to {targets.max():g}")],
            'y = (y > 0).astype("float32")  # or loss="cross_entropy" for more than two classes',
        )
    return targets


def _like_output(targets: np.ndarray, name: str, output: Any, loss: Loss, what: str, problems: Problems) -> np.ndarray:
    # Accept (batch,) for an output of (batch, 1): the loss aligns them before they broadcast to (batch, batch).
    if targets.shape[1:] not in (output.shape[1:], output.shape[1:-1] if output.shape[-1:] == (1,) else None):
        problems.add(
            f"{what}: the targets and the output differ in shape; loss {loss.name!r} compares them elementwise.",
            [("targets", f"{targets.shape} {targets.dtype}"), ("output", f"{name!r} {output.shape} {output.dtype}")],
            f"y.reshape({', '.join(map(str, ('len(y)', *output.shape[1:])))})"
            if int(np.prod(targets.shape[1:])) == int(np.prod(output.shape[1:]))
            else f"a last block of width {targets.shape[-1] if targets.ndim > 1 else 1}.",
        )
    # NumPy has no bfloat16: pass float32, and the loss casts.
    return targets.astype("float32" if output.dtype.name == "bfloat16" else output.dtype, copy=False)


def _names(targets: Any) -> str:
    return ", ".join(map(repr, targets)) if isinstance(targets, dict) else f"{targets.shape} {targets.dtype}"
