"""Transformers, composed from attention, norms and linear maps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from mithril_nb.graph.boundary import infer_boundary, made_edges
from mithril_nb.graph.edit import composite
from mithril_nb.graph.records import BOUNDARY, Endpoint, Note
from mithril_nb.models.composite import Composite
from mithril_nb.models.library.layers import Embedding, LayerNorm, LearnedPositions, Linear, MultiHeadAttention, RMSNorm
from mithril_nb.models.library.layers.attention import Heads, ServedHeads
from mithril_nb.models.library.layers.windows import Size
from mithril_nb.models.library.operations import Add, Dropout, Gelu, Multiply, Relu, SiLU
from mithril_nb.models.library.operations.reshaping import last_axis
from mithril_nb.models.op import Inferred, Initializer, Operator, Range, Start

__all__ = ["GPT", "FeedForward", "SwiGLU", "TransformerBlock", "TransformerEncoder", "Unembedding"]

Chance = Annotated[float, Range(0.0, 0.99)]
Activation = Literal["gelu", "gelu_tanh", "relu", "swiglu"]
Layers = Annotated[int, Range(1, 4096)]


class SwiGLU(Composite):
    """Gated feed-forward network, `(silu(x W) x V) U`, as in Llama (Shazeer, 2020).

    Args:
        width: Size of the last axis of input and output.
        hidden_size: Size of the last axis between the maps; by default 8/3 of the width, rounded down. With this
            default, the network has about as many parameters as a `FeedForward` of the same width.
        use_bias: If true, the linear maps have biases.

    Examples:
        >>> [node.name for node in SwiGLU(64).graph.nodes]
        ['gate', 'silu', 'up', 'product', 'down']
    """

    width: Size
    hidden_size: Size | None = None
    use_bias: bool = False

    category = "Composites"
    formula = "y = (silu(x W) x V) U"

    def compose(self):
        width = self.width
        # Three matrices instead of two, so two thirds of the usual width of 4 give as many parameters.
        hidden = self.hidden_size or max(1, 8 * width // 3)
        self |= Linear(hidden, self.use_bias, input_size=width, name="gate")(input="input")
        self += SiLU(name="silu")
        self |= Linear(hidden, self.use_bias, input_size=width, name="up")(input="input")
        self |= Multiply(name="product")(left="silu.output", right="up.output")
        self += Linear(width, self.use_bias, name="down")


class FeedForward(Composite):
    """Feed-forward network: a map to a larger width, an activation, and a map back.

    Args:
        width: Size of the last axis of input and output.
        hidden_size: Size of the last axis between the maps; by default four times the width.
        activation: The activation between the maps; `"gelu_tanh"` is the approximation that GPT-2 uses.
        use_bias: If true, the linear maps have biases.

    Examples:
        >>> [node.name for node in FeedForward(64).graph.nodes]
        ['up', 'gelu_0', 'down']
    """

    width: Size
    hidden_size: Size | None = None
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"
    use_bias: bool = True

    category = "Composites"
    formula = "y = act(x W + b) V + c"

    def compose(self):
        width = self.width
        self |= Linear(self.hidden_size or 4 * width, self.use_bias, input_size=width, name="up")(input="input")
        # GPT-2 was trained with the tanh approximation. The exact formula gives other numbers.
        self += Relu() if self.activation == "relu" else Gelu(approximate=self.activation == "gelu_tanh")
        self += Linear(width, self.use_bias, name="down")


class _Transformer(Composite):
    def _shared(self, kind: type[Composite]) -> dict[str, Any]:
        # The inner block takes the arguments that it shares with this one, under the same names.
        return {key: value for key, value in self._attributes if key in kind._fields}


class TransformerBlock(_Transformer):
    """Attention over time, then a feed-forward network per step, both with residual connections (Vaswani et al., 2017).

    Args:
        width: Size of the last axis of input and output.
        heads: Number of heads. It must divide the width.
        hidden_size: Hidden size of the feed-forward network; by default four times the width, or 8/3 of it with
            `"swiglu"`.
        activation: The activation of the feed-forward network.
        is_causal: If true, a step attends only to itself and earlier steps.
        dropout: Probability, in training, that an attention weight, or an item before a residual sum, is set to zero.
        norm: `"layer"` for `LayerNorm`, `"rms"` for `RMSNorm`.
        norm_first: If true, the norms come before attention and the feed-forward network, as in GPT-2. If false, they
            come after the residual sums, as in BERT.
        kv_heads: Number of heads of keys and values; by default `heads`. It must divide `heads`.
        use_rotary: If true, rotate queries and keys by `RotaryEmbedding`.
        use_bias: If true, the linear maps have biases.
        use_attn_mask: If true, there is an input `attn_mask`, see `ScaledDotProduct`.
        use_lengths: If true, there is an input `lengths`: the number of valid steps of each batch item.

    Raises:
        UnknownOptionError: `heads` does not divide `width`, or `kv_heads` does not divide `heads`.

    Examples:
        >>> [node.name for node in TransformerBlock(64, 4).graph.nodes]
        ['norm_1', 'attention', 'sum_1', 'norm_2', 'mlp', 'sum_2']
    """

    width: Size
    heads: Heads = 8
    hidden_size: Size | None = None
    activation: Activation = "gelu"
    is_causal: bool = False
    dropout: Chance = 0.0
    norm: Literal["layer", "rms"] = "layer"
    norm_first: bool = True
    kv_heads: ServedHeads | None = None
    use_rotary: bool = False
    use_bias: bool = True
    use_attn_mask: bool = False
    use_lengths: bool = False

    category = "Composites"
    formula = "z = x + attention(norm(x)), y = z + mlp(norm(z))"

    def compose(self):
        attention = MultiHeadAttention(**self._shared(MultiHeadAttention), name="attention")
        if self.activation == "swiglu":
            mlp = SwiGLU(self.width, self.hidden_size, self.use_bias, name="mlp")
        else:
            mlp = FeedForward(self.width, self.hidden_size, self.activation, self.use_bias, name="mlp")
        last = "input"
        for number, part in enumerate((attention, mlp), start=1):
            name = str(part.name)
            more = {port.name: port.name for port in part.inputs if port.name in ("attn_mask", "lengths")}
            normal = (LayerNorm if self.norm == "layer" else RMSNorm)(name=f"norm_{number}")
            if self.norm_first:
                self |= normal(input=last)
            self |= part(input=f"norm_{number}.output" if self.norm_first else last, **more)
            if self.dropout:
                self |= Dropout(self.dropout, name=f"dropout_{number}")(input=f"{name}.output")
                name = f"dropout_{number}"
            self |= Add(name=f"sum_{number}")(left=last, right=f"{name}.output")
            last = f"sum_{number}.output"
            if not self.norm_first:
                self |= normal(input=last)
                last = f"norm_{number}.output"


class TransformerEncoder(_Transformer):
    """Transformer blocks in sequence. With `norm_first`, one more norm follows.

    Args:
        layers: Number of blocks.
        width: Size of the last axis of input and output.
        heads: Number of heads. It must divide the width.
        hidden_size: Hidden size of the feed-forward networks; by default four times the width, or 8/3 of it with
            `"swiglu"`.
        activation: The activation of the feed-forward networks.
        is_causal: If true, a step attends only to itself and earlier steps.
        dropout: Probability, in training, that an attention weight, or an item before a residual sum, is set to zero.
        norm: `"layer"` for `LayerNorm`, `"rms"` for `RMSNorm`.
        norm_first: If true, the norms come before attention and the feed-forward network. If false, they come after the
            residual sums.
        kv_heads: Number of heads of keys and values; by default `heads`. It must divide `heads`.
        use_rotary: If true, rotate queries and keys by `RotaryEmbedding`.
        use_bias: If true, the linear maps have biases.
        use_lengths: If true, there is an input `lengths`: the number of valid steps of each batch item.

    Raises:
        UnknownOptionError: `heads` does not divide `width`, or `kv_heads` does not divide `heads`.

    Examples:
        >>> [node.name for node in TransformerEncoder(2, 64, 4).graph.nodes]
        ['block_0', 'block_1', 'norm']
    """

    layers: Annotated[Layers, Start(2)]
    width: Size
    heads: Heads = 8
    hidden_size: Size | None = None
    activation: Activation = "gelu"
    is_causal: bool = False
    dropout: Chance = 0.0
    norm: Literal["layer", "rms"] = "layer"
    norm_first: bool = True
    kv_heads: ServedHeads | None = None
    use_rotary: bool = False
    use_bias: bool = True
    use_lengths: bool = False

    category = "Composites"
    formula = "y = norm(block(... block(x)))"

    def compose(self):
        block = TransformerBlock(**self._shared(TransformerBlock))
        source = "input"
        for number in range(self.layers):
            more = {"lengths": "lengths"} if self.use_lengths else {}
            # The block is built once: the layers are equal, and each copy only needs a name.
            self |= self.of_block(block.block, f"block_{number}")(input=source, **more)
            source = f"block_{number}.output"
        # With norms at the inputs of blocks, nothing normalises the last sum.
        if self.norm_first:
            self += (LayerNorm if self.norm == "layer" else RMSNorm)(name="norm")


class Unembedding(Operator):
    """Scores of all tokens for each vector: the dot products of the vector and the rows of an embedding.

    To share the weight with an `Embedding`, give both weights the same name.

    Args:
        num_embeddings: Number of rows of the embedding.
    """

    num_embeddings: Size

    op = "unembedding"
    category = "Layers"
    formula = "y = x Wᵀ"
    initializers = {"weight": Initializer("normal", scale=0.02)}

    @classmethod
    def infer(cls, options, inputs):
        """Map `(..., dim)` to `(..., num_embeddings)`."""
        (lead, last), rows = last_axis(inputs), options["num_embeddings"]
        # The layout of `Embedding`, whose weight is shared, and not (in, out) as for `Linear`.
        return Inferred({"output": (*lead, rows)}, {"weight": (rows, "input_size" if last is None else last)})


class GPT(Composite):
    """GPT-2 (Radford et al., 2019): maps integer tokens to scores of the next token.

    The defaults give GPT-2 small, with 124,439,808 parameters. Weights are initialised from a normal distribution with
    a standard deviation of 0.02. For the linear maps before residual sums, the deviation is 0.02 / √(2 layers).

    Args:
        vocabulary: Number of tokens.
        context: Maximum number of time steps.
        layers: Number of transformer blocks.
        heads: Number of heads of each block. It must divide the width.
        width: Size of the last axis between the blocks.
        dropout: Probability, in training, that an item or an attention weight is set to zero.
        is_tied: If true, the scores use the weight of the token embedding. If false, they use a separate linear map.

    Raises:
        UnknownOptionError: `heads` does not divide `width`.

    Examples:
        >>> model = GPT(vocabulary=100, context=16, layers=2, heads=2, width=8)
        >>> [node.name for node in model.graph.nodes]
        ['tokens', 'positions', 'block_0', 'block_1', 'norm', 'head']
    """

    vocabulary: Annotated[Size, Start(256)] = 50257
    context: Annotated[Size, Start(64)] = 1024
    layers: Annotated[Layers, Start(2)] = 12
    heads: Annotated[Heads, Start(4)] = 12
    width: Annotated[Size, Start(64)] = 768
    dropout: Chance = 0.0
    is_tied: bool = True

    category = "Composites"
    formula = "y = norm(block(... block(W[x] + P))) Wᵀ"

    def compose(self):
        layers = self.layers
        block = TransformerBlock(self.width, self.heads, None, "gelu_tanh", True, self.dropout)
        # One name at both ports makes one parameter.
        weight = {"weight": "embedding"} if self.is_tied else {}
        self |= Embedding(self.vocabulary, self.width, name="tokens")(input="input", **weight)
        self += LearnedPositions(self.context, name="positions")
        if self.dropout:
            self += Dropout(self.dropout, name="dropout")
        for number in range(layers):
            self += self.of_block(block.block, f"block_{number}")
        self += LayerNorm(name="norm")
        if self.is_tied:
            self += Unembedding(self.vocabulary, name="head")(**weight)
        else:
            self += Linear(self.vocabulary, use_bias=False, input_size=self.width, name="head")
        # GPT-2 scales the weights before residual sums by 1 / √N. Each layer has two of the N sums.
        plain, ending = "normal(0.02)", f"normal({0.02 / (2 * layers) ** 0.5})"
        starts = {"attention.qkv": plain, "attention.out": ending, "mlp.up": plain, "mlp.down": ending}
        names = {f"block_{number}.{part}.weight": text for number in range(layers) for part, text in starts.items()}
        if not self.is_tied:
            names["head.weight"] = plain
        graph = self.graph
        notes = {Endpoint(BOUNDARY, name): Note(initializer=text) for name, text in names.items()}
        # Not `set_initializers`, which infers the inputs of the graph again for each parameter.
        graph = infer_boundary(graph.nodes, made_edges(graph), dict(graph.labels), {**graph.note_at, **notes})
        self._block = composite(graph)
