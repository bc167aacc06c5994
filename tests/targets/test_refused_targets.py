"""Refused targets, arguments and options of `inspect`."""

from __future__ import annotations

from inspect import signature
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp  # noqa: F401 - used in MESSAGES
import pytest
from transcript import message_of, read_transcript

import mithril_nb as ml
from mithril_nb.models import Add, IOKey, Linear, Model  # noqa: F401 - used in MESSAGES
from mithril_nb.targets.options import OPTIONS

X = jax.ShapeDtypeStruct((4, 5), "float32")


def scaled(x, loss):
    return x * loss


def norm(x: Any, y: Any, *, axis: int) -> Any:
    return (x + y).sum(axis)


class Twice(eqx.Module):
    def __call__(self, x: Any) -> Any:
        return 2 * x


LINEAR = eqx.nn.Linear(5, 3, key=jax.random.key(0))


def partly_known() -> Model:
    model = Model()
    model |= Linear(3)(input=IOKey("x", shape=["a", "b", 5]))
    return model


MESSAGES = """
ml.inspect(3, X)
UnknownOptionError: cannot inspect 3.
    needs  a model, a function, a module, a traced, lowered or compiled program, or a file

ml.inspect(norm, X)
UnexpectedInputError: cannot inspect 'norm' with these arguments: missing a required argument: 'y'.
    takes  (x: 'Any', y: 'Any', *, axis: 'int') -> 'Any'
    given  float32[4, 5]

ml.inspect(jnp.tanh, X, axis=1)
UnexpectedInputError: cannot inspect 'tanh' with these arguments: got an unexpected keyword argument 'axis'.
    takes  (x: 'ArrayLike', /) -> 'Array'
    given  float32[4, 5], axis=1

ml.inspect(Twice(), X, X, X)
UnexpectedInputError: cannot inspect 'Twice' with these arguments: too many positional arguments.
    takes  (x: 'Any') -> 'Any'
    given  float32[4, 5], float32[4, 5], float32[4, 5]

ml.inspect(norm, X, X, axis=0, loss="cross_entropy")
UnknownOptionError: 'norm' takes no loss=.
    takes  name=, params=, static_argnums=, static_argnames=, device=, compiler_options=, trips=

ml.inspect(eqx.filter_jit(eqx.filter_vmap(LINEAR)), X, optimizer="adam")
StageUnavailableError: the function around module 'Linear' calls a copy of the module, so the module cannot be trained.
    example  eqx.filter_jit(module)

ml.inspect(lambda x: jax.vmap(LINEAR)(x), X, program="train step")
UnknownOptionError: '<lambda>' takes no program=.
    takes  name=, params=, static_argnums=, static_argnames=, device=, compiler_options=, trips=

ml.inspect(Twice(), jax.ShapeDtypeStruct((5,), "float32"), variables={})
UnexpectedInputError: 'Twice' contains its arrays, and takes no variables.
    take variables  modules of Flax linen, transforms of Haiku

ml.inspect(norm, X, X, axis=0, params=0.5)
UnknownOptionError: params=0.5 does not name the arguments that hold the parameters.
    needs  the name of an argument, or several; () if there are none
    Try: params="w"  # or params=("encoder", "decoder")

ml.inspect(norm, X, X, axis=0, params="w")
UnknownOptionError: params='w' is not an argument of program 'norm'.
    arguments  x, y, axis
    Try: params="x"  # or params=() if it has none

ml.inspect(Linear(3), X, params="input")
UnknownOptionError: 'Linear' takes no params=.
    takes  name=, shapes=, program=, loss=, optimizer=, device=, compiler_options=, trips=

ml.inspect(Linear(3), X, program="train_stp")
UnknownOptionError: unknown program 'train_stp'.
    known  forward, forward+backward, train step

ml.inspect(Linear(3))
ShapeError: the shape of input 'input' is unknown.
    so far  ('...',) float32
    Try: shapes={'input': [32, 784]}  # with sizes that fit

ml.inspect(partly_known())
ShapeError: the shape of input 'x' is unknown.
    so far  ('a', 'b', 5) float32
    Try: shapes={'x': [32, 32, 5]}  # with sizes that fit

ml.inspect(norm, {"a": jax.ShapeDtypeStruct(("B", 4, "D"), "bfloat16")}, X, axis=0)
ShapeError: the argument 'x' of 'norm' has a size that is not a whole number.
    shape  ('B', 4, 'D')
    needs  whole numbers, or names from one call of jax.export.symbolic_shape

ml.inspect(norm, X, X, kwargs=[0])
UnknownOptionError: the option kwargs=[0] is not valid.
    needs  a dict of arguments by name

ml.what_if(jnp.tanh, X, name=3)
UnknownOptionError: the option name=3 is not valid.
    needs  a string

ml.inspect(jnp.tanh, X, name=jnp.ones(3))
UnknownOptionError: the option name=Array([1., 1., 1.], dtype=float32) is not valid.
    needs  a string

ml.inspect(jnp.tanh, X, device=3)
UnknownOptionError: the option device=3 is not valid.
    needs  a jax.Device, an ml.Device or its name

ml.inspect(Linear(3), X, compiler_options=[1])
UnknownOptionError: the option compiler_options=[1] is not valid.
    needs  a dict of XLA's options by name

ml.inspect(Add(), X, X, X)
UnexpectedInputError: the model has 2 inputs but receives 3.
    inputs  'left', 'right'

ml.inspect(Add(), X, left=X, right=X)
UnexpectedInputError: the input 'left' is given twice.

ml.inspect(Linear(3), [[1.0]])
UnknownOptionError: input 'input' must be an array, or a jax.ShapeDtypeStruct, not [[1.0]].
    Try: ml.inspect(model, shapes={"input": [32, 784]})

ml.inspect(Linear(3), X, optimiser="adam")
UnknownOptionError: ml.inspect takes no option 'optimiser', and the model has no input of this name.
    inputs   'input'
    options  <options>
    Try: optimizer='adam'
"""


@pytest.mark.parametrize(("code", "message"), read_transcript(MESSAGES))
def test_message(code: str, message: str) -> None:
    assert message_of(code, globals()) == message.replace("<options>", ", ".join(OPTIONS))


@pytest.mark.parametrize("function", [scaled, lambda x, loss: x * loss])
def test_an_argument_with_the_name_of_an_option_is_passed_in_kwargs(function: Any) -> None:
    assert ml.inspect(function, X, kwargs={"loss": X}).cost().total.flops == 20


def test_options_match_the_signature_of_inspect() -> None:
    parameters = signature(ml.inspect).parameters.values()
    assert tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY) == OPTIONS
