"""What the letters of formulas mean, in words: for who reads `2·B·M·N·K` for the first time."""

from __future__ import annotations

_WORDS = {
    "B": "batch",
    "C": "channels in",
    "F": "filters",
    "G": "groups",
    "K": "summed over",
    "M": "rows of the left",
    "N": "columns of the right",
    "cases": "cases to choose from",
    "combiner": "operations that combine two items",
    "in": "items given",
    "indices": "indices",
    "k": "operations for each item",
    "kernel": "items of the kernel",
    "left": "items of the left",
    "more": "axes more than one",
    "n": "items of the result",
    "out": "items of the result",
    "rounds": "floor(log2) of the lengths",
    "rows": "rows",
    "source": "items of the source",
    "updates": "items written",
    "valid": "pairs of places, of result and kernel, that meet an item and no padding",
    "window": "items under the window",
}
_OTHERWISE = {
    ("fft", "n"): "items given",
    ("sort", "n"): "items given",
    ("polynomial", "k"): "coefficients",
    ("random_split", "n"): "new keys",
}


def meaning(letter: str, primitive: str) -> str:
    """Return what a letter means in the formula of a primitive; `""` of one that no rule uses.

    Examples:
        >>> meaning("K", "dot_general"), meaning("n", "add"), meaning("n", "sort")
        ('summed over', 'items of the result', 'items given')
    """
    return _OTHERWISE.get((primitive, letter)) or _WORDS.get(letter, "")
