"""Optimizers whose learning rate can change between steps without recompilation."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mithril_nb.errors import UnknownOptionError, alike, short_repr
from mithril_nb.train.losses import takes

_UNKNOWN_MODULES = ("optax._src.linesearch", "optax.contrib")
_LINEAR = ("scale_by_param_block_rms", "scale_by_param_block_norm")
"""Transformations whose result is multiplied by a factor if their input is, unlike that of other `scale_by_...`."""


class _UnknownRateError(Exception):
    pass


def own_rate(update: Any, before: Any, after: Any) -> Any:
    """Return the learning rate that a transformation applies in one update, as a number or a traced value.

    Examples:
        >>> import optax
        >>> sgd = optax.chain(optax.clip(1.0), optax.sgd(0.125))
        >>> own_rate(sgd.update, sgd.init(0.0), sgd.init(0.0))
        0.125
    """
    try:
        return _rate([*_parts(update, before, after)])
    except (_UnknownRateError, AttributeError, KeyError, TypeError, ValueError):  # functions of another optax version
        return None


def _rate(parts: list[tuple[str, Any]]) -> Any:
    total: Any = None
    for kind, factor in parts:
        if kind == "scale":
            total = factor if total is None else factor * total
        elif kind == "normalize" and not (total is None or (isinstance(total, int | float) and total == 1)):
            raise _UnknownRateError  # a factor before Adam does not change its updates
    if total is None:
        raise _UnknownRateError
    return total


def _parts(update: Any, before: Any, after: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(update, "__self__"):  # a method, such as that of optax.MultiSteps
        raise _UnknownRateError
    # optax 0.2.8 keeps the parts and the hyperparameters of a transformation only in the closure of its `update`.
    held = dict(
        zip(update.__code__.co_freevars, [cell.cell_contents for cell in update.__closure__ or ()], strict=True)
    )
    name = update.__qualname__.partition(".")[0]
    match name:
        case "chain":
            for inner, *states in zip(held["update_fns"], before, after, strict=True):
                yield from _parts(inner, *states)
        case "named_chain":
            for key, inner in held["transforms"]:
                yield from _parts(inner.update, before[key], after[key])
        case "with_extra_args_support":
            yield from _parts(held["tx"].update, before, after)
        case "named_optimizer":  # of mithril_nb.train.optimizers
            yield from _parts(held["inner"].update, before, after)
        case "scale":
            yield "scale", abs(held["step_size"])
        case "scale_by_schedule":
            yield "scale", abs(held["step_size_fn"](before.count))
        case "set_to_zero":
            yield "zero", None
        case "inject_hyperparams":
            yield "normalize", None  # such as Adam
            yield "scale", after.hyperparams["learning_rate"]
        case "masked":  # of some params, such as the weight decay of AdamW
            if any(kind == "scale" for kind, _ in _parts(held["inner"].update, before.inner_state, after.inner_state)):
                raise _UnknownRateError
            yield "other", None
        case "partition":
            groups = []
            for key, inner in held["transforms"].items():
                states = [pair.inner_states[key].inner_state for pair in (before, after)]
                parts = [*_parts(inner.update, *states)]
                groups += [] if parts == [("zero", None)] else [_rate(parts)]
            if not groups or any(
                rate is not groups[0] and not (isinstance(rate, float) and rate == groups[0]) for rate in groups
            ):
                raise _UnknownRateError
            yield "scale", groups[0]
        case "scale_by_rprop" | "scale_by_polyak":
            raise _UnknownRateError  # the rate is not a factor
        case _:
            is_known = update.__module__.startswith("optax.") and not update.__module__.startswith(_UNKNOWN_MODULES)
            if not is_known or any(hasattr(value, "update") and not isinstance(value, dict) for value in held.values()):
                raise _UnknownRateError
            yield ("normalize" if name.startswith("scale_by_") and name not in _LINEAR else "other"), None


DEFAULT_RATES = {
    "adam": 1e-3, "adamw": 1e-3, "sgd": 1e-2, "rmsprop": 1e-3, "lion": 1e-4, "adagrad": 1e-2, "adabelief": 1e-3,
    "nadam": 1e-3, "nadamw": 1e-3, "adamax": 2e-3, "radam": 1e-3, "lamb": 1e-3, "lars": 1e-2,
    "yogi": 1e-2, "adan": 1e-3,
}  # fmt: skip
"""The optax optimizers that `fit` accepts by name, with their default learning rates."""


@dataclass(frozen=True)
class Optimizer:
    """A pair of pure functions, as in optax, whose update also takes the learning rate of the step.

    Attributes:
        init: Function of the params that returns the optimizer's state.
        update: Function of gradients, state, params and learning rate that returns the updates to add to the params,
            and the new state. It also accepts the keyword arguments that line searches need, such as `value`.
        learning_rate: Initial learning rate of a run.
        is_relative: True if the learning rate is a factor on the updates of a transformation that has its own rate.
            For optimizers that scale by the rate last (adam, adamw, sgd, lion, ...), this equals changing the rate.
        name: Name of the optimizer.
        own_rate: For a relative learning rate: function of the optimizer's state before and after an update that
            returns the optimizer's own rate in this update, or `None` if it is unknown.
        source: The object that identifies the optimizer in the compile cache: its optax factory or transformation, or
            `update`.
    """

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]
    learning_rate: float
    is_relative: bool
    name: str
    source: Any = None
    own_rate: Callable[[Any, Any], Any] = lambda before, after: None


def resolve_optimizer(optimizer: Any = "adam", learning_rate: float | Callable[[Any], Any] | None = None) -> Optimizer:
    """Return the optimizer for a name, an optax factory, or a pair of `init` and `update`.

    Args:
        optimizer: A name such as `"adam"`, which computes in float32 for params of 16 bits; or a function from a
            learning rate to an `optax.GradientTransformation`, such as `optax.adamw` or
            `lambda rate: optax.chain(optax.clip(1.0), optax.sgd(rate))`; or an `optax.GradientTransformation`.
        learning_rate: Initial learning rate for a name or a factory; the default depends on the optimizer. It may be a
            schedule (a function of the step count). `run.learning_rate` is then a factor on the schedule's value.

    Raises:
        UnknownOptionError: The name is unknown; the value is not an optimizer and does not return one; a
            transformation is combined with `learning_rate`; or the rate, or a schedule's value, is not a finite number
            of at least 0.

    Examples:
        >>> resolve_optimizer("adam").learning_rate, resolve_optimizer(optax.sgd(0.1)).is_relative
        (0.001, True)
    """
    if hasattr(optimizer, "init") and hasattr(optimizer, "update"):
        if learning_rate is not None:
            raise UnknownOptionError(
                "learning_rate= has no effect: the optimizer is a transformation that contains its own rate.",
                (("optimizer", type(optimizer).__name__), ("learning_rate", repr(learning_rate))),
                "optimizer=optax.adam, learning_rate=1e-3",
            )
        return optimizer if isinstance(optimizer, Optimizer) else _relative(optimizer, "optimizer", optimizer)
    factory, name = _factory(optimizer)
    if callable(learning_rate):
        _check_schedule(learning_rate)
        return _relative(_transformation(factory, name, learning_rate), name, None)
    if learning_rate is None:
        try:
            parameter = inspect.signature(factory).parameters.get("learning_rate")
        except (TypeError, ValueError):  # some callables written in C have no signature
            parameter = None
        # Of optax's own optimizers, only contrib ones such as prodigy declare a default rate.
        declared = None if parameter is None else parameter.default
        learning_rate = declared if isinstance(declared, float) else DEFAULT_RATES.get(name, 1e-3)
    rate = check_rate(learning_rate)
    transformation = _transformation(factory, name, rate)
    try:
        # A factory may branch on the rate in Python (`if rate > 0`), which fails for a traced rate. Its result is
        # dropped, because eval_shape accepts only arrays, and a transformation is a pair of functions.
        jax.eval_shape(lambda traced: (factory(traced), None)[1], rate)
    except jax.errors.ConcretizationTypeError:
        return _relative(transformation, name, None)

    def update(grads: Any, state: Any, params: Any, learning_rate: Any, **extra: Any) -> tuple[Any, Any]:
        with_rate = optax.with_extra_args_support(factory(learning_rate))
        return with_rate.update(grads, state, params, **extra)

    return Optimizer(transformation.init, update, rate, False, name, factory)


class Averaged(NamedTuple):
    """State of an optimizer that also averages the params: its own state, and the moving average."""

    inner: Any
    average: Any


def averaging(optimizer: Optimizer, decay: float) -> Optimizer:
    """Return an optimizer that also keeps a moving average of the params, of which `decay` stays in each update."""

    def init(params: Any) -> Averaged:
        return Averaged(optimizer.init(params), jax.tree.map(jnp.copy, params))

    def update(grads: Any, state: Any, params: Any, learning_rate: Any, **extra: Any) -> tuple[Any, Averaged]:
        updates, inner = optimizer.update(grads, state.inner, params, learning_rate, **extra)
        moved = optax.apply_updates(params, updates)
        return updates, Averaged(inner, optax.incremental_update(moved, state.average, 1 - decay))

    def rate(before: Any, after: Any) -> Any:
        return optimizer.own_rate(before.inner, after.inner)

    name = f"{optimizer.name}, ema={decay:g}"
    return replace(optimizer, init=init, update=update, own_rate=rate, name=name, source=update)


def accumulating(optimizer: Optimizer, count: int) -> Optimizer:
    """Return an optimizer that updates with the mean gradient of `count` steps, as `optax.MultiSteps`."""

    def with_rate(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        return optimizer.update(updates, state, params, **extra)

    init: Any = optimizer.init
    several = optax.MultiSteps(optax.GradientTransformationExtraArgs(init, with_rate), count)

    def update(grads: Any, state: Any, params: Any, learning_rate: Any, **extra: Any) -> tuple[Any, Any]:
        updates, state = several.update(grads, state, params, learning_rate=learning_rate, **extra)
        return _typed_like(params, updates), state

    def rate(before: Any, after: Any) -> Any:
        return optimizer.own_rate(before.inner_opt_state, after.inner_opt_state)

    name = f"{optimizer.name}, accumulate={count}"
    return replace(optimizer, init=several.init, update=update, own_rate=rate, name=name, source=update)


def average_in(opt_state: Any) -> Any | None:
    """Return the moving average of the params in an optimizer's state; `None` if it has none."""
    leaves = jax.tree.leaves(opt_state, is_leaf=lambda leaf: isinstance(leaf, Averaged))
    return next((leaf.average for leaf in leaves if isinstance(leaf, Averaged)), None)


