"""Changes between two snapshots as JSON. The kernel sends changes, because snapshots are much larger.

`kernel/changes.ts` applies them. A change is one of:

- `{key: change}`: changes inside a dict by key, or inside a list by index;
- `[value]`: a new value; `[value, next]` inserts a key of a dict before another one;
- `[]`: a key removed from a dict;
- `[start, count, values]`: in a list, values that replace `count` old values from `start` on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

Change = dict[str, Any] | list[Any]


def change_between(old: Any, new: Any) -> Change:
    """Return the change from one JSON value to another; an empty dict if they are equal."""
    if old is new:
        return {}
    if isinstance(old, dict) and isinstance(new, dict):
        return _between_dicts(old, new)
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return _between_lists(old, new)
    return {} if type(old) is type(new) and old == new else [new]


def _between_dicts(old: dict[str, Any], new: dict[str, Any]) -> Change:
    if [*old] != [*new] and [key for key in new if key in old] != [key for key in old if key in new]:
        return [new]  # the order changed
    changes: Change = {key: [] for key in old if key not in new}
    following: str | None = None
    inserted: dict[str, Change] = {}
    for key in reversed(new):
        if key not in old:
            inserted[key] = [new[key]] if following is None else [new[key], following]
            continue
        following = key
        # Most values are the same objects as before; a call for each would take most of the time of an edit.
        if old[key] is not new[key] and (change := change_between(old[key], new[key])):
            changes[key] = change
    return changes | dict(reversed(inserted.items()))


def _between_lists(old: Sequence[Any], new: Sequence[Any]) -> Change:
    pairs = zip(count(), old, new, strict=False)
    changes = ((at, change) for at, a, b in pairs if a is not b and (change := change_between(a, b)))
    if len(old) == len(new):
        return {str(at): change for at, change in changes}
    least = min(len(old), len(new))
    start, _ = next(changes, (least, None))
    rest = least - start
    pairs = zip(range(rest), reversed(old), reversed(new), strict=False)
    end = next((at for at, a, b in pairs if a is not b and change_between(a, b)), rest)
    return [start, len(old) - end - start, list(new[start : len(new) - end])]
