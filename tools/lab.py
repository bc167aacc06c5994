"""`make lab`: JupyterLab with the first notebook."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

from tools import environment
from tools.steps import ROOT, duration, is_root, output, say

NOTEBOOK = "notebooks/01_build_and_train.ipynb"


def lab(arguments: list[str]) -> int:
    """Set up if needed, start JupyterLab, print its address, and wait until it ends.

    Args:
        arguments: Further arguments of JupyterLab, added after those in the variable `LAB_ARGS`.

    Returns:
        The exit status of JupyterLab.
    """
    started = time.monotonic()
    say("mithril_nb: setting up")
    venv = environment.prepare(["lab"])
    say(f"   ready after {duration(time.monotonic() - started)}; starting JupyterLab on {NOTEBOOK}")
    options = [f"--ServerApp.root_dir={ROOT}", "--log-level=WARN"]
    if is_root():
        options.append("--allow-root")
    if not _has_screen():
        options.append("--no-browser")
    # The user's options come last, so that they take precedence.
    options += [*shlex.split(os.environ.get("LAB_ARGS", "")), *arguments]
    # Jupyter does not trust notebooks from a clone, and shows their saved pictures as plain text. Trust ours.
    subprocess.run(
        venv.command("jupyter", "trust", *map(str, sorted((ROOT / "notebooks").glob("*.ipynb")))),
        cwd=ROOT,
        env=venv.variables(),
        stdout=subprocess.DEVNULL,
        check=False,
    )
    command = venv.command("jupyterlab", str(ROOT / NOTEBOOK), *options)
    server = subprocess.Popen(command, cwd=ROOT, env=venv.variables())
    try:
        url = _url(venv, server)
        if url:
            say(f"\n   mithril_nb is at  {url}\n   Ctrl-C twice ends it.\n")
        return server.wait()
    except KeyboardInterrupt:
        return _end_after_interrupt(server)
    finally:
        if server.poll() is None:
            server.terminate()
            server.wait()


def _end_after_interrupt(server: subprocess.Popen[bytes]) -> int:
    # The terminal interrupts the server as well. It needs a confirmation to shut down; wait for its answer.
    while True:
        try:
            return server.wait()
        except KeyboardInterrupt:
            continue


def _has_screen() -> bool:
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _url(venv: environment.Environment, server: subprocess.Popen[bytes], patience_s: float = 60) -> str | None:
    """Return the notebook's address from the server's runtime file."""
    folder = output([str(venv.python), "-c", "import jupyter_core.paths as p; print(p.jupyter_runtime_dir())"])
    if not folder:
        return None
    runtime_file = Path(folder) / f"jpserver-{server.pid}.json"
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and server.poll() is None:
        try:
            where = json.loads(runtime_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            time.sleep(0.1)
            continue
        token = f"?token={where['token']}" if where.get("token") else ""
        return f"{where['url']}lab/tree/{quote(NOTEBOOK)}{token}"
    return None
