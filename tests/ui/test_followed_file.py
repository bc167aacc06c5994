"""A workbench of a Python file shows the changes of the file, and keeps its model if the file is no model."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

import mithril_nb as ml
from mithril_nb.errors import ModelFileError
from mithril_nb.models.saving.reading import from_source
from mithril_nb.ui.widgets.followed_file import FollowedFile

TEXT = "from mithril_nb.models import Linear, Model\n\nnet = Model()  # a net\nnet |= Linear( 8 )\n"


def wait_for(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(TEXT)
    wb = ml.workbench(path, autosave=False)
    assert (wb.source, wb.model.graph) == (TEXT, from_source(TEXT).graph)
    path.write_text(TEXT + "net += Linear(3)\n")
    wait_for(lambda: wb.source == TEXT + "net += Linear(3)\n")
    path.write_text("import os\nos.remove('x')\n")
    wait_for(lambda: bool(wb.errors))
    assert wb.source == TEXT + "net += Linear(3)\n"
    path.unlink()
    path.write_text(TEXT)
    wait_for(lambda: wb.source == TEXT)
    wb.do("undo")
    assert wb.source == TEXT + "net += Linear(3)\n"
    wb.close()
    path.write_text(TEXT + "net += Linear(5)\n")
    time.sleep(1.2)
    assert wb.source == TEXT + "net += Linear(3)\n"


def test_code_that_is_no_model_opens_no_workbench(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text("x = 1")
    with pytest.raises(ModelFileError, match="only a model"):
        ml.workbench(str(path))
    with pytest.raises(FileNotFoundError):
        ml.workbench(tmp_path / "missing.py")


def test_a_saved_model_opens(tmp_path: Path) -> None:
    ml.save(from_source(TEXT), tmp_path / "net.json")
    assert ml.workbench(tmp_path / "net.json", autosave=False).model.graph == from_source(TEXT).graph


def test_changes_and_selections_are_told() -> None:
    wb = ml.workbench(from_source(TEXT), autosave=False)
    told: list[object] = []
    ends = [wb.on_change(lambda model: told.append(len(model.graph.nodes))), wb.on_select(told.append)]
    wb.do("add_block", kind="Relu")
    assert told == [2, ("relu_0",)] or told == [("relu_0",), 2]
    for end in ends:
        end()
    wb.do("undo")
    assert len(told) == 2


class Reader:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def read(self, text: str) -> None:
        self.texts.append(text)


def test_the_thread_ends_with_its_object(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(TEXT)
    reader = Reader()
    texts, end = reader.texts, weakref.ref(reader)
    FollowedFile(path, "", weakref.WeakMethod(reader.read))
    wait_for(lambda: texts == [TEXT])
    del reader
    wait_for(lambda: end() is None)
