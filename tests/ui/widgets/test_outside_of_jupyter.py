"""Location of the front end's code: in Jupyter in one shared widget, elsewhere in each widget."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import mithril_nb as ml
from mithril_nb.models import Linear
from mithril_nb.ui.widgets import front_end


def test_widget_contains_all_code_outside_of_jupyter():
    wb = ml.workbench(Linear(3), shapes={"input": [8, 5]})
    assert wb.get_state(["assets"]) == {"assets": None}
    assert len(wb._esm) > 200_000
    wb.close()


@pytest.mark.parametrize("kernel", [object(), None])
def test_the_code_is_shared_in_a_jupyter_kernel_only(monkeypatch, kernel):
    monkeypatch.setattr(front_end, "get_ipython", lambda: SimpleNamespace(kernel=kernel))
    other = ml.explore(lambda x: x + 1, 1.0)
    assert other.assets is (front_end.shared_assets() if kernel else None)
    assert (len(other._esm) < 2_000) == bool(kernel)
    other.close()
