"""Graphs as plain data and as JSON files. Loading runs no code."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from mithril_nb.atomic_write import write_text
from mithril_nb.errors import MithrilError, ModelFileError, UnknownOptionError, listed, short_repr
from mithril_nb.graph.boundary import infer_boundary, made_edges
from mithril_nb.graph.check import check_parts
from mithril_nb.graph.edit import DEEPEST, composite
from mithril_nb.graph.paths import NAME_LENGTH, component, join_path
from mithril_nb.graph.records import BOUNDARY, Block, Edge, Endpoint, LogicalGraph, Node, Note
from mithril_nb.graph.spec import MOST_AXES, as_dtype, as_shape
from mithril_nb.models.fields import Range, checked, fields_of
from mithril_nb.models.initializers import initializer_text
from mithril_nb.models.registry import KINDS, construct
from mithril_nb.models.rules import BodyRules, rules_named

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
        """Raise if the number of items inside a block exceeds its limit; `is_all` is false if there may be more."""
        limit = getattr(self, name)
        if count <= limit:
            return
        can_rise = name not in ("depth", "rank")  # code that walks models relies on them
        raise ModelFileError(
            f"this model is too large{_place(block)}: {'' if is_all else 'at least '}{count:,} {unit}.",
            (("limit", f"{limit:,} {unit} (LoadLimits.{name})"),),
            f"ml.load(path, limits=ml.LoadLimits({name}={count if is_all else 10 * count:_}))" if can_rise else "",
            block=block,
        )


ADVICE = "ml.save(model, path)  # writes the file again; or restore an earlier copy of the file"


def part_of(data: Any, key: str, kind: type, path: str = "") -> Any:
    """Return the value of `key` in `data`.

    Args:
        data: A dict.
        key: The key.
        kind: Required type of the value: `list`, `dict`, `str`, `bool` or `int`.
        path: Path of the block that the data describes, for the error message; `""` for the whole model.
    """
    if not isinstance(data, dict):
        raise broken(f"expected an object with {key!r}, found {short_repr(data)}", path)
    if not isinstance(data.get(key), kind):
        actual = short_repr(data[key]) if key in data else "nothing"
        raise broken(f"expected {key!r} to be {_JSON[kind]}, found {actual}", path)
    return data[key]


def check_keys(data: Mapping[str, Any], allowed: Collection[str], path: str = "") -> None:
    """Raise if the data has a key that is not in `allowed`, because its value would be lost."""
    if len(unknown := data.keys() - allowed):
        key = sorted(map(str, unknown))[0]
        raise broken(f"unknown key {short_repr(key)}, known are {listed(map(repr, allowed))}", path)


def json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the dict of a JSON object, given its pairs."""
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise broken(f"an object has the key {short_repr(twice)} twice", "")
    return parsed


def broken(reason: str, path: str, state: str = "broken") -> ModelFileError:
    """Return the error for data without the structure of a model, or in the state `"inconsistent"`."""
    return ModelFileError(f"this model is {state}{_place(path)}.", (("because", reason),), ADVICE, block=path)


class _Level(NamedTuple):
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


