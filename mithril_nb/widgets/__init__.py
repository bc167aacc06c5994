"""Widgets: the only room that knows ipywidgets, anywidget and IPython. Its front end lies beside it, in TypeScript."""

from mithril_nb.widgets.explorer import Explorer, explore
from mithril_nb.widgets.live import LiveRun, watch
from mithril_nb.widgets.workbench import Workbench, workbench

__all__ = ["Explorer", "LiveRun", "Workbench", "explore", "watch", "workbench"]
