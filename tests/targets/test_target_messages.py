"""Error messages of `inspect` for invalid targets and arguments."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from transcript import message_of, read_transcript

import mithril_nb as ml
from mithril_nb.errors import ShapeError
from mithril_nb.models import GPT, Add, Conv2d, IOKey, Linear, Model, Reshape  # noqa: F401 - used in MESSAGES
from mithril_nb.targets.entry_point import OPTIONS

X = jax.ShapeDtypeStruct((4, 5), "float32")


def scaled(x, loss):
    return x * loss


def norm(x: Any, y: Any, *, axis: int) -> Any:
    return (x + y).sum(axis)


class Twice(eqx.Module):
    def __call__(self, x: Any) -> Any:
        return 2 * x


LINEAR = eqx.nn.Linear(5, 3, key=jax.random.key(0))
DENSE = nnx.Linear(5, 3, rngs=nnx.Rngs(0))


def closing(x: Any) -> Any:
    return DENSE(x)


def mapping(module: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return jnp.stack([module(row) for row in x])

    return function


def partly_known() -> Model:
    model = Model()
    model |= Linear(3)(input=IOKey("x", shape=["a", "b", 5]))
    return model


def five_dimensions() -> Model:
    model = Model()
    model |= Reshape([2, 3, 5, 7, 11])(input=IOKey("x"))
    return model


MESSAGES = """
ml.inspect(3, X)
UnknownOptionError: cannot inspect 3.
    needs  a model, a function, a module of Flax, Equinox or Haiku, a traced, lowered or compiled program, or a file
    Try: ml.inspect(lambda x: x + 1, jax.numpy.ones(3))

ml.inspect(Linear, X)
UnknownOptionError: cannot inspect the class 'Linear'.
    needs  a model, a function, a module of Flax, Equinox or Haiku, a traced, lowered or compiled program, or a file
    Try: ml.inspect(Linear(...), x)

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
    loss= is for  models, and modules of Flax, Equinox and Haiku
    Try: ml.inspect(jax.grad(norm), x)  # or a function that is the whole step

ml.inspect(scaled, X, loss=X)
UnknownOptionError: 'scaled' takes loss= in kwargs=, because ml.inspect has an option of this name.
    option loss= is for  models, and modules of Flax, Equinox and Haiku
    Try: kwargs={"loss": loss}

ml.inspect(eqx.filter_jit(eqx.filter_vmap(LINEAR)), X, optimizer="adam")
StageUnavailableError: the function around module 'Linear' calls a copy of the module, so the module cannot be trained.
    example  eqx.filter_jit(module)
    Try: jax.vmap(module)  # or the module itself, because programs are always jitted

ml.inspect(closing, X, loss="mean_squared_error")
UnknownOptionError: 'closing', a function around the module 'Linear', takes no loss=.
    loss= is for  models, and modules of Flax, Equinox and Haiku
    Try: ml.inspect(DENSE, x, loss=...)  # or jax.vmap(DENSE) for a batch

ml.inspect(norm, shapes={"x": [3]})
UnknownOptionError: 'norm' takes no shapes=.
    shapes= is for  models of mithril_nb
    Try: ml.inspect(f, jax.ShapeDtypeStruct((4, 64), "float32"))

ml.inspect(Twice(), jax.ShapeDtypeStruct((5,), "float32"), variables={})
UnexpectedInputError: 'Twice' contains its arrays, and takes no variables.
    take variables  modules of Flax linen, transforms of Haiku
    Try: ml.inspect(module, x)

ml.inspect(norm, X, X, axis=0, params="w")
UnknownOptionError: params='w' is not an argument of program 'norm'.
    arguments  x, y, axis
    Try: params="x"  # or params=() if it has none

ml.inspect(norm, {"params": X, "step": X}, X, axis=0, params=["y", "x['prams']"])
UnknownOptionError: params="x['prams']" is not an argument of program 'norm'.
    arguments  x, y, axis
    inputs     x['params'], x['step']
    Try: params="x['params']"  # or params=() if it has none

ml.inspect(norm, X, X, axis=0, params=0.5)
UnknownOptionError: params=0.5 does not name the arguments that hold the parameters.
    needs  the name of an argument, or several; () if there are none
    Try: params="w"  # or params=("encoder", "decoder")

ml.inspect(Linear(3), X, params="input")
UnknownOptionError: 'Linear' takes no params=.
    params= is for  functions; inspect finds the parameters of 'Linear' itself

ml.inspect(Linear(3), X, program="train_stp")
UnknownOptionError: unknown program 'train_stp'.
    known  forward, forward+backward, train step
    Try: program="train step"

