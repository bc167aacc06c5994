"""Infer the blocks of untagged instructions from their operands or users. Independent of any text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.given.locations import ReadSources
from mithril_nb.stages.records import ROLES, Equation, Ids, Instruction, Origin, Role, Shares

_CALLERS = frozenset({"call", "fusion", "while"})
# Operations that XLA inserts without a line of Python.
_COPIES = frozenset({"copy", "copy-start", "copy-done", "fusion"})


@dataclass(slots=True)
class InstructionDraft:
    """An `Instruction` before its equations, blocks and lines of Python are final.

    Attributes that are not listed here have the same meaning as in `Instruction`.

    Attributes:
        work: A measure of its work, such as its FLOPs. A fusion divides its shares by the work of its instructions.
        prefers_users: True to infer its block from its users before its operands, as for constants.
        is_settled: True if its block must not be inferred, even if it has none, as for the inputs of a program.
        users: Ids of the instructions that use its result; set by `pass_on`.
        shown_operands: The operands to show; `None` to show `operands`.
        sources: The operands from which its block may be inferred; `None` for all.
        near: Ids of the equations of the instructions from which its block was inferred. An instruction without
            equations gets the lines of Python of these equations.
        locations: Its locations as text. Used only for a `Given`, a program that was lowered elsewhere: its equations
            have no lines of Python.
        near_locations: The locations of the instructions from which its block was inferred. Used if `locations` has no
            line.
    """

    id: str
    opcode: str
    line: int
    lines: int = 1
    operands: Ids = ()
    equations: Ids = ()
    shares: Shares = ()
    role: Role | None = None
    origin: Origin | None = None
    work: float = 0.0
    prefers_users: bool = False
    is_settled: bool = False
    users: list[str] = field(default_factory=list)
    shown_operands: Ids | None = None
    shapes: tuple[TensorSpec, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    sources: Ids | None = None
    near: Ids = ()
    locations: tuple[str, ...] = ()
    near_locations: tuple[str, ...] = ()

    def take_lines(self, others: Sequence[InstructionDraft]) -> None:
        """Set `near` and `near_locations` to the equations and locations of other drafts."""
        self.near = distinct(id for other in others for id in other.equations or other.near)
        self.near_locations = distinct(
            location for other in others for location in other.locations or other.near_locations
        )

    def finished(self, equations: Mapping[str, Equation], read: ReadSources | None = None) -> Instruction:
        """Return the instruction.

        `read`: A function that reads lines of Python from `locations`; `None` to use the lines of the equations.
        """
        # Its lines of Python and its transforms come from its equations.
        if len(self.equations) == 1 and self.equations[0] in equations:  # the usual case
            only = equations[self.equations[0]]
            transforms, source = only.transforms, (only.source_lines,) if only.source else ()
            library_source = (only.library_source,) if only.library_source else ()
        else:
            records = [equations[id] for id in self.equations or self.near if id in equations]
            transforms = max((equation.transforms for equation in records), key=len, default=())
            source = distinct(equation.source_lines for equation in records if equation.source)
            library_source = distinct(equation.library_source for equation in records if equation.library_source)
        if read is not None:
            source, library_source = read(self.locations)
            if not source:
                source, near = read(self.near_locations)
                library_source = library_source or near
        return Instruction(
            self.id,
            self.opcode,
            self.line,
            self.equations,
            self.shares,
            self.role,
            self.origin,
            self.lines,
            self.operands if self.shown_operands is None else self.shown_operands,
            self.shapes,
            self.attributes,
            transforms,
            source,
            library_source,
        )


def attribute(draft: InstructionDraft, ids: Iterable[str], equations: Mapping[str, Equation]) -> None:
    """Set `equations`, `shares`, `role` and `origin` of a draft.

    `ids`: Ids of its equations.
    """
    # Each equation has the same weight in the shares. If no id is in `equations`, nothing is set.
    records = [equations[id] for id in ids if id in equations]
    if not records:
        return
    if len(records) == 1:  # the usual case
        (only,) = records
        draft.equations, draft.role = (only.id,), only.role
        draft.shares, draft.origin = (only.shares, "tagged" if only.block else None)
        return
    # `ids` may be a set, and sums of floats and ties of roles depend on the order.
    records.sort(key=lambda equation: program_order(equation.id))
    draft.equations = distinct(equation.id for equation in records)
    draft.shares = blend_equally(records)
    draft.role = majority_of(records)
    draft.origin = "tagged" if draft.shares else None


def distinct(items: Iterable[str]) -> Ids:
    """Return the items without repetitions, in the order in which they first occur."""
    return tuple(dict.fromkeys(items))


def in_program_order(ids: Iterable[str]) -> Ids:
    """Return ids of equations without repetitions, in program order."""
    return tuple(sorted({*ids}, key=program_order))


def program_order(id: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts equation ids in program order: `"2"` before `"10"`, inputs first."""
    parts = []
    for part in id.split("."):
        # For example: `arg0` for an input, `4.b1.0` for equation 0 in body 1 of equation 4.
        digits = part.lstrip("abgr")
        is_number = digits.isdigit()
        # The ids of a `Given` are names; compare them too, so that the order of a set does not matter.
        parts.append((0 if part.startswith("arg") else 1, int(digits) if is_number else 0, "" if is_number else part))
    return tuple(parts)


