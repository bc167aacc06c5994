"""The built front end is small: once per page, and for each view."""

from __future__ import annotations

import gzip
import re
from base64 import b64decode

import pytest

from mithril_nb.viz.html_parts import built


def test_the_code_of_a_page_is_at_most_700_kb() -> None:
    packed = re.search(r'"([A-Za-z0-9+/=]{1000,})"', built("assets.js"))
    assert packed is not None
    assert len(gzip.decompress(b64decode(packed[1]))) <= 700_000


@pytest.mark.parametrize("view", ["workbench.js", "explorer.js", "curves.js"])
def test_a_view_adds_at_most_5_kb(view: str) -> None:
    assert len(built(view).encode()) < 5_000
