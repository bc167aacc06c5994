"""The session behind a workbench: one mutable object that takes commands and publishes snapshots. Knows no widget."""

from mithril_nb.session import static as _static  # noqa: F401  It registers how a session is shown.
from mithril_nb.session.design import Design, design_of
from mithril_nb.session.session import Session

__all__ = ["Design", "Session", "design_of"]
