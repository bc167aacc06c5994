"""Retraces: how often jitted functions are traced and compiled, and why again."""

from mithril_nb.retraces.records import FunctionReport, Retrace, WatchReport
from mithril_nb.retraces.watching import Watch, Watched

__all__ = ["FunctionReport", "Retrace", "Watch", "WatchReport", "Watched"]
