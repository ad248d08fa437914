"""What detectors put out: boxes with scores of classes, in the forms of YOLO, SSD and of NMS in the graph."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import ConfigError, ModelError
from .boxes import Boxes, boxes_of, suppressed
from .metric import MetricSource, Outputs

Array = npt.NDArray[Any]

FORMS: Mapping[str, str] = {
    "yolov5": "[rows, boxes, 5 + classes + more]: centre, size, objectness, scores",
    "yolov8": "[rows, 4 + classes + more, boxes]: centre, size, scores",
    "ssd": "boxes [rows, boxes, 4] and scores [rows, boxes, classes]",
    "boxes": "boxes [rows, boxes, 4], scores and classes [rows, boxes], after NMS",
    "rows6": "[rows, boxes, 6]: corners, score, class, after NMS",
    "rows7": "[boxes, 7]: row, corners, class, score, after NMS",
    "ssd-output": "[1, 1, boxes, 7]: row, class, score, corners as shares, after NMS",
}
"""The forms of outputs."""

MOST_PICTURES = 4096
"""In one sample."""

CANDIDATES = 30000
"""Boxes of one picture, the best, that suppression looks at."""


@dataclass(frozen=True)
class Head:
    """How the outputs of a detector are read.

    Attributes:
        form: a key of `FORMS`.
        outputs: names: the one; or boxes, scores and, for form "boxes", classes.
        corners: of boxes: "xyxy", "yxyx" or "cxcywh".
        size: (width, height) that boxes are multiplied with; (1, 1) where they are pixels.
        background: whether the first score of form "ssd" is of no class; classes count from the next.
        confidence: least score.
        nms: IoU of the suppression; of forms before NMS.
        most: boxes of one picture at most.
        classes: those that count; () for all.
        agnostic: whether all classes count as one.
        first: number that the outputs give the first class, of forms after NMS; that of the truth is 0.
        scored: number of classes that have a score, of the forms of YOLO; what follows them in an output are
            coefficients of masks, keypoints or an angle. None for all that there is.
    """

    form: str
    outputs: tuple[str, ...]
    corners: str
    size: tuple[float, float]
    background: bool
    confidence: float
    nms: float
    most: int
    classes: tuple[int, ...]
    agnostic: bool
    first: int = 0
    scored: int | None = None

    def boxes(self, outputs: Outputs) -> list[Boxes]:
        """Return the boxes that a detector gives for each picture, best first."""
        arrays = [np.asarray(outputs[name], np.float64) for name in self.outputs]
        return [self._kept(boxes) for boxes in _READERS[self.form](self, arrays)]

    def _kept(self, boxes: Boxes) -> Boxes:
        raw = self.form in ("yolov5", "yolov8", "ssd")
        if self.first and not raw:
            boxes = boxes_of(boxes.corners, boxes.classes - self.first, boxes.scores)
        likely = (boxes.scores >= self.confidence) & np.isfinite(boxes.corners).all(axis=1)
        if self.classes:
            likely &= np.isin(boxes.classes, self.classes)
        boxes = boxes.picked(likely)
        boxes = boxes.picked(np.argsort(-boxes.scores, kind="stable")[:CANDIDATES])
        if self.agnostic:
            boxes = boxes_of(boxes.corners, np.zeros_like(boxes.classes), boxes.scores)
        return suppressed(boxes, self.nms if raw else 2.0, self.most)

    def pixels(self, values: Array) -> npt.NDArray[np.float64]:
        """Return boxes [boxes, 4] as corners in pixels."""
        a, b, c, d = values.reshape(-1, 4).T
        if self.corners == "cxcywh":
            a, b, c, d = a - c / 2, b - d / 2, a + c / 2, b + d / 2
        elif self.corners == "yxyx":
            a, b, c, d = b, a, d, c
        width, height = self.size
        return np.stack([a * width, b * height, c * width, d * height], axis=1)

    def of_scores(self, corners: Array, scores: Array) -> Boxes:
        """Return boxes, each with its best class; `scores` is [boxes, classes].

        Where several classes are likely, each is a box of its own, as mAP wants it.
        """
        scores = np.nan_to_num(scores)
        if self.classes:
            other = ~np.isin(np.arange(scores.shape[1]), self.classes)
            scores = np.where(other, -1.0, scores)
        if self.agnostic or self.confidence >= 0.1:
            at, classes = np.arange(len(scores)), scores.argmax(axis=1)
        else:
            at, classes = np.nonzero(scores >= self.confidence)
        return boxes_of(self.pixels(corners)[at], classes, scores[at, classes])


def head_of(source: MetricSource) -> tuple[Head, str]:
    """Return how the outputs of a detector are read, and a sentence that says so.

    Raises:
        ConfigError: an option makes no sense. ModelError: the outputs are of no known form, or what would be
            scores are none.
    """
    asked, options = source.asked, source.asked.options
    form, names = _form(source)
    classes = _class_list(source)
    scored = _scored_classes(source, form, names[0], classes) if form.startswith("yolo") else None
    corners = choice_of(source, "boxes", ("xyxy", "yxyx", "cxcywh"))
    if corners is None:
        # TensorFlow's detection models have rows of (top, left, bottom, right) under this name.
        tensorflow = names[0].partition(":")[0] == "detection_boxes"
        corners = "cxcywh" if form.startswith("yolo") else "yxyx" if tensorflow else "xyxy"
    values = np.asarray(source.first[names[0]], np.float64)
    coordinates = {"yolov8": values[:, :4] if values.ndim == 3 else values, "ssd-output": values[..., 3:]}
    numbers = coordinates.get(form, values[..., 1:5] if form == "rows7" else values[..., :4])
    units = choice_of(source, "units", ("pixels", "shares"))
    largest = float(np.abs(np.nan_to_num(numbers)).max(initial=0.0))
    if units is None and form != "ssd-output" and not largest:
        raise ConfigError(
            f"metric '{asked.text}': the first sample has no box to tell pixels from shares of the picture; "
            f"say which, as in {asked.kind.name}:units=pixels, or put another sample first"
        )
    shares = units == "shares" or (units is None and (form == "ssd-output" or largest <= 2.0))
    size = (1.0, 1.0)
    if shares:
        width, height = input_size(source)
        size = (float(width), float(height))
    background = choice_of(source, "background", ("yes", "no"))
    head = Head(
        form=form,
        outputs=names,
        corners=corners,
        size=size,
        background=background == "yes" if background else form == "ssd" and not form.startswith("yolo"),
        confidence=float(options["confidence"] or 0.0),
        nms=float(options["nms"] or 0.0),
        most=int(options["max"] or 0),
        classes=classes,
        agnostic=bool(options["agnostic"]),
        first=int(options["first"] or 0),
        scored=scored,
    )
    read = _check_scores(head, source)
    unit = f"shares of {size[0]:g} x {size[1]:g} pixels" if shares else "pixels"
    zero = ", class 0 is the background" if head.background else ""
    note = f"{asked.kind.name}: {', '.join(names)} read as {form}, {FORMS[form]}; {corners} in {unit}{zero}"
    return head, note + ("" if read is None else f"; {read} classes")


def _scored_classes(source: MetricSource, form: str, output: str, classes: Collection[int]) -> int | None:
    """Return how many classes a head of YOLO has; None for as many as it has channels for.

    Its exporters write the names of the classes into the model's metadata; heads of masks, of poses and of
    turned boxes have more channels than these.

    Raises:
        ConfigError: the option makes no sense. ModelError: the output has too few channels, the boxes are
            turned ones, or another output has prototypes of masks and nobody says how many classes there are.
    """
    shape, before = source.first[output].shape, 5 if form == "yolov5" else 4
    if len(shape) != 3:
        raise ModelError(
            f"output '{output}': {list(shape)} is not {FORMS[form]}; name another form with head="
        )
    channels = shape[2] if form == "yolov5" else shape[1]
    if source.model.metadata_props.get("task") == "obb":
        raise ModelError(
            f"output '{output}': has turned boxes (task obb), which this metric does not read; score with a "
            "function of your own"
        )
    given = source.asked.options["nc"]
    if given is not None and (not str(given).isdigit() or int(given) < 1):
        raise ConfigError(f"metric '{source.asked.text}': nc={given} is no number of classes; give 1 or more")
    count = _named_classes(source) if given is None else int(given)
    if count is not None and count > channels - before:
        where = "nc" if given is not None else "its metadata names"
        raise ModelError(
            f"output '{output}': {list(shape)}, read as {form}, has room for {channels - before} classes, "
            f"and {where} has {count}; correct nc=, or name the form with head="
        )
    prototypes = [
        f"{name} {list(values.shape)}"
        for name, values in source.first.items()
        if values.ndim == 4 and 1 <= values.shape[1] < channels - before
    ]
    if count is None and prototypes and not classes:
        raise ModelError(
            f"output '{output}': {list(shape)} beside {prototypes[0]} may hold coefficients of masks after "
            f"the scores; say how many classes there are, as in {source.asked.kind.name}:nc=80"
        )
    return count


def _named_classes(source: MetricSource) -> int | None:
    """Return the number of classes that the model's metadata name, a list or dict as text; None for none."""
    try:
        names = ast.literal_eval(source.model.metadata_props.get("names", ""))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return len(names) if isinstance(names, list | tuple | dict) and names else None


