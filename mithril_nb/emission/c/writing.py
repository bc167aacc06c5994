"""Write the body of one C function: loops, expressions for the items of values, arrays in the arena."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from mithril_nb.emission.c.expressions import Helpers, expression
from mithril_nb.emission.c.memory import ArenaBuffer, MemoryPlan
from mithril_nb.emission.c.types import C_TYPES, c_shape, dims, literal, numpy_dtype, pointer_type
from mithril_nb.emission.program import ELEMENTWISE, Function, Number, Operand, Statement, Value
from mithril_nb.emission.rules import Context, Rules
from mithril_nb.emission.source import SourceLine, Writer

Index = tuple[str, ...]
"""One C expression for each axis."""
LOOP_VARIABLES = (*"ijklmnpqrsuvw", *(f"i{number}" for number in range(1, 20)))


@dataclass(frozen=True)
class InMemory:
    """A value in memory: an array, or a single number in a variable."""

    text: str
    """Name of the array or variable."""
    shape: tuple[int, ...]
    buffer: ArenaBuffer | None = None
    """The memory in the arena; `None` for values outside the arena."""
    is_pointer: bool = False
    """True if a single number is read as `*text`. Ignored for arrays."""

    def item(self, index: Index) -> str:
        if not self.shape:
            return f"*{self.text}" if self.is_pointer else self.text
        return self.text + "".join(f"[{text}]" for text in index)

    @property
    def pointer(self) -> str:
        """The expression of a pointer to the first item or first row."""
        return self.text if self.shape or self.is_pointer else f"&{self.text}"


@dataclass(frozen=True)
class View:
    """A value without memory. Its items are items of another value, or depend only on their index."""

    item: Callable[[Index], str]
    source: Callable[[Index], tuple[Operand, Index]] | None = None
    """Function from an index to the other value and the index in it."""


Form = InMemory | View | Statement
"""How to get an item of a value: from memory, through a view, or by computing an elementwise statement."""


@dataclass
class _CScope:
    items: dict[tuple[Value, Index], str] = field(default_factory=dict[tuple[Value, Index], str])
    names: list[str] = field(default_factory=list[str])
    variables: int = 0


class CBody(Context):
    """Writes the statements of one function.

    Attributes:
        arenas: The size of each function's arena in bytes, by name of the function.
        writer: The lines so far. They contain placeholders, see `mark`, instead of offsets in the arena.
        forms: How to read the items of each value; see `Form`.
        bound: The memory into which a value must be written, such as an output of the function.
    """

    backend = "c"

    def __init__(self, function: Function, helpers: Helpers, arenas: dict[str, int], constants: Mapping[Value, Form]):
        self.helpers, self.arenas = helpers, arenas
        self.writer = Writer()
        # A value in `forms` may have no memory: C computes an elementwise chain in one loop, item by item.
        self.forms: dict[Operand, Form] = {**constants}
        self.buffers: list[ArenaBuffer] = []
        self.bound: dict[Operand, InMemory] = {}
        self._in_memory = MemoryPlan(function).stored
        self._names = _all_names(function)
        self._scopes = [_CScope()]
        self._time = 0

    # Lines

    def add(self, text: str) -> None:
        self.writer.add(text, self.at)

    def next_time(self) -> int:
        """Count one more statement. Buffers record their first and last use in this count."""
        self._time += 1
        return self._time

    @contextmanager
    def block(self, head: str, variables: int = 0) -> Iterator[None]:
        """Write a block in braces, whose head declares some loop variables. A `for` with one line gets no braces."""
        self.add(f"{head} {{".lstrip())
        self._scopes.append(_CScope(variables=self._scopes[-1].variables + variables))
        lines = self.writer.lines
        first = len(lines)
        with self.writer.indented():
            yield
        self._names.difference_update(self._scopes.pop().names)
        if head.startswith("for") and len(lines) == first + 1:  # nested loops over one line stay readable
            lines[first - 1] = replace(lines[first - 1], text=lines[first - 1].text.removesuffix(" {"))
        else:
            self.add("}")

    @contextmanager
    def loops(self, shape: Sequence[int]) -> Iterator[Index]:
        variables = iter(LOOP_VARIABLES[self._scopes[-1].variables :])
        # Without loops of one step, subscripts stay constants, which `_strides` and the tests of windows can read.
        index = tuple(["0" if size == 1 else next(variables) for size in shape])
        heads = [
            f"for (int {name} = 0; {name} < {size}; {name}++)"
            for name, size in zip(index, shape, strict=True)
            if size != 1
        ]
        for depth, head in enumerate(heads[:-1]):
            self.add(f"{'    ' * depth}{head}")
        with self.writer.indented(max(len(heads) - 1, 0)):
            with self.block(heads[-1], len(heads)) if heads else nullcontext():
                yield index

    def variable(self) -> str:
        return LOOP_VARIABLES[self._scopes[-1].variables]

    def new_name(self, hint: str) -> str:
        name, number = hint, 1
        while name in self._names:
            number += 1
            name = f"{hint}_{number}"
        self._names.add(name)
        self._scopes[-1].names.append(name)
        return name

    # Values

    def item(self, value: Operand, index: Index) -> str:
        """Return the expression of an item. Add the lines that this expression needs."""
        if isinstance(value, Number):
            return literal(value.value, value.dtype)
        form = self.forms[value]
        if not isinstance(form, Statement):
            self.touch(form)
            return form.item(index)
        for scope in self._scopes:
            if (value, index) in scope.items:  # the variable that holds this item is visible here
                return scope.items[value, index]
        # One variable for each item: an expression within an expression would be computed again at each use.
        text = self.expression(form, index)
        is_declared = any(value is declared for scope in self._scopes for declared, _ in scope.items)
        # Another item of the same value, such as that of a reversed axis, needs another name.
        name = self.new_name(value.name) if is_declared else value.name
        self.writer.add(f"const {C_TYPES[value.dtype]} {name} = {text};", form)
        self._scopes[-1].items[value, index] = name
        return name

    def item_by_axis(self, value: Operand, index: Mapping[int, str]) -> str:
        return self.item(value, by_axis(index, len(value.shape)))

    def expression(self, op: Statement, index: Index) -> str:
        operands = [self.item(each, broadcast_index(each.shape, index)) for each in op.inputs]
        return expression(op, operands, self.helpers)

    def touch(self, form: Form) -> None:
        """Record that the current statement uses the memory of a form."""
        if isinstance(form, InMemory) and form.buffer is not None:
            form.buffer.last = self._time

    def is_in_memory(self, value: Value) -> bool:
        return value in self._in_memory

    def stored(self, value: Operand) -> InMemory:
        form = self.forms.get(value)
        if not isinstance(form, InMemory):
            form = self.temporary(value, f"{value.name}_copy")
        self.touch(form)
        return form

    def temporary(self, value: Operand, name: str) -> InMemory:
        form = self.reserve(Value(value.name, value.shape, value.dtype), self.new_name(name))
        self.copy(value, form)
        return form

    def reserve(self, value: Value, name: str = "") -> InMemory:
        """Return the memory for a value. Declare the memory if necessary, and store it in `forms`."""
        # An output of the function or the result of a branch is computed in its place, without a copy.
        form = self.bound.get(value)
        if form is None:
            name = name or (self.new_name("unused") if value.name == "_" else value.name)
            shape = c_shape(value)
            if shape:
                form = self.array(name, shape, value.dtype)
            else:
                self.add(f"{C_TYPES[value.dtype]} {name};")
                form = InMemory(name, ())
        self.touch(form)
        self.forms[value] = form
        return form

    def array(self, name: str, shape: tuple[int, ...], dtype: str) -> InMemory:
        buffer = self.memory(numpy_dtype(dtype).itemsize * math.prod(shape))
        before, after = pointer_type(dtype, shape)
        self.add(f"{before}{name}{after} = ({before}{after})(arena + {self.mark(buffer)});  // {dims(shape)}")
        return InMemory(name, shape, buffer)

    def memory(self, size: int) -> ArenaBuffer:
        buffer = ArenaBuffer(size, self._time, self._time)
        self.buffers.append(buffer)
        return buffer

    def mark(self, buffer: ArenaBuffer) -> str:
        return f"\0{self.buffers.index(buffer)}\0"  # offsets are known after the last statement

    def copy(self, value: Operand, to: InMemory, index_of: Callable[[Index], Index] = lambda index: index) -> None:
        """Write each item of a value to memory; `index_of` takes its index in the value, and returns that in memory."""
        with self.loops(c_shape(value)) as index:
            text = self.item(value, index)  # it may add lines, so it comes before the line that reads it
            self.touch(to)
            self.add(f"{to.item(index_of(index))} = {text};")

    def fill(self, form: InMemory, text: str) -> None:
        with self.loops(form.shape) as index:
            self.add(f"{form.item(index)} = {text};")

    def keep_alive_since(self, start: int) -> None:
        """Extend the life of buffers to the end of a loop, because the next iteration reads them.

        These are the buffers that existed before the statement number `start` and were used since.
        """
        for buffer in self.buffers:
            if buffer.first < start <= buffer.last:
                buffer.last = self._time

    # Statements

    def statements(self, function: Function) -> None:
        for op in function.statements:
            self.next_time()
            with self.writing(op):
                if op.primitive in ELEMENTWISE:  # of any rank, without a rule of their own
                    self._elementwise(op)
                elif op.primitive in RULES:
                    RULES.write(self, op)
                else:
                    raise self.unsupported()

    def _elementwise(self, op: Statement) -> None:
        (value,) = op.outputs
        if value not in self._in_memory:
            # Raise an error for an unsupported primitive here, and not at the first use of the value.
            expression(op, ["x"] * len(op.inputs), Helpers())
            self.forms[value] = op
        elif not value.shape and value not in self.bound:
            self.add(f"const {C_TYPES[value.dtype]} {value.name} = {self.expression(op, ())};")
            self.forms[value] = InMemory(value.name, ())
        else:
            form = self.reserve(value)
            with self.loops(value.shape) as index:
                text = self.expression(op, index)
                self.add(f"{form.item(index)} = {text};")

    def view(self, op: Statement, index_of: Callable[[Index], Index], result: int = 0) -> None:
        """Make a result a view of the first operand. `index_of` turns an index in it to that in the operand."""
        output = op.outputs[result]
        rank = len(output.shape)  # the index of a random key has one axis more

        def source(index: Index) -> tuple[Operand, Index]:
            return op.operand, (*index_of(index[:rank]), *index[rank:])

        self.viewed(output, View(lambda index: self.item(*source(index)), source))

    def viewed(self, output: Value, view: View) -> None:
        """Store a view in `forms`. If the value must be in memory, copy its items there."""
        self.forms[output] = view
        if self.is_in_memory(output):
            # `reserve` replaces the view of `output` in `forms`, so a second value keeps the view to copy from.
            source = replace(output)
            self.forms[source] = view
            self.copy(source, self.reserve(output))

    def memory_of(self, value: Operand, index: Index) -> tuple[InMemory, Index] | None:
        """Return the array in memory that contains an item, and the index in it; `None` if the item is computed."""
        form = self.forms.get(value)
        if isinstance(form, View):
            return None if form.source is None else self.memory_of(*form.source(index))
        return (form, index) if isinstance(form, InMemory) else None


RULES: Rules[CBody, None] = Rules()
"""Functions by primitive. Each writes the lines of a statement that is not elementwise."""
rule = RULES.rule


def by_axis(index: Mapping[int, str], rank: int) -> Index:
    return tuple([index.get(axis, "0") for axis in range(rank)])


def broadcast_index(shape: tuple[int, ...], index: Index) -> Index:
    """Return the index in an operand of the given shape for an index in the result, by NumPy's broadcasting.

    Examples:
        >>> broadcast_index((4, 1), ("i", "j", "k"))
        ('j', '0')
    """
    own = index[len(index) - len(shape) :]
    return tuple(["0" if size == 1 else text for size, text in zip(shape, own, strict=True)])


def with_offsets(lines: Iterable[SourceLine], buffers: Sequence[ArenaBuffer]) -> Iterator[SourceLine]:
    for line in lines:
        yield replace(line, text=re.sub("\0(\\d+)\0", lambda match: str(buffers[int(match[1])].offset), line.text))


def _all_names(function: Function) -> set[str]:
    names = {operand.name for operand in function.inputs}
    for statement in function.walk():
        names.update(value.name for value in statement.outputs)
        names.update(operand.name for body in statement.bodies for operand in body.inputs)
    return names
