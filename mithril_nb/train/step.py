"""The programs of training as pure functions: the loss, its gradient, and one whole step.

`fit` runs the step; the workbench shows all three as stages. The name scopes `role:loss` and `role:update` mark the
equations of the loss and of the optimizer, so that costs can be attributed to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mithril_nb.backends.jax.kernels.registry import usual_promotion
from mithril_nb.errors import ShapeError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.train.losses import Loss, loss_value, mean_over_batch, resolve_loss
from mithril_nb.train.metrics import PREDICTION, Metric
from mithril_nb.train.norms import norms_in_step
from mithril_nb.train.optimizers import Optimizer, resolve_optimizer
from mithril_nb.train.trainable import Trainable, frozen_names, initial_state, runner

NORMS = "norms"
"""Key of the norms in the metrics of a step; no metric has this name."""
ACTIVATIONS = "<activations>"
"""Key of the statistics of blocks in the outputs of a model and in the metrics; no output or metric has this name."""

Batch = Mapping[str, Any]
"""`{"inputs": {name: array}, "targets": array}`, and `"weights"` of weighted samples or of a padded batch."""


class OptimizerAndModelState(NamedTuple):
    """Optimizer state and model state, for a model with a state. A step takes and returns this pair as `opt_state`.

    Attributes:
        opt_state: The optimizer's state.
        model_state: The model's state by name (`"batch_norm_0.running_mean"`).
    """

    opt_state: Any
    model_state: dict[str, Any]


def loss_function(
    forward: Callable[..., Any],
    loss: str | Loss | Callable[..., Any] = "cross_entropy",
    *,
    accuracy: bool = False,
    has_state: bool = False,
    metrics: tuple[Metric, ...] = (),
) -> Callable[..., Any]:
    """Return the function of (params, batch) that training minimizes.

    A batch is a dict: `"inputs"` by name, `"targets"`, and optionally `"weights"`, one for each sample.

    Args:
        forward: The model: takes params and a dict of inputs, `key=` and `training=`; returns a dict of outputs.
        loss: A name, or a function of (prediction, targets). The prediction is the output array of a model with one
            output, otherwise the dict of its outputs.
        accuracy: True to add the fraction of correct predictions to the metrics, if the loss defines it.
        has_state: True if the model has a state. `forward` then takes it as its third argument, and returns outputs
            and the next state. The returned function takes `state=`, and returns `(metrics, state)` instead of the
            metrics.
        metrics: Further metrics. Those which are means over samples are added to the metrics as means; for the others,
            the prediction is, as `PREDICTION`.

    Returns:
        A function `(params, batch, key=None, training=True) -> (loss, metrics)` for
        `jax.value_and_grad(..., has_aux=True)`. The metrics are a dict with `"loss"`, and `"accuracy"` if requested.

    Examples:
        >>> import jax.numpy as jnp
        >>> double = lambda params, inputs, key=None, training=False: {"output": params["weight"] * inputs["input"]}
        >>> batch = {"inputs": {"input": jnp.ones(4)}, "targets": jnp.zeros(4)}
        >>> value, metrics = loss_function(double, "mean_squared_error")({"weight": jnp.float32(2.0)}, batch)
        >>> float(value)
        4.0
    """
    chosen = resolve_loss(loss)

    def measured(params: Any, outputs: Any, batch: Batch) -> tuple[Any, dict[str, Any]]:
        with jax.named_scope("role:loss"):
            prediction = chosen.prediction(outputs)
            targets, weights = batch["targets"], batch.get("weights")
            value = mean_over_batch(loss_value(chosen, prediction, targets, params, weights), weights)
            scores: dict[str, Any] = {"loss": value}
            if accuracy and chosen.is_correct is not None:
                right = chosen.is_correct(prediction, targets).astype(value.dtype)
                scores["accuracy"] = mean_over_batch(right, weights)
            for metric in metrics:
                if metric.is_mean and metric.is_traced:
                    values = metric.function(prediction, targets)
                    scores[metric.name] = mean_over_batch(values.astype(value.dtype), weights)
                else:
                    scores[PREDICTION] = prediction
        return value, scores

    def compute(params: Any, batch: Batch, key: Any = None, training: bool = True, state: Any = None) -> Any:
        states = (state,) if has_state else ()
        result = forward(params, batch["inputs"], *states, key=key, training=training)
        outputs, after = result if has_state else (result, None)
        statistics = {ACTIVATIONS: outputs.pop(ACTIVATIONS)} if ACTIVATIONS in outputs else {}
        value, scores = measured(params, outputs, batch)
        scores |= statistics
        return value, (scores, after) if has_state else scores

    return compute


def train_step(
    forward: Callable[..., Any],
    loss: str | Loss | Callable[..., Any] = "cross_entropy",
    optimizer: Any = "adam",
    *,
    accuracy: bool = False,
    has_state: bool = False,
    frozen: frozenset[str] = frozenset(),
    metrics: tuple[Metric, ...] = (),
    norms: bool = False,
) -> Callable[..., Any]:
    """Return one step of training as a pure function, ready for `jax.jit(..., donate_argnums=(0, 1))`.

    Args:
        forward: The model, as in `loss_function`.
        loss: The loss, as in `loss_function`.
        optimizer: A name, an optax factory, or an optax transformation; see `resolve_optimizer`.
        accuracy: True to add the accuracy on the batch to the metrics.
        has_state: True if the model has a state, as in `loss_function`. `opt_state` is then an
            `OptimizerAndModelState`.
        frozen: Names of parameters that do not change. The optimizer never receives them.
        metrics: Further metrics, as in `loss_function`.
        norms: True to add the norms of gradients, parameters and updates to the metrics, as `NORMS`.

    Returns:
        A function `(params, opt_state, learning_rate, batch, key=None) -> (params, opt_state, metrics)`. The learning
        rate is an argument, so it can change between steps. For an optax transformation, it is a factor on the
        updates, which the transformation has already scaled by its own rate.

    Examples:
        >>> import jax.numpy as jnp
        >>> double = lambda params, inputs, key=None, training=False: {"output": params["weight"] * inputs["input"]}
        >>> step = jax.jit(train_step(double, "mean_squared_error", "sgd"))
        >>> batch = {"inputs": {"input": jnp.ones(4)}, "targets": jnp.zeros(4)}
        >>> params = {"weight": jnp.float32(2.0)}
        >>> params, opt_state, metrics = step(params, optax.sgd(0.25).init(params), 0.25, batch)
        >>> float(params["weight"]), float(metrics["loss"])
        (1.0, 4.0)
    """
    compute = loss_function(forward, loss, accuracy=accuracy, has_state=has_state, metrics=metrics)
    chosen = resolve_optimizer(optimizer)

    def step(params: Any, opt_state: Any, learning_rate: Any, batch: Batch, key: Any = None) -> tuple[Any, Any, Any]:
        held, carry = opt_state, dict[str, Any]()
        if has_state:
            held, carry["state"] = opt_state
        trained, rest = parted(params, frozen)

        # Line searches call this again with other params, so the batch and the key are those of the step.
        def loss_of(candidate: Any) -> tuple[Any, Any]:
            return compute({**candidate, **rest} if rest else candidate, batch, key, **carry)

        (value, aux), grads = jax.value_and_grad(loss_of, has_aux=True)(trained)
        scores, after = aux if has_state else (aux, {})
        # Adam of optax 0.2.8 raises a float to its int32 step count, which fails if the user has set
        # jax_numpy_dtype_promotion="strict". Line searches such as lbfgs need `value`, `grad` and `value_fn`.
        with jax.named_scope("role:update"):
            updates, held = usual_promotion(chosen.update)(
                grads,
                held,
                trained,
                learning_rate,
                value=value,
                grad=grads,
                value_fn=lambda candidate: loss_of(candidate)[0],
            )
            moved: Any = optax.apply_updates(trained, updates)
        if norms:
            # Without the barrier, XLA would keep the digits that a narrow dtype of the params drops.
            change = jax.tree.map(_difference, jax.lax.optimization_barrier(moved), trained)
            scores[NORMS] = norms_in_step(grads, trained, change)
        return {**moved, **rest} if rest else moved, OptimizerAndModelState(held, after) if has_state else held, scores

    return step


@usual_promotion
def _difference(after: Any, before: Any) -> Any:
    wide = jnp.promote_types(after.dtype, jnp.float32)
    return after.astype(wide) - before.astype(wide)


def parted(params: Any, frozen: frozenset[str]) -> tuple[Any, dict[str, Any]]:
    """Return the trained params and the frozen params."""
    if not frozen:  # then the params may be any tree, such as a nested dict
        return params, {}
    return tuple({name: p for name, p in params.items() if (name in frozen) == stays} for stays in (False, True))  # pyright: ignore


def first_opt_state(optimizer: Optimizer, params: Any, frozen: frozenset[str], state: dict[str, Any]) -> Any:
    """Return the `opt_state` of the first step: an `OptimizerAndModelState` if the model has a state."""
    held = optimizer.init(parted(params, frozen)[0])
    return OptimizerAndModelState(held, state) if state else held


@dataclass(frozen=True)
class Program:
    """One computation of a model, ready to be traced. Creating it runs nothing.

    Attributes:
        name: `"forward"`, `"forward+backward"` or `"train step"`.
        function: A pure function.
        specs: Trees of `jax.ShapeDtypeStruct`, one for each positional argument.
        donated: Positions of the donated arguments.
    """

    name: str
    function: Callable[..., Any]
    specs: tuple[Any, ...]
    donated: tuple[int, ...] = ()


def programs(
    model: Trainable,
    *,
    loss: str | Loss | Callable[..., Any] = "cross_entropy",
    optimizer: Any = "adam",
    batch_size: int = 32,
    params: Any = None,
    targets: Any = None,
) -> dict[str, Program]:
    """Return the programs `"forward"`, `"forward+backward"` and `"train step"` of a model by name.

    Nothing runs, and no array is allocated.

    Args:
        model: The model.
        loss: The loss, as in `fit`.
        optimizer: The optimizer, as in `fit`.
        batch_size: Size of the first axis of inputs whose first axis has a name instead of a size.
        params: The params, or their shapes and dtypes; default: those of `model.randomize_params`.
        targets: Shapes and dtypes of the targets; default: derived from the loss.

    Raises:
        ShapeError: An axis of an input, other than the first, has no size.
    """
    inputs = {name: concrete(name, spec, batch_size) for name, spec in model.input_specs.items()}
    if params is None:
        params = getattr(model, "param_specs", None) or jax.eval_shape(lambda: model.randomize_params(0))
    state, frozen = jax.eval_shape(lambda: initial_state(model)), frozen_names(model)
    run = runner(model, bool(state))
    options = {"loss": loss, "optimizer": optimizer, "targets": targets, "frozen": frozen}
    return programs_of(run, specs_of(params), inputs, state, needs_key=model.needs_key, **options)


def programs_of(
    run: Callable[..., tuple[Any, Any]],
    params: Any,
    inputs: Mapping[str, Any],
    state: Mapping[str, Any],
    *,
    loss: Any,
    optimizer: Any,
    targets: Any = None,
    frozen: frozenset[str] = frozenset(),
    needs_key: bool = False,
) -> dict[str, Program]:
    """Return the programs `"forward"`, `"forward+backward"` and `"train step"` of a pure function by name."""
    chosen, update, has_state = resolve_loss(loss), resolve_optimizer(optimizer), bool(state)
    key = key_spec() if needs_key else None
    outputs = jax.eval_shape(lambda *args: run(*args[:3], key=args[3], training=True)[0], params, inputs, state, key)
    if targets is None:
        labels = {part.output for part in chosen.parts or (chosen,) if part.targets == "labels"}
        expected = {
            name: jax.ShapeDtypeStruct(out.shape[:-1], "int32") if labels & {None, name} else out
            for name, out in outputs.items()
        }
        targets = chosen.prediction(expected)
    else:
        targets = specs_of(targets)
    batch = {"inputs": inputs, "targets": targets}
    opt_specs = jax.eval_shape(lambda params, state: first_opt_state(update, params, frozen, state), params, state)
    # eval_shape keeps a Python number weakly typed: a rate in float32 would promote updates in bfloat16.
    rate = jax.eval_shape(lambda rate: rate, update.learning_rate)
    keys, states = () if key is None else (key,), (state,) if state else ()

    def forward(params: Any, inputs: Any, state: Any = None) -> Any:
        return run(params, inputs, state)[0]

    def stateless(params: Any, inputs: Any, **options: Any) -> Any:
        return run(params, inputs, {}, **options)[0]

    trained = run if has_state else stateless
    compute = loss_function(trained, chosen, has_state=has_state)

    # One function for each signature, because the stages show the names of the parameters.
    def forward_backward(params: Any, batch: Any, key: Any = None) -> Any:
        (value, _), grads = jax.value_and_grad(compute, has_aux=True)(params, batch, key)
        return value, grads

    def forward_backward_with_state(params: Any, batch: Any, state: Any, key: Any = None) -> Any:
        (value, (_, after)), grads = jax.value_and_grad(compute, has_aux=True)(params, batch, key, state=state)
        return value, grads, after

    both = forward_backward_with_state if has_state else forward_backward
    step = train_step(trained, chosen, update, has_state=has_state, frozen=frozen)
    programs = (
        Program("forward", forward, (params, inputs, *states)),
        Program("forward+backward", both, (params, batch, *states, *keys)),
        Program("train step", step, (params, opt_specs, rate, batch, *keys), donated=(0, 1)),
    )
    return {program.name: program for program in programs}


def key_spec() -> jax.ShapeDtypeStruct:
    """Return the spec of a random key. Its dtype depends on `jax_default_prng_impl`, so it is no constant."""
    return jax.eval_shape(lambda: jax.random.key(0))


def specs_of(tree: Any) -> Any:
    """Return the shape and dtype of each array of a tree."""
    return jax.eval_shape(lambda values: values, tree)


def concrete(name: str, spec: TensorSpec, batch_size: int) -> jax.ShapeDtypeStruct:
    """Return shape and dtype of one batch of an input. If the first dim is a name, replace it by the batch size."""
    shape = spec.shape
    if shape and isinstance(shape[0], str):
        shape = (batch_size, *shape[1:])
    if any(isinstance(dim, str) for dim in shape):
        raise ShapeError(
            f"input {name!r} has unknown dims.",
            (("spec", repr(spec)),),
            f"ml.compile(model, shapes={{{name!r}: {[16 if isinstance(dim, str) else dim for dim in shape]}}})"
            "  # with your sizes",
        )
    return jax.ShapeDtypeStruct(shape, spec.dtype)
