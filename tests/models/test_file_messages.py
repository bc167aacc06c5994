"""Errors of broken model files: the whole text. Loading runs no code."""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from raised import message_of

from mithril_nb.errors import ModelFileError
from mithril_nb.models import MLP, Linear, Model, Relu, from_dict, load, to_dict
from mithril_nb.models.fields import fields_of


def data(**changes: Any) -> dict:
    """Return a valid model with some parts changed, or removed if `None`."""
    model = Model()
    model |= Linear(3)(input="x", output="h")
    model |= Model.of((Model() + Relu()).graph, "inner")(input="h")
    whole = to_dict(model.graph, "good")
    for path, value in changes.items():
        *way, last = path.split("__")
        part: Any = whole
        for key in way:
            part = part[int(key) if key.isdecimal() else key]
        last = int(last) if last.isdecimal() else last
        if value is None:
            del part[last]
        else:
            part[last] = value
    return whole


def loaded(text: str | bytes) -> Model:
    """Load a file with this text, by a name without a folder."""
    path = Path("broken.json")
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load(path)


def nested(levels: int) -> dict:
    graph: dict = {"nodes": [], "edges": [], "labels": []}
    for _ in range(levels):
        graph = {"nodes": [{"name": "m", "kind": "Model", "graph": graph}], "edges": [], "labels": []}
    return {"format": "mithril_nb.model", "version": 1, "name": "", "graph": graph}


CYCLE = [["linear_0", "output", "inner", "input"], ["inner", "output", "linear_0", "input"]]


CASES = {
    "no such file": (
        lambda: load("nothing/here.json"),
        """
        ModelFileError: cannot read 'nothing/here.json'.
            because  No such file or directory
        """,
    ),
    "a folder": (
        lambda: load("tests"),
        """
        ModelFileError: cannot read 'tests'.
            because  Is a directory
        """,
    ),
    "a list": (
        lambda: from_dict([1, 2]),
        """
        ModelFileError: this is not a model.
            needs  "format": "mithril_nb.model"
            found  [1, 2]
            Try: ml.save(model, path)  # writes the file again; or restore an earlier copy of the file
        """,
    ),
    "another object": (
        lambda: from_dict({"format": "notebook", "cells": [1] * 40}),
        """
        ModelFileError: this is not a model.
            needs  "format": "mithril_nb.model"
            found  {'format': 'notebook', 'cells': [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,...
            Try: ml.save(model, path)  # writes the file again; or restore an earlier copy of the file
        """,
    ),
    "a later version": (
        lambda: from_dict(data(version=3)),
        """
        ModelFileError: this model was written in version 3 of the format.
            supported  versions 1 to 2
            Try: pip install --upgrade mithril-nb
        """,
    ),
}

