"""Error messages of layers, objectives, networks and classical models: the whole text."""

from tests.blocks.running import error_of, messages


@messages("""
>>> Conv2d(4, groups=3)
UnknownOptionError: Conv2d cannot take groups=3.
    needs  a number that divides out_channels=4
    Try: Conv2d(out_channels=4, groups=1)

>>> Conv3d(4, padding=(1, 2))
UnknownOptionError: Conv3d cannot take padding=(1, 2).
    needs  'same', 'valid', a number, 3 numbers, or 3 pairs (before, after)
    means  `"same"` keeps the size at stride 1, `"valid"` adds nothing. Or the number of zeros at each end: one number for both axes, or for each axis a number or a pair (before, after).
    Try: Conv3d(out_channels=4, padding='same')

>>> MaxPool2d(2, padding=-1)
UnknownOptionError: MaxPool2d cannot take padding=-1.
    needs  'same', 'valid', a number, 2 numbers, or 2 pairs (before, after)
    means  `"valid"` for no padding, `"same"` for an output of size `ceil(size / stride)` on each axis, a number of items to add at both ends of each axis, or a tuple with a number or pair (before, after) for each axis.
    Try: MaxPool2d(padding='same')

>>> compiled(Conv2d(4, groups=2), input=[1, 3, 8, 8])
ShapeError: the input 'input' does not fit 'conv2d.input'.
    given  (1, 3, 8, 8) float32
    input  needs a number of channels that groups=2 divides
    found  axis 1: 3 channels
    Try: Conv2d(..., groups=1)

>>> compiled(Conv1d(4), input=[1, 3, 8, 8])
ShapeError: the input 'input' does not fit 'conv1d.input'.
    given  (1, 3, 8, 8) float32
    input  needs (batch, channels, length)
    found  rank 4 != 3
    Try: shapes={"input": [32, 1, 28]}

>>> compiled(Conv2d(4, 3, dilation=4, padding="valid"), input=[1, 3, 8, 8])
ShapeError: the input 'input' does not fit 'conv2d.input'.
    given  (1, 3, 8, 8) float32
    input  needs at least 9 items on axis 2
    found  axis 2: 8 < 9
    Try: padding='same'  # or a smaller kernel_size: a window covers 9x9 items

>>> compiled(PrimitiveConvolution1D(use_bias=False), input=[1, 3, 8], weight=[4, 3])
ShapeError: the input 'weight' does not fit 'primitive_convolution1d.weight'.
    given   (4, 3) float32
    weight  needs (out, in / groups, length)
    found   rank 2
    Try: use a weight of the shape (out, in / groups, length).

>>> compiled(ConvTranspose1d(4, 3, padding=3), input=[1, 3, 2])
ShapeError: the input 'input' does not fit 'conv_transpose1d.input'.
    given  (1, 3, 2) float32
    input  needs more items on axis 2
    found  axis 2: 2
    Try: reduce the padding.

>>> compiled(GlobalAvgPool2d(), input=[1, 3, 0, 4])
ShapeError: the input 'input' does not fit 'global_avg_pool2d.input'.
    given  (1, 3, 0, 4) float32
    input  needs a non-empty image
    found  axis 2: 0
    Try: use a larger image.

>>> ml.compile(
    Model() | ToTuple(2)(input1=2, input2=1, output="step") | MaxPool2D(2)(input="x", stride="step"),
    shapes={"x": [1, 1, 4, 4]},
).evaluate({}, {"x": np.ones((1, 1, 4, 4), "float32")})
ConnectionError: the stride of a window comes from an array, so it is unknown until the model runs.
    needs  2 whole numbers, each 1 or more

>>> compiled(GroupNorm(), input=[2, 12, 3])
ShapeError: the input 'input' does not fit 'group_norm.input'.
    given  (2, 12, 3) float32
    input  needs a number of channels that num_groups=32 divides
    found  axis 1: 12 channels
    Try: GroupNorm(12)

>>> compiled(Model() | Linear(4)(output="y") | BatchNorm2d()(input="y"), input=[2, 3])
ShapeError: cannot connect 'linear_0.output' to 'batch_norm2d_0.input'.
    output  (2, 4) float32
    input   needs (batch, channels, height, width)
    found   rank 2 != 4
    Try: use an input of the shape (batch, channels, height, width).

>>> compiled(BatchNorm(3), input=[2, 4])
ShapeError: the input 'input' does not fit 'batch_norm.input'.
    given  (2, 4) float32
    input  needs (batch, 3, ...)
    found  axis 1: 4 != 3
    Try: BatchNorm(4)  # or leave num_features out

>>> compiled(RMSNorm(), input=[])
ShapeError: the input 'input' does not fit 'rms_norm.input'.
    given  () float32
    input  needs at least one axis
    found  rank 0
    Try: use an input with axes, such as (batch, features).

>>> Residual(Model())
UnknownOptionError: cannot build Residual around Model(): the block has no input.
    needs  a block with an input and an output
    Try: Residual(Linear(64))

>>> compiled(Residual(Linear(5)), input=[2, 3])
ShapeError: cannot connect 'linear_0.output' to 'add_0.right'.
    output  (2, 5) float32
    right   needs a shape that broadcasts with (2, 3)
    found   axis -1: 3 != 5
    Try: use the same sizes, or size 1 on an axis to broadcast.

>>> Sequential(Linear(5), "relu")
UnknownOptionError: cannot add 'relu' to a model.
    needs  a block, or a block with connections
    Try: model += Linear(64)  # or model |= Linear(64)(input="x")

>>> ResNet((0, 1))
UnknownOptionError: ResNet cannot take layers=(0, 1).
    needs  whole numbers from 1 to 64
    means  Number of residual blocks in each stage. Each stage after the first halves the image and doubles the channels.
    Try: ResNet(layers=(2, 2, 2, 2))

>>> ResNet(50)
UnknownOptionError: ResNet cannot take layers=50.
    needs  a list with the number of residual blocks per stage
    Try: ResNet((3, 4, 6, 3), bottleneck=True)

>>> ResNet("180")
UnknownOptionError: ResNet cannot take layers='180'.
    needs  a list with the number of residual blocks per stage
    Try: ResNet((2, 2, 2, 2))

>>> fit_or_raise(SquaredError(), input=(3,), target=(3, 1))
ShapeError: the input 'target' does not fit 'squared_error.target'.
    given   (3, 1) float32
    target  needs (3,)
    found   both inputs would broadcast to (3, 3)
    Try: use a target with the shape (3,), like the input.

>>> fit_or_raise(SquaredError(), input=("n", 3), target=("n", 4))
ShapeError: the input 'target' does not fit 'squared_error.target'.
    given   ('n', 4) float32
    target  needs ('n', 3)
    found   axis -1: 3 != 4
    Try: use a target with the shape ('n', 3), like the input.

>>> fit_or_raise(CrossEntropy(), input=(8, 5, 10), target=((8, 5), "int32"))
ShapeError: the input 'target' does not fit 'cross_entropy.target'.
    given   (8, 5) int32
    target  needs (8, 10)
    Try: CrossEntropy(axis=-1)  # for classes on the last axis

>>> fit_or_raise(CrossEntropy(), input=(8, 10), target=((8, 10), "int32"))
ShapeError: the input 'target' does not fit 'cross_entropy.target'.
    given   (8, 10) int32
    target  needs (8,)
    Try: CrossEntropy(categorical=False)  # for targets that are probabilities

>>> fit_or_raise(CrossEntropy(categorical=False), input=(8, 10), target=(8,))
ShapeError: the input 'target' does not fit 'cross_entropy.target'.
    given   (8,) float32
    target  needs (8, 10)
    Try: CrossEntropy()  # for targets that are class indices

>>> fit_or_raise(CrossEntropy(), input=(8, 10), target=(8,))
ShapeError: the input 'target' does not fit 'cross_entropy.target'.
    given   (8,) float32
    target  needs whole numbers (int32)
    found   float32
    Try: array.astype("int32")  # or a separate input for this block

>>> fit_or_raise(CrossEntropy(weights=[1.0, 2.0]), input=(8, 3), target=((8,), "int32"))
ShapeError: the input 'input' does not fit 'cross_entropy.input'.
    given  (8, 3) float32
    input  needs 2 classes, one for each of the weights
    Try: weights=[1.0, 1.0, 1.0]

>>> CrossEntropy(weights="balanced")
UnknownOptionError: CrossEntropy cannot take weights='balanced'.
    needs  a number per class, each 0 or more, or '' or 'auto'
    Try: CrossEntropy(weights="auto")

>>> BinaryCrossEntropy(pos_weight=-1.0)
UnknownOptionError: BinaryCrossEntropy cannot take pos_weight=-1.0.
    needs  a number, or a number per class, each 0 or more, or 'auto'
    Try: BinaryCrossEntropy(pos_weight="auto")

>>> fit_or_raise(InfoNCE(), input=(8, 3), target=(8, 4))
ShapeError: the input 'target' does not fit 'info_nce.target'.
    given   (8, 4) float32
    target  needs (8, 3)
    Try: use a target with the shape of the input.

>>> Accuracy(threshold=0.3)
UnknownOptionError: Accuracy cannot take threshold=0.3.
    because  a threshold needs is_binary=True; otherwise the class with the highest score counts
    Try: Accuracy(is_binary=True, threshold=0.3)

>>> Precision("macro")
UnknownOptionError: Precision needs 'n_classes' to average over classes.
    average  'macro'
    Try: Precision("macro", n_classes=10)

>>> fit_or_raise(Accuracy(is_binary=True), pred=(8, 1), label=((8,), "int32"))
ShapeError: cannot connect 'cast_1.output' to 'class_difference_0.label'.
    output  (8,) int32
    label   needs (8, 1)
    Try: reshape pred or label, so that they have the same shape.

>>> fit_or_raise(TopKHits(2), pred=(8, 10), label=((8, 10), "int32"))
ShapeError: the input 'label' does not fit 'top_k_hits.label'.
    given  (8, 10) int32
    label  needs (8,)
    Try: use one class index for each sample.

>>> fit_or_raise(DistanceMatrix(), left=(4, 3), right=(5, 2), norm=())
ShapeError: the input 'right' does not fit 'distance_matrix.right'.
    given  (5, 2) float32
    right  needs (points, 3)
    found  axis 1: 2 != 3
    Try: use points with 3 features.

>>> fit_or_raise(DistanceMatrix(), left=(4, 3), right=(5, 3), norm=(4,))
ShapeError: the input 'norm' does not fit 'distance_matrix.norm'.
    given  (4,) float32
    norm   needs one number, of shape ()
    Try: use one order for all distances.

>>> fit_or_raise(Cholesky(), input=(4, 3))
ShapeError: the input 'input' does not fit 'cholesky.input'.
    given  (4, 3) float32
    input  needs a square matrix
    Try: x.T @ x  # or another square matrix

>>> fit_or_raise(GPRAlpha(), label_mu_diff=(4, 4), K_term=(4, 4), L=(4, 4))
ShapeError: the input 'label_mu_diff' does not fit 'gpr_alpha.label_mu_diff'.
    given          (4, 4) float32
    label_mu_diff  needs (4, 1)
    Try: use labels and a mean of shape (4, 1).

>>> KernelizedSVM("rbf")
UnknownOptionError: KernelizedSVM cannot take kernel='rbf'.
    needs  a block with two inputs and an output
    Try: KernelizedSVM(RBFKernel())

>>> DistanceEncoder(LinearSVM())
UnknownOptionError: DistanceEncoder cannot take LinearSVM as base_model.
    needs  the ports 'pred_distances' and 'output'
    has    bias, decision_output, input, output, weight
    Try: DistanceEncoder(MDSCore(), prediction_dim=2)

>>> OneToMany(Relu(), 3)
UnknownOptionError: OneToMany cannot run Relu() step by step.
    needs  an input prev_hidden
    Try: OneToMany(RNNCell(hidden_size=32), max_sequence_length=10)

>>> ManyToOne(RNNCell(), 0)
UnknownOptionError: ManyToOne cannot take max_sequence_length=0.
    needs  a whole number, 1 or more
    Try: ManyToOne(RNNCell(hidden_size=32), max_sequence_length=10)

>>> EncoderDecoder("rnn", 2, 2)
UnknownOptionError: EncoderDecoder cannot run 'rnn' step by step.
    needs  a block
    Try: EncoderDecoder(RNNCell(hidden_size=32), max_input_sequence_length=10, max_target_sequence_length=10)

>>> Layer("relu")
UnknownOptionError: cannot build Layer with 'relu'.
    needs  an activation
    Try: Layer(Relu(), 64)

>>> Bidirectional(Linear(3))
UnknownOptionError: Bidirectional cannot reverse Linear(dimension=3, use_bias=True, input_size=None).
    needs  RNN, LSTM or GRU
    Try: Bidirectional(LSTM(32))

>>> compiled(RNNCell(), input=[5, 1, 3], prev_hidden=[2, 1, 4])
ShapeError: the input 'prev_hidden' does not fit 'rnn_cell.prev_hidden'.
    given        (2, 1, 4) float32
    prev_hidden  needs (5, 1) as the leading sizes, like the input, or more rows
    found        (2, 1)
    Try: use one state for each row of the input.

>>> compiled(LSTM(4, use_initial_state=True), input=[2, 5, 3], initial_cell=[2, 3])
ShapeError: the input 'initial_cell' does not fit 'lstm.initial_cell'.
    given         (2, 3) float32
    initial_cell  needs (2, 4)
    found         (2, 3)
    Try: connect the final state of another recurrent block, or leave use_initial_state out.

>>> MultiHeadAttention(10, 4)
UnknownOptionError: MultiHeadAttention cannot split width=10 into heads=4.
    because  10 = 4 * 2 + 2
    Try: heads=2

>>> compiled(ScaledDotProduct(), query=[3, 4], key=[3, 5], value=[3, 4])
ShapeError: the input 'key' does not fit 'scaled_dot_product.key'.
    given  (3, 5) float32
    key    needs size 4 on axis -1, like the query
    found  axis -1: 5 != 4
    Try: use the same size for key and query.

>>> compiled(ScaledDotProduct(), query=[4, 3, 2], key=[3, 3, 2], value=[3, 3, 2])
ShapeError: the input 'key' does not fit 'scaled_dot_product.key'.
    given  (3, 3, 2) float32
    key    needs leading axes that match (4,) of the query
    found  (3,)
    Try: use the same sizes, or fewer heads of key whose number divides that of the query.

>>> compiled(SplitHeads((4,)), input=[2, 3, 10])
ShapeError: the input 'input' does not fit 'split_heads.input'.
    given  (2, 3, 10) float32
    input  needs a last axis whose size is divisible by 4, the number of heads
    found  10 = 4 * 2 + 2
    Try: Linear(12)  # before it, or other numbers of heads

>>> compiled(PositionalEncoding(8, 4), input=[2, 5, 8])
ShapeError: the input 'input' does not fit 'positional_encoding.input'.
    given  (2, 5, 8) float32
    input  needs at most 4 time steps
    found  axis -2: 5 > 4
    Try: PositionalEncoding(8, max_len=5)

>>> compiled(GPT(10, 4, 1, 1, 8), input=[1, 5])
ShapeError: cannot connect 'tokens.output' to 'positions.input'.
    output  (1, 5, 8) float32
    input   needs at most 4 time steps
    found   axis -2: 5 > 4
    Try: LearnedPositions(5)  # or shorter inputs
""")  # noqa: E501 - as it is shown
def test_message(call: str, text: str):
    assert error_of(call) == text
