"""The values of overlays: costs, memory, roles, dtypes, shardings and own values, by node of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.figures import MEASURED, SENT
from mithril_nb.graph.records import BlockSpecs
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.graph.stage_graph import StageGraph
from mithril_nb.stages.records import ROLES
from mithril_nb.viz import units
from mithril_nb.viz.costs.fields import Data, Field, is_bound, unit_of
from mithril_nb.viz.diagrams.nested import SHARED, Box
from mithril_nb.viz.diagrams.overlays import Overlay, Value, known_number
from mithril_nb.viz.text import listed, one_line, outer_paths

TOGETHER = "Σ: the sum over all calls of a function, not the cost of a single call"
# Pairs of a source of costs and a stage. The costs contain a row for each instruction of this stage.
_ROWS_OF = {("analytic", "jaxpr"), ("lowered", "hlo_before"), ("compiled", "hlo"), ("measured", "hlo")}


def has_groups(data: Data) -> bool:
    """Return whether a block with costs contains others, so that costs with and without inner blocks differ."""
    return any("/" in path for path in data["by_block"])


def inclusive(data: Data, field: str) -> dict[str, float | None]:
    """Return the cost of each block with the blocks inside it.

    Unknown parts are left out. The cost is `None` if all parts are unknown.
    """
    totals: dict[str, float | None] = {}
    for path, figures in data["by_block"].items():
        value = _figure(figures, field)
        for above in outer_paths(path):
            before = totals.setdefault(above, None)
            if value is not None:
                totals[above] = (before or 0) + value
    return totals


# The data leave out bytes of communication that are 0, as in most programs.
def _figure(figures: Mapping[str, Any], field: str) -> float | None:
    return known_number(figures.get(field, 0 if field in SENT else None))


def cost_values(
    data: Data, nodes: Iterable[Box], kind: Field, *, own: bool = False, graph: StageGraph | None = None
) -> Overlay:
    """Return a cost as an overlay.

    Args:
        data: The costs: `Cost.to_dict()`.
        nodes: The nodes of the graph.
        kind: The cost to show.
        own: If true, the number of a block excludes the blocks inside it.
        graph: The graph of the stage; `None` for the graph of a model.
    """
    sums = _Sums(data, kind.name, graph, own=own)
    by_key, bounds, texts = dict[str, Value](), set[str](), dict[str, str]()
    for node in nodes:
        if node.is_pill or node.kind == "input":
            continue
        total, is_least = sums.of_paths(node.blocks or (node.path,)) if graph is None else sums.of_node(graph, node.key)
        # Without a number, a formula or the sum over all calls is more useful than `?`.
        if total is None and (graph is None or (node.kind == "block" and node.path)):
            formula = (data["by_block"].get(node.path, {}).get("formulas") or {}).get(kind.name)
            if formula:
                texts[node.key] = one_line(f"{formula} {unit_of(kind)}".strip())
            elif not is_least and (together := sums.values.get(node.path)) is not None:
                texts[node.key] = f"Σ {kind.short(together)}"
        by_key[node.key] = total
        if is_least and total is not None:
            bounds.add(node.key)
    notes = (TOGETHER,) if any(text.startswith("Σ") for text in texts.values()) else ()
    title = units.titled(kind.title, own=own, has_groups=has_groups(data))
    source = data.get("source", "analytic")
    title = title if source == "analytic" else f"{title}, {source}"
    total = _figure(data["total"], kind.name)
    return Overlay(kind.name, title, by_key, unit_of(kind), frozenset(bounds), texts, total, notes)


# Sums are pairs: the number, `None` if nothing is known, and whether it is a lower bound.
_Sum = tuple[float | None, bool]


class _Sums:
    def __init__(self, data: Data, field: str, graph: StageGraph | None, *, own: bool):
        by_block = data["by_block"]
        self.own, self.is_time = own, field in MEASURED
        self.values = {path: _figure(figures, field) for path, figures in by_block.items()}
        self.least = {path for path, value in self.values.items() if value is None or is_bound(by_block[path], field)}
        if not own:
            self.values = inclusive(data, field)
            self.least = {above for path in self.least for above in outer_paths(path)}
        # The cost of a block without an entry.
        is_unknown = data["total"].get(field) is None and field not in SENT
        self.nothing = None if is_unknown else 0
        self.rows: dict[str, tuple[float | None, frozenset[str]]] | None = None
        # Parameters belong to blocks, not to equations.
        if graph is not None and "rows" in data and (data.get("source"), graph.stage) in _ROWS_OF and field != "params":
            self.rows = {row["id"]: (_figure(row, field), frozenset(row["blocks"])) for row in data["rows"]}

    def of_node(self, graph: StageGraph, key: str) -> _Sum:
        """Return the cost of a node.

        With inner blocks, the cost is the sum over all instructions in the node. Their blocks may have other paths: a
        function that calls the block `net` inside and outside a loop is a node with a part of `net`.
        """
        keys = graph.represented_by(key)
        is_whole = graph.nodes[key].block != "" and graph.is_whole_block(key)
        if self.rows is None or (self.own and is_whole):
            paths = [graph.nodes[member].block for member in keys]
            if not self.own:
                paths += [graph.nodes[inner].block for inner in _inside(graph, keys) if graph.is_whole_block(inner)]
            return self.of_paths(paths) if is_whole else (None, False)
        ids: Iterable[str] = (id for member in keys for id in graph.instructions_of(member))
        if graph.stage == "jaxpr":
            # Equations inside a call have their own nodes, which may be in other blocks.
            pairs = ((id, equation) for id in ids for equation in graph.equations.get(id, ()))
            ids = (equation for id, equation in pairs if equation == id or equation not in graph.home)
        # The own cost of a node excludes instructions that belong to several blocks.
        path = {graph.nodes[key].block}
        rows = [self.rows[id] for id in dict.fromkeys(ids) if id in self.rows]
        numbers = [value for value, blocks in rows if not (self.own and blocks - path)]
        if numbers and all(value is None for value in numbers):
            return None, True
        # An instruction inside a fusion has no time, but the time of the fusion includes it, so the sum is exact.
        return sum(value or 0 for value in numbers), None in numbers and not self.is_time

    def of_paths(self, paths: Iterable[str]) -> _Sum:
        """Return the cost of blocks. With inner blocks, a block inside another one does not count again."""
        each = dict.fromkeys(paths)
        counted = [path for path in each if self.own or not any(above in each for above in outer_paths(path)[:-1])]
        values = [self.values.get(path, self.nothing) for path in counted]
        numbers = [value for value in values if value is not None]
        is_least = len(numbers) < len(values) or not self.least.isdisjoint(counted)
        return (sum(numbers) if numbers else None), is_least


def node_shares(data: Data, field: str, graph: StageGraph) -> dict[str, float]:
    """Return the share of the cost of each node with room for it, by key. Nodes with an unknown share are left out."""
    total, sums = _figure(data["total"], field), _Sums(data, field, graph, own=False)
    groups = [key for key, node in graph.nodes.items() if key and node.kind in SHARED and key not in graph.hidden]
    by_key = {key: sums.of_node(graph, key) for key in groups} if total else {}
    return {
        key: part / total for key, (part, is_least) in by_key.items() if total and part is not None and not is_least
    }


def _inside(graph: StageGraph, keys: Iterable[str]) -> Iterator[str]:
    waiting = [child for key in keys for child in graph.nodes[key].children]
    while waiting:
        key = waiting.pop()
        yield key
        waiting += graph.nodes[key].children


def memory_values(
    at_peak: Mapping[str, int], nodes: Iterable[Box], source: str, *, own: bool, graph: StageGraph | None = None
) -> Overlay:
    """Return the memory at the peak as an overlay."""
    by_block = {path: {"peak_bytes": size} for path, size in at_peak.items() if path}
    data = {"by_block": by_block, "total": {"peak_bytes": 0}, "source": source}
    kind = Field("peak_bytes", "memory at the peak", units.nbytes, units.nbytes)
    overlay = cost_values(data, nodes, kind, own=own, graph=graph)
    return replace(overlay, name="memory", unit="B", total=sum(at_peak.values()))


def role_values(nodes: Iterable[Box]) -> Overlay:
    """Return the roles of the instructions in each node as an overlay."""
    values: dict[str, Value] = {}
    for node in nodes:
        if node.counts and node.kind != "input":
            named = [role for role, count in zip(ROLES, node.counts, strict=False) if count]
            values[node.key] = "every role" if len(named) == len(ROLES) else " + ".join(named) or None
    return Overlay("role", "role", values)


def dtype_values(nodes: Iterable[Box], dtypes: Mapping[str, str]) -> Overlay:
    """Return the dtypes of results as an overlay."""
    values: dict[str, Value] = {}
    for node in nodes:
        dtype = dtypes.get(node.key) or next((dtypes[path] for path in node.blocks[-1:] if path in dtypes), None)
        if dtype or not (node.is_pill or node.kind == "input"):
            values[node.key] = dtype
    return Overlay("dtype", "dtype of the result", values)


def dtypes_of_stage(graph: StageGraph) -> dict[str, str]:
    """Return the dtype of the largest result of each node of a stage's graph, by key. Unknown dtypes are left out."""
    return {key: node.dtype for key, node in graph.nodes.items() if node.dtype}


