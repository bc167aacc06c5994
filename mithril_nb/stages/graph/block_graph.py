"""The stage `"graph"` of a program: a table with one block per line, computed from the equations of the jaxpr.

The stage also exists for programs that were not built from blocks of this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mithril_nb.graph.paths import lineage
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.graph.draft import block_of
from mithril_nb.stages.inference import program_order
from mithril_nb.stages.records import ROLES, Instruction, Read, Role
from mithril_nb.stages.trace.jaxpr_text import printable, short_spec

# Maximum width of a column. A wider text shifts only its own line.
_WIDEST = 44


class _Row:
    def __init__(self, path: str):
        self.path = path
        self.equations: list[str] = []
        self.counts = dict.fromkeys((*ROLES, None), 0)
        self.feeds: dict[str, None] = {}
        self.gives: tuple[TensorSpec, ...] = ()
        self.source: dict[str, None] = {}


def outline(equations: Iterable[Instruction], calls: Iterable[str], kinds: Mapping[str, str]) -> Read:
    """Return the blocks of a program as text, and as instructions whose ids are the paths of the blocks.

    `calls`: Ids of the instructions that only call nested jaxprs. `kinds`: Kind of each block by path, where known:
    `"Linear"`.

    Returns:
        The text, and one instruction per block. Its operands are the paths of the blocks whose results the block uses,
        if they have the same parent. Its shapes are the specs of the last result that other blocks use.
    """
    calling = set(calls)
    operations = [equation for equation in equations if equation.opcode != "parameter"]
    blocks = {operation.id: block_of(operation) for operation in operations}
    rows: dict[str, _Row] = {}
    for instruction in operations:
        if instruction.id in calling and not blocks[instruction.id]:
            continue
        for path in lineage(blocks[instruction.id]):
            row = rows.get(path)
            if row is None:
                row = rows[path] = _Row(path)
            row.equations.append(instruction.id)
            if instruction.id not in calling:
                row.counts[instruction.role] += 1
            for source in instruction.source:
                row.source[source] = None
    _connect(operations, blocks, calling, rows)
    positions = {id: position for position, id in enumerate(sorted(blocks, key=program_order))}
    for row in rows.values():
        row.equations.sort(key=positions.__getitem__)
    children: dict[str, list[str]] = {}
    for path in rows:
        children.setdefault(path.rpartition("/")[0], []).append(path)
    ordered: list[_Row] = []
    waiting = children.get("", [])[::-1]
    while waiting:
        path = waiting.pop()
        ordered.append(rows[path])
        waiting.extend(children.get(path, [])[::-1])
    return _text(ordered, kinds)


def _connect(
    operations: list[Instruction], blocks: Mapping[str, str], calling: set[str], rows: dict[str, _Row]
) -> None:
    shapes = {operation.id: operation.shapes for operation in operations}
    backward_only: dict[str, tuple[TensorSpec, ...]] = {}  # arrays used only by the backward pass or the update
    for instruction in operations:
        if instruction.id in calling:
            continue
        taker = blocks[instruction.id]
        for operand in instruction.operands:
            giver = blocks.get(operand)
            if giver is None or giver == taker:
                continue
            above, below = lineage(giver), lineage(taker)
            common = sum(1 for left, right in zip(above, below, strict=False) if left == right)
            for path in above[common:]:
                if instruction.role in ("forward", None):
                    rows[path].gives = shapes[operand]
                else:
                    backward_only.setdefault(path, shapes[operand])
            if common < len(above) and common < len(below) and instruction.role == "forward":
                rows[below[common]].feeds[above[common]] = None
    for instruction in reversed(operations):  # The last results, such as a loss, have no user.
        for path in (
            lineage(blocks[instruction.id])
            if instruction.role in ("forward", None) and instruction.id not in calling
            else ()
        ):
            rows[path].gives = rows[path].gives or instruction.shapes
    for path, specs in backward_only.items():
        rows[path].gives = rows[path].gives or specs


def _text(rows: list[_Row], kinds: Mapping[str, str]) -> Read:
    names = [f"{'  ' * row.path.count('/')}{printable(row.path.rpartition('/')[2])}" for row in rows]
    specs = [" ".join(map(short_spec, row.gives)) for row in rows]
    table = [("block", "kind", "gives", "equations")]
    for row, name, spec in zip(rows, names, specs, strict=True):
        counts = " · ".join(f"{count} {role or 'other'}" for role, count in row.counts.items() if count)
        table.append((name, printable(kinds.get(row.path, "")), spec, counts))
    columns = [column for column in range(4) if column in (0, 3) or any(line[column] for line in table[1:])]
    widths = [min(max(len(line[column]) for line in table), _WIDEST) for column in columns]
    text = "\n".join(
        "  ".join(f"{line[column]:<{width}}" for column, width in zip(columns, widths, strict=True)).rstrip()
        for line in table
    )
    instructions = []
    for number, row in enumerate(rows, 2):
        roles: list[Role] = [role for role in ROLES if row.counts[role]]
        instructions.append(
            Instruction(
                row.path,
                kinds.get(row.path, "block"),
                number,
                tuple(row.equations),
                ((row.path, 1.0),),
                roles[0] if len(roles) == 1 else None,
                "tagged",
                operands=tuple(row.feeds),
                shapes=row.gives,
                source=tuple(row.source),
            )
        )
    return text + "\n", tuple(instructions)
