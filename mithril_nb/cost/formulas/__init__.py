"""What each primitive of JAX costs: a formula in symbols, and from the same text the numbers."""

from mithril_nb.cost.formulas import complex_numbers, contractions, randomness, reductions  # noqa: F401  They register their rules.
