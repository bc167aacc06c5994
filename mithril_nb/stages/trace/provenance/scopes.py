"""The name stack of an equation: scopes that declare its block and role, and tags that every later stage preserves.

mithril_nb opens a scope `block:NAME` for each level of the path of a block, and `root:PATH` around a module that is the
whole program. The user and other libraries open scopes with other names.

A tag is a scope with the id of an equation. It is added to each equation before the program is lowered, and XLA copies
it into the op names of the instructions. In a nested jaxpr, the tag is the id relative to this jaxpr, so that all calls
can share the jaxpr. XLA joins the names of call and callee: the op name `mnb#12~/jit(gelu)/mnb#3~/tanh` belongs to
equation `12.3`.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from mithril_nb.stages import jax_versions
from mithril_nb.stages.jax_versions import REMAT_SCOPES, REMATTED, NameStack
from mithril_nb.stages.trace.equations import Site

BLOCK = "block:"
ROOT = "root:"
LIBRARY = "library:"
"""Start of a scope that this package opens in the scope of a library for a module, such as `library:Dense_0`."""
ROLE_LOSS = "role:loss"
ROLE_UPDATE = "role:update"

# Scopes that are not blocks: those that transforms add, and those that declare a role.
_NO_BLOCKS = REMAT_SCOPES | {"closed_call", ROLE_LOSS, ROLE_UPDATE}

# For example bi,io->bo, or bi,io.
# The formula of a `jnp.einsum`, which opens a scope with this name.
_OF_EINSUM = re.compile(r"[^/]*->[^/]*|[A-Za-z.]+(,[A-Za-z.]+)+")

# Scopes that Equinox opens with the same name for every layer of a kind.
_OF_A_LIBRARY = re.compile(r"eqx\.")


class Scopes(NamedTuple):
    """Content of the name stack of an equation: the scopes and transforms around it.

    Attributes:
        block: Path of the block if scopes of this package, which start with `block:` or `root:`, are around the
            equation; else `""`. It includes the user's scopes around and inside them.
        path: Names of the scopes of users and libraries, the outermost first.
        is_whole: True if `path` identifies the block, because the user opened a scope in it. Otherwise libraries opened
            all of them, and the block also depends on the user's functions.
        is_loss: True if the equation is in the loss of our train step.
        is_update: True if the equation is in the update of our train step.
        is_backward: True if reverse mode created the equation.
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
    path: list[_Part] = []
    segment: list[_Part] = []
    is_backward = False
    for name, is_transform in stack:
        if is_transform:
            path, segment = _joined(path, segment), []
            is_backward |= name == "transpose"
        elif name.startswith(BLOCK):
            # A name may contain surrogates, which are not valid Unicode.
            segment.append((unquote(name[len(BLOCK) :], errors="surrogatepass"), True))
        elif name.startswith(ROOT):
            root = unquote(name[len(ROOT) :], errors="surrogatepass")
        elif name.startswith(LIBRARY):
            if segment and not segment[-1][1] and segment[-1][0].partition(".")[0] == name[len(LIBRARY) :]:
                segment.pop()
        elif not (name in _NO_BLOCKS and (name != REMATTED or is_backward)) and not _OF_EINSUM.fullmatch(name):
            segment.extend((part, False) for part in name.split("/") if part)
    parts = _joined(path, segment)
    names = tuple(name for name, _ in parts)
    is_own = bool(root) or any(is_own for _, is_own in parts)
    inside = [name for name, is_own in parts if is_own or not _OF_A_LIBRARY.match(name)]
    return Scopes(
        ("/".join(inside) or root) if is_own else "",
        names,
        any(not _OF_A_LIBRARY.match(name) for name in names),
        (ROLE_LOSS, False) in stack,
        (ROLE_UPDATE, False) in stack,
        is_backward,
    )


# Name of a scope, and whether this package opened it.
_Part = tuple[str, bool]


def _joined(path: list[_Part], segment: list[_Part]) -> list[_Part]:
    # After remat, JAX repeats the scopes before it.
    return segment if segment[: len(path)] == path else path + segment


