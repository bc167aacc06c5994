"""Widgets: the only package that depends on ipywidgets, anywidget and IPython. The front end is in TypeScript."""

from mithril_nb.ui.widgets.explorer import Explorer, explore
from mithril_nb.ui.widgets.live import LiveRun, watch
from mithril_nb.ui.widgets.workbench import Workbench, workbench

__all__ = ["Explorer", "LiveRun", "Workbench", "explore", "watch", "workbench"]
