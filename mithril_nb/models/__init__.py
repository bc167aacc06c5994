"""Models and the blocks they are made of. Knows no array library."""

from mithril_nb.models.activations import Dropout, Gelu, Relu, Sigmoid, Softmax, Tanh
from mithril_nb.models.composites import MLP
from mithril_nb.models.layers import Add, Conv2d, Embedding, Flatten, LayerNorm, Linear, MaxPool2d
from mithril_nb.models.model import LogicalModel, Model, Placed
from mithril_nb.models.op import Operator

__all__ = [
    "MLP",
    "Add",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "Gelu",
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
]
