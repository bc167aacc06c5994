"""Return an inspection as plain data, described by `schema.json`, and save it in several file formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import jax

from mithril_nb.atomic_write import replacing
from mithril_nb.errors import ModelFileError, StageUnavailableError, UnknownOptionError, nearest, short_repr
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.program_stages import ProgramStages, known_equations
from mithril_nb.stages.records import Equation, Instruction, Param, Stage
from mithril_nb.stages.stage_kinds import has_machine_code, needs_compile

VERSION = 1
"""Version of the data. It increases if an existing field changes its meaning, but not if a field is added."""
Exporter = Callable[..., str]
"""Returns the text of the file, given the inspection."""
Function = TypeVar("Function", bound=Exporter)
_EXPORTERS: dict[str, Exporter] = {}


def inspection_data(inspection: ProgramStages, stages: Sequence[str], passes: bool) -> dict[str, Any]:
    """Return an inspection as plain data, with the given stages, and with the passes of XLA if `passes` is true."""
    if passes or needs_compile(stages):  # before the stages are read one by one: each would compile again
        inspection.want(machine_code=has_machine_code(stages), passes=passes)
    passes_data = _passes_data(inspection) if passes else {}
    data: dict[str, Any] = {
        "format": "mithril_nb.inspection",
        "version": VERSION,
        "name": inspection.name,
        "jax": jax.__version__,
        "stages": [stage_data(inspection.stage(name)) for name in stages],
        "equations": [],
        "inputs": [],
        "outputs": [],
        "passes": [],
        "buffers": [],
        "elapsed": dict(inspection.elapsed),
    }
    try:
        data["equations"] = [equation_data(equation) for equation in known_equations(inspection)]
    except StageUnavailableError:
        return data  # the stages state the reason
    data["inputs"] = [
        {"name": leaf.name, "spec": spec_data(leaf.spec), "block": leaf.block, "is_param": leaf.is_param}
        for leaf in inspection.inputs
    ]
    data["outputs"] = [{"name": output.name, "spec": spec_data(output.spec)} for output in inspection.outputs]
    data |= passes_data
    if "hlo" in stages:
        try:
            data["buffers"] = [asdict(buffer) for buffer in inspection.buffers]
        except StageUnavailableError as error:
            data["buffers_unavailable"] = str(error)
    return data


def _passes_data(inspection: ProgramStages) -> dict[str, Any]:
    try:
        names = ("number", "name", "pipeline", "before", "after")
        return {"passes": [{name: getattr(xla_pass, name) for name in names} for xla_pass in inspection.passes]}
    except StageUnavailableError as error:
        return {"passes_unavailable": str(error)}


def stage_data(stage: Stage) -> dict[str, Any]:
    """Return a stage as plain data."""
    return {
        "name": stage.name,
        "text": stage.text,
        "unavailable": stage.unavailable,
        "elapsed_s": stage.elapsed_s,
        "instructions": [instruction_data(instruction) for instruction in stage.instructions],
    }


def instruction_data(instruction: Instruction) -> dict[str, Any]:
    """Return an instruction as plain data.

    Examples:
        >>> data = instruction_data(Instruction("dot.3", "dot", 4, ("12",), (("net", 1.0),), "forward", "tagged"))
        >>> data["blocks"], data["equations"]
        ({'net': 1.0}, ['12'])
    """
    return {
        "id": instruction.id,
        "opcode": instruction.opcode,
        "line": instruction.line,
        "lines": instruction.lines,
        "equations": list(instruction.equations),
        "blocks": dict(instruction.shares),
        "role": instruction.role,
        "origin": instruction.origin,
        "operands": list(instruction.operands),
        "shapes": [spec_data(spec) for spec in instruction.shapes],
        "attributes": dict(instruction.attributes),
        "transforms": list(instruction.transforms),
        "source": list(instruction.source),
        "library_source": list(instruction.library_source),
        **{name: list(values) for name in FLOWS if (values := getattr(instruction, name))},
    }


FLOWS = ("picks", "results", "carried")
"""Attributes of instructions that are left out if they are empty, because nearly all are."""


def equation_data(equation: Equation) -> dict[str, Any]:
    """Return an equation as plain data."""
    data = asdict(equation)
    data["inputs"] = [spec_data(spec) for spec in equation.inputs]
    data["outputs"] = [spec_data(spec) for spec in equation.outputs]
    data["params"] = {name: _plain(value) for name, value in equation.params}
    data["constants"] = [_plain(value) for value in equation.constants]
    return data


def _plain(value: Param) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    # JSON has neither NaN nor infinity, and they are common constants: the mask of attention is -inf.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def spec_data(spec: TensorSpec) -> dict[str, Any]:
    """Return shape and dtype as plain data."""
    return {"shape": list(spec.shape), "dtype": str(spec.dtype)}


def exporter(suffix: str) -> Callable[[Function], Function]:
    """Return a decorator that registers a file format of `Inspection.save`.

    The decorated function receives an inspection, and returns the text of the file.

    Args:
        suffix: The suffix of the files, with its dot and in lower case: `".csv"`. A second function for the same suffix
            replaces the first.

    Examples:
        >>> @exporter(".names")
        ... def names(inspection):
        ...     return " ".join(inspection.stages)
        >>> _ = _EXPORTERS.pop(".names")
    """
    # For pathlib, the suffix of "a.tar.gz" is ".gz", so `save` would never find it.
    if not isinstance(suffix, str) or not suffix.startswith(".") or Path(f"file{suffix}").suffix != suffix.lower():
        raise UnknownOptionError(
            f"{short_repr(suffix)} is not a valid file suffix.",
            (("needs", "a dot and lower-case letters"),),
            'exporter(".csv")',
        )

    def register(function: Function) -> Function:
        _EXPORTERS[suffix] = function
        return function

    return register


def save(inspection: ProgramStages, path: str | Path) -> Path:
    """Write an inspection to a file in the format of its suffix; see `Inspection.save`."""
    suffix = Path(path).suffix.lower()  # Windows writes .HTML as well
    if suffix not in _EXPORTERS:
        near = nearest(suffix, list(_EXPORTERS)) or ".svg"
        raise UnknownOptionError(
            f"cannot save {str(path)!r}: no file format has the suffix {suffix!r}.",
            (("known", ", ".join(sorted(_EXPORTERS))),),
            f"inspection.save({str(Path(path).with_suffix(near))!r})",
        )
    text = _EXPORTERS[suffix](inspection)  # before the file is opened, so that a failure leaves an old file alone
    return written(path, text.encode(), f'inspection.save("inspection{suffix}")')


def written(path: str | Path, contents: bytes, example: str) -> Path:
    """Write a file; `example` is a call that an error proposes."""
    try:
        with replacing(path) as part:
            part.write_bytes(contents)
    except OSError as error:
        why = error.strerror or str(error)
        raise ModelFileError(f"cannot write {str(path)!r}.", (("because", why),), example) from error
    return Path(path)
