"""Estimated SQNR of the outputs against what is measured, kind of node by kind of node.

    python tests/benchmarks/run.py estimates --work DIR                           real models
    python tests/benchmarks/run.py estimates minilm --work DIR --modes default --split tuning
    python tests/benchmarks/run.py estimates cases Conv "LSTM levels by step" --work DIR

Real models are quantized by default, with weights only, and with dynamic quantization. A case (all: `cases`)
is a small network with seeded weights and samples, or the model of examples/digits, quantized as its settings
say. The estimate is the one that the written model carries; it is held against the outputs on other samples
of the same kind. Printed is estimate minus measurement in dB, and whether the measurement lies in the band
that the command prints. --write draws estimates.svg beside the page too.
"""

from __future__ import annotations

import io
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
from estimated_networks import CASES, Case, model_of
from frame import HERE, Row, Rows, Stage
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.options import EvaluationOptions
from qprof_onnx.quantizer.noise.estimate_check import EstimateCheck
from qprof_onnx.quantizer.targets.loading import load_recipe
from workbench import Workbench

DIGITS = HERE.parents[1] / "examples" / "digits"


def run(case: Case, samples: int = 8) -> tuple[EstimateCheck, ...]:
    """Return estimate and measurement of each output of a case."""
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        onnx.save(model_of(case), where / "model.onnx")
        data = [[{"x": case.samples(rng)} for _ in range(samples)] for _ in range(2)]
        profile_model(where / "model.onnx", data[0], where / "profile.yaml")
        recipe = load_recipe(case.target, dict(case.settings))
        write_quantized(where / "model.onnx", where / "profile.yaml", where / "q.onnx", recipe=recipe)
        return _measured(where / "model.onnx", where / "q.onnx", data[1])


def digits() -> tuple[EstimateCheck, ...]:
    """Return estimate and measurement of the model of examples/digits."""
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        profile_model(DIGITS / "model.onnx", DIGITS / "calibration", where / "profile.yaml")
        write_quantized(DIGITS / "model.onnx", where / "profile.yaml", where / "q.onnx")
        return _measured(DIGITS / "model.onnx", where / "q.onnx", DIGITS / "heldout")


def _measured(model: Path, quantized: Path, data: Any, limit: int | None = None) -> tuple[EstimateCheck, ...]:
    return evaluate(model, quantized, data, measuring=EvaluationOptions(latency=None, limit=limit)).estimates


REAL_SAMPLES = 64
MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "weight-only": {"mode": "weight-only"},
    "dynamic": {"mode": "dynamic"},
}
SMALL = {case.name: case for case in CASES}


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--split", default="evaluation", choices=["tuning", "evaluation"])
    parser.add_argument("--modes", default=",".join(MODES), help="some of them, with commas between")


def rows(name: str, given: Namespace) -> Iterator[Row]:
    """Yield what is found of a real model in each mode, of a case, or of all cases."""
    if name == "cases":
        for case in CASES:
            yield from _told(case.name, "", run(case))
        yield from _told("digits", "", digits())
    elif name in SMALL:
        yield from _told(name, "", run(SMALL[name]))
    else:
        bench = Workbench(name, given.work)
        folder, profile = bench.split(given.split).folder, bench.profile()
        for mode in given.modes.split(","):
            with tempfile.TemporaryDirectory() as place:
                out = Path(place) / "q.onnx"
                write_quantized(bench.path, profile, out, recipe=load_recipe(None, dict(MODES[mode])))
                yield from _told(name, mode, _measured(bench.path, out, folder, REAL_SAMPLES))


def _told(name: str, mode: str, checks: Sequence[EstimateCheck]) -> Iterator[Row]:
    for check in checks:
        label = f"{name} {check.output[:18]} {mode}".strip() if mode or len(checks) > 1 else name
        numbers = {key: float(getattr(check, key)) for key in ("low", "high", "estimated", "measured")}
        yield {"name": name, "mode": mode, "label": label, "too_good": bool(check.too_good), **numbers}


def _inside(row: Row) -> bool:
    return bool(row["low"] <= row["measured"] <= row["high"])


def real_page(rows: Rows) -> str:
    return _table([row for some in rows.values() for row in some if row["mode"]])


def small_page(rows: Rows) -> str:
    return _table([row for some in rows.values() for row in some if not row["mode"]])


def _table(found: Sequence[Row]) -> str:
    """Return the shares of models and outputs that lie in their bands, and a line for each output."""
    usual = [row for row in found if row["mode"] in ("", "default")]
    names = {row["name"] for row in usual}
    outside = {row["name"] for row in usual if not _inside(row)}
    head = f"{'case':42} {'estimated':>9} {'band':>10} {'measured':>9} {'difference':>10}"
    return (
        f"All outputs of {len(names - outside)} of {len(names)} models lie in their bands with the defaults; "
        f"{sum(map(_inside, found))} of {len(found)} outputs with all settings.\n\n"
        + "\n".join(["```", head, *map(_line, found), "```"])
    )


def _line(row: Row) -> str:
    band = f"{row['low']:.0f} to {row['high']:.0f}"
    where = "" if _inside(row) else "  BELOW" if row["too_good"] else "  above"
    excess = row["estimated"] - row["measured"]
    return (
        f"{row['label']:42} {row['estimated']:9.1f} {band:>10} {row['measured']:9.1f} {excess:+10.1f}{where}"
    )


def picture(rows: Rows) -> str:
    """Draw estimated against measured SQNR, with the band."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "qprof"
    from matplotlib import pyplot

    found = [row for some in rows.values() for row in some if row["mode"]]
    figure, axes = pyplot.subplots(figsize=(6.5, 6))
    for mode, marker in zip(MODES, "os^", strict=True):
        pairs = [(row["measured"], row["estimated"]) for row in found if row["mode"] == mode]
        if pairs:
            axes.scatter(*zip(*pairs, strict=True), marker=marker, s=22, label=mode)
    ends = (0.0, 80.0)
    axes.plot(ends, ends, color="gray", linewidth=0.8)
    if found:
        below = found[0]["estimated"] - found[0]["low"]
        above = found[0]["high"] - found[0]["estimated"]
        low, high = [e - above for e in ends], [e + below for e in ends]
        axes.fill_between(ends, low, high, alpha=0.12, color="gray")
    axes.set(xlim=ends, ylim=ends, xlabel="measured SQNR, dB", ylabel="estimated SQNR, dB")
    axes.legend(title="mode", loc="upper left")
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    return drawn.getvalue()


STAGE = Stage(
    rows, {"ESTIMATES.md": real_page, "": small_page, "estimates.svg": picture}, models.REAL, options
)
