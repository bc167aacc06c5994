"""Checks of the arguments of `fit` against the model and the loss, before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from mithril_nb.backends.jax.devices import device_name
from mithril_nb.errors import DataError, ShapeError, UnknownOptionError, short_repr
from mithril_nb.train.data import DataSet, Problems, Tail, check_inputs, first_of, read_data
from mithril_nb.train.losses import Loss, loss_value
from mithril_nb.train.processes import distributed, fingerprint
from mithril_nb.train.run.state import State
from mithril_nb.train.step import key_spec, specs_of
from mithril_nb.train.stream import Stream, is_stream
from mithril_nb.train.trainable import Trainable, initial_state, runner
from mithril_nb.train.training_plan import TrainingPlan


def checked_arrays(name: str, values: Any) -> dict[str, Any]:
    """Return an option of `fit` that is a dict of arrays, such as `params`, with JAX arrays. `name` is the option."""
    if not isinstance(values, Mapping):
        raise UnknownOptionError(
            f"{name} must be a dict of arrays by name.",
            (("got", short_repr(values)),),
            f"{name}=run.{name}  # of an earlier run",
        )

    def array(path: Any, leaf: Any) -> jax.Array:
        try:
            return jnp.asarray(leaf)
        except (TypeError, ValueError) as error:
            raise UnknownOptionError(
                f"{name}{jax.tree_util.keystr(path)} is not an array of numbers.",
                (("got", short_repr(leaf)),),
                f"{name}=run.{name}  # of an earlier run",
            ) from error

    return jax.tree_util.tree_map_with_path(array, dict(values))


def check_placement(model: Trainable, params: Any) -> None:
    """Reject a model with blocks placed on several devices, because a training step is one program."""
    placement: Mapping[str, str] = getattr(model, "placement", {})
    held = {device_name(device) for leaf in jax.tree.leaves(params) for device in leaf.devices()} if placement else ()
    devices = {*placement.values(), *held}
    if len(devices) > 1:
        raise UnknownOptionError(
            "cannot train a model whose blocks were placed on several devices.",
            (
                ("placed", ", ".join(f"{path!r} on {name}" for path, name in placement.items())),
                ("devices", ", ".join(sorted(devices))),
                ("instead", "compile the model before place_model, with its parameters split over the devices"),
            ),
            'ml.compile(model, ml.JaxBackend(device_mesh=(1, 2)), parallelism="model")',
        )


def checked_data(
    data: Any, model: Trainable, loss: Loss, params: Any, batch_size: int, subject: str = "data"
) -> DataSet:
    """Return the data set, checked against the model and the loss. Batches of an iterable are read into memory."""
    if is_stream(data):
        data = Stream(data, model.input_names, batch_size, subject).everything()
    return checker(model, loss, params, subject, batch_size)(read_data(data, model.input_names, subject))


def checker(
    model: Trainable, loss: Loss, params: Any, subject: str = "data", batch_size: int | None = None
) -> Callable[..., DataSet]:
    """Return a function that checks samples against the model and the loss, and returns them with their dtypes.

    Without a batch size, the samples are one batch. The function also takes another `subject`.
    """
    outputs: dict[Any, Mapping[str, jax.ShapeDtypeStruct]] = {}
    ranges = getattr(model, "input_ranges", {})
    params = specs_of(params)

    def checked(data: DataSet, subject: str = subject) -> DataSet:
        data = check_inputs(data, model.input_specs, subject, ranges)
        count = batch_size or len(data)
        arrays = (*data.inputs.values(), *([] if data.weights is None else [data.weights]))
        shapes = count, data.weights is None, *(array.shape[1:] for array in arrays)
        is_new = shapes not in outputs  # the model is traced once for each shape
        if is_new:
            outputs[shapes] = output_specs(model, params, data, count)
        data = check_targets(data, loss, outputs[shapes], subject)
        if is_new and data.weights is not None:
            targets, weights = (
                jax.tree.map(lambda array: jax.ShapeDtypeStruct((count, *array.shape[1:]), array.dtype), tree)
                for tree in (data.targets, data.weights)
            )
            for part in loss.parts or (loss,):
                prediction, goals = part.prediction(outputs[shapes]), part.goals(targets) if loss.parts else targets
                values = jax.eval_shape(partial(loss_value, part), prediction, goals, params, weights)
                _check_weights(weights, part, values, subject)
        return data

    return checked


def _check_weights(weights: jax.ShapeDtypeStruct, loss: Loss, values: jax.ShapeDtypeStruct, subject: str) -> None:
    if "weights" in loss.extras:
        if not values.shape:
            return
        raise DataError(
            f"loss {loss.name!r} takes weights and returns several values, which would be weighted twice.",
            (("values", f"{values.shape}"), ("needed", "one number; or a value for each sample, without weights")),
            "loss=lambda prediction, targets: abs(prediction - targets)  # is averaged by the weights",
        )
    if weights.shape != values.shape[: len(weights.shape)]:
        raise DataError(
            f"{subject}: the weights do not fit the values of loss {loss.name!r}.",
            (
                ("weights", f"{weights.shape}"),
                ("values", f"{values.shape}" if values.shape else "one number, which no weight can change"),
            ),
            "loss=lambda prediction, targets: abs(prediction - targets)  # a value for each sample, or takes weights",
        )


def check_last_batch(
    model: Trainable, params: Any, data: DataSet, batch_size: int, tail: Tail, subject: str = "data"
) -> None:
    """Raise if `tail` is `"short"` and the model rejects a last batch that is not full."""
    size = len(data) % batch_size
    if tail != "short" or not size:
        return
    try:
        output_specs(model, params, data, size)
    except ShapeError as error:
        raise DataError(
            f"{subject} ends in a batch of {size} samples, which the model does not accept.",
            (
                ("samples", f"{len(data)}, in batches of {batch_size}"),
                ("because", error.diagnostics[0].summary),
            ),
            f"x, y = x[:{len(data) - size}], y[:{len(data) - size}]  # full batches only",
        ) from error


def output_specs(model: Trainable, params: Any, data: DataSet, batch_size: int) -> Mapping[str, jax.ShapeDtypeStruct]:
    """Return shape and dtype of each output, by name, for a batch of the data. The model is only traced."""
    inputs = {
        name: jax.ShapeDtypeStruct((batch_size, *array.shape[1:]), array.dtype) for name, array in data.inputs.items()
    }
    key = key_spec() if model.needs_key else None
    state = specs_of(initial_state(model))
    run = runner(model, bool(state))
    # As in a step: without `training`, Dropout needs no key.
    outputs, _ = jax.eval_shape(
        lambda p, i, s, k: run(p, i, s, key=k, training=True), specs_of(params), inputs, state, key
    )
    # JAX sorts the keys of dicts. Restore the model's own order.
    return {name: outputs[name] for name in (*model.output_names, *outputs) if name in outputs}


def spread(plan: TrainingPlan, state: State) -> None:
    """Put the arrays of a new run on the devices of all processes. With one process, do nothing."""
    me = distributed()
    if me.count == 1:
        return
    if isinstance(plan.data, Stream):
        raise DataError(
            f"an iterable of batches trains in one process, but {me.count} processes are running.", (), "(x, y)"
        )
    devices = len(me.mesh.devices)
    if plan.batch_size % devices:
        good = plan.batch_size - plan.batch_size % devices or devices
        raise DataError(
            "batch_size is not divisible by the number of devices.",
            (("batch_size", str(plan.batch_size)), ("devices", f"{devices} in total, in {me.count} processes")),
            f"batch_size={good}",
        )
    arrays = (state.params, state.opt_state)
    _check_agreement(
        {
            "samples": len(plan.data),
            "data": plan.data.fingerprint,
            "batch_size": plan.batch_size,
            "epochs": state.epochs,
            "seed": plan.seed,
            "step": state.step,
            "params": fingerprint(arrays),
        }
    )
    state.params, state.opt_state = me.replicate(arrays)


def _check_agreement(numbers: Mapping[str, int]) -> None:
    # Send text, because JAX cuts 64-bit integers to 32 bits if x64 is disabled.
    mine = np.frombuffer(b"".join(f"{value:024d}".encode() for value in numbers.values()), np.uint8)
    table = np.asarray(multihost_utils.process_allgather(mine)).reshape(-1, len(numbers), 24)
    rows = [[int(bytes(cell)) for cell in row] for row in table]
    differs = [index for index in range(len(numbers)) if len({row[index] for row in rows}) > 1]
    if differs:
        names = list(numbers)
        raise DataError(
            "the processes have different data or options.",
            tuple((names[index], ", ".join(str(row[index]) for row in rows)) for index in differs),
            "ml.fit(model, data)  # with the same data in all processes: ml.fit selects the rows of each process",
        )


def check_targets(
    data: DataSet, loss: Loss, outputs: Mapping[str, jax.ShapeDtypeStruct], subject: str = "data"
) -> DataSet:
    """Return the data with targets cast to the dtype that the loss expects. A loss of the user gets them unchanged."""
    problems = Problems()
    if loss.parts:
        goals: dict[str, Any] = {}
        for part in loss.parts:
            name, targets = str(part.output), data.targets
            if isinstance(targets, dict) and name not in targets:
                facts = (("targets", ", ".join(map(repr, targets))),)
                raise DataError(f"{subject} has no targets for output {name!r}.", facts, "(x, {output: array, ...})")
            own = targets[name] if isinstance(targets, dict) else targets
            goals[name] = check_targets(DataSet(data.inputs, own), part, outputs, subject).targets
        return replace(data, targets=goals)
    if loss.targets == "any":
        return data
    is_array = hasattr(loss.prediction(outputs), "shape")  # a module may return a tree
    if isinstance(data.targets, dict) or loss.needs_output(outputs) or not is_array:
        targets = data.targets
        is_dict = isinstance(targets, dict)
        given = ", ".join(map(repr, targets)) if is_dict else f"{targets.shape} {targets.dtype}"
        problems.add(
            f"loss {loss.name!r} takes one output and one array of targets.",
            (("outputs", ", ".join(map(repr, outputs))), ("targets", given)),
            "loss=lambda outputs, targets: ((outputs[name] - targets[name]) ** 2).mean()  # your loss",
        )
        problems.raise_if_any()
    name, output = loss.output or next(iter(outputs)), loss.prediction(outputs)
    check = {"labels": _labels, "binary": _binary, "like the output": _like_output}[loss.targets]
    targets = check(np.asarray(data.targets), name, output, loss, subject, problems)
    problems.raise_if_any()
    return replace(data, targets=targets)


def _class_advice(targets: np.ndarray, width: int) -> str:
    count = len(np.unique(targets))
    if targets.min() >= 0 and count > width:
        return f"Linear({int(targets.max()) + 1})  # as the last block: an output for each class"
    then = f"; then use Linear({count}) as the last block" if count > width else ""
    return f"y = np.unique(y, return_inverse=True)[1]  # numbers the classes from 0{then}"


def _labels(targets: np.ndarray, name: str, output: Any, loss: Loss, subject: str, problems: Problems) -> np.ndarray:
    # Without these checks, nothing fails: optax 0.2.8 returns NaN for a label above the range, and counts a negative
    # label from the end.
    width = output.shape[-1] if output.shape else 1
    facts = [("targets", f"{targets.shape} {targets.dtype}"), ("output", f"{name!r} {output.shape} {output.dtype}")]
    are_numbers = width == 1 and targets.dtype.kind == "f"
    if (
        not are_numbers
        and targets.ndim == len(output.shape)
        and targets.shape[-1] == width
        and targets.shape[1:] == output.shape[1:]
    ):
        problems.add(
            f"{subject}: the targets look one-hot; loss {loss.name!r} expects class labels.",
            facts,
            'y = y.argmax(axis=-1)  # or loss="binary_cross_entropy"',
        )
    elif not are_numbers and targets.shape[1:] != output.shape[1:-1]:
        needed = ("samples", *output.shape[1:-1])
        is_same_size = np.prod(targets.shape[1:]) == np.prod(needed[1:])
        problems.add(
            f"{subject}: the shape of the labels does not match the output.",
            [*facts, ("needed", f"labels of shape {needed}")],
            f"y = y.reshape({', '.join(map(str, ('len(y)', *needed[1:])))})" if is_same_size else "",
        )
    elif targets.dtype.kind not in "iu":  # after the checks of shapes, because one-hot targets are often floats
        problems.add(
            f"{subject}: the labels are not integers; loss {loss.name!r} expects class labels.",
            [*facts, ("first", repr(targets.flat[0].item()))],
            'loss="mean_squared_error"  # for numbers'
            if are_numbers
            else 'y = y.astype("int32")  # for classes; loss="mean_squared_error" for numbers',
        )
    elif targets.min() < 0 or targets.max() >= width:
        bad = (targets < 0) | (targets >= width)
        problems.add(
            f"{subject}: labels are out of range for an output of width {width}.",
            [
                ("labels", f"from {targets.min()} to {targets.max()}"),
                ("needed", f"from 0 to {width - 1}"),
                ("first", f"{first_of(bad, targets)}, {int(bad.sum())} in all"),
            ],
            _class_advice(targets, width),
        )
    else:
        return targets.astype(np.int32)
    return targets


def _binary(targets: np.ndarray, name: str, output: Any, loss: Loss, subject: str, problems: Problems) -> np.ndarray:
    targets = _like_output(targets, name, output, loss, subject, problems)
    if not problems.diagnostics and (targets.min() < 0 or targets.max() > 1):
        problems.add(
            f"{subject}: the targets are not between 0 and 1; loss {loss.name!r} expects probabilities.",
            [("targets", f"from {targets.min():g} to {targets.max():g}")],
            'y = (y > 0).astype("float32")  # or loss="cross_entropy" for more than two classes',
        )
    return targets


def _like_output(
    targets: np.ndarray, name: str, output: Any, loss: Loss, subject: str, problems: Problems
) -> np.ndarray:
    # Accept targets (batch,) for an output (batch, 1): the loss reshapes the output, so nothing broadcasts.
    if targets.shape[1:] not in (output.shape[1:], output.shape[1:-1] if output.shape[-1:] == (1,) else None):
        problems.add(
            f"{subject}: the targets and the output differ in shape; loss {loss.name!r} compares them elementwise.",
            [("targets", f"{targets.shape} {targets.dtype}"), ("output", f"{name!r} {output.shape} {output.dtype}")],
            f"y = y.reshape({', '.join(map(str, ('len(y)', *output.shape[1:])))})"
            if np.prod(targets.shape[1:]) == np.prod(output.shape[1:])
            else 'loss="cross_entropy"  # for class labels'
            if targets.dtype.kind in "iu" and targets.shape[1:] == output.shape[1:-1]
            else f"Linear({targets.shape[-1] if targets.ndim > 1 else 1})  # as the last block: one output per target",
        )
    # NumPy has no bfloat16: pass float32, and the loss casts.
    return targets.astype("float32" if output.dtype.name == "bfloat16" else output.dtype, copy=False)
