"""Recover the op name of a matrix product if XLA dropped it.

A pass may replace a product by a new product and a transpose or reshape of its result, and give the op name only to the
transpose or reshape. If a later pass removes that one, the op name is lost. It is still in the text after the first
pass.

In this file, a product is a matrix product or a convolution.
"""

from __future__ import annotations

from collections.abc import Iterable

from mithril_nb.stages.hlo.syntax import HloLine, instruction_names
from mithril_nb.stages.hlo.text import read_module
from mithril_nb.stages.xla.passes import Histories

# openxla/xla#9542: optimizations may drop metadata. Only products are recovered, because their cost is large.
CONTRACTIONS = frozenset({"dot", "convolution"})
_MOVERS = frozenset({"transpose", "bitcast", "reshape", "copy", "convert", "reverse"})
_FARTHEST = 6
"""Maximum number of instructions between a product and the one with its op name."""


def nameless(text: str) -> list[str]:
    r"""Return the names of the matrix products and convolutions in the text of a module that have no op name.

    Examples:
        >>> nameless("  %a = f32[2] dot(%b, %c), x={1}\n  %d = f32[2] dot(%b, %c), metadata={op_name=\"dot\"}\n")
        ['a']
    """
    products = (line for line in text.splitlines() if " dot(" in line or " convolution(" in line)
    return [name for line in products if "op_name=" not in line for name in instruction_names(line)]


def original_names(histories: Histories, names: Iterable[str]) -> dict[str, str]:
    """Return a dict from the names of matrix products and convolutions to the op names that they lost.

    Args:
        histories: The passes in which each instruction appeared and vanished.
        names: Names of products without an op name. Those whose op name cannot be recovered are not in the result.
    """
    wanted: dict[int, list[str]] = {}
    passes = {}
    for name in names:
        made = histories.appeared.get(name)
        if made is not None:
            wanted.setdefault(made.number, []).append(name)
            passes[made.number] = made
    found: dict[str, str] = {}
    forms: dict[str, str] = {}
    for number, here in wanted.items():
        before, after = map(ModuleText, passes[number].written)
        gone = [line for line in before.products if line.name not in after.lines]
        kept = {line.op_name for line in after.products if line.name not in before.lines}
        for name in here:
            op_name = after.name_from_users(name)
            former = None if op_name else _former(name, before, after, gone, kept)
            if former is not None and former.op_name:
                op_name = former.op_name
            if op_name:
                found[name] = op_name
            elif former is not None:
                forms[name] = former.name
    if forms:  # their op names were lost in an earlier pass
        earlier = original_names(histories, forms.values())
        found |= {name: earlier[former] for name, former in forms.items() if former in earlier}
    return found


class ModuleText:
    """The parsed text of a module.

    Attributes:
        lines: A dict from the name of each instruction to the instruction.
        users: A dict from the name of an instruction to the instructions that use its result.
        homes: A dict from the name of each instruction to the name of its computation.
        roots: A dict from the name of each computation to the name of the instruction that computes its result.
        products: The matrix products and convolutions.
        fusions: Names of the computations of fusions.
    """

    def __init__(self, text: str, known: dict[str, HloLine | str] | None = None):
        _, computations = read_module(text, known)
        self.lines: dict[str, HloLine] = {}
        self.users: dict[str, list[HloLine]] = {}
        self.homes: dict[str, str] = {}
        self.roots: dict[str, str] = {}
        given: dict[str, tuple[str, ...]] = {}
        for computation in computations:
            for line in computation.instructions:
                self.lines[line.name] = line
                self.homes[line.name] = computation.name
                if line.is_root:
                    self.roots[computation.name] = line.name
                for operand in line.operands:
                    self.users.setdefault(operand, []).append(line)
                given.update((callee, line.operands) for how, callee in line.calls if how == "calls")
        self._given, self.fusions = given, frozenset(given)
        self.products = [line for line in self.lines.values() if line.opcode in CONTRACTIONS]

    def name_from_users(self, name: str) -> str:
        """Return the op name of the transpose or reshape of a product's result; `""` if there is none."""
        for _ in range(_FARTHEST):
            after = self.users.get(name, ())
            if len(after) != 1 or after[0].opcode not in _MOVERS:
                return ""
            if after[0].op_name:
                return after[0].op_name
            name = after[0].name
        return ""

    def sizes(self, line: HloLine) -> tuple[int, tuple[int, ...]]:
        """Return the sizes of result and operands, in elements, which a transpose or reshape does not change."""
        operands = (self.lines[operand].elements for operand in line.operands if operand in self.lines)
        return line.elements, tuple(sorted(operands))

    def taken(self, line: HloLine) -> frozenset[str]:
        """Return the names of a product's operands; for a parameter of a fusion, the operand of the fusion."""
        outside = self._given.get(self.homes[line.name], ())
        found = set()
        for operand in line.operands:
            inner = self.lines.get(operand)
            is_given = inner is not None and inner.opcode == "parameter" and inner.literal.isdigit()
            place = int(inner.literal) if inner is not None and is_given else len(outside)
            found.add(outside[place] if place < len(outside) else operand)
        return frozenset(found)


def _former(name: str, before: ModuleText, after: ModuleText, gone: list[HloLine], kept: set[str]) -> HloLine | None:
    """Return the removed product that product `name` replaces, with the same sizes; `None` if there are several."""
    line = after.lines[name]
    same = [one for one in gone if before.sizes(one) == after.sizes(line)]
    for near in (
        [one for one in same if before.taken(one) == after.taken(line)],
        [one for one in same if not one.op_name or one.op_name not in kept],
    ):
        if len(near) == 1:
            return near[0]
    return None
