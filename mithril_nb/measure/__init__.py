"""What a program takes when it runs: seconds by instruction, block and role, against what the machine can do."""

from __future__ import annotations

from mithril_nb.measure.machines import Machine, known_machine, machine
from mithril_nb.measure.profiles import Profile, Rate, Spread
from mithril_nb.measure.profiling import profile

__all__ = ["Machine", "Profile", "Rate", "Spread", "known_machine", "machine", "profile"]
