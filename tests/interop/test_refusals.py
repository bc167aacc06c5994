"""Parts that cannot be imported are rejected by name, with the reason."""

from __future__ import annotations

import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from transcript import facts_of

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import LSTM, MLP, Conv2d, Flatten, Linear, Model

KEY = jax.random.key(0)
DENSE = {"kernel": np.ones((4, 8), "float32"), "bias": np.ones(8, "float32")}

SQUARE = {"kernel": np.ones((4, 4), "float32"), "bias": np.ones(4, "float32")}
PLAIN = {"w": np.ones((4, 4), "float32"), "b": np.ones(4, "float32")}


def double(x):
    return 2 * x


class Own(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, x):
        return self.layer(x) + x


class Recurrent(eqx.Module):
    layer: eqx.nn.Linear
    cell: eqx.nn.GRUCell
    scale: jax.Array


class Scaled(eqx.Module):
    layer: eqx.nn.Linear
    scale: jax.Array


class Several(eqx.Module):
    layer: eqx.nn.Linear
    scales: list[jax.Array]


class Adapted(eqx.nn.Linear):
    scale: jax.Array

    def __init__(self):
        super().__init__(4, 2, key=KEY)
        self.scale = jnp.ones(2)


class DoubledLinear(eqx.nn.Linear):
    def __call__(self, x, *, key=None):
        return 2 * super().__call__(x)


class DoubledMlp(eqx.nn.MLP):
    def __call__(self, x, *, key=None):
        return 2 * super().__call__(x)


class DoubledSequential(nnx.Sequential):
    def __call__(self, x):
        return 2 * super().__call__(x)


class DoubledLinen(linen.Sequential):
    def __call__(self, x):
        return 2 * super().__call__(x)


def pm_of(*blocks, shape=(2, 4)):
    model = Model()
    for block in blocks:
        model += block
    return ml.compile(model, shapes={"input": list(shape)})


