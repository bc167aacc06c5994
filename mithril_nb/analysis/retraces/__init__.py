"""Counts of the traces and compilations of jitted functions, with the reason for each retrace."""

from mithril_nb.analysis.retraces.recorder import FunctionReport, Retrace, WatchReport
from mithril_nb.analysis.retraces.watching import Watch, Watched

__all__ = ["FunctionReport", "Retrace", "Watch", "WatchReport", "Watched"]
