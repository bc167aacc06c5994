"""Ancestors and descendants of a stage's nodes are the same in Python and in the front end.

Both are compared with `golden/reach.json`, the front end by `search.test.ts`. The
golden file contains line numbers of this file.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.viz.diagrams.stages import nested_stage


@pytest.mark.skipif(jax.__version_info__[:2] != (0, 10), reason="the golden file contains programs of JAX 0.10")
def test_reachability_equals_the_golden_one(golden) -> None:
    """`search.test.ts` compares what the front end finds with these answers of `StageGraph`."""
    text = ",\n".join(json.dumps(one, separators=(",", ":")) for one in reach_cases())
    golden("reach.json", f"[{text}]\n")


def reach_cases() -> list[dict[str, Any]]:
    x, w = jnp.ones((2, 3)), jnp.ones((3, 3))

    def blocks(x: Any, w: Any, count: int = 4) -> Any:
        for at in range(count):
            with jax.named_scope(f"block_{at}"):
                x = jnp.tanh(x @ w) + x
        return x

    def looped(x: Any, w: Any) -> Any:
        with jax.named_scope("first"):
            x = jnp.sin(x)
        with jax.named_scope("loop"):
            x, means = jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ w), carry.mean()), x, length=3)
        with jax.named_scope("last"):
            return x.sum() + means.sum()

    plain = inspect(jax.grad(lambda w, x: jnp.sum(jnp.tanh(x @ w) ** 2)), w, x)
    unrolled = inspect(jax.grad(lambda x, w: blocks(x, w).sum()), x, w)
    steps = inspect(jax.grad(looped, argnums=(0, 1)), x, w)
    graphs = [one.graph("jaxpr") for one in (plain, inspect(blocks, x, w), inspect(looped, x, w), unrolled, steps)]
    graphs += [one.graph(stage) for one in (unrolled, steps) for stage in ("stablehlo", "hlo")]
    found: list[dict[str, Any]] = []
    for graph in graphs:
        keys = [node.key for node in graph.visible(graph.nodes)]
        answers = {key: [sorted(graph.ancestors(key)), sorted(graph.descendants(key))] for key in keys}
        found.append({"graph": nested_stage(graph).to_dict(), "answers": answers})
    return found
