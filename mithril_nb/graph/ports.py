"""The connections between the blocks of a model, for the stages of its programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ports:
    """The connections between the blocks of a model.

    Attributes:
        sources: A dict from the path of each block to a dict from its inputs to their sources. A source is the path of
            a block and the name of its output, or `("", "x")` for the input x of the model.
        outputs: A dict from the path of each block without inner blocks to the names of its outputs, in the order in
            which it computes them. Blocks that compute several outputs in an unknown order are missing.
    """

    sources: Mapping[str, Mapping[str, tuple[str, str]]]
    outputs: Mapping[str, tuple[str, ...]]
