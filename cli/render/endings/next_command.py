"""The next command: which one follows each command, with the user's own files. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .carried import (
    DATA,
    GATES,
    LIBRARIES,
    RUNNING,
    SCORING,
    Values,
    carried,
    data_words,
    judged_words,
    output_words,
    quantized_name,
    ranked_on,
    recipe_words,
    setting_words,
)

MORE = ["--data", "MORE_DATA"]
"""Where too few rows were the only fault."""

Words = Sequence[object] | None


def next_command(name: str, values: Values) -> str | None:
    """Return the command that follows one, ready to copy; None where none does.

    Args:
        name: of the command that was run.
        values: its parameters by name; "typed", those that were typed: their option and texts by name; and
            what it found: "failed" (whether a gate failed), and what the command itself adds (`add_finding`).
    """
    follow = FOLLOWING.get(name)
    words = None if follow is None else follow(values)
    return None if words is None else shlex.join(["qprof", *map(str, words)])


def _after_profile(values: Values) -> Words:
    if values.get("failed"):
        return ["show", values["output"]]
    model = values.get("model") or "MODEL.onnx"
    words = ["quantize", model, "--profile", values["output"], "-o", quantized_name(model)]
    return [*words, *carried(values, LIBRARIES)]


def _after_import(values: Values) -> Words:
    model = values["model"]
    return ["quantize", model, "--profile", values["output"], "-o", quantized_name(model)]


def _after_import_plan(values: Values) -> Words:
    model = values["model"]
    return ["quantize", model, "--plan", values["output"], "-o", quantized_name(model)]


def _after_quantize(values: Values) -> Words:
    model, output, libraries = values["model"], values["output"], carried(values, LIBRARIES)
    if values.get("grade") == "none":
        again = ["quantize", model, "--data", DATA, *recipe_words(values), "-o", output]
        return [*again, *setting_words(values), *libraries]
    if values.get("doubtful"):
        return None
    gates = carried(values, ("gate_min_sqnr", *GATES))
    how = [*output_words(values, "scored_output"), *carried(values, RUNNING), *libraries]
    if values.get("few_rows"):
        return ["evaluate", model, output, *_more_rows(values), *how, *gates]
    if values.get("grade") in ("fair", "poor") or values.get("noisy"):
        return _where_noise_is(values)
    if values.get("failed"):
        return None
    if values.get("holdout_data"):  # else the SQNR is that of a part of the data
        gates = gates or _gate(values)
    return ["evaluate", model, output, *judged_words(values), *carried(values, SCORING), *how, *gates]


def _where_noise_is(values: Values) -> Words:
    """Return what ranks nodes, or tensors where ranking has no profile or cannot round with samples."""
    model, libraries = values["model"], carried(values, LIBRARIES)
    if not values.get("kept") or values.get("rounded"):
        return ["compare-layers", model, values["output"], *judged_words(values), "--worst", "10", *libraries]
    words = ["sensitivity", model, "--profile", values["kept"], *ranked_on(values)]
    return [*words, *setting_words(values), *carried(values, ("class_axis",)), *libraries]


def _gate(values: Values) -> list[str]:
    """Return a gate a little below what was measured on the same samples."""
    sqnr = values.get("sqnr")
    return [] if sqnr is None or not 1.0 < sqnr < math.inf else ["--min-sqnr", f"{int(sqnr) - 1}"]


def _more_rows(values: Values) -> list[object]:
    """Return the way of scoring, with other samples to come."""
    labels = ["--labels", "MORE_LABELS"] if values.get("labels") else []
    return [*MORE, *recipe_words(values), *labels, *carried(values, ("metric", "class_axis"))]


def _after_evaluate(values: Values) -> Words:
    pair, libraries = [values["model"], values["quantized"]], carried(values, LIBRARIES)
    how = [*output_words(values, "output"), *carried(values, RUNNING), *libraries]
    if values.get("doubtful"):
        return None
    if values.get("few_rows"):
        limits = carried(values, {"min_sqnr", *GATES} - {"baseline", "slack"})  # a baseline is of its samples
        return ["evaluate", *pair, *_more_rows(values), *how, *limits]
    sqnr = values.get("sqnr")
    if values.get("noisy") or (not values.get("failed") and sqnr is not None and sqnr <= 1.0):
        return ["compare-layers", *pair, *data_words(values), "--worst", "10", *libraries]
    if values.get("failed"):
        return None
    if values.get("gated"):
        new = ["--data", "NEW_DATA", *recipe_words(values), "-o", "new.profile.yaml"]
        return ["dump-profile", values["model"], *new, *libraries]
    if _is_random(values):
        return ["evaluate", *pair, "--data", DATA, *recipe_words(values), *how]
    gate = _gate(values)
    return ["evaluate", *pair, *data_words(values), *carried(values, SCORING), *how, *gate] if gate else None


def _is_random(values: Values) -> bool:
    from ....profiles.samples.random_samples import is_random

    return is_random(str(values.get("data")))


def _after_layers(values: Values) -> Words:
    if values.get("doubtful"):
        return None
    words = ["sensitivity", values["model"], "--profile", "PROFILE", *ranked_on(values)]
    return [*words, *carried(values, ("plan", *LIBRARIES))]


def _after_sensitivity(values: Values) -> Words:
    """Return what keeps nodes float, or tries more; nothing after a plan, which no setting changes."""
    model, keep = values["model"], values.get("keep_float_found") or ()
    if values.get("plan") or not values.get("profile"):
        return None
    source = ["--profile", values["profile"]]
    settings, libraries = setting_words(values), carried(values, LIBRARIES)
    if keep:
        kept = [word for name in keep for word in ("--keep-float", name)]
        return ["quantize", model, *source, "-o", quantized_name(model), *settings, *kept, *libraries]
    if _is_random(values):
        return None
    axis = carried(values, ("class_axis",))
    return ["tune", model, *source, *data_words(values, limit=False), *settings, *axis, *libraries]


def _after_tune(values: Values) -> Words:
    model, libraries, axis = values["model"], carried(values, LIBRARIES), carried(values, ("class_axis",))
    if values.get("failed") or not values.get("output_file"):
        words = [
            "sensitivity",
            model,
            "--profile",
            values["profile"],
            *ranked_on({**values, "holdout_data": None}),
        ]
        return [*words, *setting_words(values), *axis, *libraries]
    held_out, labels = values.get("holdout_data"), values.get("labels")
    truth = values.get("holdout_labels") if held_out else labels
    scoring = [*(["--labels", truth] if truth else []), *carried(values, ("metric",)), *axis]
    scored = [*scoring, *output_words(values, "output"), *carried(values, ("threads",))]
    words = ["evaluate", model, values["output_file"], *judged_words(values), *scored, *libraries]
    return [*words, *(["--min-speedup", "1"] if values.get("objective", "latency") == "latency" else [])]


def _after_diff(values: Values) -> Words:
    """Return what to do about drift; nothing where there is none."""
    if not values.get("failed"):
        return None
    if not values.get("model"):
        return ["show", values["new"]]
    model, settings = values["model"], setting_words(values)
    return ["quantize", model, "--profile", values["new"], "-o", quantized_name(model), *settings]


def _after_targets(values: Values) -> Words:
    target = values.get("target") or "onnxruntime-x86"
    return ["quantize", "MODEL.onnx", "--data", DATA, "--target", target, "-o", "model.int8.onnx"]


def _after_measuring(values: Values) -> Words:
    costs = ["--costs", values["output"], "-o", "model.int8.onnx"]
    return ["quantize", "MODEL.onnx", "--data", DATA, "--target", values["target"], *costs]


def _after_join(values: Values) -> Words:
    output = values["output"]
    saved = ["-o", quantized_name(output), "--save-plan", f"{Path(str(output)).stem}.plan.yaml"]
    return ["quantize", output, "--data", DATA, *saved, *carried(values, LIBRARIES)]


FOLLOWING: Mapping[str, Callable[[Values], Words]] = {
    "dump-profile": _after_profile,
    "join": _after_join,
    "merge": _after_profile,
    "import-profile": _after_import,
    "import-plan": _after_import_plan,
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
