"""Divide a program into functions for the forward pass and the backward pass of each block."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from mithril_nb.emission.program import CALL, Function, Number, Operand, Statement, Value
from mithril_nb.stages.records import Role

_Key = tuple[str, Role | None]


class Divided:
    """A program divided into functions: one for each block and part of a training step, and one for the whole program.

    A block with a single statement gets no function: the statement stays in the calling function. If statements of
    other blocks must run between the statements of a block, the block gets several functions. Equal blocks share one
    function, with the statements of the first of them. Functions read `constants` without receiving them as arguments.
    The values in `params` are their last arguments.

    Attributes:
        functions: The functions, each after the functions that it calls. The last one is the whole program.
        blocks: The paths of the blocks that run each function except the last.
        equations: The ids of the equations that a statement of a shared function computes in all blocks.
        aliases: For a value of a later block with the same function, the value of the first block.
    """

    def __init__(self, main: Function, constants: Collection[Value], params: Collection[Value]):
        self._constants, self._params = constants, params
        self._gradients = {value for value in main.inputs if value.name.startswith("d_")}
        for statement in main.walk():
            if statement.role == "backward":
                self._gradients.update(statement.outputs)
        self._shared: dict[Any, tuple[Function, list[Value]]] = {}
        self.functions: list[Function] = []
        self.blocks: dict[Function, list[str]] = defaultdict(list)
        self.equations: dict[Statement, tuple[str, ...]] = {}
        self.aliases: dict[Value, Value] = {}
        self.functions.append(self._inside(main, 0))

    def _inside(self, function: Function, depth: int) -> Function:
        """Return a function in which calls replace the statements of each inner block.

        `depth` is the number of names in the path of the function's block: 0 for the whole program, 1 for `"mlp"`.
        """
        ordered, uses = _ordered(function.statements, depth), function.uses()
        statements: list[Statement] = []
        for (block, _), run in groupby(ordered, lambda statement: _key(statement, depth)):
            part = tuple(run)
            if block and len(part) > 1:
                own = {*part}
                outputs = [value for statement in part for value in statement.outputs if {*uses[value]} - own]
                statements.append(self._call(block, part, tuple(outputs), depth))
            else:
                statements += [
                    replace(statement, bodies=tuple([self._inside(body, depth) for body in statement.bodies]))
                    if statement.bodies
                    else statement
                    for statement in part
                ]
        return replace(function, statements=tuple(statements))

    def _call(self, block: str, part: tuple[Statement, ...], outputs: tuple[Value, ...], depth: int) -> Statement:
        free = [value for value in Function("", (), outputs, part).free if value not in self._constants]
        # A stable sort: gradients first, parameters last, and each group in the order of first use.
        inputs = tuple(sorted(free, key=lambda value: (value in self._params) - (value in self._gradients)))
        function = self._inside(Function("", inputs, outputs, part, block, part[0].role), depth + 1)
        equations = dict.fromkeys(id for statement in function.statements for id in _equations(statement))
        # A call has the line of its first statement that has one.
        source = next((statement.source for statement in part if statement.source), "")
        shared = self._share(function)
        return Statement(CALL, inputs, outputs, {}, tuple(equations), block, part[0].role, source, function=shared)

    def _share(self, function: Function) -> Function:
        # Layers of a network are one function, which a reader has to understand only once.
        key, values = _structure(function, self._params)
        first, first_values = self._shared.setdefault(key, (function, values))
        self.blocks[first].append(function.block)
        if first is function:
            self.functions.append(function)
        else:
            self.aliases.update(zip(values, first_values, strict=True))
            equations = self.equations
            for statement, other in zip(first.walk(), function.walk(), strict=True):
                before = equations.get(statement, statement.equations)
                equations[statement] = tuple(dict.fromkeys((*before, *other.equations)))
        return first


def _equations(statement: Statement) -> Iterator[str]:
    yield from statement.equations
    for body in statement.bodies:
        for inner in body.statements:
            yield from _equations(inner)


def _key(statement: Statement, depth: int) -> _Key:
    names = statement.block.split("/")
    if len(names) <= depth or not statement.block:
        return "", statement.role
    return "/".join(names[: depth + 1]), statement.role


def _ordered(statements: Sequence[Statement], depth: int) -> list[Statement]:
    # JAX interleaves blocks, for example in the backward pass. A topological order that stays in a block as long as it
    # can gives each block one function in most programs. The heaps keep the order of JAX where it does not matter.
    producers = {value: index for index, statement in enumerate(statements) for value in statement.outputs}
    before = [{producers[value] for value in statement.reads if value in producers} for statement in statements]
    users: dict[int, list[int]] = defaultdict(list)
    for index, earlier in enumerate(before):
        for producer in earlier:
            users[producer].append(index)
    waits = [*map(len, before)]
    keys = [_key(statement, depth) for statement in statements]
    ready: dict[_Key, list[int]] = defaultdict(list)
    for index, count in enumerate(waits):
        if not count:
            heapq.heappush(ready[keys[index]], index)
    ordered: list[Statement] = []
    current: _Key | None = None
    while len(ordered) < len(statements):
        if current is None or not current[0] or not ready[current]:
            current = min((key for key, waiting in ready.items() if waiting), key=lambda key: ready[key][0])
        index = heapq.heappop(ready[current])
        ordered.append(statements[index])
        for user in users[index]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready[keys[user]], user)
    return ordered


def _structure(function: Function, params: Collection[Value]) -> tuple[Any, list[Value]]:
    # Equal functions have equal keys: each value counts as its position.
    numbers: dict[Any, int] = {}

    def define(values: tuple[Value, ...]) -> tuple[Any, ...]:
        for value in values:
            numbers.setdefault(value, len(numbers))
        return tuple([(value.shape, value.dtype, value in params) for value in values])

    def use(operands: tuple[Operand, ...]) -> tuple[Any, ...]:
        return tuple([
            (repr(operand.value), operand.dtype) if isinstance(operand, Number)
            else numbers.get(operand, operand)  # a constant is the same value everywhere
            for operand in operands
        ])  # fmt: skip

    def of_body(function: Function) -> Any:
        inputs = define(function.inputs)
        return inputs, tuple([*map(of_statement, function.statements)]), use(function.outputs)

    def of_statement(statement: Statement) -> Any:
        operands = use(statement.inputs)
        bodies = tuple([*map(of_body, statement.bodies)])
        # Functions are compared after those that they call, so equal calls have the same function object.
        params = tuple(sorted((key, _plain(value)) for key, value in statement.params.items()))
        return statement.primitive, operands, params, bodies, id(statement.function), define(statement.outputs)

    return (function.role, of_body(function)), list(numbers)


def _plain(value: Any) -> str:
    # The repr of a large array leaves items out.
    return f"{value.dtype}{value.tolist()}" if isinstance(value, np.ndarray) else repr(value)
