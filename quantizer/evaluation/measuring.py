"""On which samples two models are compared, and how."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...profiles.base.errors import ConfigError
from ..metrics.user_functions import MetricFunction
from ..runtime.latency import LatencySettings


@dataclass(frozen=True)
class Measuring:
    """How two models are compared.

    Attributes:
        limit: number of samples used, from the first; None for all.
        output: the output that labels, metric and `class_axis` belong to; None for the first.
        class_axis: axis of its classes; None for what its operator says (`class_axes`).
        threads: threads inside an operator, for both models.
        latency: how latency is measured, on as many threads; None leaves it out.
        metric: name in the table of metrics (`table.KINDS`), "module:function" or a function (`user_metric`);
            None for top-1 accuracy where there are labels.
        runtime: what runs both models, a key of `RUNTIMES`.
        provider: its execution provider or device, such as "cpu".
    """

    limit: int | None = None
    output: str | None = None
    class_axis: int | None = None
    threads: int = 1
    latency: LatencySettings | None = field(default_factory=LatencySettings)
    metric: str | MetricFunction | None = None
    runtime: str = "onnxruntime"
    provider: str = "cpu"

    def __post_init__(self) -> None:
        """Raise ConfigError for numbers that make no sense."""
        if self.threads < 1:
            raise ConfigError(
                f"threads: {self.threads} is below 1; models are compared on a stated number of threads"
            )
