"""Notes below a table of costs: what is not counted and why, with the notes of all sources merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mithril_nb.display import AT_LEAST
from mithril_nb.viz.costs.tables.formulas import COMMUNICATION, short_formula, value_of
from mithril_nb.viz.text.escape import one_line
from mithril_nb.viz.text.units import exact, nbytes, percent

Sources = Mapping[str, Mapping[str, Any]]
"""Costs as data, by source."""

_NO_SIZE = "size unknown"


def unknowns(sources: Sources) -> Iterator[tuple[str, str, str]]:
    """Yield, for each uncounted primitive or opcode, the reason, its name, and its count.

    Args:
        sources: The costs.

    Examples:
        >>> def of(share):
        ...     return {"total": {}, "unknown": [{"opcode": "sort", "reason": "no rule", "count": 1, "share": share}]}
        >>> [*unknowns({"analytic": of(0.25)})]
        [('no FLOP rule for', 'sort', "1 equation not counted, 25.0 % of the program's equations")]
        >>> next(unknowns({"analytic": {"total": {}}, "lowered": of(0.25), "compiled": of(0.5)}))[0]
        'lowered, compiled: no FLOP rule for'
    """
    found: dict[tuple[str, str, str, str, str], dict[str, str]] = {}
    for name, cost in sources.items():
        what = "equation" if name == "analytic" else "instruction"
        for item in cost.get("unknown", ()):
            if item.get("reason") == _NO_SIZE and cost["total"].get("formulas"):
                continue  # counted in the formulas
            count, share = item.get("count"), item.get("share")
            uncounted = "not counted" if count is None else f"{count} {what}{'' if count == 1 else 's'} not counted"
            reason, _, because = str(item.get("reason", "no rule")).partition(": ")
            why = "no FLOP rule for" if reason == "no rule" else f"{one_line(reason)} of"
            key = why, str(item["opcode"]), uncounted, f" ({one_line(because)})" if because else "", f"{what}s"
            found.setdefault(key, {})[name] = "" if share is None else percent(share)
    for (why, opcode, uncounted, because, what), shares in found.items():
        of = " and ".join(dict.fromkeys(share for share in shares.values() if share))
        uncounted += f", {of} of the program's {what}" if of else ""
        yield f"{_prefix(shares, sources)}{why}", opcode, uncounted + because


def notes(sources: Sources, unavailable: Mapping[str, str]) -> Iterator[str]:
    """Yield the other notes. Notes on unknown FLOPs are left out: `unknowns` yields them by opcode.

    Args:
        sources: The costs.
        unavailable: Reasons for missing costs, by source.

    Examples:
        >>> one, other = {"notes": ["params of a"], "total": {}}, {"notes": ["params of a", "1 × cond"], "total": {}}
        >>> [*notes({"lowered": one, "compiled": other}, {"measured": "it does not run"})]
        ['params of a', 'compiled: 1 × cond', 'no measured costs: it does not run']
    """
    found: dict[str, list[str]] = {}
    for name, cost in sources.items():
        left_out = ("flops",) if name == "measured" else ("flops", "time_s")
        left_out += () if has_params(cost) else ("params: ",)
        for note in cost.get("notes", ()):
            if not note.startswith(left_out):
                found.setdefault(note, []).append(name)
    for note, names in found.items():
        yield f"{_prefix(dict.fromkeys(names), sources)}{note}"
    for name, why in unavailable.items():
        yield f"no {name} costs: {why}"


def communicates(cost: Mapping[str, Any]) -> bool:
    """Return whether a program sends data to other devices, or might."""
    return any(value_of(cost.get("total", {}), key) != 0 for key in COMMUNICATION)


def communication(sources: Sources, *, is_exact: bool = False) -> Iterator[str]:
    """Yield a line for each source in which the program communicates: the total, then each role.

    Args:
        sources: The costs.
        is_exact: Whether numbers have all digits instead of three.

    Examples:
        >>> total, update = {"payload_bytes": 1464, "wire_bytes": 2562}, {"payload_bytes": 1460, "wire_bytes": 2555}
        >>> roles = {"forward": {"payload_bytes": 4, "wire_bytes": 7}, "backward": {}, "update": update}
        >>> print(*communication({"compiled": {"total": total, "by_role": roles}}, is_exact=True))
        communication of one device: payload 1,464 B, wire 2,562 B; forward 4 B, 7 B; update 1,460 B, 2,555 B
    """
    for name, cost in sources.items():
        if not communicates(cost):
            continue
        total = cost["total"]
        payload, wire = _formatted(total, is_exact)
        line = f"communication of one device: payload {payload}, wire {wire}"
        roles = [(role, of) for role, of in cost.get("by_role", {}).items() if role and value_of(of, "wire_bytes")]
        parts = [f"{role} {', '.join(_formatted(of, is_exact))}" for role, of in roles if len(roles) > 1]
        yield "; ".join([f"{one_line(name)}: {line}" if len(sources) > 1 else line, *parts])


def _formatted(figures: Mapping[str, Any], is_exact: bool) -> list[str]:
    """Format payload and wire bytes: each a number, a formula, a lower bound, or unknown."""
    cells: list[str] = []
    for value in (value_of(figures, key) for key in COMMUNICATION):
        bound = AT_LEAST if isinstance(value, int) and value and figures.get("unknown_communication") else ""
        if isinstance(value, str):
            cells.append(f"{short_formula(value)} B")
        else:
            cells.append(bound + (f"{exact(value)} B" if is_exact and value is not None else nbytes(value)))
    return cells


def has_params(cost: Mapping[str, Any]) -> bool:
    """Return whether a program's parameters are known; otherwise their column is left out."""
    return value_of(cost.get("total", {}), "params") is not None


def _prefix(names: Mapping[str, Any], sources: Sources) -> str:
    """Return the sources of a note as a prefix; `""` if it comes from all sources."""
    return "" if len(names) == len(sources) else f"{', '.join(names)}: "
