"""Each improvement alone, on and off, over the real models: task score and SQNR of `qprof quantize` options.

    python tests/benchmarks/run.py ablation --work DIR                   all models, judged on the tuning
    split python tests/benchmarks/run.py ablation minilm --work DIR --settings default,no-equalization

The profile of the default is used for all: settings are about what is decided, not about what is measured.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence

import models
from frame import Row, Rows, Stage, table
from record import Judged
from workbench import FLOAT, Workbench, qprof

DATA = ("--data", "{data}")
INT4 = ("--mode", "weight-only", "--weight-type", "int4")
SETTINGS: Mapping[str, Sequence[str]] = {
    "default": (),
    "no-equalization": ("--equalization", "off"),
    "free-equalization": ("--equalization", "free"),
    "no-bias-correction": ("--bias-correction", "off"),
    "rounding-gptq": ("--rounding", "gptq", *DATA),
    "rounding-gptaq": ("--rounding", "gptaq", *DATA),
    "no-adjustment": ("--equalization", "off", "--bias-correction", "off", "--rounding", "nearest"),
    "minmax": ("--calibrator", "minmax"),
    "mse": ("--calibrator", "mse"),
    "kl": ("--calibrator", "kl"),
    "percentile": ("--calibrator", "percentile"),
    "per-tensor": ("--granularity", "per-tensor"),
    "symmetric": ("--schema", "symmetric-uint8"),
    "no-noise-limit": ("--min-output-sqnr", "0"),
    "noise-limit-15": ("--min-sqnr", "15"),
    "noise-limit-25": ("--min-sqnr", "25"),
    "separate": ("--scale-sharing", "separate"),
    "unified": ("--scale-sharing", "unified"),
    "uint16": ("--activation-type", "uint16"),
    "mode-auto": ("--mode", "auto"),
    "mode-dynamic": ("--mode", "dynamic"),
    "mode-weight-only": ("--mode", "weight-only"),
    "int4": INT4,
    "int4-gptq": (*INT4, "--rounding", "gptq", *DATA),
    "int4-gptaq": (*INT4, "--rounding", "gptaq", *DATA),
    "return": ("--inter-layer", "float"),
}
"""Name -> options of `qprof quantize`, {data} for the calibration samples; the first is what others are
beside.
"""


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--settings", default=",".join(SETTINGS), help="names, separated by commas")
    parser.add_argument("--on", choices=("tuning", "evaluation"), default="tuning")


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Build and judge each setting; a failure is kept with its sentence."""
    bench = Workbench(name, given.work)
    split = bench.split(given.on)
    for setting in ("float", *given.settings.split(",")):
        if setting != "float":
            bench.build(qprof(f"ablation-{setting}", *SETTINGS[setting]))
        found = bench.judged(FLOAT if setting == "float" else f"ablation-{setting}", split)
        row: Row = {"setting": setting, "split": given.on, "score": None, "sqnr": None, "error": found}
        if isinstance(found, Judged):
            score = found.scores.value if found.scores else None
            row |= {"score": score, "sqnr": found.worst_sqnr, "error": None}
        print(name, row, flush=True)
        yield row


def page(rows: Rows) -> str:
    """Return two tables, of scores and of SQNR: a row for each setting, a column for each model."""
    known = {name: {row["setting"]: row for row in found} for name, found in rows.items()}
    settings = [name for name in ("float", *SETTINGS) if any(name in found for found in known.values())]

    def cells(what: str, digits: int, shown: Sequence[str]) -> list[list[str]]:
        return [[s, *(_cell(found.get(s), what, digits) for found in known.values())] for s in shown]

    split = next(iter(rows.values()))[0]["split"]
    words = [[name, " ".join(SETTINGS[name]).format(data="CALIBRATION") or "-"] for name in settings[1:]]
    return "\n\n".join(
        [
            f"### Score on the {split} split",
            table(["setting", *known], cells("score", 3, settings)),
            "### SQNR of the worst output, dB",
            table(["setting", *known], cells("sqnr", 1, settings[1:])),
            "### The settings",
            table(["setting", "options of qprof quantize"], words),
        ]
    )


def _cell(row: Row | None, what: str, digits: int) -> str:
    if row is None or row["error"]:
        return "-" if row is None else "fails"
    return "-" if row[what] is None else f"{row[what]:.{digits}f}"


STAGE = Stage(rows, {"ABLATION.md": page}, models.TRAINED, options)
