"""The session of a workbench: a mutable object that takes commands and publishes snapshots. It needs no widgets."""

from mithril_nb.ui.session import static as _static  # noqa: F401  Registers the static rendering of a session.
from mithril_nb.ui.session.design.design import Design, design_of
from mithril_nb.ui.session.session import Session

__all__ = ["Design", "Session", "design_of"]
