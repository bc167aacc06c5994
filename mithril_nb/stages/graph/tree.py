"""Build the graph of a stage from its instructions.

The instructions are put into a tree of blocks and regions. The nodes of the tree are counted, sorted and folded.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from mithril_nb.stages.graph.calls import split_rounds
from mithril_nb.stages.graph.draft import NodeDraft, block_of, options_of, shared_arrays
from mithril_nb.stages.graph.folds import fold, sort_children
from mithril_nb.stages.graph.gradients import passed_gradients
from mithril_nb.stages.graph.hubs import split_hubs
from mithril_nb.stages.graph.stage_graph import FAILURE, MOST, ROOT, Flow, GraphNode, StageGraph
from mithril_nb.stages.hlo.syntax import COMPUTATIONS, names_in
from mithril_nb.stages.hlo.text import by_computation
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.records import ROLES, UNATTRIBUTED, ById, Instruction, Role, Stage

# For example: params in params['linear_0.weight'] and state in state[0].mu
_ARGUMENT = re.compile(r"[.\[]")
# For example: .b1.0 of the id 4.b1.0, an equation in branch 1 of equation 4
_BRANCH = re.compile(r"\.b(\d+)(?=\.|$)")
_FEW_INPUTS = 3
# Ops that compute nothing, and that other stages do not have.
_PLUMBING = frozenset({"return", "func.return", "stablehlo.return"})


@dataclass(frozen=True)
class Region:
    """An instruction that contains others, such as a loop.

    Attributes:
        kind: Opcode of the instruction, without the name of an MLIR dialect: `"while"`, not `"stablehlo.while"`.
        name: Label of the region.
        look: How it is drawn: `"loop"`, `"cond"` for a conditional with branches, or `"call"`.
        note: How often a loop runs, such as `"×10 rounds"`; `""` for other regions.
        id: Id of the instruction.
    """

    kind: str
    name: str
    look: Literal["loop", "cond", "call"]
    note: str
    id: str


@paused_collector()
def stage_graph(stage: Stage, like: StageGraph | None = None, most: int = MOST) -> StageGraph:
    """Return a stage as a graph of nested nodes.

    `like`: The graph of another stage of the same program.

    Returns:
        The graph. If the stage is not available, it has no nodes. If tracing failed, it ends with a node of kind
        `"failure"` for the failing equation.
    """
    root = NodeDraft(ROOT, stage.name, "block", UNATTRIBUTED, None)
    by_id = {instruction.id: instruction for instruction in stage.instructions}
    parents = parents_of(stage)
    names: dict[str, str] = {}  # of inputs, by their equations
    if like is not None:
        inputs = [node for node in like.nodes.values() if node.kind == "input" and len(node.ids) == 1]
        names = {equation: node.name for node in inputs for equation in like.equations[node.ids[0]]}
    homes = _plant(root, stage, by_id, parents, names)
    for draft in reversed([*root.walk()]):
        inside = [*draft.children.values()]
        if draft.kind == "call" and draft.name == draft.opcode and len(inside) == 1 and inside[0].kind == "call":
            draft.name = inside[0].name
    split_rounds(root, by_id)
    split_hubs(root, by_id)
    flows = tuple(_flows(stage, by_id, homes))
    dropped = _gather_inputs(root, flows, by_id, {} if like is None else like.home)
    flows = tuple(flow for flow in flows if flow[0] not in dropped)
    carried = tuple(
        (maker, instruction.id, by_id[maker].shapes[0] if by_id[maker].shapes else None)
        for instruction in stage.instructions
        if instruction.id in homes
        for carry in instruction.carried
        if carry in homes
        for maker in _makers(carry, 0, by_id, homes)
    )
    _measure(root, by_id, flows, {key: at for at, key in enumerate(like.nodes)} if like is not None else {})
    hidden = fold(root, most, like, by_id)
    nodes: dict[str, GraphNode] = {}
    stack = [root]
    while stack:
        draft = stack.pop()
        nodes[draft.key] = GraphNode(
            draft.key,
            draft.name,
            draft.kind,
            draft.block,
            draft.parent.key if draft.parent else ROOT,
            tuple(child.key for child in draft.children.values()),
            tuple(draft.ids),
            (draft.counts[0], draft.counts[1], draft.counts[2], draft.counts[3]),
            draft.shape,
            draft.repeat,
            tuple(member.key for member in draft.members),
            draft.note,
            draft.dtype,
        )
        stack.extend(reversed([*draft.children.values(), *draft.members[1:]]))
    if stage.unavailable is not None and len(nodes) > 1:
        nodes[ROOT] = replace(nodes[ROOT], children=(*nodes[ROOT].children, FAILURE))
        reason, _, location = stage.unavailable.rpartition("\n  at ")
        name = (reason or location).partition(":")[0]
        note = location.partition(": ")[0] if reason else ""
        nodes[FAILURE] = GraphNode(FAILURE, name, "failure", UNATTRIBUTED, ROOT, note=note)
    instructions = [instruction for instruction in stage.instructions if instruction.id in homes]
    roles: dict[str, Role] = {instruction.id: instruction.role for instruction in instructions if instruction.role}
    inner = tuple(flow for flow in _flows(stage, by_id, homes, is_inner=True) if flow[0] not in dropped)
    equations = {instruction.id: instruction.equations for instruction in instructions}
    pairs = [(source, target) for source, target, _ in inner]
    gradients = passed_gradients(pairs, [(source, target) for source, target, _ in carried], by_id)
    return StageGraph(stage.name, nodes, inner, roles, equations, hidden, carried, tuple(dict.fromkeys(gradients)))


def _flows(stage: Stage, by_id: ById, homes: Mapping[str, NodeDraft], *, is_inner: bool = False) -> Iterator[Flow]:
    for instruction in stage.instructions:
        if instruction.id not in homes:
            continue
        picks = instruction.picks or (0,) * len(instruction.operands)
        for operand, pick in dict.fromkeys(zip(instruction.operands, picks, strict=True)):
            if operand in homes and operand != instruction.id:
                shapes = by_id[operand].shapes
                spec = shapes[pick] if pick < len(shapes) else None
                for source in _makers(operand, pick, by_id, homes) if is_inner else [operand]:
                    yield source, instruction.id, spec


def _makers(id: str, pick: int, by_id: ById, homes: Container[str]) -> list[str]:
    """Return the instructions that compute a result of an instruction: those inside of it, or the instruction."""
    instruction = by_id[id]
    inside = [each for each in instruction.results[pick :: max(1, len(instruction.shapes))] if each in homes]
    # Which of several results of an inner loop or call it is, is unknown.
    groups = (_makers(each, 0, by_id, homes) if len(by_id[each].shapes) < 2 else [each] for each in inside)
    return [maker for makers in groups for maker in makers] or [id]


def _plant(
    root: NodeDraft,
    stage: Stage,
    by_id: ById,
    parents: Mapping[str, str],
    names: Mapping[str, str],
) -> dict[str, NodeDraft]:
    bodies: dict[str, tuple[NodeDraft, Region]] = {}
    homes: dict[str, NodeDraft] = {}
    texts = stage.text.split("\n") if stage.name == "jaxpr" else []
    owners = set(parents.values())
    loops: dict[tuple[str, str], list[Instruction]] = {}
    shared = shared_arrays(by_id)
    for order, instruction in enumerate(stage.instructions):
        block = block_of(instruction)
        if instruction.opcode in _PLUMBING:
            continue
        if instruction.opcode == "parameter" and instruction.id not in parents:
            if block:
                node = _walk(root, "", block)
                node.ids.append(instruction.id)
            else:
                input_name = next((names[equation] for equation in instruction.equations if equation in names), "")
                input_name = input_name or dict(instruction.attributes).get("name", "")
                name = texts[instruction.line - 1].partition("# ")[2].strip() if texts else input_name
                node = root.child(f"input:{instruction.id}", name or instruction.id, "input", UNATTRIBUTED)
                node.ids.append(instruction.id)
                node.opcode = instruction.opcode
            node.order, homes[instruction.id] = node.order or order, node
            continue
        outer, base = _outer(parents.get(instruction.id, ""), instruction, bodies, root)
        node = _walk(outer, base, block) if block else outer
        if instruction.id in owners:
            region = region_of(instruction)
            if region.look == "call":
                home = node.child(f"{region.kind}:{region.name}:{instruction.id}", region.name, "call", block)
            else:
                alike = loops.setdefault((node.key, region.kind), [])
                forward = _forward_pass_of(instruction, alike, homes, by_id)
                if forward is None:
                    home = node.child(f"{region.kind}:{len(alike)}", region.name, region.look, block)
                    home.note = region.note
                    alike.append(instruction)
                else:
                    home = homes[forward]
            bodies[instruction.id] = home, region
        else:
            home = node.child(f"={instruction.id}", instruction.opcode, "instruction", block)
            operand_shapes = (by_id[operand].shapes if operand in by_id else () for operand in instruction.operands)
            home.takes = tuple(shapes[0] if shapes else None for shapes in operand_shapes)
            home.shapes, home.options = instruction.shapes, options_of(instruction, shared)
            home.set_result(instruction.shapes)
        home.ids.append(instruction.id)
        home.reads = instruction.operands
        home.order = home.order or order
        home.role, home.opcode = instruction.role, instruction.opcode
        home.source = instruction.source[0] if instruction.source else ""
        homes[instruction.id] = home
    return homes


def _forward_pass_of(
    instruction: Instruction, loops: Iterable[Instruction], homes: Mapping[str, NodeDraft], by_id: ById
) -> str | None:
    """Return the id of the loop whose backward pass a loop is; `None` if it is no backward pass, or if unknown."""
    # Both have the same line and number of rounds, and the backward pass reads values that the forward pass saved. If
    # it needs none, the forward pass is the only such loop without a backward pass.
    if instruction.role != "backward":
        return None
    same = "forward", instruction.source, region_of(instruction).note
    alike = {loop.id: loop for loop in loops if (loop.role, loop.source, region_of(loop).note) == same}
    reads = {*instruction.operands}
    for id in instruction.operands:  # the forward pass may be in a call
        reads.update(by_id[id].results if id in by_id else ())
    *_, saved = "", *(id for id in alike if id in reads)
    free = [id for id in alike if len(homes[id].ids) == 1 and id not in reads]
    if saved:  # or data, which the forward pass reads too
        return None if any(saved in alike[id].operands for id in free) else saved
    return free[0] if len(free) == 1 else None


def _outer(
    parent: str, instruction: Instruction, bodies: Mapping[str, tuple[NodeDraft, Region]], root: NodeDraft
) -> tuple[NodeDraft, str]:
    """Return the node in which to create the nodes of an instruction's blocks, and the block path of this node."""
    if parent not in bodies:
        return root, ""
    home, region = bodies[parent]
    if region.look == "call" and block_of(instruction) != home.block and home.parent is not None:
        # Do not show a call, such as `jit` or `remat`, that contains whole blocks: use the loop or branch around it.
        regions = (above for above in _line(home) if above.kind in ("loop", "cond", "branch"))
        outer = next(regions, None)
        return (root, "") if outer is None else (outer, outer.block)
    branch = _BRANCH.match(instruction.id.removeprefix(region.id)) if region.look == "cond" else None
    if branch is not None:
        home = home.child(f"branch:branch {branch[1]}", f"branch {branch[1]}", "branch", home.block)
    return home, home.block


