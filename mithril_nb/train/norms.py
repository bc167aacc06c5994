"""Norms of gradients, parameters and updates, computed by every nth training step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

TITLES = ("gradient norm", "weight norm", "update / weight")
"""Titles of the values of blocks."""


@dataclass(frozen=True)
class Norms:
    """Euclidean norms in one training step, by name of the parameter, such as `"linear_0.weight"`.

    Attributes:
        step: The step, from 1.
        gradient: Norm of the gradient.
        weight: Norm of the parameter before the step.
        update: Norm of the change of the parameter, as its dtype rounds it.
    """

    step: int
    gradient: Mapping[str, float]
    weight: Mapping[str, float]
    update: Mapping[str, float]

    def by_block(self, parameters: Mapping[str, Collection[str]]) -> dict[str, dict[str, float | None]]:
        """Return the norms over all parameters of a block and of the blocks inside it, by title and path of the block.

        All are `None` for a block with a parameter that is not trained, whose norms are unknown, and so is the share of
        an update, `"update / weight"`, where all weights are 0.

        Args:
            parameters: Names of the parameters by path of the block (`"mlp_0/linear_0"`), including parameters that
                several blocks share.
        """
        names: dict[str, set[str]] = {}
        for path, own in parameters.items():
            while path and own:
                names.setdefault(path, set()).update(own)
                path = path.rpartition("/")[0]
        table: dict[str, dict[str, float | None]] = {title: {} for title in TITLES}
        for path, own in names.items():
            gradient, weight, update = (
                float(np.linalg.norm([column[name] for name in own])) if own <= column.keys() else None
                for column in (self.gradient, self.weight, self.update)
            )
            share = update / weight if update is not None and weight else None
            for title, value in zip(TITLES, (gradient, weight, share), strict=True):
                table[title][path] = value
        return table


MOST_STEPS = 512


class NormsLog:
    """The norms of a run over time. Once there are too many steps, every second of the earlier ones is dropped."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, Any, np.ndarray]] = []

    def add(self, step: int, params: Any, numbers: Sequence[float]) -> None:
        """Add the numbers of `norms_in_step`. Those of later steps, from before the run went back, are dropped."""
        while self._rows and self._rows[-1][0] >= step:
            self._rows.pop()
        if len(self._rows) == MOST_STEPS:
            del self._rows[1::2]
        self._rows.append((step, jax.tree.structure(params), np.array(numbers)))

    def steps(self, latest: int = MOST_STEPS) -> list[Norms]:
        """Return the norms of the latest steps, in their order."""
        rows = [*self._rows][-latest:]
        return [norms_of(step, tree.unflatten(numbers[: tree.num_leaves]), numbers) for step, tree, numbers in rows]


def norms_in_step(gradient: Any, weight: Any, update: Any) -> Any:
    """Return the norms of each array of three equal trees, in the order of its leaves, as one array."""
    norms = [_norm(leaf) for tree in (gradient, weight, update) for leaf in jax.tree.leaves(tree)]
    return jnp.stack(norms) if norms else jnp.zeros(0)


def _norm(leaf: Any) -> Any:
    # Squares of a float16 overflow. A scale keeps those of large and small float32 in range, too.
    values = jnp.abs(leaf)
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    largest = jnp.max(values, initial=0.0)
    scale = jnp.where(largest > 0, largest, 1.0)
    return jnp.where(jnp.isinf(largest), largest, scale * jnp.sqrt(jnp.sum(jnp.square(values / scale))))


def norms_of(step: int, params: Any, numbers: Any) -> Norms:
    """Return the numbers of `norms_in_step` by name of the parameter."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
    columns = np.reshape(numbers, (3, len(names))).tolist()
    gradient, weight, update = (dict(zip(names, column, strict=True)) for column in columns)
    return Norms(step, gradient, weight, update)
