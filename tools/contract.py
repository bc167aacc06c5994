"""Write the messages between kernel and page as TypeScript, from the typed records of the kernel.

`mithril_nb/ui/widgets/protocol.py` lists the kinds of messages. `make format` runs this, and a test compares the file.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
import typing
from collections.abc import Iterable
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from mithril_nb.figures import FIGURES, LOCAL, MAIN, OF_BLOCKS, OVERVIEW, SENT
from mithril_nb.ui.session import snapshot
from mithril_nb.ui.session.commands import State
from mithril_nb.ui.session.cost_tables import Role, Source
from mithril_nb.ui.session.passes import PassRow
from mithril_nb.ui.session.what_if import FieldValue, SettingChange
from mithril_nb.ui.widgets.protocol import MESSAGES, MarkedLine
from tools.bundle import FRONTEND
from tools.steps import ROOT

FILE = ROOT / FRONTEND / "src/kernel/contract.ts"
ALIASES: dict[str, Any] = {
    "Role": Role,
    "Source": Source,
    "State": State,
    "FieldValue": FieldValue,
    "PassRow": PassRow,
    "MarkedLine": MarkedLine,
    "SettingChange": SettingChange,
}
"""Types that have a name on the page too."""
WITH_FIGURES = {
    "CostTableRow": "Figures",
    "CostTotal": "Figures",
    "CostOfLine": "Partial<Figures>",
    "CostOfRole": "Partial<Figures>",
}
"""Records that also have a field for each figure of costs."""
OFFERED = [key for key in OVERVIEW if key in OF_BLOCKS and FIGURES[key].source in ("", *get_args(Source))]
"""Figures of a block on the page, in the order of columns."""
_PLAIN = {int: "number", float: "number", str: "string", bool: "boolean", NoneType: "null", Any: "unknown"}


class Contract:
    """The TypeScript of some types and of all records that they use."""

    def __init__(self) -> None:
        self.records: dict[str, str] = {}

    def type_of(self, hint: Any, *, is_alias: bool = False) -> str:
        """Return a type in TypeScript."""
        name = next((name for name, alias in ALIASES.items() if alias == hint), None)
        if name is not None and not is_alias:
            return name
        origin, args = get_origin(hint), get_args(hint)
        if hint in _PLAIN:
            return _PLAIN[hint]
        if origin is Literal:
            return " | ".join(f'"{value}"' for value in args)
        if origin in (Union, UnionType):
            return " | ".join(dict.fromkeys(map(self.type_of, args)))
        if origin is tuple and args[-1] is not ...:
            return f"[{', '.join(map(self.type_of, args))}]"
        if origin in (list, tuple):
            item = self.type_of(args[0])
            return f"({item})[]" if get_origin(args[0]) in (Union, UnionType) and " | " in item else f"{item}[]"
        if origin is dict:
            record = f"Record<{self.type_of(args[0])}, {self.type_of(args[1])}>"
            return record if args[0] is str else f"Partial<{record}>"
        self.add(hint)
        return hint.__name__

    def add(self, record: type) -> None:
        """Add a record, and those that it uses."""
        if record.__name__ in self.records:
            return
        self.records[record.__name__] = ""  # it may use itself
        lines, about = [], comments_of(record)
        definition = ast.parse(textwrap.dedent(inspect.getsource(record))).body[0]
        assert isinstance(definition, ast.ClassDef)
        # A TypedDict keeps neither its bases (before Python 3.12) nor which annotations are its own.
        names = [base.id for base in definition.bases if isinstance(base, ast.Name) and base.id != "TypedDict"]
        bases = [getattr(sys.modules[record.__module__], name) for name in names]
        for base in bases:
            self.add(base)
        inherited = {name for base in bases for name in get_type_hints(base)}
        for name, hint in get_type_hints(record, include_extras=True).items():
            if name in inherited and name not in about:
                continue
            is_optional = get_origin(hint) is NotRequired
            value = self.type_of(get_args(hint)[0] if is_optional else hint)
            lines += [*doc(about.get(name, ""), "  "), f"  {name}{'?' if is_optional else ''}: {value};"]
        parents = ", ".join(names) or WITH_FIGURES.get(record.__name__)
        head = f"export interface {record.__name__}{f' extends {parents}' if parents else ''} {{"
        about_all = inspect.getdoc(record) or ""
        body = [head, *lines, "}"] if lines else [f"{head}}}"]
        self.records[record.__name__] = "\n".join([*doc(about_all.partition("\n\n")[0]), *body])


def comments_of(record: type) -> dict[str, str]:
    """Return the comment at each field of a record, on its line or before it."""
    if not is_dataclass(record) and not typing.is_typeddict(record):
        raise TypeError(f"{record!r} is not a record")
    comments: dict[str, str] = {}
    before: list[str] = []
    for line in inspect.getsource(record).splitlines():
        if found := re.fullmatch(r"\s+# (.*)", line):
            before.append(found[1])
        elif found := re.fullmatch(r"    (\w+): [^#]*(?:  # (.*))?", line):
            comments[found[1]] = " ".join([*before, *filter(None, found.groups()[1:])])
            before = []
    return comments


def doc(text: str, indent: str = "") -> list[str]:
    """Return a comment of TypeScript, formatted as Prettier leaves it."""
    words = " ".join(text.split())
    if not words:
        return []
    sentence = words[0].upper() + words[1:] + ("" if words.endswith(".") else ".")
    if len(sentence) + len(indent) + 7 <= 120:
        return [f"{indent}/** {sentence} */"]
    return [
        f"{indent}/**",
        *(f"{indent} * {line}" for line in textwrap.wrap(sentence, 117 - len(indent))),
        f"{indent} */",
    ]


def contract() -> str:
    """Return the file."""
    page = Contract()
    names = {name: page.type_of(alias, is_alias=True) for name, alias in ALIASES.items()}
    page.add(snapshot.WorkbenchSnapshot)
    page.add(snapshot.ExplorerSnapshot)
    rows = []
    for kind, (head, data) in MESSAGES.items():
        body = "undefined" if data is None else "ArrayBuffer" if data is bytes else page.type_of(data)
        rows.append(f"  {kind}: [head: {page.type_of(head)}, data: {body}];")
    parts = [
        "/** Messages between kernel and page. Generated from the records of the kernel by `tools/contract.py`. */",
        *(f"export type {name} = {alias};" for name, alias in names.items()),
        *lists_of_figures(),
        "export type Quantity = Figure | Communication;",
        "export type Figures = Record<Figure, number | null> & Partial<Record<Communication, number | null>>;",
        titles_of_figures(),
        *page.records.values(),
        "\n".join(["/** Head and data by kind of message. */", "export interface Messages {", *rows, "}"]),
    ]
    return "\n\n".join(parts) + "\n"


def lists_of_figures() -> list[str]:
    """Return the lists of figures, in the order of columns, and the types of their keys."""
    counted = [key for key in OFFERED if key in LOCAL]
    return [
        as_list("FIGURES", OFFERED) + "\nexport type Figure = (typeof FIGURES)[number];",
        "/** Figures that rules count: a block without a row has 0. */\n" + as_list("COUNTED", counted, "Figure"),
        "/** Figures that are offered first. */\n" + as_list("MAIN", MAIN, "Figure"),
        "/** Data that one device sends to others; missing where it is 0. */\n" + as_list("COMMUNICATION", SENT)
        + "\nexport type Communication = (typeof COMMUNICATION)[number];",
    ]  # fmt: skip


def as_list(name: str, keys: Iterable[str], item: str = "") -> str:
    """Return a list of keys in TypeScript; without the type of an item, each key is a type of its own."""
    head, tail = (f"{name}: readonly {item}[]", "];") if item else (name, "] as const;")
    return "\n".join(cells(f"export const {head} = [", map(json.dumps, keys), tail))


def cells(head: str, texts: Iterable[str], tail: str, indent: str = "") -> list[str]:
    """Return a list as lines of TypeScript, formatted as Prettier leaves it."""
    texts = [*texts]
    line = f"{indent}{head}{', '.join(texts)}{tail}"
    if len(line) <= 120:
        return [line]
    return [indent + head, *(f"{indent}  {text}," for text in texts), indent + tail]


def titles_of_figures() -> str:
    """Return a table of the figures, from `mithril_nb/figures.py`: title, unit and hint of each."""
    rows = []
    for key in (*OFFERED, *SENT):
        figure = FIGURES[key]
        title = figure.column[0].upper() + figure.column[1:]
        rows += cells(f"{key}: [", map(json.dumps, (title, figure.symbol, figure.about)), "],", "  ")
    head = "export const FIGURE_TITLES: Record<Quantity, [title: string, unit: string, hint: string]> = {"
    return "\n".join([head, *rows, "};"])


if __name__ == "__main__":
    FILE.write_text(contract(), encoding="utf-8")
    sys.exit(0)
