"""The Python behind each equation: the user's functions and a line of code, from the frames that JAX recorded.

JAX records with each equation the Python frames that created it, from the traced function inwards. The frames of an
equation in a nested jaxpr begin at the function of that jaxpr, because JAX may have traced it for an earlier call.

- The user's functions are the blocks of a program without scopes. The path of an equation in a nested jaxpr begins with
  the path of the equation around it. The function of a library that the user's code calls is a block too. The functions
  inside it are left out, and those of JAX; but if the program is a function of a library, its functions are blocks.
- The line of an equation is the innermost line of the user's code, together with the library line that it called. An
  equation of a library's jitted function has no frame of the user. It gets the line of the call.
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
from mithril_nb.stages.trace.equations import Site, Sites
from mithril_nb.stages.trace.tracing import Trace

Path = tuple[str, ...]
IN_SCOPE = ""
"""In a path of functions: the functions after it may be in a `jax.named_scope`."""
Codes = tuple[CodeType, ...]

# Packages whose functions are no blocks. Their modules are.
_NO_BLOCKS = frozenset({"mithril_nb", "flax", "equinox", "haiku"})
_OPTIMIZERS = frozenset({"optax"})
# Functions of optax that are part of an update. Its other functions are losses and schedules.
_OPTIMIZER_WORK = frozenset({"init", "init_fn", "update", "update_fn", "apply_updates"})


def functions_of(trace: Trace, top: Sites) -> tuple[dict[str, Path], set[str]]:
    """Return the user's functions around each equation, and the equations that JAX moved out of nested jaxprs.

    Returns:
        - A dict from the id of an equation to the names of the user's functions that created it, the outermost first.
          The last may be the function of a library that the user's code calls. The traced function and lambdas are left
          out. Equations without Python frames are not in the dict. `IN_SCOPE` follows a function that opens scopes.
        - Ids of the moved equations. Reverse mode moves, for example, the loop invariants of a scan.
    """
    library = _known_library(trace.starts.rpartition(":")[0])
    own = {jax_versions.start_of(trace.closed.jaxpr)} if library else _starts(trace.closed.jaxpr)
    reader = _FunctionReader({trace.starts, *own} - {""}, library)
    reader.visit(top, (), set())
    reader.complete()
    return reader.paths, reader.lifted


def optimizer_work(sites: Sites) -> set[str]:
    """Return the ids of the equations that an optimizer library created, with the equations nested in them."""
    ids: set[str] = set()
    for site in sites:
        is_inside = site.parent is not None and site.parent.id in ids
        if is_inside or _is_optimizer_work(site.equation.source_info.traceback):
            ids.add(site.id)
    return ids


@lru_cache(maxsize=8192)
def _is_optimizer_work(traceback: Any) -> bool:
    return any(
        code.co_name in _OPTIMIZER_WORK and jax_versions.library_of(code.co_filename) in _OPTIMIZERS
        for code in jax_versions.frames(traceback)
    )


class _FunctionReader:
    def __init__(self, target: set[str], library: str | None):
        self._target, self._library = target, library
        self.paths: dict[str, Path] = {}
        self.lifted: set[str] = set()
        self._outer_paths: dict[CodeType, set[Path]] = {}  # the known paths around each function
        self._cut: list[tuple[Site, Codes, Path]] = []

    def visit(self, body: Sites, outer: Path, starts: set[str]) -> None:
        """Find the paths of the equations of a jaxpr: the names of the user's functions around each."""
        lifted: set[str] = set()
        is_known = False  # whether any frames include the function of this jaxpr
        # Many equations share a traceback.
        read: dict[Any, tuple[Codes, Path | None]] = {}
        for site in body:
            traceback = site.equation.source_info.traceback
            if traceback not in read:
                codes = _user_functions(traceback, self._library)
                target, start = _start_index(codes, self._target), _start_index(codes, starts)
                is_known |= target is not None or start is not None
                if target is not None:  # All frames are there, even in a nested jaxpr.
                    read[traceback] = codes, self._register(codes[target + 1 :], _opened_in(codes[target]))
                elif codes and start is None and (starts or (self._target and not any(outer))):
                    read[traceback] = codes, None
                else:
                    read[traceback] = codes, self._register(codes[start or 0 :], outer)
            codes, path = read[traceback]
            if path is None:  # JAX moved it out of the nested jaxpr in which its frames begin
                self._cut.append((site, codes, outer))
                lifted.add(site.id)
            else:
                self._put(site, path, traceback is not None)
        if is_known:
            self.lifted |= lifted

    def _register(self, codes: Codes, outer: Path) -> Path:
        """Register the path around each function of a call stack; return the path of the innermost function."""
        for index, code in enumerate(codes):
            self._outer_paths.setdefault(code, set()).add(outer + _names(codes[:index]))
        return outer + _names(codes)

    def complete(self) -> None:
        """Find the paths of the equations that JAX moved out of nested jaxprs."""
        # Their frames lack the outer functions.
        # The outer functions are inferred from other equations: those that are around every call of the same
        # function.
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
    """Return the longest common start of some paths; `()` for an empty list.

    Examples:
        >>> common_start([("net", "a", "b"), ("net", "a"), ("net", "c")])
        ('net',)
    """
    first, last = min(paths, default=()), max(paths, default=())
    count = next((index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:count]


@lru_cache(maxsize=8192)
def _user_functions(traceback: Any, library: str | None) -> Codes:
    """Return the user's functions in a traceback, the outermost first; a recursive function only once."""
    # The function of a library that the innermost of them calls is the last. Functions of `library` count as the
    # user's.
    users: list[CodeType] = []
    called = None
    for code in jax_versions.frames(traceback):
        owner = library_of(code.co_filename)
        if owner in (None, library):
            users.append(code)
        elif not users:
            called = code if _known_library(code.co_filename) and not code.co_name.startswith(("_", "<")) else called
    if users and called is not None:
        users.insert(0, called)
    # Code objects of different files may be equal.
    return tuple({(code, code.co_filename): code for code in reversed(users)}.values())


def _known_library(file: str) -> str | None:
    """Return the library of a file; `None` if its functions are no blocks: a file of the user, JAX, or machinery."""
    return library_of(file) if _kind(file) == _LIBRARY and library_of(file) not in _NO_BLOCKS else None


@lru_cache(maxsize=8192)
def _names(codes: Codes) -> Path:
    # `IN_SCOPE` follows a function that opens scopes.
    # A qualified name is, for example, Net.__call__ or outer.<locals>.inner.
    path: list[str] = []
    for code in codes:
        name = code.co_qualname.split(".")[-2:]
        plain = name[0] if name[-1] == "__call__" else name[-1]
        path += [*[plain] * (not plain.startswith("<")), *_opened_in(code)]
    return tuple(path)


def _opened_in(code: CodeType) -> Path:
    return (IN_SCOPE,) * ("named_scope" in code.co_names)


def _start_index(codes: Codes, starts: set[str]) -> int | None:
    """Return the index of the first function that begins on a line in `starts`; `None` if there is none."""
    if not starts:
        return None
    return next((i for i, code in enumerate(codes) if f"{code.co_filename}:{code.co_firstlineno}" in starts), None)


def _starts(jaxpr: Any) -> set[str]:
    start = jax_versions.start_of(jaxpr)
    return {start} if start and jax_versions.library_of(start.rpartition(":")[0]) is None else set()


class Span(NamedTuple):
    """An expression of Python.

    Attributes:
        file: Path of the file, as Python reports it.
        line: Number of the first line, from 1.
        column: The first column, in bytes from 0; `None` if unknown.
        end_line: Number of the last line.
        end_column: The column after the last character; `None` if unknown.
    """

    file: str
    line: int
    column: int | None
    end_line: int
    end_column: int | None


class Lines(NamedTuple):
    """Source lines of an equation.

    Attributes:
        user: The innermost expression in the user's code that created the equation; `None` if unknown.
        library: The expression in a library that created the equation, if `user` calls the library; else `None`.
    """

    user: Span | None = None
    library: Span | None = None


def calling_line() -> Span | None:
    """Return the expression of the user's code that called this package; `None` if there is none."""
    frame = sys._getframe(1)
    while frame is not None and _kind(frame.f_code.co_filename) != _USER:
        frame = frame.f_back
    return None if frame is None else Span(frame.f_code.co_filename, *_range(frame.f_code, frame.f_lasti))


def lines_of(trace: Trace, top: Sequence[Site], requested_at: Span | None = None) -> dict[str, Lines]:
    """Return a dict from the id of each equation of a program to its source lines.

    `requested_at`: The expression for equations that no line of the user created, such as those of our train step: the
    call for which this package built the program.
    """
    lines_by_id: dict[str, Lines] = {}

    def visit(body: Sequence[Site], outer: Lines, start: tuple[str, int] | None) -> None:
        for site in body:
            traceback = site.equation.source_info.traceback
            lines = _EMPTY if traceback is None else lines_of_traceback(traceback, start)
            if lines.user is None:
                lines = Lines(outer.user, lines.library or outer.library)
            lines_by_id[site.id] = lines
            for jaxpr, inner in site.bodies:
                visit(inner, lines, _start(jax_versions.start_of(jaxpr))[1])

    own, inside = _start(jax_versions.start_of(trace.closed.jaxpr))
    # JAX adds equations around the user's function, such as the initial cotangent of a gradient.
    visit(top, Lines(_start(trace.starts)[0] or own or requested_at), inside)
    return lines_by_id


_EMPTY = Lines()
_USER, _LIBRARY, _JAX, _MACHINERY = range(4)

# Files of JAX that compose operations, as libraries do; other files of JAX trace, transform and dispatch.
_JAX_FUNCTIONS = re.compile(
    r".*[/\\]jax[/\\](?:_src[/\\](?:numpy[/\\](?!array_methods|ufunc_api)|nn[/\\]|scipy[/\\]|image[/\\]|ops[/\\]"
    r"|third_party[/\\]|random\b|lax[/\\](?:linalg|fft|special)\.py)|experimental[/\\]|nn[/\\]|scipy[/\\])"
)
_OUR_MODELS = re.compile(r".*[/\\]mithril_nb[/\\](?:models|backends|train)[/\\]")
# Names of code that is not in a file, such as `<string>`, except those of code that the user typed.
_TYPED = re.compile(r"<(?!stdin>|string>|input>|console>|ipython|cell)")


@lru_cache(maxsize=8192)
def _kind(file: str) -> int:
    """Return the kind of code in a file: the user's, a library's, JAX's library functions, or machinery to skip."""
    library = library_of(file)
    if library is None:
        return _MACHINERY if _TYPED.match(file) else _USER
    if library == "mithril_nb":
        return _LIBRARY if _OUR_MODELS.match(file) else _MACHINERY
    # Functions such as `jax.nn.gelu` are a library to the user. The code that traces is machinery.
    if library == "jax":
        return _JAX if _JAX_FUNCTIONS.match(file) else _MACHINERY
    # Modules of Python, such as `functools`, only pass the user's calls on.
    return _MACHINERY if library == "python" else _LIBRARY


@lru_cache(maxsize=8192)
def lines_of_traceback(traceback: Any, start: tuple[str, int] | None) -> Lines:
    """Return the source lines of an equation with this traceback, inside the function in file and line `start`."""
    codes, offsets = jax_versions.frames_and_offsets(traceback)
    user, library = _choose(_files(codes, start))
    return Lines(
        *(
            None if index is None else Span(codes[index].co_filename, *_range(codes[index], offsets[index]))
            for index in (user, library)
        )
    )


def lines_of_frames(frames: Sequence[Span]) -> Lines:
    """Return the source lines of an equation, given the call stack that created it, the innermost frame first.

    Examples:
        >>> import jax
        >>> here = Span("/a/net.py", 3, None, 3, None)
        >>> lines_of_frames([Span(jax.nn.__file__, 7, None, 7, None), here]).user == here
        True
    """
    user, library = _choose(frame.file for frame in frames)
    return Lines(*(None if index is None else frames[index] for index in (user, library)))


def _files(codes: Sequence[CodeType], start: tuple[str, int] | None) -> Iterator[str]:
    for code in codes:
        yield code.co_filename
        if start is not None and code.co_firstlineno == start[1] and code.co_filename == start[0]:
            return


def _choose(files: Iterable[str]) -> tuple[int | None, int | None]:
    library, is_exact = None, False
    for index, file in enumerate(files):
        kind = _kind(file)
        if kind == _USER:
            return index, library
        # Prefer the innermost line of a library. Of JAX, take the outermost line: the function that was called.
        if kind == _LIBRARY and not is_exact:
            library, is_exact = index, True
        elif kind == _JAX and not is_exact:
            library = index
    return None, library


@lru_cache(maxsize=8192)
def _range(code: CodeType, offset: int) -> tuple[int, int | None, int, int | None]:
    # The file must not be part of the result: code objects of different files may be equal, and share an entry of the
    # cache.
    # `offset` counts bytes. There is one position for every two bytes.
    line, end_line, column, end_column = next(islice(code.co_positions(), offset // 2, None), (None,) * 4)
    first = line or code.co_firstlineno
    return first, column, end_line or first, end_column


@lru_cache(maxsize=1024)
def _start(start: str) -> tuple[Span | None, tuple[str, int] | None]:
    """Return `"file.py:12"`, the first line of a function, as a span if it is the user's, else as file and line."""
    file, _, line = start.rpartition(":")
    if not line.isdigit():
        return None, None
    if _kind(file) == _USER:
        return Span(file, int(line), None, int(line), None), None
    return None, (file, int(line))
