"""Memory over time as picture and text: the peak is kept, layers add up, colour is never the only cue."""

from __future__ import annotations

import random
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from mithril_nb.cost import MemoryUse
from mithril_nb.display import render
from mithril_nb.viz.costs.memory import fits_text, layers_of, memory_text, memory_timeline, thin

SVG = "{http://www.w3.org/2000/svg}"
MEGABYTE = 1_000_000


def life(id: str, kind: str, block: str, megabytes: float, first: int, last: int) -> dict[str, Any]:
    size = round(megabytes * MEGABYTE)
    return {"id": id, "kind": kind, "block": block, "size_bytes": size, "first": first, "last": last}


def use(*lives: dict[str, Any], places: int, **more: Any) -> dict[str, Any]:
    """Return the memory use of some live ranges."""
    held = [sum(one["size_bytes"] for one in lives if one["first"] <= at <= one["last"]) for at in range(places)]
    at = held.index(max(held))
    at_peak: dict[str, int] = {}
    kinds: dict[str, int] = dict.fromkeys(("arguments", "outputs", "temporaries", "constants", "unfilled"), 0)
    for one in lives:
        if one["first"] <= at <= one["last"]:
            at_peak[one["block"]] = at_peak.get(one["block"], 0) + one["size_bytes"]
            kinds[one["kind"]] += one["size_bytes"]
    data = {
        "program": "step",
        "source": "compiled",
        "peak_bytes": max(held),
        "peak_at": at,
        "filled_bytes": max(held) - kinds["unfilled"],
        "timeline": [{"id": f"fusion.{place}", "bytes": size} for place, size in enumerate(held)],
        "at_peak": at_peak,
        "kinds": kinds,
        "lives": list(lives),
        "blocks": list(dict.fromkeys(one["block"] for one in lives if one["block"])),
        "xla": None,
        "notes": [],
    }
    return {**data, **more}


def small() -> dict[str, Any]:
    return use(
        life("params.embed", "arguments", "embed", 3, 0, 11),
        life("params.up", "arguments", "mlp/up", 2, 0, 11),
        life("batch", "arguments", "", 0.5, 0, 11),
        life("gather", "temporaries", "embed", 1, 1, 9),
        life("dot.1", "temporaries", "mlp/up", 4, 2, 7),
        life("dot.2", "temporaries", "mlp/down", 2, 4, 5),
        life("loss", "temporaries", "(loss)", 0.25, 6, 7),
        life("add", "outputs", "mlp/up", 2, 8, 11),
        life("constant.1", "constants", "", 0.001, 0, 11),
        life("", "unfilled", "", 0.75, 0, 11),
        places=12,
        xla={"argument": 5_500_000, "output": 2_000_000, "temp": 7_750_000, "alias": 2_000_000, "code": 0},
        notes=["2 values: XLA reports no live range"],
    )


def test_golden(golden) -> None:
    drawing = memory_timeline(small())
    golden("memory.svg", drawing.svg + "\n")
    golden("memory.txt", drawing.text + "\n")


def test_layers_add_up_to_the_timeline_and_to_the_peak() -> None:
    data = small()
    layers, places = layers_of(data, 100)
    assert places == list(range(12))
    for place in places:
        assert sum(one.bytes[place] for one in layers) == data["timeline"][place]["bytes"]
    assert sum(one.at_peak for one in layers) == data["peak_bytes"]
    assert layers[0].name == "unfilled", "unused memory is at the bottom"


def test_top_level_blocks_are_layers_until_opened_for_any_hues() -> None:
    data = use(
        life("a", "arguments", "embed", 3, 0, 1), life("b", "arguments", "mlp/up", 2, 0, 1),
        life("c", "temporaries", "mlp/down", 1, 0, 1), life("d", "temporaries", "mlp", 4, 1, 1),
        life("e", "arguments", "head", 2, 0, 1), life("f", "temporaries", "(loss)", 1, 1, 1), places=2,
    )  # fmt: skip
    pages = {**data, "hues": {"embed": 5, "mlp/up": 6, "mlp": 6, "mlp/down": 6, "head": 7}}

    def named(of: dict[str, Any], *opened: str) -> list[tuple[str, int | None, int]]:
        return [(one.name, one.hue, one.tint) for one in layers_of(of, 10, opened)[0]]

    assert named(data) == [("embed", 0, 0), ("mlp", 1, 0), ("head", 2, 0), ("loss", 8, 0)]
    assert named(pages) == [("embed", 5, 0), ("mlp", 6, 0), ("head", 7, 0), ("loss", 8, 0)]
    assert named(pages, "mlp", "embed") == [
        ("embed", 5, 0), ("mlp / up", 6, 0), ("mlp / down", 6, 1), ("mlp itself", 6, 0), ("head", 7, 0), ("loss", 8, 0),
    ]  # fmt: skip
    assert named(data, "mlp") == [
        (name, {5: 0, 6: 1, 7: 2, 8: 8}[hue], tint) for name, hue, tint in named(pages, "mlp")
    ]
    assert memory_timeline(pages, opened=["mlp"]).svg.count('data-block="mlp/') == 2


