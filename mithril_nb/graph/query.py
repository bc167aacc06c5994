r"""The language of searches: `kind:dot flops>1e6 block:head -role:backward "two words"`.

A query is a list of terms, and an item matches if all terms do. `search/query.ts` in the front end reads the same
language; tests compare both with the same examples, `tests/viz/golden/queries.json`.

    word               a block path or a kind contains the word
    kind:dot           a kind contains the text: the operation, or the kind of a block around it
    block:head         the block with this path or name, and everything inside it; `*` is any text
    role:backward      forward, backward or update
    dtype:f64          a result has this dtype, also as `float64`
    line:train.py      a line of Python contains the text
    flops>1e6          also bytes and memory, with < <= = >= >; numbers may end in k, M, G, T, P, or in KiB, MiB, ...
    -kind:dot          not
    "two words"        quotes keep spaces; \" is a quote and \\ a backslash
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any, overload

from mithril_nb.display import UNATTRIBUTED_LABEL, Shown
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.spec import full_dtype

EXAMPLES = {
    "block": "block:head", "kind": "kind:dot", "role": "role:backward", "dtype": "dtype:f64", "line": "line:train.py",
    "flops": "flops>1e6", "bytes": "bytes>1e6", "memory": "memory>1e6",
}  # fmt: skip
"""An example of each key."""
NUMBERS = ("flops", "bytes", "memory")
"""Keys of numbers: the FLOPs and accessed bytes in all runs of an equation, and the bytes of its results."""
_ROLES = ("forward", "backward", "update")
_RELATIONS = {"<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt}
# Not `str.isspace`: the front end must split at the same characters.
_SPACE = " \t\n\r\f\v\u00a0"
_KEY = re.compile(r"([A-Za-z_]+)(:|>=|<=|>|<|=)")
# "1.5k" and "2KiB", and a "B" after either, as the tables print them.
_NUMBER = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?:([kKmMgGtTpP])(i?))?[bB]?")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)("?)', re.DOTALL)


@dataclass(frozen=True)
class Searchable:
    """The properties of an equation, an instruction or a block that queries compare.

    Attributes:
        blocks: Paths of the blocks that it belongs to; empty if it is not attributed.
        kinds: Its operation, and the kinds of the blocks around it.
        role: `"forward"`, `"backward"`, `"update"`, or `""` if unknown.
        dtypes: Full names of the dtypes of its results.
        lines: The user's lines of Python that created it, as `"file.py:12"`.
        numbers: Its `"flops"`, `"bytes"` and `"memory"`, see `NUMBERS`. Unknown numbers are missing or `None`.
    """

    blocks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    role: str = ""
    dtypes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    numbers: Mapping[str, float | None] = field(default_factory=dict[str, float | None])


@dataclass(frozen=True)
class Condition:
    """One condition of a query.

    Attributes:
        key: The property to compare, such as `"kind"` or `"flops"`, see `EXAMPLES`. `""` for a word without a key,
            which is compared with paths and kinds of blocks.
        relation: `":"` for texts; `"<"`, `"<="`, `"="`, `">="` or `">"` for numbers.
        value: The text or number to compare with.
        is_negated: True for a term that starts with a minus: an item must not fulfil the condition.
    """

    key: str
    relation: str
    value: str | float
    is_negated: bool = False

    def __str__(self) -> str:
        sign, value = "-" if self.is_negated else "", self.value
        if not isinstance(value, str):
            is_whole = value % 1 == 0 and value < 1e15
            return f"{sign}{self.key}{self.relation}{int(value) if is_whole else repr(value)}"
        if self.key:
            return f"{sign}{self.key}:{_plain(value)}"
        return sign + (_quoted(value) if value[:1] == "-" or _KEY.match(value) else _plain(value))

    def matches(self, item: Searchable) -> bool:
        """Return whether an item matches. A comparison with an unknown number is false, so its negation matches."""
        if not isinstance(self.value, str):
            number = item.numbers.get(self.key)
            return self.is_negated != (number is not None and _RELATIONS[self.relation](number, self.value))
        # Queries ignore case, as users type them.
        pattern = self.value.lower()
        match self.key:
            case "block":
                holds = any(_is_part(pattern, path.lower()) for path in item.blocks or (UNATTRIBUTED_LABEL,))
            case "role":
                holds = pattern == item.role
            case "dtype":
                holds = full_dtype(pattern) in item.dtypes
            case _:
                texts = {"line": item.lines, "kind": item.kinds}.get(self.key, (*item.blocks, *item.kinds))
                holds = any(pattern in text.lower() for text in texts)
        return holds != self.is_negated


@dataclass(frozen=True)
class Query:
    """A parsed query; `str` returns its text.

    Examples:
        >>> query = parse_query('kind:DOT -block:"lm head" flops>=1.5M')
        >>> print(query)
        kind:DOT -block:"lm head" flops>=1500000
        >>> query.matches(Searchable(("block_0",), ("dot_general",), numbers={"flops": 2e6}))
        True
    """

    terms: tuple[Condition, ...]

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))

    def matches(self, item: Searchable) -> bool:
        """Return whether an item fulfils all conditions."""
        return all(term.matches(item) for term in self.terms)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys in the query, without `""`, each once."""
        return tuple(dict.fromkeys(term.key for term in self.terms if term.key))