ml.inspect(Twice(), jax.ShapeDtypeStruct((5,), "float32"), loss="mse")
UnknownOptionError: unknown loss 'mse'.
    known  cross_entropy, mean_squared_error, binary_cross_entropy
    Try: loss="mean_squared_error"

ml.inspect(Linear(3))
ShapeError: the shape of input 'input' is unknown.
    so far  ('...',) float32
    Try: shapes={"input": [32, 784]}  # add this to the call, with sizes that fit

ml.inspect(Conv2d(8, 3))
ShapeError: the shape of input 'input' is unknown.
    so far  ('...',) float32
    Try: shapes={"input": [32, 784]}  # add this to the call, with sizes that fit

ml.inspect(Add())
ShapeError: the shape of input 'left' is unknown.
    so far  ('...',) float32
    Try: shapes={"left": [32, 784], "right": [32, 784]}  # add this to the call, with sizes that fit

ml.inspect(GPT(vocabulary=256, context=8, layers=1, heads=1, width=4))
ShapeError: the shape of input 'input' is unknown.
    so far  ('...',) int32
    Try: shapes={"input": [32, 784]}  # add this to the call, with sizes that fit

ml.inspect(partly_known())
ShapeError: the shape of input 'x' is unknown.
    so far  ('a', 'b', 5) float32
    Try: shapes={"x": [32, 32, 5]}  # add this to the call, with sizes that fit

ml.inspect(five_dimensions())
ShapeError: the shape of input 'x' is unknown.
    so far  ('...',) float32
    Try: shapes={"x": [32, 784]}  # add this to the call, with sizes that fit

ml.inspect(Linear(3), shapes=[128, 784])
UnknownOptionError: shapes must be given by name, in a dict.
    given   list
    inputs  'input'
    Try: shapes = {'input': [128, 784]}

ml.inspect(Linear(3), shapes={"input": 128})
UnknownOptionError: 128 is not a shape for input 'input'.
    needs  a list of sizes, or names of unknown sizes; '...' may only come first
    Try: shapes={'input': ["batch", 128]}

ml.inspect(norm, X, X, axis=0, parms="x")
UnexpectedInputError: cannot inspect 'norm' with these arguments: got an unexpected keyword argument 'parms'.
    takes  (x: 'Any', y: 'Any', *, axis: 'int') -> 'Any'
    given  float32[4, 5], float32[4, 5], axis=0, parms='x'
    Try: params='x'

ml.inspect(norm, X, X, axis=0, optimiser="adam")
UnknownOptionError: 'norm' takes no optimizer=.
    given              optimiser='adam'
    optimizer= is for  models, and modules of Flax, Equinox and Haiku
    Try: ml.inspect(jax.grad(norm), x)  # or a function that is the whole step

ml.inspect(Twice(), X, optimiser="adam")
UnexpectedInputError: cannot inspect 'Twice' with these arguments: got an unexpected keyword argument 'optimiser'.
    takes  (x: 'Any') -> 'Any'
    given  float32[4, 5], optimiser='adam'
    Try: optimizer='adam'

ml.inspect(Twice(), X, shape=[4])
UnexpectedInputError: cannot inspect 'Twice' with these arguments: got an unexpected keyword argument 'shape'.
    takes  (x: 'Any') -> 'Any'
    given  float32[4, 5], shape=[4]

ml.inspect(lambda x: jax.vmap(LINEAR)(x), X, program="train step")
UnknownOptionError: '<lambda>', a function around the module 'Linear', takes no program=.
    program= is for  models, and modules of Flax, Equinox and Haiku
    Try: ml.inspect(LINEAR, x, program=...)  # or jax.vmap(LINEAR) for a batch

ml.inspect(jax.vmap(LINEAR), X, optimiser="adam")
UnknownOptionError: 'Linear', a function around a module, takes no optimiser=.
    options  program, loss, optimizer
    Try: optimizer='adam'

ml.inspect(mapping(LINEAR), X, program="train step")
UnknownOptionError: 'function', a function around the module 'Linear', takes no program=.
    program= is for  models, and modules of Flax, Equinox and Haiku
    Try: ml.inspect(module, x, program=...)  # or jax.vmap(module) for a batch

ml.inspect(norm, {"a": jax.ShapeDtypeStruct(("B", 4, "D"), "bfloat16")}, X, axis=0)
ShapeError: the argument 'x' of 'norm' has a size that is not a number: 'B'.
    shape  ('B', 4, 'D')
    needs  whole numbers, or names from one call of jax.export.symbolic_shape
    Try: jax.ShapeDtypeStruct(jax.export.symbolic_shape("B, 4, D"), "bfloat16")

