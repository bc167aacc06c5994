"""The effect of changed settings on costs: a table of totals, and the blocks side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.viz.costs.beside import beside, change_text, pair_of
from mithril_nb.viz.costs.drawable import replace_undrawable
from mithril_nb.viz.costs.drawing import Drawing
from mithril_nb.viz.costs.fields import FIELDS, Field, at_least, is_bound
from mithril_nb.viz.costs.numbers import Numbers
from mithril_nb.viz.text.escape import one_line

Changed = Mapping[str, Any]
"""A change as data: `Comparison.to_dict()` with `settings`, `way`, `peak_bytes` and `notes`."""
_COUNTED = ("flops", "transcendentals", "bytes_accessed", "params")
_TABLE = (*_COUNTED, "peak_bytes", "time_s")


def change(changed: Changed, field: str = "flops", width: int = 720) -> Drawing:
    r"""Draw the effect of changed settings on costs; the text lists totals, then blocks.

    Args:
        changed: The change.
        field: Field of the picture and of the blocks in the text.
        width: Width in px, at least 320.

    Raises:
        UnknownOptionError: The field does not exist.

    Examples:
        >>> total = {"before": {"flops": 4000}, "after": {"flops": 8000}}
        >>> data = {"program": "step", "before": "batch=8", "after": "batch=16", "way": "formula", "total": total}
        >>> drawing = change({**data, "by_block": {"linear": total}, "unattributed": {"before": {}, "after": {}}})
        >>> print(drawing.text.partition("\n\n")[0])
        step: batch=8 -> batch=16 (formula)
                 batch=8    batch=16    change
        FLOPs  4.00 kFLOP  8.00 kFLOP  +100.0 %
    """
    changed = replace_undrawable(changed)
    notes = (*_unchanged(changed), *(changed.get("notes") or ()), *_of_peak(changed))
    pair = {**pair_of(changed, field), "program": str(changed["program"]), "notes": notes}
    drawing, whole = beside(pair, width), _whole(changed)
    return Drawing(
        drawing.svg, f"{whole.title}\n{whole.text}\n\n{drawing.text}", (whole, *drawing.tables), drawing.notes
    )


def _unchanged(changed: Changed) -> tuple[str, ...]:
    """Return a note if nothing changes, with the reason if it is known. Unknown costs might change, so no note."""
    figures = (changed["total"], changed["unattributed"], *changed["by_block"].values())
    peaks = changed.get("peak_bytes") or {"before": {}, "after": {}}
    is_same = all(one["before"] == one["after"] for one in (*figures, peaks))
    total = changed["total"]["before"]
    if not is_same or total.get("flops") is None or total.get("unknown") or total.get("unknown_bytes"):
        return ()
    found = "nothing changes: every figure here is the same before and after"
    backward = (changed.get("by_role") or {}).get("backward", {"before": {}})["before"]
    if "remat" in changed.get("settings", {}) and backward.get("flops") == backward.get("bytes_accessed") == 0:
        found += "; remat acts on the backward pass, and this program has none"
    return (found,)


def _whole(changed: Changed) -> Numbers:
    first, second, program = (one_line(str(changed[name])) for name in ("before", "after", "program"))
    rows = [("", first, second, "change")]
    rows += [_row(changed, FIELDS[name]) for name in _TABLE if _has_row(changed, name)]
    return Numbers(f"{program}: {first} -> {second} ({changed['way']})", rows)


def _row(changed: Changed, field: Field) -> tuple[str, ...]:
    before, after = _pair(changed, field.name)
    least = [is_bound(changed["total"][side], field.name) for side in ("before", "after")]
    sides = (at_least(field.short(value), bound) for value, bound in zip((before, after), least, strict=True))
    return (field.title, *sides, "unknown" if any(least) else change_text(before, after))


def _of_peak(changed: Changed) -> tuple[str, ...]:
    """Return a note if the peak is an estimate, and the reason if it is unknown."""
    sides = (changed.get("peak_bytes") or {}).values()
    if any(side.get("source") == "analytic" for side in sides):
        return ("peak_bytes: estimated from the equations; change.compiled has XLA's",)
    reasons = dict.fromkeys(str(side["reason"]) for side in sides if side.get("bytes") is None and side.get("reason"))
    return tuple(one if one.startswith("peak_bytes") else f"peak_bytes: {one}" for one in reasons)


def _has_row(changed: Changed, name: str) -> bool:
    """Return whether a field gets a row: if it has a value, or if it is counted but unknown."""
    is_counted = name in _COUNTED and name in changed["total"]["before"]
    return is_counted or any(value is not None for value in _pair(changed, name))


def _pair(changed: Changed, name: str) -> tuple[Any, Any]:
    if name == "peak_bytes":
        peaks = changed.get("peak_bytes") or {"before": {}, "after": {}}
        return peaks["before"].get("bytes"), peaks["after"].get("bytes")
    return changed["total"]["before"].get(name), changed["total"]["after"].get(name)
