"""What a program would cost in another dtype if nothing of it had to be converted."""

from __future__ import annotations

from dataclasses import replace

from mithril_nb.cost import Cost
from mithril_nb.cost.costs import of_equations
from mithril_nb.cost.symbolic_costs import SymbolicProgram
from mithril_nb.graph.spec import TensorSpec


def in_other_dtype(program: SymbolicProgram, before: str, after: str) -> Cost:
    """Return the costs of the same equations with arrays of another dtype.

    JAX inserts conversions where dtypes meet, and libraries compute some things in float32 whatever they are given: an
    estimate, until the program is traced with the dtype.

    Args:
        program: The program.
        before: The dtype that is to be another.
        after: The other.
    """

    def other(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(replace(spec, dtype=after) if spec.dtype == before else spec for spec in specs)

    kinds = program.kinds
    examples = tuple(
        (replace(one, inputs=other(one.inputs), outputs=other(one.outputs)), times) for one, times in kinds.examples
    )
    changed = replace(program, known_kinds=replace(kinds, examples=examples))
    return of_equations(changed.costs(), changed)
