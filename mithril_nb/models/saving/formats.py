"""Models as plain data, JSON files and Python code."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import groupby
from math import isfinite
from pathlib import Path
from pprint import pformat
from typing import Any

from mithril_nb.errors import MithrilError, UnknownOptionError, short_repr
from mithril_nb.graph.boundary import FreeNames, infer_boundary, is_array, made_edges
from mithril_nb.graph.edit import Draft
from mithril_nb.graph.paths import component, join_path
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, LogicalGraph, Node
from mithril_nb.graph.spec import exactly
from mithril_nb.models.fields import fields_of
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS, kind_named
from mithril_nb.models.saving.serialization import SAVE_ADVICE, graph_to_dict, save_graph


def to_dict(model: LogicalGraph | Model, name: str = "") -> dict[str, Any]:
    """Return a model as JSON-serialisable data.

    Args:
        model: The model, or its graph.
        name: Name of the model in the data; by default the name of `model`, or `""` for a graph.

    Examples:
        >>> to_dict(Model(name="net"))["name"]
        'net'
    """
    graph = model if isinstance(model, LogicalGraph) else model.graph
    if isinstance(model, Model):
        name = name or model.name or ""
    return graph_to_dict(graph, name)


def save(model: Model, path: str | Path) -> None:
    """Write the blocks and connections of a model to a JSON file, without the parameters.

    Args:
        model: The model.
        path: Path of the file.

    Raises:
        UnknownOptionError: `model` is not a model, or `path` is not a path.
        ModelFileError: The file cannot be written.
    """
    if not isinstance(model, Model):
        raise UnknownOptionError(f"cannot save {short_repr(model)}.", (("needs", "a model"),), SAVE_ADVICE)
    save_graph(model.graph, model.name or "", path)


from_dict = Model.from_dict
load = Model.load


def to_source(model: LogicalGraph | Model, variable: str = "model") -> str:
    """Return Python code that rebuilds a model.

    The code adds the blocks one by one. If that would not give the same graph, the code contains the model as data
    instead. The code imports user-defined blocks from their modules. Blocks from a notebook or `register_op` must be
    defined before the code runs.

    Args:
        model: The model, or its graph.
        variable: Name of the variable for the model.

    Examples:
        >>> from mithril_nb.models import Linear, Model, Relu
        >>> print(to_source((Model() + Linear(64) + Relu()).graph), end="")
        from mithril_nb.models import Linear, Model, Relu
        <BLANKLINE>
        model = Model()
        model |= Linear(64)
        model += Relu()
    """
    return source_lines(model, variable)[0]


def source_lines(model: LogicalGraph | Model, variable: str = "model") -> tuple[str, dict[int, str]]:
    """Return the code of `to_source`, and a dict from the number of a line to the path of the block that it builds.

    Lines are counted from 1. The dict is empty if the code contains the model as data.

    Args:
        model: The model, or its graph.
        variable: Name of the variable for the model.

    Examples:
        >>> from mithril_nb.models import Linear, Model, Relu
        >>> source_lines(Model() + Linear(64) + Relu())[1]
        {4: 'linear_0', 5: 'relu_0'}
    """
    graph, name = (model, "") if isinstance(model, LogicalGraph) else (model.graph, model.name or "")
    writer = _SourceWriter()
    writer.graph(graph, variable, name)
    if writer.misread:
        data = pformat(to_dict(graph, name), width=100, sort_dicts=False)
        unwritten = 'inf, nan = float("inf"), float("nan")\n' if re.search(r"\b(inf|nan)\b", data) else ""
        return f"from mithril_nb.models import from_dict\n\n{unwritten}{variable} = from_dict({data})\n", {}
    imports = _imports(writer.kinds)
    start = imports.count("\n") + 1
    paths = {start + index: path for index, (_, path) in enumerate(writer.lines) if path}
    return imports + "".join(f"{line}\n" for line, _ in writer.lines), paths


def _imports(kinds: Iterable[str]) -> str:
    homes: dict[str, list[str]] = {}
    for kind in sorted(kinds):
        constructor = KINDS.get(kind, Model)
        module = constructor.__module__
        is_there = getattr(sys.modules.get(module), kind, None) is constructor and module != "__main__"
        home = "mithril_nb.models" if module.startswith("mithril_nb.models.") else module
        homes.setdefault(home if is_there else "", []).append(kind)
    own = homes.pop("", [])
    lines = [f"from {home} import {', '.join(names)}\n" for home, names in sorted(homes.items())]
    lines += [f"# {', '.join(own)}: user-defined; define {'it' if len(own) == 1 else 'them'} first\n"] if own else []
    return "".join(lines) + "\n"


class _SourceWriter:
    def __init__(self):
        self.lines: list[tuple[str, str]] = []
        self.kinds = {"Model"}
        self.variables = FreeNames()
        self.misread = False

    def graph(self, graph: LogicalGraph, variable: str, name: str, kind: str = "Model", path: str = "") -> str:
        """Write the lines that build a graph, and return the name of its variable: `variable` if that is unused.

        The built model has the given name and kind. `path` is the path of the block that contains the graph.
        """
        plain = "".join(char if char.isascii() and char.isalnum() else "_" for char in variable).strip("_") or "part"
        is_reserved = keyword.iskeyword(plain) or plain in KINDS or plain == "Model"
        variable = self.variables.take(f"block_{plain}" if plain[0].isdigit() or is_reserved else plain)
        # Lines that build the inner graphs come first.
        inner = {
            node.name: self.graph(
                node.block.graph or LogicalGraph(), node.name, node.name, node.block.kind, join_path(path, node.name)
            )
            for node in graph.nodes
            if _is_written_out(node.block)
        }
        self.lines.append((f"{variable} = Model({f'name={name!r}' if name else ''})", path))
        labels = {end: label for label, end in graph.labels}
        draft = Draft(LogicalGraph())  # the graph that the code builds, to compare it with `graph`
        for node in graph.nodes:
            chained, named = _connections(graph, node, draft.last_output(), labels)
            is_default = node.name == draft.free_name(node.block.kind)
            call = inner.get(node.name) or self.call(node, "" if is_default else node.name, path)
            line = f"{variable} {'+=' if chained else '|='} {call}{_named_arguments(named)}"
            self.lines.append((line, join_path(path, node.name)))
            try:
                draft.add(node.block, name=node.name, connections=named, after=draft.last_output() if chained else None)
            except MithrilError:
                self.misread = True
                return variable
        built = draft.graph()
        if graph.notes:
            built = infer_boundary(built.nodes, made_edges(built), dict(built.labels), graph.note_at)
        self.misread = self.misread or built != graph
        self.notes(graph, variable, path)
        if kind != "Model":
            self.lines.append((f"{variable} = Model.of({variable}.graph, {name or None!r}, {kind!r})", path))
        return variable

    def call(self, node: Node, name: str, path: str) -> str:
        """Return the constructor call of a block. Before it, write the lines that build the call's arguments."""
        self.kinds.add(node.block.kind)
        if node.block.graph is None or node.block.is_composite:
            return _call(node.block, name, {})
        bodies = {part.name: self.body(part, join_path(path, node.name)) for part in node.block.graph.nodes}
        return _call(node.block, name, bodies)

    def body(self, node: Node, path: str) -> str:
        """Return the source code of an argument such as `body` of a `Scan`: a variable, or a constructor call."""
        if _is_written_out(node.block):
            own = join_path(path, node.name)
            return self.graph(node.block.graph or LogicalGraph(), node.name, "", node.block.kind, own)
        return self.call(node, "", path)

    def notes(self, graph: LogicalGraph, variable: str, path: str) -> None:
        """Write the annotations of a graph as calls of `set_shapes`, `set_types`, `expose_keys` and others."""
        values_by_setter: dict[str, dict[str, Any]] = {}
        exposed: list[str] = []
        ordered: list[tuple[bool, int, str]] = []
        labels = {end: label for label, end in graph.labels}
        for end, note in graph.notes:
            # No setter can write a note at the port of a parameter: setters refer to parameters by name.
            self.misread = self.misread or (bool(end.node) and end not in graph.targets_of)
            name = end.port if is_array(end) else component(labels[end]) if end in labels else str(end)
            arrays = {"differentiability": note.is_trainable, "initializers": note.initializer}
            for setting, value in {"shapes": note.shape, "types": note.dtype, **arrays}.items():
                if value is not None:
                    values_by_setter.setdefault(setting, {})[name] = list(value) if setting == "shapes" else value
            if note.is_exposed:
                exposed.append(name)
            if note.order is not None:
                ordered.append((bool(end.node), note.order, name))
        if exposed:
            self.lines.append((f"{variable}.expose_keys({', '.join(map(repr, exposed))})", path))
        for _, side in groupby(sorted(ordered), key=lambda entry: entry[0]):
            self.lines.append((f"{variable}.set_order({', '.join(repr(name) for *_, name in side)})", path))
        for setting, values in values_by_setter.items():
            plain = all(name.isidentifier() and not keyword.iskeyword(name) for name in values)
            arguments = ", ".join(f"{name}={value!r}" for name, value in values.items()) if plain else repr(values)
            self.lines.append((f"{variable}.set_{setting}({arguments})", path))


