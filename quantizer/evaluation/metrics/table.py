"""The table of built-in metrics: needs, figure, and meaning of a drop.

Without numpy: help is fast. A new metric is one entry here and the function that it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ....profiles.base.errors import ConfigError, nearest, same_word
from ....profiles.base.extras import OptionalModule, library

Option = str | int | float | bool | None


@dataclass(frozen=True)
class MetricKind:
    """One kind of metric."""

    name: str  # "top-K" and "recall@K" with a number for K
    title: str
    maker: str  # "module:function" below `quantizer`
    truth: str  # the file that it reads
    without_truth: str = ""  # stands for the truth without a file; "" if one is needed
    higher_is_better: bool = True
    unit: Literal["%", "dB", ""] = "%"
    drop: Literal["points", "dB", "relative"] = "points"
    # with defaults; None for what follows from the model
    options: Mapping[str, Option] = field(default_factory=dict)
    recognises: str = ""  # "module:function": whether a path is truth of this metric
    library: str = ""  # that the extra `metrics` installs
    least: float = 10.0  # percent below which the float model's own score is doubtful

    @property
    def module(self) -> OptionalModule:
        """The module that has its maker."""
        return OptionalModule(f"metric '{self.name}'", f"quantizer.{self.maker.partition(':')[0]}")

    @property
    def drop_unit(self) -> str:
        """The unit of a drop, for people: "points" are those of a function of one's own."""
        points = "percentage points" if self.unit == "%" else "points"
        return {"points": points, "dB": "dB", "relative": "% of float's"}[self.drop]


_BOXES: Mapping[str, Option] = {
    "head": None,
    "nms": 0.45,
    "confidence": 0.25,
    "max": 300,
    "boxes": None,
    "units": None,
    "background": None,
    "size": None,
    "placement": None,
    "classes": None,
    "nc": None,
    "first": 0,
    "ids": False,
}
_FOR_MAP = {**_BOXES, "confidence": 0.001, "nms": 0.6, "max": 100}
_BOX_TRUTH = "COCO .json, a folder of YOLO .txt files, or a data.yaml"
_FLOAT_BOXES = "the boxes of the float model"
_TEXTS: Mapping[str, Option] = {
    "charset": None,
    "blank": 0,
    "layout": None,
    "end": None,
    "spaces": "keep",
    "case": "keep",
}
_TEXT_TRUTH = "one line of text for each row"
_PICTURES = "pictures (.npy, .png), one for each sample, or one .npy"
_NUMBERS = "numbers for each row: .npy, .csv, FILE:COLUMN, or a folder of .npy"

