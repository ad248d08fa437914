"""The next command: which one follows each command, with the user's own files. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

DATA = "DATA"
"""What stands for samples that a command does not know."""

Values = Mapping[str, Any]
"""Parameters of a command by name, and what it found."""


def next_command(name: str, values: Values) -> str | None:
    """Return the command that follows one, ready to copy; None where none does.

    Args:
        name: of the command that was run.
        values: its parameters by name; and what it found: "failed" (whether a gate failed), and what the
            command itself adds (`add_finding`).
    """
    follow = FOLLOWING.get(name)
    words = None if follow is None else follow(values)
    return None if words is None else shlex.join(["qprof", *map(str, words)])


def _with_data(values: Values) -> list[object]:
    """Return --data and --preprocess as they were given, but for what is secret of a URL."""
    from ....profiles.storage.files import shown_location

    recipe, data = values.get("preprocess"), values.get("data")
    shown = DATA if not data else shown_location(str(data))
    return ["--data", shown, *([] if recipe is None else ["--preprocess", recipe])]


def _quantized(model: object) -> str:
    return f"{Path(str(model)).stem}.int8.onnx"


def _after_profile(values: Values) -> Sequence[object]:
    model = values.get("model") or "model.onnx"
    return ["quantize", model, "--profile", values["output"], "-o", _quantized(model)]


def _after_quantize(values: Values) -> Sequence[object]:
    if values.get("grade") == "none":
        return ["quantize", values["model"], "--data", DATA, "-o", values["output"]]
    asked = ["evaluate", values["model"], values["output"], *_with_data(values)]
    if values.get("labels"):
        asked += ["--labels", values["labels"]]
    if values.get("grade") in ("fair", "poor") and values.get("kept"):
        return ["sensitivity", values["model"], "--profile", values["kept"], *_with_data(values)]
    return [*asked, *_gate(values)]


def _gate(values: Values) -> list[object]:
    """Return a gate a little below what was measured."""
    sqnr = values.get("sqnr")
    return [] if sqnr is None or not 1.0 < sqnr < float("inf") else ["--min-sqnr", f"{int(sqnr) - 1}"]


def _after_evaluate(values: Values) -> Sequence[object]:
    pair = [values["model"], values["quantized"], *_with_data(values)]
    if values.get("failed"):
        return ["compare-layers", *pair, "--worst", "10"]
    if values.get("gated"):
        return ["dump-profile", values["model"], "--data", "NEW_DATA", "-o", "new.profile.yaml"]
    return ["evaluate", *pair, *(_gate(values) or ["--min-sqnr", "20"])]


def _after_layers(values: Values) -> Sequence[object]:
    return ["sensitivity", values["model"], "--profile", "PROFILE", *_with_data(values)]


def _after_sensitivity(values: Values) -> Sequence[object]:
    model, keep = values["model"], values.get("keep_float_found") or ()
    source = ["--profile", values["profile"]] if values.get("profile") else _with_data(values)
    if not keep:
        return ["tune", model, *source, *([] if source[0] == "--data" else _with_data(values))]
    kept = [word for name in keep for word in ("--keep-float", name)]
    return ["quantize", model, *source, "-o", _quantized(model), *kept]


def _after_tune(values: Values) -> Sequence[object]:
    model = values["model"]
    if values.get("failed") or not values.get("output_file"):
        return ["sensitivity", model, "--profile", values["profile"], *_with_data(values)]
    return ["evaluate", model, values["output_file"], *_with_data(values), "--min-speedup", "1"]


def _after_diff(values: Values) -> Sequence[object]:
    if values.get("failed") and values.get("model"):
        model = values["model"]
        return ["quantize", model, "--profile", values["new"], "-o", _quantized(model)]
    if values.get("failed"):
        return ["show", values["new"]]
    return ["diff", values["old"], values["new"], "--max-clipping", "0.01", "--max-range-growth", "1.5"]


def _after_targets(values: Values) -> Sequence[object]:
    target = values.get("target") or "onnxruntime-x86"
    return ["quantize", "model.onnx", "--data", DATA, "--target", target, "-o", "model.int8.onnx"]


def _after_measuring(values: Values) -> Sequence[object]:
    costs = ["--costs", values["output"], "-o", "model.int8.onnx"]
    return ["quantize", "model.onnx", "--data", DATA, "--target", values["target"], *costs]


FOLLOWING: Mapping[str, Callable[[Values], Sequence[object]]] = {
    "dump-profile": _after_profile,
    "merge": _after_profile,
    "quantize": _after_quantize,
    "evaluate": _after_evaluate,
    "compare-layers": _after_layers,
    "sensitivity": _after_sensitivity,
    "tune": _after_tune,
    "diff": _after_diff,
    "targets": _after_targets,
    "rules": _after_targets,
    "measure-target": _after_measuring,
}
"""What follows each command; the others end where they end."""
