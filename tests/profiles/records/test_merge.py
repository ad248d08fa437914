"""Profiles of shards merged: order, grouping and sharding cannot change a byte; the rest is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ProfileError
from qprof_onnx.profiles.base.findings import Finding
from qprof_onnx.profiles.observers.tensor_observer import TensorObserver
from qprof_onnx.profiles.records.merge import merge_profiles
from qprof_onnx.profiles.records.profile import MAX_COUNT, DataId, ModelId, Profile
from qprof_onnx.profiles.records.store import dumps, loads, save_profile
from qprof_onnx.profiles.samples.samples import data_id
from qprof_onnx.quantizer.api.profiling import merge

MODEL = ModelId("a" * 64, "b" * 64, 17, "m.onnx")
GLOW = Path(__file__).parents[2] / "data" / "profile-glow.yaml"
FLOATS = st.floats(width=32) | st.floats(-4, 4, width=32)  # NaN and Inf too: they are counted
SAMPLES = st.lists(
    st.lists(FLOATS, max_size=6).map(lambda v: np.array(v, np.float32)), min_size=1, max_size=12
)
Arrays = Sequence[np.ndarray]


def profiled(samples: Arrays) -> Profile:
    """Return the profile of samples that flow through two tensors, as the runner makes it."""
    x, y = TensorObserver("float", axis=1, channels=1), TensorObserver("float")
    data = DataId()
    for sample in samples:
        x.add(sample.reshape(-1, 1), (None, 1))
        y.add(np.maximum(sample, 0), (None, *sample.shape))
        data = data.merged(data_id({"x": sample}, []))
    return Profile(MODEL, data, {"x": x.profile(), "y": y.profile()}, tool="qprof 0.1.0")


def merged_with_warnings(*profiles: Profile, allow: bool = False) -> tuple[Profile, tuple[Finding, ...]]:
    return merge_profiles(((f"{i}.yaml", p) for i, p in enumerate(profiles)), allow_duplicates=allow)


def merged(*profiles: Profile, allow: bool = False) -> Profile:
    return merged_with_warnings(*profiles, allow=allow)[0]


def merged_text(*profiles: Profile) -> str:
    return dumps(merged(*profiles, allow=True))


A, B, C = (profiled([np.arange(n, n + 3, dtype=np.float32)]) for n in (0, 10, 20))


@given(SAMPLES, st.randoms(use_true_random=False), st.integers(1, 5))
def test_any_sharding_gives_the_bytes_of_one_run(samples: Arrays, rng: random.Random, shards: int) -> None:
    parts: list[list[np.ndarray]] = [[] for _ in range(shards)]
    for sample in samples:
        parts[rng.randrange(shards)].append(sample)
    rng.shuffle(parts)
    assert merged_text(*(profiled(part) for part in parts if part)) == dumps(profiled(samples))


@pytest.mark.slow
@given(SAMPLES, SAMPLES, SAMPLES)
def test_any_order_and_grouping_gives_the_same_bytes(a: Arrays, b: Arrays, c: Arrays) -> None:
    x, y, z = (
        replace(profiled(part), model=replace(MODEL, file=f"{name}.onnx"), tool=f"q {name}")
        for name, part in zip("mcz", (a, b, c), strict=True)
    )
    first = merged(merged(x, y, allow=True), z, allow=True)
    second = merged(x, merged(y, z, allow=True), allow=True)
    assert dumps(first) == dumps(second) == merged_text(x, y, z) == merged_text(z, x, y)


def test_one_profile_stays_as_it_is() -> None:
    assert merged_text(A) == dumps(A)


def test_the_tools_of_all_shards_are_named() -> None:
    newest, newer = replace(B, tool="qprof 0.3.0"), replace(C, tool="qprof 0.2.0")
    assert merged(newest, A, newer).tool == "qprof 0.1.0, qprof 0.2.0, qprof 0.3.0"


def test_files_are_read_one_at_a_time() -> None:
    alive: list[int] = []

    def shards() -> object:
        for i, profile in enumerate((A, B, C)):
            alive.append(i)
            yield f"{i}.yaml", profile
            # The next is asked for only when this one is merged: `merge_profiles` made no list of them.
            assert alive == list(range(i + 1))

    profile, _ = merge_profiles(shards())  # type: ignore[arg-type]
    assert profile.data.samples == 3


def test_files_are_merged_into_a_file(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.yaml" for name in "abc"]
    for path, profile in zip(paths, (A, B, C), strict=True):
        save_profile(profile, path)
    found = merge(paths, tmp_path / "all.yaml")
    assert loads((tmp_path / "all.yaml").read_text()) == found
    assert found.data.samples == 3


def test_another_model_is_refused_with_both_files() -> None:
    other = replace(B, model=replace(MODEL, structure="c" * 64, file="n.onnx"))
    sentence = (
        r"^1\.yaml: is of another model than 0\.yaml: n\.onnx \(structure cccccccccccc, weights bbb.*; merge"
    )
    with pytest.raises(ProfileError, match=sentence):
        merged(A, other)


def test_other_weights_are_refused_as_such() -> None:
    with pytest.raises(ProfileError, match=r"^1\.yaml: is of other weights than 0\.yaml: "):
        merged(A, replace(B, model=replace(MODEL, weights="c" * 64)))


def test_a_file_name_does_not_make_another_model() -> None:
    assert merged(A, replace(B, model=replace(MODEL, file="b.onnx"))).model.file == "b.onnx"


def test_a_profile_of_glow_is_refused_with_advice(tmp_path: Path) -> None:
    save_profile(A, tmp_path / "a.yaml")
    with pytest.raises(
        ProfileError, match=r"profile-glow\.yaml: comes from Glow x\.y, .* 'qprof dump-profile'"
    ):
        merge([tmp_path / "a.yaml", GLOW], tmp_path / "all.yaml")
    assert not (tmp_path / "all.yaml").exists()


@pytest.mark.parametrize(("order", "lacking", "having"), [((0, 1), 1, 0), ((1, 0), 0, 1)])
def test_a_tensor_that_one_file_lacks_is_named(order: tuple[int, int], lacking: int, having: int) -> None:
    profiles = (A, replace(B, tensors={"x": B["x"]}))
    with pytest.raises(
        ProfileError, match=rf"^{lacking}\.yaml: has no tensor 'y', which {having}\.yaml has; "
    ):
        merged(*(profiles[i] for i in order))


def test_a_tensor_of_another_type_is_named() -> None:
    other = replace(B, tensors={**B.tensors, "y": replace(B["y"], dtype="double")})
    with pytest.raises(ProfileError, match=r"^1\.yaml: tensor 'y' is of double, in the others of float; "):
        merged(A, other)


def test_counts_do_not_wrap_round() -> None:
    full = replace(B, tensors={**B.tensors, "x": replace(B["x"], count=MAX_COUNT)})
    with pytest.raises(ProfileError, match=r"^1\.yaml: tensor 'x' would have more than \d+ elements"):
        merged(A, full)


def test_nothing_to_merge_is_an_error() -> None:
    with pytest.raises(ProfileError, match="merge: there is no profile; give at least one"):
        merged()


# Counted twice


def test_the_same_samples_in_two_shards_are_refused() -> None:
    with pytest.raises(
        ProfileError, match=r"^2\.yaml: seems to contain the same sample as 0\.yaml; leave one out"
    ):
        merged(A, B, A)


def test_the_same_samples_are_counted_twice_on_request_with_a_warning() -> None:
    profile, warnings = merged_with_warnings(A, B, A, allow=True)
    assert profile["x"].count == 9
    assert [warning.text for warning in warnings] == ["2.yaml: seems to contain the same sample as 0.yaml"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_total_beside_its_shards_is_refused(place: int) -> None:
    profiles = [A, B]
    profiles.insert(place, merged(A, B))
    with pytest.raises(
        ProfileError, match=rf"^{place}\.yaml: seems to contain the same 2 samples as all the others toge"
    ):
        merged(*profiles)


def test_profiles_without_samples_are_no_duplicates() -> None:
    empty = profiled([])
    assert merged_with_warnings(empty, empty, A)[1] == ()


def test_shards_with_and_without_channels_are_refused() -> None:
    plain = replace(B, tensors={**B.tensors, "x": replace(B["x"], channels=None)})
    for pair, what in (
        ((A, plain), "has no record of its channels"),
        ((plain, A), "has a record of its channels"),
    ):
        with pytest.raises(
            ProfileError, match=rf"1\.yaml: tensor 'x' {what}, other than in the others; profile all"
        ):
            merged(*pair)


def test_shards_with_channels_on_other_axes_are_refused() -> None:
    channels = B["x"].channels
    assert channels is not None
    other = replace(B, tensors={**B.tensors, "x": replace(B["x"], channels=replace(channels, axis=-1))})
    with pytest.raises(ProfileError, match=r"1\.yaml: tensor 'x' has 1 channels on axis -1, in the others"):
        merged(A, other)
