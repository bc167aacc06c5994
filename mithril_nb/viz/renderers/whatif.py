"""Rich display of the answers to what-if questions."""

from __future__ import annotations

from mithril_nb.analysis.whatif.change import Change
from mithril_nb.analysis.whatif.sweeps import Sweep
from mithril_nb.display import renderer
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.costs.change import change
from mithril_nb.viz.costs.sweep import sweep
from mithril_nb.viz.renderers.pictures import drawing_bundle


@renderer(Change)
def _change(found: Change) -> Bundle:
    return drawing_bundle(change(found.to_dict()))


@renderer(Sweep)
def _sweep(found: Sweep) -> Bundle:
    return drawing_bundle(sweep(found.to_dict()))