def _walk(start: NodeDraft, base: str, block: str) -> NodeDraft:
    """Return the node of a block inside `start`, the node of the block `base`."""
    rest = block
    if base and (block == base or block.startswith(f"{base}/")):
        rest = block[len(base) + 1 :]
    above = base if rest != block else ""
    node = start
    for part in rest.split("/") if rest else ():
        above = f"{above}/{part}" if above else part
        node = node.child(part, part, "block", above)
    return node


def _gather_inputs(root: NodeDraft, flows: Iterable[Flow], by_id: ById, linked: Container[str]) -> set[str]:
    """Keep the inputs that the forward pass uses, grouped by argument; return the ids of the removed inputs."""
    # An input is also kept if it is in `linked`, the ids in the graph of another stage, or if an instruction that
    # reads it depends on no other input, such as a step count.
    dropped: set[str] = set()
    used = {source for source, target, _ in flows if by_id[target].role in ("forward", None)}
    inputs = {id: child for child in root.children.values() if child.kind == "input" for id in child.ids}
    used |= {id for id in inputs if any(equation in linked for equation in by_id[id].equations)}
    readers: dict[str, list[str]] = {}
    for source, target, _ in flows:
        readers.setdefault(source, []).append(target)
    fed, waiting = {*used}, [*used]
    while waiting:
        for reader in readers.get(waiting.pop(), ()):
            if reader not in fed:
                fed.add(reader)
                waiting.append(reader)
    used |= {id for id in inputs if not fed.issuperset(readers.get(id, ()))}
    arguments: dict[str, list[NodeDraft]] = {}
    for part in [part for part, child in root.children.items() if child.kind == "input"]:
        draft = root.children.pop(part)
        if used.intersection(draft.ids):
            arguments.setdefault(_ARGUMENT.split(draft.name)[0] or draft.name, []).append(draft)
        else:
            dropped.update(draft.ids)
    for argument, drafts in arguments.items():
        if len(drafts) <= _FEW_INPUTS:
            root.children |= {f"input:{draft.ids[0]}": draft for draft in drafts}
            continue
        gathered = root.child(f"input:{argument}", argument, "input", UNATTRIBUTED)
        gathered.ids = [id for draft in drafts for id in draft.ids]
        gathered.note, gathered.shape = f"{len(drafts)} arrays", f"{len(drafts)} arrays"
        gathered.order = drafts[0].order
    return dropped


