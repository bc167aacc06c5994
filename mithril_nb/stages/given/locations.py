"""Read the names of operations and the lines of Python that JAX wrote into StableHLO and HLO.

A program that this package traces has a tag in the name of each operation, which identifies its equation. A given
program has no tags, but only JAX's names, such as "jit(f)/mlp/dot_general": the scopes around an operation. MLIR stores
the name as a location, XLA as `op_name`. Operations of two stages are linked if they have the same name, and the named
scopes in a name are the block. Several operations may have the same name, so all these blocks are marked as inferred.

An MLIR location is a name around a place in a file, a call stack ("callsite"), or several locations ("fused").
The text of an HLO module starts with tables of files and stack frames; older modules have a `source_file` and a
`source_line` for each instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice, product
from threading import Lock

from mithril_nb.stages import jax_versions
from mithril_nb.stages.hlo.syntax import read_mlir, read_xla
from mithril_nb.stages.records import LOSS, OPTIMIZER, UNATTRIBUTED, Equation, Read, Role
from mithril_nb.stages.trace.provenance.frames import Lines, Span, lines_of_frames
from mithril_nb.stages.trace.provenance.scopes import Marks, scopes_of

# For example: transpose(jvp(relu)) in an op name: transformations wrap the name of a scope
_WRAPPER = re.compile(r"([A-Za-z_]\w*)\((.*)\)", re.DOTALL)
# A tag of this package. It is removed from a name, because the name may have no tag in another stage.
_TAG = re.compile(r"mnb\d*#[b\d.]+~")
_CALLS = jax_versions.CALL_NAMES | {"eval_jaxpr"}
# Components of a name that are no scopes of the user, but primitives with bodies, such as `while`.
_STRUCTURE = _CALLS | {"while", "scan", "cond", "switch", "shard_map", "run_scoped"}
# For example: branch_1_fun in jit(f)/cond/branch_1_fun/add
# Components that name one body of the primitive in the component before.
_BODIES = re.compile(r"body|cond|branch_\d+_fun|cond_fun|body_fun")


class OpNames(Marks):
    """Identifies operations by their names, for programs that have no tags of this package.

    It has the methods of `Tags`. The components of a name are used like tags.

    Examples:
        >>> OpNames().path("jit(f)/mlp/dot_general"), OpNames().path("jit(f)"), OpNames().path("")
        (('jit(f)', 'mlp', 'dot_general'), (), ())
    """

    joint = "/"
    are_unique = False
    marker = ""
    most_callers = 256  # a file may contain functions that call each other in exponentially many ways

    def path(self, op_name: str) -> tuple[str, ...]:
        """Return the components of a name; `()` if the name is empty or names the whole program."""
        return _components(op_name)


class NamedOperations(Mapping[str, Equation]):
    """A mapping from the name of an operation to an equation, which is computed from the name.

    Iteration yields nothing, because the mapping does not store the names.

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
        # JAX lowers a helper function once, with the names of its first call. XLA puts the names of a later caller
        # before these: "jit(f)/b/jit(f)/a/add". Such a name has the wrong scopes.
        root, _, rest = id.partition("/")
        return not (root.startswith(("jit(", "pjit(")) and f"/{root}/" in f"/{rest}")

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def as_inferred(read: Read) -> Read:
    """Return a stage in which every block is marked as inferred."""
    text, instructions = read
    return text, tuple(
        replace(instruction, origin="inferred") if instruction.origin else instruction for instruction in instructions
    )


def slashes_in(op_name: str) -> Iterator[int]:
    """Yield the positions of the slashes that separate the components of a name."""
    depth = 0
    for position, char in enumerate(op_name):
        depth += (char == "(") - (char == ")")
        if char == "/" and depth == 0:  # in parentheses it is part of the name of a transformed scope: jit(a/b)/add
            yield position


