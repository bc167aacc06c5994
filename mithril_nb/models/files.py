"""Models as plain data: dicts and JSON files. Loading runs no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mithril_nb.errors import MithrilError, ModelFileError
from mithril_nb.graph.edit import composite
from mithril_nb.graph.order import run_order
from mithril_nb.graph.records import BOUNDARY, Block, Edge, Endpoint, LogicalGraph, Node, Port
from mithril_nb.models.model import Model
from mithril_nb.models.registry import kind_named

FORMAT, VERSION = "mithril_nb.model", 1
_DEEPEST = 100
"""Levels of nesting that a file may have; a limit, so that a hostile one ends in an error and not in the stack."""


def to_dict(graph: LogicalGraph, name: str = "") -> dict[str, Any]:
    """Return a graph as JSON-able data.

    Examples:
        >>> to_dict(LogicalGraph())["format"]
        'mithril_nb.model'
    """
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
            "this is no model.",
            (("needs", f'"format": "{FORMAT}"'), ("got", _short(data))),
            "ml.load(path) of a file that ml.save(model, path) wrote.",
        )
    if data.get("version") != VERSION:
        raise ModelFileError(
            f"this model was written in version {data.get('version')!r} of the format.",
            (("read here", str(VERSION)),),
            "pip install --upgrade mithril-nb",
        )
    try:
        graph = _graph_from(data["graph"], 0)
        run_order(graph)
        return Model.of(graph, data.get("name") or None)
    except ModelFileError:
        raise
    except MithrilError as error:
        raise ModelFileError("this model does not hold together.", (("because", str(error)),)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            "this model is broken.",
            (("because", f"{type(error).__name__}: {error}"),),
            "ml.load(path) of a file that ml.save(model, path) wrote.",
        ) from error


def save(model: Model, path: str | Path) -> None:
    """Write a model's structure to a JSON file. Parameters are arrays, and not part of it.

    Args:
        model: The model.
        path: Where to.
    """
    text = json.dumps(to_dict(model.graph, model.name or ""), indent=1, ensure_ascii=False)
    part = Path(f"{path}.part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)  # so that a file is whole or as it was


def load(path: str | Path) -> Model:
    """Read a model from a JSON file. Nothing in the file is run.

    Raises:
        ModelFileError: There is no such file, or it is no model, or broken.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"cannot read {str(path)!r}.", (("because", error.strerror or str(error)),)) from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{str(path)!r} is no JSON.",
            (("because", str(error)),),
            "ml.load(path) of a file that ml.save(model, path) wrote.",
        ) from error
    return from_dict(data)


def _graph_data(graph: LogicalGraph) -> dict[str, Any]:
    return {
        "nodes": [_node_data(node) for node in graph.nodes],
        "edges": [[e.source.node, e.source.port, e.target.node, e.target.port] for e in graph.edges],
        "inputs": [[port.name, port.role] for port in graph.inputs],
        "outputs": [port.name for port in graph.outputs],
        "labels": [[name, end.node, end.port] for name, end in graph.labels],
    }


def _node_data(node: Node) -> dict[str, Any]:
    block = node.block
    data: dict[str, Any] = {"name": node.name, "kind": block.kind}
    if block.attributes:
        data["attributes"] = {key: value for key, value in block.attributes}
    if block.graph is not None and not block.attributes:
        data["graph"] = _graph_data(block.graph)
    return data


def _graph_from(data: Mapping[str, Any], depth: int) -> LogicalGraph:
    if depth > _DEEPEST:
        raise ModelFileError(f"this model is nested more than {_DEEPEST} levels deep.")
    nodes = tuple(Node(str(node["name"]), _block_from(node, depth)) for node in data["nodes"])
    if len({node.name for node in nodes}) < len(nodes) or not all(node.name for node in nodes):
        raise ModelFileError("this model has two blocks of one name, or one without a name.")
    graph = LogicalGraph(
        nodes,
        tuple(Edge(Endpoint(str(a), str(b)), Endpoint(str(c), str(d))) for a, b, c, d in data["edges"]),
        tuple(Port(str(name), "param" if role == "param" else "data") for name, role in data["inputs"]),
        tuple(Port(str(name)) for name in data["outputs"]),
        tuple((str(name), Endpoint(str(node), str(port))) for name, node, port in data["labels"]),
    )
    _check(graph)
    return graph


def _block_from(data: Mapping[str, Any], depth: int) -> Block:
    if "graph" in data:
        return composite(_graph_from(data["graph"], depth + 1), str(data["kind"]))
    if data["kind"] == "Model":
        raise ModelFileError(f"block {data['name']!r} is a model with nothing inside.")
    attributes = {
        str(key): tuple(value) if isinstance(value, list) else value
        for key, value in data.get("attributes", {}).items()
    }
    return kind_named(str(data["kind"]))(**attributes).block


def _check(graph: LogicalGraph) -> None:
    """Raise if an edge ends in nothing, or an input is fed twice or not at all."""
    sources = {Endpoint(BOUNDARY, port.name) for port in graph.inputs}
    targets = {Endpoint(BOUNDARY, port.name) for port in graph.outputs}
    needed = set(targets)
    for node in graph.nodes:
        sources |= {Endpoint(node.name, port.name) for port in node.block.outputs}
        targets |= {Endpoint(node.name, port.name) for port in node.block.inputs}
        needed |= {Endpoint(node.name, port.name) for port in node.block.inputs if port.role == "data"}
    for edge in graph.edges:
        if edge.source not in sources or edge.target not in targets:
            raise ModelFileError(f"the connection '{edge}' ends at a port that does not exist.")
    fed = [edge.target for edge in graph.edges]
    for end in sorted(needed):
        if fed.count(end) != 1:
            raise ModelFileError(f"the port '{end}' has {fed.count(end)} connections into it, and needs one.")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
