"""Views of trained models against NumPy and scikit-learn: data, refusals and pictures."""

from __future__ import annotations

import re
import struct
import zlib
from base64 import b64decode
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

import mithril_nb as ml
from mithril_nb.compilation.values import histogram
from mithril_nb.errors import CheckpointError, DataError, UnknownOptionError
from mithril_nb.models import (
    BatchNorm,
    Dropout,
    Flatten,
    Linear,
    Model,
    MultiHeadAttention,
    Repeat,
    ScaledDotProduct,
    Sigmoid,
    TransformerEncoder,
)
from mithril_nb.train.views import Confusion
from mithril_nb.viz.values import sample_picture

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(37, 4)).astype("float32")
LABELS = DRAW.integers(0, 3, 37)


def _trained(model, data, **options):
    return ml.fit(model, data, epochs=1, batch_size=8, **options).wait()


def _logits(run, x=X):
    params = {name: np.float64(array) for name, array in run.params.items()}
    return x @ params["weight"] + params["bias"]


def _losses(logits, labels):
    shifted = logits - logits.max(-1, keepdims=True)
    shares = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return -np.take_along_axis(shares, labels[..., None], -1)[..., 0]


def test_confusion_and_worst_examples_are_those_of_numpy_and_scikit_learn():
    run = _trained(Linear(3), (X, LABELS))
    logits = _logits(run)
    matrix = ml.confusion(run, (X, LABELS), classes=["a", "b", "<i>"])
    np.testing.assert_array_equal(matrix.counts, confusion_matrix(LABELS, logits.argmax(1)))
    wrong = {pair[:2]: pair[2] for pair in matrix.mistakes}
    assert sum(wrong.values()) == (LABELS != logits.argmax(1)).sum()
    assert [*wrong.values()] == sorted(wrong.values(), reverse=True)
    losses = _losses(logits, LABELS)
    worst = ml.worst_examples(run, (X, LABELS), 5, classes=["a", "b", "<i>"])
    np.testing.assert_array_equal(worst.indices, np.argsort(-losses)[:5])
    np.testing.assert_allclose(worst.losses, np.sort(losses)[::-1][:5], rtol=1e-5)
    np.testing.assert_array_equal(worst.inputs["input"], X[worst.indices])
    assert worst.expected == tuple(["a", "b", "<i>"][label] for label in LABELS[worst.indices])
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert worst.predicted[0].endswith(f"({shares[worst.indices[0]].max():.0%})")
    for view in (matrix, worst):
        page = view._repr_mimebundle_()["text/html"]
        assert "&lt;i&gt;" in page
        assert "<i>" not in page


def test_validation_data_are_the_default():
    run = _trained(Linear(3), (X, LABELS), validation=0.4)
    assert ml.confusion(run).counts.sum() == len(ml.worst_examples(run, count=100).losses) == round(0.4 * 37)
    assert np.trace(ml.confusion(run).counts) / round(0.4 * 37) == pytest.approx(run.validation["accuracy"])
    assert ml.worst_examples(run, count=100).losses.mean() == pytest.approx(run.validation["loss"], rel=1e-5)


@pytest.mark.parametrize("backend", [ml.JaxBackend, ml.TorchBackend])
def test_predictions_are_those_of_an_evaluation(backend):
    images = DRAW.normal(size=(21, 2, 3, 3)).astype("float32")
    model = Model() + Flatten() + BatchNorm() + Dropout(0.5) + Linear(2)
    run = _trained(model, (images, LABELS[:21] % 2), backend=backend(), ema=0.5)
    data = images[:19], LABELS[:19] % 2
    scores, predictions = run.evaluate(data), run.predictions(data)
    assert predictions.losses.mean() == pytest.approx(scores["loss"], rel=1e-5)
    assert np.trace(ml.confusion(run, data).counts) / 19 == pytest.approx(scores["accuracy"])
    assert predictions.outputs.shape == (19, 2)


@pytest.mark.parametrize("weights", [(), (np.arange(37, dtype="float32"),)])
def test_losses_that_compare_samples_are_those_of_the_batches_of_an_evaluation(weights):
    sizes = []

    def spread(prediction, targets):
        sizes.append(len(prediction))
        return ((prediction - targets - prediction.mean(0)) ** 2)[:, 0]

    run = _trained(Linear(1), (X, X[:, :1]), loss=spread)
    sizes.clear()
    data = (X, X[:, :1], *weights)
    losses = run.predictions(data).losses
    assert {*sizes} == {8}
    assert np.average(losses, weights=weights[0] if weights else None) == pytest.approx(run.evaluate(data)["loss"])