SCORE_SLACK = 1e-3
"""By which a score may lie outside of 0 to 1: rounding of float16."""


def _check_scores(head: Head, source: MetricSource) -> int | None:
    """Return how many classes have a score; None where boxes bring the number of theirs.

    Raises:
        ModelError: in the first sample the scores are not from 0 to 1, so that they are none.
    """
    arrays = [np.asarray(source.first[name], np.float64) for name in head.outputs]
    values = arrays[0]
    scores = {
        "yolov5": lambda: values[..., 5:][..., : head.scored],
        "yolov8": lambda: np.moveaxis(values[:, 4:][:, : head.scored], 1, -1),
        "ssd": lambda: arrays[1][..., int(head.background) :],
        "boxes": lambda: arrays[1],
        "rows6": lambda: values[..., 4],
        "rows7": lambda: values[..., 6],
        "ssd-output": lambda: values[..., 2],
    }[head.form]()
    several = head.form in ("yolov5", "yolov8", "ssd")
    if several and head.classes:
        scores = scores[..., [kind for kind in head.classes if kind < scores.shape[-1]]]
    known = np.nan_to_num(scores)
    low, high = float(known.min(initial=0.0)), float(known.max(initial=1.0))
    if low < -SCORE_SLACK or high > 1.0 + SCORE_SLACK:
        of_yolo = "; keypoints, masks? say how many classes there are with nc=" * head.form.startswith("yolo")
        raise ModelError(
            f"output '{head.outputs[0]}': what would be scores, read as {head.form}, goes from {low:.4g} to "
            f"{high:.4g} and not from 0 to 1{of_yolo}; name the form with head=, or another output with "
            "--output"
        )
    return scores.shape[-1] if several else None


