"""Differences of models: exactly the blocks and connections that differ, whatever the models."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import models, modest

import mithril_nb as ml
from mithril_nb.models import MLP, Linear, Model, Relu, Tanh


def marks(a: Model, b: Model) -> list[tuple[str, str | None, str | None]]:
    return [(one.mark, one.before, one.after) for one in ml.compare(a, b).blocks]


@modest
@given(models())
def test_a_model_equals_itself_and_its_copy(model: Model):
    found = ml.compare(model, ml.models.from_dict(model.to_dict()))
    assert found.blocks == ()
    assert (found.connections.added, found.connections.removed) == ((), ())
    assert found.is_same
    assert found.summary == "no difference"


@modest
@given(models(), models())
def test_comparing_the_other_way_mirrors(a: Model, b: Model):
    found, mirror = ml.compare(a, b), ml.compare(b, a)
    assert {to: at for at, to in found.paths.items()} == dict(mirror.paths)
    flipped = {"added": "removed", "removed": "added"}
    seen = {(flipped.get(one.mark, one.mark), one.after, one.before, one.inside) for one in found.blocks}
    assert seen == {(one.mark, one.before, one.after, one.inside) for one in mirror.blocks}
    assert found.is_same == mirror.is_same


@modest
@given(models(), st.sampled_from((Linear(5, name="last"), Relu(name="last"), MLP(None, [3], 4, name="last"))))
def test_one_more_block_is_the_only_difference(model: Model, block: Model):
    assume("last" not in model.graph.by_name)
    more = ml.models.from_dict(model.to_dict())
    more |= block
    assert marks(model, more) == [("added", None, "last")]
    assert marks(more, model) == [("removed", "last", None)]


def chain(*blocks: Model) -> Model:
    model = Model()
    for block in blocks:
        model += block
    return model


def test_a_block_in_the_middle_renumbers_and_is_still_the_only_one():
    before = chain(Linear(64), Relu(), Linear(10))
    after = chain(Linear(64), Relu(), Linear(32), Tanh(), Linear(10))
    assert marks(before, after) == [
        ("added", None, "linear_1"),
        ("added", None, "tanh_0"),
        ("renamed", "linear_1", "linear_2"),
    ]


def test_options_are_details():
    (one,) = ml.compare(chain(Linear(64)), chain(Linear(128))).blocks
    assert (one.mark, one.path, one.details) == ("changed", "linear_0", (("dimension", "64", "128"),))


def test_a_named_block_keeps_its_name_and_another_kind_is_a_change():
    before, after = chain(Linear(4, name="head"), Relu(name="act")), chain(Linear(5, name="head"), Tanh(name="act"))
    found = ml.compare(before, after).blocks
    assert [(one.mark, one.path) for one in found] == [("changed", "head"), ("changed", "act")]
    assert found[1].details[0] == ("kind", "Relu", "Tanh")


def test_a_renamed_block_and_a_moved_block():
    assert marks(chain(Linear(4, name="a")), chain(Linear(4, name="b"))) == [("renamed", "a", "b")]
    inner = Model(name="group")
    inner += Linear(7, name="far")
    before, after = chain(Linear(7, name="far"), Relu()), chain(inner, Relu())
    assert ("moved", "far", "group/far") in marks(before, after)


def test_added_composites_count_the_blocks_inside():
    (one,) = ml.compare(chain(Relu()), chain(Relu(), MLP(None, [3], 2))).blocks
    assert (one.mark, one.path, one.inside) == ("added", "mlp_0", 3)


def test_wiring_alone_is_a_difference():
    def wired(source: str) -> Model:
        model = Model()
        model |= Relu(name="a")(input="x", output="p")
        model |= Tanh(name="b")(input="x", output="q")
        model |= Linear(3, name="c")(input=source)
        return model

    found = ml.compare(wired("p"), wired("q"))
    assert found.blocks == ()
    assert "b.output -> c.input" in found.connections.added
    assert "a.output -> c.input" in found.connections.removed
    assert not found.is_same
    assert "connection" in found.summary
