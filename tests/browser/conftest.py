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
from lab import CHROMIUM_FLAGS, Browser, NotebookPage, Server
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "MITHRIL_NB_CHROMIUM"
"""`make test` names the browser here; a test run by hand looks on PATH."""

HERE = Path(__file__).parent
LONGEST_FIRST = [
    "test_workbench.py",
    "test_workbench_elsewhere.py",
    "test_first_notebook.py",
    "02_compose.ipynb",
    "test_workbench_passes.py",
    "test_picture.py",
    "test_static_outputs.py",
    "test_explorer.py",
    "test_explorer_transforms.py",
]
"""Several processes share these files: the one that takes a long file last keeps all others waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here, so that `-m "not browser"` leaves it out; and begin with what takes long."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.browser)
    items.sort(key=_rank)  # a stable sort: what is not named keeps its place, after what is


def _rank(item: pytest.Item) -> tuple[bool, int]:
    is_here = item.path.is_relative_to(HERE) or item.path.suffix == ".ipynb"
    name = item.path.name
    return is_here, LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium with one empty profile, which keeps JupyterLab's own files compiled from test to test."""
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
    """JupyterLab on loopback. SIGTERM ends it too: it becomes an interrupt, which pytest cleans up after."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    running = Server({"JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")})
    try:
        yield running
    finally:
        running.close()
        signal.signal(signal.SIGTERM, before)


class Kept:
    """The notebook that a file's tests share, if there is one now."""

    def __init__(self) -> None:
        self.page: NotebookPage | None = None

    def close(self, is_sound: bool = True) -> None:
        """Close it and end its kernel."""
        page, self.page = self.page, None
        if page is not None:
            _close(page, is_sound)
            page.server.end_kernels()


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    """What outlasts a test and ends with its file."""
    kept = Kept()
    yield kept
    kept.close()


@pytest.fixture
def run_cells(
    kept: Kept, server: Server, chromium: Browser, request: pytest.FixtureRequest
) -> Iterator[Callable[..., NotebookPage]]:
    """Return a function that runs cells in the notebook of the tests before: `run_cells(["code", ...])`.

    A test finds cells, values and widgets of its own; the page and the kernel, which has imported what it needs, are
    those of the file. After a test that fails the next one gets both anew. It takes `width` and `height`.
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


@pytest.fixture
def open_notebook(
    kept: Kept, server: Server, chromium: Browser, request: pytest.FixtureRequest
) -> Iterator[Callable[..., NotebookPage]]:
    """Return a function that opens a notebook: `open_notebook(["code", ...])` or `open_notebook(path)`.

    It takes the keyword arguments of `NotebookPage`. A test that fails leaves a picture of each page in
    `tests/browser/screenshots`. Pages are closed and kernels ended after the test.
    """
    kept.close()  # what follows has the machine to itself
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
        print(f"no picture of the failed page: {error}")  # it hangs: the failure itself tells more


def _close(page: NotebookPage, is_sound: bool) -> None:
    try:
        page.close(is_sound)
    except PlaywrightError as error:
        print(f"the page could not be closed: {error}")
        page.page.close()


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """The folder for pictures that are looked at and not kept."""
    return HERE / "screenshots"
