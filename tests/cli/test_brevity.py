"""A run prints at most twelve lines, what matters most first; --verbose prints the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from qprof_onnx.cli.commands.evaluate import LISTED_OUTPUTS
from qprof_onnx.cli.console import NOTES, result_text, tell_findings, tell_unprinted_notes
from qprof_onnx.profiles.base.findings import Code, Finding
from qprof_onnx.quantizer.evaluation.compare import Difference
from qprof_onnx.quantizer.evaluation.evaluate import Evaluation
from qprof_onnx.quantizer.evaluation.latency import Latency

from ..quantizer.search.judged import evaluation
from .running import qprof

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, CALIBRATION, HELD_OUT = (str(DIGITS / name) for name in ("model.onnx", "calibration", "heldout"))
LABELS = str(DIGITS / "heldout" / "labels.txt")
MOST = 12


def run(*words: object) -> Result:
    result = qprof(*words)
    assert result.exit_code == 0, result.output
    return result


def lines_of(result: Result) -> list[str]:
    """Return what a person sees of a run: results and remarks, without the progress of slow machines."""
    lines = [*result.stdout.splitlines(), *result.stderr.splitlines()]
    return [line for line in lines if not line.startswith("trying:")]


@pytest.mark.slow
def test_a_model_that_is_judged_is_told_in_twelve_lines_the_task_first(tmp_path: Path) -> None:
    words = ("--data", CALIBRATION, "--holdout-data", HELD_OUT, "--calibrator", "kl")
    unhurried = ("--set", "cost_model=off", "--set", "budget=600")
    files = ("-o", tmp_path / "q.onnx", "--report", tmp_path / "report")
    result = run("quantize", MODEL, *words, *unhurried, *files)
    lines = lines_of(result)
    assert len(lines) == 10
    assert lines[0].startswith("verdict   fair: output 'logits': probability error 2.7 %")
    names = [line.split(" ")[0] for line in lines if not line.startswith(" ")]
    assert names[1:4] == ["size", "speed", "int8"]
    assert (names.count("cause"), names.count("try")) == (1, 1)
    assert f"report    {tmp_path / 'report' / 'report.html'}, which shows 5 of the samples" in lines


def test_a_model_without_samples_has_size_quality_speed_and_share(profile: Path, tmp_path: Path) -> None:
    result = run("quantize", MODEL, "--profile", profile, "-o", tmp_path / "q.onnx")
    names = [line.split(" ")[0] for line in result.stdout.splitlines()]
    assert names == ["written", "size", "quality", "speed", "int8"]
    assert "lookup-table" not in result.stdout
    verbose = run("quantize", MODEL, "--profile", profile, "-o", tmp_path / "q.onnx", "--verbose")
    assert "nodes     8 quantized, 2 lookup-table, 6 pass-through" in verbose.stdout
    assert "note: [output-kind] output 'logits': decision (a row of a matrix product" in verbose.stdout


@pytest.mark.slow
def test_profiling_comparing_and_tuning_are_brief(profile: Path, tmp_path: Path) -> None:
    model = tmp_path / "q.onnx"
    run("quantize", MODEL, "--profile", profile, "-o", model)
    samples = ("--data", HELD_OUT, "--labels", LABELS)
    profiled = run("dump-profile", MODEL, "--data", CALIBRATION, "-o", tmp_path / "p.yaml")
    compared = run("evaluate", MODEL, model, *samples)
    tuned = run("tune", MODEL, "--profile", profile, *samples)
    assert [len(lines_of(result)) <= MOST for result in (profiled, compared, tuned)] == [True] * 3
    assert compared.stdout.startswith("verdict    good: accuracy 99.50 -> 99.50 % of 400 rows")
    assert tuned.stdout.startswith("result     target met")


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (
            0.36,
            1.34,
            "unclear, the machine is busy: 0.36 to 1.34 times as fast as float (1 thread); predicted 2.0",
        ),
        (1.10, 1.84, "unclear, the machine is busy: 1.10 to 1.84 times"),
        (0.98, 1.03, "as fast as float (0.98 to 1.03 times; 1 thread)"),
        (1.50, 1.70, "1.60 times as fast as float (1.50 to 1.70; 1 thread)"),
        (0.80, 0.90, "0.85 times as fast as float"),
    ],
)
def test_a_speed_that_cannot_be_told_is_unclear(low: float, high: float, told: str) -> None:
    middle = (low + high) / 2
    latency = Latency(middle, 1.0, middle, low, high, rounds=9, runs=9, samples=1, threads=1)
    assert latency.text(2.0).startswith(told)


@pytest.mark.parametrize(
    ("count", "last"), [(5, "note: 3 more with --verbose: 3 few-samples"), (3, "note: note 2")]
)
def test_few_notes_are_printed_and_of_the_others_their_kinds_unless_it_is_one(count: int, last: str) -> None:
    first, *others = (Finding(Code.FEW_SAMPLES, f"note {number}") for number in range(count))

    @click.command("noting")
    def command() -> None:
        for finding in others:
            tell_findings([first, finding])
        tell_unprinted_notes()

    result = CliRunner().invoke(command)
    assert result.stderr.splitlines() == ["note: note 0", "note: note 1", last]
    assert NOTES == 2


def test_a_note_that_asks_for_an_action_is_printed_behind_others_too() -> None:
    notes = [Finding(Code.FEW_SAMPLES, f"note {number}") for number in range(3)]
    private = Finding(Code.CHECK_SAMPLES_KEPT, "raw samples", remedy="do not publish them")

    @click.command("noting")
    def command() -> None:
        tell_findings([*notes, private])

    lines = CliRunner().invoke(command).stderr.splitlines()
    assert lines == ["note: note 0", "note: note 1", "note: raw samples; do not publish them"]


def test_what_is_graver_than_a_note_is_always_printed_and_first() -> None:
    notes = [Finding(Code.FEW_SAMPLES, f"note {number}") for number in range(5)]
    warnings = [Finding(Code.PIXELS, f"warning {number}", remedy="look") for number in range(3)]

    @click.command("noting")
    def command() -> None:
        tell_findings([*notes, *warnings])

    lines = CliRunner().invoke(command).stderr.splitlines()
    assert lines == [
        *(f"warning: warning {number}; look" for number in range(3)),
        "note: note 0",
        "note: note 1",
    ]


def test_of_many_outputs_those_with_the_most_noise_are_listed() -> None:
    found = evaluation()
    outputs = [replace(found.outputs[0], name=f"y{db}", difference=noisy(db)) for db in range(20, 40)]
    text = shown(replace(found, outputs=tuple(outputs)))
    assert [line.split()[0] for line in text.splitlines() if line.startswith("y")] == ["y20", "y21", "y22"]
    assert "... and 17 more: --verbose" in text
    states = frozenset({"y20", "y21"})
    text = shown(replace(found, outputs=tuple(outputs), states=states))
    assert [line.split()[0] for line in text.splitlines() if line.startswith("y")] == ["y22", "y23", "y24"]
    assert len(text.splitlines()) <= MOST


def shown(found: Evaluation) -> str:
    with click.Context(click.Command("evaluate")):
        return result_text(found, rows=LISTED_OUTPUTS)


def noisy(sqnr: float) -> Difference:
    return Difference(sqnr, max_abs_value=1.0, non_finite=0)
