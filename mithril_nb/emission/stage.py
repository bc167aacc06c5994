"""Emitted source as stages: `inspection.stage("numpy")`, with lines that are linked to every other stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mithril_nb.stages.records import Equation, Input, Instruction, Read
from mithril_nb.stages.stage_kinds import register_stage

if TYPE_CHECKING:
    from mithril_nb.emission.source import Line, Source


def instructions_of(source: Source, by_id: Mapping[str, Equation], inputs: tuple[Input, ...]) -> Read:
    """Return the text of a source, and an instruction for each line that computes equations or assigns an input.

    Args:
        source: The source.
        by_id: The equations of the program, by id.
        inputs: The inputs of the program. A line that assigns the input with index 3 has the id `"arg3"`.
    """
    blocks = {f"arg{place}": one.block for place, one in enumerate(inputs)}
    found = [_instruction(number, line, by_id, blocks) for number, line in enumerate(source.lines, 1) if line.equations]
    return source.text, tuple(found)


def _instruction(number: int, line: Line, by_id: Mapping[str, Equation], blocks: Mapping[str, str]) -> Instruction:
    records = [by_id[id] for id in line.equations if id in by_id]
    counts = Counter([one.block for one in records if one.block])
    if not records:
        counts = Counter([block for id in line.equations if (block := blocks.get(id, ""))])
    total = sum(counts.values())
    return Instruction(
        f"line{number}",
        line.opcode or "parameter",
        number,
        line.equations,
        tuple([(block, count / total) for block, count in counts.items()]),
        line.role,
        next((one.origin for one in records if one.origin), None) or ("inferred" if counts else None),
        source=tuple(dict.fromkeys(one.source_lines for one in records if one.source)),
        library_source=tuple(dict.fromkeys(one.library_source for one in records if one.library_source)),
    )


def _read(pipeline: Any, library: Any) -> Read:
    from mithril_nb.emission.arrays.emitter import emit_arrays  # needs JAX; the command line only reads the names

    program = pipeline.program.get()
    return instructions_of(emit_arrays(program, library), program.by_id, program.inputs)


for _library, _title in {"numpy": "NumPy", "torch": "PyTorch", "mlx": "MLX"}.items():
    register_stage(_library, _title, "trace", language="python", is_optional=True)(partial(_read, library=_library))


@register_stage("c", "C", "trace", language="c", is_optional=True)
def c_stage(pipeline: Any) -> Read:
    """Return the program as C."""
    from mithril_nb.emission.c.emit import emit  # needs JAX; the command line only reads the names

    program = pipeline.program.get()
    return instructions_of(emit(program).source, program.by_id, program.inputs)


@register_stage("ggml", "GGML", "trace", language="python", is_optional=True)
def ggml_stage(pipeline: Any) -> Read:
    """Return the program as Python that builds a GGML graph."""
    from mithril_nb.emission.ggml.emitter import emit_ggml  # needs JAX; the command line only reads the names

    program = pipeline.program.get()
    return instructions_of(emit_ggml(program), program.by_id, program.inputs)
