"""Refused edits of graphs, and inconsistent graphs."""

from __future__ import annotations

import pytest
from transcript import facts_of, read_transcript

from mithril_nb.errors import MithrilError
from mithril_nb.graph.check import check  # noqa: F401 - used in CASES
from mithril_nb.graph.edit import add, connect, inside, remove, rename, swap  # noqa: F401
from mithril_nb.graph.records import Edge, Endpoint, LogicalGraph, Node, Port
from mithril_nb.models import Linear, Model, Relu, Tanh  # noqa: F401

RELU = Relu().block
FED = (Edge(Endpoint("", "x"), Endpoint("r", "input")), Edge(Endpoint("r", "output"), Endpoint("", "y")))
"""The edges of a graph of one Relu named r."""


def chain() -> LogicalGraph:
    model = Model()
    model |= Linear(3, name="a/b")(input="x", output="h")
    model |= Relu(name="r")(input="h", output="k")
    return model.graph


def by_hand(names: str = "r", edges: tuple[Edge, ...] = FED, labels: tuple = (), inner: LogicalGraph | None = None):
    nodes = tuple(Node(name, RELU) for name in names.split())
    if inner is not None:
        nodes = (Node("r", Model.of(inner).block),)
    return LogicalGraph(nodes, edges, (Port("x"),), (Port("y"),), labels)


def edge(source: str, target: str) -> Edge:
    return Edge(Endpoint.parse(source), Endpoint.parse(target))


def deep(levels: int) -> LogicalGraph:
    graph = LogicalGraph()
    for _ in range(levels):
        graph, _ = add(LogicalGraph(), Model.of(graph).block)
    return graph


def nested() -> LogicalGraph:
    inner = Model() | Model.of(chain(), "inner")
    return (Model() | Model.of(inner.graph, "m/n")).graph


CASES = """
connect(chain(), Endpoint('r', 'output'), Endpoint('a/b', 'input'))
CycleError: connecting 'r.output' to 'a%2Fb.input' closes a cycle.
    cycle  a%2Fb -> r -> a%2Fb

add(chain(), Tanh().block, name='t', connections={'input': 'k', 'output': 'x'})
CycleError: connecting 't.output' to 'a%2Fb.input' closes a cycle.
    cycle  a%2Fb -> r -> t -> a%2Fb

add(LogicalGraph(), RELU, connections={'input': 'k', 'output': 'k'})
CycleError: connecting 'relu_0.output' to 'relu_0.input' closes a cycle.
    cycle  relu_0 -> relu_0

connect(chain(), Endpoint('r', 'out'), Endpoint('a/b', 'input'))
ConnectionError: block 'r' has no port 'out' among its outputs.
    outputs  output

connect(chain(), Endpoint('r', 'output'), Endpoint('a/b', 'in'))
ConnectionError: block 'a/b' has no port 'in' among its inputs.
    inputs  input, weight, bias

connect(chain(), Endpoint('q', 'output'), Endpoint('a/b', 'input'))
UnknownBlockError: the model has no block 'q'.
    blocks  'a/b', 'r'

rename(chain(), 'r', 'a/b')
NameTakenError: cannot rename block 'r' to 'a/b': that name is taken.
    blocks  'a/b', 'r'

rename(chain(), 'r', '')
NameTakenError: cannot rename block 'r' to '': a name is needed.
    blocks  'a/b', 'r'

rename(chain(), 'a', 'b')
UnknownBlockError: the model has no block 'a'.
    blocks  'a/b', 'r'

remove(LogicalGraph(), ['r'])
UnknownBlockError: the model has no block 'r'.
    blocks  none

swap(chain(), 'R', RELU)
UnknownBlockError: the model has no block 'R'.
    blocks  'a/b', 'r'

inside(chain(), ('r',), lambda graph: graph)
UnknownBlockError: block 'r' has nothing inside: Relu is an op.
    composite blocks  none

inside(nested(), ('m/n', 'inner'), lambda graph: remove(graph, ['q']))
UnknownBlockError: the model has no block 'q'.
    inside  m%2Fn/inner
    blocks  'a/b', 'r'

add(chain(), RELU, name='r')
NameTakenError: cannot add Relu as 'r': the model has a block with that name.
    blocks  'a/b', 'r'

add(chain(), RELU, connections={'output': 'h'})
NameTakenError: cannot give output 'relu_1.output' the name 'h': 'a%2Fb.output' already has it.
    names  'h', 'k', 'x'

add(chain(), RELU, connections={'output': 'h.h'})
ConnectionError: a connection cannot have the name 'h.h': a dot separates a block from its port.
    needs  a name without dots

add(chain(), RELU, connections={'input': 'r.out'})
ConnectionError: block 'r' has no port 'out' among its outputs.
    outputs  output

add(chain(), RELU, connections={'input': 'relu.output'})
UnknownBlockError: the model has no block 'relu'.
    blocks  'a/b', 'r'

add(chain(), RELU, connections={'in': 'x'})
ConnectionError: Relu 'relu_1' has no port 'in'.
    inputs   input
    outputs  output

deep(51)
NestingError: cannot add 'model_0': models would be nested 51 levels deep.
    at most  50 levels

check(by_hand(edges=(edge('q.output', 'r.input'), FED[1])))
ConnectionError: the connection 'q.output -> r.input' starts at a port that does not exist.
    missing  'q.output'
    blocks   'r'

check(by_hand(edges=(*FED, edge('x', 'r.in'))))
ConnectionError: the connection 'x -> r.in' ends at a port that does not exist.
    missing  'r.in'
    blocks   'r'

check(by_hand(labels=(('z', Endpoint('r', 'out')),)))
ConnectionError: the label 'z' is given to port 'r.out', which does not exist.
    blocks  'r'

check(by_hand('r s', (*FED, edge('x', 's.input'), edge('s.output', 'r.input'))))
ConnectionError: the port 'r.input' has 2 connections into it.
    from  'x', 's.output'
"""


@pytest.mark.parametrize(("code", "facts"), read_transcript(CASES))
def test_refused(code: str, facts: str) -> None:
    assert facts_of(code, globals()) == facts


def test_an_error_inside_a_composite_has_the_path_of_its_block():
    with pytest.raises(MithrilError) as error:
        inside(nested(), ("m/n", "inner"), lambda graph: rename(graph, "a/b", "r"))
    assert error.value.diagnostics[0].block == "m%2Fn/inner/a%2Fb"
