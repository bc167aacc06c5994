"""The programs of training, as plain pure functions: the loss, its gradient, and one whole step.

`fit` runs these; the session shows them as stages. The scopes `role:loss` and `role:update` tell provenance which part
is which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import optax

from mithril_nb.errors import ShapeError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.train.losses import Loss, mean_over_batch, resolve_loss
from mithril_nb.train.optimizers import resolve_optimizer
from mithril_nb.train.trainable import Trainable

Batch = Mapping[str, Any]
"""`{"inputs": {name: array}, "targets": array}`, and `"weights"` of shape (batch,) if not all samples count."""


def loss_function(
    forward: Callable[..., Any], loss: str | Loss | Callable[..., Any] = "cross_entropy", *, accuracy: bool = False
) -> Callable[..., Any]:
    """Return the function of (params, batch) that training makes small.

    Args:
        forward: The model: takes params and a dict of inputs, `key=` and `training=`; gives a dict of outputs.
        loss: A name, or a function of (prediction, targets). The prediction is the array that a model with one output
            gives, else the dict of its outputs.
        accuracy: Whether to report the share of right predictions too.

    Returns:
        A function `(params, batch, key=None, training=True) -> (loss, metrics)`, to be given to
        `jax.value_and_grad(..., has_aux=True)`; the metrics are a dict with `"loss"`, and `"accuracy"` if asked for.

    Examples:
        >>> import jax.numpy as jnp
        >>> double = lambda params, inputs, key=None, training=False: {"output": params["weight"] * inputs["input"]}
        >>> batch = {"inputs": {"input": jnp.ones(4)}, "targets": jnp.zeros(4)}
        >>> value, metrics = loss_function(double, "mean_squared_error")({"weight": jnp.float32(2.0)}, batch)
        >>> float(value)
        4.0
    """
    chosen = resolve_loss(loss)

    def compute(params: Any, batch: Batch, key: Any = None, training: bool = True) -> tuple[Any, dict[str, Any]]:
        outputs = forward(params, batch["inputs"], key=key, training=training)
        with jax.named_scope("role:loss"):
            prediction = next(iter(outputs.values())) if len(outputs) == 1 else outputs
            targets, weights = batch["targets"], batch.get("weights")
            value = mean_over_batch(chosen.function(prediction, targets), weights)
            metrics = {"loss": value}
            if accuracy and chosen.is_correct is not None:
                right = chosen.is_correct(prediction, targets).astype(value.dtype)
                metrics["accuracy"] = mean_over_batch(right, weights)
        return value, metrics

    return compute


def train_step(
    forward: Callable[..., Any],
    loss: str | Loss | Callable[..., Any] = "cross_entropy",
    optimizer: Any = "adam",
    *,
    accuracy: bool = False,
) -> Callable[..., Any]:
    """Return one step of training as a pure function, ready for `jax.jit(..., donate_argnums=(0, 1))`.

    Args:
        forward: The model, as in `loss_function`.
        loss: The same.
        optimizer: A name, an optax factory, or an optax transformation; see `resolve_optimizer`.
        accuracy: Whether the metrics hold the accuracy on the batch.

    Returns:
        A function `(params, opt_state, learning_rate, batch, key=None) -> (params, opt_state, metrics)`. The learning
        rate is an argument, so that it can change between steps; it is a factor if the optimizer's rate is relative.

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
    compute = loss_function(forward, loss, accuracy=accuracy)
    chosen = resolve_optimizer(optimizer)

    def step(params: Any, opt_state: Any, learning_rate: Any, batch: Batch, key: Any = None) -> tuple[Any, Any, Any]:
        (value, metrics), grads = jax.value_and_grad(compute, has_aux=True)(params, batch, key)
        with jax.named_scope("role:update"):
            updates, opt_state = chosen.update(
                grads,
                opt_state,
                params,
                learning_rate,
                value=value,
                grad=grads,
                value_fn=lambda candidate: compute(candidate, batch, key)[0],
            )
            params = optax.apply_updates(params, updates)
        return params, opt_state, metrics

    return step


@dataclass(frozen=True)
class Program:
    """One computation of a model, ready to be traced: nothing has run yet.

    Attributes:
        name: `"forward"`, `"forward+backward"` or `"train step"`.
        function: A pure function.
        specs: Its positional arguments as `jax.ShapeDtypeStruct` trees.
        donated: Positions of the arguments whose memory it may reuse.
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
    """Return the three programs of a model, by name, without running or allocating anything.

    Args:
        model: What is to be looked at.
        loss: As in `fit`.
        optimizer: The same.
        batch_size: Size of the first axis of the inputs where it is not fixed by their specs.
        params: The params, or their specs; default: those of `model.randomize_params`.
        targets: Spec of the targets; default: what the loss asks for.

    Raises:
        ShapeError: An input has a dim that is not known.
    """
    chosen = resolve_loss(loss)
    inputs = {name: concrete(name, spec, batch_size) for name, spec in model.input_specs.items()}
    param_specs = specs_of(jax.eval_shape(lambda: model.randomize_params(0)) if params is None else params)
    key = jax.eval_shape(lambda: jax.random.key(0)) if model.needs_key else None
    outputs = jax.eval_shape(lambda p, i, k: model.forward(p, i, key=k, training=True), param_specs, inputs, key)
    batch = {"inputs": inputs, "targets": target_specs(chosen, outputs) if targets is None else specs_of(targets)}
    update = resolve_optimizer(optimizer)
    opt_specs = jax.eval_shape(update.init, param_specs)
    rate = jax.eval_shape(lambda rate: rate, update.learning_rate)
    keys = () if key is None else (key,)

    def forward(params: Any, inputs: Any) -> Any:
        return model.forward(params, inputs)

    compute = loss_function(model.forward, chosen)

    def forward_backward(params: Any, batch: Any, key: Any = None) -> Any:
        (value, _), grads = jax.value_and_grad(compute, has_aux=True)(params, batch, key)
        return value, grads

    step = train_step(model.forward, chosen, update)
    found = (
        Program("forward", forward, (param_specs, inputs)),
        Program("forward+backward", forward_backward, (param_specs, batch, *keys)),
        Program("train step", step, (param_specs, opt_specs, rate, batch, *keys), donated=(0, 1)),
    )
    return {program.name: program for program in found}


def specs_of(tree: Any) -> Any:
    """Return the shape and dtype of each array of a tree."""
    return jax.eval_shape(lambda values: values, tree)


def concrete(name: str, spec: TensorSpec, batch_size: int) -> jax.ShapeDtypeStruct:
    """Return the spec of one batch of an input; a first dim that is a name becomes the batch size."""
    shape = spec.shape
    if shape and isinstance(shape[0], str):
        shape = (batch_size, *shape[1:])
    if not all(isinstance(dim, int) for dim in shape):
        raise ShapeError(
            f"input {name!r} has dims that are not known.",
            (("spec", repr(spec)),),
            f'ml.compile(model, ml.JaxBackend(), shapes={{"{name}": [{", ".join(map(str, shape))}]}}) with numbers',
        )
    return jax.ShapeDtypeStruct(tuple(int(dim) for dim in shape), spec.dtype)


def target_specs(loss: Loss, outputs: Mapping[str, jax.ShapeDtypeStruct]) -> Any:
    """Return the spec of the targets that a loss asks for beside these outputs."""
    specs = {
        name: jax.ShapeDtypeStruct(out.shape[:-1], "int32") if loss.targets == "labels" else out
        for name, out in outputs.items()
    }
    return next(iter(specs.values())) if len(specs) == 1 else specs
