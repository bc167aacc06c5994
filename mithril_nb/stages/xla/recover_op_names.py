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
# Maximum number of instructions between a product and the one with its op name.
_FARTHEST = 6


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

    `names`: Names of products without an op name.
    """
    by_pass: dict[int, list[str]] = {}
    passes = {}
    for name in names:
        creator = histories.appeared.get(name)
        if creator is not None:
            by_pass.setdefault(creator.number, []).append(name)
            passes[creator.number] = creator
    op_names: dict[str, str] = {}
    forms: dict[str, str] = {}
    for number, here in by_pass.items():
        before, after = map(ModuleText, passes[number].raw_texts)
        gone = [line for line in before.products if line.name not in after.lines]
        surviving = {line.op_name for line in after.products if line.name not in before.lines}
        for name in here:
            # The transpose or reshape of the result may have the op name.
            op_name, result = "", name
            for _ in range(_FARTHEST):
                users = after.users.get(result, ())
                if len(users) != 1 or users[0].opcode not in _MOVERS or op_name:
                    break
                op_name, result = users[0].op_name, users[0].name
            former = None
            # The sizes of result and operands tell which product it was; several may have the same.
            line = after.lines[name]
            same = [] if op_name else [other for other in gone if before.sizes(other) == after.sizes(line)]
            for near in (
                [other for other in same if before.operands_of(other) == after.operands_of(line)],
                [other for other in same if not other.op_name or other.op_name not in surviving],
            ):
                former = near[0] if former is None and len(near) == 1 else former
            if former is not None and former.op_name:
                op_name = former.op_name
            if op_name:
                op_names[name] = op_name
            elif former is not None:
                forms[name] = former.name
    if forms:  # their op names were lost in an earlier pass
        earlier = original_names(histories, forms.values())
        op_names |= {name: earlier[former] for name, former in forms.items() if former in earlier}
    return op_names


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

    def __init__(self, text: str, cache: dict[str, HloLine | str] | None = None):
        _, computations = read_module(text, cache)
        self.lines: dict[str, HloLine] = {}
        self.users: dict[str, list[HloLine]] = {}
        self.homes: dict[str, str] = {}
        self.roots: dict[str, str] = {}
        fusion_operands: dict[str, tuple[str, ...]] = {}
        for computation in computations:
            for line in computation.instructions:
                self.lines[line.name] = line
                self.homes[line.name] = computation.name
                if line.is_root:
                    self.roots[computation.name] = line.name
                for operand in line.operands:
                    self.users.setdefault(operand, []).append(line)
                fusion_operands.update((callee, line.operands) for how, callee in line.calls if how == "calls")
        self._fusion_operands, self.fusions = fusion_operands, frozenset(fusion_operands)
        self.products = [line for line in self.lines.values() if line.opcode in CONTRACTIONS]

    def sizes(self, line: HloLine) -> tuple[int, tuple[int, ...]]:
        """Return the sizes of result and operands, in elements, which a transpose or reshape does not change."""
        operands = (self.lines[operand].elements for operand in line.operands if operand in self.lines)
        return line.elements, tuple(sorted(operands))

    def operands_of(self, line: HloLine) -> frozenset[str]:
        """Return the names of a product's operands; for a parameter of a fusion, the operand of the fusion."""
        outside = self._fusion_operands.get(self.homes[line.name], ())
        operands = set()
        for operand in line.operands:
            inner = self.lines.get(operand)
            is_given = inner is not None and inner.opcode == "parameter" and inner.literal.isdigit()
            index = int(inner.literal) if inner is not None and is_given else len(outside)
            operands.add(outside[index] if index < len(outside) else operand)
        return frozenset(operands)
