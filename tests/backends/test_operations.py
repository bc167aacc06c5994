"""The operations of a backend compared with NumPy: every name in the table, and the aliases."""

import math

import jax
import numpy as np
import pytest
from scipy import special

import mithril_nb as ml
from mithril_nb.backends.backend import MithrilWarning
from mithril_nb.backends.jax.operations import OPERATIONS, SPELLINGS
from mithril_nb.errors import UnknownOptionError

backend = ml.JaxBackend(seed=3)
A = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]], "float32")
B = np.array([[2.0, 4.0, -0.5], [1.0, -3.0, 8.0]], "float32")
P, TRUE, OTHER = np.abs(A), A > 0, B > 0
ROWS = np.array([1, 0, 1])
LABELS = np.array([2, 0])


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def like_numpy(names: str, *arrays, **options):
    """Return cases of operations with the names that NumPy has for them."""
    return {name: (arrays, options, getattr(np, name)(*arrays, **options)) for name in names.split()}


CASES = {
    **like_numpy("add subtract multiply divide floor_divide remainder maximum minimum", A, B),
    **like_numpy("equal not_equal less less_equal greater greater_equal", A, B),
    **like_numpy("negative abs sign square exp expm1 sin cos tan floor ceil tanh max prod var transpose", A),
    **like_numpy("sqrt log log1p", P),
    **like_numpy("logical_and logical_or", TRUE, OTHER),
    **like_numpy("logical_not", TRUE),
    **like_numpy("isnan nan_to_num", np.array([np.nan, 1.0], "float32")),
    **like_numpy("isfinite", np.array([np.inf, 1.0], "float32")),
    **like_numpy("power", P, 2),
    **like_numpy("round", A, decimals=1),
    **like_numpy("clip", A, -1, 1),
    **like_numpy("where", TRUE, A, B),
    **like_numpy("matmul", A, B.T),
    **like_numpy("dot outer", A[0], B[0]),
    **like_numpy("einsum", "ij,kj->ik", A, B),
    **like_numpy("sum min std", A, axis=0),
    **like_numpy("argmax argmin cumsum", A, axis=1),
    **like_numpy("mean", A, axis=1, keepdims=True),
    **like_numpy("any all", TRUE, axis=0),
    **like_numpy("argsort sort", A),
    **like_numpy("reshape", A, shape=(3, 2)),
    **like_numpy("swapaxes", A, 0, 1),
    **like_numpy("stack", [A, B], axis=1),
    **like_numpy("split", A, 3, axis=1),
    **like_numpy("squeeze", A[None]),
    **like_numpy("expand_dims", A, 1),
    **like_numpy("broadcast_to", A[0], shape=(2, 3)),
    **like_numpy("tile", A, 2),
    **like_numpy("repeat", A, 2, axis=0),
    **like_numpy("flip", A, axis=1),
    **like_numpy("pad", A, 1),
    **like_numpy("take", A, ROWS, axis=0),
    "cast": ((A, ml.int32), {}, A.astype("int32")),
    "logsumexp": ((A,), {"axis": 1}, special.logsumexp(A, 1)),
    "norm": ((A,), {"axis": 1}, np.linalg.norm(A, axis=1)),
    "topk": ((A, 2), {}, np.sort(A, -1)[:, :0:-1]),
    "relu": ((A,), {}, np.maximum(A, 0)),
    "leaky_relu": ((A,), {"negative_slope": 0.1}, np.where(A > 0, A, 0.1 * A)),
    "elu": ((A,), {}, np.where(A > 0, A, np.expm1(A))),
    "gelu": ((A,), {}, gelu(A)),
    "silu": ((A,), {}, A * special.expit(A)),
    "softplus": ((A,), {}, np.log1p(np.exp(A))),
    "sigmoid": ((A,), {}, special.expit(A)),
    "softmax": ((A,), {}, special.softmax(A, -1)),
    "log_softmax": ((A,), {}, special.log_softmax(A, -1)),
    "cross_entropy": ((A, LABELS), {}, -special.log_softmax(A, -1)[[0, 1], LABELS].mean()),
    "cross_entropy_grad": ((A, LABELS), {}, (special.softmax(A, -1) - np.eye(3)[LABELS]) / 2),
    "concat": (([A, B],), {"axis": 1}, np.concatenate([A, B], 1)),
    "flatten": ((A[None],), {"start_dim": 1}, A.reshape(1, 6)),
    "one_hot": ((ROWS, 3), {}, np.eye(3)[ROWS]),
}


