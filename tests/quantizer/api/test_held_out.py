"""Which samples are held out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import qprof_onnx as qprof
from qprof_onnx.profiles.base.errors import DataError
from qprof_onnx.profiles.base.findings import Code
from qprof_onnx.profiles.samples.objects import ChosenSamples
from qprof_onnx.profiles.samples.samples import check_same_again, open_samples
from qprof_onnx.profiles.samples.values import InputSpec
from qprof_onnx.quantizer.api.held_out import (
    SampleDigests,
    held_out_labels,
    held_out_positions,
    read_digests,
    split_samples,
)
from qprof_onnx.quantizer.evaluation.metrics.truth import load_labels

DIGITS = Path(__file__).parents[3] / "examples" / "digits"

SPECS = (InputSpec("x", np.dtype(np.float32), ("batch", 2)),)


def digests(count: int) -> tuple[tuple[int, ...], ...]:
    return tuple((7919 * number,) for number in range(1, count + 1))


def data(*rows: int) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.random((count, 2), np.float32) for count in rows]


@pytest.mark.parametrize(("samples", "out"), [(2, 1), (4, 2), (8, 4), (16, 4), (100, 25)])
def test_a_quarter_is_held_out_and_of_few_samples_up_to_half(samples: int, out: int) -> None:
    assert len(held_out_positions(digests(samples))) == out


def test_the_order_of_the_samples_does_not_matter() -> None:
    rows = digests(40)
    chosen = {rows[i] for i in held_out_positions(rows)}
    other = rows[::-1]
    assert {other[i] for i in held_out_positions(other)} == chosen


def test_equal_samples_are_on_one_side() -> None:
    rows = digests(20) * 2
    out = held_out_positions(rows)
    assert {i % 20 for i in out if i < 20} == {i % 20 for i in out if i >= 20}


def test_one_sample_is_judged_on_itself() -> None:
    found = split_samples(read_digests(data(3), SPECS, None))
    assert found.description.seen
    assert found.description.rows == 3
    assert found.description.text == "the 3 rows that the profile was made from"


def test_both_parts_together_are_the_data() -> None:
    source = data(1, 2, 3, 1, 1, 1, 1, 1)
    found = split_samples(read_digests(source, SPECS, None))
    names = [s.name for part in (found.profiled, found.held_out) for s in open_samples(part, SPECS)]
    assert sorted(names) == sorted(s.name for s in open_samples(source, SPECS))
    assert found.profiled_id.samples + found.description.rows == 11


def test_chosen_samples_of_a_folder_are_the_files_at_these_places(tmp_path: Path) -> None:
    for number in range(5):
        np.save(tmp_path / f"{number}.npy", np.full((1, 2), number, np.float32))
    chosen = open_samples(ChosenSamples(str(tmp_path), (1, 4)), SPECS)
    assert [sample.name for sample in chosen] == ["1.npy", "4.npy"]
    assert chosen.total == 2
    assert [sample.name for sample in chosen.part(1)] == ["4.npy"]


def test_the_labels_of_held_out_rows_go_with_them(tmp_path: Path) -> None:
    source = data(1, 2, 3, 1, 1, 1, 1, 1)
    (tmp_path / "labels.txt").write_text("\n".join(map(str, range(11))))
    found = split_samples(read_digests(source, SPECS, None))
    labels = held_out_labels(load_labels(tmp_path / "labels.txt"), found).classes
    starts = np.cumsum([0, 1, 2, 3, 1, 1, 1, 1, 1])
    wanted = [row for i in found.held_out.positions for row in range(starts[i], starts[i + 1])]
    assert labels.tolist() == wanted


def test_a_held_out_label_is_named_by_its_line_in_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(map(str, range(8))))
    np.save(tmp_path / "labels.npy", np.arange(8))
    found = split_samples(read_digests(data(*[1] * 8), SPECS, None))
    highest = max(found.held_out_places)
    for name, place in (("labels.txt", f"line {highest + 1}"), ("labels.npy", f"row {highest}")):
        labels = held_out_labels(load_labels(tmp_path / name), found)
        with pytest.raises(
            DataError, match=rf"{name}, {place}: label {highest} is not one of .* another output"
        ):
            labels.check_classes(highest)


def test_labels_that_are_none_for_some_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("1\n2\n3\n")
    found = split_samples(read_digests(data(1, 1), SPECS, None))
    with pytest.raises(DataError, match="3 labels, but the samples have 2 rows; give one label for each row"):
        held_out_labels(load_labels(tmp_path / "labels.txt"), found)


def test_labels_of_rows_beyond_a_limit_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(map(str, range(16))))
    found = split_samples(read_digests(data(*[1] * 16), SPECS, 8))
    labels = held_out_labels(load_labels(tmp_path / "labels.txt"), found).classes
    assert labels.tolist() == list(found.held_out.positions)


def test_labels_of_a_fixed_batch_are_those_of_its_rows(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(map(str, range(18))))  # 2 rows fill no batch
    batches = [{"x": np.full((4, 2), number, np.float32)} for number in range(4)]
    found = split_samples(read_digests(batches, [replace(SPECS[0], shape=(4, 2))], None))
    labels = held_out_labels(load_labels(tmp_path / "labels.txt"), found).classes
    assert labels.tolist() == [4 * at + row for at in found.held_out.positions for row in range(4)]


def test_another_source_is_judged_on_as_a_whole() -> None:
    one, other = (read_digests(source, SPECS, None) for source in (data(1, 2), data(4)))
    found = split_samples(one, others=other)
    assert (found.description.rows, found.description.seen, found.profiled_id.samples) == (4, False, 3)
    assert split_samples(one, others=one).description.seen


def test_no_samples_are_refused() -> None:
    with pytest.raises(DataError, match="no samples; there is nothing to profile"):
        read_digests([], SPECS, None)


def test_the_identity_is_that_of_a_profile() -> None:
    found = SampleDigests("x", ((1, 2), (3,)), (0, 1), (0, 2))
    assert (found.identity((0, 1)).samples, int(found.identity((1,)).digest, 16)) == (3, 3)


def test_samples_that_are_no_batches_count_as_one_each() -> None:
    specs = tuple(replace(spec, has_rows=False) for spec in SPECS)
    held_out = split_samples(read_digests(data(3, 4, 5, 6), specs, None)).description
    assert held_out.rows == held_out.samples == 2
    assert held_out.text == "2 held-out samples"


class Shuffling:
    """A loader that gives its samples in another order each time, as with shuffle=True."""

    def __init__(self, samples: Sequence[np.ndarray], *, of_rows: int = 1) -> None:
        self._samples, self._rows, self._rng = samples, of_rows, np.random.default_rng(0)

    def __iter__(self) -> Iterator[np.ndarray]:
        order = self._rng.permutation(len(self._samples))
        for start in range(0, len(order), self._rows):
            yield np.concatenate([self._samples[at] for at in order[start : start + self._rows]])


@pytest.mark.parametrize("part", ["profiled", "held_out", "plan_check"])
@pytest.mark.parametrize("rows", [1, 4])
def test_samples_that_come_in_another_order_than_when_they_were_split_are_refused(
    part: str, rows: int
) -> None:
    split = split_samples(read_digests(Shuffling(data(*[1] * 24), of_rows=rows), SPECS, None))
    with pytest.raises(DataError, match=r"another sample each time .*shuffle=True.*; give shuffle=False"):
        list(open_samples(split.plan_check(16) if part == "plan_check" else getattr(split, part), SPECS))


def test_large_samples_of_which_a_patch_is_drawn_at_random_are_refused() -> None:
    spec, calls = InputSpec("x", np.dtype(np.float32), (1, 3, 224, 224)), iter(range(9))

    def samples() -> Iterator[np.ndarray]:
        for number in range(4):
            picture = np.full((1, 3, 224, 224), number, np.float32)
            picture[:, :, :8, :8] = next(calls)
            yield picture

    with pytest.raises(DataError, match="random values"):
        list(open_samples(split_samples(read_digests(samples, [spec], None)).held_out, [spec]))


def test_a_list_of_what_shuffles_stays_as_it_is() -> None:
    split = split_samples(read_digests(list(Shuffling(data(*[1] * 8))), SPECS, None))
    assert len(list(open_samples(split.profiled, SPECS))) == 6 - 2


def test_labels_beside_samples_that_come_in_another_order_are_refused(tmp_path: Path) -> None:
    source, calm = Shuffling(data(*[1] * 24)), data(*[1] * 24)
    with pytest.raises(DataError, match="nor labels are those"):
        check_same_again(source, open_samples(source, SPECS))
    check_same_again(calm, open_samples(calm, SPECS))
    once = iter(calm)
    check_same_again(once, open_samples(once, SPECS))
    assert len(list(once)) == 24


MODEL = Path(__file__).parents[3] / "examples" / "digits" / "model.onnx"


def profiled_findings(model: Path, samples: list[np.ndarray]) -> list[str]:
    found = qprof.evaluate(MODEL, model, samples, latency=False)
    return [finding.text for finding in found.findings if finding.code is Code.SEEN_SAMPLES]


@pytest.mark.slow
def test_a_model_judged_on_samples_that_its_profile_was_made_from_is_told(tmp_path: Path) -> None:
    rng, out = np.random.default_rng(0), tmp_path / "q.onnx"
    samples = [rng.random((1, 1, 8, 8), np.float32) for _ in range(32)]
    qprof.quantize(MODEL, data=samples, output=out, latency=False, budget=0.0)
    (told,) = profiled_findings(out, samples[::-1])
    assert told.startswith("the profile was made from 24 of the 32 samples, on which a model is judged too")
    assert "the others are those that quantize held out" in told
    assert not profiled_findings(out, samples[1:])
    profile = qprof.profile(MODEL, samples, tmp_path / "p.yaml")
    qprof.quantize(MODEL, profile, out)
    (told,) = profiled_findings(out, samples)
    assert told.startswith("the profile was made from all 32 samples")


def test_a_profile_of_other_settings_beside_a_model_says_nothing_of_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    samples, others = ([rng.random((1, 1, 8, 8), np.float32) for _ in range(8)] for _ in range(2))
    qprof.profile(MODEL, samples, tmp_path / "p.yaml")
    qprof.quantize(MODEL, qprof.profile(MODEL, others), tmp_path / "q.onnx")
    assert not profiled_findings(tmp_path / "q.onnx", samples)


def test_evaluate_judges_on_the_samples_that_quantize_held_out() -> None:
    result = qprof.quantize(DIGITS / "model.onnx", data=DIGITS / "calibration", latency=False)
    judged = result.judged.evaluation
    files = DIGITS / "model.onnx", result, DIGITS / "calibration"
    held_out = qprof.evaluate(*files, latency=False, held_out=True)
    assert (held_out.samples, held_out.outputs) == (judged.samples, judged.outputs)
    assert held_out.subject == judged.subject
    assert not [one for one in held_out.findings if one.code is Code.SEEN_SAMPLES]
    every = qprof.evaluate(*files, latency=False)
    assert every.samples > held_out.samples


def test_of_one_sample_none_is_held_out() -> None:
    result = qprof.quantize(DIGITS / "model.onnx", data=DIGITS / "calibration", latency=False)
    one = [np.load(DIGITS / "calibration" / "00.npz")]
    with pytest.raises(DataError, match="no sample is held out of one"):
        qprof.evaluate(DIGITS / "model.onnx", result, [dict(one[0])], latency=False, held_out=True)
