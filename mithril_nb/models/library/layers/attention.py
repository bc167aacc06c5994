"""Attention and its parts: heads, masks, positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from mithril_nb.graph.spec import LEADING, Dim, TensorSpec
from mithril_nb.models.composite import Composite
from mithril_nb.models.fields import Range, as_int
from mithril_nb.models.library.layers.attention_rules import (
    broadcast_heads,
    check_divides,
    check_equal,
    check_mask,
    check_time,
    ends,
    joined,
    numbers,
)
from mithril_nb.models.library.layers.linear import Linear
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.library.operations.shape_rules import KeepsShape
from mithril_nb.models.op import Inferred, Initializer, Operator, Options, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, product, quotient
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

Heads = Annotated[int, Range(1, 4096)]
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

    op = "scaled_dot_product"
    category = "Layers"
    formula = "y = softmax(query keyᵀ scale) value"
    option_ports: ClassVar = ("dropout_p", "is_causal", "scale")
    input_dtypes: ClassVar = {"attn_mask": "any", "lengths": "int32"}

    def __init__(
        self,
        is_causal: bool = True,
        scale: float | None = None,
        dropout_p: Annotated[float, Range(0.0, 0.99)] = 0.0,
        use_attn_mask: bool = False,
        use_lengths: bool = False,
        name: str | None = None,
    ):
        super().__init__(
            name,
            is_causal=is_causal,
            scale=scale,
            dropout_p=dropout_p,
            use_attn_mask=use_attn_mask,
            use_lengths=use_lengths,
        )

    @classmethod
    def data_ports(cls, options: Options) -> tuple[str, ...]:
        """Return the names of the data inputs. `attn_mask` and `lengths` are optional."""
        more = (port for port in ("attn_mask", "lengths") if options[f"use_{port}"])
        return ("query", "key", "value", *more)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map a query `(..., t, e)`, a key `(..., s, e)` and a value `(..., s, f)` to `(..., t, f)`."""
        lead, (time, features) = ends("query", inputs["query"], 2)
        key_lead, (steps, key_features) = ends("key", inputs["key"], 2)
        value_lead, (value_steps, out) = ends("value", inputs["value"], 2)
        check_equal("key", "query", key_features, features, -1)
        check_equal("value", "key", value_steps, steps, -2)
        for port, other in (("key", key_lead), ("value", value_lead)):
            lead = broadcast_heads(port, lead, other)
        dtype = promoted([inputs[port].dtype for port in ("query", "key", "value")])
        if "attn_mask" in inputs:
            check_mask(inputs["attn_mask"], (*lead, time, steps))
        return Inferred({"output": TensorSpec(joined(lead, (time, out)), dtype)})

    @classmethod
    def refine(cls, options: Options, inputs: Specs, outputs: Specs) -> Mapping[str, tuple[Dim, ...]]:
        """Infer that query and key have the same number of features."""
        features, key_features = (ends(port, inputs[port], 1)[1][0] for port in ("query", "key"))
        if features is None and key_features is not None:
            return {"query": (LEADING, key_features)}
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

    op = "split_heads"
    computes_in_order = True
    category = "Shape"
    formula = "y[h, t] = x[t, h]"

    def __init__(self, heads: Annotated[Sequence[int], Range(1, 4096)], name: str | None = None):
        super().__init__(name, heads=heads)

    @classmethod
    def result_ports(cls, options: Options) -> tuple[str, ...]:
        """Return `output` for one number of heads, `key` and `value` for two, and also `query` for three."""
        return {1: ("output",), 2: ("key", "value")}.get(len(numbers(options["heads"])), ("query", "key", "value"))

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(..., t, width)` to `(..., h, t, size)` for each output, which has h heads."""
        heads = numbers(options["heads"])
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
        size = None if width is None else quotient((width,), (total,))
        ports = cls.result_ports(options)
        return Inferred(
            {port: joined(lead, (count, time, size)) for port, count in zip(ports, heads, strict=True)},
        )


class MergeHeads(Operator):
    """Merges heads into one axis: `(..., heads, time, size)` becomes `(..., time, heads * size)`.

    Examples:
        >>> MergeHeads()
        MergeHeads()
    """

    op = "merge_heads"
    category = "Shape"
    formula = "y[t] = all x[h, t] in one row"

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Map `(..., h, t, size)` to `(..., t, h * size)`."""
        lead, (heads, time, size) = ends("input", inputs["input"], 3)
        width = None if heads is None or size is None else product((heads, size))
        return Inferred({"output": joined(lead, (time, width))})


class _Positions(KeepsShape, Operator):
    """Base of the blocks that encode the position of each time step of `(..., time, features)`."""

    category = "Layers"


class PositionalEncoding(_Positions):
    """Adds sines and cosines of the time step, with a longer wavelength for later features (Vaswani et al., 2017).

    Args:
        hidden_dim: Number of features: size of the last axis of the input.
        max_len: Maximum number of time steps.

    Examples:
        >>> PositionalEncoding(512)
        PositionalEncoding(hidden_dim=512, max_len=5000)
    """

    op = "positional_encoding"
    formula = "y[t, 2i] = x + sin(t / 10000^(2i/d)), y[t, 2i+1] = x + cos(...)"
    option_ports: ClassVar = ("hidden_dim", "max_len")

    def __init__(self, hidden_dim: Size, max_len: Size = 5000, name: str | None = None):
        super().__init__(name, hidden_dim=hidden_dim, max_len=max_len)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape."""
        lead, (time, width) = ends("input", inputs["input"], 2)
        hidden, most = options["hidden_dim"], options["max_len"]
        if isinstance(width, int) and isinstance(hidden, int) and width != hidden:
            raise MismatchError(
                "input", f"(..., time, {hidden})", f"PositionalEncoding({width})", f"{width} != {hidden}"
            )
        check_time(time, most, f"PositionalEncoding({hidden}, max_len={time})")
        return Inferred({"output": joined(lead, (time, hidden if isinstance(hidden, int) else width))})


class RotaryEmbedding(_Positions):
    """Rotates pairs of features by angles proportional to the time step (Su et al., 2021).

    Apply it to queries and keys before attention. The score of a query and a key then depends on the distance between
    their time steps, and not on their positions.

    Args:
        base: For d features, pair i rotates by an angle of `base ** (-2i / d)` per time step.
        is_interleaved: If true, neighbouring features form a pair, as in GPT-J. By default, a feature of the first half
            forms a pair with one of the second half, as in Llama.
        start: Position of the first time step of the input: the number of steps before it.

    Examples:
        >>> RotaryEmbedding()
        RotaryEmbedding(base=10000.0, is_interleaved=False, start=0)
    """

    op = "rotary_embedding"
    formula = "y[t] = R(t base^(-2i/d)) x[t]"
    option_ports: ClassVar = ("start",)

    def __init__(
        self,
        base: Annotated[float, Range(1.0, 1e12)] = 10000.0,
        is_interleaved: bool = False,
        start: Annotated[int, Range(0, 2**31 - 1)] = 0,
        name: str | None = None,
    ):
        super().__init__(name, base=base, is_interleaved=is_interleaved, start=start)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape, after checking that the number of features is even."""
        _, (_, width) = ends("input", inputs["input"], 2)
        if isinstance(width, int) and width % 2:
            raise MismatchError(
                "input", "an even number of features", f"use {width + 1} features per head.", f"axis -1: {width}"
            )
        return Inferred({"output": inputs["input"].shape})


class LearnedPositions(_Positions):
    """Adds a learned vector to each time step, as in GPT-2.

    Args:
        context: Maximum number of time steps.

    Examples:
        >>> LearnedPositions(1024)
        LearnedPositions(context=1024)
    """

    op = "learned_positions"
    formula = "y[t] = x[t] + W[t]"
    initializers: ClassVar = {"weight": Initializer("normal", scale=0.02)}

    def __init__(self, context: Size, name: str | None = None):
        super().__init__(name, context=context)

    @classmethod
    def infer(cls, options: Options, inputs: Specs) -> Inferred:
        """Keep the shape. The weight has `context` rows."""
        _, (time, width) = ends("input", inputs["input"], 2)
        check_time(time, options["context"], f"LearnedPositions({time})  # or shorter inputs")
        row = as_int(options["context"]), width if width is not None else "features"
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

    category = "Layers"
    formula = "y = W merge(attention(heads of W x))"

    def __init__(
        self,
        width: Size,
        heads: Heads = 8,
        kv_heads: ServedHeads | None = None,
        is_causal: bool = False,
        dropout: Annotated[float, Range(0.0, 0.99)] = 0.0,
        use_bias: bool = True,
        use_rotary: bool = False,
        is_cross: bool = False,
        use_attn_mask: bool = False,
        use_lengths: bool = False,
        name: str | None = None,
    ):
        super().__init__(
            name,
            width=width,
            heads=heads,
            kv_heads=kv_heads,
            is_causal=is_causal,
            dropout=dropout,
            use_bias=use_bias,
            use_rotary=use_rotary,
            is_cross=is_cross,
            use_attn_mask=use_attn_mask,
            use_lengths=use_lengths,
        )
        width, heads = self.options["width"], self.options["heads"]
        served = self.options["kv_heads"] or heads
        check_divides(self, heads=heads, width=width)
        check_divides(self, kv_heads=served, heads=heads)
        size = width // heads

        def linear(columns: int, name: str) -> Linear:
            return Linear(columns, use_bias, input_size=width, name=name)

        # Queries, keys and values that read the same input are computed by one matrix product.
        if is_cross:
            self |= linear(width, "query")(input="input")
            self |= SplitHeads((heads,), name="split_query")(input="query.output")
            self |= linear(2 * served * size, "kv")(input="memory")
            self |= SplitHeads((served, served), name="split")(input="kv.output")
            ends = {"query": "split_query.output", "key": "split.key", "value": "split.value"}
        else:
            self |= linear((heads + 2 * served) * size, "qkv")(input="input")
            self |= SplitHeads((heads, served, served), name="split")(input="qkv.output")
            ends = {port: f"split.{port}" for port in ("query", "key", "value")}
        if use_rotary:
            for port in ("query", "key"):
                self |= RotaryEmbedding(name=f"rotary_{port}")(input=ends[port])
                ends[port] = f"rotary_{port}.output"
        ends |= {port: port for port, used in (("attn_mask", use_attn_mask), ("lengths", use_lengths)) if used}
        product = ScaledDotProduct(is_causal, None, dropout, use_attn_mask, use_lengths, name="attention")
        self |= product(**ends)
        self |= MergeHeads(name="merge")(input="attention.output")
        self |= linear(width, "out")(input="merge.output")
