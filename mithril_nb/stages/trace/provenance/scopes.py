"""The name stack of an equation: scopes that declare its block and role, and tags that every later stage preserves.

Programs of mithril_nb, and of modules that `targets` names, declare their blocks in special scopes: `block:` for each
level of a path, and `root:` around a module that is the whole program. Other scopes are named by the user or a library.

A tag is the id of an equation. It is relative to the jaxpr that contains its equation. Nested jaxprs that are shared
stay shared, so the tagged program is equivalent to the original. The compiler joins the names of calls and callees, so
the joined tags of an HLO instruction are the id of the equation: `.../step#12~/jit(gelu)/step#3~/tanh` is equation
`12.3`.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from mithril_nb.stages import jax_versions
from mithril_nb.stages.jax_versions import REMAT_SCOPES, NameStack
from mithril_nb.stages.trace.equations import Site

BLOCK = "block:"
ROOT = "root:"
ROLE_LOSS = "role:loss"
ROLE_UPDATE = "role:update"

_NO_BLOCKS = REMAT_SCOPES | {"closed_call", ROLE_LOSS, ROLE_UPDATE}
"""Scopes that transforms add, or that declare the role."""

# For example: bi,io->bo, and bi,io for a formula without a result
_OF_EINSUM = re.compile(r"[^/]*->[^/]*|[A-Za-z.]+(,[A-Za-z.]+)+")
"""`jnp.einsum` opens a scope with its formula."""

_OF_A_LIBRARY = re.compile(r"eqx\.")
"""Scopes that a library opens for every layer of the same kind."""


class Scopes(NamedTuple):
    """Content of the name stack of an equation.

    Attributes:
        block: Path of the block from `block:` and `root:` scopes, or `""`.
        path: The other named scopes, from the outside in.
        is_whole: True if `path` identifies the block without the user's functions, because the user named a scope.
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
            # A name may be any string of Python, even one that is not valid Unicode.
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


def restore_hoisted_scopes(sites: list[Site]) -> None:
    """Add the scopes of a scan to the equations that JAX hoisted out of it.

    Reverse mode computes loop invariants once, before the scan, and gives them only the scopes of the body.
    """
    scans: dict[str, Site] = {}
    # Backwards: a scan follows the equations that were hoisted out of it.
    for site in reversed(sites):
        for jaxpr, _ in site.bodies if site.primitive == "scan" else ():
            scans[jax_versions.start_of(jaxpr)] = site
        scan = scans.get(_outermost(site.equation.source_info.traceback)) if scans else None
        if scan is not None and not _is_inside(site, scan):
            site.stack = scan.stack + jax_versions.name_stack(site.equation)


@lru_cache(maxsize=8192)
def _outermost(traceback: Any) -> str:
    """Return the start of the function that an equation was traced from, as `"file.py:12"`; `""` if unknown."""
    frames = jax_versions.frames(traceback)
    return f"{frames[-1].co_filename}:{frames[-1].co_firstlineno}" if frames else ""


def _is_inside(site: Site, scan: Site) -> bool:
    """Return whether an equation is in the body of a scan over the same function as the given scan."""
    starts = {jax_versions.start_of(jaxpr) for jaxpr, _ in scan.bodies}
    while site.parent is not None:
        site = site.parent
        if any(jax_versions.start_of(jaxpr) in starts for jaxpr, _ in site.bodies):
            return True
    return False


class Marks:
    """Marks of operations in the later stages of one program: `Tags`, or the names that JAX gave the operations.

    Attributes:
        marker: Text that every mark contains; `""` if there is none.
        joint: Separator of the relative paths in an id.
        are_unique: True if no two operations have the same mark.
        most_callers: Largest number of callers that are followed for one function.
    """

    marker: str
    joint: str
    are_unique: bool
    most_callers: int

    def path(self, op_name: str) -> tuple[str, ...]:
        """Return the relative paths in an op name, from the outside in."""
        raise NotImplementedError

    def is_in(self, op_name: str) -> bool:
        """Return whether an op name contains a mark."""
        return bool(self.path(op_name))


class Tags(Marks):
    """Tags of the equations of one program, with a marker that none of its own scopes contains.

    Args:
        names: Names that must not contain the marker: those of the program, its scopes and the functions it calls.

    Attributes:
        marker: Prefix of every tag.

    Examples:
        >>> Tags({"mnb"}).marker, Tags({"mnb#1~"}).marker
        ('mnb#', 'mnb1#')
    """

    joint = "."
    are_unique = True
    most_callers = sys.maxsize

    def __init__(self, names: set[str]):
        number = 0
        # The program may contain another program whose names have tags already.
        while any(f"mnb{number or ''}#" in name for name in names):
            number += 1
        self.marker = f"mnb{number or ''}#"
        self._pattern = re.compile(re.escape(self.marker) + r"([b\d.]+)~")

    def path(self, op_name: str) -> tuple[str, ...]:
        """Return the relative paths in an op name, from the outside in.

        Examples:
            >>> Tags(set()).path("jit(f)/transpose(jvp(mnb#12~))/cond/mnb#b1.3~/dot_general")
            ('12', 'b1.3')
        """
        return tuple(self._pattern.findall(op_name))

    def is_in(self, op_name: str) -> bool:
        """Return whether an op name contains a tag."""
        # Faster than the pattern; this runs for each instruction.
        return self.marker in op_name

    def tag(self, closed: Any, *, is_whole: bool = False) -> Any:
        """Return the closed jaxpr with every equation tagged, nested ones too.

        Args:
            closed: The closed jaxpr.
            is_whole: Whether each tag is the whole id of its equation, so that shared bodies are not shared any more.
        """
        done: dict[tuple[int, str], tuple[Any, Any]] = {}

        def tagged(jaxpr: Any, prefix: str) -> Any:
            equations = []
            for index, equation in enumerate(jaxpr.eqns):
                outer = f"{prefix}{index}." if is_whole else ""

                def rewrite(inner: str, body: Any, outer: str = outer) -> Any:
                    key = id(body), outer + inner
                    if key not in done:
                        plain = jax_versions.open_jaxpr(body)
                        made = tagged(plain, outer + inner)
                        # The entry keeps the body alive, so that its `id` stays unique.
                        done[key] = body, made if plain is body else body.replace(jaxpr=made)
                    return done[key][1]

                bodies = jax_versions.map_bodies(equation, rewrite)
                equations.append(jax_versions.with_scope(equation, f"{self.marker}{prefix}{index}~", bodies))
            return jaxpr.replace(eqns=equations)

        return closed.replace(jaxpr=tagged(closed.jaxpr, ""))
