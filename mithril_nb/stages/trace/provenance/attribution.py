"""Attribution of each equation to a block and a role, from scopes, Python functions and data flow.

The block of an equation is the first of these that exists:

1. The path in the `block:` scopes around the equation. mithril_nb opens these scopes for blocks of a `Model`, and for
   modules of Flax, Equinox and Haiku.
2. The path of the user's named scopes around the equation.
3. The path of the user's functions that created the equation. Scopes that a library opens for every layer of a kind,
   such as `eqx.nn.Linear`, are appended to this path, because they do not identify one layer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from mithril_nb.stages import jax_versions
from mithril_nb.stages.param_names import which_are_params
from mithril_nb.stages.records import LOSS, OPTIMIZER, UNATTRIBUTED, Origin, Role
from mithril_nb.stages.trace.equations import Site, Sites
from mithril_nb.stages.trace.provenance.frames import IN_SCOPE, common_start, functions_of, optimizer_work
from mithril_nb.stages.trace.provenance.roles import roles_of
from mithril_nb.stages.trace.provenance.scopes import Scopes, restore_hoisted_scopes, scopes_of
from mithril_nb.stages.trace.tracing import Leaf, Trace

EquationAttribution = tuple[str, Role | None, Origin | None]
Flow = frozenset[str]
"""Paths of blocks: those that a value is computed from, or those that use it."""

_NONE: Flow = frozenset()

# Primitives that reverse mode adds between blocks, to sum cotangents or to create zeros.
_MADE_BY_AUTODIFF = frozenset({"add_any", "broadcast_in_dim", "zeros_like", "convert_element_type", "copy", "pvary"})


# Primitives that only move or convert a parameter before its use.
_MOVES = frozenset(
    "transpose reshape convert_element_type squeeze expand_dims broadcast_in_dim copy slice dynamic_slice split".split()
)

_WORD = re.compile(r"[a-z]+")
# Words in the names of parameters. An argument of a force or of a sampler, such as `position`, has none of them.
_OF_PARAMS = frozenset(
    "param params parameter parameters variables weight weights w ws b bs bias biases kernel kernels "
    "model models net nets network networks layer layers mlp".split()
)


def are_all_in_blocks(trace: Trace) -> bool:
    """Return whether it is certain, before the equations are analysed, that all of them are in blocks."""
    return trace.outline.have_frames and bool(_default_block(trace))


class Attribution:
    """Block, role and origin of every equation of one program, as tuples by id of the equation.

    Args:
        trace: The program.

    Attributes:
        has_blocks: True if the program declares its blocks in `block:` scopes.
        paths: Paths of all blocks that have equations, and of the blocks that contain them.
    """

    def __init__(self, trace: Trace, top: Sites, sites: Sites, params: Sequence[str]):
        restore_hoisted_scopes(sites)
        scopes_by_id = {site.id: scopes_of(site.stack) for site in sites}
        self.has_blocks = any(scopes.block for scopes in scopes_by_id.values())
        self._has_updates = any(scopes.is_update for scopes in scopes_by_id.values())
        functions, lifted = functions_of(trace, top)
        if self._has_updates:
            updates = {id for id, scopes in scopes_by_id.items() if scopes.is_update}
            roles: dict[str, Role | None] = {
                id: "update" if scopes.is_update else "backward" if scopes.is_backward else "forward"
                for id, scopes in scopes_by_id.items()
            }
        else:
            # Not our train step. Frames of an optimizer library are the only certain sign of the update.
            updates = optimizer_work(sites)
            if updates or any(scopes.is_backward for scopes in scopes_by_id.values()):
                # An output may be the new value of an input of the same shape, dtype and last name.
                outputs: dict[Any, list[int]] = {}
                for index, leaf in enumerate(trace.outputs):
                    outputs.setdefault((leaf.spec, _last_name(leaf)), []).append(index)
                versions = [outputs.get((leaf.spec, _last_name(leaf)), []) for leaf in trace.inputs]
                stated = which_are_params(trace.arguments, [leaf.name for leaf in trace.inputs], params)
                # Without the option `params`, names such as `weights` decide.
                words = [_WORD.findall(" ".join((leaf.argument, *leaf.keys)).lower()) for leaf in trace.inputs]
                are_params = [
                    not _OF_PARAMS.isdisjoint(own) if is_param is None else is_param
                    for is_param, own in zip(stated, words, strict=True)
                ]
                roles = roles_of(trace.closed.jaxpr, top, updates, lifted, versions, are_params)
            else:  # nothing depends on a gradient
                roles = dict.fromkeys(scopes_by_id, "forward")
        self._is_ours, default = _is_ours(trace), _default_block(trace)
        paths = {
            id: "/".join((*filter(None, path), *scopes_by_id[id].path)) or default for id, path in functions.items()
        }
        # The functions that were called in the scopes. Which function opened which scope is unknown.
        self._called = {
            id: path[len(path) - path[::-1].index(IN_SCOPE) :] for id, path in functions.items() if IN_SCOPE in path
        }
        self._functions = {
            id: path for id, path in paths.items() if path and (roles[id] != "update" or id not in updates)
        }
        self._attributions = {id: self._read(id, scopes, roles[id]) for id, scopes in scopes_by_id.items()}
        self.paths = {
            "/".join(parts[:count])
            for block, _, _ in set(self._attributions.values())
            if block not in (LOSS, UNATTRIBUTED)
            for parts in [block.split("/")]
            for count in range(1, len(parts) + 1)
        }
        # Inner calls come first, because the block of a call depends on the blocks of the calls inside it.
        for site in reversed(sites):
            block, role, _ = self._attributions[site.id]
            if site.is_call and block == UNATTRIBUTED and role != "update":
                inner: set[str] = set()
                for child in (child for _, body in site.bodies for child in body):
                    own, own_role, _ = self._attributions[child.id]
                    is_between = own_role == "update" or child.primitive in _MADE_BY_AUTODIFF
                    inner.add(own if own or is_between else self._functions.get(child.id, UNATTRIBUTED))
                if common := common_block(inner - {UNATTRIBUTED}):
                    self._attributions[site.id] = common, role, "inferred"
        if any(self._is_between(site) for site in sites):
            self._infer_autodiff(trace, top)
        if any(role == "update" for _, role, _ in self._attributions.values()):
            self._infer_update(trace, top, sites)
        for id, (block, role, _) in self._attributions.items():
            if block == UNATTRIBUTED and id in self._functions:
                self._attributions[id] = self._functions[id], role, "tagged"

    def _read(self, id: str, scopes: Scopes, role: Role | None) -> EquationAttribution:
        if scopes.block:
            return scopes.block, role, "tagged"
        if scopes.is_loss:
            return LOSS, role, "tagged"
        if scopes.is_whole and not scopes.is_update:
            return "/".join((*scopes.path, *self._called.get(id, ()))), role, "tagged"
        if self.has_blocks or id not in self._functions:  # Between blocks, data flow is more precise.
            return UNATTRIBUTED, role, None
        return self._functions[id], role, "tagged"

    def __getitem__(self, id: str) -> EquationAttribution:
        return self._attributions[id]

    def owner(self, leaf: Leaf) -> str:
        """Return the path of the block that a parameter or an optimizer's state for it belongs to; `""` if unknown."""
        # `params['mlp_0.linear_1.weight']` belongs to `mlp_0/linear_1`. For a name such as `model.layers[0].weight`,
        # these paths are tried in order: `model/layers/0`, `model/layers`, `layers/0`, `model`, ... The result is the
        # first that is the path of a block.
        # An argument that is an array itself has no keys to compare with blocks.
        if not leaf.keys:
            return UNATTRIBUTED
        path = leaf.keys[-1].rpartition(".")[0].replace(".", "/")
        if path and (self.has_blocks or path in self.paths):
            return self._in_scopes(path) or path
        # An optimizer's state has further names before the path of the block, and a box of Flax has some after it.
        names = (leaf.argument, *leaf.keys)
        paths = [
            "/".join(names[start : start + length])
            for length in range(len(names) - 1, 0, -1)
            for start in range(len(names) - length)
        ]
        matches = (path for path in paths if path in self.paths)
        return next(matches, "") or (next(filter(None, map(self._in_scopes, paths)), "") if self.has_blocks else "")

    def _in_scopes(self, path: str) -> str:
        # The path of a module may have scopes around it. If several blocks fit, it is unknown which.
        if path in self.paths or path.replace("/", "").isdigit():  # numbers are also parts of an optimizer's state
            return path if path in self.paths else ""
        blocks = [block for block in self.paths if block.endswith(f"/{path}")]
        return blocks[0] if len(blocks) == 1 else ""

    def users_of_inputs(self, jaxpr: Any, top: Sites) -> list[Flow]:
        """Return for each input of a program the paths of the blocks that compute with it, also in nested jaxprs."""
        # The optimizer is left out, and the loss too if another block uses the input. A block that only transposes,
        # reshapes or converts the input is replaced by the blocks that use the result.

        def visit(jaxpr: Any, body: Sites) -> list[Flow]:
            readers: dict[Any, Flow] = {}
            for site in reversed(body):
                block, role, _ = self._attributions[site.id]
                if role == "update" and not site.bodies:
                    continue
                atoms = site.equation.invars
                users = [_NONE] * len(atoms)
                for index, (inner_jaxpr, inner) in enumerate(site.bodies):
                    if site.primitive == "while" and not index:
                        continue  # a condition has its own operands, and computes with no parameter
                    reads = visit(inner_jaxpr, inner)
                    # The first operands are a predicate, or constants of a condition.
                    first = len(users) - len(reads)
                    for at, blocks in enumerate(reads):
                        if first + at >= 0:
                            users[first + at] |= blocks
                if not site.bodies:
                    own = frozenset((block,))
                    # A moved input is used by the blocks that use the moved array, unless this block is inside them.
                    if site.primitive in _MOVES:
                        later = _NONE.union(*(readers.get(var, _NONE) for var in site.equation.outvars))
                        holder = common_block(later)
                        if later and not (holder and block.startswith(f"{holder}/")):
                            own = later
                    users = [own] * len(atoms)
                for atom, blocks in zip(atoms, users, strict=True):
                    if blocks and not jax_versions.is_literal(atom):
                        readers[atom] = readers.get(atom, _NONE) | blocks
            return [readers.get(var, _NONE) for var in jaxpr.invars]

        return [blocks - {LOSS, UNATTRIBUTED} or blocks - {UNATTRIBUTED} for blocks in visit(jaxpr, top)]

    def _is_between(self, site: Site) -> bool:
        """Return whether an equation without a block was added by reverse mode, or by our function around the model."""
        block, role, _ = self._attributions[site.id]
        if block != UNATTRIBUTED or role in ("update", None):
            return False
        is_autodiff = role == "backward" and site.primitive in _MADE_BY_AUTODIFF
        return is_autodiff or (self._is_ours and site.id not in self._functions)

    def _infer_autodiff(self, trace: Trace, top: Sites) -> None:

        def visit(body: Sites, users: dict[Any, set[str]]) -> None:
            makers: dict[Any, str] = {}
            for site in body:
                block = self._attributions[site.id][0]
                for var in site.equation.outvars:
                    makers[var] = block
                for var in site.variables:
                    users.setdefault(var, set()).add(block)
            for site in reversed(body):
                if self._is_between(site):
                    after = set().union(*(users.get(var, set()) for var in site.equation.outvars)) - {UNATTRIBUTED}
                    before = {makers.get(var, UNATTRIBUTED) for var in site.variables} - {UNATTRIBUTED}
                    agreed = next((blocks for blocks in (after, before) if len(blocks) == 1), set())
                    for block in agreed:
                        self._attributions[site.id] = block, self._attributions[site.id][1], "inferred"
                        for var in site.variables:
                            users.setdefault(var, set()).add(block)
                for _, inner in site.bodies:
                    visit(inner, {})

        between = {var for site in top if self._is_between(site) for var in site.equation.outvars}
        returned = {
            atom: leaf
            for atom, leaf in zip(trace.closed.jaxpr.outvars, trace.outputs, strict=True)
            if not jax_versions.is_literal(atom) and atom in between
        }
        readers = self._readers(trace, top) if returned else {}  # a returned gradient belongs to its parameter's block
        visit(top, {var: set(self._names(leaf, readers)) for var, leaf in returned.items()})

    def _infer_update(self, trace: Trace, top: Sites, sites: Sites) -> None:
        """Attribute the equations of the update by data flow."""
        # An equation belongs to a block if its operands come only from parameters and gradients of this block, or if
        # its results go only into new parameters of this block. All others belong to the optimizer.
        jaxpr = trace.closed.jaxpr
        readers = {} if self.has_blocks and self._has_updates else self._readers(trace, top)
        inputs = [self._names(leaf, readers) for leaf in trace.inputs]
        outputs = [self._names(leaf, readers) for leaf in trace.outputs]
        before: dict[str, Flow] = {}
        after: dict[str, Flow] = {}
        self._flow(jaxpr, top, inputs, before, is_forward=True)
        self._flow(jaxpr, top, outputs, after, is_forward=False)
        for site in sites:
            block, role, _ = self._attributions[site.id]
            if role == "update" and block == UNATTRIBUTED:
                flows = before.get(site.id, _NONE), after.get(site.id, _NONE)
                only = next((next(iter(flow)) for flow in flows if len(flow) == 1), None)
                # `OPTIMIZER` is "tagged", because scopes or frames show that the equation is part of the update.
                self._attributions[site.id] = (OPTIMIZER, role, "tagged") if only is None else (only, role, "inferred")
        self._infer_constants(top, before)

    def _infer_constants(self, body: Sites, before: dict[str, Flow]) -> None:
        users: dict[Any, set[str]] = {}
        for site in reversed(body):
            block, role, _ = self._attributions[site.id]
            if block == OPTIMIZER and not before.get(site.id):
                blocks = set().union(*(users.get(var, set()) for var in site.equation.outvars))
                if len(blocks - {OPTIMIZER}) == 1 == len(blocks):
                    block = blocks.pop()
                    self._attributions[site.id] = block, role, "inferred"
            for var in site.variables:
                users.setdefault(var, set()).add(block)
            for _, inner in site.bodies:
                self._infer_constants(inner, before)

    def _readers(self, trace: Trace, top: Sites) -> dict[str, str]:
        """Return the block that first computes with each input."""

        def visit(jaxpr: Any, body: Sites) -> dict[Any, str]:
            first_readers = dict.fromkeys(jaxpr.invars, UNATTRIBUTED)
            for site in body:
                block, role, _ = self._attributions[site.id]
                if role == "update" or all(first_readers.get(var, block) for var in site.variables):
                    continue
                arriving = list(site.equation.invars)
                inside = dict.fromkeys(range(len(arriving)), block)
                for inner_jaxpr, inner in site.bodies:
                    reads = visit(inner_jaxpr, inner)
                    first = len(arriving) - len(reads)  # before: a predicate, or constants of another body
                    inside.update({first + index: each for index, each in enumerate(reads.values()) if each})
                for index, atom in enumerate(arriving):
                    if not jax_versions.is_literal(atom) and first_readers.get(atom) == UNATTRIBUTED:
                        first_readers[atom] = inside[index]
            return first_readers

        read = visit(trace.closed.jaxpr, top)
        return {
            leaf.name[len(leaf.argument) :]: block
            for leaf, block in zip(trace.inputs, (read[var] for var in trace.closed.jaxpr.invars), strict=True)
            if block and leaf.name != leaf.argument
        }

    def _names(self, leaf: Leaf, readers: Mapping[str, str]) -> Flow:
        owner = self.owner(leaf)
        if not owner and readers:  # Optimizer states and results add a prefix.
            starts = [position for position, sign in enumerate(leaf.name) if sign in "[."]
            owner = next((readers[leaf.name[start:]] for start in starts if leaf.name[start:] in readers), UNATTRIBUTED)
        return frozenset((owner,)) if owner else _NONE

    def _flow(
        self, jaxpr: Any, body: Sites, arriving: Sequence[Flow], seen: dict[str, Flow], is_forward: bool
    ) -> list[Flow]:
        """Propagate flows from the inputs of a jaxpr to its outputs, or back; `seen` gets the flow at each equation."""
        starts, ends = (jaxpr.invars, jaxpr.outvars) if is_forward else (jaxpr.outvars, jaxpr.invars)
        flows: dict[Any, Flow] = {}

        def arrive(atom: Any, flow: Flow) -> None:
            if not jax_versions.is_literal(atom):
                flows[atom] = flows[atom] | flow if atom in flows else flow

        for atom, flow in zip(starts, arriving, strict=True):
            arrive(atom, flow)
        for site in body if is_forward else reversed(body):
            operands = site.equation.invars if site.bodies else site.variables
            sources, targets = (operands, site.equation.outvars) if is_forward else (site.equation.outvars, operands)
            incoming = [_of(flows, atom) for atom in sources]
            own = seen[site.id] = _union(set(incoming))
            block, role, _ = self._attributions[site.id]
            if is_forward and not site.bodies and role != "update" and block not in (UNATTRIBUTED, LOSS):
                # In the forward and backward pass, the flow of a result is the block that computes it.
                own = frozenset((block,))
            leaving = [own] * len(targets)
            for inner_jaxpr, inner in site.bodies:
                count = len(inner_jaxpr.invars if is_forward else inner_jaxpr.outvars)
                through = self._flow(
                    inner_jaxpr, inner, incoming if len(incoming) == count else [own] * count, seen, is_forward
                )
                if len(site.bodies) == 1 and len(through) == len(leaving) and site.primitive in jax_versions.CALL_NAMES:
                    leaving = through
            for atom, flow in zip(targets, leaving, strict=True):
                arrive(atom, flow)
        return [_of(flows, atom) for atom in ends]


def _is_ours(trace: Trace) -> bool:
    return jax_versions.library_of(trace.starts.rpartition(":")[0]) == "mithril_nb"


def _default_block(trace: Trace) -> str:
    """Return the block of equations in no scope and no inner function: the traced function, or `""` if it is ours."""
    return "" if _is_ours(trace) else trace.function


def _last_name(leaf: Leaf) -> str:
    return next((key for key in reversed(leaf.keys) if not key.isdigit()), "")


def _of(flows: dict[Any, Flow], atom: Any) -> Flow:
    return _NONE if jax_versions.is_literal(atom) else flows.get(atom, _NONE)


def _union(flows: set[Flow]) -> Flow:
    # There is nearly always only one, which is returned without a copy.
    return flows.pop() if len(flows) == 1 else _NONE.union(*flows)


def common_block(blocks: Set[str]) -> str:
    """Return the deepest block that contains all of `blocks`, or is one of them; `""` if there is none.

    Examples:
        >>> common_block(frozenset({"net/a/b", "net/a"})), common_block(frozenset({"net", "head"}))
        ('net/a', '')
    """
    return "/".join(common_start([tuple(block.split("/")) for block in blocks]))
