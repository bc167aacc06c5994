"""Compile emitted C with the system's compiler, and call it with NumPy arrays."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mithril_nb.backends.with_manualgrad.c_backend import compiler
from mithril_nb.emission.c.emit import CFile
from mithril_nb.emission.c.types import C_TYPES, c_shape
from mithril_nb.emission.program import Operand
from mithril_nb.errors import MithrilError

STANDARD = ("-std=c11", "-fwrapv", "-ffp-contract=off")
"""Options for correct results: integers wrap around, and products and sums are rounded separately."""
FAST = ("-O3", "-march=native")
"""Options for speed on this machine."""
_LINE = 64
"""Bytes of a cache line."""
_SMALL = 1 << 16
"""Results of at most this many bytes share one allocation, which is freed with the last of them. For five results, it
takes half as long as five allocations (3.1 instead of 6.0 us)."""


class CompilerError(MithrilError, RuntimeError):
    """The C compiler rejected a file."""


def load(texts: Mapping[str, str], options: Sequence[str] = FAST) -> ctypes.CDLL:
    """Compile C files into one library, load it, and delete all files.

    Args:
        texts: A dict from the name of each file, without `.c`, to its text.
        options: Options for the compiler, after those of `STANDARD`.

    Raises:
        UnavailableBackendError: No C compiler is available.
        CompilerError: The compiler rejected a file.
    """
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
                "CC=gcc in the environment, for another compiler",
            )
        return ctypes.CDLL(str(Path(folder, "library.so")))


class Routine:
    """An emitted function in a loaded library.

    Args:
        library: The library.
        file: The emitted file from which the library was compiled.
    """

    def __init__(self, library: ctypes.CDLL, file: CFile):
        self._call = getattr(library, file.name)
        self._call.restype = None
        self._call.argtypes = [ctypes.c_void_p] * (len(file.inputs) + len(file.outputs) + 1)
        self._inputs = [(c_shape(value), np.dtype(_dtype(value))) for value in file.inputs]
        self._results = [(c_shape(value), np.dtype(_dtype(value))) for value in file.outputs]
        sizes = [prod(shape) * dtype.itemsize for shape, dtype in self._results]
        self._starts = [*accumulate((-(-size // _LINE) * _LINE for size in sizes), initial=0)]
        self._arena_size = file.arena // 8 + 1
        self._arenas = threading.local()  # to allocate a large arena takes longer than a call

    def __call__(self, *arrays: Any) -> list[np.ndarray]:
        """Call the function and return its results in order. Random keys have one more axis: two `uint32` each."""
        given = [_contiguous(array, *kind) for array, kind in zip(arrays, self._inputs, strict=True)]
        if not hasattr(self._arenas, "memory"):
            self._arenas.memory = np.empty(self._arena_size)
        places = [array.ctypes.data for array in (*given, self._arenas.memory)]
        if self._starts[-1] <= _SMALL:
            block = np.empty(self._starts[-1], np.uint8)
            kinds = zip(self._results, self._starts, strict=False)
            results = [np.ndarray(shape, dtype, block, start) for (shape, dtype), start in kinds]
            first = block.ctypes.data
            places[-1:-1] = [first + start for start in self._starts[:-1]]
        else:
            results = [np.empty(*kind) for kind in self._results]
            places[-1:-1] = [result.ctypes.data for result in results]
        self._call(*places)
        return results


def _dtype(value: Operand) -> str:
    return C_TYPES[value.dtype].removesuffix("_t").replace("float", "float32").replace("double", "float64")


def _contiguous(array: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.ascontiguousarray(array, dtype).reshape(shape)
