"""Normalisation blocks."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from mithril_nb.models.connection import Connection
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.library.operations.reshaping import KeepsShape, last_axis
from mithril_nb.models.model import Placed
from mithril_nb.models.op import (
    Dim,
    Dims,
    Inferred,
    Initializer,
    MismatchError,
    Operator,
    Options,
    PortNames,
    Range,
)
from mithril_nb.models.shape_inference.dims import is_open

__all__ = [
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2D",
    "BatchNorm2d",
    "ElementWiseAffine",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "RMSNorm",
]

Share = Annotated[float, Range(0.0, 1.0)]
STATES = ("running_mean", "running_var")


class _Norm(KeepsShape, Operator):
    category = "Norms"
    keeps_scale = True
    initializers = {"weight": Initializer("ones"), "bias": Initializer("zeros")}

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the ports: the parameter `weight` if `use_scale` is true, and `bias` if `use_bias` is true."""
        flags = (("weight", "use_scale"), ("bias", "use_bias"))
        return PortNames(params=tuple(port for port, flag in flags if options.get(flag)))


class _LastAxis(_Norm):
    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape. The parameters have the size of the last axis."""
        _, last = last_axis(inputs)
        # A placeholder name: the parameter exists, and its size is known with the first input.
        size: Dims = ("features" if last is None else last,)
        return Inferred({"output": inputs["input"].shape}, {"weight": size, "bias": size})


class LayerNorm(_LastAxis):
    """Normalises the last axis to mean 0 and variance 1, then scales and shifts its items (Ba et al., 2016).

    The bias port can also be called `b`, as in Mithril.

    Args:
        use_scale: If true, multiply by a parameter.
        use_bias: If true, add a parameter.
        eps: Added to the variance, to avoid a division by zero for a constant row.
    """

    use_scale: bool = True
    use_bias: bool = True
    # As in Mithril and PyTorch; 1e-6 in Flax and 1e-3 in Keras.
    eps: Share = 1e-5

    op = "layer_norm"
    formula = "y = (x - mean) / √(var + eps) w + b"

    def __call__(self, /, **settings: Any) -> Placed:
        """Connect ports and set attributes, as `Model.__call__`. `b` is another name of the port `bias`."""
        # Mithril names this port `b`. The parameter keeps its name, so that files of both spellings fit.
        return super().__call__(**{"bias" if key == "b" else key: value for key, value in settings.items()})

    @property
    def b(self) -> Connection:
        """The port `bias`, under the name that it has in Mithril."""
        return self.bias


class RMSNorm(_LastAxis):
    """Normalises the last axis to a mean square of 1, then scales its items (Zhang and Sennrich, 2019).

    Args:
        use_scale: If true, multiply by a parameter.
        eps: Added to the mean square, to avoid a division by zero for a row of zeros.
    """

    use_scale: bool = True
    # As in Flax.
    eps: Share = 1e-6

    op = "rms_norm"
    formula = "y = x / √(mean(x²) + eps) w"
    initializers = {"weight": Initializer("ones")}


class ElementWiseAffine(_LastAxis):
    """Multiplies each item of the last axis by a parameter, and adds another parameter.

    Examples:
        >>> [port.name for port in ElementWiseAffine().inputs]
        ['input', 'weight', 'bias']
    """

    op = "element_wise_affine"
    formula = "y = x w + b"

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the ports: both parameters."""
        return PortNames(params=("weight", "bias"))