def _form(source: MetricSource) -> tuple[str, tuple[str, ...]]:
    """Return the form of the outputs and the names of those that it reads."""
    given = choice_of(source, "head", tuple(FORMS))
    shapes = {
        name: values.shape
        for name, values in source.first.items()
        if source.output is None or name == source.output
    }
    if given in ("boxes", "ssd") or (given is None and len(shapes) > 1):
        several = _several(shapes, source.first)
        if several is not None and given in (None, several[0]):
            return several
    for name, shape in shapes.items():
        form = given or _single(shape, source.first[name])
        if form is not None:
            return form, (name,)
    listed = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    raise ModelError(
        f"outputs {listed}: are no boxes of a known form; name one with --output and head=FORM: "
        f"{', '.join(FORMS)}, or score with a function of your own"
    )


def _several(shapes: Mapping[str, tuple[int, ...]], first: Outputs) -> tuple[str, tuple[str, ...]] | None:
    """Return the form of several outputs: boxes with scores, and perhaps classes."""
    boxes = next((n for n, s in shapes.items() if len(s) in (2, 3) and s[-1] == 4), None)
    if boxes is None:
        return None
    lead, count = shapes[boxes][:-1], shapes[boxes][-2]
    scores = next((n for n, s in shapes.items() if n != boxes and len(s) == 3 and s[:2] == lead), None)
    if scores is not None:
        return "ssd", (boxes, scores)
    flat = [n for n, s in shapes.items() if n != boxes and s and s[-1] == count and s in (lead, lead[-1:])]
    labels = [n for n in flat if _whole(first[n])]
    likely = [n for n in flat if n not in labels[:1]]
    named = [n for n in flat if "class" in n.lower() or "label" in n.lower()]
    kinds = (named or labels)[:1]
    others = [n for n in (likely if not named else flat) if n not in kinds]
    others.sort(key=lambda n: "score" not in n.lower())
    return ("boxes", (boxes, others[0], kinds[0])) if kinds and others else None


def _whole(values: Array) -> bool:
    return values.dtype.kind in "iu" or bool((values == np.round(values)).all())


def _single(shape: tuple[int, ...], values: Array) -> str | None:
    """Return the form of one output."""
    if len(shape) == 4 and shape[:2] == (1, 1) and shape[-1] == 7:
        return "ssd-output"
    if len(shape) == 2 and shape[1] == 7:
        return "rows7"
    if len(shape) in (2, 3) and shape[-1] == 6 and _whole(values[..., 5]):
        return "rows6"
    if len(shape) == 3 and min(shape[1:]) >= 5:
        return "yolov8" if shape[1] < shape[2] else "yolov5"
    return None


