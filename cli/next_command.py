"""The next command: which one follows each command, with the user's own files. Pure.

It names paths alone, and what they need to be read: the recipe of preprocessing, the metric that reads
labels, libraries of custom operators, and for samples that were cut to the first ones their number where
labels are those of the first.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..quantizer.model.folders import quantized_name

DATA = "DATA"
"""What stands for samples that a command does not know."""

Values = Mapping[str, Any]
"""Parameters of a command by name, and what its result says (`CommandRun.findings`); "failed" says that a
limit was missed."""

Words = Sequence[object] | None
"""The next command, without "qprof"; None where none follows."""


def next_command(name: str, values: Values) -> str | None:
    """Return the command that follows one, ready to copy; None where none does.

    Args:
        name: of the command that was run.
        values: its parameters by name, and what its result says.
    """
    words = FOLLOWING[name](values) if name in FOLLOWING else None
    if words is None:
        return None
    libraries = values.get("libraries", ()) if words[0] != "show" else ()
    custom_ops = [word for library in libraries for word in ("--custom-ops", library)]
    return shlex.join(["qprof", *map(str, words), *map(str, custom_ops)])


def _data(values: Values, name: str = "data") -> list[object]:
    """Return samples as they were given, but for what is secret of a URL, and how they are read."""
    from ..profiles.samples.storage import shown_location

    data = values.get(name)
    return ["--data", shown_location(str(data)) if data else DATA, *_preprocessing(values)]


def _preprocessing(values: Values) -> list[object]:
    return ["--preprocess", values["preprocess"]] if values.get("preprocess") else []


def _judged_data(values: Values) -> list[object]:
    """Return the samples that a result was judged on, with their labels: held out by hand, or all."""
    held_out = values.get("holdout_data")
    truth = values.get("holdout_labels") if held_out and "holdout_labels" in values else values.get("labels")
    limit = values.get("limit")
    cut = ["--limit", limit] if truth and limit and not held_out else []  # labels are those of the first
    labels = _labels(values, truth) if truth else []
    return [*_data(values, "holdout_data" if held_out else "data"), *cut, *labels]


def _labels(values: Values, truth: object) -> list[object]:
    """Return the truth of samples, and how it is read: by which metric, of which output, along which axis."""
    words: list[object] = ["--labels", truth]
    for option, name in (
        ("--metric", "metric"),
        ("--output", "scored_output"),
        ("--class-axis", "class_axis"),
    ):
        if values.get(name) is not None:
            words += [option, values[name]]
    return words


def _card(model: object, quantized: object, values: Values) -> list[object]:
    """Return the command that records how good a model is on samples that it was not calibrated on."""
    name = f"{Path(str(quantized)).stem}.card.json"
    return ["card", model, quantized, *_judged_data(values), "-o", name]


def _after_profile(values: Values) -> Words:
    if values.get("failed"):
        return ["show", values["output"]]
    model = values.get("model") or "MODEL.onnx"
    return ["quantize", model, "--profile", values["output"], "-o", quantized_name(str(model))]


def _after_import_plan(values: Values) -> Words:
    model = values["model"]
    return ["quantize", model, "--plan", values["output"], "-o", quantized_name(str(model))]


def _after_quantize(values: Values) -> Words:
    model, output = values["model"], values["output"]
    if values.get("grade") == "none":
        recipe = ["--preprocess", "RECIPE"] if values.get("preprocess") else []
        labels = _labels(values, "LABELS") if values.get("labels") else []
        return ["quantize", model, "--data", DATA, *recipe, *labels, "-o", output]
    if values.get("doubtful") or values.get("tried_fixes"):
        return None
    if values.get("few_rows"):
        return ["evaluate", model, output, *_more_rows(values)]
    if values.get("grade") in ("fair", "poor") or values.get("noisy"):
        # A ranking needs a profile, and cannot round with samples.
        if not values.get("kept_profile") or values.get("rounded_with_samples"):
            return ["compare-layers", model, output, *_data(values), "--worst", "10"]
        return ["sensitivity", model, "--profile", values["kept_profile"], *_data(values)]
    if values.get("failed"):
        return None
    if values.get("grade") and (values.get("holdout_data") or values.get("profile")):
        # the samples that judged it have not calibrated it: a card can hold what they say
        return _card(model, output, values)
    if values.get("grade"):  # other samples than those that it was calibrated on
        labels = _labels(values, "NEW_LABELS") if values.get("labels") else []
        return ["evaluate", model, output, "--data", "NEW_DATA", *_preprocessing(values), *labels]
    return ["evaluate", model, output, *_judged_data(values)]


def _more_rows(values: Values) -> list[object]:
    """Return placeholders of more samples, for results whose only fault are too few rows."""
    labels = _labels(values, "MORE_LABELS") if values.get("labels") else []
    return ["--data", "MORE_DATA", *_preprocessing(values), *labels]


def _after_evaluate(values: Values) -> Words:
    pair, sqnr = [values["model"], values["quantized"]], values.get("sqnr")
    if values.get("doubtful"):
        return None
    if values.get("few_rows"):
        return ["evaluate", *pair, *_more_rows(values)]
    if values.get("noisy") or (not values.get("failed") and sqnr is not None and sqnr <= 1.0):
        return ["compare-layers", *pair, *_data(values), "--worst", "10"]
    if values.get("failed"):
        return None
    if values.get("gated"):
        new = ["--data", "NEW_DATA", *_preprocessing(values), "-o", "new.profile.yaml"]
        return ["dump-profile", values["model"], *new]
    if _is_random(values):
        return ["evaluate", *pair, "--data", DATA, *_preprocessing(values)]
    if values.get("labels") or values.get("metric"):  # a card holds the score of the task
        return _card(pair[0], pair[1], values)
    if sqnr is None or not 1.0 < sqnr < math.inf:
        return None
    gate = ["--min-sqnr", f"{int(sqnr) - 1}"]  # a little below what was measured on the same samples
    return ["evaluate", *pair, *_data(values), *gate]


def _is_random(values: Values) -> bool:
    from ..profiles.samples.random_samples import is_random

    return is_random(str(values.get("data")))


def _after_card(values: Values) -> Words:
    """Return how somebody else checks the card, with the samples that it was made on."""
    words = ["verify", values["output"], values["quantized"], "--float", values["model"], *_data(values)]
    return [*words, "--labels", values["labels"]] if values.get("labels") else words


def _after_layers(values: Values) -> Words:
    if values.get("doubtful"):
        return None
    plan = ["--plan", values["plan"]] if values.get("plan") else ["--profile", "PROFILE"]
    return ["sensitivity", values["model"], *plan, *_data(values)]


def _after_sensitivity(values: Values) -> Words:
    """Return the command that keeps nodes float or tries more; none after a plan: its settings stay."""
    model, profile = values["model"], values.get("profile")
    if values.get("plan") or not profile:
        return None
    if nodes := values.get("proposed_keep_float"):
        keep_float = [word for node in nodes for word in ("--keep-float", node)]
        return ["quantize", model, "--profile", profile, "-o", quantized_name(str(model)), *keep_float]
    return None if _is_random(values) else ["tune", model, "--profile", profile, *_data(values)]


def _after_tune(values: Values) -> Words:
    model = values["model"]
    if values.get("failed") or not values.get("output"):
        return ["sensitivity", model, "--profile", values["profile"], *_data(values)]
    return ["evaluate", model, values["output"], *_judged_data(values)]


def _after_diff(values: Values) -> Words:
    """Return the command that shows the data that drifted: the model must not be fitted to them unseen."""
    if not values.get("failed"):
        return None
    tensor = values.get("drifted")
    return ["show", values["new"], *(["--tensor", tensor] if tensor else [])]


def _after_targets(values: Values) -> Words:
    target = values.get("target") or "onnxruntime-x86"
    return ["quantize", "MODEL.onnx", "--data", DATA, "--target", target, "-o", "model.int8.onnx"]


def _after_measuring(values: Values) -> Words:
    costs = ["--costs", values["output"], "-o", "model.int8.onnx"]
    return ["quantize", "MODEL.onnx", "--data", DATA, "--target", values["target"], *costs]


def _after_join(values: Values) -> Words:
    output = values["output"]
    saved = ["-o", quantized_name(str(output)), "--save-plan", f"{Path(str(output)).stem}.plan.yaml"]
    return ["quantize", output, "--data", DATA, *saved]


FOLLOWING: Mapping[str, Callable[[Values], Words]] = {
    "dump-profile": _after_profile,
    "join": _after_join,
    "merge": _after_profile,
    "import-profile": _after_profile,
    "import-plan": _after_import_plan,
    "quantize": _after_quantize,
    "evaluate": _after_evaluate,
    "card": _after_card,
    "compare-layers": _after_layers,
    "sensitivity": _after_sensitivity,
    "tune": _after_tune,
    "diff": _after_diff,
    "targets": _after_targets,
    "rules": _after_targets,
    "measure-target": _after_measuring,
}
"""What follows each command; the others end where they end."""
