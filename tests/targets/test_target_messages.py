"""What `inspect` says of targets and arguments that it cannot take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.errors import ShapeError, UnexpectedInputError, UnknownOptionError
from mithril_nb.models import Add, Linear

X = jax.ShapeDtypeStruct((4, 5), "float32")


def norm(x: Any, y: Any, *, axis: int) -> Any:
    return (x + y).sum(axis)


class Twice(eqx.Module):
    def __call__(self, x: Any) -> Any:
        return 2 * x


SAID = {
    "nothing that can be called": (
        lambda: ml.inspect(3, X),
        UnknownOptionError,
        """cannot inspect 3.
    needs  a model, a function, or a module of Flax, Equinox or Haiku
    Try: ml.inspect(lambda x: x + 1, jax.numpy.ones(3))""",
    ),
    "a class": (
        lambda: ml.inspect(Linear, X),
        UnknownOptionError,
        """cannot inspect the class 'Linear'.
    needs  a model, a function, or a module of Flax, Equinox or Haiku
    Try: ml.inspect(Linear(...), x)""",
    ),
    "too few arguments": (
        lambda: ml.inspect(norm, X),
        UnexpectedInputError,
        """cannot inspect 'norm' with these arguments: missing a required argument: 'y'.
    takes  (x: 'Any', y: 'Any', *, axis: 'int') -> 'Any'
    given  float32[4, 5]
    Try: ml.inspect(norm, x, y, axis=...)""",
    ),
    "an unknown argument": (
        lambda: ml.inspect(jnp.tanh, X, axis=1),
        UnexpectedInputError,
        """cannot inspect 'tanh' with these arguments: got an unexpected keyword argument 'axis'.
    takes  (x: 'ArrayLike', /) -> 'Array'
    given  float32[4, 5], axis=1
    Try: ml.inspect(tanh, x)""",
    ),
    "a module with too many arguments": (
        lambda: ml.inspect(Twice(), X, X, X),
        UnexpectedInputError,
        """cannot inspect 'Twice' with these arguments: too many positional arguments.
    takes  (x: 'Any') -> 'Any'
    given  float32[4, 5], float32[4, 5], float32[4, 5]
    Try: ml.inspect(Twice, x)""",
    ),
    "a function with a loss": (
        lambda: ml.inspect(norm, X, X, axis=0, loss="cross_entropy"),
        UnknownOptionError,
        """'norm' takes no loss=.
    loss= is for  models, and modules of Flax, Equinox and Haiku
    Try: ml.inspect(jax.grad(norm), ...), or a function that is the whole step.""",
    ),
    "a function with shapes": (
        lambda: ml.inspect(norm, shapes={"x": [3]}),
        UnknownOptionError,
        """'norm' takes no shapes=.
    shapes= is for  models of mithril_nb
    Try: ml.inspect(norm, x)""",
    ),
    "a module that holds its arrays, with variables": (
        lambda: ml.inspect(Twice(), jax.ShapeDtypeStruct((5,), "float32"), variables={}),
        UnexpectedInputError,
        """'Twice' holds its arrays itself, and takes no variables.
    take variables  modules of Flax linen, transforms of Haiku
    Try: ml.inspect(module, x)""",
    ),
    "parameters in an argument that there is not": (
        lambda: ml.inspect(norm, X, X, axis=0, params="w"),
        UnknownOptionError,
        """program 'norm' takes no 'w' that could hold its parameters.
    arguments  x, y
    Try: params="x", or params=() if it has none.""",
    ),
    "parameters in a part of an argument that there is not": (
        lambda: ml.inspect(norm, {"params": X, "step": X}, X, axis=0, params=["y", "x['prams']"]),
        UnknownOptionError,
        """program 'norm' takes no "x['prams']" that could hold its parameters.
    arguments  x, y
    inputs     x['params'], x['step']
    Try: params="x['params']", or params=() if it has none.""",
    ),
    "parameters in the place of their names": (
        lambda: ml.inspect(norm, X, X, axis=0, params=0.5),
        UnknownOptionError,
        """params=0.5 does not say what holds the parameters of a program.
    needs  the name of an argument, or several; () if there are none
    Try: params="w", or params=("encoder", "decoder")""",
    ),
    "a model whose parameters are named": (
        lambda: ml.inspect(Linear(3), X, params="input"),
        UnknownOptionError,
        """'Linear' takes no params=.
    params= is for  functions: a model knows its own
    Try: ml.inspect(Linear, x)""",
    ),
    "an unknown program": (
        lambda: ml.inspect(Linear(3), X, program="train_stp"),
        UnknownOptionError,
        """unknown program 'train_stp'.
    known  forward, forward+backward, train step
    Try: program="train step\"""",
    ),
    "an unknown loss": (
        lambda: ml.inspect(Twice(), jax.ShapeDtypeStruct((5,), "float32"), loss="mse"),
        UnknownOptionError,
        """unknown loss 'mse'.
    known  cross_entropy, mean_squared_error, binary_cross_entropy
    Try: loss="mean_squared_error\"""",
    ),
    "a model without shapes": (
        lambda: ml.inspect(Linear(3)),
        ShapeError,
        """the shape of input 'input' is not known in numbers.
    so far  ('...',) float32
    Try: ml.inspect(model, shapes={"input": [32, 784]})""",
    ),
    "too many inputs": (
        lambda: ml.inspect(Add(), X, X, X),
        UnexpectedInputError,
        """the model has 2 inputs, and was given 3.
    inputs  'left', 'right'
    Try: ml.inspect(model, left, right)""",
    ),
    "an input twice": (
        lambda: ml.inspect(Add(), X, left=X, right=X),
        UnexpectedInputError,
        """the input 'left' is given twice.
    Try: ml.inspect(model, left=left)""",
    ),
    "an input that is no array": (
        lambda: ml.inspect(Linear(3), [[1.0]]),
        UnknownOptionError,
        """input 'input' must be an array or its shape, not [[1.0]].
    Try: ml.inspect(model, input=jax.ShapeDtypeStruct((32, 784), "float32"))""",
    ),
}


@pytest.mark.parametrize("what", SAID)
def test_messages(what: str) -> None:
    run, kind, text = SAID[what]
    assert isinstance(run, Callable)
    with pytest.raises(kind) as caught:  # pyright: ignore[reportArgumentType]
        run()
    assert str(caught.value) == text
