"""Linear maps and embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from mithril_nb.graph.records import Value
from mithril_nb.graph.spec import LEADING, Dim
from mithril_nb.models.fields import Start, as_int
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.op import Inferred, Initializer, Operator, Options, Shapes, Specs
from mithril_nb.models.shape_inference.dims import MismatchError

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

    op = "linear"
    category = "Layers"
    formula = "y = x W + b"
    init_depends_on_reader = True
    initializers: ClassVar = {"weight": Initializer("he_uniform"), "bias": Initializer("zeros")}

    def __init__(
        self,
        dimension: Annotated[Size | None, Start(64)] = None,
        use_bias: bool = True,
        input_size: Size | None = None,
        name: str | None = None,
    ):
        super().__init__(name, dimension=dimension, use_bias=use_bias, input_size=input_size)

    @classmethod
    def data_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the data inputs. They include weight and bias if `dimension` is `None`."""
        return ("input", *_weights(options)) if options["dimension"] is None else ("input",)

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the parameters; empty if `dimension` is `None`."""
        return () if options["dimension"] is None else _weights(options)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(*lead, in)` to `(*lead, dimension)`."""
        shape, size = inputs["input"].shape, options["input_size"]
        if not shape:
            raise MismatchError(
                "input",
                "at least one axis",
                "use an input with axes, such as (batch, features).",
                "rank 0",
            )
        if options["dimension"] is None:
            return Inferred({"output": _mapped(inputs)})
        width = as_int(options["dimension"])
        last = shape[-1]
        if last == LEADING:
            last = size if size is not None else "input_size"
        if size is not None and isinstance(last, int) and last != size:
            raise MismatchError(
                "input",
                f"(..., {size})",
                f"Linear({width}, input_size={last})  # or leave input_size out",
                f"axis {len(shape) - 1}: {last} != {size}",
            )
        lead = shape if shape == (LEADING,) else shape[:-1]
        weight = (_dim(last if size is None else size), width)
        params: dict[str, tuple[Dim, ...]] = {"weight": weight}
        if options["use_bias"]:
            params["bias"] = (width,)
        return Inferred({"output": (*lead, width)}, params)

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the input's leading axes from the output. The last axis has `input_size` items."""
        shape, size = inputs["input"].shape, options["input_size"]
        last = size if isinstance(size, int) else shape[-1] if shape and shape[-1] != LEADING else None
        if last is None:
            return {}
        output = outputs["output"].shape if "output" in outputs else ()
        return {"input": (*(output[:-1] if len(output) > 1 else (LEADING,) if output else shape[:-1]), last)}


class Embedding(Operator):
    """Maps each integer to a row of a learned matrix.

    If `num_embeddings` or `dim` is `None`, the matrix is a data input `weight` instead of a parameter.

    Args:
        num_embeddings: Number of rows. The input contains integers from 0 to `num_embeddings - 1`.
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

    def __init__(
        self,
        num_embeddings: Annotated[Size | None, Start(64)] = None,
        dim: Annotated[Size | None, Start(64)] = None,
        name: str | None = None,
    ):
        super().__init__(name, num_embeddings=num_embeddings, dim=dim)

    @classmethod
    def data_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the data inputs. They include `weight` if `num_embeddings` or `dim` is `None`."""
        return ("input",) if cls.param_ports(options) else ("input", "weight")

    @classmethod
    def param_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the parameters; empty if `num_embeddings` or `dim` is `None`."""
        return () if None in (options["num_embeddings"], options["dim"]) else ("weight",)

    @classmethod
    def input_ranges(cls, options: Options) -> Mapping[str, tuple[int, int]]:
        """Return the range of the indices: from 0 to the last row."""
        rows = options["num_embeddings"]
        return {} if rows is None else {"input": (0, as_int(rows) - 1)}

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `shape` to `(*shape, dim)`."""
        rows, length = options["num_embeddings"], options["dim"]
        if cls.param_ports(options):
            length = as_int(length)
            return Inferred({"output": (*inputs["input"].shape, length)}, {"weight": (as_int(rows), length)})
        weight = inputs["weight"].shape
        if weight[:1] == (LEADING,):
            return Inferred({"output": (LEADING,)})
        declared = zip(weight, (rows, length), strict=False)
        if len(weight) != 2 or any(_is_number(has, need) and has != need for has, need in declared):
            need = f"({rows or 'rows'}, {length or 'dim'})"
            raise MismatchError("weight", need, f"use a weight of the shape {need}.")
        return Inferred({"output": (*inputs["input"].shape, weight[1])})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Shapes:
        """Infer the input's shape: that of the output without the last axis."""
        shape = outputs["output"].shape if "output" in outputs else ()
        return {"input": shape[:-1]} if shape and shape != (LEADING,) else {}


def _weights(options: Options) -> tuple[str, ...]:
    return ("weight", "bias") if options["use_bias"] else ("weight",)


def _mapped(inputs: Specs) -> tuple[Dim, ...]:
    """Return the output's shape if weight and bias are inputs; raise a `MismatchError` if the shapes do not fit."""
    shape, weight = inputs["input"].shape, inputs["weight"].shape
    if weight[:1] == (LEADING,):
        return (LEADING,)
    if len(weight) != 2:
        need = f"({'input_size' if shape[-1] == LEADING else shape[-1]}, dimension)"
        raise MismatchError("weight", need, "Linear(64)  # with its own weight", f"rank {len(weight)}")
    if _is_number(shape[-1], weight[0]) and shape[-1] != weight[0]:
        detail = f"axis 0: {weight[0]} != {shape[-1]}"
        raise MismatchError("weight", f"({shape[-1]}, dimension)", "Linear(64)  # with its own weight", detail)
    bias = inputs["bias"].shape if "bias" in inputs else weight[1:]
    if bias[:1] != (LEADING,) and (len(bias) != 1 or (_is_number(*bias, weight[1]) and bias[0] != weight[1])):
        raise MismatchError("bias", f"({weight[1]},)", "use a bias with one number for each column of the weight.")
    lead = shape if shape == (LEADING,) else shape[:-1]
    return (*lead, weight[1])


def _is_number(*dims: Value | Dim) -> bool:
    return all(isinstance(dim, int) for dim in dims)


def _dim(value: Value | Dim) -> Dim:
    assert isinstance(value, int | str)
    return value