def blend(parts: Iterable[tuple[Shares, float]]) -> Shares:
    """Return the shares of blocks in a whole from their shares in its parts, weighted by the second item of each part.

    Examples:
        >>> blend([((("a", 1.0),), 3.0), ((("b", 1.0),), 1.0), ((), 5.0)])
        (('a', 0.75), ('b', 0.25))
    """
    # Shares are pairs of a block and a number; the numbers in the result sum to 1. Parts without shares do not count.
    parts = list(parts)
    if len(parts) == 1 and parts[0][1] > 0 and len(parts[0][0]) == 1:  # the usual case
        return ((parts[0][0][0][0], 1.0),)
    total: dict[str, float] = {}
    for shares, weight in parts:
        for block, share in shares:
            total[block] = total.get(block, 0.0) + share * weight
    weight_sum = sum(total.values())
    if weight_sum <= 0:
        return ()
    return tuple(
        (block, weight / weight_sum)
        # Equal shares are sorted by name, so that the result does not depend on the order of the parts.
        for block, weight in sorted(total.items(), key=lambda item: (-item[1], item[0]))
        if weight
    )


def blend_equally(parts: Iterable[Equation | Instruction | InstructionDraft]) -> Shares:
    """Return the shares of blocks in a whole whose parts have the same weight."""
    return blend((part.shares, 1.0) for part in parts)


def majority_of(parts: Iterable[Equation | Instruction | InstructionDraft]) -> Role | None:
    """Return the role of most of the parts; see `majority`."""
    return majority((part.role, 1.0) for part in parts)


def majority(roles: Iterable[tuple[Role | None, float]]) -> Role | None:
    """Return the role with the greatest total weight, the earlier of a training step's roles if several have it."""
    total: dict[Role, float] = {}
    for role, weight in roles:
        if role is not None:
            total[role] = total.get(role, 0.0) + weight
    return max((role for role in ROLES if role in total), key=lambda role: total[role], default=None)


def pass_on(drafts: Mapping[str, InstructionDraft], rounds: int = 6) -> None:
    """Give drafts without a block the blocks of their operands or users; repeat this at most `rounds` times."""
    order = [draft for draft in drafts.values() if not (draft.shares or draft.is_settled)]
    if not order:
        return
    for draft in drafts.values():
        for operand in draft.operands:
            if operand in drafts:
                drafts[operand].users.append(draft.id)
    for _ in range(rounds):
        changed = False
        for draft in order:
            changed |= _infer_block(draft, drafts)
        # In both orders, so that one round is enough for a chain of operands and for a chain of users.
        for draft in reversed(order):
            changed |= _infer_block(draft, drafts)
        if not changed:
            break
    for draft in order:
        if draft.opcode in _COPIES and not (draft.locations or draft.near_locations or draft.near or draft.equations):
            draft.take_lines(_served(draft, drafts))


def _served(draft: InstructionDraft, drafts: Mapping[str, InstructionDraft], depth: int = 4) -> list[InstructionDraft]:
    users: list[InstructionDraft] = []
    for user in (drafts[id] for id in draft.users if id in drafts and depth):
        users += [user] if user.locations or user.equations else _served(user, drafts, depth - 1)
    operands = [drafts[id] for id in draft.operands if id in drafts]
    return users or [operand for operand in operands if operand.locations or operand.equations]


def _infer_block(draft: InstructionDraft, drafts: Mapping[str, InstructionDraft]) -> bool:
    if draft.shares or draft.is_settled:
        return False
    sides = (draft.operands if draft.sources is None else draft.sources, draft.users)
    for side in reversed(sides) if draft.prefers_users else sides:
        near = [drafts[id] for id in side if id in drafts and drafts[id].shares]
        if draft.sources is not None and side is draft.users:
            # Ignore callers: the parameter of the called body is also a user, and its block is more precise.
            near = [other for other in near if other.opcode not in _CALLERS]
        if near:
            draft.shares = blend_equally(near)
            draft.role = draft.role or majority_of(near)
            draft.origin = "inferred"
            if not draft.equations and len(near) == 1 and len(draft.operands) <= 1:
                draft.equations = near[0].equations
            draft.take_lines(near)
            return True
    return False
