"""Built files of the front end, and what works without them."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError
from mithril_nb.viz import html_parts


def test_the_script_of_outputs_is_small_and_sends_no_request() -> None:
    script = html_parts.link_script()
    assert script.startswith("<script>")
    assert len(script) < 8_000, "every output contains it"
    for word in ("fetch", "http", "innerHTML", "eval(", "Function("):
        assert word not in script


def test_outputs_need_no_built_file_and_pages_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(html_parts, "STATIC", tmp_path)
    html_parts.link_script.cache_clear()
    program = ml.inspect(jnp.sin, jax.ShapeDtypeStruct((3,), "float32"))
    try:
        html = program._repr_mimebundle_()["text/html"]
        assert "<script" not in html
        assert 'data-stage="jaxpr"' in html
        with pytest.raises(StageUnavailableError, match=r"is not built: page\.js is missing\.") as error:
            program.to_html(stages=["jaxpr"])
    finally:
        html_parts.link_script.cache_clear()
    assert "Try: pip install ." in str(error.value)
