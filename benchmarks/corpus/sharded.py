"""A train step over 8 devices, data and model parallel."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from benchmarks.corpus.networks import mean_square, mlp
from benchmarks.corpus.program import Make, Program, adam_step, spec


def programs(full: bool) -> dict[str, Make]:
    """Return the programs of this family."""
    widths, batch = ((512, 1024, 512), 64) if full else ((8, 16, 8), 8)

    def forward() -> Program:
        params, x, _ = sharded_shapes(widths, batch)
        return mlp, (params, x)

    def step() -> Program:
        params, x, y = sharded_shapes(widths, batch)
        return adam_step(mlp, params, x, y, loss=mean_square)

    return {"sharded, forward": forward, "sharded, train step": step}


def sharded_shapes(widths: tuple[int, int, int], batch: int) -> tuple[Any, Any, Any]:
    """Return specs of params with weights split in 2, and of inputs and targets with the batch split in 4."""
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def placed(*shape: int, over: tuple[str | None, ...]) -> Any:
        return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, PartitionSpec(*over)))

    params = [
        {"w": placed(*widths[:2], over=(None, "model")), "b": placed(widths[1], over=("model",))},
        {"w": placed(*widths[1:], over=("model", None)), "b": spec(widths[2])},
    ]
    x = placed(batch, widths[0], over=("data", None))
    return params, x, placed(batch, widths[2], over=("data", None))