def _connections(
    graph: LogicalGraph, node: Node, last_output: Endpoint | None, labels: Mapping[Endpoint, str]
) -> tuple[bool, dict[str, str]]:
    named: dict[str, str] = {}
    first_data = next((port.name for port in node.block.inputs if port.role == "data"), None)
    chained = False
    for port in node.block.inputs:
        source = graph.source_of.get(Endpoint(node.name, port.name))
        if source is None:
            continue
        if port.name == first_data and source == last_output:
            chained = True
        elif source.node == BOUNDARY:
            if source in labels:
                named[port.name] = str(source)
        else:
            named[port.name] = component(labels[source]) if source in labels else str(source)
    for port in node.block.outputs:
        label = labels.get(Endpoint(node.name, port.name))
        if label:
            named[port.name] = component(label)
    return chained, named


def _named_arguments(named: Mapping[str, str]) -> str:
    if not named:
        return ""
    if all(name.isidentifier() and not keyword.iskeyword(name) for name in named):
        return "(" + ", ".join(f"{port}={name!r}" for port, name in named.items()) + ")"
    return f"(**{named!r})"


def _is_written_out(block: Block) -> bool:
    """Return whether no constructor call creates a block, so that its inner blocks need separate lines."""
    return block.is_composite and not block.attributes


def _call(block: Block, name: str, bodies: Mapping[str, str]) -> str:
    """`bodies` contains the arguments that are blocks, such as `body` of a `Scan`, as source code."""
    arguments: list[str] = []
    in_order = True
    for field in fields_of(kind_named(block.kind)):
        if field.name in bodies:
            arguments.append(bodies[field.name] if in_order else f"{field.name}={bodies[field.name]}")
            continue
        if field.name not in block.options:
            in_order = False
            continue
        value = block.options[field.name]
        if exactly(value) == exactly(field.default) and not field.is_required:
            in_order = False
            continue
        text = _literal(dict(value) if field.name == "carry" and bodies else value)  # pyright: ignore
        arguments.append(
            text if in_order and (field.is_required or field.start is not None) else f"{field.name}={text}"
        )
    if name:
        arguments.append(f"name={name!r}")
    return f"{block.kind}({', '.join(arguments)})"


def _literal(value: Any) -> str:
    if isinstance(value, float) and not isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return repr(value)
