"""A program that starts at a later stage than Python: as StableHLO, as HLO, or as lowered or compiled by JAX."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from mithril_nb.errors import StageUnavailableError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_versions
from mithril_nb.stages.given import jax_modules, read_artifact
from mithril_nb.stages.given.locations import GivenLines, NamedOperations, OpNames
from mithril_nb.stages.given.read_artifact import text_of_bytecode
from mithril_nb.stages.hlo.stablehlo import result_specs
from mithril_nb.stages.hlo.text import ComputationText, read_module
from mithril_nb.stages.param_names import check_params, which_are_params
from mithril_nb.stages.records import UNATTRIBUTED, Equation, Input
from mithril_nb.stages.stage_kinds import STAGE_KINDS
from mithril_nb.stages.trace.traced import MOVERS
from mithril_nb.stages.trace.tracing import Leaf

_FROM_LOWERED = ("stablehlo", "hlo_before", "hlo", "launches", "mosaic", "llvm", "asm", "sass")
_PRODUCTS = {"dot": "dot_general", "convolution": "conv_general_dilated"}
# For example: params is the argument of params['w'] and of params.w
_ARGUMENT = re.compile(r"[.\[]")
_TOKEN = TensorSpec((), "token")
# First bytes of MLIR bytecode. The bytes of `jax.export` also contain them, those of an HLO module do not.
_BYTECODE = b"ML\xefR"
_LEAST_S, _BYTES_PER_S = 30, 1_000_000
"""Timeout for reading bytecode, in seconds and bytes per second: MLIR never returns on some damaged files."""
Specs = tuple[tuple[str, TensorSpec], ...]
"""Names and specs of arrays."""


@dataclass(frozen=True)
class Given:
    """A program that the user passes in lowered or compiled form, such as StableHLO, instead of as a Python function.

    Attributes:
        name: Name of the program.
        kind: The format, with an article if it needs one: `"StableHLO text"`, `"an exported program"`.
        stages: GivenNames of the stages that can be shown, in order: the form that was passed, and the stages that JAX
            computes from it.
        parameters: Name and spec of each array that it takes.
        results: Name and spec of each array that it returns.
        lowered: The lowered program: a `jax.stages.Lowered` or a `StableHlo`, or HLO before the passes.
        compiled: The compiled program: a `jax.stages.Compiled` or an `HloText`; `None` if JAX compiles it.
        sizes: GivenNames of symbolic sizes, such as `"batch"`. If there are any, XLA cannot compile the program.
        is_fixed: True if the user cannot choose another device for the program.
        lines: Reads the lines of Python from the locations that JAX wrote into the program.
    """

    name: str
    kind: str
    parameters: Specs
    results: Specs = ()
    lowered: Any = None
    compiled: Any = None
    stages: tuple[str, ...] = _FROM_LOWERED
    sizes: tuple[str, ...] = ()
    is_fixed: bool = False
    lines: GivenLines = field(default_factory=GivenLines, compare=False)

    @property
    def is_compiled_here(self) -> bool:
        """Return whether JAX compiles the program: true for StableHLO and `Lowered`, false for HLO and `Compiled`."""
        return "stablehlo" in self.stages

    @property
    def sources(self) -> tuple[str, ...]:
        """GivenNames of the cost sources that need only the stages of this program."""
        source_by_stage = {"hlo_before": "lowered", "hlo": "compiled"}
        return tuple(source for stage, source in source_by_stage.items() if stage in self.stages)

    def reason(self, stage: str) -> str | None:
        """Return why a stage is not available, or `None` if it is.

        Examples:
            >>> Given("step", "HLO text", (), stages=("hlo",)).reason("jaxpr")
            'this program was given as HLO text: it has no jaxpr'
        """
        return None if stage in self.stages else self._reason(stage)

    def _reason(self, stage: str) -> str:
        return f"this program was given as {self.kind}: it has no {_described(stage)}"

    def error(self, stage: str = "jaxpr", *, is_of_costs: bool = False) -> StageUnavailableError:
        """Build the error raised when the program lacks a stage."""
        costs = f'inspection.cost(source="{self.sources[0]}")  # counts the program as it was given'
        return StageUnavailableError(
            f"program {self.name!r} has no {_described(stage)}.",
            (("reason", self._reason(stage)),),
            costs if is_of_costs else self.first_shown,
        )

    @property
    def first_shown(self) -> str:
        """Code that shows the first stage, for the advice of an error."""
        return f'inspection.stage("{self.stages[0]}")  # the first stage of this program'

    @property
    def advice_to_compile(self) -> str:
        """Advice for a program that does not compile: pass sizes that are numbers, if some are symbolic."""
        return "ml.inspect(exported.call, *arrays)  # arrays of fixed sizes" if self.sizes else self.first_shown

    @property
    def outputs(self) -> tuple[Leaf, ...]:
        """The arrays that the program returns."""
        return tuple(Leaf(name, "result", spec) for name, spec in self.results)

    def names(self, params: Sequence[str]) -> GivenNames:
        """Return the `GivenNames` of the program; see `check_params` for `params`."""
        arguments, names = self._arguments, [name for name, _ in self.parameters]
        rows = zip(self.parameters, arguments, which_are_params(arguments, names, params), strict=True)
        return GivenNames(
            tuple(
                Input(name, spec, UNATTRIBUTED, is_param, argument=argument)
                for (name, spec), argument, is_param in rows
            )
        )

    def check_params(self, params: Sequence[str]) -> None:
        """Raise an `UnknownOptionError` if a name in the option `params` is neither an argument nor a part of one."""
        arguments = list(dict.fromkeys(self._arguments))
        check_params(self.name, arguments, [name for name, _ in self.parameters], params)

    @property
    def _arguments(self) -> list[str]:
        return [_ARGUMENT.split(name, maxsplit=1)[0] for name, _ in self.parameters]


def _described(stage: str) -> str:
    return "record of how XLA compiled it" if stage == "compile" else STAGE_KINDS[stage].description


class GivenNames:
    """The inputs and equations of a `Given`, with the attributes of a traced `Program` that reading a stage needs."""

    def __init__(self, inputs: tuple[Input, ...]):
        self.inputs = inputs
        self.tags = OpNames()
        self.by_id: Mapping[str, Equation] = NamedOperations()

    def contractions_behind(self, opcode: str, id: str) -> tuple[str, ...]:
        """Return the name of the matrix product or convolution that an HLO instruction computes."""
        # If XLA merges a transpose into a product, the instruction may keep only the name of the transpose. Then the
        # result is a tuple with the name that JAX gave the product; otherwise it is `()`.
        around, slash, primitive = id.rpartition("/")
        return (f"{around}/{_PRODUCTS[opcode]}",) if slash and opcode in _PRODUCTS and primitive in MOVERS else ()


def given_of_lowered(lowered: jax.stages.Lowered) -> Given:
    """Return a `Given` for the result of `jax.jit(f).lower(x)`."""
    module = lowered.compiler_ir()
    name, sizes = _title(jax_modules.name_of(module)), _sizes(lowered.in_avals)
    return Given(name, "a jax.stages.Lowered", *_entry_of(module), lowered, sizes=sizes, is_fixed=True)


def given_of_compiled(compiled: jax.stages.Compiled) -> Given:
    """Return a `Given` for the result of `jax.jit(f).lower(x).compile()`."""
    # Not every platform gives the text of its executables.
    text = compiled.as_text() or ""
    title, specs, results = _entry_of_hlo(*read_module(text))
    kind = "a jax.stages.Compiled"
    return Given(_title(title), kind, specs, results, compiled=compiled, stages=("hlo",), is_fixed=True)


def given_of_exported(exported: jax.export.Exported, device: Any = None) -> Given:
    """Return a `Given` for the result of `jax.export`."""
    text = text_of_bytecode(exported.mlir_module_serialized)
    return _of_exported(text, exported.fun_name, exported.platforms, _sizes(exported.in_avals), device)


def given_of_serialized(data: bytes, device: Any = None) -> Given:
    """Return a `Given` for serialized bytes: from `jax.export`, StableHLO as MLIR bytecode, or an HLO module."""
    if _BYTECODE not in data:
        return given_of_hlo(data)
    if data.startswith(_BYTECODE):
        return replace(given_of_stablehlo(_read_apart(data, "bytecode")["text"], device=device), kind="MLIR bytecode")
    fields = _read_apart(data, "exported")
    # The other process sends symbolic sizes as text, so parse them.
    sizes = jax.export.symbolic_shape(",".join(fields["sizes"])) if fields["sizes"] else ()
    names = jax_versions.names_of_sizes([sizes])
    return _of_exported(fields["text"], fields["name"], fields["platforms"], names, device)


def _of_exported(text: str, name: str, platforms: Sequence[str], sizes: tuple[str, ...], device: Any) -> Given:
    lowered = jax_modules.StableHlo(text, device, platforms)
    return Given(name, "an exported program", *_entry_of(lowered.module), lowered, sizes=sizes)


def _read_apart(data: bytes, kind: str) -> dict[str, Any]:
    # MLIR may abort the process that reads damaged bytes, or never return.
    # `-P` keeps the folder of the script off `sys.path`, where its files would hide installed modules.
    command = [sys.executable, "-P", read_artifact.__file__, kind]
    # Reading needs no accelerator, which this process may have reserved for itself.
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    longest_s = _LEAST_S + len(data) // _BYTES_PER_S
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=longest_s, env=environment)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"reading the data takes longer than {longest_s} s; the data may be damaged") from error
    if done.returncode != 0:
        raise ValueError(f"the process that reads the data ended with status {done.returncode}; it may be damaged")
    reply = json.loads(done.stdout)
    if "error" in reply:
        raise ValueError(reply["error"])
    return reply


def given_of_stablehlo(text: str, name: str = "", device: Any = None) -> Given:
    """Return a `Given` for a StableHLO text."""
    lowered = jax_modules.StableHlo(text, device)
    return Given(name or _title(lowered.name), "StableHLO text", *_entry_of(lowered.module), lowered)


def given_of_hlo(module: str | bytes, name: str = "") -> Given:
    """Return a `Given` for an HLO text or a serialized HLO module, before or after XLA's passes."""
    read = jax_modules.HloText(module)
    kind = "HLO text" if isinstance(module, str) else "a serialized HLO module"
    title, computations = read_module(read.as_text())
    title, specs, results = _entry_of_hlo(title, computations)
    lines = [line for computation in computations for line in computation.lines]
    # XLA has read the text. A newer XLA may print it in a form that is not known here.
    unreadable = next((line.strip() for line in lines if isinstance(line, str)), None)
    if unreadable is not None or len(lines) != read.instruction_count:
        raise ValueError(unreadable or f"XLA reads {read.instruction_count} instructions, mithril_nb {len(lines)}")
    name = name or _title(title)
    if read.is_optimized:
        return Given(name, kind, specs, results, compiled=read, stages=("hlo",), is_fixed=True)
    kind += " before XLA's passes"
    return Given(name, kind, specs, results, read, stages=("hlo_before",), is_fixed=True)


