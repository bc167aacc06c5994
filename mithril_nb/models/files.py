"""Models as plain data: dicts and JSON files. Loading runs no code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mithril_nb.atomic_write import write_text
from mithril_nb.errors import MithrilError, ModelFileError, UnknownOptionError, short_repr
from mithril_nb.graph.check import check_parts
from mithril_nb.graph.closing import closed, made_edges
from mithril_nb.graph.edit import DEEPEST, composite
from mithril_nb.graph.paths import join_path
from mithril_nb.graph.records import Block, Edge, Endpoint, LogicalGraph, Node, Note
from mithril_nb.graph.spec import as_dtype, as_shape
from mithril_nb.models.control import Control
from mithril_nb.models.initializers import initializer_text
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS, kind_named

FORMAT, VERSION = "mithril_nb.model", 2
"""Version 2 has notes, kinds that compose themselves, and blocks that run others; files of version 1 are read too."""
_SAVE = 'ml.save(model, "model.json")'
_ADVICE = "ml.load(path) of a file that ml.save(model, path) wrote."


def to_dict(model: LogicalGraph | Model, name: str = "") -> dict[str, Any]:
    """Return a model as JSON-able data.

    Args:
        model: The model, or its graph.
        name: What the model is called; by default as it calls itself.

    Examples:
        >>> to_dict(Model(name="net"))["name"]
        'net'
    """
    graph = model if isinstance(model, LogicalGraph) else model.graph
    if isinstance(model, Model):
        name = name or model.name or ""
    return {"format": FORMAT, "version": VERSION, "name": name, "graph": _graph_data(graph)}


def from_dict(data: Mapping[str, Any]) -> Model:
    """Return the model that `to_dict` wrote.

    Raises:
        ModelFileError: The data is no model, of a later version, or broken.

    Examples:
        >>> from mithril_nb.models import MLP
        >>> from_dict(to_dict(MLP(4, [3], 2).graph)).graph == MLP(4, [3], 2).graph
        True
    """
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ModelFileError(
            "this is no model.", (("needs", f'"format": "{FORMAT}"'), ("found", short_repr(data))), _ADVICE
        )
    if data.get("version") not in (1, VERSION) or type(data["version"]) is not int:
        raise ModelFileError(
            f"this model was written in version {data.get('version')!r} of the format.",
            (("read here", f"version 1 to {VERSION}"),),
            "pip install --upgrade mithril-nb",
        )
    try:
        return Model.of(_graph_from(data.get("graph"), "", 1), _part(data, "name", str, "") or None)
    except RecursionError as error:
        raise _broken("its values are nested too deep", "") from error


def save(model: Model, path: str | Path) -> None:
    """Write a model's structure to a JSON file. Parameters are arrays, and not part of it.

    Args:
        model: The model.
        path: Where to.

    Raises:
        UnknownOptionError: It is no model, or no path.
        ModelFileError: The file cannot be written.
    """
    if not isinstance(model, Model):
        raise UnknownOptionError(f"cannot save {short_repr(model)}.", (("needs", "a model"),), _SAVE)
    _check_path(path, "save to", _SAVE)
    text = json.dumps(to_dict(model.graph, model.name or ""), indent=1, ensure_ascii=False)
    try:
        # UTF-8 has no bytes for half a character in a name: it is written as JSON's own escape for it.
        write_text(path, text + "\n", errors="backslashreplace")
    except (OSError, ValueError) as error:  # ValueError: no path has a zero byte
        raise ModelFileError(f"cannot write {str(path)!r}.", (("because", _why(error)),), _SAVE) from error


def load(path: str | Path) -> Model:
    """Read a model from a JSON file. Nothing in the file is run.

    Raises:
        UnknownOptionError: It is no path.
        ModelFileError: There is no such file, or it is no model, or broken.
    """
    _check_path(path, "load", 'ml.load("model.json")')
    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot read {str(path)!r}.", (("because", _why(error)),)) from error
    try:
        data = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        because = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ModelFileError(f"{str(path)!r} is no JSON.", (("because", because),), _ADVICE) from error
    return from_dict(data)


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _check_path(path: Any, what: str, advice: str) -> None:
    if not isinstance(path, str | os.PathLike):
        raise UnknownOptionError(f"cannot {what} {short_repr(path)}.", (("needs", "the path of a file"),), advice)


def _graph_data(graph: LogicalGraph) -> dict[str, Any]:
    """What a person made; inputs and outputs follow from it, see `mithril_nb.graph.closing`."""
    return {
        "nodes": [_node_data(node) for node in graph.nodes],
        "edges": [[e.source.node, e.source.port, e.target.node, e.target.port] for e in made_edges(graph)],
        "labels": [[name, end.node, end.port] for name, end in graph.labels],
        **({"notes": [_note_data(end, note) for end, note in graph.notes]} if graph.notes else {}),
    }


def _note_data(end: Endpoint, note: Note) -> dict[str, Any]:
    said = {
        "shape": None if note.shape is None else list(note.shape),
        "dtype": note.dtype,
        "is_trainable": note.is_trainable,
        "is_exposed": note.is_exposed or None,
        "initializer": note.initializer,
    }
    return {"node": end.node, "port": end.port, **{key: value for key, value in said.items() if value is not None}}


def _note_from(data: Any, path: str) -> tuple[Endpoint, Note]:
    end = Endpoint(_part(data, "node", str, path), _part(data, "port", str, path))
    shape, dtype, trainable, exposed, initializer = (
        _part(data, key, kind, path) if data.get(key) is not None else None for key, kind in _NOTE.items()
    )
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
            f"what this model says of {str(end)!r} cannot be{_place(path)}.",
            (("because", str(error)),),
            _ADVICE,
            block=path,
        ) from error


_NOTE = {"shape": list, "dtype": str, "is_trainable": bool, "is_exposed": bool, "initializer": str}


def _node_data(node: Node) -> dict[str, Any]:
    block = node.block
    data: dict[str, Any] = {"name": node.name, "kind": block.kind}
    if block.attributes:
        data["attributes"] = dict(block.attributes)
    if block.graph is not None and not (block.is_composite and block.attributes):
        # A model of one's own may have the name of a block that runs others: the op tells them apart.
        data |= {"op": block.op, "graph": _graph_data(block.graph)}
    return data


def _graph_from(data: Any, path: str, depth: int) -> LogicalGraph:
    if depth > DEEPEST:
        raise _broken(f"models stand in models more than {DEEPEST} levels deep", path)
    nodes = tuple(_node_from(node, path, depth) for node in _part(data, "nodes", list, path))
    edges = [
        Edge(Endpoint(a, b), Endpoint(c, d))
        for a, b, c, d in (_texts(e, 4, path) for e in _part(data, "edges", list, path))
    ]
    labels = [
        (name, Endpoint(node, port))
        for name, node, port in (_texts(e, 3, path) for e in _part(data, "labels", list, path))
    ]
    notes = dict(_note_from(note, path) for note in (_part(data, "notes", list, path) if "notes" in data else []))
    try:
        check_parts(nodes, edges, labels, path)
        return closed(nodes, edges, dict(labels), notes)
    except MithrilError as error:
        raise ModelFileError(
            f"this model does not hold together{_place(path)}.", (("because", str(error)),), _ADVICE, block=path
        ) from error


def _node_from(data: Any, path: str, depth: int) -> Node:
    name, kind = _part(data, "name", str, path), _part(data, "kind", str, path)
    attributes = _part(data, "attributes", dict, path) if "attributes" in data else {}
    graph = None
    if kind == "Model" or "graph" in data:
        graph = _graph_from(_part(data, "graph", dict, path), join_path(path, name), depth + 1)
    runs_others = kind in KINDS and issubclass(KINDS[kind], Control)
    if "op" in data:  # older files leave it to the kind
        runs_others = runs_others and bool(_part(data, "op", str, path))
    if graph is not None and not runs_others:
        # What is inside is as it was saved; no constructor is asked, and a kind need not be known here.
        return Node(name, composite(graph, kind))
    try:
        if not runs_others:
            return Node(name, kind_named(kind)(**attributes).block)
        if graph is None:
            raise _broken("expected 'graph', found none", join_path(path, name))
        return Node(name, _control(kind, graph, attributes))
    except (MithrilError, TypeError, ValueError) as error:
        where = join_path(path, name)
        raise ModelFileError(
            f"block {where!r} of this model cannot be made.", (("because", str(error)),), _ADVICE, block=where
        ) from error


def _control(kind: str, graph: LogicalGraph, attributes: Mapping[str, Any]) -> Block:
    """A block that runs others, made anew by its constructor of the blocks inside it."""
    block = kind_named(kind)(**{node.name: Model.of_block(node.block) for node in graph.nodes}, **attributes).block
    if block.graph != graph:
        raise ValueError("it holds more than the blocks that it runs")
    return block


def _part(data: Any, key: str, kind: type, path: str) -> Any:
    """A part of the data, of the type that it must have."""
    if not isinstance(data, dict):
        raise _broken(f"expected an object with {key!r}, found {short_repr(data)}", path)
    if not isinstance(data.get(key), kind):
        found = (
            f"found {short_repr(data[key])}" if key in data else f"found only {', '.join(map(repr, data)) or 'nothing'}"
        )
        raise _broken(f"expected {key!r} to be {_JSON[kind]}, {found}", path)
    return data[key]


def _texts(data: Any, count: int, path: str) -> tuple[str, ...]:
    if not isinstance(data, list) or len(data) != count or not all(isinstance(text, str) for text in data):
        raise _broken(f"expected a list of {count} texts, found {short_repr(data)}", path)
    return tuple(data)


_JSON = {list: "a list", dict: "an object", str: "text", bool: "true or false"}


def _broken(what: str, path: str) -> ModelFileError:
    return ModelFileError(f"this model is broken{_place(path)}.", (("because", what),), _ADVICE, block=path)


def _place(path: str) -> str:
    return f" inside {path!r}" if path else ""
