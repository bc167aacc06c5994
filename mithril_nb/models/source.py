"""The Python that builds a model: run, it gives an equal one."""

from __future__ import annotations

import keyword
import re
from pprint import pformat

from mithril_nb.graph.closing import INPUT, OUTPUT
from mithril_nb.graph.edit import free_name
from mithril_nb.graph.paths import component
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, LogicalGraph, Node
from mithril_nb.models.fields import fields_of
from mithril_nb.models.files import to_dict
from mithril_nb.models.registry import KINDS, kind_named


def to_source(graph: LogicalGraph, variable: str = "model") -> str:
    """Return Python that rebuilds a graph.

    Where a name would mean something else while the model is only half built, the whole is written as data.

    Examples:
        >>> from mithril_nb.models import Linear, Model, Relu
        >>> print(to_source((Model() + Linear(64) + Relu()).graph), end="")
        from mithril_nb.models import Linear, Model, Relu
        <BLANKLINE>
        model = Model()
        model |= Linear(64)
        model += Relu()
    """
    writer = _Writer()
    writer.graph(graph, variable, "")
    if writer.misread:
        data = pformat(to_dict(graph), width=100, sort_dicts=False)
        return f"from mithril_nb.models import from_dict\n\n{variable} = from_dict({data})\n"
    imports = f"from mithril_nb.models import {', '.join(sorted(writer.kinds))}\n\n"
    return imports + "\n".join(writer.lines) + "\n"


class _Writer:
    def __init__(self):
        self.lines: list[str] = []
        self.kinds = {"Model"}
        self.variables: set[str] = set()
        self.misread = False

    def graph(self, graph: LogicalGraph, variable: str, name: str) -> str:
        """Write the lines for one graph; return its variable."""
        variable = self.free_variable(variable)
        # A kind that composes itself cannot be written out block by block, and notes have no line of their own yet.
        self.misread = self.misread or bool(graph.notes)
        self.misread = self.misread or any(
            node.block.graph is not None and not node.block.attributes and node.block.kind != "Model"
            for node in graph.nodes
        )
        inner = {
            node.name: self.graph(node.block.graph, node.name, node.name)
            for node in graph.nodes
            if node.block.graph is not None and not node.block.attributes
        }
        self.lines.append(f"{variable} = Model({f'name={name!r}' if name else ''})")
        labels = {end: label for label, end in graph.labels}
        so_far = LogicalGraph()
        for node in graph.nodes:
            previous = so_far.nodes[-1] if so_far.nodes else None
            operator, connections = _connections(graph, node, previous, labels)
            self.misread = self.misread or _is_misread(graph, so_far, node)
            if node.name in inner:
                made = inner[node.name]
            else:
                self.kinds.add(node.block.kind)
                default = node.name == free_name(so_far, node.block.kind)
                made = _call(node.block, "" if default else node.name)
            self.lines.append(f"{variable} {operator} {made}{connections}")
            so_far = LogicalGraph((*so_far.nodes, node))
        return variable

    def free_variable(self, name: str) -> str:
        """A Python name made of any name, used once."""
        plain = "".join(char if char.isascii() and char.isalnum() else "_" for char in name).strip("_") or "part"
        taken = keyword.iskeyword(plain) or plain in KINDS or plain == "Model"
        plain = f"block_{plain}" if plain[0].isdigit() or taken else plain
        free, number = plain, 2
        while free in self.variables:
            free, number = f"{plain}_{number}", number + 1
        self.variables.add(free)
        return free


def _connections(
    graph: LogicalGraph, node: Node, previous: Node | None, labels: dict[Endpoint, str]
) -> tuple[str, str]:
    """The operator, and the call that names what is not chained."""
    named: dict[str, str] = {}
    first_data = next((port.name for port in node.block.inputs if port.role == "data"), None)
    last_output = (
        Endpoint(previous.name, previous.block.outputs[0].name) if previous and previous.block.outputs else None
    )
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
    if named and all(name.isidentifier() and not keyword.iskeyword(name) for name in named):
        call = "(" + ", ".join(f"{port}={name!r}" for port, name in named.items()) + ")"
    else:
        call = f"(**{named!r})" if named else ""
    return ("+=" if chained else "|="), call


def _is_misread(graph: LogicalGraph, so_far: LogicalGraph, node: Node) -> bool:
    """Whether the name of an input that this node is the first to read may be that of something automatic by then."""
    named = {label for label, end in graph.labels if end == Endpoint(BOUNDARY, label)}
    read = {
        end.port
        for port in node.block.inputs
        if (end := graph.source_of.get(Endpoint(node.name, port.name))) and end.node == BOUNDARY and end.port in named
    }
    if not read:
        return False
    automatic = {OUTPUT} if so_far.nodes else set()
    for before in so_far.nodes:
        for port in (*before.block.inputs, *before.block.outputs):
            end = graph.source_of.get(Endpoint(before.name, port.name))
            if end is not None and end.node == BOUNDARY:
                read.discard(end.port)
                automatic |= {INPUT} if end.port not in named else set()
            automatic.add(f"{before.name}_{port.name}")
    return any(re.sub(r"(_\d+)+$", "", name) in automatic or name in automatic for name in read)


def _call(block: Block, name: str) -> str:
    """The constructor call of a block; what is left at its default is left out."""
    given: list[str] = []
    in_order = True
    for field in fields_of(kind_named(block.kind)):
        value = block.options[field.name]
        if value == field.default and not field.is_required:
            in_order = False
            continue
        given.append(repr(value) if in_order and field.is_required else f"{field.name}={value!r}")
    if name:
        given.append(f"name={name!r}")
    return f"{block.kind}({', '.join(given)})"