def choice_of(source: MetricSource, name: str, words: tuple[str, ...]) -> str | None:
    """Return the value of an option that is one of some words; None where it was not given."""
    given = source.asked.options[name]
    if given is not None and given not in words:
        raise ConfigError(
            f"metric '{source.asked.text}': {name}={given} is none of {', '.join(words)}; correct it"
        )
    return None if given is None else str(given)


def _class_list(source: MetricSource) -> tuple[int, ...]:
    given = source.asked.options["classes"]
    parts = [] if given is None else str(given).split("+")
    if not all(part.isdigit() for part in parts):
        raise ConfigError(
            f"metric '{source.asked.text}': classes={given} are no numbers; write them as in classes=0+2"
        )
    return tuple(int(part) for part in parts)


def input_size(source: MetricSource) -> tuple[int, int]:
    """Return the (width, height) of the pictures that the model takes, as the first sample has them.

    Raises:
        ConfigError: there are no pictures, and the option does not say it either.
    """
    given = source.asked.options["size"]
    if given is not None:
        parts = str(given).lower().split("x")
        if not all(part.isdigit() for part in parts) or len(parts) > 2:
            raise ConfigError(
                f"metric '{source.asked.text}': size={given} is no size; write it like size=640 or "
                "size=640x480"
            )
        return int(parts[0]), int(parts[-1])
    for values in source.inputs.values():
        if values.ndim == 4:
            dims = values.shape
            height, width = dims[1:3] if dims[3] in (1, 3, 4) and dims[1] > 4 else dims[2:]
            return width, height
    raise ConfigError(
        f"metric '{source.asked.text}': the model takes no pictures, whose size boxes need; give it as in "
        "size=640"
    )


# The boxes of each picture in an output of each form -----------------------------------------------------


def _yolov5(head: Head, arrays: list[Array]) -> list[Boxes]:
    return [head.of_scores(row[:, :4], row[:, 5:][:, : head.scored] * row[:, 4:5]) for row in arrays[0]]


def _yolov8(head: Head, arrays: list[Array]) -> list[Boxes]:
    return [head.of_scores(row[:4].T, row[4:][: head.scored].T) for row in arrays[0]]


def _ssd(head: Head, arrays: list[Array]) -> list[Boxes]:
    first = 1 if head.background else 0
    return [head.of_scores(row, scores[:, first:]) for row, scores in zip(*arrays, strict=True)]


def _boxes(head: Head, arrays: list[Array]) -> list[Boxes]:
    boxes, scores, classes = (a[None] if a.ndim == n else a for a, n in zip(arrays, (2, 1, 1), strict=True))
    rows = zip(boxes, scores, classes, strict=True)
    return [boxes_of(head.pixels(row), _numbers(kinds), likely) for row, likely, kinds in rows]


def _rows6(head: Head, arrays: list[Array]) -> list[Boxes]:
    rows = arrays[0] if arrays[0].ndim == 3 else arrays[0][None]
    return [boxes_of(head.pixels(row[:, :4]), _numbers(row[:, 5]), row[:, 4]) for row in rows]


def _rows7(head: Head, arrays: list[Array]) -> list[Boxes]:
    parts = _by_picture(arrays[0])
    return [boxes_of(head.pixels(part[:, 1:5]), _numbers(part[:, 5]), part[:, 6]) for part in parts]


def _ssd_output(head: Head, arrays: list[Array]) -> list[Boxes]:
    parts = _by_picture(arrays[0].reshape(-1, 7))
    return [boxes_of(head.pixels(part[:, 3:7]), _numbers(part[:, 1]), part[:, 2]) for part in parts]


def _numbers(values: Array) -> npt.NDArray[np.int64]:
    """Return numbers of classes or pictures; what is not finite is 0."""
    return np.asarray(np.clip(np.nan_to_num(values), -1e9, 1e9), np.float64).astype(np.int64)


def _by_picture(rows: Array) -> list[Array]:
    """Return the rows of each picture, whose number stands first."""
    pictures = np.clip(_numbers(rows[:, 0]), 0, MOST_PICTURES - 1)
    return [rows[pictures == picture] for picture in range(int(pictures.max(initial=0)) + 1)]


_READERS = {
    "yolov5": _yolov5,
    "yolov8": _yolov8,
    "ssd": _ssd,
    "boxes": _boxes,
    "rows6": _rows6,
    "rows7": _rows7,
    "ssd-output": _ssd_output,
}
