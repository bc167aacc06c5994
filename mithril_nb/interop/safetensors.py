"""Parameters in files: safetensors, a header of JSON and then the numbers. Reading one runs no code.

The dtype of every array is kept as it is, and a name may hold any character.
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

FORMAT, VERSION = "mithril_nb.params", 1
_ADVICE = "ml.load_params(path)  # of a file that ml.save_params(params, path) wrote"
_DTYPES = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8", "U16": "uint16",
    "U32": "uint32", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
}  # fmt: skip


def save_params(params: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write parameters to a safetensors file: whole, or not at all.

    Args:
        params: Arrays by name, dotted or nested.
        path: Where to.

    Raises:
        UnknownOptionError: The parameters are no arrays by name, or it is no path.
        DataError: A dtype that the format does not have.
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

    _check_path(path, "save to", 'ml.save_params(params, "model.safetensors")')
    arrays = {name: _array(name, value) for name, value in flat_params(params).items()}
    keys = {name: _key(place, name) for place, name in enumerate(arrays)}
    other = {key: name for name, key in keys.items() if key != name}
    # JSON writes half a character of a name as an escape, for which the header itself has no bytes.
    about = {"format": FORMAT, "version": str(VERSION), **({"names": json.dumps(other)} if other else {})}
    try:
        with replacing(path) as part:
            part.touch()  # an error names the cause; safetensors would name its own temporary file
            save_file({keys[name]: array for name, array in arrays.items()}, part, metadata=about)
    except (OSError, SafetensorError) as error:
        because = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(
            f"cannot write {str(path)!r}.", (("because", because),), 'ml.save_params(params, "model.safetensors")'
        ) from error


def load_params(path: str | os.PathLike[str]) -> dict[str, jax.Array]:
    """Return the parameters that `save_params` wrote, by dotted name.

    Raises:
        UnknownOptionError: It is no path.
        ModelFileError: There is no such file, or it is cut short, broken, of a later version, or not from here.
        DataError: An array of 64 bits, while JAX has them switched off.
    """
    from safetensors import SafetensorError, deserialize

    _check_path(path, "load", 'ml.load_params("model.safetensors")')
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {str(path)!r}.", (("because", error.strerror or str(error)),)) from error
    try:
        found = deserialize(data)
    except (SafetensorError, ValueError, OverflowError) as error:
        raise ModelFileError(
            f"{str(path)!r} is no safetensors file, or a broken one.", (("because", str(error)),), _ADVICE
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
    """The names that stand for others in the file, after a look at who wrote it."""
    length = int.from_bytes(data[:8], "little")
    about = json.loads(data[8 : 8 + length]).get("__metadata__") or {}
    if about.get("format") != FORMAT:
        raise ModelFileError(
            f"{path!r} was not written by ml.save_params.",
            (("needs", f'"format": "{FORMAT}"'), ("found", short_repr(about) if about else "nothing of the kind")),
            "safetensors.numpy.load_file(path)  # then give its arrays the names of the parameters",
        )
    if about.get("version") != str(VERSION):
        raise ModelFileError(
            f"{path!r} was written in version {about.get('version')!r} of the format.",
            (("read here", f"version {VERSION}"),),
            "pip install --upgrade mithril-nb",
        )
    try:
        names = json.loads(about.get("names", "{}"))
    except (ValueError, RecursionError) as error:
        raise _broken(path, "its table of names is no JSON") from error
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise _broken(path, "its table of names is none")
    return names


def _loaded(path: str, name: str, view: Mapping[str, Any]) -> jax.Array:
    if view["dtype"] not in _DTYPES:
        raise _broken(path, f"{name!r} has the dtype {view['dtype']}, which no parameter has")
    dtype = jnp.dtype(_DTYPES[view["dtype"]])
    array = np.frombuffer(view["data"], dtype=dtype).reshape(view["shape"])
    if dtype.itemsize == 8 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise DataError(
            f"{name!r} in {path!r} is {dtype.name}, which JAX would make {dtype.name.replace('64', '32')}.",
            (("because", "its x64 mode is off"),),
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
            (("known", ", ".join(_DTYPES.values())),),
            _EXAMPLE,
        )
    return np.ascontiguousarray(array).reshape(array.shape)


_EXAMPLE = "ml.save_params(pm.randomize_params(), path)"


def _key(place: int, name: str) -> str:
    """The name, or one that the header can hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"parameter {place}"
    return f"parameter {place}" if name == "__metadata__" or name.startswith("parameter ") else name


def _check_path(path: Any, what: str, advice: str) -> None:
    if not isinstance(path, str | os.PathLike):
        raise UnknownOptionError(f"cannot {what} {short_repr(path)}.", (("needs", "the path of a file"),), advice)


def _broken(path: str, because: str) -> ModelFileError:
    return ModelFileError(f"{path!r} is broken.", (("because", because),), _ADVICE)
