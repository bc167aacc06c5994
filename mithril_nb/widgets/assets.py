"""The front end's code, sent once for all widgets of a notebook.

anywidget sends and saves `_esm` with every instance. So the large bundle is in one hidden widget that all others refer
to, and theirs is a loader of some hundred bytes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import anywidget

from mithril_nb.errors import StageUnavailableError

STATIC = Path(__file__).parent / "static"


def built(name: str) -> str:
    """Return the text of a built file of the front end.

    Raises:
        StageUnavailableError: The front end has not been built; installing the package builds it.
    """
    path = STATIC / name
    if not path.is_file():
        raise StageUnavailableError(
            f"the front end of the widgets is not built: {name} is not there.",
            (("built by", "the package's own build"),),
            "pip install . (in the repository), or npm ci && npm run build in mithril_nb/widgets/frontend",
        )
    return path.read_text(encoding="utf-8")


class Assets(anywidget.AnyWidget):
    """Holds the bundle; shows nothing itself."""

    def __init__(self):
        self._esm = built("assets.js")
        super().__init__()


@cache
def shared_assets() -> Assets:
    """Return the one assets widget of this kernel."""
    return Assets()
