"""One side of a comparison: a model, a program at its stages, or both; read from a value or a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax

from mithril_nb.compilation import PhysicalModel, graph_of
from mithril_nb.cost.costs import Cost, of_equations
from mithril_nb.cost.counting import SOURCES
from mithril_nb.cost.symbolic import SymbolicProgram
from mithril_nb.errors import ModelFileError, UnknownOptionError, listed, short_repr
from mithril_nb.graph.records import Block, LogicalGraph
from mithril_nb.inspection import Inspection
from mithril_nb.inspection.saved import SavedInspection, is_saved_inspection, read_json, saved_inspection
from mithril_nb.models import Model, load
from mithril_nb.stages.records import Stage
from mithril_nb.stages.stage_kinds import STAGE_KINDS
from mithril_nb.targets import inspect

NEEDS = "a model, an inspection, a stage, the path of a saved file, or anything that ml.inspect accepts"


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: Name of the model or program.
        jax: Version of JAX that made the stages; `""` without stages.
        graph: The logical graph of a model; `None` if the side is not a model.
        names: Names of the stages, in order; empty for a model without shapes.
        sources: The sources by which the cost can be counted, such as `"analytic"`.
    """

    name: str
    jax: str = ""
    graph: LogicalGraph | None = field(default=None, repr=False)
    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    _stage: Callable[[str], Stage] = field(default=lambda name: Stage(name, ""), repr=False, compare=False)
    _cost: Callable[[str], Cost] | None = field(default=None, repr=False, compare=False)
    _is_quick: Callable[[str], bool] = field(default=lambda name: True, repr=False, compare=False)

    @property
    def described(self) -> str:
        """Name of the side and names of its stages, for errors."""
        return f"{self.name!r}: {f'stages {listed(self.names)}' if self.names else 'a model without shapes'}"

    def is_quick(self, name: str) -> bool:
        """Return whether a stage needs only a trace, or is computed already."""
        return self._is_quick(name)

    def stage(self, name: str) -> Stage:
        """Return a stage; it is computed on first use."""
        return self._stage(name)

    def cost(self, source: str) -> Cost:
        """Return the cost of the program by one of `sources`.

        Raises:
            StageUnavailableError: The program cannot be traced, lowered or compiled.
        """
        assert self._cost is not None
        return self._cost(source)

    def to_dict(self) -> dict[str, Any]:
        """Return name, version of JAX and names of the stages."""
        return {"name": self.name, "jax": self.jax, "stages": list(self.names)}


def side_of(value: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Side:
    """Return one side of a comparison.

    `value` is a model, an inspection, a stage, the path of a saved file, or a target of `ml.inspect`. A target is
    inspected with `args` and `options`.

    Raises:
        UnknownOptionError: The value cannot be compared, or `args` or `options` are passed with an inspection or a
            stage.
        ModelFileError: The file cannot be read.
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
            return Side(name, graph=graph)
        program = _side_of_program(inspect(value, *args, **options))
        return replace(program, name=name, graph=graph)
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


def _side_of_program(value: Inspection | SavedInspection | Stage) -> Side:
    if isinstance(value, Stage):
        return Side(value.name, jax.__version__, names=(value.name,), _stage=lambda _: value)
    if isinstance(value, SavedInspection):
        program = SymbolicProgram(value.name, value.equations, value.inputs)
        return Side(
            value.name,
            value.jax,
            names=tuple(value.stages),
            sources=SOURCES[:1] if value.equations else (),
            _stage=value.stages.__getitem__,
            _cost=lambda _: of_equations(program.costs(), program),
        )
    return Side(
        value.name,
        jax.__version__,
        names=tuple(value.stages if value.given is None else value.given.stages),
        sources=SOURCES if value.given is None else value.given.sources,
        _stage=value.stage,
        _cost=value.cost,
        _is_quick=lambda name: STAGE_KINDS[name].needs == "trace" or value.has_stage(name),
    )
