"""Rich display of watched functions and their reports."""

from __future__ import annotations

from mithril_nb.analysis.retraces.recorder import FunctionReport, WatchReport
from mithril_nb.analysis.retraces.watching import Watch, Watched
from mithril_nb.display import renderer
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.retraces import retraces_html, retraces_text


@renderer(FunctionReport, WatchReport)
def _report(report: FunctionReport | WatchReport) -> Bundle:
    return {"text/plain": retraces_text(report), "text/html": retraces_html(report)}


@renderer(Watch, Watched)
def _watched(watched: Watch | Watched) -> Bundle:
    return _report(watched.report())
