"""Rows of a table of costs: they add up, equal blocks are merged, and small blocks are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from cost_pictures import HOSTILE, gpt
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.viz.costs.tables.rows import MOST_ROWS, TableRow, folded_rows, share_of, sum_figures
from mithril_nb.viz.costs.tables.table import cost_html, cost_text

FIGURES = ("flops", "transcendentals", "bytes_accessed", "params")


def figures(flops: int | None, moved: int | None = 0, **other: Any) -> dict[str, Any]:
    return {"flops": flops, "transcendentals": 0, "bytes_accessed": moved, "params": 1, "time_s": None,
            "unknown": int(flops is None), "unknown_bytes": int(moved is None), **other}  # fmt: skip


def program(by_block: Mapping[str, Mapping[str, Any]], lost: int = 0, source: str = "analytic") -> dict[str, Any]:
    """Return costs whose total is the sum of the blocks."""
    rest = {**figures(lost), "params": 0}
    every = [*by_block.values(), rest]
    total = sum_figures(every) if by_block else rest
    shared = {path: {**one, "share": None, "share_bound": ""} for path, one in by_block.items()}
    return {"program": "p", "source": source, "by_block": shared, "unattributed": rest, "total": total, "notes": []}


def groups(rows: Sequence[TableRow]) -> Iterator[tuple[TableRow, list[TableRow]]]:
    """Yield each row with the rows inside it."""
    for at, row in enumerate(rows):
        below: list[TableRow] = []
        for other in rows[at + 1 :]:
            if other.depth <= row.depth:
                break
            if other.depth == row.depth + 1:
                below.append(other)
        yield row, below


def cells(html: str) -> list[tuple[int, list[int]]]:
    """Return the indentation and the exact figures of each row of the table of blocks; the total is last."""
    found: list[tuple[int, list[int]]] = []
    for row in re.findall(r"<tr.*?</tr>", html[html.index("<tbody>") : html.index("</tfoot>")]):
        shift = re.search(r"padding-left:(\d+)px", row)
        values = [
            digits.replace(",", "")
            for digits in re.findall(r'<td(?: title="(?:at least )?([\d,]+)"| class="unknown")', row)
        ]
        found.append((int(shift[1]) if shift else 10, [int(value or 0) for value in values]))
    return found


paths = st.lists(st.sampled_from(["a", "b_0", "b_1", "b_2", "c_9", "c_10", "d"]), min_size=1, max_size=4).map("/".join)
costs = st.builds(figures, st.sampled_from([0, 5, 5, 5, 7, 10**9, None]), st.sampled_from([0, 3, 3, None]))
trees = st.dictionaries(paths, costs, max_size=60)


@settings(max_examples=80, deadline=None)
@given(trees, st.integers(0, 9))
def test_shown_rows_add_up_to_the_total(by_block, lost):
    cost = program(by_block, lost)
    *rows, total = cells(cost_html(cost))
    assert len(rows) <= MOST_ROWS + 1  # and what is unattributed
    ends = [row for row, after in zip(rows, [*rows[1:], total], strict=True) if after[0] <= row[0]]
    assert [sum(values) for values in zip(*(values for _, values in ends), strict=True)] == total[1]


@settings(max_examples=80, deadline=None)
@given(trees, trees, st.integers(1, 30))
def test_groups_are_the_sums_of_their_rows(by_block, other, most):
    rows = folded_rows([by_block, other], most=most)
    assert len(rows) <= most
    assert sorted(path for row in rows if not row.depth for path in row.paths) == sorted({*by_block, *other})
    for row, below in groups(rows):
        inside = [path for one in below for path in one.paths]
        assert len(inside) == len(set(inside))
        for known in (by_block, other):
            whole, parts = ([known[path] for path in some if path in known] for some in (row.paths, inside))
            if below:
                for key in FIGURES:
                    assert sum(one[key] or 0 for one in whole) == sum(one[key] or 0 for one in parts), (row, key)


def test_equal_layers_are_merged_with_their_sums():
    cost = {**gpt(12), "source": "analytic"}
    lines = [line.split("  ")[0] for line in cost_text(cost).splitlines()]
    text = [line for line in cost_text(cost).splitlines() if line.lstrip().startswith(("block_", "up "))]
    assert len(lines) < 30
    assert text[0].startswith("block_0–11 ×12   136 GFLOP")
    assert text[1].startswith("    up          43.9 GFLOP")
    assert 'title="block_0, and 11 like it"' in cost_html(cost)
    assert 'title="block_0 / mlp / up, and 11 like it"' in cost_html(cost)


def test_similar_layers_are_merged_if_there_are_many():
    few, many = (folded_rows([gpt(layers, spread=3)["by_block"]]) for layers in (2, 12))
    assert [row.label for row in few if not row.depth][2:4] == ["block_0", "block_1"]
    assert [row.label for row in many if not row.depth][2] == "block_0–11 ×12"
    wide = {f"stage_{at}/{part}": figures(10 ** (at % 3)) for at in range(12) for part in ("up", "down", "sum", "norm")}
    assert [row.label for row in folded_rows([wide])] == [f"stage_{at}" for at in range(12)], "not of one width"
    leaves = folded_rows([{f"part_{at}": figures(1000 + at) for at in range(50)}])
    assert leaves[-1].label == "and 11 smaller"
    assert not any("–" in row.label for row in leaves)


def test_the_last_row_sums_the_rest():
    cost = program({f"part_{at}": figures(at * at, at) for at in range(300)})
    lines = cost_text(cost).splitlines()
    names = [line.split()[0] for line in lines[1:40]]
    assert names == [f"part_{at}" for at in range(261, 300)]
    assert lines[40].startswith(f"and 261 smaller  {sum(at * at for at in range(261)) / 1e6:.2f} MFLOP ")
    assert lines[41].startswith("(unattributed)")
    assert 'title="part_0, part_1, part_2, part_3, part_4, part_5, part_6, part_7 …"' in cost_html(cost)


def test_unknown_costs_are_not_counted_as_small():
    cost = program({f"part_{at}": figures(None if at in (3, 60) else 1000 - at) for at in range(100)})
    shown = [row.label for row in folded_rows([cost["by_block"]])]
    assert {"part_3", "part_60"} < set(shown)
    assert shown[-1] == "and 61 smaller"
    nothing = program({f"part_{at}_of_it": figures(None) for at in range(100)})
    assert folded_rows([nothing["by_block"]])[-1].label == "and 61 more"
    assert [line.split()[:4] for line in cost_text(nothing).splitlines() if line.startswith("and")] == [
        ["and", "61", "more", "unknown"]
    ]


def test_groups_without_room_stay_closed_and_count_their_rows(parsed):
    deep = program({f"net/group_{at // 30}/part_{at}": figures(at * at) for at in range(300)})
    rows = folded_rows([deep["by_block"]])
    assert [row.title for row in rows] == ["net", *(f"group_{at} (30 inside)" for at in range(10))]
    html = cost_html(deep)
    parsed(html)
    assert html.count('<span class="quiet">30 inside</span>') == 10


def test_a_group_has_a_row_for_its_own_cost():
    rows = folded_rows([{"net": figures(5), "net/up": figures(7), "net/down": figures(1)}])
    assert [(row.depth, row.label, row.paths) for row in rows] == [
        (0, "net", ("net", "net/up", "net/down")),
        (1, "(self)", ("net",)),
        (1, "up", ("net/up",)),
        (1, "down", ("net/down",)),
    ]
    assert rows[1].about == "net, without the blocks inside"
    nothing = {"flops": 0, "transcendentals": 0, "bytes_accessed": 0, "params": 0, "time_s": None}
    other = folded_rows([{"net": nothing, "net/up": figures(7), "net/down": figures(1)}])
    assert [row.label for row in other] == ["net", "up", "down"]
    by_another = folded_rows([{"net": nothing, "net/up": figures(7)}, {"net": figures(3)}])
    assert [row.label for row in by_another] == ["net", "(self)", "up"]


def test_the_largest_row_fills_its_bar():
    by_block = {"a": figures(10), "b": figures(40), "c": figures(30)}
    cost = program(by_block, lost=20)
    for path, one in cost["by_block"].items():
        one |= {"share": by_block[path]["flops"] / 100}
    cost["unattributed"] |= {"share": 0.2, "share_bound": ""}
    html = cost_html(cost)
    assert re.findall(r'([\d.]+) %<span class="bar"><i class="f" style="width:([\d.]+)%', html) == [
        ("10.0", "25.0"), ("40.0", "100.0"), ("30.0", "75.0"), ("20.0", "50.0"),
    ]  # fmt: skip


def test_times_of_a_stack_are_added_up():
    layers = {f"layer_{at}": figures(100, time_s=0.001 * (at + 1)) for at in range(4)}
    cost = {**program(layers, source="measured")}
    cost["total"] = {**cost["total"], "time_s": 0.010}
    line = next(line for line in cost_text(cost).splitlines() if line.startswith("layer_0–3 ×4"))
    assert line.split()[2:] == ["400", "FLOP", "0", "0", "B", "10.0", "ms", "4", "100", "%"]


def _loop(x: Any) -> Any:
    return jax.lax.while_loop(lambda value: value.sum() < 3, lambda value: value + 1, x)


def _partly_unknown(x: Any) -> Any:
    with jax.named_scope("net"):
        with jax.named_scope("loop"):
            x = _loop(x @ x)
        with jax.named_scope("matmul"):
            x = x @ x
    with jax.named_scope("head"):
        with jax.named_scope("up"):
            x = x @ x
        with jax.named_scope("down"):
            return jnp.tanh(x @ x)


def _twice_unknown(x: Any) -> Any:
    x = _partly_unknown(x)
    with jax.named_scope("tail/loop"):
        return _loop(x)


@pytest.mark.parametrize("function", [_partly_unknown, _twice_unknown])
@pytest.mark.parametrize("size", [8, "batch"])
def test_groups_cost_what_the_subtree_costs(function, size):
    if size == "batch":
        (size,) = jax.export.symbolic_shape("batch")
    cost = inspect(function, jax.ShapeDtypeStruct((size, size), "float32")).cost()
    data = cost.to_dict(rows=False)
    rows = folded_rows([data["by_block"]])
    found = {row.path: row for row, below in groups(rows) if below}
    assert {"net", "head"} <= found.keys()
    for path, row in found.items():
        part = sum_figures([data["by_block"][one] for one in row.paths], data["total"])
        subtree = cost.subtree(path)
        assert {key: part[key] for key in FIGURES} == {key: getattr(subtree, key) for key in FIGURES}
        for key, formula in part.get("formulas", {}).items():
            known, _, unknown = cost.formula(path, key).partition(" + unknown")
            assert formula == f"{'≥ ' if unknown else ''}{known}"
        assert ("formulas" in part) is bool(cost.symbols)
        others = [one for other, one in data["by_block"].items() if other not in row.paths]
        assert share_of(part, [*others, data["unattributed"]], data["total"]) == cost.share_of(subtree)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20)), min_size=1, max_size=12))
@example(["", "/", "//", "a//b", "a/"])
@example(["(a\nb", "x_" + "9" * 5000, "x_" + "9" * 5001, "x_²", "x_٣", "x_٤"])
@example(["/".join("a" * 60), "/".join("a" * 59)])
def test_any_name_is_escaped(parsed, names):
    cost = program({name: figures(at) for at, name in enumerate(names)})
    html = cost_html(cost)
    assert "script" not in {tag for tag, _ in parsed(html).elements}
    *rows, total = cells(html)
    assert max(shift for shift, _ in rows) <= 10 + 16 * 8
    text = cost_text(cost)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)
    assert json.dumps(total[1][0]) == str(sum(one["flops"] for one in cost["by_block"].values()))
