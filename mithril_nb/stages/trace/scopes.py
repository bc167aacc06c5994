"""What the names around an equation say.

Our own programs, and those of modules that `targets` names, say their blocks in scopes of our own: `block:` for each
level of a path, `root:` around all that a module does that is the whole. Other scopes are what people call things.
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
"""Scopes that transforms add, or that say the role."""

_OF_EINSUM = re.compile(r"[^/]*->[^/]*|[A-Za-z.]+(,[A-Za-z.]+)+")
"""`jnp.einsum` opens a scope with its formula."""

_OF_A_LIBRARY = re.compile(r"eqx\.")
"""Scopes that a library opens for each layer of a kind, whichever it is."""


class Scopes(NamedTuple):
    """What the names around an equation say.

    Attributes:
        block: Path of the block that our own scopes say, or `""`.
        path: The other named scopes, from the outside in.
        is_whole: Whether these say by themselves which block it is.
        is_loss: Whether our train step says that it is the loss.
        is_update: Whether it says that it is the update.
        is_backward: Whether reverse mode made it.
    """

    block: str
    path: tuple[str, ...]
    is_whole: bool
    is_loss: bool
    is_update: bool
    is_backward: bool


@lru_cache(maxsize=8192)
def scopes_of(stack: NameStack) -> Scopes:
    """Return what the names around an equation say."""
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
    """Join what stands before and after a transform; remat says the whole path again after it."""
    return segment if segment[: len(path)] == path else path + segment
