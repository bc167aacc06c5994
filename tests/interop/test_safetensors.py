"""Parameters in files: exact, written atomically, and the messages for invalid files."""

from __future__ import annotations

import io
import json
import os
import stat
import time
import tracemalloc
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transcript import facts_of

import mithril_nb as ml
from mithril_nb.errors import DataError, MithrilError, ModelFileError

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


NO_FILE = "ModelFileError: 'here.safetensors' is not a safetensors file, or is broken."


@pytest.mark.parametrize("cut", [0, 5, 30, -1])
def test_truncated_file_is_rejected(cut):
    data = good()
    first, because = facts_of(lambda: ml.load_params(written(data[:cut]))).split("\n    ")
    assert first == NO_FILE
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
        "ModelFileError: cannot read 'nothing.safetensors'.\n    because  No such file or directory",
    ),
    (
        lambda: ml.load_params(3),
        "UnknownOptionError: cannot load 3.\n    needs  the path of a file",
    ),
    (
        lambda: ml.load_params(foreign({"format": "pt"})),
        (
            "ModelFileError: 'here.safetensors' was not written by ml.save_params."
            '\n    needs  "format": "mithril_nb.params"'
            "\n    found  {'format': 'pt'}"
        ),
    ),
    (
        lambda: ml.load_params(foreign(None)),
        (
            "ModelFileError: 'here.safetensors' was not written by ml.save_params."
            '\n    needs  "format": "mithril_nb.params"'
            "\n    found  no metadata"
        ),
    ),
    (
        lambda: ml.load_params(foreign({**OURS, "version": "2"})),
        "ModelFileError: 'here.safetensors' was written in version '2' of the format.\n    supported  version 1",
    ),
    (
        lambda: ml.load_params(foreign({**OURS, "names": "[" * 100_000})),
        "ModelFileError: 'here.safetensors' is broken.\n    because  its table of names is not valid JSON",
    ),
    (
        lambda: ml.load_params(foreign({**OURS, "names": '{"w": 3}'})),
        "ModelFileError: 'here.safetensors' is broken.\n    because  its table of names is not a table of strings",
    ),
    (
        lambda: ml.load_params(foreign(OURS, np.ones(3, jnp.float8_e5m2))),
        (
            "ModelFileError: 'here.safetensors' is broken."
            "\n    because  'w' has the dtype F8_E5M2, which parameters cannot have"
        ),
    ),
    (
        lambda: ml.load_params(foreign(OURS, np.ones(3))),
        (
            "DataError: 'w' in 'here.safetensors' is float64, which JAX would convert to float32."
            "\n    because  the x64 mode of JAX is off"
        ),
    ),
    (
        lambda: ml.save_params({"w": np.ones(3, "complex128")}, HERE),
        (
            "DataError: cannot save parameter 'w' of dtype complex128."
            "\n    supported  bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
            "float16, bfloat16, float32, float64, complex64"
        ),
    ),
    (
        lambda: ml.save_params([1], HERE),
        "UnknownOptionError: params must be given by name, in a dict.\n    given  list",
    ),
    (
        lambda: ml.save_params({}, "nowhere/at.all"),
        "ModelFileError: cannot write 'nowhere/at.all'.\n    because  No such file or directory",
    ),
    (
        lambda: ml.save_params({}, None),
        "UnknownOptionError: cannot save to None.\n    needs  the path of a file",
    ),
]


@pytest.mark.parametrize(("call", "text"), CASES)
def test_message(call, text):
    assert facts_of(call) == text


def header_of(entries: dict, length: int | None = None) -> bytes:
    text = json.dumps(entries).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text


def sparse(first: bytes, size: int) -> str:
    with open(HERE, "wb") as file:
        file.write(first)
        file.truncate(size)
    return HERE


