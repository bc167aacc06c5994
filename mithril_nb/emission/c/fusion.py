"""Decide which values are stored in memory. The others are computed item by item, in the loops that use them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from mithril_nb.emission.program import ELEMENTWISE, Function, Statement, Value

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
    """A statement's use of a value.

    Attributes:
        need: How the statement reads the items of the value; see `Need`.
        root: `id` of the statement whose loop reads the items; 0 if there are several loops, or if it is unknown.
        is_same_place: True if each item of the result needs only the item of the value with the same index.
        depth: Number of values without memory between this use and a value in memory.
    """

    need: Need
    root: int
    is_same_place: bool = False
    depth: int = 0


def is_reindexed(statement: Statement) -> bool:
    """Return whether a reshape only adds or removes axes of size 1. A view of it then needs no division of indices."""
    given, wanted = statement.inputs[0].shape, statement.outputs[0].shape
    return tuple(size for size in given if size != 1) == tuple(size for size in wanted if size != 1)


def values_in_memory(function: Function) -> set[Value]:
    """Return the values of a function and of its bodies that must be stored, in arrays or scalar variables."""
    plan = _Plan()
    plan.visit(function)
    return plan.stored


class _Plan:
    def __init__(self) -> None:
        self.stored: set[Value] = set()
        self._uses: dict[Value, list[_Use]] = defaultdict(list)
        self._from_index: set[Value] = set()

    def visit(self, function: Function) -> None:
        self._find_index_arithmetic(function)
        for one in function.outputs:
            if isinstance(one, Value):
                self._uses[one].append(_Use("memory", 0))
        for statement in reversed(function.statements):
            for body in statement.bodies:
                if statement.primitive in ("scan", "while", "cond"):
                    for one in body.free:
                        self._uses[one].append(_Use("many", 0))
                    self.visit(body)
            self._visit(statement)

    def _find_index_arithmetic(self, function: Function) -> None:
        """Find values whose items depend only on their index, such as a causal mask. They are cheap to recompute."""
        for one in function.statements:
            is_free = one.primitive in ELEMENTWISE or one.primitive in VIEWS - {"dynamic_slice"}
            if is_free and all(not isinstance(each, Value) or each in self._from_index for each in one.inputs):
                self._from_index.update(one.outputs)

    def _visit(self, one: Statement) -> None:
        uses = [use for value in one.outputs for use in self._uses[value]]
        roots = {use.root for use in uses}
        is_lazy = not any(use.need == "memory" for use in uses)
        if one.primitive in ELEMENTWISE:
            is_single = len(uses) == 1 or all(use.is_same_place for use in uses)
            in_one_loop = all(use.need == "once" for use in uses) and len(roots) == 1 and 0 not in roots and is_single
            is_lazy = is_lazy and (in_one_loop or (one.outputs[0] in self._from_index and one.outputs[0].size > 1))
        elif one.primitive not in VIEWS:
            is_lazy = False
        depth = max([use.depth for use in uses], default=0) + 1
        is_lazy = is_lazy and depth < _DEEPEST
        if not is_lazy:
            self.stored.update(one.outputs)
            depth = 0
        root = roots.pop() if is_lazy and len(roots) == 1 else (0 if is_lazy else id(one))
        for place, operand in enumerate(one.inputs):
            if not isinstance(operand, Value):
                continue
            need: Need = "once"
            same = False
            is_larger = operand.size < one.outputs[0].size if one.outputs else False
            if one.primitive in ELEMENTWISE:
                need = "many" if is_larger else "once"
                same = need == "once" and operand.shape == one.outputs[0].shape
                same = same and (not is_lazy or all(use.is_same_place for use in uses))
            elif one.primitive == "reshape" and not is_reindexed(one):
                need = "memory"
            elif one.primitive in VIEWS:
                repeated = is_lazy and (len(uses) != 1 or any(use.need != "once" for use in uses))
                need = "many" if is_larger or repeated or place else "once"
            else:
                need = _need(one, place)
            self._uses[operand].append(_Use(need, root, same, depth))


def _need(one: Statement, place: int) -> Need:
    if one.primitive == "call":
        return "memory"
    if one.primitive in _SCATTERS:
        return "many" if place == 1 else "once"
    if one.primitive == "scan":
        return "once" if place < one.params["num_carry"] else "many"
    if one.primitive == "while" or one.primitive in _EACH_ITEM_ONCE:
        return "once"
    return "many"
