"""mithril_nb: compose a model in a notebook, see every stage of its compilation, and train it live.

Names are imported on first use, so `import mithril_nb` is fast and needs no array library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mithril_nb.graph.spec import DType
from mithril_nb.plugins import load_plugins

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mithril_nb import models
    from mithril_nb.analysis.checks import assert_cost
    from mithril_nb.analysis.compare import compare
    from mithril_nb.analysis.measure import machine, profile
    from mithril_nb.analysis.whatif import sweep, what_if
    from mithril_nb.backends.backend import Backend
    from mithril_nb.backends.jax import JaxBackend
    from mithril_nb.backends.with_autograd.mlx_backend import MlxBackend
    from mithril_nb.backends.with_autograd.torch_backend import TorchBackend
    from mithril_nb.backends.with_manualgrad.c_backend import CBackend
    from mithril_nb.backends.with_manualgrad.ggml_backend import GGMLBackend
    from mithril_nb.backends.with_manualgrad.numpy_backend import NumpyBackend
    from mithril_nb.compilation import PhysicalModel, compile
    from mithril_nb.cost.registration import register_cost
    from mithril_nb.interop import from_equinox, from_flax, from_haiku, load_params, save_params
    from mithril_nb.interop.exporting import export
    from mithril_nb.models import LoadLimits, Model, load, save
    from mithril_nb.models.op import op, register_primitive
    from mithril_nb.stages.transforms.stepping import step_through
    from mithril_nb.targets import inspect
    from mithril_nb.train import Checkpoints, distributed, fit
    from mithril_nb.ui.widgets import explore, watch, workbench

float16 = DType("float16")
bfloat16 = DType("bfloat16")
float32 = DType("float32")
float64 = DType("float64")
int8 = DType("int8")
int16 = DType("int16")
int32 = DType("int32")
int64 = DType("int64")
uint8 = DType("uint8")
bool_ = DType("bool")

_HOMES = {
    "Backend": "mithril_nb.backends.backend",
    "CBackend": "mithril_nb.backends.with_manualgrad.c_backend",
    "Checkpoints": "mithril_nb.train",
    "GGMLBackend": "mithril_nb.backends.with_manualgrad.ggml_backend",
    "JaxBackend": "mithril_nb.backends.jax",
    "LoadLimits": "mithril_nb.models",
    "MlxBackend": "mithril_nb.backends.with_autograd.mlx_backend",
    "Model": "mithril_nb.models",
    "NumpyBackend": "mithril_nb.backends.with_manualgrad.numpy_backend",
    "PhysicalModel": "mithril_nb.compilation",
    "TorchBackend": "mithril_nb.backends.with_autograd.torch_backend",
    "assert_cost": "mithril_nb.analysis.checks",
    "compare": "mithril_nb.analysis.compare",
    "compile": "mithril_nb.compilation",
    "distributed": "mithril_nb.train",
    "explore": "mithril_nb.ui.widgets",
    "export": "mithril_nb.interop.exporting",
    "fit": "mithril_nb.train",
    "from_equinox": "mithril_nb.interop",
    "from_flax": "mithril_nb.interop",
    "from_haiku": "mithril_nb.interop",
    "inspect": "mithril_nb.targets",
    "load": "mithril_nb.models",
    "load_params": "mithril_nb.interop",
    "machine": "mithril_nb.analysis.measure",
    "op": "mithril_nb.models.op",
    "profile": "mithril_nb.analysis.measure",
    "register_cost": "mithril_nb.cost.registration",
    "register_primitive": "mithril_nb.models.op",
    "save": "mithril_nb.models",
    "save_params": "mithril_nb.interop",
    "step_through": "mithril_nb.stages.transforms.stepping",
    "sweep": "mithril_nb.analysis.whatif",
    "watch": "mithril_nb.ui.widgets",
    "what_if": "mithril_nb.analysis.whatif",
    "workbench": "mithril_nb.ui.widgets",
}
"""Module of each public name that is imported on first use."""


def __getattr__(name: str) -> Any:
    if name in _HOMES or name == "models":
        load_plugins()
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name == "models":
        value = importlib.import_module("mithril_nb.models")
    else:
        raise AttributeError(f"module 'mithril_nb' has no attribute {name!r}")
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Hook for `%load_ext mithril_nb`: cells may then use `"gelu"(input="x")` for `ml.op("gelu")(input="x")`.

    It also defines the cell magic `%%mithril_watch`, which reports what the cell traces and compiles.
    """
    importlib.import_module("mithril_nb.cli.ipython").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Hook for `%unload_ext mithril_nb`, which undoes `%load_ext mithril_nb`."""
    importlib.import_module("mithril_nb.cli.ipython").unload(shell)


def __dir__() -> list[str]:
    return sorted(name for name in {*globals(), *__all__} if name in __all__ or name.startswith("__"))


__all__ = [
    "Backend",
    "CBackend",
    "Checkpoints",
    "GGMLBackend",
    "JaxBackend",
    "LoadLimits",
    "MlxBackend",
    "Model",
    "NumpyBackend",
    "PhysicalModel",
    "TorchBackend",
    "assert_cost",
    "bfloat16",
    "bool_",
    "compare",
    "compile",
    "distributed",
    "explore",
    "export",
    "fit",
    "float16",
    "float32",
    "float64",
    "from_equinox",
    "from_flax",
    "from_haiku",
    "inspect",
    "int8",
    "int16",
    "int32",
    "int64",
    "load",
    "load_params",
    "machine",
    "models",
    "op",
    "profile",
    "register_cost",
    "register_primitive",
    "save",
    "save_params",
    "step_through",
    "sweep",
    "uint8",
    "watch",
    "what_if",
    "workbench",
]