def _entry_of_hlo(title: str, computations: Sequence[ComputationText]) -> tuple[str, Specs, Specs]:
    entry = next((computation for computation in computations if computation.is_entry), None)
    lines = entry.instructions if entry else []
    results = next((line.specs for line in lines if line.is_root), ())
    lines = [line for line in lines if line.opcode == "parameter"]
    # The order of parameters in the text may differ from the order of the arguments.
    lines.sort(key=lambda line: int(line.literal) if line.literal.isdigit() else 0)
    parameters = tuple((line.op_name or line.name, line.specs[0] if line.specs else _TOKEN) for line in lines)
    named = tuple(zip(_result_names(len(results)), results, strict=True))
    return title.removeprefix("HloModule").strip(), parameters, named


def _entry_of(module: Any) -> tuple[Specs, Specs]:
    """Return the name and spec of each parameter and result of `@main` of a StableHLO module."""
    # Parameters without a name are called `arg_0`, `arg_1`, ... A result without a name is called `result`, or
    # `result[0]`, `result[1]`, ... if there are several.
    parameters, results = jax_modules.arrays_of(module)
    numbered = [f"arg_{index}" for index in range(len(parameters))]
    return _specs(parameters, numbered), _specs(results, _result_names(len(results)))


def _specs(arrays: Sequence[tuple[str, str]], numbered: Sequence[str]) -> Specs:
    return tuple(
        (name or otherwise, next(iter(result_specs(f" : {kind}")), _TOKEN))
        for (name, kind), otherwise in zip(arrays, numbered, strict=True)
    )


def _result_names(count: int) -> list[str]:
    return ["result"] if count == 1 else [f"result[{index}]" for index in range(count)]


def _sizes(avals: Any) -> tuple[str, ...]:
    return jax_versions.names_of_sizes(aval.shape for aval in jax.tree.leaves(avals) if hasattr(aval, "shape"))


def _title(module: str) -> str:
    return module.removeprefix("jit_") or "program"
