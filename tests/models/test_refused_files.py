"""Refused files, paths and values of `load` and `save`. Loading runs no code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from transcript import facts_of, read_transcript

from mithril_nb.errors import ModelFileError
from mithril_nb.models import MLP, Linear, Model, Relu, from_dict, load, save, to_dict
from mithril_nb.models.fields import fields_of

MODEL = (Model() | Linear(3)).to_dict()


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


def saved(path: Any) -> None:
    save(Model() + Relu(), path)


def constant(value: object) -> dict:
    block = {"name": "constant_0", "kind": "Constant", "attributes": {"value": value}}
    return {**MODEL, "graph": {"nodes": [block], "edges": [], "labels": []}}


def deep(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


CASES = """
load('nothing/here.json')
ModelFileError: cannot read 'nothing/here.json'.
    because  No such file or directory

load('tests')
ModelFileError: cannot read 'tests'.
    because  Is a directory

from_dict([1, 2])
ModelFileError: this is not a model.
    needs  "format": "mithril_nb.model"
    found  [1, 2]

from_dict({'format': 'notebook', 'cells': [1] * 40})
ModelFileError: this is not a model.
    needs  "format": "mithril_nb.model"
    found  {'format': 'notebook', 'cells': [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,...

from_dict(data(version=3))
ModelFileError: this model was written in version 3 of the format.
    supported  versions 1 to 2

loaded('model = Linear(3)')
ModelFileError: 'broken.json' is not valid JSON.
    because  Expecting value: line 1 column 1 (char 0)

loaded(json.dumps(data())[:40])
ModelFileError: 'broken.json' is not valid JSON.
    because  Expecting ':' delimiter: line 1 column 41 (char 40)

loaded(bytes(range(128, 160)))
ModelFileError: 'broken.json' is not valid JSON.
    because  'utf-8' codec can't decode byte 0x80 in position 0: invalid start byte

loaded('')
ModelFileError: 'broken.json' is not valid JSON.
    because  Expecting value: line 1 column 1 (char 0)

loaded('1' * 5000)
ModelFileError: 'broken.json' is not valid JSON.
    because  Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; use sys.set_int_max_str_digits() to increase the limit

loaded('[' * 100000)
ModelFileError: 'broken.json' is not valid JSON.
    because  it is nested too deep

from_dict(data(graph=None))
ModelFileError: this model is broken.
    because  expected an object with 'nodes', found None

from_dict(data(graph__nodes={'a': 1}))
ModelFileError: this model is broken.
    because  expected 'nodes' to be a list, found {'a': 1}

from_dict(data(graph__nodes__0='linear'))
ModelFileError: this model is broken.
    because  expected an object with 'name', found 'linear'

from_dict(data(graph__nodes__0__name=''))
ModelFileError: this model is inconsistent.
    because  a block has no name.
                 names  '', 'inner'

from_dict(data(graph__nodes__0__kind='Linaer'))
ModelFileError: block 'linear_0' of this model cannot be built.
    because  unknown kind of block 'Linaer'.
                 known kinds     list(mithril_nb.models.KINDS)
                 your own kinds  first define or import the class

from_dict(data(graph__nodes__0__kind="__import__('os').system"))
ModelFileError: block 'linear_0' of this model cannot be built.
    because  unknown kind of block "__import__('os').system".
                 known kinds     list(mithril_nb.models.KINDS)
                 your own kinds  first define or import the class

from_dict(data(graph__nodes__0__attributes=[1]))
ModelFileError: this model is broken.
    because  expected 'attributes' to be an object, found [1]

from_dict(data(graph__nodes__0__kind='OneHot', graph__nodes__0__attributes={}))
ModelFileError: block 'linear_0' of this model cannot be built.
    because  cannot make OneHot: missing a required argument: 'num_classes'.
                 takes  num_classes, axis=-1, dtype=None, name=None

from_dict(data(graph__nodes__0__attributes__cls=1))
ModelFileError: block 'linear_0' of this model cannot be built.
    because  cannot make Linear: got an unexpected keyword argument 'cls'.
                 takes  dimension=None, use_bias=True, input_size=None, name=None
                 given  dimension=3, use_bias=True, input_size=None, cls=1

from_dict(data(graph__nodes__0__attributes__dimension="__import__('os')"))
ModelFileError: block 'linear_0' of this model cannot be built.
    because  Linear cannot take dimension="__import__('os')".
                 needs  a whole number from 1 to 1048576, or None
                 means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

from_dict(data(graph__nodes__0__attributes__use_bias={'a': 1}))
ModelFileError: block 'linear_0' of this model cannot be built.
    because  Linear cannot take use_bias={'a': 1}.
                 needs  True or False
                 means  If true, add a bias.

from_dict(data(graph__nodes__0__attributes__dimension=10 ** 300))
ModelFileError: block 'linear_0' of this model cannot be built.
    because  Linear cannot take dimension=10000000000000000000000000000000000000000000000000000000000000000000000000000....
                 needs  a whole number from 1 to 1048576, or None
                 means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

from_dict(json.loads(json.dumps(data()).replace('"dimension": 3', '"dimension": 1e999')))
ModelFileError: block 'linear_0' of this model cannot be built.
    because  Linear cannot take dimension=inf.
                 needs  a whole number from 1 to 1048576, or None
                 means  Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.

from_dict(data(graph__edges__0=['a', 'b', 'c']))
ModelFileError: this model is broken.
    because  expected a list of 4 strings, found ['a', 'b', 'c']

from_dict(data(graph__edges__0=['', 'x', 'linear_0', 'in']))
ModelFileError: this model is inconsistent.
    because  the connection 'x -> linear_0.in' ends at a port that does not exist.
                 missing  'linear_0.in'
                 blocks   'linear_0', 'inner'

from_dict(data(graph__edges__0=['linear_9', 'output', 'linear_0', 'input']))
ModelFileError: this model is inconsistent.
    because  the connection 'linear_9.output -> linear_0.input' starts at a port that does not exist.
                 missing  'linear_9.output'
                 blocks   'linear_0', 'inner'

from_dict(data(graph__edges=[['', 'x', 'linear_0', 'input'], ['', 'y', 'linear_0', 'input']]))
ModelFileError: this model is inconsistent.
    because  the port 'linear_0.input' has 2 connections into it.
                 from  'x', 'y'

from_dict(data(graph__labels=[['h', 'linear_0', 'out']]))
ModelFileError: this model is inconsistent.
    because  the label 'h' is given to port 'linear_0.out', which does not exist.
                 blocks  'linear_0', 'inner'

from_dict(data(graph__labels=[['x', '', 'y']]))
ModelFileError: this model is inconsistent.
    because  the label 'x' is given to port 'y', which does not exist.
                 blocks  'linear_0', 'inner'

from_dict(data(graph__nodes__1__graph__edges=7))
ModelFileError: this model is broken inside 'inner'.
    because  expected 'edges' to be a list, found 7

from_dict(data(name=[1]))
ModelFileError: this model is broken.
    because  expected 'name' to be text, found [1]

(Path('broken.json').write_text('{"format": "mithril_nb.model", "version": 2, "name": ""}'), load('broken.json'))
ModelFileError: this model is broken.
    file     broken.json
    because  expected an object with 'nodes', found None

from_dict({**MODEL, 'version': True})
ModelFileError: this model is broken.
    because  expected 'version' to be a whole number of at least 1, found True

from_dict({**MODEL, 'version': 1.0})
ModelFileError: this model is broken.
    because  expected 'version' to be a whole number of at least 1, found 1.0

from_dict(constant(deep(100000)))
ModelFileError: block 'constant_0' of this model cannot be built.
    because  Constant cannot take value=<list nested too deeply to show>.
                 needs  one value, or lists nested at most 64 levels deep
                 means  A number, or nested lists of numbers. Lists at the same depth have the same length.

saved('a\\x00b')
ModelFileError: cannot write 'a\\x00b'.
    because  embedded null byte

save(None, 'm.json')
UnknownOptionError: cannot save None.
    needs  a model

saved(None)
UnknownOptionError: cannot save to None.
    needs  the path of a file

saved('nothing/here.json')
ModelFileError: cannot write 'nothing/here.json'.
    because  No such file or directory

saved('tests')
ModelFileError: cannot write 'tests'.
    because  Is a directory

load(None)
UnknownOptionError: cannot load None.
    needs  the path of a file
"""  # noqa: E501


@pytest.mark.parametrize(("code", "facts"), read_transcript(CASES))
def test_refused(code: str, facts: str) -> None:
    assert facts_of(code, globals()) == facts


@pytest.fixture(autouse=True)
def in_a_separate_folder(tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path)


def test_the_deepest_allowed_model_loads():
    assert from_dict(nested(49)).graph.depth == 50


def test_loading_runs_no_code():
    good = json.dumps(data())
    kinds = ("os.system", "builtins.exec", "subprocess", "mithril_nb.models.Model", "Operator")
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
