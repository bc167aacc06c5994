"""Meanings of the letters in formulas such as `2·B·M·N·K`, as text."""

from __future__ import annotations

_WORDS = {
    "B": "batch",
    "C": "channels in",
    "F": "filters",
    "G": "groups",
    "I": "iterations",
    "K": "summed over",
    "M": "rows of the left",
    "N": "columns of the right",
    "cases": "cases to choose from",
    "combiner": "FLOPs that combine two elements",
    "calls": "transcendentals from the registered rule",
    "flops": "FLOPs from the registered rule",
    "grid": "steps of the grid",
    "in": "elements of the input",
    "indices": "indices",
    "j": "operations for each element, in complex numbers",
    "k": "operations for each element",
    "kernel": "elements of the kernel",
    "left": "elements of the left",
    "m": "rows",
    "more": "axes after the first, of size above 1",
    "n": "elements of the result",
    "out": "elements of the result",
    "q": "columns of Q",
    "rounds": "floor(log2) of the lengths",
    "rows": "rows",
    "source": "elements of the source",
    "updates": "elements written",
    "valid": "pairs of result and kernel index that read an element, not padding",
    "window": "elements in the window",
}
_OTHERWISE = {
    ("fft", "n"): "complex elements",
    ("fft", "N"): "length, over all axes",
    ("sort", "n"): "elements of the input",
    ("top_k", "k"): "elements returned",
    ("approx_top_k", "k"): "elements returned",
    ("top_k", "n"): "elements of the input",
    ("approx_top_k", "n"): "elements of the input",
    ("pallas_call", "kernel"): "FLOPs of a step",
    **{(one, "calls"): "transcendentals that combine two elements" for one in ("reduce", "reduce_window", "scatter")},
    ("call_hi_primitive", "kernel"): "FLOPs of the equations it expands to",
    ("call_hi_primitive", "calls"): "transcendentals of the equations it expands to",
    ("pallas_call", "calls"): "transcendentals of a step",
    **{(one, "N"): "length of the axis" for one in ("sort", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")},
    **{
        (one, letter): words
        for one in (
            "cholesky lu qr geqrf geqp3 householder_product ormqr eigh eig svd schur hessenberg tridiagonal "
            "triangular_solve tridiagonal_solve cholesky_update symmetric_product".split()
        )
        for letter, words in {"B": "matrices", "n": "rows and columns, or columns", "k": "reflections"}.items()
    },
    **{(one, "m"): "right-hand sides" for one in ("triangular_solve", "tridiagonal_solve")},
    **{(one, "k"): "the smaller of rows and columns" for one in ("lu", "qr", "geqrf", "geqp3")},
    ("symmetric_product", "k"): "columns",
    ("polynomial", "k"): "coefficients",
    ("random_split", "n"): "new keys",
}


def meaning(letter: str, primitive: str) -> str:
    """Return the meaning of a letter in the formula of a primitive; `""` if no rule uses the letter.

    Examples:
        >>> meaning("K", "dot_general"), meaning("n", "add"), meaning("n", "sort")
        ('summed over', 'elements of the result', 'elements of the input')
    """
    return _OTHERWISE.get((primitive, letter)) or _WORDS.get(letter, "")
