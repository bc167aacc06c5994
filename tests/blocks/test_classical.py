"""Classical models: ports, known results, rejected inputs, and results of training."""

import jax
import numpy as np
from scipy.spatial import distance

import mithril_nb as ml
from mithril_nb.models import (
    MDS,
    TSNE,
    Cholesky,
    DistanceEncoder,
    Eigvalsh,
    GaussProcessRegressionCore,
    GPRAlpha,
    KernelizedSVM,
    MDSCore,
    RBFKernel,
    TSNECore,
    TsnePJoint,
)
from tests.blocks.running import gradients, outputs


def test_the_perplexity_has_both_spellings():
    for block in (TSNE(2, preplexity=7.0, calculate_p_joint=True), TSNE(2, perplexity=7.0, calculate_p_joint=True)):
        values = [node.block.options.get("value") for _, node in block.graph.walk()]
        assert 7.0 in values


def test_every_point_has_the_requested_perplexity():
    squares = distance.squareform(distance.pdist(np.random.default_rng(0).normal(size=(30, 3)), "sqeuclidean"))
    for scale in (1e-6, 1.0, 1e6):
        found = outputs(TsnePJoint(), squared_distances=np.float32(scale * squares), target_perplexity=np.float32(5))
        joint = np.asarray(found["output"])
        assert abs(joint.sum() - 1) < 1e-5
        np.testing.assert_allclose(joint, joint.T, rtol=1e-6)
        assert (np.diagonal(joint) == 0).all()


def test_a_gaussian_process_works_without_a_cholesky_factor():
    near = np.float32([[1, 1 + 1e-6], [1 + 1e-6, 1]])
    given = {"k": near, "k_star": near, "s": np.float32(0), "mu": np.float32(0), "label": np.float32([[1], [1]])}
    found = outputs(GaussProcessRegressionCore(), **given)
    assert all(np.isfinite(one).all() for one in found.values())
    np.testing.assert_allclose(found["prediction"], [[1], [1]], atol=1e-2)
    assert all(np.isfinite(one).all() for one in gradients(GaussProcessRegressionCore(), **given).values())


def test_coinciding_neighbours_have_finite_gradients():
    distances = np.float32(1 - np.eye(3))
    for gradient in gradients(TSNECore(), p_joint=distances / 6, pred_distances=0 * distances).values():
        assert np.isfinite(gradient).all()


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
