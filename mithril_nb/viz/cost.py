"""What each block costs, as a table: rows that add up, bars, and what is not known said to be unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mithril_nb.graph.paths import split_path
from mithril_nb.viz.escape import block_key, escaped, one_line
from mithril_nb.viz.palette import HUES, hue_of, hues_of_blocks
from mithril_nb.viz.style import base_css
from mithril_nb.viz.text import columns
from mithril_nb.viz.units import UNKNOWN, exact, flops, nbytes, percent, si

Cost = Mapping[str, Any]
"""A cost report as data: `rows`, `total`, `unattributed_share`, `unknown`, `sources`, `memory`."""

_OWN = ("(loss)", "(optimizer)")  # what a program does for no block, as `stages` names it
_AT_LEAST = "≥ "
_ROLES = ("forward", "backward", "update")
_MEMORY = ("argument", "output", "temp", "alias", "code")


def cost_html(cost: Cost, hues: Mapping[str, int] | None = None) -> str:
    """Return the cost of a program, block by block, as one self-contained HTML fragment.

    Args:
        cost: The report as data (`CostReport.to_dict()`).
        hues: Hue of each top-level block, by path, for rows that carry none; by default in the order of the rows.
    """
    return f'<div class="mnb"><style>{base_css()}{cost_css()}</style>{cost_tables(cost, hues)}</div>'


def cost_tables(cost: Cost, hues: Mapping[str, int] | None = None) -> str:
    """Return the tables alone, without a style sheet."""
    parts = (*_blocks(cost, _hues(cost) if hues is None else hues), *_unknown(cost))
    return "".join((*parts, '<div class="costs">', *_sources(cost), *_memory(cost), "</div>"))


def cost_text(cost: Cost) -> str:
    """Return the same as plain text.

    Examples:
        >>> row = {"block": "a", "flops": 750, "bytes": 64, "params": 8, "transcendentals": 0, "share": 0.75}
        >>> total = {"flops": 1000, "bytes": 64, "params": 8, "transcendentals": 0}
        >>> print(cost_text({"rows": [row], "total": total, "unattributed_share": 0.25}))
        block              FLOPs  transcendentals  bytes  params   share
        a               750 FLOP                0   64 B       8  75.0 %
        unattributed                                              25.0 %
        total         1.00 kFLOP                0   64 B       8   100 %
    """
    rows: list[tuple[str, ...]] = [("block", "FLOPs", "transcendentals", "bytes", "params", "share")]
    known, lost = _split(cost)
    rows += [(block_name(str(row["block"])), *_figures(row), _percent(row)) for row in known]
    rows.append(("unattributed", *(_figures(lost) if lost else ("", "", "", "")), _percent(cost, "unattributed")))
    rows.append(("total", *_figures(cost["total"]), "100 %"))
    text = [columns(rows, right=frozenset({1, 2, 3, 4, 5}))]
    text.extend(f"{why} {one_line(primitive)}: {told}" for why, primitive, told in _unknowns(cost))
    if cost.get("sources"):
        sources: list[tuple[str, ...]] = [("source", "FLOPs", "transcendentals", "bytes")]
        sources += [
            (
                one_line(str(item["name"])),
                flops(item.get("flops")),
                si(item.get("transcendentals")),
                nbytes(item.get("bytes")),
            )
            for item in cost["sources"]
        ]
        text.append("\n" + columns(sources, right=frozenset({1, 2, 3})))
    if cost.get("memory"):
        told = ", ".join(f"{name} {nbytes(cost['memory'].get(name))}" for name in _MEMORY)
        text.append(f"\nmemory: {told}")
    return "\n".join(text)


def cost_css() -> str:
    """Return the rules of the tables."""
    return (
        ".mnb table.cost{border-collapse:collapse;font:inherit;margin:0 0 12px;width:auto;"
        "font-variant-numeric:tabular-nums;border:0}"
        ".mnb .cost th,.mnb .cost td{padding:3px 10px;border:0;border-bottom:1px solid var(--line);text-align:right;"
        "background:none;white-space:nowrap;vertical-align:middle;color:var(--ink)}"
        ".mnb table.cost tbody tr:nth-child(n){background:none}"  # JupyterLab stripes tables
        ".mnb .cost thead th{color:var(--muted);font-weight:500;background:var(--surface)}"
        ".mnb .cost th:first-child,.mnb .cost td:first-child{text-align:left;font-weight:400;max-width:320px;"
        "overflow:hidden;text-overflow:ellipsis}"
        ".mnb .cost tfoot td,.mnb .cost tfoot th{border-bottom:0}"
        ".mnb .cost tfoot .total>*{font-weight:600;border-top:1px solid var(--muted)}"
        ".mnb .cost .bar{display:inline-block;width:96px;height:8px;border-radius:2px;background:var(--track);"
        "margin-left:8px;vertical-align:middle;overflow:hidden;text-align:left;line-height:0}"
        ".mnb .cost .bar i{display:inline-block;height:8px;vertical-align:top}"
        ".mnb .cost .bar.one i{background:var(--cost)}"
        ".mnb .cost .f{background:var(--cost)}"
        ".mnb .cost .b{background:repeating-linear-gradient(45deg,var(--cost) 0 3px,var(--track) 3px 5px)}"
        ".mnb .cost .u{background:repeating-linear-gradient(90deg,var(--cost) 0 2px,var(--track) 2px 4px)}"
        ".mnb .cost .unknown{color:var(--muted);font-style:italic}"
        ".mnb .cost tr[data-block]:hover>*,.mnb .cost tr.on>*{background:var(--on)}"
        ".mnb .cost tr.pin>*{background:var(--pin)}"
        ".mnb .costs{display:flex;gap:24px;flex-wrap:wrap;align-items:flex-start}"
        ".mnb .cost caption{caption-side:top;text-align:left;white-space:nowrap;color:var(--muted);padding:2px 10px}"
        ".mnb .legend{display:inline-flex;gap:12px;margin-left:8px}.mnb .legend .bar{width:24px;margin:0 4px 0 0}"
    )


def block_name(path: str) -> str:
    """Return a block's path as a person reads it.

    Examples:
        >>> block_name("mlp_0/linear_1"), block_name("(loss)")
        ('mlp_0 / linear_1', 'loss')
    """
    if path in _OWN:
        return path.strip("()")
    return one_line(" / ".join(split_path(path)))


def _split(cost: Cost) -> tuple[list[Mapping[str, Any]], Mapping[str, Any] | None]:
    """Return the rows of blocks, and the row of what no block caused if there is one."""
    rows = list(cost.get("rows", ()))
    return [row for row in rows if row["block"]], next((row for row in rows if not row["block"]), None)


def _hues(cost: Cost) -> dict[str, int]:
    return hues_of_blocks(str(row["block"]) for row in _split(cost)[0] if row["block"] not in _OWN)


def _blocks(cost: Cost, hues: Mapping[str, int]) -> Iterator[str]:
    rows, lost = _split(cost)
    parts = any(row.get(role) for row in rows for role in ("backward", "update"))
    yield '<table class="cost"><caption>cost by block'
    if parts:
        yield '<span class="legend">'
        for role in _ROLES:
            yield f'<span><span class="bar"><i class="{role[0]}" style="width:100%"></i></span>{role}</span>'
        yield "</span>"
    yield (
        '</caption><thead><tr><th scope="col">block</th><th scope="col">FLOPs</th><th scope="col">transcendentals</th>'
        '<th scope="col">bytes</th><th scope="col">params</th><th scope="col">share of FLOPs</th></tr></thead><tbody>'
    )
    for row in rows:
        yield from _row(row, hues)
    figures = _cells(lost) if lost else "<td></td>" * 4
    yield (
        f'</tbody><tfoot><tr><th scope="row"><span class="dot"></span>unattributed</th>{figures}'
        f"<td>{_share(cost, (), 'unattributed')}</td></tr>"
        f'<tr class="total"><th scope="row">total</th>{_cells(cost["total"])}<td></td></tr></tfoot></table>'
    )


def _row(row: Mapping[str, Any], hues: Mapping[str, int]) -> Iterator[str]:
    block = str(row["block"])
    hue = row.get("hue")
    if hue is None:
        hue = hue_of(block, hues)
    dot = f'<span class="dot{"" if hue is None else f" h{int(hue) % HUES}"}"></span>'
    link = f' data-block="{escaped(block_key(block))}" tabindex="0"'
    label = escaped(block_name(block))
    by_role = [(role, row.get(role)) for role in _ROLES]
    yield (
        f'<tr{link}><th scope="row" title="{escaped(one_line(block))}">{dot}{label}</th>{_cells(row)}'
        f"<td>{_share(row, by_role)}</td></tr>"
    )


def _cells(row: Mapping[str, Any]) -> str:
    values = (row.get("flops"), row.get("transcendentals"), row.get("bytes"), row.get("params"))
    return "".join(_cell(text, value) for text, value in zip(_figures(row), values, strict=True))


def _cell(text: str, value: float | None) -> str:
    if value is None:
        return f'<td class="unknown">{UNKNOWN}</td>'
    at_least = "at least " if text.startswith(_AT_LEAST) else ""
    return f'<td title="{at_least}{exact(value)}">{escaped(text)}</td>'


def _percent(data: Mapping[str, Any], of: str = "") -> str:
    """A share; where costs are unknown it is only a bound, and says so."""
    start = f"{of}_" if of else ""
    bound = data.get(f"{start}{'' if of else 'share_'}bound")
    told = percent(data.get(f"{start}share"))
    return f"{bound} {told}" if bound else told


def _share(data: Mapping[str, Any], by_role: Sequence[tuple[str, float | None]], of: str = "") -> str:
    share, told_share = data.get(f"{of}_share" if of else "share"), _percent(data, of)
    if share is None:
        return f'<span class="unknown">{UNKNOWN}</span>'
    known = [(role, value) for role, value in by_role if value]
    whole = sum(value for _, value in known)
    length = 100 * min(1.0, max(0.0, share))
    if len(known) < 2:
        look = known[0][0][0] if known else "f"
        return f'{told_share}<span class="bar"><i class="{look}" style="width:{length:.1f}%"></i></span>'
    told = ", ".join(f"{role} {percent(value / whole)}" for role, value in known)
    bars = "".join(f'<i class="{role[0]}" style="width:{length * value / whole:.2f}%"></i>' for role, value in known)
    return f'{told_share}<span class="bar" title="{told}">{bars}</span>'


def _unknown(cost: Cost) -> Iterator[str]:
    for why, primitive, told in _unknowns(cost):
        yield f"<p>{why[0].upper()}{why[1:]} <code>{escaped(primitive)}</code>: {told}.</p>"


def _sources(cost: Cost) -> Iterator[str]:
    if not cost.get("sources"):
        return
    yield (
        '<table class="cost"><caption>whole program, by source</caption><thead><tr><th scope="col">source</th>'
        '<th scope="col">FLOPs</th><th scope="col">transcendentals</th><th scope="col">bytes</th></tr></thead><tbody>'
    )
    for item in cost["sources"]:
        yield f'<tr><th scope="row">{escaped(one_line(str(item["name"])))}</th>'
        for key, shown in (("flops", flops), ("transcendentals", si), ("bytes", nbytes)):
            yield _cell(shown(item.get(key)), item.get(key))
        yield "</tr>"
    yield "</tbody></table>"


def _memory(cost: Cost) -> Iterator[str]:
    memory = cost.get("memory")
    if not memory:
        return
    yield '<table class="cost"><caption>memory of the compiled program</caption><tbody>'
    for name in _MEMORY:
        yield f'<tr><th scope="row">{name}</th>{_cell(nbytes(memory.get(name)), memory.get(name))}</tr>'
    yield "</tbody></table>"


def _figures(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    def told(text: str, key: str, unknown: str) -> str:
        # 0 beside unknown costs is exact: a sum of which nothing is known is `None`.
        return f"{_AT_LEAST}{text}" if row.get(unknown) and row.get(key) else text

    return (
        told(flops(row.get("flops")), "flops", "unknown"),
        told(si(row.get("transcendentals")), "transcendentals", "unknown"),
        told(nbytes(row.get("bytes")), "bytes", "unknown_bytes"),
        si(row.get("params")),
    )


def _unknowns(cost: Cost) -> Iterator[tuple[str, str, str]]:
    """Yield for each primitive that is not counted why, which, and how much of it there is."""
    for item in cost.get("unknown", ()):
        count = item.get("count")
        told = "not counted" if count is None else f"{count} equation{'' if count == 1 else 's'} not counted"
        if item.get("share") is not None:
            told += f", {percent(item['share'])} of the program's"
        why = "no FLOP rule for" if item.get("reason", "no rule") == "no rule" else f"{item['reason']} of"
        yield why, str(item["primitive"]), told
