"""Checks of what is given to `fit`, against the model and the loss, before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from mithril_nb.errors import UnknownOptionError
from mithril_nb.train.data import DataSet, check_inputs, read_data
from mithril_nb.train.losses import Loss
from mithril_nb.train.step import specs_of
from mithril_nb.train.targets import check_targets
from mithril_nb.train.trainable import Trainable, initial_state, runner


def check_count(name: str, value: Any) -> int:
    """Return a number of epochs or samples.

    Raises:
        UnknownOptionError: It is not a whole number from 1 on.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise UnknownOptionError(f"{name} is not a whole number from 1 on.", (("got", repr(value)),), f"{name}=10")
    return int(value)


def checked_data(data: Any, model: Trainable, loss: Loss, params: Any, batch_size: int, what: str = "data") -> DataSet:
    """Return a data set that fits the model and the loss.

    Raises:
        DataError: It does not; all that is wrong with the inputs, or with the targets, is said at once.
    """
    ranges = getattr(model, "input_ranges", {})
    checked = check_inputs(read_data(data, model.input_names, what), model.input_specs, what, ranges)
    return check_targets(checked, loss, output_specs(model, params, checked, batch_size), what)


def output_specs(model: Trainable, params: Any, data: DataSet, batch_size: int) -> Mapping[str, jax.ShapeDtypeStruct]:
    """Return shape and dtype of the outputs for one batch, found without running the model."""
    inputs = {
        name: jax.ShapeDtypeStruct((batch_size, *array.shape[1:]), array.dtype) for name, array in data.inputs.items()
    }
    key = jax.eval_shape(lambda: jax.random.key(0)) if model.needs_key else None
    state = specs_of(initial_state(model))
    run = runner(model, bool(state))
    found, _ = jax.eval_shape(
        lambda p, i, s, k: run(p, i, s, key=k, training=True), specs_of(params), inputs, state, key
    )
    # JAX sorts the keys of dicts; people know the outputs in the model's own order.
    return {name: found[name] for name in (*model.output_names, *found) if name in found}
