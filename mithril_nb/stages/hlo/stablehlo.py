"""Read StableHLO text and its locations: the equations of each line, and the text without locations.

JAX prints each op with `loc(#loc12)`, and a table of locations at the end. If several calls share a function, the tags
in its body are ids relative to the call. The full ids are computed from the calls; a line has one id per call. In the
same way, tags in the body of a `shard_map` are relative to its op, `sdy.manual_computation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.given.locations import GivenLines, ReadSources
from mithril_nb.stages.hlo.mlir_flows import with_flows
from mithril_nb.stages.hlo.syntax import MLIR_DTYPES, QUOTED, read_mlir
from mithril_nb.stages.inference import InstructionDraft, attribute, pass_on
from mithril_nb.stages.records import Attributes, Equation, Instruction
from mithril_nb.stages.trace.provenance.scopes import Marks

# For example: loc(#loc12), or loc("reduce_window_sum:"(#loc5)) of an argument; JAX nests at most three levels
_LOC = re.compile(rf"{QUOTED}| loc\(((?:[^()\"]|{QUOTED}|\((?:[^()\"]|{QUOTED}|\((?:[^()\"]|{QUOTED})*\))*\))*)\)")
# For example: #loc3 = loc("x.py":4:2)
_ENTRY = re.compile(r"(#loc\d*) = loc\((.*)\)$")
# For example: "jit(f)/add"(#loc3), a name for the location #loc3
_NAME = re.compile(rf"({QUOTED})(?:\((#loc\d*)\))?")
# For example: %3:2 = "stablehlo.reduce"(...)
_OP = re.compile(r'^\s*(?:(%[\w#]+)(?::\d+)?((?:, %[\w#:]+)*) = )?"?([A-Za-z_][\w.$]*)"?')
# For example: @relu, or @"a b": MLIR quotes a name with other characters
_SYMBOL = r'@(?:"([^"]*)"|([\w.$-]+))'
# For example: func.func private @relu(%arg0: tensor<4xf32>)
_FUNC = re.compile(rf"func\.func (?:public |private )?{_SYMBOL}")
# For example: call @relu(%0)
_CALLEE = re.compile(rf"call {_SYMBOL}")
_USED = re.compile(r"%[\w]+")
# For example: %iterArg = %c in stablehlo.while(%iterArg = %c, ...)
_CARRIED = re.compile(r"(%\w+) = (%\w+)")
_MANUAL = "sdy.manual_computation"
# For example: %arg0: tensor<4xf32>
_ARGUMENT_NAME = re.compile(r"(%\w+): ")
# For example: tensor<4x?xf32>
_TENSOR = re.compile(r"tensor<((?:[\d?]+x)*)([^<>,]*(?:<\w*>)?)")
_BRACKETED = r"\[(?:[^\[\]]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])*\]"
# For example: precision = [DEFAULT, DEFAULT], and before it contracting_dims = [1] x [0]
_ATTRIBUTE = re.compile(rf"(?<![\w%])(\w+) = ({_BRACKETED}(?: x {_BRACKETED})?|#[\w.]+<[^<>]*>|[^,{{}}:]+)")


@dataclass
class _Function:
    """One function while it is read: its ops, their locations, and the functions it calls."""

    name: str
    draft: InstructionDraft
    ops: list[InstructionDraft] = field(default_factory=list)
    locations: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    """By id of an op in the body of a `shard_map`, the id of the op that contains the body."""


def read_stablehlo(
    text: str, tags: Marks, equations: Mapping[str, Equation], lines: GivenLines | None = None
) -> tuple[str, tuple[Instruction, ...]]:
    """Return the text without locations, and its instructions with their provenance.

    `lines`: The object that reads Python lines from the locations; `None` to use the Python lines of the equations.
    """
    body, table = _split(text)
    names: dict[str, str] = {}
    functions: dict[str, _Function] = {}
    open_ops: list[InstructionDraft | None] = []
    manual: list[str] = []  # ids of the bodies of `shard_map` around the line
    waiting: InstructionDraft | None = None  # An op whose regions start on the next line.
    printed: list[str] = []
    current: _Function | None = None
    for line in body:
        plain, locations = _strip(line)
        printed.append(plain)
        number = len(printed)
        start = plain.strip()
        opens = start.endswith("{")
        location = None
        if locations and line.endswith(")"):
            key = locations[-1]
            if key not in names:
                names[key] = _name_in(table.get(key, key), table, tags.marker)
            location = names[key]
        if start.startswith("}"):
            closed = None if opens or not open_ops else open_ops.pop()
            if closed is not None and current is not None:
                closed.lines = number - closed.line + 1
                closed.shapes = closed.shapes or result_specs(plain)
                current.locations[closed.id] = location or ""
                closed.locations = _locations(locations, location, tags)
                if closed.opcode == _MANUAL:
                    manual.pop()
                current = None if closed is current.draft else current
            continue
        if opens and waiting is not None:
            open_ops.append(waiting)
            waiting = None
            continue
        function = _FUNC.search(plain) if "func.func" in plain else None
        if function:
            name = _symbol(function)
            current = _Function(name, InstructionDraft(f"@{name}", "func.func", number))
            functions[current.name] = current
            open_ops.append(current.draft)
            continue
        match = _OP.match(plain)
        if match is None or current is None:
            if opens:
                open_ops.append(None)
            continue
        result, others, opcode = match.groups()
        rest = plain[match.end() :]
        if opcode.endswith(".while"):  # `%iterArg = %arg0`: the body uses another name
            carried: list[tuple[str, str]] = _CARRIED.findall(rest)
            current.names |= {inside: current.names.get(outside, outside) for inside, outside in carried}
            rest = _CARRIED.sub(r"\2", rest)
        arguments: list[str] = []
        if opcode == _MANUAL:  # `(%arg0) ... (%arg2: tensor<8xf32>) {`: the body uses another name, for a shard
            arguments = _ARGUMENT_NAME.findall(rest)
            rest = rest.partition(")")[0]
        used: list[str] = _USED.findall(rest)
        operands = tuple([current.names[name] for name in used if name in current.names])
        are_known = len(operands) == len(used)
        draft = InstructionDraft(
            f"{'' if current.name == 'main' else current.name}{result or f'@{opcode}'}",
            opcode,
            number,
            operands=operands,
            prefers_users=opcode.endswith((".constant", ".iota")),
            shown_operands=operands if are_known else tuple([current.names.get(name, name) for name in used]),
            # The type of an op with regions follows them; on this line, only its attributes have types.
            shapes=() if rest.endswith("({") else result_specs(rest),
            attributes=attribute_pairs(rest),
            locations=_locations(locations, location, tags),
        )
        if result is None or draft.id in current.locations:
            draft.id += f"@{number}"
        current.locations[draft.id] = location or ""
        current.ops.append(draft)
        if manual:
            current.bodies[draft.id] = manual[-1]
        if opcode == _MANUAL:
            manual.append(draft.id)
            current.names |= {
                inside: current.names.get(name, name) for inside, name in zip(arguments, used, strict=True)
            }
        callee = _CALLEE.search(plain) if "call" in opcode else None
        if callee:
            current.calls.append((_symbol(callee), draft.id))
        if result is not None:
            current.names[result] = draft.id
            for other in _USED.findall(others) if others else ():
                current.names[other] = draft.id
        if opens:
            open_ops.append(draft)
        elif location is None:
            waiting = draft
    read = None if lines is None else lines.of_mlir(table)
    if read is not None:
        _take_lines_of_callers(functions, read)
    plain_text = "\n".join(printed) + "\n"
    return plain_text, with_flows(plain_text, _resolve(functions, tags, equations, read))


def result_specs(rest: str) -> tuple[TensorSpec, ...]:
    """Return the specs of an op's results, from its line.

    Examples:
        >>> [str(spec) for spec in result_specs("%0, %1 : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>")]
        ['(2,) float32']
        >>> [str(spec) for spec in result_specs("%0 : (tensor<4xi4>) -> tensor<4x2xcomplex<f32>>")]
        ['(4, 2) complex64']
    """
    _, colon, types = rest.rpartition(" : ")
    return _specs(types.rpartition("->")[2]) if colon else ()


@lru_cache(maxsize=4096)
def _specs(types: str) -> tuple[TensorSpec, ...]:
    specs = []
    for sizes, dtype in _TENSOR.findall(types):
        shape = tuple(int(size) if size.isdigit() else size for size in sizes.split("x")[:-1])
        specs.append(TensorSpec(shape, MLIR_DTYPES.get(dtype) or dtype))
    return tuple(specs)


def attribute_pairs(rest: str) -> Attributes:
    """Return the attributes on an op's line as names and values.

    Examples:
        >>> attribute_pairs("%0, %1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : tensor<2xf32>")
        (('contracting_dims', '[1] x [0]'), ('precision', '[DEFAULT, DEFAULT]'))
    """
    first = rest.find(" = ")
    # Without the operands, which come first, many lines are equal: `_pairs` caches them.
    return () if first < 0 else _pairs(rest[max(rest.rfind(" ", 0, first), 0) :])


@lru_cache(maxsize=4096)
def _pairs(attributes: str) -> Attributes:
    return tuple([(name, value.strip()) for name, value in _ATTRIBUTE.findall(attributes)])


def _split(text: str) -> tuple[list[str], dict[str, str]]:
    body: list[str] = []
    table: dict[str, str] = {}
    for line in text.splitlines():
        entry = _ENTRY.match(line) if line.startswith("#") else None
        if entry:
            table[entry.group(1)] = entry.group(2)
        else:
            body.append(line)
    while body and not body[-1].strip():
        body.pop()
    return body, table


def _strip(line: str) -> tuple[str, list[str]]:
    start = line.find(" loc(")
    if start < 0:
        return line, []
    if line.startswith(" loc(#", start) and line.find(")", start) == len(line) - 1:  # the usual case
        return line[:start], [line[start + 5 : -1]]
    locations: list[str] = []

    def take(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return match.group(0)
        locations.append(match.group(1))
        return ""

    return _LOC.sub(take, line), locations


def _symbol(match: re.Match[str]) -> str:
    """Return the name of a function; the text quotes a name with unusual characters."""
    quoted, plain = match.groups()
    return plain or read_mlir(quoted)


def _name_in(location: str, table: Mapping[str, str], marker: str) -> str:
    """Return the op name in a location, which is text or a key of `table`; several names are joined by `;`."""
    # In `"name"(#loc3)`, the outer name is used. But if only `#loc3` contains `marker`, a tag, its name is used.
    outer, left = "", len(table) + 2  # a damaged table may contain a cycle
    while location and left:
        left -= 1
        if location.startswith("#"):
            location = table.get(location, "")
        if location.startswith("fused"):
            single = {key: text for key, text in table.items() if not text.startswith("fused")}
            parts: list[str] = re.findall(rf"#loc\d*|{QUOTED}:?", location)
            return ";".join(filter(None, [_name_in(part, single, marker) for part in parts])) or outer
        match = _NAME.match(location)
        if match is None:
            return outer
        if location[match.end() : match.end() + 1] == ":":
            return outer  # a place in a file
        name = read_mlir(match.group(1)[1:-1])
        child = match.group(2)
        if child is None or marker in name:
            return name or outer
        outer, location = name or outer, child
    return outer


def _locations(locations: Sequence[str], name: str | None, tags: Marks) -> tuple[str, ...]:
    """Return the location of an op as a tuple; `()` if it has none, or only the name of the program."""
    return () if name is None or (name and not tags.is_in(name)) else (locations[-1],)


def _take_lines_of_callers(functions: Mapping[str, _Function], read: ReadSources) -> None:
    # JAX writes only the location of the first call of a library function.
    calls: dict[str, dict[str, str]] = {}  # per function: a location for each line of the user that calls it
    for function in functions.values():  # callers usually come before their callees
        around = calls.get(function.name, {})
        for draft in function.ops:
            if around and {*read(draft.locations)[0]} <= around.keys():
                draft.locations = tuple(around.values())
        locations_by_op = {draft.id: draft.locations for draft in function.ops}
        for callee, op in function.calls:
            for location in locations_by_op[op]:
                for source in read([location])[0]:
                    calls.setdefault(callee, {}).setdefault(source, location)


def _resolve(
    functions: Mapping[str, _Function], tags: Marks, equations: Mapping[str, Equation], read: ReadSources | None
) -> tuple[Instruction, ...]:
    def around(function: _Function, op: str, outside: Set[str]) -> Set[str]:
        body = function.bodies.get(op)
        return outside if body is None else ids_at(function.name, body, outside)

    def ids_at(name: str, op: str, outside: Set[str]) -> frozenset[str]:
        function = functions[name]
        return ids_of(function.locations[op], around(function, op, outside), tags, equations)

    callers = callers_of({name: function.calls for name, function in functions.items()}, ids_at, tags.most_callers)
    drafts: dict[str, InstructionDraft] = {}
    for function in functions.values():
        outside = callers[function.name]
        drafts[function.draft.id] = function.draft
        if function.name != "main":
            attribute(function.draft, outside, equations)
            function.draft.origin = "inferred" if function.draft.origin else None
        holders = {body: around(function, op, outside) for op, body in function.bodies.items()}
        pairs = {(function.locations[draft.id], function.bodies.get(draft.id)) for draft in function.ops}
        ids = {
            (location, body): ids_of(location, outside if body is None else holders[body], tags, equations)
            for location, body in pairs  # many ops share a location
        }
        for draft in function.ops:
            attribute(draft, ids[function.locations[draft.id], function.bodies.get(draft.id)], equations)
            drafts[draft.id] = draft
    main = functions["main"].draft.id if "main" in functions else ""
    pass_on({id: draft for id, draft in drafts.items() if id != main})
    return tuple(draft.finished(equations, read) for draft in drafts.values() if draft.id != main)


def callers_of(
    calls: Mapping[str, Sequence[tuple[str, str]]], ids_at: Callable[[str, str, Set[str]], Set[str]], most: int
) -> dict[str, set[str]]:
    """Return a dict from the name of each function to the ids of the equations that call it; `{""}` for `main`.

    `calls`: A dict from the name of each function to its calls: name of the callee, and id or location of the call.
    `ids_at`: A function that returns the ids of a call's equations, given the name of the function that contains the
    call, id or location of the call, and the ids of the equations that call this function.
    """
    callers: dict[str, set[str]] = {name: set() for name in calls}
    callers["main"] = {""}
    followed: dict[str, int] = {}
    for _ in calls:  # Callers usually come before their callees; repeat until nothing is added.
        changed = [name for name in calls if followed.get(name, 0) < len(callers[name])]
        for name in changed:
            followed[name] = len(callers[name])
            for callee, location in calls[name]:
                caller_ids = callers.setdefault(callee, set())
                if len(caller_ids) < most:
                    caller_ids.update(ids_at(name, location, callers[name]))
        if not changed:
            break
    return callers


def ids_of(location: str, callers: Set[str], tags: Marks, equations: Container[str]) -> frozenset[str]:
    """Return the ids of the equations of an op: the id in its location, prefixed by each caller of its function."""
    ids: set[str] = set()
    for part in location.split(";"):
        inner = tags.joint.join(tags.path(part))
        if not inner:
            ids |= callers
            continue
        for caller in callers:
            id = f"{caller}{tags.joint}{inner}" if caller else inner
            # JAX lowers a helper once, with the location of its first call. In the other calls, use the caller.
            ids.add(id if id in equations else caller)
    ids.discard("")
    return frozenset(ids)


def ids_in_function_of(id: str, callers: Iterable[str], joint: str = ".") -> set[str]:
    """Return the full ids of an equation in the body of a loop, branch or reduction.

    Examples:
        >>> ids_in_function_of("2.b1.0", ["5.2"])  # equation 5 calls the function, whose equation 2 is the loop
        {'5.2.b1.0'}
        >>> ids_in_function_of("0", ["5.0"]), ids_in_function_of("1", ["5.0"])
        ({'5.0'}, set())
    """
    # `id` is its id in the function that contains the loop. `callers` are the full ids of the loop, one for each call
    # of the function. `joint` separates the parts of an id.
    ids: set[str] = set()
    for caller in callers:
        parts = caller.split(joint)
        for count in range(len(parts)):
            rest = joint.join(parts[count:])
            if id == rest or id.startswith(f"{rest}{joint}"):
                ids.add(joint.join((*parts[:count], id)))
    return ids
