"""Write the body of one C function: loops, expressions for the items of values, arrays in the arena."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from mithril_nb.emission.c.elementwise import expression
from mithril_nb.emission.c.fusion import values_in_memory
from mithril_nb.emission.c.helper_functions import Helpers
from mithril_nb.emission.c.memory import Buffer
from mithril_nb.emission.c.types import C_TYPES, c_shape, dims, item_bytes, literal, pointer_type
from mithril_nb.emission.program import ELEMENTWISE, Function, Number, Operand, Statement, Value
from mithril_nb.emission.rules import Rules
from mithril_nb.emission.source import Line, Writer
from mithril_nb.emission.unsupported import unsupported

Index = tuple[str, ...]
"""One C expression for each axis."""
LOOP_VARIABLES = (*"ijklmnpqrsuvw", *(f"i{number}" for number in range(1, 20)))


@dataclass(frozen=True)
class Stored:
    """A value in memory.

    Attributes:
        text: Name of the array or of the variable.
        shape: The shape in C; `()` for a single number.
        buffer: The memory in the arena; `None` for values outside the arena.
        is_pointer: True if a single number is read as `*text`, because `text` is a pointer. Ignored for arrays.
    """

    text: str
    shape: tuple[int, ...]
    buffer: Buffer | None = None
    is_pointer: bool = False

    def item(self, index: Index) -> str:
        """Return the expression of an item."""
        if not self.shape:
            return f"*{self.text}" if self.is_pointer else self.text
        return self.text + "".join(f"[{one}]" for one in index)

    @property
    def pointer(self) -> str:
        """The expression of a pointer to the first item or first row."""
        return self.text if self.shape or self.is_pointer else f"&{self.text}"


@dataclass(frozen=True)
class View:
    """A value without memory. Its items are items of another value, or depend only on their index.

    Attributes:
        item: Function from an index to the expression of the item.
        source: Function from an index to the other value and the index in it. `None` if the items are not simply
            items of one other value.
    """

    item: Callable[[Index], str]
    source: Callable[[Index], tuple[Operand, Index]] | None = None


Form = Stored | View | Statement
"""How to get an item of a value: from memory, through a view, or by computing an elementwise statement."""


@dataclass
class _Scope:
    """The items and names that a C block `{...}` declares, and the number of loop variables in use there."""

    items: dict[tuple[Value, Index], str] = field(default_factory=dict[tuple[Value, Index], str])
    names: list[str] = field(default_factory=list[str])
    variables: int = 0


class Body:
    """Writes the statements of one function.

    Attributes:
        helpers: The helper functions of the file.
        arenas: The size of each function's arena in bytes, by name of the function.
        writer: The lines so far. They contain placeholders, see `mark`, instead of offsets in the arena.
        forms: A dict from each value to the way to read its items; see `Form`.
        buffers: The memory that the function needs in its arena.
        bound: A dict from a value to the memory into which it must be written. An example is an output of the function.
    """

    def __init__(self, function: Function, helpers: Helpers, arenas: dict[str, int], constants: dict[Value, Form]):
        self.helpers, self.arenas = helpers, arenas
        self.writer = Writer()
        self.forms: dict[Value, Form] = dict(constants)
        self.buffers: list[Buffer] = []
        self.bound: dict[Value, Stored] = {}
        self._in_memory = values_in_memory(function)
        self._names = _all_names(function)
        self._scopes = [_Scope()]
        self._time = 0

    # Lines

    def add(self, text: str, one: Statement | None = None) -> None:
        """Add a line of a statement."""
        self.writer.add(text, one)

    def next_time(self) -> int:
        """Count one more statement, and return the count. Buffers record their first and last use in this count."""
        self._time += 1
        return self._time

    @contextmanager
    def block(self, head: str, one: Statement | None, variables: int = 0) -> Iterator[None]:
        """Write a block in braces around the lines added in this context. A `for` with one line gets no braces.

        Args:
            head: Text before the brace.
            one: The statement that the block belongs to; `None` if there is none.
            variables: Number of loop variables that `head` declares.
        """
        self.add(f"{head} {{".lstrip(), one)
        self._scopes.append(_Scope(variables=self._scopes[-1].variables + variables))
        first = len(self.writer.lines)
        with self.writer.indented():
            yield
        self._names.difference_update(self._scopes.pop().names)
        if head.startswith("for") and len(self.writer.lines) == first + 1:
            line = self.writer.lines[first - 1]
            self.writer.lines[first - 1] = replace(line, text=line.text.removesuffix(" {"))
        else:
            self.add("}", one)

    @contextmanager
    def loops(self, shape: Sequence[int], one: Statement | None) -> Iterator[Index]:
        """Write nested loops over a shape, and yield the index of an item. An axis of size 1 gets no loop."""
        count = self._scopes[-1].variables
        index: list[str] = []
        heads: list[str] = []
        for size in shape:
            if size == 1:
                index.append("0")
                continue
            name = LOOP_VARIABLES[count + len(heads)]
            index.append(name)
            heads.append(f"for (int {name} = 0; {name} < {size}; {name}++)")
        for head in heads[:-1]:
            self.add(head, one)
            self.writer.indent(1)
        if heads:
            with self.block(heads[-1], one, len(heads)):
                yield tuple(index)
        else:
            yield tuple(index)
        self.writer.indent(-max(len(heads) - 1, 0))

    def variable(self) -> str:
        """Return an unused loop variable. The `block` that declares it must receive `variables=1`."""
        return LOOP_VARIABLES[self._scopes[-1].variables]

    def new_name(self, wanted: str) -> str:
        """Return a name that is unused in the current block. After the block, it may be used again."""
        name, number = wanted, 1
        while name in self._names:
            number += 1
            name = f"{wanted}_{number}"
        self._names.add(name)
        self._scopes[-1].names.append(name)
        return name

    # Values

    def item(self, value: Operand, index: Index) -> str:
        """Return the expression of an item. Add the lines that this expression needs."""
        if isinstance(value, Number):
            return literal(value.value, value.dtype)
        form = self.forms[value]
        if isinstance(form, Stored):
            self.touch(form)
            return form.item(index)
        if isinstance(form, View):
            return form.item(index)
        for scope in self._scopes:
            if (value, index) in scope.items:
                return scope.items[value, index]
        text = self.expression(form, index)
        known = any(value is one for scope in self._scopes for one, _ in scope.items)
        name = self.new_name(value.name) if known else value.name
        self.add(f"const {C_TYPES[value.dtype]} {name} = {text};", form)
        self._scopes[-1].items[value, index] = name
        return name

    def expression(self, one: Statement, index: Index) -> str:
        """Return the expression of an item of an elementwise statement."""
        operands = [self.item(each, broadcast_index(each.shape, index)) for each in one.inputs]
        return expression(one, operands, self.helpers)

    def touch(self, form: Form) -> None:
        """Record that the current statement uses the memory of a form."""
        if isinstance(form, Stored) and form.buffer is not None:
            form.buffer.last = self._time

    def is_in_memory(self, value: Value) -> bool:
        """Return whether a value must be stored in an array or a variable."""
        return value in self._in_memory

    def pointer(self, value: Operand, one: Statement) -> str:
        """Return a pointer to the items of an operand. An operand that is not in memory is copied there first."""
        return self.stored(value, one).pointer

    def stored(self, value: Operand, one: Statement) -> Stored:
        """Return an operand in memory. An operand that is not in memory is copied there first."""
        form = None if isinstance(value, Number) else self.forms[value]
        if not isinstance(form, Stored):
            name = "number" if isinstance(value, Number) else value.name
            copy = Value(name, value.shape, value.dtype)
            form = self.reserve(copy, one, self.new_name(f"{name}_copy"))
            self.copy(value, form, one)
        self.touch(form)
        return form

    def reserve(self, value: Value, one: Statement | None, name: str = "") -> Stored:
        """Return the memory for a value. Declare the memory if necessary, and store it in `forms`."""
        form = self.bound.get(value)
        if form is None:
            name = name or (self.new_name("unused") if value.name == "_" else value.name)
            shape = c_shape(value)
            if shape:
                form = self.array(name, shape, value.dtype, one)
            else:
                self.add(f"{C_TYPES[value.dtype]} {name};", one)
                form = Stored(name, ())
        self.touch(form)
        self.forms[value] = form
        return form

    def array(self, name: str, shape: tuple[int, ...], dtype: str, one: Statement | None) -> Stored:
        """Declare an array in the arena."""
        buffer = self.memory(item_bytes(dtype) * math.prod(shape))
        before, after = pointer_type(dtype, shape)
        self.add(
            f"{before}{name}{after} = ({before}{after})(arena + {mark(buffer, self.buffers)});  // {dims(shape)}", one
        )
        return Stored(name, shape, buffer)

    def memory(self, size: int) -> Buffer:
        """Return a new buffer that the current statement uses."""
        buffer = Buffer(size, self._time, self._time)
        self.buffers.append(buffer)
        return buffer

    def copy(
        self,
        value: Operand,
        to: Stored,
        one: Statement | None,
        index_of: Callable[[Index], Index] = lambda index: index,
    ) -> None:
        """Write each item of a value to memory; `index_of` takes its index in the value, and returns that in memory."""
        with self.loops(c_shape(value), one) as index:
            text = self.item(value, index)
            self.touch(to)
            self.add(f"{to.item(index_of(index))} = {text};", one)

    def keep_alive_since(self, start: int) -> None:
        """Extend the life of buffers to the end of a loop, because the next iteration reads them.

        These are the buffers that existed before the statement number `start` and were used since.
        """
        for one in self.buffers:
            if one.first < start <= one.last:
                one.last = self._time

    # Statements

    def statements(self, function: Function, rules: Rules[Body, None]) -> None:
        """Write the statements of a function, or of a body of control flow.

        Raises:
            UnsupportedPrimitiveError: There is no C source for a statement.
        """
        for one in function.statements:
            self.next_time()
            if one.primitive in ELEMENTWISE:
                self._elementwise(one)
            elif one.primitive in rules:
                rules.write(self, one)
            else:
                raise unsupported(one, "c")

    def _elementwise(self, one: Statement) -> None:
        (value,) = one.outputs
        if value not in self._in_memory:
            # Raise an error for an unsupported primitive here, and not at the first use of the value.
            expression(one, ["x"] * len(one.inputs), Helpers())
            self.forms[value] = one
        elif not value.shape and value not in self.bound:
            self.add(f"const {C_TYPES[value.dtype]} {value.name} = {self.expression(one, ())};", one)
            self.forms[value] = Stored(value.name, ())
        else:
            form = self.reserve(value, one)
            with self.loops(value.shape, one) as index:
                text = self.expression(one, index)
                self.add(f"{form.item(index)} = {text};", one)

    def view(self, one: Statement, place: int, index_of: Callable[[Index], Index]) -> None:
        """Make a result a view of the first operand.

        Args:
            one: The statement.
            place: Index of the result in `one.outputs`.
            index_of: Function from an index in the result to the index of the same item in the operand.
        """
        source, output = one.inputs[0], one.outputs[place]
        rank = len(output.shape)

        def place_of(index: Index) -> tuple[Operand, Index]:
            return source, (*index_of(index[:rank]), *index[rank:])

        self.viewed(one, output, View(lambda index: self.item(*place_of(index)), place_of))

    def viewed(self, one: Statement, output: Value, view: View) -> None:
        """Store a view in `forms`. If the value must be in memory, copy its items there."""
        self.forms[output] = view
        if self.is_in_memory(output):
            # `reserve` replaces the view of `output` in `forms`, so a second value keeps the view to copy from.
            given = replace(output)
            self.forms[given] = view
            self.copy(given, self.reserve(output, one), one)

    def place(self, value: Operand, index: Index) -> tuple[Stored, Index] | None:
        """Return the array in memory that contains an item, and the index in it; `None` if the item is computed."""
        form = None if isinstance(value, Number) else self.forms[value]
        if isinstance(form, View):
            return None if form.source is None else self.place(*form.source(index))
        return (form, index) if isinstance(form, Stored) else None


def broadcast_index(shape: tuple[int, ...], index: Index) -> Index:
    """Return the index in an operand of the given shape for an index in the result, by NumPy's broadcasting.

    Examples:
        >>> broadcast_index((4, 1), ("i", "j", "k"))
        ('j', '0')
    """
    own = index[len(index) - len(shape) :]
    return tuple(["0" if size == 1 else one for size, one in zip(shape, own, strict=True)])


def mark(buffer: Buffer, buffers: list[Buffer]) -> str:
    """Return a placeholder for the offset of a buffer, which is known only later. `with_offsets` replaces it."""
    return f"\0{buffers.index(buffer)}\0"


def with_offsets(lines: Iterable[Line], buffers: list[Buffer]) -> list[Line]:
    """Return the lines with an offset instead of each placeholder of `mark`."""
    found: list[Line] = []
    for line in lines:
        parts = line.text.split("\0")
        for place in range(1, len(parts), 2):
            parts[place] = str(buffers[int(parts[place])].offset)
        found.append(replace(line, text="".join(parts)) if len(parts) > 1 else line)
    return found


def _all_names(function: Function) -> set[str]:
    names = {one.name for one in function.inputs}
    for statement in function.walk():
        names.update(one.name for one in statement.outputs)
        names.update(one.name for body in statement.bodies for one in body.inputs)
    return names
