"""The data flow of HLO into and out of the bodies of calls, branches, fusions and loops that one instruction runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mithril_nb.stages.hlo.syntax import HloLine
from mithril_nb.stages.hlo.text import ComputationText
from mithril_nb.stages.records import Instruction


def with_flows(
    instructions: Sequence[Instruction],
    callees_first: Iterable[ComputationText],
    callers: Mapping[str, Sequence[tuple[HloLine, ComputationText]]],
) -> tuple[Instruction, ...]:
    """Return the instructions of a module with the data flow into and out of calls and loops.

    Args:
        instructions: The instructions of a module.
        callees_first: The computations of the module, callees before their callers.
        callers: A mapping from the name of a computation to the instructions that run it, each with the computation
            that contains the instruction.
    """
    # This sets `operands`, `picks`, `results` and `carried` of each `Instruction`. If a computation has several
    # callers, its instructions are not linked to those of its callers. Otherwise data of one call would seem to reach
    # the others.
    by_id = {instruction.id: instruction for instruction in instructions}

    def change(id: str, **fields: Any) -> None:
        by_id[id] = replace(by_id[id], **fields)

    loops: list[tuple[HloLine, str]] = []
    for computation in callees_first:
        outside = [line for line, _ in callers.get(computation.name, ())]
        if len(outside) == 1 and outside[0].opcode.startswith("reduce"):  # a sum leaves from its last addition
            root = by_id[computation.instructions[-1].name]
            change(outside[0].name, results=_results(root))
        if len(outside) == 1 and outside[0].opcode in ("call", "conditional", "fusion", "while"):
            caller, lines = outside[0], computation.instructions
            is_condition = ("condition", computation.name) in caller.calls
            # The operands of a conditional: the index of the branch, then one for each branch.
            is_branch = caller.opcode == "conditional"
            first = 1 + [name for _, name in caller.calls].index(computation.name) if is_branch else 0
            if lines and not is_condition:
                earlier = by_id[caller.name].results if is_branch else ()
                change(caller.name, results=earlier + _results(by_id[lines[-1].name]))
            for line in lines:
                number = first + int(line.literal) if line.opcode == "parameter" and line.literal.isdigit() else -1
                if 0 <= number < len(caller.operands):
                    change(line.name, operands=(caller.operands[number],))
                    loops += [(caller, line.name)] if caller.opcode == "while" else []
    results = {parameter: by_id[loop.name].results for loop, parameter in loops}
    for instruction in instructions:
        index = _item_index(instruction)
        if index is None:
            # If a loop carries a single array, the parameter of its body is the array instead of a tuple.
            carried = next((results[name] for name in instruction.operands if len(results.get(name, ())) == 1), ())
            if carried and carried[0] in by_id and carried[0] not in results:
                change(instruction.id, carried=carried)
            continue
        maker = by_id.get(instruction.operands[0])
        if maker is not None and maker.results and index:
            change(instruction.id, picks=(index,))
        carried = results.get(instruction.operands[0], ())[index : index + 1]
        if not carried or carried[0] not in by_id:
            continue
        result = by_id[carried[0]]
        if _item_index(result) != index or result.operands[0] not in results:  # else the loop does not change it
            change(instruction.id, carried=carried)
    return tuple(by_id.values())


def _item_index(instruction: Instruction) -> int | None:
    is_item = instruction.opcode == "get-tuple-element" and instruction.operands
    index = dict(instruction.attributes).get("index", "") if is_item else ""
    return int(index) if index.isdigit() else None


def _results(root: Instruction) -> tuple[str, ...]:
    if root.opcode == "tuple":
        return root.operands
    return root.results or (root.id,) * max(1, len(root.shapes))
