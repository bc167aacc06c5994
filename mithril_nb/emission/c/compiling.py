"""Compile emitted C with the system's compiler, and call it with NumPy arrays."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from mithril_nb.backends.with_manualgrad.c_backend import compiler
from mithril_nb.emission.c.emit import CFile
from mithril_nb.emission.c.types import c_shape, numpy_dtype
from mithril_nb.errors import MithrilError

STANDARD = ("-std=c11", "-fwrapv", "-ffp-contract=off")
"""Options for results as in JAX: integers wrap around, and a product is rounded before it is added to a sum, except in
the products of matrices that GCC compiles."""
FAST = ("-O3", "-march=native")
"""Options for speed on this machine."""


class CompilerError(MithrilError, RuntimeError):
    """The C compiler rejected a file."""


def load(texts: Mapping[str, str], options: Sequence[str] = FAST) -> ctypes.CDLL:
    """Compile C files into one library and load it. `texts` are the files, by their names without `.c`."""
    # A folder of its own for each build: the library stays loaded after the folder is deleted.
    command = [compiler(), *STANDARD, *options, "-shared", "-fPIC", "-o", "library.so"]
    with tempfile.TemporaryDirectory(prefix="mithril_nb_") as folder:
        for name, text in texts.items():
            Path(folder, f"{name}.c").write_text(text)
        done = subprocess.run(
            [*command, *(f"{name}.c" for name in texts), "-lm"], cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            raise CompilerError(
                f"{command[0]} cannot compile {', '.join(f'{name}.c' for name in texts)}.",
                (("command", " ".join(command)), ("message", done.stderr.strip())),
                'os.environ["CC"] = "gcc"  # or another C compiler',
            )
        return ctypes.CDLL(str(Path(folder, "library.so")))


class Routine:
    """The main function of an emitted C file, in the library that was compiled from the file."""

    def __init__(self, library: ctypes.CDLL, file: CFile):
        self._library = library
        self._inputs, self._results = (
            [(c_shape(value), numpy_dtype(value.dtype)) for value in values] for values in (file.inputs, file.outputs)
        )
        self._arena_size = file.arena // 8 + 1  # in float64, so that NumPy aligns it
        self._arenas = threading.local()  # kept, because allocating a large arena takes longer than a call
        # ctypes takes 0.9 us to read the address of an array, cffi 0.25 us. A small model runs in 20 us.
        ffi: Any = cffi.FFI()
        kind = f"void (*)({', '.join(['void *'] * (len(file.inputs) + len(file.outputs) + 1))})"
        self._call = ffi.cast(kind, ctypes.cast(getattr(library, file.name), ctypes.c_void_p).value)
        self._pointer = partial(ffi.from_buffer, ffi.typeof("char[]"))

    def __call__(self, *arrays: Any) -> list[np.ndarray]:
        """Call the function and return its results. A random key is an array of two `uint32`, along one more axis."""
        pointer = self._pointer
        pointers = [pointer(_contiguous(array, *kind)) for array, kind in zip(arrays, self._inputs, strict=True)]
        results = [np.empty(*kind) for kind in self._results]
        if not hasattr(self._arenas, "pointer"):
            self._arenas.pointer = pointer(np.empty(self._arena_size))  # keeps the array alive
        self._call(*pointers, *map(pointer, results), self._arenas.pointer)
        return results


def _contiguous(array: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if type(array) is np.ndarray and array.dtype is dtype and array.shape == shape and array.flags.c_contiguous:
        return array
    return np.ascontiguousarray(array, dtype).reshape(shape)
