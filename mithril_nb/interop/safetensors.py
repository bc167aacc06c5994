"""Save and load parameters as safetensors: a JSON header followed by the numbers.

Files of NumPy and Orbax can be read as well. Reading a file runs no code. The dtypes do not change, and a name may
contain any character.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.atomic_write import replacing
from mithril_nb.errors import DataError, MithrilError, ModelFileError, UnknownOptionError, installed, short_repr
from mithril_nb.models.naming import flat_params
from mithril_nb.models.saving.serialization import check_path, json_object
from mithril_nb.train.checkpoints.file import KEY, Saved, named, nested, read
from mithril_nb.train.store.states import prefix_of
from mithril_nb.train.store.stored import FITTED, checkpoint_of

FORMAT, VERSION = "mithril_nb.params", 1
_MOST_HEADER_BYTES = 32_000_000
_MOST_ARRAYS = 100_000
_MOST_UNPACKED = 4 << 30
"""Maximum number of bytes that a compressed npz file may contain."""
_DTYPES = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8", "U16": "uint16",
    "U32": "uint32", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64",
}  # fmt: skip


def save_params(params: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write parameters to a safetensors file atomically.

    Args:
        params: Arrays by name, dotted or nested.
        path: Path of the file.

    Raises:
        UnknownOptionError: `params` is not a dict of arrays, or `path` is not a path.
        DataError: An array has a dtype that the format does not support.
        ModelFileError: The file cannot be written.

    Examples:
        >>> import tempfile
        >>> import mithril_nb as ml
        >>> pm = ml.compile(ml.models.Linear(3, input_size=2))
        >>> params = pm.randomize_params(0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ml.save_params(params, f"{folder}/linear.safetensors")
        ...     again = ml.load_params(f"{folder}/linear.safetensors")
        >>> bool((again["weight"] == params["weight"]).all())
        True
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    check_path(path, "save to", 'ml.save_params(params, "model.safetensors")')
    arrays = {name: _array(name, value) for name, value in flat_params(params).items()}
    keys = {name: _key(index, name) for index, name in enumerate(arrays)}
    other = {key: name for name, key in keys.items() if key != name}
    # A name may contain a lone surrogate. JSON can escape it, but the header cannot encode it as a key.
    about = {"format": FORMAT, "version": str(VERSION), **({"names": json.dumps(other)} if other else {})}
    try:
        with replacing(path) as part:
            save_file({keys[name]: array for name, array in arrays.items()}, part, metadata=about)
    except (OSError, SafetensorError) as error:
        because = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(f"cannot write {str(path)!r}.", (("because", because),)) from error


def load_params(path: str | os.PathLike[str]) -> dict[str, jax.Array]:
    """Load parameters by dotted name: from a file of `save_params` or `numpy.savez`, a checkpoint, or a folder.

    From a folder of checkpoints of `fit` or `track`, the latest is loaded. A folder may also be a checkpoint of Orbax.

    The header of a file is checked before its arrays are read. If the state of a loop, or a tree of Orbax, is a dict
    with the key `"params"`, only the arrays under this key are loaded. A name consists of the keys and the indices on
    the path of an array.

    Raises:
        UnknownOptionError: `path` is not a path.
        UnavailableBackendError: Orbax is needed and not installed.
        ModelFileError: The file is missing, truncated, broken or too large, has another version of the format, or
            another program wrote it.
        DataError: An array has items of 64 bits, but the x64 mode of JAX is off.
    """
    check_path(path, "load", 'ml.load_params("model.safetensors")')
    name = str(path)
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            saved = checkpoint_of(Path(path)) or checkpoint_of(Path(path, FITTED))
            arrays = _of_orbax(name) if saved is None else _of_checkpoint(saved)
            return {key: _loaded(name, key, array) for key, array in arrays.items()}
        if not stat.S_ISREG(mode):  # reading a device or a pipe may never end
            raise OSError(errno.EINVAL, "it is not a regular file")
        with open(path, "rb") as file:
            # By content, whatever the file is called.
            is_zip = file.read(4) == b"PK\3\4"
            file.seek(0)
            arrays = (_of_npz if is_zip else _of_safetensors)(name, file)
            return {key: _loaded(name, key, array) for key, array in arrays}
    except MithrilError:
        raise
    except (OSError, ValueError) as error:
        because = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(f"cannot read {name!r}.", (("because", because),)) from error


def _of_safetensors(path: str, file: IO[bytes]) -> Iterator[tuple[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    size, length = os.fstat(file.fileno()).st_size, int.from_bytes(file.read(8), "little")
    try:
        # safetensors itself allows 100 MB, and JSON takes many times its size in memory.
        if length > (limit := max(0, min(size - 8, _MOST_HEADER_BYTES))):
            raise ValueError(f"its header would have {length:,} bytes, and at most {limit:,} are possible")
        header: dict[str, Any] = json.loads(file.read(length), object_pairs_hook=json_object)
        if len(header) > _MOST_ARRAYS:
            raise ValueError(f"it has {len(header):,} arrays, and at most {_MOST_ARRAYS:,} are allowed")
        about = header.pop("__metadata__", None) or {}
        safe_open(path, "numpy").__exit__(None, None, None)  # checks the header, and reads no arrays
    except (SafetensorError, ModelFileError, ValueError, AttributeError, TypeError, RecursionError) as error:
        because = error.diagnostics[0].facts[0][1] if isinstance(error, ModelFileError) else str(error)
        raise ModelFileError(f"{path!r} is not a safetensors file, or is broken.", (("because", because),)) from error
    if KEY in about:  # a checkpoint of a run
        yield from _of_checkpoint(read(Path(path).resolve())).items()
        return
    names, seen = _names(path, about), set[str]()
    for key, entry in header.items():
        name = names.get(key, key)
        if name in seen:
            raise _broken(path, f"two arrays are named {name!r}")
        seen.add(name)
        if entry["dtype"] not in _DTYPES:
            raise _broken(path, f"{name!r} has the dtype {entry['dtype']}, which parameters cannot have")
        start, end = entry["data_offsets"]
        file.seek(8 + length + start)
        # Array by array, so that the file is not twice in memory.
        yield name, np.frombuffer(file.read(end - start), jnp.dtype(_DTYPES[entry["dtype"]])).reshape(entry["shape"])


def _of_npz(path: str, file: IO[bytes]) -> Iterator[tuple[str, np.ndarray]]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            entries = archive.zip.infolist()
            # Stored entries cannot be larger than the file; compressed ones can be 1000 times as large.
            packed = sum(entry.file_size for entry in entries if entry.compress_type)
            if len(entries) > _MOST_ARRAYS or packed > _MOST_UNPACKED:
                raise ValueError(f"it has {len(entries):,} arrays, and {packed:,} bytes after decompression")
            if len({*archive.files}) < len(archive.files):
                raise ValueError("two arrays have the same name")
            for name in archive.files:
                yield name, np.asarray(archive[name])
    except (ValueError, EOFError, MemoryError, BadZipFile, NotImplementedError, zlib.error) as error:
        raise ModelFileError(f"{path!r} cannot be read as an npz file.", (("because", str(error)),)) from error


def _of_checkpoint(saved: Saved) -> dict[str, Any]:
    prefix = prefix_of(saved)
    tree = nested({name: array for name, array in saved.arrays.items() if name.startswith(prefix)})
    return flat_params(tree) if prefix == "params" else _of_tree(tree)


def _of_tree(tree: Any) -> dict[str, Any]:
    is_state = isinstance(tree, Mapping) and isinstance(tree.get("params"), Mapping)
    return flat_params(tree["params"] if is_state else tree)


def _of_orbax(path: str) -> dict[str, Any]:
    folder = next(
        (candidate for candidate in (Path(path), Path(path, "default")) if (candidate / "_METADATA").exists()), None
    )
    if folder is None:
        raise ModelFileError(
            f"{path!r} is a folder without checkpoints.",
            (("needs", "checkpoints of ml.fit, or Orbax's file _METADATA in the folder or in its folder default"),),
        )
    ocp = installed("orbax.checkpoint", f"load_params({short_repr(path)})", "orbax-checkpoint")
    try:
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            metadata = checkpointer.metadata(folder.absolute())
            tree = getattr(metadata, "item_metadata", metadata)
            tree = getattr(tree, "tree", tree)
            # As NumPy arrays, because the devices of the saved arrays may not exist here.
            arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
            saved = checkpointer.restore(folder.absolute(), ocp.args.PyTreeRestore(restore_args=arguments))
    except Exception as error:  # Orbax and tensorstore document no errors of a broken checkpoint
        raise ModelFileError(f"Orbax cannot read {path!r}.", (("because", short_repr(error)),)) from error
    return _of_tree(nested(named({"state": saved})))  # without lists


def _names(path: str, about: Mapping[str, str]) -> dict[str, str]:
    # Files of other programs have other names and layouts, which no error would report later.
    if about.get("format") != FORMAT:
        raise ModelFileError(
            f"{path!r} was not written by ml.save_params.",
            (("needs", f'"format": "{FORMAT}"'), ("found", short_repr(about) if about else "no metadata")),
        )
    if about.get("version") != str(VERSION):
        raise ModelFileError(
            f"{path!r} was written in version {about.get('version')!r} of the format.",
            (("supported", f"version {VERSION}"),),
        )
    try:
        names = json.loads(about.get("names", "{}"))
    except (ValueError, RecursionError) as error:
        raise _broken(path, "its table of names is not valid JSON") from error
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise _broken(path, "its table of names is not a table of strings")
    return names


def _loaded(path: str, name: str, array: Any) -> jax.Array:
    array = _array(name, array, "load")
    if array.dtype.itemsize == 8 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        narrow = array.dtype.name.replace("64", "32")
        raise DataError(
            f"{name!r} in {path!r} is {array.dtype.name}, which JAX would convert to {narrow}.",
            (("because", "the x64 mode of JAX is off"),),
            'jax.config.update("jax_enable_x64", True)',
        )
    # A file of NumPy may have the other byte order, which JAX rejects.
    return jnp.asarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _array(name: str, value: Any, does: str = "save") -> np.ndarray:
    try:
        array = np.asarray(value)
        is_supported = array.dtype.name in _DTYPES.values()
    except (TypeError, ValueError) as error:
        raise UnknownOptionError(
            f"cannot {does} parameter {name!r}.", (("given", short_repr(value)), ("because", str(error)))
        ) from error
    if not is_supported:
        raise DataError(
            f"cannot {does} parameter {name!r} of dtype {array.dtype}.",
            (("supported", ", ".join(_DTYPES.values())),),
        )
    return np.ascontiguousarray(array).reshape(array.shape)  # NumPy makes a number an array with one axis


def _key(index: int, name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"parameter {index}"
    return f"parameter {index}" if name == "__metadata__" or name.startswith("parameter ") else name


def _broken(path: str, because: str) -> ModelFileError:
    return ModelFileError(f"{path!r} is broken.", (("because", because),))
