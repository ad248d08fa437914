"""Real models, float against int8: task score, SQNR, latency, time and memory of qprof and its peer.

    python tests/benchmarks/real_models.py --work DIR                        all models, all stages
    python tests/benchmarks/real_models.py --work DIR --models magika        some of them
    python tests/benchmarks/real_models.py --work DIR --only-score           build and score, no latency
    python tests/benchmarks/real_models.py --work DIR --write                ... and write README.md's tables
    python tests/benchmarks/real_models.py --work DIR --quick magika q.onnx  score one quantized file

Everything is kept in DIR and made again only when it has changed; --stages runs some of the stages.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path

import models
import report
import stages
from record import WORK, Judged, judge, make_data, write_atomically
from speed import latencies

STAGES = ("peers", "qprof", "tune", "score", "latency")


def quick(name: str, quantized: Path, work: Path, seconds: float, on: str) -> None:
    """Print what one quantized file is worth on a split of a model's data."""
    model = models.load(name)
    data = make_data(model, work)
    split = data.tuning if on == "tuning" and data.tuning else data.evaluation
    path = model.path(work / name)
    print_judged(f"float, {split.name}", stages.float_judged(model, split, work))
    print_judged(quantized.name, judge(model, quantized, split, work))
    if seconds > 0:
        times = latencies({"float": path, "int8": quantized}, next(split.feeds()), seconds)
        ratio = times["float"] / times["int8"]
        print(
            f"1 thread: float {times['float']:.2f} ms, int8 {times['int8']:.2f} ms: {ratio:.2f} times as fast"
        )


def run(name: str, work: Path, chosen: list[str], given: argparse.Namespace) -> None:
    """Run the chosen stages of one model and print what is known afterwards."""
    model = models.load(name)
    print(f"== {name}", flush=True)
    data = make_data(model, work)
    if "peers" in chosen:
        stages.build_peers(model, data, work)
    if "qprof" in chosen:
        stages.build_qprof(model, data, work, shlex.split(given.qprof_options))
    if "tune" in chosen:
        stages.build_tuned(model, data, work, given.budget)
    if "score" in chosen:
        stages.score(model, data, work)
        print_judged("float", stages.float_judged(model, data.evaluation, work))
    if "latency" in chosen:
        stages.time_models(model, data, work, given.seconds)
    for label, record in stages.builds(model, work).items():
        if record["error"]:
            print(f"{label}: {record['error']}")
        elif record.get("judged"):
            print_judged(label, Judged.of_record(record["judged"]))
            size = record["size"] / 1e6
            print(f"    {record['seconds']:.1f} s, {record['peak_mb']:.0f} MB, file {size:.2f} MB")
    print("latency in ms:", stages.collect(model, work)["milliseconds"], flush=True)


def print_judged(name: str, judged: Judged) -> None:
    """Print score and SQNR in one line."""
    parts = [] if judged.scores is None else [f"score {judged.scores.value:.4f}"]
    parts += [] if judged.scores is None else [f"{k} {v:.4f}" for k, v in judged.scores.parts.items()]
    sqnr = ", ".join(f"{output} {value:.2f} dB" for output, value in judged.sqnr.items())
    print(f"{name}: {'; '.join(parts)}; SQNR {judged.worst_sqnr:.2f} dB ({sqnr})", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for data, models and results")
    parser.add_argument("--models", default=",".join(models.FILES), help="names, separated by commas")
    parser.add_argument("--stages", default=",".join(STAGES), help="some of " + ",".join(STAGES))
    parser.add_argument("--only-score", action="store_true", help="leave the latency out")
    parser.add_argument("--quick", nargs=2, metavar=("MODEL", "OUT.onnx"), help="score one quantized file")
    parser.add_argument(
        "--on", choices=("tuning", "evaluation"), default="tuning", help="the split of --quick"
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="time for the latency of one model; 0: none"
    )
    parser.add_argument("--budget", type=float, default=60.0, help="seconds that qprof tune may try things")
    parser.add_argument("--qprof-options", default="", help="more options for qprof quantize")
    parser.add_argument("--again", action="store_true", help="build and time again what was built already")
    parser.add_argument(
        "--write", action="store_true", help="write the tables into README.md beside this script"
    )
    given = parser.parse_args()
    work = given.work.resolve()
    os.environ[WORK] = str(work)
    if given.quick:
        quick(given.quick[0], Path(given.quick[1]), work, min(given.seconds, 6.0), given.on)
        return 0
    chosen, names = given.stages.split(","), given.models.split(",")
    unknown = [*(set(chosen) - set(STAGES)), *(set(names) - set(models.FILES))]
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; models are {', '.join(models.FILES)}")
    if given.only_score:
        chosen = [stage for stage in chosen if stage != "latency"]
    for name in names:
        if given.again:
            stages.forget(models.load(name), work)
        run(name, work, chosen, given)
    results = [
        stages.collect(models.load(name), work) for name in models.FILES if (work / name / "float").exists()
    ]
    write_atomically(work / "results.json", json.dumps(results, indent=1).encode())
    if given.write:
        report.write(results, Path(__file__).with_name("README.md"))
        report.write_tuning(results, Path(__file__).with_name("TUNING.md"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
