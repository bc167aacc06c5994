"""The harness: one JupyterLab on loopback, and notebooks open in a real browser.

`Server` starts JupyterLab (which serves Notebook 7 as well) with separate settings in a temporary folder: no token, no
dialogs, nothing from the user's Jupyter. `NotebookPage` is one notebook in one browser tab. It communicates with the
kernel through the page's connection, so that tests see what users see.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import TimeoutError as PlaywrightTimeout

KEEPER = Path(__file__).with_name("keeper.py")
DARK, LIGHT = "JupyterLab Dark", "JupyterLab Light"

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
]
"""Options of a browser without network requests, whose screenshots are the same on every machine."""

_KERNEL = "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel"

_EXECUTE = """async ([code, expression, patience]) => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    const future = kernel.requestExecute({
        code, store_history: false, silent: false, stop_on_error: false,
        user_expressions: expression === null ? {} : {value: expression},
    });
    let printed = '';
    future.onIOPub = (message) => { if (message.header.msg_type === 'stream') printed += message.content.text; };
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error('the kernel gave no answer')), patience));
    const {content} = await Promise.race([future.done, late]);
    return {content, printed};
}"""

_PROGRESS = """() => {
    const cells = window.jupyterapp.shell.currentWidget.content.widgets.filter((cell) => cell.model.type === 'code');
    return cells.map((cell) => {
        const prompt = cell.node.querySelector('.jp-InputPrompt')?.textContent ?? '';
        const outputs = Array.from({length: cell.model.outputs.length}, (_, at) => cell.model.outputs.get(at));
        const error = outputs.find((output) => output.type === 'error')?.toJSON();
        return {
            prompt,
            ended: Boolean(cell.model.executionCount) && !prompt.includes('*'),
            error: error ? `${error.ename}: ${error.evalue}` : null,
        };
    });
}"""
"""Progress of the cells, without outputs: fetching a megabyte of them ten times a second slows the kernel."""

_SHOW = """async (notebook) => {
    const {context} = window.jupyterapp.shell.currentWidget;
    context.model.fromJSON(notebook);
    localStorage.removeItem('mithril_nb.layouts');
    performance.clearMarks();
    performance.clearMeasures();
}"""


class KernelError(AssertionError):
    """Code in the kernel raised, or a cell of the notebook has an error as output."""


def free_port() -> int:
    """Return an unused port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def notebook_of(cells: list[str]) -> nbformat.NotebookNode:
    """Return a notebook of code cells."""
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )


