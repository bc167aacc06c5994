"""Write loops and calls of emitted Python files, in any library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from mithril_nb.emission.program import Operand, Statement, Value
from mithril_nb.emission.python_text import listed
from mithril_nb.emission.sizes import number
from mithril_nb.emission.source import Writer


class PythonLoops(ABC):
    """Writes loops and calls. A subclass returns the expressions of its library for the arrays in them."""

    _out: Writer

    @abstractmethod
    def _statement(self, one: Statement) -> None:
        """Write a statement."""

    @abstractmethod
    def _as(self, operand: Operand, value: Value) -> str:
        """Return the expression of an operand with the shape of a value."""

    @abstractmethod
    def _item(self, operand: Operand, value: Value) -> str:
        """Return the expression of an array's item `step` along the first axis, which is `value`."""

    @abstractmethod
    def _stacked(self, items: str, value: Value, length: int) -> str:
        """Return the expression of the array `value` that contains the arrays in the list `items`."""

    @abstractmethod
    def _shown(self, value: Value) -> str:
        """Return the shape of a value for a comment."""

    def _call(self, one: Statement, name: str, arguments: list[str], note: str = "") -> None:
        targets = listed("(", [value.name for value in one.outputs], ")", 0)
        text = listed("", arguments, "", len(name) + min(len(targets), 60))
        self._out.add(f"{targets} = {name}({text}){note}", one)

    def _carry(self, one: Statement, targets: Iterable[Value], values: Iterable[Operand]) -> None:
        pairs = [(target.name, self._as(value, target)) for target, value in zip(targets, values, strict=True)]
        pairs = [(name, text) for name, text in pairs if name not in (text, "_")]
        if pairs:
            names, texts = zip(*pairs, strict=True)
            self._out.add(f"{', '.join(names)} = {', '.join(texts)}", one)

    def _scan(self, one: Statement) -> None:
        out, (body,) = self._out, one.bodies
        count, length = one.params["num_carry"], number(one.params["length"])
        pairs = zip(one.outputs[count:], body.outputs[count:], strict=True)
        stacks = [(value, item) for value, item in pairs if value.name != "_"]
        self._carry(one, body.inputs[:count], one.inputs[:count])
        for value, _ in stacks:
            out.add(f"{value.name} = []", one)
        order = f"range({length})"
        out.add(f"for step in {f'reversed({order})' if one.params['reverse'] else order}:", one)
        with out.indented():
            for value, array in zip(body.inputs[count:], one.inputs[count:], strict=True):
                out.add(f"{value.name} = {self._item(array, value)}  # {self._shown(value)}", one)
            for statement in body.statements:
                self._statement(statement)
            for value, item in stacks:
                out.add(f"{value.name}.append({self._as(item, Value('', item.shape, item.dtype))})", one)
            self._carry(one, body.inputs[:count], body.outputs[:count])
            if not (body.statements or stacks or one.inputs[count:] or count):
                out.add("pass", one)
        self._carry(one, one.outputs[:count], body.inputs[:count])
        for value, _ in stacks:
            items = f"{value.name}[::-1]" if one.params["reverse"] else value.name
            out.add(f"{value.name} = {self._stacked(items, value, length)}  # {self._shown(value)}", one)
