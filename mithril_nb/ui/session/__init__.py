"""The session of a workbench: a mutable object that takes commands and publishes snapshots. It needs no widgets."""

from mithril_nb.ui.session.design import Design, design_of
from mithril_nb.ui.session.session import Session
from mithril_nb.ui.session.snapshot import inspector_fact

__all__ = ["Design", "Session", "design_of", "inspector_fact"]
