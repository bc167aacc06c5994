"""Write the results or an argument of a program as Python: nested tuples and dicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from mithril_nb.stages.trace.tracing import Leaf

_MOST_GAPS = 16
_STEP = re.compile(r"""\[(-?\d+)\]|\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]|\.(\w+)""")


def tree_of(leaves: Sequence[Leaf], text: Callable[[Leaf], str], is_short: bool) -> str:
    """Return the results of a program, or one of its arguments, as an expression of tuples and dicts.

    Args:
        leaves: The leaves of the results or of the argument. An object with attributes is written as a dict in
            results, and as a `SimpleNamespace` in an argument. `None` is written between the items of a sequence.
        text: Function that returns the expression of a leaf.
        is_short: If true, return words such as `a dict with 'w'`, and not an expression.

    Examples:
        >>> from mithril_nb.graph.spec import TensorSpec
        >>> spec = TensorSpec((2,))
        >>> leaves = [Leaf("result[0]['output']", "result", spec), Leaf("result[1]['w']", "result", spec)]
        >>> tree_of(leaves, lambda leaf: "x", False)
        "({'output': x}, {'w': x})"
        >>> tree_of([Leaf("state.step", "state", spec)], lambda leaf: "x", False)
        'SimpleNamespace(step=x)'
    """
    root: dict[Any, Any] = {}
    for leaf in leaves:
        place, steps = root, [("", ""), *_steps(leaf)]
        for step in steps[:-1]:
            place = place.setdefault(step, {})
        place[steps[-1]] = leaf
    return _written(root[("", "")], text, is_short) if root else "()"


def _steps(leaf: Leaf) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for index, key, attribute in _STEP.findall(leaf.name.removeprefix(leaf.argument)):
        if attribute and leaf.argument != "result":
            found.append(("attribute", attribute))
        else:
            found.append(("index", index) if index else ("key", key or repr(attribute)))
    return found


def _written(tree: Any, text: Callable[[Leaf], str], is_short: bool) -> str:
    if isinstance(tree, Leaf):
        return text(tree)
    parts = [(kind, key, _written(value, text, is_short)) for (kind, key), value in tree.items()]
    if is_short:
        kind = "a tuple" if parts[0][0] == "index" else "a dict"
        keys = [key for _, key, _ in parts]
        shown = ", ".join(keys if len(keys) < 4 else [*keys[:2], f"... ({len(keys)} in all)"])
        names = "" if kind == "a tuple" else f" with {shown}"
        inner = f" of {' and '.join(value for _, _, value in parts[:3])}" if kind == "a tuple" else names
        return f"{kind}{inner}"
    if parts[0][0] == "index":
        items = {int(key): value for _, key, value in parts}
        if min(items) >= 0 and max(items) < len(items) + _MOST_GAPS:  # else they are keys of a dict
            values = [items.get(index, "None") for index in range(max(items) + 1)]
            return f"({', '.join(values)}{',' if len(values) == 1 else ''})"
    if parts[0][0] == "attribute":
        return f"SimpleNamespace({', '.join(f'{name}={value}' for _, name, value in parts)})"
    items = [f"{key}: {value}" for _, key, value in parts]
    whole = "{" + ", ".join(items) + "}"
    return whole if len(whole) < 100 else "{\n    " + ",\n    ".join(items) + ",\n}"
