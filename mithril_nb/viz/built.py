"""Built files of the front end: the code of the widgets, and the scripts of pages and outputs without a kernel."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mithril_nb.errors import StageUnavailableError

STATIC = Path(__file__).parent / "static"


def built(name: str) -> str:
    """Return the text of a built file.

    Raises:
        StageUnavailableError: The front end has not been built; installing the package builds it.
    """
    path = STATIC / name
    if not path.is_file():
        raise StageUnavailableError(
            f"the front end of the widgets is not built: {name} is missing.",
            (("built by", "the package's build"),),
            "pip install . (in the repository), or npm ci && npm run build in mithril_nb/ui/frontend",
        )
    return path.read_text(encoding="utf-8")


@cache
def link_script() -> str:
    """Return the script element that highlights linked lines; `""` if the front end is not built.

    Outputs are complete without it, so that a bare clone without Node.js can still display values.
    """
    return f"<script>{built('outputs.js').rstrip()}</script>" if (STATIC / "outputs.js").is_file() else ""
