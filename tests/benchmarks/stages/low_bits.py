"""Weights in 4 bits: score, size and speed of each way to choose them, over the real models.

    python tests/benchmarks/run.py low-bits minilm --work DIR --on tuning

All have `--mode weight-only`. Differences to float are in points, with the 95 % interval of the paired
bootstrap (bootstrap.py). Speed is the median time of float and each variant in turns, one thread, over that
of float. A rounding that this version does not have is left out.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence

from bootstrap import difference
from frame import Row, Rows, Stage, table
from qprof_onnx.quantizer.targets.config import settings
from record import Judged
from workbench import FLOAT, ONNXRUNTIME, Workbench, qprof

from stages.ablation import DATA, INT4

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
"""Variant -> options of `qprof quantize`, {data} for the calibration samples."""
CHOSEN = ("minilm", "vit-focus", "ppocr6-rec", "magika", "resnet50", "ppocr-det", "nudenet", "u-net")


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--on", choices=("tuning", "evaluation"), default="evaluation")
    parser.add_argument("--seconds", type=float, default=6.0, help="of timing for a model")


def offered() -> dict[str, Sequence[str]]:
    """Return the variants that this version has."""
    roundings = settings()["rounding"].words
    return {
        name: options
        for name, options in VARIANTS.items()
        if "--rounding" not in options or options[options.index("--rounding") + 1] in roundings
    }


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield a row for float and for each variant of one model."""
    bench = Workbench(name, given.work)
    split = bench.split(given.on)
    labels = {FLOAT: FLOAT} | {
        one: f"low-bits-{one.replace(', ', '-').replace(' ', '-')}" for one in offered()
    }
    for one, words in offered().items():
        bench.build(qprof(labels[one], *words))
    found = {one: bench.judged(label, split) for one, label in labels.items()}
    right = {one: (bench.file(labels[one]), ONNXRUNTIME) for one in found if isinstance(found[one], Judged)}
    times = bench.times("low-bits", right, given.seconds)
    plain = found[FLOAT]
    assert isinstance(plain, Judged)
    for one, result in found.items():
        row: Row = {"weights": one, "split": given.on}
        if not isinstance(result, Judged):
            yield {**row, "error": result}
            continue
        size = bench.path.stat().st_size if one == FLOAT else bench.record(labels[one])["size"]
        row |= {"sqnr": result.worst_sqnr, "mb": size / 1e6, "ratio": times[one] / times[FLOAT]}
        if result.scores:
            gap = difference(result.units, plain.units, lambda sums: bench.model.score(sums).value)
            row |= {"score": 100 * result.scores.value, "gap": [gap.points, gap.low, gap.high]}
        yield row


def page(rows: Rows) -> str:
    heads = ["model", "weights", "score", "points to float (95 %)", "SQNR, dB", "MB", "time / float"]
    return table(heads, [[name, *_cells(row)] for name, found in rows.items() for row in found])


def _cells(row: Row) -> list[str]:
    if "error" in row:
        return [row["weights"], f"fails: {row['error']}", "", "", "", ""]
    is_float = row["weights"] == FLOAT
    gap = "" if is_float or "gap" not in row else "{:+.2f} ({:+.2f} to {:+.2f})".format(*row["gap"])
    score = f"{row['score']:.2f}" if "score" in row else ""
    return [
        row["weights"],
        score,
        gap,
        "" if is_float else f"{row['sqnr']:.1f}",
        f"{row['mb']:.2f}",
        f"{row['ratio']:.2f}",
    ]


STAGE = Stage(rows, {"LOW_BITS.md": page}, CHOSEN, options)
