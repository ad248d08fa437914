"""Embeddings by the angle to the float model's."""

import numpy as np
import pytest
from qprof_onnx.profiles.base.errors import ModelError
from qprof_onnx.quantizer.evaluation.metrics.truth import Place

from ...evaluation.running import opened


def test_cosine_scores_the_first_output_of_float_vectors() -> None:
    ids, vectors = np.array([[3, 4]]), np.array([[1.0, 0.0]], np.float32)
    metric = opened("cosine", {"tokens": ids, "embedding": vectors})
    assert metric.reads == "embedding"
    truth, _ = metric.truth(Place(0, "a"), {"tokens": ids, "embedding": vectors})
    assert metric.scored(truth, {"tokens": ids, "embedding": vectors[:, ::-1]}).tolist() == [0.0]


@pytest.mark.parametrize("values", [np.array([[3, 4]]), np.array([[2.5]], np.float32)])
def test_cosine_refuses_an_output_without_directions(values: np.ndarray) -> None:
    with pytest.raises(ModelError, match="no directions to compare by cosine"):
        opened("cosine", {"y": values})
