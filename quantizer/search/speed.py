"""What the check of speed by the clock found; the plug-in `SPEED` makes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...profiles.base.extras import OptionalModule
from ...profiles.base.json_values import NOT_IN_JSON
from ..costs.float_regions import FloatRegion
from ..costs.predicted import Costs
from ..evaluation.gates import GateFailure, speed_failures
from ..evaluation.latency import Latency, times_as_fast

SPEED = OptionalModule("the check of speed", "quantizer.plugins.tune.speed_check")
"""It has `check_speed`, and `check_options`, which refuses options before work begins."""


@dataclass(frozen=True)
class SpeedCheck:
    """The latencies that the check of speed measured, and its changes."""

    min_speedup: float | None  # the gate, None for none
    before: Latency  # float against the plan as it was made
    after: Latency  # float against the plan as it is now; `before` when nothing was changed
    fallback: tuple[FloatRegion, ...]  # the regions that fell back to float, in this order
    trials: int  # plans that were made and timed besides the first
    changes: tuple[str, ...] = ()  # the changes that made the model faster, in this order
    left_float: str = ""  # how the whole model was left in float at last, as a sentence; "" where it was not
    # measured times of the nodes of the plan as it is now; None for a model left in float
    costs: Costs | None = field(default=None, metadata=NOT_IN_JSON)

    @property
    def passed(self) -> bool:
        """Whether the demand is met: by the lower quartile, as in `Gate`."""
        return not self.failures

    @property
    def failures(self) -> tuple[GateFailure, ...]:
        """The demand, if it is not proven to be met."""
        limit = self.min_speedup
        return () if limit is None else tuple(speed_failures(limit, self.after))

    def lines(self, predicted: float | None, *, every: bool) -> Iterator[tuple[str, str]]:
        """Yield name and text of latencies and float fallbacks; `every` adds each region and change."""
        yield "speed", f"{self.after.text(predicted)}: {self.after.milliseconds}"
        if self.fallback:
            count = sum(len(region.nodes) for region in self.fallback)
            yield "", f"{count} nodes went back to float ({times_as_fast(self.before.speedup)} before)"
        if every:
            for region in self.fallback:
                more = f" and {len(region.nodes) - 1} more" if len(region.nodes) > 1 else ""
                times = f"{region.quantized_ms:.3g} ms in int8, {region.float_ms:.3g} ms float"
                yield "", f"{times}: {region.nodes[0]}{more}"
            yield from (("faster", change) for change in self.changes if not self.left_float)
        if self.left_float:
            yield "", self.left_float