def test_weights_of_tokens_count():
    x, labels = DRAW.normal(size=(9, 5, 4)).astype("float32"), DRAW.integers(0, 3, (9, 5))
    weights = DRAW.integers(0, 2, (9, 5)).astype("float32")
    weights[0] = 0
    run = _trained(Linear(3), (x, labels, weights))
    logits = _logits(run, x)
    matrix = ml.confusion(run, (x, labels, weights))
    by_hand = confusion_matrix(labels.ravel(), logits.argmax(-1).ravel(), sample_weight=weights.ravel())
    np.testing.assert_array_equal(matrix.counts, by_hand)
    means = (_losses(logits, labels) * weights).sum(1) / np.maximum(weights.sum(1), 1)
    worst = ml.worst_examples(run, (x, labels, weights), 9)
    kept = weights.any(1)
    np.testing.assert_allclose(worst.losses, np.sort(means[kept])[::-1], rtol=1e-5)
    assert 0 not in worst.indices
    assert worst.expected[0].startswith("[")


def test_one_logit_is_a_binary_class():
    run = _trained(Linear(1), (X, LABELS % 2), loss="binary_cross_entropy")
    matrix = ml.confusion(run, (X, LABELS % 2))
    np.testing.assert_array_equal(matrix.counts, confusion_matrix(LABELS % 2, _logits(run)[:, 0] > 0))
    assert ml.worst_examples(run, (X, LABELS % 2)).predicted[0][:3] in ("0 (", "1 (")


def test_samples_without_weight_are_no_worst_examples():
    weights = np.ones(37, "float32")
    run = _trained(Linear(3), (X, LABELS))
    order = np.argsort(-_losses(_logits(run), LABELS))
    weights[order[:2]] = 0
    assert ml.worst_examples(run, (X, LABELS, weights), 3).indices.tolist() == order[2:5].tolist()


@pytest.mark.parametrize("shape", [(37,), (37, 1)])
def test_binary_targets_of_both_shapes_have_classes(shape):
    targets = (LABELS % 2).reshape(shape)
    run = _trained(Linear(1), (X, targets), loss="binary_cross_entropy")
    worst = ml.worst_examples(run, (X, targets), 5, classes=["no", "yes"])
    assert worst.expected == tuple(["no", "yes"][label] for label in targets.ravel()[worst.indices])
    assert re.fullmatch(r"(no|yes) \(\d+%\)", worst.predicted[0])


def _entropy_of_probabilities(prediction, targets):
    shares = jnp.clip(prediction, 1e-6, 1 - 1e-6)
    return -jnp.where(targets == 1, jnp.log(shares), jnp.log(1 - shares))


def test_an_output_that_may_be_a_probability_has_no_class():
    data = X, LABELS[:, None] % 2
    run = _trained(Model() + Linear(1) + Sigmoid(), data, loss=_entropy_of_probabilities)
    with pytest.raises(UnknownOptionError, match="needs class labels and logits"):
        ml.confusion(run, data)
    assert ml.worst_examples(run, data).expected[0] in ("[0]", "[1]")
    with pytest.raises(UnknownOptionError, match="'f1' needs class labels and logits"):
        _trained(Linear(1), data, loss=_entropy_of_probabilities, metrics=("f1",))


