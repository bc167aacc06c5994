"""Weights of a library with channels last, after images: equal outputs or an error, never other numbers."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen
from transcript import without_advice

import mithril_nb as ml
from mithril_nb.errors import ShapeError
from mithril_nb.models import (
    Add,
    BatchNorm,
    BatchNorm2d,
    Concat,
    Conv1d,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    GlobalAvgPool2d,
    GroupNorm,
    LayerNorm,
    Linear,
    MaxPool2d,
    Mean,
    Model,
    Multiply,
    Relu,
    Reshape,
    Sigmoid,
    Softmax,
    SwapAxes,
    Tanh,
    Transpose,
)

KEY = jax.random.key(0)


def x_of(*shape):
    return jnp.asarray(np.random.default_rng(1).standard_normal(shape, "float32"))


def randomized(tree):
    """Return values without zeros, ones and duplicates."""
    random = np.random.default_rng(3)
    return jax.tree.map(lambda leaf: jnp.asarray(0.2 + random.random(leaf.shape, "float32"), leaf.dtype), tree)


def conv(x, size=3, kernel=(3, 3)):
    return linen.Conv(size, kernel)(x)


def norm(x, kind, **options):
    given = {"use_running_average": True} if kind is linen.BatchNorm else {"use_fast_variance": False}
    return kind(**given, **options)(x)


def flat(x):
    return x.reshape(x.shape[0], -1)


def chain(*blocks):
    model = Model()
    for block in blocks:
        model += block
    return model


def skip():
    """Return a convolution followed by a convolution with a skip connection."""
    model = Model() | Conv2d(3, 3)(output="a")
    model |= Conv2d(3, 3)(input="a", output="b")
    model |= Add()(left="b", right="a")
    return model


def two(join, before=None):
    """Return two convolutions of one input, each followed by another block, concatenated."""
    model = Model() | Conv2d(3, 3)(input="input", output="a")
    model |= Conv2d(3, 3)(input="input", output="b")
    ends = ["a", "b"]
    if before is not None:
        model |= before()(input="a", output="c")
        model |= before()(input="b", output="d")
        ends = ["c", "d"]
    first, second = (port.name for port in join.inputs if port.role == "data")
    model |= join(**{first: ends[0], second: ends[1]})
    return model


def gated():
    """Return a squeeze-and-excite block: channels multiplied by a gate computed from their means."""
    model = Model() | Conv2d(3, 3)(output="a")
    model |= GlobalAvgPool2d()(input="a", output="means")
    model |= Linear(3)(input="means", output="gate")
    model |= Sigmoid()(input="gate", output="open")
    model |= Reshape((2, 3, 1, 1))(input="open", output="shaped")
    model |= Multiply()(left="a", right="shaped")
    return model


def series():
    """Return a convolution over a series plus the series itself, so that the input is an image too."""
    model = Model() | Conv1d(3, 3)(input="input", output="a")
    model |= Add()(left="a", right="input")
    return model


def with_skip(x):
    x = conv(x)
    return conv(x) + x


def with_gate(x):
    x = conv(x)
    gate = jax.nn.sigmoid(linen.Dense(3)(x.mean((1, 2))))
    return x * gate[:, None, None, :]


def tokens(x):
    """`(batch, height width, channels)`."""
    return x.reshape(x.shape[0], -1, x.shape[-1])


def mixed(x):
    x = norm(tokens(conv(x)), linen.LayerNorm)
    x = linen.Dense(48)(x.swapaxes(1, 2)).swapaxes(1, 2)
    return flat(linen.Dense(3)(x))


def next_block(x):
    x = conv(x)
    return x + linen.Dense(3)(norm(x, linen.LayerNorm))


def next_blocks():
    model = Model() | Conv2d(3, 3)(output="a")
    model |= Transpose((0, 2, 3, 1))(input="a", output="b")
    model |= LayerNorm(eps=1e-6)(input="b", output="c")
    model |= Linear(3)(input="c", output="d")
    model |= Transpose((0, 3, 1, 2))(input="d", output="e")
    model |= Add()(left="a", right="e")
    return model


def joined(x, axis=-1):
    return jnp.concatenate([conv(x), conv(x)], axis)


IMAGES = (2, 8, 6, 3)
RIGHT = {
    "plain": (lambda x: flat(linen.relu(conv(x))), lambda: chain(Conv2d(3, 3), Relu(), Flatten())),
    "nothing before": (flat, lambda: chain(Flatten())),
    "a way around": (
        lambda x: flat(linen.relu(with_skip(x))),
        lambda: chain(skip(), Relu(), Dropout(0.1), Flatten()),
    ),
    "norms of channels": (
        lambda x: flat(norm(norm(conv(x), linen.BatchNorm), linen.GroupNorm, num_groups=3)),
        lambda: chain(Conv2d(3, 3), BatchNorm2d(), GroupNorm(3, eps=1e-6), Flatten()),
    ),
    "LayerNorm of rows": (
        lambda x: linen.tanh(norm(flat(conv(x)), linen.LayerNorm)),
        lambda: chain(Conv2d(3, 3), Flatten(), LayerNorm(eps=1e-6), Tanh()),
    ),
    "BatchNorm of rows": (
        lambda x: norm(flat(conv(x)), linen.BatchNorm),
        lambda: chain(Conv2d(3, 3), Flatten(), BatchNorm()),
    ),
    "Softmax of rows": (lambda x: jax.nn.softmax(flat(conv(x))), lambda: chain(Conv2d(3, 3), Flatten(), Softmax())),
    "Reshape": (lambda x: flat(linen.relu(conv(x))), lambda: chain(Conv2d(3, 3), Relu(), Reshape((2, -1)))),
    "Reshape of unsaid sizes": (lambda x: flat(conv(x)), lambda: chain(Conv2d(3, 3), Reshape((2, 3, -1)), Flatten())),
    "rows that become an image again": (
        lambda x: flat(conv(flat(conv(x)).reshape(x.shape))),
        lambda: chain(Conv2d(3, 3), Flatten(), Reshape((2, 3, 8, 6)), Conv2d(3, 3), Flatten()),
    ),
    "Concat of channels": (
        lambda x: flat(joined(x)),
        lambda: chain(two(Concat(2, axis=1)), MaxPool2d(1), Flatten()),
    ),
    "Concat of rows of images": (
        lambda x: flat(joined(x, 1)),
        lambda: chain(two(Concat(2, axis=2)), Flatten()),
    ),
    "a sum of rows": (
        lambda x: flat(conv(x)) + flat(conv(x)),
        lambda: two(Add(), Flatten),
    ),
    "the mean of windows": (lambda x: conv(x).mean((1, 2)), lambda: chain(Conv2d(3, 3), Mean((2, 3)))),
    "the mean of a row of windows": (
        lambda x: flat(conv(x).mean(1)),
        lambda: chain(Conv2d(3, 3), Mean(2), Flatten()),
    ),
    "the mean of channels": (lambda x: flat(conv(x).mean(-1)), lambda: chain(Conv2d(3, 3), Mean(1), Flatten())),
    "a pool of all": (lambda x: conv(x).mean((1, 2)), lambda: chain(Conv2d(3, 3), GlobalAvgPool2d())),
    "a gate": (lambda x: flat(with_gate(x)), lambda: chain(gated(), Flatten())),
    "channels moved to the end": (
        lambda x: flat(conv(x)),
        lambda: chain(Conv2d(3, 3), Transpose((0, 2, 3, 1)), Flatten()),
    ),
    "height and width swapped": (
        lambda x: flat(conv(x).swapaxes(1, 2)),
        lambda: chain(Conv2d(3, 3), SwapAxes(2, 3), Flatten()),
    ),
    "tokens, mixed": (
        mixed,
        lambda: chain(Conv2d(3, 3), Flatten(2), SwapAxes(1, 2), LayerNorm(eps=1e-6), SwapAxes(1, 2), Linear(48),
                      SwapAxes(1, 2), Linear(3), Flatten()),
    ),
    "norms of pixels": (lambda x: flat(next_block(x)), lambda: chain(next_blocks(), Flatten())),
    "a series": (lambda x: flat(linen.Conv(3, (3,))(x) + x), lambda: chain(series(), Flatten()), (2, 7, 3)),
    "rows that were transposed before": (
        lambda x: jnp.concatenate([flat(conv(x)), flat(conv(x))], -1),
        lambda: two(Concat(2, axis=1), lambda: chain(Transpose((0, 2, 3, 1)), Flatten())),
    ),
}  # fmt: skip


class Net(linen.Module):
    """The layers before the last one, and the last one."""

    body: Callable[[Any], Any]

    @linen.compact
    def __call__(self, x):
        x = self.body(x)
        return linen.Dense(5)(x)


def compare(model, x, imported, theirs):
    """Compare the output of a model, with weights that are imported into it, with that of the library."""
    pm = ml.compile(model, shapes={"input": list(x.shape)})
    _, params, state = imported(into=pm)
    mine = pm.evaluate(params, {"input": x}, **({"state": state} if state else {}))["output"]
    np.testing.assert_allclose(mine, theirs, atol=1e-5, rtol=1e-5)


def differ(module, model, x, to_first=True):
    variables = randomized(module.init(KEY, x))
    imported = functools.partial(ml.from_flax, variables)
    compare(model, jnp.moveaxis(x, -1, 1) if to_first else x, imported, module.apply(variables, x))


@pytest.mark.parametrize("name", RIGHT)
def test_equal_outputs_after_images(name):
    body, model, *shape = RIGHT[name]
    differ(Net(body), chain(model(), Linear(5)), x_of(*(shape or [IMAGES])[0]))


def test_equal_outputs_without_images():
    module = Net(lambda x: flat(linen.Dense(3)(x)))
    differ(module, chain(Linear(3), Flatten(), Linear(5)), x_of(2, 4, 6), to_first=False)


def test_equal_outputs_of_haiku():
    def there(x):
        x = hk.Conv2D(3, 3)(x)
        x = hk.LayerNorm(-1, True, True, eps=1e-6)(hk.Flatten()(jax.nn.relu(hk.Conv2D(3, 3)(x) + x)))
        return hk.Linear(5)(x)

    x = x_of(*IMAGES)
    function = hk.without_apply_rng(hk.transform(there))
    params = randomized(function.init(KEY, x))
    model = chain(skip(), Relu(), Flatten(), LayerNorm(eps=1e-6), Linear(5))
    imported = functools.partial(ml.from_haiku, params)
    compare(model, jnp.moveaxis(x, -1, 1), imported, function.apply(params, x))


REFUSED = {
    "Concat of rows": (
        lambda x: jnp.concatenate([flat(conv(x)), flat(conv(x))], -1),
        lambda: two(Concat(2, axis=1), Flatten),
        """
        cannot match the parameters of 'Dense_0' to 'linear_0': the order of its features is unknown.
            because  'model_0/concat_0' changes the order of the elements of an image in an unknown way""",
    ),
    "Reshape that joins the batch": (
        lambda x: conv(x).reshape(4, -1),
        lambda: chain(Conv2d(3, 3), Reshape((4, -1))),
        "because  'model_0/reshape_0' changes the order of the elements of an image in an unknown way",
    ),
    "channels in the middle": (
        lambda x: flat(conv(x)),
        lambda: chain(Conv2d(3, 3), Transpose((0, 2, 1, 3)), Flatten()),
        "because  'model_0/transpose_0' changes the order of the elements of an image in an unknown way",
    ),
    "groups of rows": (
        lambda x: norm(flat(conv(x)), linen.GroupNorm, num_groups=3),
        lambda: chain(Conv2d(3, 3), Flatten(), GroupNorm(3)),
        "because  'model_0/group_norm_0' changes the order of the elements of an image in an unknown way",
    ),
    "features of an image": (
        conv,
        lambda: chain(Conv2d(3, 3)),
        "because  'linear_0' reads an image with channels on axis 1, but the library has channels on the last axis",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unknown_orders_are_rejected(name):
    body, model, text = REFUSED[name]
    with pytest.raises(ShapeError) as error:
        differ(Net(body), chain(model(), Linear(5)), x_of(*IMAGES))
    if text.startswith("because"):
        assert text in [line.strip() for line in str(error.value).splitlines()]
    else:
        assert without_advice(str(error.value)) == textwrap.dedent(text).strip("\n")


def test_groups_of_rows_are_rejected():
    class Ends(linen.Module):
        @linen.compact
        def __call__(self, x):
            return norm(flat(conv(x)), linen.GroupNorm, num_groups=3)

    with pytest.raises(ShapeError) as error:
        differ(Ends(), chain(Conv2d(3, 3), Flatten(), GroupNorm(3)), x_of(*IMAGES))
    assert without_advice(str(error.value)) == (
        "cannot match the parameters of 'GroupNorm_0' to 'group_norm_0': the order of its features is unknown.\n"
        "    because  'group_norm_0' works on groups of features from an image"
    )


class Decoder(linen.Module):
    """Features that become an image."""

    @linen.compact
    def __call__(self, x):
        return jnp.moveaxis(conv(linen.relu(linen.Dense(48)(x).reshape(-1, 4, 4, 3))), -1, 1)


def test_images_made_of_features_are_rejected():
    model = chain(Linear(48), Reshape((2, 3, 4, 4)), Relu(), Conv2d(3, 3))
    with pytest.raises(ShapeError) as error:
        differ(Decoder(), model, x_of(2, 5))
    assert without_advice(str(error.value)) == (
        "the order of the channels of 'Conv_0' is unknown.\n"
        "    in the model    'conv2d_0' reads channels on axis 1 of the output of 'reshape_0'\n"
        "    in the library  'Conv_0' reads channels on the last axis"
    )


def test_advised_image_of_features_works():
    model = chain(Linear(48), Reshape((2, 4, 4, 3)), Transpose((0, 3, 1, 2)), Relu(), Conv2d(3, 3))
    differ(Decoder(), model, x_of(2, 5))


FEATURES_LAST = {
    "Linear and Conv": (lambda x: linen.Conv(4, (3,))(linen.Dense(4)(x)), Linear(4), Conv1d(4, 3)),
    "Linear, Relu and Conv": (
        lambda x: linen.Conv(4, (3,))(linen.relu(linen.Dense(4)(x))), chain(Linear(4), Relu()), Conv1d(4, 3),
    ),
    "LayerNorm and Conv": (
        lambda x: linen.Conv(4, (3,))(norm(x, linen.LayerNorm)), LayerNorm(eps=1e-6), Conv1d(4, 3),
    ),
    "Linear and BatchNorm": (lambda x: norm(linen.Dense(4)(x), linen.BatchNorm), Linear(4), BatchNorm()),
    "Linear and GroupNorm": (
        lambda x: norm(linen.Dense(4)(x), linen.GroupNorm, num_groups=2), Linear(4), GroupNorm(2, eps=1e-6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES_LAST)
def test_features_on_the_last_axis_are_not_read_as_channels(name):
    # All sizes are equal, so that only the order of the axes differs.
    body, before, layer = FEATURES_LAST[name]
    module, x = Net(body), x_of(2, 4, 4)
    with pytest.raises(ShapeError, match="reads channels on axis 1 of the output of '"):
        differ(module, chain(before, layer, Linear(5)), x, to_first=False)
    swapped = chain(before, Transpose((0, 2, 1)), layer, Transpose((0, 2, 1)), Linear(5))
    differ(module, swapped, x, to_first=False)


def test_an_embedding_is_not_read_as_channels_by_a_conv():
    module, x = linen.Sequential([linen.Embed(5, 4), linen.Conv(4, (3,))]), jnp.arange(8).reshape(2, 4) % 5
    with pytest.raises(ShapeError, match="'conv1d_0' reads channels on axis 1 of the output of 'embedding_0'"):
        differ(module, chain(Embedding(5, 4), Conv1d(4, 3)), x, to_first=False)


def test_channels_moved_to_the_end_are_not_read_on_axis_1():
    body = lambda x: linen.Conv(4, (3,))(linen.Conv(4, (3,))(x))  # noqa: E731
    with pytest.raises(ShapeError, match="reads channels on axis 1 of the output of a Transpose"):
        differ(Net(body), chain(Conv1d(4, 3), Transpose((0, 2, 1)), Conv1d(4, 3), Linear(5)), x_of(2, 4, 4))


def test_an_image_of_one_channel_made_of_features():
    class Grey(linen.Module):
        @linen.compact
        def __call__(self, x):
            return jnp.moveaxis(conv(linen.Dense(16)(x).reshape(-1, 4, 4, 1)), -1, 1)

    differ(Grey(), chain(Linear(16), Reshape((2, 1, 4, 4)), Conv2d(3, 3)), x_of(2, 5))
