"""How parameters start: the distributions of `jax.nn.initializers`, reproducible by seed and by name."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.nn import initializers as reference

import mithril_nb as ml
from mithril_nb.backends.jax.initializers import initial, stream
from mithril_nb.models import MLP, Linear
from mithril_nb.models.op import Initializer

CASES = [
    (Initializer("glorot_uniform"), (300, 500), reference.glorot_uniform()),
    (Initializer("he_normal", in_axis=1, out_axis=0), (64, 32, 5, 5), reference.he_normal(in_axis=1, out_axis=0)),
    (Initializer("lecun_normal"), (400, 300), reference.lecun_normal()),
    (Initializer("normal", scale=0.02), (400, 300), reference.normal(0.02)),
]


@pytest.mark.parametrize(("initializer", "shape", "made_by"), CASES, ids=[case[0].name for case in CASES])
def test_the_distribution_is_that_of_jax(initializer, shape, made_by):
    ours = initial(initializer, stream([3], "w"), shape)
    theirs = np.asarray(made_by(jax.random.key(0), shape))
    assert (ours.shape, ours.dtype) == (shape, np.dtype("float32"))
    # 50,000 draws or more: the quantiles of two samples of one distribution differ by about 1 % of the spread.
    at = np.linspace(0.01, 0.99, 25)
    np.testing.assert_allclose(np.quantile(ours, at), np.quantile(theirs, at), atol=0.03 * theirs.std())
    assert ours.std() == pytest.approx(theirs.std(), rel=0.01)
    if initializer.name != "normal":
        assert np.abs(ours).max() <= 1.001 * np.abs(theirs).max() or np.abs(ours).max() <= 2.3 * theirs.std()


def test_zeros_and_ones_and_nothing_else():
    assert initial(Initializer("zeros"), stream([0], "b"), (3,)).tolist() == [0, 0, 0]
    assert initial(Initializer("ones"), stream([0], "b"), (3,)).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="unknown initializer 'magic'"):
        initial(Initializer("magic"), stream([0], "b"), (3, 3))


def test_the_same_seed_gives_the_same_and_the_stream_goes_on():
    def start(backend, seed=None):
        return np.asarray(ml.compile(Linear(4, input_size=3), backend).randomize_params(seed)["weight"])

    backend = ml.JaxBackend(seed=42)
    first, second = start(backend), start(backend)
    assert not np.array_equal(first, second)
    backend.set_seed(42)
    np.testing.assert_array_equal(start(backend), first)
    np.testing.assert_array_equal(start(backend, 7), start(ml.JaxBackend(), 7))
    assert start(ml.JaxBackend(seed=-1)).shape == (3, 4)


def test_a_parameter_starts_the_same_whatever_stands_beside_it():
    short, long = (ml.compile(MLP(5, hidden, 2)).randomize_params(0) for hidden in ([4], [4, 6]))
    np.testing.assert_array_equal(short["linear_0.weight"], long["linear_0.weight"])
    assert not np.array_equal(long["linear_0.weight"][:4, :4], long["linear_1.weight"][:4, :4])


def test_an_empty_parameter_is_no_trouble():
    assert initial(Initializer("glorot_uniform"), stream([0], "w"), (0, 3)).shape == (0, 3)
