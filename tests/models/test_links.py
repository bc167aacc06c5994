"""Models in links: whole, within the limit, and checked like files."""

from __future__ import annotations

import base64
import json
import zlib

import pytest

import mithril_nb as ml
from mithril_nb.errors import ModelFileError
from mithril_nb.models import GPT, MLP, Linear, Model, Relu
from mithril_nb.models.saving.serialization import MARK, MOST_CHARACTERS, data_in, fragment_of


def packed(text: bytes) -> str:
    packer = zlib.compressobj(wbits=-15)
    return MARK + base64.urlsafe_b64encode(packer.compress(text) + packer.flush()).decode().rstrip("=")


@pytest.mark.parametrize(
    "model",
    [Model(), Model("net") + Linear(3) + Relu(), MLP(4, [3], 2), Model() + GPT(16, 8, layers=12, heads=2, width=8)],
    ids=["empty", "net", "mlp", "gpt"],
)
def test_a_link_contains_the_model(model):
    link = model.share_link("https://example.org/a.html#old")
    assert link.startswith(f"https://example.org/a.html{MARK}")
    assert len(link.partition("#")[2]) < MOST_CHARACTERS
    found = ml.load(link)
    assert (found.graph, found.name) == (model.graph, model.name)
    assert model.share_link() == MARK + link.partition(MARK)[2]


def test_names_in_a_link_are_data():
    model = Model() + Linear(3)
    model = Model.from_dict({**model.to_dict(), "name": '</script><img src=x onerror="alert(1)">'})
    link = model.share_link()
    assert not set(link) & set("<>\"' ")
    assert ml.load(link).name == model.name


def test_a_large_model_does_not_fit():
    model = Model()
    for at in range(600):
        model += Linear(1000 + 7 * at % 599)
    with pytest.raises(ModelFileError, match="this model is too large for a link") as error:
        model.share_link()
    assert 'Try: model.save("model.json")  # share the file' in str(error.value)


def test_a_repeated_key_in_a_link_is_rejected():
    model = json.dumps(Linear(3).to_dict())
    with pytest.raises(ModelFileError, match="an object has the key 'model' twice"):
        ml.load(packed(f'{{"model": {model}, "model": {model}}}'.encode()))
    inner = model.replace('"version": 2', '"version": 2, "version": 2')
    with pytest.raises(ModelFileError, match="an object has the key 'version' twice"):
        ml.load(packed(f'{{"model": {inner}}}'.encode()))


@pytest.mark.parametrize(
    ("link", "because"),
    [
        (MARK, "it is damaged"),
        (f"{MARK}AAAA", "it is damaged"),
        (f"{MARK}<b>", "it is damaged"),
        (MARK + "A" * MOST_CHARACTERS, f"it has {MOST_CHARACTERS + len(MARK):,} characters, and the limit is"),
        (packed(b" " * 3_000_000), "its data has more than"),
        (packed(b"{"), "it is damaged"),
        (packed(b"[" * 100_000), "it is damaged"),
        (packed(b"[]"), "expected an object with 'model'"),
        (packed(b'{"model": 3}'), "expected 'model' to be an object"),
        (packed(json.dumps({"model": {"format": "other"}}).encode()), "this is not a model"),
    ],
)
def test_a_broken_link_is_rejected(link, because):
    with pytest.raises(ModelFileError) as error:
        ml.load(link)
    assert because in str(error.value)


def test_a_cut_link_is_rejected():
    link = (Model() + Linear(3)).share_link()
    for end in range(len(MARK), len(link) - 1):
        with pytest.raises(ModelFileError):
            ml.load(link[:end])


def test_the_data_of_a_link_is_what_was_packed():
    data = {"a": [1, "ä", None]}
    assert data_in(fragment_of(data)) == data
