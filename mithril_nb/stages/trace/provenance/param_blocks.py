"""Blocks of parameters whose names match no block: the block that computes with the parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import LOSS, UNATTRIBUTED, Role
from mithril_nb.stages.trace.equations import Site

_MOVES = frozenset(
    "transpose reshape convert_element_type squeeze expand_dims broadcast_in_dim copy slice dynamic_slice split".split()
)
"""Primitives that only move or convert a parameter before its use."""
_NONE: frozenset[str] = frozenset()


def users_of_inputs(
    jaxpr: Any, top: list[Site], attribution: Callable[[str], tuple[str, Role | None]]
) -> list[frozenset[str]]:
    """Return for each input of a program the blocks that compute with it, also in nested jaxprs.

    Uses by the optimizer and moves of the input do not count. Uses in the loss count only if no other block uses it.

    Args:
        jaxpr: The jaxpr of the program, open.
        top: Sites of its equations.
        attribution: Returns block and role of an equation by its id.
    """

    def visit(jaxpr: Any, body: list[Site]) -> list[frozenset[str]]:
        found: dict[Any, frozenset[str]] = {}
        for site in reversed(body):
            block, role = attribution(site.id)
            if role == "update" and not site.bodies:
                continue
            atoms = site.equation.invars
            if site.bodies:
                users = users_inside(site)
            else:
                own = frozenset((block,))
                if site.primitive in _MOVES:
                    later = _NONE.union(*(found.get(var, _NONE) for var in site.equation.outvars))
                    if later and not _is_within(block, common_block(later)):
                        own = later
                users = [own] * len(atoms)
            for atom, blocks in zip(atoms, users, strict=True):
                if blocks and not jax_versions.is_literal(atom):
                    found[atom] = found.get(atom, _NONE) | blocks
        return [found.get(var, _NONE) for var in jaxpr.invars]

    def users_inside(site: Site) -> list[frozenset[str]]:
        users = [_NONE] * len(site.equation.invars)
        for place, (inner_jaxpr, inner) in enumerate(site.bodies):
            if site.primitive == "while" and not place:
                continue  # a condition has its own operands, and computes with no parameter
            reads = visit(inner_jaxpr, inner)
            # A predicate, or the constants of a condition, come first.
            first = len(users) - len(reads)
            for at, blocks in enumerate(reads):
                if first + at >= 0:
                    users[first + at] |= blocks
        return users

    return [blocks - {LOSS, UNATTRIBUTED} or blocks - {UNATTRIBUTED} for blocks in visit(jaxpr, top)]


def common_block(blocks: frozenset[str]) -> str:
    """Return the deepest block that contains all given blocks; `""` if there is none.

    Examples:
        >>> common_block(frozenset({"net/a/b", "net/a"})), common_block(frozenset({"net", "head"}))
        ('net/a', '')
    """
    if not blocks:
        return UNATTRIBUTED
    first, *rest = (path.split("/") for path in blocks)
    count = 0
    while count < len(first) and all(other[: count + 1] == first[: count + 1] for other in rest):
        count += 1
    return "/".join(first[:count])


def _is_within(block: str, holder: str) -> bool:
    """Return whether a block is inside another one."""
    return bool(holder) and block.startswith(f"{holder}/")
