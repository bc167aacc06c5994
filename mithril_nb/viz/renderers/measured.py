"""Rich display of profiles."""

from __future__ import annotations

from mithril_nb.analysis.measure.profiles import Profile
from mithril_nb.display import renderer
from mithril_nb.viz.bundles import Bundle
from mithril_nb.viz.costs.profile import profile_html, profile_text


@renderer(Profile)
def _profile(found: Profile) -> Bundle:
    return {"text/plain": profile_text(found), "text/html": profile_html(found)}