def restore_hoisted_scopes(sites: list[Site]) -> None:
    """Add the missing scopes to loop invariants: equations that JAX moves out of the body of a scan."""
    # JAX moves them in reverse mode. They keep the scopes inside the body, and lose those around the scan.
    scans: dict[str, Site] = {}
    # In reverse order, because a scan comes after the equations that were moved out of it.
    for site in reversed(sites):
        for jaxpr, _ in site.bodies if site.primitive == "scan" else ():
            scans[jax_versions.start_of(jaxpr)] = site
        scan = scans.get(_outermost(site.equation.source_info.traceback)) if scans else None
        if scan is not None and not _is_inside(site, scan):
            site.stack = scan.stack + jax_versions.name_stack(site.equation)


@lru_cache(maxsize=8192)
def _outermost(traceback: Any) -> str:
    frames = jax_versions.frames(traceback)
    return f"{frames[-1].co_filename}:{frames[-1].co_firstlineno}" if frames else ""


def _is_inside(site: Site, scan: Site) -> bool:
    starts = {jax_versions.start_of(jaxpr) for jaxpr, _ in scan.bodies}
    while site.parent is not None:
        site = site.parent
        if any(jax_versions.start_of(jaxpr) in starts for jaxpr, _ in site.bodies):
            return True
    return False


class Marks:
    """Marks: the parts of op names that identify an operation in all stages after the jaxpr.

    Marks are the tags of this package (see `Tags`). If the program was lowered elsewhere, they are the names that JAX
    gave its operations.

    Attributes:
        marker: Text that every mark contains; `""` if there is none.
        joint: Separator in an id, between the mark of a call and the mark of an operation in the called function.
        are_unique: True if no two operations have the same mark.
        most_callers: Maximum number of callers of a function that are followed to find ids.
    """

    marker: str
    joint: str
    are_unique: bool
    most_callers: int

    def path(self, op_name: str) -> tuple[str, ...]:
        """Return the marks in an op name, the outermost call first."""
        raise NotImplementedError

    def is_in(self, op_name: str) -> bool:
        """Return whether an op name contains a mark."""
        return bool(self.path(op_name))


class Tags(Marks):
    """Tags of the equations of one program: scopes such as `mnb#12~`, which all later stages preserve.

    Args:
        names: All names in the program: its own, and those of its scopes and of the functions that it calls. None of
            them contains the marker that is chosen.

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
        # A program built from a tagged program contains tags already.
        while any(f"mnb{number or ''}#" in name for name in names):
            number += 1
        self.marker = f"mnb{number or ''}#"
        self._pattern = re.compile(re.escape(self.marker) + r"([b\d.]+)~")

    def path(self, op_name: str) -> tuple[str, ...]:
        """Return the tags in an op name, the outermost call first.

        Examples:
            >>> Tags(set()).path("jit(f)/transpose(jvp(mnb#12~))/cond/mnb#b1.3~/dot_general")
            ('12', 'b1.3')
        """
        return tuple(self._pattern.findall(op_name))

    def is_in(self, op_name: str) -> bool:
        """Return whether an op name contains a tag."""
        # Faster than the regular expression. This runs for each instruction.
        return self.marker in op_name

    def tag(self, closed: Any, *, is_whole: bool = False) -> Any:
        """Return a closed jaxpr in which every equation has a tag, nested equations too."""
        done: dict[tuple[int, str], tuple[Any, Any]] = {}

        def tagged(jaxpr: Any, prefix: str) -> Any:
            equations = []
            for index, equation in enumerate(jaxpr.eqns):
                outer = f"{prefix}{index}." if is_whole else ""

                def rewrite(inner: str, body: Any, outer: str = outer) -> Any:
                    key = id(body), outer + inner
                    if key not in done:
                        plain = jax_versions.open_jaxpr(body)
                        rewritten = tagged(plain, outer + inner)
                        # `id(body)` is unique, because the entry keeps the body alive.
                        done[key] = body, rewritten if plain is body else body.replace(jaxpr=rewritten)
                    return done[key][1]

                bodies = jax_versions.map_bodies(equation, rewrite)
                equations.append(jax_versions.with_scope(equation, f"{self.marker}{prefix}{index}~", bodies))
            return jaxpr.replace(eqns=equations)

        return closed.replace(jaxpr=tagged(closed.jaxpr, ""))
