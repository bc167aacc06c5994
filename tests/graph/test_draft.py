"""A draft that is closed once gives the same graph as repeated additions to a closed graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mithril_nb.errors import MithrilError
from mithril_nb.graph.edit import Draft, add
from mithril_nb.graph.records import Endpoint, LogicalGraph
from mithril_nb.models import Linear, Model
from tests.strategies import draw_connections, modest, parts


@modest
@given(st.data())
def test_a_draft_equals_adding_blocks_one_by_one(data: st.DataObject):
    graph, draft = LogicalGraph(), Draft(LogicalGraph())
    for _ in range(data.draw(st.integers(1, 7))):
        part = data.draw(parts(1, hostile=True))
        # Names are drawn from the closed graph; closing in between must not change the result.
        connections = draw_connections(data.draw, Model.of(graph), part)
        chain = data.draw(st.booleans())
        last = draft.last_output() if chain else None
        settings = {"name": part.name or "", "connections": connections, "after": last}
        found = [_tried(partial(add, graph), part, settings), _tried(draft.add, part, settings)]
        if isinstance(found[0], tuple):
            graph, name = found[0]
            assert found[1] == name
            if data.draw(st.booleans()):
                assert draft.graph() == graph
        else:
            assert found[1] == found[0]
    assert draft.graph() == graph


def _tried(step: Callable[..., Any], part: Model, settings: dict[str, Any]) -> Any:
    """Return the result of a step, or its error."""
    try:
        return step(part.block, **settings)
    except MithrilError as error:
        return str(error)


def test_adding_does_not_close_the_graph(monkeypatch):
    boundaries = []
    monkeypatch.setattr("mithril_nb.graph.edit.infer_boundary", lambda *parts: boundaries.append(parts))
    model = Model()
    for number in range(20):
        model |= Linear(8)(input=f"h{number}", output=f"h{number + 1}")
    assert boundaries == []


def test_connections_and_expressions_do_not_close_the_graph(monkeypatch):
    boundaries = []
    monkeypatch.setattr("mithril_nb.graph.edit.infer_boundary", lambda *parts: boundaries.append(parts))
    model, last = Model(), Linear(8)
    model |= last(input="x")
    for _ in range(20):
        following = Linear(8)
        model |= following(input=last.output)
        last = Linear(8)
        model |= last(input=following.output * 2.0)
    assert boundaries == []


def test_a_draft_state_is_restored():
    draft = Draft(LogicalGraph())
    draft.add(Linear(8).block, connections={"input": "x", "output": "h"})
    state, before = draft.state(), draft.graph()
    draft.add(Linear(8).block, connections={"input": "h", "output": "y"})
    draft.note(Endpoint("", "x"), lambda note: replace(note, shape=(2, 3)))
    draft.restore(state)
    assert draft.graph() == before
    assert draft.add(Linear(8).block, connections={"input": "h", "output": "y"}) == "linear_1"
