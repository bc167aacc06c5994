"""Estimate the cost of a program in another dtype, without conversions."""

from __future__ import annotations

from dataclasses import replace

from mithril_nb.cost import Cost
from mithril_nb.cost.costs import of_equations
from mithril_nb.cost.symbolic.costs import SymbolicProgram
from mithril_nb.graph.spec import TensorSpec


def in_other_dtype(program: SymbolicProgram, before: str, after: str) -> Cost:
    """Return the costs of the same equations with arrays of another dtype.

    The result is an estimate: JAX inserts conversions where dtypes differ, and libraries compute some operations in
    float32 for any input dtype. Only a trace with the dtype is exact.

    Args:
        program: The program.
        before: The dtype to replace.
        after: The new dtype.
    """

    def other(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(replace(spec, dtype=after) if spec.dtype == before else spec for spec in specs)

    kinds = program.kinds
    examples = tuple(
        (replace(one, inputs=other(one.inputs), outputs=other(one.outputs)), times) for one, times in kinds.examples
    )
    changed = replace(program, known_kinds=replace(kinds, examples=examples))
    return of_equations(changed.costs(), changed)
