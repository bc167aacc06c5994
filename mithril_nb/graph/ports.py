"""The connections between the blocks of a model, for the stages of its programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ports:
    """The connections between the blocks of a model.

    Attributes:
        sources: By path of a block, then by name of its input: the path of the block and the name of the output that
            the input reads; `("", "x")` for input `x` of the model.
        outputs: By path of a block that contains no others: the names of its outputs, in the order in which it
            computes them. Blocks that compute several outputs in an unknown order are missing.
    """

    sources: Mapping[str, Mapping[str, tuple[str, str]]]
    outputs: Mapping[str, tuple[str, ...]]
