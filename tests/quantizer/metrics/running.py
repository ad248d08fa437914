from typing import Any

import numpy as np
from qprof_onnx.quantizer.metrics.score import Score, score_of
from qprof_onnx.quantizer.metrics.values import Metric, Outputs, Place


def scored(metric: Metric, floats: list[Outputs], quantized: list[Outputs], first: int = 0) -> Score:
    """Return the score of outputs of samples that begin at an index."""
    kept: list[tuple[Any, Any]] = []
    row = 0
    for index, (f, q) in enumerate(zip(floats, quantized, strict=True), first):
        truth, rows = metric.truth(Place(index, f"{index}.npz", row), f)
        row += rows
        kept.append((metric.scored(truth, f), metric.scored(truth, q)))
    metric.finish(row, False)
    sides = zip(*kept, strict=True)
    return score_of(metric.kind, len(floats), *(metric.figures(list(side)) for side in sides))


def rows(*best: int) -> dict[str, np.ndarray]:
    """Return an output "y" of four classes, a row for each best class."""
    return {"y": np.eye(4, dtype=np.float32)[list(best)]}
