"""Stored runs as tables: hostile names are text, and every fact that differs is shown."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import mithril_nb as ml
from mithril_nb.display import render
from mithril_nb.viz.curves import overlay_svg, thinned


@pytest.mark.filterwarnings("ignore:.*loss is NaN")
def test_tables_of_runs(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    for name, rate in (("a", 0.1), ("b", 0.2)):
        with ml.track(tmp_path / name, config={"rate": rate, "note": hostile, "name": "x"}, tags=["<b>"]) as run:
            run.log({hostile: 1 / 3, "loss": float("nan")})
            run.note("<script>")
    runs = ml.runs(tmp_path)
    values = (runs, runs["a"], runs.compare("a", "b"))
    for value in values:
        shown = render(value)
        assert "<img" not in shown["text/html"]
        assert "<script>" not in shown["text/html"]
        assert "0.3333" in shown["text/plain"]
        assert "nan" in shown["text/plain"]
    lines = str(runs).splitlines()
    assert lines[0].split()[:3] == ["run", "state", "step"]
    assert [line.split()[:3] for line in lines[1:]] == [["a", "done", "1"], ["b", "done", "1"]]
    assert "0.1 → 0.2" in str(values[2])
    assert "name" in str(values[1])


def test_a_page_of_fifty_runs_has_a_curve_of_each_with_its_peak(tmp_path: Path) -> None:
    for number in range(50):
        with ml.track(tmp_path / f"run {number}") as run:
            for run.step in range(4):
                run.log({"loss": 1 / (1 + run.step), "$\\frac$ <b>": number + 1})
    runs = ml.runs(tmp_path)
    page, output = runs.to_html(tmp_path / "runs.html"), render(runs)["text/html"]
    assert (tmp_path / "runs.html").read_text() == page
    assert "<b>" not in page
    assert not re.search(r"(src|href)=\"?(https?:|//)|url\(", page)
    assert '<g id="' not in page
    for text, views in ((page, 4), (output, 1)):
        for index in range(50):
            assert len(re.findall(f'<g class="r{index}">', text)) == 2 * views
    assert runs["run 7"].best == {"loss": (0.25, 4)}
    assert "0.25 at 4" in page
    assert "differences" in runs.compare("run 1", "run 2").to_html()


def test_a_thinned_curve_keeps_the_extremes_of_each_interval() -> None:
    y = np.random.default_rng(0).normal(size=54_321)
    y[[5, 40_000]] = np.nan, 99.0
    points = np.array(thinned(np.arange(y.size), y))
    assert len(points) <= 1000
    assert (np.diff(points[:, 0]) > 0).all()
    np.testing.assert_array_equal(y[points[:, 0].astype(int)], points[:, 1])
    for part in np.array_split(np.arange(y.size), 100):
        inside = points[(points[:, 0] >= part[0]) & (points[:, 0] <= part[-1]), 1]
        assert len(inside) >= 8
    assert (points[:, 1].max(), points[:, 1].min()) == (99.0, np.nanmin(y))


def test_a_log_view_draws_what_is_positive_and_counts_the_rest() -> None:
    y = np.random.default_rng(0).random(20_000) + 1
    y[::20] = 0
    picture = overlay_svg([(np.arange(y.size), y)], "loss", log="y")
    assert picture.count(" L ") + picture.count("\nL ") >= 900
    assert "1000 values of 0 or less" in picture
    assert "3 values of 0 or less" in overlay_svg([(np.arange(3), -np.ones(3))], "loss", log="y")


def test_a_best_value_is_known_by_whole_names(tmp_path: Path) -> None:
    with ml.track(tmp_path / "a") as run:
        for loss in (2.0, 1.0, 3.0):
            run.log({"val_loss": loss, "loss_scale": loss, "auc_gap": loss, "top_5": loss})
    assert ml.runs(tmp_path)["a"].best == {"top_5": (3.0, 3), "val_loss": (1.0, 2)}
