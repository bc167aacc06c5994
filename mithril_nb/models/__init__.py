"""Models and their blocks. Independent of any array library."""

from mithril_nb.models import library
from mithril_nb.models.composite import Composite
from mithril_nb.models.connection import Connection, IOKey
from mithril_nb.models.control import Cond, Control, Repeat, Scan
from mithril_nb.models.library import *
from mithril_nb.models.model import LogicalModel, Model, Placed
from mithril_nb.models.op import Operator
from mithril_nb.models.registry import KINDS, suggested_kind
from mithril_nb.models.saving.formats import from_dict, load, save, to_dict, to_source
from mithril_nb.models.saving.serialization import LoadLimits

__all__ = [
    "KINDS",
    "Composite",
    "Cond",
    "Connection",
    "Control",
    "IOKey",
    "LoadLimits",
    "LogicalModel",
    "Model",
    "Operator",
    "Placed",
    "Repeat",
    "Scan",
    "from_dict",
    "load",
    "save",
    "to_dict",
    "to_source",
]
__all__ += library.__all__


def __getattr__(name: str) -> object:
    near = None if name.startswith("_") else suggested_kind(name)
    raise AttributeError(
        f"module 'mithril_nb.models' has no attribute {name!r}." + (f" Did you mean {near!r}?" if near else "")
    )
