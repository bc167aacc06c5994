"""A random stack of Flax layers, converted, equals the original, or the conversion rejects a layer by its path."""

from __future__ import annotations

import random
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import mithril_nb as ml
from mithril_nb.errors import ShapeError, UnknownOptionError

KEY = jax.random.key(3)
SIZES = (3, 4)
"""Few sizes, so that time, height, width and channels often coincide."""
PLAIN = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "softmax": jax.nn.softmax,
    "log_softmax": partial(jax.nn.log_softmax, axis=-1),
    "softmax of another axis": partial(jax.nn.softmax, axis=1),
    "flatten": lambda x: x.reshape((len(x), -1)),
}
WINDOWS = ("Conv1", "Conv2", "max_pool1", "max_pool2", "avg_pool1", "avg_pool2")
LAST = ("Dense", "Embed", "LayerNorm", "RMSNorm")
KINDS = (*WINDOWS, *LAST, "BatchNorm", "GroupNorm", "Dropout", *PLAIN)


def layer_of(kind: str, channels: int, out: int, nnx_too: bool, choose: random.Random):
    """Return a layer of linen or nnx. Both take the same arguments, but nnx needs the number of channels as well."""
    library, rest = (nnx, {"rngs": nnx.Rngs(0)}) if nnx_too else (linen, {})
    sizes = (channels, out) if nnx_too else (out,)
    norm = (channels,) if nnx_too else ()
    axes = int(kind[-1]) if kind[-1] in "12" else 0
    padding = choose.choice(("SAME", "VALID"))
    match kind.rstrip("12"):
        case "Conv":
            stride, dilation = choose.choice(((1, 1), (2, 1), (1, 2)))
            options = {"padding": padding, "strides": stride, "kernel_dilation": dilation}
            return library.Conv(*sizes, (choose.choice((1, 2, 3)),) * axes, **options, **rest)
        case "max_pool" | "avg_pool" as pool:
            padding = padding if pool == "max_pool" else "VALID"
            strides = choose.choice((None, (2,) * axes))
            return partial(getattr(linen, pool), window_shape=(2,) * axes, strides=strides, padding=padding)
        case "Dense":
            return library.Linear(*sizes, **rest) if nnx_too else linen.Dense(*sizes)
        case "Embed":
            return library.Embed(5, out, **rest)
        case "LayerNorm":
            return library.LayerNorm(*norm, use_fast_variance=False, **rest)
        case "RMSNorm":
            return library.RMSNorm(*norm, use_fast_variance=False, **rest)
        case "BatchNorm":
            return library.BatchNorm(*norm, use_running_average=True, **rest)
        case "GroupNorm":
            return library.GroupNorm(*norm, num_groups=1, group_size=None, use_fast_variance=False, **rest)
        case "Dropout":
            return library.Dropout(0.5, deterministic=True, **rest)
        case _:
            return PLAIN[kind]


def randomized(tree):
    """Return weights that keep the scale, and other arrays without zeros, ones and negative values."""
    numbers = np.random.default_rng(3)
    return jax.tree.map(lambda leaf: jnp.asarray(0.2 + numbers.random(leaf.shape, "float32") / leaf.ndim), tree)


