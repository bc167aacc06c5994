"""Optimized HLO in a readable form: short names, no layouts and metadata, and each fusion or loop body inline.

```
tanh_fusion = f32[8,64] fusion(x, linear_0.weight, linear_0.bias) loop:
  dot_general = f32[8,64] dot(x, linear_0.weight) [1]x[0]
  add = f32[8,64] add(dot_general, linear_0.bias)
  return tanh(add)
```

The operands of a fusion have the same names inside and outside of it. The line "return tanh(add)" has no type, because
the first line shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mithril_nb.stages.hlo.syntax import LAYOUT, OPERAND, HloLine, attribute_pairs, names_in, split
from mithril_nb.stages.hlo.text import ComputationText, read_module

NUMBER = re.compile(r"-?(?:\d[\d.]*(?:e[-+]?\d+)?|inf|nan)|true|false")
"""Constants that can be written as an operand."""


@dataclass
class Body(ComputationText):
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

    params: list[HloLine] = field(default_factory=list)
    folded: set[str] = field(default_factory=set)
    attributes: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    runs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

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
        body = bodies[computation.name] = Body(**vars(computation))
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
    # The attributes and the computations that the instruction runs, as in the attributes of `Body`.
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


DEEPEST = 40
"""Bodies nested more deeply than this are printed separately."""
MOST_CHARACTERS = 60
"""Constants with more characters than this are printed as `...`."""
PARTS = {"while": ("body", "condition"), "conditional": ("branch", "true", "false")}
"""Instructions that run several computations, with the first word of the attributes that name these."""

# For example: .clone.1 in %add_fusion.clone.1, an ending with which XLA makes the name unique
_COUNTED = re.compile(r"(?:\.(?:clone|remat\d*|sunk|\d+))+$")
# For example: mu and linear_0.weight in state[0].mu['linear_0.weight']
_KEY = re.compile(r"\['([^']*)'\]|\[\"([^\"]*)\"\]|\[(\w+)\]|\.?(\w+)")
# Words that have a meaning in the readable text, so they are not used as names.
_RESERVED = ("inf", "nan", "true", "false", "return", "as")
# Attributes of custom calls that describe how C code is called, not its result.
_SILENT = frozenset({"api_version", "operand_layout_constraints", "output_operand_aliasing"})
_PREPOSITIONS = {
    "reduce": "over", "broadcast": "along", "concatenate": "along", "reverse": "along", "sort": "along",
    "transpose": "order",
}  # fmt: skip


@dataclass(frozen=True)
class Readable:
    """A module in readable form.

    Attributes:
        text: The text.
        lines: Pairs of a line number, counted from 1, and the name of an instruction on that line. A line may show
            several instructions, such as an operation and its constant operands. The operation is the first.
    """

    text: str
    lines: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        return self.text


def readable(text: str) -> Readable:
    r"""Return an optimized HLO module in short form.

    Examples:
        >>> print(readable('''HloModule f
        ... ENTRY %main (Arg_0.1: f32[2]) -> f32[2] {
        ...   %Arg_0.1 = f32[2]{0} parameter(0), metadata={op_name="params[\'linear.bias\']"}
        ...   ROOT %add.2 = f32[2]{0} add(%Arg_0.1, %Arg_0.1), metadata={op_name="jit(f)/add"}
        ... }'''))
        HloModule f
        entry:
          linear.bias = f32[2] parameter(0)
          return f32[2] add(linear.bias, linear.bias)
    """
    title, bodies = bodies_of(text)
    return _HloPrinter(title, bodies).result() if bodies else Readable(text, ())


@dataclass
class _ShortNames:
    """The names in one computation: the short name of each instruction, and the type of each short name."""

    used: set[str] = field(default_factory=lambda: set(_RESERVED))
    counts: dict[str, int] = field(default_factory=dict)
    short: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def new(self, base: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_.]+", "_", base, flags=re.ASCII).strip("_.") or "value"
        base = f"n{base}" if base[0].isdigit() else base
        name = base
        while name in self.used:
            self.counts[base] = number = self.counts.get(base, 1) + 1
            name = f"{base}_{number}"
        self.used.add(name)
        return name

    def of(self, operand: str) -> str:
        if operand not in self.short:
            self.short[operand] = self.new(_base(operand))
        return self.short[operand]

    def add(self, line: HloLine, base: str) -> str:
        name = self.short[line.name] = self.new(base)
        self.types[name] = type_of(line)
        return name


class _HloPrinter:
    def __init__(self, title: str, bodies: dict[str, Body]):
        self._bodies, self._text, self._lines = bodies, [title], []
        callers: dict[str, int] = {}
        for body in bodies.values():
            for line in body.instructions:
                for _, callee in runs_of(line, body, bodies)[0]:
                    callers[callee] = callers.get(callee, 0) + 1
        self._once = {name for name, count in callers.items() if count == 1 and not bodies[name].is_entry}
        self._by_word = described_by_word(bodies)
        names = _ShortNames({"entry", *_RESERVED})
        self._titles = {name: "entry" if body.is_entry else names.new(_base(name)) for name, body in bodies.items()}
        self._done: set[str] = set()

    def result(self) -> Readable:
        first = [name for name in self._bodies if name not in self._once and name not in self._by_word]
        for name in [*first, *self._bodies]:
            if name not in self._done and name not in self._by_word:
                self._top(self._bodies[name])
        return Readable("\n".join(self._text), tuple(self._lines))

    def _emit(self, depth: int, text: str, names: Iterable[str]) -> None:
        self._text.append("  " * depth + text)
        self._lines.extend((len(self._text), name) for name in names)

    def _top(self, body: Body) -> None:
        self._done.add(body.name)
        scope = _ShortNames()
        if body.is_entry:
            self._emit(0, "entry:", ())
            python = python_names([line.op_name for line in body.params])
            for line, name in zip(body.params, python, strict=True):
                short = scope.add(line, name or _base(line.name))
                root = "return " if line.is_root else ""
                self._emit(1, f"{root}{short} = {type_of(line)} parameter({line.literal})", [line.name])
        else:
            self._header(0, self._titles[body.name], body, scope, ())
        self._inside(body, scope, 1, "", listed=body.is_entry)

    def _header(self, depth: int, title: str, body: Body, scope: _ShortNames, types: tuple[str, ...]) -> None:
        # A type is omitted if it is the one in `types`.
        params = []
        for at, line in enumerate(body.params):
            name, type = scope.add(line, "carry" if title in PARTS["while"] else _base(line.name)), type_of(line)
            params.append(name if types[at : at + 1] == (type,) else f"{name}: {type}")
        self._emit(depth, f"{title}({', '.join(params)}):", [line.name for line in body.params])

    def _inside(self, body: Body, scope: _ShortNames, depth: int, expected: str, listed: bool = False) -> None:
        """Print the lines of a computation."""
        used = {operand for line in body.instructions for operand in line.operands}
        for line in body.instructions:
            if line.name not in body.folded and (not line.is_root or line.name in used):
                scope.add(line, _base(line.name))
        for line in body.params:
            if line.is_root and not listed:
                self._emit(depth, f"return {scope.of(line.name)}", ())
        constants: list[HloLine] = []
        for line in body.lines:
            if isinstance(line, str):
                self._emit(depth, f"// {line.strip()}", ())
            elif line.name in body.folded:
                constants.append(line)
            else:
                self._line(line, body, scope, depth, expected if line.is_root else "", constants)
                constants = []

    def _line(
        self, line: HloLine, body: Body, scope: _ShortNames, depth: int, expected: str, constants: list[HloLine]
    ) -> None:
        called, words = runs_of(line, body, self._bodies)
        inline = [
            (how, self._bodies[name])
            for how, name in called
            if name in self._once and name not in self._done and depth < DEEPEST
        ]
        self._done.update(inner.name for _, inner in inline)
        numbers = {constant.name: constant for constant in constants}
        operands = [
            _number(numbers[operand], line) if operand in numbers else scope.of(operand) for operand in line.operands
        ]
        inner = _ShortNames()
        params = inline[0][1].params if len(inline) == 1 and line.opcode in ("fusion", "call") else None
        # The operands have the same names inside if their types are the same.
        is_direct = params is not None and [scope.types.get(scope.of(name)) for name in line.operands] == [
            type_of(param) for param in params
        ]
        if is_direct:
            names = [scope.of(operand) for operand in line.operands]
            inner.used.update(names)
            operands = []
            for at, (name, param) in enumerate(zip(names, inline[0][1].params, strict=True)):
                if name in names[:at]:
                    operands.append(f"{name} as {inner.add(param, name)}")
                else:
                    inner.short[param.name], inner.types[name] = name, type_of(param)
                    operands.append(name)
        attributes = dict(body.attributes[line.name])
        type = type_of(line)
        is_item = line.opcode == "get-tuple-element" and list(attributes) == ["index"] and len(operands) == 1
        if is_item and items_of(scope.types.get(operands[0], ""), attributes["index"]) == type:
            shown_line, type = f"{operands[0]}[{attributes['index']}]", expected
        else:
            literal = ", ".join(operands)
            if line.opcode in ("constant", "parameter"):
                literal = line.literal if len(line.literal) <= MOST_CHARACTERS else "..."
            runs = [f" {'' if how == 'to_apply' else f'{how} '}by {word}" for how, word in words]
            within = {part.name for _, part in inline}
            runs += [f" {how}=@{self._titles[name]}" for how, name in called if name not in within]
            shown_line = f"{line.opcode}({literal}){''.join(runs)}{_words(line, attributes, scope)}"
        if line.opcode == "tuple" and type == f"({', '.join(scope.types.get(operand, '') for operand in operands)})":
            type = expected
        stated = "" if type == expected else f"{type} "
        name = scope.short.get(line.name, "")
        head = ("return " if line.is_root else "") + (f"{name} = " if name else "")
        on_line = [line, *constants, *(params if params and is_direct else ())]
        self._emit(depth, f"{head}{stated}{shown_line}{':' if inline else ''}", [shown.name for shown in on_line])
        operand_types = tuple(scope.types.get(operand, "") for operand in operands)
        for how, part in inline:
            if is_direct:
                self._inside(part, inner, depth + 1, type_of(line))
            else:
                into = _ShortNames()
                takes, gives = expected_types(line.opcode, how, operand_types, type_of(line))
                self._header(depth + 1, how, part, into, takes)
                self._inside(part, into, depth + 2, gives)


def python_names(paths: list[str]) -> list[str]:
    """Return short unique names for parameters from their Python paths.

    Examples:
        >>> python_names(["params['linear_0.weight']", "state[0].mu['linear_0.weight']", "state[0].count", "x"])
        ['params.linear_0.weight', 'mu.linear_0.weight', 'count', 'x']
    """
    parts = [["".join(key) for key in _KEY.findall(path)] for path in paths]
    # A name must not start with an index: the short name of `batch[0]` is `batch.0`, not `0`.
    starts = [[at for at in range(len(keys)) if at == 0 or not keys[at].isdigit()][::-1] for keys in parts]
    chosen = [0] * len(paths)
    while True:
        names = [
            ".".join(keys[start[at] :]) if start else "" for keys, start, at in zip(parts, starts, chosen, strict=True)
        ]
        seen: dict[str, list[int]] = {}
        for at, name in enumerate(names):
            seen.setdefault(name, []).append(at)
        longer = [at for same in seen.values() if len(same) > 1 for at in same if chosen[at] + 1 < len(starts[at])]
        if not longer:
            return names
        for at in longer:
            chosen[at] += 1


def expected_types(opcode: str, how: str, operand_types: tuple[str, ...], result: str) -> tuple[tuple[str, ...], str]:
    """Return the types of a computation's parameters and result that a loop or conditional requires.

    `operand_types`: Types of the instruction's operands.

    Returns:
        The types of the parameters, and the type of the result; `()` and `""` for other instructions.

    Examples:
        >>> expected_types("while", "condition", ("(s32[], f32[2])",), "(s32[], f32[2])")
        (('(s32[], f32[2])',), 'pred[]')
    """
    if opcode == "while" and how in PARTS["while"]:
        return (result,), result if how == "body" else "pred[]"
    part, _, number = how.partition("_")
    if opcode == "conditional" and part in PARTS["conditional"]:
        at = {"true": 1, "false": 2}.get(part, int(number) + 1 if number.isdigit() else 0)
        return operand_types[at : at + 1], result
    return (), ""


def items_of(type: str, index: str) -> str:
    """Return the type of one item of a tuple type; `""` if there is no such item."""
    items = split(type[1:-1]) if type.startswith("(") else []
    return items[int(index)] if index.isdigit() and int(index) < len(items) else ""


def _base(name: str) -> str:
    short = _COUNTED.sub("", name)
    if re.fullmatch(r"param_\d+|Arg_\d+|arg\d+|p\d+", short):
        return "p" + re.sub(r"\D", "", short)
    return "item" if short == "get-tuple-element" else short


def _number(constant: HloLine, user: HloLine) -> str:
    # The dtype is shown only if it differs from the dtype of the result.
    dtype = constant.shapes[0][0]
    is_clear = user.opcode != "tuple" and user.shapes and user.shapes[0][0] == dtype
    return constant.literal if is_clear else f"{constant.literal}:{dtype}"


def _words(line: HloLine, attributes: Mapping[str, str], scope: _ShortNames) -> str:
    left, parts = dict(attributes), []
    if line.opcode in _PREPOSITIONS and "dimensions" in left:
        axes = left.pop("dimensions").strip("{}")
        parts += [f"{_PREPOSITIONS[line.opcode]} {axes}"] if axes else []
    for prefix, kind in (("", "contracting"), ("batch ", "batch")):
        sides = [left.pop(f"{side}_{kind}_dims", "{}").strip("{}") for side in ("lhs", "rhs")]
        parts += [f"{prefix}[{sides[0]}]x[{sides[1]}]"] if any(sides) else []
    for name in ("kind", "direction", "slice", "iota_dimension", "custom_call_target"):
        if name in left:
            value = left.pop(name)
            parts.append(
                {"kind": value[1:].lower(), "slice": re.sub(r"[\[\]]", "", value).replace("{", "[").replace("}", "]")}
                .get(name, f"along {value}" if name == "iota_dimension" else value)
            )  # fmt: skip
    for name, value in left.items():
        if name not in _SILENT:
            value = OPERAND.sub(lambda match: scope.of(match[1]), value)
            parts.append(f"{name}={value}" if value else name)
    parts += [f"{line.trips} times"] if line.trips is not None else []
    return " " + ", ".join(parts) if parts else ""
