"""The settings of a calibration run: one record, from the command line to the runner and its workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..base.errors import ConfigError, check_finite, nearest
from ..runtime.providers import CPU, check_provider, cores, loaded_libraries

TENSORS = ("all", "needed")
CHANNELS = ("weighted-layers", "off")
NON_FINITE = ("error", "skip")

NOISE_SAMPLES = 8
"""Samples on which noise is measured, unless the user says otherwise."""

CHECKPOINT_SECONDS = 30.0
"""Seconds between two writes of the checkpoint, unless the user says otherwise."""


@dataclass(frozen=True)
class RunSettings:
    """How a model is profiled. Only the first seven settings can change a byte of the profile.

    Attributes:
        tensors: "all" floating-point activations, those "needed" by some plan, or names of tensors.
        channels: "weighted-layers" records range, mean and power of each channel of the inputs of weighted
            layers (Conv, MatMul, Gemm and others with a constant weight), "off" of no tensor. Or the axis of
            the channels of each tensor whose channels are recorded, by name.
        non_finite: "skip" counts NaN and Inf, leaves them out of range and histogram, and notes them with the
            first sample and node (`Profile.notes`); "error" stops at the first.
        limit: number of samples to use, from the first; None for all.
        by_row: run each row of a batch on its own. Kernels whose last bits depend on the batch size then
            give the same profile however the data are batched.
        noise_samples: number of samples on which it is measured how noise travels through the model, after
            all were counted: those with the smallest digests. 0 for none.
        provider: execution provider of onnxruntime, in full or short, with its device ("cpu", "cuda:1"). The
            bytes of a profile are promised for the CPU alone.
        threads: samples that run at the same time; 0 for one for each core.
        memory_limit: bytes that the process should stay below; None for no limit. Fewer samples then run at
            the same time, and if need be the samples run several times, for some of the tensors each time.
            The memory of a sample is measured on the one with the largest inputs; to find it the data are
            read once more.
        checkpoint: file that keeps progress, so that the same run can be resumed after it was killed; removed
            when the profile is written. None for none.
        every: seconds between two writes of the checkpoint.
        workers: processes on this machine that share the samples; 0 for this process alone.
        scheduler: address of a Dask scheduler whose workers share the samples; None for none.
        custom_ops: libraries of custom operators to load, in each worker too; see `load_custom_operators`.

    "needed" and "weighted-layers" depend on the operators of the model: `dump_profile` replaces them by names
    and axes (`settings_for`) before `calibrate` gets the settings.
    """

    tensors: str | Collection[str] = "all"
    channels: str | Mapping[str, int] = "weighted-layers"
    non_finite: str = "skip"
    limit: int | None = None
    by_row: bool = False
    noise_samples: int = NOISE_SAMPLES
    provider: str = "cpu"
    threads: int = 0
    memory_limit: int | None = None
    checkpoint: str | Path | None = None
    every: float = CHECKPOINT_SECONDS
    workers: int = 0
    scheduler: str | None = None
    custom_ops: Sequence[str | Path] = ()

    @property
    def sharded(self) -> bool:
        """Whether several processes share the samples."""
        return self.workers > 0 or self.scheduler is not None

    @property
    def names(self) -> frozenset[str] | None:
        """Names of the tensors to be profiled; None for all floating-point activations.

        Raises:
            ConfigError: they depend on the model's operators.
        """
        if not isinstance(self.tensors, str):
            return frozenset(self.tensors)
        if self.tensors == "all":
            return None
        raise ConfigError(f"tensors '{self.tensors}': works with dump_profile only; give names of tensors")

    @property
    def axes(self) -> Mapping[str, int]:
        """Axis of the channels of each tensor whose channels are recorded.

        Raises:
            ConfigError: they depend on the model's operators.
        """
        if not isinstance(self.channels, str):
            return self.channels
        if self.channels == "off":
            return {}
        raise ConfigError(
            f"channels '{self.channels}': works with dump_profile only; give axes of tensors, or 'off'"
        )

    @property
    def samples_at_once(self) -> int:
        """How many samples run at the same time, without a memory limit."""
        return self.threads or cores()

    def checked(self) -> RunSettings:
        """Return the settings with the full name of the provider.

        Raises:
            ConfigError: one is not allowed, or two exclude each other.
        """
        check_finite(self)
        if self.every < 0.0:
            raise ConfigError(f"every {self.every:g}: must not be negative; give a number of seconds")
        _check_word("tensors", self.tensors, TENSORS)
        _check_word("channels", self.channels, CHANNELS)
        _check_word("non_finite", self.non_finite, NON_FINITE)
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"limit {self.limit}: at least one sample is needed; None takes all samples")
        if self.noise_samples < 0:
            raise ConfigError(
                f"noise_samples {self.noise_samples}: must not be negative; 0 leaves the measurement out"
            )
        if self.threads < 0:
            raise ConfigError(f"threads {self.threads}: must not be negative; 0 takes all cores")
        if not self.every >= 0:  # NaN is not
            raise ConfigError(f"every {self.every}: is no time between checkpoints; give seconds from 0")
        if self.workers < 0:
            raise ConfigError(f"workers {self.workers}: must not be negative; 0 takes this process alone")
        if self.workers > 0 and self.scheduler is not None:
            raise ConfigError(
                "workers: a Dask scheduler was given as well; give a number of processes or the address of a "
                "scheduler, one of the two"
            )
        if self.checkpoint is not None and self.sharded:
            raise ConfigError(
                "checkpoint: works with one process only; shards of lost workers are run again without it: "
                "leave out the checkpoint, or the workers"
            )
        provider = check_provider(self.provider)
        if self.memory_limit is not None and provider != CPU:
            raise ConfigError(
                f"memory limit: works with {CPU} only, which can run one graph for some of its tensors; "
                f"leave the limit out for {provider}"
            )
        return replace(self, provider=provider)

    def of_worker(self, threads: int) -> RunSettings:
        """Return the settings of a worker, which runs its share of the samples in its own process.

        Args:
            threads: samples that run at the same time, unless the settings say how many.
        """
        own = replace(self, threads=self.threads or threads, workers=0, scheduler=None)
        return replace(own, custom_ops=loaded_libraries())


def _check_word(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Check a setting that is one of some words where it is a text."""
    if isinstance(value, str) and value not in allowed:
        raise ConfigError(
            f"{name} '{value}': no such word; use one of {', '.join(allowed)}.{nearest(value, allowed)}"
        )
