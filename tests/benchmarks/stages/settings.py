"""Single settings of `qprof quantize` on a few models: rounding, weights alone in 8 and 4 bits, mode dynamic.

    python tests/benchmarks/run.py settings minilm --work DIR --on tuning

All begin with the profile of the defaults. Differences to float are in points, with the 95 % interval of the
paired bootstrap; SQNR is that of the worst output; size and time are over float's, time in turns on one
thread.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

from bootstrap import difference
from frame import Row, Rows, Stage, table
from record import Judged
from workbench import FLOAT, ONNXRUNTIME, Workbench, qprof

WEIGHTS = ("--as", "weight-only-8")
INT4 = ("--as", "weight-only-4")
DATA = ("--data", "{data}")
GPTQ = ("--set", "rounding=gptq", *DATA)
Settings = Mapping[str, Sequence[str]]
ROUNDING: Settings = {
    "static int8": (),
    "static int8, gptq": GPTQ,
}
LOW_BITS: Settings = {
    "weights of 8 bits": WEIGHTS,
    "weights of 8 bits, gptq": (*WEIGHTS, *GPTQ),
    "weights of 4 bits": INT4,
    "weights of 4 bits, symmetric": (*INT4, "--set", "weight_schema=symmetric"),
    "weights of 4 bits, blocks of 128": (*INT4, "--set", "block_size=128"),
    "weights of 4 bits, gptq": (*INT4, *GPTQ),
}
DYNAMIC: Settings = {
    "static": (),
    "dynamic": ("--as", "int8-dynamic"),
    "dynamic, `--set cost_model=off`": ("--as", "int8-dynamic", "--set", "cost_model=off"),
    "dynamic for `onnx`, form `primitives`": (
        *("--as", "int8-dynamic", "--target", "onnx", "--form", "primitives"),
    ),
}
"""Name -> options of `qprof quantize`, {data} for the calibration samples."""
OF: Mapping[str, Settings] = {
    "digits": DYNAMIC,
    "orientation": DYNAMIC,
    "nudenet": {**DYNAMIC, **ROUNDING},
    "captcha-det": ROUNDING,
    "ppocr-rec": {**ROUNDING, **LOW_BITS},
    "minilm": {**ROUNDING, **LOW_BITS},
}
"""Model -> its settings."""


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--on", choices=("tuning", "evaluation"), default="evaluation")
    parser.add_argument("--seconds", type=float, default=5.0, help="of timing for a model")


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield a row for float and for each setting of one model."""
    bench = Workbench(name, given.work, given.parts, again=given.again)
    split = bench.split(given.on)
    labels = {FLOAT: FLOAT} | {
        one: "set-" + "-".join("".join(c if c.isalnum() else " " for c in one).split()) for one in OF[name]
    }
    for one, words in OF[name].items():
        bench.build(qprof(labels[one], *words))
    found = {one: bench.judged(label, split) for one, label in labels.items()}
    right = {one: (bench.file(labels[one]), ONNXRUNTIME) for one in found if isinstance(found[one], Judged)}
    times = bench.times("settings", right, given.seconds)
    plain = found[FLOAT]
    for one, result in found.items():
        row: Row = {"setting": one}
        if not isinstance(result, Judged) or not isinstance(plain, Judged):
            yield {**row, "error": result}
            continue
        size = bench.record(labels[one])["size"]
        row |= {"sqnr": result.worst_sqnr, "mb": size / 1e6, "size": size / bench.path.stat().st_size}
        row["ratio"] = times.get(one, {}).get("ratio")
        if result.scores and result.units:
            gap = difference(result.units, plain.units, lambda sums: bench.model.score(sums).value)
            row |= {"score": result.scores.value, "points": asdict(gap)}
        yield row


def of_settings(settings: Settings, title: str) -> Callable[[Rows], str]:
    """Return what makes the table of some settings, for the models that have them."""

    def text_of(rows: Rows) -> str:
        heads = ["model", title, "points to float", "SQNR, dB", "MB", "size over float", "time over float"]
        lines = [
            [name, row["setting"], *_cells(row)]
            for name, found in rows.items()
            for row in found
            if row["setting"] in settings and set(settings) <= set(OF[name])
        ]
        return table(heads, lines)

    return text_of


def _cells(row: Row) -> list[str]:
    if "error" in row:
        return [f"fails: {row['error']}", *[""] * 4]
    points = "{points:+.2f} ({low:+.2f} to {high:+.2f})".format(**row["points"]) if "points" in row else "-"
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return [points, f"{row['sqnr']:.1f}", f"{row['mb']:.2f}", f"{row['size']:.2f}", ratio]


STAGE = Stage(
    rows,
    {
        "rounding": of_settings(ROUNDING, "rounding"),
        "low-bits": of_settings(LOW_BITS, "weights"),
        "dynamic": of_settings(DYNAMIC, "mode"),
    },
    tuple(OF),
    options,
)
