"""The samples with the smallest digests: the same ones in any order and however the data are batched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from qprof_onnx.profiles.records import check_samples
from qprof_onnx.profiles.samples import smallest as module
from qprof_onnx.profiles.samples.samples import open_samples, sample_digests
from qprof_onnx.profiles.samples.smallest import SmallestSamples
from qprof_onnx.profiles.samples.values import InputSpec, Sample, Samples

SPECS = (InputSpec("x", np.dtype(np.float32), ("n", 2)),)
ROWS = np.arange(24, dtype=np.float32).reshape(12, 2)


def stand_alone(_: Sample) -> bool:
    return True


NONE = Samples("nothing", 0, lambda _: iter(()))


def chosen(batches: list[npt.NDArray[np.float32]], count: int = 3, *, hold: bool = True) -> SmallestSamples:
    keep = SmallestSamples(SPECS, count, stand_alone, hold=hold)
    for number, rows in enumerate(batches):
        sample = Sample(str(number), {"x": rows})
        keep.note(number, sample, sample_digests(sample.arrays, SPECS))
    return keep


def kept(keep: SmallestSamples, source: Samples = NONE) -> list[tuple[str, list[float]]]:
    return sorted((digest, sample.arrays["x"].tolist()) for digest, sample in keep.samples(source))


def test_order_batches_and_repetitions_do_not_matter() -> None:
    expected = kept(chosen([ROWS]))
    assert len(expected) == 3
    assert kept(chosen([ROWS[i : i + 1] for i in range(12)][::-1])) == expected
    assert kept(chosen([ROWS[:5], ROWS[3:9], ROWS[5:]])) == expected


def test_fewer_samples_than_wanted_are_all_kept() -> None:
    assert len(kept(chosen([ROWS[:2]]))) == 2


def test_those_of_shards_are_read_again(tmp_path: Path) -> None:
    for number in range(4):
        np.savez(tmp_path / f"{number}.npz", x=ROWS[3 * number : 3 * number + 3])
    files = [ROWS[3 * n : 3 * n + 3] for n in range(4)]
    again = SmallestSamples(SPECS, 3, stand_alone)
    again.add(chosen(files, hold=False).places())
    assert kept(again, open_samples(str(tmp_path), SPECS)) == kept(chosen(files))


def test_a_sample_that_is_not_what_it_was_is_left_out() -> None:
    same, other = (Sample("0", {"x": ROWS[:6] + change}) for change in (0, 100))
    for sample, count in ((same, 3), (other, 0)):
        source = Samples("own:samples", None, lambda part, sample=sample: iter([sample][part]))
        assert len(kept(chosen([ROWS[:6]], hold=False), source)) == count


def test_a_sample_that_takes_much_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SAMPLE_BYTES", 7)
    assert chosen([ROWS]).places() == ()


def test_of_small_samples_more_are_kept_the_same_ones_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_samples, "FEW", 2)
    monkeypatch.setattr(check_samples, "MORE_BYTES", 70)
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, size=60)
    rows = [rng.normal(size=(1, int(size), 2)).astype(np.float32) for size in sizes]
    specs = (InputSpec("x", np.dtype(np.float32), (1, "n", 2)),)

    def noted(order: list[int]) -> list[str]:
        keep = SmallestSamples(specs, 16, stand_alone)
        for number in order:
            sample = Sample(str(number), {"x": rows[number]})
            keep.note(number, sample, sample_digests(sample.arrays, specs))
        return [place.digest for place in keep.places()]

    expected = noted(list(range(60)))
    assert 2 < len(expected) < 16
    for seed in range(20):
        assert noted([int(n) for n in np.random.default_rng(seed).permutation(60)]) == expected
