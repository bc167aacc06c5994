"""The kinds of stages that a program has, in order; plugins register more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from mithril_nb.stages.records import Read

Step = Literal["trace", "lower", "compile"]
Maker = Callable[[Any], Read]
"""Computes the text of a stage and its instructions from a `Pipeline`."""
Function = TypeVar("Function", bound=Maker)


@dataclass(frozen=True)
class StageKind:
    """A kind of stage, such as StableHLO.

    Attributes:
        name: Name of the stage, such as `"stablehlo"`.
        title: Short title, on buttons and panes.
        needs: The last step of JAX that the stage needs; `"compile"` may take long.
        description: Title in messages and static pages.
        language: Name of the language of the text in `viz/tokens.json`; `""` for plain text.
        verb: Label while the stage is computed, such as `"Compiling"`.
        needs_numbers: True if every size must be a number: a program with named sizes does not have the stage.
        is_machine_code: True if the stage shows code of kernels, which XLA writes only on request.
        make: Function that `register_stage` registered: it takes a `Pipeline` and returns text and instructions. `None`
            for the eight stages from `"python"` to `"asm"`, each computed by a method of `Pipeline`.
        is_optional: True if the stage is computed only when it is requested by name. `inspection.stages`, pages and
            JSON files do not contain it.
    """

    name: str
    title: str
    needs: Step
    description: str
    language: str
    verb: str
    needs_numbers: bool = False
    is_machine_code: bool = False
    make: Maker | None = None
    is_optional: bool = False

    @property
    def basis(self) -> str:
        """Name of the built-in stage that a program must have for this stage to be computed."""
        return self.name if self.make is None else _FIRST[self.needs]


_BUILT_IN = (
    # name, title, needs, description, language, verb, needs_numbers, is_machine_code
    StageKind("python", "Python", "trace", "Python", "python", "Reading"),
    StageKind("graph", "Graph", "trace", "graph", "graph", "Tracing"),
    StageKind("jaxpr", "jaxpr", "trace", "jaxpr", "jaxpr", "Tracing"),
    StageKind("stablehlo", "StableHLO", "lower", "StableHLO", "mlir", "Lowering"),
    StageKind("hlo_before", "HLO before", "lower", "HLO before optimization", "hlo", "Lowering", True),
    StageKind("hlo", "HLO", "compile", "optimized HLO", "hlo", "Compiling", True),
    StageKind("llvm", "LLVM IR", "compile", "LLVM IR", "llvm", "Compiling", True, True),
    StageKind("asm", "Machine code", "compile", "machine code", "asm", "Disassembling", True, True),
)
STAGE_KINDS: dict[str, StageKind] = {kind.name: kind for kind in _BUILT_IN}
"""All kinds of stages by name, from Python to machine code. `register_stage` adds to them."""
_FIRST = {"trace": "jaxpr", "lower": "stablehlo", "compile": "hlo"}
_VERBS = {"trace": "Tracing", "lower": "Lowering", "compile": "Compiling"}


def title_of(stage: str) -> str:
    """Return the title of a stage in messages and static pages; an unknown name is its own title."""
    return STAGE_KINDS[stage].description if stage in STAGE_KINDS else stage


def language_of(stage: str) -> str:
    """Return the language of the text of a stage; `""` for plain text."""
    return STAGE_KINDS[stage].language if stage in STAGE_KINDS else ""


def has_machine_code(stages: Iterable[str]) -> bool:
    """Return whether any of these stages shows code of kernels."""
    return any(name in STAGE_KINDS and STAGE_KINDS[name].is_machine_code for name in stages)


def needs_compile(stages: Iterable[str]) -> bool:
    """Return whether any of these stages needs a compilation."""
    return any(name in STAGE_KINDS and STAGE_KINDS[name].needs == "compile" for name in stages)


def kinds_of_stages() -> dict[str, list[str]]:
    """Return a dict from the name of each stage to its title, progress label and language, for front ends.

    Examples:
        >>> kinds_of_stages()["asm"]
        ['Machine code', 'Disassembling', 'asm']
    """
    return {name: [kind.title, kind.verb, kind.language] for name, kind in STAGE_KINDS.items()}


def register_stage(
    name: str,
    title: str,
    needs: Step,
    *,
    language: str = "",
    is_machine_code: bool = False,
    is_optional: bool = False,
) -> Callable[[Function], Function]:
    """Register a function that computes a stage. Programs that are inspected later have it as their last stage.

    Args:
        name: Name of the stage. A second function with the same name replaces the first.
        title: Title of the stage, on buttons and panes.
        needs: The last step of JAX that the stage needs: `"trace"`, `"lower"` or `"compile"`.
        language: The language for the colours of the text, such as `"python"`, `"mlir"`, `"hlo"` or `"llvm"`.
        is_machine_code: True if the stage shows code of kernels, which XLA writes only on request.
        is_optional: True to compute the stage only when it is requested by name. `inspection.stages`, pages and
            `to_json()` do not contain it.

    Examples:
        >>> from mithril_nb.inspection import inspect
        >>> @register_stage("opcodes", "Opcodes", "trace")
        ... def opcodes(pipeline):
        ...     names = {one.opcode for one in pipeline.stages["jaxpr"].get().instructions}
        ...     return " ".join(sorted(names)), ()
        >>> inspect(lambda x: x * x + x, 1.0).stage("opcodes").text
        'add mul parameter'
        >>> _ = STAGE_KINDS.pop("opcodes")
    """

    def register(function: Function) -> Function:
        # JAX traces and lowers symbolic sizes; XLA does not compile them.
        numbers = needs == "compile"
        STAGE_KINDS[name] = StageKind(
            name, title, needs, title, language, _VERBS[needs], numbers, is_machine_code, function, is_optional
        )
        return function

    return register