def with_average(params: Any, average: Any) -> Any:
    """Return params with the average in place of those that are trained."""
    are_all = jax.tree.structure(params) == jax.tree.structure(average)
    return average if are_all else {**params, **average}


def check_rate(rate: Any) -> float:
    """Return a learning rate as a float."""
    if not _is_rate(rate):
        raise UnknownOptionError(
            "the learning rate must be a finite number of at least 0.",
            (("got", short_repr(rate)),),
            "learning_rate=1e-3",
        )
    return float(rate)


def _is_rate(rate: Any) -> bool:
    is_number = isinstance(rate, int | float) or (hasattr(rate, "ndim") and rate.ndim == 0)
    try:
        return not isinstance(rate, bool) and is_number and math.isfinite(rate) and rate >= 0
    except OverflowError:  # an integer beyond the largest float
        return False


def _check_schedule(schedule: Callable[[Any], Any]) -> None:
    facts = [("needed", "a function of the step count that returns a finite number of at least 0")]
    if not takes(schedule, 1):
        facts.append(("takes", str(inspect.signature(schedule))))
    elif not _is_rate(rate := schedule(jnp.zeros((), jnp.int32))):
        facts.append(("got", f"{short_repr(rate)} at step 0"))
    else:
        return
    raise UnknownOptionError(
        "learning_rate= is a function but not a schedule.",
        tuple(facts),
        "learning_rate=optax.cosine_decay_schedule(1e-3, 1000)",
    )


