"""F1 and mean average precision of boxes.

Mean average precision is COCO's: pycocotools matches the boxes of each picture. What it makes of them is
computed here, as intervals need it for hundreds of draws of the pictures (`bootstrap_interval`).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ....profiles.base.errors import ConfigError, DataError, ModelError
from ....profiles.samples.objects import DataLike, PreprocessedData
from ....profiles.samples.preprocessing import load_preprocessing
from .truth import (
    Figures,
    Metric,
    MetricSource,
    Outputs,
    Place,
    by_stem,
    digest_of,
    of_sums,
    read_text,
    stem_of,
    stems,
)

# Boxes: overlap, non-maximum suppression, matching. Boxes are rows of (x0, y0, x1, y1) in pixels.

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of one picture.

    Attributes:
        corners: float64 of shape [boxes, 4].
        classes: int64 of shape [boxes].
        scores: float64 of shape [boxes]; 1 for true ones.
        crowd: bool of shape [boxes]: true boxes around many objects, which may be found any number of times.
    """

    corners: Floats
    classes: Ints
    scores: Floats
    crowd: npt.NDArray[np.bool_]

    def picked(self, which: npt.NDArray[np.generic]) -> Boxes:
        """Return some of the boxes, by a mask or by their places."""
        return Boxes(self.corners[which], self.classes[which], self.scores[which], self.crowd[which])


def boxes_of(corners: Floats, classes: Ints, scores: Floats | None = None) -> Boxes:
    """Return boxes; without scores true ones."""
    ones = np.ones(len(corners)) if scores is None else scores
    corners = np.asarray(corners, np.float64).reshape(-1, 4)
    return Boxes(corners, np.asarray(classes, np.int64), ones, np.zeros(len(corners), np.bool_))


def overlaps(some: Floats, others: Floats) -> Floats:
    """Return the intersection over union of each box with each other one, [some, others]."""
    a, b = some[:, None, :], others[None, :, :]
    sides = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0.0, None)
    shared = sides.prod(axis=-1)
    sizes = [np.clip(x[..., 2:] - x[..., :2], 0.0, None).prod(axis=-1) for x in (a, b)]
    return np.asarray(shared / np.maximum(sizes[0] + sizes[1] - shared, 1e-12), np.float64)


def suppressed(boxes: Boxes, limit: float, most: int) -> Boxes:
    """Return the boxes that no better one of their class overlaps by more than the limit, best first.

    Greedy, as onnx's NonMaxSuppression and OpenCV do it.

    Args:
        boxes: of one picture.
        limit: IoU from which on a box is left out.
        most: boxes that are returned at most, of all classes together.
    """
    order = np.argsort(-boxes.scores, kind="stable")
    ranked = boxes.picked(order)
    kept: list[int] = []
    left = np.arange(len(order))
    while left.size and len(kept) < most:
        best, others = left[0], left[1:]
        kept.append(int(best))
        covered = overlaps(ranked.corners[best : best + 1], ranked.corners[others])[0] > limit
        left = others[~(covered & (ranked.classes[others] == ranked.classes[best]))]
    return ranked.picked(np.array(kept, np.int64))


def hits(found: Boxes, wanted: Boxes, least: float) -> int:
    """Return how many of the found boxes are true: the best first, each takes the free one it overlaps most.

    As COCO's evaluation matches: of the same class, at an IoU of at least `least`; crowds are no matches.
    """
    if not len(found.scores) or not len(wanted.scores):
        return 0
    same = found.classes[:, None] == wanted.classes[None, :]
    overlap = np.where(same & ~wanted.crowd[None, :], overlaps(found.corners, wanted.corners), -1.0)
    free, count = np.ones(len(wanted.scores), bool), 0
    for row in overlap[np.argsort(-found.scores, kind="stable")]:
        best = int(np.argmax(np.where(free, row, -1.0)))
        if free[best] and row[best] >= least:
            free[best] = False
            count += 1
    return count


