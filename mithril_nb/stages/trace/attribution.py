"""Which block caused an equation, and in which role: read from scopes, functions of Python, and the flow of data.

It is asked for each equation. The `block:` scopes that mithril_nb writes come first, in its own programs and around the
modules of other libraries. Outside of them the block is the path of the named scopes around the equation, or where it
stands in none, of the person's functions that made it. Scopes replace functions, as one who opens a scope has said what
to call the block. Only the scopes that libraries open for each of their layers, such as `eqx.nn.Linear`, stand below
the functions: alone they would not say which layer it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import LOSS, OPTIMIZER, UNATTRIBUTED, Origin, Role
from mithril_nb.stages.trace.equations import Site
from mithril_nb.stages.trace.functions import functions_of, is_optimizer_work
from mithril_nb.stages.trace.roles import roles_of
from mithril_nb.stages.trace.scopes import Scopes, scopes_of
from mithril_nb.stages.trace.tracing import Leaf, Trace

EquationAttribution = tuple[str, Role | None, Origin | None]
Flow = frozenset[str]
"""The blocks whose parameters and gradients are in a value."""

_NONE: Flow = frozenset()

_MADE_BY_AUTODIFF = frozenset(
    {
        "add_any",
        "broadcast_in_dim",
        "zeros_like",
        "convert_element_type",
        "copy",
        "pvary",
    }
)
"""What reverse mode adds between the blocks: sums of cotangents, and zeros where none came."""


def are_all_in_blocks(trace: Trace) -> bool:
    """Whether it is certain that every equation is in a block, whichever it is: the function that made it is one."""
    return trace.outline.have_frames and bool(_whole(trace))


class Attribution:
    """Block, role and origin of every equation of one program.

    Attributes:
        has_blocks: Whether the program says its blocks itself, in `block:` scopes.
        paths: Paths of all blocks that the scopes of the program name, parents included.
    """

    def __init__(self, trace: Trace, top: list[Site], sites: list[Site]):
        _put_back_hoisted(sites)
        said = {site.id: scopes_of(site.stack) for site in sites}
        self.has_blocks = any(scopes.block for scopes in said.values())
        self._has_updates = any(scopes.is_update for scopes in said.values())
        functions, lifted = functions_of(trace, top)
        if self._has_updates:
            updates = {id for id, scopes in said.items() if scopes.is_update}
            roles: dict[str, Role | None] = {id: _role(scopes) for id, scopes in said.items()}
        else:
            updates = _optimizer_work(sites)
            if updates or any(scopes.is_backward for scopes in said.values()):
                roles = roles_of(trace.closed.jaxpr, top, updates, lifted, _new_versions(trace))
            else:  # nothing depends on a gradient
                roles = dict.fromkeys(said, "forward")
        self._is_ours, whole = _is_ours(trace), _whole(trace)
        paths = {id: "/".join((*path, *said[id].path)) or whole for id, path in functions.items()}
        self._functions = {
            id: path for id, path in paths.items() if path and (roles[id] != "update" or id not in updates)
        }
        self._verdicts = {id: self._read(id, scopes, roles[id]) for id, scopes in said.items()}
        self.paths = {
            "/".join(parts[:count])
            for block, _, _ in set(self._verdicts.values())
            if block not in (LOSS, UNATTRIBUTED)
            for parts in [block.split("/")]
            for count in range(1, len(parts) + 1)
        }
        self._infer_calls(sites)
        if any(self._is_between(site) for site in sites):
            self._infer_autodiff(trace, top)
        if any(role == "update" for _, role, _ in self._verdicts.values()):
            self._infer_update(trace, top, sites)
        for id, (block, role, _) in self._verdicts.items():
            if block == UNATTRIBUTED and id in self._functions:
                self._verdicts[id] = self._functions[id], role, "tagged"

    def _read(self, id: str, scopes: Scopes, role: Role | None) -> EquationAttribution:
        if scopes.block:
            return scopes.block, role, "tagged"
        if scopes.is_loss:
            return LOSS, role, "tagged"
        if scopes.is_whole and not scopes.is_update:
            return "/".join(scopes.path), role, "tagged"
        if self.has_blocks or id not in self._functions:  # Between blocks the flow knows better than the functions.
            return UNATTRIBUTED, role, None
        return self._functions[id], role, "tagged"

    def __getitem__(self, id: str) -> EquationAttribution:
        return self._verdicts[id]

    def owner(self, leaf: Leaf) -> str:
        """Return the path of the block that a parameter, or the optimizer's state for it, belongs to.

        `params['mlp_0.linear_1.weight']` belongs to `mlp_0/linear_1`. Where a program keeps its parameters in nested
        containers, as `model.layers[0].weight`, they belong to the block `layers/0` if there is one, or to
        `model/layers/0`.
        """
        if not leaf.keys:
            return UNATTRIBUTED
        path = leaf.keys[-1].rpartition(".")[0].replace(".", "/")
        if path and (self.has_blocks or path in self.paths):
            return path
        # Names of other things may stand in front, such as an optimizer's state, and behind, such as a box of Flax.
        names = (leaf.argument, *leaf.keys)
        for length in range(len(names) - 1, 0, -1):
            for start in range(len(names) - length):
                path = "/".join(names[start : start + length])
                if path in self.paths:
                    return path
        return UNATTRIBUTED

    def _infer_calls(self, sites: list[Site]) -> None:
        """A call outside every block belongs to the block that holds all of its body."""
        for site in reversed(sites):
            block, role, _ = self._verdicts[site.id]
            if site.is_call and block == UNATTRIBUTED and role != "update":
                inner = {self._inside(child) for _, body in site.bodies for child in body}
                common = _common_path(inner - {UNATTRIBUTED})
                if common:
                    self._verdicts[site.id] = common, role, "inferred"

    def _inside(self, site: Site) -> str:
        """What an equation says of the call that holds it."""
        block, role, _ = self._verdicts[site.id]
        is_between = role == "update" or site.primitive in _MADE_BY_AUTODIFF
        return block if block or is_between else self._functions.get(site.id, UNATTRIBUTED)

    def _is_between(self, site: Site) -> bool:
        """Whether an equation outside of the blocks is reverse mode's, or of our own function around the model."""
        block, role, _ = self._verdicts[site.id]
        if block != UNATTRIBUTED or role in ("update", None):
            return False
        is_autodiff = role == "backward" and site.primitive in _MADE_BY_AUTODIFF
        return is_autodiff or (self._is_ours and site.id not in self._functions)

    def _infer_autodiff(self, trace: Trace, top: list[Site]) -> None:
        """What is made between blocks belongs to the one block that uses it, or else that fed it.

        A gradient of zeros, which nothing uses, belongs to the block of its parameter.
        """

        def visit(body: list[Site], users: dict[Any, set[str]]) -> None:
            makers: dict[Any, str] = {}
            for site in body:
                block = self._verdicts[site.id][0]
                for var in site.equation.outvars:
                    makers[var] = block
                for var in site.variables:
                    users.setdefault(var, set()).add(block)
            for site in reversed(body):
                if self._is_between(site):
                    after = set().union(*(users.get(var, set()) for var in site.equation.outvars)) - {UNATTRIBUTED}
                    before = {makers.get(var, UNATTRIBUTED) for var in site.variables} - {UNATTRIBUTED}
                    found = next(
                        (blocks for blocks in (after, before) if len(blocks) == 1),
                        set(),
                    )
                    for block in found:
                        self._verdicts[site.id] = block, self._verdicts[site.id][1], "inferred"
                        for var in site.variables:
                            users.setdefault(var, set()).add(block)
                for _, inner in site.bodies:
                    visit(inner, {})

        between = {var for site in top if self._is_between(site) for var in site.equation.outvars}
        given = {
            atom: leaf
            for atom, leaf in zip(trace.closed.jaxpr.outvars, trace.outputs, strict=True)
            if not jax_versions.is_literal(atom) and atom in between
        }
        readers = self._readers(trace, top) if given else {}
        visit(top, {var: set(self._names(leaf, readers)) for var, leaf in given.items()})

    def _infer_update(self, trace: Trace, top: list[Site], sites: list[Site]) -> None:
        """What the optimizer does belongs to the one block whose parameters and gradients flow in, or else out."""
        jaxpr = trace.closed.jaxpr
        readers = {} if self.has_blocks and self._has_updates else self._readers(trace, top)
        inputs = [self._names(leaf, readers) for leaf in trace.inputs]
        outputs = [self._names(leaf, readers) for leaf in trace.outputs]
        before: dict[str, Flow] = {}
        after: dict[str, Flow] = {}
        self._flow_in(jaxpr, top, inputs, before)
        self._flow_out(jaxpr, top, outputs, after)
        for site in sites:
            block, role, _ = self._verdicts[site.id]
            if role == "update" and block == UNATTRIBUTED:
                flows = before.get(site.id, _NONE), after.get(site.id, _NONE)
                found = next((next(iter(flow)) for flow in flows if len(flow) == 1), None)
                # That it is the optimizer's, the scopes or the frames say; whom it is done for, the flow.
                self._verdicts[site.id] = (OPTIMIZER, role, "tagged") if found is None else (found, role, "inferred")
        self._infer_constants(top, before)

    def _infer_constants(self, body: list[Site], before: dict[str, Flow]) -> None:
        """What the optimizer makes of nothing belongs to the one block that uses it."""
        users: dict[Any, set[str]] = {}
        for site in reversed(body):
            block, role, _ = self._verdicts[site.id]
            if block == OPTIMIZER and not before.get(site.id):
                blocks = set().union(*(users.get(var, set()) for var in site.equation.outvars))
                if len(blocks - {OPTIMIZER}) == 1 == len(blocks):
                    block = blocks.pop()
                    self._verdicts[site.id] = block, role, "inferred"
            for var in site.variables:
                users.setdefault(var, set()).add(block)
            for _, inner in site.bodies:
                self._infer_constants(inner, before)

    def _readers(self, trace: Trace, top: list[Site]) -> dict[str, str]:
        """Return for each input, by how to reach it in its argument, the block that reads it first to compute."""

        def visit(jaxpr: Any, body: list[Site]) -> dict[Any, str]:
            found = dict.fromkeys(jaxpr.invars, UNATTRIBUTED)
            for site in body:
                block, role, _ = self._verdicts[site.id]
                if role == "update" or all(found.get(var, block) for var in site.variables):
                    continue
                arriving = list(site.equation.invars)
                inside = dict.fromkeys(range(len(arriving)), block)
                for inner_jaxpr, inner in site.bodies:
                    reads = visit(inner_jaxpr, inner)
                    first = len(arriving) - len(reads)  # A predicate, or the constants of another body, stand in front.
                    inside.update({first + place: each for place, each in enumerate(reads.values()) if each})
                for place, atom in enumerate(arriving):
                    if not jax_versions.is_literal(atom) and found.get(atom) == UNATTRIBUTED:
                        found[atom] = inside[place]
            return found

        read = visit(trace.closed.jaxpr, top)
        return {
            leaf.name[len(leaf.argument) :]: block
            for leaf, block in zip(trace.inputs, (read[var] for var in trace.closed.jaxpr.invars), strict=True)
            if block and leaf.name != leaf.argument
        }

    def _names(self, leaf: Leaf, readers: Mapping[str, str]) -> Flow:
        owner = self.owner(leaf)
        if not owner and readers:  # An optimizer's state, and the results, put names of their own in front.
            starts = [place for place, sign in enumerate(leaf.name) if sign in "[."]
            owner = next((readers[leaf.name[start:]] for start in starts if leaf.name[start:] in readers), UNATTRIBUTED)
        return frozenset((owner,)) if owner else _NONE

    def _flow_in(
        self,
        jaxpr: Any,
        body: list[Site],
        inputs: Sequence[Flow],
        seen: dict[str, Flow],
    ) -> list[Flow]:
        flows: dict[Any, Flow] = dict(zip(jaxpr.invars, inputs, strict=True))
        for site in body:
            results = site.equation.outvars
            own = seen[site.id] = _union({flows.get(var, _NONE) for var in site.variables})
            if not site.bodies:
                block, role, _ = self._verdicts[site.id]
                if role != "update" and block not in (UNATTRIBUTED, LOSS):
                    own = frozenset((block,))
                flows.update(dict.fromkeys(results, own))
                continue
            arriving = [_of(flows, atom) for atom in site.equation.invars]
            leaving = [own] * len(results)
            for inner_jaxpr, inner in site.bodies:
                given = _matched(arriving, len(inner_jaxpr.invars), own)
                made = self._flow_in(inner_jaxpr, inner, given, seen)
                if len(site.bodies) == 1 and len(made) == len(leaving) and site.primitive in jax_versions.CALL_NAMES:
                    leaving = made
            flows.update(zip(results, leaving, strict=True))
        return [_of(flows, atom) for atom in jaxpr.outvars]

    def _flow_out(
        self,
        jaxpr: Any,
        body: list[Site],
        outputs: Sequence[Flow],
        seen: dict[str, Flow],
    ) -> list[Flow]:
        flows: dict[Any, Flow] = {}

        def arrive(var: Any, flow: Flow) -> None:
            known = flows.get(var, _NONE)
            if known is not flow:
                flows[var] = known | flow

        for atom, flow in zip(jaxpr.outvars, outputs, strict=True):
            if not jax_versions.is_literal(atom):
                arrive(atom, flow)
        for site in reversed(body):
            leaving = [flows.get(var, _NONE) for var in site.equation.outvars]
            own = seen[site.id] = _union(set(leaving))
            if not site.bodies:
                for var in site.variables:
                    arrive(var, own)
                continue
            needed = [own] * len(site.equation.invars)
            for inner_jaxpr, inner in site.bodies:
                wanted = self._flow_out(
                    inner_jaxpr,
                    inner,
                    _matched(leaving, len(inner_jaxpr.outvars), own),
                    seen,
                )
                if len(site.bodies) == 1 and len(wanted) == len(needed) and site.primitive in jax_versions.CALL_NAMES:
                    needed = wanted
            for atom, flow in zip(site.equation.invars, needed, strict=True):
                if not jax_versions.is_literal(atom):
                    arrive(atom, flow)
        return [flows.get(var, _NONE) for var in jaxpr.invars]


