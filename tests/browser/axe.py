"""Accessibility rules, checked by axe-core in the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

import mithril_nb.ui

_AXE = Path(mithril_nb.ui.__file__).parent / "frontend/node_modules/axe-core/axe.min.js"
_CHECK = """(of) => axe.run(of).then(({violations}) => violations.map(
    ({id, nodes}) => [id, ...nodes.map((node) => `${node.html.slice(0, 120)}: ${node.failureSummary}`)]
))"""


def violations(page: Page, of: str) -> list[Any]:
    """Return the violated rules in the first element that matches a selector, with the elements and reasons."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_AXE.read_text(encoding="utf-8"))
    return page.evaluate(_CHECK, of)
