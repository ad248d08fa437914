"""Each improvement alone, on and off, over the real models: task score and SQNR of `qprof quantize` options.

    python tests/benchmarks/ablation.py --work DIR                  all models, judged on the tuning split
    python tests/benchmarks/ablation.py --work DIR --models a,b --settings default,no-equalization
    python tests/benchmarks/ablation.py --work DIR --on evaluation --write   ... and write ABLATION.md

The profile of the default is used for all: settings are about what is decided, not about what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import models
import stages
from building import RUNTIME_ERRORS, Record, sentence
from record import WORK, Judged, RealModel, Split, judge, make_data, write_atomically
from report import table

CALIBRATION = "CALIBRATION"

# name -> options of `qprof quantize`, with CALIBRATION for the folder of these samples; the first is what the
# others are compared with.
SETTINGS: Mapping[str, Sequence[str]] = {
    "default": (),
    "no-equalization": ("--equalization", "off"),
    "free-equalization": ("--equalization", "free"),
    "no-bias-correction": ("--bias-correction", "off"),
    "rounding-gptq": ("--rounding", "gptq", "--data", CALIBRATION),
    "rounding-gptaq": ("--rounding", "gptaq", "--data", CALIBRATION),
    "no-adjustment": ("--equalization", "off", "--bias-correction", "off", "--rounding", "nearest"),
    "minmax": ("--calibrator", "minmax"),
    "mse": ("--calibrator", "mse"),
    "kl": ("--calibrator", "kl"),
    "percentile": ("--calibrator", "percentile"),
    "per-tensor": ("--granularity", "per-tensor"),
    "symmetric": ("--schema", "symmetric"),
    "no-noise-limit": ("--min-output-sqnr", "0"),
    "noise-limit-15": ("--min-sqnr", "15"),
    "noise-limit-25": ("--min-sqnr", "25"),
    "separate": ("--scale-sharing", "separate"),
    "unified": ("--scale-sharing", "unified"),
    "uint16": ("--activation-type", "uint16"),
    "mode-auto": ("--mode", "auto"),
    "mode-dynamic": ("--mode", "dynamic"),
    "mode-weight-only": ("--mode", "weight-only"),
    "int4": ("--mode", "weight-only", "--weight-type", "int4"),
    "int4-gptq": (
        *("--mode", "weight-only", "--weight-type", "int4"),
        *("--rounding", "gptq", "--data", CALIBRATION),
    ),
    "int4-gptaq": (
        *("--mode", "weight-only", "--weight-type", "int4"),
        *("--rounding", "gptaq", "--data", CALIBRATION),
    ),
    "return": ("--inter-layer", "float"),
}


def measured(model: RealModel, split: Split, calibration: Path, work: Path, name: str) -> Record:
    """Build one setting and judge it on a split; a failure is kept with its sentence."""
    out = work / model.name / "ablation" / f"{name}.onnx"
    options = [str(calibration) if option == CALIBRATION else option for option in SETTINGS[name]]
    record = stages.build_setting(model, work, out, options)
    kept = out.with_suffix(f".{split.name}.json")
    if kept.exists():
        known: Record = json.loads(kept.read_text(encoding="utf-8"))
        if known["digest"] == record["digest"]:
            return known
    found: Record = {"digest": record["digest"], "error": record["error"], "judged": None}
    if not record["error"]:
        try:
            judged = judge(model, out, split, work)
            found["judged"] = {**judged.record(), "units": []}
        except RUNTIME_ERRORS as problem:
            found["error"] = sentence(str(problem))
    write_atomically(kept, json.dumps(found).encode())
    return found


def tables(rows: Mapping[str, Mapping[str, Record]], plain: Mapping[str, Judged], on: str) -> str:
    """Return two tables, of scores and of SQNR: a row for each setting, a column for each model."""
    names = list(plain)
    floats = ["float", *(f"{_score(judged):.3f}" for judged in plain.values())]
    scores = [
        floats,
        *([setting, *(_cell(row[name], "score") for name in names)] for setting, row in rows.items()),
    ]
    noise = [[setting, *(_cell(row[name], "sqnr") for name in names)] for setting, row in rows.items()]
    options = [[setting, " ".join(SETTINGS[setting]) or "-"] for setting in rows]
    return "\n\n".join(
        [
            f"### Score on the {on} split",
            table(["setting", *names], scores),
            "### SQNR of the worst output, dB",
            table(["setting", *names], noise),
            "### The settings",
            table(["setting", "options of qprof quantize"], options),
        ]
    )


def _cell(record: Record, what: str) -> str:
    if record["judged"] is None:
        return "fails"
    judged = Judged.of_record(record["judged"])
    return f"{_score(judged):.3f}" if what == "score" else f"{judged.worst_sqnr:.1f}"


def _score(judged: Judged) -> float:
    return judged.scores.value if judged.scores else float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder of real_models.py")
    parser.add_argument("--models", default=",".join(models.TRAINED), help="names, separated by commas")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="names, separated by commas")
    parser.add_argument("--on", choices=("tuning", "evaluation"), default="tuning")
    parser.add_argument("--write", action="store_true", help="write ABLATION.md beside this script")
    given = parser.parse_args()
    work, chosen = given.work.resolve(), given.settings.split(",")
    os.environ[WORK] = str(work)
    rows: dict[str, dict[str, Record]] = {setting: {} for setting in chosen}
    plain = {}
    for name in given.models.split(","):
        model = models.load(name)
        data = make_data(model, work)
        split = data.tuning if given.on == "tuning" else data.evaluation
        if split is None:
            parser.error(f"{name} has no tuning split")
        stages.build_qprof(model, data, work)
        plain[name] = stages.float_judged(model, split, work)
        for setting in chosen:
            rows[setting][name] = found = measured(model, split, data.calibration, work, setting)
            said = found["error"] or f"score {_cell(found, 'score')}, SQNR {_cell(found, 'sqnr')} dB"
            print(f"{name} {setting}: {said} (float {_score(plain[name]):.3f})", flush=True)
    text = tables(rows, plain, given.on)
    print(text)
    if given.write:
        write_atomically(
            Path(__file__).with_name("ABLATION.md"), f"# Improvements, on and off\n\n{text}\n".encode()
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