def _relative(transformation: Any, name: str, source: Any) -> Optimizer:
    extended = optax.with_extra_args_support(transformation)

    def update(grads: Any, state: Any, params: Any, learning_rate: Any, **extra: Any) -> tuple[Any, Any]:
        updates, state = extended.update(grads, state, params, **extra)
        return jax.tree.map(lambda change: (learning_rate * change).astype(change.dtype), updates), state

    # Without a source, `update` identifies the optimizer, so that the compile cache never mixes two of them.
    rate = partial(own_rate, transformation.update)
    return Optimizer(transformation.init, update, 1.0, True, name, update if source is None else source, rate)


def _factory(optimizer: Any) -> tuple[Callable[..., Any], str]:
    if isinstance(optimizer, str):
        if optimizer in DEFAULT_RATES:
            return named_optimizer(optimizer), optimizer
        meant = (*alike(optimizer, DEFAULT_RATES), "adam")[0]
        known = (("known", ", ".join(DEFAULT_RATES)),)
        raise UnknownOptionError(f"unknown optimizer {optimizer!r}.", known, f'optimizer="{meant}"')
    if callable(optimizer):
        wrapped = getattr(optimizer, "func", optimizer)  # unwrap a functools.partial
        return optimizer, getattr(wrapped, "__name__", "optimizer")
    raise UnknownOptionError(
        f"optimizer must be a name, an optax factory or an optax transformation, not {optimizer!r}.",
        (("known", ", ".join(DEFAULT_RATES)),),
        "optimizer=optax.adam(1e-3)",
    )