class _ModelReader:
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
            raise broken(_because(error), path, "inconsistent") from error
        _check_names(inputs, labels, path)
        if len(notes) < len(noted):
            raise broken("two notes describe one port.", path, "inconsistent")
        for end, note in noted:
            if end not in graph.note_at and note != Note():
                raise broken(f"a note describes '{end}', which does not exist.", path, "inconsistent")
        return graph

    def note(self, data: Any, path: str) -> tuple[Endpoint, Note]:
        end = Endpoint(*(self.text(part_of(data, key, str, path), path) for key in ("node", "port")))
        check_keys(data, ("node", "port", *_NOTE), path)
        shape, dtype, trainable, exposed, initializer, order = (
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
                order,
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
        runs_others = rules is not None and issubclass(rules, BodyRules)
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
        """Return a block, built by its constructor. Its inner blocks count for the limit `nodes`."""
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
    for name in (*inputs, *(label for label, _ in labels)):
        if "." in name:
            raise broken(f"the name {name!r} has a dot, which separates a block from its port.", path, "inconsistent")
    for label, end in labels:
        if end.node == BOUNDARY and label not in inputs:
            raise broken(f"the label {label!r} names an input that no block reads.", path, "inconsistent")
        if end.node != BOUNDARY and label in inputs:
            raise broken(f"{label!r} is the name of an input and of the output '{end}'.", path, "inconsistent")


def _because(error: Exception) -> str:
    # Without the advice, which does not repair a file.
    if isinstance(error, MithrilError):
        return "\n".join(str(replace(diagnostic, advice="")) for diagnostic in error.diagnostics)
    return str(error) if isinstance(error, TypeError | ValueError) else repr(error)


def _place(path: str) -> str:
    return f" inside {path!r}" if path else ""


_NOTE = {"shape": list, "dtype": str, "is_trainable": bool, "is_exposed": bool, "initializer": str, "order": int}
_JSON = {list: "a list", dict: "an object", str: "text", bool: "true or false", int: "a whole number"}


MARK = "#model="
"""Start of the fragment."""
MOST_CHARACTERS = 8_000
"""Maximum number of characters of the fragment. Browsers, mail and chat programs keep links of this length whole."""
_MOST_BYTES = 2_000_000
"""Maximum number of bytes of the data before compression."""
_RAW = -zlib.MAX_WBITS
_ADVICE = "model.share_link()  # creates the link again; copy all of it"


def is_link(text: object) -> bool:
    """Return whether a value is a string that contains `MARK`."""
    return isinstance(text, str) and MARK in text


def fragment_of(data: Mapping[str, Any]) -> str:
    """Return the fragment of a link that contains data: JSON, compressed as raw deflate, in URL-safe base64.

    Examples:
        >>> data_in(fragment_of({"model": 1}))
        {'model': 1}
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, _RAW)
    packed = packer.compress(json.dumps(data, separators=(",", ":")).encode()) + packer.flush()
    fragment = MARK + base64.urlsafe_b64encode(packed).decode().rstrip("=")
    if len(fragment) > MOST_CHARACTERS:
        raise ModelFileError(
            "this model is too large for a link.",
            (("needs", f"{len(fragment):,} characters"), ("limit", f"{MOST_CHARACTERS:,} characters")),
            'model.save("model.json")  # share the file',
        )
    return fragment


def data_in(link: str) -> Any:
    """Return the JSON data in the fragment of a link. It may be something other than a model."""
    text = link.partition(MARK)[2]
    if len(MARK) + len(text) > MOST_CHARACTERS:
        raise _broken(f"it has {len(MARK) + len(text):,} characters, and the limit is {MOST_CHARACTERS:,}")
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        reader = zlib.decompressobj(_RAW)
        data = reader.decompress(packed, _MOST_BYTES)
        if reader.unconsumed_tail:
            raise _broken(f"its data has more than {_MOST_BYTES:,} bytes")
        if not reader.eof:
            raise ValueError("the end is missing")
        return json.loads(data, object_pairs_hook=json_object)
    except ModelFileError:
        raise
    except (zlib.error, ValueError, RecursionError) as error:
        raise _broken("it is damaged, or a part is missing") from error


def _broken(because: str) -> ModelFileError:
    return ModelFileError("cannot read this link to a model.", (("because", because),), _ADVICE)


FORMAT, VERSION = "mithril_nb.model", 2
"""Version 2 added notes, composite kinds, and blocks that run others. Version 1 can still be read."""
_CHUNK = 1 << 20
SAVE_ADVICE = 'ml.save(model, "model.json")'


def graph_to_dict(graph: LogicalGraph, name: str) -> dict[str, Any]:
    """Return a graph and the name of a model as JSON-serialisable data."""
    return {"format": FORMAT, "version": VERSION, "name": name, "graph": _graph_data(graph)}


def graph_from_dict(data: Mapping[str, Any], limits: LoadLimits | None) -> tuple[LogicalGraph, str | None]:
    """Return the graph and the name of a model, given the result of `graph_to_dict`. A model without a name has `None`.

    `limits` are the sizes that a model may have; `None` for the default limits.
    """
    limits = _checked_limits(limits)
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ModelFileError(
            "this is not a model.", (("needs", f'"format": "{FORMAT}"'), ("found", short_repr(data))), ADVICE
        )
    if type(version := data.get("version")) is not int or version < 1:
        raise broken(f"expected 'version' to be a whole number of at least 1, found {short_repr(version)}", "")
    if version > VERSION:
        raise ModelFileError(
            f"this model was written in version {short_repr(version)} of the format.",
            (("supported", f"versions 1 to {VERSION}"),),
            "pip install --upgrade mithril-nb",
        )
    data = dict(data)
    name = part_of(data, "name", str)
    limits.check("name_length", len(name), "characters in a name")
    check_keys(data, ("format", "version", "name", "graph"))
    try:
        return _ModelReader(limits).model(data.get("graph")), name or None
    except RecursionError as error:
        raise broken("its values are nested too deep", "") from error


def save_graph(graph: LogicalGraph, name: str, path: str | Path) -> None:
    """Write a graph and the name of a model to a JSON file."""
    check_path(path, "save to", SAVE_ADVICE)
    text = json.dumps(graph_to_dict(graph, name), indent=1, ensure_ascii=False)
    try:
        # UTF-8 cannot encode half a surrogate pair in a name; JSON's own escape can.
        write_text(path, text + "\n", errors="backslashreplace")
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise ModelFileError(f"cannot write {str(path)!r}.", (("because", _why(error)),), SAVE_ADVICE) from error


def load_graph(path: str | Path, limits: LoadLimits | None) -> tuple[LogicalGraph, str | None]:
    """Return the graph and the name of a model from a JSON file. A model without a name has `None`.

    Args:
        path: The path of the file, or a link from `Model.share_link`.
        limits: The sizes that a model may have; `None` for the default limits.
    """
    check_path(path, "load", 'ml.load("model.json")')
    limits = _checked_limits(limits)
    if is_link(path):
        return graph_from_dict(part_of(data_in(str(path)), "model", dict), limits)
    try:
        # Without a variable for the bytes, their memory is freed before the model is built.
        data = json.loads(_bytes_of(path, limits).decode("utf-8"), object_pairs_hook=json_object)
    except ModelFileError:
        raise
    except (ValueError, RecursionError) as error:
        because = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ModelFileError(f"{str(path)!r} is not valid JSON.", (("because", because),), ADVICE) from error
    try:
        return graph_from_dict(data, limits)
    except ModelFileError as error:
        (problem,) = error.diagnostics
        named = replace(problem, facts=(("file", str(path)), *problem.facts))
        raise type(error)(named) from error.__cause__


def _bytes_of(path: str | Path, limits: LoadLimits) -> bytearray:
    read = bytearray()
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            limits.check("file_bytes", size, "bytes")
            most = (size or limits.file_bytes) + 1  # a pipe and a device have no size
            while chunk := file.read(min(_CHUNK, most - len(read))):
                read += chunk
    except ModelFileError:
        raise
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot read {str(path)!r}.", (("because", _why(error)),)) from error
    limits.check("file_bytes", len(read), "bytes", is_all=False)
    return read


def _checked_limits(limits: Any) -> LoadLimits:
    if limits is not None and not isinstance(limits, LoadLimits):
        raise UnknownOptionError(
            f"cannot load within {short_repr(limits)}.",
            (("needs", "a LoadLimits, or None"),),
            "ml.load(path, limits=ml.LoadLimits(nodes=1_000_000))",
        )
    return limits or LoadLimits()


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def check_path(path: Any, action: str, advice: str) -> None:
    """Raise if a value is neither a string nor an `os.PathLike`.

    Args:
        path: The value.
        action: The failed action, for the message: `"load"`, as in "cannot load 3".
        advice: Code that works, for the message.
    """
    if not isinstance(path, str | os.PathLike):
        raise UnknownOptionError(f"cannot {action} {short_repr(path)}.", (("needs", "the path of a file"),), advice)


def _graph_data(graph: LogicalGraph) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    for node in graph.nodes:
        block = node.block
        nodes.append({"name": node.name, "kind": block.kind})
        if block.attributes:
            nodes[-1]["attributes"] = dict(block.attributes)
        if block.graph is not None and not (block.is_composite and block.attributes):
            # The op is stored too, because a user-defined composite may have the same kind as a built-in op.
            nodes[-1] |= {"op": block.op, "graph": _graph_data(block.graph)}
    data: dict[str, Any] = {
        "nodes": nodes,
        # Without the edges that `infer_boundary` creates again when the data is loaded.
        "edges": [[e.source.node, e.source.port, e.target.node, e.target.port] for e in made_edges(graph)],
        "labels": [[name, end.node, end.port] for name, end in graph.labels],
    }
    if graph.notes:
        data["notes"] = [
            {"node": end.node, "port": end.port}
            | {
                key: list(value) if key == "shape" else value
                for key in _NOTE
                if (value := getattr(note, key)) is not None and (value or key != "is_exposed")
            }
            for end, note in graph.notes
        ]
    return data
