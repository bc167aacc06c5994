"""One JupyterLab and one Chromium for all browser tests; a notebook and a kernel for each."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import CHROMIUM_FLAGS, Browser, NotebookPage, Server, watched_page
from layered import inspected
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, sync_playwright
from small_workbench import MODEL, OPEN, settled, shown

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "MITHRIL_NB_CHROMIUM"
"""Path of the browser, set by `make test`; otherwise it is searched on PATH."""

HERE = Path(__file__).parent
LONGEST_FIRST = [
    "test_layout.py",
    "test_workbench.py",
    "test_workbench_elsewhere.py",
    "test_messages.py",
    "test_edits_kept.py",
    "test_graph_tools.py",
    "test_newcomer.py",
    "test_cost_tab.py",
    "test_static_outputs.py",
    "test_first_notebook.py",
    "02_compose.ipynb",
    "test_panes.py",
    "test_voila.py",
    "test_picture.py",
]
"""Long files, which run first: several processes share the files, and a long one at the end delays all."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests here, so that `-m "not browser"` skips them; and run long files first."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)
    items.sort(key=_rank)  # a stable sort: other files follow in their order


def _rank(item: pytest.Item) -> tuple[bool, int]:
    is_here = item.path.is_relative_to(HERE) or item.path.suffix == ".ipynb"
    name = item.path.name
    return is_here, LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium with one empty profile, which keeps JupyterLab's compiled files between tests."""
    program = os.environ.get(CHROMIUM) or shutil.which("chromium") or shutil.which("google-chrome")
    if not program:
        pytest.skip(f"no Chromium: `make test` installs one, and {CHROMIUM} names one")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=program,
            headless=True,
            args=CHROMIUM_FLAGS,
            color_scheme="light",
            reduced_motion="reduce",
            timeout=60_000,
        )
        yield Browser(context)
        context.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """JupyterLab on loopback. SIGTERM becomes an interrupt, so that pytest's cleanup ends it, too."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    running = Server({"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")})
    try:
        yield running
    finally:
        running.close()
        signal.signal(signal.SIGTERM, before)


class Kept:
    """The notebook that the tests of a file share, if any."""

    def __init__(self) -> None:
        self.page: NotebookPage | None = None

    def close(self, is_sound: bool = True) -> None:
        """Close the notebook and end its kernel."""
        page, self.page = self.page, None
        if page is not None:
            _close(page, is_sound)
            page.server.end_kernels()


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    """Objects that the tests of one file share."""
    kept = Kept()
    yield kept
    kept.close()


@pytest.fixture
def run_cells(
    kept: Kept, server: Server, chromium: Browser, request: pytest.FixtureRequest
) -> Iterator[Callable[..., NotebookPage]]:
    """Return a function that runs cells in the file's shared notebook: `run_cells(["code", ...])`.

    Each test has new cells, values and widgets, and must leave no error in the page. Page and kernel, with its
    imports, are shared by the file, and replaced after a failed test. The function accepts `width` and `height`.
    """
    name = _name(request)

    def run_in_kept(cells: list[str], **size: int) -> NotebookPage:
        if kept.page is None:
            kept.page = NotebookPage(server, chromium, server.write_notebook(f"{name}.ipynb", cells), **size)
        else:
            kept.page.show(cells, **size)
        kept.page.run_all()
        return kept.page

    failures = request.session.testsfailed
    yield run_in_kept
    if request.session.testsfailed != failures:
        if kept.page is not None:
            _picture_of_failure(kept.page, f"{name}-0")
        kept.close(is_sound=False)
    elif kept.page is not None:
        assert kept.page.problems == [], "errors in the page"


@pytest.fixture
def open_notebook(
    kept: Kept, server: Server, chromium: Browser, request: pytest.FixtureRequest
) -> Iterator[Callable[..., NotebookPage]]:
    """Return a function that opens a notebook: `open_notebook(["code", ...])` or `open_notebook(path)`.

    It accepts the keyword arguments of `NotebookPage`. A failed test saves a screenshot of each page in
    `tests/browser/screenshots`. After the test, pages are closed and kernels ended.
    """
    kept.close()  # the next tests have the machine to themselves
    pages: list[NotebookPage] = []
    name = _name(request)

    def open_one(what: list[str] | Path, **keywords: Any) -> NotebookPage:
        if isinstance(what, Path):
            file = server.copy_notebook(what)
        else:
            file = server.write_notebook(f"{name}-{len(pages)}.ipynb", what)
        page = NotebookPage(server, chromium, file, **keywords)
        pages.append(page)
        return page

    failures = request.session.testsfailed
    yield open_one
    is_sound = request.session.testsfailed == failures
    for number, page in enumerate(pages):
        if not is_sound:
            _picture_of_failure(page, f"{name}-{number}")
        _close(page, is_sound)
    server.end_kernels()


def _name(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W+", "-", request.node.name).strip("-")


def _picture_of_failure(page: NotebookPage, name: str) -> None:
    try:
        page.picture(HERE / "screenshots" / f"failed-{name}.png")
    except PlaywrightError as error:
        print(f"no picture of the failed page: {error}")  # the page hangs; the failure itself is more useful


def _close(page: NotebookPage, is_sound: bool) -> None:
    try:
        page.close(is_sound)
    except PlaywrightError as error:
        print(f"the page could not be closed: {error}")
        page.page.close()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the program in `layered.py`."""
    path: Path = tmp_path_factory.mktemp("page") / "net.html"
    inspected().to_html(path, stages=["jaxpr", "stablehlo"])
    return path


@pytest.fixture
def page(chromium: Browser, page_file: Path) -> Iterator[Page]:
    """The opened page; it must send no request and log nothing."""
    with watched_page(chromium.context, page_file.as_uri(), 1000) as page:
        page.wait_for_selector("main[data-ready]")
        yield page


@pytest.fixture
def show_workbench(run_cells: Callable[..., NotebookPage]) -> Callable[..., NotebookPage]:
    """Return a function that opens the small workbench and waits until some stages are ready."""

    def show_one(cell: str = OPEN, *stages: str, **size: int) -> NotebookPage:
        notebook = run_cells([MODEL, cell], **{"width": 1280, "height": 1000, **size})
        shown(notebook)
        if stages:
            settled(notebook, *stages)
        return notebook

    return show_one


@pytest.fixture
def open_workbench(open_notebook: Callable[..., NotebookPage]) -> Callable[..., NotebookPage]:
    """Return a function that opens the small workbench in a notebook of its own, as `show_workbench` does."""

    def open_one(*stages: str, model: str = MODEL, more: tuple[str, ...] = (), **keywords: Any) -> NotebookPage:
        notebook = open_notebook([model, OPEN, *more], **{"height": 1000, **keywords})
        notebook.run_all()
        shown(notebook)
        if stages:
            settled(notebook, *stages)
        return notebook

    return open_one


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """The folder for temporary screenshots."""
    return HERE / "screenshots"