@lru_cache(maxsize=8192)
def _components(op_name: str) -> tuple[str, ...]:
    ends = [*slashes_in(op_name), len(op_name)]
    parts = [op_name[start:end] for start, end in zip([0, *(end + 1 for end in ends)], ends, strict=False)]
    components = tuple([part for part in parts if part and not _TAG.fullmatch(part)])
    return () if len(components) == 1 and _WRAPPER.fullmatch(components[0]) else components


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
        is_call = bool(stack) and stack[-1] in {(call, True) for call in _CALLS} and part.endswith(")")
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


Sources = tuple[tuple[str, ...], tuple[str, ...]]
"""The lines of Python that an instruction comes from: `Instruction.source` and `library_source`."""
ReadSources = Callable[[Iterable[str]], Sources]
"""Returns the lines of Python for the locations of an instruction."""
Stack = tuple[Span, ...]
"""The frames of a call stack, the innermost first."""

_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
# For example: "relu", (, callsite, #loc7 and 12 in callsite("relu"(#loc7) at "net.py":12:4)
_TOKEN = re.compile(rf"{_QUOTED}|#loc\d*|\w+|\S")
# For example: 1 {file_name_id=1 function_name_id=2 line=3 end_line=3 column=4 end_column=9}
_ROW = re.compile(r"(\d+) (.*)")
_NUMBER = re.compile(r"(\w+)=(\d+)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
# File name in the locations that MLIR invents for a text without locations. They give lines of the text itself.
_THE_TEXT = "-"
_MOST_FRAMES, _MOST_STACKS = 100, 16
"""Maximum numbers of frames of a stack and of stacks of a location, because a damaged file may contain any number."""


class GivenLines:
    """Reads the Python lines in the locations of one program, which was lowered elsewhere.

    Attributes:
        labels: A dict from the path of each file of the user that was read so far to its short name, `"net.py"`.
    """

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self._lock = Lock()

    @property
    def files(self) -> dict[str, str]:
        """A dict from the label of each user file seen so far to its path."""
        return {label: path for path, label in self.labels.items()}

    def of_mlir(self, table: Mapping[str, str]) -> ReadSources:
        """Return a function that reads locations of StableHLO.

        Args:
            table: A dict from the name of each location in the module to its text.

        Examples:
            >>> GivenLines().of_mlir({"#loc1": '"/a/net.py":3:4 to 4:9'})(['"add"(#loc1)'])
            (('net.py:3-4',), ())
        """
        # The function takes locations as text. It returns the lines of the user's files, and the lines of libraries.
        return self._reader(_Locations(table).stacks)

    def of_hlo(self, text: str) -> ReadSources:
        """Return a function that reads locations of an HLO module, as `of_mlir` does."""
        # A location is the number of a stack frame in the tables of the module, or text such as `"net.py":3`.
        frames, plain = _frames(text), _Locations({})
        return self._reader(lambda location: (frames(location),) if location.isdigit() else plain.stacks(location))

    def _reader(self, stacks: Callable[[str], Sequence[Stack]]) -> ReadSources:
        lines_by_location: dict[str, list[Lines]] = {}

        def read(locations: Iterable[str]) -> Sources:
            users: dict[str, None] = {}
            libraries: dict[str, None] = {}
            for location in locations:
                # Thousands of instructions share a location.
                if location not in lines_by_location:
                    lines_by_location[location] = [lines_of_frames(stack) for stack in stacks(location)]
                for user, library in lines_by_location[location]:
                    if user is not None:
                        last = f"-{user.end_line}" if user.end_line > user.line else ""
                        users[f"{self._label(user.file)}:{user.line}{last}"] = None
                    if library is not None:
                        libraries[f"{jax_versions.library_label(library.file)}:{library.line}"] = None
            return tuple(users), tuple(libraries)

        return read

    def _label(self, file: str) -> str:
        with self._lock:
            # Compute all labels again: `m.py` becomes `x/m.py` if there is a second file `m.py`.
            if file not in self.labels:
                self.labels = jax_versions.file_labels([*self.labels, file])
            return self.labels[file]


class _Locations:
    # Locations of MLIR as call stacks.

    def __init__(self, table: Mapping[str, str]):
        self._table = table
        self._cache: dict[str, Sequence[Stack]] = {}

    def stacks(self, location: str) -> Sequence[Stack]:
        tokens: list[str] = _TOKEN.findall(location)
        try:
            return self._read(tokens[::-1])
        except (IndexError, RecursionError, ValueError):  # a damaged file
            return ()

    def _named(self, name: str) -> Sequence[Stack]:
        if name not in self._cache:
            self._cache[name] = ()  # in a damaged file a location may contain itself
            self._cache[name] = self.stacks(self._table.get(name, ""))
        return self._cache[name]

    def _read(self, tokens: list[str]) -> Sequence[Stack]:
        """Return the stacks of the location at the end of `tokens` (in reverse order), and remove its tokens."""
        token = tokens.pop()
        if token.startswith("#"):
            return self._named(token)
        if token.startswith('"') and tokens[-1:] == [":"]:
            span = _span(read_mlir(token[1:-1]), tokens)
            return () if span.file == _THE_TEXT else ((span,),)
        if token.startswith('"') and tokens[-1:] == ["("]:
            tokens.pop()
            stacks = self._read(tokens)
            _skip(tokens, ")")
            return stacks
        if token == "callsite":
            _skip(tokens, "(")
            callee = self._read(tokens)
            _skip(tokens, "at")
            caller = self._read(tokens)
            _skip(tokens, ")")
            pairs = islice(product(callee, caller), _MOST_STACKS)
            return [(*inner, *outer)[:_MOST_FRAMES] for inner, outer in pairs] or callee or caller
        if token == "fused":
            _skip(tokens, "[")
            parts = [*self._read(tokens)]
            while tokens.pop() == ",":
                parts += self._read(tokens)
            return parts[:_MOST_STACKS]
        return ()


def _skip(tokens: list[str], token: str) -> None:
    while tokens.pop() != token:
        pass


def _span(file: str, tokens: list[str]) -> Span:
    """Return the place in a file from the next tokens: `:3`, `:3:4`, `:3:4 to :9` or `:3:4 to 5:9`."""
    tokens.pop()
    line = end = int(tokens.pop())
    if tokens[-1:] == [":"]:
        tokens.pop()
        tokens.pop()
    if tokens[-1:] == ["to"]:
        tokens.pop()
        end = line if tokens[-1] == ":" else int(tokens.pop())
        del tokens[-2:]
    return Span(file, line, None, end, None)


def _frames(text: str) -> Callable[[str], Stack]:
    """Return a function from a frame number to its call stack, from the tables of an HLO module."""
    tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
    current: dict[int, str] | None = None
    # The tables are between the first line and the first computation.
    for line in islice(text.splitlines(), 1, None):
        if line in tables:
            current = tables[line]
        elif current is not None and (row := _ROW.match(line)):
            current[int(row[1])] = row[2]
        elif line:
            break
    locations = {number: _numbers(row) for number, row in tables["FileLocations"].items()}
    rows = {number: _numbers(row) for number, row in tables["StackFrames"].items()}
    # Some versions of XLA print the number of the parent plus one. A frame without a parent then has its own number.
    is_shifted = any(row.get("parent_frame_id", 0) == number for number, row in rows.items())

    def stack(number: str) -> Stack:
        spans: list[Span] = []
        frame = int(number)
        while frame in rows and len(spans) < _MOST_FRAMES:
            location = locations.get(rows[frame].get("file_location_id", 0), {})
            file = tables["FileNames"].get(location.get("file_name_id", 0), "")
            line = location.get("line", 0)
            if file and line:
                spans.append(Span(read_xla(file[1:-1]), line, None, location.get("end_line", line), None))
            frame = rows[frame].get("parent_frame_id", 0) - is_shifted
        return tuple(spans)

    return stack


def _numbers(row: str) -> dict[str, int]:
    return {name: int(number) for name, number in _NUMBER.findall(row)}
