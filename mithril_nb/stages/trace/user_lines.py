"""The lines of Python behind each equation: the innermost line of the user, and the line of the library it called.

JAX keeps with each equation the Python frames that made it. The frames of a nested jaxpr begin at the function that was
traced, which JAX may have traced for an earlier call: the equations of a library's function have no frame of the user,
and take the line of the equation that holds them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import Any, NamedTuple

from mithril_nb.stages import jax_versions
from mithril_nb.stages.jax_versions import library_of
from mithril_nb.stages.trace.equations import Site
from mithril_nb.stages.trace.tracing import Trace


class Span(NamedTuple):
    """An expression of Python.

    Attributes:
        file: Path of the file, as Python reports it.
        line: Its first line, from 1.
        column: Its first column, in bytes from 0; `None` if Python does not keep columns.
        end_line: Its last line.
        end_column: The column after its last character.
    """

    file: str
    line: int
    column: int | None
    end_line: int
    end_column: int | None


class Lines(NamedTuple):
    """Where an equation comes from.

    Attributes:
        user: The innermost expression of the user, or `None`.
        library: The expression of the library that it called, or `None`.
    """

    user: Span | None = None
    library: Span | None = None


def calling_line() -> Span | None:
    """Return the expression of the user that this thread evaluates now, the innermost one; `None` without one."""
    frame = sys._getframe(1)
    while frame is not None and _kind(frame.f_code.co_filename) != _USER:
        frame = frame.f_back
    return None if frame is None else _span(frame.f_code, frame.f_lasti)


def lines_of(trace: Trace, top: Sequence[Site], requested_at: Span | None = None) -> dict[str, Lines]:
    """Return the lines behind each equation of a program, by its id.

    Args:
        trace: The program.
        top: Sites of its equations, without those of nested jaxprs.
        requested_at: The user's call that requested a program of this package, such as a train step: the line of
            what no other code of the user contributed to.
    """
    found: dict[str, Lines] = {}

    def visit(body: Sequence[Site], outer: Lines, start: tuple[str, int] | None) -> None:
        for site in body:
            traceback = site.equation.source_info.traceback
            lines = _EMPTY if traceback is None else _read(traceback, start)
            if lines.user is None:
                lines = Lines(outer.user, lines.library or outer.library)
            found[site.id] = lines
            for jaxpr, inner in site.bodies:
                visit(inner, lines, _library_start(jax_versions.start_of(jaxpr)))

    start = jax_versions.start_of(trace.closed.jaxpr)
    # What JAX computes around the user's function, such as the cotangent that a gradient starts with.
    visit(top, Lines(_start(trace.starts) or _start(start) or requested_at), _library_start(start))
    return found


_EMPTY = Lines()
_USER, _LIBRARY, _JAX, _MACHINERY = range(4)

_JAX_FUNCTIONS = re.compile(
    r".*[/\\]jax[/\\](?:_src[/\\](?:numpy[/\\](?!array_methods|ufunc_api)|nn[/\\]|scipy[/\\]|image[/\\]|ops[/\\]"
    r"|third_party[/\\]|random\b|lax[/\\](?:linalg|fft|special)\.py)|experimental[/\\]|nn[/\\]|scipy[/\\])"
)
"""Files of JAX that compose operations as a library does; the others trace, transform and dispatch them."""
_OUR_MODELS = re.compile(r".*[/\\]mithril_nb[/\\](?:models|backends|train)[/\\]")
_TYPED = re.compile(r"<(?!stdin>|string>|input>|console>|ipython|cell)")
"""Files that exist in memory only, except those that a user types: decorators generate such code."""


@lru_cache(maxsize=8192)
def _kind(file: str) -> int:
    """Return whose a file is."""
    library = library_of(file)
    if library is None:
        return _MACHINERY if _TYPED.match(file) else _USER
    if library == "mithril_nb":
        return _LIBRARY if _OUR_MODELS.match(file) else _MACHINERY
    if library == "jax":
        return _JAX if _JAX_FUNCTIONS.match(file) else _MACHINERY
    return _MACHINERY if library == "python" else _LIBRARY


@lru_cache(maxsize=8192)
def _read(traceback: Any, start: tuple[str, int] | None) -> Lines:
    """Return the lines of a traceback.

    Args:
        traceback: The traceback.
        start: File and line of the library's function that the jaxpr was traced from. Frames around it are those of
            the call for which JAX traced it, which may be another call.
    """
    codes, offsets = jax_versions.frames_and_offsets(traceback)
    user, library = _choose(_files(codes, start))
    return Lines(*(None if one is None else _span(codes[one], offsets[one]) for one in (user, library)))


def lines_of_frames(frames: Sequence[Span]) -> Lines:
    """Return the lines of a call stack that JAX wrote down.

    Args:
        frames: The frames, the innermost first.

    Examples:
        >>> import jax
        >>> here = Span("/a/net.py", 3, None, 3, None)
        >>> lines_of_frames([Span(jax.nn.__file__, 7, None, 7, None), here]).user == here
        True
    """
    user, library = _choose(frame.file for frame in frames)
    return Lines(*(None if one is None else frames[one] for one in (user, library)))


def _files(codes: Sequence[CodeType], start: tuple[str, int] | None) -> Iterator[str]:
    for code in codes:
        yield code.co_filename
        if start is not None and code.co_firstlineno == start[1] and code.co_filename == start[0]:
            return


def _choose(files: Iterable[str]) -> tuple[int | None, int | None]:
    """Return the places of the user's frame and of the library's among the files of frames, the innermost first."""
    library, is_exact = None, False
    for place, file in enumerate(files):
        kind = _kind(file)
        if kind == _USER:
            return place, library
        # The innermost line of a library. Of JAX, the outermost: those inside it are how JAX computes it.
        if kind == _LIBRARY and not is_exact:
            library, is_exact = place, True
        elif kind == _JAX and not is_exact:
            library = place
    return None, library


def _span(code: CodeType, offset: int) -> Span:
    return Span(code.co_filename, *_range(code, offset))


@lru_cache(maxsize=8192)
def _range(code: CodeType, offset: int) -> tuple[int, int | None, int, int | None]:
    """Return first line, column, last line and end column of an instruction.

    The file is not among them: Python's code objects are equal if only their files differ.
    """
    line, end_line, column, end_column = next(islice(code.co_positions(), offset // 2, None), (None,) * 4)
    first = line or code.co_firstlineno
    return first, column, end_line or first, end_column


@lru_cache(maxsize=1024)
def _library_start(start: str) -> tuple[str, int] | None:
    """Return where the function of a library begins that a jaxpr was traced from; `None` for one of the user."""
    file, _, line = start.rpartition(":")
    return (file, int(line)) if line.isdigit() and _kind(file) != _USER else None


def _start(start: str) -> Span | None:
    """Return the line on which a function of the user begins, or `None` if it belongs to a library."""
    file, _, line = start.rpartition(":")
    return Span(file, int(line), None, int(line), None) if line.isdigit() and _kind(file) == _USER else None
