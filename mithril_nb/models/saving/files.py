"""Models as plain data: dicts and JSON files. Loading runs no code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models.model import Model
from mithril_nb.models.saving.limits import LoadLimits
from mithril_nb.models.saving.serialization import SAVE_ADVICE, graph_to_dict, save_graph


def to_dict(model: LogicalGraph | Model, name: str = "") -> dict[str, Any]:
    """Return a model as JSON-serialisable data.

    Args:
        model: The model, or its graph.
        name: Name of the model; by default its own name.

    Examples:
        >>> to_dict(Model(name="net"))["name"]
        'net'
    """
    graph = model if isinstance(model, LogicalGraph) else model.graph
    if isinstance(model, Model):
        name = name or model.name or ""
    return graph_to_dict(graph, name)


def from_dict(data: Mapping[str, Any], *, limits: LoadLimits | None = None) -> Model:
    """Rebuild a model from the data of `to_dict`.

    Args:
        data: The data.
        limits: Maximum sizes of the model; by default `LoadLimits()`.

    Raises:
        ModelFileError: The data is not a model, has a later version, is broken, or exceeds a limit.
        UnknownOptionError: `limits` is not a `LoadLimits`.

    Examples:
        >>> from mithril_nb.models import MLP
        >>> from_dict(to_dict(MLP(4, [3], 2).graph)).graph == MLP(4, [3], 2).graph
        True
    """
    return Model.from_dict(data, limits=limits)


def save(model: Model, path: str | Path) -> None:
    """Write a model's structure to a JSON file, without its parameters.

    Args:
        model: The model.
        path: Path of the file.

    Raises:
        UnknownOptionError: An argument is not a model, or not a path.
        ModelFileError: The file cannot be written.
    """
    if not isinstance(model, Model):
        raise UnknownOptionError(f"cannot save {short_repr(model)}.", (("needs", "a model"),), SAVE_ADVICE)
    save_graph(model.graph, model.name or "", path)


def load(path: str | Path, *, limits: LoadLimits | None = None) -> Model:
    """Load a model from a JSON file. Runs no code from the file.

    Args:
        path: Path of the file.
        limits: Maximum sizes of the model; by default `LoadLimits()`.

    Raises:
        UnknownOptionError: `path` is not a path, or `limits` is not a `LoadLimits`.
        ModelFileError: The file does not exist, is not a model, is broken, or exceeds a limit.
    """
    return Model.load(path, limits=limits)
