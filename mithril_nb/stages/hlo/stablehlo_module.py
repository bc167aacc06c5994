"""Link the ops of a StableHLO module to equations. Read MLIR's objects directly instead of printing the module.

The id of an op is the name of its result, as MLIR prints it. If an op has no result, its id is its line number in the
printed text, so this file counts lines as MLIR prints them. Cases it cannot decide are left to `read_stablehlo`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from jaxlib.mlir import ir

from mithril_nb.stages.hlo.stablehlo import callers_of, ids_of
from mithril_nb.stages.inference import InstructionDraft, pass_on
from mithril_nb.stages.records import Ids, Shares
from mithril_nb.stages.trace.provenance.scopes import Tags

# This reader takes 0.7 s for 16,500 ops; printing them takes 0.7 s as well, and reading that text 3.9 s. Links need no
# text. The tests compare both readers.
_WHILE, _REDUCE = "stablehlo.while", "stablehlo.reduce"
# Ops whose regions MLIR prints in generic form.
_PLAIN_REGIONS = frozenset(
    f"stablehlo.{name}"
    for name in "all_reduce case if map reduce_scatter reduce_window scatter select_and_scatter sort".split()
)
_COMMUTATIVE = frozenset(f"stablehlo.{name}" for name in "add and maximum minimum multiply or xor".split())
_USERS_FIRST = (".constant", ".iota")
_UNLINKED: tuple[tuple[str, ...], bool] = ((), False)
_SOME: Shares = (("some block", 1.0),)


class _UnknownError(Exception):
    pass


def traced_in_module(
    module: Any, tags: Tags, ids: Sequence[str], outside: frozenset[str]
) -> tuple[list[str], list[tuple[str, ...]]] | None:
    """Return the ids of the ops of a module, in the order of its text, and for each the ids of its equations.

    Returns:
        The ids that `read_stablehlo` finds in the text of the module; `None` if only the text contains them.
    """
    try:
        return _ModuleReader(module, tags, ids, outside).traced()
    except _UnknownError:
        return None


# An op: its id, the names in its location, and MLIR's object.
_Op = tuple[str, str, Any]
# The ids of some ops, and the ids of the equations of each.
_Links = tuple[list[str], list[tuple[str, ...]]]


class _ModuleReader:
    def __init__(self, module: Any, tags: Tags, ids: Sequence[str], outside: frozenset[str]):
        self._module, self._tags, self._outside = module, tags, outside
        self._ids, self._order = ids, {id: index for index, id in enumerate(ids)}
        self._has_blocks = len(outside) < len(ids)
        self._names = ir.AsmState(module.operation)
        self._line = 1  # the line of the module itself
        self._calls: dict[str, list[tuple[str, str]]] = {}  # per function: its callees and the locations of the calls

    def traced(self) -> _Links:
        main: _Links = [], []
        others: dict[str, list[_Op]] = {}
        first = 0  # number of functions before `main`
        for function in self._module.body.operations:
            self._line += 1
            if function.operation.name == "func.func":
                blocks, name = [*function.regions[0].blocks], function.name.value
                if len(blocks) != 1:
                    raise _UnknownError
                ops = self._ops(
                    blocks[0], self._calls.setdefault(name, []), "" if name == "main" else name, set(), True
                )
                if name == "main":  # it may have many ops, so nothing else about them is kept
                    first, main = len(others), self._links_of(ops, {""})
                else:
                    others[name] = list(ops)
                self._line += 1
            elif function.operation.name != "sdy.mesh":
                raise _UnknownError
        callers = callers_of(
            self._calls,
            lambda _, location, outside: ids_of(location, outside, self._tags, self._order),
            self._tags.most_callers,
        )
        links: list[_Links] = []
        for name, ops in others.items():
            ids, equations = self._links_of(ops, callers[name])
            links.append(([f"@{name}", *ids], [self._in_order(callers[name]), *equations]))
        links.insert(first, main)
        return [id for ids, _ in links for id in ids], [
            ids_of_equations for _, equations in links for ids_of_equations in equations
        ]

    # Reading the objects

    def _ops(
        self, body: Any, calls: list[tuple[str, str]], prefix: str, inside: set[str], is_top: bool
    ) -> Iterator[_Op]:
        names = self._names
        for operation in body.operations:
            self._line += 1
            op = operation.operation
            results = op.results
            if len(results):
                id = prefix + results[0].get_name(names).partition("#")[0]
            else:
                opcode = op.name.removeprefix("func.") if is_top else op.name
                id = f"{prefix}@{opcode}@{self._line}"
            if id in inside:
                id += f"@{self._line}"
            if not is_top:
                inside.add(id)
            location = self._location_of(op)
            yield id, location, op
            if op.name == "func.call":
                calls.append((op.attributes["callee"].value, location))
            regions = [list(region.blocks) for region in op.regions] if len(op.regions) else []
            if any(len(blocks) != 1 for blocks in regions):
                raise _UnknownError
            if regions and op.name not in (_WHILE, _REDUCE, *_PLAIN_REGIONS):
                raise _UnknownError
            for (inner,) in () if op.name == _REDUCE and _is_short(op) else regions:
                # `cond {` and `reducer(...) {` take a separate line, as do the arguments of a block that has some.
                opens = op.name == _REDUCE or (op.name == _WHILE and inner == regions[0][0])
                self._line += opens or (op.name in _PLAIN_REGIONS and len(inner.arguments) > 0)
                yield from self._ops(inner, calls, prefix, inside, False)
                self._line += 1

    def _location_of(self, op: Any) -> str:
        location = op.location
        if type(location) is ir.NameLoc:
            name = location.name_str
            if self._tags.marker in name:  # the usual case
                return name
        return _names_in(location, self._tags.marker)

    # From locations to equations

    def _links_of(self, ops: Iterable[_Op], callers: set[str]) -> _Links:
        order, outside, has_blocks = self._order, self._outside, self._has_blocks
        links_by_location: dict[str, tuple[tuple[str, ...], bool]] = {}
        op_ids: list[str] = []
        links: list[tuple[str, ...]] = []
        left: list[tuple[int, Any]] = []

        def links_at(location: str) -> tuple[tuple[str, ...], bool]:
            link = links_by_location.get(location)
            if link is None:
                if len(links_by_location) > 1000:  # ops of one equation are close together
                    links_by_location.clear()
                ids = self._in_order(ids_of(location, callers, self._tags, order))
                link = links_by_location[location] = ids, not outside.issuperset(ids)
            return link

        def links_from(op: Any, location: str) -> tuple[tuple[str, ...], bool]:
            link = links_at(location)
            if link[1] or not has_blocks or not op.name.endswith(_USERS_FIRST):
                return link
            # Users come later in the text, so only users whose location names a block can be used here.
            near = [other for user in _users(op.results) if (other := links_at(self._location_of(user)))[1]]
            return (near[0][0] if len(near) == 1 else ()) if not link[0] else link[0], bool(near)

        for id, location, op in ops:
            equations, has_block = links_by_location.get(location, _UNLINKED)
            if not has_block:
                equations, has_block = links_from(op, location)
                if not has_block and has_blocks:
                    left.append((len(op_ids), op))
            op_ids.append(id)
            links.append(equations)
        if left:
            _infer(links, left, lambda op: links_from(op, self._location_of(op))[0])
        return op_ids, links

    def _in_order(self, ids: Collection[str]) -> Ids:
        indices = [self._order[id] for id in ids if id in self._order]
        return tuple([self._ids[index] for index in sorted(indices)])


def _infer(links: list[tuple[str, ...]], left: list[tuple[int, Any]], equations_of: Callable[[Any], Ids]) -> None:
    drafts = {op: InstructionDraft(f"{at}", op.name, 0, equations=links[at]) for at, op in left}
    known: dict[Any, InstructionDraft] = {}  # ops near these that have a block

    def near(op: Any) -> InstructionDraft:
        if op not in drafts and op not in known:
            known[op] = InstructionDraft(f"known {len(known)}", op.name, 0, equations=equations_of(op), shares=_SOME)
        return drafts.get(op) or known[op]

    for op, draft in drafts.items():
        draft.prefers_users = op.name.endswith(_USERS_FIRST)
        draft.operands = tuple(["" if maker is None else near(maker).id for maker in _makers(op)])
        for user in _users(op.results):
            if user not in drafts:
                near(user).operands += (draft.id,)
    pass_on({draft.id: draft for draft in (*drafts.values(), *known.values())})
    for at, op in left:
        links[at] = drafts[op].equations


def _makers(op: Any) -> Iterator[Any]:
    for value in op.operands:
        owner, is_carried = value.owner, False
        while isinstance(owner, ir.Block) and owner.owner.name == _WHILE:  # the body sees the operands of the loop
            value, is_carried = owner.owner.operands[ir.BlockArgument(value).arg_number], True
            owner = value.owner
        if not isinstance(owner, ir.Block):
            yield owner.operation
        elif is_carried:
            yield None


def _users(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        for use in value.uses:
            user = use.owner.operation
            yield user
            if user.name == _WHILE:
                for region in user.regions:
                    yield from _users([region.blocks[0].arguments[use.operand_number]])


def _is_short(op: Any) -> bool:
    # StableHLO's printer checks the same in isReduceEligibleForCompactPrint.
    body = op.regions[0].blocks[0]
    ops = [operation.operation for operation in body.operations]
    if len(ops) != 2 or ops[0].name not in _COMMUTATIVE:
        return False
    (inner, end), arguments = ops, list(body.arguments)
    reduced, number = (ir.ShapedType(value.type) for value in (op.operands[0], arguments[0]))
    return (
        list(inner.operands) == arguments
        and (number.rank, number.element_type) == (0, reduced.element_type)
        and list(end.operands) == list(inner.results)
    )


def _names_in(location: Any, marker: str) -> str:
    outer = ""
    while isinstance(location, ir.NameLoc):
        name, child = location.name_str, location.child_loc
        if marker in name or isinstance(child, ir.UnknownLoc):
            return name or outer
        outer, location = name or outer, child
    if isinstance(location, ir.FusedLoc):
        return ";".join(filter(None, [_names_in(part, marker) for part in location.locations])) or outer
    return outer
