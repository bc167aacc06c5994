"""The reasons for the retraces of a watched function or block."""

from typing import Any


def reasons(seen: Any) -> list[str]:
    return [retrace.reason for retrace in seen.retraces]
