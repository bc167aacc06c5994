"""Build models from untrusted data, within limits on their size.

Each part is checked before the next is built. The time is linear in the size of the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Any, NamedTuple

from mithril_nb.errors import MithrilError, ModelFileError, listed, short_repr
from mithril_nb.graph.boundary import infer_boundary
from mithril_nb.graph.check import check_parts
from mithril_nb.graph.edit import DEEPEST, composite
from mithril_nb.graph.paths import NAME_LENGTH, component, join_path
from mithril_nb.graph.records import BOUNDARY, Block, Edge, Endpoint, LogicalGraph, Node, Note
from mithril_nb.graph.spec import MOST_AXES, as_dtype, as_shape
from mithril_nb.models.fields import Range, checked, fields_of, unmet_need
from mithril_nb.models.initializers import initializer_text
from mithril_nb.models.registry import KINDS, construct
from mithril_nb.models.rules import rules_named

Count = Annotated[int, Range(0, inf)]


@dataclass(frozen=True)
class LoadLimits:
    """The limits of a model that `ml.load(path, limits=...)` accepts. A larger model raises a `ModelFileError`.

    Attributes:
        file_bytes: Maximum size of the file, in bytes.
        nodes: Maximum number of blocks, including the inner blocks of a block such as `MLP`.
        edges: Maximum number of connections, labels (their names) and notes (the declared shape or dtype of a port).
        ports: Maximum number of inputs and outputs of all composite blocks together. A long name counts as several. An
            unconnected input of an inner block counts again for each block around it.
        depth: Maximum number of levels of models in models; at most 50.
        name_length: Maximum number of characters in the name of a block, a kind, a port or a dimension.
        text_length: Maximum number of characters in a string of an attribute.
        list_length: Maximum number of values in all lists of one block's attributes.
        rank: Maximum number of dimensions of a declared shape; at most 64.

    Raises:
        UnknownOptionError: A limit is not a non-negative integer, or `depth` or `rank` exceeds its maximum.

    Examples:
        >>> LoadLimits(nodes=1_000_000).nodes, LoadLimits().depth
        (1000000, 50)
    """

    file_bytes: Count = 100_000_000
    nodes: Count = 200_000
    edges: Count = 1_000_000
    ports: Count = 500_000
    depth: Annotated[int, Range(0, DEEPEST)] = DEEPEST
    name_length: Count = NAME_LENGTH
    text_length: Count = 100_000
    list_length: Count = 2_000_000
    rank: Annotated[int, Range(0, MOST_AXES)] = MOST_AXES

    def __post_init__(self) -> None:
        checked("ml.LoadLimits", fields_of(type(self)), vars(self))

    def check(self, name: str, count: int, unit: str, block: str = "", *, is_all: bool = True) -> None:
        """Raise if a count exceeds its limit.

        Args:
            name: The attribute with the limit, such as `"nodes"`.
            count: Number of items.
            unit: Plural noun of the counted items, such as `"blocks"`.
            block: Path of the block that contains the items; `""` for the whole model.
            is_all: True if `count` counts all items; false if there may be more.

        Raises:
            ModelFileError: `count` is above the limit.
        """
        limit = getattr(self, name)
        if count <= limit:
            return
        if name == "depth" and count > DEEPEST:
            raise ModelFileError(
                f"this model is nested too deeply: more than {DEEPEST} levels of models in models.",
                (("limit", f"{DEEPEST} levels, which LoadLimits cannot raise"),),
                f"save a model with at most {DEEPEST} levels of models in models.",
                block=block,
            )
        fields = {field.name: field for field in fields_of(type(self))}
        changed = {key: value for key, value in vars(self).items() if value != fields[key].default}
        wider = changed | {name: count if is_all else 10 * count}
        raise ModelFileError(
            f"this model is too large{f' inside {block!r}' if block else ''}: "
            f"{'' if is_all else 'at least '}{count:,} {unit}.",
            (("limit", f"{limit:,} {unit} (LoadLimits.{name})"),),
            f"ml.load(path, limits=ml.LoadLimits({', '.join(f'{key}={value:_}' for key, value in wider.items())}))"
            if not unmet_need(fields[name], count)  # depth and rank cannot rise: code that walks models relies on them
            else f"use a model with at most {limit:,} {unit}.",
            block=block,
        )


ADVICE = "ml.save(model, path)  # writes the file again; or restore an earlier copy of the file"


def graph_of(data: Any, limits: LoadLimits) -> LogicalGraph:
    """Build a graph from its data, as written by `to_dict`.

    Raises:
        ModelFileError: The data is broken, contradicts itself, or exceeds a limit.
    """
    return _Reader(limits).model(data)


def part_of(data: Any, key: str, kind: type, path: str = "") -> Any:
    """Return the value of `key` in `data`.

    Args:
        data: A dict.
        key: The key.
        kind: Required type of the value: `list`, `dict`, `str` or `bool`.
        path: Path of the block that the data describes, for the error message; `""` for the whole model.

    Raises:
        ModelFileError: `data` is not a dict, the key is missing, or the value has another type.
    """
    if not isinstance(data, dict):
        raise broken(f"expected an object with {key!r}, found {short_repr(data)}", path)
    if not isinstance(data.get(key), kind):
        keys = listed(map(short_repr, data), 200) if data else "nothing"
        actual = short_repr(data[key]) if key in data else f"only {keys}"
        raise broken(f"expected {key!r} to be {_JSON[kind]}, found {actual}", path)
    return data[key]


def check_keys(data: Mapping[str, Any], allowed: Collection[str], path: str = "") -> None:
    """Raise if the data has a key that is not in `allowed`, because its value would be lost.

    Raises:
        ModelFileError: A key is unknown.
    """
    if len(unknown := data.keys() - allowed):
        key = sorted(map(str, unknown))[0]
        raise broken(f"unknown key {short_repr(key)}, known are {listed(map(repr, allowed))}", path)


def json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the dict of a JSON object, given its pairs.

    Raises:
        ModelFileError: A key is repeated.
    """
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise broken(f"an object has the key {short_repr(twice)} twice", "")
    return parsed