def _is_ours(trace: Trace) -> bool:
    return jax_versions.library_of(trace.starts.rpartition(":")[0]) == "mithril_nb"


def _whole(trace: Trace) -> str:
    """Return the block of what the function does itself; one of ours that only calls a model is no block."""
    return "" if _is_ours(trace) else trace.function


def _put_back_hoisted(sites: list[Site]) -> None:
    """Give equations that JAX took out of a scan the scopes of that scan.

    Reverse mode computes once what is the same in each round, before the scan, and its scopes are those of the body.
    """
    scans: dict[str, Site] = {}
    for site in reversed(sites):
        for jaxpr, _ in site.bodies if site.primitive == "scan" else ():
            scans[jax_versions.start_of(jaxpr)] = site
        scan = scans.get(_outermost(site.equation.source_info.traceback)) if scans else None
        if scan is not None and not _is_inside(site, scan):
            site.stack = scan.stack + jax_versions.name_stack(site.equation)


@lru_cache(maxsize=8192)
def _outermost(traceback: Any) -> str:
    """Return where the function begins from which an equation was traced, as `"file.py:12"`."""
    frames = jax_versions.frames(traceback)
    return f"{frames[-1].co_filename}:{frames[-1].co_firstlineno}" if frames else ""


def _is_inside(site: Site, scan: Site) -> bool:
    """Whether an equation is in the body of a scan of the same function as another scan."""
    starts = {jax_versions.start_of(jaxpr) for jaxpr, _ in scan.bodies}
    while site.parent is not None:
        site = site.parent
        if any(jax_versions.start_of(jaxpr) in starts for jaxpr, _ in site.bodies):
            return True
    return False