def draw(choose: random.Random):
    """Return the kinds of the layers of a stack, the stack's output for an input, the input, and its conversion."""
    is_nnx, starts_with_integers = choose.random() < 0.5, choose.random() < 0.3
    shape = (2, *(choose.choice(SIZES) for _ in range(choose.choice((1, 2, 2, 3, 3)))))
    kinds, layers = [], []
    x = np.asarray(np.random.default_rng(choose.randrange(99)).standard_normal(shape), "float32")
    x = jnp.asarray(np.abs(x * 2).astype("int32") % 5 if starts_with_integers else x)
    value = x
    for position in range(choose.randint(1, 6)):
        kind = "Embed" if starts_with_integers and position == 0 else choose.choice(KINDS)
        if kind in WINDOWS and int(kind[-1]) != value.ndim - 2:  # Flax accepts more batch axes, or none
            continue
        layer = layer_of(kind, value.shape[-1], choose.choice(SIZES), is_nnx, choose)
        try:
            whole = nnx.Sequential(layer) if is_nnx else linen.Sequential([layer])
            after = whole(value) if is_nnx else whole.init_with_output(KEY, value)[0]
        except Exception:  # Flax cannot apply the layer to this value
            continue
        if after.size and after.ndim > 1:
            kinds, layers, value = [*kinds, kind], [*layers, layer], after
    if not layers:
        return draw(choose)
    if is_nnx:
        graph, params, rest = nnx.split(nnx.Sequential(*layers), (nnx.Param, nnx.BatchStat), ...)
        module = nnx.merge(graph, randomized(params), rest)
        return kinds, x, module(x), partial(ml.from_flax, module)
    module = linen.Sequential(layers)
    variables = randomized(module.init(KEY, x))
    return kinds, x, module.apply(variables, x), partial(ml.from_flax, module, variables)


def channels_first(x):
    return jnp.moveaxis(x, -1, 1)


def test_random_stacks_are_equal_or_rejected(stress):
    equal, rejected, unnamed, choose = 0, 0, 0, random.Random(7)
    for _ in range(stress.size(short=40, long=600)):
        kinds, x, theirs, convert = draw(choose)
        first = next((kind for kind in kinds if kind in (*WINDOWS, *LAST)), "")
        try:
            model, params, state = convert()
        except UnknownOptionError as error:
            unnamed += "layers" not in str(error)  # the path of the layer
            rejected += 1
            continue
        mine = channels_first(x) if first in WINDOWS else x
        try:
            pm = ml.compile(model, shapes={"input": list(x.shape) if mine is x else list(mine.shape)})
        except ShapeError as error:
            # Without another layer, the number of axes is unknown, and a norm reads (batch, channels).
            is_alone = not first and {"BatchNorm", "GroupNorm"} & {*kinds} and x.ndim > 2
            if is_alone and "norm" in str(error):
                continue
            raise
        out = pm.evaluate(params, {"input": mine}, **({"state": state} if state else {}))["output"]
        theirs = channels_first(theirs) if {*kinds} & {*WINDOWS} else theirs
        assert out.shape == theirs.shape, (kinds, x.shape)
        np.testing.assert_allclose(out, theirs, atol=2e-5, rtol=2e-5, err_msg=f"{kinds} {x.shape}")
        equal += 1
    stress.report(equal=equal, rejected=rejected)
    assert not unnamed
    assert equal > stress.size(12, 200)


REJECTED = {
    "a Dense after a Conv": ([linen.Conv(4, (3,)), linen.Dense(4)], (2, 4, 4), "layers_1"),
    "a LayerNorm after a pool": (
        [partial(linen.max_pool, window_shape=(1, 1)), linen.LayerNorm()],
        (2, 4, 4, 4),
        "layers_1",
    ),
    "an Embed after a Conv": ([linen.Conv(4, (3,)), linen.Embed(4, 4)], None, "layers_1"),
    "convolutions over one and two axes": ([linen.Conv(4, (3, 3)), linen.Conv(4, (3,))], (2, 4, 4, 4), "layers_1"),
    "a Conv over more axes": ([linen.Conv(4, (3,)), linen.Conv(4, (3, 3))], (2, 4, 4), "layers_1"),
    "groups over some axes": (
        [linen.Dense(4), linen.GroupNorm(2, reduction_axes=(-1,))],
        (2, 4, 4),
        "layers_1",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_stacks_that_are_rejected(name):
    layers, shape, path = REJECTED[name]
    module = linen.Sequential(layers)
    variables = module.init(KEY, jnp.ones(shape)) if shape else {
        "params": {"layers_0": {"kernel": jnp.ones((3, 4, 4)), "bias": jnp.ones(4)},
                   "layers_1": {"embedding": jnp.ones((4, 4))}}}  # fmt: skip
    with pytest.raises(UnknownOptionError, match=f"cannot convert '{path}' from Flax"):
        ml.from_flax(module, variables)
