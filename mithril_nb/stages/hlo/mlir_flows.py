"""The data flow of StableHLO: through ops with several results, loops, and functions with one call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mithril_nb.stages.hlo.spelling import read_mlir
from mithril_nb.stages.records import Input, Instruction

# For example: %2#1, the second result of %2
_VALUE = re.compile(r"(%\w+)(?:#(\d+))?")
# For example: %iterArg = %2#1 in stablehlo.while(%iterArg = %2#1, ...)
_CARRIED = re.compile(r"(%\w+) = %\w+")
_INSIDE = re.compile(r"%\w+ = (?=%)")
# For example: func.func public @main(%arg0: tensor<4xf32>)
_MAIN = re.compile(r"func\.func (?:public )?@main\(.*")
# For example: %arg0: tensor<4xf32>
_GIVEN = re.compile(r"(%\w+): ")
# For example: call @relu(%0)
_CALL = re.compile(r'call @("[^"]*"|[\w.$-]+)')
_ById = dict[str, Instruction]
_Value = tuple[str, int]
"""Id of an instruction, and the index of one of its results."""


def with_flows(text: str, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Return the instructions of a module with the data flow into and out of calls and loops.

    This sets `operands`, `picks`, `results` and `carried` of each `Instruction`. If a function has several calls, its
    instructions are not linked to those of its callers. Otherwise data of one call would seem to reach the others.

    Args:
        text: The text of the module, without locations.
        instructions: The instructions of the text.
    """
    lines = text.split("\n")
    found = {one.id: one for one in instructions}
    for one in instructions:
        if "#" in lines[one.line - 1] and (picks := _picks(one, lines[one.line - 1])):
            found[one.id] = replace(one, picks=picks)
    at_line = {one.line: one.id for one in instructions}
    calls: dict[str, list[str]] = {}
    for one in instructions:
        call = _CALL.search(lines[one.line - 1]) if one.opcode.endswith("call") else None
        if call:
            name = read_mlir(call[1][1:-1]) if call[1].startswith('"') else call[1]
            calls.setdefault(f"@{name}", []).append(one.id)
    regions: list[tuple[Instruction, Instruction, list[Instruction]]] = []
    for one in instructions:
        # The line before the closing bracket returns from the last region, which is the body of a loop.
        end = found.get(at_line.get(one.line + one.lines - 2, ""))
        if one.lines > 2 and end is not None and end.opcode.endswith("return"):
            inside = [found[at_line[line]] for line in range(one.line + 1, one.line + one.lines) if line in at_line]
            regions.append((one, end, inside))
    for one, _, inside in regions:
        if one.opcode == "func.func" and len(calls.get(one.id, ())) != 1:  # its arguments are not those of the module
            own = {name: f"{one.id} {name}" for name in _GIVEN.findall(lines[one.line - 1])}
            for inner in inside:
                known = found[inner.id]
                found[inner.id] = replace(known, operands=tuple([own.get(name, name) for name in known.operands]))
    # By call or loop: the values that its function or body returns (`None` for a carry), and what is computed inside.
    inner: dict[str, list[_Value | None]] = {}
    made: dict[str, set[str]] = {}
    for one, end, inside in regions:
        if one.opcode == "func.func" and len(calls.get(one.id, ())) == 1:
            call = found[calls[one.id][0]]
            given = dict(zip(_GIVEN.findall(lines[one.line - 1]), _values(call), strict=False))
            _connect_call(inside, given, found)
            # A function may return its own arguments.
            inner[call.id] = [given.get(id, (id, pick)) for id, pick in _values(end)]
            made[call.id] = {each.id for each in inside}
        elif one.opcode.endswith(".while"):
            made[one.id] = {each.id for each in inside}
            inner[one.id] = [value if value[0] in made[one.id] else None for value in _values(end)]
    for id, values in inner.items():
        makers = [_made_by(value, inner) if value is not None and value[0] in made[id] else "" for value in values]
        found[id] = replace(found[id], results=tuple([maker if maker in found else "" for maker in makers]))
    for one, end, inside in regions:
        if one.opcode.endswith(".while"):
            makers = dict(zip(_CARRIED.findall(lines[one.line - 1]), found[one.id].results, strict=False))
            for each in inside:
                used = dict.fromkeys(name for name, _ in _VALUE.findall(lines[each.line - 1]))
                carried = [makers[name] for name in used if makers.get(name)]
                if carried and each is not end:
                    known = found[each.id]
                    found[each.id] = replace(known, carried=tuple(dict.fromkeys((*known.carried, *carried))))
    return tuple(found.values())


def arguments_of(text: str, inputs: Sequence[tuple[int, Input]]) -> list[Instruction]:
    """Return the arguments of a module as instructions; `[]` if there are not as many as `inputs`.

    Args:
        text: The text of the module.
        inputs: The inputs of the program that are arguments, each with its index among all inputs.
    """
    main = _MAIN.search(text)
    names = _GIVEN.findall(main[0]) if main else []
    if main is None or len(names) != len(inputs):
        return []
    line = text.count("\n", 0, main.start()) + 1
    return [
        Instruction(
            name,
            "parameter",
            line,
            (f"arg{index}",),
            ((one.block, 1.0),) if one.block else (),
            attributes=(("name", one.name),),
            shapes=(one.spec,),
        )
        for name, (index, one) in zip(names, inputs, strict=True)
    ]


def _values(one: Instruction) -> list[_Value]:
    return list(zip(one.operands, one.picks or (0,) * len(one.operands), strict=True))


def _made_by(value: _Value, inner: Mapping[str, Sequence[_Value | None]]) -> str:
    """Return the id of the instruction that computes a value; for a result of a call or loop, one inside of it."""
    id, pick = value
    while pick < len(inner.get(id, ())) and (inside := inner[id][pick]) is not None:
        id, pick = inside
    return id


def _picks(one: Instruction, line: str) -> tuple[int, ...]:
    used = _INSIDE.sub("", line.partition(" = ")[2] or line)
    picks = tuple([int(pick or 0) for _, pick in _VALUE.findall(used)])
    return picks if any(picks) and len(picks) == len(one.operands) else ()


def _connect_call(inside: Sequence[Instruction], taken: Mapping[str, _Value], found: _ById) -> None:
    """Connect the operands of a call to the body of its function."""
    for one in inside:
        if any(name in taken for name in one.operands):
            values = [taken.get(name, (name, pick)) for name, pick in _values(one)]
            picks = tuple([pick for _, pick in values])
            found[one.id] = replace(
                found[one.id], operands=tuple([id for id, _ in values]), picks=picks if any(picks) else ()
            )
