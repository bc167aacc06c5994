"""How the blocks of a model are connected, for the stages of its programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ports:
    """How the blocks of a model are connected.

    Attributes:
        sources: For each block, by path, the block and output that each of its inputs reads; `("", "x")` for input `x`.
        outputs: For each block without inner ones, by path, its outputs, in the order in which it computes them.
    """

    sources: Mapping[str, Mapping[str, tuple[str, str]]]
    outputs: Mapping[str, tuple[str, ...]]
