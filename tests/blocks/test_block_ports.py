"""Ports and arguments have the usual names, mostly those of Mithril."""

import pytest

from mithril_nb import models
from mithril_nb.models import KINDS, Log, Sqrt
from mithril_nb.models.library.operations import activations
from tests.blocks.cases.elementwise import COMPARISONS, ON_TRUTHS, SHIFTS

PORTS = """
SquaredError(): input target -> output
AbsoluteError(): input target -> output
HingeLoss(): input target -> output
QuadHingeLoss(): input target -> output
QuantileLoss(quantile=0.5): input target quantile -> output
CrossEntropy(input_type="logits", weights="", robust=False, threshold=1e-7, categorical=True):
    input target weights threshold robust -> output
CrossEntropy(categorical=False): input target weights threshold robust -> output
KLDivergence(threshold=1e-7): input target threshold -> output
BinaryCrossEntropy(input_type="logits", pos_weight=1.0, threshold=1e-7, robust=False):
    input target pos_weight threshold robust -> output
L1(): input -> output
L2(): input -> output
QuadraticFormRegularizer(): kernel input -> output
NormModifier(): input -> output
DistanceMatrix(): left right norm -> output
PolynomialFeatures(): input degree -> output
TsnePJoint(threshold=1e-7): squared_distances target_perplexity threshold -> output
Cholesky(): input -> output
GPRAlpha(): label_mu_diff L K_term -> output
GPRVOuter(): K K_term L -> output
Eigvalsh(threshold=1e-7): K_term L threshold -> output
RBFKernel(): input1 input2 l_scale sigma -> output
PolynomialKernel(robust=True): input2 input1 poly_coef degree -> output
KernelizedSVM(kernel=PolynomialKernel()): input2 input1 poly_coef degree weight bias -> output
LinearSVM(): input weight bias -> output decision_output
LogisticRegression(): input weight bias -> output probs_output
PolynomialRegression(degree=2, dimension=None): input weight bias -> output
EncoderDistanceMatrix(get_final_distance=True, robust=True): norm input1 input2 -> output
MDSCore(exact_distances=True, robust=True): norm distances pred_distances -> output
TSNECore(exact_distances=True, calculate_p_joint=False, perplexity=20.0): pred_distances p_joint -> output
TSNECore(calculate_p_joint=True): distances pred_distances -> output
DistanceEncoder(base_model=MDSCore(), input_type="points"): input coords norm -> output predicted_coords
MDS(prediction_dim=2, input_type="distances"): input coords norm -> output predicted_coords
TSNE(prediction_dim=2, input_type="distances", preplexity=20.0, calculate_p_joint=True):
    input coords norm -> output predicted_coords
TSNE(prediction_dim=2): input coords norm p_joint -> output predicted_coords
GPRLoss(robust=False): labels mu alpha K_term L -> output
GaussProcessRegressionCore(): k s label mu k_star -> loss prediction confidence
Accuracy(threshold=None, is_binary=False, is_pred_one_hot=True, is_label_one_hot=True):
    pred label -> pred_formatted label_formatted metric_out output
Precision(average="micro", n_classes=None, threshold=None, is_binary=False, is_pred_one_hot=True, is_label_one_hot=True):
    pred label -> pred_formatted label_formatted metric_out n_classes n_true_positive n_false_positive n_false_negative output
Recall(average="micro", n_classes=None, threshold=None, is_binary=False, is_pred_one_hot=True, is_label_one_hot=True):
    pred label -> pred_formatted label_formatted metric_out n_classes n_true_positive n_false_positive n_false_negative output
F1(average="micro", n_classes=None, threshold=None, is_binary=False, is_pred_one_hot=True, is_label_one_hot=True):
    pred label -> pred_formatted label_formatted metric_out n_classes n_true_positive n_false_positive n_false_negative output
AUC(3, is_label_one_hot=True): pred label -> label_argmax output
AUCCore(): input label -> output
PrimitiveConvolution1D(): input weight bias stride padding dilation -> output
PrimitiveConvolution2D(): input weight bias stride padding dilation groups -> output
PrimitiveMaxPool1D(): input kernel_size stride padding dilation -> output
PrimitiveMaxPool2D(): input kernel_size stride padding dilation -> output
PrimitiveAvgPool2D(): input kernel_size stride padding dilation -> output
MaxPool1D(): input kernel_size stride padding dilation -> output
MaxPool2D(): input kernel_size stride padding dilation -> output
AvgPool2D(): input kernel_size stride padding dilation -> output
Convolution1D(): input weight bias stride padding dilation -> output
Convolution2D(): input weight bias stride padding dilation groups -> output
ElementWiseAffine(): input weight bias -> output
LayerNorm(): input weight bias -> output
GroupNorm(): input weight bias -> output
BatchNorm2D(): input weight bias running_mean running_var -> output
Arange(): start stop step dtype -> output
Eye(2): N M dtype -> output
EyeComplement(2): N M dtype -> output
Ones((2,)): shape dtype -> output
Randn((2,)): shape dtype key -> output
PrimitiveRandInt((2,)): shape low high dtype key -> output
ToList(3): input1 input2 input3 -> output
ToTuple(): input -> output
Slice(): start stop step -> output
Cast("int32"): input dtype -> output
Size(): input dim -> output
Concat(3): input1 input2 input3 axis -> output
Flatten(start_dim=0, end_dim=-1): input start_dim end_dim -> output
Split(split_size=2, axis=0): input split_size axis -> output
Indexer(): input index -> output
ScaledDotProduct(use_attn_mask=True): query key value attn_mask dropout_p is_causal scale -> output
PositionalEncoding(8): input hidden_dim max_len -> output
Log(robust=True, threshold=1e-6): input -> output
Sqrt(robust=True, threshold=1e-6): input -> output
Sign(): input -> output
Square(): input -> output
StopGradient(): input -> output
Absolute(): input -> output
Negate(): input -> output
Exponential(): input -> output
Sine(): input -> output
Cosine(): input -> output
Floor(): input -> output
Buffer(): input -> output
Add(): left right -> output
Subtract(): left right -> output
Multiply(): left right -> output
Minimum(): left right -> output
Maximum(): left right -> output
MatrixMultiply(): left right -> output
Divide(): numerator denominator -> output
FloorDivide(): numerator denominator -> output
StableReciprocal(threshold=1e-6): input threshold -> output
Power(robust=True, threshold=1e-6): base exponent -> output
Clamp(): input min_val max_val -> output
NanToNum(nan=1.0, posinf=2.0, neginf=3.0): input nan posinf neginf -> output
Greater(): left right -> output
Less(): left right -> output
Equal(): left right -> output
NotEqual(): left right -> output
LessEqual(): left right -> output
GreaterEqual(): left right -> output
LogicalAnd(): left right -> output
LogicalOr(): left right -> output
LogicalXOr(): left right -> output
ShiftLeft(): input shift -> output
ShiftRight(): input shift -> output
IsNan(): input -> output
LogicalNot(): input -> output
Where(): cond input1 input2 -> output
Mean(axis=-1, keepdim=True): input -> output
Sum(axis=-1, keepdim=True): input -> output
Max(axis=-1, keepdim=True): input -> output
Min(axis=-1, keepdim=True): input -> output
Prod(axis=-1, keepdim=True): input -> output
ArgMax(axis=-1, keepdim=True): input -> output
ArgMin(axis=-1, keepdim=True): input -> output
Variance(axis=-1, keepdim=True): input correction -> output
Trapezoid(): y x -> output
Unique(): input -> output
"""  # noqa: E501 - one line for all outputs
"""Calls, with the names of all inputs and outputs."""
ARGUMENTS = {
    "PrimitiveConvolution1D": "use_bias",
    "PrimitiveConvolution2D": "use_bias",
    "PrimitiveMaxPool1D": "kernel_size stride padding dilation",
    "PrimitiveMaxPool2D": "kernel_size stride padding dilation",
    "PrimitiveAvgPool2D": "kernel_size stride padding dilation",
    "MaxPool1D": "kernel_size stride padding dilation",
    "MaxPool2D": "kernel_size stride padding dilation",
    "AvgPool2D": "kernel_size stride padding dilation",
    "Convolution1D": "kernel_size out_channels stride padding dilation use_bias",
    "Convolution2D": "kernel_size out_channels stride padding dilation groups use_bias",
    "ElementWiseAffine": "",
    "LayerNorm": "use_scale use_bias eps",
    "GroupNorm": "num_groups use_scale use_bias eps",
    "BatchNorm2D": "num_features use_scale use_bias eps momentum inference",
    "Flatten": "start_dim end_dim",
    **dict.fromkeys(("Log", "Sqrt", "Power"), "robust threshold"),
    "StableReciprocal": "threshold",
    "NanToNum": "nan posinf neginf",
    "LeakyRelu": "slope",
    "Softmax": "axis",
    **dict.fromkeys(("Mean", "Sum", "Max", "Min", "Prod", "ArgMax", "ArgMin"), "axis keepdim"),
    "Variance": "axis keepdim correction",
    **dict.fromkeys(("SiLU", *COMPARISONS, *ON_TRUTHS, *SHIFTS, "IsNan", "LogicalNot", "Where"), ""),
}


@pytest.mark.parametrize("line", PORTS.replace(":\n", ":").strip().splitlines())
def test_ports_have_the_usual_names(line: str):
    call, _, named = line.partition("): ")
    block = eval(f"{call})", dict(vars(models)))
    ports = [[port.name for port in ports] for ports in (block.inputs, block.outputs)]
    assert ports == [part.split() for part in named.split("->")]


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_arguments_have_the_usual_names(kind: str):
    assert list(KINDS[kind]().options)[: len(ARGUMENTS[kind].split()) or None] == ARGUMENTS[kind].split()


@pytest.mark.parametrize("kind", [kind for kind in activations.__all__ if kind != "Dropout"])
def test_ports_of_activations(kind: str):
    block = KINDS[kind]()
    more = ("slope",) if kind == "LeakyRelu" else ()
    assert tuple(port.name for port in (*block.inputs, *block.outputs)) == ("input", *more, "output")


def test_a_name_follows_the_arguments():
    assert [kind(True, name="root").name for kind in (Log, Sqrt)] == ["root", "root"]
