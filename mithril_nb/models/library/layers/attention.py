"""Attention and its parts: heads, masks, positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.records import Value
from mithril_nb.models.composite import Composite
from mithril_nb.models.library.layers.linear import Linear
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.library.operations.reshaping import KeepsShape
from mithril_nb.models.model import Model
from mithril_nb.models.op import (
    LEADING,
    UNKNOWN_SHAPE,
    Dim,
    Dims,
    Inferred,
    Initializer,
    MismatchError,
    Operator,
    Options,
    PortNames,
    Range,
    TensorSpec,
)
from mithril_nb.models.shape_inference.dims import broadcast, differ, is_open, product, quotient
from mithril_nb.models.shape_inference.dtypes import promoted

__all__ = [
    "LearnedPositions",
    "MergeHeads",
    "MultiHeadAttention",
    "PositionalEncoding",
    "RotaryEmbedding",
    "ScaledDotProduct",
    "SplitHeads",
]

_AXES = {1: "(..., features)", 2: "(..., time, features)", 3: "(..., heads, time, size)"}


def ends(port: str, spec: TensorSpec, count: int) -> tuple[Dims, tuple[Dim | None, ...]]:
    """Return the leading sizes of an array, and its last `count` sizes; `None` for an unknown size.

    Examples:
        >>> ends("query", TensorSpec(("batch", 8, 10, 64)), 2), ends("query", TensorSpec(("...", 64)), 2)
        ((('batch', 8), (10, 64)), (('...',), (None, 64)))
    """
    shape = spec.shape
    if is_open(shape):
        # The "..." may contain some of the requested axes, whose sizes are then unknown.
        tail = shape[1:]
        if len(tail) < count:
            return UNKNOWN_SHAPE, (*(None,) * (count - len(tail)), *tail)
    elif len(shape) < count:
        raise MismatchError(port, _AXES[count], f"use an array with at least {count} axes.", f"rank {len(shape)}")
    return shape[: len(shape) - count], shape[len(shape) - count :]


def joined(lead: Dims, last: tuple[Dim | None, ...]) -> Dims:
    """Return the shape `(*lead, *last)`, the inverse of `ends`. `"..."` replaces the sizes up to the last `None`.

    Examples:
        >>> joined(("batch", 8), (None, 64))
        ('...', 64)
    """
    dims: list[Dim] = []
    # A shape can only be open at its start, so known sizes before an unknown one are lost.
    for dim in reversed(last):
        if dim is None:
            return (LEADING, *reversed(dims))
        dims.append(dim)
    return (*lead, *reversed(dims))


def check_equal(port: str, other: str, size: Dim | None, expected: Dim | None, axis: int) -> None:
    """Raise a `MismatchError` if the size of `port` on an axis certainly differs from the wanted size, that of `other`.

    Unknown sizes are accepted: `None` and names.
    """
    if differ(size, expected):
        raise MismatchError(
            port,
            f"size {expected} on axis {axis}, like the {other}",
            f"use the same size for {port} and {other}.",
            f"axis {axis}: {size} != {expected}",
        )


def broadcast_heads(port: str, lead: Dims, other: Dims) -> Dims:
    """Broadcast the leading sizes of queries with those of keys or values, which may have fewer heads.

    The last leading size is the number of heads.

    Args:
        port: `"key"` or `"value"`, for the error message.
        lead: The leading sizes of the queries.
        other: The leading sizes of the keys or values.

    Examples:
        >>> broadcast_heads("key", ("batch", 8), ("batch", 2))
        ('batch', 8)
    """
    if lead[-1:] and other[-1:] and other[-1] != LEADING:
        heads, fewer = lead[-1], other[-1]
        # Grouped queries (Ainslie et al., 2023): fewer heads of keys and values serve several heads of queries.
        divides = isinstance(heads, int) and isinstance(fewer, int) and 0 < fewer < heads and heads % fewer == 0
        if heads == LEADING or divides:
            other = (*other[:-1], 1)
    try:
        return broadcast(TensorSpec(lead), TensorSpec(other))
    except MismatchError as error:
        raise MismatchError(
            port,
            f"leading axes that match {lead} of the query",
            f"use the same sizes, or fewer heads of {port} whose number divides that of the query.",
            str(other),
        ) from error


def check_mask(mask: TensorSpec, scores: tuple[Dim | None, ...]) -> None:
    """Raise a `MismatchError` if a mask has integers, or does not broadcast to the shape `scores`."""
    # A mask of 0 and 1 could mean both forms: visible or not, or numbers to add to scores.
    if "int" in mask.dtype:
        need = "booleans, or floating-point numbers that are added to the scores"
        raise MismatchError("attn_mask", need, 'array.astype("bool")', str(mask.dtype))
    # An open shape may have more axes than are listed.
    unknown = LEADING in scores or LEADING in mask.shape
    pairs = list(zip(reversed(mask.shape), reversed(scores), strict=False))
    fits = all(
        size in (1, expected) or not isinstance(size, int) or not isinstance(expected, int) for size, expected in pairs
    )
    if not fits or (len(mask.shape) > len(scores) and not unknown):
        raise MismatchError(
            "attn_mask",
            f"a shape that broadcasts to {scores}, the shape of the scores",
            "use a mask with the axes (..., query time, key time).",
            str(mask.shape),
        )


def check_time(time: Dim | None, most: Value, advice: str) -> None:
    """Raise a `MismatchError` with this advice if there are certainly more than `most` time steps."""
    if isinstance(time, int) and isinstance(most, int) and time > most:
        raise MismatchError("input", f"at most {most} time steps", advice, f"axis -2: {time} > {most}")


def check_divides(model: Model, **numbers: int) -> None:
    """Raise an `UnknownOptionError` if the first of two arguments, `heads=8, width=64`, does not divide the second."""
    (part, few), (total, many) = numbers.items()
    if many % few:
        # The advice is the largest number of parts that works.
        near = max(number for number in range(1, few + 1) if many % number == 0)
        raise UnknownOptionError(
            f"{type(model).__name__} cannot split {total}={many} into {part}={few}.",
            (("because", f"{many} = {few} * {many // few} + {many % few}"),),
            f"{part}={near}",
        )


Heads = Annotated[int, Range(1, 4096)]
# The sample is small, so that it divides any even number of heads.
ServedHeads = Annotated[int, Range(1, 4096, sample=2)]


class ScaledDotProduct(Operator):
    """Attention: for each query, a mean of the values, weighted by the match of key and query (Vaswani et al., 2017).

    Arrays are `(..., time, features)`, or `(..., heads, time, features)`. Keys and values may have fewer heads than
    queries: with 8 and 2 heads, four heads of queries share one head of keys and values. If all keys of a query are
    masked, the result for the query is zero.

    Args:
        is_causal: If true, a query at time t sees only keys up to time t.
        scale: Factor of the scores; by default one over the square root of the number of features.
        dropout_p: Probability, in training, that an attention weight is set to zero.
        use_attn_mask: If true, there is an input `attn_mask`: booleans that are true for visible keys, or numbers that
            are added to the scores. Its axes are `(..., query time, key time)`.
        use_lengths: If true, there is an input `lengths`: for each batch item, only that many keys are visible, counted
            from the first.

    Examples:
        >>> [port.name for port in ScaledDotProduct(use_attn_mask=True).inputs if port.role == "data"]
        ['query', 'key', 'value', 'attn_mask']
    """

    # As in Mithril. PyTorch's default is False.
    is_causal: bool = True
    scale: float | None = None
    dropout_p: Annotated[float, Range(0.0, 0.99)] = 0.0
    use_attn_mask: bool = False
    use_lengths: bool = False

    op = "scaled_dot_product"
    category = "Attention"
    formula = "y = softmax(query keyᵀ scale) value"
    # As in Mithril.
    option_ports = ("dropout_p", "is_causal", "scale")
    input_dtypes = {"attn_mask": "any", "lengths": "int32"}

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the ports. `attn_mask` and `lengths` are optional."""
        more = (port for port in ("attn_mask", "lengths") if options[f"use_{port}"])
        return PortNames(("query", "key", "value", *more))

    @classmethod
    def infer(cls, options, inputs):
        """Map a query `(..., t, e)`, a key `(..., s, e)` and a value `(..., s, f)` to `(..., t, f)`."""
        lead, (time, features) = ends("query", inputs["query"], 2)
        key_lead, (steps, key_features) = ends("key", inputs["key"], 2)
        value_lead, (value_steps, out) = ends("value", inputs["value"], 2)
        check_equal("key", "query", key_features, features, -1)
        check_equal("value", "key", value_steps, steps, -2)
        for port, other in (("key", key_lead), ("value", value_lead)):
            lead = broadcast_heads(port, lead, other)
        # The mask does not take part in the promotion: it may be boolean.
        dtype = promoted([inputs[port].dtype for port in ("query", "key", "value")])
        if "attn_mask" in inputs:
            check_mask(inputs["attn_mask"], (*lead, time, steps))
        return TensorSpec(joined(lead, (time, out)), dtype)

    @classmethod
    def refine(cls, options, inputs, outputs):
        """Infer that query and key have the same number of features."""
        features, key_features = (ends(port, inputs[port], 1)[1][0] for port in ("query", "key"))
        if features is None and key_features is not None:
            return {"query": (LEADING, key_features)}
        # The value may have another number of features than query and key.
        return {"key": (LEADING, features)} if key_features is None and features is not None else {}


