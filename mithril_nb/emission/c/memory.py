"""Which values of a function are stored in memory, and where. The others are computed where they are used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mithril_nb.emission.program import ELEMENTWISE, Function, Operand, Statement, Value, arrays

Need = Literal["once", "many", "memory"]
"""How a statement reads an operand: each item at most once, an item several times, or by a pointer to its memory."""
VIEWS = frozenset(
    "broadcast_in_dim transpose slice rev squeeze expand_dims reshape split dynamic_slice iota copy copy_p tile "
    "unstack".split()
)
"""Primitives whose results contain only items of the first operand, and `iota`, whose items are indices."""
_DEEPEST = 50
"""Number of values without memory in a chain, because Python's recursion computes the expression of an item."""
_EACH_ITEM_ONCE = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin concatenate stack pad "
    "cumsum cumprod cummax cummin cumlogsumexp reduce sort top_k dynamic_update_slice bitcast_convert_type".split()
)
_SCATTERS = ("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter-sub")


@dataclass(frozen=True)
class _Use:
    need: Need
    root: int
    """`id` of the statement whose loop reads the items; 0 if there are several loops, or if it is unknown."""
    is_same_index: bool = False
    """True if each item of the result needs only the item of the value with the same index."""
    depth: int = 0
    """Number of values without memory between this use and a value in memory."""


def is_reindexed(statement: Statement) -> bool:
    """Return whether a reshape only adds or removes axes of size 1. A view of it then needs no division of indices."""
    operand, result = statement.operand.shape, statement.shape
    return tuple(size for size in operand if size != 1) == tuple(size for size in result if size != 1)


class MemoryPlan:
    """Finds the values of a function, and of its bodies, that are stored in arrays or scalar variables."""

    def __init__(self, function: Function):
        self.stored: set[Value] = set()
        self._uses: dict[Operand, list[_Use]] = defaultdict(list)
        self._from_index: set[Value] = set()
        self._visit_function(function)

    def _visit_function(self, function: Function) -> None:
        # Items that depend only on their index, such as those of a causal mask, are cheap to recompute.
        for op in function.statements:
            is_free = op.primitive in ELEMENTWISE or op.primitive in VIEWS - {"dynamic_slice"}
            if is_free and self._from_index.issuperset(arrays(op.inputs)):
                self._from_index.update(op.outputs)
        # Backwards, because how an operand is read depends on the uses of the result.
        for value in function.outputs:
            self._uses[value].append(_Use("memory", 0))
        for statement in reversed(function.statements):
            for body in statement.bodies:
                if statement.primitive in ("scan", "while", "cond"):
                    for value in body.free:  # each step reads them
                        self._uses[value].append(_Use("many", 0))
                    self._visit_function(body)
            self._visit(statement)

    def _visit(self, op: Statement) -> None:
        uses = [use for value in op.outputs for use in self._uses[value]]
        roots = {use.root for use in uses}
        is_lazy = not any(use.need == "memory" for use in uses)
        if op.primitive in ELEMENTWISE:
            # Loops that fuse would compute an item again for each loop that reads it.
            is_single = len(uses) == 1 or all(use.is_same_index for use in uses)
            in_one_loop = all(use.need == "once" for use in uses) and len(roots) == 1 and 0 not in roots and is_single
            is_lazy = is_lazy and (in_one_loop or (op.output in self._from_index and op.output.size > 1))
        elif op.primitive not in VIEWS:
            is_lazy = False
        # A long chain, such as a loop that Python unrolled, needs an array from time to time.
        depth = max([use.depth for use in uses], default=0) + 1
        is_lazy = is_lazy and depth < _DEEPEST
        if not is_lazy:
            self.stored.update(op.outputs)
            depth = 0
        root = roots.pop() if is_lazy and len(roots) == 1 else (0 if is_lazy else id(op))
        for index, operand in enumerate(op.inputs):
            # What an item costs its operand: an operand that is broadcast is read once for each item of the result.
            need: Need = "once"
            same = False
            is_larger = operand.size < op.output.size if op.outputs else False
            if op.primitive in ELEMENTWISE:
                need = "many" if is_larger else "once"
                same = need == "once" and operand.shape == op.shape
                same = same and (not is_lazy or all(use.is_same_index for use in uses))
            elif op.primitive == "reshape" and not is_reindexed(op):  # another pointer to the same memory
                need = "memory"
            elif op.primitive in VIEWS:
                repeated = is_lazy and (len(uses) != 1 or any(use.need != "once" for use in uses))
                need = "many" if is_larger or repeated or index else "once"
            else:
                need = _need(op, index)
            self._uses[operand].append(_Use(need, root, same, depth))


def _need(op: Statement, index: int) -> Need:
    if op.primitive == "call":  # by a pointer
        return "memory"
    if op.primitive in _SCATTERS:  # each index is read for all axes of a slice
        return "many" if index == 1 else "once"
    if op.primitive == "scan":
        return "once" if index < op["num_carry"] else "many"
    if op.primitive == "while" or op.primitive in _EACH_ITEM_ONCE:
        return "once"
    return "many"


@dataclass(eq=False)
class ArenaBuffer:
    """Bytes in the arena for one array, or for all temporary arrays of a called function."""

    size: int
    first: int
    """Number of the first statement that uses the memory."""
    last: int
    offset: int = 0
    """Number of bytes from the start of the arena, a multiple of 64."""


def place_buffers(buffers: Iterable[ArenaBuffer]) -> int:
    """Set the offset of each buffer, and return the size of the arena in bytes.

    Buffers overlap only if no statement uses both of them. Large buffers are placed first.

    Examples:
        >>> first, second, third = ArenaBuffer(100, 0, 1), ArenaBuffer(200, 1, 2), ArenaBuffer(60, 2, 3)
        >>> place_buffers([first, second, third]), first.offset, second.offset, third.offset
        (360, 256, 0, 256)
    """
    placed: list[ArenaBuffer] = []
    total = 0
    for buffer in sorted(buffers, key=lambda buffer: (-buffer.size, buffer.first)):
        offset = 0
        alive = [other for other in placed if other.first <= buffer.last and buffer.first <= other.last]
        for other in sorted(alive, key=lambda other: other.offset):
            if offset + buffer.size <= other.offset:
                break
            offset = max(offset, -(-(other.offset + other.size) // 64) * 64)  # for vectors of 512 bits
        buffer.offset = offset
        placed.append(buffer)
        total = max(total, offset + buffer.size, 1)
    return -(-total // 8) * 8
