"""`qprof evaluate --card` and `qprof verify`: a card can be measured again, and a false word is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from click.testing import Result
from qprof_onnx import card
from qprof_onnx.cli.schemas import schema_of

from ....cli.running import qprof

DIGITS = Path(__file__).parents[4] / "examples" / "digits"
MODEL, DATA = DIGITS / "model.onnx", DIGITS / "heldout"
LABELS = DATA / "labels.txt"
JUDGED = ("--data", DATA, "--labels", LABELS)
MEASURED = ("--model", MODEL, *JUDGED, "--no-latency")


@pytest.fixture(scope="module")
def folder(profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a quantized model and its card; not to be changed."""
    made = tmp_path_factory.mktemp("card")
    weights = ("--set", "weight_type=int8")
    assert qprof("quantize", MODEL, "--profile", profile, *weights, "-o", made / "q.onnx").exit_code == 0
    files = ("--card", made / "c.json", "--markdown", made / "README.md")
    done = qprof("evaluate", MODEL, made / "q.onnx", *JUDGED, "--no-latency", "--min-sqnr", "30", *files)
    assert done.exit_code == 0, done.output
    return made


def results(done: Result) -> dict[str, str]:
    """Return what `--json` says of each check."""
    return {check["of"]: check["result"] for check in json.loads(done.stdout)["checks"]}


def test_a_card_follows_its_schema_and_names_models_data_plan_and_tool(folder: Path) -> None:
    document = json.loads((folder / "c.json").read_text())
    jsonschema.validate(document, schema_of("card"))
    evaluation = document["evaluation"]
    metadata = {p.key: p.value for p in onnx.load(folder / "q.onnx").metadata_props}
    assert evaluation["provenance"]["plan"] == metadata["qprof.plan"]
    assert evaluation["provenance"]["profile"] == metadata["qprof.profile"]
    assert len(document["quantized_model"][0]["sha256"]) == len(document["float_model"][0]["sha256"]) == 64
    assert evaluation["subject"]["data"]
    assert document["tool"].startswith("qprof ")
    assert document["machine"]["runtime"].startswith("onnxruntime 1.")
    assert evaluation["score"]["rows"] == 400
    assert str(DATA.parent) not in json.dumps(document)


def test_a_card_names_a_column_of_labels_and_a_metric_without_their_folders(
    folder: Path, tmp_path: Path
) -> None:
    rows = "\n".join(f"{at},{label}" for at, label in enumerate(LABELS.read_text().split()))
    (tmp_path / "truth.csv").write_text(f"row,digit\n{rows}\n")
    (tmp_path / "own.py").write_text("def share(outputs, labels):\n    return [100.0] * len(outputs)\n")
    for words in (("--labels", f"{tmp_path}/truth.csv:digit"), ("--metric", f"{tmp_path}/own.py:share")):
        files = (folder / "q.onnx", "--data", DATA, *words, "--no-latency", "--card", tmp_path / "c.json")
        done = qprof("evaluate", MODEL, *files)
        assert done.exit_code == 0, done.output
        written = (tmp_path / "c.json").read_text()
        assert Path(words[1]).name in written
        assert str(tmp_path) not in written


def test_a_card_is_the_same_bytes_each_time_where_no_time_is_measured(folder: Path, tmp_path: Path) -> None:
    words = ("--min-sqnr", "30", "--card", tmp_path / "c.json")
    qprof("evaluate", MODEL, folder / "q.onnx", *JUDGED, "--no-latency", *words)
    assert (tmp_path / "c.json").read_bytes() == (folder / "c.json").read_bytes()


def test_what_a_card_says_is_so(folder: Path) -> None:
    done = qprof("verify", folder / "c.json", folder / "q.onnx", *MEASURED, "--json")
    assert done.exit_code == 0, done.output
    jsonschema.validate(json.loads(done.stdout), schema_of("verification"))
    assert set(results(done).values()) == {"same"}
    assert {"SQNR of output 'logits'", "accuracy of the quantized model", "data"} <= set(results(done))


