"""Measured run times: seconds by instruction, block and role, compared with the machine's peaks."""

from __future__ import annotations

from mithril_nb.analysis.measure.backends import BackendTimes, time_backends
from mithril_nb.analysis.measure.profiling import Profile, Rate, TimeSpread, profile
from mithril_nb.hardware.machines import Machine, known_machine, machine

__all__ = [
    "BackendTimes",
    "Machine",
    "Profile",
    "Rate",
    "TimeSpread",
    "known_machine",
    "machine",
    "profile",
    "time_backends",
]