class Server:
    """JupyterLab on loopback, without the user's settings.

    Args:
        environment: Environment variables for the server and its kernels, added to those of this process.
        arguments: Further arguments of JupyterLab.

    Attributes:
        root: The served folder.
        url: The server's address.
    """

    def __init__(self, environment: dict[str, str] | None = None, arguments: tuple[str, ...] = ()) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="mithril-nb-lab-"))
        self.root = self._folder / "notebooks"
        self.root.mkdir()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = self._folder / "server.log"
        with self._log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, str(KEEPER), *self._command(port), *arguments],
                env=self._environment(environment or {}),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_up()
        except BaseException:
            self.close()
            raise

    def _command(self, port: int) -> list[str]:
        return [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            f"--port={port}",
            "--ServerApp.port_retries=0",
            "--IdentityProvider.token=",
            "--ServerApp.password=",
            "--ServerApp.disable_check_xsrf=True",  # the harness ends kernels without the browser's cookie
            f"--ServerApp.root_dir={self.root}",
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
            # At each load of a page it runs yarn to find out whether JupyterLab needs a new build.
            "--ServerApp.tornado_settings={'page_config_data': {'buildCheck': False, 'buildAvailable': False}}",
        ]

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        notifications = self._folder / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
        notifications.parent.mkdir(parents=True)
        notifications.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}))
        programs = str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")
        folders = {name: str(self._folder / folder) for name, folder in own.items()}
        return {**os.environ, "PATH": programs, "JUPYTER_PREFER_ENV_PATH": "1", "NO_PROXY": "*", **folders, **more}

    def _wait_until_up(self, patience_s: float = 90) -> None:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and self._keeper.poll() is None:
            try:
                self.ask("GET", "/api/status")
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        raise RuntimeError(f"JupyterLab did not start:\n{self.log()}")

    def ask(self, method: str, path: str) -> Any:
        """Send a request to the server's API and return the JSON of its answer."""
        request = urllib.request.Request(self.url + path, method=method)
        # Without the environment's proxy, which cannot reach our loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    def end_kernels(self) -> None:
        """Shut down every kernel, so that the next test starts on an idle machine."""
        for session in self.ask("GET", "/api/sessions"):
            self.ask("DELETE", f"/api/sessions/{session['id']}")

    def log(self, lines: int = 60) -> str:
        """Return the last lines of the server's log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def write_notebook(self, name: str, cells: list[str]) -> str:
        """Write a notebook of code cells into the served folder and return its name."""
        nbformat.write(notebook_of(cells), self.root / name)
        return name

    def copy_notebook(self, path: Path) -> str:
        """Copy a notebook into the served folder, so that a run leaves the original alone, and return its name."""
        shutil.copyfile(path, self.root / path.name)
        return path.name

    def close(self) -> None:
        """End the server and its kernels and remove its folder."""
        if self._keeper.stdin and not self._keeper.stdin.closed:
            self._keeper.stdin.close()
        try:
            self._keeper.wait(15)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait(5)
        shutil.rmtree(self._folder, ignore_errors=True)


_LAY_DOWN = """async () => {
    for (const widget of [...window.jupyterapp.shell.widgets('main')]) {
        if (widget.context) widget.context.model.dirty = false;  // else closing it asks what to do with it
        widget.close();
    }
    await window.jupyterapp.serviceManager.sessions.shutdownAll();
    performance.clearMarks();
    performance.clearMeasures();
}"""


class Browser:
    """Chromium with a loaded JupyterLab tab that tests share, because loading takes three seconds.

    Args:
        context: The browser's profile.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self._spare: Page | None = None

    def take(self) -> Page | None:
        """Return a tab with a loaded JupyterLab and no open notebook, if there is one."""
        tab, self._spare = self._spare, None
        return tab

    def keep(self, tab: Page) -> None:
        """Close the notebooks in a JupyterLab tab, end its kernels, and keep the tab for the next test."""
        tab.evaluate(_LAY_DOWN)
        if self._spare:
            self._spare.close()
        self._spare = tab


_RESTORED = """document.querySelector('.mnb-root') ? 'shown'
    : document.querySelector('.jp-Notebook')?.textContent.includes('widget: model not found') ? 'missing' : null"""


