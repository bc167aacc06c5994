"""`fit`: from a model and data to a run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from mithril_nb.backends.backend import check_count, check_seed, check_switch
from mithril_nb.errors import DataError, UnknownOptionError, refuse_unknown, short_repr
from mithril_nb.models.naming import flat_params
from mithril_nb.train.checkpoints.saver import Resume, prepare
from mithril_nb.train.data import Tail, read_data
from mithril_nb.train.library_models import LibraryModel, library_model
from mithril_nb.train.losses import Loss, loss_value, resolve_loss, with_accuracy
from mithril_nb.train.metrics import Patience, checked_metric, is_lower_better, resolve_metrics
from mithril_nb.train.optimizers import accumulating, averaging, resolve_optimizer
from mithril_nb.train.prepare import (
    check_last_batch,
    check_placement,
    checked_arrays,
    checked_data,
    checker,
    output_specs,
    spread,
)
from mithril_nb.train.processes import distributed
from mithril_nb.train.run.events import History
from mithril_nb.train.run.handle import Run
from mithril_nb.train.run.state import State
from mithril_nb.train.runtime import runtime_of
from mithril_nb.train.step import first_opt_state
from mithril_nb.train.store.following import entered, follow, upcoming
from mithril_nb.train.store.sinks import checked_sinks
from mithril_nb.train.store.stored import FITTED
from mithril_nb.train.stream import Stream, is_stream
from mithril_nb.train.trainable import as_trainable, frozen_names, initial_state, names_of_inputs
from mithril_nb.train.training_plan import CompileKey, TrainingPlan, compiled_programs

_OF_OTHER_LIBRARIES = {
    "max_steps": "steps=1000",
}


def fit(
    model: Any,
    data: Any,
    *more: Any,
    loss: str | Loss | Callable[[Any, Any], Any] = "cross_entropy",
    output: str | None = None,
    optimizer: Any = "adam",
    learning_rate: float | Callable[[Any], Any] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = 32,
    validation: Any = None,
    params: Any = None,
    seed: int = 0,
    metrics: Any = None,
    validate_every: int | None = None,
    stop: Callable[[History], Any] | None = None,
    keep_best: str | tuple[str, str] | None = None,
    ema: float | None = None,
    accumulate: int | None = None,
    norms: int | None = None,
    shuffle: bool = True,
    backend: Any = None,
    checkpoint: Any = None,
    resume: Resume = False,
    track: str | None = None,
    sinks: Any = (),
    model_state: Any = None,
    **unknown: Any,
) -> Run:
    """Prepare a training run. Iterate over the run, or `start()` it in a thread and `wait()`.

    All checks of the data happen here, before the first step.

    Args:
        model: A `PhysicalModel`, a `Model` (which is compiled first), or any `Trainable`. Also a module of Flax nnx,
            linen or Equinox, a transformed function of Haiku, or a function of (params, x); `run.module` then returns
            the trained module. A module of Equinox is called for each sample. A module trains in its training mode: the
            argument `training`, `train` or `deterministic` of its call, or the mode of nnx. Random numbers come from
            `seed`, those of nnx from the module's own rngs.
        data: `(x, y)`: the samples, as an array or as a dict of arrays by input name, and the targets; or `(x, y,
            weights)`, with a weight for each sample or for each token of it. Arrays are those of NumPy, JAX, pandas and
            PyTorch. A dict, a DataFrame or a Hugging Face dataset has the targets in a column `"targets"`, `"labels"`,
            `"label"` or `"y"`, and the weights in `"weights"`. Or batches of one of these forms: a
            `DataLoader`, a data set of grain, a list, a generator. Batches are checked when they are taken; an iterable
            is iterated again at its end. A run resumes exactly if the iterable or its iterator has `get_state` and
            `set_state`, or `state_dict` and `load_state_dict`.
        *more: Rejected: targets that are not in a pair with the inputs.
        loss: `"cross_entropy"` (integer labels), `"mean_squared_error"`, `"binary_cross_entropy"` (logits, and targets
            from 0 to 1), or a function of (prediction, targets) that returns a scalar or one value per sample. A dict
            of losses by output is their sum; the targets are then one array for all, or a dict by output. A function
            may also take `params` and `weights` by these names; with `weights`, it returns a scalar. Values are
            averaged by the weights of the data.
        output: Name of the output that the loss takes, for a model with several outputs. Without a name, the loss must
            be a function that takes a dict of all outputs.
        optimizer: A name such as `"adam"`, which computes in float32 for params of 16 bits; an optax factory
            (`optax.adamw`), or an optax transformation (`optax.adam(1e-3)`), used unchanged.
        learning_rate: Initial learning rate, or a schedule (a function of the step count). The default depends on the
            optimizer. An optax transformation has its own rate, so it takes none here. You can set
            `run.learning_rate` while the run trains.
        epochs: Passes over the data; default: 10, unless `steps` is passed. An iterable needs `epochs` or `steps`.
        steps: Total steps, instead of `epochs`.
        batch_size: Samples in a step; an iterable has its own. A last batch that is not full is padded with rows of
            weight 0. It stays short if the loss returns only a scalar, or if the model has a state, because padding
            would change BatchNorm's means. With several processes, a model with a state receives the padded batch, and
            a scalar loss drops the samples with a warning.
        validation: Data to evaluate on at the end of each epoch, whose batches are read into memory; or the fraction of
            `data` to hold out for it, chosen by `seed`.
        params: Initial params; default: `model.randomize_params(seed)`. They are copied, never overwritten. For linen
            and Haiku, the result of `init`; default: initialized by `seed`, for the shape of the first sample. For a
            function, any tree of arrays.
        seed: Seed of the params, the sample order and Dropout. The same seed gives the same run.
        metrics: Names, functions of (prediction, targets), or both in a dict by name; default: accuracy if the loss
            defines it, or if the loss is a function and the targets are class labels. Names are `"accuracy"`,
            `"top_3"`, `"f1"`, `"auc"`, `"r2"`, `"perplexity"` and `"confusion"` (in `run.validation` alone). All but
            `"r2"` need class labels. A function returns a number, or one for each sample; with `weights` as a
            parameter, it takes those of the data and returns a number. A step has the metrics of its batch, unless JAX
            cannot trace the function, and a validation those of its whole set.
        validate_every: Steps between two validations; default: at the end of each epoch. The last step has one, too.
        stop: `ml.patience("validation_loss", 3)`, or another function of the history that returns whether the run
            ends, called at the end of each epoch and after each validation.
        keep_best: Column of the history, such as `"validation_loss"`; `run.best_params` are the params with its best
            value, of a validation or of a complete epoch. `("error", "min")` for an own metric.
        ema: Share of the moving average of the params that stays in each update, such as 0.999. `run.ema_params` is the
            average, which also is validated and evaluated.
        accumulate: Number of steps whose mean gradient is one update. A rest at the end updates nothing.
        norms: Number of updates from one computation of `run.norms` to the next: the norms of gradients, parameters and
            updates, and of a `Model` the mean, standard deviation and share of zeros of the output of each block. The
            steps that compute them are another compiled program. With `accumulate`, the gradient is that of the last
            step of an update.
        shuffle: True to shuffle the samples in each epoch.
        backend: Backend to compile a `Model` for; a `PhysicalModel` has its own.
        checkpoint: Folder for the run's checkpoints, or a `Checkpoints`, which also sets how often to take one.
        resume: True to resume from the latest checkpoint in the folder, or start from scratch if the folder has none.
            The model, the training data, `loss`, `optimizer`, `batch_size`, `seed` and `shuffle` must be the same as
            before, and so must `params` and `model_state` if passed. All samples, and all equations of the loss and
            the optimizer with their constants, are compared. `"anyway"` to resume even if they differ.
        track: `"FOLDER/NAME"` to store the run for `ml.runs`: metrics, settings, code, and checkpoints unless
            `checkpoint` has another folder. A stored run that has not ended continues; else a new one starts.
        sinks: Where else the numbers of a run with `track` go, as in `ml.track`.
        model_state: Initial state of a model that has one, such as `run.model_state` of an earlier run; default:
            `model.initial_state()`. For a module of Equinox, its `eqx.nn.State`.
        **unknown: Rejected, with a list of the valid options.

    Raises:
        CheckpointError: Another run is using the folder, or it cannot be created; its checkpoints are broken or belong
            to another run; or it has checkpoints and `resume` is not `True`.
        DataError: The data is empty, holds NaN, has fewer samples than a batch, or does not match the model or the
            loss; or the model rejects the size of the last batch.
        UnknownOptionError: An option does not exist or has an invalid value; or `ml.JaxBackend.place_model`
            placed blocks of the model on several devices.

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
    if more:  # as in Keras and scikit-learn, whose second argument is the targets
        raise DataError("the inputs and the targets must be one pair.", (), "ml.fit(model, (x, y))  # options by name")
    for name, advice in _OF_OTHER_LIBRARIES.items():
        if name in unknown:
            raise UnknownOptionError(f"fit takes no argument {name!r}.", (), advice)
    refuse_unknown("fit", unknown, fit)
    seed = check_seed(seed) % 2**63  # NumPy rejects negative seeds, JAX rejects longer ones
    batch_size = check_count("batch_size", batch_size)
    if epochs is not None and steps is not None:
        raise UnknownOptionError("epochs= and steps= exclude each other.", (), f"steps={short_repr(steps)}")
    epochs = None if epochs is None else check_count("epochs", epochs)
    steps = None if steps is None else check_count("steps", steps)
    check_switch("shuffle", shuffle)
    if resume != "anyway":
        check_switch("resume", resume)
    chosen_loss, chosen_optimizer = resolve_loss(loss, output), resolve_optimizer(optimizer, learning_rate)
    validate_every = None if validate_every is None else check_count("validate_every", validate_every)
    norms = None if norms is None else check_count("norms", norms)
    receivers = checked_sinks(sinks)
    if receivers and track is None:
        raise UnknownOptionError("sinks= needs track=.", (), 'track="runs/digits"')
    if ema is not None and not (isinstance(ema, float) and 0 < ema < 1):
        raise UnknownOptionError("ema must be between 0 and 1.", (("got", short_repr(ema)),), "ema=0.999")
    if ema is not None:
        chosen_optimizer = averaging(chosen_optimizer, ema)
    if accumulate is not None:
        chosen_optimizer = accumulating(chosen_optimizer, check_count("accumulate", accumulate))
    if validation is None and validate_every is not None:
        raise UnknownOptionError("validate_every= needs validation=.", (), "validation=0.2")
    names = names_of_inputs(model)
    stream = Stream(data, names, batch_size) if is_stream(data) else None
    raw = read_data(data, names) if stream is None else stream.first
    if stream is not None:
        batch_size = len(raw)
        if (epochs is None or stream.length is None) and steps is None:
            raise DataError(
                f"{type(data).__name__} yields batches without an end that is known: the length of the run is missing.",
                (("length", "unknown" if stream.length is None else f"{stream.length} batches"),),
                "steps=1000" if stream.length is None else "epochs=10  # or steps=1000",
            )
    shapes = {name: (batch_size, *array.shape[1:]) for name, array in raw.inputs.items()}
    is_start_given = params is not None or model_state is not None
    found = library_model(model, raw.inputs, params, model_state, seed)
    if isinstance(found, LibraryModel):
        params = model_state = None
    runtime = runtime_of(as_trainable(found, shapes=shapes, backend=backend))
    trainable = runtime.model
    # All that traces is inside: emitted backends in float64 need JAX's x64 mode, which is off elsewhere.
    with runtime.precision():
        start = trainable.randomize_params(seed) if params is None else runtime.host(params)
        start = start if isinstance(found, LibraryModel) else checked_arrays("params", start)
        first_state = initial_state(trainable) if model_state is None else runtime.host(model_state)
        state = checked_arrays("model_state", first_state)
        frozen = frozen_names(trainable)
        if frozen:
            start = flat_params(start)
        check_placement(trainable, start)
        check = checker(trainable, chosen_loss, start, batch_size=None if stream else batch_size)
        train = check(raw)
        held_out = None
        if stream is not None:
            stream.check = check
            if isinstance(validation, float):
                raise UnknownOptionError(
                    "validation= cannot be a fraction of an iterable of batches.", (), "validation=(x_test, y_test)"
                )
        if isinstance(validation, float | np.floating):
            validation = float(validation)
            if not 0 < validation < 1 or not 0 < round(validation * len(train)) < len(train):
                raise UnknownOptionError(
                    "validation must be a fraction that leaves samples for both training and validation.",
                    (("got", repr(validation)), ("samples", str(len(train)))),
                    "validation=0.2  # or validation=(x_test, y_test)",
                )
            train, held_out = train.split(validation, seed)  # by the seed, so that a resumed run holds out the same
        elif validation is not None:
            held_out = checked_data(validation, trainable, chosen_loss, start, batch_size, "validation data")
        if batch_size > len(train):
            raise DataError(
                f"batch_size is larger than the data: {batch_size} > {len(train)} samples.",
                (),
                f"batch_size={len(train)}",
            )
        first = jax.tree.map(lambda array: array[:batch_size], train.targets)
        weights = None if train.weights is None else train.weights[:batch_size]
        outputs = output_specs(trainable, start, train, batch_size)
        prediction = chosen_loss.prediction(outputs)
        if len(outputs) == 1:  # naming the only output must change neither cached programs nor checkpoints
            chosen_loss = replace(chosen_loss, output=None)
        chosen_loss = with_accuracy(chosen_loss, prediction, train.targets)
        accuracy, named = resolve_metrics(metrics, chosen_loss)
        has_validation = held_out is not None
        own_metrics = tuple(
            checked_metric(metric, prediction, first, chosen_loss, has_validation=has_validation) for metric in named
        )
        # Evaluation has no gradient and updates no state, so padding never harms it if the loss is per sample.
        # Only a loss that returns one value per sample can skip the padding rows.
        value = jax.eval_shape(partial(loss_value, chosen_loss), prediction, first, start, weights)
        evaluation_tail: Tail = "pad" if value.shape[:1] == (batch_size,) else "short"
        # A function without weights would count the rows of padding.
        counts_rows = any(
            metric.is_traced and not metric.is_mean and not metric.takes_weights for metric in own_metrics
        )
        tail: Tail = "short" if state or stream or counts_rows else evaluation_tail
        if distributed().count > 1:
            # Processes need equal shares of a batch, so there the padding rows do enter BatchNorm's means.
            tail = "pad" if evaluation_tail == "pad" and not counts_rows else "drop"
            if tail == "drop" and len(train) % batch_size:
                warnings.warn(
                    f"each epoch drops {len(train) % batch_size} of {len(train)} samples: the last batch is not full, "
                    f"and {'a metric' if evaluation_tail == 'pad' else 'the loss'} returns only a scalar.",
                    RuntimeWarning,
                    stacklevel=2,
                )
        check_last_batch(trainable, start, train, batch_size, tail)
        if held_out is not None:
            check_last_batch(trainable, start, held_out, batch_size, evaluation_tail, "validation data")
        # Creates the jitted functions; they compile in the first step, so that `fit` returns at once.
        key = CompileKey(runtime, chosen_loss, chosen_optimizer, accuracy, bool(state), own_metrics)
        step, evaluate = compiled_programs(key)
        plan = TrainingPlan(
            trainable,
            chosen_loss,
            chosen_optimizer,
            step,
            evaluate,
            stream or train,
            held_out,
            batch_size,
            tail,
            evaluation_tail,
            seed,
            shuffle is not False,
            runtime,
            runtime.arrays(jax.random.key(seed)) if trainable.needs_key else None,
            steps,
            own_metrics,
            validate_every,
            stop,
        )
        if norms is not None:
            plan = replace(plan, norms=(norms * (accumulate or 1), compiled_programs(replace(key, norms=True))[0]))
        if keep_best is not None:
            name, mode = (keep_best, None) if isinstance(keep_best, str) else keep_best
            plan = replace(plan, keep_best=(name, is_lower_better(name, mode)))
        for name in (*(plan.keep_best or ())[:1], *([stop.name] if isinstance(stop, Patience) else [])):
            History(plan.columns).rows(0, (name,))  # raises the error of an unknown column
            if (name.startswith("validation_") and not has_validation) or (name.endswith("accuracy") and not accuracy):
                raise UnknownOptionError(
                    f"the run computes no {name!r}, so that nothing can be compared.",
                    (("loss", chosen_loss.name), ("validation", "given" if has_validation else "missing")),
                    'stop=ml.patience("loss", 3), keep_best="loss"',
                )
        epochs = -(-steps // plan.steps_per_epoch) if steps else epochs or 10
        if accumulate is not None:
            _check_accumulation(accumulate, steps or epochs * plan.steps_per_epoch)
        held = first_opt_state(chosen_optimizer, start, frozen, state)
        start, held = runtime.arrays((start, held))
        run = Run(plan, State(start, held, runtime, epochs, chosen_optimizer.learning_rate, stream=stream, limit=steps))
        continues = False
        if track is not None and checkpoint is None:
            folder, continues = upcoming(track)
            checkpoint, resume = folder / FITTED, resume or continues
        prepare(checkpoint, resume, plan, run._state, run.history, is_start_given=is_start_given)
        if track is not None:
            config = {"model": type(model).__name__, "loss": plan.loss.name, "optimizer": plan.optimizer.name}
            config |= {"learning_rate": run.learning_rate, "epochs": epochs, "batch_size": batch_size, "seed": seed}
            config |= {"samples": len(train), "steps": run.steps}
            follow(run, entered(track, sys._getframe(1), config, continues=continues or run.step > 0), sinks=receivers)
        spread(plan, run._state)
        return run


def _check_accumulation(count: int, steps: int) -> None:
    if count > steps:
        raise UnknownOptionError(
            f"accumulate={count} is more than the {steps} steps of the run, which would update nothing.",
            (),
            f"accumulate={steps}  # or more epochs",
        )
    if rest := steps % count:
        warnings.warn(
            f"the last {rest} of {steps} steps update nothing: accumulate={count} steps are one update.",
            RuntimeWarning,
            stacklevel=3,
        )
