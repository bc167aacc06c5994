"""Errors of `save` and `load` for invalid models, paths and folders: the whole text."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
from raised import message_of

from mithril_nb.models import Linear, Model, Relu, from_dict, load, save


def saved(path: Any) -> None:
    save(Model() + Relu(), path)


MODEL = (Model() | Linear(3)).to_dict()


def deep(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


def constant(value: object) -> dict:
    block = {"name": "constant_0", "kind": "Constant", "attributes": {"value": value}}
    return {**MODEL, "graph": {"nodes": [block], "edges": [], "labels": []}}


CASES = {
    "a broken model in a file": (
        lambda: (
            Path("broken.json").write_text('{"format": "mithril_nb.model", "version": 2, "name": ""}'),
            load("broken.json"),
        ),
        """
        ModelFileError: this model is broken.
            file     broken.json
            because  expected an object with 'nodes', found None
            Try: ml.save(model, path)  # writes the file again; or restore an earlier copy of the file
        """,
    ),
    "a version that is a truth value": (
        lambda: from_dict({**MODEL, "version": True}),
        """
        ModelFileError: this model is broken.
            because  expected 'version' to be a whole number of at least 1, found True
            Try: ml.save(model, path)  # writes the file again; or restore an earlier copy of the file
        """,
    ),
    "a version with a point": (
        lambda: from_dict({**MODEL, "version": 1.0}),
        """
        ModelFileError: this model is broken.
            because  expected 'version' to be a whole number of at least 1, found 1.0
            Try: ml.save(model, path)  # writes the file again; or restore an earlier copy of the file
        """,
    ),
    "values nested too deep": (
        lambda: from_dict(constant(deep(100_000))),
        """
        ModelFileError: block 'constant_0' of this model cannot be built.
            because  Constant cannot take value=<list nested too deeply to show>.
                         needs  one value, or lists nested at most 64 levels deep
                         means  A number, or nested lists of numbers. Lists at the same depth have the same length.
            Try: ml.save(model, path)  # writes the file again; or restore an earlier copy of the file
        """,
    ),
    "a path with a zero byte": (
        lambda: saved("a\0b"),
        """
        ModelFileError: cannot write 'a\\x00b'.
            because  embedded null byte
            Try: ml.save(model, "model.json")
        """,
    ),
    "save a value that is not a model": (
        lambda: save(None, "m.json"),  # type: ignore
        """
        UnknownOptionError: cannot save None.
            needs  a model
            Try: ml.save(model, "model.json")
        """,
    ),
    "save to an invalid path": (
        lambda: saved(None),
        """
        UnknownOptionError: cannot save to None.
            needs  the path of a file
            Try: ml.save(model, "model.json")
        """,
    ),
    "save to a folder that is not there": (
        lambda: saved("nothing/here.json"),
        """
        ModelFileError: cannot write 'nothing/here.json'.
            because  No such file or directory
            Try: ml.save(model, "model.json")
        """,
    ),
    "save to a folder": (
        lambda: saved("tests"),
        """
        ModelFileError: cannot write 'tests'.
            because  Is a directory
            Try: ml.save(model, "model.json")
        """,
    ),
    "load from an invalid path": (
        lambda: load(None),  # type: ignore
        """
        UnknownOptionError: cannot load None.
            needs  the path of a file
            Try: ml.load("model.json")
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, text = CASES[case]
    assert message_of(call) == textwrap.dedent(text).strip()


@pytest.fixture(autouse=True)
def in_a_separate_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
