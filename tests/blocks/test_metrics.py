"""Metrics: ports, known results, edge cases, and rejected inputs."""

import numpy as np

from mithril_nb.models import (
    AUC,
    F1,
    Accuracy,
    ClassCounts,
    ConfusionMatrix,
    Precision,
    Recall,
    TopKAccuracy,
    TopKHits,
)
from tests.blocks.running import outputs


def test_a_chain_connects_to_the_predictions():
    for block in (Accuracy(), F1(), AUC(3), AUC(1), TopKAccuracy(), ConfusionMatrix(3)):
        assert block.inputs[0].name == "pred", block


def test_the_difference_shows_confused_classes():
    found = outputs(Accuracy(is_binary=True), pred=np.float32([0.9, 0.2, 0.7, 0.5]), label=np.int32([1, 1, 0, 0]))
    assert found["metric_out"].tolist() == [0, -1, 1, 0]  # the second was missed, the third a false alarm
    assert found["output"] == 0.5


def test_absent_classes_are_excluded_from_the_mean():
    found = outputs(Recall("macro", 5, is_pred_one_hot=False, is_label_one_hot=False), pred=[0, 1, 1], label=[0, 0, 1])
    assert found["n_classes"] == 2
    assert found["output"] == 0.75
    assert found["n_true_positive"].tolist() == [1, 1, 0, 0, 0]


def test_a_quotient_without_positives_is_zero():
    none = {"pred": np.float32([0.1, 0.2]), "label": np.int32([0, 0])}
    for kind in (Precision, Recall, F1):
        assert outputs(kind(is_binary=True), **none)["output"] == 0


def test_an_empty_batch():
    empty = {"pred": np.zeros((0, 3), "float32"), "label": np.zeros((0, 3), "float32")}
    assert np.isnan(outputs(Accuracy(), **empty)["output"])
    assert outputs(F1("macro", 3), **empty)["output"] == 0
    assert outputs(ConfusionMatrix(3), **empty)["output"].tolist() == np.zeros((3, 3)).tolist()


def test_invalid_class_indices_have_no_separate_counts():
    found = outputs(ClassCounts(2), pred=np.int32([0, 5, -1]), label=np.int32([0, 1, 1]))
    assert [found[port].tolist() for port in ClassCounts.output_ports] == [[1, 0], [0, 0], [0, 2]]


def test_an_undefined_area_is_nan():
    for scores, label in (([0.1, 0.2], [1, 1]), ([0.1, 0.2], [0, 0]), ([np.nan, 0.2], [0, 1])):
        assert np.isnan(outputs(AUC(1), pred=np.float32(scores), label=np.int32(label))["output"])


def test_infinite_scores_are_valid():
    found = outputs(AUC(1), pred=np.float32([np.inf, -np.inf, 0.0]), label=np.int32([1, 0, 0]))
    assert found["output"] == 1


def test_equal_scores_are_not_all_hits():
    hits = outputs(TopKHits(1), pred=np.zeros((3, 3), "float32"), label=np.int32([0, 1, 2]))["output"]
    assert hits.tolist() == [True, False, False]
    hits = outputs(TopKHits(2), pred=np.full((2, 3), np.nan, "float32"), label=np.int32([0, 1]))["output"]
    assert hits.tolist() == [False, False]
    hits = outputs(TopKHits(5), pred=np.zeros((2, 3), "float32"), label=np.int32([3, -1]))["output"]
    assert hits.tolist() == [False, False]
