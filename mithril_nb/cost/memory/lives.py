"""From when to when something holds memory, and how much memory is held at each place of a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from mithril_nb.stages.frozen import quick_to_make

ARGUMENTS, OUTPUTS, TEMPORARIES, CONSTANTS = "arguments", "outputs", "temporaries", "constants"
UNFILLED = "unfilled"
"""Memory that XLA sets aside for the program and that no value fills when most is filled: gaps and alignment."""
KINDS: tuple[str, ...] = (ARGUMENTS, OUTPUTS, TEMPORARIES, CONSTANTS, UNFILLED)


@quick_to_make
@dataclass(frozen=True)
class Life:
    """What holds memory, from one place of the schedule to another.

    Attributes:
        id: The value: an instruction and which part of its result (`"while.3{1}"`), an equation (`"12.b0.3"`), or the
            name of an argument.
        kind: One of `KINDS`.
        block: Path of the block that makes it, or that it belongs to; `""` if no block does, or nobody knows.
        size_bytes: Its size in bytes.
        first: The first place at which it holds memory, counted from 0.
        last: The last place. Where another value takes over the memory, it is the place before that one's first.
    """

    id: str
    kind: str
    block: str
    size_bytes: int
    first: int
    last: int


def held(lives: Iterable[Life], places: int) -> list[int]:
    """Return the bytes that are held at each place.

    Examples:
        >>> held([Life("x", "arguments", "", 4, 0, 2), Life("y", "temporaries", "", 8, 1, 1)], 3)
        [4, 12, 4]
    """
    changes = [0] * (places + 1)
    for life in lives:
        changes[life.first] += life.size_bytes
        changes[life.last + 1] -= life.size_bytes
    return list(accumulate(changes[:places]))
