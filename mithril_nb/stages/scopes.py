"""What the names around an equation say: its block and role, in programs of ours and in those of others."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from mithril_nb.stages.jax_versions import REMAT_SCOPES, NameStack
from mithril_nb.stages.records import LOSS, UNATTRIBUTED, Origin, Role

BLOCK = "block:"
ROLE_LOSS = "role:loss"
ROLE_UPDATE = "role:update"

_NO_BLOCKS = REMAT_SCOPES | {"closed_call", ROLE_LOSS, ROLE_UPDATE}
"""Scopes that transforms add, or that say the role."""

_OF_EINSUM = re.compile(r"[^/]*->[^/]*|[A-Za-z.]+(,[A-Za-z.]+)+")
"""`jnp.einsum` opens a scope with its formula."""

_OF_A_LIBRARY = re.compile(r"eqx\.")
"""Scopes that a library opens for each layer of a kind, whichever it is."""

Verdict = tuple[str, Role | None, Origin | None]


def has_blocks(stack: NameStack) -> bool:
    """Whether one of the names is the block of a program of ours."""
    return any(name.startswith(BLOCK) for name, _ in stack)


@lru_cache(maxsize=8192)
def of_ours(stack: NameStack) -> Verdict:
    """Return what the scopes say that mithril_nb writes."""
    role: Role = "forward"
    is_loss = is_update = False
    path: list[str] = []
    segment: list[str] = []
    for name, is_transform in stack:
        if is_transform:
            role = "backward" if name == "transpose" else role
            path = _joined(path, segment)
            segment = []
        elif name.startswith(BLOCK):
            segment.append(unquote(name[len(BLOCK) :], errors="surrogatepass"))
        else:
            is_loss |= name == ROLE_LOSS
            is_update |= name == ROLE_UPDATE
    block = "/".join(_joined(path, segment))
    role = "update" if is_update else role
    if block:
        return block, role, "tagged"
    return (LOSS, role, "tagged") if is_loss else (UNATTRIBUTED, role, None)


class Scopes(NamedTuple):
    """What the names around an equation say in a program that is not ours.

    Attributes:
        path: The named scopes, from the outside in.
        is_whole: Whether they say by themselves which block it is.
        is_loss: Whether our train step says that it is the loss.
        is_update: Whether it says that it is the update.
    """

    path: tuple[str, ...]
    is_whole: bool
    is_loss: bool
    is_update: bool


@lru_cache(maxsize=8192)
def of_others(stack: NameStack) -> Scopes:
    """Return what the scopes say in a program that another library made, though our train step may train it."""
    path: list[str] = []
    segment: list[str] = []
    for name, is_transform in stack:
        if is_transform:
            path = _joined(path, segment)
            segment = []
        elif name not in _NO_BLOCKS and not _OF_EINSUM.fullmatch(name):
            segment.extend(part for part in name.split("/") if part)
    whole = tuple(_joined(path, segment))
    is_whole = any(not _OF_A_LIBRARY.match(name) for name in whole)
    return Scopes(whole, is_whole, (ROLE_LOSS, False) in stack, (ROLE_UPDATE, False) in stack)


def _joined(path: list[str], segment: list[str]) -> list[str]:
    """Join what stands before and after a transform; remat says the whole path again after it."""
    return segment if segment[: len(path)] == path else path + segment
