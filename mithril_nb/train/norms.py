"""Norms of gradients, parameters and updates, computed by every nth training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Norms:
    """Euclidean norms in one training step, by name of the parameter, such as `"linear_0.weight"`.

    Attributes:
        step: The step, from 1.
        gradient: Norm of the gradient.
        weight: Norm of the parameter before the step.
        update: Norm of the change of the parameter.
    """

    step: int
    gradient: Mapping[str, float]
    weight: Mapping[str, float]
    update: Mapping[str, float]

    def by_block(self, blocks: Mapping[str, str]) -> dict[str, dict[str, float | None]]:
        """Return the norms over all parameters of a block and of the blocks inside it, by title and path of the block.

        The share of an update, `"update / weight"`, is `None` where all weights are 0.

        Args:
            blocks: Path of the block (`"mlp_0/linear_0"`) by name of the parameter.
        """
        squares: dict[str, np.ndarray] = {}
        for name, path in blocks.items():
            row = np.square([self.gradient[name], self.weight[name], self.update[name]])
            while path:
                squares[path] = squares.get(path, 0.0) + row
                path = path.rpartition("/")[0]
        norms = {path: np.sqrt(row).tolist() for path, row in squares.items()}
        return {
            "gradient norm": {path: gradient for path, (gradient, _, _) in norms.items()},
            "weight norm": {path: weight for path, (_, weight, _) in norms.items()},
            "update / weight": {
                path: update / weight if weight else None for path, (_, weight, update) in norms.items()
            },
        }


def norms_in_step(gradient: Any, weight: Any, update: Any) -> Any:
    """Return the norms of each array of three equal trees, in the order of its leaves, as one array."""
    return jnp.stack([_norm(leaf) for tree in (gradient, weight, update) for leaf in jax.tree.leaves(tree)])


def _norm(leaf: Any) -> Any:
    # Squares of a float16 overflow. A scale keeps those of large and small float32 in range, too.
    values = jnp.abs(leaf)
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    largest = jnp.max(values, initial=0.0)
    scale = jnp.where(largest > 0, largest, 1.0)
    return scale * jnp.sqrt(jnp.sum(jnp.square(values / scale)))


def norms_of(step: int, params: Any, numbers: Sequence[float]) -> Norms:
    """Return the numbers of `norms_in_step` by name of the parameter."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
    columns = np.reshape(numbers, (3, len(names))).tolist()
    gradient, weight, update = (dict(zip(names, column, strict=True)) for column in columns)
    return Norms(step, gradient, weight, update)
