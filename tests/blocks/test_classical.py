"""Classical models: ports, known results, rejected inputs, and results of training."""

import jax
import numpy as np
import pytest
from scipy.spatial import distance
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import mithril_nb as ml
from mithril_nb.models import (
    MDS,
    TSNE,
    Cholesky,
    DistanceEncoder,
    DistanceMatrix,
    Eigvalsh,
    EncoderDistanceMatrix,
    GaussProcessRegressionCore,
    GPRAlpha,
    KernelizedSVM,
    MDSCore,
    Model,
    NormModifier,
    PolynomialFeatures,
    PolynomialKernel,
    RBFKernel,
    TSNECore,
    TsnePJoint,
)
from tests.blocks.running import fit_or_raise, gradients, outputs


def test_the_perplexity_has_both_spellings():
    for block in (TSNE(2, preplexity=7.0, calculate_p_joint=True), TSNE(2, perplexity=7.0, calculate_p_joint=True)):
        values = [node.block.options.get("value") for _, node in block.graph.walk()]
        assert 7.0 in values


def test_the_degree_may_be_connected():
    model = Model()
    model |= PolynomialFeatures(3)(input="input", output="output")
    assert fit_or_raise(model, input=(5, 2))["output"].shape == (5, 9)
    assert fit_or_raise(PolynomialFeatures(2), input=("n", "d"))["output"].shape == ("n", "(d+1)*(d+2)//2-1")


def test_orders_from_1_to_5_are_unchanged():
    x = np.float32([1, 2.5, 5, 6, 9, 0, -3, 13])
    assert outputs(NormModifier(), input=x)["output"].tolist() == [1, 2.5, 5, 4, 1, 2, 5, 5]


def test_every_point_has_the_requested_perplexity():
    squares = distance.squareform(distance.pdist(np.random.default_rng(0).normal(size=(30, 3)), "sqeuclidean"))
    for scale in (1e-6, 1.0, 1e6):
        found = outputs(TsnePJoint(), squared_distances=np.float32(scale * squares), target_perplexity=np.float32(5))
        joint = np.asarray(found["output"])
        assert abs(joint.sum() - 1) < 1e-5
        np.testing.assert_allclose(joint, joint.T, rtol=1e-6)
        assert (np.diagonal(joint) == 0).all()


def test_an_impossible_perplexity_gives_uniform_weights():
    squares = np.float32([[0, 1, 4], [1, 0, 9], [4, 9, 0]])
    joint = outputs(TsnePJoint(), squared_distances=squares, target_perplexity=np.float32(50))["output"]
    np.testing.assert_allclose(joint, (1 - np.eye(3)) / 6, atol=1e-6)
    same = outputs(TsnePJoint(), squared_distances=np.zeros((3, 3), "float32"), target_perplexity=np.float32(2))
    np.testing.assert_allclose(same["output"], (1 - np.eye(3)) / 6, atol=1e-6)


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, 3.0])
def test_coinciding_points_have_finite_gradients(norm: float):
    points = np.zeros((3, 2), "float32")
    order = np.float32(norm)
    for block in (DistanceMatrix(), EncoderDistanceMatrix()):
        named = block.input_ports[:2] if isinstance(block, DistanceMatrix) else ("input1", "input2")
        for gradient in gradients(block, norm=order, **dict.fromkeys(named, points)).values():
            assert np.isfinite(gradient).all()
    distances = np.float32(1 - np.eye(3))
    for gradient in gradients(MDSCore(), distances=distances, pred_distances=distances, norm=order).values():
        assert np.isfinite(gradient).all()
    for gradient in gradients(TSNECore(), p_joint=distances / 6, pred_distances=0 * distances).values():
        assert np.isfinite(gradient).all()


def test_a_polynomial_kernel_may_be_negative():
    found = outputs(PolynomialKernel(), input1=[[1.0, -1.0]], input2=[[-2.0, 1.0]], poly_coef=1.0, degree=np.float32(3))
    assert found["output"] == -8


def test_a_matrix_without_a_cholesky_factor_gives_nan():
    assert np.isnan(outputs(Cholesky(), input=np.float32([[1, 2], [2, 1]]))["output"]).any()


def test_a_gaussian_process_agrees_with_scikit_learn():
    random = np.random.default_rng(0)
    x, new, label = random.normal(size=(6, 2)), random.normal(size=(3, 2)), random.normal(size=6)
    kernel = ConstantKernel(1.5**2) * RBF(0.8)
    theirs = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None).fit(x, label)
    mean, deviation = theirs.predict(new, return_std=True)

    def made(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        given = {"input1": np.float32(a), "input2": np.float32(b), "l_scale": np.float32(0.8), "sigma": np.float32(1.5)}
        return outputs(RBFKernel(), **given)["output"]

    found = outputs(
        GaussProcessRegressionCore(new_points=True),
        k=made(x, x),
        k_cross=made(x, new),
        k_star=made(new, new),
        s=np.float32(0.1),
        mu=np.float32(0),
        label=np.float32(label[:, None]),
    )
    np.testing.assert_allclose(found["prediction"][:, 0], mean, 1e-3, 1e-4)
    np.testing.assert_allclose(found["confidence"][:, 0], deviation**2, 1e-3, 1e-4)
    np.testing.assert_allclose(found["loss"], -theirs.log_marginal_likelihood_value_, 1e-4)


def test_a_gaussian_process_works_without_a_cholesky_factor():
    near = np.float32([[1, 1 + 1e-6], [1 + 1e-6, 1]])
    given = {"k": near, "k_star": near, "s": np.float32(0), "mu": np.float32(0), "label": np.float32([[1], [1]])}
    found = outputs(GaussProcessRegressionCore(), **given)
    assert all(np.isfinite(one).all() for one in found.values())
    np.testing.assert_allclose(found["prediction"], [[1], [1]], atol=1e-2)
    assert all(np.isfinite(one).all() for one in gradients(GaussProcessRegressionCore(), **given).values())


def test_linear_algebra_accepts_16_bits():
    matrix = np.float16([[2, 1], [1, 2]])
    root = outputs(Cholesky(), input=matrix)["output"]
    assert root.dtype == "float16"
    assert outputs(Eigvalsh(), K_term=matrix, L=root)["output"].dtype == "float16"
    assert outputs(GPRAlpha(), K_term=matrix, L=root, label_mu_diff=np.float16([1, 2]))["output"].dtype == "float16"


def test_scaling_recovers_distances():
    points = np.random.default_rng(0).normal(size=(8, 2))
    wanted = np.float32(distance.squareform(distance.pdist(points)))
    pm = ml.compile(MDS(2), shapes={"input": [8, 8], "norm": []})
    params = pm.randomize_params(0)
    given = {"input": wanted, "norm": np.float32(2)}
    start = pm.evaluate(params, given)["output"]

    @jax.jit
    def step(_, params):
        slopes = jax.grad(lambda params: pm.forward(params, given)["output"])(params)
        return jax.tree.map(lambda one, slope: one - 5 * slope, params, slopes)

    params = jax.lax.fori_loop(0, 2000, step, params)
    found = pm.evaluate(params, given)
    assert found["predicted_coords"].shape == (8, 2)
    assert found["output"] < 0.25 * start  # gradient descent may end in a local minimum


def test_a_model_with_a_block_argument_survives_a_file():
    for block in (KernelizedSVM(RBFKernel()), DistanceEncoder(MDSCore(), prediction_dim=2), MDS(2), TSNE(2)):
        assert ml.models.from_dict(ml.models.to_dict(block.graph)).graph == block.graph