MANY = {f"w{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(100_001)}
LARGE = {
    "zeros": lambda: sparse(b"", 2 << 30),
    "a foreign header": lambda: sparse(
        header_of({"w": {"dtype": "U8", "shape": [(2 << 30) - 100], "data_offsets": [0, (2 << 30) - 100]}}), 2 << 30
    ),
    "a long header": lambda: sparse((1 << 30).to_bytes(8, "little"), 2 << 30),
    "many arrays": lambda: written(header_of({"__metadata__": OURS, **MANY})),
    "a device": lambda: "/dev/zero",
    "a pipe": lambda: os.mkfifo("pipe") or "pipe",
}


@pytest.mark.parametrize("what", LARGE)
def test_the_header_is_checked_before_the_arrays(what):
    path = LARGE[what]()
    started = time.process_time()
    tracemalloc.start()
    with pytest.raises(ModelFileError):
        ml.load_params(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
    assert time.process_time() - started < 5


def test_a_repeated_name_is_rejected():
    entry = '"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]}'
    text = f'{{"__metadata__":{json.dumps(OURS)},{entry},{entry}}}'.encode()
    with pytest.raises(ModelFileError, match="an object has the key 'w' twice"):
        ml.load_params(written(len(text).to_bytes(8, "little") + text + bytes(4)))


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_mode_of_a_file_follows_the_mask(mask):
    before = os.umask(mask)
    try:
        ml.save_params({"w": np.ones(3)}, HERE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(HERE).st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_params_of_an_npz_file(save):
    arrays = {"linear_0.weight": np.arange(6, dtype=">f4").reshape(2, 3), "n": np.int32(3), "flag": np.bool_(True)}
    save("params.npz", **arrays)
    found = ml.load_params("params.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype.name == array.dtype.name


def test_an_npz_file_that_cannot_be_loaded():
    np.savez("pickled.npz", w=np.array([{}], dtype=object))
    with pytest.raises(ModelFileError, match="Object arrays cannot be loaded"):
        ml.load_params("pickled.npz")
    np.savez("text.npz", w=np.array(["a"]))
    with pytest.raises(DataError, match="cannot load parameter 'w' of dtype <U1"):
        ml.load_params("text.npz")
    np.savez("wide.npz", w=np.ones(3))
    with pytest.raises(DataError, match=r"'w' in 'wide.npz' is float64"):
        ml.load_params("wide.npz")
    with zipfile.ZipFile("huge.npz", "w") as file:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 50,)})
        file.writestr("w.npy", header.getvalue())
    with pytest.raises(ModelFileError, match="cannot be read as an npz file"):
        ml.load_params("huge.npz")
    data = Path("wide.npz").read_bytes()
    for cut in range(4, len(data), 7):
        with pytest.raises(MithrilError):
            ml.load_params(written(data[:cut]))


@pytest.mark.parametrize("folder", ["", "default"])
def test_params_of_an_orbax_checkpoint(folder):
    import orbax.checkpoint as ocp

    params = {"linear_0": {"weight": jnp.ones((2, 3)), "bias": jnp.zeros(3, "bfloat16")}}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(Path("run", folder).absolute(), {"params": params, "step": 3})
    found = ml.load_params("run")
    assert found.keys() == {"linear_0.weight", "linear_0.bias"}
    assert found["linear_0.bias"].dtype == "bfloat16"
    np.testing.assert_array_equal(found["linear_0.weight"], params["linear_0"]["weight"])
    (Path("run", folder) / "_METADATA").write_text("{")
    with pytest.raises(ModelFileError, match="Orbax cannot read 'run'"):
        ml.load_params("run")
    with pytest.raises(ModelFileError, match=r"'.' is a folder without checkpoints"):
        ml.load_params(".")


def test_params_of_any_tree(tmp_path: Path):
    import orbax.checkpoint as ocp

    params = {"layers": [{"w": jnp.ones(2)}, {"w": jnp.zeros(3, "bfloat16")}], "it's": {"a.b": (jnp.arange(2),)}}
    arrays = {"layers.0.w": "float32", "layers.1.w": "bfloat16", "it's.a.b.0": "int32"}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "orbax", {"params": params, "step": 3})
    with ml.track(tmp_path / "runs" / "own") as run:
        run.log({"loss": 1.0}, state={"params": params, "step": 3})
    file = next((tmp_path / "runs" / "own").glob("step-*"))
    for path in (tmp_path / "orbax", tmp_path / "runs" / "own", file):
        assert {name: array.dtype.name for name, array in ml.load_params(path).items()} == arrays
    with ml.track(tmp_path / "runs" / "bare") as run:
        run.log({"loss": 1.0}, state=[jnp.ones(2)])
    np.testing.assert_array_equal(ml.load_params(tmp_path / "runs" / "bare")["0"], np.ones(2))
