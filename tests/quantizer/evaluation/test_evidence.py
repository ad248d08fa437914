"""A gate never passes on less evidence than its limit asks for: the law, for every metric of the table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qprof_onnx.profiles.base.errors import ConfigError, DataError
from qprof_onnx.profiles.samples.values import Sample
from qprof_onnx.quantizer.evaluation.compare import OutputSums
from qprof_onnx.quantizer.evaluation.gates import GateFailure, check_gate, failures_of, limit_failures
from qprof_onnx.quantizer.evaluation.grades import Decision
from qprof_onnx.quantizer.evaluation.latency import Latency
from qprof_onnx.quantizer.evaluation.metrics.intervals import bootstrap_interval, drop_interval
from qprof_onnx.quantizer.evaluation.metrics.metric import Outputs, mean_of
from qprof_onnx.quantizer.evaluation.metrics.score import OtherRows, Score, score_of
from qprof_onnx.quantizer.evaluation.metrics.table import metric_names
from qprof_onnx.quantizer.evaluation.metrics.user_functions import user_metric
from qprof_onnx.quantizer.evaluation.options import Gate
from qprof_onnx.quantizer.plugins.drift.limits import DriftLimits

from .running import accuracy_of, opened, scored

for library in ("pycocotools", "rapidfuzz"):
    pytest.importorskip(library, reason="of the extra test-all")

Samples = list[Outputs]
TOKENS = ("", *"abcdefgh ")


def classes(rng: np.random.Generator, count: int) -> Samples:
    return [{"y": rng.normal(size=(1, 12)).astype(np.float32)} for _ in range(count)]


def boxes(rng: np.random.Generator, count: int) -> Samples:
    """Return three sure boxes for each picture of 64 pixels: corners, score, class."""
    found = []
    for _ in range(count):
        corner, size = rng.uniform(0, 40, (3, 2)), rng.uniform(6, 24, (3, 2))
        found.append(
            {
                "y": np.concatenate([corner, corner + size, np.full((3, 1), 0.9), np.ones((3, 1))], axis=1)[
                    None
                ]
            }
        )
    return found


def masks(rng: np.random.Generator, count: int) -> Samples:
    return [{"y": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


def pairs(rng: np.random.Generator, count: int) -> Samples:
    return [{"y": rng.normal(size=(2, 16)).astype(np.float32)} for _ in range(count)]


def speech(rng: np.random.Generator, count: int) -> Samples:
    return [{"y": rng.normal(size=(1, 30, len(TOKENS))).astype(np.float32)} for _ in range(count)]


def pictures(rng: np.random.Generator, count: int) -> Samples:
    return [{"y": rng.uniform(size=(1, 1, 16, 16)).astype(np.float32)} for _ in range(count)]


def numbers(rng: np.random.Generator, count: int) -> Samples:
    return [{"y": rng.normal(size=(1, 3)).astype(np.float32)} for _ in range(count)]


def scores_of_tokens(rng: np.random.Generator, count: int) -> Samples:
    return [{"y": 8.0 * rng.normal(size=(1, 30, 9)).astype(np.float32)} for _ in range(count)]


OUTPUTS: dict[str, Callable[[np.random.Generator, int], Samples]] = {
    **dict.fromkeys(("top-1", "top-5"), classes),
    **dict.fromkeys(("f1", "map", "map50"), boxes),
    "miou": masks,
    **dict.fromkeys(("recall@1", "mrr", "cosine"), pairs),
    **dict.fromkeys(("wer", "cer"), speech),
    **dict.fromkeys(("psnr", "ssim"), pictures),
    **dict.fromkeys(("rmse", "mae", "r2"), numbers),
    "perplexity": scores_of_tokens,
}
"""What a model of each metric puts out."""


def asked(name: str, folder: Path) -> str:
    (folder / "tokens.txt").write_text("\n".join(TOKENS))
    return f"{name}:charset={folder / 'tokens.txt'}" if name in ("wer", "cer") else name


def truth_of(name: str, samples: Samples, folder: Path) -> Path | list[Sample] | None:
    """Write the truth that outputs are wholly right by; None for a metric that reads none. Of perplexity
    return the samples, whose tokens are the truth."""
    file = folder / ("truth.txt" if name[:3] in ("top", "rec", "mrr", "wer", "cer") else "truth.npy")
    values = [sample["y"] for sample in samples]
    if name == "cosine":
        return None
    if name == "perplexity":
        ids = [np.roll(v.argmax(axis=2), 1, axis=1).astype(np.int64) for v in values]
        return [Sample(f"{at}", {"input_ids": tokens}) for at, tokens in enumerate(ids)]
    if name.startswith("top"):
        file.write_text("\n".join(str(int(v.argmax())) for v in values))
    elif name in ("recall@1", "mrr"):
        file.write_text("\n".join(f"{n}\n{n}" for n in range(len(values))))
    elif name in ("wer", "cer"):
        metric = opened(asked(name, folder), samples[0])
        file.write_text("\n".join(metric.truth(None, sample)[0][0] for sample in samples))
    elif name in ("f1", "map", "map50"):
        file = folder / "yolo"
        file.mkdir()
        for at, (value,) in enumerate(values):
            centre, size = (value[:, :2] + value[:, 2:4]) / 2, value[:, 2:4] - value[:, :2]
            rows = np.concatenate([np.ones((len(value), 1)), centre / 64, size / 64], axis=1)
            np.savetxt(file / f"{at}.txt", rows, fmt=["%d", *["%.6f"] * 4])
    else:
        found = np.concatenate([v.argmax(axis=1) if name == "miou" else v for v in values])
        np.save(file, found)
    return file


def embedded(samples: Samples) -> Samples:
    """Return pairs whose second row is near their first."""
    return [{"y": np.stack([s["y"][0], s["y"][0] + 0.1 * s["y"][1]])} for s in samples]


def score(
    name: str, folder: Path, truth: Path | list[Sample] | None, floats: Samples, quantized: Samples
) -> Score:
    if isinstance(truth, list):
        return scored(opened(name, floats[0]), floats, quantized, samples=truth)
    return scored(opened(asked(name, folder), floats[0], truth), floats, quantized)


def passes(found: Score, limit: float) -> bool:
    return not failures_of(Gate(max_drop=limit), (), found, None, found.samples)


@pytest.mark.parametrize("name", list(metric_names()))
def test_a_gate_on_a_drop_never_passes_with_the_truth_of_other_data(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    outputs = OUTPUTS[name]
    floats, quantized, others = (outputs(rng, 60) for _ in range(3))  # three models of nothing in common
    if name in ("rmse", "mae"):
        others = [{"y": 10_000 + other["y"]} for other in others]
    truth = truth_of(name, others, tmp_path)
    if name == "cosine":  # the float model is its truth: here it answers the same to everything
        floats = quantized = [{"y": np.ones((2, 16), np.float32)}] * 60
    found = score(name, tmp_path, truth, floats, quantized)
    assert found.is_at_chance
    assert (found.drop_low, found.drop_high) == (-math.inf, math.inf)
    (failure,) = failures_of(Gate(max_drop=99.0), (), found, None, 60)
    assert "do labels, their order and numbers, and --preprocess belong to this model?" in failure.reason or (
        "are labels in the model's order" in failure.reason
    )


@pytest.mark.parametrize("name", list(metric_names()))
def test_a_truth_that_fits_is_known_to_fit(name: str, tmp_path: Path) -> None:
    floats = OUTPUTS[name](np.random.default_rng(1), 24)
    floats = embedded(floats) if name in ("recall@1", "mrr", "cosine") else floats
    found = score(name, tmp_path, truth_of(name, floats, tmp_path), floats, floats)
    assert not found.is_at_chance
    # rmse and mae are 0 here: of nothing no percentage is lost
    assert math.isfinite(found.drop_high) or name in ("rmse", "mae")


@pytest.mark.parametrize("name", list(metric_names()))
@pytest.mark.parametrize("rows", [2, 24])
def test_equal_rows_prove_no_more_than_their_number_allows(name: str, rows: int, tmp_path: Path) -> None:
    floats = OUTPUTS[name](np.random.default_rng(2), rows)
    floats = embedded(floats) if name in ("recall@1", "mrr", "cosine") else floats
    truth = truth_of(name, floats, tmp_path)
    # a last bit of float64 is no difference either
    quantized = [{"y": sample["y"].astype(np.float64) * (1 + 2e-16)} for sample in floats]
    quantized = floats if name in ("top-1", "top-5", "wer", "cer", "miou") else quantized
    found = score(name, tmp_path, truth, floats, quantized)
    assert not passes(found, 0.01)
    needed = found.rows_to_show(0.01)
    assert needed is None or needed > 1000


@given(st.integers(2, 5000), st.floats(0.001, 50.0))
def test_rows_without_a_difference_pass_only_where_a_share_of_the_limit_would_have_shown(
    rows: int, limit: float
) -> None:
    """A share p of rows that lose all is missed by n rows with probability (1 - p)^n.

    Where no row differs, both intervals end at 2.77 / (n + 2), as Bonett and Price have it: that probability
    is 9.4 % for two rows, 7.5 % for eight and 6.5 % for forty; an exact bound would have 5 %.
    """
    missed = (1.0 - limit / 100.0) ** rows
    for found in (
        drop_interval(np.zeros(rows)),
        bootstrap_interval(lambda weights: 0.0 * weights[:, 0], min(rows, 40), 100.0),
    ):
        if found.high <= limit and rows <= 40:
            assert missed <= (0.095 if rows < 8 else 0.075)


@given(st.lists(st.floats(-100.0, 100.0), min_size=2, max_size=40))
def test_no_interval_is_without_width(drops: list[float]) -> None:
    found = drop_interval(np.array(drops))
    assert found.low < found.high


@given(st.integers(2, 40), st.floats(-50.0, 50.0))
def test_units_that_all_lose_the_same_do_not_prove_it(units: int, lost: float) -> None:
    found = bootstrap_interval(lambda weights: lost + 0.0 * weights[:, 0], units, 100.0)
    assert found.high - found.low >= 100.0 / (units + 2)


def test_one_line_of_ten_that_differs_does_not_make_the_interval_narrower_than_none() -> None:
    def drop(weights: np.ndarray) -> np.ndarray:
        return weights[:, 0] / weights.sum(axis=1)

    none = bootstrap_interval(lambda weights: 0.0 * drop(weights), 10, 100.0, differing=0)
    one = bootstrap_interval(drop, 10, 100.0, differing=1)
    assert one.high >= none.high


def test_two_pictures_that_gain_do_not_prove_a_gain() -> None:
    found = bootstrap_interval(lambda weights: weights @ np.array([-1.0, -2.0]) / 2.0, 2)
    assert found.high > 0.0


def test_the_rows_that_would_do_are_said_for_a_metric(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    floats = speech(rng, 24)
    found = score("wer", tmp_path, truth_of("wer", floats, tmp_path), floats, floats)
    (failure,) = failures_of(Gate(max_drop=1.0), (), found, None, 24)
    assert "about 276 would, if they differ as often" in failure.reason
    assert drop_interval(np.zeros(276)).high <= 1.0 < drop_interval(np.zeros(274)).high


def test_other_rows_are_never_the_row_itself_and_have_its_shape() -> None:
    others = OtherRows()
    assert others.truth(np.array([[1.0, 2.0]])) is None
    assert np.array_equal(others.truth(np.array([[3.0, 4.0]])), [[1.0, 2.0]])
    drawn = OtherRows().truth(np.arange(50))
    assert (drawn != np.arange(50)).all()
    assert OtherRows().truth(["a", "b"]) == ["b", "a"]
    pictures = OtherRows()
    assert pictures.truth(np.array([[[1, 2], [3, 4]]])) is None
    assert pictures.truth(np.zeros((1, 3, 1), int)).tolist() == [[[1], [3], [1]]]


def test_r2_keeps_its_digits_where_numbers_are_large_and_hardly_vary(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    truth = 1e8 + rng.normal(size=(60, 3))
    np.save(tmp_path / "t.npy", truth)
    samples = [{"y": row[None]} for row in truth + rng.normal(0.0, 0.1, truth.shape)]
    found = scored(opened("r2", samples[0], tmp_path / "t.npy"), samples, samples)
    error = sum(float(((s["y"] - t) ** 2).sum()) for s, t in zip(samples, truth, strict=True))
    wanted = 100.0 * (1.0 - error / (truth.size * truth.var()))
    assert found.float_score == pytest.approx(wanted, abs=1e-6)


@given(
    st.sampled_from([field.name for record in (Gate, DriftLimits) for field in fields(record)]),
    st.floats(-1e6, 1e6),
    st.one_of(st.none(), st.floats()),
    st.one_of(st.none(), st.floats()),
    st.sampled_from(["", "too few rows"]),
)
def test_every_gate_passes_on_proof_and_fails_on_measurement_alone(
    demand: str, limit: float, measured: float | None, worst: float | None, doubt: str
) -> None:
    least = demand.startswith("min_")

    def keeps(figure: float | None) -> bool:
        return figure is not None and (figure >= limit if least else figure <= limit)

    found = list(limit_failures(demand, limit, measured, worst=worst, doubt=doubt))
    assert bool(found) != (not doubt and keeps(measured if worst is None else worst))
    for failure in found:
        is_number = measured is not None and not math.isnan(measured)
        assert (failure.result == "failed") == (is_number and not doubt and not keeps(measured))
        assert failure.missing >= 0.0


def test_outputs_without_a_signal_prove_no_sqnr() -> None:
    def found(*pairs: tuple[list[float], list[float]]) -> list[GateFailure]:
        outputs = []
        for at, (floats, quantized) in enumerate(pairs):
            sums = OutputSums()
            sums.add(np.array([floats], np.float32), np.array([quantized], np.float32))
            outputs.append(sums.result(f"y{at}"))
        return list(failures_of(Gate(min_sqnr=10.0), outputs, None, None, 1))

    silent, alive = ([0.0, 0.0], [0.0, 0.0]), ([1.0, 2.0], [1.0, 2.0])
    assert not found(alive)
    assert not found(silent, alive)  # an output that is 0 here shows nothing, and loses nothing
    for pairs in ([silent], [([], [])], [([0.0, 0.0], [0.0, 1.0])], [([np.nan], [np.nan])], []):
        (failure,) = found(*pairs)
        assert (failure.result, failure.measured) == ("not proven", None)
    (failure,) = found(([1.0, 1.0], [1.0, np.nan]))
    assert failure.result == "not proven"
    (failure,) = found(([1.0, 1.0], [1.0, 0.0]))
    assert failure.result == "failed"


def test_a_speed_of_fewer_rounds_than_a_quartile_needs_proves_nothing() -> None:
    fast = Latency(2.0, 1.0, 2.0, 1.9, 2.1, rounds=4, runs=8, samples=2, threads=1)
    (failure,) = failures_of(Gate(min_speedup=1.5), (), None, fast, 1)
    assert (failure.result, failure.reason.partition(";")[0]) == ("not proven", "4 rounds are fewer than 5")
    assert not failures_of(Gate(min_speedup=1.5), (), None, replace(fast, rounds=5), 1)
    (failure,) = failures_of(Gate(min_speedup=1.95), (), None, replace(fast, rounds=5), 1)
    assert failure.result == "not proven"
    (failure,) = failures_of(Gate(min_speedup=2.5), (), None, replace(fast, rounds=5), 1)
    assert failure.result == "failed"


def test_a_score_with_a_truth_that_does_not_fit_proves_no_least_score(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    floats, others = pictures(rng, 40), pictures(rng, 40)
    found = score("psnr", tmp_path, truth_of("psnr", others, tmp_path), floats, floats)
    assert found.quantized_score > 1.0
    (failure,) = failures_of(Gate(min_score=1.0), (), found, None, 40)
    assert failure.result == "not proven"


def test_a_gate_on_a_score_needs_labels_or_a_metric() -> None:
    with pytest.raises(ConfigError, match="max_drop: nothing is scored; give labels, or name a metric"):
        check_gate(Gate(max_drop=1.0), labels=False, latency=False)
    with pytest.raises(ConfigError, match="min_score: nothing is scored; give labels, or name a metric"):
        check_gate(Gate(min_score=1.0), labels=False, latency=False)
    with pytest.raises(ConfigError, match="min_sqnr: nan is not finite"):
        check_gate(Gate(min_sqnr=math.nan), labels=False, latency=False)
    for labels, metric in ((True, None), (False, "psnr")):
        check_gate(Gate(max_drop=1.0, min_score=1.5), labels=labels, latency=False, metric=metric)


@pytest.mark.parametrize("metric", [None, "top-5", "map50:nms=0.6", "r2"])
def test_a_least_score_in_percent_that_was_meant_as_a_part_of_1_is_refused(metric: str | None) -> None:
    with pytest.raises(ConfigError, match=r"--min-score 0\.99: the score is in percent; write 99, or 99%"):
        check_gate(Gate(min_score=0.99), labels=metric is None, latency=False, metric=metric)


def test_a_drop_of_all_that_a_function_gave_the_float_model_is_not_proven() -> None:
    kind = user_metric(lambda outputs, indices: [1.5]).kind
    floats, quantized = mean_of(np.full(4000, 1.5)), mean_of(np.zeros(4000))
    found = score_of(kind, 4000, floats, quantized)
    (failure,) = failures_of(Gate(max_drop=2.0), (), found, None, 4000)
    assert failure.result == "not proven"
    assert "1.5 in the unit of the function" in failure.reason


def test_a_function_that_gives_0_to_1_is_refused() -> None:
    def share(outputs: object, indices: object) -> list[float]:
        return [0.99]

    kind = user_metric(share).kind
    with pytest.raises(DataError, match=r"metric share: gives the float model 0\.99 of 100 points"):
        score_of(kind, 400, mean_of(np.full(400, 0.99)), mean_of(np.full(400, 0.5)))


@pytest.mark.parametrize("metric", ["cer", "rmse", "psnr", "mine.py:right", lambda outputs, indices: [1.0]])
def test_a_least_score_below_1_is_one_where_the_unit_is_another_or_lower_is_better(metric: Any) -> None:
    check_gate(Gate(min_score=0.99), labels=False, latency=False, metric=metric)


OVERRULED = "output 'emb' is poor, and the score does not read it"
POOR = Decision("poor", "outputs", "poor", overruled=OVERRULED)


@pytest.mark.parametrize(
    ("decision", "proves"),
    [
        (Decision("good", "score", "good"), True),
        (Decision("fair", "outputs", "fair", overruled=OVERRULED), True),
        (Decision("poor", "outputs", "poor"), True),
        (POOR, False),
    ],
)
@pytest.mark.parametrize("gate", [Gate(max_drop=1.0), Gate(min_score=99.0)], ids=["max_drop", "min_score"])
def test_a_score_that_a_poor_output_overrules_proves_no_limit(
    gate: Gate, decision: Decision, proves: bool
) -> None:
    right = np.ones(4000, np.bool_)
    found = accuracy_of(right, right)
    failures = failures_of(gate, (), found, None, 4000, decision=decision)
    assert [(one.result, one.reason) for one in failures] == ([] if proves else [("not proven", OVERRULED)])


def test_a_limit_that_the_score_does_not_keep_has_failed_whatever_the_outputs_are() -> None:
    right = np.arange(4000) % 2 == 0
    found = accuracy_of(np.ones(4000, np.bool_), right)
    (failure,) = failures_of(Gate(max_drop=1.0), (), found, None, 4000, decision=POOR)
    assert failure.result == "failed"
