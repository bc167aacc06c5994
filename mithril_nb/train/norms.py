"""Norms of gradients, parameters and updates, and statistics of the outputs of blocks, of every nth training step."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.backends.jax.kernels.registry import usual_promotion
from mithril_nb.compilation.values import ByPort, by_block, is_numeric
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models.shape_inference.flat import flat

TITLES = (
    *("gradient norm", "weight norm", "update / weight"),
    *("activation mean", "activation std", "activation zeros"),
)
"""Titles of the values of blocks: three norms, and the fields of an `OutputStatistics`."""


class OutputStatistics(NamedTuple):
    """Statistics of the output of a block for the batch of one step, in training. Unknown numbers are `None`.

    Attributes:
        mean: Mean of the finite elements. Of complex numbers, all statistics are those of the absolute values.
        std: Their standard deviation.
        zeros: Share of the elements that are 0.
    """

    mean: float | None
    std: float | None
    zeros: float | None


@dataclass(frozen=True)
class Norms:
    """Euclidean norms in one training step, by name of the parameter, such as `"linear_0.weight"`.

    Attributes:
        step: The step, from 1.
        gradient: Norm of the gradient.
        weight: Norm of the parameter before the step.
        update: Norm of the change of the parameter, as its dtype rounds it.
        activations: Statistics of the output of each block of a `Model`, by path (`"mlp_0/relu_0"`), or by path and
            port (`"gru_0.hidden"`) for a block with several outputs. Blocks that run several times in a step, such as
            those inside a `Scan`, have none. Samples that fill up the last batch of an epoch count.
    """

    step: int
    gradient: Mapping[str, float]
    weight: Mapping[str, float]
    update: Mapping[str, float]
    activations: Mapping[str, OutputStatistics] = field(default_factory=dict[str, OutputStatistics])

    def by_block(self, parameters: Mapping[str, Collection[str]]) -> dict[str, dict[str, float | None]]:
        """Return the norms over all parameters of a block and of the blocks inside it, by title and path of the block.

        All are `None` for a block with a parameter that is not trained, whose norms are unknown, and so is the share of
        an update, `"update / weight"`, where all weights are 0. The statistics of outputs are those of each block with
        one output.

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
            for title, value in zip(TITLES[:3], (gradient, weight, share), strict=True):
                table[title][path] = value
        single = {path: statistics for path, statistics in self.activations.items() if "." not in path}
        for at, title in enumerate(TITLES[3:]):
            table[title] = {path: statistics[at] for path, statistics in single.items()}
        return table


MOST_STEPS = 512


class NormsLog:
    """The norms of a run over time. Once there are too many steps, every second of the earlier ones is dropped."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, Any, np.ndarray, LogicalGraph | None]] = []

    def add(self, step: int, params: Any, numbers: Sequence[float], graph: LogicalGraph | None = None) -> None:
        """Add the numbers of `norms_of`. Those of later steps, from before the run went back, are dropped."""
        while self._rows and self._rows[-1][0] >= step:
            self._rows.pop()
        if len(self._rows) == MOST_STEPS:
            del self._rows[1::2]
        self._rows.append((step, jax.tree.structure(params), np.array(numbers), graph))

    def steps(self, latest: int = MOST_STEPS) -> list[Norms]:
        """Return the norms of the latest steps, in their order."""
        rows = [*self._rows][-latest:]
        return [
            norms_of(step, tree.unflatten(numbers[: tree.num_leaves]), numbers, graph)
            for step, tree, numbers, graph in rows
        ]


@usual_promotion
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


def output_count(graph: LogicalGraph | None) -> int:
    """Return the number of outputs with statistics in `activations_in_step`."""
    return 0 if graph is None else sum(len(op.outputs) for op in flat(graph).ops)


@usual_promotion
def activations_in_step(graph: LogicalGraph, values: ByPort) -> Any:
    """Return the statistics of the outputs of all blocks, in the order in which they run, as one array."""
    rows = [_statistics(values[op.path].get(port)) for op in flat(graph).ops for port in op.outputs]
    return jnp.concatenate(rows) if rows else jnp.zeros(0)


def _statistics(value: Any) -> Any:
    """Return the numbers of `OutputStatistics`, NaN if unknown."""
    if not is_numeric(value) or not value.size:
        return jnp.full(3, jnp.nan)
    value = jax.lax.stop_gradient(value)
    wide = jnp.abs(value) if jnp.issubdtype(value.dtype, jnp.complexfloating) else value
    wide = wide.astype(jnp.promote_types(wide.dtype, jnp.float32)).reshape(-1, value.shape[-1] if value.ndim else 1)
    is_finite = jnp.isfinite(wide)
    scale = jnp.max(jnp.abs(wide), where=is_finite, initial=0.0)
    scale = jnp.where(scale > 0, scale, 1.0)  # squares of a large float32 overflow
    wide = jnp.where(is_finite, wide / scale, 0.0)

    finite_count = jnp.sum(jnp.sum(is_finite, 1).astype(wide.dtype))

    def mean(terms: Any) -> Any:
        return jnp.sum(jnp.sum(terms, 1)) / finite_count

    center = mean(wide)
    std = jnp.sqrt(mean(jnp.where(is_finite, jnp.square(wide - center), 0.0)))
    return jnp.stack([scale * center, scale * std, jnp.mean(jnp.mean(value.reshape(wide.shape) == 0, 1))])


def norms_of(step: int, params: Any, numbers: Any, graph: LogicalGraph | None = None) -> Norms:
    """Return the numbers of `norms_in_step` by name of the parameter, and those of `activations_in_step` by block."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
    of_params, of_outputs = np.split(np.asarray(numbers), [3 * len(names)])
    gradient, weight, update = (
        dict(zip(names, column, strict=True)) for column in of_params.reshape(3, len(names)).tolist()
    )
    rows = [
        OutputStatistics(*(None if math.isnan(number) else number for number in row))
        for row in of_outputs.reshape(-1, 3).tolist()
    ]
    activations = {path: rows[at] for path, at in _rows_by_block(graph).items()} if graph is not None else {}
    return Norms(step, gradient, weight, update, activations)


@lru_cache(maxsize=8)
def _rows_by_block(graph: LogicalGraph) -> dict[str, int]:
    numbers = count()
    return by_block(graph, {op.path: {port: next(numbers) for port in op.outputs} for op in flat(graph).ops})
