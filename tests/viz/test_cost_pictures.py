"""Rooflines, comparisons and sweeps: readable texts, exact tooltips, explicit unknowns."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from cost_pictures import HOSTILE, check, costs, gpt
from hypothesis import given, settings
from hypothesis import strategies as st

from mithril_nb.graph.records import Block, LogicalGraph, Node, Port
from mithril_nb.viz.costs.beside import beside, change, pair_of
from mithril_nb.viz.costs.canvas import TINTS, colour, scale_of
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.overlays import overlay_of
from mithril_nb.viz.costs.roofline import roofline, spots_of
from mithril_nb.viz.costs.sweep import sweep
from mithril_nb.viz.costs.tables.table import cost_html, cost_text
from mithril_nb.viz.costs.treemap import treemap
from mithril_nb.viz.html_parts import image_html
from mithril_nb.viz.palette import DARK, HUES, LIGHT, contrast

PEAKS = {"flops_per_s": {"float32": 1.2e12, "float64": 3e11}, "bytes_per_s": 28.7e9, "source": "measured"}


def timed(data):
    """Return costs with times in which each block reaches a quarter of the roof of `PEAKS`."""
    for figures in (*data["by_block"].values(), data["total"]):
        flops, size = figures["flops"] or 0, figures["bytes_accessed"] or 0
        figures["time_s"] = 4 * max(flops / 1.2e12, size / 28.7e9)
    return {**data, "source": "measured"}


def pair(blocks, total, **more):
    entries = [{"block": path, "before": two[0], "after": two[1]} for path, two in blocks.items()]
    ends = {"before": total[0], "after": total[1]}
    return {"before": "lowered", "after": "compiled", "field": "flops", "blocks": entries, "total": ends, **more}


def swept(values, fields=("flops", "time_s"), missing=(), **second):
    points = [
        {"settings": {"batch": value, **dict(zip(second, others, strict=True))},
         **{field: None if (value, field) in missing else 1000 * at for field in fields},
         "reasons": {"time_s": "out of memory"}}
        for at, value in enumerate(values, 1)
        for others in ([(one,) for one in next(iter(second.values()))] if second else [()])
    ]  # fmt: skip
    return {"settings": {"batch": list(values), **second}, "fields": list(fields), "points": points}


@pytest.fixture
def small() -> LogicalGraph:
    return LogicalGraph(tuple(Node(name, Block("Relu", (), (), (Port("output"),), op="source")) for name in "ab"))


def test_golden(golden, nested):
    golden("roofline.svg", roofline(timed(gpt()), PEAKS).svg)
    golden("roofline.txt", roofline(timed(gpt()), PEAKS).text)
    two = pair({"mlp/a": (4000, 1000), "mlp/b": (0, 500), "c": (None, 10)}, (4000, 1510), program="step")
    golden("beside.svg", beside(two).svg)
    golden("sweep.svg", sweep(swept([8, 16, 32], missing={(16, "time_s")}, width=[64, 128])).svg)


def test_text_is_readable_on_every_tone():
    for theme in (LIGHT, DARK):
        tones = [f"tint{hue}.{level}" for hue in range(HUES + 1) for level in range(len(TINTS[theme]))]
        assert min(contrast(colour(f"on {tone}", theme), colour(tone, theme)) for tone in tones) >= 4.5


@pytest.mark.parametrize("width", [320, 400, 720])
@pytest.mark.parametrize("peaks", [None, PEAKS, {"flops_per_s": 1e12}, {"bytes_per_s": 1e10}])
def test_rooflines_can_be_read(width, peaks):
    for data in (gpt(), timed(gpt()), gpt(25, spread=5), costs({"a": 7}), costs(dict.fromkeys(HOSTILE, 9), 2)):
        check(roofline(data, peaks, width).svg)


@pytest.mark.parametrize("peaks", [PEAKS, {}])
@pytest.mark.parametrize("width", [320, 420, 720])
def test_points_have_unambiguous_names(width, peaks):
    blocks = {
        f"net/block_{n}/mlp/{name}": {"flops": flops << 3 * n, "bytes_accessed": 400}
        for n in range(3)
        for name, flops in (("up", 100), ("down", 90_000))
    }
    found = check(roofline(costs(blocks), peaks, width).svg)
    names = [one.text for one in found.texts if one.text.endswith(("up", "down"))]
    assert names
    assert len(set(names)) == len(names)
    assert all("block_" in name or name.startswith("…") for name in names)


def test_names_of_points_do_not_touch():
    data = costs({"head": 1000, "tail": 1010, "neck": 1020})
    for width in range(320, 760, 40):
        texts = check(roofline(data, PEAKS, width).svg).texts
        shown = [one for one in texts if one.text in ("whole program", "head", "tail", "neck")]
        for one, other in combinations(shown, 2):
            first, second = sorted((one.box, other.box), key=lambda box: box.x)
            assert abs(first.y - second.y) >= first.h or first.x + first.w + 5 <= second.x


@pytest.mark.parametrize("width", [420, 560, 720])
def test_the_rate_of_the_roof_leaves_room_for_names(width):
    sizes = {"a": (4992, 3072), "fact": (3328, 8076), "f": (64, 516)}
    data = costs({path: {"flops": flops, "bytes_accessed": size} for path, (flops, size) in sizes.items()})
    texts = check(roofline(data, {"flops_per_s": 1e11, "bytes_per_s": 1e10}, width).svg).texts
    assert {"whole program", "10.0 GB/s", *sizes} <= {text.text for text in texts}


def test_points_close_together_keep_their_names():
    sizes = {"up": 100, "down": 104, "qkv": 108, "out": 160, "mix": 168, "scores": 176, "norm": 9}
    blocks = {path: {"flops": 1000 * size, "bytes_accessed": 20_000} for path, size in sizes.items()}
    drawn = check(roofline(costs(blocks), PEAKS).svg)
    names = {one.text: one.box for one in drawn.texts if one.text in (*sizes, "whole program")}
    assert names.keys() == {*sizes, "whole program"}
    leaders = [path.attrib["d"] for path in drawn.root.iter() if path.get("class") == "s-muted"]
    assert leaders, "some have no room beside their points"
    for d in leaders:
        (x0, y0), (x1, y1) = (map(float, end.split()) for end in d.removeprefix("M").split("L"))
        on_it = [(x0 + (x1 - x0) * at / 50, y0 + (y1 - y0) * at / 50) for at in range(51)]
        for box in names.values():
            assert not any(box.x <= x <= box.x + box.w and box.y <= y <= box.y + box.h for x, y in on_it)


def test_an_isolated_point_is_named_despite_many_costly_ones():
    blocks = {f"part{n}/same": {"flops": 90_000 + n, "bytes_accessed": 9000} for n in range(30)}
    data = costs({**blocks, "alone": {"flops": 10, "bytes_accessed": 90}})
    assert "alone" in [one.text for one in check(roofline(data, PEAKS).svg).texts]


def test_points_with_unknown_costs_are_marked_as_bounds():
    def of(flops, size, **unknown):
        return {"flops": flops, "bytes_accessed": size, "time_s": 1e-6, **unknown}

    blocks = {
        "known": of(1000, 1000),
        "work": of(1000, 500, unknown=1),
        "dense": of(90_000, 1000, unknown=1),
        "traffic": of(1000, 250, unknown_bytes=1),
        "both": of(1000, 2000, unknown=1, unknown_bytes=1),
    }
    data = {
        "program": "f", "source": "measured", "by_block": blocks, "notes": [],
        "total": of(94_000, 4750, unknown=3, unknown_bytes=2),
    }  # fmt: skip
    drawing = roofline(data, {"flops_per_s": 1e11, "bytes_per_s": 1e10, "source": "given"})
    assert [" ".join(line.split()) for line in drawing.text.splitlines()[2:]] == [
        "block FLOP/B attainable reached of the roof limited by",
        "whole program ≈ 19.8 ≈ 100 GFLOP/s ≥ 94.0 GFLOP/s ≥ 94.0 % unknown",
        "dense ≥ 90.0 100 GFLOP/s ≥ 90.0 GFLOP/s ≥ 90.0 % arithmetic",
        "known 1.00 10.0 GFLOP/s 1.00 GFLOP/s 10.0 % memory",
        "work ≥ 2.00 ≥ 20.0 GFLOP/s ≥ 1.00 GFLOP/s ≥ 5.0 % unknown",
        "traffic ≤ 4.00 ≤ 40.0 GFLOP/s 1.00 GFLOP/s ≥ 2.5 % memory",
        "both ≈ 0.50 ≈ 5.00 GFLOP/s ≥ 1.00 GFLOP/s ≥ 20.0 % unknown",
        "Some costs are unknown. The exact point is further right for ≥, further left for ≤, and on either side for ≈.",
    ]
    reached = "reached ≥ 1.00 GFLOP/s, ≥ 5.0 % of the roof"
    assert (
        f"work: ≥ 2.00 FLOP/B\nattainable ≥ 20.0 GFLOP/s\n{reached}\nlimited by unknown" in check(drawing.svg).tooltips
    )
    without = roofline(data, {})
    assert "work ≥ 2.00 ≥ 1.00 GFLOP/s" in " ".join(without.text.split())
    assert "≥ 2.00 FLOP/B" in [one.text for one in check(without.svg).texts]


def test_points_of_a_roofline_have_correct_positions():
    spots, missing = spots_of(timed(gpt()))
    up = next(spot for spot in spots if spot.path == "block_0/mlp/up")
    assert (up.repeat, up.intensity) == (12, 3_656_159_232 / 408_674_392)
    assert up.rate == pytest.approx(28.7e9 * up.intensity / 4)
    assert missing == ["no FLOPs, not drawn: block_0 / attention / split ×12, block_0 / attention / merge ×12"]
    tooltips = check(roofline(timed(gpt()), PEAKS).svg).tooltips
    assert (
        "block_0 / mlp / up ×12: 8.95 FLOP/B\nattainable 257 GFLOP/s\nreached 64.2 GFLOP/s, 25.0 % of the roof\n"
        "limited by memory" in tooltips
    )


def test_a_roofline_reports_missing_numbers():
    plain = costs({"a": {"flops": 400, "bytes_accessed": 100}})
    assert (
        "Hollow marks show attainable rates: the times of these blocks are not measured." in roofline(plain, PEAKS).svg
    )
    assert roofline(plain).text.splitlines()[1] == (
        "No roof: the peak rates of this machine are unknown. Run ml.machine() to measure them, then draw again."
    )
    nothing = roofline(costs({"a": None}, None), PEAKS)
    assert nothing.text.endswith(
        "No block has both FLOPs and bytes, so there is nothing to plot. unknown FLOPs or bytes, not drawn: a"
    )
    check(nothing.svg)


@pytest.mark.parametrize("width", [320, 400, 720])
def test_pairs_can_be_read(width):
    blocks = {f"block_{at}/part": (at * 10**9, (50 - at) * 10**8) for at in range(50)}
    check(beside(pair(blocks, (10**12, 10**11)), width).svg)
    check(beside(pair(dict.fromkeys(HOSTILE, (3, 4)), (4, 5), program=HOSTILE[0], notes=list(HOSTILE)), width).svg)
    check(beside(pair({"a": (None, None)}, (None, None)), width).svg)
    check(beside(pair({}, (0, 0)), width).svg)
    check(beside(pair({"a": (0, 0)}, (0, 0)), width).svg)


def test_lengths_of_bars_are_costs():
    drawn = check(beside(pair({"a": (1000, 4000), "b": (2000, 0)}, (3000, 4000))).svg)
    pairs = [group for group in drawn.root.iter() if group.get("class") == "pair"]
    full = [float(rect.attrib["width"]) for group in pairs for rect in group if rect.tag.endswith("rect")]
    before_a, after_a, before_b, after_b = full
    assert after_a / (before_a + 1) == pytest.approx(4, abs=0.05)
    assert (before_b + 1) / (before_a + 1) == pytest.approx(2, abs=0.02)
    assert after_b == 0


def test_a_bound_has_an_unknown_change():
    change = {"before": {"flops": 10, "unknown": 1}, "after": {"flops": 20, "unknown": 0}}
    lost = {"before": {"flops": 0}, "after": {"flops": 0}}
    data = {"before": "f: lowered", "after": "f: compiled", "total": change, "by_block": {"a": change}}
    drawing = beside(pair_of({**data, "unattributed": lost}, "flops"))
    assert drawing.text.splitlines() == [
        "f: FLOPs by block: lowered, compiled",
        "block    lowered  compiled   change",
        "a      ≥ 10 FLOP   20 FLOP  unknown",
        "total  ≥ 10 FLOP   20 FLOP  unknown",
    ]
    check(drawing.svg)


@pytest.mark.parametrize("width", [320, 400, 720])
@pytest.mark.parametrize(
    "data",
    [
        swept([8, 16, 32]),
        swept([1, 10, 100, 10_000, 1_000_000]),
        swept(["float32", "bfloat16"], missing={("float32", "time_s")}),
        swept([True, False], width=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        swept([3]),
        swept(list(HOSTILE), width=list(HOSTILE[:4])),
        swept(range(1, 60)),
        swept([8, 16], fields=("time_s",), missing={(8, "time_s"), (16, "time_s")}),
    ],
)
def test_sweeps_can_be_read(data, width):
    check(sweep(data, width).svg)


def test_a_gap_in_a_sweep_is_not_drawn_as_zero():
    drawing = sweep(swept([8, 16, 32, 64], missing={(16, "time_s")}))
    drawn = check(drawing.svg)
    assert "time unknown at batch=16: out of memory" in drawing.text
    assert "?" in [one.text for one in drawn.texts]
    assert "batch=16\n2,000 FLOP" in drawn.tooltips
    assert sum(tooltip.startswith("batch=16") for tooltip in drawn.tooltips) == 1
    lines = [path.attrib["d"] for path in drawn.root.iter() if path.get("stroke-width") == "1.8"]
    assert [d.count("M") for d in lines] == [1, 1], "a lone point before the gap is no line"
    assert [d.count("L") for d in lines] == [3, 1]


def test_a_line_runs_left_to_right_for_any_order_of_values():
    drawn = check(sweep(swept([8, 32, 16], fields=("flops",))).svg)
    (line,) = [path.attrib["d"] for path in drawn.root.iter() if path.get("stroke-width") == "1.8"]
    across = [float(point.split()[0]) for point in line.removeprefix("M").split("L")]
    assert across == sorted(across)
    assert len(across) == 3


def test_texts_contain_no_terminal_controls():
    name = "a\nb\x1b[31m\ud800"
    data = {**costs({"a": 400}), "program": name, "notes": [f"flops: {name}"]}
    two = {"before": name, "after": name, "way": "traced", "unattributed": {"before": {}, "after": {}}}
    total = {"before": {"flops": 1}, "after": {"flops": 2}}
    changed = {**two, "program": name, "total": total, "by_block": {"a": total}, "notes": [name]}
    point = {"settings": {"dtype": name}, "flops": None, "reasons": {"flops": name}}
    over = {"settings": {"dtype": [name]}, "fields": ["flops"], "points": [point], "notes": [name]}
    for drawing in (treemap(data), roofline(data, PEAKS), change(changed), sweep(over)):
        assert all(line.isprintable() for line in drawing.text.splitlines())
        assert "a⏎b" in drawing.text


def test_long_times_have_whole_ticks():
    ticks = [one.text for one in check(sweep(swept([8, 16, 32], fields=("time_s",))).svg).texts]
    assert {"1 ks", "2 ks", "3 ks"} <= set(ticks)


@given(st.lists(st.floats(1e-9, 1e18), min_size=1, max_size=9))
def test_a_scale_holds_its_numbers(values):
    scale = scale_of(values, 10, 110)
    assert all(9.99 <= scale.at(value) <= 110.01 for value in values)
    assert scale.is_log == (max(values) / min(values) > 100)
    assert all(scale.low * 0.999 <= tick <= scale.high * 1.001 for tick in scale.ticks())
    assert 1 <= len(scale.ticks()) <= 8


def test_a_bound_in_a_sweep_is_marked():
    data = swept([8, 16], fields=("flops",))
    data["points"][1]["at_least"] = ("flops",)
    tooltips = check(sweep(data).svg).tooltips
    assert [one for one in tooltips if one.startswith("batch=")] == ["batch=8\n1,000 FLOP", "batch=16\n≥ 2,000 FLOP"]


@pytest.mark.parametrize("value", [10**400, float("nan"), float("inf")], ids=["large", "nan", "inf"])
@pytest.mark.parametrize("field", ["flops", "bytes_accessed", "time_s"])
def test_numbers_too_large_for_a_float_are_unknown(value, field, small):
    data = costs({"a": 5, "b": 7})
    for figures in (data["by_block"]["a"], data["total"]):
        figures |= {"flops": 4, "bytes_accessed": 8, "time_s": 0.5, field: value}
    blocks = [{"block": "a", "before": value, "after": 3}, {"block": "b", "before": 2, "after": value}]
    two = {"before": "x", "after": "y", "field": field, "blocks": blocks, "total": {"before": value, "after": 5}}
    points = [{"settings": {"n": at}, field: size} for at, size in enumerate((3, value, 9))]
    for drawn in (
        treemap(data, field), roofline(data, PEAKS), overlay_of(data, small, field), beside(two),
        sweep({"settings": {"n": [0, 1, 2]}, "fields": [field], "points": points}),
    ):  # fmt: skip
        check(drawn.svg)
        assert "unknown" in drawn.text or "not measured" in drawn.text
    check(roofline(data).svg)
    assert beside(two).text.endswith("shown as unknown: numbers that are infinite, NaN, or above 1e150")
    assert cost_text(data)
    assert cost_html(data)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.text(max_size=20), st.integers(0, 10**9), max_size=5), st.text(max_size=20))
def test_any_name_is_escaped(blocks, name):
    data = {**costs(blocks), "program": name}
    graph = LogicalGraph(tuple(Node(f"n{at}{path}", Block(name, (), (), (), op="x")) for at, path in enumerate(blocks)))
    both = costs({node.name.replace("/", "%2F"): 5 for node in graph.nodes} | {"n": 1})
    check(roofline(data, {**PEAKS, "source": name}).svg)
    check(beside(pair({path: (value, 1) for path, value in blocks.items()}, (1, 2), program=name)).svg)
    check(sweep(swept([*blocks, "x"], **{name or "n": [1, name]})).svg)
    if {path for path, _ in graph.walk()} & both["by_block"].keys():
        check(overlay_of(both, graph).svg)


def test_a_drawing_is_shown_and_saved(tmp_path: Path):
    drawing = Drawing("<svg/>", "a table")
    shown = drawing._repr_mimebundle_()
    assert {key: shown[key] for key in ("text/plain", "image/svg+xml")} == {
        "text/plain": "a table", "image/svg+xml": "<svg/>"}  # fmt: skip
    assert image_html("<svg/>", "a table") in shown["text/html"]
    assert str(drawing) == "a table"
    assert drawing.save(tmp_path / "a.svg").read_text() == "<svg/>\n"
    assert drawing.save(tmp_path / "a.txt").read_text() == "a table\n"