def parse_query(text: object) -> Query:
    """Parse a query.

    Args:
        text: The query. Spaces separate terms; a query without terms matches everything.

    Examples:
        >>> [(term.key, term.value, term.is_negated) for term in parse_query("dot -role:backward").terms]
        [('', 'dot', False), ('role', 'backward', True)]
        >>> parse_query("rol:backward")
        Traceback (most recent call last):
            ...
        mithril_nb.errors.UnknownOptionError: unknown key 'rol' in a query.
            keys  block, kind, role, dtype, line, flops, bytes, memory
            Try: role:backward
    """
    if not isinstance(text, str):
        raise UnknownOptionError(f"a query is a text, not {short_repr(text)}.", (), "'kind:dot'")
    terms: list[Condition] = []
    at = 0
    while True:
        while at < len(text) and text[at] in _SPACE:
            at += 1
        if at == len(text):
            return Query(tuple(terms))
        start, is_negated = at, text[at] == "-"
        at += is_negated
        match = _KEY.match(text, at)
        key, relation = (match[1], match[2]) if match else ("", ":")
        at = match.end() if match else at
        value, at = _value(text, at, text[start:at])
        if value is None and key:
            example = EXAMPLES.get(_nearest(key.lower(), tuple(EXAMPLES)) or "", "kind:dot")
            raise UnknownOptionError(f"'{key}{relation}' needs a value.", (), example)
        if value is None:
            message = "'-' needs a term after it." if is_negated else "the text between quotes is empty."
            raise UnknownOptionError(message, (), "-kind:dot" if is_negated else '"two words"')
        terms.append(_term(key, relation, value, is_negated))


def _value(text: str, at: int, before: str) -> tuple[str | None, int]:
    # A quote inside a word is part of the word.
    if text[at : at + 1] != '"':
        end = at
        while end < len(text) and text[end] not in _SPACE:
            end += 1
        return text[at:end] or None, end
    match = _QUOTED.match(text, at)
    assert match is not None
    value, end = re.sub(r'\\(["\\])', r"\1", match[1]), match.end()
    if not match[2]:
        raise UnknownOptionError("a quote in the query is not closed.", (), f"{before}{_quoted(value or 'text')}")
    # `"a"b` is more likely a forgotten space than a word.
    if end < len(text) and text[end] not in _SPACE:
        raise UnknownOptionError("a space is needed after a closing quote.", (), f"{before}{_quoted(value)} ")
    return value or None, end


def _term(key: str, relation: str, value: str, is_negated: bool) -> Condition:
    name = key.lower()
    sign = "-" if is_negated else ""
    if not key:
        return Condition("", ":", value, is_negated)
    if name not in EXAMPLES:
        near = _nearest(name, tuple(EXAMPLES))
        right = f"{sign}{EXAMPLES[near] if near in NUMBERS else f'{near}:{_plain(value)}'}" if near else ""
        raise UnknownOptionError(
            f"unknown key '{key}' in a query.",
            (("keys", ", ".join(EXAMPLES)),),
            right or sign + _quoted(f"{key}{relation}{value}"),
        )
    if name in NUMBERS:
        number = number_of(value)
        if number is None:
            raise UnknownOptionError(f"{name} needs a number in a query.", (("received", value),), EXAMPLES[name])
        return Condition(name, "=" if relation == ":" else relation, number, is_negated)
    # `kind=dot` is read as `kind:dot`.
    if relation not in ":=":
        raise UnknownOptionError(
            f"{name} is a text, and '{relation}' compares numbers.", (), f"{sign}{name}:{_plain(value)}"
        )
    if name == "role" and value.lower() not in _ROLES:
        near = _nearest(value.lower(), _ROLES) or "backward"
        raise UnknownOptionError(
            f"unknown role '{value}' in a query.", (("roles", ", ".join(_ROLES)),), f"{sign}role:{near}"
        )
    return Condition(name, ":", value, is_negated)


