"""Files that a front end requests: the same as in Python, nothing unrequested, and errors as replies."""

from __future__ import annotations

import json

import jax.numpy as jnp
from sessions import session_of

import mithril_nb as ml
from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.ui.session.exploring import Exploration

WAIT_S = 300


def exported(session, *formats):
    found = []
    session.listen(lambda kind, reply: found.append(reply) if kind == "export" else None)
    for format in formats:
        assert session.run_command("request_export", {"format": format}) is None
    assert session.wait(WAIT_S)
    return {reply.head["format"]: reply for reply in found}


def test_an_exploration_makes_the_files_of_python():
    inspection = ml.inspect(jnp.sin, jnp.zeros(3), name="wave")
    session = Exploration(inspection)
    found = exported(session)
    assert found == {}
    found = exported(session, "html", "json")
    assert found["html"].data == inspection.to_html()
    assert json.loads(found["json"].data)["name"] == "wave"
    problem = session.run_command("request_export", {"format": "model"})
    assert problem is not None
    assert problem.summary == "unknown format 'model'."
    session.end()


def test_a_workbench_also_exports_its_model():
    session = session_of(Model() + Linear(16) + Relu(), {"input": [8, 32]})
    session.do("set_attribute", path="linear_0", name="dimension", value=24)
    found = exported(session, "model")
    model = Model.from_dict(json.loads(found["model"].data))
    assert model.graph == session.model.graph
    session.end()


def test_a_model_that_cannot_run_has_no_page():
    session = session_of(Model() + Linear(16))
    found = exported(session, "html", "model")
    assert found["html"].data is None
    assert found["html"].head["problem"] != ""
    assert json.loads(found["model"].data)["graph"]["nodes"][0]["name"] == "linear_0"
    session.end()


def test_a_link_opens_with_its_own_view():
    """Blocks of both models have the same names."""
    first = session_of(Model() | MLP(8, [4], 2))
    (name,) = [node.name for node in first.design.graph.nodes]
    first.move([[name, 500.0, 300.0]])
    first.run_command("open_link", {"link": (Model() | MLP(8, [4, 4], 2)).share_link()})
    assert (first._view.moved, first._view.expanded) == ({}, {name})
    first.move([[name, 40.0, 70.0]])
    first.undo()
    assert first._view.moved == {}
    first.undo()
    assert first._view.moved == {name: (500.0, 300.0)}
    first.redo()
    first.redo()
    assert first._view.moved == {name: (40.0, 70.0)}
    first.end()


def test_a_link_replaces_the_model_as_one_edit():
    session = session_of(MLP(8, [4], 2))
    before = session.design
    other = Model(name="other") + Linear(7) + Relu()
    assert session.run_command("open_link", {"link": other.share_link()}) is None
    assert (session.model.graph, session.design.name) == (other.graph, "other")
    session.undo()
    assert session.design == before
    for link in ("model.json", "#model=AAAA"):
        error = session.run_command("open_link", {"link": link})
        assert error is not None
        assert session.design == before
    session.end()
