"""Check samples: which are kept, the bytes of their file, and files that are not what they should be."""

from __future__ import annotations

import io
import os
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ConfigError, DataError
from qprof_onnx.profiles.records import check_samples as module
from qprof_onnx.profiles.records.check_samples import (
    CheckSample,
    chosen_samples,
    read_samples_file,
    samples_content,
    samples_file,
)
from qprof_onnx.profiles.records.profile import DataId, ModelId, Profile
from qprof_onnx.profiles.records.store import load_profile, save_profile, with_samples_of_file
from qprof_onnx.profiles.samples import arrays
from qprof_onnx.profiles.samples.preprocessing import Preprocessing
from qprof_onnx.profiles.samples.values import InputSpec


def samples(count: int, seed: int = 0) -> list[CheckSample]:
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        digest = f"{int(rng.integers(1 << 60)):032x}"
        length = int(rng.integers(1, 9))
        values = rng.normal(size=(1, length, 3)).astype(np.float32) * (number + 1)
        made.append(CheckSample(digest, {"x": values, "n": np.array([length])}))
    return made


def same(a: CheckSample, b: CheckSample) -> bool:
    return a.digest == b.digest and all(
        a.arrays[name].dtype == b.arrays[name].dtype and np.array_equal(a.arrays[name], b.arrays[name])
        for name in a.arrays
    )


@given(st.integers(0, 99), st.lists(st.integers(0, 3), min_size=40, max_size=40), st.integers(0, 20))
@settings(deadline=None, max_examples=50)
def test_the_choice_from_shards_is_the_choice_from_all(seed: int, shard: list[int], count: int) -> None:
    every = samples(40, seed)
    parts = [
        chosen_samples([s for s, n in zip(every, shard, strict=True) if n == at], count) for at in range(4)
    ]
    merged = chosen_samples([sample for part in parts[::-1] for sample in part], count)
    assert [s.digest for s in merged] == [s.digest for s in chosen_samples(every, count)]
    assert len(merged) <= count


def test_the_choice_from_shards_is_the_choice_from_all_where_room_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DIGEST_BYTES", 300)
    monkeypatch.setattr(module, "EXTREME_BYTES", 80)
    for seed in range(40):
        every = samples(30, seed)
        parts = [chosen_samples(every[at::3], 16) for at in range(3)]
        merged = chosen_samples([sample for part in parts for sample in part], 16)
        assert [s.digest for s in merged] == [s.digest for s in chosen_samples(every, 16)]
        assert len(merged) < 16


def test_the_loudest_the_quietest_the_longest_and_the_shortest_are_kept() -> None:
    every = samples(200, seed=5)
    kept = {sample.digest for sample in chosen_samples(every, 16)}
    powers = {
        s.digest: float(np.mean(np.concatenate([np.square(v.ravel()) for v in s.arrays.values()])))
        for s in every
    }
    sizes = {s.digest: s.arrays["x"].size for s in every}
    assert max(powers, key=powers.__getitem__) in kept
    assert min(powers, key=powers.__getitem__) in kept
    assert max(sizes[digest] for digest in kept) == max(sizes.values())
    assert min(sizes[digest] for digest in kept) == min(sizes.values())


@pytest.mark.parametrize(
    "array",
    [
        np.linspace(0, 1, 7, dtype=np.float32).repeat(200).reshape(1, 10, 140),
        np.arange(3000, dtype=np.float32).repeat(3),
        np.random.default_rng(0).normal(size=(3, 50)).astype(np.float64),
        np.array([0.0, -0.0, np.nan, np.inf] * 9, np.float32),
        np.arange(300, dtype=np.int64).reshape(3, 100),
        np.array([[True, False]]),
        np.float16(3.5).reshape(()),
        np.array([["a", "väter"]], dtype=object),
        np.zeros((0, 4), np.float32),
    ],
)
def test_arrays_come_back_from_the_file_to_the_bit(array: np.ndarray, tmp_path: Path) -> None:
    file = tmp_path / "p.samples.npz"
    file.write_bytes(samples_content([CheckSample("0" * 32, {"../odd/name:0": array})]))
    (back,) = read_samples_file(file)
    other = back.arrays["../odd/name:0"]
    assert (other.dtype, other.shape) == (array.dtype, array.shape)
    assert other.tolist() == array.tolist() or other.tobytes() == array.tobytes()


def profile_with(held: list[CheckSample]) -> Profile:
    return Profile(ModelId("0", "0", 17), DataId(1, "0" * 32), {}).with_held(held, 16)


