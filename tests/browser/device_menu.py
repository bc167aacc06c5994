"""The device menu of a widget: how to choose by mouse and keyboard, and a machine without compilers."""

from __future__ import annotations

from lab import NotebookPage, focus, press

BUTTON = '[data-mnb-action="device"]'
# Each compiler is missing until the fake pip has linked the real one.
WITHOUT_COMPILERS = """
import os, pathlib, tempfile, time
from mithril_nb.hardware import compilers
real = pathlib.Path(compilers.compiler_of("tpu").folder)
os.environ["MITHRIL_NB_COMPILERS"] = tempfile.mkdtemp()
compilers.compiler_of.cache_clear()
fails = True
def run(command, temporary, report, is_wanted):
    if fails:
        return 1, "ERROR: Could not find a version that satisfies the requirement libtpu (from versions: none)"
    target = pathlib.Path(command[command.index("--target") + 1])
    for step in range(30):
        report("Downloading libtpu-0.0.42-py3-none-manylinux_2_31_x86_64.whl (140.1 MB)", step / 30)
        time.sleep(0.1)
        if not is_wanted():
            return 1, "cancelled"
    for path in real.iterdir():
        if path.name != "installed.json":
            (target / path.name).symlink_to(path)
    return 0, ""
compilers._run = run
"""
WITH_COMPILERS = """
os.environ["MITHRIL_NB_COMPILERS"] = str(real.parent)
compilers.compiler_of.cache_clear()
"""


def choose(notebook: NotebookPage, name: str, *, by_key: bool = False) -> None:
    """Choose a device in the menu: by a click, or by typing its name."""
    page = notebook.page
    button = page.locator(BUTTON)
    if by_key:
        focus(button)
        press(page, "ArrowDown")
        page.keyboard.type(name)
        press(page, "Enter")
    else:
        button.click()
        page.locator(".mnb-device .mnb-option", has_text=name).first.click()


def shows(notebook: NotebookPage, name: str, stage: str = "hlo") -> str:
    """Wait until the widget shows a stage on a device, and return what the pane shows of its text."""
    page = notebook.page
    page.locator(BUTTON, has_text=name).wait_for()
    page.wait_for_function(
        """(stage) => {
            const root = document.querySelector('.mnb-root');
            const pane = root.querySelector(`[data-mnb-pane="${stage}"]`);
            return pane.dataset.mnbState === 'ready' && pane.dataset.mnbVersion === root.dataset.mnbVersion
                && !root.querySelector('.mnb-device > [role="status"]:not([hidden])');
        }""",
        arg=stage,
        timeout=120_000,
        polling=100,
    )
    return page.locator(f'[data-mnb-pane="{stage}"] .cm-content').inner_text()