KINDS: tuple[MetricKind, ...] = (
    MetricKind(
        "top-K",
        "top-K accuracy",
        "evaluation.metrics.classification:top_k",
        "class of each row: text, .npy, or a folder of pictures in a folder for each class",
        least=50.0,
    ),
    MetricKind(
        "f1",
        "F1 of boxes",
        "plugins.metrics.detection:f1",
        _BOX_TRUTH,
        _FLOAT_BOXES,
        options={**_BOXES, "iou": 0.5},
    ),
    MetricKind(
        "map",
        "mAP at IoU 0.5 to 0.95",
        "plugins.metrics.detection:mean_average_precision",
        _BOX_TRUTH,
        _FLOAT_BOXES,
        options=_FOR_MAP,
        recognises="plugins.metrics.true_boxes:holds_true_boxes",
        library="pycocotools.cocoeval",
    ),
    MetricKind(
        "map50",
        "mAP at IoU 0.5",
        "plugins.metrics.detection:mean_average_precision",
        _BOX_TRUTH,
        _FLOAT_BOXES,
        options=_FOR_MAP,
        library="pycocotools.cocoeval",
    ),
    MetricKind(
        "miou",
        "mean IoU of classes",
        "plugins.metrics.segmentation:mean_iou",
        "masks of classes (.npy, .png), one for each sample, or one .npy",
        "the masks of the float model",
        options={"ignore": 255, "threshold": None},
    ),
    MetricKind(
        "recall@K",
        "queries with one of their documents among the first K",
        "plugins.metrics.retrieval:recall",
        "number of the pair of each row: its first row is the query, the others are its documents",
        options={"among": None},
    ),
    MetricKind(
        "mrr",
        "mean reciprocal rank",
        "plugins.metrics.retrieval:mean_reciprocal_rank",
        "number of the pair of each row: its first row is the query, the others are its documents",
        options={"among": None},
    ),
    MetricKind(
        "cosine",
        "cosine similarity with the float model",
        "plugins.metrics.cosine:cosine",
        "none",
        "the float model",
    ),
    MetricKind(
        "wer",
        "word error rate",
        "plugins.metrics.texts:word_error_rate",
        _TEXT_TRUTH,
        "the texts of the float model",
        higher_is_better=False,
        options=_TEXTS,
        library="rapidfuzz.distance",
    ),
    MetricKind(
        "cer",
        "character error rate",
        "plugins.metrics.texts:character_error_rate",
        _TEXT_TRUTH,
        "the texts of the float model",
        higher_is_better=False,
        options=_TEXTS,
        library="rapidfuzz.distance",
    ),
    MetricKind(
        "perplexity",
        "perplexity",
        "plugins.metrics.language:perplexity",
        "none",
        "the next tokens of the texts",
        higher_is_better=False,
        unit="",
        drop="relative",
        options={"ids": None},
    ),
    MetricKind(
        "psnr",
        "PSNR",
        "plugins.metrics.images:psnr",
        _PICTURES,
        unit="dB",
        drop="dB",
        options={"range": None},
    ),
    MetricKind("ssim", "SSIM", "plugins.metrics.images:ssim", _PICTURES, options={"range": None}),
    MetricKind(
        "rmse",
        "root mean square error",
        "plugins.metrics.regression:rmse",
        _NUMBERS,
        higher_is_better=False,
        unit="",
        drop="relative",
    ),
    MetricKind(
        "mae",
        "mean absolute error",
        "plugins.metrics.regression:mae",
        _NUMBERS,
        higher_is_better=False,
        unit="",
        drop="relative",
    ),
    MetricKind("r2", "coefficient of determination", "plugins.metrics.regression:r2", _NUMBERS),
)
"""Every built-in metric that has a name."""

USER_FUNCTION = MetricKind("file.py:function", "your own function", "", "the input of the function", unit="")
"""A metric without a name in the table."""

_NAME = re.compile(r"([a-z0-9@-]+?)(?:(?<=-|@)(\d{1,6}))?(?::(.*))?")


@dataclass(frozen=True)
class NamedMetric:
    """A metric of the table, as the user names it."""

    text: str
    kind: MetricKind
    number: int
    options: Mapping[str, Option]

    @property
    def title(self) -> str:
        """The title with its number."""
        return re.sub(r"\bK\b", str(self.number), self.kind.title)


def metric_of_truth(path: str) -> str | None:
    """Return the name of the only metric that reads truth with this content, or None."""
    for kind in KINDS:
        if kind.recognises and kind.module.is_installed:
            module, _, name = kind.recognises.partition(":")
            recognises = getattr(OptionalModule(f"metric '{kind.name}'", f"quantizer.{module}").load(), name)
            if recognises(path):
                return kind.name
    return None


def metric_names() -> Iterator[str]:
    """Yield the names of those that are installed, for help: "top-K" is shown as "top-1"."""
    for kind in KINDS:
        if kind.module.is_installed:
            yield kind.name.replace("top-K", "top-1").replace("@K", "@1")


_COUNTED = re.compile(r"(top|recall)[-_@ ]?(\d+)", re.IGNORECASE)

_OTHER_WORDS = {"map@0.5": "map50", "map@0.5:0.95": "map", "acc": "top-1", "accuracy": "top-1"}
"""Names of other tools."""


def _own_words(text: str) -> str:
    """Return the name of a metric as the table has it: other tools write mAP@0.5, top5 and acc."""
    if counted := _COUNTED.fullmatch(text):
        return f"{counted[1].lower()}{'-' if counted[1].lower() == 'top' else '@'}{counted[2]}"
    if (whole := _OTHER_WORDS.get(text.lower())) is not None:
        return whole
    name, colon, options = text.partition(":")
    return f"{same_word(name.replace('.', ''), metric_names()) or name}{colon}{options}"


