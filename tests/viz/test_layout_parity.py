"""The front end lays out graphs as Python does: both are compared with `golden/layouts.json`.

The test of the front end is `mithril_nb/ui/frontend/tests/layout.test.ts`.
"""

from __future__ import annotations

import json
import random
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.inspection import inspect
from mithril_nb.models import Linear, Model, Relu, TransformerBlock
from mithril_nb.viz.diagrams.layout import layout
from mithril_nb.viz.diagrams.logical import model_graph
from mithril_nb.viz.diagrams.nested import Box, Flow, NestedGraph
from mithril_nb.viz.diagrams.scene import Scene
from mithril_nb.viz.diagrams.stages import nested_stage

HOSTILE = ("<b>&amp;", "a/b", "\u202eright to left", "line\nbreak", "😀", "x" * 300, '"', "%2F")


def test_layouts_equal_the_golden_ones(golden) -> None:
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases())
    golden("layouts.json", f"[{text}]\n")


def cases() -> list[dict[str, Any]]:
    model = Model() + Linear(8) + Relu() + TransformerBlock(8)
    graph = model_graph(model.graph)
    groups = [path for path, node in model.graph.walk() if node.block.graph]
    found = [case(graph, []), case(graph, groups), case(graph, groups[:1], {"linear_0": (300, 200)})]
    inspection = inspect(jax.grad(lambda w, x: jnp.sum(jnp.tanh(x @ w) ** 2)), jnp.ones((3, 3)), jnp.ones((2, 3)))
    jaxpr = inspection.graph("jaxpr")
    found += [case(nested_stage(jaxpr), opened) for opened in ([], jaxpr.first_view(), jaxpr.nodes)]
    found.append(case(nested_stage(jaxpr, shares={}), []))
    return found + [case(random_graph(seed), [f"g{at}" for at in range(9) if at % 3]) for seed in range(12)]


def test_reachability_equals_the_golden_one(golden) -> None:
    """`search.test.ts` compares what the front end finds with these answers of `StageGraph`.

    Of a gradient through loops or repeated blocks, the front end, which has no instructions, finds other rounds.
    """
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

    programs = [
        inspect(jax.grad(lambda w, x: jnp.sum(jnp.tanh(x @ w) ** 2)), w, x),
        inspect(blocks, x, w),
        inspect(looped, x, w),
    ]
    found: list[dict[str, Any]] = []
    for program in programs:
        graph = program.graph("jaxpr")
        keys = [node.key for node in graph.visible(graph.nodes)]
        answers = {key: [sorted(graph.ancestors(key)), sorted(graph.descendants(key))] for key in keys}
        found.append({"graph": nested_stage(graph).to_dict(), "answers": answers})
    return found


def random_graph(seed: int) -> NestedGraph:
    """Return a stage's graph of groups in groups, with flows forward and backward."""
    rng = random.Random(seed)
    boxes: list[Box] = []
    for at in range(rng.randrange(1, 28)):
        groups = [box.key for box in boxes if box.is_group]
        is_group = rng.random() < 0.3
        key = f"g{at}" if is_group else f"{rng.choice(HOSTILE)}{at}"
        kind = "block" if is_group else rng.choice(["instruction", "input"])
        boxes.append(
            Box(
                key, key, kind, rng.choice([112, 128, 208, 240]), rng.choice([34, 46, 64]), rng.randrange(60, 300),
                rng.choice(["", *groups]), is_group, counts=(rng.randrange(2), rng.randrange(2), rng.randrange(2), 0),
            )
        )  # fmt: skip
    loops = [box.key for box in boxes if box.is_group]
    pairs = [(rng.randrange(len(boxes)), rng.randrange(len(boxes))) for _ in range(2 * len(boxes))]
    flows = tuple(
        Flow(
            boxes[tail].key, boxes[head].key, roles=tuple(sorted(rng.sample(range(4), rng.randrange(3)))),
            shapes=tuple(sorted(rng.sample(range(3), rng.randrange(3)))), loop=loop,
        )
        for tail, head in pairs
        if tail != head or loops
        for loop in ([rng.choice(loops)] if tail == head or (loops and rng.random() < 0.2) else [""])
    )  # fmt: skip
    ordered = _nested(boxes, "")
    return NestedGraph(
        "random", tuple(ordered), flows, ("scalar", "3", "3×4"), False, ("forward", "backward", "update")
    )


def _nested(boxes: list[Box], parent: str) -> list[Box]:
    return [one for box in boxes if box.parent == parent for one in (box, *_nested(boxes, box.key))]


def case(graph: NestedGraph, opened: Any, moved: dict[str, tuple[float, float]] | None = None) -> dict[str, Any]:
    scene = layout(graph, opened, moved)
    return {"graph": graph.to_dict(), "opened": sorted(opened), "moved": moved or {}, "scene": placed(scene)}


def placed(scene: Scene) -> dict[str, Any]:
    return {
        "size": [scene.width, scene.height],
        "nodes": [
            [node.key, node.x, node.y, node.w, node.h, [[port.name, port.x, port.y] for port in ports]]
            for node in scene.nodes
            for ports in [(*node.inputs, *node.outputs)]
        ],
        "edges": [
            [edge.source, edge.target, edge.points, edge.shape, edge.is_backward, edge.returns, edge.is_end]
            for edge in scene.edges
        ],
    }
