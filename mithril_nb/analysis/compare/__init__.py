"""`compare`: the differences between two models or programs."""

from mithril_nb.analysis.compare.blocks import BlockChange
from mithril_nb.analysis.compare.comparison import Comparison, Connections, compare
from mithril_nb.analysis.compare.devices import DeviceComparison
from mithril_nb.analysis.compare.stages import StageComparison

__all__ = ["BlockChange", "Comparison", "Connections", "DeviceComparison", "StageComparison", "compare"]