def _measure(
    root: NodeDraft,
    by_id: ById,
    flows: Iterable[Flow],
    positions: Mapping[str, int],
) -> None:
    """Count the instructions of each node by role, sort children in program order, and find each node's result."""
    # `positions` is a dict from the key of each node in the graph of another stage to its position there; `{}` if
    # there is no such graph. The same nodes get the same order here, although the compiler may have reordered
    # instructions.
    drafts = [*root.walk()]
    homes = {id: draft for draft in drafts for id in draft.ids}  # not those of `_plant`: inputs were gathered since
    users: dict[str, list[str]] = {}
    for source, target, _ in flows:
        users.setdefault(source, []).append(target)
    for draft in reversed(drafts):
        for instruction_id in draft.ids:
            instruction = by_id[instruction_id]
            if instruction.opcode != "parameter":
                draft.counts[ROLES.index(instruction.role) if instruction.role else 3] += 1
        children = draft.children.values()
        if children:  # most are instructions
            draft.add_counts(children)
        first = [child.order for child in children if child.counts[0]] or [child.order for child in children]
        if first and draft.kind != "input":
            draft.order = min(first)
        if draft.key in positions:
            draft.order = positions[draft.key] - len(positions)
        sort_children(draft)
    # The result of a node is the last forward value in the node that is used outside.
    for source, targets in users.items():
        instruction = by_id[source]
        if instruction.role not in ("forward", None) or not instruction.shapes:
            continue
        outside = [target for target in targets if by_id[target].role in ("forward", None)]
        node: NodeDraft | None = homes[source]
        ancestors = {id(ancestor) for target in outside for ancestor in _line(homes[target])}
        while node is not None and outside and id(node) not in ancestors:
            if node.kind not in ("instruction", "input"):
                node.set_result(instruction.shapes)
            node = node.parent
    for draft in reversed(drafts):
        # Inputs of a block, such as its parameters, are not results of the block.
        computed = [id for id in draft.ids if draft.kind == "input" or by_id[id].opcode != "parameter"]
        if not draft.shape and computed:
            draft.set_result(by_id[computed[-1]].shapes)
        elif not draft.shape:  # The end of the program: its result has no user.
            with_shape = [child for child in draft.children.values() if child.shape and child.counts[0]]
            if with_shape:
                draft.shape, draft.dtype = with_shape[-1].shape, with_shape[-1].dtype


