"""Place the arrays of a function in one arena, so that arrays that are alive at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_ALIGNMENT = 64


@dataclass(eq=False)
class Buffer:
    """Memory in the arena for one array, or for all temporary arrays of a called function.

    Attributes:
        size: Number of bytes.
        first: Number of the first statement that uses the memory.
        last: Number of the last statement that uses the memory.
        offset: Number of bytes from the start of the arena, a multiple of 64.
    """

    size: int
    first: int
    last: int
    offset: int = 0


def place_buffers(buffers: Iterable[Buffer]) -> int:
    """Set the offset of each buffer, and return the size of the arena in bytes.

    Buffers overlap only if no statement uses both of them. Large buffers are placed first.

    Examples:
        >>> first, second, third = Buffer(100, 0, 1), Buffer(200, 1, 2), Buffer(60, 2, 3)
        >>> place_buffers([first, second, third]), first.offset, second.offset, third.offset
        (360, 256, 0, 256)
    """
    placed: list[Buffer] = []
    total = 0
    for one in sorted(buffers, key=lambda one: (-one.size, one.first)):
        offset = 0
        alive = [other for other in placed if other.first <= one.last and one.first <= other.last]
        for other in sorted(alive, key=lambda other: other.offset):
            if offset + one.size <= other.offset:
                break
            offset = max(offset, _aligned(other.offset + other.size))
        one.offset = offset
        placed.append(one)
        total = max(total, offset + one.size, 1)
    return -(-total // 8) * 8


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
