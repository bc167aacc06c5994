"""Tables of costs that are wider than their cell scroll inside their panel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from lab import Browser, watched_page

import mithril_nb as ml
from mithril_nb.viz.bundles import bundle
from mithril_nb.viz.costs.drawing import NumberTable


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page with cells of costs, fully expanded."""

    def net(x, w):
        with jax.named_scope("a_block_with_a_long_name_of_its_own"):
            return jnp.tanh(x @ w)

    square = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    program = ml.inspect(net, square, square)
    numbers = NumberTable("numbers", [("block", *map(str, range(40))), ("a", *["1.00 GFLOP"] * 40)])
    shown = (program.costs(), ml.profile(net, square, square, runs=1))
    parts = "".join(
        f"<section>{part}</section>"
        for part in (*(bundle(one)["text/html"] for one in shown), f'<div class="mnb">{numbers.html}</div>')
    )
    page = tmp_path_factory.mktemp("cells") / "cells.html"
    page.write_text(
        f"<!DOCTYPE html><body data-jp-theme-light='false'>{parts.replace('<details', '<details open')}</body>",
        encoding="utf-8",
    )
    return page.as_uri()


def test_wide_tables_scroll_within_their_panel(chromium: Browser, address: str) -> None:
    with watched_page(chromium.context, address, 900) as page:
        page.set_viewport_size({"width": 480, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= 480
        found = page.eval_on_selector_all(
            "section",
            """sections => sections.map(section =>
            [...section.querySelectorAll("table.cost")].map(table => table.parentElement)
                .map(one => [one.className, one.scrollWidth > one.clientWidth]))""",
        )
        assert len(found) == 3
        for tables in found:
            assert {name for name, _ in tables} == {"scroll"}
            assert any(is_wider for _, is_wider in tables), "none of them needs to scroll"
