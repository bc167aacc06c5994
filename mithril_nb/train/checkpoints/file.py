"""One checkpoint in one file: arrays as safetensors, facts as JSON in its header. Reading it runs no code.

A checksum inside the header covers each byte of the file: the SHA-256 of the file with zeros in place of the checksum.
Why not orbax: it installs tensorstore and a dozen more packages for sharded, asynchronous writes to cloud storage, and
its checkpoint is a folder of many files. A single file can be renamed into place, so it is complete or absent.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from mithril_nb.atomic_write import open_regular, replacing
from mithril_nb.errors import CheckpointError
from mithril_nb.train.processes import is_key, placed_like

NAME = "mithril_nb.sha256"
"""Key of the checksum in the file's metadata. Do not change it: every version of a checkpoint uses it."""
ZEROS = "0" * 64
_MARK = f'"{NAME}":"'.encode()
_LONGEST_HEADER = 100_000_000
"""Longest header that safetensors reads, in bytes."""
_CHUNK = 1 << 20


def seal(path: Path) -> None:
    """Write the checksum of a checkpoint's file into its metadata, in place of the zeros that `write` left there."""
    offset, _, total = _read(path)
    assert offset is not None, "the metadata lacks the checksum"
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(total)


def content_id(path: Path) -> str | None:
    """Return an id of the content of a checkpoint; `None` if the path is not a file that mithril_nb wrote."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            header = _header(file)
    except OSError:
        return None
    return hashlib.sha256(header).hexdigest() if f'"{KEY}":'.encode() in header else None


def _header(file: IO[bytes]) -> bytes:
    length = file.read(8)
    # The length of a damaged file may be any number of 64 bits.
    return length + file.read(min(int.from_bytes(length, "little"), _LONGEST_HEADER))


def _read(path: Path) -> tuple[int | None, bytes, bytes]:
    with os.fdopen(open_regular(path), "rb") as file:
        header = _header(file)
        # Inside a JSON string, the quotation marks around the key would be escaped, so only the key itself matches.
        offset = header.find(_MARK) + len(_MARK)
        if offset < len(_MARK):
            return None, b"", b""
        stated = header[offset : offset + len(ZEROS)]
        total = hashlib.sha256(header[:offset] + ZEROS.encode() + header[offset + len(ZEROS) :])
        while chunk := file.read(_CHUNK):
            total.update(chunk)
    return offset, stated, total.hexdigest().encode()


KEY = "mithril_nb.checkpoint"
"""Key of version, dtypes and facts in the file's metadata."""
VERSION = 3

Arrays = dict[str, np.ndarray]


class OtherVersionError(CheckpointError):
    """A complete checkpoint has a version that this mithril_nb cannot read. Resuming must not skip it."""


@dataclass(frozen=True)
class Saved:
    """Contents of a checkpoint.

    Attributes:
        path: The file.
        arrays: Arrays by name, such as `"params['linear_0.weight']"`.
        facts: The contents other than arrays, as JSON values.
    """

    path: Path
    arrays: Arrays
    facts: dict[str, Any]


def write(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
    is_ours: Callable[[Path], bool] = lambda path: content_id(path) is not None,
) -> None:
    """Write a checkpoint atomically: if the machine stops, the file is complete or absent."""
    # The NumPy API of safetensors supports neither bfloat16 nor float8: store them as unsigned integers of that size.
    dtypes = {name: array.dtype.name for name, array in arrays.items() if array.dtype.kind == "V"}
    plain: Arrays = {}
    for name, array in arrays.items():
        ordered = np.asarray(array, order="C")
        plain[name] = ordered.view(f"u{ordered.dtype.itemsize}") if name in dtypes else ordered
    header = {"version": VERSION, "dtypes": dtypes, "facts": dict(facts)}
    with replacing(path, is_ours) as part:
        part.touch()  # fails with the cause; the error of safetensors would name its own temporary file
        save_file(plain, part, {KEY: json.dumps(header), NAME: ZEROS})
        seal(part)


