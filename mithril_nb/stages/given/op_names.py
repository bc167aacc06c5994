"""Names of operations instead of tags: the links between the stages of a program that was not traced here.

JAX names each operation after the scopes around it, as "jit(f)/mlp/dot_general". MLIR stores the name as a location,
XLA as `op_name`. Operations with the same name are linked, and the named scopes in it are the block. Neither is
certain: several operations may share a name, so every block found this way is marked as inferred.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import LOSS, OPTIMIZER, UNATTRIBUTED, Equation, Instruction, Role
from mithril_nb.stages.trace.provenance.scopes import scopes_of

Read = tuple[str, tuple[Instruction, ...]]

# For example: transpose(jvp(relu)) in an op name: transformations wrap the name of a scope
_WRAPPER = re.compile(r"([A-Za-z_]\w*)\((.*)\)", re.DOTALL)
_TAG = re.compile(r"mnb\d*#[b\d.]+~")
"""The tag that this package adds to names. Two stages have it at the same places, or one does not have it."""
_CALLS = jax_versions.CALL_NAMES | {"eval_jaxpr"}
_STRUCTURE = _CALLS | {"while", "scan", "cond", "switch", "shard_map", "run_scoped"}
"""Components that JAX adds for its own primitives with bodies."""
# For example: branch_1_fun in jit(f)/cond/branch_1_fun/add
_BODIES = re.compile(r"body|cond|branch_\d+_fun|cond_fun|body_fun")
"""Components that name a body of the primitive before them."""


class OpNames:
    """Reads names of operations as `Tags` reads tags: the id of an operation is its name.

    Attributes:
        joint: Separates the parts of an id.
        are_unique: True if no two operations have the same name; here several may.
        marker: A part of every id.
        most_callers: Maximum number of callers of one function that are followed. A file may contain functions that
            call each other in exponentially many ways.

    Examples:
        >>> OpNames().path("jit(f)/mlp/dot_general"), OpNames().path("jit(f)"), OpNames().path("")
        (('jit(f)', 'mlp', 'dot_general'), (), ())
    """

    joint = "/"
    are_unique = False
    marker = ""
    most_callers = 256

    def path(self, op_name: str) -> tuple[str, ...]:
        """Return the components of a name; none if it is empty or names the whole program."""
        return _components(op_name)

    def is_in(self, op_name: str) -> bool:
        """Return whether a name identifies an operation."""
        return bool(_components(op_name))


class NamedOperations(Mapping[str, Equation]):
    """An equation for each name of an operation, computed on demand from the name alone.

    Examples:
        >>> one = NamedOperations()["jit(f)/transpose(jvp(mlp))/jit(relu)/max"]
        >>> one.primitive, one.block, one.role, one.origin
        ('max', 'mlp', 'backward', 'inferred')
    """

    def __getitem__(self, id: str) -> Equation:
        if id not in self:
            raise KeyError(id)
        return _equation(id)

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, str) or not id:
            return False
        # A helper that JAX lowers once keeps the full name of its first use: the name below its caller means nothing.
        root, _, rest = id.partition("/")
        return not (root.startswith(("jit(", "pjit(")) and f"/{root}/" in f"/{rest}")

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def as_inferred(read: Read) -> Read:
    """Return a stage in which every block is marked as inferred."""
    text, instructions = read
    return text, tuple(replace(one, origin="inferred") if one.origin else one for one in instructions)


@lru_cache(maxsize=8192)
def _components(op_name: str) -> tuple[str, ...]:
    parts: list[str] = []
    depth, start = 0, 0
    for place, char in enumerate(op_name):
        depth += (char == "(") - (char == ")")
        if char == "/" and depth == 0:
            parts.append(op_name[start:place])
            start = place + 1
    parts.append(op_name[start:])
    found = tuple([part for part in parts if part and not _TAG.fullmatch(part)])
    return () if len(found) == 1 and _WRAPPER.fullmatch(found[0]) else found


@lru_cache(maxsize=8192)
def _equation(id: str) -> Equation:
    *around, last = _components(id) or (id,)
    stack: list[tuple[str, bool]] = []
    before = ""
    for part in around:
        name = part
        while (wrapper := _WRAPPER.fullmatch(name)) is not None:
            stack.append((wrapper.group(1), True))
            name = wrapper.group(2)
        is_call = bool(stack) and stack[-1] in {(one, True) for one in _CALLS} and part.endswith(")")
        if is_call:
            stack.pop()  # the function's own name is not a scope
        elif name and name not in _STRUCTURE and not (before in _STRUCTURE and _BODIES.fullmatch(name)):
            stack.append((name, False))
        before = name
    scopes = scopes_of(tuple(stack))
    block = scopes.block or (LOSS if scopes.is_loss else OPTIMIZER if scopes.is_update else "/".join(scopes.path))
    role: Role | None = "update" if scopes.is_update else "backward" if scopes.is_backward else None
    if role is None and ("jvp", True) in stack:
        role = "forward"
    primitive = last.partition("(")[0]
    return Equation(
        id, primitive, block or UNATTRIBUTED, role, (), (), repeats=None,
        is_call=primitive in jax_versions.CALL_NAMES, origin="inferred",
    )  # fmt: skip