def test_a_profile_is_read_with_its_samples_and_says_why_it_has_none(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    profile = profile_with(samples(5))
    save_profile(profile, path)
    read, why = with_samples_of_file(load_profile(path), path)
    assert (why, read) == ("", profile)
    assert all(map(same, read.held_samples, profile.held_samples))

    file = samples_file(path)
    assert file.name == "p.samples.npz"
    whole = file.read_bytes()
    file.write_bytes(samples_content(samples(5, seed=1)))
    assert "of another profile" in with_samples_of_file(load_profile(path), path)[1]
    file.write_bytes(whole[: len(whole) // 2])
    assert "is damaged" in with_samples_of_file(load_profile(path), path)[1]
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert "more than check samples have" in with_samples_of_file(load_profile(path), path)[1]
    file.unlink()
    assert "cannot be read" in with_samples_of_file(load_profile(path), path)[1]


def test_damaged_bytes_never_give_another_error(tmp_path: Path) -> None:
    file = tmp_path / "p.samples.npz"
    whole = samples_content(samples(3))
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), 3):
            damaged[at] = int(rng.integers(256))
        file.write_bytes(damaged)
        with suppress(DataError):
            read_samples_file(file)


def test_a_header_that_promises_more_than_there_is_takes_no_memory(tmp_path: Path) -> None:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        content, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}
    )
    file = tmp_path / "p.samples.npz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("names.npy", content.getvalue())
    with pytest.raises(DataError, match="is damaged"):
        read_samples_file(file)


def test_a_file_that_unpacks_to_more_than_is_ever_written_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.samples.npz"
    file.write_bytes(samples_content([CheckSample("0" * 32, {"x": np.zeros(1 << 16)})]))
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 1 << 16)
    assert file.stat().st_size < 1 << 12
    with pytest.raises(DataError, match="is damaged"):
        read_samples_file(file)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "p.samples.npz"
    os.mkfifo(file)
    with pytest.raises(DataError, match="is not a file"):
        read_samples_file(file)
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="is not a file"):
        read_samples_file(file)


@pytest.mark.parametrize(
    "members",
    [
        {"names": np.array("x"), "digests": np.array(["0"])},
        {"names": np.array(["x"]), "digests": np.array("0")},
        {"names": np.array(["x"]), "digests": np.array(["0"]), "0.0": np.empty((1 << 40, 0))},
    ],
)
def test_names_without_an_axis_and_endless_rows_of_nothing_are_damage(
    members: dict[str, np.ndarray], tmp_path: Path
) -> None:
    file = tmp_path / "p.samples.npz"
    with file.open("wb") as content:
        np.savez(content, **members)
    with pytest.raises(DataError, match="is damaged"):
        read_samples_file(file)


@pytest.mark.parametrize("kept", [5, 0])
def test_a_file_that_holds_no_check_samples_is_neither_replaced_nor_removed(
    kept: int, tmp_path: Path
) -> None:
    path, own = tmp_path / "p.yaml", tmp_path / "p.samples.npz"
    np.savez(own, x=np.ones(3))
    before = own.read_bytes()
    with pytest.raises(ConfigError, match=r"p.samples.npz: contains no check samples .*another name"):
        save_profile(profile_with(samples(kept)), path)
    assert (own.read_bytes(), path.exists()) == (before, False)
    own.write_bytes(samples_content(samples(3))[:300])  # cut short, but of a profile
    save_profile(profile_with(samples(kept)), path)
    assert own.exists() == bool(kept)


def test_check_samples_in_a_folder_of_samples_are_none(tmp_path: Path) -> None:
    np.savez(tmp_path / "0.npz", x=np.ones((1, 2), np.float32))
    np.savez(tmp_path / "1.samples.npz", x=np.ones((1, 2), np.float32))
    (tmp_path / "p.samples.npz").write_bytes(samples_content(samples(2)))
    specs = [InputSpec("x", np.dtype(np.float32), ("n", 2))]
    assert len(list(arrays.open(str(tmp_path), specs, Preprocessing()))) == 2


def test_samples_of_an_earlier_profile_do_not_stay_beside_one_without(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    save_profile(profile_with(samples(5)), path)
    assert samples_file(path).is_file()
    save_profile(replace(profile_with([]), keep_samples=0), path)
    assert not samples_file(path).exists()


def test_merged_profiles_keep_none_where_one_does_not_hold_its_samples() -> None:
    one, other = profile_with(samples(5)), profile_with(samples(5, seed=1))
    assert len(one.merged(other).held_samples) == 10
    without = one.merged(replace(other, held_samples=()))
    assert (without.check_samples, without.keep_samples) == ((), 0)
