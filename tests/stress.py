"""Stress tests: short in `make test`, long in `make stress`, which prints a table of the measurements.

A stress test takes the fixture `stress` and is selected by it::

    def test_header_flips(stress):
        flips = stress.size(short=200, long=14_304)
        ...
        stress.report(flips=flips, accepted=accepted)
        assert accepted == 0
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

VARIABLE = "MITHRIL_NB_STRESS"
"""Set by `make stress`."""
LONGEST_S = 3600


def is_long() -> bool:
    """Return whether stress tests run at their full length."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


class Stress:
    """The length of one stress test, and its row of the table."""

    def __init__(self, request: pytest.FixtureRequest):
        self._item = request.node

    def size(self, short: int, long: int) -> int:
        """Return the number of repetitions: `short` in `make test`, `long` in `make stress`."""
        return long if is_long() else short

    def report(self, **figures: Any) -> None:
        """Add figures to this test's row of the table."""
        self._item.user_properties.extend((f"stress.{name}", value) for name, value in figures.items())


@pytest.fixture
def stress(request: pytest.FixtureRequest) -> Iterator[Stress]:
    """The length of a stress test, and its row of the table."""
    started = time.monotonic()
    found = Stress(request)
    yield found
    found.report(seconds=round(time.monotonic() - started, 1))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that take `stress`; at full length they may take longer than other tests."""
    for item in items:
        if "stress" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.stress)
            if is_long():
                item.add_marker(pytest.mark.timeout(LONGEST_S), append=False)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print a row for each stress test that ran at full length."""
    if not is_long():
        return
    reports = [one for found in terminalreporter.stats.values() for one in found if isinstance(one, pytest.TestReport)]
    failed = {one.nodeid for one in reports if one.failed}
    terminalreporter.section("stress")
    for report in reports:
        figures = [f"{name[7:]} {value}" for name, value in report.user_properties if name.startswith("stress.")]
        if figures and report.when == "teardown":  # the last report of a test contains all its figures
            outcome = "failed" if report.nodeid in failed else "passed"
            terminalreporter.write_line(f"{report.nodeid} | {outcome} | {', '.join(figures)}")
