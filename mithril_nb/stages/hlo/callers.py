"""Computations and their callers: the order of computations, and ids in the function of a caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mithril_nb.stages.hlo.text import Computation


def ids_in_function_of(id: str, callers: Iterable[str], joint: str = ".") -> set[str]:
    """Return the full ids for an id in the body of a loop, branch or reduction, relative to its caller's function.

    Examples:
        >>> ids_in_function_of("2.b1.0", ["5.2"]), ids_in_function_of("0", ["5.0"]), ids_in_function_of("1", ["5.0"])
        ({'5.2.b1.0'}, {'5.0'}, set())
    """
    found: set[str] = set()
    for caller in callers:
        parts = caller.split(joint)
        for count in range(len(parts)):
            rest = joint.join(parts[count:])
            if id == rest or id.startswith(f"{rest}{joint}"):
                found.add(joint.join((*parts[:count], id)))
    return found


def orders_of(
    computations: list[Computation], by_name: Mapping[str, Computation]
) -> tuple[list[Computation], list[Computation]]:
    """Return the computations in reading order, and with callees before their callers."""
    reading: dict[str, Computation] = {}
    callees_first: list[Computation] = []

    def visit(computation: Computation) -> None:
        if computation.name in reading:
            return
        reading[computation.name] = computation
        for line in computation.instructions:
            for _, callee in line.calls:
                if callee in by_name:
                    visit(by_name[callee])
        callees_first.append(computation)

    for computation in computations:
        visit(by_name[computation.name])
    return list(reading.values()), callees_first