class SplitHeads(Operator):
    """Splits the last axis into heads: `(..., time, heads * size)` becomes `(..., heads, time, size)`.

    Args:
        heads: Number of heads of the output. Two numbers are the heads of the outputs `key` and `value`, and three
            those of `query`, `key` and `value`. All heads have the same size.

    Examples:
        >>> [port.name for port in SplitHeads((12, 4, 4)).outputs]
        ['query', 'key', 'value']
    """

    heads: Annotated[Sequence[int], Range(1, 4096)]

    op = "split_heads"
    # The kernel slices query, key and value from one array in this order, so source can name each line after its port.
    computes_in_order = True
    category = "Shape"
    formula = "y[h, t] = x[t, h]"

    @classmethod
    def ports(cls, options: Options) -> PortNames:
        """Return the ports: one output for each number of heads."""
        names = {1: ("output",), 2: ("key", "value")}
        return PortNames(outputs=names.get(len(options["heads"]), ("query", "key", "value")))

    @classmethod
    def infer(cls, options, inputs):
        """Map `(..., t, width)` to `(..., h, t, size)` for each output, which has h heads."""
        heads = options["heads"]
        if len(heads) > 3 or not heads:
            raise MismatchError("input", "one, two or three numbers of heads", "SplitHeads((12, 12, 12))", str(heads))
        lead, (time, width) = ends("input", inputs["input"], 2)
        total = sum(heads)
        if isinstance(width, int) and width % total:
            raise MismatchError(
                "input",
                f"a last axis whose size is divisible by {total}, the number of heads",
                f"Linear({-(-width // total) * total})  # before it, or other numbers of heads",
                f"{width} = {total} * {width // total} + {width % total}",
            )
        # All heads have one size, so the widths of the outputs are proportional to their heads.
        size = None if width is None else quotient((width,), (total,))
        ports = cls.ports(options).outputs
        return Inferred(
            {port: joined(lead, (count, time, size)) for port, count in zip(ports, heads, strict=True)},
        )


