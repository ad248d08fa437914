"""The next command at the end of each command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from qprof_onnx.cli.commands.tune import command as tune
from qprof_onnx.cli.main import COMMANDS, main
from qprof_onnx.cli.next_command import FOLLOWING, next_command

from ..quantizer.int8_kernels import TARGET

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, FEW, HELD_OUT = DIGITS / "model.onnx", DIGITS / "calibration", DIGITS / "heldout"
LABELS = HELD_OUT / "labels.txt"
FILES = {
    **{"model": "my model.onnx", "output": "out.yaml", "data": "samples/", "quantized": "q.onnx"},
    **{"profile": "p.yaml", "old": "a.yaml", "new": "b.yaml", "target": "glow", "output_file": "t.onnx"},
}
PLACEHOLDERS = {
    "DATA",
    "NEW_DATA",
    "NEW_LABELS",
    "MORE_DATA",
    "MORE_LABELS",
    "LABELS",
    "RECIPE",
    "PROFILE",
    "MODEL.onnx",
}
ROUGH = ("--calibrator", "percentile:90", "--min-output-sqnr", "0", "--equalization", "off")
"""Settings with which the model loses 15 dB."""
LATENCY = "--no-latency"


@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.parametrize("found", [{}, {"failed": True}, {"failed": True, "noisy": True}, {"few_rows": True}])
def test_what_follows_a_command_is_a_command_with_its_options(name: str, found: dict[str, Any]) -> None:
    text = next_command(name, {**FILES, "sqnr": 30.0, **found, "output": "logits"})
    if text is None:
        return
    words = shlex.split(text)
    assert words[0] == "qprof"
    command = main.get_command(click.Context(main), words[1])
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_every_command_is_followed_by_one_or_shows_something_and_ends_there() -> None:
    ending = {"show", "schema", "explain", "instrument", "report", "export", "split", "verify"}
    assert COMMANDS.keys() - FOLLOWING.keys() == ending, "say what follows in FOLLOWING, or name it here"
    assert all(next_command(name, FILES) is None for name in ending)


@pytest.mark.parametrize(
    ("name", "found", "wanted"),
    [
        ("dump-profile", {}, "quantize 'my model.onnx' --profile out.yaml -o 'my model.int8.onnx'"),
        ("dump-profile", {"failed": True}, "show out.yaml"),
        (
            "evaluate",
            {"sqnr": 22.6, "output": None},
            "evaluate 'my model.onnx' q.onnx --data samples/ --min-sqnr 21",
        ),
        (
            "evaluate",
            {"failed": True, "noisy": True},
            "compare-layers 'my model.onnx' q.onnx --data samples/ --worst 10",
        ),
        ("evaluate", {"data": "random:8", "output": None}, "evaluate 'my model.onnx' q.onnx --data DATA"),
        (
            "evaluate",
            {"gated": True, "preprocess": "imagenet"},
            "dump-profile 'my model.onnx' --data NEW_DATA --preprocess imagenet -o new.profile.yaml",
        ),
        (
            "evaluate",
            {"failed": True, "few_rows": True, "output": "out", "labels": "l.txt", "max_drop": "1"},
            "evaluate 'my model.onnx' q.onnx --data MORE_DATA --labels MORE_LABELS",
        ),
        (
            "evaluate",
            {"sqnr": 22.6, "output": None, "labels": "l.txt"},
            "card 'my model.onnx' q.onnx --data samples/ --labels l.txt -o q.card.json",
        ),
        (
            "quantize",
            {"grade": "none", "preprocess": "raw", "labels": "l.txt"},
            "quantize 'my model.onnx' --data DATA --preprocess RECIPE --labels LABELS -o out.yaml",
        ),
        ("quantize", {"data": None, "preprocess": None}, "evaluate 'my model.onnx' out.yaml --data DATA"),
        (
            "quantize",
            {"profile": None, "preprocess": "imagenet", "sqnr": 30.0, "grade": "good"},
            "evaluate 'my model.onnx' out.yaml --data NEW_DATA --preprocess imagenet",
        ),
        (
            "quantize",
            {"holdout_data": "others/", "limit": 8, "sqnr": 30.0, "grade": "good", "labels": "l.txt"},
            "card 'my model.onnx' out.yaml --data others/ --labels l.txt -o out.card.json",
        ),
        (
            "quantize",
            {"profile": None, "grade": "good", "scored_output": "o", "labels": "a", "metric": "map50"},
            "evaluate 'my model.onnx' out.yaml --data NEW_DATA --labels NEW_LABELS --metric map50 --output o",
        ),
        (
            "quantize",
            {
                "profile": None,
                "limit": 8,
                "grade": "good",
                "scored_output": "logits",
                "runtime": "openvino",
            },
            "evaluate 'my model.onnx' out.yaml --data NEW_DATA",
        ),
        (
            "quantize",
            {
                "grade": "poor",
                "kept_profile": "k.yaml",
                "calibrator": "kl",
                "keep_float": "a b",
                "config": "c.yaml",
            },
            "sensitivity 'my model.onnx' --profile k.yaml --data samples/",
        ),
        (
            "quantize",
            {"grade": "fair", "kept_profile": "k.yaml", "calibrator": "kl"},
            "sensitivity 'my model.onnx' --profile k.yaml --data samples/",
        ),
        (
            "quantize",
            {
                "grade": "poor",
                "kept_profile": "k.yaml",
                "rounded_with_samples": True,
                "rounding": "gptq",
            },
            "compare-layers 'my model.onnx' out.yaml --data samples/ --worst 10",
        ),
        ("compare-layers", {"limit": 100}, "sensitivity 'my model.onnx' --profile PROFILE --data samples/"),
        (
            "tune",
            {"holdout_data": "h/", "holdout_labels": "h.txt", "output": "t.onnx", "metric": "top-5"},
            "evaluate 'my model.onnx' t.onnx --data h/ --labels h.txt --metric top-5",
        ),
        (
            "sensitivity",
            {"proposed_keep_float": ("a", "b"), "calibrator": "kl"},
            "quantize 'my model.onnx' --profile p.yaml -o 'my model.int8.onnx' --keep-float a --keep-float b",
        ),
        (
            "evaluate",
            {"noisy": True, "data": "https://me:secret@host/set/?sig=secret"},
            "compare-layers 'my model.onnx' q.onnx --data https://host/set/ --worst 10",
        ),
        ("tune", {"failed": True}, "sensitivity 'my model.onnx' --profile p.yaml --data samples/"),
        ("diff", {"failed": True}, "show b.yaml"),
        ("diff", {"failed": True, "drifted": "image"}, "show b.yaml --tensor image"),
    ],
)
def test_the_next_command_has_the_users_files(name: str, found: dict[str, Any], wanted: str) -> None:
    assert next_command(name, {**FILES, **found}) == f"qprof {wanted}"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("evaluate", {"doubtful": True, "sqnr": 30.0}),
        ("evaluate", {"failed": True}),
        ("evaluate", {"sqnr": float("inf")}),
        ("quantize", {"doubtful": True, "grade": "good"}),
        ("compare-layers", {"doubtful": True}),
        ("sensitivity", {"plan": "plan.yaml", "proposed_keep_float": ("a",)}),
        ("diff", {}),
    ],
)
def test_nothing_follows_where_no_command_would_help(name: str, found: dict[str, Any]) -> None:
    assert next_command(name, {**FILES, **found}) is None


def qprof(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, words)], prog_name="qprof")


def next_of(result: Result) -> list[str] | None:
    """Return the words of the next command that was printed; None for none."""
    assert result.exit_code in (0, 1), result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("next ")]
    return shlex.split(lines[0].removeprefix("next"))[1:] if lines else None


def followed(*words: str | Path) -> list[list[str]]:
    """Run a command and all that follow, without repetition and placeholders; return those that followed."""
    found: list[list[str]] = []
    after = next_of(qprof(*words))
    while after is not None and after not in found:
        assert after != [*map(str, words)]
        found.append(after)
        if after[0] == "tune":  # it takes five seconds
            tune.make_context("tune", after[1:])
        if PLACEHOLDERS & set(after) or after[0] == "tune":
            break
        after = next_of(qprof(*after))
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which commands write what they name themselves."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


JUDGED = ("quantize", MODEL, "--data", FEW, "-o", "q 1.onnx", LATENCY)


@pytest.mark.usefixtures("here")
def test_samples_that_were_held_out_by_hand_go_into_a_card_with_their_labels() -> None:
    first, *_ = followed(*JUDGED, "--holdout-data", HELD_OUT, "--labels", LABELS)
    assert first[:3] == ["card", str(MODEL), "q 1.onnx"]
    assert first[3:7] == ["--data", str(HELD_OUT), "--labels", str(LABELS)]


@pytest.mark.usefixtures("here")
def test_noise_ends_in_commands_that_run_and_name_files_alone() -> None:
    chain = followed(*JUDGED, *ROUGH, "--budget", "0")
    assert chain[0][0] == "sensitivity"
    assert chain[1][0] in ("tune", "quantize")
    known = {"--profile", "--data", "--keep-float", "-o", "--output"}
    assert {word for words in chain[:2] for word in words if word.startswith("-")} <= known


@pytest.mark.usefixtures("here")
def test_another_calibrator_ends_in_commands_that_run() -> None:
    few = ("--holdout-data", HELD_OUT, "--labels", LABELS, "--budget", "0", "--calibrator", "kl")
    chain = followed(*JUDGED, *few)
    assert chain[0][0] in ("sensitivity", "card")


def test_a_good_model_is_evaluated_on_samples_that_it_was_not_calibrated_on(here: Path) -> None:
    words = (
        "quantize",
        MODEL,
        "--data",
        HELD_OUT,
        "--limit",
        "2",
        "--labels",
        LABELS,
        "--target",
        TARGET,
        "-o",
        "q.onnx",
        LATENCY,
    )
    first, *_ = followed(*words)
    assert first[0] == "evaluate"
    assert first[3:] == ["--data", "NEW_DATA", "--labels", "NEW_LABELS"]


def test_profiles_and_what_is_made_of_them_end_in_commands_that_run(here: Path, profile: Path) -> None:
    (made,) = followed("dump-profile", MODEL, "--data", FEW, "--limit", "4", "-o", "a.yaml")[:1]
    assert made[0] == "quantize"
    qprof("dump-profile", MODEL, "--data", HELD_OUT, "--limit", "4", "-o", "b.yaml")
    (merged,) = followed("merge", "a.yaml", "b.yaml", "-o", "m.yaml")
    assert merged[:2] == ["quantize", "MODEL.onnx"]
    drifted = ("diff", "a.yaml", "b.yaml", "--model", MODEL, "--calibrator", "kl")
    # What drifted is looked at, and never quantized for unseen.
    assert followed(*drifted, "--max-range-growth", "1.0001")[0][:3] == ["show", "b.yaml", "--tensor"]
    assert followed("diff", "a.yaml", "a.yaml", "--max-range-growth", "1.5") == []


def test_evaluations_end_in_commands_that_run(here: Path, profile: Path) -> None:
    qprof("quantize", MODEL, "--profile", profile, "-o", "q.onnx")
    asked = ("evaluate", MODEL, "q.onnx", "--data", HELD_OUT, LATENCY)
    assert [words[0] for words in followed(*asked)] == ["evaluate", "dump-profile"]
    assert [words[0] for words in followed(*asked, "--min-sqnr", "90")] == ["compare-layers", "sensitivity"]
    few = followed(*asked, "--labels", LABELS, "--limit", "1", "--max-accuracy-drop", "0.01")
    assert "MORE_DATA" in few[0]
    assert followed("evaluate", "q.onnx", MODEL, "--data", HELD_OUT, LATENCY) == []
    assert followed("evaluate", MODEL, MODEL, "--data", HELD_OUT, LATENCY, "--min-sqnr", "20") == []


def test_a_ranking_ends_in_a_command_that_runs(here: Path, profile: Path) -> None:
    words = ("sensitivity", MODEL, "--profile", profile, "--data", FEW, "--limit", "2")
    after = followed(*words, *ROUGH[2:], "--calibrator=percentile:90")
    assert after[0][0] in ("tune", "quantize")
    assert not {*ROUGH} & {*after[0]}


def test_it_is_told_on_stderr_and_not_after_json(profile: Path, tmp_path: Path) -> None:
    words = [
        "quantize",
        str(DIGITS / "model.onnx"),
        "--profile",
        str(profile),
        "-o",
        str(tmp_path / "q.onnx"),
    ]
    text, json = (CliRunner().invoke(main, [*words, *more]) for more in ([], ["--json"]))
    assert text.stderr.startswith("next      qprof evaluate ")
    assert json.stderr == ""
