"""What stands below a table of costs: what is not counted and why, each thing once, whoever of the sources says it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mithril_nb.viz.costs.formulas import value_of
from mithril_nb.viz.escape import one_line
from mithril_nb.viz.units import percent

Sources = Mapping[str, Mapping[str, Any]]
"""Costs as data by way of counting."""

_NO_SIZE = "size unknown"


def unknowns(sources: Sources) -> Iterator[tuple[str, str, str]]:
    """Yield for each primitive or opcode that is not counted why, which, and how much of it there is.

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
                continue  # it is in the formulas
            count, share = item.get("count"), item.get("share")
            told = "not counted" if count is None else f"{count} {what}{'' if count == 1 else 's'} not counted"
            reason, _, because = str(item.get("reason", "no rule")).partition(": ")
            why = "no FLOP rule for" if reason == "no rule" else f"{one_line(reason)} of"
            key = why, str(item["opcode"]), told, f" ({one_line(because)})" if because else "", f"{what}s"
            found.setdefault(key, {})[name] = "" if share is None else percent(share)
    for (why, opcode, told, because, what), shares in found.items():
        of = " and ".join(dict.fromkeys(share for share in shares.values() if share))
        told += f", {of} of the program's {what}" if of else ""
        yield f"{_said_by(shares, sources)}{why}", opcode, told + because


def notes(sources: Sources, unavailable: Mapping[str, str]) -> Iterator[str]:
    """Yield what else there is to say: FLOPs that are unknown are told by opcode, time and parameters where they stand.

    Args:
        sources: The costs.
        unavailable: Why there are none, by way of counting.

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
        yield f"{_said_by(dict.fromkeys(names), sources)}{note}"
    for name, why in unavailable.items():
        yield f"no {name} costs: {why}"


def has_params(cost: Mapping[str, Any]) -> bool:
    """Return whether anything is known of a program's parameters: a column of unknowns would tell nothing."""
    return value_of(cost.get("total", {}), "params") is not None


def _said_by(names: Mapping[str, Any], sources: Sources) -> str:
    """Return whose note it is; nothing if it is that of all."""
    return "" if len(names) == len(sources) else f"{', '.join(names)}: "
