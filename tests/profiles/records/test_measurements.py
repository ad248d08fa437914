"""Records of measured noise: pooled over samples, put together from shards, written and read."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver
from qprof_onnx.profiles.records.profile import (
    DataId,
    ModelId,
    Profile,
    SampleNoise,
    TensorNoise,
    changed_shapes,
    mean_square,
    pooled_noise,
    with_smallest_digests,
)
from qprof_onnx.profiles.records.store import dumps, loads

NAMES = ("x", "y z")
FIGURES = st.none() | st.floats(0.0, 1e38).map(lambda value: mean_square(value, 1))
NOISES = st.builds(TensorNoise, FIGURES, FIGURES, FIGURES).filter(
    lambda n: n != TensorNoise(None, None, None)
)
TENSORS = st.dictionaries(st.sampled_from(NAMES), NOISES)
DIGESTS = st.integers(0, (1 << 128) - 1).map(lambda number: f"{number:032x}")
ALL = st.dictionaries(DIGESTS, st.tuples(TENSORS, st.sets(st.sampled_from(NAMES)))).map(
    lambda found: [SampleNoise(d, t, tuple(sorted(c))) for d, (t, c) in found.items()]
)


def profiled(samples: list[SampleNoise], count: int) -> Profile:
    """Return a profile that holds the noise of the samples that a run would have chosen."""
    tensors = {}
    for name in NAMES:
        observer = TensorObserver("float")
        observer.add(np.ones(3, np.float32), (3,))
        tensors[name] = observer.profile()
    digest = sum(int(sample.digest, 16) for sample in samples) % (1 << 128)
    data = DataId(len(samples), f"{digest:032x}")
    noise = with_smallest_digests(samples, count)
    return Profile(ModelId("a", "b", 17), data, tensors, noise=noise, noise_samples=count)


@given(ALL, st.integers(1, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_noise_of_shards_is_that_of_all_data(
    samples: list[SampleNoise], count: int, shards: int, rng: random.Random
) -> None:
    parts: list[list[SampleNoise]] = [[] for _ in range(shards)]
    for sample in samples:
        parts[rng.randrange(shards)].append(sample)
    whole, *rest = (profiled(part, count) for part in parts)
    for profile in rest:
        whole = whole.merged(profile)
    assert (whole.noise, whole.noise_samples) == (profiled(samples, count).noise, count)


@given(ALL, ALL, st.integers(0, 5), st.integers(0, 5))
def test_with_other_numbers_of_samples_the_smaller_one_is_kept(
    some: list[SampleNoise], others: list[SampleNoise], count: int, other: int
) -> None:
    digests = {sample.digest for sample in some}
    others = [sample for sample in others if sample.digest not in digests]
    one, two = profiled(some, count), profiled(others, other)
    assert one.merged(two).noise == two.merged(one).noise
    assert one.merged(two).noise == profiled([*some, *others], min(count, other)).noise


@given(ALL, st.integers(1, 5))
def test_what_is_written_is_read(samples: list[SampleNoise], count: int) -> None:
    profile = profiled(samples, count)
    assert loads(dumps(profile)) == profile


X = TensorNoise(2.0, 0.5, 0.25)
SAMPLE = SampleNoise("0" * 31 + "1", {"x": X}, ("y z",))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('signal: "2.0 -"', 'signal: "2"', "1 numbers for 2 tensors"),
        ('signal: "2.0 -"', 'signal: "two -"', "'two' is not a mean square"),
        ('signal: "2.0 -"', 'signal: "-2 -"', "'-2' is not a mean square"),
        ('signal: "2.0 -"', 'signal: "2e999 -"', "'2e999' is not a mean square"),
        ("noise_samples: 1", "noise_samples: 0", "at most 0 samples"),
        ("[y z]", "[other]", "names 'other', which is no tensor"),
        ("0" * 31 + "1", "0" * 31, "is not 32 hexadecimal digits|must be 32 hexadecimal digits"),
    ],
)
def test_a_damaged_record_is_refused(before: str, after: str, message: str) -> None:
    text = dumps(profiled([SAMPLE], 1))
    assert before in text
    with pytest.raises(ProfileError, match=message):
        loads(text.replace(before, after))


def test_pooled_figures_are_sums_over_the_samples_in_which_most_was_measured() -> None:
    samples = [
        SampleNoise("1", {"x": TensorNoise(2.0, 0.5, None)}),
        SampleNoise("2", {"x": TensorNoise(3.0, 0.25, None)}),
        SampleNoise("3", {"x": TensorNoise(9.0, None, None)}, ("x",)),
    ]
    assert pooled_noise(samples) == {"x": TensorNoise(5.0, 0.75, None)}
    assert changed_shapes(samples) == {"x"}


def test_a_mean_square_has_few_digits_and_none_stands_for_what_is_not_finite() -> None:
    assert mean_square(1.0, 3) == 0.33333
    assert mean_square(float("inf"), 3) is None
    assert mean_square(0.0, 0) is None
