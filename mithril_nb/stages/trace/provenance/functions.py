"""The user's functions behind each equation, which serve as blocks for programs without block scopes.

JAX records with each equation the Python frames that created it, starting at the traced function. The frames of a
nested jaxpr start at the function of that jaxpr, so its functions are appended to those of the equation around it.
Only the user's functions count: neither JAX's own nor those of any installed library.
"""

from __future__ import annotations

from functools import lru_cache
from types import CodeType
from typing import Any

from mithril_nb.stages import jax_versions
from mithril_nb.stages.trace.equations import Site
from mithril_nb.stages.trace.tracing import Trace

Path = tuple[str, ...]
Codes = tuple[CodeType, ...]

_OPTIMIZERS = frozenset({"optax"})
_OPTIMIZER_WORK = frozenset({"init", "init_fn", "update", "update_fn", "apply_updates"})


def functions_of(trace: Trace, top: list[Site]) -> tuple[dict[str, Path], set[str]]:
    """Return the functions that created the equations of a program, and the equations that JAX moved.

    Returns:
        - Names of the functions around each equation, from the outermost to the innermost, by id. The traced function
          itself is not included: its own equations have the empty path. Equations for which JAX recorded no frames are
          left out.
        - Ids of equations that JAX moved out of a nested jaxpr when it differentiated it, such as the forward pass of
          `jax.checkpoint` or the loop invariants of a scan.
    """
    reader = _Reader({trace.starts, *_starts(trace.closed.jaxpr)} - {""})
    reader.visit(top, (), set())
    reader.complete()
    return reader.paths, reader.lifted


def optimizer_work(sites: list[Site]) -> set[str]:
    """Return the ids of equations from an optimizer library, those of their bodies included."""
    found: set[str] = set()
    for site in sites:
        is_inside = site.parent is not None and site.parent.id in found
        if is_inside or _is_optimizer_work(site.equation.source_info.traceback):
            found.add(site.id)
    return found


@lru_cache(maxsize=8192)
def _is_optimizer_work(traceback: Any) -> bool:
    """Return whether an optimizer library was initialising or updating its state, or updating parameters."""
    return any(
        code.co_name in _OPTIMIZER_WORK and jax_versions.library_of(code.co_filename) in _OPTIMIZERS
        for code in jax_versions.frames(traceback)
    )


class _Reader:
    def __init__(self, target: set[str]):
        self._target = target
        self.paths: dict[str, Path] = {}
        self.lifted: set[str] = set()
        self._outer_paths: dict[CodeType, set[Path]] = {}  # the known paths around each function
        self._cut: list[tuple[Site, Codes, Path]] = []

    def visit(self, body: list[Site], outer: Path, starts: set[str]) -> None:
        """Find the paths of the equations of a jaxpr.

        Args:
            body: Its sites.
            outer: Path of the equation around it.
            starts: Where the function that it was traced from begins, unless it is the target; empty if that function
                is not the user's.
        """
        lifted: set[str] = set()
        is_known = False  # whether any frames include the function of this jaxpr
        read: dict[Any, tuple[Codes, Path | None]] = {}
        for site in body:
            traceback = site.equation.source_info.traceback
            if traceback not in read:
                codes = _user_functions(traceback)
                target, start = _place(codes, self._target), _place(codes, starts)
                is_known |= target is not None or start is not None
                if target is not None:  # All frames are there, even in a nested jaxpr.
                    read[traceback] = codes, self._register(codes[target + 1 :], ())
                elif codes and start is None and (starts or (self._target and not outer)):
                    read[traceback] = codes, None
                else:
                    read[traceback] = codes, self._register(codes[start or 0 :], outer)
            codes, path = read[traceback]
            if path is None:  # It has the frames of a nested jaxpr, but is in none.
                self._cut.append((site, codes, outer))
                lifted.add(site.id)
            else:
                self._put(site, path, traceback is not None)
        if is_known:
            self.lifted |= lifted

    def _register(self, codes: Codes, outer: Path) -> Path:
        """Register the paths around these functions, and return the path of the innermost one."""
        for index, code in enumerate(codes):
            self._outer_paths.setdefault(code, set()).add(outer + _names(codes[:index]))
        return outer + _names(codes)

    def complete(self) -> None:
        """Find the paths of equations without outer frames: the common part of the paths around their function."""
        while self._cut:
            cut, self._cut = self._cut, []
            for site, codes, outer in cut:
                paths = [path for path in self._outer_paths.get(codes[0], ()) if path[: len(outer)] == outer]
                around = common_start(paths) if paths else outer
                self._put(site, around + _names(codes), True)

    def _put(self, site: Site, path: Path, has_frames: bool) -> None:
        if has_frames:
            self.paths[site.id] = path
        for jaxpr, inner in site.bodies:
            self.visit(inner, path, _starts(jaxpr))


def common_start(paths: list[Path]) -> Path:
    """Return the longest path with which all of these paths start; `()` for no paths.

    Examples:
        >>> common_start([("net", "a", "b"), ("net", "a"), ("net", "c")])
        ('net',)
    """
    first, last = min(paths, default=()), max(paths, default=())
    count = next((index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:count]


@lru_cache(maxsize=8192)
def _user_functions(traceback: Any) -> Codes:
    """Return the functions in the frames that belong to no library, the outermost first.

    A recursive function appears once, so that a path does not depend on the depth of the recursion.
    """
    frames = reversed(jax_versions.frames(traceback))
    users = (code for code in frames if jax_versions.library_of(code.co_filename) is None)
    # Code objects of different files may be equal.
    return tuple({(code, code.co_filename): code for code in users}.values())


@lru_cache(maxsize=8192)
def _names(codes: Codes) -> Path:
    """Return the names of functions; a `__call__` has the name of its class, a lambda has none."""
    names = (code.co_qualname.split(".")[-2:] for code in codes)
    plain = (name[0] if name[-1] == "__call__" else name[-1] for name in names)
    return tuple(name for name in plain if not name.startswith("<"))


def _place(codes: Codes, starts: set[str]) -> int | None:
    """Return the index of the first function that begins at one of these places."""
    if not starts:
        return None
    return next((i for i, code in enumerate(codes) if f"{code.co_filename}:{code.co_firstlineno}" in starts), None)


def _starts(jaxpr: Any) -> set[str]:
    place = jax_versions.start_of(jaxpr)
    return {place} if place and jax_versions.library_of(place.rpartition(":")[0]) is None else set()
