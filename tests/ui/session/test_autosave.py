"""Autosave: edits survive a killed kernel, and are offered when the cell runs again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import UnknownOptionError
from mithril_nb.models import MLP, Linear, Model, Relu
from mithril_nb.ui.session import Session, autosave, design_of
from mithril_nb.ui.session.autosave import Autosave, design_from_dict, design_source


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / ".mithril_nb" / "digits-3f2a.json"


@pytest.fixture
def open_session(file, monkeypatch):
    monkeypatch.setattr(autosave, "_IN_MEMORY", {})  # as in a new process
    sessions = []

    def open_one(model=None) -> Session:
        monkeypatch.setattr(autosave, "_IN_MEMORY", {})
        start = design_of(model or MLP(4, [3], 2), {"input": [5, 4]})
        sessions.append(Session(start, JaxBackend(), None, lambda design: Autosave(file, design)))
        return sessions[-1]

    yield open_one
    for session in sessions:
        session.end()


def offer(session: Session):
    return session.snapshot()["autosave"]["offer"]


def edit(session: Session, command: str, /, **args) -> None:
    assert session.run_command(command, args) is None


def edited(open_session, *kinds: str) -> Session:
    """Return a session that has ended after these blocks were added; by default a `Relu`."""
    session = open_session()
    for kind in kinds or ("Relu",):
        edit(session, "add_block", kind=kind)
    session.end()
    return session


def test_edits_are_offered_to_the_next_session_with_the_difference(open_session, file):
    session = open_session()
    assert offer(session) is None
    edit(session, "add_block", kind="Relu")
    edit(session, "set_shape", name="input", shape=[7, 4])
    edited = session.design
    session.end()

    later = open_session()
    assert offer(later)["edits"] == 2
    assert offer(later)["labels"] == ["add Relu", "shape of input"]
    assert "+model += Relu()" in offer(later)["difference"]
    assert "-# shape of 'input': [5, 4]\n+# shape of 'input': [7, 4]" in offer(later)["difference"]
    assert later.design != edited, "nothing is restored before the user chooses"
    edit(later, "restore_edits")
    assert later.design == edited
    assert offer(later) is None
    edit(later, "undo")
    assert later.design == design_of(MLP(4, [3], 2), {"input": [5, 4]})


def test_restored_edits_and_new_ones_are_counted_together(open_session):
    edited(open_session, "Relu", "Tanh", "Sigmoid")
    later = open_session()
    edit(later, "restore_edits")
    assert later.snapshot()["autosave"]["edits"] == 3
    edit(later, "add_block", kind="Relu")
    assert later.snapshot()["autosave"]["edits"] == 4
    assert later.edit_labels == ("add Relu", "add Tanh", "add Sigmoid", "add Relu")
    later.end()
    assert offer(open_session())["edits"] == 4


def test_declined_edits_are_kept_but_not_offered_again(open_session, file):
    edited(open_session)
    later = open_session()
    edit(later, "decline_edits")
    assert offer(later) is None
    later.end()
    assert offer(open_session()) is None
    assert [one["declined"] for one in json.loads(file.read_text())["versions"]] == [True]


def test_early_edit_does_not_overwrite_saved_edits(open_session):
    edited(open_session)
    edited(open_session, "Tanh")
    third = open_session()
    assert offer(third)["labels"] == ["add Tanh"]
    assert offer(third)["older"] == 1
    edit(third, "decline_edits")
    assert offer(third)["labels"] == ["add Relu"], "the older version is offered at once"
    assert offer(third)["older"] is None
    assert "+model += Relu()" in offer(third)["difference"]
    third.end()
    assert offer(open_session())["labels"] == ["add Relu"]


def test_edits_by_code_are_not_saved(open_session, file):
    session = open_session()
    session.do("add_block", kind="Relu")
    session.end()
    assert not file.exists()


def test_edits_that_were_all_undone_are_not_offered(open_session, file):
    session = edited(open_session)
    assert file.exists()
    edit(session, "undo")
    session.end()
    assert not file.exists()


def test_folder_is_ignored_by_git(open_session, file):
    edited(open_session)
    assert (file.parent / ".gitignore").read_text() == "*\n"
    assert [path.name for path in file.parent.iterdir() if path.name != ".gitignore"] == [file.name]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": "mithril_nb.autosave"}',
        '{"format": "mithril_nb.autosave", "versions": [1]}',
        "[" * 100_000,
    ],
)
def test_a_file_without_versions_is_not_replaced(open_session, file, text):
    file.parent.mkdir()
    file.write_text(text)
    session = open_session()
    assert offer(session) is None
    edit(session, "add_block", kind="Relu")
    session.end()
    assert "is not an autosave file" in session.snapshot()["autosave"]["problem"]
    assert (file.read_text(), os.listdir(file.parent)) == (text, [file.name])


@pytest.mark.parametrize("target", ["missing", "foreign", "autosave", "pipe"])
def test_a_link_and_a_pipe_are_not_written_to(open_session, file, target):
    other = file.with_name("other.json")
    file.parent.mkdir()
    if target == "pipe":
        os.mkfifo(file)
    else:
        texts = {"foreign": "thesis", "autosave": '{"format": "mithril_nb.autosave", "versions": []}'}
        if target in texts:
            other.write_text(texts[target])
        file.symlink_to(other)
    before = {path: path.lstat() for path in file.parent.iterdir()}
    session = edited(open_session)
    assert "is not an autosave file" in session.snapshot()["autosave"]["problem"]
    edit(session, "undo")
    session.end()
    assert {path: path.lstat() for path in file.parent.iterdir()} == before


def test_edits_after_the_clock_was_ahead_are_saved(open_session, file, monkeypatch):
    tomorrow = time.time() + 86_400
    with monkeypatch.context() as patched:
        patched.setattr(autosave.time, "time", lambda: tomorrow)
        for kind in ("Relu", "Tanh", "Sigmoid", "Gelu", "Softplus"):
            edited(open_session, kind)
    edited(open_session, "SiLU")
    assert offer(open_session())["labels"] == ["add SiLU"]
    assert len(json.loads(file.read_text())["versions"]) == 5


def test_a_file_of_the_user_is_never_touched(tmp_path, monkeypatch):
    monkeypatch.setattr(autosave, "_IN_MEMORY", {})
    path, start = tmp_path / "model.json", design_of(MLP(4, [3], 2), None)
    path.write_text('{"format": "mithril_nb.model"}')
    session = Session(start, JaxBackend(), None, lambda design: Autosave(path, design))
    edit(session, "add_block", kind="Relu")
    session.end()
    problem = session.snapshot()["autosave"]["problem"]
    assert problem == f"{path}: the file exists and is not an autosave file, so edits are kept in memory only"
    edit(session, "undo")
    session.end()
    assert path.read_text() == '{"format": "mithril_nb.model"}'
    assert [one.name for one in tmp_path.iterdir()] == ["model.json"]


def test_file_of_a_later_version_keeps_known_fields(open_session, file):
    edited(open_session)
    data = json.loads(file.read_text())
    data["versions"][0]["colour"] = "blue"
    file.write_text(json.dumps(data))
    assert offer(open_session())["edits"] == 1


@pytest.mark.parametrize("saved_at", [10**400, float("inf"), "now", None])
def test_invalid_time_is_rejected(open_session, file, saved_at):
    edited(open_session)
    data = json.loads(file.read_text())
    data["versions"][0]["saved_at"] = saved_at
    file.write_text(json.dumps(data))
    assert offer(open_session()) is None


def test_a_restore_that_fails_loses_nothing(open_session, file, monkeypatch):
    edited(open_session)
    later = open_session()

    def fail(design, version):
        raise RuntimeError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(later, "_analysed", fail)
        assert later.run_command("restore_edits", {}) is not None
    assert offer(later) is not None
    edit(later, "restore_edits")
    edit(later, "undo")
    later.end()
    assert offer(open_session())["edits"] == 1, "edits that were restored and taken back are offered again"


def test_edit_count_after_restore_undo_and_failure(open_session):
    edited(open_session, "Relu", "Tanh", "Sigmoid")
    later = open_session()
    assert later.run_command("add_block", {"kind": "Nothing"}) is not None
    later.do("add_block", kind="Relu")
    later.do("undo")
    assert later.edits == 0, "an edit that failed and edits by code are not the user's"
    edit(later, "restore_edits")
    edit(later, "undo")
    edit(later, "add_block", kind="Linear")
    assert (later.edits, later.edit_labels) == (1, ("add Linear",))


def test_unwritable_file_is_reported(tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("")  # a file where the folder should be
    path, start = tmp_path / "taken" / "cell.json", design_of(MLP(4, [3], 2), None)
    session = Session(start, JaxBackend(), None, lambda design: Autosave(path, design))
    edit(session, "add_block", kind="Relu")
    session.end()
    assert session.snapshot()["autosave"]["problem"].startswith(str(path))
    again = Session(start, JaxBackend(), None, lambda design: Autosave(path, design))
    assert offer(again)["edits"] == 1
    again.end()


def test_a_read_only_folder_is_announced_until_dismissed(file, open_session, monkeypatch):
    monkeypatch.setattr(autosave.os, "access", lambda path, mode: False)  # the tests may run as root
    monkeypatch.setattr(autosave, "_make_folder", lambda folder: os.listdir("/missing"))
    session = open_session()
    notice = session.snapshot()["notice"]
    assert notice["summary"] == "Your edits cannot be saved. Copy the source before you restart the kernel."
    assert dict(notice["facts"])["because"] == f"{file}: the folder {str(file.parent.parent)!r} is read-only"
    edit(session, "add_block", kind="Relu")
    session._autosave.flush()
    assert "No such file" in dict(session.snapshot()["notice"]["facts"])["because"]
    edit(session, "dismiss")
    edit(session, "add_block", kind="Tanh")
    session._autosave.flush()
    assert session.snapshot()["notice"] is None


def test_save_error_is_reported_and_retried(open_session, monkeypatch):
    session = open_session()

    def fail(*args, **options):
        raise RuntimeError("no source")

    with monkeypatch.context() as patched:
        patched.setattr(autosave, "saved_design", fail)
        edit(session, "add_block", kind="Relu")
        session._autosave.flush()
        assert session.snapshot()["autosave"]["problem"].endswith(": no source")
    edit(session, "add_block", kind="Tanh")
    session.end()
    assert session.snapshot()["autosave"]["problem"] == ""
    assert offer(open_session())["edits"] == 2


def test_without_saved_edits_there_is_nothing_to_restore(open_session, file):
    with pytest.raises(UnknownOptionError) as error:
        open_session().do("restore_edits")
    assert str(error.value) == "there are no saved edits of an earlier run of this cell."


def test_unreadable_design_keeps_the_offer(open_session, file):
    edited(open_session)
    data = json.loads(file.read_text())
    data["versions"][0]["design"]["model"]["graph"]["nodes"][0]["kind"] = "Unknown"
    file.write_text(json.dumps(data))
    later = open_session()
    problem = later.run_command("restore_edits", {})
    assert "Unknown" in str(problem)
    assert later.design == design_of(MLP(4, [3], 2), {"input": [5, 4]})
    assert offer(later) is not None


def test_versions_of_two_kernels_on_one_notebook_are_both_kept(open_session, file):
    one, other = open_session(), open_session()
    edit(one, "add_block", kind="Relu")
    edit(other, "add_block", kind="Tanh")
    one.end()
    other.end()
    assert len(json.loads(file.read_text())["versions"]) == 2


def test_the_source_of_a_design_builds_its_model(tmp_path):
    model = Model() + Linear(dimension=3) + Relu()
    design = design_of(model, {"input": [5, 4]})
    namespace: dict = {}
    exec(design_source(replace(design, program="forward")), namespace)
    assert namespace["model"].graph == design.graph


_EDITING = """
import sys, time
from pathlib import Path
from mithril_nb.backends.jax import JaxBackend
from mithril_nb.models import MLP
from mithril_nb.ui.session import Session, design_of
from mithril_nb.ui.session.autosave import Autosave
start, path = design_of(MLP(4, [3], 2), None), Path(sys.argv[1])
session = Session(start, JaxBackend(), None, lambda design: Autosave(path, design))
for width in range(5, 10**9):
    problem = session.run_command("set_attribute", {"path": "linear_0", "name": "dimension", "value": width})
    assert problem is None, problem
    print(width, time.time(), flush=True)
    time.sleep(0.003)
