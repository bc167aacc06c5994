"""Notebook display of training runs, those that train and those that are stored."""

from __future__ import annotations

from mithril_nb.display import renderer
from mithril_nb.train.run.handle import Run
from mithril_nb.train.store.stored import Comparison, Runs, StoredRun
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.curves import curves_svg, curves_text
from mithril_nb.viz.run_tables import comparison_html, comparison_text, run_html, run_text, runs_html, runs_text


@renderer(Run)
def _run(run: Run) -> Bundle:
    view = {**run.snapshot(), "steps_per_s": None, "left_s": None}  # keep the saved text independent of machine load
    return {"text/plain": curves_text(view), "image/svg+xml": curves_svg(run.history.to_dict())}


@renderer(Runs)
def _runs(runs: Runs) -> Bundle:
    return {"text/plain": runs_text(runs), "text/html": runs_html(runs)}


@renderer(StoredRun)
def _stored_run(run: StoredRun) -> Bundle:
    return {"text/plain": run_text(run), "text/html": run_html(run)}


@renderer(Comparison)
def _comparison(comparison: Comparison) -> Bundle:
    return {"text/plain": comparison_text(comparison), "text/html": comparison_html(comparison)}
