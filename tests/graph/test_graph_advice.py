"""The advice of edit errors works."""

from __future__ import annotations

import pytest
from advice import check

CASES = {
    "graph/annotate.py:find": """
        model = Model() | Linear(3)(input="x", output="y")
        model.rename_keys(yy="y_2")
        # Try: model.rename_keys(**{{}: "y_2"})
        """,
    "graph/annotate.py:find | like no other": """
        model = Model() | Linear(3)(input="x", output="y")
        model.rename_keys(zzz="y_2")
        # Try: model.rename_keys(**{{}: "y_2"})
        """,
    "graph/annotate.py:find | no blocks": """
        Model().rename_keys(output="y")
        # Try: model = Model()\\n{}\\nmodel.rename_keys(output="y")
        """,
    "graph/annotate.py:label": """
        model = Model() | Linear(3)(input="x", output="y")
        model.rename_keys(y="x")
        """,
    "graph/annotate.py:expose": """
        model = Model() | Linear(3)(input="x", output="h")
        model.expose_keys("x")
        # Try: {}
        """,
    "graph/annotate.py:expose | a parameter": """
        model = Model() | Linear(3, name="up")(input="x")
        model.expose_keys("up.weight")
        # Try: pm = ml.compile(model, shapes={"x": [2, 3]})\\n{}
        """,
    "graph/annotate.py:merge": """
        model = Model() | Linear(3)(input="x", output="a") | Linear(3)(input="y", output="b")
        model.merge_connections("a", "b")
        # Try: model.merge_connections("x", "y")
        """,
    "graph/check.py:check": """
        relu = Node("r", Relu().block)
        check_graph(LogicalGraph((relu,), (edge("r.output", "y"),), (Port("x"),), (Port("y"),)))
        # Try: check_graph(LogicalGraph((relu,), ({}, edge("r.output", "y")), (Port("x"),), (Port("y"),)))
        """,
    "graph/check.py:check_parts": """
        relu = Node("r", Relu().block)
        check_graph(LogicalGraph((relu,), (edge("q.output", "r.input"), edge("r.output", "y")), (Port("x"),), (Port("y"),)))
        # Try: check_graph(LogicalGraph((relu,), (edge("x", "r.input"), edge("r.output", "y")), (Port("x"),), (Port("y"),)))
        """,
    "graph/check.py:check_parts#2": """
        parts = (Node("r", Relu().block),), (edge("x", "r.input"), edge("r.output", "y")), (Port("x"),), (Port("y"),)
        check_graph(LogicalGraph(*parts, (("z", Endpoint("r", "out")),)))
        # Try: check_graph(LogicalGraph(*parts, (("z", Endpoint("r", "output")),)))
        """,
    "graph/check.py:check_parts#3": """
        relu, ports = Node("r", Relu().block), ((Port("x"), Port("z")), (Port("y"),))
        check_graph(LogicalGraph((relu,), (edge("x", "r.input"), edge("z", "r.input"), edge("r.output", "y")), *ports))
        # Try: check_graph(LogicalGraph((relu,), (edge("x", "r.input"), edge("r.output", "y")), *ports))
        """,
    "graph/check.py:_check_names": """
        ends = (edge("x", "r.input"), edge("r.output", "y")), (Port("x"),), (Port("y"),)
        check_graph(LogicalGraph((Node("r", Relu().block), Node("r", Relu().block)), *ends))
        # Try: check_graph(LogicalGraph((Node("r", Relu().block),), *ends))
        """,
    "graph/check.py:_check_labelled_once": """
        parts = (Node("r", Relu().block),), (edge("x", "r.input"), edge("r.output", "y")), (Port("x"),), (Port("y"),)
        check_graph(LogicalGraph(*parts, (("y", Endpoint("r", "output")), ("z", Endpoint("r", "output")))))
        # Try: check_graph(LogicalGraph(*parts, (("z", Endpoint("r", "output")),)))
        """,
    "graph/edit.py:add": """
        model = Model() | Linear(3)(input="x", output="h")
        model |= Relu()(input="x", output="h")
        """,
    "graph/edit.py:check_new": """
        model = Model() | Linear(3, name="body")
        model |= Relu(name="body")
        """,
    "graph/edit.py:check_new#2": """
        deep, body = Model() | Relu(), Relu()
        for _ in range(49): deep = Model() | deep
        model = Model() | deep
        # Try: {}
        """,
    "graph/edit.py:check_new#3": """
        add_to_graph(LogicalGraph(), Relu().block, connections={"in": "x"})
        # Try: Model() | {}
        """,
    "graph/edit.py:connect": """
        model = Model() | Relu(name="r")(input="x")
        connect(model.graph, Endpoint("r", "output"), Endpoint("", "y"))
        # Try: {}
        """,
    "graph/edit.py:connect | with an input that is free": """
        graph = (Model() | Relu(name="r")(input="x") | Relu(name="s")(input="x")).graph
        connect(graph, Endpoint("r", "output"), Endpoint("", "y"))
        # Try: connect(graph, Endpoint("r", "output"), Endpoint.parse(dict({})["target"]))
        """,
    "graph/edit.py:disconnect": """
        graph = (Model() | Relu(name="r")(input="x") | Relu(name="s")(input="x")).graph
        disconnect(graph, Endpoint("r", "output"), Endpoint("s", "input"))
        # Try: disconnect(graph, *map(Endpoint.parse, dict({}).values()))
        """,
    "graph/edit.py:rename": """
        graph = (Model() | Relu(name="r") | Relu(name="s")).graph
        rename(graph, "r", name="s")
        """,
    "graph/nesting.py:_inside_of": """
        graph = (Model() | Relu(name="r")).graph
        inside(graph, ("r",), lambda graph: graph)
        # Try: swap(graph, "r", Tanh().block)
        """,
    "graph/records.py:node_of": """
        graph = (Model() | Relu(name="r")).graph
        rename(graph, "rr", "s")
        # Try: rename(graph, {}, "s")
        """,
    "graph/records.py:node_of | like no other": """
        graph = (Model() | Relu(name="r")).graph
        rename(graph, "q", "s")
        # Try: rename(graph, {}, "s")
        """,
    "graph/records.py:node_of | no blocks": """
        rename(LogicalGraph(), "linear_0", "s")
        # Try: model = Model()\\n{}\\nrename(model.graph, "linear_0", "s")
        """,
    "graph/paths.py:checked_name": """
        model = Model() | Relu()(input="x")
        model.rename_keys(x=3)
        # Try: model.rename_keys(x={})
        """,
    "graph/paths.py:checked_name#2": """
        model = Model() | Relu()(input="x")
        model.rename_keys(x="a.b")
        """,
    "graph/edit.py:_check_port": """
        model = Model() | Relu(name="r")(input="x")
        model |= Tanh()(input="r.out")
        """,
    "graph/edit.py:_check_no_cycle": """
        graph = (Model() | Relu(name="r")(input="x", output="h") | Tanh(name="t")(input="h")).graph
        connect(graph, Endpoint("t", "output"), Endpoint("r", "input"))
        # Try: connect(graph, Endpoint("", "y"), Endpoint("r", "input"))
        """,
    "graph/check.py:run_order": """
        ring = edge("s.output", "r.input"), edge("r.output", "s.input")
        graph = LogicalGraph((Node("r", Relu().block), Node("s", Relu().block)), ring)
        check_graph(graph)
        # Try: check_graph({})
        """,
    "graph/spec.py:as_dtype": """
        ml.JaxBackend(dtype="float31")
        # Try: ml.JaxBackend({})
        """,
    "graph/spec.py:as_shape": """
        model = Linear(3)
        ml.compile(model, shapes={"input": "batch"})
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str) -> None:
    check(CASES, case)
