"""The export format `ggml`: Python that builds the graph with ggml-python, and the weights as a `.gguf` file."""

from __future__ import annotations

from dataclasses import replace

from mithril_nb.emission.ggml.emitter import emit_ggml
from mithril_nb.emission.ggml.gguf import gguf_bytes
from mithril_nb.interop.exporting.formats import Contents, export_format
from mithril_nb.interop.exporting.python_folder import Loading, python_contents
from mithril_nb.interop.exporting.stored import StoredProgram

_LOADING = Loading(
    "GGML",
    "ggml-python numpy safetensors",
    ("from gguf_reader import read_gguf", "from safetensors.numpy import load_file"),
    'read_gguf(FOLDER / "weights.gguf") if name == "weights" else load_file(path)',
)
_NOTES = """pip compiles ggml-python, which takes minutes and a C++ compiler.
Programs based on GGML can read `weights.gguf`.

Differences from JAX: integers are float32 numbers, so they are exact up to 2**24 and do not wrap around. Where JAX
returns NaN for the maximum or minimum of NaN, GGML returns a number. A float that an integer cannot hold gives any
integer."""


@export_format("ggml")
def ggml_folder(program: StoredProgram) -> Contents:
    """Return the contents of a folder with the program as a GGML graph, and the weights as a `.gguf` file."""
    arrays = program.arrays["weights"]
    shapes = {f"shape.{name}": list(map(int, array.shape)) for name, array in arrays.items() if array.shape}
    weights = gguf_bytes(arrays, {"general.name": program.name, **shapes})
    source = emit_ggml(program.traced)
    more = {
        "weights.gguf": (weights, "the parameters, in the format of GGML"),
        "gguf_reader.py": (_READER, "reads the arrays of weights.gguf with ggml-python"),
    }
    contents = python_contents(program, source.text, source.function, _LOADING, more, _NOTES)
    return replace(contents, replaced=("weights",))


_READER = '''\
"""Read the arrays of a .gguf file with GGML's own reader."""

import ctypes
import os

import numpy as np
from ggml import ggml

DTYPES = {0: np.float32, 1: np.float16, 24: np.int8, 25: np.int16, 26: np.int32, 27: np.int64, 28: np.float64}


def read_gguf(path):
    """Return the arrays of a file by name.

    GGML leaves out leading axes of size 1 and shortens long names, so the metadata has shapes and whole names.
    """
    data = ggml.ggml_context_p_ctypes()
    params = ggml.gguf_init_params(no_alloc=False, ctx=ctypes.pointer(data))
    context = ggml.gguf_init_from_file(os.fsencode(path), params)
    if not context:
        raise OSError(f"{path} is not a .gguf file")
    arrays = {}
    for place in range(ggml.gguf_get_n_tensors(context)):
        name = ggml.gguf_get_tensor_name(context, place)
        tensor = ggml.ggml_get_tensor(data, name)
        key = ggml.gguf_find_key(context, b"name." + name)
        name = ggml.gguf_get_val_str(context, key) if key >= 0 else name
        key = ggml.gguf_find_key(context, b"shape." + name)
        shape = ()
        if key >= 0:
            axes = ggml.gguf_get_arr_n(context, key)
            shape = tuple(ctypes.cast(ggml.gguf_get_arr_data(context, key), ctypes.POINTER(ctypes.c_int32))[:axes])
        dtype = np.dtype(DTYPES[tensor.contents.type])
        count = ggml.ggml_nelements(tensor) * dtype.itemsize
        items = ctypes.string_at(ggml.ggml_get_data(tensor), count)
        arrays[name.decode()] = np.frombuffer(items, dtype).reshape(shape)
    ggml.gguf_free(context)
    ggml.ggml_free(data)
    return arrays
'''
