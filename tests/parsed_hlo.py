"""The operations of an HLO module, read from its text and from its readable form, to compare them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mithril_nb.stages.hlo.readable import NUMBER, bodies_of, described_by_word, expected_types, items_of, runs_of
from mithril_nb.stages.hlo.syntax import arrays_in, split

_TYPE = re.compile(r"(?:[a-z]\w*\[[^\]]*\])(?= )")
_HEAD = re.compile(r"(return )?(?:([A-Za-z][\w.]*) = )?")
_TITLE = re.compile(r"(\w[\w.]*)\((.*)\):$")
_ITEM = re.compile(r"([A-Za-z][\w.]*)\[(\d+)\]$")
_OPERATION = re.compile(r"([\w\-]+)\(([^()]*)\)((?: (?:\w+ )?by [a-z]+(?![\w.=])| \w+=@[\w.]+)*)")
_WORD = re.compile(r" (?:(\w+) )?by ([a-z]+)")
_NAMED = re.compile(r" (\w+)=@([\w.]+)")


@dataclass(frozen=True)
class Operation:
    """One operation, equal for the printed text and the original.

    Attributes:
        opcode: The operation.
        results: Dtype and sizes of each array in its result.
        operands: Positions of its operands among the operations of its computation; -1 if the text has no such line.
        runs: Computations that it runs, each with the attribute: a position in the list, or a word such as `"add"`.
        is_root: True if it returns the result of its computation.
    """

    opcode: str
    results: tuple[tuple[str, tuple[int, ...]], ...]
    operands: tuple[int, ...] = ()
    runs: tuple[tuple[str, int | str], ...] = ()
    is_root: bool = False


def operations(text) -> tuple[tuple[Operation, ...], ...]:
    """Return the operations of each computation of a module, in the order they are first run, the entry first."""
    _, bodies = bodies_of(text)
    runs = {
        name: [callee for line in body.instructions for how, callee in runs_of(line, body, bodies)[0]]
        for name, body in bodies.items()
    }
    by_word = described_by_word(bodies)
    shown = [name for name in bodies if name not in by_word]
    order = {name: at for at, name in enumerate(visited(shown, runs))}
    found = []
    for name in order:
        body = bodies[name]
        lines = [*body.params, *body.instructions]
        places = {line.name: at for at, line in enumerate(lines)}
        rows = []
        for line in lines:
            called, words = runs_of(line, body, bodies)
            rows.append(
                Operation(
                    line.opcode,
                    line.shapes,
                    tuple(places.get(operand, -1) for operand in line.operands),
                    tuple(sorted([*((how, order[callee]) for how, callee in called), *words], key=lambda run: run[0])),
                    line.is_root,
                )
            )
        found.append(tuple(rows))
    return tuple(found)


@dataclass
class _Row:
    """One operation while its computation is read."""

    opcode: str
    type: str
    operands: list[str] = field(default_factory=list)
    called: list[tuple[str, str]] = field(default_factory=list)
    words: list[tuple[str, str]] = field(default_factory=list)
    is_root: bool = False


@dataclass
class _Computation:
    rows: list[_Row] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def add(self, row: _Row, name=""):
        """Add an operation under a name."""
        if name:
            self.places[name] = len(self.rows)
        self.rows.append(row)

    def type_of(self, name):
        """Return the type of the value with this name, or `""`."""
        return self.rows[self.places[name]].type if name in self.places else ""


def parse(text) -> tuple[tuple[Operation, ...], ...]:
    """Return the same for a readable module; lines in another form are skipped."""
    return _Reader(text).result()


class _Reader:
    def __init__(self, text):
        self._lines = [(len(line) - len(line.lstrip(" ")), line.strip()) for line in text.split("\n")]
        self._found: dict[str, _Computation] = {}
        self._at = 0

    def result(self) -> tuple[tuple[Operation, ...], ...]:
        """Read all computations, and sort them in the order they are first run."""
        while self._at < len(self._lines):
            depth, line = self._lines[self._at]
            self._at += 1
            title = _TITLE.match(line)
            if depth == 0 and (title or line == "entry:"):
                body = self._found[f"@{title[1]}" if title else "@entry"] = _Computation()
                if title:
                    _params(body, title[2], ())
                self._inside(body, depth, "")
        roots = [name for name in self._found if name.startswith("@")]
        runs = {
            name: [callee for row in body.rows for _, callee in row.called if callee in self._found]
            for name, body in self._found.items()
        }
        order = {name: at for at, name in enumerate(visited(_uncalled_first(roots, runs), runs))}
        return tuple(
            tuple(_operation(row, self._found[name], order) for row in self._found[name].rows) for name in order
        )

    def _inside(self, body: _Computation, depth, expected):
        """Read the lines that are indented more than `depth`."""
        while self._at < len(self._lines) and self._lines[self._at][0] > depth:
            inner, line = self._lines[self._at]
            self._at += 1
            self._line(body, inner, line, expected)

    def _line(self, body: _Computation, depth, line, expected):
        head = _HEAD.match(line)
        rest = line[head.end() :] if head else line
        is_root, name = bool(head and head[1]), (head[2] if head else "") or ""
        if is_root and not name and rest in body.places:
            body.rows[body.places[rest]].is_root = True
            return
        given = expected if is_root else ""
        item = _ITEM.match(rest)
        if item:
            type = given or items_of(body.type_of(item[1]), item[2])
            body.add(_Row("get-tuple-element", type, [item[1]], is_root=is_root), name)
            return
        stated, rest = _type(rest)
        constant = re.match(r"(constant)\(.*\)$", rest)
        found = constant or _OPERATION.match(rest)
        if found is None or line.startswith("//"):
            return
        row = _Row(found[1], stated or given, is_root=is_root)
        aliases = []
        for operand in [] if constant or row.opcode == "parameter" else split(found[2]):
            number, _, dtype = operand.partition(":")
            if NUMBER.fullmatch(number):
                type = f"{dtype or (arrays_in(row.type) or (('?', ()),))[0][0]}[]"
                row.operands.append(f"{len(body.rows)}")
                aliases.append("")
                body.add(_Row("constant", type), f"{len(body.rows)}")
            else:
                outer, _, alias = operand.partition(" as ")
                row.operands.append(outer)
                aliases.append(alias or outer)
        if row.opcode == "tuple" and not row.type:
            row.type = f"({', '.join(body.type_of(operand) for operand in row.operands)})"
        runs = "" if constant else found[3]
        row.words = [(how or "to_apply", word) for how, word in _WORD.findall(runs)]
        row.called = [(how, f"@{callee}") for how, callee in _NAMED.findall(runs)]
        body.add(row, name)
        self._bodies(body, row, depth, aliases)

    def _bodies(self, outer: _Computation, row: _Row, depth, names):
        """Read the lines below an operation: one body that uses its operands, or parts with titles."""
        given = tuple(outer.type_of(operand) for operand in row.operands)
        while self._at < len(self._lines) and self._lines[self._at][0] > depth:
            title = _TITLE.match(self._lines[self._at][1])
            body, key = _Computation(), f"{len(self._found)}"
            self._found[key] = body
            if title:
                self._at += 1
                row.called.append((title[1], key))
                takes, gives = expected_types(row.opcode, title[1], given, row.type)
                _params(body, title[2], takes)
                self._inside(body, self._lines[self._at - 1][0], gives)
            else:
                row.called.append(("calls" if row.opcode == "fusion" else "to_apply", key))
                for name, type in zip(names, given, strict=True):
                    body.add(_Row("parameter", type), name)
                self._inside(body, depth, row.type)


def _params(body: _Computation, text, types: tuple[str, ...]):
    for at, param in enumerate(split(text)):
        name, _, type = param.partition(": ")
        body.add(_Row("parameter", type or (types[at] if at < len(types) else "")), name)


def _type(text) -> tuple[str, str]:
    """Return the type at the start of a text, if there is one, and the rest."""
    if text.startswith("("):
        depth = 0
        for place, char in enumerate(text):
            depth += (char in "([{") - (char in ")]}")
            if depth == 0:
                return text[: place + 1], text[place + 1 :].lstrip()
    found = _TYPE.match(text)
    return (found[0], text[found.end() :].lstrip()) if found else ("", text)


def _uncalled_first(roots, runs: dict[str, list[str]]):
    run = {callee for callees in runs.values() for callee in callees}
    return sorted(roots, key=lambda name: (name != "@entry", name in run))


def _operation(row: _Row, body: _Computation, order: dict[str, int]) -> Operation:
    called = [(how, order[callee]) for how, callee in row.called if callee in order]
    return Operation(
        row.opcode,
        arrays_in(row.type),
        tuple(body.places.get(operand, -1) for operand in row.operands),
        tuple(sorted([*called, *row.words], key=lambda run: run[0])),
        row.is_root,
    )


def visited(roots: Iterable[str], runs: Mapping[str, list[str]]):
    """Return all computations in the order they are first run, starting from the roots."""
    seen: dict[str, None] = {}
    for root in roots:
        waiting = [root]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen[name] = None
                waiting.extend(reversed(runs.get(name, [])))
    return list(seen)
