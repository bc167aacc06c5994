"""Cells of a notebook: the file of each workbench, and the widgets that a newer run replaces."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.models import MLP
from mithril_nb.ui.session.session import design_data
from mithril_nb.ui.widgets import Workbench, cells


@pytest.fixture
def run_cell(tmp_path, monkeypatch):
    """Return a function that starts a run of a notebook cell in a folder."""
    runs, parent = iter(range(100)), dict[str, object]()
    shell = SimpleNamespace(get_parent=lambda: parent, user_ns={})
    monkeypatch.setattr(cells, "get_ipython", lambda: shell)
    monkeypatch.setattr(cells, "_WIDGETS", {})

    def run(notebook: str = "digits.ipynb", id: str = "3f2a") -> None:
        monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / notebook))
        header = {"msg_type": "execute_request", "msg_id": str(next(runs))}
        parent.update(header=header, metadata={"cellId": id})

    yield run
    for _, widgets in cells._WIDGETS.values():
        for one in list(widgets):
            one.close()


def write_notebook(path: Path, id: str = "3f2a", outputs: list[Any] | None = None) -> None:
    path.write_text(json.dumps({"cells": [{"id": id, "outputs": outputs or []}]}), encoding="utf-8")


def edited(edit: bool = False) -> Workbench:
    wb = ml.workbench(MLP(4, [3], 2), shapes={"input": [5, 4]})
    if edit:
        wb.session.run_command("remove", {"paths": ["relu_0"]})
    return wb


def offer_of(wb: Workbench):
    return wb.session.snapshot()["autosave"]["offer"]


def test_edits_are_found_while_the_kernel_has_the_old_name(run_cell, tmp_path):
    write_notebook(tmp_path / "digits.ipynb")
    run_cell()
    edited(edit=True)
    (tmp_path / "digits.ipynb").rename(tmp_path / "numbers.ipynb")
    run_cell()
    assert offer_of(edited())["edits"] == 1


@pytest.mark.parametrize("then", ["nothing", "a new notebook with the old name"])
def test_edits_are_found_after_a_rename(run_cell, tmp_path, then):
    write_notebook(tmp_path / "Untitled [1].ipynb")
    run_cell("Untitled [1].ipynb")
    edited(edit=True)
    (tmp_path / "Untitled [1].ipynb").rename(tmp_path / "digits.ipynb")
    if then != "nothing":
        write_notebook(tmp_path / "Untitled [1].ipynb", "other")
    run_cell("digits.ipynb")
    assert offer_of(edited())["edits"] == 1


@pytest.mark.parametrize("files", [["digits"], ["gone", "gone too"]])
def test_edits_of_another_notebook_are_not_offered(run_cell, tmp_path, files):
    write_notebook(tmp_path / "digits.ipynb")
    run_cell()
    wb = edited(edit=True)
    wb.close()
    saved = tmp_path / cells.FOLDER / "digits-3f2a.json"
    content = saved.read_bytes()
    saved.unlink()
    for file in files:
        saved.with_name(f"{file}-3f2a.json").write_bytes(content)
    run_cell("copy.ipynb")
    assert offer_of(edited()) is None


def saved_picture(wb: Workbench) -> dict[str, Any]:
    html = ["<style></style>\n", '<div class="mnb-still">']
    return {"output_type": "display_data", "data": {"text/html": html, **design_data(wb.session)}}


def test_edits_in_saved_output_are_offered_without_file(run_cell, tmp_path):
    run_cell()
    wb = edited(edit=True)
    write_notebook(tmp_path / "mailed.ipynb", outputs=[{"output_type": "stream", "text": "hi"}, saved_picture(wb)])
    wb.close()
    shutil.rmtree(tmp_path / cells.FOLDER)
    run_cell("mailed.ipynb")
    later = edited()
    assert (offer_of(later)["edits"], offer_of(later)["labels"]) == (1, ["remove relu_0"])
    assert "-model += Relu()" in offer_of(later)["difference"]
    later.session.run_command("decline_edits", {})
    later.close()
    run_cell("mailed.ipynb")
    assert offer_of(edited()) is None, "the user has declined them"


@pytest.mark.parametrize("change", ["no edit", "two pictures", "not an output", "other fields", "no notebook"])
def test_ambiguous_saved_output_is_not_offered(run_cell, tmp_path, change):
    run_cell()
    wb = edited(edit=change != "no edit")
    picture = saved_picture(wb)
    wb.close()
    shutil.rmtree(tmp_path / cells.FOLDER, ignore_errors=True)
    if change == "other fields":
        picture["data"] = {key: {"edits": "many"} if "design" in key else one for key, one in picture["data"].items()}
    outputs = {"two pictures": [picture, picture], "not an output": [3]}.get(change, [picture])
    write_notebook(tmp_path / "mailed.ipynb", outputs=outputs)
    if change == "no notebook":
        (tmp_path / "mailed.ipynb").write_text("{")
    run_cell("mailed.ipynb")
    assert offer_of(edited()) is None


def test_other_widgets_do_not_change_the_file(run_cell):
    run_cell()
    edited(edit=True)
    run_cell()
    ml.explore(lambda x: x + 1, np.ones(2, "float32"))
    first, second = edited(), edited()
    assert (offer_of(first)["edits"], offer_of(second)) == (1, None)


def test_an_older_widget_that_fails_to_close_is_reported(run_cell):
    run_cell()
    older = [edited(), edited()]

    def fail() -> None:
        raise OSError("the comm is gone")

    older[0]._twin.replace = fail
    run_cell()
    newer = edited()
    assert [str(error) for error in older[0].errors] == ["the comm is gone"]
    assert (older[0].comm, older[1].comm) == (None, None)
    assert newer.comm is not None