def random_use(blocks: int, places: int) -> dict[str, Any]:
    rng = random.Random(7)
    lives = []
    for number in range(3 * places):
        first = rng.randrange(places)
        last = min(places - 1, first + rng.randrange(1, 200))
        lives.append(
            life(f"v{number}", "temporaries", f"block_{rng.randrange(blocks)}", rng.uniform(0, 9), first, last)
        )
    lives.append(life("spike", "temporaries", "block_3", 5000, places // 3, places // 3))
    return use(*lives, places=places)


def test_thinning_keeps_the_peak() -> None:
    data = random_use(24, 2000)
    drawing = memory_timeline(data)
    assert len(drawing.svg) <= 60_000
    layers, places = layers_of(data, 250)
    assert len(places) == 250
    assert data["peak_at"] in places
    assert len(layers) <= 16
    assert layers[-1].name == "9 others"
    at = places.index(data["peak_at"])
    assert sum(one.bytes[at] for one in layers) == data["peak_bytes"]
    assert "peak at fusion.666" in drawing.svg


def test_thinning_keeps_the_maximum_of_each_group() -> None:
    values = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    assert thin(values, 4) == [0, 4, 5, 7]
    assert thin(values, 10) == list(range(10))


def test_names_of_any_characters_are_escaped() -> None:
    odd = 'a<b>&"\x00\x1b[31m'
    data = use(
        life(odd, "temporaries", odd, 3, 0, 1), life("x", "arguments", "p", 1, 0, 1), places=2, program=odd, notes=[odd]
    )
    drawing = memory_timeline(data)
    root = ElementTree.fromstring(drawing.svg)
    assert 'a<b>&"' in "".join(root.itertext())
    for text in (drawing.text, drawing.svg):
        assert not re.search("[\x00-\x08\x0b-\x1f]", text)


def test_unknowns_are_explicit_in_picture_and_text() -> None:
    data = {
        **small(), "peak_bytes": None, "peak_at": None, "filled_bytes": None, "timeline": [], "lives": [],
        "at_peak": {}, "kinds": {}, "xla": None, "notes": ["peak_bytes, timeline: this platform does not say"],
    }  # fmt: skip
    drawing = memory_timeline(data)
    assert "this platform does not say" in " ".join(ElementTree.fromstring(drawing.svg).itertext())
    assert drawing.text == "step: memory, compiled\npeak unknown\npeak_bytes, timeline: this platform does not say"


def test_a_peak_without_a_timeline_lists_its_kinds() -> None:
    data = {**small(), "peak_at": None, "timeline": [], "lives": [], "notes": ["timeline: not written down"]}
    drawing = memory_timeline(data)
    written = " ".join(ElementTree.fromstring(drawing.svg).itertext())
    assert "timeline: not written down" in written
    assert "arguments 5.50 MB" in written
    assert drawing.text.splitlines()[1].startswith("peak 13.3 MB: arguments 5.50 MB, ")


def test_an_estimate_names_the_equation() -> None:
    text = memory_text({**small(), "source": "analytic"})
    assert text.splitlines()[1].startswith("peak 13.3 MB at equation fusion.4, position 5 of 12")


def test_narrow_and_wide_pictures_keep_within_their_width() -> None:
    for width in (320, 1400):
        root = ElementTree.fromstring(memory_timeline(small(), width).svg)
        assert root.get("width") == str(width)
        for element in root.iter():
            assert float(element.get("x", 0)) <= width


def test_memory_use_is_displayed_in_a_notebook() -> None:
    class Small(MemoryUse):
        def __init__(self) -> None:
            pass

        def to_dict(self) -> dict[str, Any]:
            return small()

    shown = render(Small())
    assert shown["text/plain"] == memory_text(small())
    assert shown["image/svg+xml"].startswith("<svg")


def test_the_line_of_the_peak_crosses_no_name() -> None:
    drawing = memory_timeline(
        use(life("w", "arguments", "net", 4, 0, 11), life("x", "temporaries", "net", 2, 5, 6), places=12)
    )
    root = ElementTree.fromstring(drawing.svg)
    (line,) = (one.get("d", "") for one in root.iter(f"{SVG}path") if one.get("stroke-dasharray"))
    peak = float(re.match(r"M([\d.]+)", line)[1])  # pyright: ignore[reportOptionalSubscript]
    names = [one for one in root.iter(f"{SVG}text") if one.text == "net" and one.get("text-anchor") == "middle"]
    assert names, "the layer has its name"
    assert all(abs(float(one.get("x", "0")) - peak) > 12 for one in names)


@pytest.mark.parametrize(("size", "text"), [(16, "16"), (17.5, "17.5"), (100, "100"), (120, "120"), (1024, "1024")])
def test_the_capacity_has_all_its_digits(size, text):
    data = {"capacity_bytes": size * 2**30, "fits": True, "peak_bytes": None, "fits_reason": "", "notes": ()}
    assert fits_text(data) == [f"fits in {text} GiB: yes"]