def test_without_samples_the_bytes_are_compared_and_the_rest_is_said_to_be_unchecked(folder: Path) -> None:
    done = qprof("verify", folder / "c.json", folder / "q.onnx")
    assert done.exit_code == 0
    assert re.search(r"^figures +not checked +.* give --model MODEL.onnx and --data DATA", done.stdout, re.M)


def test_strict_fails_on_what_was_not_checked_and_on_nothing_else(folder: Path) -> None:
    judge = ("verify", folder / "c.json", folder / "q.onnx", "--strict")
    done = qprof(*judge, *MEASURED)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("card       verified\n")
    for words in ((), ("--model", MODEL), ("--model", MODEL, "--data", DATA, "--no-latency")):
        done = qprof(*judge, *words)
        assert done.exit_code == 1
        assert "(--strict)" in done.stdout
        assert qprof(*judge[:-1], *words).exit_code == 0


@pytest.mark.slow
def test_a_limit_on_time_is_measured_again_and_another_time_refutes_nothing(
    folder: Path, tmp_path: Path
) -> None:
    made = qprof(
        "evaluate", MODEL, folder / "q.onnx", *JUDGED, "--min-speedup", "0.01", "--card", tmp_path / "c.json"
    )
    assert made.exit_code == 0, made.output
    (tmp_path / "fast.json").write_text(
        (tmp_path / "c.json").read_text().replace('"min_speedup": 0.01', '"min_speedup": 99')
    )
    judged = ("--model", MODEL, *JUDGED, "--json")
    for card_file, limit, result in (("c", "0.01", "same"), ("fast", "99", "not checked")):
        done = qprof("verify", tmp_path / f"{card_file}.json", folder / "q.onnx", *judged)
        assert results(done)[f"limit min_speedup {limit}"] == result
    untimed = qprof("verify", tmp_path / "c.json", folder / "q.onnx", *judged, "--no-latency")
    assert results(untimed)["limit min_speedup 0.01"] == "not checked"


