"""mithril_nb: compose a model in a notebook, see every stage of its compilation, and train it live.

Names are imported on first use, so `import mithril_nb` is fast and needs no array library.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from mithril_nb import display, plugins

__version__ = "0.1.0"

_NAMES = {
    "mithril_nb.analysis.checks": "assert_cost",
    "mithril_nb.analysis.compare": "compare",
    "mithril_nb.analysis.first_nan": "find_nan",
    "mithril_nb.analysis.measure": "machine profile",
    "mithril_nb.analysis.whatif": "sweep what_if",
    "mithril_nb.backends.backend": "Backend",
    "mithril_nb.backends.jax": "JaxBackend",
    "mithril_nb.backends.with_autograd.mlx_backend": "MlxBackend",
    "mithril_nb.backends.with_autograd.torch_backend": "TorchBackend",
    "mithril_nb.backends.with_manualgrad.c_backend": "CBackend",
    "mithril_nb.backends.with_manualgrad.ggml_backend": "GGMLBackend",
    "mithril_nb.backends.with_manualgrad.numpy_backend": "NumpyBackend",
    "mithril_nb.compilation": "PhysicalModel compile",
    "mithril_nb.cost.registration": "register_cost",
    "mithril_nb.graph.spec": "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 bool_",
    "mithril_nb.hardware": "Device device_mesh devices register_device",
    "mithril_nb.interop": "from_equinox from_flax from_haiku load_params save_params",
    "mithril_nb.interop.exporting": "export",
    "mithril_nb.models": "LoadLimits Model load save",
    "mithril_nb.models.op": "op register_primitive",
    "mithril_nb.stages.transforms.stepping": "step_through",
    "mithril_nb.targets": "inspect",
    "mithril_nb.teach.explain": "explain",
    "mithril_nb.train": "Checkpoints distributed find_lr fit patience",
    "mithril_nb.train.store.importing": "import_runs",
    "mithril_nb.train.store.searching": "search",
    "mithril_nb.train.store.stored": "runs",
    "mithril_nb.train.store.tracking": "track",
    "mithril_nb.train.views": "attention_maps confusion histograms worst_examples",
    "mithril_nb.ui.widgets": "explore try_shardings watch workbench",
}
"""The public names by module. The stub `__init__.pyi` lists them for editors."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

_ROOMS = {"models", "teach"}
"""The rooms that are public names themselves."""

__all__ = sorted([*_HOMES, *_ROOMS])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _ROOMS:
        raise AttributeError(f"module 'mithril_nb' has no attribute {name!r}")
    plugins.load_plugins()
    home = importlib.import_module(_HOMES.get(name, f"mithril_nb.{name}"))
    globals()[name] = value = home if name in _ROOMS else getattr(home, name)
    return value


# What lower rooms look up in upper ones.
display.viz = partial(importlib.import_module, "mithril_nb.viz")
display.widgets = partial(importlib.import_module, "mithril_nb.ui.widgets")
plugins.public_name = __getattr__


def load_ipython_extension(shell: Any) -> None:
    """Hook for `%load_ext mithril_nb`: cells may then use `"gelu"(input="x")` for `ml.op("gelu")(input="x")`."""
    importlib.import_module("mithril_nb.cli.ipython").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Hook for `%unload_ext mithril_nb`, which undoes `%load_ext mithril_nb`."""
    importlib.import_module("mithril_nb.cli.ipython").unload(shell)


def __dir__() -> list[str]:
    return sorted(name for name in {*globals(), *__all__} if name in __all__ or name.startswith("__"))
