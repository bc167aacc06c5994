"""Error messages of operations: the whole text."""

from tests.blocks.running import error_of, messages


@messages("""
>>> fit_or_raise(Glu(), input=(2, 5))
ShapeError: the input 'input' does not fit 'glu.input'.
    given  (2, 5) float32
    input  needs an even size on axis -1
    found  axis -1: 5
    Try: use an even size on axis -1, such as 6.

>>> fit_or_raise(Glu(), input=())
ShapeError: the input 'input' does not fit 'glu.input'.
    given  () float32
    input  needs an array that has axis -1
    found  rank 0
    Try: use an input with at least one axis.

>>> fit_or_raise(LogSoftmax(2), input=(2, 5))
ShapeError: the input 'input' does not fit 'log_softmax.input'.
    given  (2, 5) float32
    input  needs an array that has axis 2
    found  rank 2
    Try: LogSoftmax(axis=1)

>>> fit_or_raise(Relu(), input=((2,), "int32"))
ShapeError: the input 'input' does not fit 'relu.input'.
    given  (2,) int32
    input  needs floating-point numbers (float32)
    found  int32
    Try: array.astype("float32")  # or a separate input for this block

>>> fit_or_raise(MatrixMultiply(), left=(2, 4, 5), right=(3, 6))
ShapeError: the input 'right' does not fit 'matrix_multiply.right'.
    given  (3, 6) float32
    right  needs (..., 5, 6)
    found  axis -2: 3 != 5, which is axis -1 of left (2, 4, 5)
    Try: 5 on axis -2 of right, or 3 on axis -1 of left.

>>> fit_or_raise(MatrixMultiply(), left=(4, 5), right=(3,))
ShapeError: the input 'right' does not fit 'matrix_multiply.right'.
    given  (3,) float32
    right  needs (5,)
    found  axis -1: 3 != 5, which is axis -1 of left (4, 5)
    Try: 5 on axis -1 of right, or 3 on axis -1 of left.

>>> fit_or_raise(MatrixMultiply(), left=(2, 4, 5), right=(3, 5, 6))
ShapeError: the input 'right' does not fit 'matrix_multiply.right'.
    given  (3, 5, 6) float32
    right  needs batch axes that broadcast with those of left (2, 4, 5)
    found  axis -3: 2 != 3
    Try: use the same sizes, or size 1 on an axis to broadcast.

>>> fit_or_raise(MatrixMultiply(), left=(), right=(3, 6))
ShapeError: the input 'left' does not fit 'matrix_multiply.left'.
    given  () float32
    left   needs at least one axis
    found  rank 0
    Try: Multiply()  # for a single number

>>> fit_or_raise(Divide(), numerator=(2, 3), denominator=(2, 4))
ShapeError: the input 'denominator' does not fit 'divide.denominator'.
    given        (2, 4) float32
    denominator  needs a shape that broadcasts with (2, 3)
    found        axis -1: 3 != 4
    Try: use the same sizes, or size 1 on an axis to broadcast.

>>> fit_or_raise(Subtract(), left=((2,), "bool"), right=((2,), "bool"))
ShapeError: the input 'left' does not fit 'subtract.left'.
    given  (2,) bool
    left   needs floating or whole or complex numbers
    found  bool
    Try: x.cast("float32")  # before it

>>> Power(threshold=-1.0)
UnknownOptionError: Power cannot take threshold=-1.0.
    needs  a number from 0 to 1, or None
    means  The threshold t of the formulas. Default: the dtype's smallest normal number t₀ for `e > 0`, and `t₀ ** (1 / (2 - 2e))` for other exponents, so that the gradient does not overflow.
    Try: Power(threshold=0.1)

>>> fit_or_raise(LogicalAnd(), left=(2,), right=((2,), "bool"))
ShapeError: the input 'left' does not fit 'logical_and.left'.
    given  (2,) float32
    left   needs booleans (bool)
    found  float32
    Try: array.astype("bool")  # or a separate input for this block

>>> fit_or_raise(Where(), cond=((2, 1), "bool"), input1=(3,), input2=(4,))
ShapeError: the input 'input2' does not fit 'where.input2'.
    given   (4,) float32
    input2  needs a shape that broadcasts with (2, 3)
    found   axis -1: 3 != 4
    Try: use the same sizes, or size 1 on an axis to broadcast.

>>> fit_or_raise(Mean(axis=2), input=(2, 3))
ShapeError: the input 'input' does not fit 'mean.input'.
    given  (2, 3) float32
    input  needs an array that has axis 2
    found  rank 2
    Try: Mean(axis=1)

>>> fit_or_raise(ArgMax(axis=-3), input=(2, 3))
ShapeError: the input 'input' does not fit 'arg_max.input'.
    given  (2, 3) float32
    input  needs an array that has axis -3
    found  rank 2
    Try: ArgMax(axis=-1)

>>> fit_or_raise(Sum(axis=0), input=())
ShapeError: the input 'input' does not fit 'sum.input'.
    given  () float32
    input  needs an array that has axis 0
    found  rank 0
    Try: use an input with at least one axis.

>>> fit_or_raise(Sum(axis=[0, -2]), input=(2, 3))
ShapeError: the input 'input' does not fit 'sum.input'.
    given  (2, 3) float32
    input  needs each axis once
    found  axis -2 twice in (0, -2)
    Try: Sum(axis=-2)

>>> Sum(axis=1.5)
UnknownOptionError: Sum cannot take axis=1.5.
    needs  whole numbers from -32 to 31, or None
    means  One axis or several; `None` for all.
    Try: Sum(axis=(0, 1))

>>> fit_or_raise(Unique(), input=(2, 3))
ShapeError: the input 'input' does not fit 'unique.input'.
    given  (2, 3) float32
    input  needs a size for the result: the number of distinct items is known only at run time
    Try: Unique(size=10, fill_value=0)  # the 10 smallest items, padded with zeros

>>> fit_or_raise(Unique(4), input=(0,))
ShapeError: the input 'input' does not fit 'unique.input'.
    given  (0,) float32
    input  needs at least one item
    found  size 0
    Try: Unique(size=4, fill_value=0.0)

>>> fit_or_raise(Trapezoid(), y=(2, 5), x=(4,))
ShapeError: the input 'x' does not fit 'trapezoid.x'.
    given  (4,) float32
    x      needs (..., 5)
    found  axis -1: 4 != 5
    Try: use as many positions x as values y.

>>> compiled(Reshape((4, 6)), input=[3, 4])
ShapeError: the input 'input' does not fit 'reshape.input'.
    given  (3, 4) float32
    input  needs 24 items, for shape (4, 6)
    found  12 != 24
    Try: use sizes whose product is 12.

>>> compiled(Reshape((5, -1)), input=[3, 4])
ShapeError: the input 'input' does not fit 'reshape.input'.
    given  (3, 4) float32
    input  needs a multiple of 5 items, for shape (5, -1)
    found  12 items
    Try: use sizes whose product is 12.

>>> compiled(Reshape(("batch", 4)), input=["batch", 3, 4])
ShapeError: the input 'input' does not fit 'reshape.input'.
    given  ('batch', 3, 4) float32
    input  needs batch*4 items, for shape ('batch', 4)
    found  batch*12 != batch*4
    Try: use sizes whose product is batch*12.

>>> compiled(Reshape(("m", "n", -1)), input=["n", "m", 3])
ShapeError: the input 'input' does not fit 'reshape.input'.
    given  ('n', 'm', 3) float32
    input  needs 'm' on axis 0, for shape ('m', 'n', -1)
    found  axis 0: n != m
    Try: x.reshape(x.shape()[1], x.shape()[0], -1)  # each size from its axis

>>> compiled(Reshape(), input=[3, 4])
ShapeError: Reshape at 'reshape' cannot use shape=None.
    shape  needs sizes
    Try: shape=(2, 3)  # or a connected shape: shape=x.shape()

>>> compiled(SwapAxes(0, 2), input=[3, 4])
ShapeError: the input 'input' does not fit 'swap_axes.input'.
    given  (3, 4) float32
    input  needs an axis 2
    found  rank 2
    Try: use an axis from -2 to 1.

>>> compiled(of_x(lambda x: x[:, 4]), input=["batch", 4])
ShapeError: cannot connect 'identity_0.output' to 'indexer_0.input'.
    output  ('batch', 4) float32
    input   needs an item with index 4 on axis 1
    found   axis 1: 4 items
    Try: use an index from -4 to 3.

>>> compiled(of_x(lambda x: x[0, 0, 0]), input=["batch", 4])
ShapeError: cannot connect 'identity_0.output' to 'indexer_0.input'.
    output  ('batch', 4) float32
    input   needs at least 3 axes, for an index of 3 items
    found   rank 2
    Try: use an index of at most 2 items.

>>> compiled(of_x(lambda x: x.reshape(x.shape()[2], -1)), input=["batch", 4])
ShapeError: cannot connect 'shape_0.output' to 'indexer_0.input'.
    output  static ('batch', 4)
    input   needs an item with index 2
    found   2 items
    Try: use an index from -2 to 1.

>>> compiled(Concat(2, axis=-1), input1=[2, 3], input2=[4, 3])
ShapeError: the input 'input2' does not fit 'concat.input2'.
    given   (4, 3) float32
    input2  needs (2, any), like input1 (2, 3)
    found   axis 0: 4 != 2
    Try: use arrays with the same size on axis 0.

>>> compiled(Stack(2), input1=[2, 3], input2=[2])
ShapeError: the input 'input2' does not fit 'stack.input2'.
    given   (2,) float32
    input2  needs (2, 3), like input1 (2, 3)
    found   rank 1 != 2
    Try: use arrays with the same number of axes.

>>> compiled(BroadcastTo((2, 4)), input=[2, 3])
ShapeError: the input 'input' does not fit 'broadcast_to.input'.
    given  (2, 3) float32
    input  needs a shape that broadcasts to (2, 4)
    found  axis 1: 3 != 4
    Try: use an input with size 1 or 4 on axis 1.

>>> compiled(Split(3, axis=-1), input=[2, 4])
ShapeError: the input 'input' does not fit 'split.input'.
    given  (2, 4) float32
    input  needs a multiple of 3 on axis 1
    found  axis 1: 4
    Try: use a number of parts that divides 4.

>>> compiled(Squeeze(0), input=[2, 1])
ShapeError: the input 'input' does not fit 'squeeze.input'.
    given  (2, 1) float32
    input  needs size 1 on axis 0
    found  axis 0: 2 != 1
    Try: Squeeze()  # removes all axes of size 1

>>> compiled(Transpose((0, 1)), input=[2, 1, 3])
ShapeError: the input 'input' does not fit 'transpose.input'.
    given  (2, 1, 3) float32
    input  needs rank 2, for axes=(0, 1)
    found  rank 3
    Try: use axes that contain each number from 0 to 2 once.

>>> compiled(Flatten(2, 1), input=[2, 1, 3])
ShapeError: the input 'input' does not fit 'flatten.input'.
    given  (2, 1, 3) float32
    input  needs start_dim at or before end_dim
    found  start_dim=2 is axis 2, end_dim=1 is axis 1
    Try: Flatten(start_dim=1, end_dim=2)

>>> compiled(Pad(((1, 1), (0, 0), (2, 2))), input=[2, 3])
ShapeError: the input 'input' does not fit 'pad.input'.
    given  (2, 3) float32
    input  needs rank 3, for pad_width=((1, 1), (0, 0), (2, 2))
    found  rank 2
    Try: Pad(((1, 1), (0, 0)))

>>> compiled(CartesianDifference(), left=[5, 3], right=[4, 2])
ShapeError: the input 'right' does not fit 'cartesian_difference.right'.
    given  (4, 2) float32
    right  needs (rows, 3), like left (5, 3)
    found  axis 1: 2 != 3
    Try: use the same number of columns for left and right.

>>> compiled(Gather(), input=[5, 3], indices=[4])
ShapeError: the input 'indices' does not fit 'gather.indices'.
    given    (4,) int32
    indices  needs as many axes as the input (5, 3)
    found    rank 1 != 2
    Try: ExpandDims(-1)  # adds an axis to the indices

>>> compiled(Model() + Size() + ToTuple(1) + Linear(3), input=[2, 3])
ShapeError: cannot connect 'to_tuple_0.output' to 'linear_0.input'.
    output  static (6,)
    input   needs floating-point numbers (float32)
    found   int32
    Try: x.cast("float32")  # or a Cast(dtype="float32") before it

>>> compiled(Item(), input=[1, 3])
ShapeError: the input 'input' does not fit 'item.input'.
    given  (1, 3) float32
    input  needs one item
    found  axis 1: 3 != 1
    Try: Indexer(0)  # the first item

>>> compiled(Length(), input=[])
ShapeError: the input 'input' does not fit 'length.input'.
    given  () float32
    input  needs at least one axis
    found  rank 0
    Try: Size()  # counts the items of any array

>>> compiled(Size(2), input=[1, 3])
ShapeError: the input 'input' does not fit 'size.input'.
    given  (1, 3) float32
    input  needs an axis 2
    found  rank 2
    Try: use an axis from -2 to 1.

>>> compiled(Cast(), input=[2])
ShapeError: Cast at 'cast' cannot use dtype=None.
    dtype  needs a dtype that is known before the program runs
    Try: dtype="float32"

>>> compiled(Model() | Value(((1, 2), (3,)))(output="v") | ToTensor()(input="v") | Shape(), input=[])
ShapeError: cannot connect 'value_0.output' to 'to_tensor_0.input'.
    output  static ((1, 2), (3,))
    input   needs tuples of the same length at each depth
    found   lengths differ
    Try: use tuples of the same length, such as ((1, 2), (3, 4)).

>>> fit_or_raise(Ones())
ShapeError: Ones at 'ones' cannot use shape=None.
    shape  needs sizes
    Try: shape=(2, 3)  # or a connected shape: shape=x.shape()

>>> fit_or_raise(Randn((2, -1)))
ShapeError: Randn at 'randn' cannot use shape=(2, -1).
    shape  needs sizes of 0 or more
    found  shape=(2, -1)
    Try: shape=(2, 3)

>>> fit_or_raise(Arange())
ShapeError: Arange at 'arange' cannot use stop=None.
    stop  needs a number below 2**63
    Try: Arange(0, 10, 2)  # or stop=x.shape()[0], the size of an axis

>>> fit_or_raise(Arange(0, 5, 0))
ShapeError: Arange at 'arange' cannot use step=0.
    step  needs a number other than 0
    Try: Arange(0, 10, 2)  # or stop=x.shape()[0], the size of an axis

>>> fit_or_raise(Eye())
ShapeError: Eye at 'eye' cannot use N=None.
    N  needs a size of 0 or more
    Try: N=3  # or a connected size: N=x.shape()[0]

>>> fit_or_raise(RandInt((2,), 5, 5))
ShapeError: RandInt at 'rand_int' cannot use high=5.
    high   needs a number above low=5
    found  high=5
    Try: RandInt(shape, 5, 15)

>>> fit_or_raise(RandInt((2,), dtype="float32"))
ShapeError: RandInt at 'rand_int' cannot use dtype='float32'.
    dtype  needs an integer dtype
    found  float32
    Try: dtype="int32"

>>> fit_or_raise(Max(0), input=(0, 2))
ShapeError: the input 'input' does not fit 'max.input'.
    given  (0, 2) float32
    input  needs at least one item along axis -2
    found  axis -2: size 0
    Try: use an array with at least one item along axis -2.

>>> fit_or_raise(Min(0), input=(0, 2))
ShapeError: the input 'input' does not fit 'min.input'.
    given  (0, 2) float32
    input  needs at least one item along axis -2
    found  axis -2: size 0
    Try: use an array with at least one item along axis -2.

>>> fit_or_raise(ArgMax(0), input=(0, 2))
ShapeError: the input 'input' does not fit 'arg_max.input'.
    given  (0, 2) float32
    input  needs at least one item along axis -2
    found  axis -2: size 0
    Try: use an array with at least one item along axis -2.

>>> fit_or_raise(ArgMin(0), input=(0, 2))
ShapeError: the input 'input' does not fit 'arg_min.input'.
    given  (0, 2) float32
    input  needs at least one item along axis -2
    found  axis -2: size 0
    Try: use an array with at least one item along axis -2.

>>> Constant([[1, 2], [3]])
UnknownOptionError: Constant cannot take value=((1, 2), (3,)).
    needs  a number, or nested lists of numbers, of equal length at each depth
    Try: Constant([[1.0, 2.0], [3.0, 4.0]])

>>> Constant([[1], 2])
UnknownOptionError: Constant cannot take value=((1,), 2).
    needs  a number, or nested lists of numbers, of equal length at each depth
    Try: Constant([[1.0, 2.0], [3.0, 4.0]])

>>> Constant("abc")
UnknownOptionError: Constant cannot take value='abc'.
    needs  a number, or nested lists of numbers, of equal length at each depth
    Try: Constant([[1.0, 2.0], [3.0, 4.0]])

>>> Constant([None])
UnknownOptionError: Constant cannot take value=(None,).
    needs  a number, or nested lists of numbers, of equal length at each depth
    Try: Constant([[1.0, 2.0], [3.0, 4.0]])

>>> Model().__ior__(Add()(left="x", right=[[1], []]))
UnknownOptionError: Constant cannot take value=((1,), ()).
    needs  a number, or nested lists of numbers, of equal length at each depth
    Try: Constant([[1.0, 2.0], [3.0, 4.0]])

>>> Constant([1, 2**40])
UnknownOptionError: Constant cannot hold 1099511627776 in int32.
    needs  whole numbers from -2147483648 to 2147483647
    Try: Constant(1099511627776, dtype="float32")

>>> Constant(-1, dtype="uint8")
UnknownOptionError: Constant cannot hold -1 in uint8.
    needs  whole numbers from 0 to 255
    Try: Constant(-1, dtype="float32")

>>> Constant(10**400, dtype="float32")
UnknownOptionError: Constant cannot hold 100000000000000000000... in 64 bits.
    needs  whole numbers from -9223372036854775808 to 9223372036854775807
    Try: Constant(1e30)

>>> Indexer("a")
UnknownOptionError: Indexer cannot take index='a'.
    needs  whole numbers, slices, None, '...' and lists of numbers
    Try: Indexer((0, ("slice", 1, None, None)))

>>> Indexer(("slice", "a", None, None))
UnknownOptionError: Indexer cannot take index=('slice', 'a', None, None).
    needs  whole numbers, slices, None, '...' and lists of numbers
    Try: Indexer((0, ("slice", 1, None, None)))

>>> Indexer(1.5)
UnknownOptionError: Indexer cannot take index=1.5.
    needs  an index of whole numbers, slices, None, ... and arrays of numbers, not 1.5
    Try: Indexer((0, ("slice", 1, None, None)))

>>> IOKey(3)
UnknownOptionError: IOKey cannot take name=3.
    needs  a string, the name of a connection
    Try: IOKey("x")  # or IOKey(value=3.0) for a constant
""")  # noqa: E501 - as it is shown
def test_message(call: str, text: str):
    assert error_of(call) == text
