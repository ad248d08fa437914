"""What of a command line is said again in the next command: the same samples, settings and way to measure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DATA = "DATA"
"""What stands for samples that a command does not know."""

Values = Mapping[str, Any]
"""Parameters of a command by name, what it found, and "typed": option and texts of those that were typed."""

LIBRARIES = ("custom_ops",)
SCORING = ("labels", "metric", "class_axis")
RUNNING = ("no_latency", "runtime", "provider", "threads")
GATES = (
    *("min_group_sqnr", "max_accuracy_drop", "max_drop", "min_score", "max_size", "min_speedup"),
    *("baseline", "slack"),
)
"""Limits that quantize and evaluate name alike, or that evaluate alone has."""


def quantized_name(model: object) -> str:
    """Return the file that a model is quantized to where nobody says."""
    return f"{Path(str(model)).stem}.int8.onnx"


def carried(values: Values, names: Collection[str]) -> list[str]:
    """Return those of some options that were typed, as words, in the order in which they were."""
    typed: Mapping[str, tuple[str, Sequence[str]]] = values.get("typed", {})
    found: list[str] = []
    for option, texts in (typed[name] for name in typed if name in names):
        found += [word for text in texts for word in (option, text)] or [option]
    return found


def output_words(values: Values, name: str) -> list[str]:
    """Return which output is scored, by the name of the parameter that says so."""
    return ["--output", str(values[name])] if values.get(name) else []


def recipe_words(values: Values) -> list[str]:
    """Return how files become samples."""
    return ["--preprocess", str(values["preprocess"])] if values.get("preprocess") else []


def data_words(values: Values, *, limit: bool = True) -> list[str]:
    """Return the samples as they were given, but for what is secret of a URL."""
    from ....profiles.samples.storage import shown_location

    data, first = values.get("data"), values.get("limit")
    shown = shown_location(str(data)) if data else DATA
    cut = ["--limit", str(first)] if data and limit and first else []
    return ["--data", shown, *recipe_words(values), *cut]


def judged_words(values: Values) -> list[str]:
    """Return the samples that a result was judged on: those that were held out by hand, else all."""
    held_out = values.get("holdout_data")
    return data_words(values) if not held_out else data_words({**values, "data": held_out}, limit=False)


def ranked_on(values: Values) -> list[str]:
    """Return the samples that nodes are ranked on: the limit only where it is below that of sensitivity."""
    from ....quantizer.search.sensitivity import LIMIT

    limit = values.get("limit")
    return judged_words({**values, "limit": limit if limit and limit < LIMIT else None})


def setting_words(values: Values) -> list[str]:
    """Return the settings that were typed, with those of the fix that was applied in their place."""
    from ....quantizer.targets.config import settings

    fixed: tuple[str, ...] = values.get("fixed", ())
    changed = {name for name in fixed if name.startswith("--")} - {"--keep-float", "--keep-16bit"}
    return list(_without(carried(values, {*settings(), "config", "costs"}), changed)) + list(fixed)


def _without(words: Sequence[str], changed: Collection[str]) -> Iterator[str]:
    """Yield options with their values but for some; every setting has a value."""
    for option, text in zip(words[::2], words[1::2], strict=True):
        if option not in changed:
            yield from (option, text)