def test_every_operation_has_a_case():
    assert CASES.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("name", CASES)
def test_operation(name: str):
    arrays, options, expected = CASES[name]
    output = getattr(backend, name)(*jax.tree.map(given, arrays), **options)
    for array, reference in zip(*((output, expected) if name == "split" else ([output], [expected])), strict=True):
        assert np.shape(array) == np.shape(reference)
        np.testing.assert_allclose(array, reference, rtol=2e-6, atol=2e-6)


def given(one):
    return backend.array(one) if isinstance(one, np.ndarray) else one


def test_aliases_are_the_same_function():
    for second, first in SPELLINGS.items():
        assert getattr(ml.JaxBackend, second) is getattr(ml.JaxBackend, first)
    assert ml.JaxBackend.array is ml.JaxBackend.tensor is ml.JaxBackend.from_numpy


def test_gradient_of_cross_entropy_is_its_derivative():
    logits, labels = backend.randn(5, 4), backend.array([3, 0, 1, 1, 2])
    by_hand = backend.grad(lambda one: backend.cross_entropy(one, labels))(logits)
    np.testing.assert_allclose(backend.cross_entropy_grad(logits, labels), by_hand, atol=1e-7)
    shares = backend.softmax(backend.randn(5, 4))
    by_hand = backend.grad(lambda one: backend.cross_entropy(one, shares))(logits)
    np.testing.assert_allclose(backend.cross_entropy_grad(logits, shares), by_hand, atol=1e-7)
    assert np.isnan(backend.cross_entropy(logits, labels + 4)), "an invalid label gives NaN"
    assert np.isnan(backend.cross_entropy(logits, labels - 1)), "-1 is not the last class"
    assert np.isnan(backend.cross_entropy_grad(logits, labels - 4)).any()
    one_hot = backend.one_hot(labels, 4)
    np.testing.assert_allclose(backend.cross_entropy(logits, labels), backend.cross_entropy(logits, one_hot), rtol=1e-6)


