"""The settings of a calibration run: one record, from the command line to the runner and its workers.

Its imports are quick: `qprof dump-profile --help` is made of it. What asks onnxruntime imports that itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from ..base.arguments import check_record
from ..base.options import option

KEPT_SAMPLES = 128
"""Check samples of a profile at most: damage that one sample in ten shows is seen in 16 of them with 0.8, and
that of one in fifty in 128 with 0.9 (DECISIONS.md, 90, 105)."""


@dataclass(frozen=True)
class RunSettings:
    """How a model is profiled. Only the first five settings can change a byte of the profile.

    `checked` rejects invalid values. "needed" and "weighted-layers" depend on the operators of the model:
    `profile` replaces them by names and axes (`settings_for`) before `calibrate` gets the record.

    Attributes:
        tensors: Every float activation, or only those that a plan can need. In Python: or names of tensors.
        channels: Record every channel of the inputs of weighted layers (Conv, MatMul, Gemm). In Python: or
            the axis of the channels of each tensor, by name.
        limit: number of samples to use, drawn from all of them (`Samples.drawn`); None for all.
        by_row: Run the rows of a batch one by one; the batch size then does not change the bytes.
        keep_samples: Number of raw samples stored beside the profile, with which quantize tests a model
            before it writes it; 0 for none.
        provider: Execution provider of onnxruntime, with its device: cpu, cuda, cuda:1, openvino, ... In
            Python: full or short name. Only the CPU guarantees the bytes of a profile.
        threads: Samples that run at the same time; 0 for one per core.
        scheduler: Share the samples among the workers of a Dask scheduler that you trust: see SECURITY.md.
        custom_ops: libraries of custom operators to load, in each worker too; see `load_custom_operators`.
    """

    tensors: Annotated[Literal["all", "needed"] | Collection[str], option("Calibration and precision")] = (
        "all"
    )
    channels: Annotated[
        Literal["weighted-layers", "off"] | Mapping[str, int], option("Calibration and precision")
    ] = "weighted-layers"
    limit: int | None = None
    by_row: Annotated[bool, option("Quality")] = False
    keep_samples: Annotated[int, option("Quality", metavar="N", least=0)] = KEPT_SAMPLES
    provider: Annotated[str, option("Speed", metavar="NAME")] = "cpu"
    threads: Annotated[int, option("Speed", metavar="N", least=0)] = 0
    scheduler: Annotated[str | None, option("Speed", metavar="ADDRESS")] = None
    custom_ops: Sequence[str | Path] = ()

    @property
    def names(self) -> frozenset[str] | None:
        """Names of the tensors to be profiled, which `settings_for` found; None for all."""
        return None if self.tensors == "all" else frozenset(self.tensors)

    @property
    def axes(self) -> Mapping[str, int]:
        """Axis of the channels of each tensor whose channels are recorded, which `settings_for` found."""
        assert not isinstance(self.channels, str) or self.channels == "off"
        return {} if isinstance(self.channels, str) else self.channels

    @property
    def samples_at_once(self) -> int:
        """How many samples run at the same time."""
        from ..runtime.providers import cores

        return self.threads or cores()

    def checked(self) -> RunSettings:
        """Return the settings with the full name of the provider; ConfigError for an invalid value."""
        from ..runtime.providers import check_provider

        check_record(self)
        return replace(self, provider=check_provider(self.provider))
