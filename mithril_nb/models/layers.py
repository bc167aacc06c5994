"""Blocks with parameters, and those that change the shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.dims import MismatchError, broadcast, product, same_padding, window_size
from mithril_nb.models.fields import Range
from mithril_nb.models.op import Inferred, Initializer, Operator, Options, Specs

Size = Annotated[int, Range(1, 2**20)]


class Linear(Operator):
    """Affine map of the last axis.

    The weight is stored as `(in, out)`, so Haiku's, Flax's and (transposed) Equinox's parameters come across.

    Args:
        dimension: Size of the last axis of the output.
        use_bias: Whether to add a bias.
        input_size: Size of the last axis of the input; by default taken from the input.

    Examples:
        >>> Linear(64)(input_size=784).model
        Linear(dimension=64, use_bias=True, input_size=784)
    """

    op = "linear"
    category = "Layers"
    formula = "y = x W + b"
    initializers: ClassVar = {"weight": Initializer("glorot_uniform"), "bias": Initializer("zeros")}

    def __init__(self, dimension: Size, use_bias: bool = True, input_size: Size | None = None, name: str | None = None):
        super().__init__(name, dimension=dimension, use_bias=use_bias, input_size=input_size)

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return `weight`, and `bias` if there is one."""
        return ("weight", "bias") if options["use_bias"] else ("weight",)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """`(*lead, in)` gives `(*lead, dimension)`."""
        shape, width, size = inputs["input"].shape, _number(options["dimension"]), options["input_size"]
        if not shape:
            raise MismatchError("input", "at least one axis", "give the input a last axis to map.", "rank 0")
        last = shape[-1]
        if last == LEADING:
            last = size if size is not None else "input_size"
        if size is not None and isinstance(last, int) and last != size:
            raise MismatchError(
                "input",
                f"(..., {size})",
                f"Linear({width}, input_size={last}), or leave input_size out.",
                f"axis {len(shape) - 1}: {last} != {size}",
            )
        lead = shape if shape == (LEADING,) else shape[:-1]
        weight = (_dim(last if size is None else size), width)
        params: dict[str, tuple[Dim, ...]] = {"weight": weight}
        if options["use_bias"]:
            params["bias"] = (width,)
        return Inferred({"output": (*lead, width)}, params)


