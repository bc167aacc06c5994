"""Which instructions of two stages came from the same equations."""

from __future__ import annotations

from mithril_nb.stages.collector import paused_collector
from mithril_nb.stages.records import Traced


@paused_collector()
def linked(source: Traced, target: Traced) -> dict[str, frozenset[str]]:
    """Return which instructions of one stage share an equation with each instruction of another.

    Args:
        source: The instructions of one stage, with their equations.
        target: Those of another.

    Returns:
        Ids in `target` by id in `source`.
    """
    # Thousands of lines of a kernel have the same equations: they are looked up once, and share their links.
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, equations in target:
        groups.setdefault(equations, []).append(name)
    several: dict[str, list[list[str]]] = {}  # the groups of more than one equation
    for equations, group in groups.items():
        for equation in equations if len(equations) > 1 else ():
            several.setdefault(equation, []).append(group)
    shared: dict[tuple[int, ...], frozenset[str]] = {}
    known: dict[tuple[str, ...], frozenset[str]] = {}
    found: dict[str, frozenset[str]] = {}
    for name, equations in source:
        near = known.get(equations)
        if near is None and len(equations) == 1 and equations[0] not in several:  # nearly always
            near = frozenset(groups.get(equations, ()))
        elif near is None:
            every = {id(group): group for equation in equations for group in several.get(equation, ())}
            every |= {id(groups[one,]): groups[one,] for one in equations if (one,) in groups}
            near = _union(list(every.values()), shared)
        if len(known) > 1000:  # lines of the same equations stand together
            known.clear()
        known[equations] = near
        found[name] = near
    return found


def _union(groups: list[list[str]], shared: dict[tuple[int, ...], frozenset[str]]) -> frozenset[str]:
    """Return all of some groups; those of the same groups are one set."""
    which = tuple(map(id, groups))
    if which not in shared:
        shared[which] = frozenset().union(*groups)
    return shared[which]