def in_crowds(found: Boxes, wanted: Boxes, least: float) -> npt.NDArray[np.bool_]:
    """Return which boxes lie in a crowd of their class, by the share of the box that is in it."""
    crowd = wanted.picked(wanted.crowd)
    if not len(crowd.scores):
        return np.zeros(len(found.scores), np.bool_)
    a, b = found.corners[:, None, :], crowd.corners[None, :, :]
    sides = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0.0, None)
    size = np.clip(found.corners[:, 2:] - found.corners[:, :2], 0.0, None).prod(axis=-1)
    inside = sides.prod(axis=-1) / np.maximum(size[:, None], 1e-12) >= least
    return np.asarray((inside & (found.classes[:, None] == crowd.classes[None, :])).any(axis=1), np.bool_)


# What detectors put out: boxes with scores of classes, in the forms of YOLO, SSD and of NMS in the graph.

Array = npt.NDArray[Any]

FORMS: Mapping[str, str] = {
    "yolov5": "[rows, boxes, 5 + classes]: centre, size, objectness, scores",
    "yolov8": "[rows, 4 + classes, boxes]: centre, size, scores",
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


def _yolov5(head: Head, arrays: list[Array]) -> list[Boxes]:
    return [head.of_scores(row[:, :4], row[:, 5:] * row[:, 4:5]) for row in arrays[0]]


def _yolov8(head: Head, arrays: list[Array]) -> list[Boxes]:
    return [head.of_scores(row[:4].T, row[4:].T) for row in arrays[0]]


def _ssd(head: Head, arrays: list[Array]) -> list[Boxes]:
    first = 1 if head.background else 0
    return [head.of_scores(row, scores[:, first:]) for row, scores in zip(*arrays, strict=True)]


def _boxes(head: Head, arrays: list[Array]) -> list[Boxes]:
    boxes, scores, classes = (a[None] if a.ndim == n else a for a, n in zip(arrays, (2, 1, 1), strict=True))
    rows = zip(boxes, scores, classes, strict=True)
    return [boxes_of(head.pixels(row), _numbers(kinds), likely) for row, likely, kinds in rows]


def _numbers(values: Array) -> npt.NDArray[np.int64]:
    """Return numbers of classes or pictures; what is not finite is 0."""
    return np.asarray(np.clip(np.nan_to_num(values), -1e9, 1e9), np.float64).astype(np.int64)


def _by_picture(rows: Array) -> list[Array]:
    """Return the rows of each picture, whose number stands first."""
    pictures = np.clip(_numbers(rows[:, 0]), 0, MOST_PICTURES - 1)
    return [rows[pictures == picture] for picture in range(int(pictures.max(initial=0)) + 1)]


def _rows6(head: Head, arrays: list[Array]) -> list[Boxes]:
    rows = arrays[0] if arrays[0].ndim == 3 else arrays[0][None]
    return [boxes_of(head.pixels(row[:, :4]), _numbers(row[:, 5]), row[:, 4]) for row in rows]


def _rows7(head: Head, arrays: list[Array]) -> list[Boxes]:
    parts = _by_picture(arrays[0])
    return [boxes_of(head.pixels(part[:, 1:5]), _numbers(part[:, 5]), part[:, 6]) for part in parts]


def _ssd_output(head: Head, arrays: list[Array]) -> list[Boxes]:
    parts = _by_picture(arrays[0].reshape(-1, 7))
    return [boxes_of(head.pixels(part[:, 3:7]), _numbers(part[:, 1]), part[:, 2]) for part in parts]


_READERS = {
    "yolov5": _yolov5,
    "yolov8": _yolov8,
    "ssd": _ssd,
    "boxes": _boxes,
    "rows6": _rows6,
    "rows7": _rows7,
    "ssd-output": _ssd_output,
}


def head_of(source: MetricSource) -> tuple[Head, str]:
    """Return how the outputs of a detector are read, and a sentence that says so.

    Raises:
        ConfigError: an option makes no sense. ModelError: the outputs are of no known form.
    """
    asked, options = source.asked, source.asked.options
    form, names = _form(source)
    corners = _one_of(source, "boxes", ("xyxy", "yxyx", "cxcywh"))
    if corners is None:
        # TensorFlow's detection models have rows of (top, left, bottom, right) under this name.
        tensorflow = names[0].partition(":")[0] == "detection_boxes"
        corners = "cxcywh" if form.startswith("yolo") else "yxyx" if tensorflow else "xyxy"
    values = np.asarray(source.first[names[0]], np.float64)
    coordinates = {"yolov8": values[:, :4] if values.ndim == 3 else values, "ssd-output": values[..., 3:]}
    numbers = coordinates.get(form, values[..., 1:5] if form == "rows7" else values[..., :4])
    units = _one_of(source, "units", ("pixels", "shares"))
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
    background = _one_of(source, "background", ("yes", "no"))
    head = Head(
        form=form,
        outputs=names,
        corners=corners,
        size=size,
        background=background == "yes" if background else form == "ssd" and not form.startswith("yolo"),
        confidence=float(options["confidence"] or 0.0),
        nms=float(options["nms"] or 0.0),
        most=int(options["max"] or 0),
        classes=_class_list(source),
        agnostic=bool(options["agnostic"]),
        first=int(options["first"] or 0),
    )
    unit = f"shares of {size[0]:g} x {size[1]:g} pixels" if shares else "pixels"
    zero = ", class 0 is the background" if head.background else ""
    note = f"{asked.kind.name}: {', '.join(names)} read as {form}, {FORMS[form]}; {corners} in {unit}{zero}"
    return head, note


def _form(source: MetricSource) -> tuple[str, tuple[str, ...]]:
    """Return the form of the outputs and the names of those that it reads."""
    given = _one_of(source, "head", tuple(FORMS))
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
        f"{', '.join(FORMS)}, "
        "or score with a function of your own"
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


def _one_of(source: MetricSource, name: str, words: tuple[str, ...]) -> str | None:
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


# True boxes: COCO JSON and folders of YOLO text files, put where the model's input has them.

PLACEMENTS = ("input", "letterbox", "top-left", "stretch")
"""How pictures came into the model's input: as they are; scaled with borders around them, or to the right and
below; stretched."""

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")


@dataclass(frozen=True, eq=False)
class TrueBoxes:
    """The true boxes of all pictures.

    Attributes:
        of: place of a sample and number of its pictures -> the boxes of each.
        check: called with the number of all pictures and whether samples were left out (`Metric.finish`).
        note: what was assumed.
    """

    of: Callable[[Place, int], list[Boxes]]
    check: Callable[[int, bool], None]
    note: str


def true_boxes(source: MetricSource) -> TrueBoxes:
    """Return the boxes of a COCO JSON file or of a folder of YOLO text files.

    Raises:
        ConfigError: an option makes no sense. DataError: the file cannot be read, or is of another kind.
    """
    assert source.truth is not None
    path = Path(source.truth)
    given = source.asked.options["placement"]
    if given is not None and given not in PLACEMENTS:
        raise ConfigError(
            f"metric '{source.asked.text}': placement={given} is none of {', '.join(PLACEMENTS)}; correct it"
        )
    placement = _recipe(source.data) if given is None else str(given)
    if path.is_dir():
        return _yolo(source, path, placement)
    if path.suffix.lower() == ".json":
        return _coco(source, path, placement)
    raise DataError(
        f"{path}: true boxes are a COCO .json file or a folder of YOLO .txt files; give one of them"
    )


def _recipe(data: DataLike | None) -> str | None:
    """Return the placement that a recipe for pictures makes; None without one, or where it crops them."""
    if not isinstance(data, PreprocessedData) or data.preprocess is None:
        return None
    settings = load_preprocessing(data.preprocess).settings
    if settings.get("crop", "none") != "none":
        return None
    if settings.get("resize") == "letterbox":
        return "top-left" if settings.get("place") == "top-left" else "letterbox"
    return "stretch" if settings.get("resize") == "exact" else None


def placed(
    corners: npt.NDArray[np.float64], size: tuple[float, float], target: tuple[int, int], how: str
) -> npt.NDArray[np.float64]:
    """Return boxes of a picture where the model's input has them.

    Args:
        corners: float64 of shape [boxes, 4], in pixels of the picture.
        size: (width, height) of the picture.
        target: of the input.
        how: one of PLACEMENTS; a letterbox has equal borders.
    """
    if how == "input":
        return corners
    scale = np.array(target, np.float64) / size
    if how != "stretch":
        scale = np.full(2, scale.min())
    border = (np.array(target) - np.array(size) * scale) / 2.0
    border = np.zeros(2) if how == "top-left" else border
    return np.asarray(corners * np.tile(scale, 2) + np.tile(border, 2), np.float64)


@dataclass(frozen=True)
class _Image:
    id: int | str
    width: float
    height: float
    file_name: str = ""


@dataclass(frozen=True)
class _Annotation:
    image_id: int | str
    category_id: int
    bbox: tuple[float, float, float, float]
    iscrowd: int | bool = 0


@dataclass(frozen=True)
class _Category:
    id: int


@dataclass(frozen=True)
class _Coco:
    """Of a COCO file what is read of it."""

    images: tuple[_Image, ...]
    annotations: tuple[_Annotation, ...]
    categories: tuple[_Category, ...] = ()


def _coco(source: MetricSource, path: Path, placement: str | None) -> TrueBoxes:
    try:
        record = msgspec.json.decode(read_text(str(path)), type=_Coco)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DataError(
            f"{path}: is no COCO file of boxes ({error}); it needs images with id, width and height, and "
            "annotations with image_id, category_id and bbox"
        ) from error
    listed: dict[int | str, list[_Annotation]] = {image.id: [] for image in record.images}
    for entry in record.annotations:
        if entry.image_id not in listed:
            raise DataError(f"{path}: a box is of image {entry.image_id}, which is not listed; list it")
        listed[entry.image_id].append(entry)
    if len(listed) < len(record.images):
        raise DataError(f"{path}: two images have one id; give each its own")
    kinds = sorted({e.category_id for e in record.annotations} | {c.id for c in record.categories})
    own = bool(source.asked.options["ids"])
    classes = {kind: kind if own else at for at, kind in enumerate(kinds)}
    sizes = [(image.width, image.height) for image in record.images]
    target = input_size(source)
    if placement is None:
        placement = "input" if all(size == target for size in sizes) else "letterbox"
    boxes = []
    for entries, size in zip(listed.values(), sizes, strict=True):
        found = _coco_boxes(entries, classes)
        boxes.append(replace(found, corners=placed(found.corners, size, target, placement)))
    listed_names = [image.file_name or str(image.id) for image in record.images]
    return _by_name_or_order(
        str(path), boxes, listed_names, f"true boxes of pictures in placement {placement}"
    )


def _coco_boxes(entries: Sequence[_Annotation], classes: Mapping[int, int]) -> Boxes:
    boxes = np.array([entry.bbox for entry in entries], np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    found = boxes_of(boxes, np.array([classes[entry.category_id] for entry in entries], np.int64))
    return replace(found, crowd=np.array([bool(entry.iscrowd) for entry in entries], np.bool_))


def _by_name_or_order(path: str, boxes: Sequence[Boxes], listed: Sequence[str], note: str) -> TrueBoxes:
    """Return boxes that samples find by their names where they have those of the pictures, else by order.

    Args:
        path: of the truth, for messages.
        boxes: of each picture.
        listed: names of the pictures.
        note: what was assumed.
    """
    names = {stem_of(name): at for at, name in enumerate(listed)}
    stem_once, ways = stems(path), dict[bool, str]()

    def of(place: Place, rows: int) -> list[Boxes]:
        at = names.get(stem_of(place.name)) if rows == 1 else None
        ways.setdefault(at is not None, place.name)
        if len(ways) == 2:
            raise DataError(
                f"{path}: lists the picture of sample {ways[True]}, but none of the name of {ways[False]}; "
                "list all pictures, those without boxes too, or leave that sample out"
            )
        if at is not None:
            if len(names) < len(listed):
                raise DataError(f"{path}: two pictures have one name; give each its own, in any folder")
            stem_once(place.name)
            return [boxes[at]]
        if place.row + rows > len(boxes):
            raise DataError(
                f"{path}: has {len(boxes)} pictures, and sample {place.name} is none of them by name or "
                "order; "
                "give a file for these samples"
            )
        return list(boxes[place.row : place.row + rows])

    def check(rows: int, cut: bool) -> None:
        if rows < len(boxes) and not cut:
            raise DataError(
                f"{path}: has {len(boxes)} pictures, but the samples {rows}; give one for each, or --limit"
            )

    return TrueBoxes(of, check, note)


def _yolo(source: MetricSource, folder: Path, placement: str | None) -> TrueBoxes:
    files = by_stem(folder, (".txt",))
    target = input_size(source)
    where = source.asked.options["images"]
    if where is None and isinstance(source.data, PreprocessedData) and Path(source.data.source).is_dir():
        where = source.data.source
    pictures = {} if where is None else _pictures(Path(str(where)))
    placement = placement or ("letterbox" if pictures else "stretch")
    if placement in ("letterbox", "top-left") and not pictures:
        raise ConfigError(
            f"metric '{source.asked.text}': a letterbox needs the sizes of the pictures; name their "
            "folder as in "
            f"{source.asked.kind.name}:images=DIR"
        )
    known: list[str] = []
    stem_once = stems(str(folder))

    def of(place: Place, rows: int) -> list[Boxes]:
        if rows != 1:
            raise DataError(f"{folder}: sample {place.name} holds {rows} pictures; give one picture a sample")
        stem = stem_once(place.name)
        if stem not in files:  # a picture without objects has no file
            return [boxes_of(np.zeros((0, 4)), np.zeros(0, np.int64))]
        known.append(stem)
        size = target if placement in ("stretch", "input") else _picture_size(pictures, stem)
        found = _read_yolo(files[stem])
        corners = placed(found.corners * np.tile(size, 2), size, target, placement or "stretch")
        return [replace(found, corners=corners)]

    def check(rows: int, cut: bool) -> None:
        if not known:
            raise DataError(
                f"{folder}: no file has the name of a sample; name each after its sample, as in "
                f"{next(iter(files))}.txt"
            )

    return TrueBoxes(of, check, f"true boxes are shares of pictures in placement {placement}")


def _pictures(path: Path) -> dict[str, Path]:
    """Return the pictures of a folder by their names without suffix; {} for one of other files."""
    if not path.is_dir():
        raise DataError(f"{path}: no such folder of pictures; check the path")
    return {f.stem: f for f in sorted(path.iterdir()) if f.suffix.lower() in PICTURES}


def _picture_size(pictures: Mapping[str, Path], stem: str) -> tuple[int, int]:
    if stem not in pictures:
        raise DataError(f"{stem}: there is no picture of this name; check the folder given with images=")
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise DataError(
            f"{pictures[stem]}: reading pictures needs Pillow; install it with: pip install "
            "'qprof-onnx[metrics]'"
        ) from error
    try:
        with Image.open(pictures[stem]) as picture:
            return picture.size
    except OSError as error:
        raise DataError(f"{pictures[stem]}: is no picture that can be read; check the file") from error


def _read_yolo(file: Path) -> Boxes:
    """Return the boxes of a file: class, centre and size as shares, one a line; corners as shares."""
    lines = [line.split() for line in read_text(str(file)).splitlines() if line.strip()]
    try:
        values = np.array([[float(cell) for cell in line[:5]] for line in lines], np.float64).reshape(-1, 5)
        if not np.isfinite(values).all():
            raise ValueError("a number is not finite")
    except ValueError as error:
        raise DataError(
            f"{file}: is no list of boxes ({error}); write class, centre and size as shares, one box a line"
        ) from error
    centre, half = values[:, 1:3], values[:, 3:5] / 2.0
    return boxes_of(np.concatenate([centre - half, centre + half], axis=1), values[:, 0].astype(np.int64))


SURE = 0.25
"""Boxes of the float model with this score or more stand for a missing truth."""

RECALLS = np.linspace(0.0, 1.0, 101)
"""Recalls at which COCO takes the precision."""

Pair = tuple[Boxes, Boxes]
"""The true boxes and the found ones of one picture."""


def f1(source: MetricSource) -> Metric:
    """Return the harmonic mean of precision and recall, in percent, of the boxes from a score on."""
    least = float(source.asked.options["iou"] or 0.0)

    def figures(pictures: Sequence[Pair]) -> Figures:
        counts = []
        for wanted, given in pictures:
            found = given.picked(~in_crowds(given, wanted, least))
            there = int((~wanted.crowd).sum())
            counts.append((hits(found, wanted, least), len(found.scores), there))
        return of_sums(np.array(counts, np.float64), _f1)

    return _metric(source, figures)


def _f1(sums: Floats) -> Floats:
    right, both = sums[:, 0], sums[:, 1] + sums[:, 2]
    # Nothing to find, and nothing given.
    return np.where(both > 0.0, 200.0 * right / np.where(both > 0.0, both, 1.0), 100.0)


def mean_average_precision(source: MetricSource) -> Metric:
    """Return COCO's mean average precision in percent: at IoU 0.5, or the mean of 0.5 to 0.95."""
    check_pycocotools()
    ious = np.array([0.5]) if source.asked.kind.name == "map50" else np.linspace(0.5, 0.95, 10)
    most = int(source.asked.options["max"] or 0)
    return _metric(source, lambda pictures: average_precision(pictures, ious, most))


def _metric(source: MetricSource, figures: Callable[[Sequence[Pair]], Figures]) -> Metric:
    head, note = head_of(source)
    truth = None if source.truth is None else true_boxes(source)
    agnostic = head.agnostic

    def truths(place: Place, floats: Outputs) -> tuple[Any, int]:
        mine = head.boxes(floats)
        if truth is None:
            return [boxes.picked(boxes.scores >= SURE) for boxes in mine], 0
        pictures = _pictures_of_scores(head, floats, len(mine))
        return [_counted(boxes, head) for boxes in truth.of(place, pictures)], pictures

    def scored(wanted: Sequence[Boxes], outputs: Outputs) -> list[Pair]:
        found = head.boxes(outputs)
        nothing = boxes_of(np.zeros((0, 4)), np.zeros(0, np.int64))
        found += [nothing] * (len(wanted) - len(found))
        return [(true, mine) for true, mine in zip(wanted, found[: len(wanted)], strict=True)]

    kind = source.asked.kind
    sources = f"the boxes of the float model with a score of {SURE:g} or more are the truth"
    notes = (note, f"{kind.name}: {sources if truth is None else truth.note}")
    return Metric(
        name=source.asked.text,
        title=source.asked.title + (", all classes as one" if agnostic else ""),
        kind=kind,
        truth=truths,
        scored=scored,
        figures=lambda found: figures([pair for pairs in found for pair in pairs]),
        finish=(lambda rows, cut: None) if truth is None else truth.check,
        digest=digest_of(source.asked, source.truth, repr(head)),
        assumed=notes,
    )


def _pictures_of_scores(head: Head, floats: Outputs, found: int) -> int:
    """Return how many pictures a sample has: rows of boxes name only those with a box."""
    return max(1, found) if head.form in ("rows7", "ssd-output") else found


def _counted(boxes: Boxes, head: Head) -> Boxes:
    """Return the true boxes of the classes that count, of one class where all are one."""
    if head.classes:
        boxes = boxes.picked(np.isin(boxes.classes, head.classes))
    if head.agnostic:
        return Boxes(boxes.corners, np.zeros_like(boxes.classes), boxes.scores, boxes.crowd)
    return boxes


def check_pycocotools() -> None:
    """Raise ConfigError where the library that matches boxes is missing."""
    try:
        import pycocotools.cocoeval  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            "metric: mAP needs pycocotools; install it with: pip install 'qprof-onnx[metrics]'"
        ) from error


@dataclass(frozen=True, eq=False)
class _ClassMatches:
    """The boxes found of one class, best first.

    Attributes:
        picture: of each box, int64 of shape [boxes].
        hit, miss: whether it is a true or a false one at each IoU, bool of shape [ious, boxes].
        wanted: true boxes of each picture, float64 of shape [pictures].
    """

    picture: npt.NDArray[np.int64]
    hit: npt.NDArray[np.bool_]
    miss: npt.NDArray[np.bool_]
    wanted: Floats

    def average_precisions(self, weights: Floats) -> Floats:
        """Return the mean of the average precisions at the IoUs for each row of weights; NaN without boxes.

        Precision at a recall is the best one at that recall or a higher one, as in COCO's `accumulate`.
        """
        there = weights @ self.wanted
        of_box = weights[:, self.picture]
        found = np.zeros((len(weights), len(self.hit)))
        for at, (hit, miss) in enumerate(zip(self.hit, self.miss, strict=True)):
            right, wrong = np.cumsum(of_box * hit, axis=1), np.cumsum(of_box * miss, axis=1)
            precision = right / np.maximum(right + wrong, np.spacing(1))
            best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
            recall = right / np.maximum(there, 1.0)[:, None]
            for row in range(len(weights)):
                places = np.searchsorted(recall[row], RECALLS, side="left")
                reached = places[places < best.shape[1]]
                found[row, at] = best[row, reached].sum() / RECALLS.size
        return np.where(there > 0.0, found.mean(axis=1), np.nan)


def average_precision(pictures: Sequence[Pair], ious: Floats, most: int) -> Figures:
    """Return COCO's mean average precision in percent, the mean over the classes that there are.

    Args:
        pictures: true and found boxes of each.
        ious: least overlaps of a match, over which the mean is taken.
        most: found boxes of a picture and class that count, the best.
    """
    matches = _matches(pictures, ious, most)

    def figure(weights: Floats) -> Floats:
        if not matches:  # there is nothing to find
            return np.full(len(weights), 100.0)
        found = np.stack([match.average_precisions(weights) for match in matches])
        known = ~np.isnan(found)
        total = np.where(known, found, 0.0).sum(axis=0)
        count = known.sum(axis=0)
        return np.asarray(100.0 * total / np.maximum(count, 1), np.float64)

    return Figures(len(pictures), figure)


def _matches(pictures: Sequence[Pair], ious: Floats, most: int) -> list[_ClassMatches]:
    """Return the matches of each class that has true boxes, as pycocotools finds them."""
    from pycocotools.cocoeval import COCOeval

    classes = sorted({int(c) for wanted, _ in pictures for c in wanted.classes})
    if not classes:
        return []
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
        true = _coco_of_scores([wanted for wanted, _ in pictures], classes, with_scores=False)
        evaluation = COCOeval(
            true, _coco_of_scores([found for _, found in pictures], classes, with_scores=True), "bbox"
        )
        evaluation.params.iouThrs = ious
        evaluation.params.maxDets = [most]
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0.0, 1e10]], ["all"]
        evaluation.evaluate()
    count, results = len(pictures), evaluation.evalImgs
    return [_class_matches(results[at * count : (at + 1) * count], len(ious)) for at in range(len(classes))]


