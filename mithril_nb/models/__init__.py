"""Models and the blocks they are made of. Knows no array library."""

from mithril_nb.models import (
    activations,
    arithmetic,
    attention,
    classical,
    control,
    convolution,
    generators,
    logic,
    losses,
    metrics,
    normalization,
    recurrent,
    reductions,
    sequences,
    shaping,
    statics,
    transformers,
    vision,
)
from mithril_nb.models.activations import *
from mithril_nb.models.arithmetic import *
from mithril_nb.models.attention import *
from mithril_nb.models.classical import *
from mithril_nb.models.composite import Composite
from mithril_nb.models.composites import MLP
from mithril_nb.models.connection import Connection, IOKey
from mithril_nb.models.constants import Constant
from mithril_nb.models.control import *
from mithril_nb.models.convolution import *
from mithril_nb.models.files import from_dict, load, save, to_dict
from mithril_nb.models.generators import *
from mithril_nb.models.layers import Add, Conv2d, Embedding, Flatten, LayerNorm, Linear, MaxPool2d
from mithril_nb.models.logic import *
from mithril_nb.models.losses import *
from mithril_nb.models.metrics import *
from mithril_nb.models.model import LogicalModel, Model, Placed
from mithril_nb.models.normalization import *
from mithril_nb.models.op import Operator
from mithril_nb.models.recurrent import *
from mithril_nb.models.reductions import *
from mithril_nb.models.registry import KINDS
from mithril_nb.models.sequences import *
from mithril_nb.models.shaping import *
from mithril_nb.models.source import to_source
from mithril_nb.models.statics import *
from mithril_nb.models.transformers import *
from mithril_nb.models.vision import *

__all__ = [
    "KINDS",
    "MLP",
    "Add",
    "Composite",
    "Connection",
    "Constant",
    "Conv2d",
    "Embedding",
    "Flatten",
    "IOKey",
    "LayerNorm",
    "Linear",
    "LogicalModel",
    "MaxPool2d",
    "Model",
    "Operator",
    "Placed",
    "from_dict",
    "load",
    "save",
    "to_dict",
    "to_source",
]
__all__ += activations.__all__
__all__ += arithmetic.__all__
__all__ += attention.__all__
__all__ += classical.__all__
__all__ += control.__all__
__all__ += convolution.__all__
__all__ += generators.__all__
__all__ += logic.__all__
__all__ += losses.__all__
__all__ += metrics.__all__
__all__ += normalization.__all__
__all__ += recurrent.__all__
__all__ += reductions.__all__
__all__ += sequences.__all__
__all__ += shaping.__all__
__all__ += statics.__all__
__all__ += transformers.__all__
__all__ += vision.__all__
