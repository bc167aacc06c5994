"""Initial values: the distributions of `jax.nn.initializers`, reproducible by seed and name."""

from __future__ import annotations

import os
import textwrap

import jax
import numpy as np
import pytest
from jax.nn import initializers as reference

import mithril_nb as ml
from mithril_nb.backends.jax.initializers import PIECE, Wanted, drawn, stream
from mithril_nb.errors import ShapeError
from mithril_nb.models import MLP, Linear, Repeat
from mithril_nb.models.initializers import INITIALIZERS
from mithril_nb.models.op import Initializer

FANS = ("glorot_uniform", "glorot_normal", "he_uniform", "he_normal", "lecun_uniform", "lecun_normal")
CASES = [
    *((Initializer(name), (300, 500), getattr(reference, name)()) for name in FANS),
    *((Initializer(name, 1, 0), (64, 32, 5, 5), getattr(reference, name)(in_axis=1, out_axis=0)) for name in FANS),
    (Initializer("normal", scale=0.02), (400, 300), reference.normal(0.02)),
    (Initializer("truncated_normal", scale=0.5), (400, 300), reference.truncated_normal(0.5)),
    (Initializer("uniform", scale=3.0), (400, 300), reference.uniform(3.0)),
    (Initializer("orthogonal", scale=2.0), (400, 300), reference.orthogonal(2.0)),
    (Initializer("orthogonal"), (300, 400), reference.orthogonal()),
    (Initializer("orthogonal", 1, 0), (64, 32, 5, 5), reference.orthogonal(column_axis=0)),
]


def initial(*wanted):
    """Return the initial value of one parameter: its initializer, stream, shape and name."""
    return next(drawn([Wanted(*wanted)]))


def names(case):
    return f"{case[0].name}-{'x'.join(map(str, case[1]))}"


@pytest.mark.parametrize(("initializer", "shape", "made_by"), CASES, ids=map(names, CASES))
def test_distribution_equals_jax(initializer, shape, made_by):
    mine = initial(initializer, stream([3], "w"), shape)
    theirs = np.asarray(made_by(jax.random.key(0), shape))
    assert (mine.shape, mine.dtype) == (shape, np.dtype("float32"))
    # 50,000 draws or more: the quantiles of two samples of one distribution differ by about 1 % of the spread.
    at = np.linspace(0.01, 0.99, 25)
    np.testing.assert_allclose(np.quantile(mine, at), np.quantile(theirs, at), atol=0.03 * theirs.std())
    assert mine.mean() == pytest.approx(theirs.mean(), abs=0.02 * float(theirs.std()))
    assert mine.std() == pytest.approx(theirs.std(), rel=0.01)
    if initializer.name not in ("normal", "orthogonal"):  # all others end somewhere, and 50,000 draws come near to it
        assert np.abs(mine).max() == pytest.approx(np.abs(theirs).max(), rel=0.001)


@pytest.mark.parametrize("shape", [(400, 300), (300, 400), (1, 5), (5, 1), (64, 64)], ids=str)
def test_orthogonal_initializer_is_orthogonal(shape):
    q = initial(Initializer("orthogonal"), stream([3], "w"), shape).astype("float64")
    gram = q.T @ q if shape[0] >= shape[1] else q @ q.T
    np.testing.assert_allclose(gram, np.eye(min(shape)), atol=1e-6)


def test_orthogonal_convolution_windows_are_orthogonal():
    q = initial(Initializer("orthogonal", 1, 0), stream([3], "w"), (16, 8, 3, 3)).reshape(16, -1)
    np.testing.assert_allclose(q @ q.T, np.eye(16), atol=1e-6)


def test_orthogonal_determinant_has_either_sign():
    starts = [initial(Initializer("orthogonal"), stream([seed], "w"), (3, 3)) for seed in range(20)]
    signs = {round(float(np.linalg.det(start))) for start in starts}
    assert signs == {-1, 1}


def test_constant_initializers():
    def start(**given):
        return initial(Initializer(**given), stream([0], "b"), (3,)).tolist()

    assert start(name="zeros") == [0, 0, 0]
    assert start(name="ones") == [1, 1, 1]
    assert start(name="constant", scale=0.5) == [0.5, 0.5, 0.5]
    assert start(name="constant", scale=0.5, shift=2) == [2.5, 2.5, 2.5]
    with pytest.raises(ValueError, match="unknown initializer 'magic'"):
        initial(Initializer("magic"), stream([0], "b"), (3, 3))


@pytest.mark.parametrize("name", sorted(set(INITIALIZERS) - {"zeros", "ones"}))
def test_every_initializer_scales_and_shifts(name):
    plain, moved = (initial(Initializer(name, scale=s, shift=b), stream([0], "w"), (4, 3)) for s, b in ((1, 0), (3, 2)))
    np.testing.assert_allclose(moved, 3 * plain + 2, rtol=1e-5)


