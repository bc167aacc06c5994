"""A desk answers what a page asks: of costs, of passes, of other settings; each has threads of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mithril_nb.session.wishes import Wishes


@dataclass(frozen=True)
class Page:
    """Who asks, and hears the answers, in any thread.

    Attributes:
        tell: Told what an answer is, and the answer.
        changed: Called where the `view` of a desk is another.
        failed: Told what nobody expected.
    """

    tell: Callable[[str, Any], None]
    changed: Callable[[], None]
    failed: Callable[[BaseException], None]


class Desk:
    """Answers what a page asks: what needs no compiler in one thread, what needs it in another.

    Args:
        page: Who asks.
        name: What the first thread is called, after `mithril_nb-`.
        slow: What the second is called.

    Attributes:
        commands: What a page can ask for, by name.
    """

    commands: dict[str, Callable[..., None]]

    def __init__(self, page: Page, name: str, slow: str):
        self._page = page
        self._quick, self._slow = (Wishes(f"mithril_nb-{one}", page.failed) for one in (name, slow))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the answers; return whether they came in time."""
        return self._slow.wait(timeout_s) and self._quick.wait(timeout_s)

    def end(self) -> None:
        """Give up what is asked."""
        self._quick.end()
        self._slow.end()
