"""Costs of a program with other settings, such as batch, width, depth, dtype or remat."""

from __future__ import annotations

from mithril_nb.analysis.whatif.change import Change, Future, Peak
from mithril_nb.analysis.whatif.sweeps import Point, Sweep, sweep
from mithril_nb.analysis.whatif.what_if import WhatIf, what_if

__all__ = ["Change", "Future", "Peak", "Point", "Sweep", "WhatIf", "sweep", "what_if"]
