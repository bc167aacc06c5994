"""Notebook display of training runs."""

from __future__ import annotations

from mithril_nb.display import renderer
from mithril_nb.train.run.handle import Run
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.curves import curves_svg, curves_text


@renderer(Run)
def _run(run: Run) -> Bundle:
    view = {**run.snapshot(), "steps_per_s": None, "left_s": None}  # keep the saved text independent of machine load
    return {"text/plain": curves_text(view), "image/svg+xml": curves_svg(run.history.to_dict())}
