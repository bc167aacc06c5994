"""The differences between two models or programs: blocks, connections, stages line by line, and costs by block.

A side is a model, a program at its stages, or both; it is read from a value or a file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import jax

from mithril_nb.analysis.compare.blocks import (
    BlockChange,
    BlockInfo,
    blocks_of_graph,
    blocks_of_stage,
    changes_of_blocks,
    connections_of,
    match_blocks,
)
from mithril_nb.analysis.compare.devices import DeviceComparison, device_name
from mithril_nb.analysis.compare.stages import StageComparison, compare_stages
from mithril_nb.compilation import PhysicalModel, graph_of
from mithril_nb.cost.comparison import CostComparison
from mithril_nb.cost.costs import Cost, compared, of_equations
from mithril_nb.cost.counting import SOURCES
from mithril_nb.cost.equations import SymbolicProgram
from mithril_nb.display import Shown, draw, finite
from mithril_nb.errors import ModelFileError, StageUnavailableError, UnknownOptionError, listed, nearest, short_repr
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.hardware import Device
from mithril_nb.inspection import Inspection
from mithril_nb.inspection.saved import SavedInspection, is_saved_inspection, read_json, saved_inspection
from mithril_nb.models import Model, load
from mithril_nb.stages.records import Instruction, Stage
from mithril_nb.stages.stage_kinds import STAGE_KINDS, has_machine_code
from mithril_nb.targets import inspect

NEEDS = "a model, an inspection, a stage, the path of a saved file, or anything that ml.inspect accepts"


@dataclass(frozen=True)
class ComparedSide:
    """One side of a comparison.

    Attributes:
        name: Name of the model or program.
        jax: Version of JAX that made the stages; `""` without stages.
        graph: The logical graph of a model; `None` if the side is not a model.
        names: Names of the stages, in order; empty for a model without shapes.
        sources: The sources by which the cost can be counted, such as `"analytic"`.
        stage: A function that returns a stage by name; it is computed on first use.
        cost: A function that returns the cost of the program by one of `sources`; `None` without sources.
        is_quick: A function that returns whether a stage needs only a trace, or is computed already.
    """

    name: str
    jax: str = ""
    graph: LogicalGraph | None = field(default=None, repr=False)
    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    stage: Callable[[str], Stage] = field(default=lambda name: Stage(name, ""), repr=False, compare=False)
    cost: Callable[[str], Cost] | None = field(default=None, repr=False, compare=False)
    is_quick: Callable[[str], bool] = field(default=lambda name: True, repr=False, compare=False)

    @property
    def described(self) -> str:
        """Name of the side and names of its stages, for errors."""
        return f"{self.name!r}: {f'stages {listed(self.names)}' if self.names else 'a model without shapes'}"

    def to_dict(self) -> dict[str, Any]:
        """Return name, version of JAX and names of the stages."""
        return {"name": self.name, "jax": self.jax, "stages": list(self.names)}


def side_of(value: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> ComparedSide:
    """Return one side of a comparison.

    `value` is a model, an inspection, a stage, the path of a saved file, or a target of `ml.inspect`. A target is
    inspected with `args` and `options`.
    """
    has_call = bool(args or options)
    if isinstance(value, str | os.PathLike) and str(value).lower().endswith(".json"):
        return replace(side_of(_read(Path(value)), args, options), name=Path(value).name)
    if isinstance(value, Inspection | SavedInspection | Stage):
        if has_call:
            parts = ", ".join([f"{len(args)} arguments"] * bool(args) + [f"{name}=" for name in options])
            raise UnknownOptionError(
                f"{type(value).__name__} {value.name!r} takes no arguments or options: its shapes are known.",
                (("given", parts),),
                "ml.compare(a, b)",
            )
        return _side_of_program(value)
    if isinstance(value, Model | LogicalGraph | Block | PhysicalModel):
        graph = value.graph if isinstance(value, PhysicalModel) else graph_of(value)
        name = str(getattr(value, "name", "") or getattr(value, "kind", "") or "model")
        if not (has_call or isinstance(value, PhysicalModel)):
            return ComparedSide(name, graph=graph)
        program = _side_of_program(inspect(value, *args, **options))
        return replace(program, name=name, graph=graph)
    # `inspect` would report these as programs that cannot be inspected, without the advice for comparisons.
    if value is None or isinstance(value, bool | int | float | list | tuple | dict | set):
        raise UnknownOptionError(
            f"cannot compare {short_repr(value)}.",
            (("needs", NEEDS), ("given", type(value).__name__)),
            "ml.compare(ml.inspect(before, x), ml.inspect(after, x))",
        )
    return _side_of_program(inspect(value, *args, **options))


def _read(path: Path) -> Model | SavedInspection:
    data = read_json(path)
    if not is_saved_inspection(data):
        return load(path)
    try:
        return saved_inspection(data)
    except ModelFileError as error:
        (problem,) = error.diagnostics
        raise type(error)(replace(problem, facts=(("file", str(path)), *problem.facts))) from error


def _side_of_program(value: Inspection | SavedInspection | Stage) -> ComparedSide:
    if isinstance(value, Stage):
        return ComparedSide(value.name, jax.__version__, names=(value.name,), stage=lambda _: value)
    if isinstance(value, SavedInspection):
        # A saved file has equations, so its cost is counted by the rules of this version.
        program = SymbolicProgram(value.name, value.equations, value.inputs)
        return ComparedSide(
            value.name,
            value.jax,
            names=tuple(value.stages),
            sources=SOURCES[:1] if value.equations else (),
            stage=value.stages.__getitem__,
            cost=lambda _: of_equations(program.costs(), program),
        )
    return ComparedSide(
        value.name,
        jax.__version__,
        names=tuple(value.stages if value.given is None else value.given.stages),
        sources=SOURCES if value.given is None else value.given.sources,
        stage=value.stage,
        cost=value.cost,
        is_quick=lambda name: STAGE_KINDS[name].needs == "trace" or value.has_stage(name),
    )


# Stages whose instructions name their blocks, the best first.
_FIRST = ("jaxpr", "stablehlo", "hlo_before", "hlo")
# The stage that lists the kind of each block.
_KINDS = "graph"


@dataclass(frozen=True)
class Connections:
    """The connections that only one of two models has, such as `"linear_0.output -> relu_0.input"`.

    A renamed block has its new name in both lists.

    Attributes:
        added: Connections only on the right.
        removed: Connections only on the left.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison(Shown):
    """The differences between two models or programs; `ml.compare` returns it.

    Stages and costs are compared on first use and cached.

    Attributes:
        before: The left side: its name, its version of JAX and the names of its stages.
        after: The right side.
    """

    before: ComparedSide
    after: ComparedSide
    _stages: dict[str, StageComparison] = field(default_factory=dict[str, StageComparison], repr=False, compare=False)

    @cached_property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages that both sides have, in order."""
        return tuple(name for name in self.before.names if name in self.after.names)

    # Cached at the first access: a stage that is computed later would change `is_same` of the same comparison.
    @cached_property
    def quick_stages(self) -> tuple[str, ...]:
        """Names of the stages that both sides have without compiling: they need only a trace, or are computed already.

        Machine code is never among them. The names do not change after the first access.
        """
        sides = self.before, self.after
        quick = [name for name in self.stages if all(side.is_quick(name) for side in sides)]
        return tuple(name for name in quick if not has_machine_code([name]))

    @cached_property
    def has_models(self) -> bool:
        """True if both sides are models, so that options and connections are compared."""
        return self.before.graph is not None and self.after.graph is not None

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """A dict from the path of each block on the left to the path of its counterpart on the right.

        `""` is the model itself. Blocks without a counterpart are left out.
        """
        return match_blocks(*self._blocks)

    @cached_property
    def blocks(self) -> tuple[BlockChange, ...]:
        """The blocks that differ: added, removed, changed, renamed or moved."""
        return changes_of_blocks(*self._blocks, self.paths, self._instructions_by_block())

    @cached_property
    def connections(self) -> Connections:
        """The connections that only one of the two models has; no connections if a side is not a model."""
        if self.before.graph is None or self.after.graph is None:
            return Connections()
        left = connections_of(self.before.graph, self.paths)
        right = connections_of(self.after.graph, {path: path for path in self.paths.values()})
        return Connections(
            tuple(connection for connection in right if connection not in left),
            tuple(connection for connection in left if connection not in right),
        )

    def stage(self, name: str) -> StageComparison:
        """Return the differences of one stage, line by line; they are computed on first use.

        Args:
            name: One of `stages`.
        """
        if not self.stages:
            raise UnknownOptionError(
                f"models without shapes have no stage {name!r}.", (), 'ml.compare(a, b, shapes={"input": [32, 784]})'
            )
        if name not in self.stages:
            raise UnknownOptionError(
                f"the stage {name!r} is not on both sides of the comparison.",
                (("before", self.before.described), ("after", self.after.described)),
                f"comparison.stage({nearest(name, self.stages) or self.stages[0]!r})",
            )
        if name not in self._stages:
            self._stages[name] = compare_stages(self.before.stage(name), self.after.stage(name), self.paths)
        return self._stages[name]

    @property
    def cost(self) -> CostComparison | None:
        """The change of the cost, by block and in total; `None` if not available.

        Both sides are counted in the same way: `"analytic"` if possible, else `"lowered"` or `"compiled"`. A renamed
        block is listed once, by its path on the right.
        """
        return self._counted[0]

    @property
    def cost_unavailable(self) -> str:
        """The reason why `cost` is `None`; else `""`."""
        return self._counted[1]

    @cached_property
    def _counted(self) -> tuple[CostComparison | None, str]:
        if not (self.before.names and self.after.names):
            return None, "costs need the shapes of the inputs, as in ml.compare(a, b, shapes={...})"
        before, after = self.before.cost, self.after.cost
        if before is None or after is None or not (self.before.sources and self.after.sources):
            return None, "costs need equations on both sides; a single stage and some saved files have none"
        # Sources are listed from the cheapest to the most expensive, so programs are compiled only if one has no
        # equations.
        source = next((name for name in self.before.sources if name in self.after.sources), None)
        if source is None:
            sides = (
                f"{word}: {listed(side.sources)}" for word, side in (("before", self.before), ("after", self.after))
            )
            return None, f"the two sides have costs of different sources ({'; '.join(sides)})"
        try:
            return compared(before(source), after(source), self.paths), ""
        except StageUnavailableError as error:
            return None, f"costs are not available: {error.diagnostics[0].summary}"

    @cached_property
    def is_same(self) -> bool:
        """True if blocks, connections and the lines of `quick_stages` are equal.

        The stages `"python"` and `"graph"` are not compared.
        """
        is_equal = not self.blocks and self.connections == Connections()
        return is_equal and all(
            self.stage(name).is_same for name in self.quick_stages if name not in ("python", "graph")
        )

    @cached_property
    def first_stage(self) -> str | None:
        """Name of the stage whose instructions are compared block by block; `None` without a common stage.

        This is the jaxpr if both sides have it, else StableHLO, else HLO, else the first common stage. Models without
        shapes have no stages.
        """
        names = [name for name in (*_FIRST, *self.stages) if name in self.stages]
        sides = self.before, self.after
        return next((name for name in names if all(side.stage(name).unavailable is None for side in sides)), None)

    @cached_property
    def _blocks(self) -> tuple[dict[str, BlockInfo], dict[str, BlockInfo]]:
        return self._blocks_of(self.before), self._blocks_of(self.after)

    def _blocks_of(self, side: ComparedSide) -> dict[str, BlockInfo]:
        of_model = blocks_of_graph(side.graph) if self.has_models and side.graph is not None else {}
        if self.first_stage is None:
            return of_model
        kinds: dict[str, str] = {}
        if _KINDS in self.stages:
            kinds = {
                instruction.id: instruction.opcode
                for instruction in side.stage(_KINDS).instructions
                if instruction.opcode != "block"
            }
        return blocks_of_stage(side.stage(self.first_stage), kinds, of_model)

    def _instructions_by_block(self) -> dict[str, tuple[str, str, str]]:
        if self.first_stage is None:
            return {}
        stage = self.stage(self.first_stage)
        counts: dict[str, Counter[str]] = {}

        def count(node: Instruction, mark: str, paths: Mapping[str, str] | None = None) -> None:
            # A fusion counts for the block with the largest share, which comes first.
            for path, _ in node.shares[:1]:
                counts.setdefault(path if paths is None else paths.get(path, ""), Counter())[mark] += 1

        for instruction in stage.added:
            count(instruction, "added")
        for instruction in stage.removed:
            count(instruction, "removed", self.paths)
        for _, instruction in stage.changed:
            if instruction.line not in stage.rewired:  # with other operands the connection has changed, not the block
                count(instruction, "changed")
        noun = "equations" if self.first_stage == "jaxpr" else "instructions"
        return {
            path: (noun, "", ", ".join(f"{number} {mark}" for mark, number in some.items()))
            for path, some in counts.items()
            if path
        }

    def to_dict(self, *stages: str) -> dict[str, Any]:
        """Return the comparison as plain data.

        Args:
            *stages: Names of the stages to include; by default `quick_stages`.

        Returns:
            A dict with the keys `"before"`, `"after"`, `"blocks"`, `"connections"`, `"stages"` (a dict from the name of
            each stage to the result of `StageComparison.to_dict`) and `"cost"` (the result of `CostComparison.to_dict`;
            `None` if not available).
        """
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "blocks": [block.to_dict() for block in self.blocks],
            "connections": {name: list(value) for name, value in vars(self.connections).items()},
            "stages": {name: self.stage(name).to_dict() for name in stages or self.quick_stages},
            "cost": None if self.cost is None else self.cost.to_dict(),
        }

    def to_json(self, *stages: str) -> str:
        """Return the comparison as JSON; see `to_dict`."""
        return json.dumps(finite(self.to_dict(*stages)), allow_nan=False)

    def to_html(self, path: str | Path | None = None, stages: Sequence[str] | None = None) -> str:
        """Return an HTML page with both graphs, the stages side by side and the costs.

        The page needs no kernel and no network.

        Args:
            path: The file to write; by default the page is only returned.
            stages: Names of the stages to include; by default all that both sides have, except machine code.

        Examples:
            >>> import mithril_nb as ml
            >>> from mithril_nb.models import Linear
            >>> ml.compare(Linear(3), Linear(4)).to_html()[:15]
            '<!DOCTYPE html>'
        """
        chosen = [name for name in self.stages if not has_machine_code([name])] if stages is None else stages
        for name in chosen:
            self.stage(name)
        return draw(self, "page", path=path, stages=tuple(chosen))

    @property
    def summary(self) -> str:
        """The number of blocks and connections that differ, as a short text.

        Examples:
            >>> import mithril_nb as ml
            >>> from mithril_nb.models import Linear
            >>> ml.compare(Linear(3), Linear(4)).summary
            '1 block changed'
        """
        if self.first_stage is None and not self.has_models:
            return "no stage is available on both sides"
        counts = Counter(block.mark for block in self.blocks)
        parts: list[str] = []
        for mark, number in counts.items():
            word = "" if parts else " block" if number == 1 else " blocks"
            parts.append(f"{number}{word} {mark}")
        wires = len(self.connections.added) + len(self.connections.removed)
        parts += [f"{wires} connection{'' if wires == 1 else 's'} differ{'s' if wires == 1 else ''}"] if wires else []
        if not parts:
            return "no difference" if self.is_same else "same blocks, different instructions"
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"Comparison({self.before.name!r} -> {self.after.name!r}: {self.summary})"


@overload
def compare(a: Inspection, b: Inspection, /, *programs: Inspection) -> Comparison | DeviceComparison: ...


@overload
def compare(a: Any, b: Any, /, *args: Any, **options: Any) -> Comparison: ...


def compare(a: Any, b: Any, /, *args: Any, **options: Any) -> Comparison | DeviceComparison:
    """Compare two models or programs: blocks, connections, every stage line by line, and costs by block. Nothing runs.

    Inspections on different devices, two or more, are compared by their kernels, costs, memory and predicted time:
    `ml.compare(p, p.on("h100"), p.on("v5e"))` returns a `DeviceComparison`. So are inspections on topologies of several
    devices, such as a program and another sharding of it.

    Blocks match by path, then by structure, so that renamed and moved blocks are recognised. Lines of stages match by
    block, role, opcode and position; the names of variables make no difference.

    Args:
        a: The left side: a model, an inspection, a stage (such as one side of a step of `ml.step_through`), the path
            of a file that `inspection.save` or `ml.save` wrote, or any target of `ml.inspect`. A file may come from
            another version of JAX.
        b: The right side: any value that `a` may be.
        *args: Arguments of both sides, as for `ml.inspect`. Without arguments and `shapes`, only the blocks and
            connections of models are compared. For different shapes or dtypes, pass two inspections.
        **options: Options of both sides, as for `ml.inspect`, such as `shapes={"input": [32, 784]}`.

    Returns:
        The differences. They are displayed if the call ends a cell; `to_html` writes them to a file.

    Raises:
        UnknownOptionError: A value cannot be compared; arguments or options are passed for an inspection or a stage,
            which takes none; or both sides have no stage in common.
        ModelFileError: A file cannot be read, or contains neither a model nor an inspection.

    Examples:
        >>> import jax, jax.numpy as jnp, mithril_nb as ml
        >>> from mithril_nb.models import Linear, Model, Relu
        >>> before, after = Model() + Linear(64) + Linear(10), Model() + Linear(64) + Relu() + Linear(10)
        >>> found = ml.compare(before, after)
        >>> [(one.mark, one.path) for one in found.blocks]
        [('added', 'relu_0')]
        >>> x = jax.ShapeDtypeStruct((8,), "float32")
        >>> print(ml.compare(jnp.sin, jnp.cos, x).stage("jaxpr"))
         { lambda
             a:f32[8]  # x
           let
        -    b:f32[8] = sin a
        +    b:f32[8] = cos a
           in (b) }
    """
    programs = [value for value in (a, b, *args) if isinstance(value, Inspection)]
    if len(programs) == len(args) + 2 and not options:
        has_many = all(isinstance(program.device, Device) and program.device.topology for program in programs)
        if has_many or len(set(map(device_name, programs))) > 1:
            return DeviceComparison(programs)
    before = side_of(a, args, options)
    after = side_of(b, args, options)
    comparison = Comparison(before, after)
    if comparison.stages or comparison.has_models:
        return comparison
    facts = tuple((word, side.described) for word, side in (("before", before), ("after", after)))
    if not (before.names and after.names):
        raise UnknownOptionError(
            "cannot compare a model without shapes with a program.",
            facts,
            'ml.compare(ml.inspect(model, shapes={"input": [32, 784]}), other)',
        )
    raise UnknownOptionError(
        "the two programs have no stage in common.", facts, "ml.compare(ml.inspect(a, x), ml.inspect(b, x))"
    )
