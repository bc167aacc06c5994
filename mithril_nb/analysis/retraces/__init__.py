"""Counts of the traces and compilations of jitted functions, with the reason for each retrace."""

from mithril_nb.analysis.retraces.recorder import FunctionReport, Retrace, Watch, Watched, WatchReport

__all__ = ["FunctionReport", "Retrace", "Watch", "WatchReport", "Watched"]
