"""`mithril-nb lab --app`: the arguments, the notebook, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import mithril_nb as ml
from mithril_nb.cli import app
from mithril_nb.models import MLP
from mithril_nb.ui.widgets.workbench import Workbench


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "it's a net.json"
    ml.save(MLP(29, [37], 2), path)
    return path


def test_the_notebook_of_an_app_opens_the_model(model):
    written = nbformat.from_dict(app.notebook(model, {"input": [8, 29]}))
    nbformat.validate(written)
    names: dict[str, object] = {}
    exec(written.cells[0].source, names)
    workbench = names["wb"]
    assert isinstance(workbench, Workbench)
    assert workbench.snapshot["shapes"] == {"input": [8, 29]}
    assert workbench.snapshot["autosave"]["path"] == str(model.parent / ".mithril_nb" / "it's a net-app.json")
    assert list(workbench._dom_classes) == ["mnb-filled", "mnb-page"]
    workbench.close()


def test_an_app_needs_voila(run_cli, monkeypatch, model):
    monkeypatch.setattr(app.importlib.util, "find_spec", lambda name: None)
    assert run_cli("lab", "--app", str(model)) == (
        2,
        "",
        "UnavailableBackendError: Voilà is not installed in this environment.\n"
        f"    python  {sys.executable}\n"
        '    Try: pip install "mithril-nb[lab]"\n',
    )


def test_an_app_reports_wrong_arguments(run_cli, model):
    pytest.importorskip("voila")
    code, _, err = run_cli("lab", "--app", str(model), "mine.ipynb")
    assert (code, err) == (
        2,
        "UnknownOptionError: --app opens one model, but 'mine.ipynb' is given as well.\n",
    )
    code, _, err = run_cli("lab", "--app", str(model.with_name("none.json")))
    assert code == 2
    assert err.startswith("ModelFileError: ")
    assert run_cli("lab", "--app", str(model), "--shape", "8,29")[0] == 2


def test_an_app_passes_options_with_values_on(run_cli, model, monkeypatch):
    pytest.importorskip("voila")
    served: list[list[str]] = []
    monkeypatch.setattr(app, "_serve", lambda folder, path, options: served.append(options) or 0)
    assert run_cli("lab", "--app", str(model), "--", "--port", "8080")[0] == 0
    assert served == [["--port", "8080"]]


def test_an_app_opens_a_link(run_cli, monkeypatch):
    pytest.importorskip("voila")
    net = MLP(29, [37], 2)
    served: list[tuple[str, bool]] = []

    def serve(folder: Path, path: Path, options: list[str]) -> int:
        served.append((path.name, ml.load(path).graph == net.graph))
        return 0

    monkeypatch.setattr(app, "_serve", serve)
    code, out, _ = run_cli("lab", "--app", net.share_link("https://example.org/page.html"))
    assert (code, served) == (0, [("model.json", True)])
    assert (
        out == "The page shows a copy of the model in the link. To keep your edits, click Export, then JSON: model.\n"
    )
    code, _, err = run_cli("lab", "--app", "#model=AAAA")
    assert code == 2
    assert err.startswith("ModelFileError: cannot read this link to a model.")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_app_prints_its_address_once_and_leaves_nothing(model, tmp_path, end):
    pytest.importorskip("voila")
    command = [sys.executable, "-m", "mithril_nb", "lab", "--app", str(model), "--", "--no-browser"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    # A shell starts background jobs with SIGINT ignored, which every child inherits.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        try:
            first = server.stdout.readline()
            token = re.fullmatch(r"it's a net\.json is open at http://localhost:\d+/\?token=(\S+)\n", first)[1]
            arguments = Path(f"/proc/{server.pid}/cmdline")
            assert not arguments.exists() or token not in arguments.read_text()
            assert list(tmp_path.glob("mithril-nb-app-*"))
            server.send_signal(getattr(signal, end))
            rest = server.stdout.read()
            server.wait(30)
        finally:
            server.kill()
            signal.signal(signal.SIGINT, inherited)
    assert token not in rest
    assert not list(tmp_path.glob("mithril-nb-app-*"))