def test_a_changed_byte_is_named(folder: Path, tmp_path: Path) -> None:
    model = bytearray((folder / "q.onnx").read_bytes())
    model[len(model) // 2] ^= 1
    (tmp_path / "q.onnx").write_bytes(model)
    done = qprof("verify", folder / "c.json", tmp_path / "q.onnx")
    assert done.exit_code == 1
    assert re.search(r"^quantized model +differs +.*other bytes, of the same number$", done.stdout, re.M)


def test_a_model_that_is_cut_off_is_named_and_not_run(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "q.onnx").write_bytes((folder / "q.onnx").read_bytes()[:2000])
    done = qprof("verify", folder / "c.json", tmp_path / "q.onnx", *MEASURED)
    assert done.exit_code == 1
    assert "cannot be measured: " in done.stdout


def test_another_data_set_is_named_and_its_figures_refute_nothing(folder: Path) -> None:
    words = ("--model", MODEL, "--data", DIGITS / "calibration", "--no-latency", "--json")
    done = qprof("verify", folder / "c.json", folder / "q.onnx", *words)
    assert done.exit_code == 1
    found = results(done)
    assert [of for of, result in found.items() if result == "differs"] == ["data"]
    assert found["SQNR of output 'logits'"] in ("told", "same")  # other data may have the same figure
    assert (
        found.items()
        >= {
            "quantized model": "same",
            "float model": "same",
            "truth": "not checked",
            "accuracy of the quantized model": "not checked",
            "limit min_sqnr 30": "same",
        }.items()
    )


def test_other_labels_are_named(folder: Path, tmp_path: Path) -> None:
    lines = LABELS.read_text().split()
    lines[0] = str((int(lines[0]) + 1) % 10)
    (tmp_path / "l.txt").write_text("\n".join(lines))
    words = ("--model", MODEL, "--data", DATA, "--labels", tmp_path / "l.txt", "--no-latency", "--json")
    done = qprof("verify", folder / "c.json", folder / "q.onnx", *words)
    assert done.exit_code == 1
    assert [of for of, result in results(done).items() if result == "differs"] == ["truth"]


def test_a_card_that_claims_more_than_is_measured_is_refused(folder: Path, tmp_path: Path) -> None:
    document = json.loads((folder / "c.json").read_text())
    document["evaluation"]["outputs"][0]["difference"]["sqnr"] += 3.0
    document["evaluation"]["score"]["quantized_score"] += 0.5
    (tmp_path / "c.json").write_text(json.dumps(document))
    done = qprof("verify", tmp_path / "c.json", folder / "q.onnx", *MEASURED, "--json")
    assert done.exit_code == 1
    assert [of for of, result in results(done).items() if result == "differs"] == [
        "accuracy of the quantized model",
        "SQNR of output 'logits'",
    ]
    told = qprof("verify", tmp_path / "c.json", folder / "q.onnx", *MEASURED).stdout
    assert re.search(r"^SQNR of output 'logits' +differs +.* dB +.* dB +-3\.00 dB$", told, re.M)
    words = ("--slack", "sqnr=4", "--slack", "score=1")
    assert qprof("verify", tmp_path / "c.json", folder / "q.onnx", *MEASURED, *words).exit_code == 0


def test_a_float_model_of_the_same_graph_and_weights_in_other_bytes_is_told_only(
    folder: Path, tmp_path: Path
) -> None:
    model = onnx.load(MODEL)
    model.doc_string = "exported again"
    onnx.save(model, tmp_path / "m.onnx")
    words = ("--model", tmp_path / "m.onnx", *JUDGED, "--no-latency", "--json")
    done = qprof("verify", folder / "c.json", folder / "q.onnx", *words)
    assert done.exit_code == 0
    assert results(done)["float model"] == "told"


def test_external_data_belongs_to_the_card(tmp_path: Path) -> None:
    external = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(onnx.load(MODEL), tmp_path / "m.onnx", **external)
    made = qprof(
        "evaluate", tmp_path / "m.onnx", MODEL, "--data", DATA, "--no-latency", "--card", tmp_path / "c.json"
    )
    assert made.exit_code == 0
    with (tmp_path / "w.bin").open("r+b") as stream:
        stream.seek(4000)
        stream.write(b"\x01")
    words = ("--model", tmp_path / "m.onnx", "--data", DATA, "--no-latency", "--json")
    done = qprof("verify", tmp_path / "c.json", MODEL, *words)
    assert results(done)["float model, w.bin"] == "differs"
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("truth", "result", "reason"),
    [
        (9.0 * np.eye(10)[np.loadtxt(LABELS, int)], "failed", r"1\.32 off"),  # no space for a unit
        (np.full((400, 10), 1000.0), "not proven", "the float model.*"),  # it says nothing of these numbers
    ],
)
def test_a_limit_on_a_score_that_is_missed_or_not_proven_is_verified_with_the_reason(
    tmp_path: Path, truth: np.ndarray, result: str, reason: str
) -> None:
    np.save(tmp_path / "true.npy", truth)
    scored = ("--data", DATA, "--metric", "rmse", "--labels", tmp_path / "true.npy", "--no-latency")
    qprof("evaluate", MODEL, MODEL, *scored, "--min-score", "1", "--card", tmp_path / "c.json")
    done = qprof("verify", tmp_path / "c.json", MODEL, "--model", MODEL, *scored[:2], *scored[4:], "--json")
    assert done.exit_code == 0
    limit = next(check for check in json.loads(done.stdout)["checks"] if check["of"] == "limit min_score 1")
    assert (limit["result"], limit["card"], limit["found"]) == ("same", result, result)
    assert re.search(reason, limit["reason"])


