"""The learning rate that an optax transformation applies in a step, read from its functions and its state.

optax has no interface for it: the rate is a variable that functions close over, a schedule of a count in the state, or
a hyperparameter in the state. A transformation whose rate these do not determine, such as a line search, has no known
rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_UNKNOWN_MODULES = ("optax._src.linesearch", "optax.contrib")
_LINEAR = ("scale_by_param_block_rms", "scale_by_param_block_norm")
"""Transformations whose result is multiplied by a factor if their input is, unlike that of other `scale_by_...`."""


class _UnknownRateError(Exception):
    pass


def own_rate(update: Any, before: Any, after: Any) -> Any:
    """Return the learning rate that a transformation applies in one update, as a number or a traced value.

    Args:
        update: Function `update` of an optax transformation.
        before: State of the transformation before the update.
        after: State after the update.

    Returns:
        The rate; `None` if it is unknown, or if groups of params have different rates.

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
    """Return the rate of transformations in a row, each with its kind and for `"scale"` the factor."""
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
        case "_by_name":  # of mithril_nb.train.optimizers
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
