"""A model made ready for calibration: the settings, and what onnxruntime runs with the tensors to be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from ..base.errors import ConfigError, nearest
from ..instrumentation.taps import Tap, tapped
from ..runtime.machine import cores
from ..runtime.profiling_session import CPU, Tapped, check_provider, optimised
from ..samples.samples import InputSpec, input_specs

NON_FINITE = ("error", "skip")


@dataclass(frozen=True)
class Settings:
    """How a model is profiled; memory limit and threads do not show in the profile.

    Attributes:
        non_finite: "error" stops at the first NaN or Inf; "skip" counts them and leaves them out of range
            and histogram.
        threads: samples that are run side by side; 0 for one for each core.
        tensors: names of the tensors to be profiled; None for all floating-point activations.
        channels: axis of the channels of each tensor whose channels are recorded one by one.
        provider: execution provider of onnxruntime, in full or short ("cpu").
        memory_limit: bytes that the process should stay below; None for no limit. Samples are then
            run one after another, and if need be in several passes for some of the tensors each. What they
            take is measured on the feed with the largest inputs; to find it the data are read once more.
        by_row: feed the rows of a batch one by one.
    """

    non_finite: str = "error"
    threads: int = 0
    tensors: frozenset[str] | None = None
    provider: str = CPU
    memory_limit: int | None = None
    channels: Mapping[str, int] = field(default_factory=dict)
    by_row: bool = False

    def checked(self) -> Settings:
        """Return the settings with names and numbers filled in.

        Raises:
            ConfigError: one is not allowed.
        """
        if self.non_finite not in NON_FINITE:
            raise ConfigError(
                f"non_finite '{self.non_finite}': must be one of {', '.join(NON_FINITE)}."
                f"{nearest(self.non_finite, NON_FINITE)}"
            )
        if self.threads < 0:
            raise ConfigError(f"threads {self.threads}: must not be negative; 0 takes all cores")
        provider = check_provider(self.provider)
        if self.memory_limit is not None and provider != CPU:
            raise ConfigError(
                f"memory limit: works with {CPU} only, which can run one graph for some of its tensors; "
                f"leave the limit out for {provider}"
            )
        return replace(self, provider=provider, threads=self.threads or cores())


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model that is ready to be profiled on one set of samples after another.

    Attributes:
        settings: how.
        graph: what onnxruntime runs.
        taps: where each tensor is found.
        specs: inputs of the model.
    """

    settings: Settings
    graph: Tapped
    taps: tuple[Tap, ...]
    specs: tuple[InputSpec, ...]

    @property
    def read(self) -> tuple[Tap, ...]:
        """The taps that are counted; the others take the profiles of these."""
        return tuple(tap for tap in self.taps if tap.same_as is None)


@contextmanager
def loaded(model: ir.Model, settings: Settings) -> Iterator[Loaded]:
    """Yield a prepared model, loaded with these settings; raises as `calibrate` does."""
    settings = settings.checked()
    copy, taps = tapped(model, settings.tensors, settings.channels)
    outputs = [tap.source for tap in taps if tap.source is not None]
    # Blocks of channels are read as they are where nobody asks for other channels.
    ordered = {tap.source for tap in taps if tap.axis is not None and not tap.blocks_keep_channels}
    split = settings.memory_limit is not None
    with optimised(copy, outputs, settings.provider, split, ordered) as graph:
        yield Loaded(settings, graph, taps, tuple(input_specs(model)))