class Conv2d(Operator):
    """Cross-correlates images with learned windows. Images are `(batch, channels, height, width)`.

    The weight is stored as `(out, in, height, width)`.

    Args:
        out_channels: Number of channels of the output.
        kernel_size: Height and width of the window; one number stands for both.
        in_channels: Channels of the input; by default taken from the input.
        stride: Step of the window; one number stands for both.
        padding: `"same"` keeps the size (at stride 1), `"valid"` adds nothing.
        use_bias: Whether to add a bias to each channel.

    Examples:
        >>> Conv2d(16, kernel_size=3)
        Conv2d(out_channels=16, kernel_size=(3, 3), in_channels=None, stride=(1, 1), padding='same', use_bias=True)
    """

    op = "conv2d"
    category = "Layers"
    formula = "y[o] = Σ_i w[o, i] ⋆ x[i] + b[o]"
    initializers: ClassVar = {"weight": Initializer("he_normal", in_axis=1, out_axis=0), "bias": Initializer("zeros")}

    def __init__(
        self,
        out_channels: Size,
        kernel_size: Annotated[int | Sequence[int], Range(1, 64, length=2)] = 3,
        in_channels: Size | None = None,
        stride: Annotated[int | Sequence[int], Range(1, 64, length=2)] = 1,
        padding: Literal["same", "valid"] = "same",
        use_bias: bool = True,
        name: str | None = None,
    ):
        super().__init__(
            name,
            out_channels=out_channels,
            kernel_size=kernel_size,
            in_channels=in_channels,
            stride=stride,
            padding=padding,
            use_bias=use_bias,
        )

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return `weight`, and `bias` if there is one."""
        return ("weight", "bias") if options["use_bias"] else ("weight",)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """`(batch, in, h, w)` gives `(batch, out, h', w')`."""
        out, wanted = _number(options["out_channels"]), options["in_channels"]
        kernel, stride = _numbers(options["kernel_size"]), _numbers(options["stride"])
        shape = _image(inputs["input"])
        channels: Dim = _dim(wanted) if wanted is not None else (_dim(shape[1]) if shape else "in_channels")
        params: dict[str, tuple[Dim, ...]] = {"weight": (out, channels, *kernel)}
        if options["use_bias"]:
            params["bias"] = (out,)
        if shape is None:
            return Inferred({"output": (LEADING,)}, params)
        if wanted is not None and isinstance(shape[1], int) and shape[1] != wanted:
            raise MismatchError(
                "input",
                f"(batch, {wanted}, height, width)",
                f"Conv2d({out}, in_channels={shape[1]}), or leave in_channels out.",
                f"axis 1: {shape[1]} != {wanted}",
            )
        sizes = []
        for size, window, step in zip(shape[2:], kernel, stride, strict=True):
            before, after = same_padding(size, window, step) if options["padding"] == "same" else (0, 0)
            sizes.append(window_size(size, window, step, before, after))
        _no_empty("input", shape, sizes, kernel)
        return Inferred({"output": (shape[0], out, *sizes)}, params)


class MaxPool2d(Operator):
    """Takes the greatest item of each window of an image, channel by channel.

    Args:
        kernel_size: Height and width of the window; one number stands for both.
        stride: Step of the window; by default the window's size.
        padding: `"valid"` adds nothing, `"same"` keeps `ceil(size / stride)` windows.

    Examples:
        >>> MaxPool2d(2)
        MaxPool2d(kernel_size=(2, 2), stride=(2, 2), padding='valid')
    """

    op = "max_pool2d"
    category = "Layers"
    formula = "y = max over each window of x"

    def __init__(
        self,
        kernel_size: Annotated[int | Sequence[int], Range(1, 64, length=2)] = 2,
        stride: Annotated[int | Sequence[int], Range(1, 64, length=2)] | None = None,
        padding: Literal["valid", "same"] = "valid",
        name: str | None = None,
    ):
        step = kernel_size if stride is None else stride
        super().__init__(name, kernel_size=kernel_size, stride=step, padding=padding)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """`(batch, channels, h, w)` gives `(batch, channels, h', w')`."""
        kernel, stride = _numbers(options["kernel_size"]), _numbers(options["stride"])
        shape = _image(inputs["input"])
        if shape is None:
            return Inferred({"output": (LEADING,)}, {})
        sizes = []
        for size, window, step in zip(shape[2:], kernel, stride, strict=True):
            before, after = same_padding(size, window, step) if options["padding"] == "same" else (0, 0)
            sizes.append(window_size(size, window, step, before, after))
        _no_empty("input", shape, sizes, kernel)
        return Inferred({"output": (*shape[:2], *sizes)}, {})


class Flatten(Operator):
    """Joins all axes but the first into one: `(batch, a, b)` becomes `(batch, a b)`.

    Examples:
        >>> Flatten()
        Flatten()
    """

    op = "flatten"
    category = "Shape"
    formula = "y[n] = all of x[n] in one row"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """`(batch, *rest)` gives `(batch, product of rest)`."""
        shape = inputs["input"].shape
        if shape[:1] == (LEADING,):
            return Inferred({"output": (LEADING,)}, {})
        if not shape:
            raise MismatchError("input", "at least one axis", "give the input a batch axis.", "rank 0")
        return Inferred({"output": (shape[0], product(shape[1:]))}, {})


class LayerNorm(Operator):
    """Gives the last axis mean 0 and variance 1, then scales and shifts it (Ba et al., 2016).

    Args:
        use_scale: Whether to scale by a parameter.
        use_bias: Whether to shift by a parameter.
        eps: Added to the variance, so that a constant row does not divide by zero.

    Examples:
        >>> LayerNorm()
        LayerNorm(use_scale=True, use_bias=True, eps=1e-05)
    """

    op = "layer_norm"
    category = "Layers"
    formula = "y = (x - mean) / √(var + eps) w + b"
    initializers: ClassVar = {"weight": Initializer("ones"), "bias": Initializer("zeros")}

    def __init__(
        self,
        use_scale: bool = True,
        use_bias: bool = True,
        eps: Annotated[float, Range(0.0, 1.0)] = 1e-5,
        name: str | None = None,
    ):
        super().__init__(name, use_scale=use_scale, use_bias=use_bias, eps=eps)

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return those of `weight` and `bias` that are used."""
        return tuple(port for port, flag in (("weight", "use_scale"), ("bias", "use_bias")) if options[flag])

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """The shape stays; scale and shift have the size of the last axis."""
        shape = inputs["input"].shape
        if not shape:
            raise MismatchError("input", "at least one axis", "give the input a last axis to normalize.", "rank 0")
        last: Dim = "features" if shape[-1] == LEADING else shape[-1]
        return Inferred({"output": shape}, {port: (last,) for port in cls.param_ports(options)})