def test_creation_in_both_forms():
    for made in (backend.zeros, backend.ones, backend.rand, backend.randn):
        assert made(3, 4).shape == made((3, 4)).shape == made([3, 4]).shape == (3, 4)
        assert made(3, dtype=ml.float16).dtype == made(3, dtype="float16").dtype == "float16"
    np.testing.assert_array_equal(backend.full((2, 2), 7), np.full((2, 2), 7))
    np.testing.assert_array_equal(backend.eye(2, 3), np.eye(2, 3))
    np.testing.assert_allclose(backend.linspace(0, 1, 5), [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(backend.arange(1, 7, 2), [1, 3, 5])
    like = backend.array([1, 2], dtype="int32")
    assert [f(like).tolist() for f in (backend.zeros_like, backend.ones_like)] == [[0, 0], [1, 1]]
    assert backend.full_like(like, 5).tolist() == [5, 5]
    assert {one.dtype.name for one in (backend.zeros_like(like), backend.full_like(like, 5))} == {"int32"}
    assert backend.shape(like) == (2,)
    assert backend.dtype(like) == "int32"
    assert type(backend.to_numpy(like)) is np.ndarray


def test_random_numbers():
    uniform = np.asarray(backend.rand(10_000))
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.02
    normal = np.asarray(backend.random_normal(shape=(10_000,), mean=3.0, stddev=2.0))
    assert abs(normal.mean() - 3) < 0.1
    assert abs(normal.std() - 2) < 0.1
    whole = np.asarray(backend.randint(2, 5, 1000))
    assert set(whole.tolist()) == {2, 3, 4}
    wide = np.asarray(backend.random_uniform(shape=(1000,), low=-1, high=1))
    assert wide.min() < -0.9
    assert abs(np.asarray(backend.random_bernoulli(shape=(10_000,), p=0.3)).mean() - 0.3) < 0.03
    assert sorted(backend.permutation(5).tolist()) == [0, 1, 2, 3, 4]
    assert backend.random_bernoulli(shape=3, p=1).tolist() == [True] * 3
    assert backend.random_bernoulli(shape=2, p=np.array([0, 1])).tolist() == [False, True]
    assert backend.randint(-128, 127, 3, dtype="int8").dtype == "int8"


def test_the_stream_of_random_numbers_survives_a_trace():
    here = ml.JaxBackend(seed=1)

    @here.register_op("noisy")
    def noisy(x):
        return x + here.randn(3)

    def run():
        pm = ml.compile(ml.op("noisy"), here, shapes={"input": [2, 3]})
        return pm.evaluate({}, {"input": np.zeros((2, 3), "float32")})["output"]

    with pytest.warns(MithrilWarning, match="randn uses the backend's random stream during tracing"):
        noise = run()
    assert np.abs(noise).min() > 0
    assert here.randn(2).shape == (2,)
    keyed = jax.jit(lambda key: here.random_normal(key, shape=(3,)))
    assert not np.array_equal(keyed(here.get_random_key()), keyed(here.get_random_key()))


def test_sizes_may_be_symbolic_during_inference():
    here = ml.JaxBackend()
    here.register_op("with_ones")(lambda x: x + here.ones(x.shape))
    assert str(ml.compile(ml.op("with_ones"), here, shapes={"input": ["n", 3]}).output_specs["output"]) == (
        "('n', 3) float32"
    )


def test_integers_that_fit_are_accepted_in_any_width():
    assert backend.array(np.array([2**31 - 1, -(2**31)])).tolist() == [2**31 - 1, -(2**31)]
    assert backend.array(np.array([2**32 - 1], "uint64")).tolist() == [2**32 - 1]
    key = backend.get_random_key()
    assert backend.array(key) == key
    assert backend.array(np.zeros(0, "int64")).dtype == "int32"
    assert backend.array([2**40], dtype="float32").tolist() == [2.0**40]
    assert backend.full((2,), 2**40).tolist() == [2.0**40] * 2
    assert backend.full_like(backend.ones(2), 2**40).tolist() == [2.0**40] * 2


def test_seeds_keys_and_splits():
    first, second = ml.JaxBackend(seed=42), ml.JaxBackend()
    drawn = first.randn(3)
    second.set_seed(42)
    np.testing.assert_array_equal(second.randn(3), drawn)
    assert not np.array_equal(second.randn(3), drawn), "the stream continues"
    key = first.get_random_key()
    one, other = first.split_key(key)
    np.testing.assert_array_equal(first.random_normal(one, shape=(3,)), first.random_normal(one, shape=(3,)))
    assert not np.array_equal(first.random_normal(one, shape=(3,)), first.random_normal(other, shape=(3,)))
    assert len(first.split_key(key, num=5)) == 5


def test_operations_can_be_jitted_and_differentiated():
    np.testing.assert_allclose(jax.jit(backend.matmul)(A, B.T), A @ B.T, rtol=1e-6)
    by_hand = backend.grad(lambda x: backend.reduce_sum(backend.sin(x)))(backend.array(A))
    np.testing.assert_allclose(by_hand, np.cos(A), rtol=1e-6)


def test_debug_raises_at_nan_only_for_its_backend():
    watching = ml.JaxBackend(debug=True)
    with pytest.raises(FloatingPointError):
        watching.log(watching.array(-1.0))
    assert math.isnan(backend.log(backend.array(-1.0)))
    assert not jax.config.jax_debug_nans


def test_flag_for_another_platform_is_ignored_with_warning():
    with pytest.warns(MithrilWarning, match="the XLA flag 'xla_tpu_foo' has no effect: it is for TPUs"):
        tuned = ml.JaxBackend(xla_flags=["--xla_tpu_foo=1", "--xla_cpu_enable_fast_math=false"])
    assert tuned.compiler_options == {"xla_cpu_enable_fast_math": "False"}


def test_placed_arrays_stay_placed():
    net = backend.place_model(ml.models.MLP(4, [3], 2), {"linear_0": 0})
    assert ml.compile(backend.place_model(net, {"linear_1": 0}), backend).placement == {
        "linear_0": "cpu:0",
        "linear_1": "cpu:0",
    }


def test_float64_backend_reports_disabled_x64():
    before = jax.config.read("jax_enable_x64")
    try:
        double = ml.JaxBackend(dtype="float64")
        ml.JaxBackend().enable_x64(False)
        for make in (
            lambda: double.tensor([1.0]),
            lambda: double.ones(2),
            ml.compile(ml.models.Linear(2, input_size=3), double).randomize_params,
        ):
            with pytest.raises(UnknownOptionError, match="JAX creates arrays of float64 only in its x64 mode"):
                make()
    finally:
        jax.config.update("jax_enable_x64", before)
