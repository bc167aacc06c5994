"""The content of `.gguf` files: the parameters of a model and metadata, in the format of GGML."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mithril_nb.emission.ggml.rules import MOST_AXES
from mithril_nb.errors import UnknownOptionError

_VERSION, _ALIGNMENT, _LONGEST_NAME = 3, 32, 63
_TYPES = {"float32": 0, "float16": 1, "int8": 24, "int16": 25, "int32": 26, "int64": 27, "float64": 28}
"""GGML's number for each dtype."""
_INT, _FLOAT, _BOOL, _TEXT, _LIST = 5, 6, 7, 8, 9
"""GGML's numbers for the types of metadata: int32, float32, bool, string, list."""


def gguf_bytes(params: Mapping[str, Any], metadata: Mapping[str, Any]) -> bytes:
    """Return the content of a `.gguf` file.

    If a name with more than 63 bytes is shortened to `x`, the metadata contains the whole name by the key `"name.x"`.
    """
    # GGML lists sizes from the last axis: an array of shape (4, 8) has ne[0] = 8 and ne[1] = 4 there.
    arrays = {name: _checked(name, np.asarray(value)) for name, value in params.items()}
    short = {name: _shortened(name) for name in arrays}
    full_names = {f"name.{short_name}": name for name, short_name in short.items() if short_name != name}
    # Readers look up the architecture first; it may have no underscore.
    entries = {"general.architecture": "mithrilnb", **metadata, **full_names}
    parts = [b"GGUF", struct.pack("<IQQ", _VERSION, len(arrays), len(entries))]
    parts += [_text(key) + _item(key, value) for key, value in entries.items()]
    offset, blocks = 0, list[bytes]()
    for name, array in arrays.items():
        dims = array.shape[::-1] or (1,)  # GGML has no tensor without axes
        parts.append(_text(short[name]) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims))
        parts.append(struct.pack("<IQ", _TYPES[array.dtype.name], offset))
        blocks.append(_padded(array.tobytes()))
        offset += len(blocks[-1])
    return _padded(b"".join(parts)) + b"".join(blocks)


def _checked(name: str, array: np.ndarray) -> np.ndarray:
    problem = (
        f"dtype {array.dtype} is not one of {', '.join(_TYPES)}" if array.dtype.name not in _TYPES
        else f"{len(array.shape)} axes; GGML has at most {MOST_AXES}" if len(array.shape) > MOST_AXES
        else "an empty array" if not array.size
        else ""
    )  # fmt: skip
    if problem:
        raise UnknownOptionError(
            f"cannot write array {name!r} to a .gguf file.",
            (("reason", problem), ("shape", str(array.shape))),
            'ml.export(model, "folder", to="numpy")  # stores it as safetensors',
        )
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))


def _shortened(name: str) -> str:
    # GGUF allows names of at most 63 bytes. A longer one becomes a checksum and its end.
    data = name.encode()
    if len(data) <= _LONGEST_NAME:
        return name
    number = f"{zlib.crc32(data):08x}~"
    return number + data[len(number) - _LONGEST_NAME :].decode(errors="ignore")


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNMENT)


def _item(key: str, value: Any) -> bytes:
    if not isinstance(value, str) and isinstance(value, Sequence):
        items = [_scalar(key, entry) for entry in value]
        kinds = {kind for kind, _ in items}
        if len(kinds) != 1:
            raise _wrong(key, value)
        return struct.pack("<IIQ", _LIST, kinds.pop(), len(items)) + b"".join(data for _, data in items)
    kind, data = _scalar(key, value)
    return struct.pack("<I", kind) + data


def _scalar(key: str, value: Any) -> tuple[int, bytes]:
    if isinstance(value, str):
        return _TEXT, _text(value)
    if isinstance(value, bool):  # before int, of which bool is a subclass
        return _BOOL, struct.pack("<?", value)
    if isinstance(value, int) and -(2**31) <= value < 2**31:
        return _INT, struct.pack("<i", value)
    if isinstance(value, float):
        return _FLOAT, struct.pack("<f", value)
    raise _wrong(key, value)


def _wrong(key: str, value: Any) -> UnknownOptionError:
    return UnknownOptionError(
        f"cannot write {key}={value!r} to a .gguf file.",
        (("needs", "a string, a bool, an int of 32 bits, a float, or a list of one of these"),),
    )
