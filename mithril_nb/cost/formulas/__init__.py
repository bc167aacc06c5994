"""Cost rules of JAX primitives: formulas whose text is both displayed and evaluated."""

from mithril_nb.cost.formulas import (  # noqa: F401  Importing them registers their rules.
    complex_numbers,
    contractions,
    elementwise,
    linear_algebra,
    randomness,
    reductions,
    structure,
)
