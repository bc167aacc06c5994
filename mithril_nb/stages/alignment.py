"""Align two sequences, to compare texts line by line and programs instruction by instruction."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher

# `SequenceMatcher` takes quadratic time, so it is used only if the product of the two lengths is at most this.
_SMALL = 1 << 16


def align(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return pairs of positions at which two sequences have equal items.

    Examples:
        >>> align("abcd", "xbyd")
        [(1, 1), (3, 3)]
        >>> align("aab", "aaab")
        [(0, 0), (1, 1), (2, 3)]
    """
    # Both positions ascend from pair to pair.
    # Items that are unique in both sequences are aligned first, then the gaps between them. If all items are unique,
    # the result is a longest common subsequence. Otherwise it may be shorter.
    matches: list[tuple[int, int]] = []
    waiting = [(0, len(left), 0, len(right))]
    while waiting:
        start, end, low, high = waiting.pop()
        while start < end and low < high and left[start] == right[low]:
            matches.append((start, low))
            start, low = start + 1, low + 1
        while start < end and low < high and left[end - 1] == right[high - 1]:
            end, high = end - 1, high - 1
            matches.append((end, high))
        if start == end or low == high:
            continue
        counts, others = Counter(left[start:end]), Counter(right[low:high])
        positions = {left[at]: at for at in range(start, end) if counts[left[at]] == 1}
        alone = [to for to in range(low, high) if others[right[to]] == 1 and right[to] in positions]
        anchors = _in_order([(positions[right[to]], to) for to in alone])
        if not anchors:
            matches += _without_anchors(left, right, start, end, low, high)
            continue
        matches += anchors
        for at, to in (*anchors, (end, high)):
            waiting.append((start, at, low, to))
            start, low = at + 1, to + 1
    return sorted(matches)


def _without_anchors(
    left: Sequence[Hashable], right: Sequence[Hashable], start: int, end: int, low: int, high: int
) -> list[tuple[int, int]]:
    if (end - start) * (high - low) <= _SMALL:
        matcher = SequenceMatcher(None, left[start:end], right[low:high], autojunk=False)
        blocks = matcher.get_matching_blocks()
        return [(start + block.a + at, low + block.b + at) for block in blocks for at in range(block.size)]
    # The first occurrence on the left pairs with the first on the right, and so on.
    positions: dict[Hashable, list[int]] = {}
    for at in range(end - 1, start - 1, -1):
        positions.setdefault(left[at], []).append(at)
    return _in_order([(positions[right[to]].pop(), to) for to in range(low, high) if positions.get(right[to])])


def _in_order(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of `pairs` in which both items ascend, by patience sorting."""
    ends: list[int] = []  # per length: the lowest left position that ends a run of this length, and its pair in `last`
    last: list[int] = []
    before: list[int] = []
    for number, (position, _) in enumerate(pairs):
        length = bisect_left(ends, position)
        ends[length : length + 1] = [position]
        last[length : length + 1] = [number]
        before.append(last[length - 1] if length else -1)
    longest: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        longest.append(pairs[number])
        number = before[number]
    return longest[::-1]
