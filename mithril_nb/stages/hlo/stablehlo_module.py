"""Which op of a StableHLO module came from which equations, told by MLIR's own objects: no text is made for it.

An op is known by the name of its result, as MLIR prints it, and one without a result by the line that it is printed
on. So lines are counted here as MLIR writes them. What this cannot be sure of is left to `read_stablehlo`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from jaxlib.mlir import ir

from mithril_nb.stages.hlo.stablehlo import callers_of, ids_of
from mithril_nb.stages.records import Traced
from mithril_nb.stages.trace.tags import Tags

_WHILE, _REDUCE = "stablehlo.while", "stablehlo.reduce"
_PLAIN_REGIONS = frozenset(
    f"stablehlo.{name}"
    for name in "all_reduce case if map reduce_scatter reduce_window scatter select_and_scatter sort".split()
)
"""Ops whose regions stand in the text as MLIR writes those of any op."""
_COMMUTATIVE = frozenset(f"stablehlo.{name}" for name in "add and maximum minimum multiply or xor".split())
_BARE_NAME = re.compile(r"[A-Za-z_][\w.$]*")
_QUOTED_NAME = re.compile(r"[\w.$\- ]+")


class _UnknownError(Exception):
    """A module has something whose text is not known from its objects."""


class _Function:
    """One function while it is read: what is known of its ops."""

    def __init__(self, name: str):
        self.name = name
        self.prefix = "" if name == "main" else name
        self.ops: list[tuple[str, Any, str]] = []  # id, MLIR's object, the names in its location
        self.ids: set[str] = set()
        self.calls: list[tuple[str, str]] = []  # the function that is called, and the location of the call


class _Open:
    """An op whose location tells no block, or one beside it: what `pass_on` needs to know to tell its equations."""

    __slots__ = ("asks_users_first", "equations", "is_known", "makers", "operands", "users")

    def __init__(self, equations: tuple[str, ...]):
        self.equations, self.is_known, self.asks_users_first, self.operands = equations, False, False, 0
        self.makers: Sequence[_Open] = ()
        self.users: Sequence[_Open] = ()

    def settle(self) -> bool:
        """Take the block of the operands or the users, if it is known by now, as `pass_on` does."""
        if self.is_known:
            return False
        for side in (self.users, self.makers) if self.asks_users_first else (self.makers, self.users):
            near = [one for one in side if one.is_known]
            if near:
                self.is_known = True
                if not self.equations and len(near) == 1 and self.operands <= 1:
                    self.equations = near[0].equations
                return True
        return False


def traced_in_module(module: Any, tags: Tags, blocks: Mapping[str, str]) -> Traced | None:
    """Return the ids of the ops of a module, in the order of its text, each with the ids of its equations.

    Args:
        module: A `jaxlib.mlir.ir.Module`.
        tags: How the equations are marked in it.
        blocks: The block of each equation by its id, in the order of the program.

    Returns:
        What `read_stablehlo` finds in the text of the module; `None` if that has to be asked.
    """
    try:
        return _Reader(module, tags, blocks).traced()
    except _UnknownError:
        return None


class _Reader:
    def __init__(self, module: Any, tags: Tags, blocks: Mapping[str, str]):
        self._tags, self._blocks = tags, blocks
        self._names = ir.AsmState(module.operation)
        self._functions: dict[str, _Function] = {}
        self._line = 1  # that of the module itself
        for one in module.body.operations:
            self._line += 1
            name = one.operation.name
            if name == "func.func":
                self._function(one)
            elif name != "sdy.mesh":
                raise _UnknownError

    # Reading the objects

    def _function(self, one: Any) -> None:
        name = one.name.value
        if not _BARE_NAME.fullmatch(name):
            if not _QUOTED_NAME.fullmatch(name):
                raise _UnknownError
            name = f'"{name}"'
        blocks = one.regions[0].blocks
        if len(blocks) != 1 or name in self._functions:
            raise _UnknownError
        function = self._functions[name] = _Function(name)
        self._body(blocks[0], function, True)
        self._line += 1

    def _body(self, body: Any, function: _Function, is_top: bool) -> None:
        names, ops, ids, prefix = self._names, function.ops, function.ids, function.prefix
        for one in body.operations:
            self._line += 1
            op = one.operation
            results = op.results
            if len(results):
                id = prefix + results[0].get_name(names).partition("#")[0]
            else:
                opcode = op.name.removeprefix("func.") if is_top else op.name
                id = f"{prefix}@{opcode}@{self._line}"
            if id in ids:
                id += f"@{self._line}"
            ids.add(id)
            place = self._place(op)
            ops.append((id, op, place))
            if len(op.regions):
                self._regions(op, function)
            elif op.name == "func.call":
                function.calls.append((op.attributes["callee"].value, place))

    def _place(self, op: Any) -> str:
        location = op.location
        if type(location) is ir.NameLoc:
            name = location.name_str
            if self._tags.marker in name:  # nearly always
                return name
        return _names_in(location, self._tags.marker)

    def _regions(self, op: Any, function: _Function) -> None:
        """Read what an op holds, and go to the line that it ends on."""
        name = op.name
        regions = [list(region.blocks) for region in op.regions]
        if any(len(blocks) != 1 for blocks in regions):
            raise _UnknownError
        if name == _REDUCE:
            if _is_short(op):
                return
        elif name != _WHILE and name not in _PLAIN_REGIONS:
            raise _UnknownError
        for (inner,) in regions:
            # `cond {` and `reducer(...) {` have a line of their own, as have the arguments of a block that takes some.
            opens = name == _REDUCE or (name == _WHILE and inner == regions[0][0])
            self._line += opens or (name in _PLAIN_REGIONS and len(inner.arguments) > 0)
            self._body(inner, function, False)
            self._line += 1

    # From places to equations

    def traced(self) -> Traced:
        """Return the ids of the ops with those of their equations."""
        calls = {function.name: function.calls for function in self._functions.values()}
        callers = callers_of(calls, self._tags, self._blocks)
        found: list[tuple[str, tuple[str, ...]]] = []
        for function in self._functions.values():
            own = callers[function.name]
            if function.name != "main":
                found.append((f"@{function.name}", self._in_order(own)))
            places: dict[str, tuple[tuple[str, ...], bool]] = {}
            left: list[tuple[int, Any]] = []
            for id, op, place in function.ops:
                known = places.get(place)
                if known is None:
                    ids = self._in_order(ids_of(place, own, self._tags, self._blocks))
                    known = places[place] = ids, any([self._blocks[id] for id in ids])
                if not known[1]:
                    left.append((len(found), op))
                found.append((id, known[0]))
            if left:
                self._infer(found, left, lambda op, known=places: known[self._place(op)][0])
        return found

    def _in_order(self, ids: Collection[str]) -> tuple[str, ...]:
        known = [id for id in ids if id in self._blocks]
        return tuple(known) if len(known) < 2 else tuple(sorted(known, key=self._order.__getitem__))

    @cached_property
    def _order(self) -> dict[str, int]:
        return {id: place for place, id in enumerate(self._blocks)}

    def _infer(
        self,
        found: list[tuple[str, tuple[str, ...]]],
        left: list[tuple[int, Any]],
        equations_of: Callable[[Any], tuple[str, ...]],
    ) -> None:
        """Give ops without a block the equations of their operands or users, where these tell them.

        Args:
            found: What is known so far, and is completed.
            left: The ops without a block, each with its place in `found`.
            equations_of: Gives the equations that the location of an op tells.
        """
        order = {op: _Open(found[at][1]) for at, op in left}
        others: dict[Any, _Open] = {}

        def near(op: Any) -> _Open:
            one = order.get(op) or others.get(op)
            if one is None:
                one = others[op] = _Open(equations_of(op))
                one.is_known = True
            return one

        for op, one in order.items():
            one.asks_users_first = op.name.endswith((".constant", ".iota"))
            makers = list(_makers(op))
            one.operands, one.makers = len(makers), [near(maker) for maker in makers if maker is not None]
            one.users = [near(user) for user in _users(op.results)]
        for _ in range(6):
            if not sum([one.settle() for one in (*order.values(), *reversed(order.values()))]):
                break
        for at, op in left:
            found[at] = found[at][0], order[op].equations


def _makers(op: Any) -> Iterator[Any]:
    """Yield the ops that make what an op takes, `None` where that comes into the function and around a loop."""
    for value in op.operands:
        owner, is_carried = value.owner, False
        while isinstance(owner, ir.Block) and owner.owner.name == _WHILE:  # inside it is what the loop is given
            value, is_carried = owner.owner.operands[ir.BlockArgument(value).arg_number], True
            owner = value.owner
        if not isinstance(owner, ir.Block):
            yield owner.operation
        elif is_carried:
            yield None


def _users(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the ops that take some values, those in loops that carry them too."""
    for value in values:
        for use in value.uses:
            user = use.owner.operation
            yield user
            if user.name == _WHILE:
                for region in user.regions:
                    yield from _users([region.blocks[0].arguments[use.operand_number]])


def _is_short(op: Any) -> bool:
    """Whether MLIR writes a `reduce` on one line: one op of two numbers is all it does."""
    body = op.regions[0].blocks[0]
    ops = [one.operation for one in body.operations]
    if len(ops) != 2 or ops[0].name not in _COMMUTATIVE:
        return False
    (inner, end), arguments = ops, list(body.arguments)
    reduced, number = (ir.ShapedType(one.type) for one in (op.operands[0], arguments[0]))
    return (
        list(inner.operands) == arguments
        and (number.rank, number.element_type) == (0, reduced.element_type)
        and list(end.operands) == list(inner.results)
    )


def _names_in(location: Any, marker: str) -> str:
    """Return the names in a location, as `read_stablehlo` does."""
    outer = ""
    while isinstance(location, ir.NameLoc):
        name, child = location.name_str, location.child_loc
        if marker in name or isinstance(child, ir.UnknownLoc):
            return name or outer
        outer, location = name or outer, child
    if isinstance(location, ir.FusedLoc):
        return ";".join(filter(None, [_names_in(part, marker) for part in location.locations])) or outer
    return outer