class MergeHeads(Operator):
    """Merges heads into one axis: `(..., heads, time, size)` becomes `(..., time, heads * size)`."""

    op = "merge_heads"
    category = "Shape"
    formula = "y[t] = all x[h, t] in one row"

    @classmethod
    def infer(cls, options, inputs):
        """Map `(..., h, t, size)` to `(..., t, h * size)`."""
        lead, (heads, time, size) = ends("input", inputs["input"], 3)
        width = None if heads is None or size is None else product((heads, size))
        return joined(lead, (time, width))


class _Positions(KeepsShape, Operator):
    category = "Layers"


class PositionalEncoding(_Positions):
    """Adds sines and cosines of the time step, with a longer wavelength for later features (Vaswani et al., 2017).

    Args:
        hidden_dim: Number of features: size of the last axis of the input.
        max_len: Maximum number of time steps.
    """

    hidden_dim: Size
    # As in Mithril.
    max_len: Size = 5000

    op = "positional_encoding"
    formula = "y[t, 2i] = x + sin(t / 10000^(2i/d)), y[t, 2i+1] = x + cos(...)"
    option_ports = ("hidden_dim", "max_len")

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape."""
        lead, (time, width) = ends("input", inputs["input"], 2)
        hidden, most = options["hidden_dim"], options["max_len"]
        if differ(width, hidden):
            raise MismatchError(
                "input", f"(..., time, {hidden})", f"PositionalEncoding({width})", f"{width} != {hidden}"
            )
        # A named time is not checked here: it may be short enough.
        check_time(time, most, f"PositionalEncoding({hidden}, max_len={time})")
        return joined(lead, (time, hidden if isinstance(hidden, int) else width))


class RotaryEmbedding(_Positions):
    """Rotates pairs of features by angles proportional to the time step (Su et al., 2021).

    Apply it to queries and keys before attention. The score of a query and a key then depends on the distance between
    their time steps, and not on their positions.

    Args:
        base: For d features, pair i rotates by an angle of `base ** (-2i / d)` per time step.
        is_interleaved: If true, neighbouring features form a pair, as in GPT-J. By default, a feature of the first half
            forms a pair with one of the second half, as in Llama.
        start: Position of the first time step of the input: the number of steps before it.
    """

    base: Annotated[float, Range(1.0, 1e12)] = 10000.0
    is_interleaved: bool = False
    start: Annotated[int, Range(0, 2**31 - 1)] = 0

    op = "rotary_embedding"
    formula = "y[t] = R(t base^(-2i/d)) x[t]"
    option_ports = ("start",)

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape, after checking that the number of features is even."""
        _, (_, width) = ends("input", inputs["input"], 2)
        # Features rotate in pairs.
        if isinstance(width, int) and width % 2:
            raise MismatchError(
                "input", "an even number of features", f"use {width + 1} features per head.", f"axis -1: {width}"
            )
        return inputs["input"].shape


