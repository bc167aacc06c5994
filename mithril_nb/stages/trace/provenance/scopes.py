"""Block, role and named scopes read from the name stack of an equation.

Programs of mithril_nb, and of modules that `targets` names, declare their blocks in special scopes: `block:` for each
level of a path, and `root:` around a module that is the whole program. Other scopes are named by the user or a library.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from mithril_nb.stages.jax_versions import REMAT_SCOPES, NameStack

BLOCK = "block:"
ROOT = "root:"
ROLE_LOSS = "role:loss"
ROLE_UPDATE = "role:update"

_NO_BLOCKS = REMAT_SCOPES | {"closed_call", ROLE_LOSS, ROLE_UPDATE}
"""Scopes that transforms add, or that declare the role."""

_OF_EINSUM = re.compile(r"[^/]*->[^/]*|[A-Za-z.]+(,[A-Za-z.]+)+")
"""`jnp.einsum` opens a scope with its formula."""

_OF_A_LIBRARY = re.compile(r"eqx\.")
"""Scopes that a library opens for every layer of the same kind."""


class Scopes(NamedTuple):
    """Content of the name stack of an equation.

    Attributes:
        block: Path of the block from `block:` and `root:` scopes, or `""`.
        path: The other named scopes, from the outside in.
        is_whole: True if these scopes identify the block without the functions.
        is_loss: True if our train step marks it as part of the loss.
        is_update: True if our train step marks it as part of the update.
        is_backward: True if reverse mode created it.
    """

    block: str
    path: tuple[str, ...]
    is_whole: bool
    is_loss: bool
    is_update: bool
    is_backward: bool


@lru_cache(maxsize=8192)
def scopes_of(stack: NameStack) -> Scopes:
    """Return the content of a name stack."""
    root = ""
    own: list[str] = []
    path: list[str] = []
    own_segment: list[str] = []
    segment: list[str] = []
    for name, is_transform in stack:
        if is_transform:
            own, path = _joined(own, own_segment), _joined(path, segment)
            own_segment, segment = [], []
        elif name.startswith(BLOCK):
            own_segment.append(unquote(name[len(BLOCK) :], errors="surrogatepass"))
        elif name.startswith(ROOT):
            root = unquote(name[len(ROOT) :], errors="surrogatepass")
        elif name not in _NO_BLOCKS and not _OF_EINSUM.fullmatch(name):
            segment.extend(part for part in name.split("/") if part)
    whole = tuple(_joined(path, segment))
    return Scopes(
        "/".join(_joined(own, own_segment)) or root,
        whole,
        any(not _OF_A_LIBRARY.match(name) for name in whole),
        (ROLE_LOSS, False) in stack,
        (ROLE_UPDATE, False) in stack,
        ("transpose", True) in stack,
    )


def _joined(path: list[str], segment: list[str]) -> list[str]:
    """Join the scopes before and after a transform; remat repeats the whole path after it."""
    return segment if segment[: len(path)] == path else path + segment