def dtypes_of_model(specs: Mapping[str, BlockSpecs]) -> dict[str, str]:
    """Return the dtype of the first output of each block, by path."""
    first = {path: next(iter(block.outputs.values()), None) for path, block in specs.items()}
    return {path: str(spec.dtype) for path, spec in first.items() if isinstance(spec, TensorSpec)}


def sharding_values(nodes: Iterable[Box], graph: StageGraph, shardings: Mapping[str, str]) -> Overlay:
    """Return the overlay of the sharding of each node's results: `"several"` if they differ."""
    values: dict[str, Value] = {}
    for node in nodes:
        of_node = {shardings[id] for id in graph.instructions_of(node.key) if id in shardings}
        values[node.key] = None if not of_node else of_node.pop() if len(of_node) == 1 else "several"
    return Overlay("sharding", "sharding of the results", values)


def user_values(values: Mapping[Any, Any], nodes: Sequence[Box], title: str) -> Overlay:
    """Return values of the user, by path of the block or key of the node, as an overlay.

    A node that represents several blocks shows their value if it is the same for all. If their values are different
    numbers, the node shows the range, such as `"3 to 5"`.
    """
    names: dict[str, None] = {}
    for node in nodes:
        names |= dict.fromkeys((node.key, *node.blocks, *((node.path,) if node.path else ())))
    strange = next((path for path in values if path not in names), None)
    if strange is not None:
        raise UnknownOptionError(
            f"the graph has no node {short_repr(strange)} to show a value on.",
            (("nodes", listed(list(names), 8) or "none"),),
        )
    plain = {path: _plain(value, path) for path, value in values.items()}
    if len({isinstance(value, str) for value in plain.values() if value is not None}) > 1:
        raise UnknownOptionError(
            "the values on a graph must be all numbers or all texts.",
            (("given", listed([short_repr(value, 20) for value in values.values()], 6)),),
        )
    by_key, texts = dict[str, Value](), dict[str, str]()
    for node in nodes:
        if node.key in plain:
            by_key[node.key] = plain[node.key]
        elif node.path in plain and not node.blocks:
            by_key[node.key] = plain[node.path]
        elif not (node.is_pill or node.kind == "input"):
            several = [plain[path] for path in node.blocks if path in plain]
            is_common = several and len(several) == len(node.blocks) and len(set(several)) == 1
            by_key[node.key] = several[0] if is_common else None
            numbers = [value for value in several if isinstance(value, int | float)]
            if by_key[node.key] is None and len(numbers) > 1:
                texts[node.key] = f"{min(numbers):g} to {max(numbers):g}"
    return Overlay("own values", title, by_key, "", frozenset(), texts)


def _plain(value: Any, path: Any) -> Value:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    try:
        return known_number(value if isinstance(value, int) else float(value))
    except (TypeError, ValueError) as error:
        raise UnknownOptionError(
            f"the value of {path!r} is neither a number nor a text.", (("given", short_repr(value, 60)),)
        ) from error
