"""A tracked loop of another process, steered from a notebook: its curves, knobs and buttons."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe import violations
from lab import DARK, LIGHT, NotebookPage
from small_workbench import node

import mithril_nb as ml

LOOP = """
import math, sys, time
import mithril_nb as ml
with ml.track(sys.argv[1] + "/line") as run:
    for _ in run.steps([0], total=100_000):
        rate, offset = run.knob("rate", 1e-2, log=True), run.knob("offset", 0.25)
        time.sleep(0.02)
        loss = math.exp(-0.01 * run.step * rate) + offset
        run.log({"loss": loss, "judge_loss": loss / 2} | ({"validation_loss": loss} if run.step % 10 == 0 else {}))
"""


def until(is_true: Callable[[], Any], patience_s: float = 30) -> None:
    end = time.monotonic() + patience_s
    while not is_true():
        assert time.monotonic() < end, "nothing changed"
        time.sleep(0.1)


def test_a_loop_of_another_process(run_cells: Callable[..., NotebookPage], tmp_path: Path) -> None:
    loop = subprocess.Popen([sys.executable, "-c", LOOP, str(tmp_path)])
    try:
        until(lambda: (tmp_path / "runs.sqlite").exists() and [run for run in ml.runs(tmp_path) if run.step > 3], 60)
        stored = ml.runs(tmp_path)["line"]
        notebook = run_cells([f"import mithril_nb as ml\nml.watch(ml.runs({str(tmp_path)!r})['line'])"])
        panel = notebook.page.locator(".mnb-train").first

        def press(action: str) -> None:
            panel.locator(f'[data-mnb-action="{action}"]').focus()
            notebook.page.keyboard.press("Enter")

        panel.locator("canvas").nth(1).wait_for()
        assert panel.locator("figure").count() == 2
        height = panel.bounding_box()["height"]  # pyright: ignore[reportOptionalSubscript]
        field = panel.locator('[data-mnb-knob="rate"] .mnb-number')
        field.fill("0.2")
        field.press("Enter")
        until(lambda: stored.summary["knobs"]["rate"]["value"] == 0.2)
        panel.locator(".mnb-run-marks li", has_text="rate: 0.01 → 0.2").wait_for()
        assert panel.locator('[data-mnb-knob="rate"] input[type=range]').count() == 1
        assert panel.locator('[data-mnb-knob="offset"] input[type=range]').count() == 0
        field.fill("-1")
        field.press("Enter")
        panel.get_by_text("is too small").wait_for()
        field.press("Escape")
        press("train.run")
        panel.locator(".mnb-run-state", has_text="paused").wait_for()
        before = stored.step
        press("train.step")
        until(lambda: stored.step == before + 1)
        panel.get_by_label("Steps to take").fill("4")
        panel.get_by_label("Steps to take").press("Enter")
        press("train.steps")
        until(lambda: stored.step == before + 5)
        panel.locator(".mnb-run-state", has_text=f"step {before + 5:,}".replace(",", "\u2009")).wait_for()
        assert panel.bounding_box()["height"] == pytest.approx(height, abs=60)  # pyright: ignore[reportOptionalSubscript]
        try:
            for theme in (LIGHT, DARK):
                notebook.set_theme(theme)
                assert violations(notebook.page, ".mnb-train") == []
                notebook.picture(tmp_path / f"steering-{theme.split()[-1]}.png", panel)
        finally:
            notebook.set_theme(LIGHT)
        press("train.run")
        until(lambda: stored.step > before + 10)
        press("train.stop")
        assert loop.wait(30) == 0
        panel.locator(".mnb-run-state", has_text="stopped").wait_for()
        assert stored.state == "stopped"
    finally:
        loop.kill()


NORMS = """
import numpy as np
import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu
x = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
model = Model() + Linear(16) + Relu() + Linear(2)
wb = ml.workbench(model, data=(x, (x.sum(1) > 0).astype("int32")), epochs=30, norms=5)
wb
"""


def test_the_norms_of_the_selected_block_over_time(run_cells: Callable[..., NotebookPage], tmp_path: Path) -> None:
    notebook = run_cells([NORMS], height=1000)
    notebook.execute("wb.do('train')")
    notebook.wait_for("wb.session.training.run.state == 'done'")
    node(notebook, "linear_0").click()
    row = notebook.page.locator('[data-mnb-norm="gradient norm"]')
    row.wait_for()
    assert notebook.page.locator("[data-mnb-norm]").count() == 6
    assert "steps 5 to 240" in (row.get_attribute("title") or "")
    node(notebook, "relu_0").click()
    zeros = notebook.page.locator('[data-mnb-norm="activation zeros"]')
    zeros.wait_for()
    assert notebook.page.locator("[data-mnb-norm]").count() == 3
    assert "logarithmic" not in (zeros.get_attribute("title") or "logarithmic")
    try:
        for theme in (LIGHT, DARK):
            notebook.set_theme(theme)
            assert violations(notebook.page, ".mnb-parameters") == []
            notebook.picture(tmp_path / f"norms-{theme.split()[-1]}.png", notebook.page.locator(".mnb-parameters"))
    finally:
        notebook.set_theme(LIGHT)
