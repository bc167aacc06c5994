"""The code of Pallas kernels for TPUs, in Mosaic: the dialects of MLIR that the TPU compiler takes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from mithril_nb.stages.given.jax_modules import mosaic_text
from mithril_nb.stages.records import Equation, Instruction, Read
from mithril_nb.stages.trace.provenance.scopes import Marks
from mithril_nb.stages.xla.kernels import line_of

_CALL = re.compile(r'^ *(?:ROOT )?%?(\S+) = .*custom_call_target="tpu_custom_call".*"body":"([^"]*)"', re.MULTILINE)
_NO_KERNELS = "this program has no Pallas kernel"
# For example: %3 = tpu.matmul %0, %2, or "tpu.trace_start"() <{level = 10 : i32, message = "mnb#2~"}>
_OP = re.compile(r'\s*(?:%[^=]* = )?"?([a-z]\w*(?:\.\w+)+)')
_SCOPE = re.compile(r'"tpu\.trace_(?:stop|start.*message = "([^"]*)")')
_NAME = re.compile(r"func\.func @(\S+)\(.*tpu\.core_type")


def read_mosaic(module: str, hlo: Iterable[Instruction], tags: Marks, equations: Mapping[str, Equation]) -> Read:
    """Return the code of all Pallas kernels as the text of a stage, and its instructions.

    Args:
        module: The text of the optimized HLO, with configurations.
        hlo: The instructions of the stage `"hlo"`.
        tags: Finds tags in names.
        equations: The equations of the program by id.
    """
    bodies = dict(_CALL.findall(module))
    calls = [instruction for instruction in hlo if instruction.id in bodies]
    if not calls:
        raise LookupError(_NO_KERNELS)
    printed: list[str] = []
    rows: list[Instruction] = []
    for call in calls:
        text = mosaic_text(base64.b64decode(bodies[call.id]))
        lines = [*_in_scopes(text.splitlines(), tags)]
        name = _NAME.search(text)
        printed.append(f"// {call.id}: kernel {name[1] if name else ''}".rstrip())
        head = replace(call, opcode="kernel", line=len(printed), lines=len(lines) + 1, operands=(), attributes=())
        rows.append(head)
        own = [id for id in call.equations if id in equations and equations[id].primitive == "pallas_call"][-1:]
        for number, (line, path) in enumerate(lines):
            if operation := _OP.match(line):
                equation = equations.get(".".join((*own, *path))) if path else None
                rows.append(line_of(_of_equation(head, equation), number, operation[1]))
        printed += [line for line, _ in lines] + [""]
    return "\n".join(printed), tuple(rows)


def _in_scopes(lines: Iterable[str], tags: Marks) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each line with the tags of the scopes around it, the outermost first; not the lines that open our scopes.

    JAX lowers a named scope inside of a kernel, and so a tag, to a pair of operations.
    """
    scopes: list[tuple[str, ...]] = []
    for line in lines:
        scope = _SCOPE.search(line)
        path = ()
        if scope and scope[1] is not None:
            scopes.append(path := tags.path(scope[1]))
        elif scope and scopes:
            path = scopes.pop()
        if not path:
            yield line, tuple(mark for scope in scopes for mark in scope)


def _of_equation(head: Instruction, equation: Equation | None) -> Instruction:
    if equation is None:
        return head
    return replace(
        head, equations=(equation.id,), shares=equation.shares or head.shares, role=equation.role or head.role,
        transforms=equation.transforms, source=(equation.source_lines,) if equation.source else (),
        library_source=(equation.library_source,) if equation.library_source else (),
    )  # fmt: skip
