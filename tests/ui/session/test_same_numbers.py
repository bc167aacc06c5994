"""Graph, tables, pictures and tooltips have the same names, and costs that add up, for random models."""

from __future__ import annotations

import html
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import PATIENCE_S

import mithril_nb as ml
from mithril_nb.cost import Cost
from mithril_nb.inspection import Inspection
from mithril_nb.models import Gelu, LayerNorm, Linear, Model, Relu, Tanh
from mithril_nb.ui.session.exploring import Exploration
from mithril_nb.viz.costs.fields import FIELDS
from mithril_nb.viz.units import percent

ROW = re.compile(r'<tr data-block="([^"]*)"[^>]*><th[^>]*>(.*?)</th><td title="([\d,]*)">(.*?)</tr>', re.DOTALL)


@st.composite
def models(draw: st.DrawFn, depth: int = 2) -> Model:
    """Draw a chain of layers that begins with a Linear; some are chains themselves."""
    model = Model() + Linear(draw(st.integers(1, 9)))
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from([Linear, Relu, Tanh, Gelu, LayerNorm, Model] if depth else [Linear, Relu]))
        part = (
            draw(models(depth - 1)) if kind is Model else Linear(draw(st.integers(1, 9))) if kind is Linear else kind()
        )
        model += part
    return model


@settings(max_examples=12, deadline=None)
@given(models(), st.sampled_from(["forward", "forward+backward"]))
def test_every_view_has_the_same_names_and_numbers(model: Model, program: str) -> None:
    options: dict[str, Any] = {} if program == "forward" else {"program": program}
    inspection = ml.inspect(model, shapes={"input": [3, 5]}, **options)
    cost = inspection.cost()
    paths = {path for path, _ in model.graph.walk() if cost.subtree(path).flops is not None}
    check_sums(cost, paths)
    check_table(cost)
    check_explorer(inspection, cost, paths)
    check_pictures(inspection, cost, paths)


def check_sums(cost: Cost, paths: set[str]) -> None:
    """A block is its own instructions and the blocks inside; the program is its outer blocks."""
    by_block = cost.by_block
    known = {*by_block, *paths}
    for path in known:
        inside = [one for one in known if one.rpartition("/")[0] == path != one]
        if path:
            assert cost.subtree(path).flops == own_flops(cost, path) + sum(cost.subtree(one).flops for one in inside)
    assert sum(figures.flops for figures in by_block.values()) == cost.total.flops


def check_table(cost: Cost) -> None:
    """A row of equal neighbours, `relu_0–1 ×2`, has the sum of their costs."""
    rows = ROW.findall(cost._repr_mimebundle_()["text/html"])
    assert rows
    for path, label, flops, rest in rows:
        repeat = re.search(r"×(\d+)", label)
        total = cost.subtree(html.unescape(path)).flops * (int(repeat[1]) if repeat else 1)
        assert flops == f"{total:,}"
        assert f"<td>{html.escape(percent(total / cost.total.flops))}<span" in rest


def check_explorer(inspection: Inspection, cost: Cost, paths: set[str]) -> None:
    exploration = Exploration(inspection)
    exploration.start()
    assert exploration.wait(PATIENCE_S)
    rows = {row["block"]: row for row in exploration.snapshot()["cost"]["rows"]}
    assert paths <= {*rows} | {path for path in paths if not cost.subtree(path).flops}
    for path, row in rows.items():
        assert row["flops"] == own_flops(cost, path)
        assert row.get("total", row)["flops"] == (cost.subtree(path).flops if path else own_flops(cost, path))
    _, (_, shares) = exploration.graph()
    stage = inspection.graph("jaxpr")
    for node, share in zip(stage.visible(stage.nodes), shares.data, strict=True):
        if node.kind == "block" and node.block in rows and share is not None and node.repeat == 1:
            assert share == cost.subtree(node.block).flops / cost.total.flops


def check_pictures(inspection: Inspection, cost: Cost, paths: set[str]) -> None:
    """Each row of the text, and each tooltip of the picture, has exactly the cost of its block."""
    for own in (False, True):
        drawing = inspection.overlay("flops", own=own)
        first, _, *lines = drawing.text.splitlines()
        title = first.partition(": ")[2]
        around: list[tuple[str, int]] = []
        expected: list[tuple[str, int, str]] = []
        for line in lines:
            name, *_, value, share = re.split(r"\s{2,}", line.strip())
            indent = (len(line) - len(line.lstrip())) // 2
            name, _, repeat = name.partition(" ×")
            around = [*around[:indent], (name, int(repeat or 1))]
            path = "/".join(one for one, _ in around)
            if path not in paths:
                continue
            figure = own_flops(cost, path) if own else cost.subtree(path).flops
            for _, count in around:
                figure *= count
            assert (value, share) == (FIELDS["flops"].short(figure), percent(figure / cost.total.flops)), line
            expected.append((name, figure, share))
        assert expected
        tips = [html.unescape(tip) for tip in re.findall(r"<title>(.*?)</title>", drawing.svg)]
        pattern = re.compile(rf"block (\w+)(?: ×\d+)?,.*, {re.escape(title)}: ([\d,]+) FLOP, (.*%)$")
        found = [tip.groups() for tip in map(pattern.match, tips) if tip]
        named = {name for name, _, _ in expected}
        shown = sorted((name, int(value.replace(",", "")), share) for name, value, share in found if name in named)
        assert shown == sorted(expected)


def own_flops(cost: Cost, path: str) -> int:
    return cost.by_block[path].flops if path in cost.by_block else 0
