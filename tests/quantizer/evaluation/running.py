from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import parser
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.evaluation.metrics.metric import Metric, Outputs, mean_of
from qprof_onnx.quantizer.evaluation.metrics.score import (
    OtherRows,
    Score,
    figures_at_random,
    open_metric,
    score_of,
)
from qprof_onnx.quantizer.evaluation.metrics.table import named_metric
from qprof_onnx.quantizer.evaluation.metrics.truth import Place

SIZE = 64


def scored(
    metric: Metric,
    floats: list[Outputs],
    quantized: list[Outputs],
    first: int = 0,
    samples: list[Sample] | None = None,
) -> Score:
    """Return the score of outputs of samples that begin at an index; some metrics read the samples."""
    kept: list[tuple[Any, Any]] = []
    random: list[Any] = []
    row, others = 0, OtherRows()
    for index, (f, q) in enumerate(zip(floats, quantized, strict=True), first):
        sample = None if samples is None else samples[index - first]
        truth, rows = metric.truth(Place(index, f"{index}.npz", row, sample), f)
        row += rows
        kept.append((metric.scored(truth, f), metric.scored(truth, q)))
        random.append(others.scored(metric, truth, f))
    metric.finish(row, False)
    sides = [list(side) for side in zip(*kept, strict=True)]
    at_random = figures_at_random(metric, sides[0], random)
    guessed = None if metric.chance is None else metric.chance(sides[0])
    return score_of(metric.kind, len(floats), *map(metric.figures, sides), at_random, guessed=guessed)


def accuracy_of(*right: np.ndarray) -> Score:
    """Return the accuracy of two models, given which rows each has right of a thousand classes."""
    return score_of(named_metric("top-1").kind, 1, *(mean_of(100.0 * one) for one in right))


def rows(*best: int) -> dict[str, np.ndarray]:
    """Return an output "y" of four classes, a row for each best class."""
    return {"y": np.eye(4, dtype=np.float32)[list(best)]}


def model_of(*outputs: str) -> ir.Model:
    """Return a model of pictures of SIZE, with outputs of these names."""
    values = ", ".join(f"float[N, C] {name}" for name in outputs)
    nodes = " ".join(f"{name} = Identity(x)" for name in outputs)
    graph = f"g (float[1, 3, {SIZE}, {SIZE}] x) => ({values}) {{ {nodes} }}"
    return ir.from_proto(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}'))


def opened(
    name: str, first: Outputs, truth: object = None, model: ir.Model | None = None, **more: Any
) -> Metric:
    """Return a metric of the table, opened for outputs like the first ones."""
    pictures = {"x": np.zeros((1, 3, SIZE, SIZE), np.float32)}
    given = None if truth is None else str(truth)
    return open_metric(model_of(*first) if model is None else model, pictures, first, name, given, **more)
