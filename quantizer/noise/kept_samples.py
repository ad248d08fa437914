"""The noise of a profile that keeps samples: measured on these when a plan is made of it."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from ...profiles.base.errors import QprofError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.improvement import improved
from ...profiles.base.seconds import clocked
from ...profiles.base.tuned import tuned
from ...profiles.records.non_finite import check_outputs_have_numbers
from ...profiles.records.profile import Profile, SampleNoise
from ...profiles.runtime.providers import cores, used_bytes
from ...profiles.samples.arrays import machine_bytes
from ...profiles.samples.values import Sample
from ..plan.documents import read_with_samples
from ..prepare.prepare import PreparedModel, ProfileLike
from .measure import expected_bytes, measure_noise, unmeasurable

Measured = tuple[Profile, tuple[Finding, ...]]
"""A profile with measured noise; or without it, and the finding with the reason."""

STEP = "measurement of how noise travels"

HELD_AT_ONCE = 2 << 30
"""Bytes of activations that samples may hold together while noise is measured; each holds its own twice."""


def unmeasured(reason: object) -> Finding:
    """Return the finding on a profile without noise."""
    return Finding(Code.NOISE_UNMEASURED, f"how noise travels is not measured: {reason}")


def activation_bytes(profile: Profile) -> dict[str, int]:
    """Return the bytes that each tensor has in a sample, on average."""
    samples = max(1, profile.data.samples)
    counts = {name: tensor.count + tensor.nan + tensor.inf for name, tensor in profile.items()}
    return {name: n * (8 if profile[name].dtype == "double" else 4) // samples for name, n in counts.items()}


# A profile as plans are made of it -------------------------------------------------------------------------

_measured: dict[tuple[object, ...], tuple[SampleNoise, ...]] = {}
"""The last noises that this process measured, by model, tensors and samples."""

REMEMBERED = 4

ENOUGH_ELEMENTS = tuned(
    2.0**24,
    figure="with 2 ** 25 no model of sixteen is another one (DECISIONS.md, 31)",
    chosen_on="sixteen models with 0.1 to 90 million elements a sample",
)
"""Elements of all activations that the samples hold on which noise is measured."""

LEAST_SAMPLES, MOST_SAMPLES = 4, 8
"""Samples that are run whatever they hold, and at most."""


def read_measured(source: ProfileLike, prepared: PreparedModel) -> tuple[Profile, str, tuple[Finding, ...]]:
    """Return a profile with check samples and noise, the reason for missing samples (or ""), and findings.

    Raises ProfileError if it cannot be read, or belongs to another model, and DataError as below.
    """
    profile, missing = read_with_samples(source, prepared.model, prepared.identity)
    profile, findings = with_noise_of_kept(profile, prepared.model, missing)
    return profile, missing, findings


@clocked("measure noise")
def with_noise_of_kept(profile: Profile, model: ir.Model, missing: str = "") -> Measured:
    """Return a profile with the noise that is measured on the first of its check samples.

    Nothing runs if the profile has its noise, or no check samples. `missing` is the reason for missing check
    samples. Raises DataError if no output of the model was a finite number.
    """
    check_outputs_have_numbers(profile, (value.name or "" for value in model.graph.outputs))
    if profile.noise or not profile.check_samples:
        return profile, ()
    names, bytes_of = set(profile), activation_bytes(profile)
    elements = sum(tensor.count for tensor in profile.values()) / max(1, profile.data.samples)
    enough = max(LEAST_SAMPLES, int(ENOUGH_ELEMENTS / max(1.0, elements)))
    kept = profile.held_samples[: min(MOST_SAMPLES, enough)]
    key = (profile.model, frozenset(profile), tuple(sample.digest for sample in kept))
    if key in _measured:
        return replace(profile, noise=_measured[key]), ()
    if reason := missing or unmeasurable(model):
        return profile, (unmeasured(reason),)
    needed = used_bytes() + expected_bytes(model, bytes_of)
    if needed > machine_bytes():
        return profile, (unmeasured(f"it would need {needed >> 20} MiB, more than this machine has"),)
    samples = [(one.digest, Sample(f"{one.digest[:8]} of the profile", one.arrays)) for one in kept]
    threads = max(1, min(cores() // 2, HELD_AT_ONCE // max(1, 2 * sum(bytes_of.values()))))

    def measured() -> Measured:
        return replace(profile, noise=measure_noise(model, names, samples, threads)), ()

    try:
        (found, findings), left_out = improved(STEP, measured, (profile, ()))
    except QprofError as error:
        return profile, (unmeasured(error),)
    if found.noise:
        _measured[key] = found.noise
        for old in list(_measured)[:-REMEMBERED]:
            del _measured[old]
    return found, (*findings, *left_out)
