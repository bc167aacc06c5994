"""Save and load parameters as safetensors: a JSON header followed by the numbers. Reading a file runs no code.

The dtypes do not change, and a name may contain any character.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.atomic_write import replacing
from mithril_nb.errors import DataError, ModelFileError, UnknownOptionError, short_repr
from mithril_nb.models.naming import flat_params
from mithril_nb.models.saving.serialization import check_path

FORMAT, VERSION = "mithril_nb.params", 1
_ADVICE = "ml.load_params(path)  # of a file that ml.save_params(params, path) wrote"
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
    keys = {name: _key(place, name) for place, name in enumerate(arrays)}
    other = {key: name for name, key in keys.items() if key != name}
    # A name may contain a lone surrogate. JSON can escape it, but the header cannot encode it as a key.
    about = {"format": FORMAT, "version": str(VERSION), **({"names": json.dumps(other)} if other else {})}
    try:
        with replacing(path) as part:
            part.touch()  # fails with the cause; the error of safetensors would name its own temporary file
            save_file({keys[name]: array for name, array in arrays.items()}, part, metadata=about)
    except (OSError, SafetensorError) as error:
        because = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(
            f"cannot write {str(path)!r}.", (("because", because),), 'ml.save_params(params, "model.safetensors")'
        ) from error


def load_params(path: str | os.PathLike[str]) -> dict[str, jax.Array]:
    """Load parameters written by `save_params`, by dotted name.

    Raises:
        UnknownOptionError: `path` is not a path.
        ModelFileError: The file is missing, truncated or broken, has another version of the format, or another program
            wrote it.
        DataError: An array has items of 64 bits, but the x64 mode of JAX is off.
    """
    from safetensors import SafetensorError, deserialize

    check_path(path, "load", 'ml.load_params("model.safetensors")')
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {str(path)!r}.", (("because", error.strerror or str(error)),)) from error
    try:
        found = deserialize(data)
    except (SafetensorError, ValueError, OverflowError) as error:
        raise ModelFileError(
            f"{str(path)!r} is not a safetensors file, or is broken.", (("because", str(error)),), _ADVICE
        ) from error
    names = _names(str(path), data)
    arrays: dict[str, jax.Array] = {}
    for key, view in found:
        name = names.get(key, key)
        if name in arrays:
            raise _broken(str(path), f"two arrays are named {name!r}")
        arrays[name] = _loaded(str(path), name, view)
    return arrays


def _names(path: str, data: bytes) -> dict[str, str]:
    """Check the format and version of a file. Return a dict of the names that differ from their keys, by key."""
    length = int.from_bytes(data[:8], "little")
    about = json.loads(data[8 : 8 + length]).get("__metadata__") or {}
    if about.get("format") != FORMAT:
        raise ModelFileError(
            f"{path!r} was not written by ml.save_params.",
            (("needs", f'"format": "{FORMAT}"'), ("found", short_repr(about) if about else "no metadata")),
            "safetensors.numpy.load_file(path)  # then rename its arrays to the names of the parameters",
        )
    if about.get("version") != str(VERSION):
        raise ModelFileError(
            f"{path!r} was written in version {about.get('version')!r} of the format.",
            (("supported", f"version {VERSION}"),),
            "pip install --upgrade mithril-nb",
        )
    try:
        names = json.loads(about.get("names", "{}"))
    except (ValueError, RecursionError) as error:
        raise _broken(path, "its table of names is not valid JSON") from error
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise _broken(path, "its table of names is not a table of strings")
    return names


def _loaded(path: str, name: str, view: Mapping[str, Any]) -> jax.Array:
    if view["dtype"] not in _DTYPES:
        raise _broken(path, f"{name!r} has the dtype {view['dtype']}, which parameters cannot have")
    dtype = jnp.dtype(_DTYPES[view["dtype"]])
    array = np.frombuffer(view["data"], dtype=dtype).reshape(view["shape"])
    if dtype.itemsize == 8 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise DataError(
            f"{name!r} in {path!r} is {dtype.name}, which JAX would convert to {dtype.name.replace('64', '32')}.",
            (("because", "the x64 mode of JAX is off"),),
            'jax.config.update("jax_enable_x64", True)  # or ml.JaxBackend(dtype="float64") first',
        )
    return jnp.asarray(array)


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
        known = array.dtype.name in _DTYPES.values()
    except (TypeError, ValueError) as error:
        raise UnknownOptionError(
            f"cannot save parameter {name!r}.", (("given", short_repr(value)), ("because", str(error))), _EXAMPLE
        ) from error
    if not known:
        raise DataError(
            f"cannot save parameter {name!r} of dtype {array.dtype}.",
            (("supported", ", ".join(_DTYPES.values())),),
            _EXAMPLE,
        )
    return np.ascontiguousarray(array).reshape(array.shape)


_EXAMPLE = "ml.save_params(pm.randomize_params(), path)"


def _key(place: int, name: str) -> str:
    """Return the key of a parameter in the file: its name, or `"parameter 3"` if the header cannot store the name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"parameter {place}"
    return f"parameter {place}" if name == "__metadata__" or name.startswith("parameter ") else name


def _broken(path: str, because: str) -> ModelFileError:
    return ModelFileError(f"{path!r} is broken.", (("because", because),), _ADVICE)
