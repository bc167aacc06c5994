"""The cost of a program as a function of its depth, the number of repeated blocks, learned and verified.

A deeper program has other equations, but the same blocks: `block_1` costs as much as `block_2`, and the cost outside of
blocks grows by the same rows with each block. Two depths determine these rows, and a third must agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any

from mithril_nb.cost import Cost, CostRow, Source


class Repeated:
    """The costs of a program at any depth, from its costs at two depths.

    Args:
        shallow: A depth of 3 or more, and the cost there.
        deeper: A greater depth, and the cost there.
    """

    def __init__(self, shallow: tuple[int, Cost], deeper: tuple[int, Cost]):
        (self._depth, self._cost), (self._next, self._deeper) = shallow, deeper

    def matches(self, depth: int, cost: Cost) -> bool:
        """Return whether the prediction for a depth equals a cost."""
        found = self.at(depth)
        return found is not None and whole(found) == whole(cost)

    def at(self, depth: int) -> Cost | None:
        """Return the cost at a depth, with rows by block and without ids; `None` if it does not grow linearly."""
        first, templates = self._found
        if not templates and set(_paths(self._deeper)) != set(_paths(self._cost)):
            return None
        rows: list[CostRow] = []
        params: dict[str, int | None] = {}
        here, there = self._cost.params or {}, self._deeper.params or {}
        for path, (template, number) in self._numbered.items():
            if template is None:
                grown = self._grown(path, depth)
                if grown is None:
                    return None
                rows += grown
                if path in here:
                    count = _line(self._depth, self._next, here[path], there.get(path), depth)
                    if count is None:
                        return None
                    params[path] = count
            elif number == first and template == templates[0]:
                for place in range(first, first + depth):
                    is_last = place == first + depth - 1
                    like = first if place == first else first + self._depth - 1 if is_last else first + 1
                    for one in templates:
                        source, target = one.format(like), one.format(place)
                        rows += [replace(row, blocks=((target, 1.0),)) for row in self._rows[0].get(source, ())]
                        if source in here:
                            params[target] = here[source]
        once = [
            _line(self._depth, self._next, getattr(self._cost.once, field), getattr(self._deeper.once, field), depth)
            for field in ("flops", "transcendentals", "bytes")
        ]
        if self._cost.notes != self._deeper.notes:
            return None
        known, deeper = None if self._cost.params is None else params, self._deeper.once
        whole = Source(self._cost.once.name, *once, unknown=deeper.unknown, unknown_bytes=deeper.unknown_bytes)
        return replace(self._cost, rows=tuple(rows), params=known, once=whole, symbolic=None)

    def _grown(self, path: str, depth: int) -> list[CostRow] | None:
        """Return the rows of a block that is not repeated; the count of each row grows linearly with depth."""
        here, there = (Counter(rows.get(path, ())) for rows in self._rows)
        rows: list[CostRow] = []
        for row in {**here, **there}:
            count = _line(self._depth, self._next, here[row], there[row], depth)
            if count is None:
                return None
            rows += [row] * count
        return rows

    @cached_property
    def _numbered(self) -> dict[str, tuple[str | None, int]]:
        """The template of each block, if it is an instance of one, and its number in the template."""
        first, templates = self._found
        places = range(first, first + self._depth)
        instances = {one.format(place): (one, place) for one in templates for place in places}
        return {path: instances.get(path, (None, 0)) for path in _paths(self._cost)}

    @cached_property
    def _found(self) -> tuple[int, tuple[str, ...]]:
        """The number of the first repeated block, 0 or 1, and the paths of such blocks with `{}` instead of it."""
        here, there = _paths(self._cost), _paths(self._deeper)
        new = [path for path in there if path not in set(here)]
        for first in (0, 1):
            number = first + self._next - 1
            templates = dict.fromkeys(
                template
                for path in new
                for template in _templates_of(path, number)
                if all(template.format(place) in here for place in range(first + 1, first + self._depth - 1))
            )
            # Templates of inner blocks, in program order.
            order = {path: place for place, path in enumerate(here)}
            found = sorted(templates, key=lambda one: order.get(one.format(first + 1), len(order)))
            instances = {one.format(place) for one in found for place in range(first, first + self._next)}
            if found and set(new) <= instances:
                return first, tuple(found)
        return 0, ()

    @cached_property
    def _rows(self) -> tuple[dict[str, list[CostRow]], dict[str, list[CostRow]]]:
        """The rows by block at both depths."""
        return _by_block(self._cost), _by_block(self._deeper)


def _paths(cost: Cost) -> tuple[str, ...]:
    rows = (path for row in cost.rows for path, _ in row.blocks or (("", 1.0),))
    return tuple(dict.fromkeys(chain(rows, cost.params or ())))


def _by_block(cost: Cost) -> dict[str, list[CostRow]]:
    found: dict[str, list[CostRow]] = {}
    for row in cost.rows:
        found.setdefault(row.blocks[0][0] if row.blocks else "", []).append(_nameless(row))
    return found


def _nameless(row: CostRow) -> CostRow:
    """Return the row without its id and its equations."""
    return replace(row, id="", equations=())


def _templates_of(path: str, number: int) -> Iterable[str]:
    """Yield the path once for each occurrence of the number, with `{}` instead of it."""
    escaped = path.replace("{", "{{").replace("}", "}}")
    for match in re.finditer(r"\d+", escaped):
        if match.group() == str(number):
            yield f"{escaped[: match.start()]}{{}}{escaped[match.end() :]}"


def _line(start: int, other: int, at_start: int | None, at_other: int | None, at: int) -> int | None:
    """Extrapolate two counts linearly; `None` if the result is not a count."""
    if at_start is None or at_other is None:
        return None
    grown, rest = divmod((at_other - at_start) * (at - start), other - start)
    return None if rest or at_start + grown < 0 else at_start + grown


def whole(cost: Cost) -> list[Any]:
    """Return a cost as a comparable value, regardless of the order and the ids of its rows."""
    rows = Counter(_nameless(row) for row in cost.rows)
    return [rows, cost.params, cost.once.flops, cost.once.transcendentals, cost.once.bytes, cost.notes]