class Embedding(Operator):
    """Looks up a learned row for each whole number.

    Args:
        num_embeddings: Number of rows: inputs run from 0 to one less.
        dim: Length of a row.

    Examples:
        >>> Embedding(1000, 64)
        Embedding(num_embeddings=1000, dim=64)
    """

    op = "embedding"
    category = "Layers"
    formula = "y = W[x]"
    initializers: ClassVar = {"weight": Initializer("normal", scale=0.02)}
    input_dtypes: ClassVar = {"input": "int32"}

    def __init__(self, num_embeddings: Size, dim: Size, name: str | None = None):
        super().__init__(name, num_embeddings=num_embeddings, dim=dim)

    @classmethod
    def input_ranges(cls, options: Options) -> Mapping[str, tuple[int, int]]:
        """From 0 to the last row."""
        return {"input": (0, _number(options["num_embeddings"]) - 1)}

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """`shape` gives `(*shape, dim)`."""
        rows, length = _number(options["num_embeddings"]), _number(options["dim"])
        return Inferred({"output": (*inputs["input"].shape, length)}, {"weight": (rows, length)})


class Add(Operator):
    """Sums two arrays, by NumPy's broadcasting.

    Examples:
        >>> Add().inputs
        (Port(name='left', role='data'), Port(name='right', role='data'))
    """

    op = "add"
    input_ports = ("left", "right")
    category = "Arithmetic"
    formula = "y = left + right"

    def __init__(self, name: str | None = None):
        super().__init__(name)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """The shape that both broadcast to."""
        return Inferred({"output": broadcast(inputs["left"], inputs["right"])}, {})


def _dim(value: Value | Dim) -> Dim:
    assert isinstance(value, int | str)
    return value


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _numbers(value: Value) -> tuple[int, int]:
    assert isinstance(value, tuple)
    first, second = value
    return _number(first), _number(second)


def _image(spec: TensorSpec) -> tuple[Dim, ...] | None:
    """The shape of a batch of images; `None` if nothing is known of it."""
    if spec.shape[:1] == (LEADING,):
        return None
    if len(spec.shape) != 4:
        raise MismatchError(
            "input",
            "(batch, channels, height, width)",
            'shapes={"input": [32, 1, 28, 28]}',
            f"rank {len(spec.shape)} != 4",
        )
    return spec.shape


def _no_empty(port: str, shape: tuple[Dim, ...], sizes: list[Dim], kernel: tuple[int, int]) -> None:
    for axis, (size, window) in enumerate(zip(sizes, kernel, strict=True), start=2):
        if size == 0:
            raise MismatchError(
                port,
                f"at least {window} on axis {axis}",
                f"a smaller kernel_size, or padding='same'; the window is {kernel[0]}x{kernel[1]}.",
                f"axis {axis}: {shape[axis]} < {window}",
            )
