"""docs/backends.md shows the blocks and backends of the tests."""

from tests.emission.backends_page import PAGE, page, written
from tests.emission.test_blocks import CASES


def test_the_page_is_current() -> None:
    shown = written()
    assert sorted(shown) == sorted(CASES), "python -m tests.emission.backends_page"
    assert PAGE.read_text(encoding="utf-8") == page(shown), "python -m tests.emission.backends_page"
