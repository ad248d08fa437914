"""Estimated SQNR of the outputs against what is measured, kind of node by kind of node.

    python tests/benchmarks/estimates.py [WORD ...]
    python tests/benchmarks/estimates.py --work DIR [NAME ...] [--modes default] [--split tuning] [--write]

Each case is a small network with seeded weights and samples (or the model of examples/digits), quantized as
its settings say. Its estimate is the one that the written model carries; it is held against the outputs on
other samples of the same kind. A WORD chooses the cases whose name contains it. Printed is estimate minus
measurement in dB, and whether the measurement lies in the band that the command prints.

With --work the real models of real_models.py are taken, whose profiles and samples are in its work folder:
by default, with weights only, and with dynamic quantization. --write puts the table into ESTIMATES.md and
draws estimates.svg beside it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from estimated_networks import CASES, Case, model_of
from qprof_onnx.quantizer.api.from_profile import write_quantized
from qprof_onnx.quantizer.api.profiling import profile_model
from qprof_onnx.quantizer.evaluation.evaluate import evaluate
from qprof_onnx.quantizer.evaluation.options import EvaluationOptions
from qprof_onnx.quantizer.noise.estimate_check import EstimateCheck
from qprof_onnx.quantizer.targets.loading import load_recipe

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


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
PAGE = Path(__file__).with_name("ESTIMATES.md")
BEGIN, END = "<!-- results: written by estimates.py -->", "<!-- end of results -->"


@dataclass(frozen=True)
class Result:
    """One output of one case: name of the case, setting, and both numbers."""

    name: str
    mode: str
    check: EstimateCheck

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the band."""
        return self.check.low <= self.check.measured <= self.check.high

    @property
    def label(self) -> str:
        """Name, output and setting in one."""
        return f"{self.name} {self.check.output[:18]} {self.mode}".strip()


def real_results(work: Path, names: Sequence[str], split: str, modes: Sequence[str]) -> Iterator[Result]:
    """Yield what is found of real models: profiles and samples are those that real_models.py has made."""
    import models

    for name in names or models.FILES:
        profile, data = work / name / "built" / "qprof.yaml", work / name / split
        if not profile.exists() or not data.exists():
            continue
        path = models.load(name).path(work / name)
        for mode, settings in ((mode, MODES[mode]) for mode in modes):
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "q.onnx"
                write_quantized(path, profile, out, recipe=load_recipe(None, dict(settings)))
                for check in _measured(path, out, data, REAL_SAMPLES):
                    yield Result(name, mode, check)


def results(words: Sequence[str] = ()) -> Iterator[Result]:
    """Yield what is found of the cases that are asked for."""
    runs: list[tuple[str, Callable[[], tuple[EstimateCheck, ...]]]] = [("digits", digits)]
    runs += [(case.name, lambda case=case: run(case)) for case in CASES]  # type: ignore[misc]
    for name, made in runs:
        if not words or any(word in name for word in words):
            for check in made():
                yield Result(name, "", check)


def line(result: Result) -> str:
    """Return one line of the table."""
    check = result.check
    band = f"{check.low:.0f} to {check.high:.0f}"
    where = "" if result.inside else "  BELOW" if check.too_good else "  above"
    excess = check.estimated - check.measured
    return f"{result.label:42} {check.estimated:9.1f} {band:>10} {check.measured:9.1f} {excess:+10.1f}{where}"


def shares(found: Sequence[Result]) -> str:
    """Return in how many models and outputs all that was measured lies in its band, as a sentence."""
    worst = {r.name: True for r in found if r.mode in ("", "default")}
    for result in found:
        if result.mode in ("", "default") and not result.inside:
            worst[result.name] = False
    inside = sum(result.inside for result in found)
    return (
        f"All outputs of {sum(worst.values())} of {len(worst)} models lie in their bands with the defaults; "
        f"{inside} of {len(found)} outputs with all settings."
    )


def draw(found: Sequence[Result], file: Path) -> None:
    """Draw estimated against measured SQNR, with the band."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "qprof"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.5, 6))
    for mode, marker in zip(MODES, "os^", strict=True):
        pairs = [(r.check.measured, r.check.estimated) for r in found if r.mode == mode]
        if pairs:
            axes.scatter(*zip(*pairs, strict=True), marker=marker, s=22, label=mode)
    ends = (0.0, 80.0)
    axes.plot(ends, ends, color="gray", linewidth=0.8)
    if found:
        below = found[0].check.estimated - found[0].check.low
        above = found[0].check.high - found[0].check.estimated
        low, high = [e - above for e in ends], [e + below for e in ends]
        axes.fill_between(ends, low, high, alpha=0.12, color="gray")
    axes.set(xlim=ends, ylim=ends, xlabel="measured SQNR, dB", ylabel="estimated SQNR, dB")
    axes.legend(title="mode", loc="upper left")
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Print one line for each output of each case."""
    parser = argparse.ArgumentParser(description="Estimated SQNR of the outputs against what is measured.")
    parser.add_argument("words", nargs="*", help="cases whose name contains one of them, or names of models")
    parser.add_argument("--work", type=Path, help="work folder of real_models.py: take the real models")
    parser.add_argument("--split", default="evaluation", choices=["tuning", "evaluation"])
    parser.add_argument("--modes", default=",".join(MODES), help="some of them, with commas between")
    parser.add_argument("--write", action="store_true", help="write ESTIMATES.md and estimates.svg")
    given = parser.parse_args()
    found = []
    head = f"{'case':42} {'estimated':>9} {'band':>10} {'measured':>9} {'difference':>10}"
    print(head)
    source = (
        results(given.words)
        if given.work is None
        else real_results(given.work, given.words, given.split, given.modes.split(","))
    )
    for result in source:
        found.append(result)
        print(line(result), flush=True)
    print(shares(found))
    if given.write and given.work is not None:
        text = PAGE.read_text()
        table = "\n".join(["```", head, *map(line, found), "```"])
        made = f"{BEGIN}\n\n{shares(found)}\n\n{table}\n\n"
        PAGE.write_text(text[: text.index(BEGIN)] + made + text[text.index(END) :])
        draw(found, PAGE.with_name("estimates.svg"))


if __name__ == "__main__":
    main()
