"""Import parameters and simple models from other libraries, and save parameters. Libraries are imported on use."""

from mithril_nb.interop.equinox import from_equinox
from mithril_nb.interop.flax import from_flax
from mithril_nb.interop.haiku import from_haiku
from mithril_nb.interop.safetensors import load_params, save_params

__all__ = ["from_equinox", "from_flax", "from_haiku", "load_params", "save_params"]
