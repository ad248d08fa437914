"""What detectors put out: boxes with scores of classes, in the forms of YOLO, SSD and of NMS in the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import ConfigError, ModelError
from ...evaluation.metrics.metric import MetricSource, Outputs, names_in_metadata
from .boxes import Boxes, boxes_of, non_max_suppression

Array = npt.NDArray[Any]

MAX_CANDIDATES = 30000
"""Boxes of one picture that suppression compares: those with the highest scores."""


@dataclass(frozen=True)
class Head:
    """How the outputs of a detector are read."""

    form: str
    outputs: tuple[str, ...]  # the one; or boxes, scores and, for form "boxes", classes
    corners: str
    size: tuple[float, float]  # width, height that boxes are multiplied with; (1, 1) if they are pixels
    background: bool  # whether the first score of form "ssd" is of no class
    confidence: float
    nms: float
    most: int
    classes: tuple[int, ...]  # that count; () for all
    first: int = 0  # number of the first class, after NMS
    scored: int | None = None  # classes with a score, of YOLO; None for all

    def boxes(self, outputs: Outputs) -> list[Boxes]:
        """Return the boxes that a detector gives for each picture, best first."""
        arrays = [np.asarray(outputs[name], np.float64) for name in self.outputs]
        return [self._selected(boxes) for boxes in FORMS[self.form].read(self, arrays)]

    def _selected(self, boxes: Boxes) -> Boxes:
        """Return the boxes with a sufficient score of the classes that count, after NMS if it is due."""
        before_nms = FORMS[self.form].before_nms
        if self.first and not before_nms:
            boxes = boxes_of(boxes.corners, boxes.classes - self.first, boxes.scores)
        likely = (boxes.scores >= self.confidence) & np.isfinite(boxes.corners).all(axis=1)
        if self.classes:
            likely &= np.isin(boxes.classes, self.classes)
        boxes = boxes.subset(likely)
        boxes = boxes.subset(np.argsort(-boxes.scores, kind="stable")[:MAX_CANDIDATES])
        return non_max_suppression(boxes, self.nms if before_nms else 2.0, self.most)  # no IoU is above 1

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
        """Return boxes by `scores` [boxes, classes]; each likely class is a separate box, as for mAP."""
        scores = np.nan_to_num(scores)
        if self.classes:
            other = ~np.isin(np.arange(scores.shape[1]), self.classes)
            scores = np.where(other, -1.0, scores)
        if self.confidence >= 0.1:
            at, classes = np.arange(len(scores)), scores.argmax(axis=1)
        else:
            at, classes = np.nonzero(scores >= self.confidence)
        return boxes_of(self.pixels(corners)[at], classes, scores[at, classes])


def head_of(source: MetricSource) -> tuple[Head, str]:
    """Return the reading of a detector's outputs, and a sentence about it."""
    metric, options = source.metric, source.metric.options
    form, names = _form(source)
    arrays = [np.asarray(source.first_outputs[name], np.float64) for name in names]
    classes = tuple(int(number) for number in str(options["classes"] or "").split("+") if number)
    scored = _scored_classes(source, form, names[0], classes) if form.startswith("yolo") else None

    corners = options["boxes"]
    if corners is None:
        # TensorFlow's detection models have rows of (top, left, bottom, right) under this name.
        tensorflow = names[0].partition(":")[0] == "detection_boxes"
        corners = "cxcywh" if form.startswith("yolo") else "yxyx" if tensorflow else "xyxy"

    units = options["units"]
    if units is None:
        largest = float(np.abs(np.nan_to_num(FORMS[form].coordinates(arrays[0]))).max(initial=0.0))
        if not largest:
            raise ConfigError(
                f"metric '{metric.text}': the first sample has no box to tell whether units are pixels or "
                f"fractions; say which, as in {metric.kind.name}:units=pixels, or put another sample first"
            )
        units = "shares" if largest <= 2.0 else "pixels"
    size = (1.0, 1.0)
    if units == "shares":
        width, height = input_size(source)
        size = (float(width), float(height))

    background = options["background"]
    head = Head(
        form=form,
        outputs=names,
        corners=str(corners),
        size=size,
        background=background == "yes" if background else form == "ssd",
        confidence=float(options["confidence"] or 0.0),
        nms=float(options["nms"] or 0.0),
        most=int(options["max"] or 0),
        classes=classes,
        first=int(options["first"] or 0),
        scored=scored,
    )
    count = _check_scores(head, arrays)
    unit = f"shares of {size[0]:g} x {size[1]:g} pixels" if units == "shares" else "pixels"
    zero = ", class 0 is the background" if head.background else ""
    reading = f"{', '.join(names)} read as {form}, {FORMS[form].text}; {corners} in {unit}{zero}"
    return head, f"{metric.kind.name}: {reading}{'' if count is None else f'; {count} classes'}"


