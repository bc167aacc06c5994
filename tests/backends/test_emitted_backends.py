"""The backends that run emitted source: arrays, mathematics, random numbers, options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from transcript import facts_of

import mithril_nb as ml
from mithril_nb.backends.emitted import EmittedBackend
from mithril_nb.errors import DeviceNotFoundError, UnavailableBackendError, UnknownOptionError

KINDS = [one for one in (ml.NumpyBackend, ml.TorchBackend, ml.MlxBackend, ml.CBackend) if one.available()]
each_kind = pytest.mark.parametrize("kind", KINDS)

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda b: b.add(b.array([1.0, 2.0]), b.multiply(b.array([3.0, 4.0]), b.ones(2))),
    "matmul": lambda b: b.matmul(b.arange(6, dtype="float32").reshape((2, 3)), b.ones(3, 2)),
    "sum": lambda b: b.sum(b.ones((2, 3)), axis=1),
    "reduce_mean": lambda b: b.reduce_mean(b.array([[1.0, 2.0], [3.0, 6.0]]), axis=0),
    "max": lambda b: b.max(b.array([1.0, 5.0, 2.0])),
    "relu": lambda b: b.relu(b.array([-1.0, 2.0])),
    "sigmoid": lambda b: b.sigmoid(b.array([-1.0, 2.0])),
    "softmax": lambda b: b.softmax(b.array([[1.0, 2.0], [3.0, 3.0]])),
    "concat": lambda b: b.concat([b.zeros(2, 1), b.ones(2, 2)], axis=1),
    "transpose": lambda b: b.transpose(b.array([[1.0, 2.0, 3.0]])),
    "cross_entropy": lambda b: b.cross_entropy(b.array([[1.0, 2.0], [3.0, 1.0]]), b.array([0, 1], dtype="int32")),
    "power": lambda b: b.power(b.array([1.0, 3.0]), 2),
    "eye": lambda b: b.eye(2),
    "randn": lambda b: b.randn(2, 3),
    "rand": lambda b: b.rand(4),
    "randint": lambda b: b.randint(0, 9, (3,)),
}


@each_kind
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_agree_with_numpy(kind: type[EmittedBackend], name: str) -> None:
    backend, reference = kind(seed=3), ml.NumpyBackend(seed=3)
    found, expected = OPERATIONS[name](backend), OPERATIONS[name](reference)
    assert backend.shape(found) == expected.shape
    assert backend.dtype(found) == str(expected.dtype)
    np.testing.assert_allclose(backend.to_numpy(found), expected, rtol=1e-6)


@each_kind
def test_cross_entropy_of_extreme_logits_and_invalid_labels(kind: type[EmittedBackend]) -> None:
    backend, jax = kind(), ml.JaxBackend()
    logits = np.float32([[0, 1e4], [1e4, 0]])
    for labels in ([1, 0], [0, 0], [0, -1], [0, 2]):
        given, expected = backend.array(labels, dtype="int32"), jax.array(labels, dtype="int32")
        for name in ("cross_entropy", "cross_entropy_grad"):
            found = backend.to_numpy(getattr(backend, name)(backend.array(logits), given))
            np.testing.assert_allclose(found, getattr(jax, name)(logits, expected), rtol=1e-6, err_msg=name)
        one_hot = backend.to_numpy(backend.one_hot(given, 2))
        np.testing.assert_array_equal(one_hot, jax.one_hot(expected, 2))


@each_kind
def test_cross_entropy_of_masked_and_invalid_logits(kind: type[EmittedBackend]) -> None:
    backend, jax = kind(), ml.JaxBackend()
    for row in ([-np.inf, 0, 1], [np.nan, 0, 1], [np.inf, 0, 1], [-np.inf] * 3):
        logits = np.float32([row, [1, 2, 3]])
        for labels in ([1, 2], [0, 2], [3, 2]):
            given, expected = backend.array(labels, dtype="int32"), jax.array(labels, dtype="int32")
            for name in ("cross_entropy", "cross_entropy_grad"):
                with np.errstate(invalid="ignore"):  # NumPy warns of inf - inf
                    found = backend.to_numpy(getattr(backend, name)(backend.array(logits), given))
                wanted = getattr(jax, name)(logits, expected)
                np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=f"{name}, {row}, {labels}")


@each_kind
def test_a_seed_starts_the_random_numbers_again(kind: type[EmittedBackend]) -> None:
    backend = kind(seed=1)
    first = backend.to_numpy(backend.rand(3))
    assert not np.array_equal(first, backend.to_numpy(backend.rand(3)))
    backend.set_seed(1)
    np.testing.assert_array_equal(first, backend.to_numpy(backend.rand(3)))


@each_kind
def test_arrays_keep_their_dtype_from_numpy(kind: type[EmittedBackend]) -> None:
    backend = kind()
    for dtype in ("float32", "int32", "bool"):
        array = backend.from_numpy(np.ones((2, 2), dtype))
        assert backend.dtype(array).rstrip("_") == dtype
    read_only = np.broadcast_to(np.float32(1), (2, 3))  # neither contiguous nor writable
    np.testing.assert_array_equal(backend.to_numpy(backend.tensor(read_only)), read_only)


@pytest.mark.parametrize(
    ("name", "kind"), [("torch", ml.TorchBackend), ("mlx.core", ml.MlxBackend), ("ggml.ggml", ml.GGMLBackend)]
)
def test_a_missing_library_is_reported(name: str, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    found = kind.available()
    assert not found
    extra = name.partition(".")[0]
    assert (found.reason, found.install) == ("which is not installed", f'pip install "mithril-nb[{extra}]"')
    with pytest.raises(UnavailableBackendError, match="which is not installed"):
        kind()


def test_refused_options() -> None:
    with pytest.raises(UnknownOptionError):
        ml.NumpyBackend(dtyp="float32")
    with pytest.raises(DeviceNotFoundError):
        ml.NumpyBackend(device="gpu")
    assert facts_of(lambda: ml.NumpyBackend(dtype="float16")) == (
        "UnknownOptionError: NumpyBackend does not run models in float16.\n    needs  float32 or float64"
    )
    with pytest.raises(AttributeError, match="has no function 'softmx'; it has abs, add"):
        _ = ml.NumpyBackend().softmx
