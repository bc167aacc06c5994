"""Linear maps and embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.library.operations.reshaping import last_axis
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN_SHAPE,
    Dim,
    Inferred,
    Initializer,
    MismatchError,
    Operator,
    Options,
    PortNames,
    Specs,
    Start,
)
from mithril_nb.models.shape_inference.dims import agree, is_open

__all__ = ["Embedding", "Linear"]


class Linear(Operator):
    """Affine map of the last axis.

    The weight is stored as `(in, out)`, as in Haiku and Flax. Equinox stores the transpose. The weight is initialised
    by `he_uniform` if an activation reads the output, else by `lecun_uniform`. The bias is initialised to 0.

    Args:
        dimension: Size of the last axis of the output. With `None`, the weight and bias are inputs, not parameters.
        use_bias: If true, add a bias.
        input_size: Size of the last axis of the input; by default taken from the input.

    Examples:
        >>> Linear(64)(input_size=784).model
        Linear(dimension=64, use_bias=True, input_size=784)
    """

    # Optional, as in Mithril: the weight may come from another block.
    dimension: Annotated[Size | None, Start(64)] = None
    use_bias: bool = True
    input_size: Size | None = None

    op = "linear"
    category = "Layers"
    formula = "y = x W + b"
    init_depends_on_reader = True
    initializers = {"weight": Initializer("he_uniform"), "bias": Initializer("zeros")}

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the ports. Without `dimension`, weight and bias are inputs."""
        weights = ("weight", "bias") if options["use_bias"] else ("weight",)
        # As data inputs, the weights have no initializer and must be connected or passed.
        return PortNames(("input", *weights)) if options["dimension"] is None else PortNames(params=weights)

    @classmethod
    def infer(cls, options, inputs):
        """Map `(*lead, in)` to `(*lead, dimension)`."""
        # As in Keras and Flax, any number of axes may come before the last.
        (lead, last), width, size = last_axis(inputs), options["dimension"], options["input_size"]
        if width is None:
            columns = _columns(inputs, last)
            return UNKNOWN_SHAPE if columns == LEADING else (*lead, columns)
        if size is not None and isinstance(last, int) and last != size:
            raise MismatchError(
                "input",
                f"(..., {size})",
                f"Linear({width}, input_size={last})  # or leave input_size out",
                f"axis {len(lead)}: {last} != {size}",
            )
        # The placeholder is a name, which the first input replaces by a number.
        rows = size or ("input_size" if last is None else last)
        return Inferred({"output": (*lead, width)}, {"weight": (rows, width), "bias": (width,)})

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the input's leading axes from the output. The last axis has `input_size` items."""
        shape, size = inputs["input"].shape, options["input_size"]
        last = size if isinstance(size, int) else shape[-1] if shape and shape[-1] != LEADING else None
        if last is None:
            return {}
        output = outputs["output"].shape
        # An output of rank 1 may also be open: then only the last axis of the input is known.
        return {"input": (*(output[:-1] if len(output) > 1 else UNKNOWN_SHAPE if output else shape[:-1]), last)}


class Embedding(Operator):
    """Maps each integer to a row of a learned matrix.

    If `num_embeddings` or `dim` is `None`, the matrix is a data input `weight` instead of a parameter.

    Args:
        num_embeddings: Number of rows. The input contains integers from 0 to `num_embeddings - 1`.
        dim: Length of a row.
    """

    num_embeddings: Annotated[Size | None, Start(64)] = None
    dim: Annotated[Size | None, Start(64)] = None

    op = "embedding"
    category = "Layers"
    formula = "y = W[x]"
    # As in GPT-2; PyTorch's standard normal would make tied logits large.
    initializers = {"weight": Initializer("normal", scale=0.02)}
    input_dtypes = {"input": "int32"}

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the ports. Without `num_embeddings` or `dim`, the weight is an input."""
        is_sized = None not in (options["num_embeddings"], options["dim"])
        return PortNames(params=("weight",)) if is_sized else PortNames(("input", "weight"))

    @classmethod
    def input_ranges(cls, options: Options) -> Mapping[str, tuple[int, int]]:
        """Return the range of the indices: from 0 to the last row."""
        rows = options["num_embeddings"]
        # For random inputs, and for checks before a run: in a compiled program, a wrong index raises no error.
        return {} if rows is None else {"input": (0, rows - 1)}

    @classmethod
    def infer(cls, options, inputs):
        """Map `shape` to `(*shape, dim)`."""
        rows, length = options["num_embeddings"], options["dim"]
        if "weight" not in inputs:
            return Inferred({"output": (*inputs["input"].shape, length)}, {"weight": (rows, length)})
        weight = inputs["weight"].shape
        if is_open(weight):
            return UNKNOWN_SHAPE
        if not agree(weight, (rows or "rows", length or "dim")):
            need = f"({rows or 'rows'}, {length or 'dim'})"
            raise MismatchError("weight", need, f"use a weight of the shape {need}.")
        return (*inputs["input"].shape, weight[1])

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer the input's shape: that of the output without the last axis."""
        shape = outputs["output"].shape
        return {"input": shape[:-1]} if shape and shape != UNKNOWN_SHAPE else {}


def _columns(inputs: Specs, last: Dim | None) -> Dim:
    weight = inputs["weight"].shape
    if is_open(weight):
        return LEADING
    need, advice = f"({'input_size' if last is None else last}, dimension)", "Linear(64)  # with its own weight"
    if len(weight) != 2:
        raise MismatchError("weight", need, advice, f"rank {len(weight)}")
    if not agree((weight[0],), (weight[0] if last is None else last,)):
        raise MismatchError("weight", need, advice, f"axis 0: {weight[0]} != {last}")
    bias = inputs["bias"].shape if "bias" in inputs else weight[1:]
    if not agree(bias, weight[1:]):
        raise MismatchError("bias", f"({weight[1]},)", "use a bias with one number for each column of the weight.")
    return weight[1]
