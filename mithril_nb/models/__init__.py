"""Models and the blocks they are made of. Knows no array library."""

from mithril_nb.models.activations import Dropout, Gelu, Relu, Sigmoid, Softmax, Tanh
from mithril_nb.models.composite import Composite
from mithril_nb.models.composites import MLP
from mithril_nb.models.connection import Connection, IOKey
from mithril_nb.models.constants import Constant
from mithril_nb.models.files import from_dict, load, save, to_dict
from mithril_nb.models.layers import Add, Conv2d, Embedding, Flatten, LayerNorm, Linear, MaxPool2d
from mithril_nb.models.model import LogicalModel, Model, Placed
from mithril_nb.models.op import Operator
from mithril_nb.models.registry import KINDS
from mithril_nb.models.source import to_source

__all__ = [
    "KINDS",
    "MLP",
    "Add",
    "Composite",
    "Connection",
    "Constant",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "Gelu",
    "IOKey",
    "LayerNorm",
    "Linear",
    "LogicalModel",
    "MaxPool2d",
    "Model",
    "Operator",
    "Placed",
    "Relu",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "from_dict",
    "load",
    "save",
    "to_dict",
    "to_source",
]
