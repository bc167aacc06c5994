"""The state of a loop, which is any tree, as the named arrays of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.errors import CheckpointError
from mithril_nb.train.checkpoints.file import Saved
from mithril_nb.train.processes import is_key, on_devices_of, placed_like


def prefix_of(saved: Saved) -> str:
    """Return how the names of the state begin: in checkpoints of `ml.fit`, those of the params count."""
    return "params" if "columns" in saved.facts else "state"


def has_nan(arrays: Iterable[np.ndarray]) -> bool:
    """Return whether an array has NaN."""
    return any(jnp.issubdtype(array.dtype, jnp.inexact) and bool(np.isnan(array).any()) for array in arrays)


def arrays_of(state: Any, prefix: str = "state") -> dict[str, Any]:
    """Return the arrays and numbers of a tree by name."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {f"{prefix}{jax.tree_util.keystr(path)}": leaf for path, leaf in leaves if kind_of(leaf)}


def kind_of(leaf: Any) -> str:
    """Return how to restore a leaf: JAX has weakly typed numbers, and 64-bit numbers only on request."""
    if isinstance(leaf, jax.Array):
        return "weak" if getattr(leaf, "weak_type", False) and leaf.ndim == 0 else "jax"  # a key has no such type
    if isinstance(leaf, np.ndarray):
        return "numpy"
    return (
        "number" if isinstance(leaf, np.generic) else "python" if isinstance(leaf, bool | int | float | complex) else ""
    )


def restored_state(state: Any, saved: Saved) -> Any:
    """Return the state of a checkpoint in the structure of `state`."""
    prefix = prefix_of(saved)
    stored = {name: array for name, array in saved.arrays.items() if name.startswith(prefix)}
    own = arrays_of(state, prefix)
    kinds = saved.facts.get("kinds") or {name: kind_of(leaf) for name, leaf in own.items()}
    wrong = [("lacks", name) for name in own if name not in stored]
    wrong += [("has extra", name) for name in sorted(stored.keys() - own.keys())]
    for name in own.keys() & stored.keys():
        array, leaf = stored[name], own[name]
        need = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        if is_key(leaf):
            need = jax.eval_shape(jax.random.key_data, leaf)
        # A number may have become an array in the loop, or the other way round.
        is_number = array.ndim == 0 and {kinds[name], kind_of(leaf)} & {"weak", "python", "number"}
        if array.shape != need.shape or (array.dtype != need.dtype and not is_number):
            wrong.append(("has", f"{name}: {array.shape} {array.dtype}, the state needs {need.shape} {need.dtype}"))
    if wrong:
        raise CheckpointError(
            f"checkpoint {saved.path.name!r} belongs to another state.",
            (("folder", str(saved.path.parent)), *wrong),
            "restore(state)  # with these shapes and dtypes; ml.track(..., resume=False) starts a new run",
        )

    def value(name: str, leaf: Any) -> Any:
        array, kind = stored[name], kinds[name]
        if is_key(leaf) or kind == "jax":
            return on_devices_of(placed_like(array, leaf) if is_key(leaf) else jnp.asarray(array), leaf)
        if kind == "weak":
            return jnp.asarray(array.item())
        return array.item() if kind == "python" else array[()] if kind == "number" else array

    leaves, structure = jax.tree_util.tree_flatten_with_path(state)
    names = [f"{prefix}{jax.tree_util.keystr(path)}" for path, _ in leaves]
    pairs = zip(names, leaves, strict=True)
    return jax.tree.unflatten(structure, [value(name, leaf) if name in own else leaf for name, (_, leaf) in pairs])
