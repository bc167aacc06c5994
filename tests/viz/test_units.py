"""Formats of numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mithril_nb.viz.units import exact, flops, nbytes, percent, seconds, si


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (flops(84_200_000), "84.2 MFLOP"),
        (nbytes(28_700_000), "28.7 MB"),
        (seconds(0.310), "310 ms"),
        (flops(None), "unknown"),
        (nbytes(math.nan), "unknown"),
        (seconds(None), "unknown"),
        (percent(None), "unknown"),
        (exact(None), "unknown"),
        (si(0), "0"),
        (si(999), "999"),
        (si(1000), "1.00 k"),
        (si(999_499), "999 k"),
        (si(999_500), "1.00 M"),
        (si(-1500, "B"), "-1.50 kB"),
        (si(math.inf, "B"), "∞ B"),
        (si(2.5), "2.50"),
        (seconds(0), "0 s"),
        (seconds(0.9996), "1.00 s"),
        (seconds(59.96), "1 min 0 s"),
        (seconds(3600), "1 h 0 min"),
        (seconds(5e-10), "0.50 ns"),
        (percent(0.9996), "> 99.9 %"),
        (exact(1234.5), "1,234.5"),
    ],
)
def test_texts(made, text):
    assert made == text


@given(st.floats(1, 1e20))
def test_a_count_is_never_shown_more_than_half_a_percent_off(value):
    number, _, prefix = si(value).partition(" ")
    assert float(number) * 1000 ** " kMGTPE".index(prefix or " ") == pytest.approx(value, rel=0.005)