def _class_matches(results: Sequence[Any], ious: int) -> _ClassMatches:
    """Return what pycocotools found of one class in each picture; None for a picture without such boxes."""
    wanted = np.array([0.0 if r is None else float(np.sum(np.logical_not(r["gtIgnore"]))) for r in results])
    there = [(at, r) for at, r in enumerate(results) if r is not None and len(r["dtScores"])]
    if not there:
        none = np.zeros((ious, 0), np.bool_)
        return _ClassMatches(np.zeros(0, np.int64), none, none, wanted)
    scores = np.concatenate([np.asarray(r["dtScores"], np.float64) for _, r in there])
    order = np.argsort(-scores, kind="mergesort")
    picture = np.concatenate([np.full(len(r["dtScores"]), at, np.int64) for at, r in there])
    matched = np.concatenate([np.asarray(r["dtMatches"]) for _, r in there], axis=1) != 0
    ignored = np.concatenate([np.asarray(r["dtIgnore"], bool) for _, r in there], axis=1)
    hit, miss = matched & ~ignored, ~matched & ~ignored
    return _ClassMatches(picture[order], hit[:, order], miss[:, order], wanted)


def _coco_of_scores(pictures: Sequence[Boxes], classes: Sequence[int], *, with_scores: bool) -> Any:
    """Return boxes as pycocotools takes them."""
    from pycocotools.coco import COCO

    annotations: list[dict[str, Any]] = []
    for at, boxes in enumerate(pictures):
        sizes = boxes.corners[:, 2:] - boxes.corners[:, :2]
        for box, size, kind, score, crowd in zip(
            boxes.corners, sizes, boxes.classes, boxes.scores, boxes.crowd, strict=True
        ):
            annotation = {
                "id": len(annotations) + 1,
                "image_id": at,
                "category_id": int(kind),
                "bbox": [float(box[0]), float(box[1]), float(size[0]), float(size[1])],
                "area": float(size[0] * size[1]),
                "iscrowd": int(crowd),
            }
            annotations.append({**annotation, "score": float(score)} if with_scores else annotation)
    made = COCO()
    made.dataset = {
        "images": [{"id": at} for at in range(len(pictures))],
        "categories": [{"id": kind} for kind in classes],
        "annotations": annotations,
    }
    made.createIndex()
    return made