def test_seed_is_reproducible_and_the_stream_advances():
    def start(backend, seed=None):
        return np.asarray(ml.compile(Linear(4, input_size=3), backend).randomize_params(seed)["weight"])

    backend = ml.JaxBackend(seed=42)
    first, second = start(backend), start(backend)
    assert not np.array_equal(first, second)
    backend.set_seed(42)
    np.testing.assert_array_equal(start(backend), first)
    np.testing.assert_array_equal(start(backend, 7), start(ml.JaxBackend(), 7))
    assert start(ml.JaxBackend(seed=-1)).shape == (3, 4)


def test_the_numbers_are_the_same_on_every_machine():
    shape = (2, 3)
    uniform = initial(Initializer("uniform"), stream([7], "linear_0.weight"), shape)
    normal = initial(Initializer("normal"), stream([7], "linear_0.weight"), shape)
    np.testing.assert_allclose(uniform, UNIFORM, rtol=1e-6)
    np.testing.assert_allclose(normal, NORMAL, rtol=1e-6)


UNIFORM = [[0.38028365, 0.90392542, 0.29606366], [0.81693226, 0.19427943, 0.89573854]]
NORMAL = [[-0.49192980, 1.71253967, 0.41481325], [-1.21568537, 0.09897047, -1.25501454]]


@pytest.mark.parametrize("initializer", [Initializer("normal"), Initializer("he_uniform"), Initializer("orthogonal")])
def test_numbers_do_not_depend_on_threads(initializer, monkeypatch):
    shape = (3 * PIECE // 128, 128) if initializer.name != "orthogonal" else (1100, 1000)
    wanted = [Wanted(initializer, stream([1], name), shape, name) for name in ("a", "b")]
    starts = []
    for count in (1, 3):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        starts.append(list(drawn(wanted)))
    for other in starts[1:]:
        for one, same in zip(starts[0], other, strict=True):
            np.testing.assert_array_equal(one, same)
    flat = starts[0][0].reshape(-1)
    assert not np.array_equal(flat[:1000], flat[PIECE : PIECE + 1000])


def test_values_do_not_depend_on_other_blocks():
    short, long = (ml.compile(MLP(5, hidden, 2)).randomize_params(0) for hidden in ([4], [4, 6]))
    np.testing.assert_array_equal(short["linear_0.weight"], long["linear_0.weight"])
    assert not np.array_equal(long["linear_0.weight"][:4, :4], long["linear_1.weight"][:4, :4])


def test_empty_parameter():
    for name in INITIALIZERS:
        assert initial(Initializer(name), stream([0], "w"), (0, 3)).shape == (0, 3)
        assert initial(Initializer(name), stream([0], "w"), (3, 0)).shape == (3, 0)


@pytest.mark.parametrize("name", ["he_normal", "orthogonal"])
def test_repeated_block_initializes_like_single_blocks(name):
    model = Repeat(Linear(64), 50)
    model.set_initializers({"repeat.body.weight": name})
    start = np.asarray(ml.compile(model, shapes={"input": [2, 64]}).randomize_params(0)["repeat.body.weight"])
    assert start.shape == (50, 64, 64)
    assert start.std() == pytest.approx(np.sqrt((2 if name == "he_normal" else 1) / 64), rel=0.01)
    if name == "orthogonal":
        np.testing.assert_allclose(start[7].T @ start[7], np.eye(64), atol=1e-5)


def test_formula_needs_two_axes():
    with pytest.raises(ShapeError) as caught:
        initial(Initializer("he_normal"), stream([0], "b"), (3,), "linear_0.bias")
    assert f"{type(caught.value).__name__}: {caught.value}" == textwrap.dedent("""\
        ShapeError: cannot initialize 'linear_0.bias' of shape (3,) with 'he_normal'.
            needs  an input axis and an output axis: axes -2 and -1
            Try: model.set_initializers({'linear_0.bias': "normal(0.02)"})""")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_initial_values_have_the_model_dtype(dtype):
    start = ml.compile(Linear(4, input_size=3), ml.JaxBackend(dtype=dtype)).randomize_params(0)
    assert {str(array.dtype) for array in start.values()} == {dtype}


def test_nested_repeats_initialize_separately():
    pm = ml.compile(Repeat(Repeat(Linear(64, input_size=64), 5), 3), shapes={"input": [2, 64]})
    weight = next(value for name, value in pm.randomize_params(0).items() if name.endswith("weight"))
    assert weight.shape == (3, 5, 64, 64)
    alone = ml.compile(Linear(64, input_size=64)).randomize_params(0)["weight"]
    np.testing.assert_allclose(np.std(weight, axis=(2, 3)), np.std(alone), rtol=0.1)
