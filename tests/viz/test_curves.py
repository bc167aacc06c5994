"""Training curves in a saved notebook."""

from __future__ import annotations

import math
import sys
from xml.etree import ElementTree

import numpy as np

from mithril_nb.viz.curves import curves_figure, curves_svg, curves_text

STEPS = np.arange(1.0, 301.0)
COLUMNS = {
    "step": STEPS,
    "loss": np.exp(-STEPS / 50),
    "accuracy": np.full(300, np.nan),
    "validation_loss": np.where(STEPS % 50 == 0, np.exp(-STEPS / 60), np.nan),
    "validation_accuracy": np.full(300, np.nan),
}


def test_svg_is_well_formed_deterministic_and_self_contained():
    svg = curves_svg(COLUMNS, 'a "title" <b>')
    root = ElementTree.fromstring(svg)
    assert svg == curves_svg(COLUMNS, 'a "title" <b>')
    assert root.findtext("{http://www.w3.org/2000/svg}title") == 'a "title" <b>'
    assert "DOCTYPE" not in svg
    for element in root.iter():
        assert not any(value.startswith("http") for value in element.attrib.values())


def test_pyplot_is_not_used():
    before = "matplotlib.pyplot" in sys.modules
    curves_svg(COLUMNS)
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_only_panels_with_values_are_drawn():
    figure = curves_figure(COLUMNS)
    assert [axes.get_title("left") for axes in figure.axes] == ["loss"]
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["batch loss", "validation loss"]
    assert list(np.asarray(lines[1].get_xdata())) == [50, 100, 150, 200, 250, 300]


def test_a_long_run_is_thinned_but_no_spike_is_lost():
    steps = np.arange(100_000.0)
    loss = np.ones(100_000)
    loss[54_321] = 9.0
    line = curves_figure({"step": steps, "loss": loss}).axes[0].get_lines()[0]
    assert np.asarray(line.get_xdata()).size <= 1500
    assert np.asarray(line.get_ydata()).max() == 9.0


def test_no_steps_yet_and_lost_values():
    assert "no steps yet" in curves_svg({"step": [], "loss": []})
    ElementTree.fromstring(curves_svg({"step": [1, 2], "loss": [math.inf, 2.0]}))


def test_text():
    run = {
        "state": "running", "epoch": 1, "epochs": 10, "step": 30, "steps": 450, "loss": 0.4, "accuracy": None,
        "validation_loss": None, "validation_accuracy": math.nan, "steps_per_s": 900.0, "left_s": 2.0,
        "message": "slow",
    }  # fmt: skip
    assert curves_text(run) == (
        "run: running, epoch 1 of 10, step 30 of 450\n"
        "    epoch mean loss  0.4\n    speed            900 steps/s\n    left             2.00 s\n    slow"
    )
    assert curves_text({}) == "run: none"
