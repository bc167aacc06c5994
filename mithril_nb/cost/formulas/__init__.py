"""What each primitive of JAX costs: a formula in symbols, and from the same text the numbers."""

from mithril_nb.cost.formulas import (  # noqa: F401  They register their rules.
    complex_numbers,
    contractions,
    elementwise,
    linear_algebra,
    randomness,
    reductions,
    special_functions,
    structure,
)