def read(path: Path) -> Saved:
    """Read a checkpoint from its file."""
    try:
        # First, because safetensors checks no content: a flipped bit in an array would be a wrong parameter.
        offset, stated, total = _read(path)
        if offset is None or stated != total:
            raise broken(path, "it was changed or truncated after it was written (sha256)")
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[KEY])
            arrays = {name: file.get_tensor(name) for name in file.keys()}
        version, dtypes, facts = int(header["version"]), dict(header["dtypes"]), dict(header["facts"])
        typed = {name: array.view(jnp.dtype(dtypes.get(name, array.dtype))) for name, array in arrays.items()}
    except CheckpointError:
        raise
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise broken(path, f"it cannot be read: {error}") from error
    if version != VERSION:
        raise OtherVersionError(
            f"checkpoint {path.name!r} has version {version}; this mithril_nb reads version {VERSION}.",
            (("folder", str(path.parent)),),
            "pip install --upgrade mithril-nb",
        )
    return Saved(path, typed, facts)


def facts_of(path: Path) -> dict[str, Any]:
    """Return the facts of a checkpoint from its header, without a check of its content."""
    with os.fdopen(open_regular(path), "rb") as file:
        return json.loads(json.loads(_header(file)[8:])["__metadata__"][KEY])["facts"]


def named(trees: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of the trees (nested containers of arrays) by name.

    Examples:
        >>> list(named({"params": {"linear.weight": 1}, "opt_state": ({"mu": 2}, 3)}))
        ["opt_state[0]['mu']", 'opt_state[1]', "params['linear.weight']"]
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(dict(trees))
    return {str(path[0].key) + jax.tree_util.keystr(path[1:]): leaf for path, leaf in leaves}


def nested(arrays: Mapping[str, Any]) -> Any:
    """Return arrays as a tree of dicts, from the names that `named` gave them. The keys of a list are its indices.

    A name with a key that is no Python literal is itself a key.

    Examples:
        >>> nested({"state[0].mu['w']": 1, "state[1]": 2})
        {0: {'mu': {'w': 1}}, 1: 2}
    """
    root: dict[Any, Any] = {}
    for name, array in arrays.items():
        keys: list[Any] = []
        try:
            node: Any = ast.parse(re.sub(r"<flat index (\d+)>", r"\1", name), mode="eval").body
            while not isinstance(node, ast.Name):
                keys.append(node.attr if isinstance(node, ast.Attribute) else ast.literal_eval(node.slice))
                node = node.value
        except (SyntaxError, ValueError, AttributeError):
            keys = [name]
        *parents, last = ["", *keys[::-1]]
        tree = root
        for key in parents:
            tree = tree.setdefault(key, {})
        tree[last] = array
    return root.get("", {})


def to_host(trees: Mapping[str, Any]) -> Arrays:
    """Return the leaves of the trees by name, as NumPy arrays. Blocks until they are computed."""
    arrays = {name: jax.random.key_data(leaf) if is_key(leaf) else leaf for name, leaf in named(trees).items()}
    return {name: np.asarray(leaf) for name, leaf in jax.device_get(arrays).items()}


def like(
    trees: Mapping[str, Any],
    saved: Saved,
    advice: str = 'checkpoint="another-folder"  # or use the model and optimizer that wrote the checkpoint',
) -> dict[str, Any]:
    """Return trees with the structure of `trees`, whose leaves are the arrays of a checkpoint."""
    leaves = named(trees)
    stored = saved.arrays.keys() - {"history"}
    wrong = [("lacks", name) for name in leaves if name not in stored]
    wrong += [("has extra", name) for name in sorted(stored - leaves.keys())]
    for name in sorted(stored & leaves.keys()):
        array, leaf = saved.arrays[name], leaves[name]
        # Shapes of the data, because NumPy has no dtype for a key; a Python number has a dtype only in JAX.
        need = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else jnp.asarray(leaf)
        if (array.shape, array.dtype) != (need.shape, need.dtype):
            text = f"{name}: {array.shape} {array.dtype}, the model needs {need.shape} {need.dtype}"
            wrong.append(("has", text))
    if wrong:
        raise CheckpointError(
            f"checkpoint {saved.path.name!r} belongs to another model or optimizer.",
            (("folder", str(saved.path.parent)), *wrong),
            advice,
        )
    _, structure = jax.tree.flatten(dict(trees))
    return jax.tree.unflatten(structure, [placed_like(saved.arrays[name], leaf) for name, leaf in leaves.items()])


def broken(path: Path, because: str) -> CheckpointError:
    """Return the error for a file that is not a complete checkpoint."""
    return CheckpointError(
        f"{path.name!r} is not a complete checkpoint.",
        (("folder", str(path.parent)), ("because", because)),
        f"import os; os.remove({str(path)!r})  # resume=True then uses the latest checkpoint that is left",
    )
