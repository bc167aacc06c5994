"""Sessions of workbenches."""

from __future__ import annotations

from typing import Any

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.ui.session import Session, design_of


def session_of(model: Any = None, shapes: Any = None, **training: Any) -> Session:
    """Return a session without autosave; `training` are options of `fit`."""
    return Session(design_of(model, shapes), JaxBackend(), training)
