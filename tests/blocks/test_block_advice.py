"""The advice of errors of library blocks works."""

from __future__ import annotations

import re

import pytest
from advice import check

PLACES = r"""
models/library/classical/operators.py:Cholesky.infer
    shapes(Cholesky(), input=[3, 4])
    # Try: model = Model() | Relu()(input="h", output="x"); x = model.x; model |= Cholesky()(input={}); shapes(model, h=[3, 4])
models/library/classical/operators.py:GPRAlpha.infer
    shapes(GPRAlpha(), label_mu_diff=[3, 1], K_term=[4, 4], L=[4, 4])
    # Try: shapes(GPRAlpha(), label_mu_diff=[4, 1], K_term=[4, 4], L=[4, 4])
models/library/classical/operators.py:GPRVOuter.infer
    shapes(GPRVOuter(), K=[3, 2], K_term=[4, 4], L=[4, 4])
    # Try: shapes(GPRVOuter(), K=[4, 2], K_term=[4, 4], L=[4, 4])
models/library/classical/operators.py:square
    shapes(GPRAlpha(), label_mu_diff=[4, 1], K_term=[4, 3], L=[4, 4])
    # Try: shapes(GPRAlpha(), label_mu_diff=[4, 1], K_term=[4, 4], L=[4, 4])
models/library/classical/operators.py:_same_square
    shapes(GPRAlpha(), label_mu_diff=[4, 1], K_term=[4, 4], L=[3, 3])
    # Try: shapes(GPRAlpha(), label_mu_diff=[4, 1], K_term=[4, 4], L=[4, 4])
models/library/classical/kernel_machines.py:PolynomialFeatures.infer
    shapes(PolynomialFeatures(2), input=[])
    # Try: shapes(PolynomialFeatures(2), input=[3])
models/library/classical/kernel_machines.py:KernelizedSVM.__init__
    KernelizedSVM(Relu())
models/library/classical/operators.py:DistanceMatrix.infer
    shapes(DistanceMatrix(), left=[3, 4], right=[3, 5], norm=[])
    # Try: shapes(DistanceMatrix(), left=[3, 4], right=[3, 4], norm=[])
models/library/classical/operators.py:Coordinates.infer
    shapes(Coordinates(2), input=[])
    # Try: shapes(Coordinates(2), input=[5])
models/library/classical/manifolds.py:_check_base
    DistanceEncoder(3)
models/library/classical/manifolds.py:_check_base#2
    DistanceEncoder(Relu())
models/library/classical/manifolds.py:_check_base#3
    DistanceEncoder(MDSCore(), input_type="rows", prediction_dim=2)
models/library/classical/operators.py:points
    shapes(DistanceMatrix(), left=[3], right=[3, 4], norm=[])
    # Try: shapes(DistanceMatrix(), left=[3, 4], right=[3, 4], norm=[])
models/library/classical/operators.py:scalar
    shapes(DistanceMatrix(), left=[3, 4], right=[3, 4], norm=[2])
    # Try: shapes(DistanceMatrix(), left=[3, 4], right=[3, 4], norm=[])
models/library/layers/attention.py:SplitHeads.infer
    shapes(SplitHeads((2, 2, 2, 2)), input=[5, 36])
models/library/layers/attention.py:SplitHeads.infer#2
    shapes(SplitHeads(5), input=[3, 12])
    # Try: shapes(Sequential({}, SplitHeads(5)), input=[3, 12])
models/library/layers/attention.py:PositionalEncoding.infer
    shapes(PositionalEncoding(8), input=[3, 6])
models/library/layers/attention.py:RotaryEmbedding.infer
    shapes(RotaryEmbedding(), input=[3, 7])
    # Try: shapes(RotaryEmbedding(), input=[3, 8])
models/library/layers/attention_rules.py:ends
    shapes(RotaryEmbedding(), input=[3])
    # Try: shapes(RotaryEmbedding(), input=[5, 4])
models/library/layers/attention_rules.py:check_equal
    shapes(ScaledDotProduct(), query=[3, 4], key=[3, 5], value=[3, 4])
    # Try: shapes(ScaledDotProduct(), query=[3, 4], key=[3, 4], value=[3, 4])
models/library/layers/attention_rules.py:broadcast_heads
    shapes(ScaledDotProduct(), query=[6, 3, 4], key=[4, 3, 4], value=[4, 3, 4])
    # Try: shapes(ScaledDotProduct(), query=[6, 3, 4], key=[2, 3, 4], value=[2, 3, 4])
models/library/layers/attention_rules.py:check_mask
    array = jnp.ones((3, 3), "int32")
    ml.inspect(ScaledDotProduct(use_attn_mask=True), *3 * [jnp.ones((3, 4))], array)
    # Try: array = {}; ml.inspect(ScaledDotProduct(use_attn_mask=True), *3 * [jnp.ones((3, 4))], array).cost()
models/library/layers/attention_rules.py:check_mask#2
    shapes(ScaledDotProduct(use_attn_mask=True), query=[3, 4], key=[3, 4], value=[3, 4], attn_mask=[2, 5])
    # Try: shapes(ScaledDotProduct(use_attn_mask=True), query=[3, 4], key=[3, 4], value=[3, 4], attn_mask=[3, 3])
models/library/layers/attention_rules.py:check_time
    shapes(PositionalEncoding(4, max_len=2), input=[3, 4])
models/library/layers/attention_rules.py:check_divides
    MultiHeadAttention(10, 4)
models/library/layers/convolution.py:Convolution._check_channels
    shapes(Conv2d(4, 3, in_channels=3), input=[1, 6, 8, 8])
models/library/layers/convolution.py:Convolution._check_channels#2
    shapes(Conv2d(4, groups=2), input=[1, 3, 8, 8])
models/library/layers/convolution.py:Convolution.infer
    shapes(Model() | Value(3)(output="count") | Convolution2D(3, 4)(input="x", groups="count"), x=[1, 6, 8, 8])
    # Try: shapes(Model() | Convolution2D(3, 4, {})(input="x"), x=[1, 6, 8, 8])
models/library/layers/convolution.py:Convolution._given_weight#2
    shapes(PrimitiveConvolution2D(use_bias=False, groups=2), input=[1, 6, 8, 8], weight=[3, 6, 2, 2])
models/library/layers/convolution.py:Convolution._given_weight
    shapes(PrimitiveConvolution1D(use_bias=False), input=[1, 3, 8], weight=[4, 3])
    # Try: shapes(PrimitiveConvolution1D(use_bias=False), input=[1, 3, 8], weight=[4, 3, 2])
models/library/layers/linear.py:Linear.infer
    shapes(Linear(3), input=[])
    # Try: shapes(Linear(3), input=[4])
models/library/layers/linear.py:Linear.infer#2
    shapes(Linear(3, input_size=4), input=[2, 5])
models/library/layers/normalization.py:_LastAxis.infer
    shapes(LayerNorm(), input=[])
    # Try: shapes(LayerNorm(), input=[4])
models/library/layers/normalization.py:_Channels.infer
    shapes(BatchNorm2d(), input=[3, 4])
    # Try: shapes(BatchNorm2d(), input=[3, 4, 5, 5])
models/library/layers/normalization.py:_Channels.infer#2
    shapes(BatchNorm2d(num_features=3), input=[3, 4, 5, 5])
models/library/layers/normalization.py:GroupNorm.check
    shapes(GroupNorm(3), input=[3, 4, 5, 5])
models/library/layers/pooling.py:_Adaptive.infer
    shapes(AdaptiveAvgPool2d(2), input=[1, 3, 0, 4])
    # Try: shapes(AdaptiveAvgPool2d(2), input=[1, 3, 4, 4])
models/library/layers/recurrent.py:_Recurrent.infer
    shapes(LSTM(3), input=[4])
    # Try: shapes(LSTM(3), input=[5, 4])
models/library/layers/recurrent.py:_Recurrent.infer#2
    shapes(RNN(3, use_initial_state=True), input=[2, 5, 4], initial_hidden=[2, 4])
    # Try: shapes(RNN(3), input=[2, 5, 4])
models/library/layers/recurrent_cells.py:_last
    shapes(RNNCell(3), input=[4], prev_hidden=[2, 3])
    # Try: shapes(RNNCell(3), input=[2, 4], prev_hidden=[2, 3])
models/library/layers/recurrent_cells.py:_size
    shapes(RNNCell(3), input=[2, 4], prev_hidden=[2, 5])
    # Try: shapes(RNNCell(3), input=[2, 4], prev_hidden=[2, 3])
models/library/layers/recurrent_cells.py:_check_rows
    shapes(RNNCell(), input=[5, 1, 3], prev_hidden=[2, 1, 4])
    # Try: shapes(RNNCell(), input=[5, 1, 3], prev_hidden=[5, 1, 4])
models/library/layers/convolution.py:_Transposed.sizes
    shapes(ConvTranspose2d(3, 3, padding=3), input=[1, 3, 2, 2])
    # Try: shapes(ConvTranspose2d(3, 3), input=[1, 3, 2, 2])
models/library/layers/windows.py:Windows.counts
    shapes(MaxPool2d(4), input=[2, 1, 3, 3])
    # Try: shapes(MaxPool2d(4, {}), input=[2, 1, 3, 3])
models/library/layers/windows.py:each
    shapes(Model() | Value((0, 1))(output="step") | MaxPool2D(2)(input="x", stride="step"), x=[1, 1, 4, 4])
    # Try: shapes(Model() | MaxPool2D(2)(input="x", {}), x=[1, 1, 4, 4])
models/library/layers/windows.py:shape_with_channels
    ml.compile(Conv2d(3, 3), shapes={"input": [28, 28]})
models/library/networks/feedforward.py:Layer.__init__
    Layer("relu")
models/library/networks/feedforward.py:Residual._reading
    Residual(3)
models/library/networks/feedforward.py:Residual._reading#2
    Residual(Model())
models/library/networks/feedforward.py:MLP._layers
    MLP(activations=[Relu()], dimensions=[256, 10])
models/library/networks/sequences.py:Bidirectional.__init__
    Bidirectional(Linear(3))
models/library/networks/sequences.py:Bidirectional.__init__#2
    Bidirectional(LSTM(3), merge='product')
models/library/networks/transformers.py:Unembedding.infer
    shapes(Unembedding(5), input=[])
    # Try: shapes(Unembedding(5), input=[4])
models/library/networks/feedforward.py:ResNet.__init__
    ResNet(18)
models/library/objectives/counting.py:_same
    shapes(AUCCore(), input=[3], label=[4])
    # Try: shapes(AUCCore(), input=[4], label=[4])
models/library/objectives/counting.py:AUCCore.infer
    shapes(AUCCore(), input=[], label=[])
    # Try: shapes(AUCCore(), input=[4], label=[4])
models/library/objectives/cross_entropies.py:SoftCrossEntropy.infer
    shapes(CrossEntropy(categorical=False), input=[3, 4], target=[3])
models/library/objectives/cross_entropies.py:CrossEntropy.infer
    shapes(CrossEntropy(), input=[3, 4], target=[3, 4])
models/library/objectives/cross_entropies.py:CrossEntropy.infer | the last axis
    shapes(CrossEntropy(), input=[3, 4, 5], target=[3, 4])
models/library/objectives/cross_entropies.py:CrossEntropy.infer | neither
    shapes(CrossEntropy(), input=[3, 4], target=[5])
    # Try: shapes(CrossEntropy(), input=[3, 4], target=[3])
models/library/objectives/cross_entropies.py:_check_count
    shapes(CrossEntropy(weights=[1.0, 2.0]), input=[3, 4], target=[3])
    # Try: shapes(CrossEntropy({}), input=[3, 4], target=[3])
models/library/objectives/cross_entropies.py:_check_weights
    CrossEntropy(weights="mine")
models/library/objectives/losses.py:InfoNCE.infer
    shapes(InfoNCE(), input=[3], target=[3])
    # Try: shapes(InfoNCE(), input=[3, 4], target=[3, 4])
models/library/objectives/losses.py:InfoNCE.infer#2
    shapes(InfoNCE(), input=[3, 4], target=[3, 5])
    # Try: shapes(InfoNCE(), input=[3, 4], target=[3, 4])
models/library/objectives/metrics.py:_Classified._classify
    Accuracy(threshold=0.3)
models/library/objectives/metrics.py:_Counted.__init__
    Precision("macro")
models/library/objectives/losses.py:paired
    shapes(SquaredError(), input=[3], target=[4])
    # Try: shapes(SquaredError(), input=[3], target=[3])
models/library/objectives/losses.py:paired#2
    shapes(SquaredError(), input=[3, 1], target=[1, 3])
    # Try: shapes(SquaredError(), input=[3, 1], target=[3, 1])
models/library/operations/activations.py:Glu.infer
    shapes(Glu(), input=[3, 5])
    # Try: shapes(Glu(), input=[3, 6])
models/library/operations/arithmetic.py:MatrixMultiply.infer
    shapes(MatrixMultiply(), left=[], right=[3])
models/library/operations/arithmetic.py:MatrixMultiply.infer#2
    shapes(MatrixMultiply(), left=[3, 4], right=[5, 6])
    # Try: shapes(MatrixMultiply(), left=[3, 4], right=[4, 6])
models/library/operations/arithmetic.py:_product_shape
    shapes(MatrixMultiply(), left=[2, 3, 4], right=[3, 4, 6])
    # Try: shapes(MatrixMultiply(), left=[2, 3, 4], right=[2, 4, 6])
models/library/operations/elementwise.py:check_kind
    shapes(Model() | Greater()(left="a", right="b", output="h") | Sqrt()(input="h"), a=[3], b=[3])
    # Try: model = Model() | Greater()(left="a", right="b", output="h"); x = model.h; model |= Sqrt()(input={})
models/library/operations/shape_rules.py:broadcast_all
    shapes(Where(), cond=[3], input1=[4], input2=[4])
    # Try: shapes(Where(), cond=[4], input1=[4], input2=[4])
models/library/operations/generators.py:Arange.infer
    shapes(Arange(0, None, 0))
models/library/operations/generators.py:RandInt.infer
    shape = (3,)
    shapes(RandInt(shape, 5, 3))
models/library/operations/generators.py:RandInt.infer#2
    shapes(RandInt((3,), 0, 3, dtype="float32"))
models/library/operations/generators.py:wanted_shape
    shapes(Randn(shape=(-1, 3)))
models/library/operations/generators.py:_size
    shapes(Eye(N=-1))
models/library/operations/index_rules.py:index_items
    x = Relu().output
    shapes(Model() | Value((("slice", 0, 3, 0),))(output="i") | Indexer()(input="x", index="i"), x=[3])
    # Try: {}
models/library/operations/index_rules.py:indexed
    shapes(Indexer((0, 0, 0)), input=[5, 6])
    # Try: shapes(Indexer((0, 0)), input=[5, 6])
models/library/operations/index_rules.py:indexed#2
    shapes(Indexer(((0, 1), (0, 1, 2))), input=[5, 6])
    # Try: shapes(Indexer(((0, 1), (0, 1))), input=[5, 6])
models/library/operations/index_rules.py:_check_range
    shapes(Indexer(7), input=[5, 6])
    # Try: shapes(Indexer(4), input=[5, 6])
models/library/operations/indexing.py:_index_error
    Indexer("a b")
models/library/operations/indexing.py:Gather.infer
    shapes(Gather(), input=[3, 4], indices=[3])
    # Try: shapes(Model() | {}(input=IOKey("i", type="int32"), output="j") | Gather()(input="a", indices="j"), a=[3, 4], i=[3])
models/library/operations/indexing.py:Gather.infer#2
    shapes(Gather(axis=0), input=[3, 4], indices=[3, 5])
    # Try: shapes(Gather(axis=0), input=[3, 4], indices=[3, 4])
models/library/operations/indexing.py:_Triangle.infer
    shapes(Tril(), input=[3])
    # Try: shapes(Tril(), input=[3, 3])
models/library/operations/indexing.py:TransposedDiagonal.infer
    shapes(TransposedDiagonal(), input=[3])
    # Try: rows, model = 3, Model() | Relu()(input="x", output="h"); x = model.h; model |= TransposedDiagonal()(input={})
models/library/operations/joining.py:Tile.infer
    shapes(Tile((-1, 1)), input=[3])
models/library/operations/joining.py:Split.infer
    shapes(Split(2), input=[3])
    # Try: shapes(Split(3), input=[3])
models/library/operations/joining.py:Roll.infer
    shapes(Roll((1, 2), axis=0), input=[3, 4])
models/library/operations/joining.py:CartesianDifference.infer
    shapes(CartesianDifference(), left=[3], right=[3, 4])
    # Try: rows, model = 3, Model() | Relu()(input="x", output="h"); x = model.h; model |= CartesianDifference()(right="y", left={})
models/library/operations/joining.py:CartesianDifference.infer#2
    shapes(CartesianDifference(), left=[3, 5], right=[3, 4])
    # Try: shapes(CartesianDifference(), left=[3, 4], right=[3, 4])
models/library/operations/shape_rules.py:same_sizes
    shapes(Concat(2), input1=[3], input2=[3, 4])
    # Try: shapes(Concat(2), input1=[3, 4], input2=[3, 4])
models/library/operations/shape_rules.py:same_sizes#2
    shapes(Concat(2), input1=[3, 5], input2=[3, 4])
    # Try: shapes(Concat(2), input1=[3, 4], input2=[3, 4])
models/library/operations/joining.py:pad_pairs
    shapes(Pad((1, 2, 3)), input=[3, 4])
models/library/operations/joining.py:pad_pairs#2
    shapes(Pad(((0, 0), (1, 1))), input=[3])
models/library/operations/reducing.py:negative_axes
    shapes(Sum(axis=3), input=[3, 4])
models/library/operations/reducing.py:negative_axes#2
    shapes(Sum(axis=(1, 1)), input=[3, 4])
models/library/operations/reducing.py:Reduction.infer
    shapes(Max(axis=0), input=[0, 4])
    # Try: shapes(Max(axis=0), input=[3, 4])
models/library/operations/reductions.py:Trapezoid.infer
    shapes(Trapezoid(), y=[], x=[])
    # Try: shapes(Trapezoid(), y=[3], x=[3])
models/library/operations/reductions.py:Trapezoid.infer#2
    shapes(Trapezoid(), y=[3], x=[4])
    # Try: shapes(Trapezoid(), y=[3], x=[3])
models/library/operations/reductions.py:Unique.infer
    shapes(Unique(), input=[4])
models/library/operations/reductions.py:Unique.infer#2
    shapes(Unique(size=3), input=[0])
models/library/operations/reshaping.py:Squeeze.infer
    shapes(Squeeze(0), input=[3, 1])
models/library/operations/reshaping.py:Transpose.infer
    shapes(Transpose((0, 1)), input=[3, 4, 5])
    # Try: shapes(Transpose((0, 2, 1)), input=[3, 4, 5])
models/library/operations/reshaping.py:PermuteTensor.infer
    shapes(PermuteTensor(), input=[], indices=[2])
    # Try: shapes(PermuteTensor(), input=[3], indices=[2])
models/library/operations/shape_rules.py:as_sizes
    shapes(Reshape(shape=(2.5, 3)), input=[6])
models/library/operations/shape_rules.py:reshaped
    shapes(Reshape(shape=(-1, -1)), input=[6])
models/library/operations/shape_rules.py:reshaped#2
    shapes(Reshape((4, 2)), input=[6])
    # Try: shapes(Reshape((3, 2)), input=[6])
models/library/operations/shape_rules.py:stretched
    shapes(BroadcastTo((4,)), input=[3, 4])
    # Try: shapes(BroadcastTo((3, 4)), input=[3, 4])
models/library/operations/shape_rules.py:stretched#2
    shapes(BroadcastTo((-3, 4)), input=[1, 4])
    # Try: shapes(BroadcastTo((3, 4)), input=[1, 4])
models/library/operations/shape_rules.py:stretched#3
    shapes(BroadcastTo(("b", 4)), input=[4])
    # Try: shapes(BroadcastTo((3, 4)), input=[4])
models/library/operations/shape_rules.py:stretched#4
    shapes(BroadcastTo((3, 4)), input=[2, 4])
    # Try: shapes(BroadcastTo((3, 4)), input=[1, 4])
models/library/operations/shape_rules.py:flat_span
    shapes(Flatten(), input=[])
    # Try: shapes(Flatten(), input=[3])
models/library/operations/shape_rules.py:flat_span#2
    shapes(Flatten(start_dim=2, end_dim=1), input=[3, 4, 5])
models/library/operations/shape_rules.py:places_of
    shapes(ExpandDims(axis='a'), input=[3])
models/library/operations/shape_rules.py:places_of#2
    shapes(Squeeze((0, 0)), input=[1])
    # Try: shapes(Squeeze((0,)), input=[1])
models/library/operations/statics.py:Length.infer
    shapes(Length(), input=[])
models/library/operations/statics.py:Item.infer#2
    shapes(Item(), input=[3])
models/library/layers/convolution.py:Convolution._given_weight#3
    shapes(PrimitiveConvolution1D(), input=[1, 3, 8], weight=[4, 3, 2], bias=[5])
    # Try: shapes(PrimitiveConvolution1D(), input=[1, 3, 8], weight=[4, 3, 2], bias=[4])
models/library/layers/windows.py:refusal
    Conv2d(3, padding="full")
models/library/layers/linear.py:_mapped
    shapes(Linear(), input=[2, 3], weight=[3])
    # Try: shapes({}, input=[2, 3])
models/library/layers/linear.py:_mapped#2
    shapes(Linear(), input=[2, 3], weight=[5, 4])
    # Try: shapes({}, input=[2, 3])
models/library/layers/linear.py:_mapped#3
    shapes(Linear(), input=[2, 3], weight=[3, 4], bias=[5])
    # Try: shapes(Linear(), input=[2, 3], weight=[3, 4], bias=[4])
models/library/layers/linear.py:Embedding.infer
    shapes(Embedding(), input=[2], weight=[5])
    # Try: shapes(Embedding(), input=[2], weight=[5, 4])
models/library/networks/sequences.py:_cell_error
    OneToMany(Relu(), 3)
models/library/networks/sequences.py:_check_length
    ManyToOne(RNNCell(), 0)
models/library/networks/sequences.py:RowsLike.infer
    shapes(RowsLike(), input=[], like=[3])
    # Try: shapes(RowsLike(), input=[4], like=[3])
models/library/networks/sequences.py:RowsLike.infer#2
    shapes(RowsLike(), input=[2], like=[3])
    # Try: shapes(RowsLike(), input=[3], like=[2])
models/library/objectives/counting.py:TopKHits.infer
    shapes(TopKHits(2), pred=[], label=[])
    # Try: shapes(TopKHits(2), pred=[8, 10], label=[8])
models/library/objectives/counting.py:TopKHits.infer#2
    shapes(TopKHits(2), pred=[8, 10], label=[8, 10])
    # Try: shapes(TopKHits(2), pred=[8, 10], label=[8])
models/library/operations/index_rules.py:index_items#2
    x = Relu().output
    shapes(Model() | Value(1.5)(output="i") | Indexer()(input="x", index="i"), x=[3])
    # Try: {}
models/library/operations/indexing.py:Indexer.infer
    shapes(Model() | Relu()(input="i", output="j") | Indexer()(input="x", index="j"), x=[3], i=[2])
    # Try: shapes(Model() | {}(cond="c", input1="x", input2="y"), c=[3], x=[3], y=[3])
models/library/operations/shape_rules.py:_kept#2
    shapes(Reshape(("m", "n", -1)), input=["n", "m", 3])
    # Try: model = Model() | Relu()(input="input", output="h"); x = model.h; model |= Tanh()(input={}); shapes(model, input=["n", "m", 3])
models/library/operations/statics.py:ToTensor.infer
    shapes(Model() | Value(((1, 2), (3,)))(output="v") | ToTensor()(input="v"))
    # Try: shapes(Model() | Value(((1, 2), (3, 4)))(output="v") | ToTensor()(input="v"))
models/library/operations/statics.py:dtype_option
    shapes(Model() | Cast()(input="x"), x=[2])
    # Try: shapes(Model() | Cast({})(input="x"), x=[2])
models/library/operations/statics.py:Item.infer
    shapes(Model() | Value((1, 2))(output="v") | Item()(input="v"))
models/library/operations/statics.py:Size.infer
    shapes(Size(dim=("a",)), input=[2])
models/library/layers/windows.py:paddings
    shapes(Model() | Value("full")(output="p") | MaxPool2D(2)(input="x", padding="p"), x=[1, 1, 4, 4])
    # Try: shapes(Model() | MaxPool2D(2, {})(input="x"), x=[1, 1, 4, 4])
models/library/operations/index_rules.py:_rows
    x = Relu().output
    shapes(Model() | Value(((0.5, 1.5),))(output="i") | Indexer()(input="x", index="i"), x=[3])
    # Try: {}
models/library/operations/index_rules.py:index_items#3
    shapes(Model() | Value(("...", "..."))(output="i") | Indexer()(input="x", index="i"), x=[3, 4])
    # Try: model = Model() | Relu()(input="h", output="x"); x = model.x; model |= Relu()(input={}); shapes(model, h=[3, 4])
models/library/operations/index_rules.py:picked_value
    model = Model() | Relu()(input="h", output="x"); model |= Indexer((0, 1))(input=model.x.shape())
    shapes(model, h=[3, 4])
    # Try: model = Model() | Relu()(input="h", output="x"); x = model.x; model |= Arange()(stop={}); shapes(model, h=[3, 4])
models/library/operations/index_rules.py:picked_value#2
    x = Model() | Relu()(input="input", output="x")
    x |= Indexer(5)(input=x.x.shape())
    shapes(x, input=[3, 4])
    # Try: Model() | Relu()(input="input", output="x") | Indexer(1)(input="x")
models/library/operations/shape_rules.py:_kept
    shapes(Reshape(("batch", 2, "rest")), input=["batch", 4])
    # Try: shapes(Reshape(("batch", 2, -1)), input=["batch", 4])
"""
"""The places where errors are built, each with the code that fails there; see `advice.py`."""
CASES = dict(part.split("\n", 1) for part in re.split(r"\n(?=models/)", PLACES.strip()))


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str) -> None:
    check(CASES, case)
