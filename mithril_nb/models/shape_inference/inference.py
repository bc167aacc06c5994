"""Results of shape rules, and of the shape inference of a whole graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mithril_nb.errors import Diagnostic, ShapeError
from mithril_nb.graph.records import BlockSpecs
from mithril_nb.graph.spec import Dim, Spec, TensorSpec
from mithril_nb.models.initializers import Initializer

Shapes = Mapping[str, tuple[Dim, ...]]


@dataclass(frozen=True)
class Inferred:
    """Result of an op's shape rule: shapes of parameters, states and outputs; dims may be names.

    An output given as a bare shape has the promoted dtype of the inputs.
    """

    outputs: Mapping[str, tuple[Dim, ...] | Spec]
    params: Shapes = field(default_factory=dict[str, tuple[Dim, ...]])
    states: Shapes = field(default_factory=dict[str, tuple[Dim, ...]])


@dataclass(frozen=True)
class Parameter:
    """An array that belongs to a model: a trained parameter, or a state that one step hands to the next.

    Attributes:
        name: Its name among the parameters: `"linear_0.weight"`.
        path: Path of its block.
        port: Port of that block.
        spec: Shape and dtype; some dims are names while the input's shape is unknown.
        initializer: Its initializer.
        is_trainable: True if training changes it.
        stacked: Number of leading axes along which separately initialised arrays of one shape are stacked.
    """

    name: str
    path: str
    port: str
    spec: TensorSpec
    initializer: Initializer
    is_trainable: bool = True
    stacked: int = 0


@dataclass(frozen=True)
class Inference:
    """Result of shape inference.

    Attributes:
        inputs: Spec of each input of the graph.
        outputs: Spec of each output; `None` after a mismatch.
        blocks: Specs at each block, by path.
        parameters: All trainable arrays, in the order of the blocks.
        problems: The mismatches; empty if there are none.
        states: All arrays that one step hands to the next.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, Spec | None]
    blocks: Mapping[str, BlockSpecs]
    parameters: tuple[Parameter, ...]
    problems: tuple[Diagnostic, ...]
    states: tuple[Parameter, ...] = ()

    @property
    def is_concrete(self) -> bool:
        """True if the shape of every parameter is known in numbers."""
        return all(parameter.spec.is_concrete for parameter in (*self.parameters, *self.states))

    def raise_problems(self) -> None:
        """Raise all problems as one error, if there are any.

        Raises:
            ShapeError: There are mismatches.
        """
        if self.problems:
            first, *more = self.problems
            raise ShapeError(first, more=tuple(more))


@dataclass(frozen=True)
class InferredBody:
    """Result of the shape rule of a control block.

    Attributes:
        outputs: Spec of each output.
        inner: The inference of the inner graph, for one step.
        stacked: Number of copies of each inner parameter, stacked along a new first axis; `None` if all steps share
            the parameters.
    """

    outputs: Mapping[str, Spec]
    inner: Inference
    stacked: int | None = None
    problems: tuple[Any, ...] = field(default=())
