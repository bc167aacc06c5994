"""Parameters in files: exact, written atomically, and the messages for invalid files."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from raised import message_of
from safetensors.numpy import load_file, save_file

import mithril_nb as ml
from mithril_nb.errors import MithrilError

OURS = {"format": "mithril_nb.params", "version": "1"}
HERE = "here.safetensors"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_dtype_and_name_round_trips():
    names = ["linear_0.weight", "\ud800", "__metadata__", "parameter 0", "", "блок/a.b", 'it\'s "so"\n', "0"]
    dtypes = ["bfloat16", "float16", "float32", "int8", "int16", "int32", "uint8", "uint16", "uint32", "bool"]
    shapes = [(2, 3), (), (0, 4), (1,)]
    params = {
        f"{name}{at}": jnp.asarray(np.arange(np.prod(shapes[at % 4], dtype=int)).reshape(shapes[at % 4]), dtype)
        for at, (name, dtype) in enumerate((name, dtype) for name in names for dtype in dtypes)
    } | {name: jnp.ones((2,)) for name in names}
    ml.save_params(params, HERE)
    again = ml.load_params(Path(HERE))
    assert again.keys() == params.keys()
    for name, array in params.items():
        assert (again[name].dtype, again[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(again[name], array)
    assert [path.name for path in Path().iterdir()] == [HERE]


def test_nested_names_views_and_other_byte_orders():
    whole = np.arange(12, dtype=">f4").reshape(3, 4)
    ml.save_params({"block": {"weight": whole.T[::2]}, "scale": np.float32(2)}, HERE)
    again = ml.load_params(HERE)
    np.testing.assert_array_equal(again["block.weight"], whole.T[::2])
    assert again["scale"].shape == ()


def test_nan_and_infinities_keep_their_bits():
    bits = np.array([0x7FC00001, 0x7F800000, 0xFF800000, 0x80000000], "uint32")
    ml.save_params({"w": bits.view("float32")}, HERE)
    np.testing.assert_array_equal(np.asarray(ml.load_params(HERE)["w"]).view("uint32"), bits)


def test_failed_write_keeps_the_old_file():
    ml.save_params({"w": jnp.ones(3)}, HERE)
    assert load_file(HERE)["w"].tolist() == [1, 1, 1]
    with pytest.raises(MithrilError):
        ml.save_params({"w": jax.random.key(0)}, HERE)
    assert ml.load_params(HERE)["w"].tolist() == [1, 1, 1]


def written(data: bytes) -> str:
    Path(HERE).write_bytes(data)
    return HERE


def good() -> bytes:
    ml.save_params({"w": np.ones(3, "float32")}, HERE)
    return Path(HERE).read_bytes()


def foreign(metadata: dict[str, str] | None, array: np.ndarray | None = None) -> str:
    save_file({"w": np.ones(3, "float32") if array is None else array}, HERE, metadata=metadata)
    return HERE


def lines(*text: str) -> str:
    return "\n    ".join(text)


NO_FILE = "ModelFileError: 'here.safetensors' is not a safetensors file, or is broken."
TRY = "Try: ml.load_params(path)  # of a file that ml.save_params(params, path) wrote"


@pytest.mark.parametrize("cut", [0, 5, 30, -1])
def test_truncated_file_is_rejected(cut):
    data = good()
    first, because, advice = message_of(lambda: ml.load_params(written(data[:cut]))).split("\n    ")
    assert (first, advice) == (NO_FILE, TRY)
    assert because.startswith("because  ")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 50,
        b"\x0c" + bytes(7) + b'{"w":[1,2,3]' + bytes(8),
        b"\x3d" + bytes(7) + b'{"w":{"dtype":"F32","shape":[9999],"data_offsets":[0,39996]}}' + bytes(4),
        b"\x40" + bytes(7) + b"[" * 64,
    ],
)
def test_hostile_file_is_rejected(data):
    with pytest.raises(MithrilError) as error:
        ml.load_params(written(data))
    assert str(error.value).startswith("'here.safetensors' is not a safetensors file, or is broken.\n    because  ")


CASES = [
    (
        lambda: ml.load_params("nothing.safetensors"),
        lines("ModelFileError: cannot read 'nothing.safetensors'.", "because  No such file or directory"),
    ),
    (
        lambda: ml.load_params(3),
        lines(
            "UnknownOptionError: cannot load 3.",
            "needs  the path of a file",
            'Try: ml.load_params("model.safetensors")',
        ),
    ),
    (
        lambda: ml.load_params(foreign({"format": "pt"})),
        lines(
            "ModelFileError: 'here.safetensors' was not written by ml.save_params.",
            'needs  "format": "mithril_nb.params"',
            "found  {'format': 'pt'}",
            "Try: safetensors.numpy.load_file(path)  # then rename its arrays to the names of the parameters",
        ),
    ),
    (
        lambda: ml.load_params(foreign(None)),
        lines(
            "ModelFileError: 'here.safetensors' was not written by ml.save_params.",
            'needs  "format": "mithril_nb.params"',
            "found  no metadata",
            "Try: safetensors.numpy.load_file(path)  # then rename its arrays to the names of the parameters",
        ),
    ),
    (
        lambda: ml.load_params(foreign({**OURS, "version": "2"})),
        lines(
            "ModelFileError: 'here.safetensors' was written in version '2' of the format.",
            "supported  version 1",
            "Try: pip install --upgrade mithril-nb",
        ),
    ),
    (
        lambda: ml.load_params(foreign({**OURS, "names": "[" * 100_000})),
        lines(
            "ModelFileError: 'here.safetensors' is broken.",
            "because  its table of names is not valid JSON",
            TRY,
        ),
    ),
    (
        lambda: ml.load_params(foreign({**OURS, "names": '{"w": 3}'})),
        lines(
            "ModelFileError: 'here.safetensors' is broken.",
            "because  its table of names is not a table of strings",
            TRY,
        ),
    ),
    (
        lambda: ml.load_params(foreign(OURS, np.ones(3, jnp.float8_e5m2))),
        lines(
            "ModelFileError: 'here.safetensors' is broken.",
            "because  'w' has the dtype F8_E5M2, which parameters cannot have",
            TRY,
        ),
    ),
    (
        lambda: ml.load_params(foreign(OURS, np.ones(3))),
        lines(
            "DataError: 'w' in 'here.safetensors' is float64, which JAX would convert to float32.",
            "because  the x64 mode of JAX is off",
            'Try: jax.config.update("jax_enable_x64", True)  # or ml.JaxBackend(dtype="float64") first',
        ),
    ),
    (
        lambda: ml.save_params({"w": np.ones(3, "complex128")}, HERE),
        lines(
            "DataError: cannot save parameter 'w' of dtype complex128.",
            "supported  bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
            "float16, bfloat16, float32, float64, complex64",
            "Try: ml.save_params(pm.randomize_params(), path)",
        ),
    ),
    (
        lambda: ml.save_params([1], HERE),
        lines(
            "UnknownOptionError: params must be given by name, in a dict.",
            "given  list",
            "Try: params = pm.randomize_params()",
        ),
    ),
    (
        lambda: ml.save_params({}, "nowhere/at.all"),
        lines(
            "ModelFileError: cannot write 'nowhere/at.all'.",
            "because  No such file or directory",
            'Try: ml.save_params(params, "model.safetensors")',
        ),
    ),
    (
        lambda: ml.save_params({}, None),
        lines(
            "UnknownOptionError: cannot save to None.",
            "needs  the path of a file",
            'Try: ml.save_params(params, "model.safetensors")',
        ),
    ),
]


@pytest.mark.parametrize(("call", "text"), CASES)
def test_message(call, text):
    assert message_of(call) == text
