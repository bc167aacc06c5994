"""Tables of costs: all rows, the total, unattributed costs, and explicit unknowns."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mithril_nb.viz.costs.tables.table import cost_html, cost_text


def figures(flops: int | None = 0, moved: int | None = 0, params: int = 0, **other: Any) -> dict[str, Any]:
    return {"flops": flops, "transcendentals": 0, "bytes_accessed": moved, "params": params, "time_s": None,
            "unknown": 0, "unknown_bytes": 0, **other}  # fmt: skip


def roles(*flops: int) -> dict[str, Any]:
    return {role: figures(value) for role, value in zip(("forward", "backward", "update"), flops, strict=True)}


ANALYTIC = {
    "program": "step",
    "source": "analytic",
    "by_block": {
        "linear_0": figures(786432, 41216, 4160, roles=roles(262144, 523288, 1000), share=0.75, share_bound=""),
        "mlp_0/relu_0": figures(157286, None, roles=roles(157286, 0, 0), share=0.15, share_bound="", unknown_bytes=1),
        "(loss)": figures(52429, 5000, transcendentals=320, share=0.05, share_bound=""),
    },
    "unattributed": figures(52429, 10, share=0.05, share_bound=""),
    "total": figures(1048576, 46226, 4160, transcendentals=320, unknown=3, unknown_bytes=1),
    "unknown": [{"opcode": "sort", "count": 1, "reason": "no rule", "share": 0.012},
                {"opcode": "while", "count": 2, "reason": "trip count unknown", "share": None}],
    "rows": [
        {"opcode": "dot_general", "formula": "2·B·M·N·K", "flops": 786432, "bytes_accessed": 41216},
        {"opcode": "mul", "formula": "n", "flops": 131072, "bytes_accessed": 5000},
        {"opcode": "mul", "formula": "n", "flops": 131072, "bytes_accessed": 10},
        {"opcode": "sort", "formula": "no rule", "flops": None, "bytes_accessed": None},
    ],
    "notes": ["flops and bytes_accessed of 1 × sort: no rule", "bytes_accessed of 1 × neg: size unknown",
              "time_s: not measured, because nothing ran"],
    "once": {"name": "analytic, loops once", "flops": 1040000, "transcendentals": 320, "bytes": 46226},
    "xla": None,
}  # fmt: skip
COMPILED = {
    **ANALYTIC,
    "source": "compiled",
    "by_block": {"linear_0": figures(786000, 20000, roles=roles(262144, 523288, 568)), "extra": figures(10, 20)},
    "unattributed": figures(),
    "total": figures(786010, 20020),
    "unknown": [{"opcode": "custom-call", "count": 1, "reason": "no rule: a library call", "share": None}],
    "rows": [],
    "notes": [],
    "once": {"name": "compiled, loops once", "flops": 786010, "transcendentals": 0, "bytes": 20020},
    "xla": {"name": "XLA compiled", "flops": None, "transcendentals": None, "bytes": None},
}
MEASURED = {
    **COMPILED,
    "source": "measured",
    "by_block": {"linear_0": figures(786000, 20000, time_s=0.003), "extra": figures(10, 20)},
    "unattributed": figures(time_s=0.001),
    "total": figures(786010, 20020, time_s=0.004),
    "unknown": [],
    "notes": ["time_s: 20 runs on one thread"],
}
BESIDE = {
    "program": "step",
    "sources": {"analytic": ANALYTIC, "compiled": COMPILED, "measured": MEASURED},
    "memory": {"argument": 95488, "output": 1280, "temp": 0, "alias": 0, "code": None},
    "unavailable": {"lowered": "XLA has no such thing"},
}


def test_golden(golden, parsed):
    for name, cost in (("cost", ANALYTIC), ("costs", BESIDE)):
        html = cost_html(cost)
        parsed(html)
        golden(f"{name}.html", html)
        golden(f"{name}.txt", cost_text(cost) + "\n")


def test_sources_are_shown_side_by_side() -> None:
    text = cost_text(BESIDE)
    assert max(map(len, text.splitlines())) <= 100
    # Too wide for one table: a second table with the same rows has the other columns.
    first, second = (part.splitlines() for part in text.split("\n\n")[:2])
    assert [line.split()[0] for line in first[2:]] == [line.split()[0] for line in second[2:][: len(first) - 2]]


def test_a_note_of_several_sources_is_shown_once(parsed):
    notes = ["params: none of the arguments is called 'params'", "bytes_accessed of 1 × sort: size unknown"]
    unknown = {"opcode": "sort", "count": 1, "reason": "no rule", "share": 0.25}
    one = {"by_block": {"a": figures(8, 8)}, "unattributed": figures(), "total": figures(8, 8, unknown=1)}
    sources = {
        "analytic": {**one, "source": "analytic", "notes": notes[:1], "unknown": []},
        "lowered": {**one, "source": "lowered", "notes": notes, "unknown": [unknown]},
        "compiled": {**one, "source": "compiled", "notes": notes, "unknown": [{**unknown, "share": 0.5}]},
    }
    data = {"program": "step", "sources": sources}
    below = [
        "lowered, compiled: no FLOP rule for sort: 1 instruction not counted, 25.0 % and 50.0 % of the",
        "  program's instructions",
        notes[0],
        f"lowered, compiled: {notes[1]}",
    ]
    text = cost_text(data)
    assert text.partition("\n\nsource")[0].endswith("\n".join(["", *below]))
    html = cost_html(data)
    parsed(html)
    assert html.count("called &#x27;params&#x27;") == html.count("size unknown") == html.count("<code>sort</code>") == 1
    assert "<p>Lowered, compiled: no FLOP rule for <code>sort</code>: 1 instruction not counted, " in html


def test_totals_by_source_are_bounds_if_costs_are_left_out(parsed):
    total = figures(1000, 192, transcendentals=6, unknown=1, unknown_bytes=1)
    counts = {"flops": 500, "transcendentals": 6, "bytes": 90, "unknown": 1, "unknown_bytes": 0}
    once = {"name": "lowered, loops once", **counts}
    xla = {"name": "XLA lowered", "flops": 499, "transcendentals": 6, "bytes": 90}
    cost = {"source": "lowered", "by_block": {}, "unattributed": figures(), "total": total, "once": once, "xla": xla}
    lines = [" ".join(line.split()) for line in cost_text(cost).splitlines()]
    assert lines[-4:] == [
        "source FLOPs transcendentals bytes",
        "lowered ≥ 1.00 kFLOP ≥ 6 ≥ 192 B",
        "lowered, loops once ≥ 500 FLOP ≥ 6 90 B",
        "XLA lowered 499 FLOP 6 90 B",
    ]
    html = cost_html(cost)
    parsed(html)
    assert '<th scope="row">lowered</th><td title="at least 1,000">≥ 1.00 kFLOP</td>' in html


def test_measured_costs_have_shares_of_time():
    text = cost_text(MEASURED)
    by_name = {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line}
    assert by_name["linear_0"].endswith("3.00 ms 0 75.0 %")
    assert by_name["(unattributed)"].endswith("1.00 ms 0 25.0 %")
    assert '<th scope="col" rowspan="2">share of time</th>' in cost_html(MEASURED)


def test_without_rows_there_is_no_table_of_formulas() -> None:
    assert "<details" in cost_html(ANALYTIC)
    assert "<details" not in cost_html({**ANALYTIC, "rows": []})


def test_sums_and_shares_beside_unknown_costs_are_bounds(parsed):
    known = figures(750, 64, transcendentals=3, share=0.75, share_bound="≤")
    some = {**known, "flops": 250, "share": 0.25, "share_bound": "≥", "unknown": 2, "unknown_bytes": 1}
    none = {**some, "flops": None, "transcendentals": None, "share": None, "share_bound": ""}
    cost = {
        "source": "analytic", "by_block": {"a": known, "b": some, "c": none},
        "total": figures(1000, 192, transcendentals=6, unknown=4, unknown_bytes=2),
        "unattributed": figures(share=0.1, share_bound="≤"),
    }  # fmt: skip
    lines = [" ".join(line.split()) for line in cost_text(cost).splitlines()]
    assert lines[1:6] == [
        "a 750 FLOP 3 64 B 0 ≤ 75.0 %",
        "b ≥ 250 FLOP ≥ 3 ≥ 64 B 0 ≥ 25.0 %",
        "c unknown unknown ≥ 64 B 0 unknown",
        "(unattributed) 0 FLOP 0 0 B 0 ≤ 10.0 %",
        "total ≥ 1.00 kFLOP ≥ 6 ≥ 192 B 0 100 %",
    ]
    html = cost_html(cost)
    parsed(html)
    assert '<td title="at least 250">≥ 250 FLOP</td>' in html
    assert '<td title="750">750 FLOP</td>' in html
    assert '≥ 25.0 %<span class="bar">' in html
    assert '≤ 10.0 %<span class="bar">' in html


def test_costs_that_depend_on_symbolic_sizes_are_formulas(parsed):
    long = "24·batch·time·width² + 4·batch·time²·width + 9·batch·time"
    open_one = {**figures(None, None), "formulas": {"flops": long, "bytes_accessed": "≥ 8·batch"}, "share": None}
    other = {**open_one, "formulas": {"flops": "2·batch"}}
    cost = {
        "source": "analytic", "by_block": {"layer_0": open_one, "layer_1": other}, "unattributed": figures(),
        "total": {**figures(None, None), "formulas": {"flops": f"{long} + 2·batch"}},
        "once": {"name": "analytic, loops once", "flops": None, "transcendentals": None, "bytes": None},
        "unknown": [{"opcode": "dot_general", "count": 1, "reason": "size unknown", "share": 0.5}],
    }  # fmt: skip
    lines = [" ".join(line.split()) for line in cost_text(cost).splitlines()]
    assert lines[:3] == [
        "block FLOPs transcendentals bytes params",
        "layer_0 24·batch·time·width² + … 0 ≥ 8·batch 0",
        "layer_1 2·batch 0 unknown 0",
    ]
    assert not any("size unknown" in line or "loops once" in line for line in lines)
    html = cost_html(cost)
    parsed(html)
    assert f'<td title="{long}" aria-label="{long}">24·batch·time·width² + …</td>' in html
    assert '<td title="2·batch">2·batch</td>' in html
    assert "share of" not in html
    assert "bar" not in html[html.index("<table") :]


def test_empty_costs(parsed):
    empty = {"source": "analytic", "by_block": {}, "total": figures(), "unattributed": figures(share=0.0)}
    parsed(cost_html(empty))
    assert "total" in cost_text(empty)
    nothing = {"program": "step", "sources": {}, "memory": None, "unavailable": {"analytic": "it cannot be traced"}}
    parsed(cost_html(nothing))
    assert "no analytic costs: it cannot be traced" in cost_text(nothing)


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=30), st.text(max_size=30))
def test_any_name_is_escaped(parsed, block, opcode):
    cost = {
        **ANALYTIC, "by_block": {block: figures(1, 1, share=1.0)}, "unknown": [{"opcode": opcode, "count": 1}],
        "rows": [{"opcode": opcode, "formula": block, "flops": 1, "bytes_accessed": 1}], "notes": [block],
    }  # fmt: skip
    page = parsed(cost_html({**BESIDE, "sources": {block: cost}, "unavailable": {opcode: block}}))
    assert "script" not in {tag for tag, _ in page.elements}


def test_a_total_of_zero_has_no_shares() -> None:
    nothing = {**COMPILED, "by_block": {"flip": figures(0, 64, share=0.0, share_bound="")}, "total": figures(0, 64)}
    text = cost_text(nothing)
    assert "share" not in text
    assert "%" not in text
    assert "share" not in cost_html(nothing)
    assert "100 %" in cost_text({**nothing, "total": figures(0, 64, unknown=1)})  # costs are unknown, so shares are too
