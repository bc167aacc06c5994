"""The front end lays out graphs as Python does: both are compared with `golden/layouts.json`.

The test of the front end is `mithril_nb/ui/frontend/tests/layout.test.ts`.
"""

from __future__ import annotations

import json
import random
import zlib
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.models import Linear, Model, Relu, TransformerBlock
from mithril_nb.viz.diagrams.layout import layout
from mithril_nb.viz.diagrams.logical import model_graph
from mithril_nb.viz.diagrams.nested import Box, Flow, NestedGraph, Scene
from mithril_nb.viz.diagrams.overlays import Overlay, legend_values
from mithril_nb.viz.diagrams.stages import nested_stage
from mithril_nb.viz.diagrams.svg import forks
from mithril_nb.viz.pages.packed_text import in_columns, packed_text

HOSTILE = ("<b>&amp;", "a/b", "\u202eright to left", "line\nbreak", "😀", "x" * 300, '"', "%2F")


@pytest.mark.skipif(jax.__version_info__[:2] != (0, 10), reason="the golden file contains programs of JAX 0.10")
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


def test_overlays_equal_the_golden_ones(golden) -> None:
    """`overlay.test.ts` compares the bars, colours, texts and legends of the front end with these."""
    text = ",\n".join(json.dumps(overlay_case(one), separators=(",", ":")) for one in overlays())
    golden("overlays.json", f"[{text}]\n")


def overlay_case(overlay: Overlay) -> dict[str, Any]:
    keys = [*overlay.values, "without a value"]
    shown = {key: overlay.at(key) for key in overlay.values}
    return {
        "data": overlay.to_dict(keys),
        "keys": keys,
        "heading": overlay.heading,
        "legend": [[one.text, one.level, one.hue] for one in legend_values(overlay)],
        "shown": {
            key: [one.text, one.level, one.hue, overlay.description(key)]
            for key, one in shown.items()
            if one is not None
        },
    }


def overlays() -> list[Overlay]:
    def named(values: list[Any]) -> dict[str, Any]:
        return {f"n{at}": value for at, value in enumerate(values)}

    numbers: list[Any] = [0, 1, 12, 999, 999.7, 1000, 12_250, 12_350, 99_950, 999_499, 999_500, 1e12, 1e22, 1e31]
    small: list[Any] = [-2, 0.125, 0.375, 2.5, 1e-7, 0.00012, 0.25, 1.005, 1234.5678, -0.5, None, 3e20]
    times: list[Any] = [0, 2e-9, 2.1e-6, 0.0009994, 0.0009996, 0.0125, 2.5, 59.94, 59.96, 90.5, 7325, 1 / 3, None]
    shares = [0, 1, 4, 500, 1000, 431, 9_996, 9_999, 125]
    many = [f"dtype{at % 17}" for at in range(40)] + ["a\nb", "\u202e<b>", None]
    bounds, texts = {"n1", "n0"}, {"n2": "Σ 3 FLOP", "n4": "2 n"}
    rng = random.Random(5)
    return [
        Overlay("numbers", "FLOPs", named(numbers), "FLOP", bounds=bounds, total=1e31),
        Overlay(
            "texts", "FLOPs\nof all", named([5, 6, None, None, 7, 8]), "FLOP", bounds, texts, total=21, notes=("a",)
        ),
        Overlay("small", "value", named(small)),
        Overlay("seconds", "measured time", named(times), "s", total=7_500.25),
        Overlay("shares", "bytes", named(shares), "B", total=10_000),
        Overlay("categories", "dtype", named(many)),
        Overlay("one", "one", named([3])),
        Overlay("none", "none", named([None])),
        Overlay("empty", "empty", {}),
        *(
            Overlay(f"random {unit}", "random", named([rng.uniform(0, 10.0**at) for at in range(-9, 12)]), unit)
            for unit in ("B", "s", "")
        ),
    ]


def test_packed_texts_equal_the_golden_ones(golden) -> None:
    """`page.test.ts` compares the texts that the front end reads with these."""
    rng = random.Random(7)
    parts = ("0x0048", "0x12345", "0x5", "0x00000001", "0x123456789abcdef", "007", "1" * 20, "-3", "1.50", "%2#1", "é٣")
    texts = [
        "",
        "no numbers\n\n",
        "  0x0048  movabs rdi, 0  ; = 0.125\n  0x0052  movabs rsi, 10\n  0x10052  movabs rsi, 0x0010\n",
        "\n".join(" ".join([*rng.choices(parts, k=3), str(rng.randrange(999))]) for _ in range(60)),
    ]
    cases = [{"text": text, "packed": in_columns(text)} for text in texts]
    golden("packed_texts.json", json.dumps(cases, ensure_ascii=False, indent=1) + "\n")


def test_long_texts_are_packed_only_if_this_is_shorter() -> None:
    repeated = "\n".join(f"  0x{at * 5:04x}  vaddps ymm{at % 7}, ymm{at % 5}, {at % 3}" for at in range(20_000))
    packed = packed_text(repeated)
    size = len(zlib.compress(json.dumps(packed).encode()))
    assert 3 * size < len(zlib.compress(repeated.encode()))
    assert packed_text("\1" + repeated) == {"text": "\1" + repeated}
    letters = "".join(random.Random(1).choices("abcdef\n", k=30_000))
    assert packed_text(letters) == {"text": letters}


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


def ports(node: Box) -> list[list[Any]]:
    return [[name, x, y] for heights, x in ((node.ins, 0), (node.outs, node.w)) for name, y in heights.items()]


def sign(number: float) -> int:
    return (number > 0) - (number < 0)


def placed(scene: Scene) -> dict[str, Any]:
    return {
        "size": [scene.width, scene.height],
        "nodes": [[node.key, node.x, node.y, node.w, node.h, ports(node)] for node in scene.nodes],
        "edges": [
            [edge.source, edge.target, edge.points, edge.shape, edge.is_backward, edge.returns, edge.is_end]
            for edge in scene.edges
        ],
        "forks": sorted(forks(scene.edges)),
    }


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_forks_are_where_three_pieces_of_one_wire_meet(seed: int, share: float) -> None:
    graph, rng = random_graph(seed), random.Random(seed)
    scene = layout(graph, [box.key for box in graph.boxes if box.is_group and rng.random() < share])
    nets: dict[Any, list[Any]] = {}
    for edge in scene.edges:
        if not edge.is_curve:
            nets.setdefault((edge.source, edge.is_carried, edge.points[0]), []).append(edge.points)
    expected = set[Any]()
    for (*_, start), lines in nets.items():
        pieces = [piece for line in lines for piece in pairwise(line)]
        for x, y in {corner for line in lines for corner in line} - {start}:
            directions = {
                (sign(u - x), sign(v - y))
                for piece in pieces
                if all(min(ends) <= at <= max(ends) for at, ends in zip((x, y), zip(*piece, strict=True), strict=True))
                for u, v in piece
            } - {(0, 0)}
            expected |= {(x, y)} if len(directions) > 2 else set()
    assert set(forks(scene.edges)) == expected
