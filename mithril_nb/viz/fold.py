"""Fold runs of equal blocks into one box with a repeat count, such as ×12."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from mithril_nb.graph.records import BOUNDARY, Edge, Endpoint, LogicalGraph


def fold_chains(graph: LogicalGraph) -> tuple[LogicalGraph, dict[str, tuple[str, ...]]]:
    """Replace each chain of equal blocks by its first block.

    A chain is folded only if each block feeds only the next one, and the next one reads nothing else. Then the folded
    picture loses no connection.

    Args:
        graph: The graph; only its top level is folded.

    Returns:
        The smaller graph, and for each first block the names of all blocks in its chain, itself included.
    """
    reads: dict[str, list[Endpoint]] = {node.name: [] for node in graph.nodes}
    readers: Counter[str] = Counter()
    for edge in graph.edges:
        if edge.target.node != BOUNDARY:
            reads[edge.target.node].append(edge.source)
        readers[edge.source.node] += 1
    before: dict[str, str] = {}
    for node in graph.nodes:
        if len(reads[node.name]) != 1:
            continue
        source = reads[node.name][0].node
        if source != BOUNDARY and readers[source] == 1 and graph.by_name[source].block == node.block:
            before[node.name] = source
    chains: dict[str, list[str]] = {}
    after = {source: name for name, source in before.items()}
    for node in graph.nodes:
        if node.name in after and node.name not in before:
            chain = [node.name]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains[node.name] = chain
    first_of = {name: first for first, chain in chains.items() for name in chain}
    last_of = {chain[-1]: first for first, chain in chains.items()}
    dropped = {name for name, first in first_of.items() if name != first}
    edges = []
    for edge in graph.edges:
        if edge.target.node in dropped:
            continue
        source = edge.source
        if source.node in last_of:
            source = Endpoint(last_of[source.node], source.port)
        edges.append(Edge(source, edge.target))
    smaller = replace(
        graph, nodes=tuple(node for node in graph.nodes if node.name not in dropped), edges=tuple(edges), labels=()
    )
    return smaller, {first: tuple(chain) for first, chain in chains.items()}
