"""Overlays of the nodes of a graph: costs, memory, roles, dtypes, shardings, and values that the user provides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mithril_nb.errors import UnknownOptionError, nearest, short_repr
from mithril_nb.figures import SENT
from mithril_nb.graph.records import BlockSpecs
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.viz import units
from mithril_nb.viz.costs.fields import Data, Field, is_bound, unit_of
from mithril_nb.viz.diagrams.nested import SHARED, Box
from mithril_nb.viz.diagrams.overlays import Overlay, Value, known_number
from mithril_nb.viz.diagrams.scene import SceneNode
from mithril_nb.viz.text import listed, one_line, outer_paths
from mithril_nb.viz.units import titled

if TYPE_CHECKING:
    from mithril_nb.stages.graph.stage_graph import StageGraph

Node = Box | SceneNode
TOGETHER = "Σ: the sum over all calls of a function, not the cost of a single call"
_ROWS_OF = {("analytic", "jaxpr"), ("lowered", "hlo_before"), ("compiled", "hlo"), ("measured", "hlo")}
"""Pairs of a source of costs and a stage. The costs contain a row for each instruction of this stage."""


def has_groups(data: Data) -> bool:
    """Return whether a block with costs contains others, so that costs with and without inner blocks differ."""
    return any("/" in path for path in data["by_block"])


def inclusive(data: Data, field: str) -> dict[str, float | None]:
    """Return the cost of each block with the blocks inside it.

    Unknown parts are left out. The cost is `None` if all parts are unknown.

    Examples:
        >>> inclusive({"by_block": {"a/b": {"flops": 2}, "a/c": {"flops": 3}, "d": {"flops": None}}}, "flops")
        {'a': 5, 'a/b': 2, 'a/c': 3, 'd': None}
    """
    found: dict[str, float | None] = {}
    for path, figures in data["by_block"].items():
        value = _figure(figures, field)
        for above in outer_paths(path):
            before = found.setdefault(above, None)
            if value is not None:
                found[above] = (before or 0) + value
    return found


def _figure(figures: Mapping[str, Any], field: str) -> float | None:
    """Return a cost; `None` if it is unknown or cannot be drawn. Bytes of communication are 0 if they have no entry."""
    return known_number(figures.get(field, 0 if field in SENT else None))


@dataclass
class _Sum:
    """A sum of costs. `total` is `None` until a known cost is added. An unknown cost makes the sum a lower bound."""

    total: float | None = None
    is_bound: bool = False

    def add(self, value: float | None, is_bound: bool = False) -> None:
        if value is None:
            self.is_bound = True
        else:
            self.total = (self.total or 0) + value
            self.is_bound |= is_bound


def cost_values(
    data: Data, nodes: Iterable[Node], kind: Field, *, own: bool = False, graph: StageGraph | None = None
) -> Overlay:
    """Return the overlay that shows a cost on each node.

    Args:
        data: The costs, as returned by `Cost.to_dict()`. Loops and instructions only have costs if `data` has `rows`.
        nodes: The nodes of the graph of a model or of a stage.
        kind: The cost to show.
        own: If true, the number of a block excludes the blocks inside it.
        graph: The graph of the stage; `None` for a model.
    """
    sums = _Sums.of(data, kind.name, graph, own=own)
    found, bounds, texts = dict[str, Value](), set[str](), dict[str, str]()
    for node in nodes:
        if _is_end(node):
            continue
        total = sums.of_paths(node.blocks or (node.path,)) if graph is None else sums.of_node(graph, node.key)
        is_block = graph is None or (node.kind == "block" and bool(node.path))
        if is_block and total.total is None:
            if formula := _formula(data["by_block"].get(node.path), kind):
                texts[node.key] = formula
            elif not total.is_bound and (together := sums.values.get(node.path)) is not None:
                texts[node.key] = f"Σ {kind.short(together)}"
        found[node.key] = total.total
        if total.is_bound and total.total is not None:
            bounds.add(node.key)
    notes = (TOGETHER,) if any(text.startswith("Σ") for text in texts.values()) else ()
    title = titled(kind.title, own=own, has_groups=has_groups(data))
    source = data.get("source", "analytic")
    title = title if source == "analytic" else f"{title}, {source}"
    total = _figure(data["total"], kind.name)
    return Overlay(kind.name, title, found, unit_of(kind), frozenset(bounds), texts, total, notes)


def _is_least(figures: Mapping[str, Any], field: str) -> bool:
    return _figure(figures, field) is None or is_bound(figures, field)


def _formula(figures: Mapping[str, Any] | None, kind: Field) -> str:
    """Return the formula of a cost that depends on symbolic sizes; `""` if the cost has no formula."""
    formula = ((figures or {}).get("formulas") or {}).get(kind.name, "")
    return one_line(f"{formula} {unit_of(kind)}".strip()) if formula else ""


@dataclass(frozen=True)
class _Sums:
    """The cost of each block by path, and of each equation or instruction by id with the paths of its blocks.

    `least` has the paths of blocks whose cost is a lower bound. `rows` is `None` if the costs of the instructions are
    unknown. `nothing` is the cost of a block that is not in `values`.
    """

    values: Mapping[str, float | None]
    least: frozenset[str]
    nothing: int | None
    rows: Mapping[str, tuple[float | None, frozenset[str]]] | None
    own: bool
    is_time: bool

    @classmethod
    def of(cls, data: Data, field: str, graph: StageGraph | None, *, own: bool) -> _Sums:
        by_block = data["by_block"]
        values = {path: _figure(figures, field) for path, figures in by_block.items()}
        least = {path for path, figures in by_block.items() if _is_least(figures, field)}
        if not own:
            values, least = inclusive(data, field), {above for path in least for above in outer_paths(path)}
        nothing = None if data["total"].get(field) is None and field not in SENT else 0
        rows = None
        # Parameters belong to blocks, not to equations.
        if graph is not None and "rows" in data and (data.get("source"), graph.stage) in _ROWS_OF and field != "params":
            rows = {row["id"]: (_figure(row, field), frozenset(row["blocks"])) for row in data["rows"]}
        return cls(values, frozenset(least), nothing, rows, own, field == "time_s")

    def of_node(self, graph: StageGraph, key: str) -> _Sum:
        """Return the cost of a node of a stage.

        With inner blocks, the cost is the sum over all instructions in the node. Their blocks may have other paths: a
        function that calls the block `net` inside and outside a loop is a node with a part of `net`.
        """
        keys = graph.represented_by(key)
        is_whole = graph.nodes[key].block != "" and graph.is_whole_block(key)
        if self.rows is None or (self.own and is_whole):
            paths = [graph.nodes[one].block for one in keys]
            if not self.own:
                paths += [graph.nodes[one].block for one in _inside(graph, keys) if graph.is_whole_block(one)]
            return self.of_paths(paths) if is_whole else _Sum()
        ids: Iterable[str] = (id for one in keys for id in graph.instructions_of(one))
        if graph.stage == "jaxpr":
            # Equations inside a call have their own nodes, which may be in other blocks.
            ids = (one for id in ids for one in graph.equations.get(id, ()) if one == id or one not in graph.home)
        # The own cost of a node excludes instructions that belong to several blocks.
        path = {graph.nodes[key].block}
        known = [self.rows[id] for id in dict.fromkeys(ids) if id in self.rows]
        numbers = [value for value, blocks in known if not (self.own and blocks - path)]
        if numbers and all(value is None for value in numbers):
            return _Sum(None, True)
        # An instruction inside a fusion has no time, but the time of the fusion includes it, so the sum is exact.
        return _Sum(sum(value or 0 for value in numbers), None in numbers and not self.is_time)

    def of_paths(self, paths: Iterable[str]) -> _Sum:
        """Return the cost of some blocks together. With inner blocks, blocks inside another one count only once."""
        total, known = _Sum(), dict.fromkeys(paths)
        for path in known:
            if self.own or not any(above in known for above in outer_paths(path)[:-1]):
                total.add(self.values.get(path, self.nothing), path in self.least)
        return total


def node_shares(data: Data, field: str, graph: StageGraph) -> dict[str, float]:
    """Return the share of the total cost, 0 to 1, of each block, loop and other node with nodes inside, by key.

    Nodes with an unknown share are left out.
    """
    whole, sums = _figure(data["total"], field), _Sums.of(data, field, graph, own=False)
    groups = [key for key, node in graph.nodes.items() if key and node.kind in SHARED and key not in graph.hidden]
    found = {key: sums.of_node(graph, key) for key in groups} if whole else {}
    return {
        key: one.total / whole for key, one in found.items() if whole and one.total is not None and not one.is_bound
    }


def _inside(graph: StageGraph, keys: Iterable[str]) -> Iterator[str]:
    """Yield the keys of all nodes in some nodes."""
    waiting = [child for key in keys for child in graph.nodes[key].children]
    while waiting:
        key = waiting.pop()
        yield key
        waiting += graph.nodes[key].children


def _is_end(node: Node) -> bool:
    """Return whether a node is an input or output. Inputs and outputs cost nothing."""
    return node.kind == "input" or (node.kind == "output" and not node.path)


def memory_values(
    at_peak: Mapping[str, int], nodes: Iterable[Node], source: str, *, own: bool, graph: StageGraph | None = None
) -> Overlay:
    """Return the overlay of the bytes of each block at the memory peak.

    Args:
        at_peak: Bytes by path of the block, as in `MemoryUse`.
        nodes: The nodes of a graph.
        source: `"compiled"`, or `"analytic"` for an estimate from the jaxpr.
        own: If true, the number of a block excludes the blocks inside it.
        graph: The graph of the stage; `None` for a model.
    """
    by_block = {path: {"peak_bytes": size} for path, size in at_peak.items() if path}
    data = {"by_block": by_block, "total": {"peak_bytes": 0}, "source": source}
    kind = Field("peak_bytes", "memory at the peak", units.nbytes, units.nbytes)
    found = cost_values(data, nodes, kind, own=own, graph=graph)
    return replace(found, name="memory", unit="B", total=sum(at_peak.values()))


def role_values(nodes: Iterable[Node], roles: Sequence[str]) -> Overlay:
    """Return the overlay of the roles of the instructions in each node, such as `"forward + backward"`."""
    found: dict[str, Value] = {}
    for node in nodes:
        if node.counts and node.kind != "input":
            named = [role for role, count in zip(roles, node.counts, strict=False) if count]
            found[node.key] = "every role" if len(named) == len(roles) else " + ".join(named) or None
    return Overlay("role", "role", found)


def dtype_values(nodes: Iterable[Node], dtypes: Mapping[str, str]) -> Overlay:
    """Return the overlay of the dtype of each node's result.

    Args:
        nodes: The nodes of a graph.
        dtypes: Dtypes by key of the node or by path of a block. A node that represents several blocks has the dtype of
            the last one.
    """
    found: dict[str, Value] = {}
    for node in nodes:
        dtype = dtypes.get(node.key) or next((dtypes[path] for path in node.blocks[-1:] if path in dtypes), None)
        if dtype or not _is_end(node):
            found[node.key] = dtype
    return Overlay("dtype", "dtype of the result", found)


def dtypes_of_stage(graph: StageGraph) -> dict[str, str]:
    """Return the dtype of the largest result of each node of a stage's graph, by key. Unknown dtypes are left out."""
    return {key: node.dtype for key, node in graph.nodes.items() if node.dtype}