def named_metric(text: str) -> NamedMetric | None:
    """Return the metric of the table that a text names, as in "top-5" or "map50:nms=0.6"."""
    match = _NAME.fullmatch(_own_words(text))
    if match is None:
        return None
    name = match[1] + ("" if match[2] is None else "K")
    kind = next((kind for kind in KINDS if kind.name == name), None)
    if kind is None:
        return None
    number = int(match[2] or 1)
    if number < 1:
        raise ConfigError(f"metric '{text}': counts from 1; give a number above 0")
    options = dict(kind.options)
    for part in filter(None, (match[3] or "").split(",")):
        name, equals, value = part.partition("=")
        if name not in options or not equals:
            names = ", ".join(options) or "none"
            meant = "" if name in options else nearest(name, options)
            raise ConfigError(
                f"metric '{text}': '{part}' is not an option of it with a value; its options are {names}, as "
                f"in {kind.name}:{name if name in options else next(iter(options), 'option')}=value.{meant}"
            )
        options[name] = _option_value(text, name, value, kind.options[name])
    return NamedMetric(text, kind, number, options)


def check_metric(text: str) -> None:
    """Check the packages and options of a metric before data are read."""
    metric = named_metric(text)
    if metric is not None:
        metric.kind.module.check()
    if metric is not None and metric.kind.library:
        library(metric.kind.library, f"metric '{text}'", "metrics")
    if metric is None and ":" not in text:
        names = list(metric_names())
        listed = ", ".join(names).replace("top-1", "top-1 (or another number)")
        raise ConfigError(
            f"metric '{text}': there is no such metric; use one of {listed}, or a function of your "
            f"own as module:function.{nearest(text, [*names, *_OTHER_WORDS])}"
        )


_ALLOWED: Mapping[str, tuple[str, str]] = {
    "head": ("yolov5|yolov8|ssd|boxes|rows6", ""),
    "boxes": ("xyxy|yxyx|cxcywh", ""),
    "units": ("pixels|shares", ""),
    "background": ("yes|no", ""),
    "size": (r"\d+(x\d+)?", "a size, as 640 or 640x480"),
    "placement": ("input|letterbox|top-left|stretch", ""),
    "classes": (r"\d+(\+\d+)*", "numbers of classes, as 0+2"),
    "nc": (r"[1-9]\d*", "a number of classes from 1"),
    "layout": ("btc|tbc", ""),
    "end": (r"\d+", "the number of a token"),
    "spaces": ("keep|ignore", ""),
    "case": ("keep|ignore", ""),
    "among": (r"[2-9]|[1-9]\d+", "a number of documents from 2"),
    "range": (r"(?=.*[1-9])\d*\.?\d*", "a number above 0, as 1 or 255"),
    "threshold": (r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", "a number, as 0.5"),
}
"""The words, or the pattern in words, of options whose default has no type."""


def _option_value(text: str, name: str, value: str, default: Option) -> Option:
    """Return the value of an option as the type of its default."""
    pattern, allowed = _ALLOWED.get(name, (".*", ""))
    if not re.fullmatch(pattern, value):
        allowed = allowed or f"one of {pattern.replace('|', ', ')}"
        raise ConfigError(f"metric '{text}': {name}={value} is not {allowed}; correct it")
    try:
        if isinstance(default, bool):
            return {"yes": True, "true": True, "no": False, "false": False}[value.lower()]
        if isinstance(default, int):
            return int(value)
        if isinstance(default, float):
            number = float(value)
            if not 0.0 <= number <= 1.0:
                raise ValueError
            return number
    except (KeyError, ValueError) as error:
        wanted = {bool: "yes or no", int: "a whole number", float: "a number from 0 to 1"}[type(default)]
        raise ConfigError(f"metric '{text}': {name}={value} is not {wanted}; correct it") from error
    return value
