"""What XLA has written down is read while it still compiles: its passes are done before it writes machine code."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from mithril_nb.stages.collector import paused_collector

Value = TypeVar("Value")
_INTERVAL_S = 0.02
_CONFIG = re.compile(r"backend_config=(\{.*\})")


class Ahead(Generic[Value]):
    """A value made on a thread of its own while the body of a `with` runs, if it can be made by then.

    Args:
        make: Makes it; `None` as long as that cannot be done yet. What goes wrong in it counts as nothing made: whoever
            needs the value makes it then, and is told.

    Examples:
        >>> import time
        >>> with Ahead(lambda: 6 * 7) as ahead:
        ...     time.sleep(0.2)
        >>> ahead.get()
        42
        >>> with Ahead(lambda: None) as ahead:
        ...     pass
        >>> ahead.get() is None
        True
    """

    def __init__(self, make: Callable[[], Value | None]):
        self._make = make
        self._over = threading.Event()
        self._value: Value | None = None
        self._thread = threading.Thread(target=self._run, name="mithril_nb reads ahead", daemon=True)

    def __enter__(self) -> Ahead[Value]:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()

    def get(self) -> Value | None:
        """Return the value if its making had begun within the body; waits until it is made."""
        self._thread.join()
        return self._value

    def _run(self) -> None:
        while not self._over.wait(_INTERVAL_S):
            try:
                with paused_collector():
                    self._value = self._make()
            except Exception:
                return
            if self._value is not None:
                return


def fingerprint(text: str) -> bytes:
    r"""Return what two texts of a module have in common if and only if they tell the same.

    XLA writes what a backend is told as a map, in any order.

    Examples:
        >>> fingerprint('  a, backend_config={"b":1,"c":2}\n') == fingerprint('  a, backend_config={"c":2,"b":1}\n')
        True
        >>> fingerprint('  a, backend_config={"b":1}\n') == fingerprint('  a, backend_config={"b":2}\n')
        False
    """
    sorted_text = _CONFIG.sub(lambda match: "".join(sorted(match.group(1))), text)
    return hashlib.blake2b(sorted_text.encode(), digest_size=16).digest()