def _role(scopes: Scopes) -> Role:
    """Return the role in a train step that says which part is the update."""
    return "update" if scopes.is_update else "backward" if scopes.is_backward else "forward"


def _new_versions(trace: Trace) -> list[list[int]]:
    """Return for each input the places of the outputs that have its shape, dtype and last name."""
    given: dict[Any, list[int]] = {}
    for place, leaf in enumerate(trace.outputs):
        given.setdefault((leaf.spec, _last_name(leaf)), []).append(place)
    return [given.get((leaf.spec, _last_name(leaf)), []) for leaf in trace.inputs]


def _last_name(leaf: Leaf) -> str:
    return next((key for key in reversed(leaf.keys) if not key.isdigit()), "")


def _optimizer_work(sites: list[Site]) -> set[str]:
    """Return the ids of what a library of optimizers did, and of all inside of that."""
    found: set[str] = set()
    for site in sites:
        is_inside = site.parent is not None and site.parent.id in found
        if is_inside or is_optimizer_work(site.equation.source_info.traceback):
            found.add(site.id)
    return found


def _of(flows: dict[Any, Flow], atom: Any) -> Flow:
    return _NONE if jax_versions.is_literal(atom) else flows.get(atom, _NONE)


def _union(flows: set[Flow]) -> Flow:
    """Return the blocks in any of some flows; nearly always these are one and the same."""
    return flows.pop() if len(flows) == 1 else _NONE.union(*flows)


def _matched(outer: list[Flow], count: int, whole: Flow) -> list[Flow]:
    return outer if len(outer) == count else [whole] * count


def _common_path(paths: set[str]) -> str:
    if not paths or (LOSS in paths and len(paths) > 1):
        return UNATTRIBUTED
    first, *rest = (path.split("/") for path in paths)
    count = 0
    while count < len(first) and all(other[: count + 1] == first[: count + 1] for other in rest):
        count += 1
    return "/".join(first[:count])
