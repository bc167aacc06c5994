"""Treemaps: exact areas, labels inside them, merged equal blocks, and a reason if there is nothing to draw."""

from __future__ import annotations

import re

import pytest
from cost_pictures import HOSTILE, SVG, check, costs, gpt
from hypothesis import given, settings
from hypothesis import strategies as st

from mithril_nb.viz.costs.fields import BLOCK_FIELDS
from mithril_nb.viz.costs.treemap import cells_of, squarify, treemap
from mithril_nb.viz.svg import Rect

PATHS = st.lists(st.sampled_from(["a", "b", "c_0", "c_1", "long_name_of_a_block"]), min_size=1, max_size=3).map(
    "/".join
)
BLOCKS = st.dictionaries(PATHS, st.one_of(st.none(), st.integers(0, 10**12)), min_size=1, max_size=40)


def test_golden(golden):
    drawing = treemap(gpt())
    golden("treemap.svg", drawing.svg)
    golden("treemap.txt", drawing.text)


@settings(max_examples=60, deadline=None)
@given(BLOCKS, st.integers(0, 10**11), st.integers(240, 1000), st.integers(100, 500))
def test_cells_tile_and_areas_are_costs(blocks, lost, w, h):
    data = costs(blocks, lost)
    within = Rect(8, 32, w, h)
    cells = cells_of(data, "flops", within)
    total = data["total"]["flops"]
    if not total:
        assert cells == []
        return
    assert sum(cell.value for cell in cells) == total
    assert sum(cell.rect.area for cell in cells) == pytest.approx(within.area, rel=1e-9)
    for at, cell in enumerate(cells):
        rect = cell.rect
        share = cell.value / total * within.area
        assert abs(rect.area - share) <= 0.1 * (rect.w + rect.h) + 0.02, "the edges are at tenths of px"
        assert rect.x >= within.x
        assert rect.y >= within.y
        assert rect.x + rect.w <= within.x + within.w + 1e-6
        assert rect.y + rect.h <= within.y + within.h + 1e-6
        for other in cells[at + 1 :]:
            across = min(rect.x + rect.w, other.rect.x + other.rect.w) - max(rect.x, other.rect.x)
            down = min(rect.y + rect.h, other.rect.y + other.rect.h) - max(rect.y, other.rect.y)
            assert across < 1e-6 or down < 1e-6, "no cell is over another"
        for label in cell.labels:
            assert rect.x <= label.x
            assert label.x + label.width <= rect.x + rect.w
            assert rect.y <= label.y - label.size * 0.8
            assert label.y + 3 <= rect.y + rect.h


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30))
def test_a_rectangle_is_divided_in_proportion(values):
    values.sort(reverse=True)
    parts = squarify(values, Rect(0, 0, 300, 200))
    for value, part in zip(values, parts, strict=True):
        assert part.area == pytest.approx(value / sum(values) * 60_000)


def test_equal_parts_are_nearly_square():
    assert all(0.5 < part.w / part.h < 2 for part in squarify([1] * 12, Rect(0, 0, 700, 360)))


@pytest.mark.parametrize("width", [240, 400, 720, 1200])
@pytest.mark.parametrize("field", BLOCK_FIELDS)
def test_every_text_can_be_read(field, width):
    for data in (gpt(), gpt(25, spread=7), costs({"a": 5}, 3), costs({name: 9 for name in HOSTILE}, 2)):
        check(treemap(data, field, width).svg)


def test_a_stack_is_one_cell():
    tooltips = check(treemap(gpt()).svg).tooltips
    assert "block_0 / mlp / up ×12\n43,873,910,784 FLOP, 22.4 %" in tooltips
    assert not any("block_1" in one for one in tooltips)


def test_blocks_that_differ_are_not_folded():
    tooltips = check(treemap(gpt(2, spread=1)).svg).tooltips
    assert "block_0 / mlp / up\n3,656,159,232 FLOP, 4.4 %" in tooltips
    assert "block_1 / mlp / up\n3,656,159,233 FLOP, 4.4 %" in tooltips


def test_small_blocks_share_a_cell_and_are_named():
    drawn = check(treemap(costs({"large": 10**9, **{letter: 1 for letter in "abcdefghij"}})).svg)
    assert "a, b, c, d, e, f, g, h …\n10 FLOP, < 0.1 %" in drawn.tooltips


def test_three_hundred_blocks_are_a_small_file():
    assert len(treemap(gpt(25, spread=3)).svg) < 60_000
    assert len(treemap(gpt()).svg) < 15_000


def test_unattributed_costs_are_hatched_and_named():
    drawing = treemap(costs({"a": 60}, 40))
    assert "not attributed to a block\n40 FLOP, 40.0 %" in check(drawing.svg).tooltips
    assert "(unattributed)   40 FLOP  40.0 %  ████████" in drawing.text


