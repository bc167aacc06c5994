"""Emit a program as one C file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mithril_nb.emission.build import build
from mithril_nb.emission.c.elementwise import SUPPORTED
from mithril_nb.emission.c.helper_functions import Helpers, helper_names
from mithril_nb.emission.c.memory import place_buffers
from mithril_nb.emission.c.primitives import (
    control,
    convolutions,
    indexing,
    linear,
    ordering,
    products,
    random,
    shapes,
    windows,
)
from mithril_nb.emission.c.rules import RULES
from mithril_nb.emission.c.types import C_TYPES, c_shape, dims, literal, subscripts
from mithril_nb.emission.c.writing import LOOP_VARIABLES, Body, Form, Stored, with_offsets
from mithril_nb.emission.naming.names import comment
from mithril_nb.emission.program import Function, Operand, Program, Value
from mithril_nb.emission.source import Line, Source, Writer
from mithril_nb.emission.unsupported import check_dtypes, check_supported
from mithril_nb.stages.trace import traced

_RULE_FILES = (control, convolutions, indexing, linear, ordering, products, random, shapes, windows)
"""Modules that register rules when they are imported."""
RESERVED = (*helper_names(), *LOOP_VARIABLES, "arena", "memory", "int", "case", "default", "step", "NAN")
"""Names that the emitted file uses besides the names of arrays and blocks."""
_INCLUDES = ("math.h", "stdbool.h", "stddef.h", "stdint.h", "string.h")


@dataclass(frozen=True)
class CFile:
    """An emitted C file, and the parameters of its main function.

    Attributes:
        source: The file.
        name: Name of the main function.
        inputs: The arrays that the main function reads. They are its first parameters.
        outputs: The arrays and numbers that the main function writes. They are the parameters after the inputs.
        arena: Number of bytes of temporary memory. The caller passes this memory as the last parameter.
    """

    source: Source
    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Operand, ...]
    arena: int


def emit(program: traced.Program) -> CFile:
    """Return a traced program as one C file.

    Raises:
        UnsupportedPrimitiveError: The program contains a primitive or a dtype that C source does not support.
        StageUnavailableError: A size is a name, such as `"batch"`, and not a number.
    """
    return emit_program(build(program, RESERVED))


def emit_program(program: Program) -> CFile:
    """Return a program from `build` as one C file.

    Raises:
        UnsupportedPrimitiveError: The program contains a primitive or a dtype that C source does not support.
    """
    check_supported(program, "c", {*RULES, *SUPPORTED})
    check_dtypes(program.functions, "c", C_TYPES.__contains__)
    helpers, arenas = Helpers(), dict[str, int]()
    constants: dict[Value, Form] = {value: Stored(value.name, c_shape(value)) for value in program.constants}
    parts = [list(_function(one, program, helpers, arenas, constants)) for one in program.functions]
    head = Writer()
    name = program.main.name
    head.add(f"// {name}: C11 with vectors of GCC and clang, written by mithril_nb from the program that JAX traced.")
    head.add("// Arrays are contiguous in row-major order, and do not overlap. `arena` is temporary memory")
    head.add(f"// from the caller: malloc({name.upper()}_ARENA).")
    for note in program.gradient_notes:
        head.add(f"// {note}")
    head.add()
    for include in _INCLUDES:
        head.add(f"#include <{include}>")
    head.add()
    head.add(f"enum {{ {name.upper()}_ARENA = {arenas[name]} }};  // bytes of temporary memory")
    for text in helpers.texts.values():
        head.add()
        head.add(text)
    for value, array in program.constants.items():
        head.add()
        head.add(_constant(value, np.asarray(array)))
    lines = [*head.lines]
    for part in parts:
        lines += [Line(""), *part]
    main = program.main
    return CFile(Source("c", tuple(lines)), name, main.inputs, main.outputs, arenas[name])


def _function(
    function: Function, program: Program, helpers: Helpers, arenas: dict[str, int], constants: dict[Value, Form]
) -> Iterator[Line]:
    body = Body(function, helpers, arenas, constants)
    is_main = function is program.main
    parameters = [_input(body, value, is_main) for value in function.inputs]
    outputs: list[tuple[Operand, Stored]] = []
    made = {value for one in function.statements for value in one.outputs}
    for value in function.outputs:
        is_own = isinstance(value, Value) and value in made and value not in body.bound
        name = value.name if is_own and isinstance(value, Value) else body.new_name(_name(value))
        shape = c_shape(value)
        form = Stored(name, shape, is_pointer=True)
        outputs.append((value, form))
        if is_own and isinstance(value, Value):
            body.bound[value] = form
        parameters.append(_parameter(value.dtype, name, shape, is_output=True))
    with body.writer.indented():
        body.statements(function, RULES)
        body.next_time()
        for value, form in outputs:
            known = body.forms.get(value) if isinstance(value, Value) else None
            if known is not form:
                body.copy(value, form, next(reversed(function.statements), None))
    arenas[function.name] = place_buffers(body.buffers)
    yield from _head(function, parameters, is_main, arenas[function.name])
    if is_main and not arenas[function.name]:
        yield Line("    (void)arena;")
    yield from (Line(f"    (void){one.name};") for one in function.inputs if _is_unused(one, function))
    yield from with_offsets(body.writer.lines, body.buffers)
    yield Line("}")


def _head(function: Function, parameters: list[str], is_main: bool, arena: int) -> Iterator[Line]:
    blocks = function.blocks or ((function.block,) if function.block else ())
    title = f"{comment(', '.join(blocks))}: {function.role or 'program'}" if blocks else "The whole program."
    yield Line(f"// {title}", block=function.block, role=function.role)
    start = "void" if is_main else "static void"
    memory = ["char *arena"] if arena or is_main else []
    yield Line(f"{start} {function.name}(", block=function.block, role=function.role)
    every = [*parameters, *memory]
    for place, text in enumerate(every):
        yield Line(f"    {text}{',' if place < len(every) - 1 else ')'}", block=function.block, role=function.role)
    yield Line("{")


def _name(value: Operand) -> str:
    if not isinstance(value, Value):
        return "result"
    return value.name if value.name.startswith("result") else f"{value.name}_result"


def _is_unused(value: Value, function: Function) -> bool:
    return not any(value in one.reads for one in function.statements) and value not in function.outputs


def _input(body: Body, value: Value, is_main: bool) -> str:
    shape = c_shape(value)
    body.forms[value] = Stored(value.name, shape, is_pointer=is_main or bool(shape))
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
    if not array.size:
        return f"{declared};"
    text = _items(array.reshape(shape).tolist(), dtype)
    return f"{declared} = {text};" + (f"  // {dims(shape)}" if shape else "")


def _items(items: Any, dtype: str) -> str:
    """Return nested lists of numbers as a C initializer, with at most 12 items on a line."""
    if not isinstance(items, list):
        return literal(items, dtype)
    texts = [_items(one, dtype) for one in items]
    if not isinstance(items[0], list):
        rows = [", ".join(texts[place : place + 12]) for place in range(0, len(texts), 12)]
        return "{" + ",\n    ".join(rows) + "}"
    return "{" + ",\n    ".join(texts) + "}"