class LearnedPositions(_Positions):
    """Adds a learned vector to each time step, as in GPT-2.

    Args:
        context: Maximum number of time steps.
    """

    context: Size

    op = "learned_positions"
    formula = "y[t] = x[t] + W[t]"
    # As in GPT-2.
    initializers = {"weight": Initializer("normal", scale=0.02)}

    @classmethod
    def infer(cls, options, inputs):
        """Keep the shape. The weight has `context` rows."""
        _, (time, width) = ends("input", inputs["input"], 2)
        check_time(time, options["context"], f"LearnedPositions({time})  # or shorter inputs")
        row = options["context"], width if width is not None else "features"
        return Inferred({"output": inputs["input"].shape}, {"weight": row})


class MultiHeadAttention(Composite):
    """Multi-head attention between time steps, each head with a separate projection (Vaswani et al., 2017).

    Args:
        width: Size of the last axis of input and output.
        heads: Number of heads. It must divide the width.
        kv_heads: Number of heads of keys and values; by default `heads`. It must divide `heads`. If it is smaller,
            several heads of queries use one head of keys and values.
        is_causal: If true, a step attends only to itself and earlier steps.
        dropout: Probability, in training, that an attention weight is set to zero.
        use_bias: If true, the linear maps have biases.
        use_rotary: If true, rotate queries and keys by `RotaryEmbedding`.
        is_cross: If true, keys and values come from another input, `memory`.
        use_attn_mask: If true, there is an input `attn_mask`, see `ScaledDotProduct`.
        use_lengths: If true, there is an input `lengths`: for each batch item, attention sees only that many steps,
            counted from the first. With `is_cross`, these are steps of `memory`.

    Raises:
        UnknownOptionError: `heads` does not divide `width`, or `kv_heads` does not divide `heads`.

    Examples:
        >>> [node.name for node in MultiHeadAttention(64, 4, is_causal=True).graph.nodes]
        ['qkv', 'split', 'attention', 'merge', 'out']
    """

    width: Size
    heads: Heads = 8
    kv_heads: ServedHeads | None = None
    is_causal: bool = False
    dropout: Annotated[float, Range(0.0, 0.99)] = 0.0
    use_bias: bool = True
    use_rotary: bool = False
    is_cross: bool = False
    use_attn_mask: bool = False
    use_lengths: bool = False

    category = "Attention"
    formula = "y = W merge(attention(heads of W x))"

    def compose(self):
        width, heads = self.width, self.heads
        served = self.kv_heads or heads
        # Checked here and not by `SplitHeads`, so that the message names the arguments of this block.
        check_divides(self, heads=heads, width=width)
        check_divides(self, kv_heads=served, heads=heads)
        size = width // heads

        def linear(columns: int, name: str) -> Linear:
            return Linear(columns, self.use_bias, input_size=width, name=name)

        # Queries, keys and values that read the same input are computed by one matrix product.
        if self.is_cross:
            self |= linear(width, "query")(input="input")
            self |= SplitHeads((heads,), name="split_query")(input="query.output")
            self |= linear(2 * served * size, "kv")(input="memory")
            self |= SplitHeads((served, served), name="split")(input="kv.output")
            ends = {"query": "split_query.output", "key": "split.key", "value": "split.value"}
        else:
            self |= linear((heads + 2 * served) * size, "qkv")(input="input")
            self |= SplitHeads((heads, served, served), name="split")(input="qkv.output")
            ends = {port: f"split.{port}" for port in ("query", "key", "value")}
        if self.use_rotary:
            for port in ("query", "key"):
                self |= RotaryEmbedding(name=f"rotary_{port}")(input=ends[port])
                ends[port] = f"rotary_{port}.output"
        ends |= {
            port: port for port, used in (("attn_mask", self.use_attn_mask), ("lengths", self.use_lengths)) if used
        }
        product = ScaledDotProduct(
            self.is_causal, None, self.dropout, self.use_attn_mask, self.use_lengths, name="attention"
        )
        self |= product(**ends)
        self |= MergeHeads(name="merge")(input="attention.output")
        self |= linear(width, "out")(input="merge.output")
