"""`mithril-nb lab --app model.json`: a page with nothing but a workbench, served by Voilà."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import secrets
import signal
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

from mithril_nb.cli.target import shapes_of
from mithril_nb.errors import UnavailableBackendError, UnknownOptionError
from mithril_nb.models.saving.serialization import is_link

TEMPLATE = "mithril_nb"
_NO_BROWSER = "--no-browser"

# Voilà's own template loads fonts from a CDN, and has one theme for all visitors.
_PAGE = """\
{%- extends 'voila/templates/lab/index.html.j2' -%}
{% import "spinner.macro.html.j2" as spinner %}
{% from 'voila_setup.macro.html.j2' import voila_setup_helper_functions with context %}
{%- block notebook_css -%}
{{ resources.include_js("static/voila-style.js") }}
{{ spinner.css() }}
<style>body { margin: 0; background: Canvas; color-scheme: light dark; }</style>
{%- endblock notebook_css -%}
{%- block body_header -%}
<link rel="icon" href="data:;base64,=">
<body class="jp-Notebook" data-base-url="{{resources.base_url}}voila/" data-voila="voila">
{{ spinner.html() }}
{{ voila_setup_helper_functions() }}
<div id="rendered_cells" style="display: none">
  <div>
{%- endblock body_header -%}
"""


def open_app(options: argparse.Namespace) -> int:
    """Serve the workbench of a model file or link on loopback, open it in the browser, and wait until the server ends.

    The server is Voilà, which shows notebooks as web pages. It runs in this process, so that its kernels always end
    with this process, even if it is killed.
    """
    if importlib.util.find_spec("voila") is None:
        raise UnavailableBackendError(
            "Voilà is not installed in this environment.",
            (("python", sys.executable),),
            'pip install "mithril-nb[lab]"',
        )
    arguments = [argument for argument in (options.notebook, *options.jupyter) if argument is not None]
    if arguments and not arguments[0].startswith("-"):  # what follows an option may be its value
        raise UnknownOptionError(f"--app opens one model, but {arguments[0]!r} is given as well.")
    from mithril_nb.models import load

    shapes = shapes_of(options.shape)
    model = load(options.app)  # report an unreadable file here instead of in the page
    with tempfile.TemporaryDirectory(prefix="mithril-nb-app-") as folder:
        if is_link(options.app):
            path = Path(folder) / "model.json"
            model.save(path)
            print("The page shows a copy of the model in the link. To keep your edits, click Export, then JSON: model.")
        else:
            path = Path(options.app).resolve()
        _write(Path(folder), path, shapes)
        return _serve(Path(folder), path, arguments)


def _write(folder: Path, model: Path, shapes: dict[str, list[int | str]]) -> None:
    template = folder / "voila" / "templates" / TEMPLATE
    template.mkdir(parents=True)
    (template / "index.html.j2").write_text(_PAGE, encoding="utf-8")
    (template / "conf.json").write_text(json.dumps({"base_template": "lab"}), encoding="utf-8")
    (folder / f"{model.stem}.ipynb").write_text(json.dumps(notebook(model, shapes)), encoding="utf-8")


def notebook(model: Path, shapes: dict[str, list[int | str]]) -> dict[str, Any]:
    """Return a notebook that shows the workbench of a model file, with its edits saved beside the file."""
    autosave = model.parent / ".mithril_nb" / f"{model.stem}-app.json"
    lines = [
        "import mithril_nb as ml",
        f"wb = ml.workbench(ml.load({str(model)!r}), shapes={shapes!r}, autosave={str(autosave)!r})",
        'wb.add_class("mnb-filled").add_class("mnb-page")',
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook_of("app", "\n".join(lines), kernelspec=kernel)


def notebook_of(id: str, source: str | list[str], **metadata: Any) -> dict[str, Any]:
    """Return a notebook with one cell; `source` is its text, or the lines of the text with their ends."""
    cell = {"cell_type": "code", "id": id, "execution_count": None, "metadata": {}, "outputs": [], "source": source}
    return {"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _serve(folder: Path, model: Path, options: list[str]) -> int:
    from voila.app import Voila

    token = secrets.token_urlsafe(24)
    # Environment variables are private to the user; arguments are visible in the list of processes.
    os.environ["JUPYTER_TOKEN"] = token
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("JUPYTER_PATH")]))

    # A subclass, because Voilà calls only this method once it listens and its port is fixed.
    class AppPage(Voila):
        def launch_browser(self) -> None:
            url = f"{self.connection_url}?token={token}"
            print(f"{model.name} is open at {url}\nPress Ctrl+C to stop.", flush=True)
            if _NO_BROWSER not in options:
                # Open the address by a file, because the browser's arguments are visible to other users.
                redirect = folder / "open.html"
                redirect.touch(0o600)
                redirect.write_text(f'<meta http-equiv="refresh" content="0;url={url}">', encoding="utf-8")
                webbrowser.open(redirect.as_uri())

    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))  # the terminal was closed
    fixed = [f"--template={TEMPLATE}", "--Voila.auto_token=True", "--Voila.log_level=ERROR", "--show_tracebacks=True"]
    if os.name == "posix":
        fixed.append("--KernelManager.transport=ipc")  # other users cannot connect to the kernel
    own = [option for option in options if option != _NO_BROWSER]
    AppPage.launch_instance([str(folder / f"{model.stem}.ipynb"), *fixed, *own])
    return 0
