"""The equations of a loss and an optimizer, as facts of a checkpoint: a run must not resume with other ones."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from mithril_nb.train.prepare import output_specs
from mithril_nb.train.processes import fingerprint
from mithril_nb.train.step import first_opt_state, key_spec, specs_of, train_step
from mithril_nb.train.stream import Stream
from mithril_nb.train.trainable import frozen_names, initial_state, is_jitted, model_fingerprint, runner
from mithril_nb.train.training_plan import TrainingPlan

MOST_LINES = 200
"""Maximum number of different operations that a checkpoint stores."""
_MOST_SHOWN = 3
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def equations_of(plan: TrainingPlan, params: Any) -> dict[str, dict[str, Any]]:
    """Return `{"loss": {"hash": ..., "operations": [...]}, "optimizer": ...}` of the equations that JAX traces.

    Equations contain everything that affects the steps: hyperparameters, schedules, the values that functions close
    over. They do not depend on the process, on names, or on the place of the code. A model without a graph has the
    entry `"model"`. The result is empty if the model has `jit=False` and Python code needs values.
    """
    try:
        digests = _digests(plan, specs_of(params))
    except TypeError:  # of JAX's errors for a traced value that Python code needs
        if is_jitted(plan.model):
            raise
        return {}
    return {
        name: {"hash": digest.hash, "operations": sorted(digest.operations)[:MOST_LINES]}
        for name, digest in digests.items()
    }


def _digests(plan: TrainingPlan, params: Any) -> dict[str, _Digest]:
    frozen, optimizer = frozen_names(plan.model), plan.optimizer
    data = plan.data.check(plan.data.first) if isinstance(plan.data, Stream) else plan.data
    outputs = output_specs(plan.model, params, data, plan.batch_size)

    # Instead of the model, whose equations depend on the devices and the backend. Each output depends on each param.
    def forward(params: Any, inputs: Any, **options: Any) -> dict[str, Any]:
        total = sum(jnp.real(jnp.sum(leaf)).astype(jnp.float32) for leaf in jax.tree.leaves(params))
        return jax.tree.map(lambda spec: jnp.full(spec.shape, total).astype(spec.dtype), dict(outputs))

    def start(params: Any) -> Any:
        return first_opt_state(optimizer, params, frozen, {})

    batch = data.take(np.arange(plan.batch_size))
    targets = specs_of({name: batch[name] for name in ("targets", "weights") if name in batch})
    step = train_step(forward, plan.loss, optimizer, frozen=frozen)
    closed = jax.make_jaxpr(step)(
        params, jax.eval_shape(start, params), optimizer.learning_rate, targets | {"inputs": {}}
    )
    digests, constants = {"loss": _Digest(), "optimizer": _Digest()}, _constants(closed)
    for equation in closed.eqns:
        scopes = str(equation.source_info.name_stack)
        for scope, name in (("role:loss", "loss"), ("role:update", "optimizer")):
            if scope in scopes:
                digests[name].add_equation(equation, constants)
    digests["optimizer"].add(jax.make_jaxpr(start)(params))
    if model_fingerprint(plan.model) is None:
        state = specs_of(initial_state(plan.model))
        key = key_spec() if plan.model.needs_key else None
        run = partial(runner(plan.model, bool(state)), training=True)
        digests["model"] = _Digest()
        digests["model"].add(
            jax.make_jaxpr(lambda params, inputs, state, key: run(params, inputs, state, key=key))(
                params, specs_of(batch["inputs"]), state, key
            )
        )
    return digests


def hash_of_programs(*programs: ClosedJaxpr) -> int:
    """Return a hash of the equations of programs, and of the values they close over."""
    digest = _Digest()
    for program in programs:
        digest.add(program)
    return digest.hash


def difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return how two results of `equations_of` for a loss or an optimizer differ; `""` if they do not."""
    if then["hash"] == now["hash"]:
        return ""
    before, after = (set(facts["operations"]) for facts in (then, now))
    only = ((sorted(before - after), "in the checkpoint"), (sorted(after - before), "here"))
    clauses = [f"{', '.join(operations[:_MOST_SHOWN])} {where}" for operations, where in only if operations]
    return ", ".join(clauses) or "the same operations on other operands"


class _Digest:
    """Hash of equations, and their operations with literals.

    Variables are numbered in the order of their first use, arguments before others: `a - b` is not `b - a`.
    """

    def __init__(self) -> None:
        self.hash = 0  # crc32, because Python's own hash of text differs between processes
        self.operations: set[str] = set()
        self._numbers: dict[Any, int] = {}

    def add(self, closed: ClosedJaxpr) -> None:
        """Add the equations and results of a function."""
        constants = _constants(closed)
        for argument in closed.jaxpr.invars:
            self._operand(argument, constants)
        for equation in closed.eqns:
            self.add_equation(equation, constants)
        results = [self._operand(atom, constants) for atom in closed.jaxpr.outvars]
        self._add_text(f"return {results}")
        self.operations |= {f"start {literal}" for literal in _literals(closed.jaxpr.outvars)}

    def add_equation(self, equation: Any, constants: Mapping[Any, str]) -> None:
        inputs = [self._operand(atom, constants) for atom in equation.invars]
        outputs = [self._operand(atom, constants) for atom in equation.outvars]
        self._add_text(f"{outputs} = {equation.primitive.name} {inputs}")
        words, is_call = [equation.primitive.name, *_literals(equation.invars)], False
        for name, value in sorted(equation.params.items()):
            # Names of functions do not affect the steps. The others are functions of custom_jvp and custom_vjp; what
            # they compute is in the equations of the gradient.
            if name in ("name", "jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "debug_info"):
                continue
            inner = [*_jaxprs(value)]
            self._add_text(f"{name} {'' if inner else _text(value)}")
            for closed in inner:
                self.add(closed)
            is_call |= bool(inner)
            words += [f"{name}={value}"] if isinstance(value, int | float) else []
        if not is_call:
            self.operations.add(" ".join(words))

    def _operand(self, atom: Any, constants: Mapping[Any, str]) -> str:
        if isinstance(atom, Literal):
            return f"{_text(np.asarray(atom.val))} {atom.aval}"
        if atom in constants:
            return constants[atom]
        return f"{self._numbers.setdefault(atom, len(self._numbers))}:{atom.aval}"

    def _add_text(self, text: str) -> None:
        self.hash = zlib.crc32(text.encode(), self.hash)


def _constants(closed: ClosedJaxpr) -> dict[Any, str]:
    return {var: _text(value) for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=False)}


def _literals(atoms: Any) -> list[str]:
    values = [np.asarray(atom.val) for atom in atoms if isinstance(atom, Literal)]
    return [f"{value.item():g}" if value.dtype.kind in "iuf" else str(value) for value in values if value.ndim == 0]


def _jaxprs(value: Any) -> Iterator[ClosedJaxpr]:
    if isinstance(value, Jaxpr):
        yield ClosedJaxpr(value, getattr(value, "consts", ()))  # JAX 0.12 has no other type for closed ones
    elif isinstance(value, ClosedJaxpr):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _jaxprs(item)


def _text(value: Any) -> str:
    # Without addresses and without an order that depends on the process.
    if isinstance(value, set | frozenset):  # the order of a set of texts depends on PYTHONHASHSEED
        return str(sorted(map(_text, value)))
    if isinstance(value, tuple | list):
        return str([*map(_text, value)])
    if isinstance(value, Mapping):
        return str(sorted((str(name), _text(item)) for name, item in value.items()))
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}{value.shape}{fingerprint(value)}"
    return _ADDRESS.sub("", repr(value))
