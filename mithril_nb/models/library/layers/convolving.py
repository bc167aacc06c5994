"""The common part of all convolutions: weights and output shapes."""

from __future__ import annotations

from typing import Any, ClassVar

from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.library.layers.windows import (
    SPATIAL,
    Windows,
    channelled,
    each,
    refusal,
    refuse_padding,
    windows,
)
from mithril_nb.models.op import UNKNOWN, Inferred, Initializer, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError

Shape = tuple[Dim, ...]


class Convolution(Operator):
    """A convolution. Without a known shape of its weight, the weight must be an input.

    Attributes:
        axes: Number of axes that its windows slide over.
    """

    axes: ClassVar[int]
    category = "Layers"
    formula = "y[o] = Σ_i w[o, i] ⋆ x[i] + b[o]"
    init_depends_on_reader = True
    initializers: ClassVar = {"weight": Initializer("he_normal", in_axis=1, out_axis=0), "bias": Initializer("zeros")}

    def __init__(self, name: str | None = None, **attributes: Any):
        super().__init__(name, **attributes)
        refuse_padding(self, self.axes)
        groups = self.options.get("groups", 1)
        for key in ("out_channels", "in_channels"):
            if (self.options.get(key) or groups) % groups:
                need = f"a number that divides {key}, which is {self.options[key]}"
                raise refusal(self, "groups", (("needs", need),), 1)

    @classmethod
    def data_ports(cls, options: Options) -> tuple[str, ...]:
        """Return `input`, and the weights too if their shapes are not given."""
        return ("input",) if _is_sized(options) else ("input", *_weights(options))

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return `weight`, and `bias` if there is one."""
        return _weights(options) if _is_sized(options) else ()

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(batch, in, ...)` to `(batch, out, ...)`."""
        shape, groups = channelled(inputs["input"], cls.axes), options.get("groups", 1)
        unknown = Inferred({"output": (LEADING,)})
        if groups == UNKNOWN:
            return unknown
        (count,) = each("groups", groups, 1)
        if _is_sized(options):
            weight = cls.weight_shape(options, shape[1] if shape else "in_channels", count)
        elif (weight := cls._given_weight(options, inputs, count)) is None:
            return unknown
        cls._check_channels(options, shape, weight, count)
        out = cls.channels(weight, count)[1]
        if isinstance(out, int) and out % count:
            raise MismatchError("groups", f"a number that divides {out} channels", "groups=1", f"got {count}")
        kernel = [size for size in weight[2:] if isinstance(size, int)]
        found = windows(options, cls.axes, kernel) if len(kernel) == cls.axes else None
        output = (LEADING,) if shape is None or found is None else (shape[0], out, *cls.sizes(options, shape, found))
        params: dict[str, Shape] = {"weight": weight, "bias": (out,)}
        return Inferred({"output": output}, {port: params[port] for port in cls.param_ports(options)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Return the output's batch, and `in_channels`, for the input."""
        shape: Shape = inputs["input"].shape
        output: Shape = outputs["output"].shape if "output" in outputs else ()
        if len(shape) != cls.axes + 2 or shape[0] == LEADING:
            return {}
        batch = output[:1] if len(output) == len(shape) and LEADING not in output[:1] else shape[:1]
        channels = options.get("in_channels")
        return {"input": (*batch, channels if isinstance(channels, int) else shape[1], *shape[2:])}

    @classmethod
    def weight_shape(cls, options: Options, channels: Dim, groups: int) -> Shape:
        """Return `(out, in / groups, ...)`, given the channels of the input."""
        out, wanted = options["out_channels"], options.get("in_channels")
        assert isinstance(out, int)
        return (out, divided(wanted if isinstance(wanted, int) else channels, groups), *_kernel(options, cls.axes))

    @classmethod
    def channels(cls, weight: Shape, groups: int) -> tuple[Dim | None, Dim]:
        """Return the input and output channels of a weight; `None` for an unknown one."""
        return weight[1] * groups if isinstance(weight[1], int) else None, weight[0]

    @classmethod
    def sizes(cls, options: Options, shape: Shape, found: Windows) -> Shape:
        """Return the sizes of the output after batch and channels."""
        return found.counts(shape)

    @classmethod
    def _check_channels(cls, options: Options, shape: Shape | None, weight: Shape, groups: int) -> None:
        has, wanted = shape[1] if shape else None, options.get("in_channels")
        needs = wanted if _is_sized(options) else cls.channels(weight, groups)[0]
        if isinstance(has, int) and isinstance(needs, int) and has != needs:
            advice = f"{cls.__name__}({options.get('out_channels')}, in_channels={has})  # or leave in_channels out"
            raise MismatchError(
                "input",
                f"(batch, {needs}, {', '.join(SPATIAL[cls.axes])})",
                advice if _is_sized(options) else f"a weight for {has} channels.",
                f"axis 1: {has} != {needs}",
            )
        if isinstance(has, int) and has % groups:
            need, advice = f"channels that divide into {groups} groups", f"{cls.__name__}(..., groups=1)"
            raise MismatchError("input", need, advice, f"axis 1: {has} channels")

    @classmethod
    def _given_weight(cls, options: Options, inputs: Specs, groups: int) -> Shape | None:
        weight = inputs["weight"].shape
        if weight[:1] == (LEADING,):
            return None
        kernel = _kernel(options, cls.axes) if options.get("kernel_size") is not None else weight[2:]
        out = options.get("out_channels") or (cls.channels(weight, groups)[1] if len(weight) > 1 else 0)
        if len(weight) != cls.axes + 2 or cls.channels(weight, groups)[1] != out or weight[2:] != kernel:
            parts = [str(size) for size in kernel] if options.get("kernel_size") is not None else SPATIAL[cls.axes]
            need = f"({options.get('out_channels') or 'out'}, in / groups, {', '.join(parts)})"
            raise MismatchError("weight", need, "a weight of this shape.", f"rank {len(weight)}")
        if isinstance(out, int) and out % groups:
            raise MismatchError("weight", f"channels that divide into {groups} groups", "groups=1", f"axis 0: {out}")
        bias = inputs["bias"].shape if "bias" in inputs else (out,)
        if bias[:1] != (LEADING,) and (len(bias) != 1 or (isinstance(bias[0], int) and bias[0] != out)):
            raise MismatchError("bias", f"({out},)", "one number for each channel of the output.")
        return weight


def divided(channels: Dim, groups: int) -> Dim:
    """Return the channels of one group."""
    if groups == 1:
        return channels
    return channels // groups if isinstance(channels, int) else f"({channels})//{groups}"


def _is_sized(options: Options) -> bool:
    return options.get("out_channels") is not None and options.get("kernel_size") is not None


def _weights(options: Options) -> tuple[str, ...]:
    return ("weight", "bias") if options["use_bias"] else ("weight",)


def _kernel(options: Options, axes: int) -> tuple[int, ...]:
    return each("kernel_size", options["kernel_size"], axes)
