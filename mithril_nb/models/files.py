"""Models as plain data: dicts, JSON files, and the Python that builds them. Loading runs no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mithril_nb.errors import MithrilError, ModelFileError
from mithril_nb.graph.edit import composite
from mithril_nb.graph.order import run_order
from mithril_nb.graph.records import BOUNDARY, Block, Edge, Endpoint, LogicalGraph, Node, Port
from mithril_nb.models.model import Model, with_attributes
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


def block_source(block: Block) -> str:
    """Return the Python call that makes a block: `Linear(64)`; what is left at its default is left out."""
    from mithril_nb.models.fields import fields_of

    given = []
    plain = True
    for field in fields_of(kind_named(block.kind)):
        value = block.options[field.name]
        if value == field.default and not field.is_required:
            plain = False
            continue
        shown = value if isinstance(value, str | None) else value
        given.append(repr(shown) if plain and field.is_required else f"{field.name}={shown!r}")
    return f"{block.kind}({', '.join(given)})"


def to_source(graph: LogicalGraph, variable: str = "model") -> str:
    """Return Python that rebuilds a graph: run, it gives an equal one.

    Examples:
        >>> from mithril_nb.models import Linear, Model, Relu
        >>> print(to_source((Model() | Linear(64) + Relu()).graph).splitlines()[-1])
        model |= model_0
    """
    kinds: set[str] = {"Model"}
    lines = _source_lines(graph, variable, kinds)
    return f"from mithril_nb.models import {', '.join(sorted(kinds))}\n\n" + "\n".join(lines) + "\n"


def _source_lines(graph: LogicalGraph, variable: str, kinds: set[str]) -> list[str]:
    raise NotImplementedError


__all__ = ["from_dict", "load", "save", "to_dict", "to_source", "with_attributes"]
