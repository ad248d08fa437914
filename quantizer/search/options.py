"""What a person can ask of the check of speed: quick to import, for `--help` is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...profiles.base.errors import check_finite

if TYPE_CHECKING:
    from ...profiles.samples.objects import DataLike


@dataclass(frozen=True)
class SpeedCheckOptions:
    """The samples and limits of the check of a quantized model's speed (`--check-speed`).

    Attributes:
        data: folder of samples, "module:function", or an object of Python (`model_samples`); None for the
            samples that the profile keeps.
        limit: number of samples used, drawn from all of them; None for those of `QUICK`.
        threads: threads inside an operator.
        min_speedup: float latency over quantized latency that must be reached; None for no demand.
    """

    data: DataLike | None = None
    limit: int | None = None
    threads: int = 1
    min_speedup: float | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for a number that is not finite."""
        check_finite(self)
