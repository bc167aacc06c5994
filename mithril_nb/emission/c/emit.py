"""Emit a program as one C file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mithril_nb.emission.build import build
from mithril_nb.emission.c.expressions import SUPPORTED, Helpers, helper_names
from mithril_nb.emission.c.memory import place_buffers
from mithril_nb.emission.c.primitives import control, indexing, linear, products, random, shapes, windows
from mithril_nb.emission.c.types import C_TYPES, c_shape, dims, literal, subscripts
from mithril_nb.emission.c.writing import LOOP_VARIABLES, RULES, CBody, Form, InMemory, with_offsets
from mithril_nb.emission.naming.names import comment
from mithril_nb.emission.program import EmittedProgram, Function, Number, Operand, Value
from mithril_nb.emission.source import Source, SourceLine, Writer
from mithril_nb.emission.unsupported import check_dtypes, check_supported
from mithril_nb.stages.trace import traced

_RULE_FILES = (control, indexing, linear, products, random, shapes, windows)
"""Modules that register rules when they are imported."""
RESERVED = (*helper_names(), *LOOP_VARIABLES, "arena", "memory", "int", "case", "default", "step", "NAN")
"""Names that the emitted file uses besides the names of arrays and blocks."""


@dataclass(frozen=True)
class CFile:
    """An emitted C file, and the parameters of its main function: inputs, outputs, and temporary memory."""

    source: Source
    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Operand, ...]
    arena: int
    """Number of bytes of temporary memory. The caller passes this memory as the last parameter."""


def emit(program: traced.Program) -> CFile:
    return _emit(build(program, RESERVED))


def _emit(program: EmittedProgram) -> CFile:
    # First, because a rule that raises later would name a statement after the first unsupported one.
    check_supported(program, "c", {*RULES, *SUPPORTED})
    check_dtypes(program.functions, "c", C_TYPES.__contains__)
    helpers, arenas = Helpers(), dict[str, int]()
    constants: dict[Value, Form] = {value: InMemory(value.name, c_shape(value)) for value in program.constants}
    parts = [list(_function(function, program, helpers, arenas, constants)) for function in program.functions]
    main = program.main
    name = main.name
    texts = [
        f"// {name}: C11 with vectors of GCC and clang, written by mithril_nb from the program that JAX traced.",
        "// Arrays are contiguous in row-major order, and do not overlap. `arena` is temporary memory",
        f"// from the caller: malloc({name.upper()}_ARENA).",
        *(f"// {note}" for note in program.gradient_notes),
        "",
        *(f"#include <{include}.h>" for include in ("math", "stdbool", "stddef", "stdint", "string")),
        "",
        f"enum {{ {name.upper()}_ARENA = {arenas[name]} }};  // bytes of temporary memory",
    ]
    for text in (*helpers.texts.values(), *(_constant(*item) for item in program.constants.items())):
        texts += ["", text]
    head = Writer()
    head.add("\n".join(texts))
    for part in parts:
        head.lines += [SourceLine(""), *part]
    return CFile(Source("c", tuple(head.lines)), name, main.inputs, main.outputs, arenas[name])


def _function(
    function: Function, program: EmittedProgram, helpers: Helpers, arenas: dict[str, int], constants: dict[Value, Form]
) -> Iterator[SourceLine]:
    body = CBody(function, helpers, arenas, constants)
    is_main = function is program.main
    parameters = [_input(body, value, is_main) for value in function.inputs]
    outputs: list[tuple[Operand, InMemory]] = []
    for value in function.outputs:
        # An input, a constant and a value that is returned twice are copied to their result at the end.
        is_own = value in function.producers and value not in body.bound
        hint = "result" if isinstance(value, Number) else value.name
        # The results of a function are other arrays than its inputs, and two of them may be the same value.
        name = value.name if is_own else body.new_name(hint if hint.startswith("result") else f"{hint}_result")
        form = InMemory(name, c_shape(value), is_pointer=True)
        outputs.append((value, form))
        if is_own:
            body.bound[value] = form
        parameters.append(_parameter(value.dtype, name, form.shape, is_output=True))
    with body.writer.indented():
        body.statements(function)
        body.next_time()
        with body.writing(next(reversed(function.statements), None)):
            for value, form in outputs:
                if body.forms.get(value) is not form:
                    body.copy(value, form)
    arenas[function.name] = arena = place_buffers(body.buffers)
    blocks = function.blocks or ((function.block,) if function.block else ())
    title = f"{comment(', '.join(blocks))}: {function.role or 'program'}" if blocks else "The whole program."
    parameters += ["char *arena"] if arena or is_main else []
    head = f"// {title}\n{'' if is_main else 'static '}void {function.name}(\n    " + ",\n    ".join(parameters) + ")"
    for text in head.split("\n"):
        yield SourceLine(text, block=function.block, role=function.role)
    yield SourceLine("{")
    if is_main and not arena:  # its callers pass an arena in any case
        yield SourceLine("    (void)arena;")
    read = {*function.outputs, *(value for op in function.statements for value in op.reads)}
    # Warnings of compilers about unused parameters are errors for some users.
    yield from (SourceLine(f"    (void){value.name};") for value in function.inputs if value not in read)
    yield from with_offsets(body.writer.lines, body.buffers)
    yield SourceLine("}")


def _input(body: CBody, value: Value, is_main: bool) -> str:
    shape = c_shape(value)
    body.forms[value] = InMemory(value.name, shape, is_pointer=is_main or bool(shape))
    # The main function takes pointers only, so that a caller needs no types of numbers.
    if not shape and not is_main:
        return f"{C_TYPES[value.dtype]} {value.name}"
    return _parameter(value.dtype, value.name, shape)


def _parameter(dtype: str, name: str, shape: tuple[int, ...], is_output: bool = False) -> str:
    kind = C_TYPES[dtype] if is_output else f"const {C_TYPES[dtype]}"
    if not shape:
        return f"{kind} *{'restrict ' if is_output else ''}{name}"
    first = f"[{'restrict ' if is_output else ''}{shape[0]}]"
    return f"{kind} {name}{first}{subscripts(shape[1:])}"


def _constant(value: Value, array: Any) -> str:
    shape, dtype = c_shape(value), value.dtype
    declared = f"static const {C_TYPES[dtype]} {value.name}{subscripts(shape)}"
    if not value.size:  # C11 has no empty initializer
        return f"{declared};"
    text = _items(np.asarray(array).reshape(shape).tolist(), dtype)
    return f"{declared} = {text};" + (f"  // {dims(shape)}" if shape else "")


def _items(items: Any, dtype: str) -> str:
    if not isinstance(items, list):
        return literal(items, dtype)
    rows = [_items(row, dtype) for row in items]
    if not isinstance(items[0], list):
        rows = [", ".join(rows[index : index + 12]) for index in range(0, len(rows), 12)]
    return "{" + ",\n    ".join(rows) + "}"