def dtypes_of_model(specs: Mapping[str, BlockSpecs]) -> dict[str, str]:
    """Return the dtype of the first output of each block, by path. Unknown dtypes are left out."""
    found: dict[str, str] = {}
    for path, one in specs.items():
        spec = next(iter(one.outputs.values()), None)
        if isinstance(spec, TensorSpec):
            found[path] = str(spec.dtype)
    return found


def sharding_values(nodes: Iterable[Node], graph: StageGraph, shardings: Mapping[str, str]) -> Overlay:
    """Return the overlay of the sharding of each node's results: `"several"` if they differ.

    Args:
        nodes: The nodes of `graph`.
        graph: The graph of a stage.
        shardings: Shardings by id of the instruction. Instructions without an entry are ignored.
    """
    found: dict[str, Value] = {}
    for node in nodes:
        known = {shardings[id] for id in graph.instructions_of(node.key) if id in shardings}
        found[node.key] = None if not known else known.pop() if len(known) == 1 else "several"
    return Overlay("sharding", "sharding of the results", found)


def user_values(values: Mapping[Any, Any], nodes: Sequence[Node], title: str, call: str) -> Overlay:
    """Return the overlay of values that the user provides.

    A node that represents several blocks shows their value if it is the same for all. If their values are different
    numbers, the node shows the range, such as `"3 to 5"`.

    Args:
        values: Numbers or texts, by path of a block or key of a node. `None`, NaN and infinities are shown as unknown,
            and a bool as `"yes"` or `"no"`.
        nodes: The nodes of the graph.
        title: Title of the values, with their unit.
        call: Code shown after `Try:`, in which `{}` is replaced by a path.

    Raises:
        UnknownOptionError: The graph has no node at a path; a value is neither a number nor a text; or there are both
            numbers and texts.

    Examples:
        >>> nodes = [Box("a", "a", "Relu", 9, 9, path="a"), Box("b", "b", "Relu", 9, 9, path="b")]
        >>> user_values({"a": 0.5}, nodes, "sparsity", "model.overlay({{{!r}: 0.5}})").values
        {'a': 0.5, 'b': None}
    """
    known: dict[str, None] = {}
    for node in nodes:
        known |= dict.fromkeys((node.key, *node.blocks, *((node.path,) if node.path else ())))
    strange = next((path for path in values if path not in known), None)
    if strange is not None:
        near = nearest(strange, list(known)) or next(iter(known), "")
        raise UnknownOptionError(
            f"the graph has no node {short_repr(strange)} to show a value on.",
            (("nodes", listed(list(known), 8) or "none"),),
            call.format(near),
        )
    plain = {path: _plain(value, path, call) for path, value in values.items()}
    kinds = {isinstance(value, str) for value in plain.values() if value is not None}
    if len(kinds) > 1:
        raise UnknownOptionError(
            "the values on a graph must be all numbers or all texts.",
            (("given", listed([short_repr(value, 20) for value in values.values()], 6)),),
            call.format(next(iter(values))),
        )
    found, texts = dict[str, Value](), dict[str, str]()
    for node in nodes:
        if node.key in plain:
            found[node.key] = plain[node.key]
        elif node.path in plain and not node.blocks:
            found[node.key] = plain[node.path]
        elif not _is_end(node):
            some = [plain[path] for path in node.blocks if path in plain]
            found[node.key] = _common(some, len(node.blocks))
            numbers = [value for value in some if isinstance(value, int | float)]
            if found[node.key] is None and len(numbers) > 1:
                texts[node.key] = f"{min(numbers):g} to {max(numbers):g}"
    return Overlay("own values", title, found, "", frozenset(), texts)


def _plain(value: Any, path: Any, call: str) -> Value:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    try:
        return known_number(value if isinstance(value, int) else float(value))
    except (TypeError, ValueError) as error:
        raise UnknownOptionError(
            f"the value of {path!r} is neither a number nor a text.",
            (("given", short_repr(value, 60)),),
            call.format(path),
        ) from error


def _common(values: Sequence[Value], count: int) -> Value:
    return values[0] if values and len(values) == count and len(set(values)) == 1 else None
