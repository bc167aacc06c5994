"""Equations to which XLA's partitioner may add communication, found from the shardings in a program.

An array is divided if it is sharded over more than one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax

from mithril_nb.stages import jax_jit, jax_versions
from mithril_nb.stages.records import Equation, Input
from mithril_nb.stages.trace.equations import Site
from mithril_nb.stages.trace.params import PARTITIONED

# Primitives whose params may contain shardings.
_PLACING = frozenset(
    {"shard_map", "sharding_constraint", "reshard", "device_put", "jit", "pjit", "broadcast_in_dim", "iota"}
)
_LOOPS = frozenset({"scan", "while"})
# Primitives that need no communication to return a divided array if no operand is divided.
_REPEATING = frozenset({"broadcast_in_dim", "iota"})

Layout = tuple[Any, ...]
"""How an array is divided: the sizes of the mesh axes, and for each dimension the mesh axes that divide it.

`UNKNOWN` is the layout of an array that is divided along unknown axes.
"""
UNKNOWN: Layout = ()


def partitioned_ids(
    jaxpr: Any,
    top: Sequence[Site],
    sites: Iterable[Site],
    layouts: Sequence[Layout | None],
    requested: Sequence[Any],
    are_placed: Sequence[bool],
) -> frozenset[str]:
    """Return the ids of the equations to which XLA's partitioner may add communication.

    `sites`: The sites of all equations, nested ones included. `layouts`: For each argument, how it is divided; `None`
    if it is not. `requested`: The sharding that `out_shardings` requests for each result; `()` without `out_shardings`.
    `are_placed`: For each argument, True if XLA must keep its sharding, even if it does not divide the array.
    """
    # - XLA propagates shardings from operands to results and back. So if one array of an equation is divided among
    #   devices, all its arrays may be. Scalars and arrays with an explicit sharding are not changed.
    # - Equations inside a `shard_map` communicate only through collectives of the user, unless the `shard_map` leaves
    #   some axes of the mesh automatic.
    # - XLA moves an array if a `shard_map`, a call or `out_shardings` requests another sharding than the array has. If
    #   such an array is the first argument of the program, the result contains `"arg0"`.
    stated = {*divisions(sites, layouts, requested)}
    if not stated:
        return frozenset()
    named = frozenset([name for layout in stated - {UNKNOWN} for dim in layout[1] for name in dim])
    flow = _Propagation(None if UNKNOWN in stated else named)
    nodes: dict[Any, int] = {}
    for var, layout, is_placed in zip(jaxpr.invars, layouts, are_placed, strict=True):
        nodes[var] = flow.with_layout(var, layout) if is_placed or layout is not None else flow.new(var)
    flow.read(top, nodes)
    producers = {var: f"arg{index}" for index, var in enumerate(jaxpr.invars)}
    producers |= {var: site.id for site in top for var in site.equation.outvars}
    for atom, sharding in zip(jaxpr.outvars, requested, strict=True) if requested else ():
        if _is_specified(sharding) and not jax_versions.is_literal(atom) and atom in producers:
            flow.request(producers[atom], nodes[atom], _layout(sharding))
    return flow.communicating()


def divisions(sites: Iterable[Site], layouts: Iterable[Layout | None], requested: Iterable[Any]) -> Iterator[Layout]:
    """Yield the layouts that the arguments, the results and the equations of a program specify.

    Args:
        sites: The sites of all equations, nested ones included.
        layouts: For each argument, how it is divided; `None` if it is not.
        requested: The sharding that `out_shardings` requests for each result; `()` without `out_shardings`.
    """
    yield from (layout for layout in layouts if layout is not None)
    yield from (layout for layout in map(_layout, requested) if layout is not None)
    for site in sites:
        if site.primitive in _PLACING:
            params = site.equation.params
            each = (*params.get("in_shardings", ()), *params.get("out_shardings", ()), *_result_shardings(params))
            specs = (*params["in_specs"], *params["out_specs"]) if "out_specs" in params else ()
            stated = (*map(_layout, each), *(_of_spec(params["mesh"], spec) for spec in specs))
            yield from (layout for layout in stated if layout is not None)


def _result_shardings(params: Mapping[str, Any]) -> tuple[Any, ...]:
    return params.get("sharding"), params.get("dst_sharding"), *params.get("devices", ())


class _Propagation:
    # A layout states how an array is divided among devices.
    # Each array is a node. A variable inside a call has the same node as the operand or result that it is equal to.

    def __init__(self, axes: frozenset[str] | None) -> None:
        self._axes = axes
        self._count = 0
        self._layouts: dict[int, Layout] = {}
        self._fixed: set[int] = set()
        self._joins: list[tuple[str, Sequence[int]]] = []
        self._links: dict[int, list[tuple[Sequence[str] | None, int]]] = {}
        self._inner: dict[tuple[int, Sequence[str]], int] = {}
        self._requests: list[tuple[str, int, Layout | None, Sequence[str] | None]] = []

    def new(self, var: Any) -> int:
        # XLA may divide it, unless its type fixes the sharding.
        self._count += 1
        node, sharding = self._count, getattr(var.aval, "sharding", None)
        # If the axes are explicit, the sharding is part of the type, and JAX propagates it.
        types = getattr(getattr(sharding, "mesh", None), "axis_types", ()) or ()
        if not getattr(var.aval, "shape", ()):
            self._fixed.add(node)
        elif types and jax.sharding.AxisType.Auto not in types:
            self._fix(node, _layout(sharding))
        return node

    def with_layout(self, var: Any, layout: Layout | None) -> int:
        """Return a node for an array with a layout that XLA keeps; `None` means undivided."""
        node = self.new(var)
        self._fix(node, layout)
        return node

    def _fix(self, node: int, layout: Layout | None) -> None:
        # An unknown layout is not fixed, because XLA may still change the sharding.
        if layout != UNKNOWN:
            self._fixed.add(node)
        if layout is not None:
            self._layouts[node] = layout

    def request(self, id: str, node: int | None, layout: Layout | None, own: Sequence[str] | None = None) -> None:
        """Register that an equation requests a layout of an operand."""
        if node is not None:
            self._requests.append((id, node, layout, own))
            if layout is not None and node not in self._fixed:
                self._layouts[node] = layout if self._layouts.get(node, layout) == layout else UNKNOWN

    def _node(self, nodes: dict[Any, int], atom: Any) -> int | None:
        if jax_versions.is_literal(atom):
            return None
        if atom not in nodes:
            nodes[atom] = self.new(atom)
        return nodes[atom]

    def read(self, sites: Sequence[Site], nodes: dict[Any, int]) -> None:
        for site in sites:
            params, results = site.equation.params, site.equation.outvars
            if site.primitive == "shard_map":
                self._read_mapped(site, nodes)
            elif site.bodies:
                self._read_bodies(site, nodes)
            else:
                requested = [
                    sharding
                    for sharding in _result_shardings(params)
                    if hasattr(sharding, "spec") or hasattr(sharding, "is_fully_replicated")
                ]
                for index, var in enumerate(results):
                    # A single sharding applies to all results.
                    sharding = requested[min(index, len(requested) - 1)] if requested else None
                    nodes[var] = self.new(var) if sharding is None else self.with_layout(var, _layout(sharding))
                operands = [self._node(nodes, var) for var in site.variables]
                is_whole = not any(node not in self._fixed or node in self._layouts for node in operands if node)
                # An empty id connects the arrays, but the equation is not reported as communicating.
                id = "" if site.primitive in _REPEATING and is_whole else site.id
                self._join(id, [*operands, *(nodes[var] for var in results)])

    def _join(self, id: str, nodes: Iterable[int | None]) -> None:
        self._joins.append((id, tuple(dict.fromkeys(node for node in nodes if node is not None))))

    def _link(self, names: Sequence[str] | None, node: int, other: int) -> None:
        # `()` means any axis. `None` also means any axis, but `other` is left unchanged if it has a layout already.
        self._links.setdefault(node, []).append((names, other))

    def _read_mapped(self, site: Site, nodes: dict[Any, int]) -> None:
        equation, params = site.equation, site.equation.params
        mesh, own = params["mesh"], params.get("newly_manual_axes", params.get("manual_axes", ()))
        types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
        # Along these axes, XLA's partitioner may divide the body.
        free = tuple(
            name
            for name, size in mesh.shape.items()
            if size > 1 and name not in own and types[name] != jax.sharding.AxisType.Manual
            if self._axes is None or name in self._axes
        )
        operands = [self._node(nodes, atom) for atom in equation.invars]
        for node, spec in zip(operands, params["in_specs"], strict=True):
            self.request(site.id, node, _of_spec(mesh, spec), own)
        layouts = [_of_spec(mesh, spec) for spec in params["out_specs"]]
        if not free:
            nodes.update(
                (var, self.with_layout(var, layout)) for var, layout in zip(equation.outvars, layouts, strict=True)
            )
            return
        ((body, inside),) = site.bodies
        inner: dict[Any, int] = {}
        for var, node in zip(body.invars, operands, strict=True):
            if node is None:
                continue
            if (node, free) not in self._inner:
                self._inner[node, free] = self.new(var)
                self._link(free, node, self._inner[node, free])
                self._link(None, self._inner[node, free], node)
            inner[var] = self._inner[node, free]
        self.read(inside, inner)
        for var, atom, layout in zip(equation.outvars, body.outvars, layouts, strict=True):
            nodes[var], node = self.new(var), self._node(inner, atom)
            if layout is not None and nodes[var] not in self._fixed:
                self._layouts[nodes[var]] = layout
            if node is not None:
                self._link(free, nodes[var], node)
                self._link((), node, nodes[var])

    def _read_bodies(self, site: Site, nodes: dict[Any, int]) -> None:
        params, results = site.equation.params, site.equation.outvars
        operands = [self._node(nodes, atom) for atom in site.equation.invars]
        # The first operand selects the branch.
        body_operands = operands[1:] if site.primitive == "cond" else operands
        requested = _requested(params.get("in_shardings", ()), len(body_operands))
        for node, sharding in zip(body_operands, requested, strict=True):
            if sharding is not None:
                self.request(site.id, node, _layout(sharding))
        # In a loop or an unknown primitive, any array of the body may be connected to any operand or result.
        is_call = site.primitive not in _LOOPS and all(
            len(body.invars) == len(body_operands) and len(body.outvars) == len(results) for body, _ in site.bodies
        )
        outputs: list[list[int | None]] = []
        inside: list[int] = []
        for body, sites in site.bodies:
            inner: dict[Any, int] = {}
            for var, node, sharding in zip(body.invars, body_operands, requested, strict=True) if is_call else ():
                if sharding is not None:
                    inner[var] = self.with_layout(var, _layout(sharding))
                elif node is not None:
                    inner[var] = node
            self.read(sites, inner)
            outputs.append([self._node(inner, atom) for atom in body.outvars])
            inside += [] if is_call else [inner[var] for var in body.invars if var in inner]
        requested = _requested(params.get("out_shardings", ()), len(results))
        for index, (var, sharding) in enumerate(zip(results, requested, strict=True)):
            each = [nodes_of[index] for nodes_of in outputs] if is_call else []
            if sharding is not None:
                nodes[var] = self.with_layout(var, _layout(sharding))
                for node in each:
                    self.request(site.id, node, _layout(sharding))
            elif len(each) == 1 and each[0] is not None:
                nodes[var] = each[0]
            else:
                nodes[var] = self.new(var)
                self._join("", [nodes[var], *each])
        if not is_call:
            all_outputs = (node for nodes_of in outputs for node in nodes_of)
            self._join("", [*operands, *inside, *all_outputs, *(nodes[var] for var in results)])

    def communicating(self) -> frozenset[str]:
        """Propagate the layouts; return the ids of the equations to which XLA may add communication."""
        ids = self._spread()
        for id, node, requested, own in self._requests:
            have = self._layouts.get(node)
            own_layout = have if have is None or own is None else _along(have, own)
            if own_layout is not None and (own_layout == UNKNOWN or own_layout != requested):
                ids.add(id)
        return frozenset(ids)

    def _spread(self) -> set[str]:
        """Mark all arrays that may be divided; return the ids of the equations that have such an array."""
        joins_of: dict[int, list[int]] = {}
        for index, (_, nodes) in enumerate(self._joins):
            for node in nodes:
                joins_of.setdefault(node, []).append(index)
        queue, done, ids = [*self._layouts], set[int](), set[str]()

        def divide(node: int) -> None:
            if node not in self._fixed and self._layouts.get(node) != UNKNOWN:
                self._layouts[node] = UNKNOWN
                queue.append(node)

        while queue:
            node = queue.pop()
            # `pop` and `done` make sure that each node and each equation is visited once.
            for index in joins_of.pop(node, ()):
                if index not in done:
                    done.add(index)
                    id, nodes = self._joins[index]
                    ids.add(id)
                    for other in nodes:
                        divide(other)
            for names, other in self._links.get(node, ()):
                if names is None:
                    is_divided = other not in self._layouts
                else:
                    is_divided = not names or _along(self._layouts[node], names) is not None
                if is_divided:
                    divide(other)
        return ids - {""}


def _requested(requested: Sequence[Any], count: int) -> list[Any]:
    return (
        [sharding if _is_specified(sharding) else None for sharding in requested]
        if len(requested) == count
        else [None] * count
    )


def _along(layout: Layout, names: Any) -> Layout | None:
    """Return the part of a layout along some mesh axes; `None` if these axes do not divide the array."""
    if not names:
        return None
    if layout == UNKNOWN:
        return UNKNOWN
    sizes, dims = layout
    # A dimension divided along both these axes and others has no layout along these axes alone.
    if any({*dim} & {*names} and not {*dim} <= {*names} for dim in dims):
        return UNKNOWN
    return _stripped(sizes, [dim if {*dim} <= {*names} else () for dim in dims])


def _of_spec(mesh: Any, spec: Any) -> Layout | None:
    sizes = tuple(mesh.shape.items())
    named = [axes if isinstance(axes, tuple) else () if axes is None else (axes,) for axes in spec]
    if not all(isinstance(name, str) for axes in named for name in axes):
        return UNKNOWN  # XLA chooses
    return _stripped(sizes, [tuple(name for name in axes if mesh.shape.get(name, 1) > 1) for axes in named])


def _stripped(sizes: Any, dims: list[Any]) -> Layout | None:
    # Specs that differ only in trailing dimensions without axes have the same layout.
    while dims and not dims[-1]:
        dims = dims[:-1]
    return (sizes, tuple(dims)) if dims else None


def divided(arguments: Iterable[Any], traced: Any) -> tuple[tuple[Layout | None, ...], tuple[bool, ...]]:
    """Return how each argument of a program is divided among devices, and whether XLA must keep this.

    `arguments`: The arguments, arrays or shapes, in the order of the jaxpr's inputs.

    Returns:
        The layout of each argument, `None` if it is not divided. And for each argument, True if its sharding is
        specified, so that XLA must keep it, even if it does not divide the array.
    """
    leaves = list(arguments)
    requested = jax_jit.shardings(traced, "in_shardings") or [None] * len(leaves)
    layouts: list[Layout | None] = []
    placed: list[bool] = []
    for leaf, sharding, aval in zip(leaves, requested, traced.jaxpr.in_avals, strict=True):
        own = map(_layout, (sharding, getattr(leaf, "sharding", None), getattr(aval, "sharding", None)))
        layouts.append(next((layout for layout in own if layout is not None), None))
        placed.append(_is_specified(sharding) or getattr(leaf, "sharding", None) is not None)
    return tuple(layouts), tuple(placed)


def ids_on_sharded(equations: Iterable[Equation], inputs: Iterable[Input]) -> frozenset[str]:
    """Return the ids of the equations and arguments that `partitioned_ids` found, from their records."""
    moved = [f"arg{index}" for index, array in enumerate(inputs) if array.is_moved]
    return frozenset([*moved, *(equation.id for equation in equations if (PARTITIONED, True) in equation.params)])


def _is_specified(sharding: Any) -> bool:
    return sharding is not None and type(sharding).__name__ != "UnspecifiedValue"


def _layout(sharding: Any) -> Layout | None:
    if not _is_specified(sharding):
        return None
    if hasattr(sharding, "spec"):
        return _of_spec(sharding.mesh, sharding.spec)
    # Shardings of other classes than `NamedSharding` have no spec to read.
    is_open = hasattr(sharding, "is_fully_replicated") and not sharding.is_fully_replicated
    return UNKNOWN if is_open else None
