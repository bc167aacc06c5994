"""The functions in which a person wrote each equation: blocks for programs that name none themselves.

JAX keeps with each equation the Python frames that made it, from the function that was traced inwards. The equations
of a nested jaxpr start anew at the function of that jaxpr, so their functions stand below those of the equation that
holds them. Only functions of the person count: neither JAX's own nor those of any installed library.
"""

from __future__ import annotations

from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from mithril_nb.stages import jax_versions
from mithril_nb.stages.trace.equations import Site
from mithril_nb.stages.trace.tracing import Trace

Path = tuple[str, ...]
Codes = tuple[CodeType, ...]

_OPTIMIZERS = frozenset({"optax"})
_OPTIMIZER_WORK = frozenset({"init", "init_fn", "update", "update_fn", "apply_updates"})


class Functions(NamedTuple):
    """What the frames of a program's equations say.

    Attributes:
        paths: The names of the functions around each equation, from inside the target to the innermost, by id. The
            target itself is not among them: what it does directly has the empty path. Equations that JAX made without
            keeping frames are left out.
        lifted: Ids of what JAX took out of a nested jaxpr when it made the derivative of that, such as what
            `jax.checkpoint` computes forward, or what is the same in each round of a scan.
    """

    paths: dict[str, Path]
    lifted: set[str]


def functions_of(trace: Trace, top: list[Site]) -> Functions:
    """Return the functions that made the equations of a program."""
    reader = _Reader({trace.starts, *_starts(trace.closed.jaxpr)} - {""})
    reader.visit(top, (), set())
    reader.complete()
    return Functions(reader.paths, reader.lifted)


@lru_cache(maxsize=8192)
def is_optimizer_work(traceback: Any) -> bool:
    """Whether a library of optimizers made this while it made or updated its state, or updated parameters."""
    return any(
        code.co_name in _OPTIMIZER_WORK and jax_versions.library_of(code.co_filename) in _OPTIMIZERS
        for code in jax_versions.frames(traceback)
    )


class _Reader:
    def __init__(self, target: set[str]):
        self._target = target
        self.paths: dict[str, Path] = {}
        self.lifted: set[str] = set()
        self._ways: dict[CodeType, set[Path]] = {}  # all paths that are known to lead to a function
        self._cut: list[tuple[Site, Codes, Path]] = []

    def visit(self, body: list[Site], outer: Path, starts: set[str]) -> None:
        """Place the equations of a jaxpr.

        Args:
            body: Its sites.
            outer: Path of the equation that holds it.
            starts: Where the function begins that it was traced from, unless that is the target; empty if that is no
                function of the person.
        """
        lifted: set[str] = set()
        is_known = False  # whether any frames reach out to where this jaxpr was traced from
        read: dict[Any, tuple[Codes, Path | None]] = {}
        for site in body:
            traceback = site.equation.source_info.traceback
            if traceback not in read:
                codes = _persons(traceback)
                target, start = _place(codes, self._target), _place(codes, starts)
                is_known |= target is not None or start is not None
                if target is not None:  # All frames are there, even if it stands in a nested jaxpr.
                    read[traceback] = codes, self._note(codes[target + 1 :], ())
                elif codes and start is None and (starts or (self._target and not outer)):
                    read[traceback] = codes, None
                else:
                    read[traceback] = codes, self._note(codes[start or 0 :], outer)
            codes, path = read[traceback]
            if path is None:  # It has the frames of a nested jaxpr, but stands in none.
                self._cut.append((site, codes, outer))
                lifted.add(site.id)
            else:
                self._put(site, path, traceback is not None)
        if is_known:
            self.lifted |= lifted

    def _note(self, codes: Codes, way: Path) -> Path:
        """Note which ways lead to these functions, and return the path that they make below a way."""
        for index, code in enumerate(codes):
            self._ways.setdefault(code, set()).add(way + _names(codes[:index]))
        return way + _names(codes)

    def complete(self) -> None:
        """Place those whose outer frames are missing below all that is common to the known ways to their function."""
        while self._cut:
            cut, self._cut = self._cut, []
            for site, codes, outer in cut:
                ways = [way for way in self._ways.get(codes[0], ()) if way[: len(outer)] == outer]
                self._put(site, _common(ways, outer) + _names(codes), True)

    def _put(self, site: Site, path: Path, has_frames: bool) -> None:
        if has_frames:
            self.paths[site.id] = path
        for jaxpr, inner in site.bodies:
            self.visit(inner, path, _starts(jaxpr))


@lru_cache(maxsize=8192)
def _persons(traceback: Any) -> Codes:
    """Return the functions in the frames that belong to no library, the outermost first.

    One that calls itself stands there once: what matters is which function it is, and not how often it is entered.
    """
    frames = reversed(jax_versions.frames(traceback))
    persons = (code for code in frames if jax_versions.library_of(code.co_filename) is None)
    # Code objects of different files may be equal.
    return tuple({(code, code.co_filename): code for code in persons}.values())


@lru_cache(maxsize=8192)
def _names(codes: Codes) -> Path:
    """Return what the functions are called; a `__call__` has the name of its class, a lambda none."""
    names = (code.co_qualname.split(".")[-2:] for code in codes)
    plain = (name[0] if name[-1] == "__call__" else name[-1] for name in names)
    return tuple(name for name in plain if not name.startswith("<"))


def _place(codes: Codes, starts: set[str]) -> int | None:
    """Return which of the functions begins at one of these places."""
    if not starts:
        return None
    return next((i for i, code in enumerate(codes) if f"{code.co_filename}:{code.co_firstlineno}" in starts), None)


def _starts(jaxpr: Any) -> set[str]:
    place = jax_versions.start_of(jaxpr)
    return {place} if place and jax_versions.library_of(place.rpartition(":")[0]) is None else set()


def _common(paths: list[Path], otherwise: Path) -> Path:
    if not paths:
        return otherwise
    first, last = min(paths), max(paths)
    count = next((index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:count]
