"""`.gguf` files: GGML reads them back."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mithril_nb.emission.ggml.gguf import gguf_bytes
from mithril_nb.errors import UnknownOptionError

pytest.importorskip("ggml")
from ggml import ggml, utils

ARRAYS = {
    "linear_0.weight": np.arange(12, dtype="float32").reshape(3, 4),
    "scale": np.float32(2.5),
    "whole": np.arange(5, dtype="int32"),
    "block/ü": np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("float32"),
    "half": np.ones((2, 2), "float16"),
}
METADATA = {"general.name": "näme", "count": 3, "rate": 0.5, "is_small": True, "classes": ["a", "b"], "sizes": [1, -2]}


def read(path: Path) -> tuple[dict[str, np.ndarray], Any]:
    context = ggml.ggml_context_p_ctypes()
    params = ggml.gguf_init_params(no_alloc=False, ctx=ctypes.pointer(context))
    file = ggml.gguf_init_from_file(str(path).encode(), params)
    names = [ggml.gguf_get_tensor_name(file, place) for place in range(ggml.gguf_get_n_tensors(file))]
    return {name.decode(): utils.to_numpy(ggml.ggml_get_tensor(context, name)) for name in names}, file


def test_ggml_reads_arrays_and_metadata(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(gguf_bytes(ARRAYS, METADATA))
    arrays, file = read(tmp_path / "model.gguf")
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name].reshape(np.shape(array)), array)

    def key(name: str) -> int:
        return ggml.gguf_find_key(file, name.encode())

    assert ggml.gguf_get_val_str(file, key("general.architecture")) == b"mithrilnb"
    assert ggml.gguf_get_val_str(file, key("general.name")).decode() == "näme"
    assert ggml.gguf_get_val_i32(file, key("count")) == 3
    assert ggml.gguf_get_val_f32(file, key("rate")) == 0.5
    assert ggml.gguf_get_val_bool(file, key("is_small")) is True
    assert [ggml.gguf_get_arr_str(file, key("classes"), place) for place in range(2)] == [b"a", b"b"]
    assert ggml.gguf_get_arr_n(file, key("sizes")) == 2


def test_long_names_are_shortened_and_kept_as_metadata(tmp_path: Path) -> None:
    names = [f"{'bloc/' * 20}{one}.{'weightü' * 9}" for one in "ab"]
    arrays = {name: np.full(2, place, "float32") for place, name in enumerate(names)}
    (tmp_path / "model.gguf").write_bytes(gguf_bytes(arrays, {}))
    arrays, file = read(tmp_path / "model.gguf")
    whole = [ggml.gguf_get_val_str(file, ggml.gguf_find_key(file, f"name.{one}".encode())).decode() for one in arrays]
    assert whole == names
    assert [array[0] for array in arrays.values()] == [0, 1]


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((1, 1, 1, 1, 1), "float32"), "5 axes"),
        (np.zeros(2, "complex64"), "dtype complex64"),
        (np.zeros((0, 2), "float32"), "an empty array"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(array: np.ndarray, reason: str) -> None:
    with pytest.raises(UnknownOptionError, match=reason):
        gguf_bytes({"weight": array}, {})


@pytest.mark.parametrize("value", [None, 2**40, [1, "a"], [], {"a": 1}])
def test_metadata_that_does_not_fit_is_refused(value: Any) -> None:
    with pytest.raises(UnknownOptionError, match="cannot write shape="):
        gguf_bytes({}, {"shape": value})