def _scored_classes(source: MetricSource, form: str, output: str, classes: Collection[int]) -> int | None:
    """Return the number of classes of a head of YOLO, from nc= or the metadata; None for all there are.

    Heads of masks, of poses and of turned boxes have more channels than classes.
    """
    shape, before = source.first_outputs[output].shape, 5 if form == "yolov5" else 4
    if len(shape) != 3:
        raise ModelError(
            f"output '{output}': {list(shape)} is not {FORMS[form].text}; name another form with head="
        )
    channels = shape[2] if form == "yolov5" else shape[1]
    if source.model.metadata_props.get("task") == "obb":
        raise ModelError(
            f"output '{output}': has turned boxes (task obb), which this metric does not read; score with a "
            "function of your own"
        )
    given = source.metric.options["nc"]
    count = (len(names_in_metadata(source.model)) or None) if given is None else int(given)
    if count is not None and count > channels - before:
        where = "nc" if given is not None else "its metadata names"
        raise ModelError(
            f"output '{output}': {list(shape)}, read as {form}, has room for {channels - before} classes, "
            f"and {where} has {count}; correct nc=, or name the form with head="
        )
    prototypes = [
        f"{name} {list(values.shape)}"
        for name, values in source.first_outputs.items()
        if values.ndim == 4 and 1 <= values.shape[1] < channels - before
    ]
    if count is None and prototypes and not classes:
        raise ModelError(
            f"output '{output}': {list(shape)} beside {prototypes[0]} may contain coefficients of masks "
            f"after the scores; give the number of classes, as in {source.metric.kind.name}:nc=80"
        )
    return count


SCORE_SLACK = 1e-3
"""By which a score may lie outside of 0 to 1: rounding of float16."""


def _check_scores(head: Head, arrays: list[Array]) -> int | None:
    """Return the number of classes that have scores of 0 to 1; None if boxes come with their class."""
    form = FORMS[head.form]
    scores = form.scores(head, arrays)
    if form.before_nms and head.classes:
        scores = scores[..., [kind for kind in head.classes if kind < scores.shape[-1]]]
    finite = np.nan_to_num(scores)
    low, high = float(finite.min(initial=0.0)), float(finite.max(initial=1.0))
    if low < -SCORE_SLACK or high > 1.0 + SCORE_SLACK:
        of_yolo = "; keypoints, masks? say how many classes there are with nc=" * head.form.startswith("yolo")
        raise ModelError(
            f"output '{head.outputs[0]}': read as {head.form}, its scores range from {low:.4g} to "
            f"{high:.4g} instead of 0 to 1{of_yolo}; name the form with head=, or another output with "
            "--scored-output"
        )
    return scores.shape[-1] if form.before_nms else None


