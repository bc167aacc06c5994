"""Keep levels small: fold equal neighbours into one node, repeated rounds into one round, and group other nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import ne

from mithril_nb.stages.graph.draft import NodeDraft
from mithril_nb.stages.graph.known_functions import known_functions
from mithril_nb.stages.graph.stage_graph import Kind, StageGraph
from mithril_nb.stages.records import LOSS, OPTIMIZER, ById, Role, format_lines, lines_of_source

# `rounds` tries this many lengths of a round: the most frequent distances between equal items.
_PERIODS = 40
# Maximum number of runs of one role that are folded on a level.
_MOST_RUNS = 8
# More loose instructions than this between blocks hide the blocks.
_MOST_LOOSE = 6
# Operations of jaxprs and HLO that only arrange data. They are left out of names.
_ARRANGES = frozenset(
    "broadcast_in_dim reshape squeeze convert_element_type copy stop_gradient pjit parameter constant "
    "broadcast convert bitcast tuple get-tuple-element call".split()
)
# Operations that are left out of names if there are others.
_ARITHMETIC = frozenset("add add_any mul multiply sub subtract div divide neg negate".split())
_MOST_NAMES = 3
# A search for known functions in more instructions takes over half a second.
_MOST_SEARCHED = 10_000
# Added to the size of a node that must not be merged with its neighbours.
_FAR = 10**9
_APART = (LOSS, OPTIMIZER)


def fold(root: NodeDraft, most: int, like: StageGraph | None, by_id: ById) -> dict[str, str]:
    """Fold the children of every node of a tree in place, from the bottom up.

    `like`: The graph of another stage.

    Returns:
        A dict from the key of each node that a fold hides to the key of the node that is shown instead.
    """
    hidden: dict[str, str] = {}
    signatures: dict[Hashable, int] = {}
    drafts = [*root.walk()]
    homes = {id: draft for draft in drafts for id in draft.ids}
    for draft in reversed(drafts):
        _sign(draft, signatures, homes)  # after its children, whose signatures it contains
        if not draft.children:  # most are instructions
            continue
        _fold_equal(draft, hidden, like)
        if len(draft.children) > most:
            _fold_rounds(draft, hidden, most)
        kinds = Counter(child.kind for child in draft.children.values())
        is_mixed = kinds["instruction"] > _MOST_LOOSE and kinds["block"] + kinds["repeat"] + kinds["loop"] > 0
        if len(draft.children) > most or is_mixed:
            _by_line(draft, by_id)
        _bucket(draft, most)
    return hidden


def _sign(draft: NodeDraft, signatures: dict[Hashable, int], homes: Mapping[str, NodeDraft]) -> None:
    """Set the signature of a node: a number that is equal for nodes of the same structure."""
    if draft.kind == "instruction":
        sign: Hashable = (draft.opcode, draft.shapes, draft.takes, draft.options)
    else:
        parts = [child for child in draft.children.values() if child.counts[0]] or list(draft.children.values())
        wires = _wires(draft, parts, homes)
        # A loop that is differentiated differs from the same loop over data.
        passes = tuple(map(bool, draft.counts)) if draft.kind == "loop" else ()
        note = draft.note if draft.kind != "lines" else ""
        sign = (draft.kind, note, passes, tuple((part.signature, part.repeat) for part in parts), wires)
    draft.signature = signatures.setdefault(sign, len(signatures))


def _wires(draft: NodeDraft, parts: Sequence[NodeDraft], homes: Mapping[str, NodeDraft]) -> tuple[tuple[int, ...], ...]:
    """Return how the children `parts` of a node are connected: for each child, the sources of its inputs."""
    positions = {id(part): at for at, part in enumerate(parts)}
    outside: dict[str, int] = {}
    wires: list[tuple[int, ...]] = []
    for part in parts:
        wire: list[int] = []
        for read in part.reads:
            maker = homes.get(read)
            while maker is not None and maker.parent is not draft:
                maker = maker.parent
            if maker is None:
                wire.append(outside.setdefault(read, -1 - len(outside)))
            else:
                wire.append(positions.get(id(maker), len(parts)))
        wires.append(tuple(wire))
    own = (read for read in draft.reads if read not in outside)  # the operands of a loop
    draft.reads = (*outside, *own)
    return tuple(wires)


def _fold_equal(draft: NodeDraft, hidden: dict[str, str], like: StageGraph | None) -> None:
    """Fold equal blocks that follow each other; but fold blocks that are in `like` as in that graph."""
    remaining: dict[str, NodeDraft] = {}
    last: NodeDraft | None = None
    by_key = {child.key: child for child in draft.children.values()}
    for part, child in draft.children.items():
        if like is not None and child.key in like.nodes:
            visible = by_key.get(like.hidden.get(child.key, child.key))
            if visible is not None and visible is not child:
                _join(visible, [child], hidden)
                continue
        elif (
            last is not None
            and child.kind in ("block", "loop", "cond", "repeat")
            and child.kind == last.kind
            and child.children
            and child.signature == last.signature
        ):
            _join(last, [child], hidden)
            continue
        remaining[part] = last = child
    draft.children = remaining


def _join(first: NodeDraft, others: Sequence[NodeDraft], hidden: dict[str, str]) -> None:
    first.members = first.members or [first]
    for other in others:
        first.members.append(other)
        first.repeat += 1
        _hide(other, first, hidden)
    first.add_counts(others)


def _hide(other: NodeDraft, first: NodeDraft, hidden: dict[str, str]) -> None:
    """Record in `hidden` that the node `first` represents the equal node `other`, which is not shown."""
    hidden[other.key] = first.key
    twins: dict[tuple[str, int], list[NodeDraft]] = {}
    for child in first.children.values():
        twins.setdefault((child.name, child.signature), []).append(child)
        for member in child.members[1:]:
            hidden.setdefault(member.key, child.key)
    unequal: list[NodeDraft] = []
    used: set[int] = set()
    for child in other.children.values():
        matches = twins.get((child.name, child.signature))
        if matches:
            used.add(id(matches[0]))
            _hide(child, matches.pop(0), hidden)
        else:
            unequal.append(child)
    # Their forward passes are equal, but not their backward passes, and one of them may be grouped by lines.
    left: dict[tuple[str, Role | None], list[NodeDraft]] = {}
    for node in first.walk() if unequal else ():
        if node is not first and id(node) not in used:
            left.setdefault((node.name, node.role), []).append(node)
    for child in unequal:
        matches = left.get((child.name, child.role))
        if matches:
            _hide(child, matches.pop(0), hidden)
        else:
            stack = [child]
            while stack:
                node = stack.pop()
                hidden[node.key] = first.key
                stack += [*node.children.values(), *node.members[1:]]


def rounds(tokens: Sequence[Hashable], least: int = 3) -> tuple[int, int, int] | None:
    """Find the longest repetition in a sequence.

    Returns:
        Position of the first round, length of a round, and number of rounds; `None` if no part is repeated as often.

    Examples:
        >>> rounds("xabcabcabcabcy")
        (1, 3, 4)
        >>> rounds("abcd") is None
        True
    """
    # A round is the part that is repeated, at least `least` times.
    # Only the most frequent lengths of a round are tried.
    last: dict[Hashable, int] = {}
    distances: Counter[int] = Counter()
    for at, token in enumerate(tokens):
        if token in last:
            distances[at - last[token]] += 1
        last[token] = at
    # Try only the most frequent distances: trying all takes quadratic time.
    best: tuple[int, int, int] | None = None
    for period, _ in sorted(distances.items(), key=lambda item: (-item[1], item[0]))[:_PERIODS]:
        ends = [at for at, differs in enumerate(map(ne, tokens, tokens[period:])) if differs]
        start, shortest = 0, (least - 1) * period
        for at in (*ends, len(tokens) - period):
            if at - start >= shortest:
                count = (at - start) // period + 1
                if best is None or count * period > best[1] * best[2]:
                    best = start, period, count
            start = at + 1
    return best


def _fold_rounds(draft: NodeDraft, hidden: dict[str, str], most: int) -> None:
    """Fold repeated rounds of children, such as `linear, relu, linear, relu, ...`, into one round."""
    # This also finds unrolled Python loops. A loop has separate rounds in the forward pass, the backward pass and the
    # update. They become one round if they come from the same lines of Python.
    groups: dict[str, tuple[set[str], NodeDraft]] = {}
    # The index in `counts` of each node's first role. Inputs have none.
    roles = {
        key: next((at for at, count in enumerate(child.counts) if count), -1)
        for key, child in draft.children.items()
        if child.kind != "repeat"
    }
    for role in range(4):
        for _ in range(_MOST_RUNS):
            plain = [child for key, child in draft.children.items() if roles.get(key) == role]
            run = rounds([(child.kind, child.signature, child.repeat, child.source) for child in plain])
            if run is None or len(draft.children) <= most:
                break
            start, period, count = run
            # Folding a repeated single op, or less than a twentieth of the level, would not make the level clearer.
            is_one_op = period == 1 and plain[start].kind == "instruction"
            if is_one_op or 20 * period * count < len(plain):
                break
            _fold_run(draft, plain[start : start + period * count], period, count, groups, hidden)


def _fold_run(
    draft: NodeDraft,
    run: Sequence[NodeDraft],
    period: int,
    count: int,
    groups: dict[str, tuple[set[str], NodeDraft]],
    hidden: dict[str, str],
) -> None:
    first = run[:period]
    sources = {node.source for node in first if node.source}
    same = (
        group for lines, group in groups.values() if group.repeat == count and 2 * len(lines & sources) > len(sources)
    )
    group = next(same, None)
    if group is None:
        part = f"repeat:{first[0].key.rpartition('/')[2]}"
        group = draft.child(part, round_name(first), "repeat", draft.block)
        group.repeat, group.order = count, first[0].order
        group.shape, group.dtype = first[-1].shape, first[-1].dtype
        groups[part] = sources, group
    parts = {child.key: part for part, child in draft.children.items()}
    group.add_counts(run)
    for at, child in enumerate(run):
        del draft.children[parts[child.key]]
        if at < period:
            group.children[parts[child.key]] = child
            child.parent = group
        else:
            twin = first[at % period]
            twin.members = [*(twin.members or [twin]), child]  # not counted: the round around it shows the number
            _hide(child, twin, hidden)
    sort_children(draft)


def round_name(first: Sequence[NodeDraft]) -> str:
    """Return the label of a round with these nodes: their lines of Python, or the names of the first and last node."""
    return lines_label(first) or (first[0].name if len(first) == 1 else f"{first[0].name} … {first[-1].name}")


def lines_label(group: Sequence[NodeDraft]) -> str:
    """Return a label for the lines of Python of nodes, in the file with most of them; `""` if they have none."""
    lines = sorted({(file, line) for file, line, _ in (lines_of_source(node.source) for node in group) if file})
    if not lines:
        return ""
    file = Counter(name for name, _ in lines).most_common(1)[0][0]
    return format_lines(file, [line for name, line in lines if name == file])


def operations_of(group: Sequence[NodeDraft], by_id: ById) -> list[str]:
    """Return the names of the forward operations of some nodes, without those in `_ARRANGES`."""
    # Operations that compute a known function together, such as the softmax, have its name. Those that only the
    # backward pass uses are left out.
    readers: dict[str, list[NodeDraft]] = {}
    for unit in group:
        for read in unit.reads:
            readers.setdefault(read, []).append(unit)
    spare = {id(unit) for unit in group if unit.role not in ("forward", None)}
    for unit in reversed(group):
        users = [user for instruction_id in unit.ids for user in readers.get(instruction_id, ())]
        if users and all(id(user) in spare for user in users):
            spare.add(id(unit))
    forward = [unit for unit in group if id(unit) not in spare] or group
    functions = _functions_of(forward, by_id)
    names = [functions.get(unit.ids[-1], (unit.name,))[0] if unit.ids else unit.name for unit in forward]
    names = [name.rpartition(".")[2].lstrip("_") for name in names]
    return [name for name in names if name and name not in _ARRANGES]


def _functions_of(units: Iterable[NodeDraft], by_id: ById) -> dict[str, tuple[str, str]]:
    ids = [id for unit in units if unit.kind in ("instruction", "call") for id in unit.ids]
    return known_functions(ids, by_id) if len(ids) <= _MOST_SEARCHED else {}


def name_of_operations(group: Sequence[NodeDraft], by_id: ById) -> str:
    """Return the name of some nodes: their operations, such as `softmax`, or else their lines of Python."""
    names = dict.fromkeys(operations_of(group, by_id))
    telling = [name for name in names if name not in _ARITHMETIC] or [*names]
    if not telling:
        return round_name(group)
    return ", ".join(telling[:_MOST_NAMES]) + (", …" if len(telling) > _MOST_NAMES else "")


def sort_children(draft: NodeDraft) -> None:
    """Sort the children of a node: inputs first, then the others in program order."""
    if len(draft.children) < 2:
        return
    draft.children = dict(sorted(draft.children.items(), key=lambda item: (item[1].kind != "input", item[1].order)))


def _by_line(draft: NodeDraft, by_id: ById) -> None:
    """Group the instructions directly in a node by the line of Python that they come from."""
    # The lines of a known function, such as the softmax, are one group. If a block is between forward instructions of
    # one line, they are two groups: one group would be both before and after the block.
    functions = _functions_of(draft.children.values(), by_id)
    lines = {id: next(iter(by_id[id].source), "") for each, (_, result) in functions.items() for id in (each, result)}
    joined = {lines[id]: lines[result] for id, (_, result) in functions.items()}
    groups: dict[str, list[list[tuple[str, NodeDraft]]]] = {}
    last: dict[str, int] = {}
    blocks = 0
    for part, child in draft.children.items():
        if child.kind not in ("instruction", "call"):
            blocks += child.kind != "input"
        elif child.source:
            source = joined.get(child.source, child.source)
            parts = groups.setdefault(source, [])
            is_forward = child.role in ("forward", None)
            if not parts or (is_forward and last.get(source, blocks) != blocks):
                parts.append([])
            (parts[-1] if is_forward else parts[0]).append((part, child))
            if is_forward:
                last[source] = blocks
    for line, runs in groups.items():
        for number, run in enumerate(runs):
            if len(run) > 1:
                children = [child for _, child in run]
                name = name_of_operations(children, by_id)
                group = _gather(draft, f"line:{line}#{number}" if number else f"line:{line}", name, "lines", run)
                group.note = lines_label(children)


def _bucket(draft: NodeDraft, most: int) -> None:
    """Group neighbouring children of a node until there are at most `most`."""
    # If there are more than `4 * most`, each `most` neighbours become a group first. Then the two neighbours with the
    # fewest instructions are merged repeatedly.
    while len(draft.children) > 4 * most:
        items = list(draft.children.items())
        for at in range(0, len(items), most):
            _gather_named(draft, items[at : at + most])
    if len(draft.children) <= most:
        return
    groups = [[item] for item in draft.children.items()]
    sizes = [
        sum(child.counts) + _FAR * (child.kind in ("repeat", "input") or child.block in _APART or child.repeat > 1)
        for child in draft.children.values()
    ]
    while len(groups) > most:
        at = min(range(len(groups) - 1), key=lambda at: (sizes[at] + sizes[at + 1], at))
        groups[at : at + 2] = [groups[at] + groups[at + 1]]
        sizes[at : at + 2] = [sizes[at] + sizes[at + 1]]
    for group in groups:
        _gather_named(draft, group)


def _gather_named(draft: NodeDraft, children: Sequence[tuple[str, NodeDraft]]) -> None:
    if len(children) > 1:
        first, last = children[0][1].name, children[-1][1].name
        _gather(
            draft,
            f"bucket:{children[0][0]}",
            f"{first} … {last}" if first != last else f"{first} …",
            "bucket",
            children,
        )


def _gather(draft: NodeDraft, part: str, name: str, kind: Kind, children: Sequence[tuple[str, NodeDraft]]) -> NodeDraft:
    group = NodeDraft(f"{draft.key}/{part}".lstrip("/"), name, kind, draft.block, draft)
    for inner, child in children:
        group.children[inner] = child
        child.parent = group
        del draft.children[inner]
    group.add_counts(child for _, child in children)
    group.order = min(child.order for _, child in children)
    group.shape, group.dtype = children[-1][1].shape, children[-1][1].dtype
    draft.children[part] = group
    sort_children(draft)
    return group
