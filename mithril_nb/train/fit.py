"""`fit`: from a model and data to a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from mithril_nb.backends.backend import check_seed, check_switch
from mithril_nb.errors import DataError, UnknownOptionError, refuse_unknown, short_repr
from mithril_nb.models.naming import flat_params
from mithril_nb.train.batches import Tail, evaluation_tail
from mithril_nb.train.checkpoints import prepare
from mithril_nb.train.course import Course, Recipe, compiled_programs
from mithril_nb.train.data import read_data
from mithril_nb.train.logical import names_of_inputs
from mithril_nb.train.losses import Loss, is_per_sample, resolve_loss
from mithril_nb.train.optimizers import resolve_optimizer
from mithril_nb.train.prepare import (
    check_count,
    check_last_batch,
    check_placement,
    checked_arrays,
    checked_data,
    output_specs,
)
from mithril_nb.train.processes import distributed, spread
from mithril_nb.train.run import Run
from mithril_nb.train.state import State
from mithril_nb.train.step import first_opt_state
from mithril_nb.train.trainable import as_trainable, frozen_names, initial_state


def fit(
    model: Any,
    data: Any,
    *,
    loss: str | Loss | Callable[[Any, Any], Any] = "cross_entropy",
    output: str | None = None,
    optimizer: Any = "adam",
    learning_rate: float | Callable[[Any], Any] | None = None,
    epochs: int = 10,
    batch_size: int = 32,
    validation: Any = None,
    params: Mapping[str, Any] | None = None,
    seed: int = 0,
    metrics: Sequence[str] | None = None,
    shuffle: bool = True,
    backend: Any = None,
    checkpoint: Any = None,
    resume: bool = False,
    model_state: Mapping[str, Any] | None = None,
    **unknown: Any,
) -> Run:
    """Return a training that is ready to go: iterate over it, or `start()` it in a thread and `wait()`.

    All that can be wrong with the data is found here, before the first step.

    Args:
        model: A `PhysicalModel`, a `Model` (which is compiled first), or anything that is `Trainable`.
        data: `(x, y)`: an array of samples, or a dict of them by input name, and the targets.
        loss: `"cross_entropy"` (integer labels), `"mean_squared_error"`, `"binary_cross_entropy"` (logits, and targets
            of 0 and 1), or a function of (prediction, targets) that gives a scalar, or one value per sample.
        output: Name of the output that the loss takes, of a model with several. Without it only a function can be the
            loss: it takes a dict of all outputs.
        optimizer: `"adam"` and its like, which compute in float32 for params of 16 bits; an optax factory
            (`optax.adamw`), or an optax transformation (`optax.adam(1e-3)`), which do what optax does.
        learning_rate: Where the rate starts; default per optimizer. It can be changed while the run trains.
        epochs: How often each sample is seen.
        batch_size: Samples in a step. A last batch that is not full is filled up with rows that do not count; with a
            loss that gives only a scalar it is left out (which samples, differs from epoch to epoch). A model with a
            state gets it as it is: rows that do not count would be part of BatchNorm's means.
        validation: Data to check on at each epoch's end; or a fraction of `data` that is held out for it, drawn by
            seed.
        params: Where to start; default: `model.randomize_params(seed)`. They are copied, never overwritten.
        seed: Decides params, order of samples and Dropout: the same seed gives the same run.
        metrics: `("accuracy",)` or `()`; default: accuracy where the loss has a meaning for it.
        shuffle: Whether each epoch sees the samples in an order of its own.
        backend: What to compile a `Model` for; a `PhysicalModel` has its own.
        checkpoint: Folder in which the run keeps checkpoints, or a `Checkpoints`, which says how often too.
        resume: Whether to go on from the latest checkpoint of that folder, exactly where it was; from the beginning if
            there is none. Data and options, and `params` if they are given, must be those that the run began with.
        model_state: Where the state of a model that has one starts, as `run.model_state` of a run before; default:
            `model.initial_state()`.
        **unknown: Refused, with the names of those that there are.

    Raises:
        CheckpointError: Another run is using the folder; its checkpoints are broken or of another run; or it has some
            and `resume` is not `True`.
        DataError: The data is empty, holds NaN, or does not fit the model or the loss; or it ends in a batch that the
            model does not take.
        UnknownOptionError: An option that does not exist, or one with a value that it cannot have; or a model whose
            parts were placed on several devices.

    Examples:
        >>> import numpy as np
        >>> from mithril_nb.graph.spec import TensorSpec
        >>> class Line:
        ...     input_names, output_names, needs_key = ("input",), ("output",), False
        ...     input_specs = {"input": TensorSpec(("batch", 1))}
        ...     def forward(self, params, inputs, *, key=None, training=False):
        ...         return {"output": inputs["input"] * params["slope"]}
        ...     def randomize_params(self, seed=None):
        ...         return {"slope": np.float32(0.0)}
        >>> x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
        >>> run = fit(Line(), (x, 3 * x), loss="mean_squared_error", optimizer="sgd", learning_rate=0.3, epochs=20)
        >>> run.wait()
        Run(done, step 40 of 40, 20 epochs)
        >>> round(float(run.params["slope"]), 2)
        3.0
    """
    refuse_unknown("fit", unknown, fit)
    seed = check_seed(seed) % 2**63  # NumPy takes no negative seeds, JAX none that are longer
    batch_size, epochs = check_count("batch_size", batch_size), check_count("epochs", epochs)
    check_switch("shuffle", shuffle, "shuffle=False")
    check_switch("resume", resume, "resume=True")
    chosen_loss, chosen_optimizer = resolve_loss(loss, output), resolve_optimizer(optimizer, learning_rate)
    raw = read_data(data, names_of_inputs(model))
    shapes = {name: (batch_size, *array.shape[1:]) for name, array in raw.inputs.items()}
    trainable = as_trainable(model, shapes=shapes, backend=backend)
    start = checked_arrays("params", trainable.randomize_params(seed) if params is None else params)
    state = checked_arrays("model_state", initial_state(trainable) if model_state is None else model_state)
    frozen = frozen_names(trainable)
    if frozen:
        start = flat_params(start)
    check_placement(trainable, start)
    train = checked_data(data, trainable, chosen_loss, start, batch_size)
    held_out = None
    if isinstance(validation, float):
        if not 0 < validation < 1 or not 0 < round(validation * len(train)) < len(train):
            raise UnknownOptionError(
                "validation is no fraction that leaves samples on both sides.",
                (("got", repr(validation)), ("samples", str(len(train)))),
                "validation=0.2  # or validation=(x_test, y_test)",
            )
        train, held_out = train.split(validation, seed)
    elif validation is not None:
        held_out = checked_data(validation, trainable, chosen_loss, start, batch_size, "validation data")
    if batch_size > len(train):
        raise DataError(
            f"batch_size is larger than the data: {batch_size} > {len(train)} samples.", (), f"batch_size={len(train)}"
        )
    first = jax.tree.map(lambda array: array[:batch_size], train.targets)
    outputs = output_specs(trainable, start, train, batch_size)
    prediction = chosen_loss.prediction(outputs)
    if len(outputs) == 1:  # to name the only one changes nothing: not the programs, and not the run of a checkpoint
        chosen_loss = replace(chosen_loss, output=None)
    accuracy = wants_accuracy(metrics, chosen_loss)
    tail: Tail = "pad" if is_per_sample(chosen_loss, prediction, first) else "drop"
    # Processes share a batch out evenly: there, the rows that fill it up do count in BatchNorm's means.
    if state and tail == "pad" and distributed().count == 1:
        tail = "short"
    check_last_batch(trainable, start, train, batch_size, tail)
    if held_out is not None:
        check_last_batch(trainable, start, held_out, batch_size, evaluation_tail(tail), "validation data")
    step, evaluate = compiled_programs(Recipe(trainable, chosen_loss, chosen_optimizer, accuracy, bool(state)))
    course = Course(
        trainable,
        chosen_loss,
        chosen_optimizer,
        step,
        evaluate,
        train,
        held_out,
        batch_size,
        tail,
        seed,
        shuffle is not False,
        jax.random.key(seed) if trainable.needs_key else None,
    )
    held = first_opt_state(chosen_optimizer, start, frozen, state)
    run = Run(course, State(start, held, epochs, chosen_optimizer.learning_rate))
    is_start_given = params is not None or model_state is not None
    prepare(checkpoint, resume, course, run._state, run.history, is_start_given=is_start_given)
    spread(course, run._state)
    return run


def wants_accuracy(metrics: Sequence[str] | None, loss: Loss) -> bool:
    """Return whether to count right predictions.

    Raises:
        UnknownOptionError: A metric that is not known, or that means nothing beside the loss.
    """
    if metrics is None:
        return loss.is_correct is not None
    if not isinstance(metrics, Iterable):
        raise UnknownOptionError(
            "metrics are names.",
            (("got", short_repr(metrics)),),
            'metrics=("accuracy",)  # or metrics=() for the loss alone',
        )
    wanted = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    unknown = [name for name in wanted if name != "accuracy"]
    if unknown or (wanted and loss.is_correct is None):
        known = "accuracy" if loss.is_correct is not None else f"none beside loss {loss.name!r}"
        raise UnknownOptionError(
            f"unknown metric {(unknown or wanted)[0]!r}.", (("known", known),), "metrics=()  # the loss alone"
        )
    return bool(wanted)
