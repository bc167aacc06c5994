"""Models as plain data: dicts and JSON files. Loading runs no code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from mithril_nb.atomic_write import write_text
from mithril_nb.errors import ModelFileError, UnknownOptionError, nearest, short_repr
from mithril_nb.graph.closing import made_edges
from mithril_nb.graph.records import Endpoint, LogicalGraph, Node, Note
from mithril_nb.models.limits import LoadLimits
from mithril_nb.models.model import Model
from mithril_nb.models.reading import ADVICE, broken, check_keys, graph_of, part_of

FORMAT, VERSION = "mithril_nb.model", 2
"""Version 2 has notes, kinds that compose themselves, and blocks that run others; files of version 1 are read too."""
_CHUNK = 1 << 20
_SAVE = 'ml.save(model, "model.json")'


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


def from_dict(data: Mapping[str, Any], *, limits: LoadLimits | None = None) -> Model:
    """Return the model that `to_dict` wrote.

    Args:
        data: The data.
        limits: What the model may contain at most; by default `LoadLimits()`.

    Raises:
        ModelFileError: The data is no model, of a later version, broken, or exceeds a limit.
        UnknownOptionError: `limits` are no `LoadLimits`.

    Examples:
        >>> from mithril_nb.models import MLP
        >>> from_dict(to_dict(MLP(4, [3], 2).graph)).graph == MLP(4, [3], 2).graph
        True
    """
    limits = _checked_limits(limits)
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ModelFileError(
            "this is no model.", (("needs", f'"format": "{FORMAT}"'), ("found", short_repr(data))), ADVICE
        )
    if type(version := data.get("version")) is not int or version < 1:
        raise broken(f"expected 'version' to be a whole number from 1 on, found {short_repr(version)}", "")
    if version > VERSION:
        raise ModelFileError(
            f"this model was written in version {short_repr(version)} of the format.",
            (("read here", f"version 1 to {VERSION}"),),
            "pip install --upgrade mithril-nb",
        )
    data = dict(data)
    name = part_of(data, "name", str)
    limits.check("name_length", len(name), "characters in a name")
    check_keys(data, ("format", "version", "name", "graph"))
    try:
        return Model.of(graph_of(data.get("graph"), limits), name or None)
    except RecursionError as error:
        raise broken("its values are nested too deep", "") from error


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


def load(path: str | Path, *, limits: LoadLimits | None = None) -> Model:
    """Read a model from a JSON file. Nothing in the file is run.

    Args:
        path: Path of the file.
        limits: What the file may contain at most; by default `LoadLimits()`.

    Raises:
        UnknownOptionError: It is no path, or `limits` are no `LoadLimits`.
        ModelFileError: There is no such file, or it is no model, broken, or exceeds a limit.
    """
    _check_path(path, "load", 'ml.load("model.json")')
    limits = _checked_limits(limits)
    try:
        # The bytes and the text are not kept while the model is built.
        data = json.loads(_bytes_of(path, limits).decode("utf-8"), object_pairs_hook=_object)
    except ModelFileError:
        raise
    except (ValueError, RecursionError) as error:
        because = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ModelFileError(f"{str(path)!r} is no JSON.", (("because", because),), ADVICE) from error
    try:
        return from_dict(data, limits=limits)
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
        advice = f"ml.load({_near(Path(path))!r})"
        raise ModelFileError(f"cannot read {str(path)!r}.", (("because", _why(error)),), advice) from error
    limits.check("file_bytes", len(read), "bytes", is_all=False)
    return read


def _near(path: Path) -> str:
    """Return the JSON file whose name is most like that of a missing one; `"model.json"` if there is none."""
    try:
        known = [one.name for one in islice(path.parent.iterdir(), 2_000) if one.suffix == ".json" and one.is_file()]
    except (OSError, ValueError):
        known = []
    return str(path.with_name(found)) if (found := nearest(path.name, known)) else "model.json"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the dict of a JSON object, whose keys must be unique."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise broken(f"an object has the key {short_repr(twice)} twice", "")
    return found


def _checked_limits(limits: Any) -> LoadLimits:
    if limits is not None and not isinstance(limits, LoadLimits):
        raise UnknownOptionError(
            f"cannot load within {short_repr(limits)}.",
            (("needs", "limits, or None"),),
            "ml.load(path, limits=ml.LoadLimits(nodes=1_000_000))",
        )
    return limits or LoadLimits()


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


def _node_data(node: Node) -> dict[str, Any]:
    block = node.block
    data: dict[str, Any] = {"name": node.name, "kind": block.kind}
    if block.attributes:
        data["attributes"] = dict(block.attributes)
    if block.graph is not None and not (block.is_composite and block.attributes):
        # A model of one's own may have the name of a block that runs others: the op tells them apart.
        data |= {"op": block.op, "graph": _graph_data(block.graph)}
    return data
