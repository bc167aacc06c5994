"""The stages that a program has, in order. Plugins register more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from mithril_nb.stages.records import Read

Step = Literal["trace", "lower", "compile"]
Maker = Callable[[Any], Read]
"""A function that takes a `Pipeline` and returns the text and the instructions of a stage."""
Function = TypeVar("Function", bound=Maker)


@dataclass(frozen=True)
class StageKind:
    """A kind of stage, such as StableHLO.

    Attributes:
        name: Name of the stage, such as `"stablehlo"`.
        title: Short title, for buttons and panes.
        needs: What JAX must do before the stage can be computed: `"trace"`, `"lower"` or `"compile"`.
        description: Title for messages and static pages.
        language: Language for syntax colours, as named in `viz/tokens.json`; `""` for plain text.
        verb: Label while the stage is computed, such as `"Compiling"`.
        needs_numbers: True if the stage is not available for a program with symbolic sizes, such as `"batch"`.
        is_machine_code: True if the stage needs the code of the kernels. XLA writes this code only on request.
        make: The function that was registered with `register_stage`; `None` for a built-in stage.
        is_optional: True if the stage is computed only when it is requested by name. `inspection.stages`, pages and
            JSON files do not contain it.
        platforms: The platforms that have the stage; `()` if all have it.
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
    platforms: tuple[str, ...] = ()

    @property
    def basis(self) -> str:
        """Name of the built-in stage that this stage is computed from; a built-in stage's own name."""
        return self.name if self.make is None else _FIRST[self.needs]


NVIDIA = ("cuda", "gpu")
GPUS = (*NVIDIA, "rocm")
"""Platforms of GPUs: as JAX lowers for them, and as it names those of this machine."""
_BUILT_IN = (
    # name, title, needs, description, language, verb, needs_numbers, is_machine_code
    StageKind("python", "Python", "trace", "Python", "python", "Reading"),
    StageKind("graph", "Graph", "trace", "graph", "graph", "Tracing"),
    StageKind("jaxpr", "jaxpr", "trace", "jaxpr", "jaxpr", "Tracing"),
    StageKind("stablehlo", "StableHLO", "lower", "StableHLO", "mlir", "Lowering"),
    StageKind("hlo_before", "HLO before", "lower", "HLO before optimization", "hlo", "Lowering", True),
    StageKind("hlo", "HLO", "compile", "optimized HLO", "hlo", "Compiling", True),
    StageKind("launches", "Launches", "compile", "launches on the GPU", "graph", "Compiling", True, platforms=GPUS),
    StageKind("mosaic", "Mosaic", "compile", "Pallas kernels for TPUs", "mlir", "Compiling", True, platforms=("tpu",)),
    StageKind("llvm", "LLVM IR", "compile", "LLVM IR", "llvm", "Compiling", True, True),
    StageKind("asm", "Machine code", "compile", "machine code", "asm", "Disassembling", True, True),
    StageKind("sass", "SASS", "compile", "SASS", "asm", "Disassembling", True, True, None, True, NVIDIA),
)
STAGE_KINDS: dict[str, StageKind] = {kind.name: kind for kind in _BUILT_IN}
"""All kinds of stages by name, from Python to machine code. `register_stage` adds to them."""
_FIRST = {"trace": "jaxpr", "lower": "stablehlo", "compile": "hlo"}
_VERBS = {"trace": "Tracing", "lower": "Lowering", "compile": "Compiling"}


def stages_on(platform: str) -> tuple[str, ...]:
    """Return the names of the stages of programs for a platform, such as `"cpu"` or `"cuda"`."""
    return tuple(name for name, kind in STAGE_KINDS.items() if not kind.platforms or platform in kind.platforms)


def title_of(stage: str) -> str:
    """Return the title of a stage for messages and static pages; an unknown name is returned unchanged.

    Examples:
        >>> title_of("hlo"), title_of("hlo@h100")
        ('optimized HLO', 'optimized HLO, h100')
    """
    name, _, device = stage.partition("@")
    title = STAGE_KINDS[name].description if name in STAGE_KINDS else name
    return f"{title}, {device}" if device else title


def language_of(stage: str) -> str:
    """Return the language of the text of a stage; `""` for plain text."""
    name = stage.partition("@")[0]
    return STAGE_KINDS[name].language if name in STAGE_KINDS else ""


def has_machine_code(stages: Iterable[str]) -> bool:
    """Return whether one of these stages needs the code of the kernels."""
    return any(name in STAGE_KINDS and STAGE_KINDS[name].is_machine_code for name in stages)


def needs_compile(stages: Iterable[str]) -> bool:
    """Return whether one of these stages needs a compiled program."""
    return any(name in STAGE_KINDS and STAGE_KINDS[name].needs == "compile" for name in stages)


def kinds_of_stages() -> dict[str, list[str]]:
    """Return title, progress label and language of each stage by name, for the front end.

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
    """Return a decorator that registers a function as a new stage.

    The function takes a `Pipeline`, which has the other stages, and returns the text of the new stage and a tuple of
    `Instruction`s. All programs that are inspected from then on have the stage, after the built-in ones.

    Args:
        name: Name of the stage. A second function with the same name replaces the first.
        title: Title of the stage, for buttons and panes.
        needs: What JAX must do before the stage can be computed: `"trace"`, `"lower"` or `"compile"`.
        language: Language for syntax colours, such as `"python"`, `"mlir"`, `"hlo"` or `"llvm"`; `""` for plain text.
        is_machine_code: True if the stage needs the code of the kernels. XLA writes this code only on request.
        is_optional: True to compute the stage only when it is requested by name. `inspection.stages`, pages and
            `to_json()` do not contain it.

    Examples:
        >>> from mithril_nb.inspection import inspect_function as inspect
        >>> @register_stage("opcodes", "Opcodes", "trace")
        ... def list_opcodes(pipeline):
        ...     jaxpr = pipeline.stages["jaxpr"].get()
        ...     names = {instruction.opcode for instruction in jaxpr.instructions}
        ...     return " ".join(sorted(names)), ()
        >>> inspect(lambda x: x * x + x, 1.0).stage("opcodes").text
        'add mul parameter'
        >>> _ = STAGE_KINDS.pop("opcodes")  # undo, because this is only an example
    """

    def register(function: Function) -> Function:
        # JAX traces and lowers symbolic sizes; XLA does not compile them.
        numbers = needs == "compile"
        STAGE_KINDS[name] = StageKind(
            name, title, needs, title, language, _VERBS[needs], numbers, is_machine_code, function, is_optional
        )
        return function

    return register