def _line(draft: NodeDraft) -> Iterable[NodeDraft]:
    node: NodeDraft | None = draft
    while node is not None:
        yield node
        node = node.parent


def region_of(instruction: Instruction) -> Region:
    """Return an instruction that contains others as a `Region`.

    Examples:
        >>> region_of(Instruction("3", "scan", 1, attributes=(("length", "10"),))).note
        '×10 rounds'
        >>> region_of(Instruction("while.1", "while", 1, attributes=(("known_trip_count", "7"),))).note
        '×7 rounds'
        >>> region_of(Instruction("3", "while", 1)).note
        'unknown number of rounds'
    """
    kind = instruction.opcode.rpartition(".")[2]
    attributes = dict(instruction.attributes)
    if kind in ("scan", "while"):
        trips = attributes.get("length") or attributes.get("known_trip_count", "")
        # A loop of StableHLO has no count, also if one is known in other stages.
        unknown = "" if instruction.opcode.startswith("stablehlo.") else "unknown number of rounds"
        note = f"×{trips} rounds" if trips.isdigit() else unknown
        return Region(kind, kind, "loop", note, instruction.id)
    if kind in ("cond", "conditional", "case", "if", "switch"):
        return Region(kind, kind, "cond", "one branch runs", instruction.id)
    name = attributes.get("name", kind)
    name = kind if name == "None" else name  # a Pallas kernel without a name
    if kind == "pallas_call":
        return Region(kind, name, "loop", f"grid {attributes.get('grid', '')}".rstrip(), instruction.id)
    return Region(kind, name, "call", "", instruction.id)


def parents_of(stage: Stage) -> dict[str, str]:
    """Return for each instruction inside another, by id, the id of the innermost instruction around it."""
    parents: dict[str, str] = {}
    open_ones: list[tuple[int, str]] = []  # the line after an instruction's last, and the id of this instruction
    for instruction in sorted(stage.instructions, key=lambda instruction: (instruction.line, -instruction.lines)):
        while open_ones and open_ones[-1][0] <= instruction.line:
            open_ones.pop()
        if open_ones:
            parents[instruction.id] = open_ones[-1][1]
        if instruction.lines > 1:
            open_ones.append((instruction.line + instruction.lines, instruction.id))
    callers: dict[str, str] = {}  # in HLO, the body of an instruction is a separate computation
    for instruction in stage.instructions:
        for key, value in instruction.attributes:
            if key in COMPUTATIONS:
                for name in names_in(value):
                    callers.setdefault(name, instruction.id)
    ordered = sorted(stage.instructions, key=lambda instruction: instruction.line) if callers else []
    for name, inside in by_computation(stage.text, ordered).items() if callers else ():
        for instruction in inside if name in callers else ():
            parents.setdefault(instruction.id, callers[name])
    return parents
