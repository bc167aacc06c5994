"""Blocks that change the shape or pick items, whatever these are: a family in three modules."""

from __future__ import annotations

from mithril_nb.models.indexing import Gather, Indexer, OneHot, Take, TransposedDiagonal, Tril, Triu
from mithril_nb.models.joining import CartesianDifference, Concat, Flip, Pad, RepeatItems, Roll, Split, Stack, Tile
from mithril_nb.models.reshaping import (
    AtLeast1D,
    BroadcastTo,
    ExpandDims,
    Flatten,
    Identity,
    PermuteTensor,
    Reshape,
    Squeeze,
    SwapAxes,
    Transpose,
)

__all__ = [
    "AtLeast1D", "BroadcastTo", "CartesianDifference", "Concat", "ExpandDims", "Flatten", "Flip", "Gather", "Identity",
    "Indexer", "OneHot", "Pad", "PermuteTensor", "RepeatItems", "Reshape", "Roll", "Split", "Squeeze", "Stack",
    "SwapAxes", "Take", "Tile", "Transpose", "TransposedDiagonal", "Tril", "Triu",
]  # fmt: skip
