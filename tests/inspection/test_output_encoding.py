"""Printing on a terminal that cannot encode all characters."""

from __future__ import annotations

import io
import sys

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec

from mithril_nb.cli.terminal import say
from mithril_nb.inspection import inspect_function as inspect


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_everything_prints_in_any_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = inspect(lambda größe: jax.lax.scan(lambda c, row: (c * row, c), jnp.ones(4), größe), spec(6, 4))
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    for value in (found, found.costs(), *(found.cost(source) for source in ("analytic", "lowered", "compiled"))):
        print(value)
        say(str(value))
    out.flush()
    printed = out.buffer.getvalue().decode(encoding)  # pyright: ignore[reportAttributeAccessIssue]
    assert "x6 rounds" in printed if encoding == "ascii" else "×6 rounds" in printed
