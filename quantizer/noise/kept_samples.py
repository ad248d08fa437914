"""The noise of a profile that keeps samples: measured on these when a plan is made of it.

A run that profiles measures noise only where it keeps no samples, since nobody can do it later then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import onnx_ir as ir

from ...profiles.base.errors import QprofError
from ...profiles.base.findings import Code, Finding
from ...profiles.base.improvement import improved
from ...profiles.base.stages import stage
from ...profiles.base.tuned import tuned
from ...profiles.records.non_finite import check_outputs_have_numbers
from ...profiles.records.profile import Profile, SampleNoise
from ...profiles.runtime.providers import CPU, cores, used_bytes
from ...profiles.samples.arrays import machine_bytes
from ...profiles.samples.values import Sample
from ..plan.documents import read_with_samples
from ..prepare.prepare import PreparedModel, ProfileLike
from .measure import expected_bytes, measure_noise, rows_differ_together

Measured = tuple[Profile, tuple[Finding, ...]]
"""A profile with the noise that was measured; or as it was, with the finding that says why it has none."""

STEP = "measurement of how noise travels"

HELD_AT_ONCE = 2 << 30
"""Bytes of activations that samples may hold together while noise is measured; each holds its own twice."""


def with_noise(
    profile: Profile,
    model: ir.Model,
    samples: Callable[[], Iterable[tuple[str, Sample]]],
    at_once: int,
    *,
    batches: bool,
    progress: Callable[[int], None] | None = None,
    provider: str = CPU,
) -> Measured:
    """Return a profile with the noise measured on samples, or unchanged with a finding.

    `samples` gives digests and samples of one row, anew in each call; `at_once` run together, or fewer if
    they are large. `batches` means that some samples are rows of batches.
    """
    names, held = set(profile), 2 * sum(activation_bytes(profile).values())
    threads = max(1, min(at_once, HELD_AT_ONCE // max(1, held)))
    try:
        if batches and rows_differ_together(model, names, samples):
            return profile, (unmeasured("rows of a batch depend on each other"),)
        noise = measure_noise(model, names, samples(), threads, progress, provider=provider)
    except QprofError as error:
        return profile, (unmeasured(error),)
    return replace(profile, noise=noise), ()


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
    2.0**27,
    figure="eight samples of these took one to five seconds more, and no score changed (DECISIONS.md, 31)",
    chosen_on="seven models with 20 to 90 million elements a sample",
)
"""Elements of all activations that the samples hold on which noise is measured."""

LEAST_SAMPLES = 4
"""Samples that are run whatever they hold."""


def read_measured(source: ProfileLike, prepared: PreparedModel) -> tuple[Profile, str, tuple[Finding, ...]]:
    """Return a profile with check samples and noise, the reason for missing samples (or ""), and findings.

    Raises ProfileError if it cannot be read, or belongs to another model, and DataError as below.
    """
    profile, missing = read_with_samples(source, prepared.model, prepared.identity)
    profile, findings = with_noise_of_kept(profile, prepared.model, missing)
    return profile, missing, findings


@stage("measure noise")
def with_noise_of_kept(profile: Profile, model: ir.Model, missing: str = "") -> Measured:
    """Return a profile with the noise that is measured on the first of its check samples.

    Nothing runs if the profile has its noise, or must have none. `missing` is the reason for missing check
    samples. Raises DataError if no output of the model was a finite number.
    """
    check_outputs_have_numbers(profile, (value.name or "" for value in model.graph.outputs))
    if profile.noise or not profile.noise_samples:
        return profile, ()
    elements = sum(tensor.count for tensor in profile.values()) / max(1, profile.data.samples)
    enough = max(LEAST_SAMPLES, int(ENOUGH_ELEMENTS / max(1.0, elements)))
    kept = profile.held_samples[: min(profile.noise_samples, enough)]
    if not kept:
        return profile, (unmeasured(missing),)
    key = (profile.model, frozenset(profile), tuple(sample.digest for sample in kept))
    if key in _measured:
        return replace(profile, noise=_measured[key]), ()
    needed = used_bytes() + expected_bytes(model, activation_bytes(profile))
    if needed > machine_bytes():
        return profile, (unmeasured(f"it would need {needed >> 20} MiB, more than this machine has"),)
    samples = [(one.digest, Sample(f"{one.digest[:8]} of the profile", one.arrays)) for one in kept]
    batches = profile.runs < profile.data.samples
    (measured, findings), left_out = improved(
        STEP,
        lambda: with_noise(profile, model, lambda: samples, cores() // 2, batches=batches),
        (profile, ()),
    )
    if measured.noise:
        _measured[key] = measured.noise
        for old in list(_measured)[:-REMEMBERED]:
            del _measured[old]
    return measured, (*findings, *left_out)