def test_no_code_is_run_because_of_a_card(folder: Path, tmp_path: Path) -> None:
    source = """from pathlib import Path

def score(outputs, numbers):
    Path({!r}).touch()
    return [50.0] * len(numbers)
"""
    (tmp_path / "own.py").write_text(source.format(str(tmp_path / "ran")))
    metric = ("--metric", f"{tmp_path / 'own.py'}:score")
    words = ("--data", DATA, "--no-latency", *metric, "--card", tmp_path / "c.json")
    assert qprof("evaluate", MODEL, folder / "q.onnx", *words).exit_code == 0
    (tmp_path / "ran").unlink()
    asked = ("verify", tmp_path / "c.json", folder / "q.onnx", "--model", MODEL, *JUDGED[:2], "--no-latency")
    done = qprof(*asked)
    assert done.exit_code == 0
    assert "is code; give it with --metric to run it" in done.stdout
    assert not (tmp_path / "ran").exists()
    done = qprof(*asked, *metric)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "is not a card: its format is None"),
        ("[", "is not a card (line 1: not JSON"),
        ('{"format": "qprof-card/2"}', "its format is 'qprof-card/2'"),
        ('{"format": "qprof-card/1"}', "is not a card (Object missing required field"),
    ],
)
def test_what_is_no_card_is_refused_with_a_sentence(
    folder: Path, tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "c.json").write_text(text)
    done = qprof("verify", tmp_path / "c.json", folder / "q.onnx")
    assert done.exit_code == 2
    assert reason in done.stderr


def test_samples_without_the_float_model_are_refused(folder: Path) -> None:
    done = qprof("verify", folder / "c.json", folder / "q.onnx", "--data", DATA)
    assert done.exit_code == 2
    assert "give --model MODEL.onnx" in done.stderr


@pytest.mark.extra
def test_a_model_hub_reads_the_front_matter(folder: Path) -> None:
    hub = pytest.importorskip(
        "huggingface_hub", reason="reads cards of a model hub; pip install huggingface_hub"
    )
    made = card(MODEL, folder / "q.onnx", DATA, labels=LABELS, latency=False)
    read = hub.ModelCard(made.to_markdown()).data
    assert (read.library_name, read.tags) == ("onnx", ["onnx", "quantized", "qprof"])


def test_a_newer_card_of_another_model_fails_where_it_is_worse_and_passes_where_it_is_better(
    profile: Path, folder: Path, tmp_path: Path
) -> None:
    settings = ("--set", "weight_type=int8", "--calibrator", "percentile:99", "--set", "min_output_sqnr=0")
    qprof("quantize", MODEL, "--profile", profile, *settings, "-o", tmp_path / "q.onnx")
    words = (*JUDGED, "--no-latency", "--card", tmp_path / "c.json")
    assert qprof("evaluate", MODEL, tmp_path / "q.onnx", *words).exit_code == 0
    done = qprof("verify", folder / "c.json", tmp_path / "c.json")
    assert done.exit_code == 1
    off = r"dB +.* dB +-\d+\.\d+ dB, with a slack of 0.5 dB"
    assert re.search(rf"^SQNR of output 'logits' +worse +.* {off}$", done.stdout, re.M)
    assert done.stdout.endswith("FAILED     worse than on the card\n")

    better = ("verify", tmp_path / "c.json", folder / "c.json", "--slack", "size=100")
    done = qprof(*better, "--json")
    assert done.exit_code == 0, done.output
    jsonschema.validate(json.loads(done.stdout), schema_of("verification"))
    assert set(results(done).values()) == {"kept"}
    assert qprof(*better, "--strict").stdout.endswith("card       verified\n")


def test_samples_beside_a_newer_card_are_refused(folder: Path) -> None:
    done = qprof("verify", folder / "c.json", folder / "c.json", "--data", DATA)
    assert done.exit_code == 2
    assert "data: a newer card is compared as it was measured; leave it out" in done.stderr
    assert qprof("verify", folder / "c.json", folder / "c.json", "--slack", "sqnrs=1").exit_code == 2


def test_the_card_of_an_evaluation_writes_its_report_too(folder: Path, tmp_path: Path) -> None:
    words = ("--card", tmp_path / "c.json", "--no-latency", "--report", tmp_path / "report")
    assert qprof("evaluate", MODEL, folder / "q.onnx", *JUDGED, *words).exit_code == 0
    assert "logits" in (tmp_path / "report" / "report.md").read_text()
