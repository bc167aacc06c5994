"""Emitted source as stages: `inspection.stage("numpy")`, with lines that are linked to every other stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mithril_nb.stages.records import Equation, Input, Instruction, Read
from mithril_nb.stages.stage_kinds import register_stage

if TYPE_CHECKING:
    from mithril_nb.emission.source import Source, SourceLine


def instructions_of(source: Source, by_id: Mapping[str, Equation], inputs: tuple[Input, ...]) -> Read:
    """Return the text of a source, and an instruction for each line that computes equations or assigns an input.

    Args:
        source: The source.
        by_id: The equations of the program, by id.
        inputs: The inputs of the program. A line that assigns the input with index 3 has the id `"arg3"`.
    """
    blocks = {f"arg{index}": leaf.block for index, leaf in enumerate(inputs)}
    lines = enumerate(source.lines, 1)
    return source.text, tuple([_instruction(number, line, by_id, blocks) for number, line in lines if line.equations])


def _instruction(
    number: int, line: SourceLine, by_id: Mapping[str, Equation], blocks: Mapping[str, str]
) -> Instruction:
    records = [by_id[id] for id in line.equations if id in by_id]
    # A line of a function that several blocks share belongs to each of them in parts.
    paths = [record.block for record in records] or [blocks.get(id, "") for id in line.equations]
    counts = Counter(filter(None, paths))
    return Instruction(
        f"line{number}",
        line.opcode or "parameter",
        number,
        line.equations,
        tuple([(block, count / counts.total()) for block, count in counts.items()]),
        line.role,
        next((record.origin for record in records if record.origin), None) or ("inferred" if counts else None),
        source=tuple(dict.fromkeys(record.source_lines for record in records if record.source)),
        library_source=tuple(dict.fromkeys(record.library_source for record in records if record.library_source)),
    )


def _read(pipeline: Any, name: Any) -> Read:
    # The emitters need JAX; the command line only reads the names of the stages.
    from mithril_nb.emission.arrays.emitter import emit_arrays
    from mithril_nb.emission.c.emit import emit
    from mithril_nb.emission.ggml.emitter import emit_ggml

    program = pipeline.program.get()
    if name == "c":
        source = emit(program).source
    else:
        source = emit_ggml(program) if name == "ggml" else emit_arrays(program, name)
    return instructions_of(source, program.by_id, program.inputs)


for _name, _title in {"numpy": "NumPy", "torch": "PyTorch", "mlx": "MLX", "c": "C", "ggml": "GGML"}.items():
    _language = "c" if _name == "c" else "python"
    register_stage(_name, _title, "trace", language=_language, is_optional=True)(partial(_read, name=_name))