def broken(reason: str, path: str) -> ModelFileError:
    """Return the error for data without the structure of a model."""
    return ModelFileError(f"this model is broken{_place(path)}.", (("because", reason),), ADVICE, block=path)


class _Level(NamedTuple):
    """One graph of a model, as data.

    Attributes:
        data: The data of the graph.
        around: The graph that contains this graph; `None` for the outermost graph.
        name: Name of the block that contains this graph.
        depth: 1 for the outermost graph, 2 for a graph inside it, and so on.
    """

    data: Any
    around: _Level | None
    name: str
    depth: int

    @property
    def path(self) -> str:
        """Path of the block that contains the graph. Not stored, because a file can have many long paths."""
        names, level = list[str](), self
        while level.around is not None:
            names.append(level.name)
            level = level.around
        return "/".join(map(component, reversed(names)))


def _count(levels: list[_Level], key: str) -> int:
    parts = (level.data.get(key) for level in levels if isinstance(level.data, dict))
    return sum(len(part) for part in parts if isinstance(part, list))


class _Reader:
    """Builds one model, of at most the sizes in `limits`."""

    def __init__(self, limits: LoadLimits):
        self.limits = limits
        self.nodes = 0  # including the inner blocks that constructors create
        self.ports = 0
        self.blocks: dict[tuple[str, str], Block] = {}  # equal blocks are built once
        self.graphs: dict[int, LogicalGraph] = {}  # the graphs built so far, by the `id` of their data

    def model(self, data: Any) -> LogicalGraph:
        """Build all graphs, inner ones first, and return the outermost."""  # no recursion: a deep stack is slow
        levels = self.levels(data)
        self.nodes = _count(levels, "nodes")
        self.limits.check("nodes", self.nodes, "blocks")
        edges = sum(_count(levels, key) for key in ("edges", "labels", "notes"))
        self.limits.check("edges", edges, "connections, labels and notes")
        for level in reversed(levels):
            self.graphs[id(level.data)] = self.graph(level.data, level.path)
        return self.graphs[id(data)]

    def levels(self, data: Any) -> list[_Level]:
        """Return a graph and all graphs inside it, outer before inner. Skips malformed data."""
        levels = [_Level(data, None, "", 1)]
        for level in levels:  # the loop appends to it
            self.limits.check("depth", level.depth, "levels of models in models", level.path)
            self.limits.check("nodes", len(levels) - 1, "blocks", is_all=False)  # ends if a dict contains itself
            nodes = level.data.get("nodes") if isinstance(level.data, dict) else None
            for node in nodes if isinstance(nodes, list) else ():
                if isinstance(node, dict) and isinstance(node.get("graph"), dict):
                    name = node.get("name")
                    name = name[: self.limits.name_length] if isinstance(name, str) else ""  # longer: rejected later
                    levels.append(_Level(node["graph"], level, name, level.depth + 1))
        return levels

    def graph(self, data: Any, path: str) -> LogicalGraph:
        nodes = tuple(self.node(node, path) for node in part_of(data, "nodes", list, path))
        edges = [
            Edge(Endpoint(a, b), Endpoint(c, d))
            for a, b, c, d in (self.texts(e, 4, path) for e in part_of(data, "edges", list, path))
        ]
        labels = [
            (name, Endpoint(node, port))
            for name, node, port in (self.texts(e, 3, path) for e in part_of(data, "labels", list, path))
        ]
        noted = [self.note(note, path) for note in (part_of(data, "notes", list, path) if "notes" in data else ())]
        notes = dict(noted)
        check_keys(data, ("nodes", "edges", "labels", "notes"), path)
        inputs = {edge.source.port: edge.source for edge in edges if edge.source.node == BOUNDARY}
        try:
            check_parts(nodes, edges, labels, path)
            graph = infer_boundary(nodes, edges, inputs | dict(labels), notes)
        except MithrilError as error:
            raise inconsistent(_because(error), path) from error
        _check_names(inputs, labels, path)
        if len(notes) < len(noted):
            raise inconsistent("two notes describe one port.", path)
        for end, note in noted:
            if end not in graph.note_at and note != Note():
                raise inconsistent(f"a note describes '{end}', which does not exist.", path)
        return graph

    def note(self, data: Any, path: str) -> tuple[Endpoint, Note]:
        end = Endpoint(*(self.text(part_of(data, key, str, path), path) for key in ("node", "port")))
        check_keys(data, ("node", "port", *_NOTE), path)
        shape, dtype, trainable, exposed, initializer = (
            part_of(data, key, kind, path) if data.get(key) is not None else None for key, kind in _NOTE.items()
        )
        for name in shape or ():
            if isinstance(name, str):
                self.text(name, path)
        self.limits.check("rank", len(shape or ()), "dimensions of a shape", path)
        self.text(initializer or "", path)
        try:
            return end, Note(
                None if shape is None else as_shape(end.port, shape),
                None if dtype is None else str(as_dtype(dtype)),
                trainable,
                bool(exposed),
                None if initializer is None else initializer_text(initializer),
            )
        except MithrilError as error:
            raise ModelFileError(
                f"the note of '{end}' cannot be read{_place(path)}.",
                (("because", _because(error)),),
                ADVICE,
                block=path,
            ) from error

    def node(self, data: Any, path: str) -> Node:
        name, kind = (self.text(part_of(data, key, str, path), path) for key in ("name", "kind"))
        where = join_path(path, name)
        check_keys(data, ("name", "kind", "attributes", "op", "graph"), where)
        attributes = part_of(data, "attributes", dict, path) if "attributes" in data else {}
        graph = None
        if kind == "Model" or "graph" in data:
            graph = self.graphs[id(part_of(data, "graph", dict, path))]
        rules = rules_named(kind)
        runs_others = rules is not None and rules.runs_others
        if "op" in data:  # older files leave it to the kind
            runs_others = runs_others and bool(part_of(data, "op", str, path))
        if graph is not None and not runs_others:
            # The inner graph is read as saved. No constructor runs, so the kind need not be registered.
            block, lost = composite(graph, kind), attributes
        else:
            if runs_others and graph is None:
                raise broken("expected 'graph', found none", where)
            block = self.block(kind, graph, attributes, where)
            lost = attributes.keys() - block.options.keys()
        if lost:
            raise broken(f"{kind} has no attributes {listed(map(short_repr, lost))}", where)
        if data.get("op", block.op) != block.op:
            raise broken(f"expected 'op' of {kind} to be {block.op!r}, found {short_repr(data['op'])}", where)
        if block.graph is not None:
            ports = (port.name for port in (*block.inputs, *block.outputs))
            self.ports += sum(1 + (len(name) + len(port)) // 64 for port in ports)
            self.limits.check("ports", self.ports, "ports of composite blocks", where, is_all=False)
        return Node(name, block)

    def block(self, kind: str, graph: LogicalGraph | None, attributes: Mapping[str, Any], path: str) -> Block:
        """Return a block, built by its constructor. Its inner blocks count for the limit `nodes`.

        Raises:
            ModelFileError: The constructor rejects an argument, or the block exceeds a limit.
        """
        length = sum(self.length(value, path) for value in attributes.values())
        self.limits.check("list_length", length, "values in the lists of one block", path)
        key = (kind, repr(attributes) if graph is None and length < 100 else "")
        if key in self.blocks:
            self.count(self.blocks[key], path)
            return self.blocks[key]
        if kind in KINDS and rules_named(kind) is None:  # such as MLP: at least one block per value in hidden_sizes
            self.limits.check("nodes", self.nodes + length, "blocks", path, is_all=False)
        try:
            block = construct(kind, graph, attributes).block
            if graph is not None and block.graph != graph:
                raise ValueError("it contains more than the blocks that it runs")
        except RecursionError:
            raise
        except Exception as error:  # a user-defined kind may raise anything
            raise ModelFileError(
                f"block {path!r} of this model cannot be built.", (("because", _because(error)),), ADVICE, block=path
            ) from error
        if key[1]:
            self.blocks[key] = block
        if graph is None:
            self.count(block, path)
        return block

    def count(self, block: Block, path: str) -> None:
        """Add the number of blocks inside a block to `nodes`, and check the limit."""
        if block.graph is not None:
            self.nodes += sum(1 for _ in block.graph.walk())
            self.limits.check("nodes", self.nodes, "blocks", path, is_all=False)

    def length(self, value: Any, path: str) -> int:
        """Return the number of values in nested lists and dicts. Checks the length of each string in them."""
        count, left = 0, [value]
        while left:
            entry = left.pop()
            if isinstance(entry, str):
                self.limits.check("text_length", len(entry), "characters in a text", path)
            elif isinstance(entry, list | tuple | dict):
                count += len(entry)
                left.extend(entry.values() if isinstance(entry, dict) else entry)
        return count

    def text(self, text: str, path: str) -> str:
        if len(text) > self.limits.name_length:
            self.limits.check("name_length", len(text), "characters in a name", path)
        return text

    def texts(self, data: Any, count: int, path: str) -> list[str]:
        if not isinstance(data, list) or len(data) != count or not all(isinstance(text, str) for text in data):
            raise broken(f"expected a list of {count} strings, found {short_repr(data)}", path)
        if max(map(len, data)) > self.limits.name_length:
            for text in data:
                self.text(text, path)
        return data


def _check_names(inputs: Collection[str], labels: list[tuple[str, Endpoint]], path: str) -> None:
    """Raise if a name is invalid, or refers to two connections, or to none.

    Args:
        inputs: Names of the inputs that blocks read.
        labels: Names of connections, each with its endpoint.
        path: Path of the block that contains the graph.

    Raises:
        ModelFileError: A name has a dot, names an input that no block reads, or names an input and an output.
    """
    for name in (*inputs, *(label for label, _ in labels)):
        if "." in name:
            raise inconsistent(f"the name {name!r} has a dot, which separates a block from its port.", path)
    for label, end in labels:
        if end.node == BOUNDARY and label not in inputs:
            raise inconsistent(f"the label {label!r} names an input that no block reads.", path)
        if end.node != BOUNDARY and label in inputs:
            raise inconsistent(f"{label!r} is the name of an input and of the output '{end}'.", path)


def _because(error: Exception) -> str:
    """Return the text of an error without its advice, which does not repair a file."""
    if isinstance(error, MithrilError):
        return "\n".join(str(replace(diagnostic, advice="")) for diagnostic in error.diagnostics)
    return str(error) if isinstance(error, TypeError | ValueError) else repr(error)


def inconsistent(because: str, path: str) -> ModelFileError:
    """Return the error for parts of a model that contradict each other."""
    return ModelFileError(f"this model is inconsistent{_place(path)}.", (("because", because),), ADVICE, block=path)


def _place(path: str) -> str:
    return f" inside {path!r}" if path else ""


_NOTE = {"shape": list, "dtype": str, "is_trainable": bool, "is_exposed": bool, "initializer": str}
_JSON = {list: "a list", dict: "an object", str: "text", bool: "true or false"}
