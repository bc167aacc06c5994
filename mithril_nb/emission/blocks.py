"""Divide a program into functions for the forward pass and the backward pass of each block."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mithril_nb.emission.program import CALL, Function, Number, Operand, Statement, Value
from mithril_nb.stages.records import Role

_Key = tuple[str, Role | None]


@dataclass
class Divided:
    """A program divided into functions.

    Equal blocks share one function, which contains the statements of the first of these blocks.

    Attributes:
        functions: The functions, each after the functions that it calls. The last one is the whole program.
        blocks: A dict from each function except the last to the paths of the blocks that run it.
        equations: A dict from each statement of a shared function to the ids of the equations that it computes in all
            blocks.
        aliases: A dict from each value of a later block with the same function to the value of the first block.
    """

    functions: list[Function] = field(default_factory=list[Function])
    blocks: dict[Function, list[str]] = field(default_factory=dict[Function, list[str]])
    equations: dict[Statement, tuple[str, ...]] = field(default_factory=dict[Statement, tuple[str, ...]])
    aliases: dict[Value, Value] = field(default_factory=dict[Value, Value])


def divide(main: Function, constants: Collection[Value], params: Collection[Value]) -> Divided:
    """Divide a program into functions: one for each block and part of a training step, and one for the whole program.

    A block with a single statement gets no function: the statement stays in the calling function. If statements of
    other blocks must run between the statements of a block, the block gets several functions. Equal blocks share a
    function.

    Args:
        main: The program as one function.
        constants: The constants. Functions read them without receiving them as arguments.
        params: The inputs that are parameters. They are the last arguments of each function.
    """
    gradients = {value for one in main.walk() if one.role == "backward" for value in one.outputs}
    gradients.update(value for value in main.inputs if value.name.startswith("d_"))
    divider = _Divider(constants, params, gradients)
    divider.done.functions.append(divider.inside(main, 0))
    return divider.done


class _Divider:
    def __init__(self, constants: Collection[Value], params: Collection[Value], gradients: Collection[Value]):
        self._constants, self._params, self._gradients = constants, params, gradients
        self._shared: dict[Any, Function] = {}
        self.done = Divided()

    def inside(self, function: Function, depth: int) -> Function:
        """Return a function in which calls replace the statements of each inner block.

        Args:
            function: The function.
            depth: Number of names in the path of the function's block: 0 for the whole program, 1 for `"mlp"`.
        """
        statements = _ordered(function.statements, depth)
        needed = _users(statements, function.outputs)
        found: list[Statement] = []
        for block, part in _parts(statements, depth):
            if block and len(part) > 1:
                found.append(self._call(block, part, needed, depth))
            else:
                found += [self._bodies(one, depth) for one in part]
        return replace(function, statements=tuple(found))

    def _bodies(self, statement: Statement, depth: int) -> Statement:
        if not statement.bodies:
            return statement
        return replace(statement, bodies=tuple([self.inside(body, depth) for body in statement.bodies]))

    def _call(self, block: str, part: list[Statement], needed: dict[Value, set[int]], depth: int) -> Statement:
        own = {id(one) for one in part}
        made = [value for one in part for value in one.outputs]
        outputs = tuple([value for value in made if needed.get(value, set[int]()) - own])
        plain = Function("", (), outputs, tuple(part))
        free = [one for one in plain.free if one not in self._constants]
        # A stable sort: gradients first, parameters last, and each group in the order of first use.
        inputs = tuple(sorted(free, key=lambda one: (one in self._params) - (one in self._gradients)))
        function = Function("", inputs, outputs, tuple(part), block, part[0].role)
        function = self.inside(function, depth + 1)
        first = self._share(function)
        equations = dict.fromkeys(id for one in function.statements for id in _equations(one))
        source = next((one.source for one in part if one.source), "")
        return Statement(CALL, inputs, outputs, {}, tuple(equations), block, part[0].role, source, function=first)

    def _share(self, function: Function) -> Function:
        """Return the equal function of an earlier block, or else this function, which is then known to later blocks."""
        key, values = _structure(function, self._params)
        known = self._shared.setdefault(key, function)
        self.done.blocks.setdefault(known, []).append(function.block)
        if known is function:
            self.done.functions.append(function)
        else:
            self.done.aliases.update(zip(values, _structure(known, self._params)[1], strict=True))
            self._add_equations(known, function)
        return known

    def _add_equations(self, known: Function, other: Function) -> None:
        for one, two in zip(known.walk(), other.walk(), strict=True):
            before = self.done.equations.get(one, one.equations)
            self.done.equations[one] = tuple(dict.fromkeys((*before, *two.equations)))


def _equations(statement: Statement) -> Iterator[str]:
    yield from statement.equations
    for body in statement.bodies:
        for one in body.statements:
            yield from _equations(one)


def _key(statement: Statement, depth: int) -> _Key:
    names = statement.block.split("/")
    if len(names) <= depth or not statement.block:
        return "", statement.role
    return "/".join(names[: depth + 1]), statement.role


def _ordered(statements: tuple[Statement, ...], depth: int) -> list[Statement]:
    """Return the statements in an order that keeps the statements of each block together, if the operands allow it."""
    producers = {value: place for place, one in enumerate(statements) for value in one.outputs}
    waits = [len({producers[value] for value in one.reads if value in producers}) for one in statements]
    users: dict[int, list[int]] = defaultdict(list)
    for place, one in enumerate(statements):
        for before in {producers[value] for value in one.reads if value in producers}:
            users[before].append(place)
    keys = [_key(one, depth) for one in statements]
    ready: dict[_Key, list[int]] = defaultdict(list)
    for place, count in enumerate(waits):
        if not count:
            heapq.heappush(ready[keys[place]], place)
    found: list[Statement] = []
    current: _Key | None = None
    while len(found) < len(statements):
        if current is None or not current[0] or not ready[current]:
            current = min((key for key, places in ready.items() if places), key=lambda key: ready[key][0])
        place = heapq.heappop(ready[current])
        found.append(statements[place])
        for user in users[place]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready[keys[user]], user)
    return found


def _parts(statements: list[Statement], depth: int) -> Iterator[tuple[str, list[Statement]]]:
    """Yield each run of statements of the same block and role, after the path of the block, or `""` outside blocks."""
    run: list[Statement] = []
    for statement in statements:
        if run and _key(run[-1], depth) != _key(statement, depth):
            yield _key(run[-1], depth)[0], run
            run = []
        run.append(statement)
    if run:
        yield _key(run[-1], depth)[0], run


def _users(statements: list[Statement], outputs: tuple[Operand, ...]) -> dict[Value, set[int]]:
    """Return the `id`s of the statements that read each value. The id 0 means that the function returns the value."""
    users: dict[Value, set[int]] = defaultdict(set)
    for one in statements:
        for value in one.reads:
            users[value].add(id(one))
    for value in outputs:
        if isinstance(value, Value):
            users[value].add(0)
    return users


def _structure(function: Function, params: Collection[Value]) -> tuple[Any, list[Value]]:
    """Return a key that is the same for equal functions, and the values of this function in their order in the key."""
    numbers: dict[Value, int] = {}

    def define(values: tuple[Value, ...]) -> tuple[Any, ...]:
        for value in values:
            numbers.setdefault(value, len(numbers))
        return tuple([(value.shape, value.dtype, value in params) for value in values])

    def use(one: Operand) -> Any:
        if isinstance(one, Number):
            return (repr(one.value), one.dtype)
        return numbers.get(one, one)  # a constant is the same value everywhere

    def body(one: Function) -> Any:
        given = define(one.inputs)
        inner = tuple([statement(each) for each in one.statements])
        return given, inner, tuple(map(use, one.outputs))

    def statement(one: Statement) -> Any:
        operands = tuple(map(use, one.inputs))
        bodies = tuple(map(body, one.bodies))
        params = tuple(sorted((key, _plain(value)) for key, value in one.params.items()))
        return one.primitive, operands, params, bodies, id(one.function), define(one.outputs)

    role = function.role
    return (role, body(function)), list(numbers)


def _plain(value: Any) -> str:
    return f"{value.dtype}{value.tolist()}" if isinstance(value, np.ndarray) else repr(value)
