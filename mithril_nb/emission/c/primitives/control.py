"""Calls, loops and branches in C."""

from __future__ import annotations

from mithril_nb.emission.c.rules import RULES, rule
from mithril_nb.emission.c.types import c_shape
from mithril_nb.emission.c.writing import Body, Index, Stored, View, mark
from mithril_nb.emission.program import Function, Operand, Statement, Value


@rule("call")
def call(to: Body, one: Statement) -> None:
    function = one.function
    assert function is not None
    inputs = [to.item(value, ()) if not c_shape(value) else to.pointer(value, one) for value in one.inputs]
    outputs = [to.reserve(value, one).pointer for value in one.outputs]
    arguments = [*inputs, *outputs]
    if to.arenas[function.name]:
        memory = to.memory(to.arenas[function.name])
        arguments.append(f"arena + {mark(memory, to.buffers)}")
    to.add(f"{function.name}({', '.join(arguments)});", one)


@rule("scan")
def scan(to: Body, one: Statement) -> None:
    count, length, (body,) = one.params["num_carry"], one.params["length"], one.bodies
    carry = _carry(to, one, body, count)
    arrays = one.inputs[count:]
    stacked = [to.reserve(value, one) for value in one.outputs[count:]]
    start = to.next_time()
    step = to.variable()
    backward = one.params["reverse"]
    head = f"for (int {step} = {length - 1}; {step} >= 0; {step}--)"
    with to.block(head if backward else f"for (int {step} = 0; {step} < {length}; {step}++)", one, 1):
        for value, array in zip(body.inputs[count:], arrays, strict=True):

            def item(index: Index, array: Operand = array) -> str:
                return to.item(array, (step, *index))

            to.forms[value] = View(item)
        results = [Stored(f"{form.text}[{step}]", form.shape[1:], form.buffer) for form in stacked]
        _bind(to, body, body.outputs[count:], results)
        to.statements(body, RULES)
        to.next_time()
        for value, form in zip(body.outputs[count:], results, strict=True):
            _write(to, value, form, one)
        _next_carry(to, one, body.outputs[:count], carry)
    to.keep_alive_since(start)


@rule("while")
def while_loop(to: Body, one: Statement) -> None:
    condition, body = one.bodies
    carry = _carry(to, one, condition, len(one.inputs))
    start = to.next_time()
    with to.block("while (true)", one):
        for value, form in zip(body.inputs, carry, strict=True):
            to.forms[value] = form
        to.statements(condition, RULES)
        to.next_time()
        to.add(f"if (!{_wrapped(to.item(condition.outputs[0], ()))})", one)
        to.add("    break;", one)
        to.statements(body, RULES)
        to.next_time()
        _next_carry(to, one, body.outputs, carry)
    to.keep_alive_since(start)


@rule("cond")
def cond(to: Body, one: Statement) -> None:
    (which,) = one.inputs
    forms = [to.reserve(value, one) for value in one.outputs]
    start = to.next_time()
    index = to.item(which, ())
    heads = [f"case {place}:" for place in range(len(one.bodies))]
    if len(one.bodies) == 2:
        is_bool = which.dtype == "bool"
        heads = ["else", f"if ({index if is_bool else f'{index} > 0'})"]
        for place in (1, 0):
            _branch(to, one, one.bodies[place], forms, heads[place])
    else:
        largest = len(one.bodies) - 1
        with to.block(f"switch ({to.helpers.use('clamp_index')}({index}, {largest}))", one):
            for place, branch in enumerate(one.bodies):
                _branch(to, one, branch, forms, "default:" if place == largest else heads[place])
                to.add("break;", one)
    to.keep_alive_since(start)


def _branch(to: Body, one: Statement, branch: Function, forms: list[Stored], head: str) -> None:
    with to.block(head, one):
        _bind(to, branch, branch.outputs, forms)
        to.statements(branch, RULES)
        to.next_time()
        for value, form in zip(branch.outputs, forms, strict=True):
            _write(to, value, form, one)


def _carry(to: Body, one: Statement, body: Function, count: int) -> list[Stored]:
    """Copy the initial carry to the memory of the results. The body of the loop reads and replaces it there."""
    found: list[Stored] = []
    for value, first, output in zip(body.inputs[:count], one.inputs[:count], one.outputs[:count], strict=True):
        name = "" if output in to.bound or output.name != "_" else value.name
        form = to.reserve(output, one, name)
        to.copy(first, form, one)
        to.forms[value] = form
        found.append(form)
    return found


def _next_carry(to: Body, one: Statement, outputs: tuple[Operand, ...], carry: list[Stored]) -> None:
    """Copy the new carry to the memory of the old carry, after all new values are computed."""
    new: list[tuple[Stored, Stored]] = []
    for value, form in zip(outputs, carry, strict=True):
        known = to.forms.get(value) if isinstance(value, Value) else None
        if known is form:
            continue
        if not isinstance(known, Stored) or any(known is each for each in carry):
            name = value.name if isinstance(value, Value) else "number"
            copy = Value(name, value.shape, value.dtype)
            known = to.reserve(copy, one, to.new_name(f"next_{name}"))
            to.copy(value, known, one)
        new.append((known, form))
    for known, form in new:
        with to.loops(form.shape, one) as index:
            to.touch(form)
            to.touch(known)
            to.add(f"{form.item(index)} = {known.item(index)};", one)


def _bind(to: Body, body: Function, outputs: tuple[Operand, ...], forms: list[Stored]) -> None:
    """Bind the results of a body to the memory `forms`, so that statements write there directly where possible."""
    made = {value for each in body.statements for value in each.outputs}
    for value, form in zip(outputs, forms, strict=True):
        if isinstance(value, Value) and value in made and value not in to.bound:
            to.bound[value] = form


def _write(to: Body, value: Operand, form: Stored, one: Statement) -> None:
    """Copy a result of a body to the memory `form`, unless a statement already wrote it there."""
    known = to.forms.get(value) if isinstance(value, Value) else None
    if known is not form:
        to.copy(value, form, one)


def _wrapped(text: str) -> str:
    return text if text.replace("_", "a").isalnum() else f"({text})"
