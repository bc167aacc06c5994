"""Parameters and plain models of other libraries, and files of parameters. A library is imported only when used."""

from mithril_nb.interop.equinox import from_equinox
from mithril_nb.interop.flax import from_flax
from mithril_nb.interop.haiku import from_haiku
from mithril_nb.interop.safetensors import load_params, save_params

__all__ = ["from_equinox", "from_flax", "from_haiku", "load_params", "save_params"]