class NotebookPage:
    """One notebook, open alone in a browser tab.

    Args:
        server: The server.
        browser: The browser.
        name: The notebook's name in the served folder.
        app: `lab` for JupyterLab, `notebooks` for Notebook 7.
        width: Of the window, in CSS pixels.
        height: Of the window, in CSS pixels.

    Attributes:
        page: The Playwright page, for everything without a method here.
        problems: Errors in the page's console, and uncaught exceptions.
    """

    def __init__(
        self, server: Server, browser: Browser, name: str, app: str = "lab", width: int = 1280, height: int = 900
    ) -> None:
        self.server = server
        self._browser = browser
        self._is_for_the_next = app == "lab"
        loaded = browser.take() if app == "lab" else None
        self.page: Page = loaded or browser.context.new_page()
        self.page.set_default_timeout(20_000)
        self.resize(width, height)
        self.problems: list[str] = []
        self.page.on("pageerror", self._hear_exception)
        self.page.on("console", self._hear)
        if loaded:
            self.command("docmanager:open", {"path": name})
        else:
            self._load(name, app)
        try:
            self._wait_for_kernel()
        except PlaywrightTimeout:  # a tab of a busy machine may miss that its kernel is idle; a new page asks again
            self._load(name, app)
            self._wait_for_kernel()
        self._have_light()

    def _load(self, name: str, app: str) -> None:
        query = "?reset" if app == "lab" else ""
        place = "lab/tree" if app == "lab" else "notebooks"
        self.page.goto(f"{self.server.url}/{place}/{urllib.parse.quote(name)}{query}", timeout=60_000)

    def _wait_for_kernel(self) -> None:
        self.page.wait_for_function(f"window.jupyterapp && {_KERNEL}?.status === 'idle'", timeout=60_000, polling=50)

    def _have_light(self) -> None:
        if self.page.evaluate("document.body.dataset.jpThemeLight") == "false":
            self.set_theme(LIGHT)  # the server keeps the theme, which an earlier test may have changed

    def show(self, cells: list[str], width: int = 1280, height: int = 900) -> None:
        """Replace the cells of the notebook by new ones, which have not run. The page and the kernel stay.

        Args:
            cells: Source of each.
            width: Of the window, in CSS pixels.
            height: Of the window, in CSS pixels.
        """
        self.page.mouse.move(0, 0)
        self.page.evaluate(_SHOW, notebook_of(cells))
        self.resize(width, height)
        self._have_light()
        self.problems.clear()

    def _hear_exception(self, error: PlaywrightError) -> None:
        self.problems.append(str(error))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(message.text)

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        """Run a JupyterLab command and wait until it is done."""
        self.page.evaluate(
            "([name, args]) => window.jupyterapp.commands.execute(name, args ?? undefined).then(() => null)",
            [name, arguments],
        )

    def run_all(self, patience_s: float = 120) -> None:
        """Run all cells and wait for the last.

        Raises:
            KernelError: A cell raised.
        """
        self.page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
        self.wait_for_cells(patience_s)

    def wait_for_cells(self, patience_s: float = 120) -> None:
        """Wait until every code cell has run.

        Raises:
            KernelError: A cell raised, or they took too long.
        """
        deadline = time.monotonic() + patience_s
        while True:
            cells = self.page.evaluate(_PROGRESS)
            for number, cell in enumerate(cells):
                if cell["error"]:
                    # After an error ipykernel aborts requests until its threads have exchanged a message. On a busy
                    # machine the next cells arrive sooner, and would never run.
                    while self.page.evaluate(_EXECUTE, ["", None, 60_000])["content"]["status"] == "aborted":
                        self.page.wait_for_timeout(20)
                    raise KernelError(f"cell {number}: {cell['error']}")
            if all(cell["ended"] for cell in cells):
                return
            if time.monotonic() > deadline:
                raise KernelError(f"the cells did not end within {patience_s} s: {[c['prompt'] for c in cells]}")
            self.page.wait_for_timeout(100)

    def execute(self, code: str, patience_s: float = 60) -> str:
        """Run code in the page's kernel and return what it printed.

        Raises:
            KernelError: It raised.
        """
        answer = self.page.evaluate(_EXECUTE, [code, None, patience_s * 1000])
        content = answer["content"]
        if content["status"] != "ok":
            raise KernelError(f"{content.get('ename')}: {content.get('evalue')}")
        return answer["printed"]

    def evaluate(self, expression: str, patience_s: float = 60) -> Any:
        """Return the value of a Python expression in the page's kernel; it must be a literal when printed.

        Raises:
            KernelError: It raised.
        """
        answer = self.page.evaluate(_EXECUTE, ["", expression, patience_s * 1000])
        value = answer["content"]["user_expressions"]["value"]
        if value["status"] != "ok":
            raise KernelError(f"{value['ename']}: {value['evalue']}")
        return ast.literal_eval(value["data"]["text/plain"])

    def wait_for(self, expression: str, patience_s: float = 20) -> None:
        """Wait until a Python expression in the page's kernel is true.

        Raises:
            KernelError: It did not become true in time.
        """
        deadline = time.monotonic() + patience_s
        pause_ms = 20
        while not self.evaluate(f"bool({expression})", patience_s):
            if time.monotonic() > deadline:
                raise KernelError(f"after {patience_s} s this is still not true: {expression}")
            self.page.wait_for_timeout(pause_ms)
            pause_ms = min(2 * pause_ms, 160)  # each poll interrupts the kernel's work

    def output(self, cell: int) -> Locator:
        """Return the output area of a cell, counted from 0, code or not."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-OutputArea").first

    def set_theme(self, theme: str) -> None:
        """Switch JupyterLab's theme and wait until the page has it."""
        light = "false" if theme == DARK else "true"
        self.command("apputils:change-theme", {"theme": theme})
        self.page.wait_for_function(f"document.body.dataset.jpThemeLight === '{light}'")
        # If the theme changes while the splash screen fades, JupyterLab removes it twice and fails.
        self.page.wait_for_function("!document.getElementById('jupyterlab-splash')")

    def resize(self, width: int, height: int = 900) -> None:
        """Resize the window."""
        self.page.set_viewport_size({"width": width, "height": height})

    def picture(self, path: Path, of: Locator | None = None) -> Path:
        """Save a screenshot of the page or a part of it, and return its path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        (of or self.page).screenshot(path=str(path), animations="disabled")
        return path

    def pictures(
        self,
        folder: Path,
        name: str,
        of: Locator | None = None,
        widths: tuple[int, ...] = (1280, 1920),
        height: int = 900,
    ) -> None:
        """Save pictures, light and dark, at each width: `name-light-1280.png` and so on.

        Content taller than the window is cut off: choose a height that fits.
        """
        for theme, word in ((LIGHT, "light"), (DARK, "dark")):
            self.set_theme(theme)
            for width in widths:
                self.resize(width, height)
                self.page.wait_for_timeout(250)  # what follows a resize may be drawn a frame or two later
                self.picture(folder / f"{name}-{word}-{width}.png", of)
        self.set_theme(LIGHT)

    def save(self) -> nbformat.NotebookNode:
        """Save the notebook and return the content of the file."""
        self.command("docmanager:save")
        name = self.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path")
        return nbformat.read(self.server.root / name, as_version=4)

    def reload(self) -> None:
        """Reload the page; the kernel keeps running, and its widgets are shown again."""
        # JupyterLab opens the notebook of the address a second time, at any moment: the next test must not see it.
        self._is_for_the_next = False
        for _ in range(3):
            self.page.reload(timeout=60_000)
            self._wait_for_kernel()
            # ipywidgets 8 fetches no widgets while the kernel has another connection (`handleComms` is false).
            if self.page.wait_for_function(_RESTORED, timeout=40_000, polling=100).json_value() == "shown":
                break
            self.problems.clear()

    def close(self, is_sound: bool = True) -> None:
        """Close the notebook. Its tab is kept for the next test unless it cannot be reused."""
        self.page.remove_listener("pageerror", self._hear_exception)
        self.page.remove_listener("console", self._hear)
        if is_sound and self._is_for_the_next:
            self._browser.keep(self.page)
        else:
            self.page.close()


def focus(place: Locator) -> None:
    """Move the keyboard focus to an element, after waiting for it: a hidden element silently takes no focus."""
    place.wait_for()
    place.focus()


def press(page: Page, *keys: str) -> None:
    """Press keys one after the other."""
    for key in keys:
        page.keyboard.press(key)


@contextmanager
def watched_page(context: BrowserContext, address: str, height: int) -> Iterator[Page]:
    """Open a self-contained page, 1280 wide; it must send no further request, and log nothing."""
    page = context.new_page()
    messages: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 1280, "height": height})
    page.goto(address)
    yield page
    page.close()
    assert messages == []
    assert asked == [address.partition("#")[0]]