def test_links_of_cells():
    blocks = [group.get("data-block") for group in check(treemap(costs({"a b": 60}, 40)).svg).root.iter()]
    assert {"a%20b", ""} <= set(blocks)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (costs({"a": 0, "b": 0}), "FLOPs: 0 in all blocks. There is nothing to compare."),
        (costs({}), "FLOPs: 0 in all blocks. There is nothing to compare."),
        (costs({"a": None}, None), "FLOPs: unknown. The source of these costs does not report it."),
        (
            costs({"a": None}, None, ("flops of 1 × sort: no rule", "time_s: nothing is run")),
            "FLOPs: unknown. flops of 1 × sort: no rule",
        ),
        (
            costs({"a": None}, None, ("flops: not reported by this platform",)),
            "FLOPs: unknown. not reported by this platform",
        ),
        (
            costs({"a": None}, None, ("what depends on batch has no number", "time_s: nothing is run")),
            "FLOPs: unknown. what depends on batch has no number",
        ),
    ],
)
def test_nothing_to_draw_has_a_reason(data, reason):
    drawing = treemap(data)
    assert drawing.text == f"train step: FLOPs by block, analytic\n{reason}"
    assert " ".join(one.text for one in check(drawing.svg).texts if one.text != "FLOPs by block").count(reason) == 1


def test_unknown_costs_are_noted_and_the_rest_is_a_bound():
    data = costs({"a": 10, "sorted": None}, 0, ("flops of 1 × sort: no rule",))
    data["total"]["unknown"] = 1
    drawing = treemap(data)
    assert drawing.text.splitlines() == [
        "train step: FLOPs by block, analytic",
        "block      FLOPs  share",
        "a        10 FLOP  100 %  ████████████████████",
        "total  ≥ 10 FLOP  100 %",
        "≥: some costs are unknown; shares refer to the known part",
        "unknown, not drawn: sorted",
        "flops of 1 × sort: no rule",
    ]
    assert "≥ 10 FLOP" in [one.text for one in check(drawing.svg).texts]


def test_a_partly_unknown_block_has_a_bound():
    data = costs({"a": 60, "net/up": 30, "net/sort": None, "mix": 10}, 0)
    data["by_block"]["mix"]["unknown"] = data["total"]["unknown"] = 1
    drawing = treemap(data)
    assert drawing.text.splitlines()[1:7] == [
        "block       FLOPs   share",
        "a         60 FLOP  60.0 %  ████████████",
        "net     ≥ 30 FLOP  30.0 %  ██████",
        "  up      30 FLOP  30.0 %  ██████",
        "mix     ≥ 10 FLOP  10.0 %  ██",
        "total  ≥ 100 FLOP   100 %",
    ]
    found = check(drawing.svg)
    assert any("≥ 10 FLOP" in one.text for one in found.texts)
    assert "mix\n≥ 10 FLOP, 10.0 %" in found.tooltips
    assert "a\n60 FLOP, 60.0 %" in found.tooltips


@pytest.mark.parametrize("width", [240, 420, 720])
def test_cell_names_are_unique(width):
    blocks = {f"net/block_{n}/mlp/{name}": 400 + 30 * n for n in range(3) for name in ("up", "down", "gate")}
    data = costs({**blocks, "a_head_with_a_name_that_no_cell_has_room_for": 500})
    drawing = treemap(data, width=width)
    check(drawing.svg)
    found = cells_of(data, "flops", Rect(0, 0, width, width / 2))
    names = [cell.labels[0].text for cell in found if cell.labels]
    assert names
    assert len(set(names)) == len(names)
    assert not {"up", "down", "mlp / up"} & set(names)
    assert all(len(name) >= 8 or name.startswith("…") for name in names)


def test_grey_cells_differ_by_pattern():
    svg = treemap(costs({"a": 900, "b": 800, "c": 700, "d": 400, "(loss)": 300, "(optimizer)": 400}, 0), width=240).svg
    stripes = re.findall(r'<path class="s-ground"[^>]* d="([^"]+)"/>', svg)
    assert len(stripes) == 4, "two cells, and their two marks in the legend"
    assert len({re.sub(r"[\d.]+", "", one)[:9] for one in stripes}) == 1, "they are lines"
    lying = [re.fullmatch(r"M[\d.]+ ([\d.]+)L[\d.]+ \1.*", one) is not None for one in stripes]
    assert sorted(lying) == [False, False, True, True]


def test_the_legend_has_the_tones_of_the_cells():
    data = costs({"a/up": 500, "a/down": 300, "b": 200, "a_part_that_is_too_small_for_its_name": 1}, 3)
    drawn = check(treemap(data).svg)
    squares = [rect for rect in drawn.root.iter(f"{SVG}rect") if rect.get("rx") == "2"]
    cells = {rect.attrib["class"] for rect in drawn.root.iter(f"{SVG}rect") if rect.get("rx") is None}
    assert len(squares) == 4
    assert {square.attrib["class"] for square in squares} - {"f-ground s-muted"} <= cells
    assert squares[0].attrib["class"] == "f-tint0-0", "that of the largest cell"


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(max_size=30), st.integers(0, 10**6), max_size=6), st.text(max_size=30))
def test_any_name_is_escaped(blocks, program):
    data = {**costs(blocks), "program": program}
    first = treemap(data)
    check(first.svg)
    assert treemap(data).svg == first.svg
