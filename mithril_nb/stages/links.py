"""Links between the instructions of two stages that came from the same equations."""

from __future__ import annotations

from mithril_nb.stages.fast_records import paused_collector
from mithril_nb.stages.records import Stage


@paused_collector()
def link_instructions(source: Stage, target: Stage) -> dict[str, frozenset[str]]:
    """Return the instructions of one stage that share an equation with each instruction of another.

    Args:
        source: One stage.
        target: Another.

    Returns:
        Ids in `target` by id in `source`.
    """
    # Thousands of lines of a kernel have the same equations: look them up once and share their links.
    named: dict[tuple[str, ...], list[str]] = {}
    for name, equations in target.traced:
        named.setdefault(equations, []).append(name)
    groups: dict[tuple[str, ...], frozenset[str]] = {}
    several: dict[str, list[frozenset[str]]] = {}  # the groups of more than one equation
    while named:
        equations, names = named.popitem()
        group = groups[equations] = frozenset(names)
        for equation in equations if len(equations) > 1 else ():
            several.setdefault(equation, []).append(group)
    unions: dict[tuple[int, ...], frozenset[str]] = {}

    def near(equations: tuple[str, ...]) -> frozenset[str]:
        every = {id(group): group for equation in equations for group in several.get(equation, ())}
        every |= {id(groups[one,]): groups[one,] for one in equations if (one,) in groups}
        which = tuple(sorted(every))
        if which not in unions:  # cached: the same groups give the same set
            unions[which] = _NOTHING.union(*every.values())
        return unions[which]

    known: dict[tuple[str, ...], frozenset[str]] = {}
    found: dict[str, frozenset[str]] = {}
    for name, equations in source.traced:
        if len(equations) == 1 and equations[0] not in several:  # nearly always
            found[name] = groups.get(equations, _NOTHING)
            continue
        if equations not in known:
            known[equations] = near(equations)
        found[name] = known[equations]
    return found


_NOTHING: frozenset[str] = frozenset()
