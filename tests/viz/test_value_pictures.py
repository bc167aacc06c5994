"""Pictures of values: each kind, their pixels, and the rows of the table."""

from __future__ import annotations

import io
import re
from base64 import b64decode
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from matplotlib.image import imread

from mithril_nb.viz.values import value_picture

NUMBERS = st.floats(width=32) | st.sampled_from((0.0, np.nan, np.inf, -np.inf))


@given(arrays.arrays("float32", arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=40), elements=NUMBERS))
def test_each_array_has_a_picture_and_a_text(array):
    svg, about = value_picture(array)
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert about


def pixels(svg):
    return [imread(io.BytesIO(b64decode(data))) for data in re.findall(r"base64,([^\"]*)", svg)]


@given(arrays.arrays("float32", st.tuples(st.integers(2, 70), st.integers(2, 70)), elements=NUMBERS))
def test_pixels_show_sign_and_size_and_mark_what_is_not_finite(matrix):
    (image,) = pixels(value_picture(matrix)[0])
    assert image.shape[:2] == tuple(min(64, side) for side in matrix.shape)
    is_marked = (image[..., :3] == np.array([1, 0, np.float32(220 / 255)])).all(axis=-1)
    assert is_marked.any() == (not np.isfinite(matrix).all())
    if image.shape[:2] == matrix.shape:
        np.testing.assert_array_equal(is_marked, ~np.isfinite(matrix))
        finite = np.isfinite(matrix)
        order = np.argsort(matrix[finite])
        redness = (image[..., 0] - image[..., 2])[finite][order]
        assert (np.diff(redness) >= -1e-6).all()


@pytest.mark.parametrize(
    ("shape", "about"),
    [
        ((), "1"), ((3,), "3 bars"), ((100,), "histogram"), ((1, 5), "5 bars"), ((4, 5), "heat map"),
        ((3, 4, 5), "3 heat maps"), ((2, 3, 4, 5), "3 heat maps"), ((20, 4, 5), "16 of 20 heat maps"),
        ((0, 3), "no elements"),
    ],
)  # fmt: skip
def test_the_kind_of_picture_follows_from_the_shape(shape, about):
    svg, text = value_picture(np.ones(shape))
    assert text.startswith(about)
    assert len(pixels(svg)) == (int(re.findall(r"\d+", about)[0]) if "heat maps" in about else "heat map" in about)
