"""Run an emitted program with JAX's own primitives, statement by statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import primitives

from mithril_nb.emission.build import build
from mithril_nb.emission.program import CALL, ELEMENTWISE, KEEPDIMS, EmittedProgram, Function, Number, Statement, Value
from mithril_nb.inspection import Inspection
from mithril_nb.stages.trace import traced


def traced_program(inspection: Inspection) -> traced.Program:
    return inspection.traced_program


def program_of(inspection: Inspection) -> EmittedProgram:
    return build(traced_program(inspection))


class Interpreter:
    """Runs the statements of a program.

    Attributes:
        steps: How many statements it ran.
        index: Index of the step of the loop that runs; `None` outside loops.
    """

    def __init__(self, inspection: Inspection):
        self.program = program_of(inspection)
        self.sites = {site.id: site for site in traced_program(inspection).sites}
        self.constants = {value: jnp.asarray(array) for value, array in self.program.constants.items()}
        self.steps = 0
        self.index: int | None = None

    def run(self, *arrays: Any) -> list[Any]:
        """Return the results of the program, flat."""
        return self.call(self.program.main, arrays, self.constants)

    def call(self, function: Function, arrays: Sequence[Any], around: dict[Value, Any]) -> list[Any]:
        scope = {**around, **dict(zip(function.inputs, arrays, strict=True))}
        for statement in function.statements:
            inputs = [self.array(one, scope) for one in statement.inputs]
            found = self.results(statement, inputs, scope)
            for value, array in zip(statement.outputs, found, strict=True):
                assert array.shape == value.shape, statement
                assert array.dtype == value.dtype, statement
                scope[value] = array
            self.steps += 1
        return [self.array(one, scope) for one in function.outputs]

    def array(self, one: Any, scope: dict[Value, Any]) -> Any:
        return jnp.asarray(one.value, one.dtype) if isinstance(one, Number) else scope[one]

    def results(self, one: Statement, inputs: list[Any], scope: dict[Value, Any]) -> list[Any]:
        if one.primitive == CALL:
            assert one.function is not None
            return self.call(one.function, inputs, self.constants)
        if one.primitive == "cond":
            return self.call(one.bodies[int(inputs[0])], (), scope)
        if one.primitive == "while":
            while self.call(one.bodies[0], inputs, scope)[0]:
                inputs = self.call(one.bodies[1], inputs, scope)
            return inputs
        if one.primitive == "scan":
            return self.scan(one, inputs, scope)
        if one.primitive in ELEMENTWISE:
            inputs = [jnp.broadcast_to(array, one.outputs[0].shape) for array in inputs]
        params = dict(one.params)
        keepdims = params.pop(KEEPDIMS, False)
        if one.bodies:  # the function that combines items
            params = self.sites[one.equations[0]].equation.params
        primitive = getattr(primitives, f"{one.primitive.replace('-', '_')}_p", None)
        if primitive is None:
            primitive = next(site.equation.primitive for site in self.sites.values() if site.primitive == one.primitive)
        if one.primitive == "reshape":
            params = {"sharding": None, **params}
        if one.primitive == "square":
            return [jnp.square(*inputs)]
        found = primitive.bind(*inputs, **params)
        found = found if primitive.multiple_results else [found]
        return [jnp.expand_dims(found[0], params["axes"])] if keepdims else list(found)

    def scan(self, one: Statement, inputs: list[Any], scope: dict[Value, Any]) -> list[Any]:
        count, length = one.params["num_carry"], one.params["length"]
        carry, arrays = inputs[:count], inputs[count:]
        stacks: list[Any] = []
        order = range(length - 1, -1, -1) if one.params["reverse"] else range(length)
        for index in order:
            self.index = index
            found = self.call(one.bodies[0], [*carry, *(array[index] for array in arrays)], scope)
            carry = found[:count]
            stacks.append(found[count:])
        self.index = None
        stacks = stacks[::-1] if one.params["reverse"] else stacks
        rest = [jnp.stack(items) for items in zip(*stacks, strict=True)]
        return [*carry, *(rest or [jnp.zeros(value.shape, value.dtype) for value in one.outputs[count:]])]


def random_arrays(tree: Any, seed: int = 0) -> Any:
    """Return arrays for a pytree of specs."""
    random = np.random.default_rng(seed)

    def array(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(seed)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(random.normal(size=leaf.shape), leaf.dtype)
        return jnp.asarray(random.integers(0, 3, leaf.shape), leaf.dtype)

    return jax.tree.map(array, tree)
