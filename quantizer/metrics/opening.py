"""From what was asked for to a metric with its truth."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import onnx_ir as ir

from ...profiles.base.errors import ConfigError, ModelError, nearest
from ...profiles.samples.objects import ChosenSamples, DataLike
from ..differences.outputs import class_axes
from .kinds.relative import relative_metric
from .labels import Labels
from .table import check_metric_name, named_metric
from .user_functions import MetricFunction, user_metric
from .values import Inputs, Metric, MetricSource, Outputs


@dataclass(frozen=True, eq=False)
class MetricRequest:
    """A metric as it was asked for.

    Attributes:
        metric: a name of the table with options, "module:function", or a function; None for top-1 accuracy
            where there are labels, and what needs no truth elsewhere (`relative_metric`).
        truth: file or folder that the metric reads, or its labels; None for none.
        output: name of the output that is scored; None for the first.
        class_axis: axis of its classes; None for what its operator says.
        data: the samples, which may say how pictures were put into the input; None where nobody knows.
    """

    metric: str | MetricFunction | None = None
    truth: str | os.PathLike[str] | Labels | None = None
    output: str | None = None
    class_axis: int | None = None
    data: DataLike | None = None


def open_metric(request: MetricRequest, model: ir.Model, inputs: Inputs, first: Outputs) -> Metric:
    """Return a metric with its truth.

    Args:
        request: which one.
        model: the float model.
        inputs: its inputs in the first sample.
        first: its outputs on it.

    Raises:
        ConfigError: there is no such metric or option, the truth that it needs is missing, or it reads none.
        DataError: the truth cannot be read. ModelError: there is no such output, or it cannot be scored so.
    """
    metric, output, class_axis = request.metric, request.output, request.class_axis
    labels = request.truth if isinstance(request.truth, Labels) else None
    truth = None if request.truth is None or isinstance(request.truth, Labels) else os.fspath(request.truth)
    if output is not None and output not in first:
        raise ModelError(
            f"output '{output}': the model has none of this name; its outputs are {', '.join(first)}."
            f"{nearest(output, first)}"
        )
    if metric is None and truth is None and labels is None:
        chosen = (output or next(iter(first))) if class_axis is not None else None
        return relative_metric(first, class_axes(model, chosen, class_axis))
    if isinstance(metric, str):
        check_metric_name(metric)
    asked = named_metric(metric or "top-1") if metric is None or isinstance(metric, str) else None
    if asked is not None:
        maker: Callable[[MetricSource], Metric] = _maker(asked.kind.maker)
        data = request.data.data if isinstance(request.data, ChosenSamples) else request.data
        return maker(MetricSource(asked, truth, output, class_axis, model, inputs, first, data, labels))
    assert metric is not None
    if request.truth is not None:
        raise ConfigError(
            "--labels and --metric: they exclude each other; a metric of yours reads its own labels"
        )
    return user_metric(metric)


def reads_truth(metric: str | MetricFunction | None) -> bool:
    """Return whether a metric is one of the table, which reads a file of truth.

    Raises:
        ConfigError: the text is neither a name nor "module:function".
    """
    if not isinstance(metric, str):
        return False
    check_metric_name(metric)
    return named_metric(metric) is not None


def _maker(text: str) -> Callable[[MetricSource], Metric]:
    module, _, name = text.partition(":")
    found: Callable[[MetricSource], Metric] = getattr(import_module(f".{module}", __package__), name)
    return found
