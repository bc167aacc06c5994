"""Read XLA's files while it still compiles: its passes finish before it generates code."""

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


class EarlyRead(Generic[Value]):
    """A value computed in a thread while the body of a `with` runs, if it is available by then.

    Args:
        make: Computes it; returns `None` while it is not available. An error counts as no value: the caller
            then computes the value itself and gets the error.

    Examples:
        >>> import time
        >>> with EarlyRead(lambda: 6 * 7) as ahead:
        ...     time.sleep(0.2)
        >>> ahead.get()
        42
        >>> with EarlyRead(lambda: None) as ahead:
        ...     pass
        >>> ahead.get() is None
        True
    """

    def __init__(self, make: Callable[[], Value | None]):
        self._make: Callable[[], Value | None] | None = make
        self._over = threading.Event()
        self._value: Value | None = None
        self._thread = threading.Thread(target=self._run, name="mithril_nb early read", daemon=True)

    def __enter__(self) -> EarlyRead[Value]:
        try:
            self._thread.start()
        except RuntimeError:  # The process may have reached its thread limit; then nothing is read early.
            self._make = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()

    def get(self) -> Value | None:
        """Return the value if computing it started within the body; waits until it is computed."""
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
        self._make = None  # It holds a reference to the program, which must not outlive its other references.


def fingerprint(text: str) -> bytes:
    r"""Return a hash that is equal for two texts of the same module, and different otherwise.

    XLA prints a backend's configuration as a map, in any order.

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
        value, end = _DECODER.raw_decode(config, start)
    except ValueError:  # a backend's configuration is not always JSON
        return config
    return f"{config[:start]}{json.dumps(value, sort_keys=True)}{config[end:]}"
