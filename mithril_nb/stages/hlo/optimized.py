"""Read HLO text, and find the equations and blocks of each instruction.

A fusion or loop belongs to the blocks of the instructions inside it. The block of an instruction without a tag is
inferred from its operands or users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from mithril_nb.graph.spec import ITEM_BYTES
from mithril_nb.stages import jax_versions
from mithril_nb.stages.given.locations import GivenLines, ReadSources, slashes_in
from mithril_nb.stages.hlo.hlo_flows import with_flows
from mithril_nb.stages.hlo.stablehlo import ids_in_function_of
from mithril_nb.stages.hlo.syntax import HloLine, attribute_pairs, device_counts, sizes_in
from mithril_nb.stages.hlo.text import ComputationText, orders_of, read_module, tidy
from mithril_nb.stages.inference import (
    InstructionDraft,
    attribute,
    blend,
    blend_equally,
    distinct,
    in_program_order,
    majority,
    majority_of,
    pass_on,
)
from mithril_nb.stages.records import Equation, Ids, Origin, Read, Shares
from mithril_nb.stages.trace.provenance.scopes import Marks

_CONTRACTING = re.compile(r"(lhs|rhs)_contracting_dims=\{([\d,]*)\}")
_WINDOW = re.compile(r"window=\{[^}]*?size=([\dx]+)")

MOVING = frozenset(
    "parameter constant tuple get-tuple-element bitcast copy copy-start copy-done broadcast reshape transpose slice "
    "concatenate pad reverse iota gather dynamic-slice dynamic-update-slice after-all bitcast-convert opt-barrier "
    "partition-id replica-id all-gather infeed outfeed domain".split()
)
"""Opcodes that move or name data, and compute nothing."""

# Work per element of moved data: its block gets a share, but hardly changes the shares of blocks that compute.
_MOVED = 0.01

CALLING = frozenset(
    "fusion call while conditional async-start async-update async-done call-start call-done fusion-start".split()
)
"""Opcodes that run other computations."""

TRIVIAL = frozenset("parameter constant tuple get-tuple-element bitcast after-all opt-barrier".split())
"""Opcodes for which no code runs."""

# Opcodes for which no code runs inside a fusion.
_FREE = TRIVIAL | {"broadcast", "iota"}


def flops(line: HloLine, shapes: dict[str, HloLine]) -> float:
    """Return a rough number of operations of an instruction, to weigh it against others in the same computation."""
    if line.opcode in ("dot", "convolution", "custom-call", "ragged-dot"):
        inner = 1
        left = shapes.get(line.operands[0]) if line.operands else None
        contracting = dict(_CONTRACTING.findall(line.attributes))
        if left is not None and left.shapes and "lhs" in contracting:
            sizes = left.shapes[0][1]
            inner = prod(tuple(sizes[axis] for axis in sizes_in(contracting["lhs"]) if axis < len(sizes)))
        elif line.opcode == "convolution":
            window = _WINDOW.search(line.attributes)
            inner = prod(sizes_in(window.group(1).replace("x", ","))) if window else 1
            # The window has only the spatial sizes. The labels show which axis of the kernel has the input channels.
            kernel = shapes.get(line.operands[1]) if len(line.operands) > 1 else None
            labels = re.search(r"dim_labels=\w+_(\w+)->", line.attributes)
            if kernel is not None and kernel.shapes and labels and "i" in labels.group(1):
                inner *= kernel.shapes[0][1][labels.group(1).index("i")]
        return 2.0 * line.elements * inner
    if line.opcode in ("reduce", "reduce-window", "scatter", "select-and-scatter", "sort"):
        source = shapes.get(line.operands[0]) if line.operands else None
        return float(max(source.elements if source else 0, line.elements))
    return 0.0 if line.opcode in MOVING or line.opcode in CALLING else float(line.elements)


# Opcodes of the instructions that pass slices to the body of a scan and stack its results.
_MOVES = frozenset(
    {"dynamic-slice", "dynamic-update-slice", "get-tuple-element", "reshape", "bitcast", "copy", "transpose"}
)
_USERS_FIRST = frozenset({"constant", "iota", "get-tuple-element", "broadcast"})
# Collectives that XLA combines into one with a tuple as its result.
_COMBINED = frozenset({"all-reduce", "all-gather", "reduce-scatter", "collective-permute"})
_BODIES = frozenset({"calls", "body", "condition", "branch", "true_computation", "false_computation"})


def read_hlo(
    text: str,
    tags: Marks,
    equations: Mapping[str, Equation],
    inputs: Mapping[str, tuple[int, str]],
    refine: Callable[[str, str], Ids] = lambda opcode, id: (),
    op_names: Mapping[str, str] | None = None,
    lines: GivenLines | None = None,
) -> Read:
    """Return the text of a module as it is shown to the user, entry first, and its instructions with provenance.

    `inputs`: Index and block of each input by its name, such as `params['linear_0.weight']`. `refine`: A function that
    returns ids of further equations, given the opcode of an instruction and the id of one of its equations. `op_names`:
    Op names by instruction, for instructions without one in the text. `lines`: The object that reads Python lines from
    the locations in the text; `None` to use the Python lines of the equations.
    """
    return _Module(text, tags, equations, inputs, refine, op_names or {}, lines and lines.of_hlo(text)).result()


# The instruction that calls a computation, and the computation that contains it.
_Caller = tuple[HloLine, ComputationText]


@dataclass
class _Module:
    text: str
    tags: Marks
    equations: Mapping[str, Equation]
    inputs: Mapping[str, tuple[int, str]]
    refine: Callable[[str, str], Ids]
    op_names: Mapping[str, str]
    read: ReadSources | None

    def __post_init__(self):
        self._title, computations = read_module(self.text)
        # Show the counts of devices: a collective without listed groups uses all devices.
        self._title += "".join(f", {name}={count}" for name, count in device_counts(self.text).items())
        computations.sort(key=lambda computation: not computation.is_entry)
        # If a damaged text has two computations of one name, the first counts.
        self._computations = {computation.name: computation for computation in reversed(computations)}
        self._order, self._callees_first = orders_of(computations, self._computations)
        self._drafts: dict[str, InstructionDraft] = {}
        self._lines: dict[str, HloLine] = {}
        self._homes: dict[str, ComputationText] = {}
        self._callers: dict[str, list[_Caller]] = {}
        self._appliers: dict[str, list[_Caller]] = {}
        self._functions: dict[str, frozenset[str]] = {}
        self._behind: dict[tuple[str, str], set[str]] = {}
        self._moves: dict[str, tuple[Shares, Origin | None]] = {}

    def result(self) -> Read:
        printed = [self._title, ""]
        ranks = {computation.name: rank for rank, computation in enumerate(self._callees_first)}
        for computation in self._order:
            printed.append(computation.header)
            for line in computation.lines:
                if isinstance(line, HloLine):
                    printed.append(line.text)
                    self._lines[line.name] = line
                    self._homes[line.name] = computation
                    self._drafts[line.name] = InstructionDraft(
                        line.name,
                        line.opcode,
                        len(printed),
                        operands=line.operands,
                        prefers_users=line.opcode in _USERS_FIRST,
                        shown_operands=line.operands,  # `operands` of a parameter grow by the operands of its callers
                        shapes=line.specs,
                        # The displayed text does not contain the trip count.
                        attributes=attribute_pairs(line.attributes)
                        + (() if line.trips is None else (("known_trip_count", str(line.trips)),)),
                    )
                    # If the op name is only the name of the program, use the location of the caller instead.
                    if line.location and (not line.op_name or self.tags.is_in(line.op_name)):
                        self._drafts[line.name].locations = (line.location,)
                    for how, callee in line.calls:
                        if ranks.get(callee, -1) >= ranks[computation.name]:
                            continue  # Damaged: following a computation that calls itself would never end.
                        callers = self._callers if how in _BODIES or line.opcode in CALLING else self._appliers
                        callers.setdefault(callee, []).append((line, computation))
                else:
                    printed.append(line)
                    id = f"line {len(printed)}"
                    self._drafts[id] = InstructionDraft(id, "unreadable", len(printed))  # an opcode of unknown cost
            printed += ["}", ""]
        for computation in self._order if self.read is not None else ():  # hand down the locations of callers
            locations = {
                location: None
                for caller, _ in self._all_callers(computation)
                for location in self._drafts[caller.name].locations
            }
            for line in computation.instructions if locations else ():
                draft = self._drafts[line.name]
                draft.locations = draft.locations or tuple(locations)
        for computation in self._callees_first:
            self._attribute(computation)
        for computation in self._order:  # connect the parameters of a computation to the operands of its callers
            callers = [
                caller for caller, _ in self._callers.get(computation.name, ()) if caller.opcode in ("fusion", "call")
            ]
            for line in computation.instructions if callers else ():
                if line.opcode == "parameter" and line.literal.isdigit():
                    number = int(line.literal)
                    operands = tuple(caller.operands[number] for caller in callers if number < len(caller.operands))
                    self._drafts[line.name].operands += operands
        pass_on(self._drafts)
        # If no other block was found, set the block that `_attribute_moved` cleared again. Instructions in a fusion are
        # left to `_hand_down`.
        for name, (shares, origin) in self._moves.items():
            callers = self._callers.get(self._homes[name].name, ())
            if not self._drafts[name].shares and not any(caller.opcode == "fusion" for caller, _ in callers):
                self._drafts[name].shares, self._drafts[name].origin = shares, origin
        self._hand_down()
        instructions = tuple([draft.finished(self.equations, self.read) for draft in self._drafts.values()])
        return tidy("\n".join(printed)), with_flows(
            instructions, self._callees_first, {**self._appliers, **self._callers}
        )

    def _attribute(self, computation: ComputationText) -> None:
        for line in computation.instructions:
            draft = self._drafts[line.name]
            if line.opcode == "parameter" and line.op_name in self.inputs:
                index, block = self.inputs[line.op_name]
                draft.equations, draft.is_settled = (f"arg{index}",), True
                if block:
                    draft.shares, draft.origin = ((block, 1.0),), "inferred"
                continue
            ids = self._ids(line, computation)
            if line.opcode not in CALLING:  # XLA gives an unnamed instruction the name of the call it was inlined from
                ids = frozenset(id for id in ids if self.equations[id].primitive not in jax_versions.CALL_NAMES)
            ids |= {more for id in ids for more in self.refine(line.opcode, id)}
            attribute(draft, ids, self.equations)
            if draft.origin and line.name in self.op_names:
                draft.origin = "inferred"
            is_moved = line.opcode in MOVING and line.opcode not in _FREE
            draft.work = _MOVED * line.elements if is_moved else flops(line, self._lines)
            if line.opcode == "constant":  # Merged across blocks; its users determine the block.
                draft.shares, draft.role, draft.origin = (), None, None
            if line.opcode in CALLING:
                self._gather(line)
            if line.opcode in _MOVES:
                self._attribute_moved(line, self._moved_by(line))
        self._share_combined(computation)

    def _share_combined(self, computation: ComputationText) -> None:
        """Attribute each collective that XLA combined from several ones to the equations and blocks of all of them."""
        # Its `op_name` names only one of them, but each item of its result has the `op_name` of its original
        # collective. A block's share of the collective is its share of the bytes.
        items: dict[str, list[HloLine]] = {}
        for line in computation.instructions:
            if line.opcode == "get-tuple-element" and line.operands:
                items.setdefault(line.operands[0], []).append(line)
        for line in computation.instructions:
            if line.opcode.endswith("-done") and line.name in items and line.operands:
                items[line.operands[0]] = items[line.name]
            if line.opcode.removesuffix("-start").removesuffix("-done") not in _COMBINED or line.name not in items:
                continue
            parts = [
                (
                    self._drafts[item.name],
                    float(sum(ITEM_BYTES.get(spec.dtype, 1) * (spec.size or 0) for spec in item.specs)),
                )
                for item in items[line.name]
            ]
            if not any(part.equations for part, _ in parts):
                continue
            draft = self._drafts[line.name]
            draft.equations = in_program_order(id for part, _ in parts for id in part.equations)
            draft.shares = blend((part.shares, weight) for part, weight in parts)
            draft.role = majority((part.role, weight) for part, weight in parts)
            draft.origin = "tagged" if draft.shares else None

    def _all_callers(self, computation: ComputationText) -> list[_Caller]:
        return [*self._callers.get(computation.name, ()), *self._appliers.get(computation.name, ())]

    def _moved_by(self, line: HloLine) -> Ids:
        """Return the operands that an instruction of `_MOVES` moves; `()` for a slice, whose users have its block."""
        if line.opcode == "dynamic-slice":
            return ()
        if line.opcode == "dynamic-update-slice":
            return line.operands[1:2]
        producer = self._lines.get(line.operands[0]) if line.opcode == "get-tuple-element" and line.operands else None
        body = self._body(producer) if producer is not None and producer.opcode == "call" else []
        if body and body[-1].opcode == "tuple":
            index = dict(self._drafts[line.name].attributes).get("index", "")
            if index.isdigit() and int(index) < len(body[-1].operands):
                return (body[-1].operands[int(index)],)
        return line.operands

    def _attribute_moved(self, line: HloLine, candidates: Ids) -> None:
        """Clear the block of an instruction that moves data into or out of a scan, so that it is inferred later."""
        # The `op_name` of the instruction names only the scan. It should belong to the block that computes or uses
        # the data. If no such block is found later, `result` sets the block of the scan again.
        draft = self._drafts[line.name]
        if self._is_of_scan(draft):
            self._moves[line.name] = draft.shares, draft.origin
            draft.shares, draft.origin, draft.sources = (), None, candidates

    def _is_of_scan(self, draft: InstructionDraft) -> bool:
        return bool(draft.equations) and all(self.equations[id].primitive == "scan" for id in draft.equations)

    def _ids(self, line: HloLine, computation: ComputationText) -> frozenset[str]:
        """Return the ids of the equations that the tags in an instruction's `op_name` identify."""
        # In a function that XLA did not inline, a tag has only the last part of an id. The ids of the calls precede
        # it.
        op_name = line.op_name or self.op_names.get(line.name, "")
        if not self.tags.is_in(op_name):  # in a function without tags, such as JAX's for a `cumsum`: use its calls
            known_ids = self._functions.get(computation.name)
            if known_ids is None:
                callers = self._callers.get(computation.name, ())
                calls = (self._ids(caller, home) for caller, home in callers if caller.opcode in ("call", "while"))
                known_ids = frozenset(id for ids in calls for id in ids if not self.equations[id].is_call)
                self._functions[computation.name] = known_ids
            return known_ids
        ids: set[str] = set()
        for part in op_name.split(";"):
            id = self.tags.joint.join(self.tags.path(part))
            if id and (part.startswith(self._root) if self._root else computation.is_entry):
                ids.add(id)
            elif id:
                ids |= self._behind_callers(id, computation)
        return frozenset(ids & self.equations.keys())

    def _behind_callers(self, id: str, computation: ComputationText) -> set[str]:
        if computation.is_entry:
            return {id}
        if (id, computation.name) in self._behind:
            return self._behind[id, computation.name]
        full_ids = self._behind[id, computation.name] = set[str]()
        for caller, home in self._all_callers(computation):
            if len(full_ids) >= self.tags.most_callers:
                break
            ids = self._ids(caller, home)
            if caller.opcode == "call" and ids:
                full_ids |= {f"{outer}{self.tags.joint}{id}" for outer in ids}
            elif ids:
                full_ids |= ids_in_function_of(id, ids, self.tags.joint)
            else:
                full_ids |= self._behind_callers(id, home)
        return full_ids

    @cached_property
    def _root(self) -> str:
        """Prefix of the op names of all instructions that are not in a called function: `jit(step)/`."""
        for computation in self._order:
            for line in computation.instructions if computation.is_entry else ():
                for position in slashes_in(line.op_name) if self.tags.is_in(line.op_name) else ():
                    start = line.op_name[: position + 1]
                    return "" if self.tags.is_in(start) else start
        return ""

    def _gather(self, line: HloLine) -> None:
        # Blocks are weighted by work.
        draft = self._drafts[line.name]
        inner = [
            self._drafts[inner_line.name]
            for _, callee in line.calls
            if callee in self._computations
            for inner_line in self._computations[callee].instructions
        ]
        if not inner:
            return
        trips = line.trips or 1
        draft.work = trips * sum(part.work for part in inner)
        counted = [part for part in inner if part.opcode not in TRIVIAL and (part.equations or part.shares)]
        ids = {id for part in counted for id in part.equations}
        if line.opcode == "call" and draft.equations:
            own = tuple(f"{id}{self.tags.joint}" for id in draft.equations)
            own_ids = {id for id in ids if id.startswith(own)}
            if own_ids:
                draft.equations = in_program_order((*own_ids, *draft.equations))
                equations = [
                    self.equations[id] for id in draft.equations if id in own_ids and not self.equations[id].is_call
                ]
                draft.shares = blend_equally(equations) or draft.shares
                draft.role = majority_of(equations) or draft.role
                draft.origin = "tagged" if draft.shares else None
            if not ids:
                written: Ids = ()  # the operand that a call in a loop writes into a stacked result, as a tuple
                stored = next((part for part in self._body(line) if part.opcode == "dynamic-update-slice"), None)
                seen: set[str] = set()
                while stored is not None and stored.opcode != "parameter" and stored.name not in seen:
                    seen.add(stored.name)
                    stored = self._lines.get(next(iter(self._moved_by(stored)), ""))
                if stored is not None and stored.literal.isdigit():
                    written = line.operands[int(stored.literal) : int(stored.literal) + 1]
                self._attribute_moved(line, written)
                for part in inner:
                    part.sources = () if line.name in self._moves else part.sources
            return
        draft.equations = in_program_order((*ids, *draft.equations))
        draft.locations = distinct(location for part in counted for location in part.locations) or draft.locations
        weighed = [(part, part.work) for part in counted]
        if not any(weight for part, weight in weighed if part.shares):  # nothing in it computes or moves data
            weighed = [(part, 1.0) for part in counted]
        shares = blend((part.shares, weight) for part, weight in weighed)
        if shares:
            draft.shares = shares
            draft.take_lines(counted)
            draft.role = majority((part.role, weight) for part, weight in weighed)
            draft.origin = "tagged" if any(part.origin == "tagged" for part in counted) else "inferred"
        is_moved = any(part.id in self._moves for part in inner)
        if line.opcode == "fusion" and is_moved and all(self._is_of_scan(part) for part in counted if part.shares):
            self._attribute_moved(line, tuple(inner_line.name for inner_line in self._body(line)[-1:]))

    def _body(self, call: HloLine) -> list[HloLine]:
        called = self._computations.get(call.calls[0][1]) if call.calls else None
        return called.instructions if called else []

    def _hand_down(self) -> None:
        """Give each instruction without a block the blocks of the callers of its computation."""
        for computation in self._order:
            outside = self._callers.get(computation.name) or self._appliers.get(computation.name, ())
            callers = [self._drafts[caller.name] for caller, _ in outside]
            shares = blend_equally(callers)
            for line in computation.instructions:
                draft = self._drafts[line.name]
                if shares and not draft.shares and not draft.is_settled:
                    draft.shares, draft.origin = shares, "inferred"
                    draft.take_lines(callers)
                    draft.role = draft.role or majority_of(callers)
