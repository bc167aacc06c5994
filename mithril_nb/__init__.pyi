"""The public names, for editors and type checkers: `__init__.py` imports them on first use."""

from mithril_nb import models as models
from mithril_nb.analysis.checks import assert_cost as assert_cost
from mithril_nb.analysis.compare import compare as compare
from mithril_nb.analysis.measure import machine as machine
from mithril_nb.analysis.measure import profile as profile
from mithril_nb.analysis.whatif import sweep as sweep
from mithril_nb.analysis.whatif import what_if as what_if
from mithril_nb.backends.backend import Backend as Backend
from mithril_nb.backends.jax import JaxBackend as JaxBackend
from mithril_nb.backends.with_autograd.mlx_backend import MlxBackend as MlxBackend
from mithril_nb.backends.with_autograd.torch_backend import TorchBackend as TorchBackend
from mithril_nb.backends.with_manualgrad.c_backend import CBackend as CBackend
from mithril_nb.backends.with_manualgrad.ggml_backend import GGMLBackend as GGMLBackend
from mithril_nb.backends.with_manualgrad.numpy_backend import NumpyBackend as NumpyBackend
from mithril_nb.compilation import PhysicalModel as PhysicalModel
from mithril_nb.compilation import compile as compile
from mithril_nb.cost.registration import register_cost as register_cost
from mithril_nb.graph.spec import bfloat16 as bfloat16
from mithril_nb.graph.spec import bool_ as bool_
from mithril_nb.graph.spec import float16 as float16
from mithril_nb.graph.spec import float32 as float32
from mithril_nb.graph.spec import float64 as float64
from mithril_nb.graph.spec import int8 as int8
from mithril_nb.graph.spec import int16 as int16
from mithril_nb.graph.spec import int32 as int32
from mithril_nb.graph.spec import int64 as int64
from mithril_nb.graph.spec import uint8 as uint8
from mithril_nb.hardware import Device as Device
from mithril_nb.hardware import device_mesh as device_mesh
from mithril_nb.hardware import devices as devices
from mithril_nb.hardware import register_device as register_device
from mithril_nb.interop import from_equinox as from_equinox
from mithril_nb.interop import from_flax as from_flax
from mithril_nb.interop import from_haiku as from_haiku
from mithril_nb.interop import load_params as load_params
from mithril_nb.interop import save_params as save_params
from mithril_nb.interop.exporting import export as export
from mithril_nb.models import LoadLimits as LoadLimits
from mithril_nb.models import Model as Model
from mithril_nb.models import load as load
from mithril_nb.models import save as save
from mithril_nb.models.op import op as op
from mithril_nb.models.op import register_primitive as register_primitive
from mithril_nb.stages.transforms.stepping import step_through as step_through
from mithril_nb.targets import inspect as inspect
from mithril_nb.train import Checkpoints as Checkpoints
from mithril_nb.train import distributed as distributed
from mithril_nb.train import fit as fit
from mithril_nb.ui.widgets import explore as explore
from mithril_nb.ui.widgets import try_shardings as try_shardings
from mithril_nb.ui.widgets import watch as watch
from mithril_nb.ui.widgets import workbench as workbench

__version__: str
__all__: list[str]
