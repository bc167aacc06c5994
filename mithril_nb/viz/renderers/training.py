"""Notebook display of training runs, those that train and those that are stored."""

from __future__ import annotations

import numpy as np

from mithril_nb.display import renderer
from mithril_nb.train.learning_rates import LearningRates
from mithril_nb.train.run.handle import Run
from mithril_nb.train.store.stored import Comparison, Runs, StoredRun
from mithril_nb.train.views import AttentionMaps, Confusion, Histograms, WorstExamples
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.curves import curves_svg, curves_text, overlay_svg
from mithril_nb.viz.run_tables import (
    compared_page,
    comparison_html,
    comparison_text,
    run_html,
    run_text,
    runs_html,
    runs_page,
    runs_text,
)
from mithril_nb.viz.trained_views import attention_bundle, confusion_bundle, examples_bundle, histograms_bundle


@renderer(Run)
def _run(run: Run) -> Bundle:
    view = {**run.snapshot(), "steps_per_s": None, "left_s": None}  # keep the saved text independent of machine load
    return {"text/plain": curves_text(view), "image/svg+xml": curves_svg(run.history.to_dict())}


@renderer(LearningRates)
def _rates(result: LearningRates) -> Bundle:
    rates, losses = result.history["learning_rate"], result.history["loss"]
    suggestion, lowest = result.suggestion, int(losses.argmin())
    # A loss that diverges would hide the rest.
    usual = losses.min() + 3 * np.ptp(losses[: max(lowest, len(losses) // 10) + 1])
    diverged = np.flatnonzero((np.arange(len(losses)) > lowest) & (losses > usual))
    drawn = slice(int(diverged[0]) if len(diverged) else None)
    curves = [(rates[drawn], losses[drawn])]
    if suggestion is None:
        text = "suggested learning rate: unknown, because the loss does not fall by clearly more than it varies"
    else:
        text = f"suggested learning rate: {suggestion:.3g}"
        curves.append((np.full(2, suggestion), np.array([losses[drawn].min(), losses[drawn].max()])))
    title = f"loss by rate; {text}"
    return {"text/plain": text, "image/svg+xml": overlay_svg(curves, title, "learning rate", log="x", heading=title)}


@renderer(Runs)
def _runs(runs: Runs) -> Bundle:
    return {"text/plain": runs_text(runs), "text/html": runs_html(runs)}


@renderer(StoredRun)
def _stored_run(run: StoredRun) -> Bundle:
    return {"text/plain": run_text(run), "text/html": run_html(run)}


@renderer(Comparison)
def _comparison(comparison: Comparison) -> Bundle:
    return {"text/plain": comparison_text(comparison), "text/html": comparison_html(comparison)}


renderer(Confusion)(confusion_bundle)
renderer(WorstExamples)(examples_bundle)
renderer(Histograms)(histograms_bundle)
renderer(AttentionMaps)(attention_bundle)
renderer(Runs, kind="page")(runs_page)
renderer(Comparison, kind="page")(compared_page)
