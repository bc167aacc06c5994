"""A graph under construction: blocks are added in constant time, and its inputs and outputs are inferred on demand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from mithril_nb.graph.annotate import annotate, label
from mithril_nb.graph.boundary import INPUT, OUTPUT, automatic_name, infer_boundary, made_edges
from mithril_nb.graph.edit import add, check_new
from mithril_nb.graph.paths import NAME_LENGTH, next_name
from mithril_nb.graph.records import BOUNDARY, Block, Edge, Endpoint, LogicalGraph, Node, Note


class Draft:
    """A graph under construction: the blocks, connections and names that the user has created so far.

    The method `graph` infers the inputs and outputs (`infer_boundary`) and returns the graph. `edit.add` infers
    them after each block, so composing n blocks takes O(n²). A draft gives the same graph in O(n).

    Args:
        graph: The graph to start from.

    Examples:
        >>> from mithril_nb.graph.records import Port
        >>> draft = Draft(LogicalGraph())
        >>> draft.add(Block("Relu", (), (Port("input"),), (Port("output"),), op="relu"))
        'relu_0'
        >>> draft.graph().inputs
        (Port(name='input', role='data'),)
    """

    def __init__(self, graph: LogicalGraph):
        self.restart(graph)

    def restart(self, graph: LogicalGraph) -> None:
        """Drop all blocks and connections, and continue with those of a graph."""
        self._closed: LogicalGraph | None = graph
        self._nodes = dict(graph.by_name)
        self._edges = made_edges(graph)
        self._labels = dict(graph.labels)
        self._notes = dict(graph.notes)
        self._counts = Counter(node.block.kind for node in graph.nodes)
        # Names that `infer_boundary` may give to an input or an output, without their numeric suffixes.
        self._automatic = {INPUT, OUTPUT}
        for node in graph.nodes:
            self._automatic |= _automatic_names(node)

    def state(self) -> tuple[Any, ...]:
        """Return a snapshot for `restore`."""
        parts = (self._nodes, self._edges, self._labels, self._notes, self._counts, self._automatic)
        return self._closed, *map(copy, parts)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Undo all changes since a snapshot. Each snapshot can be restored once."""
        self._closed, self._nodes, self._edges, self._labels, self._notes, self._counts, self._automatic = state

    def graph(self) -> LogicalGraph:
        """Return the current graph, with its inputs and outputs."""
        if self._closed is None:
            self._closed = infer_boundary(tuple(self._nodes.values()), self._edges, self._labels, self._notes)
        return self._closed

    def last_output(self) -> Endpoint | None:
        """Return the first output of the last block; `None` if there is no block, or the block has no output."""
        last = next(reversed(self._nodes.values()), None)
        return Endpoint(last.name, last.block.outputs[0].name) if last and last.block.outputs else None

    def node(self, name: str) -> Node:
        """Return the node with this name."""
        return self._nodes[name]

    def free_name(self, kind: str) -> str:
        """Return the default name of the next block of a kind."""
        return next_name(kind, self._counts[kind], self._nodes)

    def source(self, node: str, port: str) -> Endpoint:
        """Return the endpoint that feeds an input of a block; the input itself if it is an open parameter."""
        target = Endpoint(node, port)
        for edge in reversed(self._edges):
            if edge.target == target:
                return edge.source
        return self.graph().source_of.get(target, target)

    def shared(self, end: Endpoint) -> str:
        """Return the name of the connection at a block's input. If it has no permanent name, name it first."""
        source = self.source(end.node, end.port)
        if source.node != BOUNDARY:
            name = f"{end.node}_{end.port}" if source == end else ""
        else:
            name = f"{end.node}_{end.port}" if "." in source.port else source.port
        if name and name not in self._labels:
            self.restart(label(self.graph(), end if source == end or "." in source.port else source, name))
        return name or str(source)

    def note(self, end: Endpoint, change: Callable[[Note], Note]) -> None:
        """Change the note of an endpoint. The generated name of a graph input becomes permanent."""
        if end.node == BOUNDARY and end.port not in self._labels:
            self.restart(annotate(self.graph(), end))
        self._notes[end] = change(self._notes.get(end, Note()))
        self._closed = None

    def add(
        self,
        block: Block,
        *,
        name: str = "",
        connections: Mapping[str, str] | None = None,
        after: Endpoint | None = None,
    ) -> str:
        """Add a block like `edit.add`, and return its name."""
        connections = connections or {}
        if not self._is_plain(block, name, connections):
            graph, name = add(self.graph(), block, name=name, connections=connections, after=after)
            self.restart(graph)
            return name
        name = name or self.free_name(block.kind)
        check_new(block, name, connections, self._nodes, lambda: self.free_name(block.kind))
        for port in block.inputs:
            text = connections.get(port.name)
            source = None
            if text is not None:
                source = self._source(text)
            elif after is not None and port.role == "data":
                source, after = after, None
            if source is not None:
                self._edges.append(Edge(source, Endpoint(name, port.name)))
        for port in block.outputs:
            if port.name in connections:
                self._labels[Endpoint.parse(connections[port.name]).port] = Endpoint(name, port.name)
        node = Node(name, block)
        self._nodes[name], self._closed = node, None
        self._counts[block.kind] += 1
        self._automatic |= _automatic_names(node)
        return name

    def _is_plain(self, block: Block, name: str, connections: Mapping[str, str]) -> bool:
        """Return whether the block can be added without inferring the inputs and outputs of the graph.

        If not, `edit.add` must add it: a connection may be an error, or `infer_boundary` may generate
        the same name.
        """
        inputs = {port.name for port in block.inputs}
        outputs = {port.name for port in block.outputs}
        if len(set(connections.values())) < len(connections) and not outputs.isdisjoint(connections):
            return False
        for port, text in connections.items():
            end = Endpoint.parse(text)
            if end.node == BOUNDARY and (not end.port or "." in end.port or len(end.port) > NAME_LENGTH):
                return False
            if port in outputs and port not in inputs:
                if end.node != BOUNDARY or end.port in self._labels or self._may_be_automatic(end.port):
                    return False
            elif port not in inputs:
                return False
            elif end.node != BOUNDARY:
                node = self._nodes.get(end.node)
                if node is None or all(out.name != end.port for out in node.block.outputs):
                    return False
            elif end.port not in self._labels and self._may_be_automatic(end.port):
                return False
        return True

    def _may_be_automatic(self, name: str) -> bool:
        return name in self._automatic or re.sub(r"(_\d+)+$", "", name) in self._automatic

    def _source(self, text: str) -> Endpoint:
        end = Endpoint.parse(text)
        if end.node != BOUNDARY:
            return end
        return self._labels.setdefault(end.port, end)


def _automatic_names(node: Node) -> set[str]:
    return {automatic_name(Endpoint(node.name, port.name)) for port in (*node.block.inputs, *node.block.outputs)}