@cache  # one factory per name, because the compile cache compares factories by identity
def named_optimizer(name: str, parameters: tuple[tuple[str, Any], ...] = ()) -> Callable[..., Any]:
    """Return optax's factory of a name in `DEFAULT_RATES`, with these parameters, for params of any float dtype."""
    factory = getattr(optax, name)

    @wraps(factory)  # keeps the signature, from which `resolve_optimizer` reads the default rate
    def in_float32(learning_rate: Any) -> optax.GradientTransformationExtraArgs:
        inner = optax.with_extra_args_support(factory(learning_rate, **dict(parameters)))

        def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
            inner_updates, after = inner.update(_widened(updates), state, _widened(params), **extra)
            # Keep the dtypes of `state`: a state from optax's own init may have 16 bits.
            return _typed_like(updates, inner_updates), _typed_like(state, after)

        return optax.GradientTransformationExtraArgs(lambda params: inner.init(_widened(params)), update)

    return in_float32


def _widened(tree: Any) -> Any:
    # In float16, Adam's eps of 1e-8 and small squared gradients are 0: with optax 0.2.8, a gradient of 1e-4 gives an
    # update of -inf.
    def wide(leaf: Any) -> Any:
        is_narrow = jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize < 4
        return leaf.astype(jnp.float32) if is_narrow else leaf

    return jax.tree.map(wide, tree)


def _typed_like(tree: Any, other: Any) -> Any:
    return jax.tree.map(lambda leaf, new: new if new.dtype == leaf.dtype else new.astype(leaf.dtype), tree, other)


def _transformation(factory: Callable[..., Any], name: str, learning_rate: Any) -> Any:
    facts, cause = [("needed", "a value with init(params) and update(grads, state, params)")], None
    try:
        optimizer = factory(learning_rate)
        if hasattr(optimizer, "init") and hasattr(optimizer, "update"):
            return optimizer
        facts.append(("got", type(optimizer).__name__))
    except Exception as error:  # a class of another library may raise any error
        facts.append(("because", f"{type(error).__name__}: {error}"))
        cause = error
    raise UnknownOptionError(
        f"{name!r} does not return an optimizer for a learning rate.",
        tuple(facts),
        "optimizer=lambda rate: optax.adam(rate)",
    ) from cause


def parameters_of(name: str) -> dict[str, Any]:
    """Return the parameters of optax's factory of a name in `DEFAULT_RATES`, with their defaults."""
    return {key: parameter.default for key, parameter in inspect.signature(getattr(optax, name)).parameters.items()}


WARM_UP = "warm-up, cosine decay"
SCHEDULES = ("cosine decay", "linear decay", WARM_UP)
# Cosine decay to 0 would leave nothing to learn for the epochs that a user adds after the last one.
_LAST_SHARE = 0.01


@cache  # the compile cache compares functions by identity
def schedule_of(kind: str, peak: float, warmup: int, steps: int) -> Callable[[Any], Any]:
    """Return the schedule of a name in `SCHEDULES`, which ends at 1 % of its peak."""
    last = _LAST_SHARE * peak
    if kind == "linear decay":
        return optax.linear_schedule(peak, last, steps)
    if kind == "cosine decay":
        return optax.cosine_decay_schedule(peak, steps, _LAST_SHARE)
    # Cosine decay needs at least one step after the warm-up.
    return optax.warmup_cosine_decay_schedule(0.0, peak, warmup, max(steps, warmup + 1), last)
