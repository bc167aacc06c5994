"""Widgets: the only package that depends on ipywidgets, anywidget and IPython. The front end is in TypeScript."""

from mithril_nb.ui.widgets.explorer import Explorer, explore
from mithril_nb.ui.widgets.live import LiveRun, watch
from mithril_nb.ui.widgets.questions import QuestionWidget
from mithril_nb.ui.widgets.shardings import ShardingMenu, try_shardings
from mithril_nb.ui.widgets.workbench import Workbench, workbench

__all__ = [
    "Explorer",
    "LiveRun",
    "QuestionWidget",
    "ShardingMenu",
    "Workbench",
    "explore",
    "try_shardings",
    "watch",
    "workbench",
]
