"""`mithril-nb lab`: open JupyterLab on a notebook, or on a new one."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from mithril_nb.atomic_write import write_text
from mithril_nb.errors import ModelFileError, UnavailableBackendError

NOTEBOOK = Path("notebooks") / "01_build_and_train.ipynb"


def open_lab(options: argparse.Namespace) -> int:
    """Open JupyterLab, and wait until it exits."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise UnavailableBackendError(
            "JupyterLab is not installed in this environment.",
            (("python", sys.executable),),
            'pip install "mithril-nb[lab]"',
        )
    notebook = _notebook(options.notebook)
    command = [sys.executable, "-m", "jupyterlab", str(notebook), *options.jupyter]
    print(f"Opening {notebook} in JupyterLab; its URL is printed below. Press Ctrl+C twice to stop.", flush=True)
    with subprocess.Popen(command) as server:
        while True:
            try:
                return server.wait()
            except KeyboardInterrupt:  # the server receives the interrupt as well, and prompts the user
                continue


def _notebook(given: str | None) -> Path:
    """Return the notebook to open: the given one, the checkout's, or a new one in the working directory."""
    if given is not None:
        if not Path(given).exists():
            raise ModelFileError(f"notebook {given!r} does not exist.", (), "mithril-nb lab")
        return Path(given)
    beside = Path(__file__).resolve().parents[2]
    for folder in (Path(), beside):
        if (folder / NOTEBOOK).exists():
            return folder / NOTEBOOK
    new = Path("mithril_nb.ipynb")
    if not new.exists():
        write_text(new, json.dumps(_new_notebook(), indent=1))
        print(f"wrote {new}")
    return new


def _new_notebook() -> dict[str, Any]:
    lines = [
        "import mithril_nb as ml",
        "from mithril_nb.models import Linear, Model, Relu",
        "",
        "model = Model()",
        "model |= Linear(64)",
        "model += Relu()",
        "model += Linear(10)",
        "",
        'wb = ml.workbench(model, shapes={"input": [32, 784]})',
        "wb",
    ]
    source = [f"{line}\n" for line in lines[:-1]] + lines[-1:]
    cell = {
        "cell_type": "code",
        "id": "build",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source,
    }
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