CASES = {
    "no module": (
        lambda: ml.from_equinox(3),
        """
        UnknownOptionError: cannot convert 3 from Equinox.
            needs  an Equinox module""",
    ),
    "a module with custom code": (
        lambda: ml.from_equinox(Own(eqx.nn.Linear(4, 4, key=KEY))),
        "because  the code of Own cannot be converted",
    ),
    "a subclass of a layer": (
        lambda: ml.from_equinox(eqx.nn.Sequential([DoubledLinear(4, 4, key=KEY)])),
        "because  the code of DoubledLinear cannot be converted",
    ),
    "a subclass of a container": (
        lambda: ml.from_equinox(DoubledMlp(4, 4, 4, 1, key=KEY)),
        "because  the code of DoubledMlp cannot be converted",
    ),
    "a subclass of a Sequential of nnx": (
        lambda: ml.from_flax(DoubledSequential(nnx.Linear(4, 2, rngs=nnx.Rngs(0)))),
        "because  the code of DoubledSequential cannot be converted",
    ),
    "a subclass of a Sequential of linen": (
        lambda: ml.from_flax(DoubledLinen([linen.Dense(2)]), {"params": {"layers_0": DENSE}}),
        "because  the code of DoubledLinen cannot be converted",
    ),
    "an order that JAX has lost": (
        lambda: ml.from_flax(
            {"params": jax.tree.map(jnp.asarray, {"encoder": SQUARE, "decoder": SQUARE})}, into=pm_of(MLP(4, [4], 4))
        ),
        """
        UnknownOptionError: the order of 'decoder' and 'encoder' in Flax is unknown.
            because  both have the same shapes, and jax.tree.map and jit sort layers by their names
            blocks   'mlp_0/linear_0', 'mlp_0/linear_1'""",
    ),
    "an order of Haiku that JAX has lost": (
        lambda: ml.from_haiku(
            jax.tree.map(jnp.asarray, {"encoder/linear": PLAIN, "decoder/linear": PLAIN}), into=pm_of(MLP(4, [4], 4))
        ),
        """
        UnknownOptionError: the order of 'decoder/linear' and 'encoder/linear' in Haiku is unknown.
            because  both have the same shapes, and jax.tree.map and jit sort layers by their names
            blocks   'mlp_0/linear_0', 'mlp_0/linear_1'""",
    ),
    "a BatchNorm without its state": (
        lambda: ml.from_equinox(eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, "batch", mode="batch")[0]),
        "because  its running statistics are missing: pass state as well",
    ),
    "a function": (
        lambda: ml.from_flax(nnx.Sequential(nnx.Linear(4, 2, rngs=nnx.Rngs(0)), double)),
        "because  the code of a function cannot be converted",
    ),
    "features after images": (
        lambda: ml.from_flax(
            nnx.Sequential(nnx.Conv(3, 4, (3, 3), rngs=nnx.Rngs(0)), nnx.Linear(4, 2, rngs=nnx.Rngs(0)))
        ),
        "because  it reads the channels of images on the last axis, but blocks have channels on axis 1",
    ),
    "a norm over the first axes": (
        lambda: ml.from_flax(nnx.LayerNorm(4, reduction_axes=(0, 1), rngs=nnx.Rngs(0))),
        "because  only the last axis is supported, not reduction_axes=(0, 1)",
    ),
    "circular padding": (
        lambda: ml.from_flax(nnx.Conv(3, 4, (3, 3), padding="CIRCULAR", rngs=nnx.Rngs(0))),
        "because  only 'SAME', 'VALID' and numeric padding is supported, no mask or input_dilation",
    ),
    "a module without a path": (
        lambda: ml.from_flax(nnx.Conv(3, 4, (3, 3), padding="CIRCULAR", rngs=nnx.Rngs(0))),
        "UnknownOptionError: cannot convert the module from Flax.",
    ),
    "variables without a model": (
        lambda: ml.from_flax({"params": {"Dense_0": DENSE}}),
        """
        UnknownOptionError: cannot convert variables of Flax without a module or the argument into.
            given  variables""",
    ),
    "haiku without a model": (
        lambda: ml.from_haiku({"linear": {"w": jnp.ones((4, 8)), "b": jnp.ones(8)}}),
        """
        UnknownOptionError: cannot convert Haiku parameters: the argument into is missing.
            because  parameters do not contain the code of the function""",
    ),
    "no parameters of Haiku": (
        lambda: ml.from_haiku({"w": 3}),
        """
        UnknownOptionError: cannot convert {'w': 3} from Haiku.
            needs  a dict of dicts: module name -> parameter name -> array""",
    ),
    "an LSTM of Haiku": (
        lambda: ml.from_haiku({"lstm/linear": {"w_i": jnp.ones((4, 8))}}, into=pm_of(Linear(8))),
        """
        UnknownOptionError: cannot convert 'lstm/linear' from Haiku.
            is       a module
            because  no block has parameters for the arrays w_i""",
    ),
    "another number of layers": (
        lambda: ml.from_flax({"params": {"Dense_0": DENSE}}, into=pm_of(MLP(4, [8], 8))),
        """
        UnexpectedInputError: Flax has 1 layers of kind 'linear', but the model has 2.
            Flax   Dense_0
            model  mlp_0/linear_0, mlp_0/linear_1""",
    ),
    "other sizes": (
        lambda: ml.from_flax({"params": {"Dense_0": DENSE}}, into=pm_of(Linear(9))),
        """
        ShapeError: 'Dense_0' of Flax does not match 'linear_0.weight'.
            Dense_0          (4, 8)
            linear_0.weight  (4, 9) float32""",
    ),
    "a bias too many": (
        lambda: ml.from_flax({"params": {"Dense_0": DENSE}}, into=pm_of(Linear(8, use_bias=False))),
        """
        UnexpectedInputError: 'Dense_0' of Flax has more parameters than 'linear_0'.
            not used  bias""",
    ),
    "no compiled model": (
        lambda: ml.from_flax({"params": {"Dense_0": DENSE}}, into=Linear(8)),
        """
        UnknownOptionError: cannot put parameters into Linear(dimension=8, use_bias=True, input_size=None).
            needs  a compiled model""",
    ),
    "arrays of Equinox that no block has": (
        lambda: ml.from_equinox(
            Recurrent(eqx.nn.Linear(4, 2, key=KEY), eqx.nn.GRUCell(2, 2, key=KEY), jnp.full(2, 7.0)),
            into=pm_of(Linear(2)),
        ),
        "because  no block has parameters for the arrays scale",
    ),
    "a cell of Equinox": (
        lambda: ml.from_equinox(eqx.nn.GRUCell(2, 2, key=KEY), into=pm_of(Linear(2))),
        """
        UnknownOptionError: cannot convert 'grucell' from Equinox.
            is       GRUCell
            because  no block has parameters for the arrays bias, bias_n, weight_hh, weight_ih""",
    ),
    "an array beside the layers": (
        lambda: ml.from_equinox(Scaled(eqx.nn.Linear(4, 2, key=KEY), np.full(2, 7.0)), into=pm_of(Linear(2))),
        "because  no block has parameters for the arrays scale",
    ),
    "arrays in a list": (
        lambda: ml.from_equinox(Several(eqx.nn.Linear(4, 2, key=KEY), [jnp.ones(2)]), into=pm_of(Linear(2))),
        """
        UnknownOptionError: cannot convert 'scales.0' from Equinox.
            is       Array([1., 1.], dtype=float32)
            because  the array does not belong to a supported layer""",
    ),
    "a subclass of a layer with one array more": (
        lambda: ml.from_equinox(Adapted(), into=pm_of(Linear(2))),
        "because  no block has parameters for the arrays scale",
    ),
    "a block laid out in another way": (
        lambda: ml.from_flax({"params": {"Dense_0": DENSE}}, into=ml.compile(LSTM(3), shapes={"input": [2, 5, 4]})),
        """
        UnknownOptionError: cannot fill 'lstm' from Flax.
            block    LSTM
            because  the layout of its parameters differs from that of the library""",
    ),
    "names of nothing": (
        lambda: ml.from_flax({"params": {"Dense_0": DENSE}}, into=pm_of(Linear(8)), names={"Dense_1": "linear_0"}),
        """
        UnexpectedInputError: names={...} contains 'Dense_1', but no layer with parameters has this path.
            known  'Dense_0'""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    call, text = CASES[name]
    message = facts_of(call)
    if "\n" not in text:  # the rest shows the other library's own text of the module
        assert text in [line.strip() for line in message.splitlines()]
    else:
        assert message == textwrap.dedent(text).strip("\n")


def test_flattened_images_of_unknown_size():
    model = Model() | Conv2d(2, 3, in_channels=3)
    model += Flatten()
    model += Linear(5, input_size=32)
    conv = {"kernel": np.ones((3, 3, 3, 2), "float32"), "bias": np.ones(2, "float32")}
    dense = {"kernel": np.ones((32, 5), "float32"), "bias": np.ones(5, "float32")}
    with pytest.raises(MithrilError) as error:
        ml.from_flax({"params": {"Conv_0": conv, "Dense_0": dense}}, into=ml.compile(model))
    assert str(error.value).splitlines()[0] == (
        "cannot match the parameters of 'Dense_0' to 'linear_0': the order of its features is unknown."
    )