class _Channels(_Norm):
    ranks: ClassVar[tuple[int, ...]] = ()

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape. Parameters and states have one number per channel."""
        shape = inputs["input"].shape
        if not is_open(shape) and (len(shape) < 2 or len(shape) not in (cls.ranks or (len(shape),))):
            # The texts name the axes that a user of PyTorch's block of the same name expects.
            need = {(2, 3): "(batch, channels), or (batch, channels, length)", (4,): "(batch, channels, height, width)"}
            expected = need.get(cls.ranks, "(batch, channels, ...)")
            has = f"rank {len(shape)} != {cls.ranks[0]}" if len(cls.ranks) == 1 else f"rank {len(shape)}"
            raise MismatchError("input", expected, f"use an input of the shape {expected}.", has)
        # Only the batch norms have it, as in PyTorch. It makes the parameters known before the first input.
        declared = options.get("num_features")
        channels: Dim = "channels" if is_open(shape) else shape[1]
        if isinstance(declared, int):
            if isinstance(channels, int) and channels != declared:
                advice = f"{cls.__name__}({channels})  # or leave num_features out"
                raise MismatchError("input", f"(batch, {declared}, ...)", advice, f"axis 1: {channels} != {declared}")
            channels = declared
        cls.check(options, shape, channels)
        params: dict[str, Dims] = {"weight": (channels,), "bias": (channels,)}
        return Inferred({"output": shape}, params, {port: (channels,) for port in cls.state_ports})

    @classmethod
    def check(cls, options: Options, shape: Dims, channels: Dim) -> None:
        """Raise a `MismatchError` if the block does not support this number of channels. The default does nothing."""


class GroupNorm(_Channels):
    """Normalises each group of channels of a sample, then scales and shifts each channel (Wu and He, 2018).

    Args:
        num_groups: Number of groups of channels.
        use_scale: If true, multiply by a parameter.
        use_bias: If true, add a parameter.
        eps: Added to the variance, to avoid a division by zero for a constant group.
    """

    # As in Wu and He (2018), Flax and Keras. PyTorch requires the argument.
    num_groups: Size = 32
    use_scale: bool = True
    use_bias: bool = True
    eps: Share = 1e-5

    op = "group_norm"
    formula = "y = (x - mean of group) / √(var of group + eps) w + b"

    @classmethod
    def check(cls, options: Options, shape: Dims, channels: Dim) -> None:
        """Raise a `MismatchError` if the number of groups does not divide the number of channels."""
        groups = options["num_groups"]
        if isinstance(channels, int) and isinstance(groups, int) and (channels % groups or not channels):
            need = f"a number of channels that num_groups={groups} divides"
            fitting = next(count for count in range(min(channels, groups) or 1, 0, -1) if channels % count == 0)
            advice = f"GroupNorm({fitting})"
            raise MismatchError("input", need, advice, f"axis 1: {channels} channels")


class InstanceNorm(_Channels):
    """Normalises each channel of each sample, then scales and shifts it (Ulyanov et al., 2016).

    Args:
        use_scale: If true, multiply by a parameter.
        use_bias: If true, add a parameter.
        eps: Added to the variance, to avoid a division by zero for a constant channel.
    """

    use_scale: bool = True
    use_bias: bool = True
    eps: Share = 1e-5

    op = "instance_norm"
    formula = "y = (x - mean of channel) / √(var of channel + eps) w + b"


class BatchNorm(_Channels):
    """Normalises each channel over the batch, then scales and shifts it (Ioffe and Szegedy, 2015).

    In training, the block uses the mean and variance of the batch, and updates the running mean and variance. Otherwise
    it uses the running mean and variance. The running variance is unbiased, as in PyTorch: it divides by `n - 1`, where
    Flax and Haiku divide by `n`.

    Args:
        num_features: Number of channels; by default taken from the input.
        use_scale: If true, multiply by a parameter.
        use_bias: If true, add a parameter.
        eps: Added to the variance, to avoid a division by zero for a constant channel.
        momentum: Weight of the batch in an update: `(1 - momentum) * running + momentum * batch`, as in PyTorch.
        inference: If true, use the running mean and variance, without updates. With `None`, do so in `evaluate`, but
            not in `fit`.

    Examples:
        >>> [port.name for port in BatchNorm().inputs if port.role == "state"]
        ['running_mean', 'running_var']
    """

    num_features: Size | None = None
    use_scale: bool = True
    use_bias: bool = True
    eps: Share = 1e-5
    # The weight of the new batch, as in PyTorch. In Flax and Keras it is the weight of the old statistics, 0.99.
    momentum: Share = 0.1
    inference: bool | None = None

    op = "batch_norm"
    formula = "y = (x - mean of channel) / √(var of channel + eps) w + b"
    state_ports = STATES
    initializers = {
        **_Norm.initializers,
        "running_mean": Initializer("zeros"),
        "running_var": Initializer("ones"),
    }


class BatchNorm1d(BatchNorm):
    """`BatchNorm` of `(batch, channels)` or `(batch, channels, length)`.

    Args:
        num_features: Number of channels; by default taken from the input.
        use_scale: If true, multiply by a parameter.
        use_bias: If true, add a parameter.
        eps: Added to the variance, to avoid a division by zero for a constant channel.
        momentum: Weight of the batch in an update: `(1 - momentum) * running + momentum * batch`, as in PyTorch.
        inference: If true, use the running mean and variance, without updates. With `None`, do so in `evaluate`, but
            not in `fit`.

    Examples:
        >>> BatchNorm1d(8).options["num_features"]
        8
    """

    op = "batch_norm1d"
    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """`BatchNorm` of images, `(batch, channels, height, width)`.

    Args:
        num_features: Number of channels; by default taken from the input.
        use_scale: If true, multiply by a parameter.
        use_bias: If true, add a parameter.
        eps: Added to the variance, to avoid a division by zero for a constant channel.
        momentum: Weight of the batch in an update: `(1 - momentum) * running + momentum * batch`, as in PyTorch.
        inference: If true, use the running mean and variance, without updates. With `None`, do so in `evaluate`, but
            not in `fit`.

    Examples:
        >>> BatchNorm2d(8).options["num_features"]
        8
    """

    op = "batch_norm2d"
    ranks = (4,)


class BatchNorm2D(BatchNorm):
    """`BatchNorm2d` as in Mithril: by default, it uses the running mean and variance also in training.

    Args:
        num_features: Number of channels; by default taken from the input.
        use_scale: If true, multiply by a parameter.
        use_bias: If true, add a parameter.
        eps: Added to the variance, to avoid a division by zero for a constant channel.
        momentum: Weight of the batch in an update: `(1 - momentum) * running + momentum * batch`.
        inference: If true, use the running mean and variance, without updates. With `None`, do so in `evaluate`, but
            not in `fit`.

    Examples:
        >>> BatchNorm2D().options["inference"]
        True
    """

    num_features: Size | None = None
    use_scale: bool = True
    use_bias: bool = True
    eps: Share = 1e-5
    momentum: Share = 0.1
    # The default of Mithril, which suits a model that is only evaluated.
    inference: bool | None = True

    op = "table_batch_norm2d"
    category = "As in Mithril"
    ranks = (4,)