def _form(source: MetricSource) -> tuple[str, tuple[str, ...]]:
    """Return the form of the outputs and the names of those that it reads."""
    given = None if source.metric.options["head"] is None else str(source.metric.options["head"])
    shapes = {
        name: values.shape
        for name, values in source.first_outputs.items()
        if source.output is None or name == source.output
    }
    if given in ("boxes", "ssd") or (given is None and len(shapes) > 1):
        several = _several(shapes, source.first_outputs)
        if several is not None and given in (None, several[0]):
            return several
    for name, shape in shapes.items():
        form = given or _single(shape, source.first_outputs[name])
        if form is not None:
            return form, (name,)
    listed = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    raise ModelError(
        f"outputs {listed}: are not boxes of a known form; name one with --scored-output and head=FORM: "
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
    labels = [n for n in flat if _are_whole(first[n])]
    likely = [n for n in flat if n not in labels[:1]]
    named = [n for n in flat if "class" in n.lower() or "label" in n.lower()]
    kinds = (named or labels)[:1]
    others = [n for n in (likely if not named else flat) if n not in kinds]
    others.sort(key=lambda n: "score" not in n.lower())
    return ("boxes", (boxes, others[0], kinds[0])) if kinds and others else None


def _are_whole(values: Array) -> bool:
    return values.dtype.kind in "iu" or bool((values == np.round(values)).all())


def _single(shape: tuple[int, ...], values: Array) -> str | None:
    """Return the form of one output."""
    if len(shape) in (2, 3) and shape[-1] == 6 and _are_whole(values[..., 5]):
        return "rows6"
    if len(shape) == 3 and min(shape[1:]) >= 5:
        return "yolov8" if shape[1] < shape[2] else "yolov5"
    return None


def input_size(source: MetricSource) -> tuple[int, int]:
    """Return the (width, height) of the model's pictures, from the option or the first sample."""
    given = source.metric.options["size"]
    if given is not None:
        parts = str(given).split("x")
        return int(parts[0]), int(parts[-1])
    for values in source.first_inputs.values():
        if values.ndim == 4:
            dims = values.shape
            height, width = dims[1:3] if dims[3] in (1, 3, 4) and dims[1] > 4 else dims[2:]
            return width, height
    raise ConfigError(
        f"metric '{source.metric.text}': the model has no picture input to get the size from; give it as in "
        "size=640"
    )


# The boxes of each picture in an output of each form -----------------------------------------------------


def _whole_numbers(values: Array) -> npt.NDArray[np.int64]:
    """Return numbers of classes; 0 for those that are not finite."""
    return np.asarray(np.clip(np.nan_to_num(values), -1e9, 1e9), np.float64).astype(np.int64)


def _yolov5(head: Head, arrays: list[Array]) -> list[Boxes]:
    return [head.of_scores(row[:, :4], row[:, 5:][:, : head.scored] * row[:, 4:5]) for row in arrays[0]]


def _yolov8(head: Head, arrays: list[Array]) -> list[Boxes]:
    return [head.of_scores(row[:4].T, row[4:][: head.scored].T) for row in arrays[0]]


def _ssd(head: Head, arrays: list[Array]) -> list[Boxes]:
    first = int(head.background)
    return [head.of_scores(row, scores[:, first:]) for row, scores in zip(*arrays, strict=True)]


def _boxes(head: Head, arrays: list[Array]) -> list[Boxes]:
    boxes, scores, classes = (a[None] if a.ndim == n else a for a, n in zip(arrays, (2, 1, 1), strict=True))
    rows = zip(boxes, scores, classes, strict=True)
    return [boxes_of(head.pixels(row), _whole_numbers(kinds), likely) for row, likely, kinds in rows]


def _rows6(head: Head, arrays: list[Array]) -> list[Boxes]:
    pictures = arrays[0] if arrays[0].ndim == 3 else arrays[0][None]
    return [boxes_of(head.pixels(rows[:, :4]), _whole_numbers(rows[:, 5]), rows[:, 4]) for rows in pictures]


@dataclass(frozen=True)
class Form:
    """A form of the outputs of detectors."""

    text: str
    read: Callable[[Head, list[Array]], list[Boxes]]
    scores: Callable[[Head, list[Array]], Array]  # of classes along the last axis before NMS
    coordinates: Callable[[Array], Array] = lambda values: values[..., :4]  # pixels or shares by their size
    before_nms: bool = False


FORMS: Mapping[str, Form] = {
    "yolov5": Form(
        "[rows, boxes, 5 + classes + more]: centre, size, objectness, scores",
        _yolov5,
        lambda head, arrays: arrays[0][..., 5:][..., : head.scored],
        before_nms=True,
    ),
    "yolov8": Form(
        "[rows, 4 + classes + more, boxes]: centre, size, scores",
        _yolov8,
        lambda head, arrays: np.moveaxis(arrays[0][:, 4:][:, : head.scored], 1, -1),
        coordinates=lambda boxes: boxes[:, :4] if boxes.ndim == 3 else boxes,
        before_nms=True,
    ),
    "ssd": Form(
        "boxes [rows, boxes, 4] and scores [rows, boxes, classes]",
        _ssd,
        lambda head, arrays: arrays[1][..., int(head.background) :],
        before_nms=True,
    ),
    "boxes": Form(
        "boxes [rows, boxes, 4], scores and classes [rows, boxes], after NMS",
        _boxes,
        lambda head, arrays: arrays[1],
    ),
    "rows6": Form(
        "[rows, boxes, 6]: corners, score, class, after NMS", _rows6, lambda head, arrays: arrays[0][..., 4]
    ),
}
"""The forms of outputs, by the name that option head= has."""
