"""What XLA has written down is read while it still compiles: its passes are done before it writes machine code."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

Value = TypeVar("Value")
_INTERVAL_S = 0.02
_CONFIG = re.compile(r"backend_config=\{.*")
_DECODER = json.JSONDecoder()


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
        self._make: Callable[[], Value | None] | None = make
        self._over = threading.Event()
        self._value: Value | None = None
        self._thread = threading.Thread(target=self._run, name="mithril_nb reads ahead", daemon=True)

    def __enter__(self) -> Ahead[Value]:
        try:
            self._thread.start()
        except RuntimeError:  # A process may have as many threads as it is allowed: then nothing is made ahead.
            self._make = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()

    def get(self) -> Value | None:
        """Return the value if its making had begun within the body; waits until it is made."""
        if self._thread.ident is not None:
            self._thread.join()
        return self._value

    def _run(self) -> None:
        make = self._make
        assert make is not None
        while self._value is None and not self._over.wait(_INTERVAL_S):
            try:
                self._value = make()
            except Exception:
                break
        self._make = None  # It knows the program, which is to go when nobody else does.


def fingerprint(text: str) -> bytes:
    r"""Return what two texts of a module have in common if they tell the same, and hardly otherwise.

    XLA writes what a backend is told as a map, in any order.

    Examples:
        >>> fingerprint('  a, backend_config={"b":1,"c":2}\n') == fingerprint('  a, backend_config={"c":2,"b":1}\n')
        True
        >>> fingerprint('  a, backend_config={"b":12}\n') == fingerprint('  a, backend_config={"b":21}\n')
        False
    """
    return hashlib.blake2b(_CONFIG.sub(_in_order, text).encode(), digest_size=16).digest()


def _in_order(found: re.Match[str]) -> str:
    config = found.group()
    start = len("backend_config=")
    try:
        told, end = _DECODER.raw_decode(config, start)
    except ValueError:  # not everything that a backend is told is JSON
        return config
    return f"{config[:start]}{json.dumps(told, sort_keys=True)}{config[end:]}"
