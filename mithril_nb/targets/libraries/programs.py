"""The programs of a Flax, Equinox or Haiku module: forward, forward+backward and train step, as for Mithril models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from mithril_nb.targets.arguments import Arguments, named
from mithril_nb.targets.libraries.modules import Arrays, PureModule
from mithril_nb.targets.results import checked_result
from mithril_nb.train import Program, loss_function, resolve_optimizer, train_step
from mithril_nb.train.losses import resolve_loss
from mithril_nb.train.step import OptimizerAndModelState, target_specs


def module_program(module: PureModule, given: Arguments, name: str, loss: Any, optimizer: Any) -> Program:
    """Return a program of a module.

    Args:
        module: The module.
        given: The arguments of the call.
        name: `"forward"`, `"forward+backward"` or `"train step"`.
        loss: As in `fit`.
        optimizer: As in `fit`.
    """
    if name != "forward":
        return _training(module, given, name, loss, optimizer)
    own = {"params": module.params, **({"state": module.state} if module.state else {})}
    names = (*own, *(f"{one}_input" if one in own else one for one in given.names))
    return Program(name, named(_forward(module, given), names, module.name), (*own.values(), *given.traced))


def _forward(module: PureModule, given: Arguments) -> Callable[..., Any]:
    def called(params: Arrays, *rest: Any) -> tuple[Any, Arrays]:
        state, traced = (rest[0], rest[1:]) if module.state else ({}, rest)
        return module.run(params, state, *given.whole(*traced))

    def forward(*given: Any) -> Any:
        out, after = called(*given)
        checked_result(out, module.name)
        return (out, after) if after else out

    return forward


def _training(module: PureModule, given: Arguments, name: str, loss: Any, optimizer: Any) -> Program:
    has_state = bool(module.state)
    inputs = dict(zip(given.names, given.traced, strict=True))
    chosen, update = resolve_loss(loss), resolve_optimizer(optimizer)

    def with_state(params: Arrays, inputs: Arrays, state: Arrays, *, key: Any = None, training: bool = True) -> Any:
        out, after = module.run(params, state, *given.whole(*(inputs[name] for name in given.names)))
        return _outputs(out), {**state, **after}

    def without_state(params: Arrays, inputs: Arrays, *, key: Any = None, training: bool = True) -> Any:
        return _outputs(module.run(params, {}, *given.whole(*(inputs[name] for name in given.names)))[0])

    forward = with_state if has_state else without_state
    outputs = jax.eval_shape(
        lambda params, inputs, state: with_state(params, inputs, state)[0], module.params, inputs, module.state
    )
    batch = {"inputs": inputs, "targets": target_specs(chosen, outputs)}
    if name == "forward+backward":
        compute = loss_function(forward, chosen, has_state=has_state)

        def backward(params: Any, batch: Any, state: Any = None) -> Any:
            extra = {"state": state} if has_state else {}
            (value, found), grads = jax.value_and_grad(compute, has_aux=True)(params, batch, **extra)
            return (value, grads, found[1]) if has_state else (value, grads)

        specs = (module.params, batch, module.state) if has_state else (module.params, batch)
        return Program(name, backward, specs)
    step = train_step(forward, chosen, update, has_state=has_state)
    held = jax.eval_shape(update.init, module.params)
    rate = jax.eval_shape(lambda rate: rate, update.learning_rate)
    specs = (module.params, OptimizerAndModelState(held, module.state) if has_state else held, rate, batch)
    return Program(name, step, specs, donated=(0, 1))


def _outputs(out: Any) -> dict[str, Any]:
    """What a module gives, by name, as losses take it."""
    if isinstance(out, Mapping):
        return dict(out)
    several = list[Any](out) if isinstance(out, tuple | list) else [out]
    return {"output": out} if len(several) == 1 else {f"output_{place}": one for place, one in enumerate(several)}
