"""Weights in 4 bits: score, size and speed of each way to choose them, over the real models.

    python tests/benchmarks/low_bits.py --work DIR [--models a,b] [--on tuning]    a table
    python tests/benchmarks/low_bits.py --work DIR --write                         ... and write LOW_BITS.md

All have `--mode weight-only`. Differences to float are in points, with the 95 % interval of the paired
bootstrap (bootstrap.py). Speed is the median time of float and each variant in turns, one thread, over that
of float. What is finished is kept in the work folder, as in ablation.py. A rounding that this version does
not have is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import models
import numpy as np
import stages
from bootstrap import difference
from building import RUNTIME_ERRORS, Record, sentence
from qprof_onnx.quantizer.targets.config import settings
from record import WORK, Data, Judged, RealModel, Split, judge, make_data, session, write_atomically
from report import table

INT4 = ("--mode", "weight-only", "--weight-type", "int4")
DATA = ("--data", "CALIBRATION")
ANY = ("--min-output-sqnr", "0")
VARIANTS: Mapping[str, Sequence[str]] = {
    "int8": ("--mode", "weight-only", *ANY),
    "int4": (*INT4, *ANY),
    "int4, symmetric": (*INT4, *ANY, "--weight-schema", "symmetric"),
    "int4, blocks of 128": (*INT4, *ANY, "--block-size", "128"),
    "int4, gptq": (*INT4, *ANY, "--rounding", "gptq", *DATA),
    "int4, gptaq": (*INT4, *ANY, "--rounding", "gptaq", *DATA),
    "int4, adaround": (*INT4, *ANY, "--rounding", "adaround", *DATA),
    "int4, mixed": (*INT4, "--min-output-sqnr", "30"),
}
"""Variant -> options of `qprof quantize`, with CALIBRATION for the folder of these samples."""
CHOSEN = ("minilm", "vit-focus", "ppocr6-rec", "magika", "resnet50", "ppocr-det", "nudenet", "u-net")
RUNS, SECONDS = 30, 6.0


def offered() -> dict[str, Sequence[str]]:
    """Return the variants that this version has."""
    roundings = settings()["rounding"].words
    return {
        name: options
        for name, options in VARIANTS.items()
        if "--rounding" not in options or options[options.index("--rounding") + 1] in roundings
    }


def built(model: RealModel, data: Data, work: Path, name: str) -> tuple[Path, Record]:
    """Build one variant; return where, and what is known of it."""
    out = work / model.name / "low-bits" / f"{name.replace(', ', '-').replace(' ', '-')}.onnx"
    options = [str(data.calibration) if word == "CALIBRATION" else word for word in VARIANTS[name]]
    return out, stages.build_setting(model, work, out, options)


def judged(model: RealModel, out: Path, record: Record, split: Split, work: Path) -> Judged | str:
    """Judge a variant on a split, or say why that cannot be."""
    kept = out.with_suffix(f".{split.name}.json")
    if kept.exists():
        known: Record = json.loads(kept.read_text(encoding="utf-8"))
        if known["digest"] == record["digest"]:
            return Judged.of_record(known["judged"])
    if record["error"]:
        return str(record["error"])
    try:
        found = judge(model, out, split, work)
    except RUNTIME_ERRORS as problem:
        return sentence(str(problem))
    write_atomically(kept, json.dumps({"digest": record["digest"], "judged": found.record()}).encode())
    return found


def ratios(files: Mapping[str, Path], split: Split) -> dict[str, float]:
    """Return the median time of each file over that of the first, in turns on the first sample."""
    opened = {name: session(path, 1) for name, path in files.items()}
    sample = next(split.feeds())
    times: dict[str, list[float]] = {name: [] for name in opened}
    end = time.perf_counter() + SECONDS
    for run in range(RUNS + 2):
        for name, one in opened.items():
            start = time.perf_counter()
            one.run(None, dict(sample))
            if run >= 2:
                times[name].append(time.perf_counter() - start)
        if time.perf_counter() > end and run >= 6:
            break
    medians = {name: float(np.median(values)) for name, values in times.items()}
    return {name: value / medians[next(iter(medians))] for name, value in medians.items()}


def rows(model: RealModel, data: Data, split: Split, work: Path) -> list[list[str]]:
    """Return a row for float and for each variant of one model."""
    stages.build_qprof(model, data, work)
    path = model.path(work / model.name)
    plain = stages.float_judged(model, split, work)
    assert plain.scores is not None
    size = path.stat().st_size / 1e6
    found = [[model.name, "float", f"{100 * plain.scores.value:.2f}", "", "", f"{size:.2f}", "1.00"]]
    results = {}
    for name in offered():
        out, record = built(model, data, work, name)
        results[name] = (out, judged(model, out, record, split, work))
        print(f"{model.name}: {name}", file=sys.stderr, flush=True)
    right = {name: out for name, (out, result) in results.items() if isinstance(result, Judged)}
    speed = ratios({"float": path, **right}, split)
    for name, (out, result) in results.items():
        if not isinstance(result, Judged) or result.scores is None:
            found.append([model.name, name, f"fails: {result}", "", "", "", ""])
            continue
        gap = difference(result.units, plain.units, lambda sums: model.score(sums).value)
        found.append(
            [
                model.name,
                name,
                f"{100 * result.scores.value:.2f}",
                f"{gap.points:+.2f} ({gap.low:+.2f} to {gap.high:+.2f})",
                f"{result.worst_sqnr:.1f}",
                f"{sum(f.stat().st_size for f in out.parent.glob(out.name + '*')) / 1e6:.2f}",
                f"{speed[name]:.2f}",
            ]
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder of real_models.py")
    parser.add_argument("--models", default=",".join(CHOSEN), help="names, separated by commas")
    parser.add_argument("--on", choices=("tuning", "evaluation"), default="evaluation")
    parser.add_argument("--write", action="store_true", help="write LOW_BITS.md beside this script")
    given = parser.parse_args()
    work = given.work.resolve()
    os.environ[WORK] = str(work)
    cells = []
    for name in given.models.split(","):
        model = models.load(name)
        data = make_data(model, work)
        split = data.evaluation if given.on == "evaluation" else data.tuning
        if split is not None:
            cells += rows(model, data, split, work)
    heads = ["model", "weights", "score", "points to float (95 %)", "SQNR, dB", "MB", "time / float"]
    page = f"""# Weights in 4 bits

Written by low_bits.py, which says what each row is; {given.on} split. Blocks have 32 elements where nothing
else is said, and zero points, but for "symmetric". In "mixed" the nodes of most estimated noise have 8 bits.
Convolutions and recurrent cells have 8 bits everywhere: onnxruntime has no kernel of 4 for them.

{table(heads, cells)}
"""
    print(page)
    if given.write:
        write_atomically(Path(__file__).with_name("LOW_BITS.md"), page.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