def _nearest(name: str, choices: tuple[str, ...]) -> str | None:
    # Not `errors.similar`, because the front end must suggest the same name.

    best = max(choices, key=lambda choice: sum(takewhile(bool, map(operator.eq, name, choice))))
    return best if best[:1] == name[:1] else None


def number_of(text: str) -> float | None:
    """Return the number that a text such as `"1.5k"` or `"2KiB"` means; `None` if it means none."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    # The case does not matter: there are no thousandths of a FLOP.
    power = "kmgtp".index(match[2].lower()) + 1 if match[2] else 0
    value = float(match[1]) * float((1024 if match[3] else 1000) ** power)
    return value if math.isfinite(value) else None


def _plain(value: str) -> str:
    return _quoted(value) if value[:1] == '"' or any(char in _SPACE for char in value) else value


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _is_part(glob: str, path: str) -> bool:
    # The path may have more names, so the pattern "mlp_0" also matches all blocks inside `mlp_0`.
    patterns, parts = [part.split("*") for part in glob.split("/")], path.split("/")
    return any(
        all(_fits(pattern, part) for pattern, part in zip(patterns, parts[at:], strict=False))
        for at in range(len(parts) - len(patterns) + 1)
    )


def _fits(pattern: list[str], text: str) -> bool:
    first, *others = pattern
    if not others:
        return text == first
    *inner, last = others
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    # Taking the first occurrence of each part leaves the most text for the next parts, so no other occurrence needs to
    # be tried. A regular expression tries all of them, which takes minutes.
    at, end = len(first), len(text) - len(last)
    for part in inner:
        index = text.find(part, at, end)
        if index < 0:
            return False
        at = index + len(part)
    return True


@dataclass(frozen=True)
class Match:
    """One match of a search.

    Attributes:
        id: Id of the equation or instruction in its stage; the path of a block of a model.
        kind: The operation of the equation or instruction, or the kind of the block.
        block: Paths of the blocks that it belongs to, the block with the largest part of it first; empty if it is not
            attributed.
        role: `"forward"`, `"backward"` or `"update"`; `None` if unknown.
        dtype: Dtypes of the results, each once.
        flops: FLOPs in all its runs; `None` if unknown.
        bytes: Bytes read and written in all its runs; `None` if unknown.
        memory: Bytes of the results; `None` if unknown.
        line: The user's lines of Python that created it, as `"file.py:12"`.
        contains: The operations inside an HLO fusion, each once. They have separate FLOPs.
    """

    id: str
    kind: str
    block: tuple[str, ...] = ()
    role: str | None = None
    dtype: tuple[str, ...] = ()
    flops: int | None = None
    bytes: int | None = None
    memory: int | None = None
    line: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found(Shown, Sequence[Match]):
    """The matches of a search, in program order: a sequence of `Match`, shown as a table.

    Attributes:
        name: Name of the program or model.
        stage: Stage of the equations or instructions; `""` for the blocks of a model.
        query: The query.
        matches: The matches.
        searched: Number of items that were searched.
    """

    name: str
    stage: str
    query: Query
    matches: tuple[Match, ...]
    searched: int

    @overload
    def __getitem__(self, at: int) -> Match: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Match, ...]: ...

    def __getitem__(self, at: int | slice) -> Match | tuple[Match, ...]:
        return self.matches[at]

    def __len__(self) -> int:
        return len(self.matches)

    @property
    def blocks(self) -> tuple[str, ...]:
        """Paths of the blocks of the matches, each once."""
        return tuple(dict.fromkeys(path for match in self.matches for path in match.block))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data: `name`, `stage`, `query`, `searched` and `matches`."""
        matches = [asdict(match) for match in self.matches]
        head = {"name": self.name, "stage": self.stage, "query": str(self.query), "searched": self.searched}
        return {**head, "matches": matches}