"""


def test_a_killed_kernel_loses_no_edit_older_than_a_second(file, stress, monkeypatch):
    kills, random_, lost, oldest = stress.size(short=2, long=100), random.Random(17), 0, 0.0
    monkeypatch.setattr(autosave, "_IN_MEMORY", {})
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", _EDITING, str(file)], stdout=subprocess.PIPE, text=True, env={**os.environ}
        )
        try:
            first = process.stdout.readline()
            time.sleep(random_.uniform(0.2, 2.0))
            killed_at = time.time()
        finally:
            process.send_signal(signal.SIGKILL)
        lines = [line.split() for line in [first, *process.communicate()[0].splitlines()] if line.count(" ") == 1]
        widths = [int(width) for width, _ in lines]
        due = [int(width) for width, at in lines if float(at) < killed_at - 1.0]
        saved = Autosave(file, design_of(MLP(4, [3], 2), None)).offer
        width = 0
        if saved is not None:
            width = next(
                dict(node.block.attributes)["dimension"]
                for node in design_from_dict(saved.design).graph.nodes
                if node.name == "linear_0"
            )
        lost += bool(due) and width < due[-1]
        behind = [float(at) for number, at in lines if int(number) > width]
        oldest = max(oldest, killed_at - behind[0] if behind else 0.0)
        assert not widths or width <= widths[-1] + 1
        file.unlink(missing_ok=True)
    left = [path.name for path in file.parent.iterdir()]
    stress.report(kills=kills, edits_lost=lost, oldest_lost_s=round(oldest, 2))
    assert lost == 0
    assert left == [".gitignore"], "the next session removes what a killed one left"
