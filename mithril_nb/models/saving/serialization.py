"""Graphs as plain data and as JSON files. Loading runs no code."""

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
from mithril_nb.graph.boundary import made_edges
from mithril_nb.graph.records import Endpoint, LogicalGraph, Node, Note
from mithril_nb.models.saving.links import data_in, is_link
from mithril_nb.models.saving.reading import ADVICE, LoadLimits, broken, check_keys, graph_of, json_object, part_of

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

    Raises:
        ModelFileError: The data is not a model, is broken, exceeds a limit, or has a later version.
        UnknownOptionError: `limits` is not a `LoadLimits`.
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
        return graph_of(data.get("graph"), limits), name or None
    except RecursionError as error:
        raise broken("its values are nested too deep", "") from error


def save_graph(graph: LogicalGraph, name: str, path: str | Path) -> None:
    """Write a graph and the name of a model to a JSON file.

    Raises:
        UnknownOptionError: `path` is not a path.
        ModelFileError: The file cannot be written.
    """
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

    Raises:
        UnknownOptionError: `path` is not a path, or `limits` is not a `LoadLimits`.
        ModelFileError: The file cannot be read, is not a model, is broken, exceeds a limit, or has a later version.
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
        advice = f"ml.load({_near(Path(path))!r})"
        raise ModelFileError(f"cannot read {str(path)!r}.", (("because", _why(error)),), advice) from error
    limits.check("file_bytes", len(read), "bytes", is_all=False)
    return read


def _near(path: Path) -> str:
    """Return the path of the JSON file in the same folder with the most similar name; else `"model.json"`."""
    try:
        names = [
            entry.name for entry in islice(path.parent.iterdir(), 2_000) if entry.suffix == ".json" and entry.is_file()
        ]
    except (OSError, ValueError):
        names = []
    return str(path.with_name(sibling)) if (sibling := nearest(path.name, names)) else "model.json"


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

    Raises:
        UnknownOptionError: The value is not a path.
    """
    if not isinstance(path, str | os.PathLike):
        raise UnknownOptionError(f"cannot {action} {short_repr(path)}.", (("needs", "the path of a file"),), advice)


def _graph_data(graph: LogicalGraph) -> dict[str, Any]:
    """Return the data of a graph, without the edges that `infer_boundary` creates again when the data is loaded."""
    return {
        "nodes": [_node_data(node) for node in graph.nodes],
        "edges": [[e.source.node, e.source.port, e.target.node, e.target.port] for e in made_edges(graph)],
        "labels": [[name, end.node, end.port] for name, end in graph.labels],
        **({"notes": [_note_data(end, note) for end, note in graph.notes]} if graph.notes else {}),
    }


def _note_data(end: Endpoint, note: Note) -> dict[str, Any]:
    fields = {
        "shape": None if note.shape is None else list(note.shape),
        "dtype": note.dtype,
        "is_trainable": note.is_trainable,
        "is_exposed": note.is_exposed or None,
        "initializer": note.initializer,
    }
    return {"node": end.node, "port": end.port, **{key: value for key, value in fields.items() if value is not None}}


def _node_data(node: Node) -> dict[str, Any]:
    block = node.block
    data: dict[str, Any] = {"name": node.name, "kind": block.kind}
    if block.attributes:
        data["attributes"] = dict(block.attributes)
    if block.graph is not None and not (block.is_composite and block.attributes):
        # The op is stored too, because a user-defined composite may have the same kind as a built-in op.
        data |= {"op": block.op, "graph": _graph_data(block.graph)}
    return data