@pytest.mark.parametrize("targets", [np.stack([LABELS % 2, LABELS // 2], 1), np.where(LABELS > 0, 0.9, 0.1)[:, None]])
def test_several_labels_of_a_sample_and_soft_targets_have_no_confusion(targets):
    run = _trained(Linear(targets.shape[1]), (X, targets), loss="binary_cross_entropy")
    with pytest.raises(UnknownOptionError, match="one logit of loss binary_cross_entropy"):
        ml.confusion(run, (X, targets))


def test_confusion_of_many_classes_is_refused():
    run = _trained(Linear(2001), (X, LABELS))
    with pytest.raises(UnknownOptionError, match="confusion of 2,001 classes is too large"):
        ml.confusion(run, (X, LABELS))


def test_a_loss_that_is_nan_is_the_worst():
    def root(prediction, targets):
        return jnp.sqrt(targets[:, 0]) + 0 * prediction[:, 0]

    targets = np.arange(1, 38, dtype="float32")[:, None]
    run = _trained(Linear(1), (X, targets), loss=root)
    worst = ml.worst_examples(run, (X, np.where(targets == 5, -1, targets)), 3)
    assert worst.indices.tolist() == [4, 36, 35]
    assert np.isnan(worst.losses[0])
    assert "nan" in str(worst)


def test_several_outputs_have_texts():
    model = Model()
    model |= Linear(1, name="first")(input="input", output="a")
    model |= Linear(2, name="second")(input="input", output="b")
    data = X, {"a": X[:, :1], "b": LABELS % 2}
    run = _trained(model, data, loss={"a": "mean_squared_error", "b": "cross_entropy"})
    worst = ml.worst_examples(run, data, 2)
    assert re.fullmatch(r"a \[[-\d.]+\], b [01]", worst.expected[0])
    assert worst.losses[0] >= worst.losses[1]
    with pytest.raises(UnknownOptionError, match=r"several outputs"):
        ml.confusion(run, data)


REFUSED = {
    "no data": (lambda run: ml.confusion(run), DataError, "this run has no validation data."),
    "numbers": (lambda run: ml.confusion(run, (X, X[:, :1])), UnknownOptionError, "needs class labels and logits"),
    "scalar": (lambda run: ml.worst_examples(run, (X, X[:, :1])), UnknownOptionError, "one number for all samples"),
    "model": (lambda run: ml.confusion(run.module, (X, LABELS)), UnknownOptionError, "confusion needs a run of ml.fit"),
    "bins": (lambda run: ml.histograms(run, 0), UnknownOptionError, "bins"),
    "text": (lambda run: ml.histograms({"a": "text"}), UnknownOptionError, "no numbers  a"),
    "empty": (lambda run: ml.histograms({}), UnknownOptionError, "needs a run of ml.fit, or params"),
    "same name": (
        lambda run: ml.histograms({"layer.w": X, "layer": {"w": LABELS, "b": X}}),
        UnknownOptionError,
        "names  layer.w",
    ),
    "key": (lambda run: ml.histograms({"a": X, "b": jax.random.key(0)}), UnknownOptionError, "no numbers  b"),
    "attention": (lambda run: ml.attention_maps(run, X), UnknownOptionError, "no ScaledDotProduct block"),
    "function": (lambda run: ml.attention_maps(abs, X), UnknownOptionError, "not builtin_function_or_method"),
}


@pytest.fixture(scope="module")
def run_of_numbers():
    return _trained(Linear(1), (X, X[:, :1]), loss=lambda prediction, targets: abs(prediction - targets).mean())


@pytest.mark.parametrize(("refused", "error", "text"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_apply_is_refused(refused, error, text, run_of_numbers):
    with pytest.raises(error) as raised:
        refused(run_of_numbers)
    assert text in str(raised.value)


def test_names_must_fit_and_nan_has_no_class():
    run = _trained(Linear(3), (X, LABELS))
    with pytest.raises(UnknownOptionError, match="the model has 3 classes"):
        ml.confusion(run, (X, LABELS), classes=["a"])
    run._state.params = {name: array * np.nan for name, array in run.params.items()}
    with pytest.raises(DataError, match="37 of 37 predictions are NaN"):
        ml.confusion(run, (X, LABELS))
    assert ml.worst_examples(run, (X, LABELS)).predicted[0] == "NaN"


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 9), max_size=2),
    st.sampled_from(["float32", "bfloat16", "float64", "complex64", "int32"]),
    st.sampled_from([0.0, 1e-30, 1.0, 1e30]),
    st.integers(1, 9),
    st.integers(0, 2**32 - 1),
)
def test_histograms_are_those_of_numpy(shape, dtype, scale, bins, seed):
    draw = np.random.default_rng(seed)
    values = draw.normal(size=shape) * (9 if dtype == "int32" else scale)
    if dtype != "int32":
        values = np.where(draw.random(shape) < 0.1, np.nan, values)
    array = np.asarray(values).astype(jnp.dtype(dtype))
    result = ml.histograms({"outer": {"a": array}}, bins)
    exact = np.abs(array).astype(float) if dtype == "complex64" else array.astype(float)
    finite = exact[np.isfinite(exact)]
    counts, edges = result.counts["outer.a"], result.edges["outer.a"]
    assert counts.sum() == finite.size
    assert len(counts) == bins
    for at in range(bins):
        inside = (finite >= edges[at]) & ((finite <= edges[at + 1]) if at == bins - 1 else (finite < edges[at + 1]))
        assert counts[at] == inside.sum()
    assert result.statistics["outer.a"].nan == array.size - finite.size


@pytest.mark.parametrize("values", [[-1.7e308, 0.0, 1.7e308], [1e30, 1e30, 1e30], [1.0, 1.0, 1 + 2**-52], [5e-324] * 3])
def test_histograms_of_extreme_numbers(values):
    counts, edges = histogram(np.array(values), 3)
    assert counts.tolist() == ([1, 1, 1] if len({*values}) == 3 else [0, 3, 0])
    assert (np.isfinite(edges).all(), edges[0] <= values[0], edges[-1] >= values[-1]) == (True, True, True)


@pytest.mark.parametrize("bins", [3, 24])
@pytest.mark.parametrize("values", [[1e9, 1e9 + 0.05, 1e9 + 0.1], [1.0, 1 + 2**-52], [-3.0, -3 + 2**-50, -3 + 2**-49]])
def test_edges_of_close_numbers_are_close(values, bins):
    counts, edges = histogram(np.array(values), bins)
    room = 4 * bins * np.spacing(np.abs(values).max())
    assert values[0] - room <= edges[0] <= values[0] <= values[-1] <= edges[-1] <= values[-1] + room
    for at in range(bins):
        assert counts[at] == sum(edges[at] <= x < edges[at + 1] or x == edges[bins] == edges[at + 1] for x in values)
    if bins == 3 and values[0] == 1e9:
        np.testing.assert_array_equal(edges, np.histogram(values, 3)[1])


def test_histograms_of_a_run():
    run = _trained(Linear(3), (X, LABELS))
    result = ml.histograms(run)
    assert result.counts.keys() == {"weight", "bias"}
    assert "3 × 4" in str(result) or "4 × 3" in str(result)


def _attention(query, key, *, is_causal=False, lengths=None):
    """Return attention weights in float64."""
    key = np.repeat(key, query.shape[1] // key.shape[1], axis=1)
    scores = np.einsum("bhqe,bhke->bhqk", query, key) / np.sqrt(query.shape[-1])
    seen = np.tril(np.ones(scores.shape[-2:], bool)) if is_causal else np.ones(scores.shape[-2:], bool)
    seen = np.broadcast_to(seen, scores.shape)
    if lengths is not None:
        seen = seen & (np.arange(scores.shape[-1]) < lengths[:, None, None, None])
    weights = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total > 0, total, 1)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize(
    "options", [{"is_causal": True}, {"is_causal": False}, {"use_lengths": True, "is_causal": True}]
)
def test_attention_weights_are_those_of_numpy(heads, options):
    count, kv = heads
    arrays = {"query": (2, count, 5, 3), "key": (2, kv, 5, 3), "value": (2, kv, 5, 6)}
    inputs = {name: DRAW.normal(size=shape).astype("float32") for name, shape in arrays.items()}
    exact = {"is_causal": options["is_causal"]}
    if "use_lengths" in options:
        inputs["lengths"] = np.array([3, 0], "int32")
        exact["lengths"] = inputs["lengths"]
    pm = ml.compile(ScaledDotProduct(**options), shapes={name: array.shape for name, array in inputs.items()})
    (weights,) = ml.attention_maps(pm, inputs, {}).weights.values()
    query, key = (np.float64(inputs[name]) for name in ("query", "key"))
    np.testing.assert_allclose(weights, _attention(query, key, **exact), atol=1e-6)


def test_attention_maps_of_a_run():
    x = DRAW.normal(size=(12, 5, 8)).astype("float32")
    model = Model() + TransformerEncoder(2, 8, 2, dropout=0.3, is_causal=True) + Linear(3)
    run = _trained(model, (x, DRAW.integers(0, 3, (12, 5))))
    maps = ml.attention_maps(run, x[:2])
    paths = [f"transformer_encoder_0/block_{at}/attention/attention" for at in (0, 1)]
    assert [*maps.weights] == paths
    traced = run.module.trace_values({"input": x[:2]}, run.params).values
    split = {port: np.float64(traced[f"{paths[0].removesuffix('attention')}split.{port}"]) for port in ("query", "key")}
    np.testing.assert_allclose(maps.weights[paths[0]], _attention(**split, is_causal=True), atol=1e-5)
    assert "2 × 2 × 5 × 5" in str(maps)
    ElementTree.fromstring(f"<p>{re.search('<table.*</table>', maps._repr_mimebundle_()['text/html'], re.S)[0]}</p>")


def test_attention_maps_of_an_emitted_model_and_of_repeated_blocks():
    x = DRAW.normal(size=(2, 5, 8)).astype("float32")
    block = MultiHeadAttention(8, 2)
    ours, torch = (ml.compile(block, backend, shapes={"input": [2, 5, 8]}) for backend in (None, ml.TorchBackend()))
    params = ours.randomize_params(0)
    maps = [
        ml.attention_maps(pm, x, values).weights for pm, values in ((ours, params), (torch, torch.randomize_params(0)))
    ]
    jax.tree.map(np.testing.assert_array_equal, *maps)
    pm = ml.compile(Repeat(block, 2), shapes={"input": [2, 5, 8]})
    with pytest.raises(UnknownOptionError, match="inside Repeat"):
        ml.attention_maps(pm, x, pm.randomize_params(0))


def _pixels(svg: str) -> np.ndarray:
    png = b64decode(re.search(r"base64,([^\"]*)", svg)[1])
    wide, tall = struct.unpack(">II", png[16:24])
    start = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[start - 4 : start])
    rows = np.frombuffer(zlib.decompress(png[start + 4 : start + 4 + length]), np.uint8)
    return rows.reshape(tall, 1 + 3 * wide)[:, 1:].reshape(tall, wide, 3)


def test_pictures_of_colour_images_have_their_pixels():
    image = DRAW.integers(0, 256, (5, 7, 3)).astype("uint8")
    for sample in (image, np.moveaxis(image, -1, 0), image / 255):
        np.testing.assert_array_equal(_pixels(sample_picture(sample, 90, 90)), image)
    assert "heat map" in sample_picture(image[..., :1], 90, 90)
    assert sample_picture(np.array([3, 1]), 90, 90) == "[3 1]"


def test_pictures_of_large_colour_images_are_averaged_to_the_drawn_size():
    image = DRAW.integers(0, 256, (300, 403, 3)).astype("uint8")
    pixels = _pixels(sample_picture(image, 20, 20))  # drawn as 20 × 14.9 px
    rows, columns = np.arange(30) * 300 // 29, np.arange(41) * 403 // 40
    assert pixels.shape == (29, 40, 3)
    for row in range(29):
        for column in range(40):
            part = image[rows[row] : rows[row + 1], columns[column] : columns[column + 1]]
            np.testing.assert_allclose(pixels[row, column], part.reshape(-1, 3).mean(0), atol=0.51)
    assert "image of 403 × 300 pixels" in sample_picture(image, 20, 20)


def test_a_large_confusion_matrix_lists_its_mistakes():
    counts = np.eye(30) * 5
    counts[3, 7], counts[2, 1] = 4, 2
    view = Confusion(counts, tuple(map(str, range(30))))
    assert str(view).splitlines()[1:] == [
        "class  predicted  count",
        "3      7              4",
        "2      1              2",
    ]
    assert view._repr_mimebundle_()["text/html"].count("<image") == 1
    assert repr(view) == "Confusion(counts, classes)"
    none = Confusion(np.diag([1234567.0, 0.0]), ("a", "b"))
    assert [line.split() for line in str(none).splitlines()[-2:]] == [
        ["a", "1234567", "0", "100", "%"],
        ["b", "0", "0", "unknown"],
    ]


def test_views_of_a_stored_run(tmp_path):
    x = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    y, model = (x[:, 0] > 0).astype(int), Linear(2)
    live = ml.fit(model, (x, y), validation=(x, y), epochs=1, track=str(tmp_path / "runs" / "a")).wait()
    run = ml.runs(tmp_path / "runs")["a"]
    stored, own = ml.histograms(run), ml.histograms(live)
    assert stored.counts.keys() == own.counts.keys()
    for name, counts in own.counts.items():
        np.testing.assert_array_equal(stored.counts[name], counts)
    for view in (ml.confusion, ml.worst_examples):
        advice = rf"Try: ml\.{view.__name__}\(ml.fit\(model, data, params=run.restore\(params\)\), data\)"
        with pytest.raises(UnknownOptionError, match=rf"needs the model of the run\.\n +run +a\n(.*\n)*.*{advice}"):
            view(run, (x, y))
    with pytest.raises(UnknownOptionError, match=r"Try: ml\.attention_maps\(pm, inputs, run\.restore\("):
        ml.attention_maps(run, x)
    again = ml.fit(model, (x, y), params=run.restore(live.params))  # as advised
    np.testing.assert_array_equal(ml.confusion(again, (x, y)).counts, ml.confusion(live).counts)


def test_histograms_of_a_stored_loop_have_names_of_its_state(tmp_path):
    with ml.track(tmp_path / "runs" / "b", checkpoint_every=1) as run:
        run.log({"loss": 1.0}, state=({"w": np.arange(3.0), "layers": [np.zeros(2)]}, np.float32(2)))
    stored = ml.runs(tmp_path / "runs")["b"]
    counts = ml.histograms(stored, bins=3).counts
    assert {name: array.sum() for name, array in counts.items()} == {"0.w": 3, "0.layers.0": 2, "1": 1}
    with ml.track(tmp_path / "runs" / "c") as run:
        run.log({"loss": 1.0})
    with pytest.raises(CheckpointError, match="'c' has no checkpoint"):
        ml.histograms(ml.runs(tmp_path / "runs")["c"])
