"""The computations of an HLO module, prepared to be printed by `readable`.

Parameters come first, by number, and a constant with a single user comes right before its user: XLA prints both in
arbitrary order. All other lines keep the order of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mithril_nb.stages.hlo.syntax import LAYOUT, HloLine, attribute_pairs, names_in
from mithril_nb.stages.hlo.text import read_module

NUMBER = re.compile(r"-?(?:\d[\d.]*(?:e[-+]?\d+)?|inf|nan)|true|false")
"""Constants that can be written as an operand."""


@dataclass
class Body:
    """A computation, ready to print.

    Attributes:
        name: Name of the computation.
        is_entry: True if the program starts here.
        params: The parameters in the order of their numbers. If these are not 0, 1, 2, ..., the parameters are in
            `lines` instead.
        lines: All other lines, in order. A line that cannot be parsed is a string.
        folded: Names of the constants that are printed as operands of another line, as 2 in add(x, 2).
        attributes: A dict from the name of each instruction to its attributes, as pairs of name and value. Those in
            `runs` are left out.
        runs: A dict from the name of each instruction to the computations that it runs, as pairs of the attribute and
            the name of the computation: `("body", "region_0.1")`.
    """

    name: str
    is_entry: bool
    params: list[HloLine]
    lines: list[HloLine | str]
    folded: set[str] = field(default_factory=set)
    attributes: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    runs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    @property
    def instructions(self) -> Iterator[HloLine]:
        """The lines that could be parsed, without `params`."""
        return (line for line in self.lines if isinstance(line, HloLine))

    @property
    def word(self) -> tuple[str, str] | None:
        """Operation and dtype, such as `("add", "f32")`, of a computation that combines two numbers; else `None`."""
        if len(self.params) != 2 or len(self.lines) != 1 or not isinstance(self.lines[0], HloLine):
            return None
        (line,), (left, right) = self.instructions, self.params
        attributes = dict(self.attributes[line.name])
        word = attributes.pop("direction", line.opcode).lower()
        is_plain = line.is_root and not attributes and not self.runs[line.name] and re.fullmatch("[a-z]+", word)
        if not is_plain or line.operands != (left.name, right.name) or left.shapes != right.shapes:
            return None
        return (word, left.shapes[0][0]) if [sizes for _, sizes in left.shapes] == [()] else None


def bodies_of(text: str) -> tuple[str, dict[str, Body]]:
    """Return the title of a module and its computations by name: the entry, those without a caller, then the others."""
    title, computations = read_module(text)
    names = {computation.name for computation in computations}
    bodies: dict[str, Body] = {}
    for computation in computations:
        body = bodies[computation.name] = Body(computation.name, computation.is_entry, [], computation.lines)
        for line in computation.instructions:
            body.attributes[line.name], body.runs[line.name] = _attributes(line.attributes, names)
        numbered = {line.literal: line for line in computation.instructions if line.opcode == "parameter"}
        params = [numbered.get(str(number)) for number in range(len(numbered))]
        if all(params) and len(numbered) == sum(line.opcode == "parameter" for line in computation.instructions):
            body.params = [line for line in params if line is not None]
            body.lines = [line for line in body.lines if isinstance(line, str) or line.opcode != "parameter"]
    for body in bodies.values():  # only now: whether a constant is folded depends on the bodies that its user runs
        _fold(body, bodies)
    run = {callee for body in bodies.values() for runs in body.runs.values() for _, callee in runs}
    ordered = sorted(bodies.values(), key=lambda body: (not body.is_entry, body.name in run))
    return title, {body.name: body for body in ordered}


def runs_of(
    line: HloLine, body: Body, bodies: Mapping[str, Body]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the computations that an instruction runs, in two lists."""
    # The first list has the items of `body.runs[line.name]` whose computations are printed in full. The second list
    # has the others, which only combine two numbers: pairs of the attribute and one word, such as `("to_apply",
    # "add")`.
    called, words = [], []
    for how, callee in body.runs[line.name]:
        # The body of these is always printed. Only the body of a combiner, such as that of a `reduce`, becomes a word.
        word = None if line.opcode in ("call", "fusion", "map") else bodies[callee].word
        if word is not None and line.shapes and word[1] == line.shapes[0][0]:
            words.append((how, word[0]))
        else:
            called.append((how, callee))
    return called, words


def described_by_word(bodies: Mapping[str, Body]) -> set[str]:
    """Return the names of the computations that are printed as one word by every instruction that runs them."""
    called, words = set[str](), set[str]()
    for body in bodies.values():
        for line in body.instructions:
            inside = {callee for _, callee in runs_of(line, body, bodies)[0]}
            called |= inside
            words.update(callee for _, callee in body.runs[line.name] if callee not in inside)
    return words - called


def type_of(line: HloLine) -> str:
    """Return the printed type of a result, without layouts."""
    text = line.text.partition(" = ")[2]
    return LAYOUT.sub("]", text[: text.find(f" {line.opcode}(")])


def _attributes(text: str, names: set[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    # Return its attributes, and the computations that it runs.
    # Both are pairs, as in the attributes of `Body`. `names` are the names of all computations.
    attributes: list[tuple[str, str]] = []
    runs: list[tuple[str, str]] = []
    for key, value in attribute_pairs(text):
        key = key.removesuffix("_computations").removesuffix("_computation")
        listed = names_in(value) if value.startswith("{%") else []
        if value.removeprefix("%") in names:
            runs.append((key, value.removeprefix("%")))
        elif listed and names.issuperset(listed):
            runs.extend((f"{key}_{at}", name) for at, name in enumerate(listed))
        else:
            attributes.append((key, value))
    return attributes, runs


def _fold(body: Body, bodies: Mapping[str, Body]) -> None:
    users: dict[str, list[HloLine]] = {}
    for line in body.instructions:
        for operand in line.operands:
            users.setdefault(operand, []).append(line)
    folded = {
        line.name: line
        for line in body.instructions
        if line.opcode == "constant" and not line.is_root and NUMBER.fullmatch(line.literal)
        if [sizes for _, sizes in line.shapes] == [()] and not body.attributes[line.name]
        if len(used := users.get(line.name, [])) == 1 and not runs_of(used[0], body, bodies)[0]
    }
    lines: list[HloLine | str] = []
    for line in body.lines:
        if isinstance(line, HloLine) and line.name not in folded:
            lines.extend(folded[operand] for operand in line.operands if operand in folded)
        if isinstance(line, str) or line.name not in folded:
            lines.append(line)
    body.lines, body.folded = lines, set(folded)
