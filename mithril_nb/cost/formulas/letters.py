"""What the letters of formulas mean, in words: for who reads `2·B·M·N·K` for the first time."""

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
    "combiner": "FLOPs that combine two items",
    "calls": "transcendentals that its rule returns",
    "flops": "FLOPs that its rule returns",
    "grid": "steps of the grid",
    "in": "items given",
    "indices": "indices",
    "j": "operations for each item, in complex numbers",
    "k": "operations for each item",
    "kernel": "items of the kernel",
    "left": "items of the left",
    "m": "rows",
    "more": "axes more than one",
    "n": "items of the result",
    "out": "items of the result",
    "q": "columns of Q",
    "rounds": "floor(log2) of the lengths",
    "rows": "rows",
    "source": "items of the source",
    "updates": "items written",
    "valid": "pairs of places, of result and kernel, that meet an item and no padding",
    "window": "items under the window",
}
_OTHERWISE = {
    ("fft", "n"): "complex items",
    ("fft", "N"): "length, over all axes",
    ("sort", "n"): "items given",
    ("top_k", "k"): "items chosen",
    ("approx_top_k", "k"): "items chosen",
    ("top_k", "n"): "items given",
    ("approx_top_k", "n"): "items given",
    ("pallas_call", "kernel"): "FLOPs of a step",
    **{(one, "calls"): "transcendentals that combine two items" for one in ("reduce", "reduce_window", "scatter")},
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
    """Return what a letter means in the formula of a primitive; `""` of one that no rule uses.

    Examples:
        >>> meaning("K", "dot_general"), meaning("n", "add"), meaning("n", "sort")
        ('summed over', 'items of the result', 'items given')
    """
    return _OTHERWISE.get((primitive, letter)) or _WORDS.get(letter, "")
