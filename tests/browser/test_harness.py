"""The harness itself, with ipywidgets only: it reports a page correctly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import DARK, LIGHT, KernelError, focus, press

SLIDER = """
import ipywidgets
slider = ipywidgets.IntSlider(value=3, min=0, max=10, description="width")
slider
"""


def test_a_slider_shows_and_its_value_reaches_the_kernel(run_cells, tmp_path: Path) -> None:
    notebook = run_cells([SLIDER])
    handle = notebook.page.locator(".widget-slider .noUi-handle")
    handle.wait_for()
    focus(handle)
    press(notebook.page, *["ArrowRight"] * 4)
    notebook.wait_for("slider.value == 7")
    assert notebook.evaluate("slider.value") == 7
    notebook.pictures(tmp_path, "slider", notebook.output(0), widths=(900, 1280))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "slider-dark-1280.png",
        "slider-dark-900.png",
        "slider-light-1280.png",
        "slider-light-900.png",
    ]


def test_themes_change_what_is_seen(run_cells) -> None:
    notebook = run_cells([SLIDER])

    def paper() -> str:
        return notebook.page.evaluate("getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor")

    notebook.set_theme(LIGHT)
    light = paper()
    notebook.set_theme(DARK)
    assert paper() != light


def test_a_cell_that_raises_fails_the_run(run_cells) -> None:
    with pytest.raises(KernelError, match="cell 0: ZeroDivisionError: division by zero"):
        run_cells(["1 / 0"])


SLOW_TO_RECOVER = """
kernel = get_ipython().kernel
def abort_for_a_second(subshell=None):
    kernel._aborting = True
    kernel.shell_channel_thread.io_loop.call_later(1, kernel._post_dummy_stop_aborting_message, subshell)
kernel._abort_queues = abort_for_a_second
"""


def test_cells_run_after_an_error_in_a_kernel_that_still_aborts_requests(run_cells) -> None:
    run_cells([SLOW_TO_RECOVER])
    with pytest.raises(KernelError, match="ZeroDivisionError"):
        run_cells(["1 / 0"])
    assert run_cells(["seven = 7", "seven + 1"]).evaluate("seven") == 7
    run_cells(["del kernel._abort_queues"])


def test_new_cells_use_the_same_page_and_kernel(run_cells) -> None:
    notebook = run_cells(["seven = 7", SLIDER])
    notebook.page.locator(".widget-slider .noUi-handle").wait_for()
    notebook.resize(900)
    notebook.set_theme(DARK)
    assert run_cells(["eight = seven + 1"]) is notebook
    assert notebook.evaluate("eight") == 8
    assert notebook.page.locator(".jp-Notebook .jp-Cell").count() == 1
    assert notebook.page.locator(".widget-slider").count() == 0
    assert notebook.page.evaluate("[innerWidth, document.body.dataset.jpThemeLight]") == [1280, "true"]


def test_the_kernel_answers_and_its_errors_are_raised(run_cells) -> None:
    notebook = run_cells(["seven = 7"])
    assert notebook.execute("print(seven)") == "7\n"
    assert notebook.evaluate("{'a': [seven, None]}") == {"a": [7, None]}
    with pytest.raises(KernelError, match="NameError: name 'nine' is not defined"):
        notebook.evaluate("nine")
    with pytest.raises(KernelError, match="ValueError: no"):
        notebook.execute("raise ValueError('no')")
    assert notebook.save()["cells"][0]["source"] == "seven = 7"


@pytest.mark.skipif(os.name == "nt", reason="process groups are a POSIX thing")
def test_killed_tests_leave_no_process(tmp_path: Path) -> None:
    keeper = Path(__file__).with_name("keeper.py")
    pid_file = tmp_path / "pid"
    child = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    # The middle process plays pytest: it holds the pipe, and is killed.
    middle = (
        "import subprocess, sys, time; "
        f"subprocess.Popen([sys.executable, {str(keeper)!r}, sys.executable, '-c', {child!r}], stdin=subprocess.PIPE); "
        "time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", middle])
    try:
        _until(lambda: pid_file.exists() and pid_file.read_text() != "")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    number = int(pid_file.read_text())
    _until(lambda: not Path(f"/proc/{number}").exists() if Path("/proc").exists() else not _runs(number))


def _runs(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def _until(true, patience_s: float = 20) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
