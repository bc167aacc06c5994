"""Return an inspection as plain data, described by `schema.json`, and save it in several file formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import jax

from mithril_nb.atomic_write import write_text
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
    if passes or needs_compile(stages):
        inspection.want(machine_code=has_machine_code(stages), passes=passes)
    made = _passes_data(inspection) if passes else {}
    found: dict[str, Any] = {
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
        found["equations"] = [equation_data(one) for one in known_equations(inspection)]
    except StageUnavailableError:
        return found  # the stages state the reason
    found["inputs"] = [
        {"name": one.name, "spec": spec_data(one.spec), "block": one.block, "is_param": one.is_param}
        for one in inspection.inputs
    ]
    found["outputs"] = [{"name": one.name, "spec": spec_data(one.spec)} for one in inspection.outputs]
    found |= made
    if "hlo" in stages:
        try:
            found["buffers"] = [asdict(one) for one in inspection.buffers]
        except StageUnavailableError as error:
            found["buffers_unavailable"] = str(error)
    return found


def _passes_data(inspection: ProgramStages) -> dict[str, Any]:
    """Return a dict with the passes, or with the reason why they are unavailable."""
    try:
        names = ("number", "name", "pipeline", "before", "after")
        return {"passes": [{name: getattr(one, name) for name in names} for one in inspection.passes]}
    except StageUnavailableError as error:
        return {"passes_unavailable": str(error)}


def stage_data(stage: Stage) -> dict[str, Any]:
    """Return a stage as plain data."""
    return {
        "name": stage.name,
        "text": stage.text,
        "unavailable": stage.unavailable,
        "elapsed_s": stage.elapsed_s,
        "instructions": [instruction_data(one) for one in stage.instructions],
    }


def instruction_data(one: Instruction) -> dict[str, Any]:
    """Return an instruction as plain data.

    Examples:
        >>> data = instruction_data(Instruction("dot.3", "dot", 4, ("12",), (("net", 1.0),), "forward", "tagged"))
        >>> data["blocks"], data["equations"]
        ({'net': 1.0}, ['12'])
    """
    return {
        "id": one.id,
        "opcode": one.opcode,
        "line": one.line,
        "lines": one.lines,
        "equations": list(one.equations),
        "blocks": dict(one.shares),
        "role": one.role,
        "origin": one.origin,
        "operands": list(one.operands),
        "shapes": [spec_data(spec) for spec in one.shapes],
        "attributes": dict(one.attributes),
        "transforms": list(one.transforms),
        "source": list(one.source),
        "library_source": list(one.library_source),
        **{name: list(values) for name in FLOWS if (values := getattr(one, name))},
    }


FLOWS = ("picks", "results", "carried")
"""Attributes of instructions that are left out if they are empty, because nearly all are."""


def equation_data(one: Equation) -> dict[str, Any]:
    """Return an equation as plain data."""
    data = asdict(one)
    data["inputs"] = [spec_data(spec) for spec in one.inputs]
    data["outputs"] = [spec_data(spec) for spec in one.outputs]
    data["params"] = {name: _plain(value) for name, value in one.params}
    data["constants"] = [_plain(value) for value in one.constants]
    return data


def _plain(value: Param) -> Any:
    """Return a value as JSON can store it: NaN and infinities become strings."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
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

    Raises:
        UnknownOptionError: The suffix is invalid.

    Examples:
        >>> @exporter(".names")
        ... def names(inspection):
        ...     return " ".join(inspection.stages)
        >>> _ = _EXPORTERS.pop(".names")
    """
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
    suffix = Path(path).suffix.lower()
    if suffix not in _EXPORTERS:
        near = nearest(suffix, list(_EXPORTERS)) or ".svg"
        raise UnknownOptionError(
            f"cannot save {str(path)!r}: no file format has the suffix {suffix!r}.",
            (("known", ", ".join(sorted(_EXPORTERS))),),
            f"inspection.save({str(Path(path).with_suffix(near))!r})",
        )
    text = _EXPORTERS[suffix](inspection)
    try:
        write_text(path, text)
    except OSError as error:
        raise ModelFileError(
            f"cannot write {str(path)!r}.",
            (("because", error.strerror or str(error)),),
            f'inspection.save("inspection{suffix}")',
        ) from error
    return Path(path)
