"""The tests that take longest: `make test` runs an eighth of them, `make test-all` runs all.

`tests/slow_tests.txt` lists them. `python -m tools.slow_tests` writes it from the reports of the last `make test-all`.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path

from tools.steps import ROOT, WORK, Stop, output, say

LIST = ROOT / "tests" / "slow_tests.txt"
VARIABLE = "MITHRIL_NB_SLOW_TESTS"
"""Environment variable with the part of the slow tests to run, such as `"0/8"`; tests/conftest.py reads it."""
PARTS = 8
LONG_S = {"unit": 0.3, "jupyter": 6.0}
"""Shortest duration of a slow test in seconds, by the part of the checks that runs it."""


def part() -> str:
    """Return the part of the slow tests for this commit: its number, a slash, and the number of parts.

    Each commit always runs the same part, and the next commit the next part.
    """
    commits = (output(["git", "-C", str(ROOT), "rev-list", "--count", "HEAD"]) or "").strip()
    return f"{int(commits or '0') % PARTS}/{PARTS}"


def slow_tests(reports: Iterable[tuple[Path, float]]) -> list[str]:
    """Return the ids of slow tests.

    Args:
        reports: Reports in JUnit's format, each with the shortest duration of a slow test in seconds. Cells of
            notebooks are never slow tests, because they run in order.
    """
    return sorted(
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for path, long_s in reports
        for case in ElementTree.parse(path).getroot().iter("testcase")
        if float(case.get("time", 0)) >= long_s and case.get("classname", "").startswith(("tests.", "mithril_nb."))
    )


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    words = name.partition("[")[0].rpartition(".")[2]
    return (ROOT / path).exists() and words in (ROOT / path).read_text(encoding="utf-8")


def main() -> int:
    """Write the list."""
    reports = [(WORK / f"report-{name}.xml", long_s) for name, long_s in LONG_S.items()]
    missing = [str(path) for path, _ in reports if not path.exists()]
    if missing:
        raise Stop("no report of all tests exists.", [f"missing  {path}" for path in missing], "make test-all")
    every = {*slow_tests((path, 0) for path, _ in reports)}
    left_out = [one for one in LIST.read_text(encoding="utf-8").splitlines() if one not in every and _exists(one)]
    if left_out:
        raise Stop("the reports do not contain all slow tests.", [f"missing  {left_out[0]}"], "make test-all")
    found = slow_tests(reports)
    LIST.write_text("".join(f"{one}\n" for one in found), encoding="utf-8")
    say(f"   {len(found)} slow tests in {LIST.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