ml.inspect(Twice(), jax.ShapeDtypeStruct((2.5,), "float32"))
ShapeError: the argument 'x' of 'Twice' has a size that is not a whole number: 2.5.
    shape  (2.5,)
    needs  whole numbers, or names from one call of jax.export.symbolic_shape
    Try: jax.ShapeDtypeStruct((2,), "float32")  # // divides to whole numbers, / does not

ml.inspect(norm, X, X, kwargs=[0])
UnknownOptionError: the option kwargs=[0] is not valid.
    needs  a dict of arguments by name
    Try: kwargs={"axis": 0}

ml.what_if(Linear(3), X, kwargs=[0])
UnknownOptionError: the option kwargs=[0] is not valid.
    needs  a dict of arguments by name
    Try: kwargs={"axis": 0}

ml.what_if(jnp.tanh, X, name=3)
UnknownOptionError: the option name=3 is not valid.
    needs  a string
    Try: name="my step"

ml.profile(jnp.tanh, X, kwargs=[0])
UnknownOptionError: the option kwargs=[0] is not valid.
    needs  a dict of arguments by name
    Try: kwargs={"axis": 0}

ml.assert_cost(jnp.tanh, X, flops=1, name=3)
UnknownOptionError: the option name=3 is not valid.
    needs  a string
    Try: name="my step"

ml.inspect(jnp.tanh, X, name=jnp.ones(3))
UnknownOptionError: the option name=Array([1., 1., 1.], dtype=float32) is not valid.
    needs  a string
    Try: name="my step"

ml.inspect(Linear(3), X, compiler_options=[1])
UnknownOptionError: the option compiler_options=[1] is not valid.
    needs  a dict of XLA's options by name
    Try: compiler_options={"xla_cpu_enable_fast_math": True}

ml.inspect(Add(), X, X, X)
UnexpectedInputError: the model has 2 inputs but receives 3.
    inputs  'left', 'right'
    Try: ml.inspect(model, left, right)

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

ml.inspect(Linear(3), X, backend=3)
UnknownOptionError: ml.inspect takes no option 'backend', and the model has no input of this name.
    inputs   'input'
    options  <options>
    Try: ml.compile(model, backend=...)

ml.inspect(Linear(3), X, zzz=3)
UnknownOptionError: ml.inspect takes no option 'zzz', and the model has no input of this name.
    inputs   'input'
    options  <options>

ml.inspect(jnp.sum, X, axes=0)
UnexpectedInputError: cannot inspect 'sum' with these arguments: got an unexpected keyword argument 'axes'.
    takes  <signature>
    given  float32[4, 5], axes=0
    Try: axis=0

ml.inspect(jnp.tanh, X, device="cpu")
UnknownOptionError: the option device='cpu' is not valid.
    needs    a jax.Device
    present  <devices>
    Try: device=jax.devices()[0]
"""


IN_PLACE = {
    "<options>": ", ".join(OPTIONS),
    "<signature>": str(signature(jnp.sum)),
    "<devices>": ", ".join(f"{one.platform}:{one.id}" for one in jax.devices()),
}
"""Parts of the messages that depend on the versions and the machine."""


@pytest.mark.parametrize(("code", "message"), read_transcript(MESSAGES))
def test_message(code: str, message: str) -> None:
    for name, text in IN_PLACE.items():
        message = message.replace(name, text)
    assert message_of(code, globals()) == message


@pytest.mark.parametrize(
    ("shape", "advised"),
    [
        ((32 / 2, 4), "(16, 4)"),
        ((np.float32(3), 4), "(3, 4)"),
        (("B", "4", 16.0), 'jax.export.symbolic_shape("B, 4, 16")'),
        (("a b", "class", "B"), 'jax.export.symbolic_shape("size_0, class, B")'),
        (("B, C", "(", float("inf")), 'jax.export.symbolic_shape("size_0, size_1, size_2")'),
    ],
)
def test_advised_sizes_work(shape: Any, advised: str) -> None:
    with pytest.raises(ShapeError) as caught:
        ml.inspect(jnp.tanh, jax.ShapeDtypeStruct(shape, "float32"))
    advice = caught.value.diagnostics[0].advice
    assert advice.startswith(f'jax.ShapeDtypeStruct({advised}, "float32")')
    assert ml.inspect(jnp.tanh, eval(advice)).cost().rows


def test_options_match_the_signature_of_inspect() -> None:
    parameters = signature(ml.inspect).parameters.values()
    assert tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY) == OPTIONS
