"""Running a block in a test, with the gradients of its float inputs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import MithrilError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models import Identity, Model
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.program import run


def outputs(block: Model, **given: Any) -> dict[str, Any]:
    """Return the outputs of a block without params, for arrays by port."""
    arrays = {port: jnp.asarray(array) for port, array in given.items()}
    toolkit = JaxBackend().toolkit
    return jax.jit(lambda arrays: run(block.graph, toolkit, {}, arrays))(arrays)


def apply(block: Model, *arrays: Any, dtype: str | None = None) -> jax.Array:
    """Return the output of a block, not compiled, given its data inputs in order."""
    ports = [port.name for port in block.inputs if port.role == "data"]
    given = {port: jnp.asarray(array, dtype) for port, array in zip(ports, arrays, strict=True)}
    return run(block.graph, JaxBackend().toolkit, {}, given)["output"]


def gradients(block: Model, **given: Any) -> dict[str, np.ndarray]:
    """Return the gradients of the sum of its float outputs, by port."""
    arrays = {port: jnp.asarray(array) for port, array in given.items()}
    floating = {port: array for port, array in arrays.items() if jnp.issubdtype(array.dtype, jnp.floating)}
    rest = {port: array for port, array in arrays.items() if port not in floating}

    toolkit = JaxBackend().toolkit

    def total(floating: Any) -> Any:
        found = run(block.graph, toolkit, {}, {**floating, **rest})
        return sum(one.sum() for one in found.values() if jnp.issubdtype(one.dtype, jnp.floating))

    return {port: np.asarray(found) for port, found in jax.jit(jax.grad(total))(floating).items()}


def fit_or_raise(block: Model, **shapes: Any) -> dict[str, Any]:
    """Return the specs of its outputs, from the shape, or shape and dtype, of each input."""
    specs = {
        port: TensorSpec(*shape)
        if isinstance(shape[-1:], tuple) and isinstance(shape[0] if shape else 0, tuple)
        else TensorSpec(shape)
        for port, shape in shapes.items()
    }
    found = infer(block.graph, specs)
    found.raise_problems()
    return dict(found.outputs)


def back(model: Model, **shapes: tuple[Any, ...]) -> dict[str, Any]:
    """Return the shape of each input that inference derives from the given shapes and the model."""
    inference = infer(model.graph, {port: TensorSpec(shape) for port, shape in shapes.items()})
    assert inference.problems == ()
    return {port: spec.shape for port, spec in inference.inputs.items()}


def of_x(expression: Callable[[Any], Any]) -> Model:
    """Return a model of an expression of its input."""
    model = Model()
    model |= Identity()(input="input", output="x")
    model |= Identity()(input=expression(model.x), output="output")
    return model


def compiled(block: Model, **shapes: list[Any]) -> Any:
    """Return the compiled block, given the shape of each input."""
    return ml.compile(block, shapes=shapes)


def messages(session: str) -> Any:
    """Return the parametrization of a test by calls and the text of their errors, which are written as in a session.

    The names in a call are those of the library, and of this module.
    """
    parts = [re.split(r"\n(?=\w+Error: )", part.rstrip(), maxsplit=1) for part in session.split(">>> ")[1:]]
    return pytest.mark.parametrize(("call", "text"), parts, ids=[call for call, _ in parts])


def error_of(call: str) -> str:
    """Return the type and the text of the error that a call raises."""
    with pytest.raises(MithrilError) as caught:
        eval(call, {**vars(models), **globals()})
    return f"{type(caught.value).__name__}: {caught.value}"
