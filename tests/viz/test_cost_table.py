"""Costs as tables: all rows, the sum, what nobody caused, and the unknown said to be unknown."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mithril_nb.viz.cost import cost_html, cost_text

COST = {
    "rows": [
        {"block": "linear_0", "flops": 786432, "transcendentals": 0, "bytes": 41216, "params": 4160, "share": 0.75,
         "forward": 262144, "backward": 523288, "update": 1000},
        {"block": "mlp_0/relu_0", "flops": 157286, "transcendentals": 0, "bytes": None, "params": 0, "share": 0.15,
         "forward": 157286, "backward": 0, "update": 0},
        {"block": "(loss)", "flops": 52429, "transcendentals": 320, "bytes": 5000, "params": 0, "share": 0.05},
        {"block": "", "flops": 52429, "transcendentals": 0, "bytes": 10, "params": 0, "share": 0.05},
    ],
    "total": {"flops": 1048576, "transcendentals": 320, "bytes": 46226, "params": 4160},
    "unattributed_share": 0.05,
    "unknown": [{"primitive": "sort", "count": 1, "reason": "no rule", "share": 0.012},
                {"primitive": "while", "count": 2, "reason": "trip count unknown", "share": None}],
    "sources": [{"name": "analytic (jaxpr)", "flops": 1048576, "transcendentals": 320, "bytes": 46226},
                {"name": "XLA compiled", "flops": None, "transcendentals": None, "bytes": None}],
    "memory": {"argument": 95488, "output": 1280, "temp": 0, "alias": 0, "code": None},
}  # fmt: skip


def test_golden(golden, parsed):
    html = cost_html(COST)
    parsed(html)
    golden("cost.html", html)
    golden("cost.txt", cost_text(COST) + "\n")


def test_what_is_not_known_is_said(parsed):
    text = cost_text(COST)
    assert "no FLOP rule for sort: 1 equation not counted, 1.2 % of the program's" in text
    assert "trip count unknown of while: 2 equations not counted" in text
    assert "XLA compiled         unknown          unknown  unknown" in text
    assert "code unknown" in text


def test_sums_and_shares_beside_what_is_unknown_are_bounds(parsed):
    known = {"block": "a", "flops": 750, "bytes": 64, "params": 0, "transcendentals": 3, "share": 0.75,
             "share_bound": "≤", "unknown": 0, "unknown_bytes": 0}  # fmt: skip
    some = {**known, "block": "b", "flops": 250, "share": 0.25, "share_bound": "≥", "unknown": 2, "unknown_bytes": 1}
    none = {**some, "block": "c", "flops": None, "transcendentals": None, "share": None, "share_bound": ""}
    total = {"flops": 1000, "transcendentals": 6, "bytes": 192, "params": 0, "unknown": 4, "unknown_bytes": 2}
    cost = {
        "rows": [known, some, none], "total": total, "unattributed_share": 0.1, "unattributed_bound": "≤", "unknown": []
    }  # fmt: skip
    lines = [" ".join(line.split()) for line in cost_text(cost).splitlines()]
    assert lines[1:] == [
        "a 750 FLOP 3 64 B 0 ≤ 75.0 %",
        "b ≥ 250 FLOP ≥ 3 ≥ 64 B 0 ≥ 25.0 %",
        "c unknown unknown ≥ 64 B 0 unknown",
        "unattributed ≤ 10.0 %",
        "total ≥ 1.00 kFLOP ≥ 6 ≥ 192 B 0 100 %",
    ]
    html = cost_html(cost)
    parsed(html)
    assert '<td title="at least 250">≥ 250 FLOP</td>' in html
    assert '<td title="750">750 FLOP</td>' in html
    assert '≥ 25.0 %<span class="bar">' in html
    assert '≤ 10.0 %<span class="bar">' in html


def test_exact_values_are_in_the_tooltip_and_roles_in_the_bar():
    html = cost_html(COST)
    assert '<td title="786,432">786 kFLOP</td>' in html
    assert 'title="forward 33.3 %, backward 66.5 %, update 0.1 %"' in html
    assert html.count("<tr data-block") == 3


def test_a_report_with_nothing_in_it(parsed):
    empty = {
        "rows": [],
        "total": {"flops": 0, "transcendentals": 0, "bytes": 0, "params": 0},
        "unattributed_share": 0.0,
    }
    parsed(cost_html(empty))
    assert "total" in cost_text(empty)


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=30), st.text(max_size=30))
def test_any_name_is_data(parsed, block, primitive):
    row = {"block": block, "flops": 1, "transcendentals": 0, "bytes": 1, "params": 0, "share": 1.0}
    cost = {**COST, "rows": [row], "unknown": [{"primitive": primitive, "count": 1}]}
    page = parsed(cost_html(cost))
    assert "script" not in {tag for tag, _ in page.elements}
