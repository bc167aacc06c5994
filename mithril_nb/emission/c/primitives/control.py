"""Calls, loops and branches in C."""

from __future__ import annotations

from mithril_nb.emission.c.types import c_shape
from mithril_nb.emission.c.writing import CBody, Index, InMemory, View, rule
from mithril_nb.emission.program import Function, Operand, Statement


@rule("call")
def call(to: CBody, op: Statement) -> None:
    function = op.function
    assert function is not None
    inputs = [to.stored(value).pointer if c_shape(value) else to.item(value, ()) for value in op.inputs]
    arguments = [*inputs, *(to.reserve(value).pointer for value in op.outputs)]
    if to.arenas[function.name]:
        # The arrays of the function lie in a buffer of this one, as an array of that size would.
        arguments.append(f"arena + {to.mark(to.memory(to.arenas[function.name]))}")
    to.add(f"{function.name}({', '.join(arguments)});")


@rule("scan")
def scan(to: CBody, op: Statement) -> None:
    count, length, (body,) = op["num_carry"], op["length"], op.bodies
    # The carry is in the memory of the results, so the last step leaves them there.
    carry = _carry(to, op, body, count)
    stacked = [to.reserve(value) for value in op.outputs[count:]]
    # The lines of a loop run many times: what they read must not share memory with what later lines write.
    start = to.next_time()
    step = to.variable()
    backward = f"for (int {step} = {length - 1}; {step} >= 0; {step}--)"
    head = backward if op["reverse"] else f"for (int {step} = 0; {step} < {length}; {step}++)"
    with to.block(head, 1):
        for value, array in zip(body.inputs[count:], op.inputs[count:], strict=True):

            def item(index: Index, array: Operand = array) -> str:
                return to.item(array, (step, *index))

            to.forms[value] = View(item)
        results = [InMemory(f"{form.text}[{step}]", form.shape[1:], form.buffer) for form in stacked]
        _statements(to, body, body.outputs[count:], results)
        _next_carry(to, body.outputs[:count], carry)
    to.keep_alive_since(start)


@rule("while")
def while_loop(to: CBody, op: Statement) -> None:
    condition, body = op.bodies
    carry = _carry(to, op, condition, len(op.inputs))
    start = to.next_time()
    with to.block("while (true)"):
        # The condition is no expression: it may need loops of its own.
        to.forms.update(zip(body.inputs, carry, strict=True))
        to.statements(condition)
        to.next_time()
        test = to.item(condition.outputs[0], ())
        to.add(f"if (!{test if test.replace('_', 'a').isalnum() else f'({test})'})")
        to.add("    break;")
        to.statements(body)
        to.next_time()
        _next_carry(to, body.outputs, carry)
    to.keep_alive_since(start)


@rule("cond")
def cond(to: CBody, op: Statement) -> None:
    forms = [to.reserve(value) for value in op.outputs]
    start = to.next_time()
    index = to.item(op.operand, ())
    if len(op.bodies) == 2:  # a switch with two cases is harder to read
        for head, branch in (
            (f"if ({index if op.operand.dtype == 'bool' else f'{index} > 0'})", op.bodies[1]),
            ("else", op.bodies[0]),
        ):
            with to.block(head):
                _statements(to, branch, branch.outputs, forms)
    else:
        largest = len(op.bodies) - 1
        with to.block(f"switch ({to.helpers.use('clamp_index')}({index}, {largest}))"):
            for number, branch in enumerate(op.bodies):
                with to.block("default:" if number == largest else f"case {number}:"):
                    _statements(to, branch, branch.outputs, forms)
                to.add("break;")
    to.keep_alive_since(start)


def _statements(to: CBody, body: Function, outputs: tuple[Operand, ...], forms: list[InMemory]) -> None:
    """Write the statements of a body, and its results `outputs` to the memory `forms`, directly where possible."""
    for value, form in zip(outputs, forms, strict=True):
        if value in body.producers and value not in to.bound:  # else it is copied below
            to.bound[value] = form
    to.statements(body)
    to.next_time()
    for value, form in zip(outputs, forms, strict=True):
        if to.forms.get(value) is not form:
            to.copy(value, form)


def _carry(to: CBody, op: Statement, body: Function, count: int) -> list[InMemory]:
    carry: list[InMemory] = []
    for value, first, output in zip(body.inputs[:count], op.inputs[:count], op.outputs[:count], strict=True):
        form = to.reserve(output, "" if output in to.bound or output.name != "_" else value.name)
        to.copy(first, form)
        to.forms[value] = form
        carry.append(form)
    return carry


def _next_carry(to: CBody, outputs: tuple[Operand, ...], carry: list[InMemory]) -> None:
    pairs: list[tuple[InMemory, InMemory]] = []
    for value, form in zip(outputs, carry, strict=True):
        source = to.forms.get(value)
        if source is form:
            continue
        # A new value that is computed from the carry, or is another part of it, must be read before any part changes.
        if not isinstance(source, InMemory) or any(source is each for each in carry):
            source = to.temporary(value, f"next_{value.name}")
        pairs.append((source, form))
    for source, form in pairs:
        with to.loops(form.shape) as index:
            to.touch(form)
            to.touch(source)
            to.add(f"{form.item(index)} = {source.item(index)};")
