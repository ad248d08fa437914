"""How a calibration is run: the settings that `dump_profile` takes as one value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ...profiles.base.errors import ConfigError, nearest
from ...profiles.runner.checkpoint import SECONDS, Checkpoint
from ...profiles.runner.settings import Settings
from ..model.graph import Graph
from ..planning.needed_tensors import needed_tensors, weighed_channels

TENSORS = ("all", "needed")
CHANNELS = ("weighed", "off")


@dataclass(frozen=True)
class RunSettings:
    """How a model is run for its profile. Only the first five can change a byte of the profile.

    Attributes:
        tensors: "all" floating-point activations, or those "needed" by some plan.
        channels: "weighed" records range, mean and power of each channel of the activations that meet a
            constant weight, "off" does not.
        non_finite: "error" stops at NaN and Inf, "skip" counts them and leaves them out.
        by_row: feed each row of a batch on its own. Kernels whose last bits depend on the size of the batch
            then give the same profile however the data were batched.
        provider: execution provider of onnxruntime.
        threads: samples that run side by side; 0 for one for each core.
        memory_limit: bytes that the process should stay below; None for no limit.
        checkpoint: file that keeps progress, so that the same run goes on after the process was killed;
            removed when the profile is written. None for none.
        every: seconds between two writes of the checkpoint.
        workers: processes on this machine that share the samples; 0 for this process alone.
        scheduler: address of a Dask scheduler whose workers share the samples; None for none.
    """

    tensors: str = "all"
    channels: str = "weighed"
    non_finite: str = "error"
    by_row: bool = False
    provider: str = "cpu"
    threads: int = 0
    memory_limit: int | None = None
    checkpoint: str | Path | None = None
    every: float = SECONDS
    workers: int = 0
    scheduler: str | None = None

    @property
    def sharded(self) -> bool:
        """Whether several processes share the samples."""
        return self.workers > 0 or self.scheduler is not None

    @property
    def keeper(self) -> Checkpoint | None:
        """Where progress is kept.

        Raises:
            ConfigError: several processes share the samples.
        """
        if self.checkpoint is None:
            return None
        if self.sharded:
            raise ConfigError("checkpoint: is for one process; workers that are lost need none: leave it out")
        return Checkpoint(Path(self.checkpoint), self.every)

    def of_model(self, graph: Graph, hidden: Collection[str] = ()) -> Settings:
        """Return the settings of the runner for a prepared model, with tensors `hidden` that cannot be seen.

        Raises:
            ConfigError: `tensors` or `channels` is not one of the words above.
        """
        _check("tensors", self.tensors, TENSORS)
        _check("channels", self.channels, CHANNELS)
        names = needed_tensors(graph, hidden) if self.tensors == "needed" else None
        axes = weighed_channels(graph) if self.channels == "weighed" else {}
        return Settings(
            self.non_finite, self.threads, names, self.provider, self.memory_limit, axes, by_row=self.by_row
        )


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} '{value}': must be one of {', '.join(allowed)}.{nearest(value, allowed)}")
