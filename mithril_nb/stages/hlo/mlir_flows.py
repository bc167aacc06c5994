"""The data flow of StableHLO: through ops with several results, loops, and functions with one call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mithril_nb.stages.hlo.syntax import read_mlir
from mithril_nb.stages.records import Input, Instruction

# For example: %2#1, the second result of %2
_VALUE = re.compile(r"(%\w+)(?:#(\d+))?")
# For example: %iterArg = %2#1 in stablehlo.while(%iterArg = %2#1, ...)
_CARRIED = re.compile(r"(%\w+) = %\w+")
_INSIDE = re.compile(r"%\w+ = (?=%)")
# For example: func.func public @main(%arg0: tensor<4xf32>)
_MAIN = re.compile(r"func\.func (?:public )?@main\(.*")
# For example: %arg0: tensor<4xf32>
_ARGUMENT_NAME = re.compile(r"(%\w+): ")
# For example: call @relu(%0)
_CALL = re.compile(r'call @("[^"]*"|[\w.$-]+)')
# Id of an instruction, and the index of one of its results.
_Value = tuple[str, int]


def with_flows(text: str, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Return the instructions of a module with the data flow into and out of calls and loops.

    `instructions`: The instructions of the text.
    """
    # This sets `operands`, `picks`, `results` and `carried` of each `Instruction`. If a function has several calls,
    # its instructions are not linked to those of its callers. Otherwise data of one call would seem to reach the
    # others.
    lines = text.split("\n")
    by_id = {instruction.id: instruction for instruction in instructions}

    def change(id: str, **fields: Any) -> None:
        by_id[id] = replace(by_id[id], **fields)

    for instruction in instructions:
        if "#" in (line := lines[instruction.line - 1]):
            used = _VALUE.findall(_INSIDE.sub("", line.partition(" = ")[2] or line))
            picks = tuple([int(pick or 0) for _, pick in used])
            if any(picks) and len(picks) == len(instruction.operands):
                change(instruction.id, picks=picks)
    at_line = {instruction.line: instruction.id for instruction in instructions}
    calls: dict[str, list[str]] = {}
    for instruction in instructions:
        call = _CALL.search(lines[instruction.line - 1]) if instruction.opcode.endswith("call") else None
        if call:
            name = read_mlir(call[1][1:-1]) if call[1].startswith('"') else call[1]
            calls.setdefault(f"@{name}", []).append(instruction.id)
    regions: list[tuple[Instruction, Instruction, list[Instruction]]] = []
    for instruction in instructions:
        # The line before the closing bracket returns from the last region, which is the body of a loop.
        end = by_id.get(at_line.get(instruction.line + instruction.lines - 2, ""))
        if instruction.lines > 2 and end is not None and end.opcode.endswith("return"):
            inside = [
                by_id[at_line[line]]
                for line in range(instruction.line + 1, instruction.line + instruction.lines)
                if line in at_line
            ]
            regions.append((instruction, end, inside))
    for instruction, _, inside in regions:
        if (
            instruction.opcode == "func.func" and len(calls.get(instruction.id, ())) != 1
        ):  # its arguments are not those of the module
            own = {name: f"{instruction.id} {name}" for name in _ARGUMENT_NAME.findall(lines[instruction.line - 1])}
            for part in inside:
                change(part.id, operands=tuple([own.get(name, name) for name in by_id[part.id].operands]))
    # By call or loop: the values that its function or body returns (`None` for a carry), and what is computed inside.
    inner: dict[str, list[_Value | None]] = {}
    body_ids: dict[str, set[str]] = {}
    for instruction, end, inside in regions:
        if instruction.opcode == "func.func" and len(calls.get(instruction.id, ())) == 1:
            call = by_id[calls[instruction.id][0]]
            arguments = dict(zip(_ARGUMENT_NAME.findall(lines[instruction.line - 1]), _values(call), strict=False))
            for part in inside:
                if any(name in arguments for name in part.operands):
                    values = [arguments.get(name, (name, pick)) for name, pick in _values(part)]
                    picks = tuple([pick for _, pick in values])
                    change(part.id, operands=tuple([id for id, _ in values]), picks=picks if any(picks) else ())
            # A function may return its own arguments.
            inner[call.id] = [arguments.get(id, (id, pick)) for id, pick in _values(end)]
            body_ids[call.id] = {each.id for each in inside}
        elif instruction.opcode.endswith(".while"):
            body_ids[instruction.id] = {each.id for each in inside}
            inner[instruction.id] = [value if value[0] in body_ids[instruction.id] else None for value in _values(end)]
    for id, values in inner.items():
        makers = [_maker(value, inner) if value is not None and value[0] in body_ids[id] else "" for value in values]
        change(id, results=tuple([maker if maker in by_id else "" for maker in makers]))
    for instruction, end, inside in regions:
        if instruction.opcode.endswith(".while"):
            makers = dict(
                zip(_CARRIED.findall(lines[instruction.line - 1]), by_id[instruction.id].results, strict=False)
            )
            for each in inside:
                used = dict.fromkeys(name for name, _ in _VALUE.findall(lines[each.line - 1]))
                carried = [makers[name] for name in used if makers.get(name)]
                if carried and each is not end:
                    change(each.id, carried=tuple(dict.fromkeys((*by_id[each.id].carried, *carried))))
    return tuple(by_id.values())


def arguments_of(text: str, inputs: Sequence[tuple[int, Input]]) -> list[Instruction]:
    """Return the arguments of a module as instructions; `[]` if there are not as many as `inputs`.

    `inputs`: The inputs of the program that are arguments, each with its index among all inputs.
    """
    main = _MAIN.search(text)
    names = _ARGUMENT_NAME.findall(main[0]) if main else []
    if main is None or len(names) != len(inputs):
        return []
    line = text.count("\n", 0, main.start()) + 1
    return [
        Instruction(
            name,
            "parameter",
            line,
            (f"arg{index}",),
            argument.shares,
            attributes=(("name", argument.name),),
            shapes=(argument.spec,),
        )
        for name, (index, argument) in zip(names, inputs, strict=True)
    ]


def _values(instruction: Instruction) -> list[_Value]:
    return list(zip(instruction.operands, instruction.picks or (0,) * len(instruction.operands), strict=True))


def _maker(value: _Value, inner: Mapping[str, Sequence[_Value | None]]) -> str:
    """Return the id of the instruction that computes a value; for a result of a call or loop, one inside of it."""
    id, pick = value
    while pick < len(inner.get(id, ())) and (inside := inner[id][pick]) is not None:
        id, pick = inside
    return id
