"""Live ranges of values, and the memory held at each position of a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from mithril_nb.stages.records import quick_to_make

ARGUMENTS, OUTPUTS, TEMPORARIES, CONSTANTS = "arguments", "outputs", "temporaries", "constants"
UNFILLED = "unfilled"
"""Memory that XLA allocates for the program and that no value fills at the peak: gaps and alignment."""
_ALIGNED, _POINTER = 64, 8
KINDS: tuple[str, ...] = (ARGUMENTS, OUTPUTS, TEMPORARIES, CONSTANTS, UNFILLED)


@quick_to_make
@dataclass(frozen=True)
class LiveRange:
    """The part of the schedule during which a value holds memory.

    Attributes:
        id: The value: an instruction with the index of its result (`"while.3{1}"`), an equation (`"12.b0.3"`), or the
            name of an argument.
        kind: One of `KINDS`.
        block: Path of the block that produces it, or that it belongs to; `""` if not attributed.
        size_bytes: Its size in bytes.
        first: The first position at which it holds memory, counted from 0.
        last: The last position. If another value reuses the memory, this is the position before that value's first.
    """

    id: str
    kind: str
    block: str
    size_bytes: int
    first: int
    last: int


def held(lives: Iterable[LiveRange], places: int) -> list[int]:
    """Return the bytes held at each position.

    Examples:
        >>> held([LiveRange("x", "arguments", "", 4, 0, 2), LiveRange("y", "temporaries", "", 8, 1, 1)], 3)
        [4, 12, 4]
    """
    changes = [0] * (places + 1)
    for life in lives:
        changes[life.first] += life.size_bytes
        changes[life.last + 1] -= life.size_bytes
    return list(accumulate(changes[:places]))


def set_aside_for(lives: Iterable[LiveRange], places: int) -> int:
    """Return the bytes that XLA would allocate before a program runs, for values with these live ranges.

    Arguments, outputs and constants have separate memory throughout, except that an output reuses the memory of a
    donated argument of the same size whose live range has ended. Temporaries, the largest first, use the memory of an
    output of their size or more until that output is written; the others share memory, aligned to 64 bytes. Several
    outputs are returned as a table of pointers.

    Examples:
        >>> made = LiveRange("y", "temporaries", "", 8, 1, 1)
        >>> set_aside_for([LiveRange("x", "arguments", "", 4, 0, 2), made, LiveRange("z", "outputs", "", 8, 2, 2)], 3)
        12
        >>> set_aside_for([LiveRange("x", "arguments", "", 4, 0, 2), made, LiveRange("z", "outputs", "", 4, 2, 2)], 3)
        72

        An argument that ends before the program does is donated:

        >>> set_aside_for([LiveRange("x", "arguments", "", 8, 0, 1), made, LiveRange("z", "outputs", "", 8, 2, 2)], 3)
        72
    """
    lives = list(lives)
    before = _taken_over(lives, places)
    whole = -sum(life.size_bytes for life in before.values())
    taken = _Taken(places)
    shared = 0
    others: list[LiveRange] = []
    # Of values of the same size, outputs come first.
    for life in sorted(lives, key=lambda one: (-one.size_bytes, one.kind != OUTPUTS)):
        if life.kind != TEMPORARIES:
            whole += life.size_bytes
            if life.kind == OUTPUTS:
                for one in (life, before.get(id(life))):
                    if one is not None:
                        taken.add(shared, one)
                shared += 1
            continue
        free = ~taken.during(life) & ((1 << shared) - 1)
        if free:
            taken.add(free.bit_length() - 1, life)  # the smallest
        else:
            others.append(replace(life, size_bytes=-(-life.size_bytes // _ALIGNED) * _ALIGNED))
    table = _POINTER * shared if shared > 1 else 0
    return whole + table + max(held(others, places), default=0)


class _Taken:
    """A segment tree over the schedule of the pieces of memory in use, with a bit for each piece."""

    def __init__(self, places: int):
        self._leaves = places
        self._throughout = [0] * (2 * places)
        """Pieces in use at all positions of a node."""
        self._somewhere = [0] * (2 * places)

    def _above(self, place: int) -> Iterator[int]:
        node = place + self._leaves
        while node:
            yield node
            node //= 2

    def _covering(self, life: LiveRange) -> Iterator[int]:
        """Yield the nodes that together cover a live range."""
        left, right = life.first + self._leaves, life.last + 1 + self._leaves
        while left < right:
            if left % 2:
                yield left
                left += 1
            if right % 2:
                right -= 1
                yield right
            left, right = left // 2, right // 2

    def add(self, piece: int, life: LiveRange) -> None:
        for node in self._covering(life):
            self._throughout[node] |= 1 << piece
            self._somewhere[node] |= 1 << piece
        for place in (life.first, life.last):
            for node in self._above(place):
                self._somewhere[node] |= 1 << piece

    def during(self, life: LiveRange) -> int:
        """Return the pieces in use at any position of a live range."""
        found = 0
        for node in self._covering(life):
            found |= self._somewhere[node]
        for place in (life.first, life.last):
            for node in self._above(place):
                found |= self._throughout[node]
        return found


def _taken_over(lives: Iterable[LiveRange], places: int) -> dict[int, LiveRange]:
    """Return the live range of the donated argument that an output overwrites, by `id` of the output's live range."""
    ended: dict[int, list[LiveRange]] = {}
    for life in sorted(lives, key=lambda one: -one.last):
        if life.kind == ARGUMENTS and life.last < places - 1:
            ended.setdefault(life.size_bytes, []).append(life)
    found: dict[int, LiveRange] = {}
    for life in sorted(lives, key=lambda one: one.first):
        free = ended.get(life.size_bytes)
        if life.kind == OUTPUTS and free and free[-1].last < life.first:
            found[id(life)] = free.pop()
    return found
