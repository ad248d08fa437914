"""Measured noise: what becomes of small rounding errors on their way through the model, for a few samples.

The record of each sample stands alone, under the digest of its data. So the records of shards of the data are
put together by keeping those with the smallest digests: exactly what all data in one run would have given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

INJECTED = 1e-4
"""Power of the rounding noise that is added to an activation, as a share of its signal (40 dB).

It is enough to stand clear of the rounding of float32 after many layers, and so little that functions are
nearly linear in it."""

DIGITS = 5
"""Significant decimal digits of a mean square: 0.0005 dB."""


@dataclass(frozen=True)
class TensorNoise:
    """What one tensor held in one sample, as mean squares over its elements.

    Of a tensor that a Softmax reads, elements so far below the largest that it makes zeros of them count as
    0 in all three, so that the fillers of masks do not.

    Attributes:
        signal: of the float values. None where it is not finite.
        activation_noise: of the error that the tensor had before its own rounding, where every profiled
            activation is rounded with a noise of `INJECTED` times its signal, and no weight. None where it
            was not measured, is not finite, or the shape changed.
        weight_noise: of its error where every weight is rounded to int8, and no activation; None as above.
    """

    signal: float | None
    activation_noise: float | None
    weight_noise: float | None

    @property
    def injected(self) -> float:
        """Mean square of the noise of the tensor's own rounding; 0 where it was not rounded."""
        return 0.0 if self.signal is None else INJECTED * self.signal


@dataclass(frozen=True)
class SampleNoise:
    """The measured noise of one sample.

    Attributes:
        digest: of the sample's data, as 32 hexadecimal digits.
        tensors: name to noise, in graph order.
        changed_shapes: names of the tensors that had another shape once values were rounded: something
            computes shapes from values (durations, NonZero).
    """

    digest: str
    tensors: Mapping[str, TensorNoise]
    changed_shapes: tuple[str, ...] = ()


def mean_square(total: float, count: int) -> float | None:
    """Return a mean square as it is recorded; None where it is not finite or there are no elements."""
    if not count or not isfinite(total):
        return None
    return float(f"{total / count:.{DIGITS - 1}e}")


def fewest_digests(several: Iterable[SampleNoise], count: int) -> tuple[SampleNoise, ...]:
    """Return the samples with the smallest digests, each once, in order; at most `count`."""
    by_digest = {sample.digest: sample for sample in several}
    return tuple(by_digest[digest] for digest in sorted(by_digest)[:count])


def pooled_noise(samples: Iterable[SampleNoise]) -> dict[str, TensorNoise]:
    """Return signal and noises of all samples together, summed for each tensor.

    The three sums of a tensor are over the same samples, so that their ratios mean something: those in which
    as much was measured of it as in any.
    """
    measured: dict[str, list[TensorNoise]] = {}
    for sample in samples:
        for name, noise in sample.tensors.items():
            measured.setdefault(name, []).append(noise)
    return {name: _pooled(noises) for name, noises in measured.items()}


def changed_shapes(samples: Iterable[SampleNoise]) -> frozenset[str]:
    """Return the tensors whose shape changed in any of the samples."""
    return frozenset(name for sample in samples for name in sample.changed_shapes)


def _figures(noise: TensorNoise) -> tuple[float | None, float | None, float | None]:
    return noise.signal, noise.activation_noise, noise.weight_noise


def _pooled(noises: list[TensorNoise]) -> TensorNoise:
    most = max(sum(figure is not None for figure in _figures(noise)) for noise in noises)
    whole = [noise for noise in noises if sum(f is not None for f in _figures(noise)) == most]
    kinds = [figure is not None for figure in _figures(whole[0])]
    alike = [_figures(n) for n in whole if [f is not None for f in _figures(n)] == kinds]
    columns = zip(*alike, strict=True)
    return TensorNoise(*(None if c[0] is None else sum(float(f or 0.0) for f in c) for c in columns))
