"""The last step of a calibration run: how noise travels through the model, measured on a few samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import onnx_ir as ir

from ...profiles.base.errors import QprofError
from ...profiles.base.tool import Progress
from ...profiles.readers.values import Sample
from ...profiles.records.profile import Profile, TensorProfile
from ...profiles.runner.settings import RunSettings
from ...profiles.runtime.machine import used_bytes
from ..noise_runs.measuring import measure_noise, rows_differ_together, unmeasurable
from ..noise_runs.memory import expected_bytes

Note = Callable[[str], None]


@dataclass(frozen=True)
class Chosen:
    """The samples on which noise is measured.

    Attributes:
        samples: gives digests and samples, anew in each call.
        batches: whether some are rows of batches.
    """

    samples: Callable[[], Iterable[tuple[str, Sample]]]
    batches: bool


class ProgressSoFar:
    """A progress callback that knows what was reported last, so that a further step can go on from there."""

    def __init__(self, progress: Progress | None) -> None:
        """Begin with nothing done; `progress` is told of everything."""
        self._progress, self._done = progress, 0

    def __call__(self, done: int, total: int | None) -> None:
        """Report samples that are done."""
        self._done = done
        if self._progress is not None:
            self._progress(done, total)

    def further(self, count: int) -> Callable[[int], None]:
        """Return what reports how many of `count` more samples are done."""
        before = self._done
        return lambda done: self(before + done, before + count)


def with_noise(
    profile: Profile,
    model: ir.Model,
    chosen: Chosen,
    settings: RunSettings,
    *,
    progress: ProgressSoFar,
    note: Note,
) -> Profile:
    """Return a profile with the noise that is measured on the samples with the smallest digests.

    What goes wrong here is noted, and ends nothing: the profile is complete without it.

    Args:
        profile: of all samples.
        model: the prepared model.
        chosen: these samples.
        settings: of the run.
        progress: goes on from what was reported.
        note: called with a remark.
    """
    count = settings.noise_samples
    if not count:
        return profile
    if reason := unmeasurable(model) or _too_large(profile, model, settings.memory_limit):
        note(f"how noise travels is not measured: {reason}")
        return profile
    threads = 1 if settings.memory_limit is not None else settings.samples_at_once
    further = progress.further(min(count, profile.data.samples))
    try:
        if chosen.batches and rows_differ_together(model, set(profile), chosen.samples()):
            note("how noise travels is not measured: rows of a batch depend on each other")
            return profile
        provider = settings.provider
        noise = measure_noise(model, set(profile), chosen.samples(), threads, further, provider=provider)
    except QprofError as error:
        note(f"how noise travels is not measured: {error}")
        return profile
    return replace(profile, noise=noise, noise_samples=count)


def _too_large(profile: Profile, model: ir.Model, limit: int | None) -> str:
    """Return that the measurement would not stay below the memory limit; "" where it would."""
    if limit is None:
        return ""
    samples = max(1, profile.data.samples)
    sizes = {name: _bytes(tensor) // samples for name, tensor in profile.items()}
    inputs = sum(sizes.get(str(value.name), 0) for value in model.graph.inputs)
    needed = used_bytes() + expected_bytes(model, sizes) + 2 * inputs  # the next sample is read meanwhile
    return "" if needed <= limit else f"it would need {needed >> 20} MiB, more than the memory limit"


def _bytes(tensor: TensorProfile) -> int:
    return (tensor.count + tensor.nan + tensor.inf) * (8 if tensor.dtype == "double" else 4)