BROKEN = {
    "no JSON": (
        lambda: loaded("model = Linear(3)"),
        "'broken.json' is not valid JSON.",
        "Expecting value: line 1 column 1 (char 0)",
    ),
    "cut off": (
        lambda: loaded(json.dumps(data())[:40]),
        "'broken.json' is not valid JSON.",
        "Expecting ':' delimiter: line 1 column 41 (char 40)",
    ),
    "no text": (
        lambda: loaded(bytes(range(128, 160))),
        "'broken.json' is not valid JSON.",
        "'utf-8' codec can't decode byte 0x80 in position 0: invalid start byte",
    ),
    "empty": (
        lambda: loaded(""),
        "'broken.json' is not valid JSON.",
        "Expecting value: line 1 column 1 (char 0)",
    ),
    "a number of 5000 digits": (
        lambda: loaded("1" * 5000),
        "'broken.json' is not valid JSON.",
        "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; use sys.set_int_max_str_digits() to increase the limit",  # noqa: E501
    ),
    "brackets without end": (
        lambda: loaded("[" * 100_000),
        "'broken.json' is not valid JSON.",
        "it is nested too deep",
    ),
    "no graph": (
        lambda: from_dict(data(graph=None)),
        "this model is broken.",
        "expected an object with 'nodes', found None",
    ),
    "nodes that are an object": (
        lambda: from_dict(data(graph__nodes={"a": 1})),
        "this model is broken.",
        "expected 'nodes' to be a list, found {'a': 1}",
    ),
    "a node that is text": (
        lambda: from_dict(data(graph__nodes__0="linear")),
        "this model is broken.",
        "expected an object with 'name', found 'linear'",
    ),
    "a node with an empty name": (
        lambda: from_dict(data(graph__nodes__0__name="")),
        "this model is inconsistent.",
        "a block has no name.",
        "names  '', 'inner'",
    ),
    "an unknown kind": (
        lambda: from_dict(data(graph__nodes__0__kind="Linaer")),
        "block 'linear_0' of this model cannot be built.",
        "unknown kind of block 'Linaer'.",
        "known kinds     list(mithril_nb.models.KINDS)",
        "your own kinds  first define or import the class",
    ),
    "a kind that is code": (
        lambda: from_dict(data(graph__nodes__0__kind="__import__('os').system")),
        "block 'linear_0' of this model cannot be built.",
        "unknown kind of block \"__import__('os').system\".",
        "known kinds     list(mithril_nb.models.KINDS)",
        "your own kinds  first define or import the class",
    ),
    "attributes that are a list": (
        lambda: from_dict(data(graph__nodes__0__attributes=[1])),
        "this model is broken.",
        "expected 'attributes' to be an object, found [1]",
    ),
    "an attribute that is missing": (
        lambda: from_dict(data(graph__nodes__0__kind="OneHot", graph__nodes__0__attributes={})),
        "block 'linear_0' of this model cannot be built.",
        "cannot make OneHot: missing a required argument: 'num_classes'.",
        "takes  num_classes, axis=-1, dtype=None, name=None",
    ),
    "an attribute that is too many": (
        lambda: from_dict(data(graph__nodes__0__attributes__cls=1)),
        "block 'linear_0' of this model cannot be built.",
        "cannot make Linear: got an unexpected keyword argument 'cls'.",
        "takes  dimension=None, use_bias=True, input_size=None, name=None",
        "given  dimension=3, use_bias=True, input_size=None, cls=1",
    ),
    "an attribute that is text": (
        lambda: from_dict(data(graph__nodes__0__attributes__dimension="__import__('os')")),
        "block 'linear_0' of this model cannot be built.",
        "Linear cannot take dimension=\"__import__('os')\".",
        "needs  a whole number from 1 to 1048576, or None",
        "means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.",
    ),
    "an attribute that is an object": (
        lambda: from_dict(data(graph__nodes__0__attributes__use_bias={"a": 1})),
        "block 'linear_0' of this model cannot be built.",
        "Linear cannot take use_bias={'a': 1}.",
        "needs  True or False",
        "means  If true, add a bias.",
    ),
    "an attribute that is huge": (
        lambda: from_dict(data(graph__nodes__0__attributes__dimension=10**300)),
        "block 'linear_0' of this model cannot be built.",
        "Linear cannot take dimension=10000000000000000000000000000000000000000000000000000000000000000000000000000....",  # noqa: E501
        "needs  a whole number from 1 to 1048576, or None",
        "means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.",
    ),
    "an attribute that is infinite": (
        lambda: from_dict(json.loads(json.dumps(data()).replace('"dimension": 3', '"dimension": 1e999'))),
        "block 'linear_0' of this model cannot be built.",
        "Linear cannot take dimension=inf.",
        "needs  a whole number from 1 to 1048576, or None",
        "means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.",
    ),
    "an edge of three parts": (
        lambda: from_dict(data(graph__edges__0=["a", "b", "c"])),
        "this model is broken.",
        "expected a list of 4 strings, found ['a', 'b', 'c']",
    ),
    "an edge to nowhere": (
        lambda: from_dict(data(graph__edges__0=["", "x", "linear_0", "in"])),
        "this model is inconsistent.",
        "the connection 'x -> linear_0.in' ends at a port that does not exist.",
        "missing  'linear_0.in'",
        "blocks   'linear_0', 'inner'",
    ),
    "an edge from nowhere": (
        lambda: from_dict(data(graph__edges__0=["linear_9", "output", "linear_0", "input"])),
        "this model is inconsistent.",
        "the connection 'linear_9.output -> linear_0.input' starts at a port that does not exist.",
        "missing  'linear_9.output'",
        "blocks   'linear_0', 'inner'",
    ),
    "two edges into one port": (
        lambda: from_dict(data(graph__edges=[["", "x", "linear_0", "input"], ["", "y", "linear_0", "input"]])),
        "this model is inconsistent.",
        "the port 'linear_0.input' has 2 connections into it.",
        "from  'x', 'y'",
    ),
    "a label of nothing": (
        lambda: from_dict(data(graph__labels=[["h", "linear_0", "out"]])),
        "this model is inconsistent.",
        "the label 'h' is given to port 'linear_0.out', which does not exist.",
        "blocks  'linear_0', 'inner'",
    ),
    "an input of another name": (
        lambda: from_dict(data(graph__labels=[["x", "", "y"]])),
        "this model is inconsistent.",
        "the label 'x' is given to port 'y', which does not exist.",
        "blocks  'linear_0', 'inner'",
    ),
    "a broken part inside": (
        lambda: from_dict(data(graph__nodes__1__graph__edges=7)),
        "this model is broken inside 'inner'.",
        "expected 'edges' to be a list, found 7",
    ),
    "a name that is not a string": (
        lambda: from_dict(data(name=[1])),
        "this model is broken.",
        "expected 'name' to be text, found [1]",
    ),
}
"""By case: the call, what the file is, and the lines that give the reason."""


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, text = CASES[case]
    assert message_of(call) == textwrap.dedent(text).strip()


@pytest.mark.parametrize("case", BROKEN)
def test_message_of_a_broken_file(case):
    call, summary, *because = BROKEN[case]
    reason = "\n                 ".join(because)
    advice = "ml.save(model, path)  # writes the file again; or restore an earlier copy of the file"
    assert message_of(call) == f"ModelFileError: {summary}\n    because  {reason}\n    Try: {advice}"


@pytest.fixture(autouse=True)
def in_a_separate_folder(tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path)


def test_the_deepest_allowed_model_loads():
    assert from_dict(nested(49)).graph.depth == 50


def test_loading_runs_no_code():
    good, kinds = (
        json.dumps(data()),
        ("os.system", "builtins.exec", "subprocess", "mithril_nb.models.Model", "Operator"),
    )
    for field in fields_of(Linear), fields_of(MLP):
        assert field, "read from our own signatures once, which evaluates them"
    # Running or importing anything raises one of these audit events. A hook cannot be removed, so a flag disables it.
    seen: list[str] = []
    watch = {"exec", "compile", "import", "os.system", "subprocess.Popen", "pickle.find_class"}
    active = True
    sys.addaudithook(lambda event, args: seen.append(event) if active and event in watch else None)
    for kind in kinds:
        with pytest.raises(ModelFileError):
            loaded(json.dumps(data(graph__nodes__0__kind=kind)))
    loaded(good)
    from_dict(to_dict(MLP(3, [4], 2).graph))
    active = False
    assert seen == []
